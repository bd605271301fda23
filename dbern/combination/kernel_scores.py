"""Naive Bayes of kernel likelihoods: scores from sums of kernels, with a proof of their error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbern.combination.base import ReleasedShapes
from dbern.combination.scores import ClassScores, over, share_of
from dbern.types import FloatArray


def _kernel_scores(
    sums: FloatArray, class_fractions: FloatArray, peaks: Sequence[float], floors: Sequence[float]
) -> FloatArray:
    """``p prod_i q_i`` with ``q_i = s_i / p`` cut to [floor_i, peak_i]; zero where p <= 0.

    Sums s (axes, classes, ...) are the classes' kernel sums over n, in data units; shares p
    (classes,) their records over n, cut to [0, 1]. Peaks and floors are the kernel's largest value
    and the least that a likelihood counts as, one an axis.
    """
    class_fraction = share_of(class_fractions, sums.ndim - 1)
    scores = np.broadcast_to(class_fraction, sums.shape[1:])
    for axis_sums, peak, floor in zip(sums, peaks, floors, strict=True):
        scores = scores * np.clip(over(axis_sums, class_fraction), floor, peak)
    return np.asarray(np.where(class_fraction > 0, scores, 0.0))


def _kernel_score_error(
    sums: Sequence[float], fraction_error: float, peaks: Sequence[float]
) -> float:
    """Bound the error of a score where each sum is off by at most `sums` and p by `fraction_error`.

    The records' own (s, p) lie in the convex cone ``0 <= s_i <= peak_i p``, because p counts the
    very records whose kernels s_i adds up, and what `_kernel_scores` uses is ``s~_i = s_i`` cut to
    [floor_i p, peak_i p]. A cut moves no further than its number or its ends:
    ``|s~_i - s~_i'| <= max(|s_i - s_i'|, peak_i |p - p'|)``. On the cone ``F = prod_i s~_i /
    p^{l-1}`` has ``|dF/ds~_i| <= prod_{j != i} peak_j`` and ``|dF/dp| <= (l - 1) prod_j peak_j``;
    it is homogeneous, so continuous at its tip, and the way between two points stays inside.
    """
    top = math.prod(peaks)
    relative_error = sum(
        max(error, peak * fraction_error) / peak for error, peak in zip(sums, peaks, strict=True)
    )
    return min(top, top * (relative_error + (len(peaks) - 1) * fraction_error))


def _kernel_log_scores(
    sums: FloatArray,
    class_fractions: FloatArray,
    peaks: Sequence[float],
    floors: Sequence[float],
    noise: Sequence[FloatArray | float],
) -> FloatArray:
    """``ln p + sum_i ln((q_i + t_i) / (g_i + t_i))``: log scores but for a number common to all.

    q_i is the likelihood of a class as in `_kernel_scores`, g_i that of all classes together (the
    mean of theirs by shares), t_i the noise of q_i: where both likelihoods are far below it, the
    axis says nothing, and where no axis does the shares decide. Without noise this is
    ``ln F - sum_i ln g_i``.

    A share counts as at least its noise. `noise` has the standard deviations (classes,) of the
    sums' noise, axis by axis, and last that of the shares'; all positive.
    """
    *sum_deviations, fraction_deviation = noise
    class_fraction = share_of(
        np.maximum(class_fractions, min(float(fraction_deviation), 1.0)), sums.ndim - 1
    )
    logs = np.broadcast_to(np.log(class_fraction), sums.shape[1:])
    for axis_sums, peak, floor, deviation in zip(sums, peaks, floors, sum_deviations, strict=True):
        likelihood = np.clip(axis_sums / class_fraction, floor, peak)
        mean_likelihood = (class_fraction * likelihood).sum(axis=0) / class_fraction.sum()
        noise_scale = np.reshape(deviation, class_fraction.shape) / class_fraction
        logs = logs + np.log((likelihood + noise_scale) / (mean_likelihood + noise_scale))
    return np.asarray(logs)


@dataclass(frozen=True, kw_only=True)
class KernelScores(ClassScores):
    """Scores from each axis's sums of kernels by class, and after them the classes' shares.

    `peaks` and `floors` are the kernel's largest value and the least that a likelihood counts as.
    """

    kind: ClassVar[str] = "naive-bayes"
    by_class: ClassVar[bool] = True

    def _evidence(self, parts: Sequence[FloatArray], points: FloatArray) -> FloatArray:
        shape = parts[0].shape if self.peaks else points.shape[:-1]
        return np.reshape(parts[:-1], (len(self.peaks), len(self.classes), *shape))

    def _scores(self, moments: FloatArray, evidence: FloatArray) -> FloatArray:
        return _kernel_scores(evidence, moments[:, 0], self.peaks, self.floors)

    def _log_scores(
        self, moments: FloatArray, evidence: FloatArray, noise: Sequence[float]
    ) -> FloatArray:
        by_axis = np.reshape(noise[:-1], (len(self.peaks), len(self.classes)))
        deviations = [*by_axis, noise[-1]]
        return _kernel_log_scores(evidence, moments[:, 0], self.peaks, self.floors, deviations)

    def _score_error(self, errors: Sequence[float], index: int) -> float:
        # A cell is a sum of kernels of height 1.
        heights = [1.0 for _ in self.lists]
        sums = [*errors[index : -1 : len(self.classes)], *[errors[-1] for _ in self.lists]]
        return _kernel_score_error(sums, errors[-1], [*self.peaks, *heights])

    def is_made_of(self, shapes: ReleasedShapes) -> bool:
        """Return whether there are the sums of each axis and class, and the counts."""
        sums = [(name,) for name in shapes.numbers for _ in self.classes]
        counts = len(self.classes) * (1 + sum(shapes.lists))
        fits_axes = len(self.peaks) == len(self.floors) == len(shapes.numbers)
        return fits_axes and self.lists == shapes.lists and shapes.arrays == (*sums, counts)
