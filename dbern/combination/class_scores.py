"""Naive Bayes: scores of classes from released numbers, and their logarithms.

The score of a class is ``F = Pr(y | class) Pr(class)``, a product over axes. What is released is
noisy, so it is first moved to the nearest numbers that some records could have, which is
post-processing; then F is a Lipschitz function of them, which bounds its error.

Classes are told apart, and ranked, by the logarithms of scores: their differences are log ratios of
probabilities, where the difference of two scores is large wherever records are dense. A logarithm
of noisy numbers needs a floor. Each floor here is a standard deviation of the noise over a noisy
share: the deviation follows from the published law, order and lattice of a release, the share is
one of the released numbers. So no floor, and nothing else in a logarithm, depends on a record but
through what is released: it is post-processing, and costs no privacy.
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbern.combination.base import Combination, ReleasedShapes
from dbern.data.domain import MAX_NUMBER
from dbern.types import FloatArray


def share_of(fractions: FloatArray, dimensions: int) -> FloatArray:
    """Return the classes' shares (classes,), cut to [0, 1], as an array of so many dimensions."""
    return np.asarray(np.clip(fractions, 0.0, 1.0).reshape(-1, *[1] * (dimensions - 1)))


def divide_by_share(numbers: FloatArray, share: FloatArray) -> FloatArray:
    """Return quotients by a share; zero where that is not positive."""
    return np.asarray(numbers / np.where(share > 0, share, np.inf))


def _listed_scores(
    cells: FloatArray, class_fractions: FloatArray, listed: FloatArray
) -> FloatArray:
    """``prod_b c_b / p``, quotients cut to [0, 1]: the categories' factor of a score."""
    likelihoods = np.clip(divide_by_share(cells, share_of(class_fractions, 2)), 0.0, 1.0)
    taken = np.where(listed[..., None, :] > 0, likelihoods, 1.0)
    return np.asarray(np.moveaxis(taken.prod(axis=-1), -1, 0))


def _listed_log_scores(
    cells: FloatArray,
    class_fractions: FloatArray,
    listed: FloatArray,
    noise: float,
    lists: Sequence[int],
) -> FloatArray:
    """``sum_b ln((q_b + t) / (g_b + t))``, as in `_kernel_log_scores`.

    A class's q_b are its cells of one list, cut below at zero, over their sum: they sum to one on
    every list, whatever the noise. Were they over the class's share, the noise of that one number
    would count once for each list, and that of a list's cells would not cancel.
    """
    class_fraction = share_of(np.maximum(class_fractions, min(noise, 1.0)), 2)
    positive, noise_scale = np.maximum(cells, 0.0), noise / class_fraction
    starts = np.cumsum([0, *lists[:-1]])
    sums = np.repeat(np.add.reduceat(positive, starts, axis=1), lists, axis=1)
    likelihoods = positive / np.maximum(sums, min(noise, 1.0))
    mean_likelihoods = (class_fraction * likelihoods).sum(axis=0) / class_fraction.sum()
    logs = np.log((likelihoods + noise_scale) / (mean_likelihoods + noise_scale))
    return np.asarray(np.moveaxis(listed @ logs.T, -1, 0))


@dataclass(frozen=True, kw_only=True)
class ClassScores(Combination):
    """Scores of classes: for two the second's minus the first's, for more one column each.

    `peaks` and `floors` are one an axis of numbers; `lists` the number of listed values of each
    axis of categories. The last part is a vector: of each class its moments, which begin with its
    share of the records, and a cell for each listed value.
    """

    class_counts: ClassVar[Container[int]] = range(2, sys.maxsize)
    log_odds: ClassVar[bool] = True
    uniform: ClassVar[bool] = True

    peaks: tuple[float, ...] = ()
    floors: tuple[float, ...] = ()
    lists: tuple[int, ...] = ()

    @property
    def multi_output(self) -> bool:
        """Whether a point has one value for each class."""
        return len(self.classes) > 2

    @property
    def of_points(self) -> bool:
        """Whether its values depend on a point besides through the arrays."""
        return bool(self.lists)

    def values(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None = None
    ) -> FloatArray:
        """Return scores, or their difference."""
        (moments, cells), (listed, u) = self._tables(parts[-1]), self._parted(unit_points)
        scores = self._scores(moments, self._evidence(parts, u))
        if self.lists:
            scores = scores * _listed_scores(cells, moments[:, 0], listed)
        return np.moveaxis(scores, 0, -1) if self.multi_output else scores[1] - scores[0]

    def decisions(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None, noise: Sequence[float]
    ) -> FloatArray:
        """Return the log odds of the second of two classes, or logarithms of probabilities."""
        (moments, cells), (listed, u) = self._tables(parts[-1]), self._parted(unit_points)
        logs = self._log_scores(moments, self._evidence(parts, u), noise)
        if self.lists:
            logs = logs + _listed_log_scores(cells, moments[:, 0], listed, noise[-1], self.lists)
        if not self.multi_output:
            return np.asarray(logs[1] - logs[0])
        logs = logs - logs.max(axis=0)
        return np.moveaxis(logs - np.log(np.exp(logs).sum(axis=0)), 0, -1)

    @abstractmethod
    def _evidence(self, parts: Sequence[FloatArray], points: FloatArray) -> FloatArray:
        """Return what scores depend on at each point, besides the moments."""

    @abstractmethod
    def _scores(self, moments: FloatArray, evidence: FloatArray) -> FloatArray:
        """Return the factor of axes of numbers, times the shares, (classes, m)."""

    @abstractmethod
    def _log_scores(
        self, moments: FloatArray, evidence: FloatArray, noise: Sequence[float]
    ) -> FloatArray:
        """Return its logarithms, less a number common to all classes."""

    @abstractmethod
    def _score_error(self, errors: Sequence[float], index: int) -> float:
        """Bound the error of one class's score."""

    def _tables(self, released: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Moments and cells, a row for each class."""
        rows = released.reshape(len(self.classes), -1)
        moments, cells = np.split(rows, [rows.shape[1] - sum(self.lists)], axis=1)
        return moments, cells

    def _parted(self, unit_points: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        """Points as listed values, and as positions from the middle."""
        points, width = np.empty(0) if unit_points is None else unit_points, sum(self.lists)
        return points[..., :width], points[..., width:] - 0.5

    def errors(self, errors: Sequence[FloatArray]) -> FloatArray:
        """Bound the error of scores, or the sum of both scores' errors."""
        totals = [float(error) for error in errors]
        bounds = [self._score_error(totals, index) for index in range(len(self.classes))]
        return np.array(max(bounds) if self.multi_output else sum(bounds))

    def extent(self, arrays: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return the range of scores, or of the difference of two."""
        del arrays
        top = math.prod(self.peaks)
        return (0.0 if self.multi_output else -top), top

    def inconsistency(self) -> str:
        """Return which parameters no release states together; empty where all is well."""
        if math.prod(self.peaks) > MAX_NUMBER:
            return "peaks: their product is too large"
        return super().inconsistency()


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
        scores = scores * np.clip(divide_by_share(axis_sums, class_fraction), floor, peak)
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
        sums = [(name,) for name in shapes.numeric_axes for _ in self.classes]
        counts = len(self.classes) * (1 + sum(shapes.lists))
        fits_axes = len(self.peaks) == len(self.floors) == len(shapes.numeric_axes)
        return fits_axes and self.lists == shapes.lists and shapes.arrays == (*sums, counts)
