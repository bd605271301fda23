"""Naive Bayes of normal likelihoods: scores from classes' moments, with a proof of their error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbern.combination.base import ReleasedShapes
from dbern.combination.class_scores import ClassScores, divide_by_share, share_of
from dbern.types import FloatArray

_LEAST_FLOOR = 1e-100  # of what is divided by, squared


def _gaussian_scores(
    moments: FloatArray, points: FloatArray, peaks: Sequence[float], floors: Sequence[float]
) -> FloatArray:
    """``p prod_i peak_i (floor_i / sigma_i) exp(-(u_i - mu_i)^2 / (2 sigma_i^2))``.

    With ``mu_i = m_i / p`` cut to [-1/2, 1/2], and ``sigma_i^2 = q_i / p - mu_i^2``, the quotient
    cut to at most 1/4 and the difference to at least ``floor_i^2``; zero where p is not above 0.

    `moments` (classes, 1 + 2 axes) are, class by class and over n: p, the records; m, the sums of
    each axis's centred position u in [-1/2, 1/2]; q, those of their squares. Peaks are the largest
    likelihoods in data units, floors the least standard deviations in units of u.
    """
    axes = len(peaks)
    class_fraction = share_of(moments[:, 0], points.ndim)
    scores = np.broadcast_to(class_fraction, (len(moments), *points.shape[:-1]))
    for axis, (peak, floor) in enumerate(zip(peaks, floors, strict=True)):
        mean, variance = _mean_and_variance(moments, class_fraction, axis, axes, floor)
        difference = points[..., axis] - mean
        scores = (
            scores * peak * floor / np.sqrt(variance) * np.exp(-(difference**2) / (2 * variance))
        )
    return np.asarray(np.where(class_fraction > 0, scores, 0.0))


_NOISES = 1.5
"""Deviations of its noise that a variance counts as at least."""
_LEAST_NOISE, _MOST_NOISE = 1e-15, 1e6
"""Range of the noise of released numbers, which are at most one, whatever a stranger wrote."""


def _gaussian_log_scores(
    moments: FloatArray,
    points: FloatArray,
    floors: Sequence[float],
    noise: float,
    *,
    centred: bool = False,
) -> FloatArray:
    """``ln p - sum_i (ln sigma_i + (u_i - mu_i)^2 / (2 sigma_i^2))``: log scores less a constant.

    As in `_gaussian_scores`, with a share of at least its noise. On each axis the classes' means
    are drawn together by how much their differences may be noise (`_pull_together`), and so are
    their variances, towards one that is at least its floor and 1.5 times its noise. A variance
    counts as at least 1.5 times its own noise, or that common one where that is less: a variance
    that is lost in its noise would make a likelihood surer than anything is known.

    `noise` is the standard deviation of the noise of every released number, positive; `centred`
    numbers are those of `_uncentred`, whose noise is smaller.
    """
    axes, noise = len(floors), min(max(noise, _LEAST_NOISE), _MOST_NOISE)
    class_fraction = share_of(np.maximum(moments[:, 0], min(noise, 1.0)), points.ndim)
    first_noise, second_noise = (noise / 2, noise / 4) if centred else (noise, noise)
    logs = np.broadcast_to(np.log(class_fraction), (len(moments), *points.shape[:-1]))
    for axis, floor in enumerate(floors):
        mean, variance = _mean_and_variance(moments, class_fraction, axis, axes, floor, lost=True)
        # What p, m and q move of m / p and q / p - (m / p)^2, where q has p / 8 added if centred.
        mean_deviation = np.hypot(first_noise, mean * noise) / class_fraction
        fraction_noise = (mean**2 - np.maximum(variance, 0.0) + 0.125 * centred) * noise
        variance_noise = second_noise**2 + (2 * mean * first_noise) ** 2 + fraction_noise**2
        deviation = np.sqrt(variance_noise) / class_fraction
        mean, _ = _pull_together(mean, mean_deviation)
        variance, common = _pull_together(variance, deviation, floor**2)
        minimum = np.maximum(np.minimum(_NOISES * deviation, common), floor**2)
        variance = np.maximum(variance, minimum)
        logs = logs - 0.5 * np.log(variance) - (points[..., axis] - mean) ** 2 / (2 * variance)
    return np.asarray(logs)


def _uncentred(moments: FloatArray) -> FloatArray:
    """Turn the classes' sums of ``z = 2 u`` and ``z^2 - 1/2`` into those of u and ``u^2``."""
    axes = moments.shape[1] // 2
    count, first, second = np.split(moments, [1, 1 + axes], axis=1)
    return np.hstack([count, first / 2, (second + count / 2) / 4])


def _pull_together(
    values: FloatArray, deviations: FloatArray, minimum: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Draw the classes' values to their mean, by James and Stein's estimate; and that mean.

    With weights ``1 / unsure^2`` and chi^2 the weighted sum of squared differences from the mean,
    of c classes, differences keep ``1 - (c - 1) / chi^2`` of themselves, or nothing: c - 1 is what
    chi^2 is on average where there is noise alone. With `minimum` the mean is at least that, and at
    least 1.5 times its own noise.
    """
    weights = deviations**-2.0
    total = weights.sum(axis=0)
    mean = (values * weights).sum(axis=0) / total
    if minimum is not None:
        mean = np.maximum(np.maximum(mean, minimum), _NOISES * total**-0.5)
    squares = ((values - mean) ** 2 * weights).sum(axis=0)
    fraction = np.maximum(0.0, 1 - (len(values) - 1) / np.maximum(squares, 1e-300))
    return np.asarray(mean + fraction * (values - mean)), np.asarray(mean)


def _mean_and_variance(
    moments: FloatArray,
    class_fraction: FloatArray,
    axis: int,
    axes: int,
    floor: float,
    *,
    lost: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Each class's mean and variance on one axis, at least its floor, unless it may be `lost`."""
    first, second = (
        divide_by_share(moments[:, 1 + axis + skip].reshape(class_fraction.shape), class_fraction)
        for skip in (0, axes)
    )
    mean = np.clip(first, -0.5, 0.5)
    variance = np.minimum(second, 0.25) - mean**2
    return mean, variance if lost else np.maximum(variance, floor**2)


def _gaussian_score_error(
    moment: float,
    peaks: Sequence[float],
    floors: Sequence[float],
    *,
    centred: bool = False,
    lists: int = 0,
) -> float:
    """Bound the error of a score where every released number is off by at most `moment`, e.

    The records' own (p, m_i, q_i) lie in the convex set ``|m_i| <= p/2``,
    ``m_i^2/p <= q_i <= p/4``, and so does what `_gaussian_scores` uses: p cut to [0, 1], m_i to
    [-p/2, p/2] (then it is off by e at most, as its ends are by e/2), q_i to [m_i^2/p, p/4]. The
    lower end is off by ``|2 m_i/p| e + (m_i/p)^2 e <= 1.25 e``, so q_i is by 1.25 e. (The score
    does not see the cut from below: there the variance is at its floor anyway.)

    With ``A = prod_i peak_i``, the largest product of likelihoods, and f_i the floors, on that set

        ``|dF/dmu_i| <= A p e^{-1/2} / f_i``,   ``|dF/dvar_i| <= A p / (2 f_i^2)``,

    since ``z exp(-z^2/2) <= e^{-1/2}`` and ``|z^2 - 1| exp(-z^2/2) <= 1``, sigma_i >= f_i. Hence
    ``|dF/dq_i| <= A / (2 f_i^2)``; ``|dF/dm_i| <= A (e^{-1/2}/f_i + 1/(2 f_i^2))``, as
    ``|2 mu_i| <= 1``; and ``|dF/dp| <= A (1 + sum_i (e^{-1/2}/(2 f_i) + 1/(8 f_i^2)))``, as
    ``|mu_i| <= 1/2`` and ``|2 mu_i^2 - q_i/p| <= 1/4``. What they make of e, e and 1.25 e is

        ``A e (1 + sum_i (1.5 e^{-1/2} / f_i + 1.25 / f_i^2))``.

    *Centred* (`_uncentred`): m_i is off by e/2, and q_i, from ``(Q_i + p/2)/4``, by 3e/8, its lower
    end by ``e/2 + e/4``. What they make of e, e/2 and 3e/4 is

        ``A e (1 + sum_i (e^{-1/2} / f_i + 0.75 / f_i^2))``.

    *With categories*, b of `lists`, F is that times ``prod_b c_b/p`` (`_listed_scores`), where c_b
    is off by e and is cut to [0, p]: ``|dF/dc_b| <= A``, and ``|dF/dp|`` is A more for each. What
    they make of e and e is ``2 A e`` more for each.
    """
    top = math.prod(peaks)
    first, second = (1.0, 0.75) if centred else (1.5, 1.25)
    slope = 1 + sum(first * math.exp(-0.5) / floor + second / floor**2 for floor in floors)
    return min(top, top * (slope + 2 * lists) * moment)


@dataclass(frozen=True, kw_only=True)
class GaussianScores(ClassScores):
    """Scores from one vector of moments.

    `peaks` are the largest likelihoods, `floors` the least standard deviations in units of the
    axis. `squares` is "centred" where the numbers of `_uncentred` were released, None for sums of u
    and ``u^2`` as in earlier releases.
    """

    kind: ClassVar[str] = "gaussian-naive-bayes"

    squares: str | None = None

    @property
    def of_points(self) -> bool:
        """Whether its values depend on a point besides through the arrays."""
        return True

    @property
    def _centred(self) -> bool:
        return self.squares is not None

    def _tables(self, released: FloatArray) -> tuple[FloatArray, FloatArray]:
        moments, cells = super()._tables(released)
        return (_uncentred(moments) if self._centred else moments), cells

    def _evidence(self, parts: Sequence[FloatArray], points: FloatArray) -> FloatArray:
        del parts
        return points

    def _scores(self, moments: FloatArray, evidence: FloatArray) -> FloatArray:
        return _gaussian_scores(moments, evidence, self.peaks, self.floors)

    def _log_scores(
        self, moments: FloatArray, evidence: FloatArray, noise: Sequence[float]
    ) -> FloatArray:
        return _gaussian_log_scores(moments, evidence, self.floors, noise[0], centred=self._centred)

    def _score_error(self, errors: Sequence[float], index: int) -> float:
        del index
        return _gaussian_score_error(
            errors[0], self.peaks, self.floors, centred=self._centred, lists=len(self.lists)
        )

    def inconsistency(self) -> str:
        """Return which parameters no release states together; empty where all is well."""
        divided = min(self.floors, default=1) < _LEAST_FLOOR
        return "floors: must be above 0" if divided else super().inconsistency()

    def is_made_of(self, shapes: ReleasedShapes) -> bool:
        """Return whether there are the moments of each class, and its cells."""
        numbers_per_class = 1 + 2 * len(shapes.numeric_axes) + sum(shapes.lists)
        fits_axes = len(self.peaks) == len(self.floors) == len(shapes.numeric_axes)
        fits = fits_axes and self.lists == shapes.lists
        return fits and shapes.arrays == (len(self.classes) * numbers_per_class,)
