"""Write a synopsis: metadata, whole shards, then the manifest."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BytesCodec, ZstdCodec

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.lattice import Lattice, Slab
from dbern.errors import SpecError
from dbern.synopsis.manifest import (
    MANIFEST,
    Manifest,
    digest,
    list_objects,
    publish,
    storage_error,
    sync_folder,
)

ABSENT = int(np.iinfo(np.int64).min)
"""Fill value: a coefficient that is not there, never one that was released."""

_CHUNK_COEFFICIENTS = 1 << 16


@dataclass(frozen=True)
class Component:
    """One released lattice; `positions` are its nodes, `scale_factor` a granule, in data units."""

    name: str
    lattice: Lattice
    axes: tuple[str, ...]
    positions: tuple[FloatArray, ...]
    scale_factor: float

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
            text = (self._output / MANIFEST).read_text(encoding="utf-8")
        except FileNotFoundError:
            return False
        return Manifest.parse(text, str(self._output)).release_id == self._release_id

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
            root = zarr.create_group(
                self._output, attributes={**attributes, "release_id": self._release_id}
            )
            for component in components:
                _create_component(root, component)
        except OSError as error:
            raise storage_error(self._output, error) from None

    def write(self, component: Component, slab: Slab, values: Int64Array) -> None:
        """Write one slab, which is one whole shard."""
        try:
            array = zarr.open_array(self._output, path=f"{component.path}/coefficients", mode="r+")
            array[slab.start : slab.stop] = values.reshape(component.lattice.slab_shape(slab))
        except OSError as error:
            raise storage_error(self._output, error) from None

    def finish(self, created: str) -> str:
        """Make all objects durable, then publish the manifest; returns its SHA-256."""
        try:
            names = list_objects(self._output)
            for name in names:
                _sync(self._output / name)
            for folder in {(self._output / name).parent for name in names}:
                sync_folder(folder)
            entries = {name: digest(self._output / name) for name in names}
        except OSError as error:
            raise storage_error(self._output, error) from None
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
    """Remove what an interrupted attempt of this release left at `output`, and nothing else."""
    if output.exists() and not (output / MANIFEST).exists() and _owner(output) == release_id:
        shutil.rmtree(output)


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
    for name, positions in zip(component.axes, component.positions, strict=True):
        axis = group.create_array(
            name, shape=positions.shape, dtype="<f8", chunks=positions.shape,
            dimension_names=(name,), compressors=None,
        )  # fmt: skip
        axis[:] = positions


def _chunks(lattice: Lattice) -> tuple[int, ...]:
    """A divisor of the shard along the first axis, of about 64 Ki coefficients."""
    layers = lattice.slab_layers
    wanted = max(1, min(layers, _CHUNK_COEFFICIENTS // lattice.layer))
    first = next(count for count in range(wanted, 0, -1) if layers % count == 0)
    return (first, *lattice.shape[1:])


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
