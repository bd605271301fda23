"""JSON that others wrote, which may be anything."""

from __future__ import annotations

from typing import Any


def dict_of(value: object) -> dict[Any, Any]:
    """Return a dict, an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}
