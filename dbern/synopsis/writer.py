"""Write a synopsis: metadata, whole shards, then the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import zarr
from zarr.codecs import BytesCodec, ZstdCodec
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

from dbern.bernstein.oblique import Oblique
from dbern.data.storage import MANIFEST, ROOT, Place, failures_told, is_published, owner
from dbern.errors import IntegrityError, ReleaseError, SpecError
from dbern.strategies.approximation import AxisMap
from dbern.strategies.base import Layout, Slab
from dbern.synopsis.store import MISSING, Entry, Manifest, digest
from dbern.types import FloatArray, Int64Array

_CHUNK_COEFFICIENTS = 1 << 16


@dataclass(frozen=True)
class Component:
    """One released lattice; `positions` are its nodes, `scale_factor` a granule, in data units.

    Of a vector the entries, without positions. With `maps` the lattice is derived from released
    spectral coordinates or bins, kept too. `oblique` are the coordinates that it is a lattice of.
    """

    name: str
    lattice: Layout
    axes: tuple[str, ...]
    positions: tuple[FloatArray, ...]
    scale_factor: float
    maps: tuple[AxisMap, ...] = ()
    oblique: Oblique | None = None

    @property
    def path(self) -> str:
        """Its group inside the store."""
        return f"components/{self.name}"


class SynopsisWriter:
    """Writes the store of one release; a crash at any point leaves something a rerun replaces.

    Parameters
    ----------
    place : Place
        Where the store is to be.
    release_id : str
        Public identity of the release, in the root attributes and the manifest.

    Raises
    ------
    ReleaseError
        From any method, where the place cannot be used; nothing is published.
    """

    def __init__(self, place: Place, release_id: str) -> None:
        self._place = place
        self._release_id = release_id
        self._metadata: dict[str, Buffer] = {}
        self._entries: dict[str, Entry] = {}

    def published(self) -> str | None:
        """Return the SHA-256 of the manifest of this very release, where it is there."""
        with failures_told(self._place, "read"):
            try:
                text = self._place.read(MANIFEST)
            except FileNotFoundError:
                return None
            if Manifest.parse(text, str(self._place)).release_id != self._release_id:
                return None
            self._place.tidy()
        return digest(text).sha256

    def is_begun(self) -> bool:
        """Whether this release's unfinished store is there."""
        with failures_told(self._place, "read"):
            return owner(self._place) == self._release_id

    def begin(self, attributes: Mapping[str, Any], components: Sequence[Component]) -> None:
        """Replace what an interrupted attempt left, and write all metadata.

        Raises
        ------
        SpecError
            Where the output holds anything that this release did not write.
        """
        check_output(self._place, self._release_id)
        made: dict[str, Buffer] = {}
        root = zarr.create_group(
            MemoryStore(made), attributes={**attributes, "release_id": self._release_id}
        )
        for component in components:
            _create_component(root, component)
        objects = {name: value.to_bytes() for name, value in made.items()}
        with failures_told(self._place):
            self._place.discard(self._release_id)
            try:
                self._place.begin(objects, self._release_id)
            except FileExistsError:
                raise _taken(self._place) from None
        self._metadata = {name: made[name] for name in made if name.endswith(ROOT)}
        self._entries = {name: digest(data) for name, data in objects.items()}

    def write(self, component: Component, slab: Slab, values: Int64Array) -> None:
        """Write one slab, which is one whole shard."""
        with self._made() as store:
            array = zarr.open_array(store, path=f"{component.path}/coefficients", mode="r+")
            array[slab.start : slab.stop] = values.reshape(component.lattice.slab_shape(slab))

    def write_released(
        self, component: Component, values: Int64Array, family: str, told: Mapping[str, float]
    ) -> None:
        """Write released integers that are no lattice values, what is told of them, each matrix."""
        with self._made() as store:
            parent = zarr.open_group(store, path=component.path, mode="r+")
            group = parent.create_group(family)
            facts = {"scale_factor": component.scale_factor, "add_offset": 0.0, **told}
            mode = component.maps[0].mode
            named = [(f"_{axis}", axis, f"{axis}_{mode}") for axis in component.axes]
            if component.maps[0].of:  # one map of the whole lattice
                named = [("", "point", mode)]
            _create_array(group, "released", values, tuple(mode for *_, mode in named), facts)
            for (suffix, axis, mode), one in zip(named, component.maps, strict=True):
                names = {"axis": axis, "mode": mode}
                for stored in one.arrays():
                    along = tuple(names[kind] for kind in stored.dimensions)
                    name = stored.name + suffix
                    _create_array(group, name, stored.values, along, stored.facts)

    @contextmanager
    def _made(self) -> Iterator[MemoryStore]:
        """Write what is added to a store in memory that holds the metadata."""
        made = dict(self._metadata)
        yield MemoryStore(made)
        with failures_told(self._place):
            for name, value in made.items():
                if name not in self._metadata:
                    data = value.to_bytes()
                    self._entries[name] = digest(data)
                    self._place.write(name, data)

    def finish(self, created: str, just_before: Callable[[], None] = lambda: None) -> str:
        """Make all objects durable, then publish the manifest; returns its SHA-256.

        `just_before` is called between: the last chance to refuse.

        Raises
        ------
        ReleaseError, IntegrityError
            Where the store holds other objects than were written, or another manifest.
        """
        with failures_told(self._place):
            self._place.settle()
            differing = set(self._place.names()) ^ set(self._entries)
        if differing:
            raise ReleaseError(
                f"{self._place}: {min(differing)} was added or removed by something else. Keep "
                "other programs away from the output and run the same command again"
            )
        just_before()
        manifest = Manifest(release_id=self._release_id, created=created, objects=self._entries)
        publish(self._place, manifest)
        return digest(manifest.text().encode()).sha256


def publish(place: Place, manifest: Manifest) -> None:
    """Create the manifest, whole or not at all, unless it is there already."""
    with failures_told(place):
        try:
            place.create(MANIFEST, manifest.text().encode())
        except FileExistsError:
            raise IntegrityError(f"{place}: holds another release. Choose another output") from None


def check_output(place: Place, release_id: str | None) -> None:
    """Refuse an output that holds anything not written by this release.

    Raises
    ------
    SpecError
        Saying what is there.
    """
    with failures_told(place, "read"):
        if not place.exists():
            return
        if is_published(place):
            raise SpecError(
                f"release.output: {place} already holds a synopsis. Write another output"
            )
        if owner(place) != release_id or release_id is None:
            raise _taken(place)


def _taken(place: Place) -> SpecError:
    return SpecError(f"release.output: {place} already exists. Remove it or write another output")


def discard(place: Place, release_id: str) -> None:
    """Remove what an interrupted attempt of this release left there, and nothing else.

    Raises
    ------
    ReleaseError
        Where it cannot be removed.
    """
    with failures_told(place):
        place.discard(release_id)


def _create_component(root: zarr.Group, component: Component) -> None:
    lattice = component.lattice
    facts: dict[str, Any] = {"scale_factor": component.scale_factor, "add_offset": 0.0}
    if component.oblique is not None:  # who has this group alone must not take them for the axes
        facts["oblique"] = component.oblique.to_dict()
    group = root.create_group(component.path)
    group.create_array(
        "coefficients",
        shape=lattice.shape,
        dtype="<i8",
        chunks=_chunks(lattice),
        shards=(lattice.slab_layers, *lattice.shape[1:]),
        fill_value=MISSING,
        serializer=BytesCodec(endian="little"),
        compressors=ZstdCodec(level=1),
        dimension_names=component.axes,
        attributes=facts,
    )
    for name, positions in zip(
        component.axes, component.positions, strict=False
    ):  # of a vector none
        _create_array(group, name, positions, (name,), {})


def _create_array(
    group: zarr.Group,
    name: str,
    values: Int64Array | FloatArray,
    dimensions: tuple[str, ...],
    attributes: Mapping[str, Any],
) -> None:
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
