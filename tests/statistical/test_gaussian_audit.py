"""Audits of discrete Gaussian releases: half of sigma must be caught, the right one must not.

All keys are fixed, so every run sees the same samples; thresholds leave a chance below 1e-6 that a
right mechanism would have been unlucky when the keys were chosen.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from audits import chances

from dbern.privacy.calibration import calibrate_gaussian
from dbern.privacy.laws import GaussianNoise
from dbern.privacy.mechanism import privatize
from dbern.types import FloatArray, Int64Array

pytestmark = pytest.mark.slow

RUNS = 200_000
FALSE_ALARM = 1e-8
BUDGETS = [(Fraction(1, 2), Fraction(1, 20)), (Fraction(1), Fraction(1, 1000))]


def calibrated(budget: tuple[Fraction, Fraction]) -> GaussianNoise:
    return calibrate_gaussian(Fraction(1), Fraction(1, 10**9), 2, *budget, bound=Fraction(10))


def halved(noise: GaussianNoise) -> GaussianNoise:
    found = noise.granularity_exponent, noise.l2_sensitivity_granules_squared
    return GaussianNoise(noise.sigma // 2, *found)


def neighbours(noise: GaussianNoise, shape: str) -> tuple[Int64Array, Int64Array]:
    """Centers at the largest l2 distance the calibration covers, in one coefficient or in both."""
    center, most = np.array([17, -5]), noise.l2_sensitivity_granules_squared
    first = math.isqrt(most) if shape == "one" else math.isqrt(most // 2)
    shift = np.array([first, math.isqrt(most - first * first)])
    assert 0.999 * most < int((shift**2).sum()) <= most
    return center, center + shift


def losses(
    noise: GaussianNoise, center: Int64Array, first: Int64Array, moved: Int64Array, key: str
) -> FloatArray:
    """How far along the line through the neighbours many releases of one center came to lie.

    One call holds all of them: positions of a release have independent noise.
    """
    digest = hashlib.sha256(key.encode()).digest()
    drawn = privatize(np.tile(center, RUNS), 65000, noise, digest, "audit").reshape(RUNS, 2)
    return (drawn - first).astype(float) @ moved / float((moved**2).sum())


def delta_below(noise: GaussianNoise, shape: str, epsilon: Fraction, label: str) -> float:
    """A lower confidence bound on delta at this epsilon.

    The events are half-planes across the line through the neighbours; with zero at the first and
    one at the second the privacy loss is ``rho (2 t - 1)``, so the best one is among them.
    """
    first, second = neighbours(noise, shape)
    near = losses(noise, second, first, second - first, f"{label} second")
    far = losses(noise, first, first, second - first, f"{label} first")
    best, cuts = 0.0, np.linspace(0.5, 6, 23)
    each = FALSE_ALARM / (2 * cuts.size)
    for cut in cuts:
        often, seldom = int((near >= cut).sum()), int((far >= cut).sum())
        lower, upper = chances(often, seldom, RUNS, each)
        best = max(best, lower - math.exp(epsilon) * upper)
    return best


@pytest.mark.parametrize("shape", ["one", "both"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_right_calibration_is_not_rejected(budget: tuple[Fraction, Fraction], shape: str) -> None:
    epsilon, delta = budget
    found = delta_below(calibrated(budget), shape, epsilon, f"right {shape} {epsilon}")
    assert found <= delta
    if delta > Fraction(1, 100):
        assert found > 0.2 * delta  # the audit is not blind; zCDP's conversion loses a factor


@pytest.mark.parametrize("shape", ["one", "both"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_half_of_sigma_is_rejected(budget: tuple[Fraction, Fraction], shape: str) -> None:
    epsilon, delta = budget
    noise = halved(calibrated(budget))
    assert delta_below(noise, shape, epsilon, f"half {shape} {epsilon}") > delta


def test_noise_reused_across_coefficients_is_rejected() -> None:
    # Both coefficients drawn at a block's first position: their difference has no noise.
    noise = calibrated(BUDGETS[0])
    first, second = neighbours(noise, "one")
    gaps = []
    for center, label in ((first, "a"), (second, "b")):
        keys = [hashlib.sha256(f"reused {label} {run}".encode()).digest() for run in range(200)]
        outputs = [
            [privatize(center[i : i + 1], 0, noise, key, "audit")[0] for i in (0, 1)]
            for key in keys
        ]
        gaps.append({int(a - b) for a, b in outputs})
    assert not gaps[0] & gaps[1]  # the two databases are told apart with certainty
