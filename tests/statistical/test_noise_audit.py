"""Audits of the release step that must catch planted bugs: half the scale, reused noise.

All keys are fixed, so every run sees the same samples; thresholds leave a chance below 1e-6 that
a right mechanism would have been unlucky when the keys were chosen.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from audits import chances
from scipy import stats

import dbern
from dbern.planning.planner import plan_files
from dbern.privacy.calibration import calibrate_gaussian, calibrate_k_norm, calibrate_laplace
from dbern.privacy.families import errors_of
from dbern.privacy.keystream import KeyStream
from dbern.privacy.laplace import discrete_k_norm
from dbern.privacy.laws import GaussianNoise, LaplaceNoise
from dbern.privacy.mechanism import privatize, to_grid
from dbern.types import Int64Array

pytestmark = pytest.mark.slow

RUNS = 20_000  # what half the scale spends shows from 1600 on, and noise that is shared from 700 on
EPSILON = Fraction(1)
COEFFICIENTS = 2
NOISE = calibrate_laplace(
    Fraction(1), Fraction(1, 10**9), COEFFICIENTS, EPSILON, bound=Fraction(10)
)
GAUSSIAN = calibrate_gaussian(
    Fraction(1), Fraction(1, 10**9), COEFFICIENTS, EPSILON, Fraction(1, 1000), bound=Fraction(10)
)
Mechanism = Callable[[Int64Array, bytes], Int64Array]
"""From the centers of runs (runs, coefficients) and a key to their outputs.

One call holds all runs: positions of a release have independent noise.
"""


def right(centers: Int64Array, key: bytes) -> Int64Array:
    return privatize(centers.ravel(), 65000, NOISE, key, "audit").reshape(centers.shape)


def half_scale(centers: Int64Array, key: bytes) -> Int64Array:
    halved = replace(NOISE, scale=NOISE.scale // 2)
    return privatize(centers.ravel(), 65000, halved, key, "audit").reshape(centers.shape)


def reused(centers: Int64Array, key: bytes) -> Int64Array:
    return np.column_stack([privatize(column, 0, NOISE, key, "audit") for column in centers.T])


def neighbours(shape: str) -> tuple[Int64Array, Int64Array]:
    """Centers at l1 distance exactly Delta_int, in one coefficient or spread over all."""
    center = np.array([17, -5])
    move = NOISE.l1_sensitivity_granules
    shift = np.array([move, 0]) if shape == "one" else np.array([move // 2, move - move // 2])
    assert int(np.abs(shift).sum()) == move
    return center, center + shift


def outputs(mechanism: Mechanism, center: Int64Array, label: str, runs: int) -> Int64Array:
    return mechanism(np.tile(center, (runs, 1)), hashlib.sha256(label.encode()).digest())


def events(noisy: Int64Array, first: Int64Array, second: Int64Array) -> list[int]:
    """How often each output event of the audit's family happened.

    The first is where the likelihood ratio of the right mechanism is exactly exp(epsilon); the
    second looks at the difference of two coefficients, which no noise protects when it is shared.
    """
    low = int((noisy <= first).all(axis=1).sum())
    moved = second - first
    gap = (noisy[:, 0] - noisy[:, 1]) - (first[0] - first[1])
    return [low, int((2 * gap <= moved[0] - moved[1]).sum())]


Pair = tuple[Int64Array, Int64Array]


def epsilon_below(
    mechanism: Mechanism, pair: Pair, label: str, runs: int = RUNS, false_alarm: float = 1e-8
) -> float:
    """A lower confidence bound on the mechanism's epsilon."""
    first, second = pair
    here = events(outputs(mechanism, first, f"{label} first", runs), first, second)
    there = events(outputs(mechanism, second, f"{label} second", runs), first, second)
    pairs = zip(here, there, strict=True)
    bounds = [chances(*pair, runs, false_alarm / (2 * len(here))) for pair in pairs]
    return max(0.0, *(math.log(lower / upper) for lower, upper in bounds if lower > 0))


@pytest.mark.parametrize("shape", ["one", "spread"])
def test_right_calibration_is_not_rejected(shape: str) -> None:
    found = epsilon_below(right, neighbours(shape), f"right {shape}")
    assert 0.3 < found <= EPSILON  # and the audit is not blind


@pytest.mark.parametrize("shape", ["one", "spread"])
def test_half_the_scale_is_rejected(shape: str) -> None:
    assert epsilon_below(half_scale, neighbours(shape), f"half {shape}") > EPSILON


def test_noise_reused_across_coefficients_is_rejected() -> None:
    assert epsilon_below(reused, neighbours("one"), "reused one", 1000) > 3 * EPSILON


@pytest.mark.parametrize(("points", "rejected"), [("(k+1)^l", False), ("k^l", True)])
def test_the_number_of_lattice_points_is_k_plus_one(points: str, rejected: bool) -> None:
    """A record whose kernel is as wide as the lattice against a missing one: both values move."""
    spec = dbern.ReleaseSpec(
        release={"name": "audit", "output": "audit.zarr"},
        data={"source": "*.parquet", "bounds": {"x": [0.0, 1.0]}, "n": 1},
        target={"kind": "kernel-density", "bandwidth": [1000.0]},
        mechanism={"k": 1, "h": 1, "calibration": "paper"},
        budget={"epsilon": "1.0", "ledger": "sqlite:///l.db", "dataset": "audit"},
    )
    plan = plan_files(spec, ())
    law = plan.noise.law
    assert isinstance(law, LaplaceNoise)
    if points == "k^l":
        law = replace(law, scale=law.scale * 1 // 2)

    def center(record: float) -> Int64Array:
        counters = plan.counters(spec)
        state = counters.empty()
        state += counters.count([{"x": np.array([record])}], b"")
        return to_grid(counters.to_values(state, 0, 0, next(plan.lattice.slabs())), law)

    def noisy(centers: Int64Array, key: bytes) -> Int64Array:
        return privatize(centers.ravel(), 0, law, key, "audit").reshape(centers.shape)

    found = epsilon_below(noisy, (center(math.nan), center(0.5)), points)
    assert (found > EPSILON) == rejected
    assert found > 0.3


@pytest.mark.parametrize("separate", [False, True])
def test_one_vector_covers_the_record_that_changes_its_output(separate: bool) -> None:
    """Of two outputs of one bin each; apart, each would spend all that the two have."""
    law = calibrate_k_norm(Fraction(1), Fraction(0), 2, EPSILON, bound=Fraction(10))
    side, signs = law.l1_sensitivity_granules // 2, np.array([-1, 1])
    parts = (1, 1) if separate else (2,)

    def noisy(centers: Int64Array, key: bytes) -> Int64Array:
        """What one output gains the other loses."""
        columns = []
        for block, values in enumerate(parts):
            stream = KeyStream(hashlib.sha256(key + bytes([block])).digest(), 0)
            vectors = discrete_k_norm(law.scale, values, stream, stream.second())
            zeros = np.zeros(values, np.int64)
            columns.append([next(vectors).added_to(zeros) for _ in range(len(centers))])
        return centers + signs * np.hstack(columns)

    center = np.array([17, -5])
    found = epsilon_below(noisy, (center, center + side), f"outputs {separate}")
    assert (found > EPSILON) == separate
    assert found > 0.3


@pytest.mark.parametrize(
    ("noise", "least"),
    [
        (NOISE, 0.04),  # a union bound over 21 is nearly tight
        (GAUSSIAN, 0.03),  # Mills' ratio and the union bound cost little
    ],
    ids=["laplace", "gaussian"],
)
def test_sampled_sup_norm_stays_under_the_tail(
    noise: LaplaceNoise | GaussianNoise, least: float
) -> None:
    count, beta = 21, Fraction(1, 20)
    bound = errors_of(noise).tail(count, beta)
    releases = 20 * 65536 // count
    drawn = privatize(np.zeros(releases * count, np.int64), 0, noise, bytes(32), "tail")
    largest = np.abs(drawn.reshape(releases, count)).max(axis=1) * float(noise.granularity)
    exceeded = int((largest >= bound).sum())
    assert stats.binomtest(exceeded, releases, 0.05, alternative="greater").pvalue > 1e-9
    assert exceeded > least * releases
