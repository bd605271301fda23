"""Released arrays: coefficients under any smoothing, values, error bounds, and lazy lattices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dbern.bernstein.basis import INTERPOLATED, bernstein_basis, iterate, iterated_matrix
from dbern.bernstein.blocks import Blocks, blocks_of, on_axes, on_others
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.certificate import Certificate, ErrorModel, vector_bound
from dbern.combination.base import Answer
from dbern.components.component import LatticeComponent, VectorComponent
from dbern.components.layout import map_groups
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError
from dbern.noise_quantile import Beside, enclose
from dbern.privacy.covariance import NoiseCovariance
from dbern.strategies import strategy_of
from dbern.strategies.base import LatticeStrategy, Slab, Strategy
from dbern.strategies.bias import Approximation, KernelMixture
from dbern.strategies.bins import AxisBins, BinnedStrategy
from dbern.strategies.levels import Levels
from dbern.strategies.mean_squares import gauss_values, trace, typical_noise
from dbern.synopsis.blocks import StoredBlocks
from dbern.synopsis.evaluate import Interpolant, Polynomial
from dbern.synopsis.store import ReleasedStore
from dbern.system import LRUCache
from dbern.types import FloatArray, Int64Array

# --- Evaluate a lattice that is larger than memory, reading only the shards that matter


LEFT_OUT = 1e-12
"""Most that the sizes of the weights of unread layers sum to, for any point."""

_ROWS = 1 << 13
_WORK_VALUES = 1 << 22  # numbers of an unfinished product: 32 MiB
_GRID_VALUES = 1 << 20  # of a grid that are added to at a time


class LazyPolynomial:
    """A polynomial over a domain, straight from the shards of stored values it is linear in.

    Per axis a matrix (k_i + 1, d_i) takes stored values to coefficients of the Bernstein basis.
    With plain lattice values the matrices are the iterated operators, and the weights
    ``b^(h)_v(y)`` of a point fall off around ``v = k y``: shards whose weights along the first axis
    are tiny are left out, `LEFT_OUT` in all. That changes a value by no more than `LEFT_OUT` times
    the largest stored value times the other axes' largest sums of sizes of weights.
    """

    def __init__(self, blocks: Blocks, matrices: Sequence[FloatArray], domain: Domain) -> None:
        self._blocks = blocks
        self._matrices = tuple(matrices)
        self._domain = domain

    def __call__(self, points: FloatArray, total: int, threads: int = 1) -> FloatArray:
        """Evaluate points (m, l) in data units, in order of the first axis; NaN outside."""
        del total, threads
        values = np.full(len(points), np.nan)
        unit = np.clip(self._domain.to_unit(points), 0.0, 1.0)
        inside = np.flatnonzero(self._domain.inside(points))
        inside = inside[np.argsort(unit[inside, 0], kind="stable")]
        for first in range(0, len(inside), _ROWS):
            chosen = inside[first : first + _ROWS]
            values[chosen] = self._evaluate(self._weights(unit[chosen].T))
        return values

    def grid(self, axes: Sequence[FloatArray]) -> FloatArray:
        """Return the polynomial on the product grid of `axes`, positions of the unit interval."""
        first, *others = self._weights(axes)
        values = np.zeros([len(axis) for axis in axes])
        rows = max(1, _GRID_VALUES // max(1, values[:1].size))
        for part, layers, needed in self._parts(first):
            part = on_others(part, others)
            for start in range(0, len(needed), rows):  # or there would be two more such grids
                some = slice(start, start + rows)
                values[needed[some]] += np.tensordot(layers[some], part, axes=(1, 0))
        return values

    def _weights(self, positions: Sequence[FloatArray] | FloatArray) -> list[FloatArray]:
        axes = zip(positions, self._matrices, strict=True)
        return [bernstein_basis(y, len(matrix) - 1) @ matrix for y, matrix in axes]

    def _parts(self, first: FloatArray) -> Iterator[tuple[FloatArray, FloatArray, Int64Array]]:
        """Shards that some row of weights (m, k + 1) needs, the weights there, and which rows."""
        places = self._blocks.slices
        for index, place in enumerate(places):
            weights = first[:, place]
            needed = np.flatnonzero(np.abs(weights).sum(axis=1) > LEFT_OUT / len(places))
            if len(needed):
                yield self._blocks.read(index), weights[needed], needed

    def _evaluate(self, weights: Sequence[FloatArray]) -> FloatArray:
        first, *others = weights
        values = np.zeros(len(first))
        for part, layers, needed in self._parts(first):
            rows = max(1, _WORK_VALUES // (part.size // part.shape[-1]))
            for start in range(0, len(needed), rows):
                some = slice(start, start + rows)
                chosen = [other[needed[some]] for other in others]
                values[needed[some]] += _contracted(part, [layers[some], *chosen])
        return values


def _contracted(part: FloatArray, weights: Sequence[FloatArray]) -> FloatArray:
    first, *others = weights
    if not others:
        return first @ part
    found = np.moveaxis(np.tensordot(part, others[-1], axes=(-1, 1)), -1, 0)
    for other in reversed(others[:-1]):
        found = np.einsum("m...v,mv->m...", found, other)
    return np.asarray(np.einsum("mv,mv->m", found, first))


AnyFunction: TypeAlias = Polynomial | Interpolant | LazyPolynomial
"""What evaluates a released lattice."""

# --- Choose order and rank after release, from the released values alone

ORDERS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
_SHARES = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3)
_SUMS = 1 << 23  # numbers at nodes, of all the candidates of one pass (64 MiB)


@dataclass(frozen=True)
class Smoothing:
    """An order per axis, and how many leading components of each axis are used (None: plain).

    `raw`: of the bins as they were released, where noise was silenced in the lattice.
    """

    h: tuple[int, ...]
    ranks: tuple[int | None, ...]
    raw: bool = False


@dataclass(frozen=True)
class Question:
    """Evaluation of every point of a request.

    There is a smoothing for each released array, or None for the nearest node's value; `noise` is
    the deviation of each array's noise, where `answer` needs it.
    """

    smoothings: tuple[Smoothing, ...] | None
    answer: Answer = "value"
    noise: tuple[float, ...] = ()


def _whole_ranks(strategy: Strategy) -> tuple[int | None, ...]:
    return tuple(None if one is None else one.rank for one in strategy.axis_maps)


def smoothings(strategy: Strategy, h: Sequence[int]) -> list[Smoothing]:
    """Return the public candidates: `h` and the usual orders, at some shares of the ranks."""
    maps = strategy.axis_maps
    orders = dict.fromkeys([tuple(h), *((order,) * len(h) for order in ORDERS)])
    if set(h) == {INTERPOLATED}:  # which has no others
        orders = dict.fromkeys([tuple(h)])
    shares = (1.0,) if maps[0] is None else _SHARES
    found = (
        Smoothing(
            order, tuple(None if s is None else max(1, math.ceil(share * s.rank)) for s in maps)
        )
        for order, share in itertools.product(orders, shares)
    )
    return list(dict.fromkeys(found))


def smoothed(strategy: Strategy, smoothing: Smoothing) -> Strategy:
    """Return the same release, used at the smoothing's ranks; all its values stay."""
    maps = zip(strategy.maps, smoothing.ranks, strict=False)  # plain: no maps
    used = [one if rank is None or rank == one.rank else one.using(rank) for one, rank in maps]
    return strategy_of(strategy.lattice, used)


def select(
    released: FloatArray | Blocks, noise: NoiseCovariance, strategy: Strategy, h: Sequence[int]
) -> Smoothing:
    """Return the smoothing with the least estimated mean squared error over the domain.

    Mallows' Cp: with M_c the linear map of a candidate and M_0 that of the least biased one,
    ``|M_c y - M_0 y|^2 - tr (M_c - M_0) S (M_c - M_0)' + tr M_c S M_c'`` is an unbiased estimate of
    the candidate's error but for the bias of M_0, because the covariance S of the noise is public.
    Norms are over Gauss nodes. Blocks are read once for as many candidates as fit in memory.
    """
    candidates = smoothings(strategy, h)
    bases = [gauss_values(smoothed(strategy, one), one.h) for one in candidates]
    sizes = [(sum(rank or 0 for rank in one.ranks), sum(one.h)) for one in candidates]
    least_biased = sizes.index(max(sizes))
    zero, variance, c = bases[least_biased], noise.deviation**2, noise.correlation
    estimates = []
    for basis, apart in zip(bases, _apart(blocks_of(released), bases, least_biased), strict=True):
        own, shared = trace(basis, basis, c), trace(basis, zero, c)
        between = own + trace(zero, zero, c) - 2 * shared
        estimates.append(apart - variance * between + variance * own)
    return candidates[int(np.argmin(estimates))]


def _apart(blocks: Blocks, bases: Sequence[Sequence[FloatArray]], reference: int) -> list[float]:
    shape = [len(matrix) for matrix in bases[0]]
    together = max(1, _SUMS // math.prod(shape) - 1)
    found = []
    for start in range(0, len(bases), together):
        maps = [bases[reference], *bases[start : start + together]]
        values = [np.zeros(shape) for _ in maps]
        for place, part in blocks:
            for total, (first, *others) in zip(values, maps, strict=True):
                total += on_axes(part, [first[:, place], *others])
        found += [float(np.square(each - values[0]).sum()) for each in values[1:]]
    return found


# --- Silence bins where nothing stands out of the noise

_REACHES, _CAUTION = (1, 2), 4.0  # bins on either side of a window's middle; times the variance
_LEAST_EMPTY = 0.4  # of the bins: from there on errors fall by 4 to 40 %
_OVERSAMPLING, _CUT, _ENCLOSING = (8, 6, 4, 3), 1e-8, 4e9  # of what encloses a movement; its work
_ADDED = 2.0**-52  # of values: rounding of a share of the movement, and of the sum


def quieted(values: FloatArray, noise: NoiseCovariance, levels: Levels | None = None) -> FloatArray:
    """Return noisy bins less what does not stand out of the noise ("Quiet" in `shaping`).

    Of two levels the wide bins tell what stands out, and as much is kept of the narrow ones there.
    """
    if levels is not None:
        wide = _standing_out(values[: levels.wide], noise)
        return np.concatenate([wide, wide @ levels.refinement]) * values
    return _standing_out(values, noise) * values


def _standing_out(values: FloatArray, noise: NoiseCovariance) -> FloatArray:
    """Return shares of bins that stand out of the noise, by the windows around each."""
    parts = np.zeros_like(values)
    for reach in _REACHES:
        sums, counts = values, np.ones_like(values)
        for axis in range(values.ndim):
            sums, counts = (_windowed(each, reach, axis) for each in (sums, counts))
        shares = noise.variance(counts, counts) / np.square(np.where(sums > 0, sums, np.inf))
        parts = np.maximum(parts, np.where(sums > 0, 1 - _CAUTION * shares, 0.0))
    return parts


def silenced(
    values: FloatArray, noise: NoiseCovariance, strategy: Strategy, h: Sequence[int], most: float
) -> tuple[FloatArray, float, float]:
    """Return bins moved towards quiet ones, how far their function is moved, and by what share.

    The share is the largest up to one that moves it by at most `most`; 0 where few bins are empty.
    """
    quiet = quieted(values, noise)
    if np.mean(quiet == 0) < _LEAST_EMPTY:
        return values, 0.0, 0.0
    for oversampling in _OVERSAMPLING:
        nodes = enclose(strategy, h, oversampling, _CUT)
        first, *others = nodes.bases
        count = math.prod(map(len, nodes.bases))
        if count * first.shape[1] <= min(_ENCLOSING, _SUMS * len(first)):
            break
    step, moved = quiet - values, 0.0
    lines = on_others(step, others).reshape(len(step), -1)
    for rows in np.array_split(first, math.ceil(count / _SUMS)):
        found = rows @ lines
        moved = max(moved, float(found.max()), -float(found.min()))
    moved = OUTWARD * (nodes.factor * moved + nodes.loose * float(np.abs(step).max()))
    floats = _ADDED * strategy.released_norm(h) * float(np.abs(values).max())
    share = min(1.0, max(0.0, most / OUTWARD**2 - floats) / moved) if moved > 0 else 0.0
    return values + share * step, OUTWARD * (share * moved + floats), share


def _windowed(values: FloatArray, reach: int, axis: int) -> FloatArray:
    edges = [(reach * (i == axis),) * 2 for i in range(values.ndim)]
    padded = np.pad(values, edges)
    return np.asarray(sliding_window_view(padded, 2 * reach + 1, axis).sum(axis=-1))


# --- One released array

MOST_LOADED = 1 << 22
"""Most coefficients held in memory (32 MiB); a larger lattice is read by shards, as needed.

Measured: from there on leaving out what does not matter is the faster way too.
"""

_GRID_POINTS = 1 << 17  # of an oblique grid, evaluated at a time
_CACHED = 4  # polynomials, with their tables of up to 128 MiB


class ReleasedVector:
    """A vector of the group `name` of ``components/``.

    Its numbers are the same at every point, under every smoothing.
    """

    axes: tuple[str, ...] = ()
    columns: tuple[int, ...] = ()
    large = False
    order: tuple[int, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    approximation: Approximation | None = None
    highest = math.inf
    value_unit = 1.0
    counted_in = None
    silenced = 0.0
    chosen = Smoothing((), ())

    def __init__(self, store: ReleasedStore, name: str, component: VectorComponent) -> None:
        self.name = name
        self.component = component
        self._store = store

    @cached_property
    def entries(self) -> FloatArray:
        """The numbers, (m,)."""
        return self._store.values(f"components/{self.name}/coefficients")

    def values(self, *_points: object) -> FloatArray:
        """Return the numbers, whatever the points."""
        return self.entries

    def on_grid(self, *_positions: object) -> FloatArray:
        """Return the same, whatever the grid."""
        return self.values()

    def grid_bytes(self, *_counts: object) -> int:
        """Return 0: no memory grows with a grid."""
        return 0

    def deviation(self, *_smoothing: object) -> float:
        """Return the standard deviation of every entry's noise, from public facts alone."""
        return self.component.noise.covariance.deviation

    def smoothing(self, *_h: object) -> Smoothing:
        """Return the only smoothing, which does nothing."""
        return self.chosen

    def bound(
        self, smoothing: Smoothing, beta: Fraction, at_once: int, *, selected: bool
    ) -> Certificate:
        """Bound on the error of every entry, or of the linear functions that they make."""
        del smoothing, selected
        component = self.component
        error = component.errors.lattice + component.errors.released
        stated = component.features
        features = None if stated is None else tuple(stated.to_json().values())
        law, size = component.noise.law, component.lattice.size
        return vector_bound(law, size, features, error, beta, at_once)


class ReleasedArray:
    """A function on some axes of the domain, in data units: the group `name` of ``components/``."""

    def __init__(
        self, store: ReleasedStore, name: str, component: LatticeComponent, domain: Domain
    ) -> None:
        self.name = name
        self.component = component
        self.axes = component.axes
        self.lattice = component.lattice
        self.order = component.h
        self.value_unit = component.value_unit
        self.released_error = component.errors.released
        self.noise = component.noise.covariance
        self.law = component.noise.law
        self._store = store
        self._path = f"components/{name}"
        self._polynomials = LRUCache[AnyFunction](_CACHED)
        self.columns = [domain.names.index(axis) for axis in self.axes]
        self.domain = Domain(tuple(domain.axes[column] for column in self.columns))
        self.oblique = component.oblique.restore() if component.oblique else None
        cube = Domain(tuple(Axis(axis, 0.0, 1.0) for axis in self.axes))
        self.box = cube if self.oblique else self.domain  # oblique coordinates are in the cube

    @property
    def silenced(self) -> float:
        """Distance between the function of the lattice and that of the bins, by silenced noise."""
        return self._silence[0]

    @cached_property
    def _silence(self) -> tuple[float, float]:
        family = self.strategy.kind
        facts = self._store.facts(f"{self._path}/{family}/released") if family else {}
        return float(facts.get("silenced", 0.0)), float(facts.get("silenced_share", 0.0))

    @property
    def answered(self) -> FloatArray:
        """Source of the lattice, in data units: bins, some of their noise silenced."""
        released, (_, share) = self.released, self._silence
        return released + share * (quieted(released, self.noise) - released)

    def smoothing(self, h: Sequence[int] = ()) -> Smoothing:
        """Return the whole release at an order; at another than its own no noise is silenced."""
        if self.component.interpolated and tuple(h) not in ((), self.order):
            raise SpecError(
                "h: this function is linear between lattice values, which no order changes. "
                "Leave out h"
            )
        own = Smoothing(tuple(h) or self.order, _whole_ranks(self.strategy))
        return own if own.h == self.order else as_released(self, own)

    @cached_property
    def chosen(self) -> Smoothing:
        """Order and rank with the least estimated mean squared error."""
        in_shards = self.large and not self.strategy.kind
        values = self._lattice_blocks() if in_shards else self.released
        return as_released(self, select(values, self.noise, self.strategy, self.order))

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
            return self._polynomial(smoothing)(points, total, threads)
        values = np.full(len(points), np.nan)
        inside = self.domain.inside(points)
        unit = self.places(points[inside])
        if smoothing is not None:
            values[inside] = self._polynomial(smoothing)(unit, total, threads)
            return values
        values[inside] = self._at_nodes(np.rint(unit * self.lattice.k).astype(np.int64))
        return values

    def places(self, points: FloatArray) -> FloatArray:
        """Move points (m, l) to the unit cube of its lattice; those outside to its surface."""
        unit = np.clip(self.domain.to_unit(points), 0.0, 1.0)
        return unit if self.oblique is None else self.oblique.positions(unit)

    def _at_nodes(self, nodes: Int64Array) -> FloatArray:
        """Lattice values at nodes (m, l); only their shards are read."""
        blocks, found = self._lattice_blocks(), np.empty(len(nodes))
        shards = nodes[:, 0] // blocks.layers
        for index in np.unique(shards):
            here = shards == index
            own = nodes[here] - [index * blocks.layers, *[0] * (nodes.shape[1] - 1)]
            found[here] = blocks.read(int(index))[tuple(own.T)]
        return found

    def on_grid(self, positions: Sequence[FloatArray], smoothing: Smoothing) -> FloatArray:
        """Return values on a product grid of positions in the unit cube."""
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
        """Return the memory that a grid takes besides its values, where it grows with it."""
        if not self.large:
            return 0
        nodes = self.lattice.shape
        weights = sum(m * d for m, d in zip(counts, nodes, strict=True))
        others = (max(m, d) for m, d in zip(counts[1:], nodes[1:], strict=True))
        return 8 * (3 * weights + 2 * self.lattice.slab_layers * math.prod(others))

    def bound(
        self,
        smoothing: Smoothing,
        beta: Fraction,
        at_once: int,
        *,
        selected: bool,
        beside: Beside = None,
    ) -> Certificate:
        """Bound its error; `selected`: the smoothing was chosen by looking at the values.

        `beside` as of `ErrorModel.bound`. The distance that silencing has moved counts as noise.
        """
        if selected:
            at_once *= len(smoothings(self.strategy, self.order))
        sure = self.model(smoothing).bound(smoothing.h, beta, at_once, beside=beside)
        return sure if smoothing.raw else replace(sure, noise=sure.noise + self.silenced)

    def model(self, smoothing: Smoothing) -> ErrorModel:
        """Return the model that its error follows from."""
        return ErrorModel(
            approximation=self.approximation,
            strategy=smoothed(self.strategy, smoothing),
            law=self.law,
            lattice_error=self.component.errors.lattice,
            released_error=self.released_error,
            unit=self.value_unit,
        )

    @cached_property
    def approximation(self) -> Approximation:
        """Class of functions that its bound covers."""
        return self.component.approximation.restore()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels of a sum over records, axis by axis; else none."""
        mixture = self.approximation
        return mixture.kernels if isinstance(mixture, KernelMixture) else ()

    @property
    def highest(self) -> float:
        """Bound the function's values, in unit-cube units; infinite where nothing is known."""
        return self.approximation.highest

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
        axis_map = self.component.axis_map
        if axis_map is None:
            return LatticeStrategy(self.lattice)

        def read(paths: Mapping[str, str], name: str) -> tuple[Any, dict[str, Any]]:
            return self._store.array(f"{self._path}/{paths[name]}")

        groups = map_groups(self.component)
        maps = [axis_map.of_arrays(partial(read, group.paths)) for group in groups]
        return strategy_of(self.lattice, maps)

    @cached_property
    def _lattice_values(self) -> FloatArray:
        return self._store.values(f"{self._path}/coefficients")

    @cached_property
    def released(self) -> FloatArray:
        """Noisy values, in data units: spectral coordinates, bins or lattice values."""
        family = self.strategy.kind
        if not family:
            return self._lattice_values
        return self._store.values(f"{self._path}/{family}/released")

    def _lattice_blocks(self) -> Blocks:
        path = f"{self._path}/coefficients"
        return StoredBlocks(self.lattice.shape, self._store.shard_layers(path), self._store, path)

    @property
    def large(self) -> bool:
        """Whether the lattice is never whole in memory."""
        return self.lattice.size > MOST_LOADED

    def _factors(self, smoothing: Smoothing) -> tuple[Blocks, list[FloatArray]]:
        """Stored values, and the matrices from them to Bernstein coefficients, axis by axis.

        For the whole rank these are lattice values, for others what the lattice is derived from.
        """
        if smoothing.ranks == _whole_ranks(self.strategy) and not smoothing.raw:
            axes = zip(self.lattice.k, smoothing.h, strict=True)
            return self._lattice_blocks(), [iterated_matrix(*axis) for axis in axes]
        used = smoothed(self.strategy, smoothing)
        return blocks_of(self.released), used.matrices(smoothing.h)

    def _polynomial(self, smoothing: Smoothing) -> AnyFunction:
        return self._polynomials(smoothing, lambda: self._function(smoothing))

    def _function(self, smoothing: Smoothing) -> AnyFunction:
        if self.large:
            return LazyPolynomial(*self._factors(smoothing), self.box)
        return self._of(self._coefficients(smoothing))

    def _of(self, coefficients: FloatArray) -> AnyFunction:
        """Return the function of coefficients in memory: a polynomial, or linear between them."""
        form = Interpolant if self.component.interpolated else Polynomial
        return form(coefficients, self.box)

    def _coefficients(self, smoothing: Smoothing) -> FloatArray:
        """Coefficients of the Bernstein basis; the whole rank is what the lattice holds."""
        if smoothing.ranks == _whole_ranks(self.strategy) and not smoothing.raw:
            return iterate(self._lattice_values, smoothing.h)
        return self._made_of(self.released, smoothing)

    def _made_of(self, values: FloatArray, smoothing: Smoothing) -> FloatArray:
        used = smoothed(self.strategy, smoothing)
        whole = Slab(0, 0, self.lattice.shape[0])
        return iterate(used.reconstruct(values, whole), smoothing.h)


def as_released(array: ReleasedArray | ReleasedVector, smoothing: Smoothing) -> Smoothing:
    """Return the smoothing of what carries the noise, before any of it was silenced."""
    return replace(smoothing, raw=array.silenced > 0)
