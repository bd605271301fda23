"""One axis of released bins: functions between two splines.

Bins count ``c_j = int beta_j dD`` with B-splines of degree p on equal cells. A question about the
records is ``int g dD`` for a weight g. With coefficients ``l`` and ``u`` such that

    ``sum_j l_j beta_j(t) <= g(t) <= sum_j u_j beta_j(t)``  for every t of the axis,

``sum_j l_j c_j <= int g dD <= sum_j u_j c_j`` for every database: bins are exact but for what they
do not tell apart inside a cell. `Sides` are l, u and an estimate between them. For sharp steps, for
smooth weights and on several axes they are proved in docs/mathematics.md: "Splines around a step",
"Smooth weights", "Products".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dbern.bernstein.basis import bin_matrix, local_weights
from dbern.bernstein.kernels import Kernel
from dbern.types import BoolArray, FloatArray, Int64Array

OFFSETS = 32
"""Places in a cell for which majorants of a step are made."""

SOLVED = 1e-7
"""By how much a majorant from the solver may fall short: added to its coefficients."""

_MET = 1e-9  # of a cell's offsets
_KEPT = 1 << 13  # cells times bins of which steps at all offsets are kept: three of 2 MiB
_PARTS = 4  # of a cell, on each of which Bezier coefficients prove a sign
_LEAST, _MOST = -0.25, 1.25  # of a coefficient: beyond, the noise grows faster than gaps close
_RIDGE = 1e-2  # of a bin's mean square, for estimates: they lean on the majorants' middle


@dataclass(frozen=True, eq=False)
class Sides:
    """Coefficients of splines below, near and above each of some weights, (m, bins)."""

    low: FloatArray
    near: FloatArray
    high: FloatArray

    def part(self, which: Any) -> Sides:
        """Return the sides of some of the weights."""
        return Sides(self.low[which], self.near[which], self.high[which])

    def minus(self, other: Sides) -> Sides:
        """Return the sides of the difference."""
        return Sides(self.low - other.high, self.near - other.near, self.high - other.low)


@dataclass(frozen=True)
class AxisSplines:
    """The B-splines of a degree on equal cells of the unit interval."""

    cells: int
    degree: int

    @property
    def count(self) -> int:
        """Number of splines."""
        return self.cells + self.degree

    @cached_property
    def centers(self) -> FloatArray:
        """Coefficients of the function t itself: the mean of a spline's inner knots."""
        return (np.arange(self.count) - (self.degree - 1) / 2) / self.cells

    def values(self, places: FloatArray) -> FloatArray:
        """Return ``beta_j(t)``, (m, bins)."""
        return bin_matrix(places, self.cells, self.degree)

    def integrals(self, places: FloatArray) -> FloatArray:
        """Return ``int_0^x beta_j``, (m, bins): splines of the next degree, summed from j on."""
        ends = np.concatenate([[0.0], places])
        above = bin_matrix(ends, self.cells, self.degree + 1)[:, :0:-1]
        found = np.cumsum(above, axis=1)[:, ::-1] / self.cells
        return np.asarray(found[1:] - found[0])

    @cached_property
    def gram(self) -> FloatArray:
        """Integrals ``int beta_i beta_j``: Gauss nodes of each cell make them exact."""
        nodes, weights = np.polynomial.legendre.leggauss(self.degree + 1)
        places = (np.arange(self.cells)[:, None] + (nodes + 1) / 2).reshape(-1) / self.cells
        rows = self.values(places)
        return np.asarray(rows.T @ (np.tile(weights, self.cells)[:, None] * rows) / 2 / self.cells)

    @cached_property
    def smoother(self) -> FloatArray:
        """Matrix from integrals against bins to coefficients, with a ridge."""
        ridge = _RIDGE * np.trace(self.gram) / self.count
        return np.linalg.inv(self.gram + ridge * np.eye(self.count))

    @cached_property
    def _kept(self) -> FloatArray:
        return np.eye(self.count) - self.gram @ self.smoother

    def steps(self, places: FloatArray) -> Sides:
        """Return the sides of ``1{t <= x}`` for places x (m,), whose ends count as outside too.

        At 0 and below these are nothing, at 1 and above everything. Places are met to 1e-11.
        """
        scaled = np.clip(places, 0.0, 1.0) * (self.cells * OFFSETS)
        after = np.ceil(scaled - _MET).astype(np.int64)
        before = np.floor(scaled + _MET).astype(np.int64)
        grid, (first, second) = self._on_grid(np.stack([before, after]))
        share = np.clip(scaled - before, 0.0, 1.0)[:, None]
        low, near, high = grid
        found = low[first], (1 - share) * near[first] + share * near[second], high[second]
        for sides in found:
            sides[places <= 0], sides[places >= 1] = 0.0, 1.0
        return Sides(*found)

    def between(self, low: FloatArray, high: FloatArray) -> Sides:
        """Return the sides of ``1{low <= t <= high}``."""
        ends = self.steps(np.concatenate([high, low]))
        return ends.part(slice(len(high))).minus(ends.part(slice(len(high), None)))

    def _on_grid(self, steps: Int64Array) -> tuple[FloatArray, Int64Array]:
        """Low, near and high of steps at so many parts of a cell, (3, n, bins), and which of n."""
        if self.cells * self.count > _KEPT:
            used, at = np.unique(steps, return_inverse=True)
            return self._solved(used), at.reshape(steps.shape)
        grid, known = _grid(self)
        if not known[steps].all():
            used = np.unique(steps[~known[steps]])
            grid[:, used] = self._solved(used)
            known[used] = True
        return grid, steps

    def _solved(self, steps: Int64Array) -> FloatArray:
        last = self.cells * OFFSETS
        high = self._majorants(steps) + SOLVED
        low = 1.0 - SOLVED - self._majorants(last - steps)[:, ::-1]
        near = (low + high) / 2 @ self._kept + self.integrals(steps / last) @ self.smoother
        return np.stack([low, near, high])

    def _majorants(self, steps: Int64Array) -> FloatArray:
        """Coefficients (m, bins), of steps at so many parts of a cell."""
        cell, offset = np.divmod(steps, OFFSETS)
        used, which = np.unique(offset, return_inverse=True)
        table = np.stack([_majorant(self.degree, int(one)) for one in used])
        place = np.arange(self.count) - cell[:, None] + _pad(self.degree)
        return np.asarray(table[which[:, None], np.clip(place, 0, table.shape[1] - 1)])


@lru_cache(maxsize=8)
def _grid(splines: AxisSplines) -> tuple[FloatArray, BoolArray]:
    """Sides of steps at all parts of the cells, and which of them are known so far."""
    last = splines.cells * OFFSETS
    return np.empty((3, last + 1, splines.count)), np.zeros(last + 1, dtype=np.bool_)


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
    rows, least = [], []
    for cell in range(-pad, pad + 1):
        cuts = {*np.linspace(0, 1, _PARTS + 1).tolist(), *([step] if cell == 0 else [])}
        ends = sorted(cuts)
        for start, stop in pairwise(ends):
            part = np.zeros((degree + 1, count))
            part[:, cell + pad : cell + pad + degree + 1] = bezier(degree, start, stop)
            rows.append(part)
            least += [float(cell < 0 or (cell == 0 and stop <= step))] * (degree + 1)
    sure = [(1.0, 1.0)] * degree, [(0.0, 0.0)] * degree
    bounds = [*sure[0], *[(_LEAST, _MOST)] * (count - 2 * degree), *sure[1]]
    solved = linprog(
        np.ones(count),
        -np.vstack(rows),
        -np.array(least),
        bounds=bounds,
        options={"primal_feasibility_tolerance": 1e-10},
    )
    found = np.asarray(solved.x, dtype=np.float64)
    found.setflags(write=False)
    return found


def bezier(degree: int, start: float, stop: float) -> FloatArray:
    """Return Bezier coefficients, on a part of a cell, of its p + 1 splines, which are columns."""
    nodes = np.linspace(0.0, 1.0, degree + 1)
    values = np.stack(local_weights(2 * (start + nodes * (stop - start)) - 1, degree), axis=1)
    powers = np.arange(degree + 1)
    chosen = np.array([math.comb(degree, i) for i in powers])
    basis = chosen * nodes[:, None] ** powers * (1 - nodes[:, None]) ** (degree - powers)
    return np.asarray(np.linalg.solve(basis, values), dtype=np.float64)


def products(axes: Sequence[Sides]) -> Sides:
    """Return the sides of products of nonnegative weights, axis by axis: (m, b_1, .., b_l)."""
    high = _outer([one.high for one in axes])
    low = -(len(axes) - 1.0) * high
    for turn in range(len(axes)):
        low = low + _outer([one.low if i == turn else one.high for i, one in enumerate(axes)])
    return Sides(low, _outer([one.near for one in axes]), high)


def _outer(rows: Sequence[FloatArray]) -> FloatArray:
    found = np.ones(len(rows[0]))
    for one in rows:
        found = found[..., None] * one.reshape(len(one), *[1] * (found.ndim - 1), -1)
    return found


# --- Smooth weights of one axis between splines: kernels, and integrals of kernels

_STEPS = 32  # of a cell
_DAMPING = 1e-7  # of the mean square of a bin, as where bins are planned
_FLOATS = 1e-12


def density_sides(splines: AxisSplines, kernel: Kernel, places: FloatArray) -> Sides:
    """Return the sides of ``K(y - t) / K(0)`` for places y (m,) of the unit interval."""
    apart, kinks = places[:, None] - _looked_at(splines), _kinks(splines, kernel, places)
    jump = kinks * kernel.jumps * 2 * kernel.slope / kernel.peak
    bend, third = kernel.curvature / kernel.peak, kernel.third / kernel.peak
    return _fitted(splines, kernel(apart) / kernel.peak, bend, jump, (kinks == 0, third))


def _kinks(splines: AxisSplines, kernel: Kernel, places: FloatArray) -> FloatArray:
    """Count the kinks that ``K(y - t)`` may have in each cell, (m, cells)."""
    ends = places[:, None] - np.arange(splines.cells + 1) / splines.cells
    near = np.zeros((len(places), splines.cells))
    for kink in kernel.kinks:
        for at in {kink, -kink}:
            near += (ends[:, :-1] >= at - _FLOATS) & (ends[:, 1:] <= at + _FLOATS)
    return near


def mass_sides(splines: AxisSplines, kernel: Kernel, low: FloatArray, high: FloatArray) -> Sides:
    """Return the sides of ``int_low^high K(y - t) dy`` for intervals (m,) each."""
    t = _looked_at(splines)
    first = low[:1] if (low == low[:1]).all() else low  # of cumulative shares
    values = kernel.cumulative(high[:, None] - t) - kernel.cumulative(first[:, None] - t)
    kinks = np.zeros((len(low), splines.cells))
    if kernel.jumps:
        kinks = _kinks(splines, kernel, low) + _kinks(splines, kernel, high)
    smooth = kinks == 0, 2 * kernel.curvature
    return _fitted(splines, values, 2 * kernel.slope, np.zeros((1, splines.cells)), smooth)


def _looked_at(splines: AxisSplines) -> FloatArray:
    """Points at which weights are evaluated, both ends of each cell among them."""
    return np.linspace(0.0, 1.0, splines.cells * _STEPS + 1)


@lru_cache(maxsize=16)
def _solver(splines: AxisSplines) -> tuple[FloatArray, FloatArray]:
    """Values of the splines on the grid, (places, bins), and the map from these to coefficients."""
    beta = bin_matrix(_looked_at(splines), splines.cells, splines.degree)
    square = beta.T @ beta
    square += _DAMPING * np.trace(square) / len(square) * np.eye(len(square))
    return beta, np.asarray(np.linalg.solve(square, beta.T).T, dtype=np.float64)


def _fitted(
    splines: AxisSplines,
    values: FloatArray,
    bend: float,
    jump: FloatArray,
    smooth: tuple[BoolArray, float] | None = None,
) -> Sides:
    """Sides of weights (m, places) of the grid.

    `jump` (m, cells) bounds their first derivative's jumps; `smooth` says on which cells the
    second has none, and bounds the third.
    """
    beta, solve = _solver(splines)
    near, width = values @ solve, 1 / (splines.cells * _STEPS)
    missing = values - near @ beta.T
    ends = []
    for sign in (-1, 1):
        found = near + sign * _over_middles(_over_cells(sign * missing), splines)
        left = sign * (values - found @ beta.T)
        between = width**2 * (bend + _derivative(found, splines, 2))[:, None] / 8 + width * jump / 4
        if smooth is not None:
            third = (smooth[1] + _derivative(found, splines, 3))[:, None]
            own = (_bent(left, splines) + 2 * width**3 * third) / 8
            between = np.where(smooth[0], np.minimum(own, between), between)
        between = between + _FLOATS * np.abs(found).max()
        ends.append(found + sign * _over_supports(_over_cells(left) + between, splines))
    return Sides(ends[0], near, ends[1])


def _derivative(found: FloatArray, splines: AxisSplines, order: int) -> FloatArray:
    """Bound a derivative of splines off their knots, (m,)."""
    if splines.degree < order:
        return np.zeros(len(found))
    return np.asarray(splines.cells**order * np.abs(np.diff(found, n=order, axis=1)).max(axis=1))


def _bent(values: FloatArray, splines: AxisSplines) -> FloatArray:
    """Largest second difference of values (m, places) inside each cell."""
    sizes = np.abs(values[:, 2:] - 2 * values[:, 1:-1] + values[:, :-2])
    sizes = np.pad(sizes, ((0, 0), (0, 1))).reshape(len(values), splines.cells, _STEPS)
    return np.asarray(sizes[:, :, :-1].max(axis=2))


def _over_middles(error: FloatArray, splines: AxisSplines) -> FloatArray:
    """Largest over the one or two cells in the middle of each bin's support, (m, bins)."""
    half = splines.degree // 2
    padded = np.pad(error, ((0, 0), (splines.degree - half, splines.degree - half)))
    if splines.degree % 2 == 0:
        return padded
    return np.maximum(padded[:, 1:], padded[:, :-1])


def _over_cells(error: FloatArray) -> FloatArray:
    """Largest on each cell, ends included, of values (m, places); none below zero."""
    inner = error[:, :-1].reshape(len(error), -1, _STEPS).max(axis=2)
    return np.asarray(np.maximum(np.maximum(inner, error[:, _STEPS::_STEPS]), 0.0))


def _over_supports(error: FloatArray, splines: AxisSplines) -> FloatArray:
    """Largest over the cells of each bin's support, (m, bins)."""
    reach = splines.degree
    padded = np.pad(error, ((0, 0), (reach, reach)))
    return np.asarray(
        np.lib.stride_tricks.sliding_window_view(padded, reach + 1, axis=1).max(axis=-1)
    )
