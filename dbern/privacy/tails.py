"""Tails of noise: sizes that it seldom reaches, in granules, rounded up.

Certificates follow from them; privacy does not rest on them.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np

from dbern.errors import SpecError
from dbern.types import FloatArray

_DIGITS: Final = Context(prec=100, Emax=MAX_EMAX, Emin=MIN_EMIN)
_SLACK: Final = Fraction(1, 10**60)

# Tails of Laplace noise hold for the K-norm law of its scale s, X with weight w = exp(-|S|/s), S
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


def laplace_tail(scale: int, coefficients: int, beta: Fraction) -> int:
    """Size that no coefficient's noise reaches, with probability at least ``1 - beta``.

    The smallest integer m >= 1 with ``cN P(|X| >= m) <= beta`` (union bound), for cN coefficients.
    With ``q = exp(-1/s)``, ``P(|X| >= m) = 2 q^m / (1 + q)``, so ``m >= s ln(2 cN / (beta (1 +
    q)))``. That is computed to 100 digits with correctly rounded operations; as s <= 2**61 the
    error is below 1e-60 for fewer than 10**30 coefficients, and 1e-60 is added before rounding up.
    The center's own rounding, at most g/2 + eta, is not part of it.
    """
    if not 0 < beta < 1 or coefficients < 1:
        raise SpecError("noise: the tail needs 0 < beta < 1 and at least one coefficient")
    q = _DIGITS.exp(_DIGITS.divide(Decimal(-1), Decimal(scale)))
    odds = _decimal(2 * coefficients / beta)
    length = _DIGITS.ln(_DIGITS.divide(odds, _DIGITS.add(Decimal(1), q)))
    length = _DIGITS.fma(Decimal(scale), length, Decimal("1e-60"))
    return max(1, int(length.to_integral_value(rounding=ROUND_CEILING)))


def laplace_node_tail(scale: int, a: float, m: float, exponent: float) -> float:
    """Bound what ``sum_j c_j X_j`` reaches with probability at most ``exp(-exponent)``.

    For ``|c|_2 <= a`` and ``|c|_inf <= m``, as `dbern.certify.noise` proves.
    """
    fractions = np.linspace(0.001, 0.999, 999)  # of 1 / (s m); any u < 1 / (s m) is valid
    cumulants = (fractions * a / m) ** 2 / (1 - fractions**2)
    return scale * m * float(((exponent + cumulants) / fractions).min())


def laplace_weighted_tail(
    scale: int, root: FloatArray, largest: FloatArray, exponent: float
) -> FloatArray:
    """Bound what ``sum_j w_j X_j`` exceeds with probability at most ``exp(-exponent)``.

    X are independent draws; of the weights only ``|w|_2 <= root`` and ``|w|_inf <= largest`` are
    used. With s the scale, ``E e^(u X) <= 1 / (1 - u^2 s^2)`` for ``u s < 1`` (as ``(cosh z - 1) /
    z^2`` increases), so ``ln E e^(u sum) <= u^2 s^2 |w|_2^2 / (1 - u^2 s^2 |w|_inf^2) <= u^2 v / (2
    (1 - c u))`` with ``v = 2 s^2 |w|_2^2``, ``c = s |w|_inf``: a sub-gamma variable, which exceeds
    ``sqrt(2 v x) + c x`` with probability at most ``e^-x`` (Boucheron, Lugosi, Massart 2013, 2.4).
    """
    return np.asarray(scale * (2 * math.sqrt(exponent) * root + exponent * largest))


def gaussian_weighted_tail(sigma: int, root: FloatArray, exponent: float) -> FloatArray:
    """Bound that sum for Gaussian noise, sub-Gaussian: ``E e^(u X) <= e^(u^2 sigma^2 / 2)``."""
    return np.asarray(sigma * root * math.sqrt(2 * exponent))


def float_above(value: Fraction) -> float:
    """Round up to a float."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def gaussian_tail(sigma: int, coefficients: int, beta: Fraction) -> int:
    """Size that no coefficient's noise reaches, with probability at least ``1 - beta``.

    The least m >= 1 with ``cN min(2, r) e^(-m^2/(2 s^2)) <= beta`` for ``r = .79789 (1/s + s/m)``
    and s = sigma (union bound). Proof that ``P(|X| >= m)`` is at most either product:

    - With S of `dbern.privacy.zcdp.rho_of`,
      ``E[e^(t X)] = e^(t^2 s^2/2) S(t s^2)/S(0) <= e^(t^2 s^2/2)``;
      Markov's inequality at ``t = m/s^2`` gives ``P(X >= m) <= e^(-m^2/(2 s^2))``, and for -X.
    - ``(m + j)^2 >= m^2 + 2 m j``, so the weights from m on sum to at most
      ``e^(-m^2/(2 s^2)) / (1 - e^(-m/s^2)) <= e^(-m^2/(2 s^2)) (1 + s^2/m)``, and
      ``S(0) >= sqrt(2 pi) s`` by Poisson's formula; ``2/sqrt(2 pi) < .79789``.

    Each logarithm errs by less than `_SLACK`, which is added.
    """
    if not 0 < beta < 1 or coefficients < 1:
        raise SpecError("noise: the tail needs 0 < beta < 1 and at least one coefficient")

    def is_reached(m: int) -> bool:
        mills = Fraction(79789, 100_000) * (Fraction(1, sigma) + Fraction(sigma, m))
        odds = coefficients * min(Fraction(2), mills) / beta
        return Fraction(_DIGITS.ln(_decimal(odds))) + _SLACK > Fraction(m * m, 2 * sigma**2)

    low, high = 0, 1
    while is_reached(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_reached(middle) else (low, middle)
    return high


def _decimal(value: Fraction) -> Decimal:
    """The value, correctly rounded to 100 digits."""
    return _DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))
