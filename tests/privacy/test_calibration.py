"""Calibration: the integer sensitivity holds, needs its slack, and the tail bound is exact."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbern.errors import SpecError
from dbern.privacy.advanced import calibrate_advanced_laplace
from dbern.privacy.calibration import calibrate_gaussian, calibrate_laplace, floor_log2
from dbern.privacy.families import errors_of
from dbern.privacy.laws import GaussianNoise, LaplaceNoise
from dbern.privacy.mechanism import to_grid

positive = st.fractions(min_value=Fraction(1, 10**9), max_value=10**6, max_denominator=10**12)
etas = st.just(Fraction(0)) | st.fractions(0, Fraction(1, 1000), max_denominator=10**15)


def centers(values: list[Fraction], noise: LaplaceNoise | GaussianNoise) -> list[int]:
    return [round(value / noise.granularity) for value in values]


def distance(first: list[int], second: list[int]) -> int:
    return sum(abs(a - b) for a, b in zip(first, second, strict=True))


@pytest.mark.slow
@given(positive, etas, st.integers(1, 10**9), positive, positive)
def test_parameters(
    l1: Fraction, eta: Fraction, coefficients: int, epsilon: Fraction, bound: Fraction
) -> None:
    try:
        noise = calibrate_laplace(l1, eta, coefficients, epsilon, bound)
    except SpecError:
        assert coefficients / epsilon > 2**60
        return
    g = noise.granularity
    total = l1 + coefficients * (2 * eta + g)
    assert noise.l1_sensitivity_granules - 1 < total / g <= noise.l1_sensitivity_granules
    sensitivity = noise.l1_sensitivity_granules
    assert (noise.scale - 1) * epsilon < sensitivity <= noise.scale * epsilon
    assert noise.epsilon <= epsilon
    assert noise.scale <= 2**61
    assert (bound + eta) / g + Fraction(1, 2) < 2**62
    wanted = l1 / (1024 * coefficients)
    if g > wanted:  # raised: half of it would have broken a limit
        half = g / 2
        finer = math.ceil(math.ceil(l1 / half + coefficients * (2 * eta / half + 1)) / epsilon)
        assert finer > 2**61 or bound + eta > (2**62 - 1) * half
    else:
        assert g <= wanted < 2 * g


@pytest.mark.slow
@settings(max_examples=200)
@given(st.data(), st.integers(1, 8), positive, st.sampled_from([0, 1, 3]))
def test_computed_and_rounded_centers_stay_within_the_sensitivity(
    data: st.DataObject, coefficients: int, l1: Fraction, float_error: int
) -> None:
    eta = float_error * l1 / 2000
    noise = calibrate_laplace(l1, eta, coefficients, Fraction(1), Fraction(10**9))
    units = st.lists(
        st.fractions(-1, 1, max_denominator=64), min_size=coefficients, max_size=coefficients
    )
    v = [l1 * u for u in data.draw(units)]
    weights = data.draw(units)
    size = sum(map(abs, weights)) or Fraction(1)
    v2 = [a + l1 * u / size for a, u in zip(v, weights, strict=True)]
    w = [a + eta * u for a, u in zip(v, data.draw(units), strict=True)]
    w2 = [a + eta * u for a, u in zip(v2, data.draw(units), strict=True)]
    assert distance(centers(w, noise), centers(w2, noise)) <= noise.l1_sensitivity_granules


@pytest.mark.parametrize("eta", [Fraction(0), Fraction(1, 3000)])
def test_the_slack_is_needed(eta: Fraction) -> None:
    coefficients, l1 = 21, Fraction(21 * 10246, 10240)
    noise = calibrate_laplace(l1, eta, coefficients, Fraction(1), Fraction(10))
    g = noise.granularity
    # Every w is just under half a granule, so it rounds down; every w' rounds up.
    v = [g / 2 - g / 100 + eta] * coefficients
    v2 = [a + l1 / coefficients for a in v]
    w, w2 = [a - eta for a in v], [a + eta for a in v2]
    moved = distance(centers(w, noise), centers(w2, noise))
    assert moved > math.ceil(l1 / g), "without slack this pair violates the integer sensitivity"
    if eta:
        assert moved > math.ceil(l1 / g + coefficients), "and without eta's part it does too"
    assert moved <= noise.l1_sensitivity_granules


@pytest.mark.slow
@given(positive, etas, st.integers(1, 10**9), positive)
def test_the_squared_sensitivity_is_that_of_the_euclidean_norm(
    l2: Fraction, eta: Fraction, coefficients: int, bound: Fraction
) -> None:
    """D is the largest integer up to ``(A + sqrt(cN))^2``, ``A = (Delta2 + 2 eta) / g``."""
    noise = calibrate_gaussian(l2, eta, coefficients, Fraction(1), Fraction(1, 10**6), bound)
    length = (l2 + 2 * eta) / noise.granularity
    squared = noise.l2_sensitivity_granules_squared

    def reached(integer: int) -> bool:
        excess = integer - length**2 - coefficients
        return excess <= 0 or excess**2 <= 4 * length**2 * coefficients

    assert reached(squared)
    assert not reached(squared + 1)


@pytest.mark.parametrize("eta", [Fraction(0), Fraction(1, 300)])
def test_the_slack_of_gaussian_noise_is_needed(eta: Fraction) -> None:
    """As for Laplace noise: all values of one database are rounded down, and of the other up."""
    size, charge = 25, (Fraction(1), Fraction(1, 10**6))
    exact = Fraction(5 * 10246, 10240)  # in the Euclidean norm: a fifth of it in each value
    noise = calibrate_gaussian(exact, 5 * eta, size, *charge, Fraction(10))
    g = noise.granularity
    low = [g * Fraction(49, 100) - eta] * size
    high = [g * Fraction(49, 100) + exact / 5 + eta] * size
    pairs = zip(centers(low, noise), centers(high, noise), strict=True)
    moved = sum((a - b) ** 2 for a, b in pairs)
    assert moved > math.ceil(exact / g) ** 2, "without slack this pair is farther apart"
    assert moved <= noise.l2_sensitivity_granules_squared
    if eta:
        alone = calibrate_gaussian(exact, 5 * eta / 2, size, *charge, Fraction(10))
        assert moved > alone.l2_sensitivity_granules_squared


@pytest.mark.parametrize(("bound", "eta"), [(2**80, 0), (0, 2**76), (2**80, 2**76)])
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_no_center_of_any_database_leaves_the_grid(law: str, bound: int, eta: int) -> None:
    """Float errors of all values may be in one; else what a release does would tell of records."""
    shared, epsilon = (Fraction(1), Fraction(eta), 5), Fraction(10**6)
    if law == "laplace":
        noise: LaplaceNoise | GaussianNoise = calibrate_laplace(*shared, epsilon, Fraction(bound))
        farthest = bound + 5 * eta
    else:
        noise = calibrate_gaussian(*shared, epsilon, Fraction(1, 10**6), Fraction(bound))
        farthest = bound + eta
    center = to_grid(np.array([float(farthest)]), noise)[0]
    assert 2**56 < center < 2**62 - 1


@given(st.floats(-1e6, 1e6), st.integers(-40, 10))
def test_to_grid_is_within_half_a_granule(value: float, exponent: int) -> None:
    noise = LaplaceNoise(1, exponent, 1)
    z = int(to_grid(np.array([value]), noise)[0])
    assert abs(z * noise.granularity - Fraction(value)) <= noise.granularity / 2


def test_floor_log2_next_to_powers() -> None:
    for exponent in (-80, -1, 0, 1, 80):
        power, tiny = Fraction(2) ** exponent, Fraction(1, 2**200)
        found = floor_log2(power - tiny), floor_log2(power), floor_log2(power + tiny)
        assert found == (exponent - 1, exponent, exponent)


@given(st.integers(1, 60), st.integers(1, 10**6), st.fractions(Fraction(1, 10**9), Fraction(9, 10)))
def test_tail_is_the_smallest_bound(scale: int, coefficients: int, beta: Fraction) -> None:
    noise = LaplaceNoise(scale, -3, 1)
    m = Fraction(errors_of(noise).tail(coefficients, beta)) * 8
    assert m.denominator == 1

    def union(magnitude: int) -> float:
        return coefficients * 2 * math.exp(-magnitude / scale) / (1 + math.exp(-1 / scale))

    assert union(int(m)) <= float(beta) * (1 + 1e-9)
    assert m == 1 or union(int(m) - 1) >= float(beta) * (1 - 1e-9)


def test_tail_is_rounded_up_at_huge_scales() -> None:
    # m has more than 53 bits here, so the nearest float may be below it.
    for scale in range(2**60 + 1, 2**60 + 40):
        noise = LaplaceNoise(scale, 0, 1)
        length = scale * math.log(2 * 21 * 20 / (1 + math.exp(-1 / scale)))
        assert errors_of(noise).tail(21, Fraction(1, 20)) == pytest.approx(length, rel=1e-12)


CALIBRATIONS = {
    "laplace": lambda moved, eta, count, epsilon, _delta, bound: calibrate_laplace(
        moved, eta, count, epsilon, bound
    ),
    "gaussian": calibrate_gaussian,
    "advanced": calibrate_advanced_laplace,
}
HALF = Fraction(1, 2)
IMPOSSIBLE = [
    *((law, *numbers) for law in CALIBRATIONS for numbers in (
        (0, 0, 1, 1, HALF, 1), (1, -1, 1, 1, HALF, 1), (1, 0, 0, 1, HALF, 1),
        (1, 0, 1, 0, HALF, 1), (1, 0, 1, 1, HALF, -1),
    )),
    *((law, 1, 0, 1, 1, delta, 1) for law in ("gaussian", "advanced") for delta in (0, 1)),
    ("laplace", 1, 0, 2**40, Fraction(1, 2**40), HALF, 1),
    ("gaussian", 1, 0, 2**40, Fraction(1, 2**60), Fraction(1, 10**30), 1),
    ("advanced", 1, 0, 1, 10**7, HALF, 1),
    ("advanced", 1, 0, 1, Fraction(1, 2**62), HALF, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("law", "moved", "eta", "coefficients", "epsilon", "delta", "bound"), IMPOSSIBLE
)
def test_what_no_law_is_calibrated_to_is_refused(
    law: str, moved: int, eta: int, coefficients: int, epsilon: int, delta: int, bound: int
) -> None:
    charge = map(Fraction, (epsilon, delta, bound))
    with pytest.raises(SpecError):
        CALIBRATIONS[law](Fraction(moved), Fraction(eta), coefficients, *charge)


@pytest.mark.parametrize("law", [LaplaceNoise, GaussianNoise])
@pytest.mark.parametrize(
    ("scale", "exponent", "moved"), [(0, 0, 1), (2**62, 0, 1), (1, 2000, 1), (1, 0, -1)]
)
def test_noise_out_of_range(
    law: type[LaplaceNoise | GaussianNoise], scale: int, exponent: int, moved: int
) -> None:
    with pytest.raises(SpecError):
        law(scale, exponent, moved)


@pytest.mark.parametrize("beta", [Fraction(0), Fraction(1)])
def test_tail_refuses(beta: Fraction) -> None:
    with pytest.raises(SpecError):
        errors_of(LaplaceNoise(1, 0, 1)).tail(1, beta)
