"""Evaluate a released lattice at many points (Algorithm 1, lines 7 and 8).

Of a lattice larger than memory only the shards that matter are read (`LazyPolynomial`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.blocks import Blocks, apply_to_others
from dbern.bernstein.pieces import Pieces, resample
from dbern.data.domain import Domain
from dbern.types import FloatArray, Int64Array

LEAST_RESAMPLED = 1 << 15
"""Points of one request from which resampling pays for its table, at any dimension and k."""
_LEAST_WORK = 1 << 19  # points times nodes of their axes: some milliseconds of matrix products
_TABLE_POINTS = 8  # as many points a node take the matrix products as long as the table
_WORK_VALUES = 1 << 21  # numbers in flight at a time: 16 MiB, inside the cache of a server
_LOCAL_VALUES = 1 << 20  # coefficients, of more of which points near each other use a part
_NEAR_POINTS, _NEAR_NODES = 16, 16  # at least, of a part of the points
_NEGLIGIBLE_WEIGHT = 2.0**-46  # of a point's weight, at a node: pieces miss a hundred times as much
_GRID_VALUES = 1 << 19  # of an unfinished grid: 4 MiB, and as much twice or thrice on the way
_MIN_POINTS_OF_THREAD = 1 << 16  # fewer are not worth a thread
_BATCH_POINTS = 1 << 14  # with their cells and offsets they fit the cache of a core
_CACHED_TABLE = 1 << 17  # numbers; a larger table is gone through in order of its cells
UNREAD_WEIGHT = 1e-12
"""Most that the sizes of the weights of unread layers sum to, for any point."""
_LAZY_BATCH_POINTS = 1 << 13  # of `LazyPolynomial`
_SHARD_VALUES = 1 << 22  # numbers of an unfinished product: 32 MiB
_ADDED_VALUES = 1 << 20  # of a grid that are added to at a time


class Polynomial:
    """A polynomial over a domain, of plain Bernstein coefficients, evaluated the faster way.

    A request of fewer points than `_least_resampled` is evaluated by matrix products (`evaluate`).
    A larger one goes by pieces, whose error is at most 1e-9 of the largest value (`resample`),
    unless their table would be too large. Which way depends on the size of the request and the
    lattice alone, so the same request has the same answer.
    """

    def __init__(self, bernstein: FloatArray, domain: Domain) -> None:
        self.bernstein = bernstein
        self._domain = domain
        self._lock = Lock()
        self._resampled: list[Pieces | None] = []  # empty until it is wanted

    def __call__(self, points: FloatArray, total: int, threads: int = 1) -> FloatArray:
        """Evaluate points (m, l) in data units, a part of a request of `total`; NaN outside."""
        large = total >= _least_resampled(self.bernstein.shape)
        pieces = self._pieces() if large else None
        if pieces is None:
            inside = self._domain.inside(points)
            if inside.all():  # as a point alone most often is
                return self._at(points)
            values = np.full(len(points), np.nan)
            values[inside] = self._at(points[inside])
            return values
        low, high = zip(*((axis.low, axis.high) for axis in self._domain.axes), strict=True)
        num_threads = min(threads, len(points) // _MIN_POINTS_OF_THREAD)
        if num_threads < 2:
            return _evaluate_pieces(pieces, points, low, high)
        with ThreadPoolExecutor(num_threads) as pool:
            batches = np.array_split(points, num_threads)
            values_by_batch = pool.map(
                lambda batch: _evaluate_pieces(pieces, batch, low, high), batches
            )
            return np.concatenate(list(values_by_batch))

    def grid(self, axes: Sequence[FloatArray]) -> FloatArray:
        """Return the polynomial on the product grid of `axes`, positions of the unit interval.

        It takes little more memory than that grid.
        """
        values = np.empty([len(positions) for positions in axes])
        _fill(values, self.bernstein, axes, ())
        return values

    def _at(self, points: FloatArray) -> FloatArray:
        return evaluate(self.bernstein, self._domain.to_unit(points).clip(0.0, 1.0))

    def _pieces(self) -> Pieces | None:
        with self._lock:
            if not self._resampled:
                self._resampled.append(resample(self.bernstein))
            return self._resampled[0]


class Interpolant:
    """A function over a domain that is linear, axis by axis, between values at equal steps.

    It has the methods of `Polynomial`; a point has the same value in any request.
    """

    def __init__(self, values: FloatArray, domain: Domain) -> None:
        self._values = values
        self._domain = domain

    def __call__(self, points: FloatArray, total: int, threads: int = 1) -> FloatArray:
        """Evaluate points (m, l) in data units; NaN outside."""
        del total, threads
        values = np.full(len(points), np.nan)
        inside = np.flatnonzero(self._domain.inside(points))
        for batch in np.array_split(inside, 1 + len(inside) // _BATCH_POINTS):
            positions = np.clip(self._domain.to_unit(points[batch]), 0.0, 1.0)
            values[batch] = self._at(positions)
        return values

    def grid(self, axes: Sequence[FloatArray]) -> FloatArray:
        """Return the function on the product grid of `axes`, positions of the unit interval."""
        values = self._values
        for axis, positions in enumerate(axes):
            values = np.moveaxis(values, axis, -1)
            step, fraction = _locate_steps(positions, values.shape[-1] - 1)
            values = (1 - fraction) * values[..., step] + fraction * values[..., step + 1]
            values = np.moveaxis(values, -1, axis)
        return np.ascontiguousarray(values)

    def _at(self, positions: FloatArray) -> FloatArray:
        located = [
            _locate_steps(y, n - 1) for y, n in zip(positions.T, self._values.shape, strict=True)
        ]
        values = np.zeros(len(positions))
        for corner in itertools.product((0, 1), repeat=len(located)):
            nodes = tuple(step + side for (step, _), side in zip(located, corner, strict=True))
            weight = np.ones(len(positions))
            for (_, fraction), side in zip(located, corner, strict=True):
                weight *= fraction if side else 1 - fraction
            values += weight * self._values[nodes]
        return values


def _locate_steps(y: FloatArray, k: int) -> tuple[Int64Array, FloatArray]:
    """Find the step of each position, and its share of the step."""
    scaled = y * k
    step = np.minimum(scaled.astype(np.int64), k - 1)
    return step, scaled - step


def _least_resampled(shape: Sequence[int]) -> int:
    """Return how many points of a request pay for pieces, of a lattice of so many values."""
    if len(shape) > 2:  # whose tables take as long as so many points
        return LEAST_RESAMPLED
    nodes = sum(shape)
    return min(LEAST_RESAMPLED, max(_LEAST_WORK // nodes, _TABLE_POINTS * nodes))


def evaluate(bernstein: FloatArray, points: FloatArray) -> FloatArray:
    """Evaluate ``sum_v a_v prod_i b_{v_i,k_i}(y_i)`` at points (m, l) of the unit cube.

    The iterated operator is already applied to the coefficients (`iterate`).
    """
    large = bernstein.size >= _LOCAL_VALUES
    evaluate_batch = _evaluate_near if large else _evaluate_whole
    values = np.empty(len(points))
    for batch in _batches(points, bernstein.shape, large=large):
        values[batch] = evaluate_batch(bernstein, points[batch])
    return values


def _batches(
    points: FloatArray, shape: Sequence[int], *, large: bool
) -> Iterator[Int64Array | slice]:
    """Yield batches of points; of a large lattice each of points near each other."""
    contracted = shape[-1] if large else shape[0]
    rows = max(1, _WORK_VALUES // (math.prod(shape) // contracted + sum(shape)))
    if large:
        for near in _split_by_position(points, shape):
            yield from (near[first : first + rows] for first in range(0, len(near), rows))
    else:
        yield from (slice(first, first + rows) for first in range(0, len(points), rows))


def _split_by_position(points: FloatArray, shape: Sequence[int]) -> list[Int64Array]:
    """Split points into parts near each other, of which few nodes of a lattice matter.

    Few points make one part.
    """
    parts = (len(points) / _NEAR_POINTS) ** (1 / len(shape))
    counts = [max(1, int(min(parts, n / _NEAR_NODES))) for n in shape]
    cells = [
        np.minimum((y * n).astype(np.int64), n - 1) for y, n in zip(points.T, counts, strict=True)
    ]
    numbers = np.ravel_multi_index(cells, counts)
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def _bases(points: FloatArray, shape: Sequence[int]) -> list[FloatArray]:
    """Evaluate the basis of each axis; of a point and equal axes all at once, the same numbers."""
    first, *others = shape
    if len(points) == 1 and others and all(nodes == first for nodes in others):
        together = bernstein_basis(points[0], first - 1)
        return [np.ascontiguousarray(basis)[None] for basis in together]
    return [bernstein_basis(y, nodes - 1) for y, nodes in zip(points.T, shape, strict=True)]


def _evaluate_whole(bernstein: FloatArray, points: FloatArray) -> FloatArray:
    """Evaluate points by all nodes, from the first axis on."""
    bases = _bases(points, bernstein.shape)
    partial = bases[0] @ bernstein.reshape(len(bernstein), -1)
    for basis in bases[1:]:
        inner = partial.reshape(*basis.shape, -1)
        partial = np.einsum("mvr,mv->mr", inner, basis)
    return np.asarray(partial[:, 0])


def _evaluate_near(bernstein: FloatArray, points: FloatArray) -> FloatArray:
    """Evaluate points by the nodes whose weight is above `_NEGLIGIBLE_WEIGHT` at any of them.

    From the last axis on: numbers lie in a row along it, and none of the others are copied.
    """
    bases = _bases(points, bernstein.shape)
    used = [np.flatnonzero(basis.max(axis=0) > _NEGLIGIBLE_WEIGHT) for basis in bases]
    windows = [slice(nodes[0], nodes[-1] + 1) for nodes in used]
    *others, last = [basis[:, window] for basis, window in zip(bases, windows, strict=True)]
    sums = bernstein[tuple(windows)] @ last.T
    for basis in reversed(others):
        sums = np.einsum("...vm,mv->...m", sums, basis)
    return np.asarray(sums)


def _fill(
    grid: FloatArray, values: FloatArray, axes: Sequence[FloatArray], block: tuple[slice, ...]
) -> None:
    """Fill a grid axis by axis, in batches of positions whose products are of few numbers.

    `values` has the axes still to come, then those that are done, at the positions of `block`.
    """
    positions, *rest = axes
    nodes = values.shape[0]
    rows = max(1, _GRID_VALUES // max(values.size // nodes, nodes))
    for start in range(0, len(positions), rows):
        rows_slice = slice(start, start + rows)
        product = np.tensordot(
            values, bernstein_basis(positions[rows_slice], nodes - 1), axes=(0, 1)
        )
        if rest:
            _fill(grid, product, rest, (*block, rows_slice))
        else:
            grid[(*block, rows_slice)] = product


def _evaluate_pieces(
    pieces: Pieces, points: FloatArray, low: Sequence[float], high: Sequence[float]
) -> FloatArray:
    """Evaluate points (m, l) in data units, of a function on the box from `low` to `high`.

    NaN outside the box. The interpreter's lock is not held, so threads may share the work.
    """
    points = np.require(points, np.float64, ["C", "A"])
    bounds = np.array([low, high], dtype=np.float64)
    halves = np.array(pieces.cells) // 2
    locate, arrange, run = _machine_code(len(halves), pieces.order)
    cells, ordered = np.empty((2, min(_BATCH_POINTS, len(points))), np.int64)
    offsets = np.empty((len(cells), len(halves)))
    starts = np.empty(len(pieces.table) + 1 if pieces.table.size > _CACHED_TABLE else 0, np.int64)
    values = np.full(len(points), np.nan)
    for first in range(0, len(points), _BATCH_POINTS):
        batch = points[first : first + _BATCH_POINTS]
        locate(batch, bounds, halves, cells, offsets)
        inside = arrange(cells[: len(batch)], starts, ordered)
        run(ordered[:inside], cells, offsets, pieces.table, values[first : first + _BATCH_POINTS])
    return values


@lru_cache
def _machine_code(dimensions: int, order: int) -> tuple[Callable[..., Any], ...]:
    """Compile the loops over points, without fastmath."""
    from numba import types  # takes half a second to import

    from dbern.compiling import compiled

    integers, floats = types.int64[::1], types.float64[:, ::1]
    readonly_floats = types.Array(types.float64, 2, "C", readonly=True)
    located = types.void(readonly_floats, floats, integers, integers, floats)
    arranged = types.int64(integers, integers, integers)
    summed = types.void(integers, integers, floats, readonly_floats, types.float64[::1])
    run = compiled(_horner(dimensions, order), summed)
    return compiled(_locate, located), compiled(_arrange, arranged), run


def _locate(points: Any, bounds: Any, halves: Any, cells: Any, offsets: Any) -> None:
    """Find each point's cell, -1 outside, and its position in that cell (`Pieces`)."""
    for m in range(len(points)):
        cell = 0
        for axis in range(len(halves)):
            x, low, high = points[m, axis], bounds[0, axis], bounds[1, axis]
            if not low <= x <= high:
                cell = -1
                break
            y = (x - low) / (high - low)
            half = halves[axis]
            far = y > 0.5
            s = np.sqrt(2.0 * (1.0 - y if far else y)) * half
            index = min(int(s), half - 1)
            offsets[m, axis] = s - index - 0.5
            cell = cell * (2 * half) + index + (half if far else 0)
        cells[m] = cell


def _arrange(cells: Any, starts: Any, ordered: Any) -> int:
    """List the points that lie inside, sorted by cell if `starts` has room; return how many."""
    count = 0
    if len(starts) == 0:
        for m in range(len(cells)):
            if cells[m] >= 0:
                ordered[count] = m
                count += 1
        return count
    starts[:] = 0
    for cell in cells:
        if cell >= 0:
            starts[cell + 1] += 1
    for cell in range(1, len(starts)):
        starts[cell] += starts[cell - 1]
    for m in range(len(cells)):
        if cells[m] >= 0:
            ordered[starts[cells[m]]] = m
            starts[cells[m]] += 1
            count += 1
    return count


@lru_cache
def _horner(dimensions: int, order: int) -> Callable[..., None]:
    """Compile Horner's rule along the first axis, then along each other, for a table's shape."""
    inner = order ** (dimensions - 1)

    def run(ordered: Any, cells: Any, offsets: Any, table: Any, values: Any) -> None:
        work = np.empty(inner)
        for m in ordered:
            piece = table[cells[m]]
            t = offsets[m, 0]
            for j in range(inner):
                work[j] = piece[(order - 1) * inner + j]
            for power in range(order - 2, -1, -1):
                for j in range(inner):
                    work[j] = work[j] * t + piece[power * inner + j]
            width = inner
            for axis in range(1, dimensions):
                t = offsets[m, axis]
                width //= order
                last = (order - 1) * width
                for power in range(order - 2, -1, -1):
                    for j in range(width):
                        work[last + j] = work[last + j] * t + work[power * width + j]
                for j in range(width):
                    work[j] = work[last + j]
            values[m] = work[0]

    return run


class LazyPolynomial:
    """A polynomial over a domain, straight from the shards of stored values it is linear in.

    Per axis a matrix (k_i + 1, d_i) takes stored values to coefficients of the Bernstein basis.
    With plain lattice values the matrices are the iterated operators, and the weights
    ``b^(h)_v(y)`` of a point fall off around ``v = k y``: shards whose weights along the first axis
    are tiny are left out, `UNREAD_WEIGHT` in all. That changes a value by no more than
    `UNREAD_WEIGHT` times the largest stored value times the other axes' largest sums of sizes of
    weights.
    """

    def __init__(self, blocks: Blocks, matrices: Sequence[FloatArray], domain: Domain) -> None:
        self._blocks = blocks
        self._matrices = tuple(matrices)
        self._domain = domain

    def __call__(self, points: FloatArray, total: int, threads: int = 1) -> FloatArray:
        """Evaluate points (m, l) in data units, in order of the first axis; NaN outside."""
        del total, threads
        values = np.full(len(points), np.nan)
        positions = np.clip(self._domain.to_unit(points), 0.0, 1.0)
        inside = np.flatnonzero(self._domain.inside(points))
        inside = inside[np.argsort(positions[inside, 0], kind="stable")]
        for first in range(0, len(inside), _LAZY_BATCH_POINTS):
            batch = inside[first : first + _LAZY_BATCH_POINTS]
            values[batch] = self._evaluate(self._weights(positions[batch].T))
        return values

    def grid(self, axes: Sequence[FloatArray]) -> FloatArray:
        """Return the polynomial on the product grid of `axes`, positions of the unit interval."""
        first, *rest = self._weights(axes)
        values = np.zeros([len(axis) for axis in axes])
        rows = max(1, _ADDED_VALUES // max(1, values[:1].size))
        for shard, layers, indices in self._needed_shards(first):
            shard = apply_to_others(shard, rest)
            for start in range(0, len(indices), rows):  # else two more such grids in memory
                batch = slice(start, start + rows)
                values[indices[batch]] += np.tensordot(layers[batch], shard, axes=(1, 0))
        return values

    def _weights(self, positions: Sequence[FloatArray] | FloatArray) -> list[FloatArray]:
        axes = zip(positions, self._matrices, strict=True)
        return [bernstein_basis(y, len(matrix) - 1) @ matrix for y, matrix in axes]

    def _needed_shards(
        self, first: FloatArray
    ) -> Iterator[tuple[FloatArray, FloatArray, Int64Array]]:
        """Yield the shards that rows of weights (m, k + 1) need, with these rows and indices."""
        slices = self._blocks.slices
        for index, layers in enumerate(slices):
            weights = first[:, layers]
            indices = np.flatnonzero(np.abs(weights).sum(axis=1) > UNREAD_WEIGHT / len(slices))
            if len(indices):
                yield self._blocks.read(index), weights[indices], indices

    def _evaluate(self, weights: Sequence[FloatArray]) -> FloatArray:
        first, *rest = weights
        values = np.zeros(len(first))
        for shard, layers, indices in self._needed_shards(first):
            rows = max(1, _SHARD_VALUES // (shard.size // shard.shape[-1]))
            for start in range(0, len(indices), rows):
                batch = slice(start, start + rows)
                chosen = [axis_weights[indices[batch]] for axis_weights in rest]
                values[indices[batch]] += _contract(shard, [layers[batch], *chosen])
        return values


def _contract(shard: FloatArray, weights: Sequence[FloatArray]) -> FloatArray:
    first, *rest = weights
    if not rest:
        return first @ shard
    sums = np.moveaxis(np.tensordot(shard, rest[-1], axes=(-1, 1)), -1, 0)
    for axis_weights in reversed(rest[:-1]):
        sums = np.einsum("m...v,mv->m...", sums, axis_weights)
    return np.asarray(np.einsum("mv,mv->m", sums, first))


AnyFunction: TypeAlias = Polynomial | Interpolant | LazyPolynomial
"""Function of a released lattice."""
