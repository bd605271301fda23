"""A synopsis whose objects are all in memory: it needs no folder, and travels with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dbern.data.storage import MANIFEST, MOST_METADATA, Folder
from dbern.synopsis.reader import Synopsis
from dbern.synopsis.store import ReleasedStore


class _Memory(Folder):
    """A folder's objects, to be read only; a reader checks each digest as it does on a disk."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        super().__init__(Path("memory"))
        self._objects = objects

    def exists(self) -> bool:
        """Return whether anything is there."""
        return True

    def parts(self, name: str, most: int = MOST_METADATA) -> Iterator[bytes]:
        """Yield one object; it is in memory already, whatever the most that may be read."""
        del most
        if name not in self._objects:
            raise FileNotFoundError(name)
        yield self._objects[name]

    def names(self) -> list[str]:
        """Return the sorted names of everything but the manifest."""
        return sorted(name for name in self._objects if name != MANIFEST)


class HeldSynopsis(Synopsis):
    """The same function as the synopsis that was in a folder; made by `held`.

    Parameters
    ----------
    objects : mapping of str to bytes
        Every object of the store by its name, with the manifest.
    """

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self._objects = objects
        self._store = ReleasedStore(_Memory(objects))

    def __reduce__(self) -> tuple[Any, ...]:
        return (HeldSynopsis, (self._objects,))


def held(synopsis: Synopsis) -> HeldSynopsis:
    """Return a synopsis with all its objects in memory; the folder may go afterwards.

    Raises
    ------
    ReleaseError, IntegrityError
        Where an object cannot be read, or is not what was released.
    """
    synopsis.verify()
    place = synopsis._store.place
    names = [MANIFEST, *place.names()]
    return HeldSynopsis({name: b"".join(place.parts(name, 1 << 62)) for name in names})
