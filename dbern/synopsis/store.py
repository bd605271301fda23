"""The objects of a released store: each is read whole, at most once, and checked as it is read.

Decoding trusts nothing: before it is known how large the result will be. The codecs are those of
the format, chunks are of the array's own shape, and every zstd frame says how much it holds. zarr's
own decoding would allocate what a frame says, and take half as long to import as a first query.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pyarrow import Codec
from pydantic import ConfigDict, Field, StringConstraints

from dbern.components.component import MOST_COEFFICIENTS, Component
from dbern.components.layout import (
    LARGEST_NUMBER,
    ArrayLayout,
    array_paths,
    group_layout,
    map_groups,
    map_layouts,
    released_path,
)
from dbern.components.strict import (
    StrictModel,
    Text,
    checked,
    damaged,
    parse_object,
    require,
)
from dbern.data.storage import (
    MANIFEST,
    MAX_NAME,
    MOST_METADATA,
    ROOT,
    Place,
    failures_told,
    is_object_name,
    owner,
    too_large,
)
from dbern.errors import (
    EnvironmentRefusedError,
    IntegrityError,
    SpecError,
    printable,
    unreadable_refused,
)
from dbern.privacy.budget import Budget
from dbern.privacy.random_privacy import RandomPrivacy
from dbern.strategies.approximation import Limits
from dbern.synopsis.metadata import FORMAT, FORMAT_VERSION, Released, Root, array_groups
from dbern.system import LRUCache, memory_limit
from dbern.types import FloatArray

if TYPE_CHECKING:
    from dbern.synopsis.signatures import PrivateKey

# --- The arrays of a store: what FORMAT.md says that each is, and decoding that trusts none of them

MISSING = int(np.iinfo(np.int64).min)
"""Fill value: a coefficient that is not there, never one that was released."""

_NUMBER = 8  # bytes of every number of a store
_INDEX, _CHECKSUM = 16, 4  # bytes of a shard's index: of a chunk, and at its end
_NOWHERE = 2**64 - 1  # in the index: a chunk that is not there
_MOST_SHARD = 1 << 20  # values of an object that has more than one layer
_FRAME = bytes.fromhex("28b52ffd")  # how a zstd frame begins

_TYPES = {"int64": "<i8", "float64": "<f8"}

_LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
_LEVEL = {"level": Limits(int, -math.inf, math.inf), "checksum": Limits(bool, False, True)}
_ZSTD = {"name": "zstd", "configuration": _LEVEL}
_SIZE = Limits(int, 1, MOST_COEFFICIENTS)
_UNLIKE = "is not what the attributes of the root and the format say"


class _Document(StrictModel):
    """An array's ``zarr.json``: a JSON object, to be compared with what a layout implies."""

    model_config = ConfigDict(extra="allow")


def _implied_by(layout: ArrayLayout) -> dict[str, Any]:
    """Return the ``zarr.json`` of an array, or the limits of what the format leaves open."""
    first, *rest = layout.shape
    chunk: list[Any] = [first, *rest]
    codecs: list[Any] = [_LITTLE, _ZSTD]
    if layout.sharded:  # in whole layers
        max_layers = min(first, max(1, _MOST_SHARD // math.prod(rest)))
        chunk = [Limits(int, 1, max_layers), *rest]
        inner = {"chunk_shape": chunk, "codecs": codecs, "index_location": "end"}
        inner["index_codecs"] = [_LITTLE, {"name": "crc32c"}]
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(layout.shape),
        "data_type": layout.numbers,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": MISSING if layout.sharded else 0.0,
        "codecs": codecs,
        "attributes": {**layout.attributes, **layout.limits},
        "dimension_names": list(layout.dimensions),
        "storage_transformers": [],
    }


def _differences(stated: Any, implied: Any, key: str = "") -> Iterator[str]:
    """Yield each key of JSON that is not as implied; keys beside these are left out."""
    if isinstance(implied, dict) and isinstance(stated, dict):
        for name, value in implied.items():
            if name in stated or not isinstance(value, Limits) or value.needed:
                yield from _differences(stated.get(name), value, f"{key}.{name}".lstrip("."))
    elif isinstance(implied, list) and isinstance(stated, list) and len(stated) == len(implied):
        for index, value in enumerate(implied):
            yield from _differences(stated[index], value, f"{key}.{index}")
    elif isinstance(implied, dict | list):
        yield key
    else:
        exact = Limits(type(implied), implied, implied)
        limits = implied if isinstance(implied, Limits) else exact
        kinds = (int, float) if limits.kind is float else (limits.kind,)  # true is no number
        if type(stated) not in kinds or not limits.least <= stated <= limits.most:
            yield key


@dataclass(frozen=True)
class _Stored:
    """One array of a store: the path of its group, its layout, and its attributes.

    Each of its objects has `layers` layers of the first axis, and a chunk of these has `inner`.
    """

    path: str
    layout: ArrayLayout
    attributes: Mapping[str, Any]
    layers: int
    inner: int

    @classmethod
    def of(cls, path: str, layout: ArrayLayout, stated: Mapping[str, Any], where: str) -> Self:
        """Compare an array's ``zarr.json`` with what its layout implies.

        A key there that is not known could change what bytes mean.
        """
        stated, implied = {"storage_transformers": [], **stated}, _implied_by(layout)
        differing = [*_differences(stated, implied), *(key for key in stated if key not in implied)]
        if math.prod(layout.shape) > MOST_COEFFICIENTS:
            differing.append("shape")
        if not differing:
            layers = inner = stated["chunk_grid"]["configuration"]["chunk_shape"][0]
            if layout.sharded:
                inner = stated["codecs"][0]["configuration"]["chunk_shape"][0]
            differing += [] if layers % inner == 0 else ["codecs.0.configuration.chunk_shape"]
        if differing:
            raise damaged(where, f"{path}/{ROOT}", differing[0], _UNLIKE)
        attributes, limits = dict(layout.attributes), layout.limits
        for key in limits.keys() & stated["attributes"].keys():
            attributes[key] = limits[key].kind(stated["attributes"][key])
        return cls(path, layout, attributes, layers, inner)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def names(self) -> list[str]:
        return [self.name(index) for index in range(-(-self.shape[0] // self.layers))]

    def name(self, index: int) -> str:
        return "/".join([self.path, "c", str(index), *["0"] * (len(self.shape) - 1)])

    @property
    def object_bytes(self) -> int:
        """Largest size of an object: zstd adds little to what does not shrink."""
        plain = self._bytes(self.layers)
        frames = plain + plain // 128 + 256 * self._chunks
        return frames + _INDEX * self._chunks + _CHECKSUM

    def decoded(self, index: int, data: bytes, where: str) -> Any:
        needed, offered = 2 * self._bytes(self.layers), memory_limit()
        if needed > offered:
            raise EnvironmentRefusedError(
                f"{where}: {self.name(index)} needs {needed >> 20} MiB, and this process may use "
                f"{offered >> 20}. Open it where there is more memory"
            )
        kind = _TYPES[self.layout.numbers]
        values = np.full(
            (self.layers, *self.shape[1:]), MISSING if self.layout.sharded else 0, kind
        )
        chunks, size = values.reshape(self._chunks, -1), self._bytes(self.inner)
        for chunk, frame in zip(chunks, self._frames(data, index, where), strict=True):
            if frame is None:
                continue
            if _content(frame) != size:
                raise damaged(where, self.name(index), "", "a chunk does not hold its own values")
            try:
                chunk[:] = np.frombuffer(Codec("zstd").decompress(frame, size), kind)
            except (OSError, ValueError):
                raise damaged(where, self.name(index), "", "a chunk is not a zstd frame") from None
        return values[: self.shape[0] - index * self.layers]

    def _frames(self, data: bytes, index: int, where: str) -> Iterator[bytes | None]:
        """Split an object into its zstd frames; None for a chunk that is not there."""
        if not self.layout.sharded:
            yield data
            return
        from google_crc32c import value as crc32c

        start = len(data) - _INDEX * self._chunks - _CHECKSUM
        if start < 0:
            raise damaged(where, self.name(index), "", "its index is cut off")
        if int.from_bytes(data[-_CHECKSUM:], "little") != crc32c(data[start:-_CHECKSUM]):
            raise damaged(where, self.name(index), "", "the checksum of its index is wrong")
        index_entries = np.frombuffer(data[start:-_CHECKSUM], "<u8").reshape(-1, 2).tolist()
        for first, size in index_entries:
            if first == size == _NOWHERE:
                yield None
            elif first + size > start:
                raise damaged(where, self.name(index), "", "a chunk is outside of it")
            else:
                yield data[first : first + size]

    def _bytes(self, layers: int) -> int:
        return _NUMBER * layers * math.prod(self.shape[1:])

    @property
    def _chunks(self) -> int:
        return self.layers // self.inner


def _content(frame: bytes) -> int | None:
    """Bytes that a zstd frame says it holds (RFC 8878, 3.1.1.1); None where it does not say."""
    if len(frame) < len(_FRAME) + 1 or not frame.startswith(_FRAME):
        return None
    descriptor = frame[4]
    flag, single, dictionary = descriptor >> 6, descriptor >> 5 & 1, descriptor & 3
    size = (1 if single else 0, 2, 4, 8)[flag]
    start = 5 + (not single) + (0, 1, 2, 4)[dictionary]
    if not size or len(frame) < start + size:
        return None
    return int.from_bytes(frame[start : start + size], "little") + (256 if size == 2 else 0)


def _stored_arrays(
    released: Released, texts: Mapping[str, bytes], where: str
) -> dict[str, _Stored]:
    """Arrays that the root's attributes promise, by path, each checked by its ``zarr.json``."""
    stored: dict[str, _Stored] = {}
    for group, component in array_groups(released):
        documents: dict[str, Any] = {}
        for path in array_paths(component):
            name = f"{group}/{path}/{ROOT}"
            documents[path] = parse_object(_Document, texts[name], where, name).model_extra
        ranks, arrays = _ranks(component, documents), {}
        if ranks is not None:
            layouts = {**group_layout(component), **map_layouts(component, ranks)}
            for path, layout in layouts.items():
                arrays[path] = _Stored.of(f"{group}/{path}", layout, documents[path], where)
        if ranks is None or not _admit(component, ranks, arrays):
            name = f"{group}/{released_path(component)}/{ROOT}"
            raise damaged(where, name, "shape", _UNLIKE)
        stored |= {array.path: array for array in arrays.values()}
    return stored


def _ranks(component: Component, documents: Mapping[str, Any]) -> list[int] | None:
    """Return how many values are released of each map; None where the law is not of so many."""
    maps = map_groups(component)
    ranks: Any = documents[released_path(component)].get("shape") if maps else []
    if [*_differences(ranks, [_SIZE] * len(maps))]:
        return None
    values = len(component.arrays) * math.prod(ranks)
    return ranks if not maps or component.noise.law.values in (math.inf, values) else None


def _admit(component: Component, ranks: Sequence[int], arrays: Mapping[str, _Stored]) -> bool:
    """Whether the attributes of its maps say that so many values are released of each."""
    for group, rank in zip(map_groups(component), ranks, strict=True):
        attributes: dict[str, Any] = {}
        for path in group.paths.values():
            attributes |= arrays[path].attributes
        axis_map, axes = component.axis_map, len(ranks)
        if axis_map and not axis_map.admits(rank, group.nodes, axes, attributes):
            return False
    return True


# --- The manifest: the last object of a synopsis, and the only sign that it is one


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


def digest(data: bytes) -> Entry:
    """Return the size and SHA-256 of an object."""
    return _digest_of([data])


def _digest_of(parts: Iterable[bytes]) -> Entry:
    size, sha256 = 0, hashlib.sha256()
    for part in parts:
        size += len(part)
        sha256.update(part)
    return Entry(bytes=size, sha256=sha256.hexdigest())


# --- The released store

SHARD_BYTES = 1 << 28
"""Most bytes of shards that are kept after they were read."""

_READERS = 8
_MAX_UNKNOWN_OBJECTS = 256  # that a newer version may have added


class ReleasedStore:
    """A store that has a manifest; its metadata is checked at once, arrays when they are read.

    An object is never read in part: its digest could not be checked. Raises SpecError where there
    is nothing at all, IntegrityError where there is no manifest or an object is not what it says,
    and ReleaseError where the place cannot be read.
    """

    def __init__(self, location: Place) -> None:
        self.location = location
        with unreadable_refused(str(location)):
            self._read_metadata()

    def _read_metadata(self) -> None:
        with failures_told(self.location, "read"):
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
        self._arrays = _stored_arrays(released, texts, str(self.location))
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
    def guarantee(self) -> Budget | RandomPrivacy:
        """Guarantee of the attributes."""
        budget = Budget.parse(self.attributes["epsilon"], self.attributes["delta"])
        random_dp = self.attributes.get("random_dp")
        return RandomPrivacy.from_dict(random_dp, budget) if random_dp else budget

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

    def shard_layers(self, path: str) -> int:
        """Return the layers of the first axis in each shard of an array but the last."""
        return self._arrays[path].layers

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

    def verify(self, trusted: Sequence[str | Path] = ()) -> int:
        """Check every object, and that there is no other; return how many there are.

        With `trusted`, files of public keys, also that one of them signed the release.
        """
        from dbern.synopsis.signatures import is_signature, public_key_of, require_signed

        keys = [public_key_of(path) for path in trusted]
        with failures_told(self.location, "read"):
            there = {name for name in self.location.names() if not is_signature(name)}
        unknown = there - set(self._manifest.objects)
        if unknown:
            raise IntegrityError(
                f"{self.location}: {printable(min(unknown))} is not part of the release. Remove it"
            )
        checked = self._read_all(self._check_object, self._manifest.objects)
        require_signed(self.signers, keys, self.location)
        return len(checked)

    @cached_property
    def signers(self) -> tuple[str, ...]:
        """Fingerprints of the keys that signed the manifest; empty: it is unsigned."""
        from dbern.synopsis.signatures import signers_of  # the library takes 15 ms to import

        return signers_of(self.location, self.manifest)

    def sign(self, key: PrivateKey) -> str:
        """Sign the manifest, once all is as it says; return the key's fingerprint."""
        from dbern.synopsis.signatures import sign

        self.location.tidy()  # a signer that was killed left what is not part of the release
        self.verify()
        return sign(self.location, self.manifest, key)

    def _check_object(self, name: str) -> None:
        """Check an object, never whole in memory: what a newer version added may be of any size."""
        entry = self._entry(name)
        with self._reading(name):
            measured = _digest_of(self.location.parts(name, entry.bytes))
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
        with failures_told(self.location, "read"):
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


def _not_a_synopsis(location: Place) -> IntegrityError | SpecError:
    if not location.exists():
        return SpecError(f"{location}: there is no such {location.noun}. Check the path")
    if owner(location) is not None:
        return IntegrityError(
            f"{location}: has no {MANIFEST}, so its release is not finished. Run the release again"
        )
    return IntegrityError(f"{location}: is not a dbern synopsis (no {MANIFEST}). Check the path")
