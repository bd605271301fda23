"""From a sensitivity to the parameters of the noise, in exact rational arithmetic.

Everything here is a `Fraction` or an integer.

For Laplace noise g is the largest power of two at most ``Delta1/(1024 cN)``, raised only until

- ``bound + cN eta <= (2**62 - 1) g``: then ``|z_i| <= (bound + cN eta)/g + 1/2 < 2**62``, which
  is what makes the saturated sum of center and noise a function of their exact sum;
- ``s <= 2**61``, the sampler's range, and ``g >= 2**-1000``, the floats'.

Both end: for g large, Delta_int is cN + 1 and the left side of the first stays.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from dbern.errors import SpecError
from dbern.privacy.curves import SPREAD_SQUARED, squared_for
from dbern.privacy.gaussian import MAX_SIGMA
from dbern.privacy.laplace import MAX_CENTER, MAX_SCALE
from dbern.privacy.laws import EXPONENTS, GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.zcdp import rho_for

GRANULES_PER_SENSITIVITY: Final = 1024  # rounding to the grid then costs at most 1/1024 of it


def calibrate_laplace(
    l1_sensitivity: Fraction, eta: Fraction, coefficients: int, epsilon: Fraction, bound: Fraction
) -> LaplaceNoise:
    """Laplace noise that makes rounded, float-computed coefficients epsilon-DP.

    Let v, v' be the exact coefficients of neighbouring databases, ``|v - v'|_1 <= Delta1``; w, w'
    the computed ones, ``sum_i |w_i - v_i| <= cN eta``; z, z' the centers, ``z_i`` the integer next
    to ``w_i/g`` (`dbern.privacy.mechanism.to_grid`), so ``|g z_i - w_i| <= g/2``. With cN
    coefficients, the triangle inequality gives ::

        g |z - z'|_1 <= |v - v'|_1 + sum_i (|w_i - v_i| + |w'_i - v'_i|)
                        + sum_i (|g z_i - w_i| + |g z'_i - w'_i|)
                     <= Delta1 + cN (2 eta + g).

    Hence ``|z - z'|_1 <= Delta_int = ceil(Delta1/g + cN (2 eta/g + 1))``. Independent discrete
    Laplace noise of scale s has likelihood ratio at most ``exp(|z - z'|_1 / s)`` (triangle
    inequality, coefficient by coefficient), and ``s = ceil(Delta_int/epsilon)`` makes that at most
    ``exp(epsilon)``. The proof holds for any g: raising it costs accuracy, never privacy.

    Delta1 (rounded outward), eta and `bound`, which bounds every exact ``|v_i|`` over all
    databases, are in the target's unit; cN counts all outputs together. g is chosen by the rule of
    this module. Raises SpecError for an argument out of range, or where no granularity fits the
    sampler.
    """
    _check(l1_sensitivity, eta, coefficients, epsilon, bound)
    exponent = floor_log2(l1_sensitivity / (GRANULES_PER_SENSITIVITY * coefficients))
    exponent = max(exponent, EXPONENTS.start)
    while True:
        g = Fraction(2) ** exponent
        total = l1_sensitivity + coefficients * (2 * eta + g)
        sensitivity = math.ceil(total / g)
        scale = math.ceil(sensitivity / epsilon)
        if bound + coefficients * eta <= (MAX_CENTER - 1) * g and scale <= MAX_SCALE:
            return LaplaceNoise(scale, exponent, sensitivity)
        exponent += 1


def calibrate_k_norm(
    side: Fraction, eta: Fraction, coefficients: int, epsilon: Fraction, bound: Fraction
) -> KNormNoise:
    """Noise of the K-norm law that makes rounded, float-computed bins epsilon-DP.

    N is that of `dbern.privacy.laplace`. A move z changes the law's likelihood by a factor of at
    most ``exp(2 N(z)/s)``, by the triangle inequality. Exact values of neighbours have ``N(v - v')
    <= side``, and N of any other error is at most its l1 norm. So the proof of `calibrate_laplace`
    holds with N for the l1 norm: ``N(z - z') <= N_int = ceil((side + cN (2 eta + g))/g)``, and
    ``s = ceil(N_int/(epsilon/2))``. It does not hold with ``Delta_int/2`` for N_int: all roundings
    may be upward. The other parameters are those of `calibrate_laplace`.
    """
    laplace_noise = calibrate_laplace(side, eta, coefficients, epsilon / 2, bound)
    moved = 2 * laplace_noise.l1_sensitivity_granules
    return KNormNoise(
        laplace_noise.scale, laplace_noise.granularity_exponent, moved, values=coefficients
    )


def calibrate_gaussian(
    l2_sensitivity: Fraction,
    eta_l2: Fraction,
    coefficients: int,
    epsilon: Fraction,
    delta: Fraction,
    bound: Fraction,
) -> GaussianNoise:
    """Discrete Gaussian noise that makes rounded coefficients (epsilon, delta)-DP.

    With v, w, z as in `calibrate_laplace`, but ``|v - v'|_2 <= Delta2`` and
    ``|w - v|_2 <= eta_l2``, the triangle inequality for the l2 norm gives ::

        g |z - z'|_2 <= |v - v'|_2 + |w - v|_2 + |w' - v'|_2 + |g z - w|_2 + |g z' - w'|_2
                     <= Delta2 + 2 eta_l2 + sqrt(cN) g,

    the last two being at most ``sqrt(cN) g/2`` each. With ``A = (Delta2 + 2 eta_l2)/g``,
    ``|z - z'|_2^2`` is an integer, so at most ``D = floor((A + sqrt(cN))^2)`` (`_floor_square`).
    Sigma is the least integer that is enough by the exact curve, ``D/(sigma^2 - 16) <=
    squared_for(epsilon, delta)`` (`dbern.privacy.curves`), or in zCDP (`rho_of`), ``D/(2 sigma^2)
    <= rho_for(epsilon, delta)``. The proof holds for any g, here the largest power of two at
    most ``Delta2/(1024 sqrt(cN))``, raised only as for Laplace noise with ``cN eta = eta_l2``: no
    coefficient errs by more than the norm.

    Parameters are those of `calibrate_laplace`, and a delta above 0.
    """
    _check(l2_sensitivity, eta_l2, coefficients, epsilon, bound)
    rho, moved = rho_for(epsilon, delta), squared_for(epsilon, delta)
    if _least_sigma(coefficients, rho) > MAX_SIGMA:  # even the coarsest g leaves D at cN
        raise SpecError("noise: too many coefficients for this budget. Lower k or raise epsilon.")
    wanted = (l2_sensitivity / GRANULES_PER_SENSITIVITY) ** 2 / coefficients  # g squared
    exponent = max(floor_log2(wanted) // 2, EXPONENTS.start)
    while True:
        g = Fraction(2) ** exponent
        squared = _floor_square((l2_sensitivity + 2 * eta_l2) / g, coefficients)
        sigma = min(_least_sigma(squared, rho), _least_on_curve(squared, moved))
        if bound + eta_l2 <= (MAX_CENTER - 1) * g and sigma <= MAX_SIGMA:
            return GaussianNoise(sigma, exponent, squared)
        exponent += 1


def _floor_square(length: Fraction, coefficients: int) -> int:
    """``floor((length + sqrt(coefficients))**2)``, exactly.

    With length = a/b the square is ``(a^2 + b^2 n + sqrt(4 a^2 b^2 n))/b^2``, and neither the sum
    with an integer nor the division by one needs more of the root than its floor.
    """
    a, b = length.numerator, length.denominator
    root = math.isqrt(4 * a * a * b * b * coefficients)
    return (a * a + b * b * coefficients + root) // (b * b)


def _least_sigma(squared: int, rho: Fraction) -> int:
    """The least sigma >= 1 with ``squared / (2 sigma^2) <= rho``."""
    return 1 + math.isqrt(max(0, math.ceil(squared / (2 * rho)) - 1))


def _least_on_curve(squared: int, moved: Fraction) -> int:
    """The least sigma with ``squared / (sigma^2 - 16) <= moved``."""
    return 1 + math.isqrt(math.ceil(squared / moved) + SPREAD_SQUARED - 1)


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
        raise SpecError("noise: too many coefficients for this epsilon. Lower k or raise epsilon.")


def floor_log2(value: Fraction) -> int:
    """The exponent of the largest power of two at most `value` > 0, exactly.

    With a and b the bit lengths of numerator and denominator,
    ``2**(a-b-1) < value < 2**(a-b+1)``.
    """
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1
