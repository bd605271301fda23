"""Combinations of released arrays to the released function: a closed list, described in FORMAT.md.

A combination is post-processing. Its error bound follows from those of its parts; where a quotient
makes that impossible for the worst database, the bound is the width of the public range that every
value is cut to.

*Naive Bayes.* The score of a class is ``F = Pr(y | class) Pr(class)``, a product over axes. What is
released is noisy, so it is first moved to the nearest numbers that some records could have, which
is post-processing; then F is a Lipschitz function of them, which bounds its error.

Classes are told apart, and ranked, by the logarithms of scores: their differences are log ratios of
probabilities, where the difference of two scores is large wherever records are dense. A logarithm
of noisy numbers needs a floor. Each floor here is a standard deviation of the noise over a noisy
share: the deviation follows from the published law, order and lattice of a release, the share is
one of the released numbers. So no floor, and nothing else in a logarithm, depends on a record but
through what is released: it is post-processing, and costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from dbern.types import FloatArray

# --- Naive Bayes from released numbers


def _kernel_scores(
    sums: FloatArray, shares: FloatArray, peaks: Sequence[float], floors: Sequence[float]
) -> FloatArray:
    """``p prod_i q_i`` with ``q_i = s_i / p`` cut to [floor_i, peak_i]; zero where p <= 0.

    Sums s (axes, classes, ...) are the classes' kernel sums over n, in data units; shares p
    (classes,) their records over n, cut to [0, 1]. Peaks and floors are the kernel's largest value
    and the least that a likelihood counts as, one an axis.
    """
    share = _share(shares, sums[0].ndim)
    scores = np.broadcast_to(share, sums[0].shape)
    for own, peak, floor in zip(sums, peaks, floors, strict=True):
        scores = scores * np.clip(_over(own, share), floor, peak)
    return np.asarray(np.where(share > 0, scores, 0.0))


def _kernel_score_error(sums: Sequence[float], share: float, peaks: Sequence[float]) -> float:
    """Bound the error of a score where each sum is off by at most `sums` and p by `share`.

    The records' own (s, p) lie in the convex cone ``0 <= s_i <= peak_i p``, because p counts the
    very records whose kernels s_i adds up, and what `_kernel_scores` uses is ``s~_i = s_i`` cut to
    [floor_i p, peak_i p]. A cut moves no further than its number or its ends:
    ``|s~_i - s~_i'| <= max(|s_i - s_i'|, peak_i |p - p'|)``. On the cone ``F = prod_i s~_i /
    p^{l-1}`` has ``|dF/ds~_i| <= prod_{j != i} peak_j`` and ``|dF/dp| <= (l - 1) prod_j peak_j``;
    it is homogeneous, so continuous at its tip, and the way between two points stays inside.
    """
    top = math.prod(peaks)
    moved = sum(max(one, peak * share) / peak for one, peak in zip(sums, peaks, strict=True))
    return min(top, top * (moved + (len(peaks) - 1) * share))


def _kernel_log_scores(
    sums: FloatArray,
    shares: FloatArray,
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
    *of_sums, of_shares = noise
    share = _share(np.maximum(shares, min(float(of_shares), 1.0)), sums[0].ndim)
    logs = np.broadcast_to(np.log(share), sums[0].shape)
    for own, peak, floor, deviation in zip(sums, peaks, floors, of_sums, strict=True):
        likely = np.clip(own / share, floor, peak)
        together = (share * likely).sum(axis=0) / share.sum()
        unsure = np.reshape(deviation, share.shape) / share
        logs = logs + np.log((likely + unsure) / (together + unsure))
    return np.asarray(logs)


def _listed_scores(cells: FloatArray, shares: FloatArray, listed: FloatArray) -> FloatArray:
    """``prod_b c_b / p``, quotients cut to [0, 1]: the categories' factor of a score."""
    likely = np.clip(_over(cells, _share(shares, 2)), 0.0, 1.0)
    taken = np.where(listed[..., None, :] > 0, likely, 1.0)
    return np.asarray(np.moveaxis(taken.prod(axis=-1), -1, 0))


def _listed_log_scores(
    cells: FloatArray, shares: FloatArray, listed: FloatArray, noise: float
) -> FloatArray:
    """``sum_b ln((q_b + t) / (g_b + t))``, as in `_kernel_log_scores`."""
    share = _share(np.maximum(shares, min(noise, 1.0)), 2)
    likely, unsure = np.clip(cells / share, 0.0, 1.0), noise / share
    together = (share * likely).sum(axis=0) / share.sum()
    logs = np.log((likely + unsure) / (together + unsure))
    return np.asarray(np.moveaxis(listed @ logs.T, -1, 0))


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
    share = _share(moments[:, 0], points.ndim)
    scores = np.broadcast_to(share, (len(moments), *points.shape[:-1]))
    for axis, (peak, floor) in enumerate(zip(peaks, floors, strict=True)):
        mean, variance = _mean_and_variance(moments, share, axis, axes, floor)
        apart = points[..., axis] - mean
        scores = scores * peak * floor / np.sqrt(variance) * np.exp(-(apart**2) / (2 * variance))
    return np.asarray(np.where(share > 0, scores, 0.0))


_SURE = 1.5
"""Times its noise, what a variance counts as at least."""
_LEAST_NOISE, _MOST_NOISE = 1e-15, 1e6
"""Of released numbers, which are at most one: what strangers may write is kept within."""


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
    are drawn together by how much their differences may be noise (`_drawn_together`), and so are
    their variances, towards one that is at least its floor and 1.5 times its noise. A variance
    counts as at least 1.5 times its own noise, or that common one where that is less: a variance
    that is lost in its noise would make a likelihood surer than anything is known.

    `noise` is the standard deviation of the noise of every released number, positive; `centred`
    numbers are those of `_uncentred`, whose noise is smaller.
    """
    axes, noise = len(floors), min(max(noise, _LEAST_NOISE), _MOST_NOISE)
    share = _share(np.maximum(moments[:, 0], min(noise, 1.0)), points.ndim)
    of_first, of_second = (noise / 2, noise / 4) if centred else (noise, noise)
    logs = np.broadcast_to(np.log(share), (len(moments), *points.shape[:-1]))
    for axis, floor in enumerate(floors):
        mean, variance = _mean_and_variance(moments, share, axis, axes, floor, lost=True)
        # What p, m and q move of m / p and q / p - (m / p)^2, where q has p / 8 added if centred.
        of_mean = np.hypot(of_first, mean * noise) / share
        of_share = (mean**2 - np.maximum(variance, 0.0) + 0.125 * centred) * noise
        unsure = np.sqrt(of_second**2 + (2 * mean * of_first) ** 2 + of_share**2) / share
        mean, _ = _drawn_together(mean, of_mean)
        variance, common = _drawn_together(variance, unsure, floor**2)
        least = np.maximum(np.minimum(_SURE * unsure, common), floor**2)
        variance = np.maximum(variance, least)
        logs = logs - 0.5 * np.log(variance) - (points[..., axis] - mean) ** 2 / (2 * variance)
    return np.asarray(logs)


def _uncentred(moments: FloatArray) -> FloatArray:
    """Turn the classes' sums of ``z = 2 u`` and ``z^2 - 1/2`` into those of u and ``u^2``."""
    axes = moments.shape[1] // 2
    count, first, second = np.split(moments, [1, 1 + axes], axis=1)
    return np.hstack([count, first / 2, (second + count / 2) / 4])


def _drawn_together(
    values: FloatArray, unsure: FloatArray, least: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Draw the classes' values to their mean, by James and Stein's estimate; and that mean.

    With weights ``1 / unsure^2`` and chi^2 the weighted sum of squared differences from the mean,
    of c classes, differences keep ``1 - (c - 1) / chi^2`` of themselves, or nothing: c - 1 is what
    chi^2 is on average where there is noise alone. With `least` the mean is at least that, and at
    least 1.5 times its own noise.
    """
    weights = unsure**-2.0
    whole = weights.sum(axis=0)
    mean = (values * weights).sum(axis=0) / whole
    if least is not None:
        mean = np.maximum(np.maximum(mean, least), _SURE * whole**-0.5)
    apart = ((values - mean) ** 2 * weights).sum(axis=0)
    kept = np.maximum(0.0, 1 - (len(values) - 1) / np.maximum(apart, 1e-300))
    return np.asarray(mean + kept * (values - mean)), np.asarray(mean)


def _mean_and_variance(
    moments: FloatArray,
    share: FloatArray,
    axis: int,
    axes: int,
    floor: float,
    *,
    lost: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Each class's mean and variance on one axis, at least its floor, unless it may be `lost`."""
    first, second = (
        _over(moments[:, 1 + axis + skip].reshape(share.shape), share) for skip in (0, axes)
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


def _share(shares: FloatArray, dimensions: int) -> FloatArray:
    return np.asarray(np.clip(shares, 0.0, 1.0).reshape(-1, *[1] * (dimensions - 1)))


def _over(numbers: FloatArray, share: FloatArray) -> FloatArray:
    return np.asarray(numbers / np.where(share > 0, share, np.inf))


# --- How released arrays make the released function

KERNEL_BAYES, GAUSSIAN_BAYES = BAYES = "naive-bayes", "gaussian-naive-bayes"
"""The combinations that make scores of classes from sums of kernels, and from moments."""
LEAST_SQUARES = "least-squares"
"""The combination that solves a linear function from moments."""
BY_PLACE = ("ratio", LEAST_SQUARES)  # no one width tells how far values are off
RANGED = ("ratio", "response", LEAST_SQUARES)
"""The combinations that state the public range of responses, which their values are."""

KINDS = ("linear", "sigmoid", "stack", "one-vs-rest", *RANGED, *BAYES)

Meaning: TypeAlias = Literal["density", "response", "log-odds", "score", "value"]
"""What values are: of a density, a response, log odds or scores of classes, or anything else."""

# What version 1 of the format says by `target.kind` alone, see FORMAT.md.
_DENSITIES, _LOGISTIC = ("kernel-density",), ("logistic-regression",)

Answer: TypeAlias = Literal["value", "decision", "probability"]
"""What is asked of a point: the function, what decides between classes, or their probabilities."""


@dataclass(frozen=True)
class Combination:
    """The function that the values of the released arrays make, in their order.

    Kinds. "linear": the one array. "sigmoid": ``1 / (1 + exp(-f))`` of it, the probability of the
    second class. "response": it plus the middle of the public range. "stack": one column each.
    "one-vs-rest": column c is twice array c minus the sum of all. "ratio": the first over the
    second, times the radius of the public range, plus its middle, cut to the range; the middle
    where the second is not positive. "naive-bayes": the scores of `_kernel_scores`, of each axis's
    sums by class and after them the classes' shares. "gaussian-naive-bayes": those of
    `_gaussian_scores`, of one vector. For two classes these are the second's score minus the
    first's, for more one column each. "least-squares": coefficients that the released moments
    determine.

    `classes` are the columns' public labels, empty for one value a point; `low` and `high` the
    public range of a ratio or a response. Naive Bayes has `peaks` and `floors`, one an axis, and
    `lists`, the number of listed values of each axis of categories. With `grid` and `degree` the
    released numbers are coefficients of `grid_polynomials` (for least squares degree 2: of
    `with_products`). `squares` is "centred" where Gaussian naive Bayes released the numbers of
    `_uncentred`, None for sums of u and ``u^2`` as in earlier releases. With a `constant` one
    vector of weights is released, and the arrays are the linear functions of `_linear_values`.
    Least squares has the `response`'s name, the `weight` of its sum and how its `products` are
    weighed, and `ridge`, added to the diagonal of the columns' covariance matrix; None where the
    released numbers decide.
    """

    kind: str = "linear"
    classes: tuple[str | int | bool, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    peaks: tuple[float, ...] = ()
    floors: tuple[float, ...] = ()
    lists: tuple[int, ...] = ()
    grid: int | None = None
    degree: int | None = None
    squares: str | None = None
    constant: float | None = None
    response: str | None = None
    weight: int | None = None
    products: str | None = None
    ridge: float | None = None

    def values(self, parts: Sequence[FloatArray], unit: FloatArray | None = None) -> FloatArray:
        """Return the function's values (m,) or (m, classes), from those of the arrays, (m,) each.

        A released vector is one part, as it is. `unit` are the points'
        `dbern.data.domain.Domain.features`, for a function that needs them (`of_points`).
        """
        if self.grid is not None and self.degree is not None and unit is not None:
            parts = [grid_polynomials(unit[..., 0], self.grid, self.degree + 1) @ parts[0]]
        elif self.constant is not None and unit is not None:
            if self.degree is not None:
                listed, numbers = np.split(unit, [sum(self.lists)], axis=-1)
                unit = np.concatenate([listed, with_products(numbers)], axis=-1)
            parts = _linear_values(parts[0], unit, self.constant)
        if self.kind == "linear":
            return parts[0]
        if self.kind == "sigmoid":
            return np.asarray(0.5 + 0.5 * np.tanh(0.5 * parts[0]))
        if self.kind == "response":
            return np.asarray(parts[0] + (self.low + self.high) / 2)
        if self.kind == LEAST_SQUARES:
            return np.clip(parts[0] + (self.low + self.high) / 2, self.low, self.high)
        if self.kind in BAYES:
            scores = self._scores(parts, unit)
            return scores[1] - scores[0] if len(scores) == 2 else np.moveaxis(scores, 0, -1)
        if self.kind == "ratio":
            middle, radius = (self.low + self.high) / 2, (self.high - self.low) / 2
            safe = np.where(parts[1] > 0, parts[1], np.inf)
            return np.asarray(np.clip(middle + radius * parts[0] / safe, self.low, self.high))
        stacked = np.stack(parts, axis=-1)
        if self.kind == "one-vs-rest":
            return np.asarray(2 * stacked - stacked.sum(axis=-1, keepdims=True))
        return np.asarray(stacked)

    def decisions(
        self, parts: Sequence[FloatArray], unit: FloatArray | None, noise: Sequence[float]
    ) -> FloatArray:
        """Values that decide: above zero for the second of two classes, or the largest column.

        For naive Bayes the log odds of the second of two classes, for more classes the logarithms
        of their probabilities; for "sigmoid" the log odds; for anything else the values. `noise`
        has the standard deviation of each part's noise.
        """
        if self.kind == "sigmoid":
            return Combination(constant=self.constant).values(parts, unit)
        if self.kind not in BAYES:
            return self.values(parts, unit)
        logs = self._log_scores(parts, unit, noise)
        if len(logs) == 2:
            return np.asarray(logs[1] - logs[0])
        logs = logs - logs.max(axis=0)
        return np.moveaxis(logs - np.log(np.exp(logs).sum(axis=0)), 0, -1)

    def probabilities(self, decisions: FloatArray) -> FloatArray:
        """Return probabilities (m, classes), from log odds or log probabilities."""
        if self.multi_output:
            return np.asarray(np.exp(decisions))
        return np.stack([0.5 - 0.5 * np.tanh(0.5 * decisions),
                         0.5 + 0.5 * np.tanh(0.5 * decisions)], axis=-1)  # fmt: skip

    def _log_scores(
        self, parts: Sequence[FloatArray], unit: FloatArray | None, noise: Sequence[float]
    ) -> FloatArray:
        axes, classes = len(self.peaks), len(self.classes)
        (moments, cells), (listed, u) = self._tables(parts[-1]), self._parted(unit)
        if self.kind == GAUSSIAN_BAYES:
            centred = self.squares is not None
            logs = _gaussian_log_scores(moments, u, self.floors, noise[0], centred=centred)
        else:
            sums = np.reshape(parts[: axes * classes], (axes, classes, *parts[0].shape))
            each = [*np.reshape(noise[: axes * classes], (axes, classes)), noise[-1]]
            logs = _kernel_log_scores(sums, moments[:, 0], self.peaks, self.floors, each)
        more = _listed_log_scores(cells, moments[:, 0], listed, noise[-1]) if self.lists else 0.0
        return np.asarray(logs + more)

    def _scores(self, parts: Sequence[FloatArray], unit: FloatArray | None) -> FloatArray:
        axes, classes = len(self.peaks), len(self.classes)
        (moments, cells), (listed, u) = self._tables(parts[-1]), self._parted(unit)
        if self.kind == GAUSSIAN_BAYES:
            scores = _gaussian_scores(moments, u, self.peaks, self.floors)
        else:
            sums = np.reshape(parts[: axes * classes], (axes, classes, *parts[0].shape))
            scores = _kernel_scores(sums, moments[:, 0], self.peaks, self.floors)
        return scores * _listed_scores(cells, moments[:, 0], listed) if self.lists else scores

    def _tables(self, released: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Counts, of moments also sums and squares of u, and cells, a row for each class."""
        numbers = 1 + 2 * len(self.peaks) * (self.kind == GAUSSIAN_BAYES)
        moments, cells = np.split(released.reshape(len(self.classes), -1), [numbers], axis=1)
        return (moments if self.squares is None else _uncentred(moments)), cells

    def _parted(self, unit: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        """Points as listed values, and as positions from the middle."""
        points, width = np.empty(0) if unit is None else unit, sum(self.lists)
        return points[..., :width], points[..., width:] - 0.5

    @property
    def of_points(self) -> bool:
        """Whether its values depend on a point besides through the arrays."""
        stated = bool(self.lists or self.grid) or self.constant is not None
        return self.kind == GAUSSIAN_BAYES or stated

    @property
    def multi_output(self) -> bool:
        """Whether a point has one value for each class."""
        several = self.kind in BAYES and len(self.classes) > 2
        return several or self.kind in ("stack", "one-vs-rest")

    @property
    def log_odds(self) -> bool:
        """Whether `decisions` are log odds, or logarithms of probabilities, by its kind alone."""
        return self.kind in (*BAYES, "sigmoid")

    def meaning(self, target: Mapping[str, Any]) -> Meaning:
        """Return what the values mean, by how they are made and what the store says of `target`."""
        if self.kind in RANGED:
            return "response"
        if target["kind"] in _DENSITIES:
            return "density"
        if not self.classes:
            return "value"
        logistic = target["kind"] in _LOGISTIC or target.get("loss") == "logistic"
        return "log-odds" if logistic and not self.multi_output else "score"

    def columns_of(self, answer: Answer) -> list[str]:
        """Return the names of an answer's columns: "value", "value_no", "probability_no"."""
        if answer == "probability":
            return [f"probability_{label}" for label in self.classes]
        return [f"value_{label}" for label in self.classes] if self.multi_output else ["value"]

    @property
    def threshold(self) -> float:
        """The value above which the second of two classes is decided for."""
        return 0.5 if self.kind == "sigmoid" else 0.0

    def error(self, errors: Sequence[float]) -> float:
        """Bound the error of any value, from bounds on those of the arrays."""
        if self.kind in BY_PLACE:
            return self.high - self.low
        if self.kind == "sigmoid":  # whose slope is at most a quarter
            return min(0.25 * errors[0], 1.0)
        if self.kind in BAYES:
            each = [self._score_error(errors, i) for i in range(len(self.classes))]
            return sum(each) if len(each) == 2 else max(each)
        return sum(errors) if self.kind == "one-vs-rest" else max(errors)

    def even(self, top: float, below: float, density: float) -> float | None:
        """Bound the error of a ratio where its second array is `density`, by both arrays' errors.

        ``|e_N - m e_D| / (D + e_D)``, |m| at most 1; None where a constant promises as much.
        """
        if top + 2 * below >= density:
            return None
        return (1 + 1e-12) * (self.high - self.low) / 2 * (top + below) / (density - below)

    def errors(self, errors: Sequence[FloatArray]) -> FloatArray:
        """Bound errors point by point, (m,) or (m, classes), by those (m,) of the arrays.

        A column of a "stack" has the bound of its array. A "ratio" and scores are left out: their
        bound is the same for all points.
        """
        if self.kind == "stack":
            return np.stack(errors, axis=-1)
        if self.kind == "one-vs-rest":
            return np.repeat(np.sum(errors, axis=0)[:, None], len(self.classes), axis=1)
        if self.kind == "sigmoid":
            return np.minimum(0.25 * errors[0], 1.0)
        if self.kind == LEAST_SQUARES:
            return np.full_like(errors[0], self.high - self.low)
        return errors[0]

    def _score_error(self, errors: Sequence[float], index: int) -> float:
        if self.kind == GAUSSIAN_BAYES:
            centred = self.squares is not None
            return _gaussian_score_error(
                errors[0], self.peaks, self.floors, centred=centred, lists=len(self.lists)
            )
        # A cell is a sum of kernels of height 1.
        sums = [*errors[index : -1 : len(self.classes)], *[errors[-1] for _ in self.lists]]
        return _kernel_score_error(sums, errors[-1], [*self.peaks, *[1.0 for _ in self.lists]])

    def extent(self, arrays: tuple[float, float] | None) -> tuple[float, float] | None:
        """The range of values that records can give, from that of every array, if known."""
        if self.kind in RANGED:
            return self.low, self.high
        if self.kind == "sigmoid":
            return 0.0, 1.0
        if self.kind in BAYES:
            top = math.prod(self.peaks)
            return (-top if len(self.classes) == 2 else 0.0), top
        if self.kind == "one-vs-rest" and arrays:
            return -max(map(abs, arrays)), max(map(abs, arrays))
        return arrays if self.kind in ("linear", "stack") else None

    def unit(self, names: Sequence[str], *, density: bool, response: str = "the response") -> str:
        """The unit of a value, in words that follow a number; empty where it has none.

        `names` and `response` are the names of the axes and of the response.
        """
        if self.kind in RANGED:
            return f" of {response}"
        if density and self.kind in ("linear", "stack"):
            return f" per unit of {' and '.join(names)}"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Kind and parameters as JSON values."""
        content = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
            if value not in ((), None)
        }
        if self.kind not in RANGED:
            del content["low"], content["high"]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Combination:
        """Read what `to_dict` wrote."""
        facts: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in content.items()
        }
        return cls(**facts)


def with_products(unit: FloatArray) -> FloatArray:
    """Append products ``z_i z_j``, and ``2 z_i^2 - 1``, of z = 2 y - 1 to positions y."""
    first, second = np.triu_indices(unit.shape[-1])
    found = (2 * unit[..., first] - 1) * (2 * unit[..., second] - 1)
    return np.concatenate([unit, np.where(first == second, 2 * found - 1, found)], axis=-1)


def grid_polynomials(positions: FloatArray, points: int, count: int) -> FloatArray:
    """Return polynomials of degrees 0 to `count` - 1 at positions (...) in [0, 1]: (..., count).

    Gram's: on the regular grid of `points` there their products have mean 0, and squares 1.
    """
    k = np.arange(count + 1.0)
    steps = k / (points - 1) * np.sqrt((points**2 - k**2).clip(0) / np.maximum(4 * k**2 - 1, 1))
    found = [np.ones_like(positions)]
    for i in range(1, count):
        before = steps[i - 1] * found[i - 2] if i > 1 else 0.0
        found += [((2 * positions - 1) * found[-1] - before) / steps[i]]
    return np.stack(found, axis=-1)


def _linear_values(weights: FloatArray, unit: FloatArray, constant: float) -> list[FloatArray]:
    """Values of linear functions at points of the unit cube, shape (..., l).

    `weights` are, function by function, those of the coordinates and, unless it is zero, of the
    constant.
    """
    axes = unit.shape[-1]
    each = weights.reshape(-1, axes + (constant > 0))
    return [
        np.asarray(unit @ own[:axes] + (constant * own[axes] if constant else 0.0)) for own in each
    ]
