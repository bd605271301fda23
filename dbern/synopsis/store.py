"""Objects of a released store, each checked against the manifest as it is read.

Objects are read whole, as a part has no digest, and a cache holds the last shards. `verify` reads
every object in parts, and caches none.

The manifest is the last object of a synopsis, and the only sign that it is one. `ReadableStore` is
the interface that a synopsis reads, of one store or of a window of a stream's stores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Protocol, Self

import numpy as np
from pydantic import Field, StringConstraints

from dbern.bernstein.blocks import Blocks
from dbern.data.storage import (
    MANIFEST,
    MAX_NAME,
    MOST_METADATA,
    ROOT,
    Location,
    is_object_name,
    owner,
    storage_errors,
    too_large,
)
from dbern.errors import IntegrityError, SpecError, printable, unreadable_refused
from dbern.model.strict import StrictModel, Text, checked, damaged, parse_object, require
from dbern.privacy.budget import Budget
from dbern.synopsis.metadata import FORMAT, FORMAT_VERSION, ReleaseMetadata, Root, array_groups
from dbern.synopsis.stored_arrays import LARGEST_NUMBER, MISSING, array_paths, stored_arrays
from dbern.system import LRUCache
from dbern.types import FloatArray

SHARD_BYTES = 1 << 28
"""Most bytes of shards in the cache."""
_READERS = 8
_MAX_UNKNOWN_OBJECTS = 256  # that a newer version may have added
_SIGNATURES = {f"{MANIFEST}.sig", f"{MANIFEST}.sigstore.json"}
"""Signatures of the manifest by ssh-keygen and cosign: no part of the release."""


def _require_object(name: str) -> None:
    require(is_object_name(name) and name != MANIFEST, "is not the name of an object of the store")


class Entry(StrictModel):
    """Size and SHA-256 of one object."""

    bytes: Annotated[int, Field(ge=0, lt=2**63)]
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class _Version(StrictModel):
    format: Text
    format_version: int


class Manifest(StrictModel):
    """Identity of a release, and size and digest of every other object of its store."""

    release_id: Text
    created: Text
    objects: dict[
        Annotated[str, StringConstraints(max_length=MAX_NAME), checked(_require_object)], Entry
    ]

    def text(self) -> str:
        """Return the JSON text: keys sorted, so that equal manifests are equal bytes."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **self.model_dump()}
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, text: bytes, where: str) -> Self:
        """Read a manifest of this format version; `where` names the store in errors."""
        version = parse_object(_Version, text, where, MANIFEST)
        if (version.format, version.format_version) != (FORMAT, FORMAT_VERSION):
            raise IntegrityError(
                f"{where}: is {printable(version.format)} version {version.format_version}, and "
                f"this dbern reads {FORMAT} version {FORMAT_VERSION}. Open it with the dbern that "
                "wrote it"
            )
        return parse_object(cls, text, where, MANIFEST)


def entry_of(data: bytes) -> Entry:
    """Return the size and SHA-256 of an object."""
    return entry_of_parts([data])


def entry_of_parts(chunks: Iterable[bytes]) -> Entry:
    """Return the size and SHA-256 of an object that comes in parts."""
    size, sha256 = 0, hashlib.sha256()
    for chunk in chunks:
        size += len(chunk)
        sha256.update(chunk)
    return Entry(bytes=size, sha256=sha256.hexdigest())


class ReadableStore(Protocol):
    """Released numbers by their paths (FORMAT.md), and their metadata."""

    @property
    def location(self) -> object:
        """Location; its text is the URL."""

    @property
    def released(self) -> ReleaseMetadata:
        """Attributes of the root group, checked."""

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group that FORMAT.md names, as JSON values."""

    @property
    def guarantee(self) -> Budget:
        """Guarantee of the attributes."""

    def require(self, release_id: str) -> None:
        """Refuse another release than the given one."""

    def verify(self) -> int:
        """Check every object; return how many there are."""

    def array(self, path: str) -> tuple[Any, dict[str, Any]]:
        """Return a whole small array and its attributes."""

    def array_attributes(self, path: str) -> Mapping[str, Any]:
        """Return the attributes of an array."""

    def values(self, path: str) -> FloatArray:
        """Return an array of released numbers, in data units."""

    def blocks(self, path: str) -> Blocks:
        """Return an array of released numbers in blocks that are read one by one."""


class ReleasedStore:
    """A store that has a manifest; its metadata is checked at once, arrays when they are read.

    Raises SpecError where there is nothing at all, IntegrityError where there is no manifest or an
    object is not what it says, and ReleaseError where the place cannot be read.
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
        self.manifest_bytes = text
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
        object_count = 2 + 2 * len(groups)  # root, components, and each lattice's
        object_count += len(names) + sum(len(array.names) for array in self._arrays.values())
        if len(self._manifest.objects) > object_count + _MAX_UNKNOWN_OBJECTS:
            why = f"names {len(self._manifest.objects)}, and the release has {object_count}"
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
        """Refuse another release than the given one: the location may have been overwritten."""
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
        """Return one shard of an array that is cut along its first axis, by the cache."""
        return self._shards((path, index), lambda: self._shard(path, index))

    def blocks(self, path: str) -> StoredBlocks:
        """Return an array as its shards, none of which is read yet."""
        array = self._arrays[path]
        return StoredBlocks(array.shape, array.layers, self, path)

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

    def _check_object(self, name: str) -> None:
        """Check an object in parts: one that a newer version added may be of any size."""
        entry = self._entry(name)
        with self._reading(name):
            measured = entry_of_parts(self.location.parts(name, entry.bytes))
        self._require_same(name, measured)

    def _read_all(self, read: Callable[[Any], Any], names: Collection[Any]) -> list[Any]:
        """Read objects, in threads where they are worth it."""
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
        self._require_same(name, entry_of(data))
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
