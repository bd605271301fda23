"""Zero-concentrated differential privacy of the discrete Gaussian, and its delta.

Bun & Steinke 2016: a mechanism is rho-zCDP when for all neighbours the Renyi divergence of order
alpha is at most ``alpha rho``, for every alpha > 1. Everything here is a proved bound in rational
numbers: decimals enter only where a logarithm or an exponential is needed, and those are correctly
rounded by `decimal`, so that one stated slack covers them.

With ``b = alpha - 1``, the conversion of Canonne, Kamath & Steinke 2020 is ::

    delta = inf_{b > 0} exp(b ((1 + b) rho - epsilon) - h(b)),
    h(b) = (1 + b) ln(1 + b) - b ln b > 0.

Proof. Let Z be the privacy loss ``ln(P(X)/Q(X))``, X drawn from P, so that
``E[e^(b Z)] <= e^(b (1 + b) rho)``, and
``sup_E P(E) - e^epsilon Q(E) = E[max(0, 1 - e^(epsilon - Z))]``. For every z,
``max(0, 1 - e^(epsilon - z)) e^(-b z) <= e^(-b epsilon) max_{0 < u < 1} (1 - u) u^b``, with
``u = e^(epsilon - z)``. The maximum is at ``u = b/(1 + b)`` and is
``b^b / (1 + b)^(1 + b) = e^(-h(b))``. Multiply by ``e^(b z)`` and take expectations.

Any b gives a valid bound, so how well b minimises it is a matter of accuracy, never of privacy. The
formula for continuous Gaussian noise (Balle & Wang 2018) does not hold for the discrete one as it
stands: `dbern.privacy.curves` says where it does.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from dbern.errors import SpecError

_DIGITS: Final = Context(prec=100, Emax=99_999, Emin=-99_999)
_COARSE: Final = Context(prec=24, Emax=99_999, Emin=-99_999)  # digits of an order
_ROUGH: Final = Context(prec=28, Emax=99_999, Emin=-99_999, rounding=ROUND_FLOOR)  # and of a rho
_ABOVE: Final = Context(prec=28, Emax=99_999, Emin=-99_999, rounding=ROUND_CEILING)
_SLACK: Final = Fraction(1, 10**60)
_ORDERS: Final = Decimal("1e-30"), Decimal("1e30")  # of b
_LEAST_EXPONENT: Final = -10_000  # no delta below e**-10000 is told from that
_LEAST_DELTA: Final = Fraction(1, 10**4000)


def rho_of(l2_sensitivity_granules_squared: int, sigma: int) -> Fraction:
    """``Delta2^2 / (2 sigma^2)``: the zCDP of discrete Gaussian noise on integer centers.

    Proof (Canonne, Kamath & Steinke 2020). Let P and Q be the laws
    of ``mu + X`` and X, mu an integer, ``S(c) = sum_x exp(-(x - c)^2 / (2 sigma^2))`` over the
    integers; P's and Q's normaliser is S(0). Completing the square, ::

        sum_x P(x)^a Q(x)^(1 - a) = exp(a (a - 1) mu^2 / (2 sigma^2)) S(a mu) / S(0),

    and ``S(c) <= S(0)`` for every real c: by Poisson's summation formula S(c) is a sum over the
    integers y of ``sqrt(2 pi) sigma exp(-2 pi^2 sigma^2 y^2) cos(2 pi c y)``. So the divergence of
    order a is at most ``a mu^2 / (2 sigma^2)``; those of independent coefficients add up. The shift
    must be an integer: this is about rounded centers, not about the values they came from.
    """
    if l2_sensitivity_granules_squared < 0 or sigma < 1:
        raise SpecError("noise: the squared sensitivity must not be below 0 nor sigma below 1")
    return Fraction(l2_sensitivity_granules_squared, 2 * sigma**2)


def _delta_of(rho: Fraction, epsilon: Fraction) -> Fraction:
    """An upper bound on the delta of any rho-zCDP mechanism at this epsilon.

    The module's expression at a nearly best b, rounded outward. b has 24 digits and an exponent
    within 30, so ``1 + b`` is exact; ``|ln| < 70`` is correctly rounded to 100 digits, an error
    below 1e-97 that `_SLACK` covers; all else up to the exponent is rational. The exponent is then
    between -10000 (raised to it where it is below) and 0 (at which the answer is 1); its
    conversion to a decimal errs below 1e-95 and the exponential by a factor below ``1 + 1e-98``:
    one slack more in the exponent and one in the factor cover both.
    """
    if rho < 0 or epsilon < 0:
        raise SpecError("noise: rho and epsilon must not be below 0")
    if rho == 0:
        return Fraction(0)
    b = Fraction(_best_order(rho, epsilon))
    exponent = b * ((1 + b) * rho - epsilon) - _entropy_below(b)
    exponent = max(exponent + _SLACK, Fraction(_LEAST_EXPONENT))
    if exponent >= 0:
        return Fraction(1)
    return min(Fraction(1), Fraction(_DIGITS.exp(_decimal(exponent))) * (1 + _SLACK))


@lru_cache(maxsize=64)  # a plan calibrates many candidates for one budget
def rho_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest rho, rounded down to 28 digits, whose `_delta_of` is at most `delta`.

    At a fixed b, delta is reached by
    ``rho_b = (epsilon + (ln delta + h(b))/b) / (1 + b)``, and the answer is the largest of these,
    as `_delta_of` is an infimum over b. From any rho, the b that is best for it gives a `rho_b` at
    least as large where ``_delta_of(rho) <= delta``, and never one above the answer: the iteration
    rises to it (it is Newton's). It starts from ``b = 2 ln(1/delta)/epsilon``, which leaves
    ``rho_b > epsilon / (2 (1 + b)) > 0``. The result rests on none of that: its own `_delta_of` is
    compared before it is returned.

    A SpecError unless epsilon is above 0, and delta from ``10**-4000`` to below 1.
    """
    if epsilon <= 0 or not _LEAST_DELTA <= delta < 1:
        raise SpecError("noise: (epsilon, delta) needs epsilon above 0 and 0 < delta < 1")
    log_delta = Fraction(_DIGITS.ln(_decimal(delta)))
    rho, b = Fraction(0), _order(-2 * log_delta / epsilon)
    while True:
        correction = (log_delta + _entropy_below(Fraction(b))) / Fraction(b)
        candidate = (epsilon + correction) / (1 + Fraction(b))
        if candidate <= rho * (1 + Fraction(1, 10**27)):
            break
        rho = Fraction(_decimal(candidate))
        b = _best_order(rho, epsilon)
    rounded = _ROUGH.plus(_decimal(rho))
    while _delta_of(Fraction(rounded), epsilon) > delta:
        rounded = _ROUGH.next_minus(rounded)
    return Fraction(rounded)


@lru_cache(maxsize=64)
def epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """An epsilon that any rho-zCDP mechanism has at this delta: the least, rounded up to 28 digits.

    At a fixed b, delta is reached by ``epsilon_b = (1 + b) rho - (ln delta + h(b))/b``, and the
    answer is the least of these, none below 0. From an epsilon whose `_delta_of` is at most delta,
    the b that is best for it gives an `epsilon_b` that is not larger: the iteration falls to the
    answer. It starts from ``rho + 2 sqrt(rho ln(1/delta))``, which is enough without h (Bun &
    Steinke 2016). The result rests on none of that: its own `_delta_of` is compared before it is
    returned.

    A SpecError unless rho is from 0 on, and delta from ``10**-4000`` to below 1.
    """
    if rho < 0 or not _LEAST_DELTA <= delta < 1:
        raise SpecError("noise: an epsilon needs rho from 0 on and 0 < delta < 1")
    if _delta_of(rho, Fraction(0)) <= delta:
        return Fraction(0)
    log_delta = Fraction(_DIGITS.ln(_decimal(delta)))
    root = Fraction(_DIGITS.sqrt(_decimal(-rho * log_delta)))
    epsilon = rho + 2 * root
    while True:
        b = Fraction(_best_order(rho, epsilon))
        candidate = max(Fraction(0), (1 + b) * rho - (log_delta + _entropy_below(b)) / b)
        if candidate >= epsilon * (1 - Fraction(1, 10**27)):
            break
        epsilon = Fraction(_decimal(candidate))
    rounded = _ABOVE.plus(_decimal(epsilon))
    while _delta_of(rho, Fraction(rounded)) > delta:
        rounded = _ABOVE.next_plus(rounded)
    return Fraction(rounded)


def pure_rho(epsilon: Fraction) -> Fraction:
    """``epsilon^2/2``: the zCDP of any epsilon-DP mechanism (Bun & Steinke 2016).

    Proof. Let ``r = P(X)/Q(X)``, X drawn from Q: r lies in ``[e^-epsilon, e^epsilon]`` and has mean
    1. Given r, let A be ``e^epsilon`` or ``e^-epsilon`` with mean r; then A has mean 1, whatever
    the law of r, and by Jensen's inequality ``E[r^a] <= E[A^a]``. With
    ``P(A = e^epsilon) = (1 - e^-epsilon)/(e^epsilon - e^-epsilon)``, x = a epsilon and
    y = (a - 1) epsilon, ::

        E[A^a] = (sinh x - sinh y)/sinh(x - y) = cosh((x + y)/2)/cosh((x - y)/2) <= e^(x y/2),

    the last as ``ln cosh(sqrt w)`` grows by at most ``w/2`` per unit of w (its derivative is
    ``tanh(sqrt w)/(2 sqrt w) <= 1/2``) and ``((x + y)/2)^2 - ((x - y)/2)^2 = x y``. So the
    divergence of order a is at most ``(x y/2)/(a - 1) = a epsilon^2/2``.
    """
    if epsilon < 0:
        raise SpecError("noise: epsilon must not be below 0")
    return epsilon * epsilon / 2


def rho_above(rho: Fraction) -> Fraction:
    """The least decimal of 28 digits that is not below `rho`: sums of these stay short."""
    return Fraction(_ABOVE.divide(Decimal(rho.numerator), Decimal(rho.denominator)))


def _decimal(value: Fraction) -> Decimal:
    """The value, correctly rounded to 100 digits."""
    return _DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))


def _order(b: Fraction) -> Decimal:
    """b with 24 digits, moved into the range of orders."""
    return _COARSE.plus(min(max(_decimal(b), _ORDERS[0]), _ORDERS[1]))


def _entropy_below(b: Fraction) -> Fraction:
    """A lower bound on ``h(b) = (1 + b) ln(1 + b) - b ln b``, for a b that `_order` returned."""
    above, itself = (Fraction(_DIGITS.ln(_decimal(value))) for value in (1 + b, b))
    return (1 + b) * (above - _SLACK) - b * (itself + _SLACK)


def _best_order(rho: Fraction, epsilon: Fraction) -> Decimal:
    """The b that minimises the exponent, nearly: a matter of accuracy alone.

    The exponent's derivative ``(1 + 2b) rho - epsilon - ln(1 + 1/b)`` grows with b, from below 0 to
    above 0 at ``b = 1 + (epsilon + 1)/(2 rho)``; its root is bisected, by geometric means.
    """
    slope, target = _decimal(rho), _decimal(epsilon)
    low, high = _ORDERS[0], Decimal(_order(1 + (epsilon + 1) / (2 * rho)))
    while high > _DIGITS.multiply(low, Decimal("1.00000000000000000001")):
        middle = _DIGITS.sqrt(_DIGITS.multiply(low, high))
        growth = _DIGITS.ln(_DIGITS.add(1, _DIGITS.divide(1, middle)))
        rise = _DIGITS.multiply(_DIGITS.fma(2, middle, Decimal(1)), slope)
        if rise < _DIGITS.add(target, growth):
            low = middle
        else:
            high = middle
    return _COARSE.plus(high)
