"""Released arrays and vectors as a reader needs them: values, and bounds of their errors.

A `ReleasedArray` is a function over a lattice; a `ReleasedVector` has numbers that are the same at
every point.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np

from dbern.bernstein.basis import iterate, iterated_matrix
from dbern.bernstein.blocks import Blocks, blocks_of
from dbern.bernstein.kernels import Kernel
from dbern.certify.approximation import FunctionClass, KernelMixture
from dbern.certify.certificate import Certificate, ErrorModel, vector_bound
from dbern.certify.mean_square import typical_noise
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError
from dbern.model.component import Component, LatticeComponent, VectorComponent
from dbern.reconstruct import strategy_of
from dbern.reconstruct.base import LatticeStrategy, Slab, Strategy
from dbern.reconstruct.bins import AxisBins, BinnedStrategy
from dbern.synopsis.evaluate import AnyFunction, Interpolant, LazyPolynomial, Polynomial
from dbern.synopsis.smoothing import Smoothing, full_ranks, select, shrink, smoothed, smoothings
from dbern.synopsis.store import ReadableStore
from dbern.synopsis.stored_arrays import map_groups
from dbern.system import LRUCache
from dbern.types import FloatArray, Int64Array

MOST_LOADED = 1 << 22
"""Most coefficients held in memory (32 MiB); a larger lattice is read by shards, as needed.

Measured: larger lattices are also faster by the shards that matter.
"""
_GRID_POINTS = 1 << 17  # of an oblique grid, evaluated at a time
_CACHED = 4  # polynomials, with their tables of up to 128 MiB


class Released(ABC):
    """Values that the group `name` of ``components/`` gives to a combination, and their errors."""

    def __init__(self, store: ReadableStore, name: str, component: Component) -> None:
        self.name = name
        self.component = component
        self._store = store

    @property
    def axes(self) -> tuple[str, ...]:
        """Axes of the domain that its values depend on."""
        return self.component.axes

    @property
    @abstractmethod
    def large(self) -> bool:
        """Whether its numbers are too many for memory, so that each use reads them again."""

    @abstractmethod
    def smoothing(self, h: Sequence[int] = ()) -> Smoothing:
        """Return the whole release at an order on each of its axes, by default its own."""

    @property
    @abstractmethod
    def best_smoothing(self) -> Smoothing:
        """Smoothing with the least estimated mean squared error."""

    @abstractmethod
    def unshrunk(self, smoothing: Smoothing) -> Smoothing:
        """Return the smoothing of the released values, before they were shrunk."""

    @abstractmethod
    def values(
        self, points: FloatArray, smoothing: Smoothing | None, total: int, threads: int = 1
    ) -> FloatArray:
        """Return values at points (m, l) on its own axes, a part of a request of `total`.

        Without a smoothing those of the nearest nodes.
        """

    @abstractmethod
    def on_grid(self, positions: Sequence[FloatArray], smoothing: Smoothing) -> FloatArray:
        """Return values on a product grid of positions in the unit cube of its own axes."""

    @abstractmethod
    def grid_bytes(self, counts: Sequence[int]) -> int:
        """Return the memory that a grid takes besides its values, where it grows with it."""

    def relative_errors(self, points: FloatArray) -> FloatArray | float:
        """Return the most that errors are at points (m, l), over what they are anywhere."""
        del points
        return 1.0

    @abstractmethod
    def deviation(self, smoothing: Smoothing) -> float:
        """Return the root mean square of its values' noise, from public facts alone."""

    @abstractmethod
    def certificate(
        self, smoothing: Smoothing, beta: Fraction, num_simultaneous: int, *, selected: bool
    ) -> Certificate:
        """Bound the error of its values; `selected`: the smoothing was chosen by looking at them.

        With probability ``1 - beta`` it holds, and so do those of `num_simultaneous` in all.
        """


class ReleasedArray(Released):
    """A function on some axes of the domain, in data units: the group `name` of ``components/``."""

    component: LatticeComponent

    def __init__(
        self, store: ReadableStore, name: str, component: LatticeComponent, domain: Domain
    ) -> None:
        super().__init__(store, name, component)
        self.lattice = component.lattice
        self.order = component.h
        self.value_unit = component.value_unit
        self.released_error = component.errors.released
        self.noise = component.noise.covariance
        self.law = component.noise.law
        self._path = f"components/{name}"
        self._polynomials = LRUCache[AnyFunction](_CACHED)
        self.domain = Domain(tuple(domain.axes[domain.names.index(axis)] for axis in self.axes))
        self.oblique = component.oblique.restore() if component.oblique else None
        cube = Domain(tuple(Axis(axis, 0.0, 1.0) for axis in self.axes))
        # Oblique coordinates are in the cube.
        self.lattice_domain = cube if self.oblique else self.domain

    @property
    def shrunk_distance(self) -> float:
        """Distance between the function of the lattice and that of the bins, by shrinking."""
        return self._shrinkage[0]

    @cached_property
    def _shrinkage(self) -> tuple[float, float]:
        kind = self.strategy.kind
        attributes = self._store.array_attributes(f"{self._path}/{kind}/released") if kind else {}
        return float(attributes.get("silenced", 0.0)), float(attributes.get("silenced_share", 0.0))

    @property
    def shrunk(self) -> FloatArray:
        """Source of the lattice, in data units: bins, shrunk by the published part."""
        released, (_, fraction) = self.released, self._shrinkage
        return released + fraction * (shrink(released, self.noise) - released)

    def smoothing(self, h: Sequence[int] = ()) -> Smoothing:
        """Return the whole release at an order; at another than its own nothing is shrunk."""
        if self.component.interpolated and tuple(h) not in ((), self.order):
            raise SpecError(
                "h: this function is linear between lattice values, which no order changes. "
                "Leave out h"
            )
        smoothing = Smoothing(tuple(h) or self.order, full_ranks(self.strategy))
        return smoothing if smoothing.h == self.order else self.unshrunk(smoothing)

    @cached_property
    def best_smoothing(self) -> Smoothing:
        """Order and rank with the least estimated mean squared error."""
        in_shards = self.large and not self.strategy.kind
        values = self._lattice_blocks() if in_shards else self.released
        return self.unshrunk(select(values, self.noise, self.strategy, self.order))

    def unshrunk(self, smoothing: Smoothing) -> Smoothing:
        """Return the smoothing of the released values, before they were shrunk."""
        return replace(smoothing, raw=self.shrunk_distance > 0)

    def deviation(self, smoothing: Smoothing) -> float:
        """Return the root mean square of its values' noise, from public facts alone."""
        return typical_noise(smoothed(self.strategy, smoothing), smoothing.h, self.noise)

    def values(
        self, points: FloatArray, smoothing: Smoothing | None, total: int, threads: int = 1
    ) -> FloatArray:
        """Evaluate points (m, l) on its own axes, a part of a request of `total`; NaN outside.

        Without a smoothing, the nearest node's value.
        """
        if smoothing is not None and self.oblique is None:
            values = self._polynomial(smoothing)(points, total, threads)
            return values / self._mass_within(points) if self._normalized else values
        values = np.full(len(points), np.nan)
        inside = self.domain.inside(points)
        positions = self.cube_positions(points[inside])
        if smoothing is not None:
            values[inside] = self._polynomial(smoothing)(positions, total, threads)
            return values
        values[inside] = self._at_nodes(np.rint(positions * self.lattice.k).astype(np.int64))
        return values / self._mass_within(points) if self._normalized else values

    @cached_property
    def _normalized(self) -> bool:
        """Whether the function is the sum of its kernels over their masses (`Kernel`, edges)."""
        return any(kernel.edges == "normalized" for kernel in self.kernels)

    def _mass_within(self, points: FloatArray) -> FloatArray:
        """Return what its kernels' sum is divided by at points (m, l)."""
        positions = np.nan_to_num(self.cube_positions(points))
        axes = zip(self.kernels, positions.T, strict=True)
        return np.asarray(np.prod([kernel.mass_within(y) for kernel, y in axes], axis=0))

    def relative_errors(self, points: FloatArray) -> FloatArray | float:
        """Return the most that errors are at points (m, l), over what they are anywhere."""
        if not self._normalized:
            return 1.0
        return 1 / (self.function_class.edge_factor * self._mass_within(points))

    def cube_positions(self, points: FloatArray) -> FloatArray:
        """Move points (m, l) to the unit cube of its lattice; those outside to its surface."""
        positions = np.clip(self.domain.to_unit(points), 0.0, 1.0)
        return positions if self.oblique is None else self.oblique.positions(positions)

    def _at_nodes(self, nodes: Int64Array) -> FloatArray:
        """Read lattice values at nodes (m, l), from their shards alone."""
        blocks, values = self._lattice_blocks(), np.empty(len(nodes))
        shards = nodes[:, 0] // blocks.layers
        for index in np.unique(shards):
            inside = shards == index
            local = nodes[inside] - [index * blocks.layers, *[0] * (nodes.shape[1] - 1)]
            values[inside] = blocks.read(int(index))[tuple(local.T)]
        return values

    def on_grid(self, positions: Sequence[FloatArray], smoothing: Smoothing) -> FloatArray:
        """Return values on a product grid of positions in the unit cube."""
        if self.oblique is None:
            values = self._polynomial(smoothing).grid(positions)
            for axis, kernel in enumerate(self.kernels if self._normalized else ()):
                masses = kernel.mass_within(positions[axis])
                values /= np.expand_dims(masses, (*range(axis), *range(axis + 1, values.ndim)))
            return values
        shape = tuple(len(axis_positions) for axis_positions in positions)
        values, polynomial = np.empty(math.prod(shape)), self._polynomial(smoothing)
        for start in range(0, values.size, _GRID_POINTS):
            indices = np.arange(start, min(start + _GRID_POINTS, values.size))
            index = np.unravel_index(indices, shape)
            cube_points = np.stack(
                [axis_positions[i] for axis_positions, i in zip(positions, index, strict=True)],
                axis=-1,
            )
            values[indices] = polynomial(self.oblique.positions(cube_points), values.size)
        return values.reshape(shape)

    def grid_bytes(self, counts: Sequence[int]) -> int:
        """Return the memory that a grid takes besides its values, where it grows with it."""
        if not self.large:
            return 0
        nodes = self.lattice.shape
        weights = sum(m * d for m, d in zip(counts, nodes, strict=True))
        rest = (max(m, d) for m, d in zip(counts[1:], nodes[1:], strict=True))
        return 8 * (3 * weights + 2 * self.lattice.slab_layers * math.prod(rest))

    def certificate(
        self, smoothing: Smoothing, beta: Fraction, num_simultaneous: int, *, selected: bool
    ) -> Certificate:
        """Bound its error; `selected`: the smoothing was chosen by looking at the values.

        The distance moved by shrinking counts as noise.
        """
        if selected:
            num_simultaneous *= len(smoothings(self.strategy, self.order))
        certificate = self.model(smoothing).certificate(smoothing.h, beta, num_simultaneous)
        moved = 0.0 if smoothing.raw else self.shrunk_distance
        return replace(certificate, noise=certificate.noise + moved)

    def model(self, smoothing: Smoothing) -> ErrorModel:
        """Return the model that its error follows from."""
        return ErrorModel(
            function_class=self.function_class,
            strategy=smoothed(self.strategy, smoothing),
            law=self.law,
            lattice_error=self.component.errors.lattice,
            released_error=self.released_error,
            value_unit=self.value_unit,
        )

    @cached_property
    def function_class(self) -> FunctionClass:
        """Class of functions that its bound covers."""
        return self.component.approximation.restore()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels of a sum over records, axis by axis; else none."""
        mixture = self.function_class
        return mixture.kernels if isinstance(mixture, KernelMixture) else ()

    @property
    def highest(self) -> float:
        """Bound the function's values, in unit-cube units; infinite where nothing is known."""
        return self.function_class.highest

    @property
    def bins(self) -> tuple[AxisBins, ...]:
        """Bins that were released, axis by axis; else none."""
        return self.strategy.bins if isinstance(self.strategy, BinnedStrategy) else ()

    @property
    def counted_in(self) -> str | None:
        """Name of the array whose bins have each of its records with at least as large a weight."""
        names = self.component.counted_in
        return None if names is None else names[self.component.arrays.index(self.name)]

    @cached_property
    def strategy(self) -> Strategy:
        """Strategy by which the lattice values were released."""
        return stored_strategy(self._store, self._path, self.component)

    @cached_property
    def _lattice_values(self) -> FloatArray:
        return self._store.values(f"{self._path}/coefficients")

    @cached_property
    def released(self) -> FloatArray:
        """Noisy values, in data units: spectral coordinates, bins or lattice values."""
        kind = self.strategy.kind
        if not kind:
            return self._lattice_values
        return self._store.values(f"{self._path}/{kind}/released")

    def _lattice_blocks(self) -> Blocks:
        return self._store.blocks(f"{self._path}/coefficients")

    @property
    def large(self) -> bool:
        """Whether the lattice is never whole in memory."""
        return self.lattice.size > MOST_LOADED

    def _factors(self, smoothing: Smoothing) -> tuple[Blocks, list[FloatArray]]:
        """Return stored values, and the matrices from them to Bernstein coefficients by axis.

        For the whole rank these are lattice values, for others the lattice's released source.
        """
        if smoothing.ranks == full_ranks(self.strategy) and not smoothing.raw:
            axes = zip(self.lattice.k, smoothing.h, strict=True)
            return self._lattice_blocks(), [iterated_matrix(*axis) for axis in axes]
        used = smoothed(self.strategy, smoothing)
        return blocks_of(self.released), used.matrices(smoothing.h)

    def _polynomial(self, smoothing: Smoothing) -> AnyFunction:
        return self._polynomials(smoothing, lambda: self._function(smoothing))

    def _function(self, smoothing: Smoothing) -> AnyFunction:
        if self.large:
            return LazyPolynomial(*self._factors(smoothing), self.lattice_domain)
        form = Interpolant if self.component.interpolated else Polynomial
        return form(self._coefficients(smoothing), self.lattice_domain)

    def _coefficients(self, smoothing: Smoothing) -> FloatArray:
        """Return Bernstein coefficients; the lattice holds those of the whole rank."""
        if smoothing.ranks == full_ranks(self.strategy) and not smoothing.raw:
            return iterate(self._lattice_values, smoothing.h)
        used = smoothed(self.strategy, smoothing)
        all_layers = Slab(0, 0, self.lattice.shape[0])
        return iterate(used.reconstruct(self.released, all_layers), smoothing.h)


def stored_strategy(store: ReadableStore, path: str, component: LatticeComponent) -> Strategy:
    """Return the strategy by which the lattice values of a group were released."""
    axis_map = component.axis_map
    if axis_map is None:
        return LatticeStrategy(component.lattice)

    def read(paths: Mapping[str, str], name: str) -> tuple[Any, dict[str, Any]]:
        return store.array(f"{path}/{paths[name]}")

    maps = [axis_map.of_arrays(partial(read, group.paths)) for group in map_groups(component)]
    return strategy_of(component.lattice, maps)


class ReleasedVector(Released):
    """A vector of the group `name` of ``components/``: it has no axes, and nothing is smoothed."""

    component: VectorComponent

    @cached_property
    def entries(self) -> FloatArray:
        """The released entries, (m,)."""
        return self._store.values(f"components/{self.name}/coefficients")

    @property
    def weights(self) -> FloatArray:
        """Entries that a combination computes with."""
        return self.entries

    @property
    def large(self) -> bool:
        """Never: a vector is read whole."""
        return False

    def smoothing(self, h: Sequence[int] = ()) -> Smoothing:
        """Return the smoothing on no axes."""
        del h
        return Smoothing((), ())

    @property
    def best_smoothing(self) -> Smoothing:
        """Smoothing on no axes."""
        return self.smoothing()

    def unshrunk(self, smoothing: Smoothing) -> Smoothing:
        """Return the same: a vector is not shrunk."""
        return smoothing

    def values(
        self, points: FloatArray, smoothing: Smoothing | None, total: int, threads: int = 1
    ) -> FloatArray:
        """Return the weights, whatever the points."""
        del points, smoothing, total, threads
        return self.weights

    def on_grid(self, positions: Sequence[FloatArray], smoothing: Smoothing) -> FloatArray:
        """Return the weights, whatever the grid."""
        del positions, smoothing
        return self.weights

    def grid_bytes(self, counts: Sequence[int]) -> int:
        """Return 0: no memory grows with a grid."""
        del counts
        return 0

    def deviation(self, smoothing: Smoothing) -> float:
        """Return the standard deviation of every entry's noise, from public facts alone."""
        del smoothing
        return self.component.noise.covariance.deviation

    def certificate(
        self, smoothing: Smoothing, beta: Fraction, num_simultaneous: int, *, selected: bool
    ) -> Certificate:
        """Bound the error of every entry, or of the linear functions that they make."""
        del smoothing, selected
        component = self.component
        error = component.errors.lattice + component.errors.released
        features = component.features.restore() if component.features else None
        law, size = component.noise.law, component.lattice.size
        return vector_bound(law, size, features, error, beta, num_simultaneous)
