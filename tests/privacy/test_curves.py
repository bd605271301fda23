"""The exact curve of Gaussian noise: against sums of the discrete law, and a twin of the cdf."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest

from dbern.privacy.calibration import _least_on_curve, _least_sigma, calibrate_gaussian
from dbern.privacy.curves import SPREAD_SQUARED, _delta_at, _phi, squared_for
from dbern.privacy.zcdp import rho_for

DIGITS = Context(prec=150)
PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482"
    "534211706798214808651328230664709384460955058223172535940812848111745028"
)


def upper_tail(t: int) -> Decimal:
    """``Phi(-t)`` by Laplace's continued fraction, which has nothing in common with the series."""
    rest = Decimal(t)
    for step in range(6000, 0, -1):
        rest = DIGITS.add(Decimal(t), DIGITS.divide(Decimal(step), rest))
    density = DIGITS.exp(Decimal(-t * t) / 2)
    return DIGITS.divide(DIGITS.divide(density, rest), DIGITS.sqrt(DIGITS.multiply(2, PI)))


@pytest.mark.parametrize("t", [5, 13, 30])
def test_the_normal_cdf_agrees_with_its_twin(t: int) -> None:
    assert abs(Fraction(_phi(Decimal(-t))) - Fraction(upper_tail(t))) < Fraction(1, 10**120)
    assert abs(Fraction(_phi(Decimal(t))) + Fraction(_phi(Decimal(-t))) - 1) < Fraction(1, 10**120)


def laws(sigma: int, shift: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the discrete law about 0 and about an integer shift."""
    x = np.arange(-12 * sigma - 8, 12 * sigma + 9)
    total = np.exp(-(x**2) / (2 * sigma**2)).sum()
    here = there = np.ones(())
    for own in shift:
        here = np.multiply.outer(here, np.exp(-(x**2) / (2 * sigma**2)) / total)
        there = np.multiply.outer(there, np.exp(-((x - own) ** 2) / (2 * sigma**2)) / total)
    return here, there


def true_delta(sigma: int, shift: tuple[int, ...], epsilon: float) -> float:
    """The hockey-stick divergence itself, both ways alike by symmetry."""
    here, there = laws(sigma, shift)
    return float(np.maximum(here - math.exp(epsilon) * there, 0.0).sum())


SHIFTS = [(1,), (2,), (5,), (8,), (1, 1), (1, 2), (3, 4), (0, 5)]


@pytest.mark.parametrize("sigma", [5, 8, 40])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
def test_no_shift_of_the_discrete_law_exceeds_the_curve(sigma: int, epsilon: float) -> None:
    for shift in SHIFTS:
        squared = sum(own**2 for own in shift)
        found = true_delta(sigma, shift, epsilon)
        bound = _delta_at(Fraction(epsilon), Fraction(squared, sigma**2 - SPREAD_SQUARED))
        assert found <= float(bound) + 1e-14
        if sigma == 40 and found > 1e-6:  # and it says something
            assert float(bound) < 1.25 * found


def test_the_curve_of_the_normal_law_is_not_that_of_the_discrete_one() -> None:
    assert true_delta(5, (1,), 1.0) > 1.04 * float(_delta_at(Fraction(1), Fraction(1, 25)))


def test_the_discrete_law_is_a_normal_one_that_is_rounded_at_random() -> None:
    """Poisson's formula: what S leaves of the normal laws is far below what floats show."""
    sigma, spread, x = 7.0, math.sqrt(SPREAD_SQUARED), np.arange(-90, 91)
    y = np.arange(-90, 90, 1 / 64)
    near = np.exp(-((x[:, None] - y) ** 2) / (2 * spread**2))
    rounded = near / np.exp(-((np.arange(-200, 201)[:, None] - y) ** 2) / (2 * spread**2)).sum(0)
    made = rounded @ np.exp(-(y**2) / (2 * (sigma**2 - spread**2)))
    exact = np.exp(-(x**2) / (2 * sigma**2))
    np.testing.assert_allclose(made / made.sum(), exact / exact.sum(), rtol=1e-11, atol=1e-30)


BUDGETS = [("1", "1e-6"), ("1/10", "1e-6"), ("5", "1e-9"), ("1/100", "1e-12"), ("30", "1e-30")]


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_the_curve_takes_less_noise_and_is_used_up(epsilon: str, delta: str) -> None:
    given, allowed = Fraction(epsilon), Fraction(delta)
    found = squared_for(given, allowed)
    assert _delta_at(given, found) <= allowed
    assert _delta_at(given, found * (1 + Fraction(1, 10**12))) > allowed
    gained = math.sqrt(found / (2 * rho_for(given, allowed)))
    assert 1.04 < gained < 1.1 or (given > 20 and gained > 1.01)


@pytest.mark.parametrize(("epsilon", "delta"), [("51", "1e-6"), ("1", "1e-51")])
def test_beyond_its_range_the_noise_is_that_of_zcdp(epsilon: str, delta: str) -> None:
    given, allowed = Fraction(epsilon), Fraction(delta)
    assert squared_for(given, allowed) == 2 * rho_for(given, allowed)


@pytest.mark.parametrize("squared", [1, 7, 40, 10**6, 27535863])
def test_sigma_is_the_least_that_suffices(squared: int) -> None:
    one, delta = Fraction(1), Fraction(1, 10**6)
    rho, moved = rho_for(one, delta), squared_for(one, delta)
    by_rho, on_curve = _least_sigma(squared, rho), _least_on_curve(squared, moved)
    assert Fraction(squared, 2 * by_rho**2) <= rho < Fraction(squared, 2 * (by_rho - 1) ** 2)
    assert squared <= moved * (on_curve**2 - SPREAD_SQUARED)
    assert squared > moved * ((on_curve - 1) ** 2 - SPREAD_SQUARED)


def test_a_calibrated_law_keeps_its_budget_by_an_exact_sum() -> None:
    """Of one integer that moves by one granule and the roundings'."""
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    noise = calibrate_gaussian(Fraction(1), Fraction(0), 1, epsilon, delta, Fraction(4))
    moved = math.isqrt(noise.l2_sensitivity_granules_squared)
    assert true_delta(noise.sigma, (moved,), 1.0) <= 1e-6
    assert true_delta(noise.sigma * 99 // 100, (moved,), 1.0) > 1e-6
