"""Progress of long work, told to whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a stage's name, units done and units in all; never with anything private."""


def silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""
    del stage, done, total
