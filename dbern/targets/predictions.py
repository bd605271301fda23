"""What a plan predicts of a learner's risk, for typical records: public facts and draws of noise.

Nothing here reads a record or proves anything: a prediction tells a steward whether a release is
worth its charge, before it is spent.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from dbern.combination import Combination
from dbern.erm.measurement import LinearFunctions
from dbern.erm.objective import (
    LISTED,
    PerturbedObjective,
    PerturbedRisk,
    Separate,
    Softmax,
    minimized,
)
from dbern.erm.perturbed import (
    CONSTANT,
    ROUNDED,
    PerturbedFunctions,
    lists_share,
    loss_of,
)
from dbern.privacy.accuracy import public_stream
from dbern.privacy.families import covariance_of
from dbern.privacy.laplace import discrete_laplace
from dbern.privacy.mechanism import Noise
from dbern.privacy.perturbation import penalty_weight, tied_charge
from dbern.strategies.base import Entries
from dbern.strategies.moments import Measured, Moments, least_squares
from dbern.types import FloatArray

_DRAWS = 32
_TYPICAL_STD = 0.25
_EXPLAINED = 0.5
_PLACES = 1 << 10
_GRANULES = 1 << 20
_WARNING = (
    "WARNING: no better than a constant predictor is to be expected. Write a larger epsilon, "
    "fewer axes, or bounds nearer to the records."
)


@dataclass(frozen=True)
class Predicted:
    """Excess risks on typical records, in squared units of half the response's bounds.

    Typical records spread over an eighth of their bounds (one standard deviation), around the
    middle, their axes are independent, and explain half of the response's variance. The excess risk
    is the mean squared error above that of least squares without privacy.

    Attributes
    ----------
    excess, constant : float
        Of the release, and of a constant: the mean response.
    rest : float
        The mean squared error of least squares without privacy.
    """

    excess: float
    constant: float = _EXPLAINED * _TYPICAL_STD**2
    rest: float = (1 - _EXPLAINED) * _TYPICAL_STD**2

    def note(self, radius: float) -> tuple[str, ...]:
        """Say it in the response's units, with a warning where a constant is as good."""
        ours, other, least = (
            radius * math.sqrt(risk + self.rest) for risk in (self.excess, self.constant, 0.0)
        )
        lines = (
            f"predicted excess risk {radius**2 * self.excess:.3g} (RMSE {ours:.4g}); a constant "
            f"predictor {radius**2 * self.constant:.3g} (RMSE {other:.4g}); least squares without "
            f"privacy 0 (RMSE {least:.4g})",
            "predicted for records that spread over an eighth of their bounds, the axes "
            "explaining half of the response's variance",
        )
        if self.excess < 0.9 * self.constant:
            return lines
        return (*lines, _WARNING)


def _typical_products(moments: Moments) -> FloatArray:
    """Return means of products of all columns, the first of ones: values of lists are as frequent.

    Each number and each list explains the same share of the response's variance.
    """
    explained = math.sqrt(_EXPLAINED / max(1, moments.numbers - 1 + len(moments.blocks)))
    found = np.zeros((1 + moments.columns,) * 2)
    found[0, 0], start = 1.0, 1
    means, covariance = found[0], found[1:, 1:]
    for size in moments.blocks:
        own, at = slice(start - 1, start - 1 + size), slice(start, start + size)
        pattern = np.linspace(-1.0, 1.0, size)
        means[at] = 1 / size
        covariance[own, own] = np.eye(size) / size - 1 / size**2
        covariance[own, -1] = explained * _TYPICAL_STD * pattern / pattern.std() / size
        start += size
    numbers = slice(start - 1, moments.columns)
    covariance[numbers, numbers] = _TYPICAL_STD**2 * np.eye(moments.numbers)
    covariance[numbers, -1] = explained * _TYPICAL_STD**2
    covariance[-1, -1] = _TYPICAL_STD**2
    covariance[-1] = covariance[:, -1]
    found[1:, 1:] += np.outer(means[1:], means[1:])
    found[1:, 0] = means[1:]
    return found


def _typical_slopes(axes: int) -> tuple[FloatArray, FloatArray]:
    """Return the covariance of typical axes and the response in [-1, 1], and its least squares."""
    slopes = np.full(axes, math.sqrt(_EXPLAINED / axes))
    covariance = np.eye(axes + 1)
    covariance[-1, :-1] = covariance[:-1, -1] = slopes
    return _TYPICAL_STD**2 * covariance, slopes


def predicted_moments(moments: Moments, law: Noise, ridge: float | None) -> Predicted:
    """Predict the excess risk by draws of the planned noise, from a public stream."""
    axes, deviation = moments.columns - 1, deviation_of(law)
    products = _typical_products(moments)
    exact = moments.of_products(products)
    sure = least_squares(Measured.of(moments, exact, 0.0), axes, range(axes))
    about = products[:-1, :-1]  # of ones and columns
    truth = np.append(sure.intercept, sure.slopes)
    risks: list[float] = []
    for own in _draws(law, moments.size):
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
    spread = _TYPICAL_STD * _normal(_PLACES, axes)
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
    """Return the standard deviation of a law, in the units of values."""
    return math.ldexp(covariance_of(law).deviation, law.granularity_exponent)


# --- Classes by linear functions

_LOG_ODDS = 2.0
"""Standard deviation of the log odds of neighbouring classes: a model that is worth learning."""
_NARROW, _WEIGHTS = 0.05, (4.0, 8.0, 16.0)  # for which the penalty is chosen
_FLAT = 0.15  # of the second derivative of the logistic loss there, on average
_FEW = 8


def determinant_share(
    n: int, epsilon: Fraction, loss: Softmax | Separate, typical: Typical
) -> Fraction:
    """Return the fraction of epsilon that the Jacobian of a perturbed objective should have.

    It makes small what share of the explained risk is lost, to second order: with h the loss's
    curvature along an axis, Λ the penalty, v the variance of b and w a weight, ``(v/w^2 + Λ^2) /
    (h + Λ)^2``, in the mean over weights. Records spread over a fortieth of their bounds, so that
    noise and penalty are felt. A loss that is c times as curved has weights that are ``sqrt(c)``
    times smaller.
    """
    curved, size = n * 4 * _FLAT * loss.diagonal * _NARROW**2, loss.outputs * (typical.axes + 1)
    lists, curve = len(typical.lists), loss.diagonal
    square = typical.axes + CONSTANT**2 + lists * LISTED**2
    numbers = 1 - lists_share(typical.axes, typical.lists)

    def risk(share: Fraction) -> float:
        weight, left = penalty_weight(epsilon * share, curve, 1, square), epsilon * (1 - ROUNDED)
        tied = tied_charge(left, weight, 1, 1, square) if loss.tied else left - epsilon * share
        penalty = 1 / weight
        variance = (2 * loss.entry / float(tied * numbers)) ** 2 * (size + 1) * (size + 2) / 3
        lost = [variance / (w**2 / (4 * curve)) + penalty**2 for w in typical.weights]
        return sum(lost) / (curved + penalty) ** 2

    return min((Fraction(k, 32) for k in range(1, 30)), key=risk)


@dataclass(frozen=True)
class Typical(ABC):
    """Records that spread over an eighth of their bounds, and what is learned of them.

    Values of lists are as frequent as each other, and tell nothing.
    """

    axes: int
    lists: tuple[int, ...]
    weights = _WEIGHTS

    @cached_property
    def unit(self) -> FloatArray:
        """Positions in the unit cube (places, l)."""
        return np.clip((_TYPICAL_STD * _normal(self.places, self.axes) + 1) / 2, 0.0, 1.0)

    @cached_property
    def codes(self) -> FloatArray:
        """Places in the lists (places, m)."""
        found = _spread(len(self.unit), self.axes + len(self.lists))[:, self.axes :]
        return np.asarray(np.floor(found * np.array(self.lists)))

    def scores(self, weights: FloatArray) -> FloatArray:
        """Return the values (places, q) of linear functions of weights (q, p)."""
        own = zip(self.codes.T, self.lists, strict=True)
        listed = [np.equal.outer(codes, np.arange(size)) for codes, size in own]
        points = np.column_stack([*listed, self.unit, np.ones(len(self.unit))])
        return np.asarray(points @ weights.T)

    @property
    def told(self) -> str:
        """What is said of lists."""
        return ", and lists that tell nothing" * bool(self.lists)

    @property
    @abstractmethod
    def places(self) -> int:
        """How many there are."""

    @abstractmethod
    def weighed(self, features: FloatArray, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return features, what they count as, and counts of n records."""

    @abstractmethod
    def targets(self, weights: FloatArray) -> list[FloatArray]:
        """Return labels of one model each."""

    @abstractmethod
    def risk(self, weights: FloatArray) -> tuple[float, float]:
        """Return what makes weights (q, p) good or bad, first what decides."""

    @abstractmethod
    def note(self, ours: tuple[float, float]) -> tuple[str, ...]:
        """Say it, with a warning where a constant is as good."""


@dataclass(frozen=True)
class TypicalClasses(Typical):
    """Of q classes, with log odds of deviation 2; by log loss, or by the share of wrong classes."""

    classes: int
    logistic: bool = True

    @property
    def places(self) -> int:
        """Fewer for more classes."""
        return max(_FEWEST, _PLACES // self.classes)

    @cached_property
    def shares(self) -> FloatArray:
        """Each class's probability (places, q)."""
        classes = np.arange(self.classes)[:, None]
        angles = 2 * np.pi * classes / self.classes + np.pi * np.arange(self.axes) / self.axes
        weights = np.cos(angles)
        weights *= _LOG_ODDS / _TYPICAL_STD / np.linalg.norm(weights[0] - weights[1])
        return _softmax((2 * self.unit - 1) @ weights.T)

    def weighed(self, features: FloatArray, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return each place once with every class, two of them as -1 and 1."""
        rows, classes = len(features), self.classes
        labels = np.repeat(np.arange(float(classes)), rows)
        labels = 2 * labels - 1 if classes == 2 else labels
        return np.tile(features, (classes, 1)), labels, n / rows * self.shares.T.ravel()

    def targets(self, weights: FloatArray) -> list[FloatArray]:
        """Return one class against the rest, but of two."""
        if self.classes == 2:
            return [weights]
        return [np.where(weights == one, 1.0, -1.0) for one in range(self.classes)]

    def risk(self, weights: FloatArray) -> tuple[float, float]:
        """Return mean log loss and share of wrong classes, of other losses that twice.

        One row is of the second class.
        """
        scores = self.scores(weights)
        scores = np.column_stack([np.zeros(len(scores)), scores]) if len(weights) == 1 else scores
        logs = np.log(np.maximum(_softmax(scores), _LEAST))
        right = np.take_along_axis(self.shares, scores.argmax(axis=1)[:, None], axis=1)
        wrong = float(1 - right.mean())
        return float(-(self.shares * logs).sum(axis=1).mean()) if self.logistic else wrong, wrong

    def note(self, ours: tuple[float, float]) -> tuple[str, ...]:
        """Say it, with a warning where a constant is as good."""
        least = float(-(self.shares * np.log(self.shares)).sum(axis=1).mean())
        wrong, constant = float(1 - self.shares.max(axis=1).mean()), 1 - 1 / self.classes
        excess, worst = ours[0] - least, math.log(self.classes) - least
        first = (
            f"predicted excess risk {excess:.3g} (log loss; {ours[1]:.3g} wrong classes); a "
            f"constant predictor {worst:.3g} ({constant:.3g}); without privacy 0 ({wrong:.3g})"
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
        return lines if excess < 0.9 * worst else (*lines, _WARNING)


@dataclass(frozen=True)
class TypicalResponses(Typical):
    """Of a response in [-1, 1], half of it explained by the axes; by `Predicted`'s excess risk."""

    radius: float
    weights = (1.0, 2.0, 4.0)  # half of them of narrow numbers that explain as much as typical ones

    @property
    def places(self) -> int:
        """Each with three residuals."""
        return _PLACES // 2

    @cached_property
    def wanted(self) -> FloatArray:
        """What the axes explain (places,)."""
        return (2 * self.unit - 1) @ _typical_slopes(self.axes)[1]

    def weighed(self, features: FloatArray, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return each place with three residuals, of the moments of a normal law."""
        rows, rest = len(features), _TYPICAL_STD * math.sqrt(3 * (1 - _EXPLAINED))
        responses = [self.wanted + rest * sign for sign in (-1, 0, 1)]
        counts = n / rows * np.repeat([1 / 6, 2 / 3, 1 / 6], rows)
        return np.tile(features, (3, 1)), np.clip(np.concatenate(responses), -1.0, 1.0), counts

    def targets(self, weights: FloatArray) -> list[FloatArray]:
        """Return the responses."""
        return [weights]

    def risk(self, weights: FloatArray) -> tuple[float, float]:
        """Return the excess risk, twice."""
        off = float(np.square(self.scores(weights)[:, 0] - self.wanted).mean())
        return off, off

    def note(self, ours: tuple[float, float]) -> tuple[str, ...]:
        """Say it in the response's units."""
        first, second, *warning = Predicted(ours[0]).note(self.radius)
        return first, second + self.told, *warning


def predicted_perturbed(typical: Typical, functions: PerturbedFunctions) -> tuple[float, float]:
    """Predict the risk of a perturbed objective, by public draws."""
    risk, functions = functions.risk, replace(functions, radius=1.0)
    constants = np.full(len(typical.unit), CONSTANT)
    features = np.column_stack([typical.codes, 2 * typical.unit - 1, constants])
    rows, weights, counts = typical.weighed(features, risk.n)
    found = []
    for draw in range(_FEW):
        b = risk.drawn(public_stream("predicted", draw))[0]
        problem = PerturbedObjective(risk, rows, risk.loss.labels(weights), counts, b)
        found.append(typical.risk(functions.released(risk.kept(minimized(problem)))))
    return _mean(found)


def predicted_released(
    typical: Typical, model: LinearFunctions, epsilon: Fraction
) -> tuple[float, float]:
    """Predict the same of noisy weights of the paper's form, one model a class."""
    axes, n = typical.axes, model.n
    constant = model.space.kernel.constant
    points = model.space.points(typical.unit)
    features = np.column_stack([points, np.full(len(points), constant)])
    rows, labels, counts = typical.weighed(features, n)
    radii = (1.0,) * axes + (max(1.0, constant),)
    risk = PerturbedRisk(loss_of(model).single, n, radii, model.cost / n, float(n))
    nothing = np.zeros((1, axes + 1))
    states = [
        minimized(PerturbedObjective(risk, rows, risk.loss.labels(one), counts, nothing))
        for one in typical.targets(labels)
    ]
    weights, lengths = np.vstack(states), np.append(np.ones(axes), constant)
    scale = model.sensitivity(Entries(weights.size), 1).value / model.radius / n / float(epsilon)
    zeros = np.zeros(_FEW * weights.size, dtype=np.int64)
    noise = discrete_laplace(_GRANULES, zeros.size, public_stream("predicted", 0)).added_to(zeros)
    drawn = scale / _GRANULES * noise.reshape(_FEW, *weights.shape)
    return _mean([typical.risk((weights + one) * lengths) for one in drawn])


def _mean(found: list[tuple[float, float]]) -> tuple[float, float]:
    loss, wrong = np.mean(found, axis=0).tolist()
    return loss, wrong


def _softmax(scores: FloatArray) -> FloatArray:
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


# --- Gaussian naive Bayes

_APART = 1.35
"""Deviations between neighbouring classes: two of them are told apart in three of four cases."""
_MOST_LIKELIHOODS = 400
_FEWEST = 32
_LEAST = 1e-12


def bayes_notes(combination: Combination, law: Noise) -> tuple[str, ...]:
    """Predict the share of wrong classes of Gaussian naive Bayes, and warn where it is no better.

    There is no prediction for so many classes and axes that it would take seconds.
    """
    axes, classes = len(combination.peaks), len(combination.classes)
    draws = min(_DRAWS, _DRAWS * _MOST_LIKELIHOODS // (axes * classes))
    if draws < 2:
        return ()
    angles = 2 * np.pi * np.arange(classes)[:, None] / classes + np.pi * np.arange(axes) / axes
    means = np.cos(angles)
    means *= _APART * _TYPICAL_STD / 2 / np.linalg.norm(means[0] - means[1])  # of u, in [-1/2, 1/2]
    std = max(_TYPICAL_STD / 2, *combination.floors)
    spread = std * _normal(max(_FEWEST, _PLACES // classes), axes)
    unit = 0.5 + (means[:, None, :] + spread).reshape(-1, axes)
    truth = np.repeat(np.arange(classes), len(spread))
    sums = np.hstack([2 * means, 4 * (means**2 + std**2) - 0.5])
    exact, lists = np.hstack([np.ones((classes, 1)), sums]) / classes, combination.lists
    for size in lists:  # which tell nothing, and whose noise does harm
        exact = np.hstack([exact, np.full((classes, size), 1 / size / classes)])
        value = np.arange(len(unit))[:, None] % size == np.arange(size)
        unit = np.hstack([unit[:, :-axes], value, unit[:, -axes:]])
    exact = exact.ravel()

    def wrong(released: FloatArray, deviation: float) -> float:
        found = combination.decisions([released], unit, [deviation])
        codes = found > 0 if classes == 2 else found.argmax(axis=1)
        return float(np.mean(codes != truth))

    noise, deviation = _draws(law, exact.size), deviation_of(law)
    ours = float(np.mean([wrong(exact + own, deviation) for own in noise[:draws]]))
    least, constant = wrong(exact, _LEAST), 1 - 1 / classes
    lines = (
        f"predicted share of wrong classes {ours:.3g}; a constant predictor {constant:.3g}; "
        f"without privacy {least:.3g}",
        "predicted for classes as large as each other, which spread over an eighth of the bounds "
        f"and are {_APART:g} times that apart" + ", and lists that tell nothing" * bool(lists),
    )
    return lines if ours - least < 0.9 * (constant - least) else (*lines, _WARNING)


def _normal(count: int, axes: int) -> FloatArray:
    """Quantiles of independent normal laws at a low-discrepancy sequence, (count, axes)."""
    places = _spread(count, axes)
    from scipy.special import ndtri  # a third of a second, for few plans

    return np.asarray(ndtri(np.clip(places, 1 / count, 1 - 1 / count)))


def _spread(count: int, axes: int) -> FloatArray:
    """A low-discrepancy sequence in the unit cube, (count, axes)."""
    return np.asarray(np.arange(1, count + 1)[:, None] * np.sqrt(_primes(axes)) % 1.0)


def _draws(law: Noise, size: int) -> FloatArray:
    """Draws of the law from a public stream, in the units of values, (draws, size)."""
    zeros = np.zeros(_DRAWS * size, dtype=np.int64)
    drawn = law.draw(zeros.size, public_stream("predicted", 0)).added_to(zeros).astype(np.float64)
    return np.ldexp(drawn, law.granularity_exponent).reshape(_DRAWS, size)
