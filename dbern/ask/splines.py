"""B-splines of an axis, and functions between two of them.

Bins count ``c_j = int beta_j dD`` with B-splines of degree p on equal cells. A question about the
records is ``int g dD`` for a weight g. With coefficients ``l`` and ``u`` such that

    ``sum_j l_j beta_j(t) <= g(t) <= sum_j u_j beta_j(t)``  for every t of the axis,

``sum_j l_j c_j <= int g dD <= sum_j u_j c_j`` for every database: bins are exact but for what they
do not tell within a cell. An `Envelope` is l, u and an estimate between them. Proofs,
weight by weight and of products over axes, are in docs/intervals.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dbern.bernstein.splines import bin_matrix, local_weights
from dbern.data.resolution import Multiples
from dbern.types import BoolArray, FloatArray, Int64Array

FIT_DAMPING = 1e-7
"""Of the mean square of a bin, where weights are fitted by splines."""
_RIDGE = 1e-2  # of a bin's mean square, for estimates: they lean on the majorants' middle
OFFSETS = 32
"""Positions in a cell for which majorants of a step are made."""
SOLVER_ERROR = 1e-7
"""By how much a majorant from the solver may fall short: added to its coefficients."""
_ROUNDING_FACTOR = 2  # what splines and their sum are off by roundings is less than as much again
_OFFSET_TOLERANCE = 1e-9  # of a cell's offsets
_MAX_CACHED = 1 << 13  # cells times bins of which steps at all offsets are cached: three of 2 MiB
_PARTS = 4  # of a cell, on each of which Bezier coefficients prove a sign
_MIN_COEFFICIENT, _MAX_COEFFICIENT = -0.25, 1.25  # beyond, the noise grows faster than gaps close


@dataclass(frozen=True, eq=False)
class Envelope:
    """Coefficients of splines below, near and above each of some weights, (m, bins)."""

    lower: FloatArray
    estimate: FloatArray
    upper: FloatArray

    def __len__(self) -> int:
        return len(self.estimate)

    @classmethod
    def joined(cls, envelopes: Iterable[Envelope]) -> Envelope:
        """Return the envelopes of the weights of all of them, in order."""
        sides = zip(*((e.lower, e.estimate, e.upper) for e in envelopes), strict=True)
        return cls(*map(np.concatenate, sides))

    def select(self, which: Any) -> Envelope:
        """Return the envelopes of some of the weights."""
        return Envelope(self.lower[which], self.estimate[which], self.upper[which])

    def layered(self, layers: int = 1) -> Envelope:
        """Return weights (m, ..) as those of layers of bins, (m, layers, bins)."""
        sides = self.lower, self.estimate, self.upper
        return Envelope(*(side.reshape(len(side), layers, -1) for side in sides))

    def minus(self, subtracted: Envelope) -> Envelope:
        """Return the envelope of the difference."""
        estimate = self.estimate - subtracted.estimate
        return Envelope(self.lower - subtracted.upper, estimate, self.upper - subtracted.lower)


@dataclass(frozen=True)
class AxisSplines:
    """The B-splines of a degree on equal cells of the unit interval.

    Where rows are rounded they stand at the `multiples` of the axis alone.
    """

    cells: int
    degree: int
    multiples: Multiples | None = None

    @property
    def count(self) -> int:
        """Number of splines."""
        return self.cells + self.degree

    @cached_property
    def centers(self) -> FloatArray:
        """Coefficients of the function t itself: the mean of a spline's inner knots."""
        return (np.arange(self.count) - (self.degree - 1) / 2) / self.cells

    @cached_property
    def powers(self) -> FloatArray:
        """Coefficients of 1, t, t^2; the last are means of products of two of the inner knots.

        At degree 1 it is the interpolation.
        """
        t = self.centers
        correction = (self.degree + 1) / 12 if self.degree > 1 else 0.0
        return np.stack([np.ones_like(t), t, t**2 - correction / self.cells**2])

    def values(self, t: FloatArray) -> FloatArray:
        """Return ``beta_j(t)``, (m, bins)."""
        return bin_matrix(t, self.cells, self.degree)

    def integrals(self, x: FloatArray) -> FloatArray:
        """Return ``int_0^x beta_j``, (m, bins): splines of the next degree, summed from j on."""
        from_zero = np.concatenate([[0.0], x])
        above = bin_matrix(from_zero, self.cells, self.degree + 1)[:, :0:-1]
        sums = np.cumsum(above, axis=1)[:, ::-1] / self.cells
        return np.asarray(sums[1:] - sums[0])

    def gauss(self, count: int) -> tuple[FloatArray, FloatArray]:
        """Return `count` nodes of each cell and their weights: exact to degree ``2 count - 1``."""
        nodes, weights = np.polynomial.legendre.leggauss(count)
        t = (np.arange(self.cells)[:, None] + (nodes + 1) / 2).reshape(-1) / self.cells
        return np.asarray(t, np.float64), np.asarray(np.tile(weights / 2 / self.cells, self.cells))

    @cached_property
    def gram(self) -> FloatArray:
        """Integrals ``int beta_i beta_j``."""
        t, weights = self.gauss(self.degree + 1)
        rows = self.values(t)
        return np.asarray(rows.T @ (weights[:, None] * rows))

    @cached_property
    def smoother(self) -> FloatArray:
        """Matrix from integrals against bins to coefficients, with a ridge."""
        return np.asarray(np.linalg.inv(damped(self.gram, _RIDGE)), dtype=np.float64)

    @cached_property
    def residual(self) -> FloatArray:
        """Matrix from coefficients to those of what the smoother leaves of them."""
        return np.eye(self.count) - self.gram @ self.smoother


def damped(square: FloatArray, damping: float) -> FloatArray:
    """Return a Gram matrix with a multiple of its mean diagonal added to the diagonal."""
    return np.asarray(square + damping * np.trace(square) / len(square) * np.eye(len(square)))


def bezier(degree: int, start: float, stop: float) -> FloatArray:
    """Return Bezier coefficients, on a part of a cell, of its p + 1 splines, which are columns."""
    nodes = np.linspace(0.0, 1.0, degree + 1)
    values = np.stack(local_weights(2 * (start + nodes * (stop - start)) - 1, degree), axis=1)
    powers = np.arange(degree + 1)
    binomials = np.array([math.comb(degree, i) for i in powers])
    basis = binomials * nodes[:, None] ** powers * (1 - nodes[:, None]) ** (degree - powers)
    return np.asarray(np.linalg.solve(basis, values), dtype=np.float64)


def products(axes: Sequence[Envelope]) -> Envelope:
    """Return the envelope of products of nonnegative weights, axis by axis: (m, b_1, .., b_l)."""
    upper = _outer([axis.upper for axis in axes])
    lower = -(len(axes) - 1.0) * upper
    for k in range(len(axes)):
        lower = lower + _outer(
            [axis.lower if i == k else axis.upper for i, axis in enumerate(axes)]
        )
    return Envelope(lower, _outer([axis.estimate for axis in axes]), upper)


def _outer(axes: Sequence[FloatArray]) -> FloatArray:
    product = np.ones(len(axes[0]))
    for rows in axes:
        product = product[..., None] * rows.reshape(len(rows), *[1] * (product.ndim - 1), -1)
    return product


# A weight is evaluated on a grid of each cell, and exceeds the larger of its values at the ends of
# a step of w by at most ``w^2 B / 8``, B a bound on its second derivative. As B-splines sum to one,
# the coefficient of a bin may be raised by the largest excess over the cells of its support.


def grid(splines: AxisSplines, steps: int) -> FloatArray:
    """Return points at which weights are evaluated, both ends of each cell among them."""
    return np.linspace(0.0, 1.0, splines.cells * steps + 1)


@lru_cache(maxsize=16)
def grid_fit(splines: AxisSplines, steps: int) -> tuple[FloatArray, FloatArray]:
    """Return values of the splines on a `grid`, (points, bins), and the map from values back.

    It is least squares, slightly damped: (bins, points).
    """
    values = splines.values(grid(splines, steps))
    square = damped(values.T @ values, FIT_DAMPING)
    return values, np.asarray(np.linalg.solve(square, values.T), dtype=np.float64)


def between_nodes(step: float, bend: Any) -> Any:
    """Bound the excess of a function over the ends of a step, by its second derivative."""
    return step**2 * bend / 8


def cell_maxima(values: FloatArray, splines: AxisSplines, axis: int = -1) -> FloatArray:
    """Return the largest values on each cell, ends included, of values on a `grid`."""
    rows = np.moveaxis(values, axis, -1)
    steps = (rows.shape[-1] - 1) // splines.cells
    inner = rows[..., :-1].reshape(*rows.shape[:-1], splines.cells, steps).max(axis=-1)
    return np.moveaxis(np.maximum(inner, rows[..., steps::steps]), -1, axis)


def support_maxima(cells: FloatArray, splines: AxisSplines, axis: int = -1) -> FloatArray:
    """Return the largest values over the cells of each bin's support; 0 beyond the bounds."""
    reach = [(splines.degree * (i == axis % cells.ndim),) * 2 for i in range(cells.ndim)]
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(cells, reach), splines.degree + 1, axis=axis
    )
    return np.asarray(windows.max(axis=-1))


def steps(splines: AxisSplines, x: FloatArray) -> Envelope:
    """Return the envelopes of ``1{t <= x}`` for x (m,), which at their ends count as outside too.

    At 0 and below these are nothing, at 1 and above everything. An x is met to 1e-11.
    """
    scaled = np.clip(x, 0.0, 1.0) * (splines.cells * OFFSETS)
    after = np.ceil(scaled - _OFFSET_TOLERANCE).astype(np.int64)
    before = np.floor(scaled + _OFFSET_TOLERANCE).astype(np.int64)
    (lower, estimate, upper), (first, second) = _at(splines, np.stack([before, after]))
    fraction = np.clip(scaled - before, 0.0, 1.0)[:, None]
    middle = (1 - fraction) * estimate[first] + fraction * estimate[second]
    envelope = Envelope(lower[first], middle, upper[second])
    for side in (envelope.lower, envelope.estimate, envelope.upper):
        side[x <= 0], side[x >= 1] = 0.0, 1.0
    return envelope


def intervals(splines: AxisSplines, low: FloatArray, high: FloatArray) -> Envelope:
    """Return the envelopes of ``1{low <= t <= high}``.

    Where rows stand at multiples alone, of both ends included; else ends count as either. Where
    `high` is below `low` it is nothing.
    """
    if splines.multiples is None:
        envelope = steps(splines, np.concatenate([np.maximum(low, high), low]))
    else:
        last, before = splines.multiples.up_to(high), splines.multiples.below(low)
        last = np.concatenate([np.maximum(last, before), before])
        envelope = steps_of_multiples(splines, last)
    return envelope.select(slice(len(high))).minus(envelope.select(slice(len(high), None)))


def steps_of_multiples(splines: AxisSplines, last: Int64Array) -> Envelope:
    """Return the envelopes of the first multiples, up to the i-th each, of rows at multiples alone.

    Up to -1 is nothing. With a bin of their own at each they are the bins', but for how far floats
    are from their multiples: a bin's neighbour has at most ``cells deviation`` of such a row, and
    splines sum to one. Other splines need to be above and below such a step at multiples alone:
    above one that falls at the i-th, and below one that falls at the next.
    """
    multiples = splines.multiples
    if multiples is None:
        raise TypeError("splines without multiples")
    bins, off = multiples.bins(splines.cells, splines.degree), multiples.deviation
    if bins is not None:
        estimate = np.zeros((len(last), splines.count))
        estimate[:, bins] = np.arange(len(bins)) <= last[:, None]
        error = _ROUNDING_FACTOR * splines.cells * off
        envelope = Envelope(estimate - error, estimate, estimate + error)
    else:
        here, following = np.clip([last, last + 1], 0, multiples.count) / multiples.count
        upper, lower = steps(splines, here + off).upper, steps(splines, following - off).lower
        envelope = Envelope(lower, steps(splines, (here + following) / 2).estimate, upper)
    for side in (envelope.lower, envelope.estimate, envelope.upper):
        side[last < 0], side[last >= multiples.count] = 0.0, 1.0
    return envelope


def _at(splines: AxisSplines, offsets: Int64Array) -> tuple[FloatArray, Int64Array]:
    """Lower, estimate and upper at so many parts of a cell, (3, n, bins), and which of n."""
    if splines.cells * splines.count > _MAX_CACHED:
        used, index = np.unique(offsets, return_inverse=True)
        return _solved(splines, used), index.reshape(offsets.shape)
    table, known = _table(splines)
    if not known[offsets].all():
        used = np.unique(offsets[~known[offsets]])
        table[:, used] = _solved(splines, used)
        known[used] = True
    return table, offsets


@lru_cache(maxsize=8)
def _table(splines: AxisSplines) -> tuple[FloatArray, BoolArray]:
    """Envelopes of steps at all parts of the cells, and which of them are known so far."""
    last = splines.cells * OFFSETS
    return np.empty((3, last + 1, splines.count)), np.zeros(last + 1, dtype=np.bool_)


def _solved(splines: AxisSplines, offsets: Int64Array) -> FloatArray:
    last = splines.cells * OFFSETS
    upper = _majorants(splines, offsets) + SOLVER_ERROR
    lower = 1.0 - SOLVER_ERROR - _majorants(splines, last - offsets)[:, ::-1]
    estimate = (lower + upper) / 2 @ splines.residual
    estimate = estimate + splines.integrals(offsets / last) @ splines.smoother
    return np.stack([lower, estimate, upper])


def _majorants(splines: AxisSplines, offsets: Int64Array) -> FloatArray:
    """Coefficients (m, bins), of steps at so many parts of a cell."""
    cell, offset = np.divmod(offsets, OFFSETS)
    used, which = np.unique(offset, return_inverse=True)
    table = np.stack([_majorant(splines.degree, int(position)) for position in used])
    column = np.arange(splines.count) - cell[:, None] + _pad(splines.degree)
    return np.asarray(table[which[:, None], np.clip(column, 0, table.shape[1] - 1)])


def _pad(degree: int) -> int:
    return degree + 2  # cells on either side of the step's in which coefficients may change


@lru_cache(maxsize=512)
def _majorant(degree: int, offset: int) -> FloatArray:
    """Coefficients of the least majorant of a step at ``offset / OFFSETS`` of a cell.

    They are those of the bins around it, ones before and zeros after.
    """
    from scipy.optimize import linprog  # takes 0.1 s to import

    pad, step = _pad(degree), offset / OFFSETS
    count = 2 * pad + 1 + degree
    rows, minima = [], []
    for cell in range(-pad, pad + 1):
        cuts = {*np.linspace(0, 1, _PARTS + 1).tolist(), *([step] if cell == 0 else [])}
        for start, stop in pairwise(sorted(cuts)):
            matrix = np.zeros((degree + 1, count))
            matrix[:, cell + pad : cell + pad + degree + 1] = bezier(degree, start, stop)
            rows.append(matrix)
            minima += [float(cell < 0 or (cell == 0 and stop <= step))] * (degree + 1)
    before, after = [(1.0, 1.0)] * degree, [(0.0, 0.0)] * degree
    solution = linprog(
        np.ones(count),
        -np.vstack(rows),
        -np.array(minima),
        bounds=[*before, *[(_MIN_COEFFICIENT, _MAX_COEFFICIENT)] * (count - 2 * degree), *after],
        options={"primal_feasibility_tolerance": 1e-10},
    )
    coefficients = np.asarray(solution.x, dtype=np.float64)
    coefficients.setflags(write=False)
    return coefficients
