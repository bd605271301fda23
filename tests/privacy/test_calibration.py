"""Calibration: the integer sensitivity holds, needs its slack, and the tail bound is exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import FLOAT_ERRORS, POSITIVE

from dbern.errors import SpecError
from dbern.privacy.advanced import calibrate_advanced_laplace
from dbern.privacy.calibration import calibrate_gaussian, calibrate_laplace, floor_log2
from dbern.privacy.families import errors_of
from dbern.privacy.laws import GaussianNoise, LaplaceNoise
from dbern.privacy.mechanism import to_grid

ONE, HALF = Fraction(1), Fraction(1, 2)
Noise = LaplaceNoise | GaussianNoise
Norm = Callable[[list[Fraction]], Fraction]


def l1(values: list[Fraction]) -> Fraction:
    return sum(map(abs, values), Fraction(0))


def l2(values: list[Fraction]) -> Fraction:
    """Rounded up."""
    return Fraction(math.isqrt(math.ceil(10**12 * sum(u * u for u in values))) + 1, 10**6)


def sup(values: list[Fraction]) -> Fraction:
    return max(map(abs, values))


@dataclass(frozen=True)
class Calibration:
    """A calibration: the norms that it takes of moves and of float errors, and what it covers."""

    calibrate: Callable[..., Noise]  # sensitivity, eta, values, epsilon, delta, bound
    move: Norm
    floats: Norm
    granules: Callable[[list[int]], int]
    covered: Callable[[Noise, int], int]

    def moved(self, noise: Noise, first: list[Fraction], second: list[Fraction]) -> int:
        """How far two databases' values are apart once they are rounded."""
        pairs = zip(centers(first, noise), centers(second, noise), strict=True)
        return self.granules([abs(a - b) for a, b in pairs])


def centers(values: list[Fraction], noise: Noise) -> list[int]:
    return [round(value / noise.granularity) for value in values]


CALIBRATIONS = {
    "laplace": Calibration(
        lambda moved, eta, count, epsilon, _delta, bound: calibrate_laplace(
            moved, eta, count, epsilon, bound
        ),
        l1, sup, sum, lambda noise, _size: noise.l1_sensitivity_granules,
    ),
    "gaussian": Calibration(
        calibrate_gaussian, l2, l2, lambda steps: sum(step * step for step in steps),
        lambda noise, _size: noise.l2_sensitivity_granules_squared,
    ),
    "advanced": Calibration(
        calibrate_advanced_laplace, sup, sup, max,
        lambda noise, size: noise.l1_sensitivity_granules // size,
    ),
}  # fmt: skip
every_law = pytest.mark.parametrize("law", CALIBRATIONS.values(), ids=CALIBRATIONS)


@pytest.mark.slow
@given(POSITIVE, FLOAT_ERRORS, st.integers(1, 10**9), POSITIVE, POSITIVE)
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
@every_law
@settings(max_examples=200)
@given(st.data(), st.integers(1, 8), POSITIVE, st.sampled_from([0, 1, 3]))
def test_computed_and_rounded_centers_stay_within_the_sensitivity(
    law: Calibration, data: st.DataObject, size: int, sensitivity: Fraction, float_error: int
) -> None:
    eta = float_error * sensitivity / 2000
    noise = law.calibrate(sensitivity, eta, size, ONE, Fraction(1, 100), Fraction(10**9))
    integers = st.lists(st.integers(-4096, 4096), min_size=size, max_size=size)

    def units() -> list[Fraction]:
        return [Fraction(integer, 4096) for integer in data.draw(integers)]

    def moved(values: list[Fraction], norm: Norm, length: Fraction) -> list[Fraction]:
        step = units()
        largest = max(norm(step), Fraction(1, 100))
        return [value + length * u / largest for value, u in zip(values, step, strict=True)]

    first = [sensitivity * u for u in units()]
    second = moved(first, law.move, sensitivity)
    computed = [moved(values, law.floats, eta) for values in (first, second)]
    assert law.moved(noise, *computed) <= law.covered(noise, size)


@every_law
@pytest.mark.parametrize("eta", [Fraction(0), Fraction(1, 3000)])
def test_the_slack_is_needed(law: Calibration, eta: Fraction) -> None:
    """All values of one database are rounded down, and all of the other's up."""
    size, step = 25, Fraction(10246, 10240)
    moves, floats = (Fraction(round(norm([ONE] * size))) for norm in (law.move, law.floats))

    def calibrated(error: Fraction) -> Noise:
        charge = ONE, Fraction(1, 100), Fraction(10)
        return law.calibrate(moves * step, floats * error, size, *charge)

    noise = calibrated(eta)
    g = noise.granularity
    low = [g * Fraction(49, 100)] * size
    moved = law.moved(noise, low, [value + step + 2 * eta for value in low])
    exact = law.granules([step / g] * size)
    assert moved > exact, "without slack this pair violates the integer sensitivity"
    assert moved <= law.covered(noise, size)
    if eta:
        half = law.covered(calibrated(eta / 2), size)
        assert moved > half, "and with eta's part for one of the two databases it does too"


@pytest.mark.slow
@given(POSITIVE, FLOAT_ERRORS, st.integers(1, 10**9), POSITIVE)
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


@pytest.mark.parametrize(("bound", "eta"), [(2**80, 0), (0, 2**76), (2**80, 2**76)])
@pytest.mark.parametrize(("name", "values"), [("laplace", 5), ("gaussian", 1)])
def test_no_center_of_any_database_leaves_the_grid(
    name: str, values: int, bound: int, eta: int
) -> None:
    """Float errors of all values may be in one; else what a release does would tell of records."""
    charge = Fraction(10**6), Fraction(1, 10**6), Fraction(bound)
    noise = CALIBRATIONS[name].calibrate(ONE, Fraction(eta), 5, *charge)
    center = to_grid(np.array([float(bound + values * eta)]), noise)[0]
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


@pytest.mark.slow
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
        CALIBRATIONS[law].calibrate(Fraction(moved), Fraction(eta), coefficients, *charge)


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
