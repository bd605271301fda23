"""From a sensitivity to the parameters of the noise, in exact rational arithmetic.

Everything that touches privacy here is a `Fraction` or an integer; `tail` speaks of accuracy only
and is rounded outward.

g is the largest power of two at most ``Delta1/(1024 cN)``, raised only until

- ``bound + eta <= (2**62 - 1) g``: then ``|z_i| <= (bound + eta)/g + 1/2 < 2**62``, which is
  what makes the saturated sum of center and noise a function of their exact sum;
- ``s <= 2**61``, the sampler's range, and ``g >= 2**-1000``, the floats'.

Both end: for g large, Delta_int is cN + 1 and the left side of the first stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Final, Literal

from dbern.errors import SpecError
from dbern.privacy.laplace import MAX_CENTER, MAX_SCALE

_GRANULES_PER_SENSITIVITY: Final = 1024  # rounding to the grid then costs at most 1/1024 of it
_EXPONENTS: Final = range(-1000, 901)  # 2**e, 2**-e and what they multiply stay normal floats


@dataclass(frozen=True)
class LaplaceNoise:
    """Independent discrete Laplace noise on integer centers.

    Parameters
    ----------
    scale : int
        In granules, from 1 to ``2**61``.
    granularity_exponent : int
        One granule is ``g = 2**granularity_exponent`` of the target's unit.
    l1_sensitivity_granules : int
        Bound on the l1 distance of the integer centers of neighbouring databases.

    Raises
    ------
    SpecError
        When a number is out of range.

    Examples
    --------
    >>> LaplaceNoise(scale=200, granularity_exponent=-10, l1_sensitivity_granules=100).epsilon
    Fraction(1, 2)
    """

    scale: int
    granularity_exponent: int
    l1_sensitivity_granules: int
    kind: Literal["laplace"] = "laplace"

    def __post_init__(self) -> None:
        if not 1 <= self.scale <= MAX_SCALE or self.l1_sensitivity_granules < 0:
            raise SpecError(
                "noise: the scale must be from 1 to 2**61 granules; raise budget.epsilon"
            )
        if self.granularity_exponent not in _EXPONENTS:
            raise SpecError("noise: the granularity leaves the range of floats; rescale the target")

    @property
    def granularity(self) -> Fraction:
        """One granule in the target's unit."""
        return Fraction(2) ** self.granularity_exponent

    @property
    def epsilon(self) -> Fraction:
        """The exact guarantee: integer sensitivity over scale, at most what was asked for."""
        return Fraction(self.l1_sensitivity_granules, self.scale)


def calibrate_laplace(
    l1_sensitivity: Fraction,
    eta: Fraction,
    coefficients: int,
    epsilon: Fraction,
    bound: Fraction,
) -> LaplaceNoise:
    """Laplace noise that makes rounded, float-computed coefficients epsilon-DP.

    Let v, v' be the exact coefficients of neighbouring databases, ``|v - v'|_1 <= Delta1``; w, w'
    the computed ones, ``|w_i - v_i| <= eta``; z, z' the centers, ``z_i`` the integer nearest to
    ``w_i/g`` (`dbern.privacy.mechanism.to_grid`), so ``|g z_i - w_i| <= g/2``. With cN
    coefficients, the triangle inequality gives ::

        g |z - z'|_1 <= |v - v'|_1 + sum_i (|w_i - v_i| + |w'_i - v'_i|)
                        + sum_i (|g z_i - w_i| + |g z'_i - w'_i|)
                     <= Delta1 + cN (2 eta + g).

    Hence ``|z - z'|_1 <= Delta_int = ceil(Delta1/g + cN (2 eta/g + 1))``. Independent discrete
    Laplace noise of scale s has likelihood ratio at most ``exp(|z - z'|_1 / s)`` (triangle
    inequality, coefficient by coefficient), and ``s = ceil(Delta_int/epsilon)`` makes that at most
    ``exp(epsilon)``. The proof holds for any g: raising it costs accuracy, never privacy.

    The choice of g is described at the top of the module.

    Parameters
    ----------
    l1_sensitivity : Fraction
        Delta1 of the exact function, rounded outward, in the target's unit.
    eta : Fraction
        Proved bound on the float error of each computed coefficient, same unit.
    coefficients : int
        cN, all outputs together.
    epsilon : Fraction
        The budget of the release.
    bound : Fraction
        Bound on every exact ``|v_i|``, over all databases.

    Raises
    ------
    SpecError
        When an argument is out of range, or no granularity fits the sampler.

    Examples
    --------
    >>> noise = calibrate_laplace(Fraction(1, 50), Fraction(0), 21, Fraction(1, 2), Fraction(4))
    >>> noise.scale, noise.granularity_exponent, noise.l1_sensitivity_granules
    (83930, -21, 41965)
    """
    _check(l1_sensitivity, eta, coefficients, epsilon, bound)
    exponent = floor_log2(l1_sensitivity / (_GRANULES_PER_SENSITIVITY * coefficients))
    exponent = max(exponent, _EXPONENTS.start)
    while True:
        g = Fraction(2) ** exponent
        total = l1_sensitivity + coefficients * (2 * eta + g)
        sensitivity = math.ceil(total / g)
        scale = math.ceil(sensitivity / epsilon)
        if bound + eta <= (MAX_CENTER - 1) * g and scale <= MAX_SCALE:
            return LaplaceNoise(scale, exponent, sensitivity)
        exponent += 1


def _check(
    l1_sensitivity: Fraction, eta: Fraction, coefficients: int, epsilon: Fraction, bound: Fraction
) -> None:
    """Refuse what no granularity can serve: even the coarsest leaves Delta_int at cN + 1."""
    if l1_sensitivity <= 0 or epsilon <= 0 or coefficients < 1 or eta < 0 or bound < 0:
        raise SpecError(
            "noise: sensitivity, epsilon and number of coefficients must be above 0, "
            "eta and bound not below; a constant target needs no release"
        )
    if math.ceil((coefficients + 1) / epsilon) > MAX_SCALE:
        raise SpecError("noise: too many coefficients for this epsilon; lower k or raise epsilon")


def floor_log2(value: Fraction) -> int:
    """The exponent of the largest power of two at most `value` > 0, exactly.

    With a and b the bit lengths of numerator and denominator,
    ``2**(a-b-1) < value < 2**(a-b+1)``.

    Examples
    --------
    >>> floor_log2(Fraction(1, 3)), floor_log2(Fraction(8))
    (-2, 3)
    """
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def tail(noise: LaplaceNoise, coefficients: int, beta: Fraction) -> float:
    """What no coefficient's noise reaches, with probability at least ``1 - beta``.

    ``m g``, rounded up, for the smallest integer m >= 1 with ``cN P(|X| >= m) <= beta`` (union
    bound). With ``q = exp(-1/s)``, ``P(|X| >= m) = 2 q^m / (1 + q)``, so
    ``m >= s ln(2 cN / (beta (1 + q)))``. That is computed to 100 digits with correctly rounded
    operations; as s <= 2**61 the error is below 1e-60 for fewer than 10**30 coefficients, and
    1e-60 is added before rounding up. Accuracy only: privacy does not rest on it.

    Parameters
    ----------
    noise : LaplaceNoise
        The calibrated noise.
    coefficients : int
        How many draws the bound covers at once.
    beta : Fraction
        Probability of failure, above 0 and below 1.

    Returns
    -------
    float
        In the target's unit. The center's own rounding, at most g/2 + eta, is not part of it.

    Examples
    --------
    >>> noise = LaplaceNoise(scale=2**20, granularity_exponent=-20, l1_sensitivity_granules=2**20)
    >>> round(tail(noise, 21, Fraction(1, 20)), 4)
    6.0403
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
    return float_above(granules * noise.granularity)


def float_above(value: Fraction) -> float:
    """The least float that is not below `value`.

    Examples
    --------
    >>> float_above(Fraction(1, 10)) == 0.1, float_above(Fraction(1, 3)) > 1 / 3
    (True, True)
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
