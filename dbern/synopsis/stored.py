"""The arrays of a store: what FORMAT.md says that each is, and decoding that trusts none of them.

Before anything is decoded it is known how large the result will be: the codecs are those of the
format, chunks are of the array's own shape, and every zstd frame says how much it holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pyarrow import Codec
from pydantic import ConfigDict, Field

from dbern.data.storage import ROOT
from dbern.errors import EnvironmentRefusedError
from dbern.privacy.families import noise_law
from dbern.synopsis.metadata import ABSENT as UNSET
from dbern.synopsis.metadata import (
    MOST_COEFFICIENTS,
    Component,
    Facts,
    Granule,
    ObliqueFacts,
    Released,
    Text,
    checked,
    damaged,
    lattices,
)
from dbern.system import memory_limit

ABSENT = int(np.iinfo(np.int64).min)
"""Fill value: a coefficient that is not there, never one that was released."""

_NUMBER = 8  # bytes of every number of a store
_INDEX, _CHECKSUM = 16, 4  # bytes of a shard's index: of a chunk, and at its end
_NOWHERE = 2**64 - 1  # in the index: a chunk that is not there
_MOST_SHARD = 1 << 20  # values of an object that has more than one layer
_COEFFICIENTS = "coefficients"
_FRAME = bytes.fromhex("28b52ffd")  # how a zstd frame begins

_TYPES = {"int64": "<i8", "float64": "<f8"}


def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC, _MOST_CRC = tuple(map(_crc_of, range(256))), 2**32 - 1

_Shape = Annotated[list[Annotated[int, Field(ge=1, le=2**40)]], Field(min_length=1)]


class _Grid(Facts):
    class _Regular(Facts):
        chunk_shape: _Shape

    name: Literal["regular"]
    configuration: _Regular


class _Keys(Facts):
    class _Separator(Facts):
        separator: Literal["/"]

    name: Literal["default"]
    configuration: _Separator


class _Bytes(Facts):
    class _Endian(Facts):
        endian: Literal["little"]

    name: Literal["bytes"]
    configuration: _Endian


class _Zstd(Facts):
    class _Level(Facts):
        level: int
        checksum: bool

    name: Literal["zstd"]
    configuration: _Level


class _Checksum(Facts):
    name: Literal["crc32c"]


class _Sharded(Facts):
    class _Inner(Facts):
        chunk_shape: _Shape
        codecs: tuple[_Bytes, _Zstd]
        index_codecs: tuple[_Bytes, _Checksum]
        index_location: Literal["end"]

    name: Literal["sharding_indexed"]
    configuration: _Inner


class _Array(Facts):
    """``zarr.json`` of an array; an extension that is not known could change what bytes mean."""

    model_config = ConfigDict(extra="forbid")

    zarr_format: Literal[3]
    node_type: Literal["array"]
    shape: _Shape
    data_type: Literal["int64", "float64"]
    chunk_grid: _Grid
    chunk_key_encoding: _Keys
    fill_value: int | float
    codecs: Any
    attributes: Any
    dimension_names: list[Text]
    storage_transformers: tuple[()] = ()

    sharded: ClassVar[bool] = False
    numbers: ClassVar[str] = "float64"

    @property
    def layers(self) -> int:
        return self.chunk_grid.configuration.chunk_shape[0]

    @property
    def inner(self) -> int:
        return self.layers

    def facts(self, component: Component) -> Iterator[tuple[str, bool]]:
        del component
        yield "dimension_names", len(self.dimension_names) == len(self.shape)
        yield "data_type", self.data_type == self.numbers


class _Scale(Facts):
    scale_factor: Granule
    add_offset: Annotated[float, Field(ge=0, le=0)]
    oblique: ObliqueFacts = UNSET

    def facts(self, component: Component) -> Iterator[tuple[str, bool]]:
        yield "attributes.scale_factor", self.scale_factor == component.noise.granularity


class _Coefficients(_Array):
    codecs: tuple[_Sharded]
    attributes: _Scale

    sharded: ClassVar[bool] = True
    numbers: ClassVar[str] = "int64"

    @property
    def inner(self) -> int:
        return self.codecs[0].configuration.chunk_shape[0]

    def facts(self, component: Component) -> Iterator[tuple[str, bool]]:
        yield from super().facts(component)
        yield from self.attributes.facts(component)
        yield "attributes.oblique", self.attributes.oblique == component.oblique
        shape, layer = self.shape, math.prod(self.shape[1:])
        shard = self.chunk_grid.configuration.chunk_shape
        inner = self.codecs[0].configuration.chunk_shape
        most = min(shape[0], max(1, _MOST_SHARD // layer))
        yield "fill_value", self.fill_value == ABSENT
        yield "chunk_grid", shard[1:] == shape[1:] and shard[0] <= most
        yield "codecs.0.chunk_shape", inner[1:] == shape[1:] and shard[0] % inner[0] == 0


class _Small(_Array):
    codecs: tuple[_Bytes, _Zstd]
    attributes: Facts

    def facts(self, component: Component) -> Iterator[tuple[str, bool]]:
        yield from super().facts(component)
        yield "chunk_grid", self.chunk_grid.configuration.chunk_shape == self.shape
        yield "fill_value", self.fill_value == 0


class _Values(_Small):
    attributes: _Scale

    numbers: ClassVar[str] = "int64"

    def facts(self, component: Component) -> Iterator[tuple[str, bool]]:
        yield from super().facts(component)
        yield from self.attributes.facts(component)


class _Analysis(_Small):
    class _Power(Facts):
        exponent: Annotated[int, Field(ge=-1000, le=250)]
        weighting: Annotated[float, Field(gt=0, le=1)]

    attributes: _Power

    numbers: ClassVar[str] = "int64"


class _Synthesis(_Small):
    class _Bins(Facts):
        cells: Annotated[int, Field(ge=1, le=2**31)]
        degree: Annotated[int, Field(ge=0, le=32)]

    attributes: _Bins


@dataclass(frozen=True)
class StoredArray:
    """One array of a store, as its checked ``zarr.json`` says.

    Parameters
    ----------
    path : str
        Of its group below the root.
    document : model
        Its ``zarr.json``.
    """

    path: str
    document: _Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array."""
        return tuple(self.document.shape)

    @property
    def layers(self) -> int:
        """Layers of the first axis in each object but the last."""
        return self.document.layers

    @property
    def attributes(self) -> dict[str, Any]:
        """Those that FORMAT.md names."""
        found = self.document.model_dump(include={"attributes"}, exclude_unset=True)
        return dict(found["attributes"])

    @property
    def names(self) -> list[str]:
        """Its objects, one for each `layers`."""
        return [self.name(index) for index in range(-(-self.shape[0] // self.layers))]

    def name(self, index: int) -> str:
        """Return the object of some layers."""
        return "/".join([self.path, "c", str(index), *["0"] * (len(self.shape) - 1)])

    @property
    def object_bytes(self) -> int:
        """Most bytes that an object has: zstd adds little to what does not shrink."""
        plain = self._bytes(self.layers)
        frames = plain + plain // 128 + 256 * self._chunks
        return frames + _INDEX * self._chunks + _CHECKSUM

    def decoded(self, index: int, data: bytes, where: str) -> Any:
        """Return the layers of an object, from its bytes.

        Parameters
        ----------
        where : str
            The store, for errors.

        Raises
        ------
        IntegrityError
            Where the bytes are no such chunks.
        EnvironmentRefusedError
            Where the layers need more memory than this process may use.
        """
        needed, offered = 2 * self._bytes(self.layers), memory_limit()
        if needed > offered:
            raise EnvironmentRefusedError(
                f"{where}: {self.name(index)} needs {needed >> 20} MiB, and this process may use "
                f"{offered >> 20}. Open it where there is more memory"
            )
        kind = _TYPES[self.document.data_type]
        values = np.full((self.layers, *self.shape[1:]), self.document.fill_value, kind)
        chunks, size = values.reshape(self._chunks, -1), self._bytes(self.document.inner)
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
        """The zstd frames of an object; None for a chunk that is not there."""
        if not self.document.sharded:
            yield data
            return
        start = len(data) - _INDEX * self._chunks - _CHECKSUM
        if start < 0:
            raise damaged(where, self.name(index), "", "its index is cut off")
        if int.from_bytes(data[-_CHECKSUM:], "little") != _crc32c(data[start:-_CHECKSUM]):
            raise damaged(where, self.name(index), "", "the checksum of its index is wrong")
        places = np.frombuffer(data[start:-_CHECKSUM], "<u8").reshape(-1, 2).tolist()
        for first, size in places:
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
        return self.layers // self.document.inner


def _content(frame: bytes) -> int | None:
    """How many bytes a zstd frame says that it holds (RFC 8878, 3.1.1.1); None where it does not.

    Examples
    --------
    >>> _content(bytes.fromhex("28b52ffd2003010000")), _content(b"28b52ffd00"), _content(b"")
    (3, None, None)
    """
    if len(frame) < len(_FRAME) + 1 or not frame.startswith(_FRAME):
        return None
    descriptor = frame[4]
    flag, single, dictionary = descriptor >> 6, descriptor >> 5 & 1, descriptor & 3
    size = (1 if single else 0, 2, 4, 8)[flag]
    start = 5 + (not single) + (0, 1, 2, 4)[dictionary]
    if not size or len(frame) < start + size:
        return None
    return int.from_bytes(frame[start : start + size], "little") + (256 if size == 2 else 0)


def _crc32c(data: bytes) -> int:
    """The checksum of a shard's index (RFC 3720, B.4), of some hundred bytes in a release.

    Examples
    --------
    >>> hex(_crc32c(b"123456789"))
    '0xe3069283'
    """
    value = _MOST_CRC
    for byte in data:
        value = _CRC[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ _MOST_CRC


def described(released: Released) -> list[str]:
    """Return the names of the ``zarr.json`` of every array that the attributes promise."""
    return [f"{path}/{name}/{ROOT}" for path, one in lattices(released) for name in _models(one)]


def _models(component: Component) -> dict[str, type[_Array]]:
    """What each array below a component's group has to be, by its path there."""
    models: dict[str, type[_Array]] = {_COEFFICIENTS: _Coefficients}
    models |= dict.fromkeys(component.axes, _Small)
    family = component.family
    models |= {f"{family}/released": _Values} if family else {}
    for suffix in _suffixes(component):
        if family == "spectral":
            models |= {f"spectral/analysis{suffix}": _Analysis}
            models |= {f"spectral/eigenvalues{suffix}": _Small}
        elif family:
            models |= {f"binned/synthesis{suffix}": _Synthesis}
    return models


def _suffixes(component: Component) -> list[str]:
    """Of the arrays' names that stand for an axis; of the one that stands for all axes none."""
    return [""] if component.declares("spectral") else [f"_{axis}" for axis in component.axes]


def stored_arrays(
    released: Released, texts: Mapping[str, bytes], where: str
) -> dict[str, StoredArray]:
    """Return every array that the root's attributes promise, by its path, checked.

    Parameters
    ----------
    texts : mapping
        The objects that `described` names.
    where : str
        The store, for errors.

    Raises
    ------
    IntegrityError
        Naming the object and the key.
    """
    found: dict[str, StoredArray] = {}
    for path, component in lattices(released):
        arrays = {}
        for name, model in _models(component).items():
            whole = f"{path}/{name}"
            document = checked(model, texts[f"{whole}/{ROOT}"], where, f"{whole}/{ROOT}")
            arrays[name] = StoredArray(whole, document)
        for name, key, holds in _facts(component, arrays):
            if not holds:
                why = "is not what the attributes of the root say"
                raise damaged(where, f"{path}/{name}/{ROOT}", key, why)
        found |= {one.path: one for one in arrays.values()}
    return found


def _facts(
    component: Component, arrays: Mapping[str, StoredArray]
) -> Iterator[tuple[str, str, bool]]:
    """What has to hold of a component's arrays: which, the key, and whether it does."""
    for name, one in arrays.items():
        yield name, "shape", math.prod(one.shape) <= MOST_COEFFICIENTS
        yield from ((name, *fact) for fact in one.document.facts(component))
    lattice = arrays[_COEFFICIENTS]
    yield _COEFFICIENTS, "shape", lattice.shape == component.shape
    names = component.axes or ["entry"]
    yield _COEFFICIENTS, "dimension_names", lattice.document.dimension_names == names
    for axis, nodes in zip(component.axes, component.shape, strict=False):  # of a vector none
        yield axis, "shape", arrays[axis].shape == (nodes,)
    yield from _coordinates(component, arrays)


def _coordinates(
    component: Component, arrays: Mapping[str, StoredArray]
) -> Iterator[tuple[str, str, bool]]:
    """That matrices fit the lattice on one side, and what was released on the other."""
    if not component.family:
        return
    nodes = [component.size] if component.declares("spectral") else list(component.shape)
    ranks = []
    for suffix, count in zip(_suffixes(component), nodes, strict=True):
        if component.family == "spectral":
            name, levels = f"spectral/analysis{suffix}", f"spectral/eigenvalues{suffix}"
            rank = arrays[name].shape[0]
            yield name, "shape", arrays[name].shape == (rank, count) and rank <= count
            yield levels, "shape", arrays[levels].shape == (rank,)
        else:
            name = f"binned/synthesis{suffix}"
            bins = arrays[name].attributes
            rank = bins["cells"] + bins["degree"]
            yield name, "shape", arrays[name].shape == (count, rank)
        ranks.append(rank)
    released, law = f"{component.family}/released", noise_law(component.noise.law)
    values = len(component.arrays) * math.prod(ranks)
    joint = law.values == math.inf or law.values == values
    yield released, "shape", arrays[released].shape == tuple(ranks) and joint
