"""Independent Laplace noise by advanced composition: the paper's lambda_delta, for comparison.

The paper chooses the scale ``2 S(F) sqrt(2 N ln(1/delta)) / epsilon`` for N coefficients, each of
which moves by at most S(F). That is (epsilon, delta)-DP only under a condition it leaves out.

Theorem. Let each of N independently noised coefficients be e-DP by itself, and ::

    e sqrt(2 N ln(1/delta)) <= epsilon/2    and    N e (exp(e) - 1) <= epsilon/2.

Then all together are (epsilon, delta)-DP. Proof (Dwork, Rothblum & Vadhan 2010, here for
independent noise). Let P and Q be the laws for neighbours, Z_i the privacy loss
``ln(P_i(X_i)/Q_i(X_i))`` of coefficient i, X drawn from P.

- ``|Z_i| <= e``, as the coefficient is e-DP.
- ``E[Z_i] <= e (exp(e) - 1)``: as ``E_Q[ln(P_i/Q_i)] <= 0``, E[Z_i] is at most
  ``E_Q[(r - 1) ln r]`` with ``r = P_i/Q_i`` from ``exp(-e)`` to ``exp(e)``, and there
  ``(r - 1) ln r <= e (exp(e) - 1)``.
- The Z_i are independent and each lies in an interval of length 2 e, so by Hoeffding's inequality
  their sum exceeds its mean by more than t with probability at most ``exp(-t^2/(2 N e^2))``, which
  is delta at ``t = e sqrt(2 N ln(1/delta)) <= epsilon/2``.

Hence the sum exceeds epsilon, and with it ``P(x) > exp(epsilon) Q(x)`` holds, with probability at
most delta under P; so ``P(E) <= exp(epsilon) Q(E) + delta`` for every event E.

The paper's scale solves the first condition; the second then fails where epsilon is large beside
``ln(1/delta)``, and there its noise is not (epsilon, delta)-DP: N = 400, delta = 0.1, epsilon = 60
is a counterexample (``tests/privacy/test_advanced.py``).
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

from dbern.errors import SpecError
from dbern.privacy.calibration import GRANULES_PER_SENSITIVITY, floor_log2
from dbern.privacy.laplace import MAX_CENTER, MAX_SCALE
from dbern.privacy.laws import EXPONENTS, LaplaceNoise

_DIGITS: Final = Context(prec=100, Emax=99_999, Emin=-99_999)
_SLACK: Final = Fraction(1, 10**60)
_LEAST_DELTA: Final = Fraction(1, 10**4000)
_ROOT_BITS: Final = 200


def _advanced_ratio(coefficients: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The least scale over the sensitivity of one coefficient, rounded up.

    An upper bound ``1/e`` on ``2 sqrt(2 N ln(1/delta))/epsilon`` (the logarithm, below 10**4, errs
    by less than `_SLACK`, which is added), so that coefficients of scale
    ``s >= d/e``, moved by at most d, are e-DP each and meet the theorem's first condition. The
    second is checked for this e: where ``N e^2 > epsilon/2`` it fails, as ``exp(e) - 1 >= e``;
    elsewhere e is below 1000, so that the exponential of e, both to 100 digits, errs by a factor
    below ``1 + 1e-90``, which `_SLACK` covers.

    A SpecError where the proof does not hold, and unless epsilon is from above 0 to 10**6 and delta
    below 1.
    """
    if coefficients < 1 or not 0 < epsilon <= 10**6 or not _LEAST_DELTA <= delta < 1:
        raise SpecError(
            "noise: advanced composition needs coefficients, epsilon from above 0 to 10**6, and "
            "0 < delta < 1"
        )
    odds = _DIGITS.divide(Decimal(delta.denominator), Decimal(delta.numerator))
    log_odds = Fraction(_DIGITS.ln(odds)) + _SLACK
    ratio = 2 * _root_above(2 * coefficients * log_odds) / epsilon
    e = 1 / ratio
    if coefficients * e * e > epsilon / 2 or coefficients * e * _grown(e) > epsilon / 2:
        raise SpecError(
            'mechanism.noise: "laplace-advanced" is not proved for an epsilon this large beside '
            'ln(1/delta). Write noise = "auto", or a smaller epsilon.'
        )
    return ratio


def calibrate_advanced_laplace(
    sensitivity: Fraction,
    eta: Fraction,
    coefficients: int,
    epsilon: Fraction,
    delta: Fraction,
    bound: Fraction,
) -> LaplaceNoise:
    """Laplace noise that makes rounded coefficients (epsilon, delta)-DP by advanced composition.

    With v, w, z as in `dbern.privacy.calibration.calibrate_laplace`, but every ``|v_i - v'_i|`` at
    most `sensitivity` S and every ``|w_i - v_i|`` at most eta, ::

        g |z_i - z'_i| <= S + 2 eta + g,

    so the integers move by at most ``d = floor((S + 2 eta)/g + 1)`` each, and noise of scale
    ``s = ceil(d/e)`` makes each of them e-DP: the theorem at the top applies, with the e of
    `_advanced_ratio`. The proof holds for any g, here the largest power of two at most ``S/1024``,
    raised only as for Laplace noise in `calibrate_laplace` with eta for cN eta.

    Parameters are as there. The noise's sensitivity is ``cN d``: its own `epsilon` is what basic
    composition promises. Raises `SpecError` as `_advanced_ratio`, or as there.
    """
    if sensitivity <= 0 or eta < 0 or bound < 0:
        raise SpecError(
            "noise: the sensitivity must be above 0, eta and bound not below; a constant target "
            "needs no release"
        )
    ratio = _advanced_ratio(coefficients, epsilon, delta)
    if math.ceil(ratio) > MAX_SCALE:  # even the coarsest g leaves d at 1
        raise SpecError("noise: too many coefficients for this budget. Lower k or raise epsilon.")
    exponent = max(floor_log2(sensitivity / GRANULES_PER_SENSITIVITY), EXPONENTS.start)
    while True:
        g = Fraction(2) ** exponent
        moved = math.floor((sensitivity + 2 * eta + g) / g)
        scale = math.ceil(moved * ratio)
        if bound + eta <= (MAX_CENTER - 1) * g and scale <= MAX_SCALE:
            return LaplaceNoise(scale, exponent, coefficients * moved)
        exponent += 1


def _root_above(value: Fraction) -> Fraction:
    """An upper bound on the square root, within ``2**-100`` or so of it."""
    scaled = math.ceil(value * 2**_ROOT_BITS)
    return Fraction(math.isqrt(scaled) + 1, 2 ** (_ROOT_BITS // 2))


def _grown(e: Fraction) -> Fraction:
    """An upper bound on ``exp(e) - 1``, for e up to 1000."""
    above = _DIGITS.divide(Decimal(e.numerator), Decimal(e.denominator))
    return Fraction(_DIGITS.exp(above)) * (1 + _SLACK) - 1
