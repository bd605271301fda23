"""The exact privacy curve of Gaussian noise, which discrete Gaussian noise keeps within 1e-60.

Balle & Wang 2018, Theorem 8: of two normal laws of variance ``v^2`` on each axis, whose means are
``mu v`` apart, the least delta at epsilon is ::

    delta(epsilon, mu) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu),

which grows with mu. For the discrete Gaussian of an integer sigma this does not hold as it stands.

*It is almost a rounded normal law.* Let Y be normal of variance ``v^2 = sigma^2 - r^2``, r = 4, and
X an integer of the law ``e^(-(x - Y)^2/(2 r^2))/S(Y)``, ``S(y) = sum_k e^(-(k - y)^2/(2 r^2))``. S
has period one: for an integer c, ``c + X`` is made of ``c + Y`` alone, by a rule that does not know
c. On N axes, of independent numbers, what neighbours' integer centers release with X is
post-processing of what they release with Y: a (epsilon', delta')-DP mechanism, whatever the shift.

By Poisson's formula ``S(y) = sqrt(2 pi) r (1 + 2 sum_(j >= 1) e^(-2 pi^2 r^2 j^2) cos(2 pi j y))``,
within a share of eta = ``3 e^(-2 pi^2 r^2) < 1e-136`` of ``sqrt(2 pi) r``. Normal densities of
variances v^2 and r^2 convolve to that of sigma^2: so P(X = x) is the latter at x within ``1/(1 -+
eta)``. Nor is the discrete Gaussian of sigma >= r farther from it, for the same reason. So its
probabilities are those of X within ``e^(+-3 eta)``, on N < 2^64 axes within ``e^(+-kappa)`` with
``kappa < 1e-115``, and for every event E and neighbours D, D', ::

    P_D(E) <= e^kappa (e^epsilon' P_D'(E) e^kappa + delta') = e^(epsilon' + 2 kappa) P_D'(E) + ..

Hence discrete Gaussian noise is (epsilon, delta)-DP where ``mu^2 = Delta2^2/(sigma^2 - 16)`` has
``delta(epsilon - 1e-60, mu) <= delta (1 - 1e-60)``, with any number of axes; a release's law stays
that of `dbern.privacy.gaussian`, and its zCDP that of its sigma.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from dbern.privacy.zcdp import rho_for

SPREAD_SQUARED: Final = 16
"""r^2: what the discrete Gaussian's variance has beyond the normal one that it is made of."""

_DIGITS: Final = Context(prec=140, Emax=99_999, Emin=-99_999)
_ROUGH: Final = Context(prec=18, Emax=99_999, Emin=-99_999, rounding=ROUND_FLOOR)
_ERROR: Final = Decimal("1e-100")  # of either side's Phi, e^epsilon at most e^50 included
_SLACK: Final = Fraction(1, 10**60)
_LARGEST_EPSILON: Final = 50
_LEAST_DELTA: Final = Fraction(1, 10**50)
_FARTHEST: Final = 40  # where Phi is asked
_STEPS: Final = 60


def _delta_at(epsilon: Fraction, squared: Fraction) -> Fraction:
    """Bound the least delta of normal laws that are ``sqrt(squared)`` deviations apart, from above.

    `_phi` errs by less than 1e-120 and e^epsilon is at most e^50 < 1e22, correctly rounded to 140
    digits as all else: together by less than 1e-97 of one, `_ERROR` twice e^50 times over.
    """
    mu = _DIGITS.sqrt(_decimal(squared))
    middle, shift = _DIGITS.divide(mu, 2), _DIGITS.divide(_decimal(epsilon), mu)
    above = _phi(_DIGITS.subtract(middle, shift))
    below = _phi(_DIGITS.minus(_DIGITS.add(middle, shift)))
    weight = _DIGITS.exp(_decimal(epsilon))
    difference = Fraction(above) - Fraction(weight) * Fraction(below)
    return difference + Fraction(_ERROR) * (1 + Fraction(weight))


@lru_cache(maxsize=64)  # a plan calibrates many candidates for one budget
def squared_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Squared number of deviations that normal noise may move: nearly the largest.

    Between that of zCDP, ``2 rho_for(epsilon, delta)``, and twice as much, by bisection; the result
    rests on neither, as its own `_delta_at` is compared before it is returned. It is that of zCDP
    itself for an epsilon above 50 or a delta below 1e-50.
    """
    low = 2 * rho_for(epsilon, delta)
    if epsilon > _LARGEST_EPSILON or delta < _LEAST_DELTA:
        return low
    high, target = 2 * low, epsilon - min(_SLACK, epsilon / 2)
    for _ in range(_STEPS):
        middle = Fraction(_ROUGH.plus(_decimal((low + high) / 2)))
        if not low < middle < high:
            break
        is_private = _delta_at(target, middle) <= delta * (1 - _SLACK)
        low, high = (middle, high) if is_private else (low, middle)
    return low


def _phi(x: Decimal) -> Decimal:
    """The normal cdf within 1e-120, for ``|x| <= 40``: below and above that 0 and 1.

    ``1/2 + e^(-x^2/2)/sqrt(2 pi) (x + x^3/3 + x^5/(3 5) + ..)``: terms of one sign. Where they
    halve at least, what is left of them is less than the last. Beyond 40 it is 1e-347 off at most.
    """
    if abs(x) > _FARTHEST:
        return Decimal(0 if x < 0 else 1)
    square = _DIGITS.multiply(x, x)
    term = total = _DIGITS.abs(x)  # the builtin rounds to 28 digits
    odd = 1
    while term > _DIGITS.multiply(total, Decimal("1e-135")) or odd < 2 * square:
        odd += 2
        term = _DIGITS.divide(_DIGITS.multiply(term, square), odd)
        total = _DIGITS.add(total, term)
    density = _DIGITS.exp(_DIGITS.divide(square, -2))
    density = _DIGITS.divide(density, _DIGITS.sqrt(_DIGITS.multiply(2, _pi())))
    half = _DIGITS.multiply(density, total)
    return _DIGITS.add(Decimal("0.5"), half if x > 0 else _DIGITS.minus(half))


@lru_cache(maxsize=1)
def _pi() -> Decimal:
    """``16 arctan(1/5) - 4 arctan(1/239)`` (Machin), in integers of 150 digits."""
    scale = 10**150

    def arctan(inverse: int) -> int:
        total, power, odd = 0, scale // inverse, 1
        while power:
            total += power // odd if odd % 4 == 1 else -(power // odd)
            power, odd = power // inverse**2, odd + 2
        return total

    return _DIGITS.divide(Decimal(16 * arctan(5) - 4 * arctan(239)), Decimal(scale))


def _decimal(value: Fraction) -> Decimal:
    """The value, correctly rounded to 140 digits."""
    return _DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))
