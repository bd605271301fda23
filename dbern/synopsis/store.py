"""The objects of a released store: each is read whole, at most once, and checked as it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dbern.bernstein.blocks import Blocks
from dbern.data.plain_files import too_large
from dbern.data.storage import MANIFEST, MOST_METADATA, ROOT, Location, owner, storage_errors
from dbern.errors import IntegrityError, SpecError, printable, unreadable_refused
from dbern.privacy.budget import Budget
from dbern.synopsis.layout import LARGEST_NUMBER, array_paths
from dbern.synopsis.manifest import Entry, Manifest, digest, digest_of
from dbern.synopsis.metadata import Root, array_groups
from dbern.synopsis.stored_arrays import MISSING, stored_arrays
from dbern.synopsis.strict import damaged, parse_object
from dbern.system import LRUCache
from dbern.types import FloatArray

SHARD_BYTES = 1 << 28
"""Most bytes of shards that are kept after they were read."""

_READERS = 8
_MAX_UNKNOWN_OBJECTS = 256  # that a newer version may have added
_SIGNATURES = {f"{MANIFEST}.sig", f"{MANIFEST}.sigstore.json"}
"""Files of ssh-keygen and cosign, who vouch for the manifest: no part of the release."""


class ReleasedStore:
    """A store that has a manifest; its metadata is checked at once, arrays when they are read.

    An object is never read in part: its digest could not be checked. Raises SpecError where there
    is nothing at all, IntegrityError where there is no manifest or an object is not what it says,
    and ReleaseError where the place cannot be read.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        with unreadable_refused(str(location)):
            self._read_metadata()

    def _read_metadata(self) -> None:
        with storage_errors(self.location, "read"):
            try:
                text = self.location.read(MANIFEST)
            except (FileNotFoundError, NotADirectoryError):
                raise _not_a_synopsis(self.location) from None
        self.manifest = text
        self._manifest = Manifest.parse(text, str(self.location))
        self._shards = LRUCache[FloatArray](SHARD_BYTES, lambda shard: shard.nbytes)
        released = parse_object(Root, self._metadata(ROOT), str(self.location), ROOT).attributes
        self.released = released
        for key in ("release_id", "created"):
            if getattr(released, key) != getattr(self._manifest, key):
                raise damaged(
                    str(self.location), ROOT, f"attributes.{key}", "is not that of the manifest"
                )
        groups = list(array_groups(released))
        names = [
            f"{path}/{name}/{ROOT}" for path, component in groups for name in array_paths(component)
        ]
        texts = dict(zip(names, self._read_all(self._metadata, names), strict=True))
        self._arrays = stored_arrays(released, texts, str(self.location))
        described = 2 + 2 * len(groups)  # root, components, and each lattice's
        described += len(names) + sum(len(array.names) for array in self._arrays.values())
        if len(self._manifest.objects) > described + _MAX_UNKNOWN_OBJECTS:
            why = f"names {len(self._manifest.objects)}, and the release has {described}"
            raise damaged(str(self.location), MANIFEST, "objects", why)
        for array in self._arrays.values():
            for name in array.names:
                if self._entry(name).bytes > array.object_bytes:
                    raise too_large(str(self.location), name, array.object_bytes)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group that FORMAT.md names."""
        return self.released.to_json()

    @property
    def guarantee(self) -> Budget:
        """Guarantee of the attributes."""
        return Budget.parse(self.attributes["epsilon"], self.attributes["delta"])

    def require(self, release_id: str) -> None:
        """Refuse another release than the given one: it may have come to its place."""
        if self._manifest.release_id != release_id:
            raise IntegrityError(
                f"{self.location}: holds another release than was opened. Open it again"
            )

    def array(self, path: str) -> tuple[Any, dict[str, Any]]:
        """Return a whole small array, read into memory, and its attributes."""
        values = self._decoded(path, 0)
        minimum = 1 / LARGEST_NUMBER if "/eigenvalues" in path else -LARGEST_NUMBER
        if not ((values >= minimum) & (values <= LARGEST_NUMBER)).all():
            raise damaged(
                str(self.location), self._arrays[path].name(0), "", "holds no such number"
            )
        return values, dict(self._arrays[path].attributes)

    def array_attributes(self, path: str) -> Mapping[str, Any]:
        """Return the attributes of an array."""
        return self._arrays[path].attributes

    def values(self, path: str) -> FloatArray:
        """Return an array of released integers in data units."""
        array = self._arrays[path]
        values = np.empty(array.shape)

        def fill(index: int) -> None:
            layers = slice(index * array.layers, (index + 1) * array.layers)
            values[layers] = self._shard(path, index)

        self._read_all(fill, range(len(array.names)))
        return values

    def shard(self, path: str, index: int) -> FloatArray:
        """Return one shard of an array that is cut along its first axis; the last few are kept."""
        return self._shards((path, index), lambda: self._shard(path, index))

    def blocks(self, path: str) -> StoredBlocks:
        """Return an array as its shards, none of which is read yet."""
        array = self._arrays[path]
        return StoredBlocks(array.shape, array.layers, self, path)

    def _shard(self, path: str, index: int) -> FloatArray:
        integers = self._decoded(path, index)
        if (integers == MISSING).any():
            raise IntegrityError(
                f"{self.location}: coefficients are missing. Copy the synopsis again"
            )
        return np.asarray(integers * float(self._arrays[path].attributes["scale_factor"]))

    def _decoded(self, path: str, index: int) -> Any:
        array = self._arrays[path]
        return array.decoded(index, self._checked(array.name(index)), str(self.location))

    def verify(self) -> int:
        """Check every object, and that there is no other; return how many there are.

        A signature of the manifest that another program made may lie beside it.
        """
        with storage_errors(self.location, "read"):
            unknown = set(self.location.names()) - set(self._manifest.objects) - _SIGNATURES
        if unknown:
            raise IntegrityError(
                f"{self.location}: {printable(min(unknown))} is not part of the release. Remove it"
            )
        return len(self._read_all(self._check_object, self._manifest.objects))

    def _check_object(self, name: str) -> None:
        """Check an object, never whole in memory: what a newer version added may be of any size."""
        entry = self._entry(name)
        with self._reading(name):
            measured = digest_of(self.location.parts(name, entry.bytes))
        self._require_same(name, measured)

    def _read_all(self, read: Callable[[Any], Any], names: Collection[Any]) -> list[Any]:
        """Read several at a time, where that is worth the threads."""
        if len(names) < self.location.worth_threads:
            return list(map(read, names))
        with ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(read, names))

    def _entry(self, name: str) -> Entry:
        if name not in self._manifest.objects:
            why = f"does not name {name}, which the release has to have"
            raise damaged(str(self.location), MANIFEST, "objects", why)
        return self._manifest.objects[name]

    def _metadata(self, name: str) -> bytes:
        if self._entry(name).bytes > MOST_METADATA:
            raise too_large(str(self.location), name, MOST_METADATA)
        return self._checked(name)

    def _checked(self, name: str) -> bytes:
        with self._reading(name):
            data = self.location.read(name, self._entry(name).bytes)
        self._require_same(name, digest(data))
        return data

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        with storage_errors(self.location, "read"):
            try:
                yield
            except (FileNotFoundError, NotADirectoryError):
                raise IntegrityError(
                    f"{self.location}: {name} is missing. Copy the synopsis again"
                ) from None

    def _require_same(self, name: str, measured: Entry) -> None:
        if measured != self._manifest.objects[name]:
            raise IntegrityError(
                f"{self.location}: {name} is not what was released. Copy the synopsis again"
            )


@dataclass(frozen=True)
class StoredBlocks(Blocks):
    """The array at a path of a store, a shard a block."""

    store: ReleasedStore
    path: str

    def read(self, index: int) -> FloatArray:
        """Read a shard."""
        return self.store.shard(self.path, index)


def _not_a_synopsis(location: Location) -> IntegrityError | SpecError:
    if not location.exists():
        return SpecError(f"{location}: there is no such {location.noun}. Check the path")
    if owner(location) is not None:
        return IntegrityError(
            f"{location}: has no {MANIFEST}, so its release is not finished. Run the release again"
        )
    return IntegrityError(f"{location}: is not a dbern synopsis (no {MANIFEST}). Check the path")
