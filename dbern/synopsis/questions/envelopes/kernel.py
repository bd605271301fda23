"""Splines around kernels of an axis and their integrals: docs/intervals.md."""

from __future__ import annotations

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.synopsis.questions.envelopes.splines import (
    AxisSplines,
    Envelope,
    between_nodes,
    cell_maxima,
    grid,
    grid_fit,
    support_maxima,
)
from dbern.types import BoolArray, FloatArray

_STEPS_IN_CELL = 32  # of a cell
_ROUNDING = 1e-12


def density_envelope(splines: AxisSplines, kernel: Kernel, y: FloatArray) -> Envelope:
    """Return the envelopes of ``K(y - t) / K(0)`` for y (m,) of the unit interval."""
    differences = y[:, None] - grid(splines, _STEPS_IN_CELL)
    kinks = _count_kinks(splines, kernel, y)
    jump = kinks * kernel.jumps * 2 * kernel.slope / kernel.peak
    bend, third = kernel.curvature / kernel.peak, kernel.third_derivative_bound / kernel.peak
    return _fitted(splines, kernel(differences) / kernel.peak, bend, jump, (kinks == 0, third))


def mass_envelope(
    splines: AxisSplines, kernel: Kernel, low: FloatArray, high: FloatArray
) -> Envelope:
    """Return the envelopes of ``int_low^high K(y - t) dy`` for intervals (m,) each."""
    t = grid(splines, _STEPS_IN_CELL)
    first = low[:1] if (low == low[:1]).all() else low  # of cumulative shares
    values = kernel.cumulative(high[:, None] - t) - kernel.cumulative(first[:, None] - t)
    kinks = np.zeros((len(low), splines.cells))
    if kernel.jumps:
        kinks = _count_kinks(splines, kernel, low) + _count_kinks(splines, kernel, high)
    smooth = kinks == 0, 2 * kernel.curvature
    return _fitted(splines, values, 2 * kernel.slope, np.zeros((1, splines.cells)), smooth)


def _count_kinks(splines: AxisSplines, kernel: Kernel, y: FloatArray) -> FloatArray:
    """Count the kinks that ``K(y - t)`` may have in each cell, (m, cells)."""
    differences = y[:, None] - np.arange(splines.cells + 1) / splines.cells
    counts = np.zeros((len(y), splines.cells))
    for kink in kernel.kinks:
        for at in {kink, -kink}:
            reached = differences[:, :-1] >= at - _ROUNDING
            counts += reached & (differences[:, 1:] <= at + _ROUNDING)
    return counts


def _fitted(
    splines: AxisSplines,
    values: FloatArray,
    bend: float,
    jump: FloatArray,
    smooth: tuple[BoolArray, float],
) -> Envelope:
    """Envelopes of weights (m, points) of the grid.

    `bend` bounds their second derivative off its jumps, `jump` (m, cells) the first one's jumps.
    `smooth` says on which cells the second has none, and bounds the third.
    """
    beta, solve = grid_fit(splines, _STEPS_IN_CELL)
    estimate, width = values @ solve.T, 1 / (splines.cells * _STEPS_IN_CELL)
    residual = values - estimate @ beta.T
    sides = []
    for sign in (-1, 1):
        excess = np.maximum(cell_maxima(sign * residual, splines), 0.0)
        coefficients = estimate + sign * _over_middles(excess, splines)
        deficit = sign * (values - coefficients @ beta.T)
        bends = (bend + _derivative(coefficients, splines, 2))[:, None]
        rise = between_nodes(width, bends) + width * jump / 4
        third = (smooth[1] + _derivative(coefficients, splines, 3))[:, None]
        by_differences = (_bent(deficit, splines) + 2 * width**3 * third) / 8
        rise = np.where(smooth[0], np.minimum(by_differences, rise), rise)
        rise = rise + _ROUNDING * np.abs(coefficients).max()
        excess = np.maximum(cell_maxima(deficit, splines), 0.0)
        sides.append(coefficients + sign * support_maxima(excess + rise, splines))
    return Envelope(sides[0], estimate, sides[1])


def _derivative(coefficients: FloatArray, splines: AxisSplines, order: int) -> FloatArray:
    """Bound a derivative of splines off their knots, (m,)."""
    if splines.degree < order:
        return np.zeros(len(coefficients))
    steps = np.abs(np.diff(coefficients, n=order, axis=1))
    return np.asarray(splines.cells**order * steps.max(axis=1))


def _bent(values: FloatArray, splines: AxisSplines) -> FloatArray:
    """Largest second difference of values (m, points) inside each cell."""
    sizes = np.abs(values[:, 2:] - 2 * values[:, 1:-1] + values[:, :-2])
    sizes = np.pad(sizes, ((0, 0), (0, 1))).reshape(len(values), splines.cells, _STEPS_IN_CELL)
    return np.asarray(sizes[:, :, :-1].max(axis=2))


def _over_middles(cells: FloatArray, splines: AxisSplines) -> FloatArray:
    """Largest over the one or two cells in the middle of each bin's support, (m, bins)."""
    half = splines.degree // 2
    padded = np.pad(cells, ((0, 0), (splines.degree - half, splines.degree - half)))
    if splines.degree % 2 == 0:
        return padded
    return np.maximum(padded[:, 1:], padded[:, :-1])
