"""A synopsis that needs no folder: every object of its store is in memory."""

from __future__ import annotations

from typing import Any

from dbern.data.storage import MANIFEST, MemoryFolder, location_at
from dbern.synopsis.reader import Synopsis
from dbern.synopsis.store import ReleasedStore


class MemorySynopsis(Synopsis):
    """The same function with every object of its store in memory; made by `to_memory`."""

    def __init__(self, location: MemoryFolder) -> None:
        self._store = ReleasedStore(location)

    def __reduce__(self) -> tuple[Any, ...]:
        return (MemorySynopsis, (self._store.location,))


def to_memory(synopsis: Synopsis) -> MemorySynopsis:
    """Return a synopsis that travels with its numbers; the folder may go afterwards."""
    synopsis.verify()
    location = location_at(synopsis.url)
    names = [MANIFEST, *location.names()]
    return MemorySynopsis(
        MemoryFolder({name: b"".join(location.parts(name, 1 << 62)) for name in names})
    )
