"""Predictions of a learner's risk for typical records, from public facts and draws of noise.

Nothing here reads a record or proves anything: a prediction tells a steward whether a release is
worth its charge, before it is spent.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist

import numpy as np

from dbern.combination.gaussian_scores import GaussianScores
from dbern.erm.measurement import LinearFunctions
from dbern.erm.objective import (
    LISTED,
    PerturbedObjective,
    PerturbedRisk,
    Separate,
    Softmax,
)
from dbern.erm.perturbed import CONSTANT, ROUNDED, PerturbedFunctions, lists_share, loss_of
from dbern.erm.solver import minimize
from dbern.privacy.accuracy import public_stream
from dbern.privacy.families import covariance_of
from dbern.privacy.laplace import discrete_laplace
from dbern.privacy.mechanism import Noise
from dbern.privacy.perturbation import penalty_weight, tied_charge
from dbern.strategies.base import Entries
from dbern.strategies.moments import Measured, Moments, least_squares
from dbern.types import FloatArray

_DRAWS = 32
TYPICAL_STD = 0.25
EXPLAINED = 0.5
_PLACES = 1 << 10
_NORMAL = NormalDist()
_GRANULES = 1 << 20
WARNING = (
    "WARNING: no better than a constant predictor is to be expected. Write a larger epsilon, "
    "fewer axes, or bounds nearer to the records."
)


def typical_variances(axes: int) -> FloatArray:
    """Variances of typical columns along their directions: each leaves half to the next.

    Where methods are compared columns may determine each other, the more so the more there are; of
    two the second still has half of its variance, of six the last a thirty-second.
    """
    return np.asarray(TYPICAL_STD**2 * 0.5 ** np.arange(axes))


@dataclass(frozen=True)
class Predicted:
    """Excess risks on typical records, in squared units of half the response's bounds.

    Typical records spread over an eighth of their bounds (one standard deviation), around the
    middle, their axes are independent, and explain half of the response's variance. The excess risk
    is the mean squared error above that of least squares without privacy: `excess` is that of the
    release, `constant` that of the mean response, and `rest` the mean squared error of least
    squares without privacy.
    """

    excess: float
    constant: float = EXPLAINED * TYPICAL_STD**2
    rest: float = (1 - EXPLAINED) * TYPICAL_STD**2

    def note(self, radius: float, plain: float | None = None) -> tuple[str, ...]:
        """Text of the risks in the response's units, with a warning where a constant is as good.

        `plain` is the same without privacy, where that is not least squares.
        """
        ours, other, least = (
            f"{radius**2 * risk:.3g} (RMSE {radius * math.sqrt(risk + self.rest):.4g})"
            for risk in (self.excess, self.constant, plain or 0.0)
        )
        same = "least squares" if plain is None else "the same"
        lines = (
            f"predicted excess risk {ours}; a constant predictor {other}; {same} without privacy "
            f"{least}",
            "predicted for records that spread over an eighth of their bounds, the axes "
            "explaining half of the response's variance",
        )
        if self.excess < 0.9 * self.constant:
            return lines
        return (*lines, WARNING)


def _typical_products(moments: Moments) -> FloatArray:
    """Means of products of all columns, the first of ones: values of lists are as frequent.

    Each number and each list explains the same share of the response's variance.
    """
    explained = math.sqrt(EXPLAINED / max(1, moments.numbers - 1 + len(moments.blocks)))
    found = np.zeros((1 + moments.columns,) * 2)
    found[0, 0], start = 1.0, 1
    means, covariance = found[0], found[1:, 1:]
    for size in moments.blocks:
        own, at = slice(start - 1, start - 1 + size), slice(start, start + size)
        pattern = np.linspace(-1.0, 1.0, size)
        means[at] = 1 / size
        covariance[own, own] = np.eye(size) / size - 1 / size**2
        covariance[own, -1] = explained * TYPICAL_STD * pattern / pattern.std() / size
        start += size
    numbers = slice(start - 1, moments.columns)
    covariance[numbers, numbers] = TYPICAL_STD**2 * np.eye(moments.numbers)
    covariance[numbers, -1] = explained * TYPICAL_STD**2
    covariance[-1, -1] = TYPICAL_STD**2
    covariance[-1] = covariance[:, -1]
    found[1:, 1:] += np.outer(means[1:], means[1:])
    found[1:, 0] = means[1:]
    return found


def _typical_slopes(axes: int) -> tuple[FloatArray, FloatArray]:
    """Covariance of typical axes and the response in [-1, 1], and its least squares."""
    slopes = np.full(axes, math.sqrt(EXPLAINED / axes))
    covariance = np.eye(axes + 1)
    covariance[-1, :-1] = covariance[:-1, -1] = slopes
    return TYPICAL_STD**2 * covariance, slopes


def predicted_moments(moments: Moments, law: Noise, ridge: float | None) -> Predicted:
    """Predict the excess risk by draws of the planned noise, from a public stream."""
    axes, deviation = moments.columns - 1, deviation_of(law)
    products = _typical_products(moments)
    exact = moments.of_products(products)
    sure = least_squares(Measured.of(moments, exact, 0.0), axes, range(axes))
    about = products[:-1, :-1]  # of ones and columns
    truth = np.append(sure.intercept, sure.slopes)
    risks: list[float] = []
    for own in draws(law, moments.size):
        measured = Measured.of(moments, exact + own, deviation)
        fit = least_squares(measured, axes, range(axes), ridge)
        off = np.append(fit.intercept, fit.slopes) - truth
        risks.append(min(float(off @ about @ off), 4.0))
    return Predicted(float(np.mean(risks)))


def predicted_weights(
    axes: int, cost: float, constant: float, law: Noise, radius: float
) -> Predicted:
    """Predict the excess risk of noisy weights of the paper's form, on typical records.

    Records are quantiles of a low-discrepancy sequence, projected to the unit ball as released.
    """
    spread = TYPICAL_STD * _normal(_PLACES, axes)
    _, slopes = _typical_slopes(axes)
    wanted, positions = radius * spread @ slopes, np.clip((spread + 1) / 2, 0.0, 1.0)
    plain = np.column_stack([positions, np.full(_PLACES, constant)])
    lengths = np.linalg.norm(positions, axis=1, keepdims=True)
    features = np.column_stack([positions / np.maximum(lengths, 1.0), plain[:, -1]])
    gram = features.T @ features / _PLACES + np.eye(axes + 1) / cost
    off = plain @ np.linalg.solve(gram, features.T @ wanted / _PLACES) - wanted
    noise = deviation_of(law) ** 2 * np.square(plain).sum(axis=1).mean()
    return Predicted(float(np.square(off).mean() + noise) / radius**2)


def _primes(count: int) -> FloatArray:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % one for one in found):
            found.append(number)
        number += 1
    return np.array(found, dtype=np.float64)


def deviation_of(law: Noise) -> float:
    """Standard deviation of a law, in the units of values."""
    return math.ldexp(covariance_of(law).deviation, law.granularity_exponent)


# --- Classes by linear functions

_LOG_ODDS = 2.0
"""Standard deviation of the log odds of neighbouring classes: a model that is worth learning."""
_NARROW, _WEIGHTS = 0.05, (4.0, 8.0, 16.0)  # for which the penalty is chosen
_FLAT = 0.15  # of the second derivative of the logistic loss there, on average
FEW = 8
"""Draws of noise, where each takes long."""


def determinant_share(
    n: int, epsilon: Fraction, loss: Softmax | Separate, typical: Typical
) -> Fraction:
    """Fraction of epsilon that the Jacobian of a perturbed objective should have.

    It makes the lost fraction of the explained risk small, to second order: with h the loss's
    curvature along an axis, Λ the penalty, v the variance of b and w a weight, ``(v/w^2 + Λ^2) / (h
    + Λ)^2``, in the mean over weights. Records spread over a fortieth of their bounds, so that
    noise and penalty are felt. A loss that is c times as curved has weights that are ``sqrt(c)``
    times smaller.
    """
    curved, size = (
        n * 4 * _FLAT * loss.bounds.diagonal * _NARROW**2,
        loss.outputs * (typical.axes + 1),
    )
    lists, curve = len(typical.lists), loss.bounds.diagonal
    square = typical.axes + CONSTANT**2 + lists * LISTED**2
    numbers = 1 - lists_share(typical.axes, typical.lists)

    def risk(share: Fraction) -> float:
        weight, left = penalty_weight(epsilon * share, curve, 1, square), epsilon * (1 - ROUNDED)
        tied = tied_charge(left, weight, 1, 1, square) if loss.tied else left - epsilon * share
        penalty = 1 / weight
        variance = (
            (2 * loss.bounds.entry / float(tied * numbers)) ** 2 * (size + 1) * (size + 2) / 3
        )
        lost = [variance / (w**2 / (4 * curve)) + penalty**2 for w in typical.weights]
        return sum(lost) / (curved + penalty) ** 2

    return min((Fraction(k, 32) for k in range(1, 30)), key=risk)


@dataclass(frozen=True)
class Typical(ABC):
    """Records that spread over an eighth of their bounds, and their labels.

    Values of lists are as frequent as each other, and tell nothing.
    """

    axes: int
    lists: tuple[int, ...]
    rows: int = field(default=_PLACES, kw_only=True)
    weights = _WEIGHTS
    radius = 1.0

    @cached_property
    def unit(self) -> FloatArray:
        """Positions in the unit cube (records, l)."""
        return np.clip((TYPICAL_STD * _normal(self.places, self.axes) + 1) / 2, 0.0, 1.0)

    @cached_property
    def codes(self) -> FloatArray:
        """Positions in the lists (records, m)."""
        found = _spread(len(self.unit), self.axes + len(self.lists))[:, self.axes :]
        return np.asarray(np.floor(found * np.array(self.lists)))

    def scores(self, weights: FloatArray) -> FloatArray:
        """Values (records, q) of linear functions of weights (q, p)."""
        own = zip(self.codes.T, self.lists, strict=True)
        listed = [np.equal.outer(codes, np.arange(size)) for codes, size in own]
        points = np.column_stack([*listed, self.unit, np.ones(len(self.unit))])
        return np.asarray(points @ weights.T)

    @property
    def told(self) -> str:
        """Note on lists, for texts."""
        return ", and lists that tell nothing" * bool(self.lists)

    @property
    @abstractmethod
    def places(self) -> int:
        """Number of records."""

    @abstractmethod
    def weighed(self, features: FloatArray, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Features, record weights, and counts of n records."""

    @abstractmethod
    def targets(self, weights: FloatArray) -> list[FloatArray]:
        """Labels of each model."""

    @abstractmethod
    def risk(self, scores: FloatArray) -> tuple[float, float]:
        """Two risks of the scores (records, q), first the one that decides."""

    @abstractmethod
    def note(
        self, ours: tuple[float, float], plain: tuple[float, float] | None = None
    ) -> tuple[str, ...]:
        """Text of the risks, with a warning where a constant is as good.

        `plain` is the same without privacy, where that is not the best there is.
        """


@dataclass(frozen=True)
class TypicalClasses(Typical):
    """Records of q classes, with log odds of deviation 2; by log loss, or by wrong classes."""

    classes: int
    logistic: bool = True

    @property
    def places(self) -> int:
        """Number of records, fewer for more classes."""
        return max(_FEWEST, self.rows // self.classes)

    @cached_property
    def shares(self) -> FloatArray:
        """Probability of each class (records, q)."""
        classes = np.arange(self.classes)[:, None]
        angles = 2 * np.pi * classes / self.classes + np.pi * np.arange(self.axes) / self.axes
        weights = np.cos(angles)
        weights *= _LOG_ODDS / TYPICAL_STD / np.linalg.norm(weights[0] - weights[1])
        return _softmax((2 * self.unit - 1) @ weights.T)

    def weighed(self, features: FloatArray, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Each record once with every class, two of them as -1 and 1."""
        rows, classes = len(features), self.classes
        labels = np.repeat(np.arange(float(classes)), rows)
        labels = 2 * labels - 1 if classes == 2 else labels
        return np.tile(features, (classes, 1)), labels, n / rows * self.shares.T.ravel()

    def targets(self, weights: FloatArray) -> list[FloatArray]:
        """Labels of one class against the rest; of two classes those of the second."""
        if self.classes == 2:
            return [weights]
        return [np.where(weights == one, 1.0, -1.0) for one in range(self.classes)]

    def risk(self, scores: FloatArray) -> tuple[float, float]:
        """Mean log loss and fraction of wrong classes; for other losses that twice.

        One column is of the second class.
        """
        alone = scores.shape[1] == 1
        scores = np.column_stack([np.zeros(len(scores)), scores]) if alone else scores
        logs = np.log(np.maximum(_softmax(scores), LEAST))
        right = np.take_along_axis(self.shares, scores.argmax(axis=1)[:, None], axis=1)
        wrong = float(1 - right.mean())
        return float(-(self.shares * logs).sum(axis=1).mean()) if self.logistic else wrong, wrong

    def note(
        self, ours: tuple[float, float], plain: tuple[float, float] | None = None
    ) -> tuple[str, ...]:
        """Text of the risks, with a warning where a constant is as good."""
        least = float(-(self.shares * np.log(self.shares)).sum(axis=1).mean())
        loss, wrong = plain or (least, float(1 - self.shares.max(axis=1).mean()))
        constant, excess, worst = 1 - 1 / self.classes, ours[0] - least, math.log(self.classes)
        worst -= least
        first = (
            f"predicted excess risk {excess:.3g} (log loss; {ours[1]:.3g} wrong classes); a "
            f"constant predictor {worst:.3g} ({constant:.3g}); without privacy {loss - least:.3g} "
            f"({wrong:.3g})"
        )
        if not self.logistic:
            excess, worst = ours[1] - wrong, constant - wrong
            first = (
                f"predicted share of wrong classes {ours[1]:.3g}; a constant predictor "
                f"{constant:.3g}; without privacy {wrong:.3g}"
            )
        lines = (
            first,
            "predicted for classes as large as each other, records that spread over an eighth of "
            f"their bounds, and log odds of standard deviation {_LOG_ODDS:g}{self.told}",
        )
        return lines if excess < 0.9 * worst else (*lines, WARNING)


_RESIDUALS = (-1.461, -0.598, 0.0, 0.598, 1.461)
"""Quantiles of a normal law, moved apart for its variance."""


@dataclass(frozen=True)
class TypicalResponses(Typical):
    """Records of a response in [-1, 1], half of it explained; by `Predicted`'s excess risk."""

    radius: float
    weights = (1.0, 2.0, 4.0)  # half of them of narrow numbers that explain as much as typical ones

    @property
    def places(self) -> int:
        """Number of records, each with five residuals."""
        return self.rows // 2

    @cached_property
    def wanted(self) -> FloatArray:
        """Part of the response that the axes explain (records,)."""
        return self.at(self.unit)

    def at(self, unit: FloatArray) -> FloatArray:
        """Part of the response that the axes explain at positions (m, l)."""
        return np.asarray((2 * unit - 1) @ _typical_slopes(self.axes)[1])

    def density(self, positions: FloatArray) -> FloatArray:
        """Density of records along an axis."""
        apart = (2 * positions - 1) / TYPICAL_STD
        return np.asarray(np.exp(-(apart**2) / 2) * 2 / (TYPICAL_STD * math.sqrt(2 * math.pi)))

    def weighed(self, features: FloatArray, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Each record with five residuals, as likely as each other."""
        rows, rest = len(features), TYPICAL_STD * math.sqrt(1 - EXPLAINED)
        responses = [self.wanted + rest * one for one in _RESIDUALS]
        counts = np.full(len(_RESIDUALS) * rows, n / rows / len(_RESIDUALS))
        tiled = np.tile(features, (len(_RESIDUALS), 1))
        return tiled, np.clip(np.concatenate(responses), -1.0, 1.0), counts

    def targets(self, weights: FloatArray) -> list[FloatArray]:
        """Responses as labels."""
        return [weights]

    def risk(self, scores: FloatArray) -> tuple[float, float]:
        """Excess risk, twice."""
        off = float(np.square(scores[:, 0] - self.wanted).mean())
        return off, off

    def note(
        self, ours: tuple[float, float], plain: tuple[float, float] | None = None
    ) -> tuple[str, ...]:
        """Text of the risks in the response's units."""
        without = None if plain is None else plain[0]
        first, second, *warning = Predicted(ours[0]).note(self.radius, without)
        return first, second + self.told, *warning


def predicted_perturbed(typical: Typical, functions: PerturbedFunctions) -> tuple[float, float]:
    """Predict the risk of a perturbed objective, by public draws."""
    risk, functions = functions.risk, replace(functions, radius=1.0)
    constants = np.full(len(typical.unit), CONSTANT)
    features = np.column_stack([typical.codes, 2 * typical.unit - 1, constants])
    rows, labels, counts = typical.weighed(features, functions.model.n)
    found = []
    for draw in range(FEW):
        b = risk.drawn(public_stream("predicted", draw))[0]
        problem = PerturbedObjective(risk, rows, risk.loss.labels(labels), counts, b)
        state = minimize(problem, risk.bounds.tolerance).state
        weights = functions.released(risk.truncated(state))
        found.append(typical.risk(typical.scores(weights)))
    return mean_of(found)


def predicted_released(
    typical: Typical, model: LinearFunctions, epsilon: Fraction
) -> tuple[float, float]:
    """Predict the risk of noisy weights of the paper's form, one model a class."""
    axes, n = typical.axes, model.n
    constant = model.space.kernel.constant
    points = model.space.points(typical.unit)
    features = np.column_stack([points, np.full(len(points), constant)])
    rows, labels, counts = typical.weighed(features, n)
    radii = (1.0,) * axes + (max(1.0, constant),)
    risk = PerturbedRisk(replace(loss_of(model), outputs=1), n, radii, model.cost / n, float(n))
    nothing = np.zeros((1, axes + 1))
    problems = (
        PerturbedObjective(risk, rows, risk.loss.labels(targets), counts, nothing)
        for targets in typical.targets(labels)
    )
    states = [minimize(problem, risk.bounds.tolerance).state for problem in problems]
    weights, lengths = np.vstack(states), np.append(np.ones(axes), constant)
    scale = model.sensitivity(Entries(weights.size), 1).value / model.radius / n / float(epsilon)
    zeros = np.zeros(FEW * weights.size, dtype=np.int64)
    noise = discrete_laplace(_GRANULES, zeros.size, public_stream("predicted", 0)).added_to(zeros)
    drawn = scale / _GRANULES * noise.reshape(FEW, *weights.shape)
    return mean_of([typical.risk(typical.scores((weights + one) * lengths)) for one in drawn])


def mean_of(found: list[tuple[float, float]]) -> tuple[float, float]:
    """Mean of pairs, number by number."""
    loss, wrong = np.mean(found, axis=0).tolist()
    return loss, wrong


def _softmax(scores: FloatArray) -> FloatArray:
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


# --- Gaussian naive Bayes

_APART = 1.35
"""Deviations between neighbouring classes: two of them are told apart in three of four cases."""
_FARTHEST = 0.375  # from the middle of the bounds: so many classes are nearer to each other
_MOST_LIKELIHOODS = 1 << 24  # of all draws of a prediction: some seconds
_FEWEST = 32
LEAST = 1e-12
UNPREDICTED = ("no prediction: for so many classes and columns it would take long",)


@dataclass(frozen=True)
class TypicalBayes:
    """Records of classes of equal size, of normal laws that are `_APART`; lists tell nothing.

    Of each class there are as many records as of any other, one class after the other.
    """

    axes: int
    classes: int
    lists: tuple[int, ...]
    std: float = TYPICAL_STD / 2
    rows: int = _PLACES

    @cached_property
    def means(self) -> FloatArray:
        """Means of u in [-1/2, 1/2], (classes, axes)."""
        angles = 2 * np.pi * np.arange(self.classes)[:, None] / self.classes
        means = np.cos(angles + np.pi * np.arange(self.axes) / self.axes)
        apart = float(np.linalg.norm(means[0] - means[1]))
        return np.asarray(means * min(_FARTHEST, _APART * TYPICAL_STD / 2 / apart))

    @property
    def count(self) -> int:
        """Number of a class's records."""
        return max(_FEWEST, self.rows // self.classes)

    @cached_property
    def unit(self) -> FloatArray:
        """Positions (records, axes)."""
        spread = self.std * _normal(self.count, self.axes)
        return np.clip(0.5 + (self.means[:, None, :] + spread).reshape(-1, self.axes), 0.0, 1.0)

    @cached_property
    def features(self) -> FloatArray:
        """Listed values and positions."""
        index = np.arange(len(self.unit))[:, None]
        return np.hstack([*(index % size == np.arange(size) for size in self.lists), self.unit])

    @property
    def cells(self) -> FloatArray:
        """A class's share and those of its listed values, if it had all records."""
        return np.concatenate([[1.0], *(np.full(size, 1 / size) for size in self.lists)])

    def wrong(self, decisions: FloatArray) -> float:
        """Fraction of records that get another class."""
        codes = decisions > 0 if self.classes == 2 else decisions.argmax(axis=1)
        truth = np.repeat(np.arange(self.classes), len(self.unit) // self.classes)
        return float(np.mean(codes != truth))

    def note(self, ours: float, least: float) -> tuple[str, ...]:
        """Text of the fractions of wrong classes, with a warning where a constant is as good."""
        constant = 1 - 1 / self.classes
        lines = (
            f"predicted share of wrong classes {ours:.3g}; a constant predictor {constant:.3g}; "
            f"without privacy {least:.3g}",
            "predicted for classes as large as each other, which spread over an eighth of the "
            f"bounds and are {_APART:g} times that apart"
            + ", and lists that tell nothing"
            * bool(self.lists),
        )
        return lines if ours - least < 0.9 * (constant - least) else (*lines, WARNING)


def bayes_notes(combination: GaussianScores, law: Noise) -> tuple[str, ...]:
    """Predict the share of wrong classes of Gaussian naive Bayes, and warn where it is no better.

    There is no prediction for so many classes and axes that it would take many seconds.
    """
    axes, classes = len(combination.peaks), len(combination.classes)
    std = max(TYPICAL_STD / 2, *combination.floors)
    typical = TypicalBayes(axes, classes, combination.lists, std)
    count = min(_DRAWS, _MOST_LIKELIHOODS // (typical.count * classes**2 * axes))
    if count < 2:
        return UNPREDICTED
    means = typical.means
    sums = np.hstack([2 * means, 4 * (means**2 + std**2) - 0.5])
    cells = np.tile(typical.cells, (classes, 1))
    exact = np.hstack([cells[:, :1], sums, cells[:, 1:]]).ravel() / classes

    def wrong(released: FloatArray, deviation: float) -> float:
        return typical.wrong(combination.decisions([released], typical.features, [deviation]))

    noise, deviation = draws(law, exact.size), deviation_of(law)
    ours = float(np.mean([wrong(exact + own, deviation) for own in noise[:count]]))
    return typical.note(ours, wrong(exact, LEAST))


def _normal(count: int, axes: int) -> FloatArray:
    """Quantiles of independent normal laws at a low-discrepancy sequence, (count, axes)."""
    return normal_quantiles(np.clip(_spread(count, axes), 1 / count, 1 - 1 / count))


def normal_quantiles(shares: FloatArray) -> FloatArray:
    """Quantiles of the standard normal law: scipy takes longer to import than a plan."""
    found = [_NORMAL.inv_cdf(share) for share in shares.ravel().tolist()]
    return np.array(found).reshape(shares.shape)


def _spread(count: int, axes: int) -> FloatArray:
    """A low-discrepancy sequence in the unit cube, (count, axes)."""
    return np.asarray(np.arange(1, count + 1)[:, None] * np.sqrt(_primes(axes)) % 1.0)


def draws(law: Noise, size: int) -> FloatArray:
    """Draws of the law from a public stream, in the units of values, (draws, size)."""
    zeros = np.zeros(_DRAWS * size, dtype=np.int64)
    drawn = law.draw(zeros.size, public_stream("predicted", 0)).added_to(zeros).astype(np.float64)
    return np.ldexp(drawn, law.granularity_exponent).reshape(_DRAWS, size)
