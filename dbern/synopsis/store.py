"""The objects of a released store: each is read whole, at most once, and checked as it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import MemoryStore

from dbern.arrays import FloatArray
from dbern.errors import IntegrityError, SpecError
from dbern.privacy.budget import Budget
from dbern.privacy.random_privacy import RandomPrivacy
from dbern.synopsis.kept import Kept
from dbern.synopsis.manifest import Manifest, digest
from dbern.synopsis.places import MANIFEST, ROOT, Place, failures_told, owner, place_at
from dbern.synopsis.writer import ABSENT

SHARD_BYTES = 1 << 28
"""Most bytes of shards that are kept after they were read."""

_READERS = 8


class ReleasedStore:
    """A store that has a manifest; its metadata is checked at once, arrays when they are read.

    An object is never read in part: its digest could not be checked.

    Parameters
    ----------
    url : str or path
        Where the store is.

    Raises
    ------
    SpecError
        Where there is nothing at all.
    IntegrityError
        Where there is no manifest, or an object is not what the manifest says.
    ReleaseError
        Where the place cannot be read.
    """

    def __init__(self, url: str | Path) -> None:
        self.place = place = place_at(url)
        with failures_told(place, "read"):
            try:
                text = place.read(MANIFEST)
            except (FileNotFoundError, NotADirectoryError):
                raise _not_a_synopsis(place) from None
        self._manifest = Manifest.parse(text, str(place))
        self._shards = Kept[FloatArray](SHARD_BYTES, lambda shard: shard.nbytes)
        self._layouts: dict[str, tuple[int, int]] = {}
        self._metadata = self._read(name for name in self._manifest.objects if name.endswith(ROOT))

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group."""
        return dict(zarr.open_group(self._holding({}), mode="r").attrs.asdict())

    @property
    def guarantee(self) -> Budget | RandomPrivacy:
        """What the attributes state."""
        budget = Budget.parse(self.attributes["epsilon"], self.attributes["delta"])
        random_dp = self.attributes.get("random_dp")
        return RandomPrivacy.from_dict(random_dp, budget) if random_dp else budget

    def require(self, release_id: str) -> None:
        """Refuse another release than the one that is meant: it may have come to its place.

        Raises
        ------
        IntegrityError
            Where this is another.
        """
        if self._manifest.release_id != release_id:
            raise IntegrityError(
                f"{self.place}: holds another release than was opened; open it again"
            )

    def array(self, path: str) -> Any:
        """A whole small array, read into memory."""
        objects = self._manifest.objects
        names = (name for name in objects if name.startswith(f"{path}/c/"))
        return self._opened(path, self._read(names))

    def values(self, path: str) -> FloatArray:
        """An array of released integers in data units."""
        array = self._opened(path, {})
        layers = self.shard_layers(path)
        values = np.empty(array.shape)

        def fill(index: int) -> None:
            values[index * layers : (index + 1) * layers] = self._shard(path, index)

        self._each(fill, range(-(-array.shape[0] // layers)))
        return values

    def shard(self, path: str, index: int) -> FloatArray:
        """One shard of an array that is cut along its first axis; the last few are kept."""
        return self._shards((path, index), lambda: self._shard(path, index))

    def shard_layers(self, path: str) -> int:
        """Layers of the first axis in each shard of an array but the last."""
        return self._layout(path)[0]

    def _layout(self, path: str) -> tuple[int, int]:
        """Layers of a shard, and how many axes an array has."""
        if path not in self._layouts:
            array = self._opened(path, {})
            self._layouts[path] = int((array.shards or array.chunks)[0]), array.ndim
        return self._layouts[path]

    def _shard(self, path: str, index: int) -> FloatArray:
        layers, axes = self._layout(path)
        name = "/".join([path, "c", str(index), *["0"] * (axes - 1)])
        there = name in self._manifest.objects
        array = self._opened(path, {name: _buffer(self._checked(name))} if there else {})
        return self._decoded(array, array[index * layers : (index + 1) * layers])

    def _opened(self, path: str, objects: dict[str, Buffer]) -> Any:
        return zarr.open_array(self._holding(objects), path=path, mode="r")

    def _holding(self, objects: dict[str, Buffer]) -> MemoryStore:
        return MemoryStore({**self._metadata, **objects}, read_only=True)

    def _decoded(self, array: Any, integers: Any) -> FloatArray:
        if (integers == ABSENT).any():
            raise IntegrityError(f"{self.place}: coefficients are missing; copy the synopsis again")
        return np.asarray(integers * float(array.attrs["scale_factor"]))

    def verify(self) -> int:
        """Check every object, and that there is no other; returns how many there are."""
        with failures_told(self.place, "read"):
            unknown = set(self.place.names()) - set(self._manifest.objects)
        if unknown:
            raise IntegrityError(
                f"{self.place}: {min(unknown)} is not part of the release; remove it"
            )
        return len(self._each(lambda name: len(self._checked(name)), self._manifest.objects))

    def _read(self, names: Iterable[str]) -> dict[str, Buffer]:
        wanted = list(names)
        return dict(zip(wanted, map(_buffer, self._each(self._checked, wanted)), strict=True))

    def _each(self, read: Callable[[Any], Any], items: Collection[Any]) -> list[Any]:
        """Some at a time, where that is worth the threads."""
        if len(items) < self.place.worth_threads:
            return list(map(read, items))
        with ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(read, items))

    def _checked(self, name: str) -> bytes:
        with failures_told(self.place, "read"):
            try:
                data = self.place.read(name)
            except (FileNotFoundError, NotADirectoryError):
                raise IntegrityError(
                    f"{self.place}: {name} is missing; copy the synopsis again"
                ) from None
        if digest(data) != self._manifest.objects[name]:
            raise IntegrityError(
                f"{self.place}: {name} is not what was released; copy the synopsis again"
            )
        return data


def _buffer(data: bytes) -> Buffer:
    return default_buffer_prototype().buffer.from_bytes(data)


def _not_a_synopsis(place: Place) -> IntegrityError | SpecError:
    if not place.exists():
        return SpecError(f"{place}: there is no such {place.noun}; check the path")
    if owner(place) is not None:
        return IntegrityError(
            f"{place}: has no {MANIFEST}, so its release is not finished; run the release again"
        )
    return IntegrityError(f"{place}: is not a dbern synopsis (no {MANIFEST}); check the path")
