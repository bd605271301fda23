"""Write a synopsis: metadata, whole shards, then the manifest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BytesCodec, ZstdCodec

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.bins import AxisBins
from dbern.bernstein.gram import LatticeSpectrum
from dbern.bernstein.lattice import Layout, Slab
from dbern.bernstein.maps import AxisMap
from dbern.bernstein.spectrum import AxisSpectrum
from dbern.errors import SpecError
from dbern.synopsis.manifest import (
    MANIFEST,
    Manifest,
    digest,
    list_objects,
    publish,
    storage_error,
    sync_path,
)

ABSENT = int(np.iinfo(np.int64).min)
"""Fill value: a coefficient that is not there, never one that was released."""

_CHUNK_COEFFICIENTS = 1 << 16
_MODES = {"spectral": "mode", "binned": "bin"}


@dataclass(frozen=True)
class Component:
    """One released lattice; `positions` are its nodes, `scale_factor` a granule, in data units.

    Of a vector the entries, without positions. With `maps` the lattice is derived from released
    spectral coordinates or bins, kept too.
    """

    name: str
    lattice: Layout
    axes: tuple[str, ...]
    positions: tuple[FloatArray, ...]
    scale_factor: float
    maps: tuple[AxisMap, ...] = ()

    @property
    def path(self) -> str:
        """Its group inside the store."""
        return f"components/{self.name}"


class SynopsisWriter:
    """Writes the store of one release; a crash at any point leaves something a rerun replaces.

    Parameters
    ----------
    output : Path
        The store's folder.
    release_id : str
        Public identity of the release, in the root attributes and the manifest.

    Raises
    ------
    ReleaseError
        From any method, where the folder cannot be written; nothing is published.
    """

    def __init__(self, output: Path, release_id: str) -> None:
        self._output = output
        self._release_id = release_id

    def is_published(self) -> bool:
        """Whether the manifest of this very release is there."""
        try:
            text = (self._output / MANIFEST).read_bytes()
        except FileNotFoundError:
            return False
        if Manifest.parse(text, str(self._output)).release_id != self._release_id:
            return False
        for draft in self._output.glob(f"{MANIFEST}.*.tmp"):  # of a process that was killed
            draft.unlink(missing_ok=True)
        return True

    def is_begun(self) -> bool:
        """Whether this release's unfinished store is there."""
        return _owner(self._output) == self._release_id

    def begin(self, attributes: Mapping[str, Any], components: Sequence[Component]) -> None:
        """Replace what an interrupted attempt left, and write all metadata.

        Raises
        ------
        SpecError
            Where the output holds anything that this release did not write.
        """
        check_output(self._output, self._release_id)
        try:
            discard(self._output, self._release_id)
            draft = _beside(self._output, self._release_id, "new")
            root = zarr.create_group(
                draft, attributes={**attributes, "release_id": self._release_id}
            )
            for component in components:
                _create_component(root, component)
            draft.rename(self._output)  # so the folder says whose it is from its first moment
        except OSError as error:
            raise storage_error(self._output, error) from None

    def write(self, component: Component, slab: Slab, values: Int64Array) -> None:
        """Write one slab, which is one whole shard."""
        try:
            array = zarr.open_array(self._output, path=f"{component.path}/coefficients", mode="r+")
            array[slab.start : slab.stop] = values.reshape(component.lattice.slab_shape(slab))
        except OSError as error:
            raise storage_error(self._output, error) from None

    def write_released(self, component: Component, values: Int64Array, family: str) -> None:
        """Write the released integers that are no lattice values, and each axis's matrix."""
        try:
            parent = zarr.open_group(self._output, path=component.path, mode="r+")
            group = parent.create_group(family)
            facts = {"scale_factor": component.scale_factor, "add_offset": 0.0}
            if isinstance(component.maps[0], LatticeSpectrum):
                _create_array(group, "released", values, ("mode",), facts)
                _create_spectrum(group, "", "point", "mode", component.maps[0])
                return
            modes = tuple(f"{axis}_{_MODES[family]}" for axis in component.axes)
            _create_array(group, "released", values, modes, facts)
            for axis, mode, one in zip(component.axes, modes, component.maps, strict=True):
                _create_map(group, axis, mode, one)
        except OSError as error:
            raise storage_error(self._output, error) from None

    def finish(self, created: str, just_before: Callable[[], None] = lambda: None) -> str:
        """Make all objects durable, then publish the manifest; returns its SHA-256.

        `just_before` is called between: the last chance to refuse.
        """
        try:
            names = list_objects(self._output)
            for name in names:
                sync_path(self._output / name)
            folders = [path for path in self._output.rglob("*") if path.is_dir()]
            for folder in (*folders, self._output, self._output.parent):
                sync_path(folder)
            entries = {name: digest(self._output / name) for name in names}
        except OSError as error:
            raise storage_error(self._output, error) from None
        just_before()
        publish(self._output, Manifest(self._release_id, created, entries))
        return digest(self._output / MANIFEST).sha256


def check_output(output: Path, release_id: str | None) -> None:
    """Refuse an output that holds anything not written by this release.

    Raises
    ------
    SpecError
        Saying what is there.
    """
    if not output.exists():
        return
    if (output / MANIFEST).exists():
        raise SpecError(f"release.output: {output} already holds a synopsis; write another output")
    if _owner(output) != release_id or release_id is None:
        raise SpecError(
            f"release.output: {output} already exists; remove it or write another output"
        )


def discard(output: Path, release_id: str) -> None:
    """Remove what an interrupted attempt of this release left at `output`, and nothing else.

    Raises
    ------
    ReleaseError
        Where it cannot be removed.
    """
    try:
        _discard(output, release_id)
    except OSError as error:
        raise storage_error(output, error) from None


def _discard(output: Path, release_id: str) -> None:
    dead = _beside(output, release_id, "dead")
    for remains in (dead, _beside(output, release_id, "new")):
        shutil.rmtree(remains, ignore_errors=True)
    if output.exists() and not (output / MANIFEST).exists() and _owner(output) == release_id:
        output.rename(dead)  # first: half removed it would be no one's
        shutil.rmtree(dead)


def _beside(output: Path, release_id: str, what: str) -> Path:
    """A hidden sibling that belongs to this release alone."""
    return output.with_name(f".{output.name}.{release_id}.{what}")


def _owner(output: Path) -> str | None:
    """The release whose unfinished store this is, by its root metadata, which is written first."""
    try:
        root = json.loads((output / "zarr.json").read_text(encoding="utf-8"))
        owner = root["attributes"]["release_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return owner if isinstance(owner, str) else None


def _create_component(root: zarr.Group, component: Component) -> None:
    lattice = component.lattice
    group = root.create_group(component.path)
    group.create_array(
        "coefficients",
        shape=lattice.shape,
        dtype="<i8",
        chunks=_chunks(lattice),
        shards=(lattice.slab_layers, *lattice.shape[1:]),
        fill_value=ABSENT,
        serializer=BytesCodec(endian="little"),
        compressors=ZstdCodec(level=1),
        dimension_names=component.axes,
        attributes={"scale_factor": component.scale_factor, "add_offset": 0.0},
    )
    for name, positions in zip(
        component.axes, component.positions, strict=False
    ):  # of a vector none
        _create_array(group, name, positions, (name,), {})


def _create_map(group: zarr.Group, axis: str, mode: str, one: AxisMap) -> None:
    if isinstance(one, AxisBins):
        facts: dict[str, Any] = {"cells": one.cells, "degree": one.degree}
        _create_array(group, f"synthesis_{axis}", one.synthesis, (axis, mode), facts)
        return
    _create_spectrum(group, f"_{axis}", axis, mode, one)


def _create_spectrum(
    group: zarr.Group, suffix: str, axis: str, mode: str, one: AxisSpectrum
) -> None:
    facts = {"exponent": one.exponent, "weighting": one.weighting}
    _create_array(group, f"analysis{suffix}", one.integers, (mode, axis), facts)
    _create_array(group, f"eigenvalues{suffix}", one.eigenvalues, (mode,), {})


def _create_array(
    group: zarr.Group,
    name: str,
    values: Int64Array | FloatArray,
    dimensions: tuple[str, ...],
    attributes: Mapping[str, Any],
) -> None:
    """One small array in one chunk."""
    array = group.create_array(
        name,
        shape=values.shape,
        dtype=values.dtype.newbyteorder("<").str,
        chunks=values.shape,
        compressors=ZstdCodec(level=1),
        dimension_names=dimensions,
        attributes=dict(attributes),
    )
    array[...] = values


def _chunks(lattice: Layout) -> tuple[int, ...]:
    """A divisor of the shard along the first axis, of about 64 Ki coefficients."""
    layers = lattice.slab_layers
    wanted = max(1, min(layers, _CHUNK_COEFFICIENTS // lattice.layer))
    first = next(count for count in range(wanted, 0, -1) if layers % count == 0)
    return (first, *lattice.shape[1:])
