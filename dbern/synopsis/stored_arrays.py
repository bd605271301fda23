"""The arrays of a store: what FORMAT.md says that each is, and decoding that trusts none of them.

Decoding trusts nothing: before it is known how large the result will be. The codecs are those of
the format, chunks are of the array's own shape, and every zstd frame says how much it holds. zarr's
own decoding would allocate what a frame says, and take half as long to import as a first query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from pyarrow import Codec
from pydantic import ConfigDict

from dbern.data.storage import ROOT
from dbern.errors import EnvironmentRefusedError
from dbern.model.component import MOST_COEFFICIENTS, Component
from dbern.model.strict import StrictModel, damaged, parse_object
from dbern.reconstruct.axis_maps import Limits
from dbern.synopsis.metadata import ReleaseMetadata, array_groups
from dbern.system import memory_limit

COEFFICIENTS = "coefficients"
LARGEST_NUMBER = 1e100
"""Of a matrix: products of several stay finite."""
_SHRINKAGE = {
    "silenced": Limits(float, 0, LARGEST_NUMBER, needed=False),
    "silenced_share": Limits(float, 0, 1, needed=False),
}
_NO_OBLIQUE = {"oblique": Limits(float, math.inf, -math.inf, needed=False)}  # nothing is within
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


@dataclass(frozen=True)
class ArrayLayout:
    """One array: its shape and dimensions, its `dtype` ("int64" or "float64"), its attributes.

    `limits` are of attributes that do not follow from the component. `sharded`: cut along the first
    axis; any other array is one chunk.
    """

    shape: tuple[int, ...]
    dimensions: tuple[str, ...]
    dtype: str = "float64"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Limits] = field(default_factory=dict)
    sharded: bool = False


@dataclass(frozen=True)
class MapGroup:
    """The arrays of one map, from the values released of it, `mode`, to the `nodes` of an axis.

    `paths` are theirs in the component's group, by name.
    """

    paths: Mapping[str, str]
    axis: str
    mode: str
    nodes: int


def map_groups(component: Component) -> list[MapGroup]:
    """Return those of the component's maps: one an axis, or one of all axes; or none."""
    axis_map, kind = component.axis_map, component.noise.strategy_kind
    if axis_map is None:
        return []
    if axis_map.of:
        paths = {name: f"{kind}/{name}" for name in axis_map.stored}
        return [MapGroup(paths, "point", axis_map.mode, component.lattice.size)]
    groups = []
    for axis, nodes in zip(component.axes, component.lattice.shape, strict=True):
        paths = {name: f"{kind}/{name}_{axis}" for name in axis_map.stored}
        groups.append(MapGroup(paths, axis, f"{axis}_{axis_map.mode}", nodes))
    return groups


def released_path(component: Component) -> str:
    """Return the path of the integers that carry the noise, where a map makes a lattice of them."""
    return f"{component.noise.strategy_kind}/released"


def array_paths(component: Component) -> list[str]:
    """Return the path in the component's group of each array."""
    maps = [path for group in map_groups(component) for path in group.paths.values()]
    return [*group_layout(component), *([released_path(component)] if maps else []), *maps]


def group_layout(component: Component) -> dict[str, ArrayLayout]:
    """Return the coefficients and axes of a component, by their path in its group."""
    names, shape = component.axes or ("entry",), component.lattice.shape
    scale, limits = _scale_of(component), _SHRINKAGE | _NO_OBLIQUE
    if component.oblique:  # who has this group alone must not take its coordinates for the axes
        scale, limits = {**scale, "oblique": component.oblique.to_json()}, _SHRINKAGE
    coefficients = ArrayLayout(shape, names, "int64", scale, limits, sharded=True)
    axes = zip(component.axes, shape, strict=False)  # a vector has none
    return {COEFFICIENTS: coefficients, **{axis: ArrayLayout((n,), (axis,)) for axis, n in axes}}


def map_layouts(component: Component, ranks: Sequence[int]) -> dict[str, ArrayLayout]:
    """Return the released values of a component, and its maps of so many each, by their path."""
    axis_map, groups = component.axis_map, map_groups(component)
    if axis_map is None:
        return {}
    shape, modes = tuple(ranks), tuple(group.mode for group in groups)
    released = ArrayLayout(shape, modes, "int64", _scale_of(component), _SHRINKAGE | _NO_OBLIQUE)
    layouts = {released_path(component): released}
    for group, rank in zip(groups, ranks, strict=True):
        sizes = {"axis": (group.axis, group.nodes), "mode": (group.mode, rank)}
        for name, stored in axis_map.stored.items():
            names, shape = zip(*(sizes[dimension] for dimension in stored.dimensions), strict=True)
            layout = ArrayLayout(shape, names, stored.dtype, limits=stored.limits)
            layouts[group.paths[name]] = layout
    return layouts


def _scale_of(component: Component) -> dict[str, Any]:
    return {"scale_factor": component.noise.granularity, "add_offset": 0.0}


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
        "data_type": layout.dtype,
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
class EncodedArray:
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
        """Shape of the array."""
        return self.layout.shape

    @property
    def names(self) -> list[str]:
        """Names of its objects, in order."""
        return [self.name(index) for index in range(-(-self.shape[0] // self.layers))]

    def name(self, index: int) -> str:
        """Return the name of an object."""
        return "/".join([self.path, "c", str(index), *["0"] * (len(self.shape) - 1)])

    @property
    def object_bytes(self) -> int:
        """Largest size of an object: zstd adds little to what does not shrink."""
        plain = self._bytes(self.layers)
        frames = plain + plain // 128 + 256 * self._chunks
        return frames + _INDEX * self._chunks + _CHECKSUM

    def decoded(self, index: int, data: bytes, where: str) -> Any:
        """Return the numbers of an object; `where` names the store in errors."""
        needed, offered = 2 * self._bytes(self.layers), memory_limit()
        if needed > offered:
            raise EnvironmentRefusedError(
                f"{where}: {self.name(index)} needs {needed >> 20} MiB, and this process may use "
                f"{offered >> 20}. Open it where there is more memory"
            )
        kind = _TYPES[self.layout.dtype]
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


def stored_arrays(
    released: ReleaseMetadata, texts: Mapping[str, bytes], where: str
) -> dict[str, EncodedArray]:
    """Arrays that the root's attributes promise, by path, each checked by its ``zarr.json``."""
    stored: dict[str, EncodedArray] = {}
    for group, component in array_groups(released):
        documents: dict[str, Any] = {}
        for path in array_paths(component):
            name = f"{group}/{path}/{ROOT}"
            documents[path] = parse_object(_Document, texts[name], where, name).model_extra
        ranks, arrays = _ranks(component, documents), {}
        if ranks is not None:
            layouts = {**group_layout(component), **map_layouts(component, ranks)}
            for path, layout in layouts.items():
                arrays[path] = EncodedArray.of(f"{group}/{path}", layout, documents[path], where)
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


def _admit(component: Component, ranks: Sequence[int], arrays: Mapping[str, EncodedArray]) -> bool:
    """Whether the attributes of its maps say that so many values are released of each."""
    for group, rank in zip(map_groups(component), ranks, strict=True):
        attributes: dict[str, Any] = {}
        for path in group.paths.values():
            attributes |= arrays[path].attributes
        axis_map, axes = component.axis_map, len(ranks)
        if axis_map and not axis_map.admits(rank, group.nodes, axes, attributes):
            return False
    return True
