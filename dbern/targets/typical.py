"""Typical records of plans, and what scores with noise are worth on them.

On each axis they spread over an eighth of the bounds (one standard deviation) around the middle,
and axes are independent. Where there are lists alone, the first one is such an axis, in as many
parts as it has values, of as many records each. Records are as many as it takes for a mean, spread
by quantiles of a low-discrepancy sequence, so the error of a sample is no part of a prediction.
Nothing here reads a record or proves anything.

*Signal to noise.* A risk is a mean over records: the variance of the noise at each by itself is all
that it takes. With V the variance of the difference of two classes' scores:

- the square of an error is that of what is missed without noise, and the noise's variance;
- the largest of scores s with noise of Gumbel's law, which is near a normal one, is that of class c
  with probability ``softmax(s / b)_c``, ``b = sqrt(3 V) / pi``;
- the log loss of scores with noise is about ``t log sum exp(s / t) - s_c``, ``t^2 = 1 + pi V / 8``
  (MacKay's approximation of a logistic function's mean, integrated).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from dbern.system.texts import percent
from dbern.types import FloatArray

TYPICAL_STD = 0.25
EXPLAINED = 0.5
UNEXPLAINED = (1 - EXPLAINED) * TYPICAL_STD**2
"""Mean squared error of least squares without privacy, as `EXPLAINED` in units of half a range."""
UNPREDICTED = ("no prediction: for so many classes and columns it would take long",)
TYPICAL = "for typical rows "
"""What the note of a prediction begins with."""
WARNING = (
    "WARNING: no better than a constant predictor is to be expected. Write a larger epsilon, "
    "fewer axes, or bounds nearer to the records."
)
LARGE_CLASS = "where one class has more than"
_WARNED_LOSS = 0.9
"""Of what a constant loses: from there on a plan warns."""
_NOTED_LOSS = 0.1
"""Of the same: from there on a plan says how large a class has to be to do as well."""

_MAX_RECORDS, _MIN_RECORDS = 1 << 10, 32
_LOG_ODDS = 2.0
"""Standard deviation of the log odds of neighboring classes: a model that is worth learning."""
_CLASS_DISTANCE = 1.35
"""Deviations between neighboring normal classes: two are told apart in three of four cases."""
_MAX_MEAN = 0.375  # from the middle of the bounds: so many classes are nearer to each other
_RESIDUALS = (-1.461, -0.598, 0.0, 0.598, 1.461)
"""Quantiles of a normal law, moved outward for its variance."""
_NORMAL = NormalDist()
_MIN_PROBABILITY = 1e-12


def typical_variances(axes: int) -> FloatArray:
    """Variances of typical columns along their directions: each leaves half to the next.

    Where methods are compared columns may determine each other, the more so the more there are; of
    two the second still has half of its variance, of six the last a thirty-second.
    """
    return np.asarray(TYPICAL_STD**2 * 0.5 ** np.arange(axes))


@dataclass(frozen=True)
class Typical(ABC):
    """Records, and their labels; values of lists are as frequent as each other, and say nothing.

    Where there are no axes the first list says what one axis would.
    """

    axes: int
    lists: tuple[int, ...] = ()
    rows: int = field(default=_MAX_RECORDS, kw_only=True)
    models = 1
    radius = 1.0
    weights: ClassVar[tuple[float, ...]] = ()
    """Weights for which a penalty is chosen."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of records."""

    @property
    @abstractmethod
    def outcomes(self) -> tuple[FloatArray, FloatArray]:
        """Labels that a record may have, and their probabilities: (outcomes, records) each."""

    @abstractmethod
    def risk(self, scores: FloatArray, variance: FloatArray) -> tuple[float, float]:
        """Two risks of scores (records, models), first the one that decides.

        The noise of every score at a record has this variance (records,).
        """

    @abstractmethod
    def note(
        self, private: tuple[float, float], plain: tuple[float, float] | None = None
    ) -> tuple[str, ...]:
        """Text of the risks, with a warning where a constant is as good.

        `plain` is the same without privacy, where that is not the best there is.
        """

    @property
    def signals(self) -> int:
        """Number of axes on which the outcomes depend; without axes one, the first list."""
        return max(self.axes, 1)

    @cached_property
    def signal_points(self) -> FloatArray:
        """Positions in the unit cube on which the outcomes depend (records, signals)."""
        return np.clip((TYPICAL_STD * _normal(self.count, self.signals) + 1) / 2, 0.0, 1.0)

    @property
    def unit(self) -> FloatArray:
        """Positions on the axes, in the unit cube (records, l)."""
        return np.asarray(self.signal_points[:, : self.axes])

    @cached_property
    def codes(self) -> FloatArray:
        """Positions in the lists (records, m)."""
        spread = _spread(self.count, self.axes + len(self.lists))[:, self.axes :]
        codes = np.floor(spread * np.array(self.lists))
        if self.lists and not self.axes:
            ranks = np.argsort(np.argsort(self.signal_points[:, 0]))
            codes[:, 0] = ranks * self.lists[0] // self.count
        return np.asarray(codes)

    def weighted(self, features: FloatArray, n: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Features, labels and counts of n records: each record once with every outcome."""
        labels, shares = self.outcomes
        counts = n / len(features) * shares
        return np.tile(features, (len(labels), 1)), labels.ravel(), counts.ravel()

    def note_of_scores(
        self, released: FloatArray, variance: FloatArray, plain: FloatArray
    ) -> tuple[str, ...]:
        """Text of the risks of released scores, with noise, and of those without privacy."""
        private = self.risk(released, variance)
        return self.note(private, self.risk(plain, np.zeros(len(plain))))

    def _about_lists(self) -> str:
        if not self.axes:
            return ", the first list being such an axis in parts"
        return ", and lists that tell nothing" * bool(self.lists)


@dataclass(frozen=True)
class TypicalResponses(Typical):
    """Records of a response in [-1, 1], half of it explained, each with five residuals.

    The risk is the excess risk: the mean squared error above that of least squares without privacy.
    """

    radius: float = 1.0
    # Half of them of narrow numbers that explain as much as typical ones.
    weights: ClassVar[tuple[float, ...]] = (1.0, 2.0, 4.0)

    @property
    def count(self) -> int:
        """Number of records."""
        return self.rows // 2

    @cached_property
    def explained(self) -> FloatArray:
        """Part of the response that the axes explain (records,)."""
        return self.explained_at(self.signal_points)

    def explained_at(self, unit: FloatArray) -> FloatArray:
        """Part of the response that the axes explain at positions (m, signals)."""
        return np.asarray((2 * unit - 1).sum(axis=1) * math.sqrt(EXPLAINED / self.signals))

    def density(self, positions: FloatArray) -> FloatArray:
        """Density of records along an axis."""
        deviations = (2 * positions - 1) / TYPICAL_STD
        return np.asarray(np.exp(-(deviations**2) / 2) * 2 / (TYPICAL_STD * math.sqrt(2 * math.pi)))

    @property
    def outcomes(self) -> tuple[FloatArray, FloatArray]:
        """Five residuals, as likely as each other."""
        residuals = math.sqrt(UNEXPLAINED) * np.array(_RESIDUALS)
        labels = np.clip(self.explained + residuals[:, None], -1.0, 1.0)
        return labels, np.full(labels.shape, 1 / len(labels))

    def risk(self, scores: FloatArray, variance: FloatArray) -> tuple[float, float]:
        """Excess risk, twice."""
        excess = float((np.square(scores[:, 0] - self.explained) + variance).mean())
        return excess, excess

    def note(
        self, private: tuple[float, float], plain: tuple[float, float] | None = None
    ) -> tuple[str, ...]:
        """Text of the risks in the response's units."""
        constant = EXPLAINED * TYPICAL_STD**2
        risks = (private[0], plain[0] if plain else 0.0, constant)
        errors = [f"{self.radius * math.sqrt(risk + UNEXPLAINED):.4g}" for risk in risks]
        excess = [f"{self.radius**2 * risk:.3g}" for risk in risks]
        same = "the same" if plain else "least squares"
        return _prediction_lines(
            "predictions are off by {} (without privacy {}; a constant {})".format(*errors),
            (
                f"excess risk {excess[0]}; {same} without privacy {excess[1]}; a constant "
                f"{excess[2]}",
                "typical records spread over an eighth of their bounds, the axes explain half of "
                f"the response's variance{self._about_lists()}",
            ),
            private[0] / constant,
        )


@dataclass(frozen=True)
class TypicalClasses(Typical):
    """Records of q classes, with log odds of deviation 2; by log loss, or by wrong classes."""

    classes: int = 2
    logistic: bool = True
    weights: ClassVar[tuple[float, ...]] = (4.0, 8.0, 16.0)

    @property
    def models(self) -> int:  # type: ignore[override] # usually it is one
        """One, or one a class."""
        return 1 if self.classes == 2 else self.classes

    @property
    def count(self) -> int:
        """Number of records, fewer for more classes."""
        return max(_MIN_RECORDS, self.rows // self.classes)

    @cached_property
    def shares(self) -> FloatArray:
        """Probability of each class (records, q)."""
        directions, distance = _directions(self.classes, self.signals)
        scores = (2 * self.signal_points - 1) @ directions.T * (_LOG_ODDS / TYPICAL_STD / distance)
        return np.exp(scores - _log_sum_exp(scores)[:, None])

    @property
    def outcomes(self) -> tuple[FloatArray, FloatArray]:
        """All classes; two of them as -1 and 1."""
        labels = np.arange(float(self.classes))
        labels = 2 * labels - 1 if self.classes == 2 else labels
        return np.broadcast_to(labels[:, None], self.shares.T.shape), self.shares.T

    def risk(self, scores: FloatArray, variance: FloatArray) -> tuple[float, float]:
        """Mean log loss and fraction of wrong classes; for other losses that twice.

        One column is of the second class.
        """
        between = variance if scores.shape[1] == 1 else 2 * variance
        if scores.shape[1] == 1:
            scores = np.column_stack([np.zeros(len(scores)), scores])
        scale = np.maximum(np.sqrt(3 * between) / math.pi, _MIN_PROBABILITY)[:, None]
        right = np.exp(scores / scale - _log_sum_exp(scores / scale)[:, None])
        wrong = float(1 - (self.shares * right).sum(axis=1).mean())
        if not self.logistic:
            return wrong, wrong
        heat = np.sqrt(1 + math.pi / 8 * between)
        losses = heat * _log_sum_exp(scores / heat[:, None]) - (self.shares * scores).sum(axis=1)
        return float(losses.mean()), wrong

    def note(
        self, private: tuple[float, float], plain: tuple[float, float] | None = None
    ) -> tuple[str, ...]:
        """Text of the risks."""
        logarithms = np.log(np.maximum(self.shares, _MIN_PROBABILITY))
        bayes_loss = float(-(self.shares * logarithms).sum(axis=1).mean())
        loss, wrong = plain or (bayes_loss, float(1 - self.shares.max(axis=1).mean()))
        constant, worst = 1 - 1 / self.classes, math.log(self.classes) - bayes_loss
        lost = (private[1] - wrong) / max(constant - wrong, _MIN_PROBABILITY)
        enough = [f"{LARGE_CLASS} {1 - private[1]:.0%} of the rows: that class for all is as good"]
        enough *= lost > _NOTED_LOSS
        text = (
            f"of equally large classes {percent(private[1])} are wrong (without privacy "
            f"{percent(wrong)}; one class for all {percent(constant)})"
        )
        if not self.logistic:
            return _prediction_lines(text, (self.about, *enough), lost)
        excess = private[0] - bayes_loss
        losses = (
            f"excess log loss {excess:.3g}; the same without privacy {loss - bayes_loss:.3g}; a "
            f"constant {worst:.3g}"
        )
        return _prediction_lines(text, (losses, self.about, *enough), excess / worst)

    @property
    def about(self) -> str:
        """Text of what the records are."""
        return (
            "typical classes are as large as each other, records spread over an eighth of their "
            f"bounds, log odds have a standard deviation of {_LOG_ODDS:g}{self._about_lists()}"
        )


@dataclass(frozen=True)
class TypicalBayes(TypicalClasses):
    """Records of classes of equal size, of normal laws that are `_CLASS_DISTANCE` from the next.

    Of each class there are as many records as of any other, one class after the other.
    """

    logistic: bool = False
    std: float = TYPICAL_STD / 2

    @property
    def count(self) -> int:
        """Number of records of all classes."""
        return super().count * self.classes

    @cached_property
    def means(self) -> FloatArray:
        """Means of u in [-1/2, 1/2], (classes, axes)."""
        directions, distance = _directions(self.classes, self.axes)
        return directions * min(_MAX_MEAN, _CLASS_DISTANCE * TYPICAL_STD / 2 / distance)

    @cached_property
    def signal_points(self) -> FloatArray:
        """Positions in the unit cube (records, signals)."""
        spread = self.std * _normal(super().count, self.signals)
        return np.clip(0.5 + (self.means[:, None, :] + spread).reshape(-1, self.signals), 0.0, 1.0)

    @cached_property
    def shares(self) -> FloatArray:
        """One for a record's class (records, q)."""
        return np.repeat(np.eye(self.classes), super().count, axis=0)

    @property
    def about(self) -> str:
        """Text of what the records are."""
        return (
            "typical classes are as large as each other, spread over an eighth of the "
            f"bounds and are {_CLASS_DISTANCE:g} times that apart{self._about_lists()}"
        )


def _prediction_lines(prediction: str, about: tuple[str, ...], lost: float) -> tuple[str, ...]:
    """Lines of a prediction, with a warning where it loses nearly what a constant does."""
    lines = (TYPICAL + prediction, *about)
    return lines if lost < _WARNED_LOSS else (*lines, WARNING)


def _directions(classes: int, axes: int) -> tuple[FloatArray, float]:
    """Directions of classes (classes, axes), and the distance of the first two."""
    turns = 2 * np.pi * np.arange(classes)[:, None] / classes
    directions = np.cos(turns + np.pi * np.arange(axes) / axes)
    return directions, float(np.linalg.norm(directions[0] - directions[1]))


def _log_sum_exp(scores: FloatArray) -> FloatArray:
    largest = scores.max(axis=1)
    return np.asarray(largest + np.log(np.exp(scores - largest[:, None]).sum(axis=1)))


def _normal(count: int, axes: int) -> FloatArray:
    """Quantiles of independent normal laws at a low-discrepancy sequence, (count, axes).

    scipy takes longer to import than a plan.
    """
    levels = np.clip(_spread(count, axes), 1 / count, 1 - 1 / count)
    values = [_NORMAL.inv_cdf(level) for level in levels.ravel().tolist()]
    return np.array(values).reshape(count, axes)


def _spread(count: int, axes: int) -> FloatArray:
    """A low-discrepancy sequence in the unit cube, (count, axes)."""
    return np.asarray(np.arange(1, count + 1)[:, None] * np.sqrt(_primes(axes)) % 1.0)


def _primes(count: int) -> FloatArray:
    primes: list[int] = []
    number = 2
    while len(primes) < count:
        if all(number % prime for prime in primes):
            primes.append(number)
        number += 1
    return np.array(primes, dtype=np.float64)
