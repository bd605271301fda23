"""zCDP, its conversion to delta against exact sums of the law, and the Gaussian's calibration."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats
from strategies import FLOAT_ERRORS, POSITIVE, SOME_DELTAS

from dbern.errors import SpecError
from dbern.privacy.calibration import calibrate_gaussian
from dbern.privacy.curves import SPREAD_SQUARED, _delta_at, squared_for
from dbern.privacy.families import errors_of
from dbern.privacy.laws import GaussianNoise
from dbern.privacy.tails import gaussian_tail
from dbern.privacy.zcdp import (
    _delta_of,
    epsilon_of,
    pure_rho,
    rho_above,
    rho_for,
    rho_of,
)

DIGITS = Context(prec=60)
EPSILONS = st.builds(Fraction, st.integers(1, 10**6), st.integers(10**3, 10**6))


def weights(sigma: Fraction, reach: int) -> dict[int, Decimal]:
    twice = Decimal(2) * Decimal(sigma.numerator) ** 2 / Decimal(sigma.denominator) ** 2
    return {x: DIGITS.exp(DIGITS.divide(Decimal(-x * x), twice)) for x in range(-reach, reach + 1)}


def true_delta(sigma: Fraction | int, shift: int, epsilon: Fraction) -> Fraction:
    """``sum_x max(0, P(x) - e^epsilon P(x - shift))``, to 50 digits: the exact law's delta."""
    sigma = Fraction(sigma)
    weight = weights(sigma, int(20 * sigma) + shift + 30)
    factor = DIGITS.exp(Decimal(epsilon.numerator) / Decimal(epsilon.denominator))
    total = sum(map(Fraction, weight.values()))
    excess = (
        DIGITS.subtract(w, DIGITS.multiply(factor, weight[x - shift]))
        for x, w in weight.items()
        if x - shift in weight
    )
    return sum((Fraction(e) for e in excess if e > 0), Fraction(0)) / total


def renyi(sigma: int, shift: int, order: float) -> float:
    x = np.arange(-60 * sigma - 60 * shift, 60 * sigma + 60 * shift + 1)
    p, q = -(x**2) / (2 * sigma**2), -((x - shift) ** 2) / (2 * sigma**2)
    top = order * p + (1 - order) * q
    peak = top.max()
    return (math.log(np.exp(top - peak).sum() / np.exp(p).sum()) + peak) / (order - 1)


def analytic_delta(ratio: float, epsilon: float) -> float:
    """Continuous Gaussian noise of ``sigma/Delta = ratio`` (Balle & Wang 2018, Theorem 5)."""
    half = 1 / (2 * ratio)
    upper = stats.norm.sf(epsilon * ratio - half)
    return float(upper - math.exp(epsilon) * stats.norm.sf(epsilon * ratio + half))


@pytest.mark.parametrize("order", [1.01, 1.5, 2.0, 3.7, 8.0])
@pytest.mark.parametrize(("sigma", "shift"), [(1, 1), (1, 3), (2, 1), (5, 4), (20, 7)])
def test_renyi_divergence_is_bounded_by_rho(sigma: int, shift: int, order: float) -> None:
    bound = order * float(rho_of(shift**2, sigma))
    found = renyi(sigma, shift, order)
    assert found <= bound * (1 + 1e-9)
    assert found > 0.9 * bound or sigma == 1


CASES = [(1, 1), (1, 2), (2, 1), (3, 1), (4, 3), (7, 1), (10, 10), (40, 9), (100, 25)]


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(5)])
@pytest.mark.parametrize(("sigma", "shift"), CASES)
def test_the_exact_laws_delta_is_below_the_conversion(
    sigma: int, shift: int, epsilon: Fraction
) -> None:
    truth, bound = true_delta(sigma, shift, epsilon), _delta_of(rho_of(shift**2, sigma), epsilon)
    assert truth <= bound
    # and the bound says something: zCDP loses a factor below sqrt(2 pi) times a small one
    if sigma > 6:
        assert bound < 1 or truth > Fraction(1, 10)
        assert bound <= 40 * truth or truth < Fraction(1, 10**40)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.fractions(0, 8, max_denominator=20))
def test_no_integer_shift_beats_the_conversion(sigma: int, shift: int, epsilon: Fraction) -> None:
    bound = _delta_of(rho_of(shift**2, sigma), epsilon)
    assert true_delta(sigma, shift, epsilon) <= bound + Fraction(1, 10**50)  # the sum's own error


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(POSITIVE, st.just(Fraction(0)) | EPSILONS)
def test_delta_is_the_infimum_over_orders(rho: Fraction, epsilon: Fraction) -> None:
    found = _delta_of(rho, epsilon)
    b = np.exp(np.linspace(-30, 40, 20001))
    entropy = (1 + b) * np.log1p(b) - b * np.log(b)
    logs = b * ((1 + b) * float(rho) - float(epsilon)) - entropy
    best = min(0.0, float(logs.min()))
    if best < -9990:
        assert math.log(found.numerator) - math.log(found.denominator) <= -9980
        return
    log = math.log(found.numerator) - math.log(found.denominator)
    assert log <= best + 1e-9 * (1 + abs(best))
    assert log >= best - 1e-3 * (1 + abs(best))  # the grid is coarse, and never below


@pytest.mark.parametrize("rho", [Fraction(1, 50), Fraction(1, 2), Fraction(3)])
@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(4)])
def test_delta_agrees_with_opendp(rho: Fraction, epsilon: Fraction) -> None:
    dp.enable_features("contrib")
    space = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
    scale = 1 / math.sqrt(2 * float(rho))
    statistic = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=scale))
    theirs = statistic.map(1).delta(float(epsilon))
    assert float(_delta_of(rho, epsilon)) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(EPSILONS, SOME_DELTAS)
def test_rho_for_is_the_largest(epsilon: Fraction, delta: Fraction) -> None:
    rho = rho_for(epsilon, delta)
    assert _delta_of(rho, epsilon) <= delta
    assert _delta_of(rho * (1 + Fraction(1, 10**20)), epsilon) > delta


@pytest.mark.slow
def test_rho_for_at_the_ends() -> None:
    for epsilon in (Fraction(1, 10**9), Fraction(10**9)):
        for delta in (Fraction(1, 10**4000), Fraction(999_999, 10**6)):
            rho = rho_for(epsilon, delta)
            assert 0 < _delta_of(rho, epsilon) <= delta
    assert _delta_of(Fraction(0), Fraction(1)) == 0
    assert _delta_of(Fraction(10**6), Fraction(1)) == 1
    assert 0 < _delta_of(Fraction(1, 10**30), Fraction(10**6)) < Fraction(1, 10**4300)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize(
    "rho", [Fraction(1, 10**6), Fraction(1, 50), Fraction(3, 2), Fraction(500)]
)
@pytest.mark.parametrize("delta", [Fraction(1, 2), Fraction(1, 10**6), Fraction(1, 10**15)])
def test_epsilon_of_is_the_least(rho: Fraction, delta: Fraction) -> None:
    epsilon = epsilon_of(rho, delta)
    assert _delta_of(rho, epsilon) <= delta
    if epsilon:
        assert _delta_of(rho, epsilon * (1 - Fraction(1, 10**20))) > delta
        assert rho_for(epsilon, delta) == pytest.approx(rho, rel=1e-20)


def test_epsilon_of_at_the_ends() -> None:
    assert epsilon_of(Fraction(0), Fraction(1, 10**4000)) == 0
    for rho in (Fraction(1, 10**30), Fraction(10**9)):
        for delta in (Fraction(1, 10**4000), Fraction(999_999, 10**6)):
            assert _delta_of(rho, epsilon_of(rho, delta)) <= delta
    # Five releases of one budget fit one that is larger, as they would not by basic composition.
    budget = Fraction(1, 10), Fraction(1, 10**6)
    assert epsilon_of(5 * rho_for(*budget), budget[1]) < 3 * budget[0]


def divergence(log_p: np.ndarray, log_q: np.ndarray, order: float) -> float:
    return float(special.logsumexp(order * log_p + (1 - order) * log_q)) / (order - 1)


@pytest.mark.parametrize("order", [1.001, 1.5, 2.0, 7.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0])
def test_a_pure_guarantee_is_half_its_square_in_zcdp(epsilon: float, order: float) -> None:
    bound = order * float(pure_rho(Fraction(epsilon)))
    response = np.array([epsilon, 0]) - math.log1p(math.exp(epsilon))
    found = divergence(response, response[::-1], order)  # no epsilon-DP mechanism diverges more
    assert found <= bound * (1 + 1e-9)
    assert epsilon > 0.3 or order > 10 or found > 0.6 * bound  # half of it would be caught
    reach = np.arange(-10_000, 10_001)  # discrete Laplace noise, a shift of five granules
    law = math.log(math.tanh(epsilon / 10)) - epsilon / 5 * abs(reach)
    assert divergence(law[5:], law[:-5], order) <= bound * (1 + 1e-6)


@given(POSITIVE)
def test_rho_is_rounded_up_and_hardly(rho: Fraction) -> None:
    above = rho_above(rho)
    assert rho <= above <= rho * (1 + Fraction(1, 10**27))
    assert rho_above(above) == above


def test_the_analytic_formula_is_not_valid_for_the_discrete_law() -> None:
    target = Fraction(1, 10**5)
    ratio = optimize.brentq(lambda s: analytic_delta(s, 1.0) - 1e-5, 1, 10, xtol=1e-14)
    wrong = true_delta(Fraction(ratio).limit_denominator(10**9), 1, Fraction(1))
    assert float(wrong) == pytest.approx(1.035e-5, rel=1e-3)  # and not 1e-5
    # An integer sigma does it too: at this epsilon the formula promises 1e-5 for sigma = 2.
    epsilon = optimize.brentq(lambda e: analytic_delta(2.0, e) - 1e-5, 1, 4, xtol=1e-14)
    assert true_delta(2, 1, Fraction(epsilon)) > target * Fraction(105, 100)
    sigma = 1 / math.sqrt(2 * float(rho_for(Fraction(1), target)))
    assert true_delta(Fraction(sigma), 1, Fraction(1)) <= target
    assert sigma < 1.2 * ratio  # what validity costs


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(POSITIVE, FLOAT_ERRORS, st.integers(1, 10**9), POSITIVE, SOME_DELTAS, POSITIVE)
def test_calibration(
    l2: Fraction, eta: Fraction, n: int, epsilon: Fraction, delta: Fraction, bound: Fraction
) -> None:
    rho = rho_for(epsilon, delta)
    noise = calibrate_gaussian(l2, eta, n, epsilon, delta, bound)
    g, found = noise.granularity, noise.l2_sensitivity_granules_squared
    a = (l2 + 2 * eta) / g
    moved = squared_for(epsilon, delta)

    def enough(sigma: int) -> bool:
        return 2 * rho * sigma**2 >= found or moved * (sigma**2 - SPREAD_SQUARED) >= found

    assert enough(noise.sigma)
    assert noise.sigma == 1 or not enough(noise.sigma - 1)
    kept = _delta_of(noise.rho, epsilon) <= delta
    assert kept or _delta_at(epsilon, Fraction(found, noise.sigma**2 - SPREAD_SQUARED)) <= delta
    assert (bound + eta) / g + Fraction(1, 2) < 2**62
    wanted = (l2 / 1024) ** 2 / n
    if g * g > wanted:  # raised: half of it would have broken a limit
        half = (2 * a + math.isqrt(n)) ** 2
        assert bound + eta > (2**62 - 1) * g / 2 or half / moved > 2**121
    else:
        assert g * g <= wanted < 4 * g * g


@pytest.mark.slow
@given(st.integers(1, 60), st.integers(1, 10**6), st.fractions(Fraction(1, 10**9), Fraction(9, 10)))
def test_tail_holds_for_the_exact_law(sigma: int, coefficients: int, beta: Fraction) -> None:
    m = gaussian_tail(sigma, coefficients, beta)
    x = np.arange(-40 * sigma, 40 * sigma + 1)
    weight = np.exp(-(x**2) / (2 * sigma**2))

    def union(magnitude: int) -> float:
        return float(coefficients * weight[abs(x) >= magnitude].sum() / weight.sum())

    assert union(m) <= float(beta) * (1 + 1e-9)
    # no more than a quarter above the least magnitude for which it holds
    assert m <= 4 or union(min(m - 1, math.floor(0.8 * m))) > float(beta)


@pytest.mark.slow
@given(st.integers(2**20, 2**61), st.integers(1, 10**6))
def test_tail_of_fine_noise(sigma: int, coefficients: int) -> None:
    beta = Fraction(1, 20)
    exact = sigma * stats.norm.isf(float(beta) / (2 * coefficients))
    assert exact < gaussian_tail(sigma, coefficients, beta) < 1.07 * exact


def test_tail_is_in_the_targets_unit() -> None:
    noise = GaussianNoise(2**61, -70, 1)
    granules = gaussian_tail(noise.sigma, 21, Fraction(1, 20))
    found = Fraction(errors_of(noise).tail(21, Fraction(1, 20)))
    assert 0 <= found - granules * noise.granularity <= noise.granularity * 2**12


@pytest.mark.parametrize(
    ("conversion", "arguments"),
    [
        (_delta_of, (Fraction(-1), Fraction(1))),
        (_delta_of, (Fraction(1), Fraction(-1))),
        (rho_of, (1, 0)),
        (pure_rho, (Fraction(-1),)),
        (epsilon_of, (Fraction(-1), Fraction(1, 2))),
        (epsilon_of, (Fraction(1), Fraction(0))),
        (epsilon_of, (Fraction(1), Fraction(1))),
        (gaussian_tail, (1, 1, Fraction(1))),
    ],
)
def test_bad_arguments_of_the_conversions(conversion, arguments) -> None:
    with pytest.raises(SpecError):
        conversion(*arguments)
