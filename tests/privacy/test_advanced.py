"""Advanced composition of Laplace noise, against the exact law of the whole privacy loss."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import FLOAT_ERRORS, POSITIVE, SOME_DELTAS

from dbern.errors import SpecError
from dbern.privacy.advanced import _advanced_ratio, calibrate_advanced_laplace
from dbern.privacy.laws import LaplaceNoise


def true_delta(scale: float, moved: int, coefficients: int, epsilon: float) -> float:
    """The exact delta of discrete Laplace noise when every center moves by `moved` granules.

    One coefficient's privacy loss is ``(moved - 2 j)/scale`` with j from 0 to `moved`: the steps
    between the two centers, and both tails at the ends. Losses of independent coefficients add, so
    their law is a convolution of nonnegative numbers; nothing here is a bound.
    """
    q = math.exp(-1 / scale)
    j = np.arange(moved + 1)
    law = (1 - q) / (1 + q) * q ** j.astype(float)
    law[0], law[-1] = 1 / (1 + q), q**moved / (1 + q)
    assert law.sum() == pytest.approx(1)
    total = np.ones(1)
    for bit in f"{coefficients:b}":
        total = np.convolve(total, total)
        total = np.convolve(total, law) if bit == "1" else total
    loss = (coefficients * moved - 2 * np.arange(total.size)) / scale
    beyond = loss > epsilon
    return float((total[beyond] * -np.expm1(epsilon - loss[beyond])).sum())


def holds(coefficients: int, epsilon: Fraction, delta: Fraction) -> bool:
    try:
        _advanced_ratio(coefficients, epsilon, delta)
    except SpecError:
        return False
    return True


def largest_epsilon(coefficients: int, delta: Fraction) -> Fraction:
    """The end of the range in which the proof holds, by bisection."""
    low, high = Fraction(1, 1000), Fraction(10**4)
    assert holds(coefficients, low, delta)
    assert not holds(coefficients, high, delta)
    while high - low > Fraction(1, 10**6) * low:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(coefficients, middle, delta) else (low, middle)
    return low


SIZES = [1, 2, 5, 21, 100, 400]
DELTAS = [Fraction(1, 2), Fraction(1, 10), Fraction(1, 100), Fraction(1, 10**6)]


@pytest.mark.parametrize("coefficients", SIZES)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_exact_loss_keeps_its_delta_wherever_the_proof_holds(
    coefficients: int, delta: Fraction
) -> None:
    largest = largest_epsilon(coefficients, delta)
    for share in (Fraction(1), Fraction(1, 2), Fraction(1, 20)):
        epsilon = share * largest
        scale = 8 * _advanced_ratio(coefficients, epsilon, delta)
        found = true_delta(float(scale), 8, coefficients, float(epsilon))
        assert found <= float(delta)


def test_the_bound_says_something() -> None:
    epsilon, delta = Fraction(1), Fraction(1, 100)
    scale = float(8 * _advanced_ratio(400, epsilon, delta))
    assert true_delta(scale / 4, 8, 400, 1.0) > float(delta)


def test_the_papers_scale_is_not_private_where_its_proof_does_not_hold() -> None:
    coefficients, epsilon, delta = 400, 60, 0.1
    scale = 8 * 2 * math.sqrt(2 * coefficients * math.log(1 / delta)) / epsilon
    assert true_delta(scale, 8, coefficients, epsilon) > 0.9
    with pytest.raises(SpecError, match=r"mechanism.noise: .*not proved.*. Write"):
        _advanced_ratio(coefficients, Fraction(epsilon), Fraction(1, 10))


@pytest.mark.parametrize("coefficients", SIZES)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_condition_is_that_of_the_theorem(coefficients: int, delta: Fraction) -> None:
    epsilon = float(largest_epsilon(coefficients, delta))
    e = epsilon / (2 * math.sqrt(2 * coefficients * math.log(1 / float(delta))))
    assert coefficients * e * math.expm1(e) == pytest.approx(epsilon / 2, rel=1e-5)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10**9), POSITIVE, SOME_DELTAS)
def test_the_ratio_is_the_papers_rounded_up(
    coefficients: int, epsilon: Fraction, delta: Fraction
) -> None:
    if not holds(coefficients, epsilon, delta):
        return
    ratio = _advanced_ratio(coefficients, epsilon, delta)
    # (ratio epsilon / 2)^2 = 2 N ln(1/delta) to within the rounding, compared in high precision
    squared = (ratio * epsilon / 2) ** 2 / (2 * coefficients)
    odds = Fraction(1, 1) / delta
    exact = math.log(odds)
    assert float(squared) == pytest.approx(exact, rel=1e-14)
    e = 1 / ratio
    assert coefficients * e * Fraction(math.expm1(float(e))) <= epsilon / 2 * (
        1 + Fraction(1, 10**9)
    )


def test_the_logarithm_and_the_root_are_rounded_up() -> None:
    # ln 2 and sqrt to 60 digits, from their series: nothing of the code under test
    ln2 = sum(Fraction(1, n * 2**n) for n in range(1, 300))
    for coefficients in (1, 2, 21, 10**6):
        ratio = _advanced_ratio(coefficients, Fraction(1, 10), Fraction(1, 2))
        excess = (ratio * Fraction(1, 20)) ** 2 - 2 * coefficients * ln2
        assert 0 < excess < Fraction(1, 10**25)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    POSITIVE,
    FLOAT_ERRORS,
    st.integers(1, 10**9),
    st.builds(Fraction, st.integers(1, 40_000), st.just(10**4)),
    SOME_DELTAS,
    POSITIVE,
)
def test_parameters(
    moved: Fraction, eta: Fraction, n: int, epsilon: Fraction, delta: Fraction, bound: Fraction
) -> None:
    if not holds(n, epsilon, delta):
        return
    noise = calibrate_advanced_laplace(moved, eta, n, epsilon, delta, bound)
    g = noise.granularity
    each, rest = divmod(noise.l1_sensitivity_granules, n)
    assert rest == 0
    assert each <= (moved + 2 * eta) / g + 1 < each + 1
    ratio = _advanced_ratio(n, epsilon, delta)
    assert noise.scale - 1 < each * ratio <= noise.scale
    assert (bound + eta) / g + Fraction(1, 2) < 2**62
    if g > moved / 1024:  # raised: half of it would have broken a limit
        finer = (2 * (moved + 2 * eta) / g + 1) * ratio
        assert finer >= 2**61 or bound + eta > (2**62 - 1) * g / 2
    else:
        assert moved / 1024 < 2 * g


def test_its_own_epsilon_is_that_of_basic_composition() -> None:
    noise = calibrate_advanced_laplace(
        Fraction(1), Fraction(0), 400, Fraction(1), Fraction(1, 10**6), Fraction(1)
    )
    assert isinstance(noise, LaplaceNoise)
    assert noise.epsilon > 1.5
