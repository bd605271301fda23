"""Kernels that released bins resolve, and which of them suits the rows: by the bins alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dbern.bernstein.blocks import on_axes
from dbern.bernstein.kernels import Kernel
from dbern.bernstein.splines import bin_products
from dbern.synopsis.questions.envelopes.kernel import density_envelope
from dbern.synopsis.questions.envelopes.splines import FIT_DAMPING, AxisSplines, damped
from dbern.synopsis.questions.noisy_measure import NoisyMeasure
from dbern.types import FloatArray

_MAX_MISFIT = 0.1  # of a kernel's peak, on an axis
_POINTS = 65  # of an axis
_TRIED_FACTORS = np.geomspace(8.0, 0.2, 40)  # times the released bandwidth
_CANDIDATE_FACTORS = np.geomspace(0.5, 4.0, 14)  # times the released bandwidth
_DEVIATIONS = 2.0  # of the noise, by which two estimates hardly differ
_CELLS = 6.0  # a deviation of a kernel: with more, an estimate differs by less than a hundredth


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
        if not any(map(min_bandwidth, splines, scaled, kernels)):
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
    image = sum((a * on_axes(measure.bins, forms) for a, forms in terms), np.zeros(()))
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
    bins = on_axes(measure.bins, sums)
    norm, cross = (
        float((bins * on_axes(bins, forms)).sum()) - _noise_mean(measure, sums, forms)
        for forms in zip(*forms_of_axes, strict=True)
    )
    peaks = math.prod(kernel.peak for kernel in kernels) * float(measure.bins.sum())
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
    for sums_of_axis, form in zip(sums, forms, strict=True):
        released = measure.on_released(sums_of_axis)
        weights = released.sum(axis=1)
        trace *= float((form * (released @ released.T)).sum())
        total *= float(weights @ form @ weights)
    return noise.deviation**2 * ((1 - noise.correlation) * trace + noise.correlation * total)


@lru_cache(maxsize=64)
def _forms(splines: AxisSplines, kernel: Kernel) -> tuple[FloatArray, FloatArray]:
    """G and R of one axis: least squares over t, and integrals over y, by nodes in each cell."""
    (t, in_t), (y, in_y) = (splines.gauss(splines.degree + more) for more in (1, 2))
    axis, square = (splines.cells, splines.degree), damped(splines.gram, FIT_DAMPING)
    _, onto = bin_products(t, in_t, kernel(y[:, None] - t), *axis)
    fitted = np.asarray(np.linalg.solve(square, onto), dtype=np.float64)
    _, crossed = bin_products(y, in_y, fitted, *axis)
    return in_y * fitted @ fitted.T, np.asarray(np.linalg.solve(square, crossed), dtype=np.float64)
