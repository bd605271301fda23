"""Smooth weights of one axis between splines: kernels, and integrals of kernels.

The coefficients a of least squares on a grid of every cell, and on each cell the largest that the
weight g is above and below ``sum_j a_j beta_j`` there. Between two places of the grid w apart a
function is at most the larger of its values there and ``w^2 sup |f''| / 8 + w J / 4``, J the sum of
the jumps of f' in between. The second derivative of the splines is ``cells^2 sum_j (a_{j+2} - 2
a_{j+1} + a_j) N_j`` with N_j that sum to one. What is found on a cell is added to the coefficients
of all bins that live there (`dbern.strategies.bins` does the same for released functions).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.strategies.bins import bin_matrix
from dbern.synopsis.questions.splines import AxisSplines, Sides
from dbern.types import UNIT_ROUNDOFF, FloatArray

_STEPS = 32  # of a cell
_DAMPING = 1e-7  # of the mean square of a bin, as where bins are planned
_FLOATS = 1e-12
_STEP = 1e-6  # of a bandwidth, to differences


def density_sides(splines: AxisSplines, kernel: Kernel, places: FloatArray) -> Sides:
    """Return the sides of ``K(y - t) / K(0)`` for places y (m,) of the unit interval."""
    apart = places[:, None] - _grid(splines)
    jump = _kinks(splines, kernel, places) * kernel.jumps * 2 * kernel.slope / kernel.peak
    return _fitted(splines, kernel(apart) / kernel.peak, kernel.curvature / kernel.peak, jump)


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
    values = kernel.cumulative(high[:, None] - t) - kernel.cumulative(low[:, None] - t)
    return _fitted(splines, values, 2 * kernel.slope, np.zeros((1, splines.cells)))


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


def _fitted(splines: AxisSplines, values: FloatArray, bend: float, jump: FloatArray) -> Sides:
    """Sides of weights (m, places) of the grid; `jump` (m, cells) of their first derivative."""
    beta, solve = _solver(splines)
    near = values @ solve
    above = _over_cells(values - near @ beta.T)
    below = _over_cells(near @ beta.T - values)
    width = 1 / (splines.cells * _STEPS)
    curved = np.full(len(near), bend)
    if splines.degree > 1:
        curved += splines.cells**2 * np.abs(np.diff(near, n=2, axis=1)).max(axis=1)
    between = width**2 * curved[:, None] / 8 + width * jump / 4 + _FLOATS * np.abs(near).max()
    low = near - _over_supports(below + between, splines)
    high = near + _over_supports(above + between, splines)
    return Sides(low, near, high)


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
