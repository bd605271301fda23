"""Accuracy, on which privacy does not rest: tails of noise, and public numbers for simulations.

Certificates follow from the tails, which are rounded outward; nothing here makes noise.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np

from dbern.errors import SpecError
from dbern.privacy.calibration import GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.keystream import KEY_BYTES, KeyStream, subkey
from dbern.privacy.laplace import SignedNoise, discrete_k_norm
from dbern.types import FloatArray

# Published here for everyone to read: what it draws is reproducible and protects nothing.
_PUBLIC_KEY: Final = bytes(KEY_BYTES)
_DIGITS: Final = Context(prec=100, Emax=MAX_EMAX, Emin=MIN_EMIN)
_SLACK: Final = Fraction(1, 10**60)
_MAX_UNIFORM_NUMBERS: Final = 1 << 18  # drawn at a time
_SUMMED_TOGETHER: Final = 1 << 14

# --- Tails: what no coefficient's noise reaches
#
# Those of Laplace noise hold for the K-norm law of its scale s, X with weight w = exp(-|S|/s), S
# the sum. Let C = cosh(1/s), and phi(u) = (C - 1)/(C - cosh u) = E e^(u X_1) for |Re u| < 1/s.
#
# *Moments.* w is a mixture of cos(t S) over a Cauchy law of t, so E[e^(a'X) w] is the mean over t
# of prod phi(a_j + i t). As cosh(a + i t) has the real part cosh a cos t, and (C - A cos t)/(C - A)
# grows with A, |phi(a + i t)| <= phi(a) phi(i t), and phi(i t) > 0: so the mean is at most
# prod phi(a_j) E[w]. What follows from E e^(a'X) <= prod phi(a_j) alone follows for this law.
#
# *One value.* Given X_1 = x, w has the mean h(x) = E exp(-|x + S'|/s), S' a sum of symmetric
# log-concave variables: h is even and log-concave, too, and falls with |x|. So |X_1| is
# stochastically smaller than of Laplace noise.


def tail(noise: LaplaceNoise, coefficients: int, beta: Fraction) -> float:
    """Size that no coefficient's noise reaches, with probability at least ``1 - beta``.

    ``m g``, rounded up, for the smallest integer m >= 1 with ``cN P(|X| >= m) <= beta`` (union
    bound). With ``q = exp(-1/s)``, ``P(|X| >= m) = 2 q^m / (1 + q)``, so ``m >= s ln(2 cN / (beta
    (1 + q)))``. That is computed to 100 digits with correctly rounded operations; as s <= 2**61 the
    error is below 1e-60 for fewer than 10**30 coefficients, and 1e-60 is added before rounding up.
    The result is in the target's unit; the center's own rounding, at most g/2 + eta, is not part of
    it.
    """
    if not 0 < beta < 1 or coefficients < 1:
        raise SpecError("noise: the tail needs 0 < beta < 1 and at least one coefficient")
    digits = Context(prec=100, Emax=MAX_EMAX, Emin=MIN_EMIN)
    q = digits.exp(digits.divide(Decimal(-1), Decimal(noise.scale)))
    odds = 2 * coefficients / beta
    ratio = digits.divide(Decimal(odds.numerator), Decimal(odds.denominator))
    length = digits.ln(digits.divide(ratio, digits.add(Decimal(1), q)))
    length = digits.fma(Decimal(noise.scale), length, Decimal("1e-60"))
    granules = max(1, int(length.to_integral_value(rounding=ROUND_CEILING)))
    return _float_above(granules * noise.granularity)


def gaussian_tail(noise: GaussianNoise, coefficients: int, beta: Fraction) -> float:
    """Size that no coefficient's noise reaches, with probability at least ``1 - beta``.

    The union bound of `_gaussian_tail_granules`, in the target's unit and rounded up. Accuracy
    only.
    """
    granules = _gaussian_tail_granules(noise.sigma, coefficients, beta)
    return _float_above(granules * noise.granularity)


def weighted_tail(
    noise: LaplaceNoise, root: FloatArray, largest: FloatArray, level: float
) -> FloatArray:
    """Bound what ``sum_j w_j X_j`` exceeds with probability at most ``exp(-level)``, in granules.

    X are independent draws; of the weights only ``|w|_2 <= root`` and ``|w|_inf <= largest`` are
    used. With s the scale, ``E e^(u X) <= 1 / (1 - u^2 s^2)`` for ``u s < 1`` (as ``(cosh z - 1) /
    z^2`` increases), so ``ln E e^(u sum) <= u^2 s^2 |w|_2^2 / (1 - u^2 s^2 |w|_inf^2) <= u^2 v / (2
    (1 - c u))`` with ``v = 2 s^2 |w|_2^2``, ``c = s |w|_inf``: a sub-gamma variable, which exceeds
    ``sqrt(2 v x) + c x`` with probability at most ``e^-x`` (Boucheron, Lugosi, Massart 2013, 2.4).
    """
    return np.asarray(noise.scale * (2 * math.sqrt(level) * root + level * largest))


def gaussian_weighted_tail(
    noise: GaussianNoise, root: FloatArray, largest: FloatArray, level: float
) -> FloatArray:
    """Bound the same for Gaussian noise, sub-Gaussian: ``E e^(u X) <= e^(u^2 sigma^2 / 2)``."""
    del largest
    return np.asarray(noise.sigma * root * math.sqrt(2 * level))


def _float_above(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _gaussian_tail_granules(sigma: int, coefficients: int, beta: Fraction) -> int:
    """An integer m that no coefficient's noise reaches, with probability at least ``1 - beta``.

    The least m >= 1 with ``cN min(2, r) e^(-m^2/(2 s^2)) <= beta`` for ``r = .79789 (1/s + s/m)``
    and s = sigma (union bound). Proof that ``P(|X| >= m)`` is at most either product:

    - With S of `dbern.privacy.zcdp.rho_of`,
      ``E[e^(t X)] = e^(t^2 s^2/2) S(t s^2)/S(0) <= e^(t^2 s^2/2)``;
      Markov's inequality at ``t = m/s^2`` gives ``P(X >= m) <= e^(-m^2/(2 s^2))``, and for -X.
    - ``(m + j)^2 >= m^2 + 2 m j``, so the weights from m on sum to at most
      ``e^(-m^2/(2 s^2)) / (1 - e^(-m/s^2)) <= e^(-m^2/(2 s^2)) (1 + s^2/m)``, and
      ``S(0) >= sqrt(2 pi) s`` by Poisson's formula; ``2/sqrt(2 pi) < .79789``.

    Each logarithm errs by less than `_SLACK`, which is added. Accuracy only.

    sigma is in granules.
    """
    if not 0 < beta < 1 or coefficients < 1:
        raise SpecError("noise: the tail needs 0 < beta < 1 and at least one coefficient")

    def reached(m: int) -> bool:
        mills = Fraction(79789, 100_000) * (Fraction(1, sigma) + Fraction(sigma, m))
        odds = coefficients * min(Fraction(2), mills) / beta
        return Fraction(_DIGITS.ln(_decimal(odds))) + _SLACK > Fraction(m * m, 2 * sigma**2)

    low, high = 0, 1
    while reached(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reached(middle) else (low, middle)
    return high


def _decimal(value: Fraction) -> Decimal:
    """The value, correctly rounded to 100 digits."""
    return _DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))


# --- Covariances, and draws of several values


@dataclass(frozen=True)
class Covariance:
    """``deviation^2 ((1 - c) I + c 1 1')``, c the correlation of any two values of a component."""

    deviation: float
    correlation: float = 0.0

    def scaled(self, factor: float) -> Covariance:
        """The covariance of `factor` times the values."""
        return replace(self, deviation=self.deviation * factor)

    def variance(self, squares: FloatArray, sums: FloatArray) -> FloatArray:
        """Variance of sums of values by weights a, given their ``|a|_2^2`` and ``sum a``."""
        quadratic_form = (1 - self.correlation) * squares + self.correlation * np.square(sums)
        return np.asarray(self.deviation**2 * quadratic_form)


def independent_draws(
    law: LaplaceNoise | GaussianNoise, size: int, draws: int, stream: KeyStream
) -> FloatArray:
    """Draw vectors of `size` independent values, in granules; shape (size, draws)."""
    return _granules(law.draw(size * draws, stream)).reshape(size, draws)


def k_norm_draws(law: KNormNoise, size: int, draws: int, stream: KeyStream) -> FloatArray:
    """Draw the first `size` values of independent vectors, in granules; shape (size, draws).

    For simulations: of the very law, but for the rounding of floats, and at once. With ``R U/2`` of
    the continuous law (`k_norm_covariance`): signs are fair, and kept with probability ``C(M, p) /
    C(M, M // 2)``, as ``P(p) ~ C(M, p)^2``. In a simplex of p dimensions U is exponential variables
    over G, the sum of themselves and one more; G of both signs together is of the gamma law of M +
    2, independent of U, and ``V^(1/(M + 1))`` times that is R, V uniform. What is drawn, y, is
    rounded to x and kept with probability ``exp(-(2 N(x) - 2 N(y) + M)/s)``, at most one as ``|N(x)
    - N(y)| <= M/2``: so x has a probability proportional to ``exp(-2 N(x)/s)``.
    """
    values, batches = law.values, [np.empty((0, size))]
    if values > law.scale:  # where few would be kept
        vectors = discrete_k_norm(law.scale, values, stream, stream.second())
        return np.stack(
            [_granules(vector)[:size] for vector in itertools.islice(vectors, draws)], axis=1
        )
    counts = np.arange(values)
    log_choices = np.cumsum(np.append(0.0, np.log((values - counts) / (counts + 1))))
    while (left := draws - sum(map(len, batches))) > 0:
        rows = min(2 * left, max(1, _MAX_UNIFORM_NUMBERS // values))
        uniforms = uniform(stream, rows * (values + 5)).reshape(rows, -1)
        halves = 2 * uniforms[:, 5:]
        positive = halves >= 1
        likely = np.exp(log_choices[positive.sum(axis=1)] - log_choices.max())
        uniforms, halves, positive = (
            array[uniforms[:, 0] < likely] for array in (uniforms, halves, positive)
        )
        sizes, more = -np.log1p(positive - halves), -np.log1p(-uniforms[:, 2:4])
        up, down = np.where(positive, sizes, 0.0), np.where(positive, 0.0, sizes)
        sums = [side.sum(axis=1) + extra for side, extra in zip((up, down), more.T, strict=True)]
        radius = law.scale / 2 * (sums[0] + sums[1]) * uniforms[:, 4] ** (1 / (values + 1))
        exact = up * (radius / sums[0])[:, None] - down * (radius / sums[1])[:, None]
        rounded = np.rint(exact)
        excess = 2 * (_largest_side(rounded) - _largest_side(exact)) + values
        batches.append(rounded[-np.log1p(-uniforms[:, 1]) >= excess / law.scale, :size][:left])
    return np.concatenate(batches).T


def _largest_side(values: FloatArray) -> FloatArray:
    """N of each row: the larger of the sums of its positive and of its negative values."""
    return np.asarray(np.abs(values).sum(axis=1) + np.abs(values.sum(axis=1))) / 2


def _granules(noise: SignedNoise) -> FloatArray:
    granules = np.empty(len(noise))
    for first in range(0, len(granules), _SUMMED_TOGETHER):  # few enough to stay in the cache
        part = slice(first, first + _SUMMED_TOGETHER)
        granules[part] = noise[part].added_to(np.zeros(len(granules[part]), np.int64))
    return granules


def k_norm_covariance(values: float) -> Covariance:
    """Covariance ``v ((1 + 1/M) I - 1 1'/M)``, ``v = M (2 M + 1)/((M + 1) (M + 2))``, at scale one.

    It is that of the continuous law: that of the integers differs by a share of about M over the
    scale. Its density is a function of N, a norm, so X is ``R U/2``: R of the gamma law of M + 1, U
    uniform in the ball ``N <= 1``. Where p coordinates of U are positive and m are not, these are
    points of two simplices; each of the ``C(M, p)`` choices has the volume ``1/(p! m!)``. In a
    simplex of p dimensions a coordinate has the mean ``1/(p + 1)`` and the mean square ``2/((p +
    1)(p + 2))``, the product of two half of that. Summed over p, with ``E R^2 = (M + 1)(M + 2)``, v
    is the variance of each value, and of their sum.
    """
    variance = values * (2 * values + 1) / ((values + 1) * (values + 2))
    return Covariance(math.sqrt(variance), -1 / values)


# --- Public numbers, for simulations and demonstrations


def public_stream(label: str, index: int) -> KeyStream:
    """A reproducible stream for demonstration data and simulations. NEVER for a release.

    Its key is public: anyone can subtract what it draws. The purpose separates it from all noise.
    """
    return KeyStream(subkey(_PUBLIC_KEY, "public-simulation", label), index)


def uniform(stream: KeyStream, count: int) -> FloatArray:
    """Floats in [0, 1), multiples of ``2**-53``: for simulations, not for noise."""
    return (stream.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
