"""One released array: its coefficients under any smoothing, its values and its error bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.basis import iterate, iterated_matrix
from dbern.bernstein.bias import approximation_of
from dbern.bernstein.bins import AxisBins
from dbern.bernstein.blocks import Blocks, blocks_of
from dbern.bernstein.coordinates import Coordinates, PlainCoordinates
from dbern.bernstein.gram import LatticeSpectrum
from dbern.bernstein.lattice import Lattice, Slab
from dbern.bernstein.maps import coordinates_of, family_of
from dbern.bernstein.spectrum import AxisSpectrum
from dbern.certificate import Certificate, ErrorModel, vector_bound
from dbern.domain import Axis, Domain
from dbern.noise_bounds import synthesis_matrices
from dbern.oblique import Oblique
from dbern.privacy.calibration import GaussianNoise
from dbern.privacy.mechanism import Noise, noise_law
from dbern.synopsis.evaluator import Polynomial
from dbern.synopsis.kept import Kept
from dbern.synopsis.selection import (
    Smoothing,
    noise_deviation,
    select,
    smoothed,
    smoothings,
    whole_ranks,
)
from dbern.synopsis.sharded import ShardedPolynomial
from dbern.synopsis.store import ReleasedStore

MOST_LOADED = 1 << 22
"""Most coefficients held in memory (32 MiB); a larger lattice is read by shards, as needed.

Measured: from there on leaving out what does not matter is the faster way too.
"""

_GRID_POINTS = 1 << 17  # of an oblique grid, evaluated at a time
_KEPT = 4  # polynomials, with their tables of up to 128 MiB


class ReleasedVector:
    """A vector: its numbers are the same at every point, under every smoothing.

    Parameters
    ----------
    store : ReleasedStore
    name : str
        Of the vector's group below ``components/``.
    facts : mapping
        The public facts of its component, from the root attributes.
    """

    axes: tuple[str, ...] = ()
    columns: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    chosen = Smoothing((), ())

    def __init__(self, store: ReleasedStore, name: str, facts: Mapping[str, Any]) -> None:
        self.name = name
        self._store = store
        self._facts = facts

    @cached_property
    def entries(self) -> FloatArray:
        """The numbers, (m,)."""
        return self._store.values(f"components/{self.name}/coefficients")

    def values(self, points: FloatArray, *_how: object) -> FloatArray:
        """The numbers, whatever the points."""
        del points
        return self.entries

    def grid_bytes(self, counts: Sequence[int]) -> int:
        """None that grows with a grid."""
        del counts
        return 0

    def deviation(self, smoothing: Smoothing) -> float:
        """The standard deviation of every entry's noise, from public facts alone."""
        del smoothing
        return _deviation(self._facts)

    def smoothing(self, h: Sequence[int]) -> Smoothing:
        """None."""
        del h
        return self.chosen

    def bound(
        self, smoothing: Smoothing, beta: Fraction, at_once: int, *, selected: bool
    ) -> Certificate:
        """Bound on the error of every entry, or of the linear functions that they make."""
        del smoothing, selected
        law, errors = noise_law(self._facts["noise"]["law"]), self._facts["errors"]
        error = errors["lattice"] + errors["released"]
        features = self._facts.get("features")
        count = len(self._facts["entries"])
        made = None if features is None else (features["axes"], features["constant"])
        return vector_bound(law, count, made, error, beta, at_once)


class ReleasedArray:
    """A function on some axes of the domain, in data units.

    Parameters
    ----------
    store : ReleasedStore
    name : str
        Of the array's group below ``components/``.
    facts : mapping
        The public facts of its component, from the root attributes.
    domain : Domain
        Of the whole function.
    """

    def __init__(
        self, store: ReleasedStore, name: str, facts: Mapping[str, Any], domain: Domain
    ) -> None:
        self.name = name
        self.axes: tuple[str, ...] = tuple(facts["axes"])
        self.lattice = Lattice(tuple(facts["k"]))
        self._store = store
        self._facts = facts
        self._path = f"components/{name}"
        self._polynomials = Kept[Polynomial | ShardedPolynomial](_KEPT)
        self.columns = [domain.names.index(axis) for axis in self.axes]
        self.domain = Domain(tuple(domain.axes[column] for column in self.columns))
        self.oblique = Oblique.from_dict(facts["oblique"]) if "oblique" in facts else None
        self.box = _cube(self.axes) if self.oblique else self.domain

    @property
    def order(self) -> tuple[int, ...]:
        """The order it was released with, per axis."""
        return tuple(self._facts["h"])

    def smoothing(self, h: Sequence[int]) -> Smoothing:
        """The whole release at an order."""
        return Smoothing(tuple(h), whole_ranks(self.coordinates))

    @cached_property
    def chosen(self) -> Smoothing:
        """Order and rank with the least estimated mean squared error."""
        deviation = _deviation(self._facts)
        return select(self._released_blocks(), deviation, self.coordinates, self.order)

    def deviation(self, smoothing: Smoothing) -> float:
        """The root mean square of its values' noise over the domain, from public facts alone."""
        return noise_deviation(_deviation(self._facts), self.coordinates, smoothing)

    def values(
        self, points: FloatArray, smoothing: Smoothing | None, total: int, threads: int = 1
    ) -> FloatArray:
        """Values at points (m, l) on its own axes, a part of a request of `total`; NaN outside.

        Without a smoothing, of the nearest node.
        """
        if smoothing is not None and self.oblique is None:
            return self._polynomial(smoothing)(points, total, threads)
        values = np.full(len(points), np.nan)
        inside = self.domain.inside(points)
        unit = np.clip(self.domain.to_unit(points[inside]), 0.0, 1.0)
        unit = unit if self.oblique is None else self.oblique.positions(unit)
        if smoothing is not None:
            values[inside] = self._polynomial(smoothing)(unit, total, threads)
            return values
        values[inside] = self._at_nodes(np.rint(unit * self.lattice.k).astype(np.int64))
        return values

    def _at_nodes(self, nodes: Int64Array) -> FloatArray:
        """Lattice values at nodes (m, l), of which only the shards that hold some are read."""
        blocks, found = self._lattice_blocks(), np.empty(len(nodes))
        shards = nodes[:, 0] // blocks.layers
        for index in np.unique(shards):
            here = shards == index
            own = nodes[here] - [index * blocks.layers, *[0] * (nodes.shape[1] - 1)]
            found[here] = blocks.read(int(index))[tuple(own.T)]
        return found

    def on_grid(self, positions: Sequence[FloatArray], smoothing: Smoothing) -> FloatArray:
        """Values on a product grid of positions in the unit cube."""
        if self.oblique is None:
            return self._polynomial(smoothing).grid(positions)
        shape = tuple(len(one) for one in positions)
        found, polynomial = np.empty(math.prod(shape)), self._polynomial(smoothing)
        for start in range(0, found.size, _GRID_POINTS):
            places = np.arange(start, min(start + _GRID_POINTS, found.size))
            index = np.unravel_index(places, shape)
            unit = np.stack([one[i] for one, i in zip(positions, index, strict=True)], axis=-1)
            found[places] = polynomial(self.oblique.positions(unit), found.size)
        return found.reshape(shape)

    def grid_bytes(self, counts: Sequence[int]) -> int:
        """Memory that a whole grid takes besides its values, where it grows with the grid."""
        if not self.large:
            return 0
        nodes = self.lattice.shape
        weights = sum(m * d for m, d in zip(counts, nodes, strict=True))
        others = (max(m, d) for m, d in zip(counts[1:], nodes[1:], strict=True))
        return 8 * (3 * weights + 2 * self.lattice.slab_layers * math.prod(others))

    def bound(
        self, smoothing: Smoothing, beta: Fraction, at_once: int, *, selected: bool
    ) -> Certificate:
        """Bound on its error; `selected`: the smoothing was chosen by looking at the values."""
        coordinates, errors = self.coordinates, self._facts["errors"]
        if selected:
            at_once *= len(smoothings(coordinates, self.order))
        model = ErrorModel(
            approximation=approximation_of(self._facts["approximation"]),
            coordinates=smoothed(coordinates, smoothing),
            law=self.law,
            lattice_error=errors["lattice"],
            released_error=errors["released"],
            unit=self._facts["value_unit"],
        )
        return model.bound(smoothing.h, beta, at_once)

    @cached_property
    def law(self) -> Noise:
        """The exact integer law of its noise."""
        return noise_law(self._facts["noise"]["law"])

    @cached_property
    def coordinates(self) -> Coordinates:
        """What was released of the lattice values."""
        kind = self._facts["noise"]["kind"]
        family = kind.partition("-")[0]
        if family not in ("spectral", "binned"):
            return PlainCoordinates(self.lattice)
        if self._facts.get("spectral") == "lattice":
            return coordinates_of(self.lattice, [self._lattice_spectrum()])
        read = self._spectrum if family == "spectral" else self._bins
        return coordinates_of(self.lattice, [read(axis) for axis in self.axes])

    def _spectrum(self, axis: str) -> AxisSpectrum:
        return AxisSpectrum(*self._stored_spectrum(f"_{axis}"))

    def _lattice_spectrum(self) -> LatticeSpectrum:
        return LatticeSpectrum(*self._stored_spectrum(""))

    def _stored_spectrum(self, suffix: str) -> tuple[bytes, int, tuple[float, ...], float]:
        analysis, facts = self._store.array(f"{self._path}/spectral/analysis{suffix}")
        levels, _ = self._store.array(f"{self._path}/spectral/eigenvalues{suffix}")
        packed = np.asarray(analysis).astype("<i8").tobytes()
        return packed, facts["exponent"], tuple(levels.tolist()), facts["weighting"]

    def _bins(self, axis: str) -> AxisBins:
        synthesis, facts = self._store.array(f"{self._path}/binned/synthesis_{axis}")
        packed = np.asarray(synthesis).astype("<f8").tobytes()
        return AxisBins(facts["cells"], facts["degree"], packed)

    @cached_property
    def _lattice_values(self) -> FloatArray:
        return self._store.values(f"{self._path}/coefficients")

    @cached_property
    def _released(self) -> FloatArray:
        """What carries the noise, in data units: spectral coordinates, bins or lattice values."""
        family = family_of(self.coordinates)
        if not family:
            return self._lattice_values
        return self._store.values(f"{self._path}/{family}/released")

    def _lattice_blocks(self) -> Blocks:
        """Lattice values by shards, each read when it is needed, the last of them kept."""
        path = f"{self._path}/coefficients"
        read, layers = partial(self._store.shard, path), self._store.shard_layers(path)
        return Blocks(self.lattice.shape, layers, read)

    def _released_blocks(self) -> Blocks:
        """What carries the noise: of a large lattice's own values, shard by shard."""
        plain = not family_of(self.coordinates)
        return self._lattice_blocks() if plain and self.large else blocks_of(self._released)

    @property
    def large(self) -> bool:
        """Whether the lattice is never whole in memory."""
        return self.lattice.size > MOST_LOADED

    def _factors(self, smoothing: Smoothing) -> tuple[Blocks, list[FloatArray]]:
        """Stored values, and what takes them to coefficients of the Bernstein basis, axis by axis.

        Of the whole rank these are lattice values, of others what the lattice is derived from.
        """
        if smoothing.ranks == whole_ranks(self.coordinates):
            axes = zip(self.lattice.k, smoothing.h, strict=True)
            return self._lattice_blocks(), [iterated_matrix(*axis) for axis in axes]
        used = smoothed(self.coordinates, smoothing)
        return blocks_of(self._released), synthesis_matrices(used, smoothing.h)

    def _polynomial(self, smoothing: Smoothing) -> Polynomial | ShardedPolynomial:
        """The function under a smoothing; the last few are kept with their tables."""
        return self._polynomials(smoothing, lambda: self._function(smoothing))

    def _function(self, smoothing: Smoothing) -> Polynomial | ShardedPolynomial:
        if self.large:
            return ShardedPolynomial(*self._factors(smoothing), self.box)
        return Polynomial(self._coefficients(smoothing), self.box)

    def _coefficients(self, smoothing: Smoothing) -> FloatArray:
        """Coefficients of the Bernstein basis; the whole rank is what the lattice holds."""
        if smoothing.ranks == whole_ranks(self.coordinates):
            return iterate(self._lattice_values, smoothing.h)
        values = self._released
        used = smoothed(self.coordinates, smoothing)
        whole = Slab(0, 0, self.lattice.shape[0])
        return iterate(used.to_lattice(values, whole), smoothing.h)


def _deviation(facts: Mapping[str, Any]) -> float:
    """The standard deviation of the noise of a released value, in data units."""
    gaussian = isinstance(noise_law(facts["noise"]["law"]), GaussianNoise)
    scale: float = facts["noise"]["scale"]
    return scale if gaussian else math.sqrt(2) * scale


def _cube(names: Sequence[str]) -> Domain:
    """The unit cube, which oblique coordinates are in."""
    return Domain(tuple(Axis(name, 0.0, 1.0) for name in names))
