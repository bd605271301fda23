"""Smooth weights of one axis between splines: kernels, and integrals of kernels.

The coefficients a of least squares on a grid of every cell; and on each cell the largest that the
weight g is above ``sum_j a_j beta_j`` there. That of the one or two cells in the middle of a bin is
added to its coefficient. What is then still missing on a cell is added to all bins that live there
(`dbern.strategies.bins` does so for released functions), which sum to one: a majorant, whatever the
coefficients were. The minorant likewise.

Between two places of the grid w apart ``f = g - sum_j a_j beta_j`` is at most the larger of its
values there and ``w^2 sup |f''| / 8 + w J / 4``, J the sum of the jumps of f' in between. ``|f''|``
is at most that of g and of the splines, ``cells^2 sum_j (a_{j+2} - 2 a_{j+1} + a_j) N_j`` with N_j
that sum to one. Where g has no kink on a cell, three neighboring places of it say more: their
second difference is w^2 times the second derivative at a place between them, 2 w away at most, over
which it changes by 2 w times a bound of the third at most.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dbern.bernstein.basis import bin_matrix
from dbern.bernstein.kernels import Kernel
from dbern.synopsis.questions.splines import AxisSplines, Sides
from dbern.types import UNIT_ROUNDOFF, BoolArray, FloatArray

_STEPS = 32  # of a cell
_DAMPING = 1e-7  # of the mean square of a bin, as where bins are planned
_FLOATS = 1e-12
_STEP = 1e-6  # of a bandwidth, to differences


def density_sides(splines: AxisSplines, kernel: Kernel, places: FloatArray) -> Sides:
    """Return the sides of ``K(y - t) / K(0)`` for places y (m,) of the unit interval."""
    apart, kinks = places[:, None] - _grid(splines), _kinks(splines, kernel, places)
    jump = kinks * kernel.jumps * 2 * kernel.slope / kernel.peak
    bend, third = kernel.curvature / kernel.peak, kernel.third / kernel.peak
    return _fitted(splines, kernel(apart) / kernel.peak, bend, jump, (kinks == 0, third))


def slope_sides(splines: AxisSplines, kernel: Kernel, places: FloatArray) -> Sides:
    """Return the sides of ``K'(y - t) / sup |K'|`` for K' without jumps.

    Quotients of differences over ``2 e`` miss K' by ``e^2 sup |K'''| / 6``, by ``e sup |K''| / 4``
    at a kink, and by rounding.
    """
    apart, step = places[:, None] - _grid(splines), _STEP * kernel.bandwidth
    values = (kernel(apart + step) - kernel(apart - step)) / (2 * step * kernel.slope)
    missed = step**2 * kernel.third / 6 + step * kernel.curvature / 4
    missed += (kernel.ulps + 4) * UNIT_ROUNDOFF * (kernel.peak + kernel.slope) / step
    jump = _kinks(splines, kernel, places) * kernel.curvature / kernel.slope
    found = _fitted(splines, values, kernel.third / kernel.slope, jump)
    error = missed / kernel.slope
    return Sides(found.low - error, found.near, found.high + error)


def _kinks(splines: AxisSplines, kernel: Kernel, places: FloatArray) -> FloatArray:
    """How many kinks of ``K(y - t)`` each cell may have, (m, cells)."""
    ends = places[:, None] - np.arange(splines.cells + 1) / splines.cells
    near = np.zeros((len(places), splines.cells))
    for kink in kernel.kinks:
        for at in {kink, -kink}:
            near += (ends[:, :-1] >= at - _FLOATS) & (ends[:, 1:] <= at + _FLOATS)
    return near


def mass_sides(splines: AxisSplines, kernel: Kernel, low: FloatArray, high: FloatArray) -> Sides:
    """Return the sides of ``int_low^high K(y - t) dy`` for intervals (m,) each."""
    t = _grid(splines)
    first = low[:1] if (low == low[:1]).all() else low  # of cumulative shares
    values = kernel.cumulative(high[:, None] - t) - kernel.cumulative(first[:, None] - t)
    kinks = np.zeros((len(low), splines.cells))
    if kernel.jumps:
        kinks = _kinks(splines, kernel, low) + _kinks(splines, kernel, high)
    smooth = kinks == 0, 2 * kernel.curvature
    return _fitted(splines, values, 2 * kernel.slope, np.zeros((1, splines.cells)), smooth)


def _grid(splines: AxisSplines) -> FloatArray:
    """The places at which weights are looked at, both ends of each cell among them."""
    return np.linspace(0.0, 1.0, splines.cells * _STEPS + 1)


@lru_cache(maxsize=16)
def _solver(splines: AxisSplines) -> tuple[FloatArray, FloatArray]:
    """Values of the splines on the grid, (places, bins), and what takes values to coefficients."""
    beta = bin_matrix(_grid(splines), splines.cells, splines.degree)
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
    """Sides of weights (m, places) of the grid; see the module.

    `jump` (m, cells) bounds their first derivative's jumps, and `smooth` says on which cells the
    second has none, with what bounds the third.
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
    """The largest second difference of values (m, places) inside each cell."""
    sizes = np.abs(values[:, 2:] - 2 * values[:, 1:-1] + values[:, :-2])
    sizes = np.pad(sizes, ((0, 0), (0, 1))).reshape(len(values), splines.cells, _STEPS)
    return np.asarray(sizes[:, :, :-1].max(axis=2))


def _over_middles(error: FloatArray, splines: AxisSplines) -> FloatArray:
    """The largest over the one or two cells in the middle of each bin's support, (m, bins)."""
    half = splines.degree // 2
    padded = np.pad(error, ((0, 0), (splines.degree - half, splines.degree - half)))
    if splines.degree % 2 == 0:
        return padded
    return np.maximum(padded[:, 1:], padded[:, :-1])


def _over_cells(error: FloatArray) -> FloatArray:
    """The largest on each cell, ends included, of values (m, places); none below zero."""
    inner = error[:, :-1].reshape(len(error), -1, _STEPS).max(axis=2)
    return np.asarray(np.maximum(np.maximum(inner, error[:, _STEPS::_STEPS]), 0.0))


def _over_supports(error: FloatArray, splines: AxisSplines) -> FloatArray:
    """The largest over the cells of each bin's support, (m, bins)."""
    reach = splines.degree
    padded = np.pad(error, ((0, 0), (reach, reach)))
    return np.asarray(
        np.lib.stride_tricks.sliding_window_view(padded, reach + 1, axis=1).max(axis=-1)
    )
