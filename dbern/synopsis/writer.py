"""Write a synopsis: metadata, whole shards, then the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import zarr
from zarr.codecs import BytesCodec, ZstdCodec
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

from dbern.data.storage import MANIFEST, ROOT, Location, is_published, owner, storage_errors
from dbern.errors import IntegrityError, ReleaseError, SpecError
from dbern.model.component import Component
from dbern.reconstruct.axis_maps import AxisMap
from dbern.reconstruct.base import Layout, Slab
from dbern.synopsis.store import Entry, Manifest, entry_of
from dbern.synopsis.stored_arrays import (
    COEFFICIENTS,
    MISSING,
    ArrayLayout,
    group_layout,
    map_groups,
    map_layouts,
    released_path,
)
from dbern.types import FloatArray, Int64Array

_CHUNK_COEFFICIENTS = 1 << 16


@dataclass(frozen=True)
class ReleasedGroup:
    """The group of one released array.

    `positions` are the nodes of each axis, in data units. With `maps` the lattice is derived from
    released spectral coordinates or bins, which are stored too.
    """

    name: str
    component: Component
    positions: Mapping[str, FloatArray]
    maps: tuple[AxisMap, ...] = ()

    @property
    def path(self) -> str:
        """Path inside the store."""
        return f"components/{self.name}"


class SynopsisWriter:
    """Writer of one release's store; a rerun replaces whatever a crash leaves.

    Every method raises ReleaseError where the location cannot be used; nothing is published then.
    """

    def __init__(self, location: Location, release_id: str) -> None:
        self._location = location
        self._release_id = release_id
        self._metadata: dict[str, Buffer] = {}
        self._entries: dict[str, Entry] = {}

    def published(self) -> str | None:
        """Return the SHA-256 of this release's manifest; None where it is not published."""
        with storage_errors(self._location, "read"):
            try:
                text = self._location.read(MANIFEST)
            except FileNotFoundError:
                return None
            if Manifest.parse(text, str(self._location)).release_id != self._release_id:
                return None
            self._location.tidy()
        return entry_of(text).sha256

    def is_begun(self) -> bool:
        """Return whether this release's unfinished store is there."""
        with storage_errors(self._location, "read"):
            return owner(self._location) == self._release_id

    def begin(self, attributes: Mapping[str, Any], groups: Sequence[ReleasedGroup]) -> None:
        """Remove the files of an interrupted attempt, and write all metadata.

        Raises SpecError where the output holds anything that this release did not write.
        """
        check_output(self._location, self._release_id)
        made: dict[str, Buffer] = {}
        root = zarr.create_group(
            MemoryStore(made), attributes={**attributes, "release_id": self._release_id}
        )
        for group in groups:
            _create_component(root, group)
        objects = {name: value.to_bytes() for name, value in made.items()}
        with storage_errors(self._location):
            self._location.discard(self._release_id)
            try:
                self._location.begin(objects, self._release_id)
            except FileExistsError:
                raise _output_exists_error(self._location) from None
        self._metadata = {name: made[name] for name in made if name.endswith(ROOT)}
        self._entries = {name: entry_of(data) for name, data in objects.items()}

    def write(self, group: ReleasedGroup, slab: Slab, values: Int64Array) -> None:
        """Write one slab, which is one whole shard."""
        with self._open_store() as store:
            array = zarr.open_array(store, path=f"{group.path}/{COEFFICIENTS}", mode="r+")
            shape = group.component.lattice.slab_shape(slab)
            array[slab.start : slab.stop] = values.reshape(shape)

    def write_released(
        self, group: ReleasedGroup, values: Int64Array, shrinkage: Mapping[str, float]
    ) -> None:
        """Write released integers that are not lattice values, and the arrays of each map."""
        component = group.component
        layouts = map_layouts(component, [axis_map.rank for axis_map in group.maps])
        with self._open_store() as store:
            parent = zarr.open_group(store, path=group.path, mode="r+")
            parent.create_group(component.noise.strategy_kind)
            _create_array(parent, released_path(component), values, layouts, shrinkage)
            for map_group, axis_map in zip(map_groups(component), group.maps, strict=True):
                for name, matrix in axis_map.arrays().items():
                    path, attributes = map_group.paths[name], axis_map.attributes(name)
                    _create_array(parent, path, matrix, layouts, attributes)

    @contextmanager
    def _open_store(self) -> Iterator[MemoryStore]:
        """Yield a store in memory that holds the metadata, then write the objects added to it."""
        made = dict(self._metadata)
        yield MemoryStore(made)
        with storage_errors(self._location):
            for name, value in made.items():
                if name not in self._metadata:
                    data = value.to_bytes()
                    self._entries[name] = entry_of(data)
                    self._location.write(name, data)

    def finish(self, created: str, just_before: Callable[[], None]) -> str:
        """Make all objects durable, then publish the manifest; return its SHA-256.

        `just_before` is called between, and may refuse. Raises IntegrityError where the
        store holds other objects than were written, or another manifest.
        """
        with storage_errors(self._location):
            self._location.settle()
            differing = set(self._location.names()) ^ set(self._entries)
        if differing:
            raise ReleaseError(
                f"{self._location}: {min(differing)} was added or removed by something else. Keep "
                "other programs away from the output and run the same command again"
            )
        just_before()
        manifest = Manifest(release_id=self._release_id, created=created, objects=self._entries)
        _create_manifest(self._location, manifest)
        return entry_of(manifest.text().encode()).sha256


def _create_manifest(location: Location, manifest: Manifest) -> None:
    """Create the manifest, whole or not at all, unless it is there already."""
    with storage_errors(location):
        try:
            location.create(MANIFEST, manifest.text().encode())
        except FileExistsError:
            raise IntegrityError(
                f"{location}: holds another release. Choose another output"
            ) from None


def check_output(location: Location, release_id: str | None) -> None:
    """Refuse an output that holds anything not written by this release."""
    with storage_errors(location, "read"):
        if not location.exists():
            return
        if is_published(location):
            raise SpecError(
                f"release.output: {location} already holds a synopsis. Write another output"
            )
        if owner(location) != release_id or release_id is None:
            raise _output_exists_error(location)


def _output_exists_error(location: Location) -> SpecError:
    return SpecError(
        f"release.output: {location} already exists. Remove it or write another output"
    )


def discard(location: Location, release_id: str) -> None:
    """Remove the files of an interrupted attempt of this release, and nothing else."""
    with storage_errors(location):
        location.discard(release_id)


def _create_component(root: zarr.Group, released: ReleasedGroup) -> None:
    lattice, layouts = released.component.lattice, group_layout(released.component)
    group = root.create_group(released.path)
    group.create_array(
        COEFFICIENTS,
        shape=lattice.shape,
        dtype="<i8",
        chunks=_chunks(lattice),
        shards=(lattice.slab_layers, *lattice.shape[1:]),
        fill_value=MISSING,
        serializer=BytesCodec(endian="little"),
        compressors=ZstdCodec(level=1),
        dimension_names=layouts[COEFFICIENTS].dimensions,
        attributes=dict(layouts[COEFFICIENTS].attributes),
    )
    for axis, positions in released.positions.items():
        _create_array(group, axis, positions, layouts)


def _create_array(
    group: zarr.Group,
    path: str,
    values: Int64Array | FloatArray,
    layouts: Mapping[str, ArrayLayout],
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    array = group.create_array(
        path,
        shape=values.shape,
        dtype=values.dtype.newbyteorder("<").str,
        chunks=values.shape,
        compressors=ZstdCodec(level=1),
        dimension_names=layouts[path].dimensions,
        attributes={**layouts[path].attributes, **attributes},
        config={"write_empty_chunks": True},  # readers need each object, also of zeros
    )
    array[...] = values


def _chunks(lattice: Layout) -> tuple[int, ...]:
    """Return the shape of chunks: parts of a shard of about 64 Ki coefficients."""
    layers = lattice.slab_layers
    most = max(1, min(layers, _CHUNK_COEFFICIENTS // lattice.layer))
    first = next(count for count in range(most, 0, -1) if layers % count == 0)
    return (first, *lattice.shape[1:])
