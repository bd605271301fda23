"""What a plan predicts of a learner's risk, for typical records: public facts and draws of noise.

Nothing here reads a record or proves anything: a prediction tells a steward whether a release is
worth its charge, before it is spent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dbern.combination import Combination
from dbern.privacy.accuracy import public_stream
from dbern.privacy.families import family_of
from dbern.privacy.mechanism import Noise
from dbern.strategies.moments import Measured, Moments, least_squares
from dbern.types import FloatArray

_DRAWS = 32
_TYPICAL_STD = 0.25
_EXPLAINED = 0.5
_PLACES = 1 << 10
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


def _typical_slopes(axes: int) -> tuple[FloatArray, FloatArray]:
    """Return the covariance of typical axes and the response in [-1, 1], and its least squares."""
    slopes = np.full(axes, math.sqrt(_EXPLAINED / axes))
    covariance = np.eye(axes + 1)
    covariance[-1, :-1] = covariance[:-1, -1] = slopes
    return _TYPICAL_STD**2 * covariance, slopes


def predicted_moments(moments: Moments, law: Noise, ridge: float | None) -> Predicted:
    """Predict the excess risk by draws of the planned noise, from a public stream."""
    axes = moments.numbers - 1
    covariance, slopes = _typical_slopes(axes)
    exact = np.zeros(moments.size)
    exact[0] = moments.weight
    exact[1 + moments.numbers :] = (covariance - np.eye(moments.numbers) / 2)[moments.pairs]
    deviation = deviation_of(law)
    risks: list[float] = []
    for own in _draws(law, moments.size):
        measured = Measured.of(moments, exact + own, deviation)
        fit = least_squares(measured, axes, range(axes), ridge)
        off = fit.slopes - slopes
        risks.append(min(float(fit.intercept**2 + off @ covariance[:-1, :-1] @ off), 4.0))
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
    family = family_of(law)
    return math.ldexp(family.deviation * family.scale(law), law.granularity_exponent)


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
    if axes * classes > _MOST_LIKELIHOODS:
        return ()
    angles = 2 * np.pi * np.arange(classes)[:, None] / classes + np.pi * np.arange(axes) / axes
    means = np.cos(angles)
    means *= _APART * _TYPICAL_STD / 2 / np.linalg.norm(means[0] - means[1])  # of u, in [-1/2, 1/2]
    std = max(_TYPICAL_STD / 2, *combination.floors)
    spread = std * _normal(max(_FEWEST, _PLACES // classes), axes)
    unit = 0.5 + (means[:, None, :] + spread).reshape(-1, axes)
    truth = np.repeat(np.arange(classes), len(spread))
    sums = np.hstack([2 * means, 4 * (means**2 + std**2) - 0.5])
    exact = (np.hstack([np.ones((classes, 1)), sums]) / classes).ravel()

    def wrong(released: FloatArray, deviation: float) -> float:
        found = combination.decisions([released], unit, [deviation])
        codes = found > 0 if classes == 2 else found.argmax(axis=1)
        return float(np.mean(codes != truth))

    noise, deviation = _draws(law, exact.size), deviation_of(law)
    ours = float(np.mean([wrong(exact + own, deviation) for own in noise]))
    least, constant = wrong(exact, _LEAST), 1 - 1 / classes
    lines = (
        f"predicted share of wrong classes {ours:.3g}; a constant predictor {constant:.3g}; "
        f"without privacy {least:.3g}",
        "predicted for classes as large as each other, which spread over an eighth of the bounds "
        f"and are {_APART:g} times that apart",
    )
    return lines if ours - least < 0.9 * (constant - least) else (*lines, _WARNING)


def _normal(count: int, axes: int) -> FloatArray:
    """Quantiles of independent normal laws at a low-discrepancy sequence, (count, axes)."""
    places = np.arange(1, count + 1)[:, None] * np.sqrt(_primes(axes)) % 1.0
    from scipy.special import ndtri  # a third of a second, for few plans

    return np.asarray(ndtri(np.clip(places, 1 / count, 1 - 1 / count)))


def _draws(law: Noise, size: int) -> FloatArray:
    """Draws of the law from a public stream, in the units of values, (draws, size)."""
    zeros = np.zeros(_DRAWS * size, dtype=np.int64)
    drawn = law.draw(zeros.size, public_stream("predicted", 0)).added_to(zeros).astype(np.float64)
    return np.ldexp(drawn, law.granularity_exponent).reshape(_DRAWS, size)
