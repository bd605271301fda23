"""Splines around kernels of an axis and their integrals: docs/intervals.md.

Which kernels released bins resolve, and which of them suits the rows, the bins alone tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dbern.ask.bins import NoisyMeasure
from dbern.ask.splines import (
    FIT_DAMPING,
    AxisSplines,
    Envelope,
    between_nodes,
    cell_maxima,
    damped,
    grid,
    grid_fit,
    support_maxima,
)
from dbern.bernstein.blocks import apply_to_axes
from dbern.bernstein.kernels import WIDEST, Kernel
from dbern.bernstein.splines import bin_products
from dbern.types import BoolArray, FloatArray

_STEPS_IN_CELL = 32  # of a cell
_ROUNDING = 1e-12
_MAX_MISFIT = 0.1  # of a kernel's peak, on an axis
_POINTS = 65  # of an axis
_TRIED_FACTORS = np.geomspace(8.0, 0.2, 40)  # times the released bandwidth
_CANDIDATE_FACTORS = np.geomspace(0.5, 4.0, 14)  # times the released bandwidth
_DEVIATIONS = 2.0  # of the noise, by which two estimates hardly differ
_CELLS = 6.0  # a deviation of a kernel: with more, an estimate differs by less than a hundredth


def density_envelope(splines: AxisSplines, kernel: Kernel, y: FloatArray) -> Envelope:
    """Return the envelopes of ``K(y - t) / M(y)``, over its largest, for y (m,) of [0, 1].

    M is 1 with natural edges, and the largest ``K(0)`` (`Kernel`).
    """
    differences = y[:, None] - grid(splines, _STEPS_IN_CELL)
    kinks = _count_kinks(splines, kernel, y)
    jump = kinks * kernel.jumps * 2 * kernel.slope / kernel.peak
    bend, third = kernel.curvature / kernel.peak, kernel.third_derivative_bound / kernel.peak
    fitted = _fitted(splines, kernel(differences) / kernel.peak, bend, jump, (kinks == 0, third))
    relative = 1 / (kernel.edge_factor * kernel.mass_within(y))[:, None]
    return Envelope(fitted.lower * relative, fitted.estimate * relative, fitted.upper * relative)


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


def min_bandwidth(splines: AxisSplines, kernel: Kernel, released: Kernel) -> float:
    """Return 0 for a kernel that bins resolve on an axis, or the bandwidth that it needs.

    They resolve it if they miss at most a tenth of the peak, or 1.5 times what they miss of the
    released one.
    """
    allowed = max(_MAX_MISFIT, 1.5 * _misfit(splines, released))
    if _misfit(splines, kernel) <= allowed:
        return 0.0
    narrowest = math.inf
    for factor in _TRIED_FACTORS:
        narrower = replace(kernel, bandwidth=released.bandwidth * float(factor))
        if _misfit(splines, narrower) > allowed:
            break
        narrowest = narrower.bandwidth
    return narrowest


def loses_period(kernel: Kernel, released: Kernel) -> bool:
    """Return whether a periodic kernel is wider than any that is released.

    It is a sum of two terms (`Periodic`), and rows further round the period would be missing.
    """
    return kernel.edges == "periodic" and kernel.deviation > max(WIDEST, released.deviation)


@lru_cache(maxsize=256)
def _misfit(splines: AxisSplines, kernel: Kernel) -> float:
    envelope = density_envelope(splines, kernel, np.linspace(0.0, 1.0, _POINTS))
    above, below = envelope.upper - envelope.estimate, envelope.estimate - envelope.lower
    return float(np.maximum(above, below).max())


def candidates(
    splines: Sequence[AxisSplines], kernels: Sequence[Kernel]
) -> list[tuple[Kernel, ...]]:
    """Return kernels wider and narrower than the released ones, all that bins resolve."""
    resolved = []
    for factor in _CANDIDATE_FACTORS:
        scaled = tuple(
            replace(kernel, bandwidth=kernel.bandwidth * float(factor)) for kernel in kernels
        )
        if not any(map(min_bandwidth, splines, scaled, kernels)) and not any(
            map(loses_period, scaled, kernels)
        ):
            resolved.append(scaled)
    return resolved


def best_kernels(
    measures: Sequence[NoisyMeasure], kernel_sets: Sequence[Sequence[Kernel]], rows: float
) -> int:
    """Return the index of the kernels, from the narrowest on, that the released bins find best.

    Those of the least estimate of `_cross_validation`. On several axes, where noise misleads it,
    the widest whose estimate is within two deviations of the noise of that: Lepski's comparison.
    """
    estimates = [
        sum(_cross_validation(measure, kernels, rows) for measure in measures)
        for kernels in kernel_sets
    ]
    best = int(np.argmin(estimates))
    if len(measures[0].splines) == 1:
        return best
    for wide in range(len(kernel_sets) - 1, best, -1):
        variance = sum(
            _difference_variance(measure, kernel_sets[wide], kernel_sets[best], rows)
            for measure in measures
        )
        if estimates[wide] - estimates[best] <= _DEVIATIONS * math.sqrt(variance):
            return wide
    return best


def _difference_variance(
    measure: NoisyMeasure, kernels: Sequence[Kernel], subtracted: Sequence[Kernel], rows: float
) -> float:
    """Approximate the variance that independent noise gives the difference of two estimates.

    For ``(c + x)'D(c + x)`` it is ``2 s^4 |D|^2 + 4 s^2 |Dc|^2``, and ``|Dc|^2`` is about ``|D(c +
    x)|^2 - s^2 |D|^2``.
    """
    terms: list[tuple[float, list[FloatArray]]] = []
    for sign, product in ((1.0, kernels), (-1.0, subtracted)):
        forms = [_forms(*axis) for axis in zip(measure.splines, product, strict=True)]
        terms.append((sign, [square for square, _ in forms]))
        crossed = [(cross + cross.T) / 2 for _, cross in forms]
        terms.append((-2 * sign * rows / max(rows - 1, 1.0), crossed))
    size = sum(
        a * b * math.prod(float((x * y).sum()) for x, y in zip(left, right, strict=True))
        for a, left in terms
        for b, right in terms
    )
    image = sum((a * apply_to_axes(measure.bins, forms) for a, forms in terms), np.zeros(()))
    variance = measure.deviation**2
    image_squared = max(0.0, float(np.square(image).sum()) - variance * size)
    return 2 * variance**2 * max(0.0, size) + 4 * variance * image_squared


def _cross_validation(measure: NoisyMeasure, kernels: Sequence[Kernel], rows: float) -> float:
    """Estimate ``int F^2 - 2 int F f``, the integrated squared error but for ``int f^2``.

    Least squares cross-validation leaves each row out of its own density. Both terms are quadratic
    in the bins, ``c'Gc`` and ``c'Rc``, R of the spline that the density is nearly. The noise, whose
    covariance S is public, adds ``tr GS`` and ``tr RS`` in expectation: they are taken off.

    Work grows as the cube of the bins. Where they are far finer than a kernel, as those for shares
    are, c are sums of theirs that are wide enough for it.
    """
    pairs = [_wide_sums(*axis) for axis in zip(measure.splines, kernels, strict=True)]
    sums = [sums_of_axis for _, sums_of_axis in pairs]
    forms_of_axes = [_forms(wide, kernel) for (wide, _), kernel in zip(pairs, kernels, strict=True)]
    bins = apply_to_axes(measure.bins, sums)
    norm, cross = (
        float((bins * apply_to_axes(bins, forms)).sum()) - _noise_mean(measure, sums, forms)
        for forms in zip(*forms_of_axes, strict=True)
    )
    peaks_by_axis = [
        kernel.peak / kernel.mass_within(np.clip(wide.centers, 0.0, 1.0))[None]
        for (wide, _), kernel in zip(pairs, kernels, strict=True)
    ]
    peaks = float(apply_to_axes(bins, peaks_by_axis).sum())
    return norm - 2 * (rows * cross - peaks) / max(rows - 1, 1.0)


def _wide_sums(splines: AxisSplines, kernel: Kernel) -> tuple[AxisSplines, FloatArray]:
    """Return splines as wide as a kernel allows, and weights (wide, bins) of sums that are theirs.

    A wide spline is nearly the sum of the narrow ones by its values at their centers.
    """
    cells = math.ceil(_CELLS / kernel.deviation)
    if 2 * cells > splines.cells:
        return splines, np.eye(splines.count)
    wide = AxisSplines(cells, splines.degree)
    return wide, wide.values(np.clip(splines.centers, 0.0, 1.0)).T


def _noise_mean(
    measure: NoisyMeasure, sums: Sequence[FloatArray], forms: Sequence[FloatArray]
) -> float:
    """Return ``tr FS`` for the product F of the axes' forms, of sums of bins."""
    noise, trace, total = measure.covariance, 1.0, 1.0
    for axis, (sums_of_axis, form) in enumerate(zip(sums, forms, strict=True)):
        released = measure.on_released(sums_of_axis, axis)
        weights = released.sum(axis=1)
        trace *= float((form * (released @ released.T)).sum())
        total *= float(weights @ form @ weights)
    return noise.deviation**2 * ((1 - noise.correlation) * trace + noise.correlation * total)


@lru_cache(maxsize=64)
def _forms(splines: AxisSplines, kernel: Kernel) -> tuple[FloatArray, FloatArray]:
    """G and R of one axis: least squares over t, and integrals over y, by nodes in each cell."""
    (t, in_t), (y, in_y) = (splines.gauss(splines.degree + more) for more in (1, 2))
    axis, square = (splines.cells, splines.degree), damped(splines.gram, FIT_DAMPING)
    values = kernel(y[:, None] - t) / kernel.mass_within(y)[:, None]
    _, onto = bin_products(t, in_t, values, *axis)
    fitted = np.asarray(np.linalg.solve(square, onto), dtype=np.float64)
    _, crossed = bin_products(y, in_y, fitted, *axis)
    return in_y * fitted @ fitted.T, np.asarray(np.linalg.solve(square, crossed), dtype=np.float64)
