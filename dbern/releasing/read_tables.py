"""Which table each release of this process was made from: public, as no value is looked at."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_tables: dict[str, Callable[[], Any]] = {}


def remember_table(release_id: str, table: Any) -> None:
    """Remember that a release was made from this table, where its type allows it."""
    with suppress(TypeError):  # a type of which there are no weak references
        _tables[release_id] = weakref.ref(table)


def is_another(release_id: str, table: Any) -> bool:
    """Whether this is surely another table than that which a release was made from."""
    return release_id in _tables and _tables[release_id]() is not table
