"""Noise of weighted sums of releases: draws and tails against sums of draws of each."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dbern.privacy.families import errors_of
from dbern.privacy.laws import GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.public_numbers import public_stream
from dbern.privacy.sums import OutputSum, SumNoise

LAWS = [LaplaceNoise(5000, -20, 5000), GaussianNoise(5000, -20, 5000**2)]
VECTORS = KNormNoise(5000, -20, 5000, values=2)
WEIGHTS = [[1.0], [0.5, 0.5, -0.25], [1.0] * 5 + [18 / 19] + [1 / 19] * 18]
DRAWS = 40_000


def summed(law, weights, draws, index):
    """Draws of the sum by the draws of each law, in granules."""
    errors = errors_of(law)
    return sum(
        weight * errors.simulate(1, draws, public_stream("sums of each", 100 * index + i))[0]
        for i, weight in enumerate(weights)
    )


@pytest.mark.parametrize("law", [*LAWS, VECTORS], ids=lambda law: law.kind)
@pytest.mark.parametrize("weights", WEIGHTS, ids=len)
def test_draws_are_those_of_the_sum_of_each(law, weights):
    """By the two-sample statistic of Kolmogorov and Smirnov, exceeded by chance once in 10^6."""
    of_sum = SumNoise.of(law, weights)
    drawn = errors_of(of_sum).simulate(2, DRAWS // 2, public_stream("a sum", 0))
    assert drawn.shape == (2, DRAWS // 2)
    one, other = np.sort(drawn.ravel()), np.sort(summed(law, weights, DRAWS, len(weights)))
    every = np.concatenate([one, other])
    ranks = [np.searchsorted(side, every, side="right") / DRAWS for side in (one, other)]
    assert np.abs(ranks[0] - ranks[1]).max() < math.sqrt(-math.log(1e-6 / 2) / DRAWS)
    deviation = errors_of(of_sum).covariance.deviation
    assert drawn.std() == pytest.approx(deviation, rel=0.03)
    planted = np.sort(1.1 * one)  # a deviation of a tenth more would be seen
    ranks[0] = np.searchsorted(planted, every, side="right") / DRAWS
    assert np.abs(ranks[0] - ranks[1]).max() > math.sqrt(-math.log(1e-6 / 2) / DRAWS)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
@pytest.mark.parametrize("weights", WEIGHTS, ids=len)
def test_tails_hold_for_sums_of_draws(law, weights):
    of_sum, beta = SumNoise.of(law, weights), Fraction(1, 20)
    errors, drawn = errors_of(of_sum), np.abs(summed(law, weights, DRAWS, 7 + len(weights)))
    reached = math.ldexp(errors.tail(1, beta), -law.granularity_exponent)
    chance = 5 * math.sqrt(float(beta) / DRAWS)
    assert (drawn >= reached).mean() <= float(beta) + chance
    assert (2.5 * drawn >= reached).mean() > float(beta), "far wider than it has to be"
    level = math.log(20)
    root, largest = np.array([1.0]), np.array([1.0])
    assert (drawn > errors.weighted_tail(root, largest, level)).mean() <= 2 / 20 + chance
    assert (drawn > errors.node_tail(1.0, 1.0, level)).mean() <= 2 / 20 + chance


def test_a_sum_counts_equal_weights_together():
    assert SumNoise.of(LAWS[0], [0.5, 0.25, 0.5]).weights == ((0.25, 1), (0.5, 2))


def test_sums_of_vectors_have_the_covariance_of_a_vector():
    """As K-norm noise takes back what it would inherit of Laplace noise, whose values are apart."""
    errors = errors_of(SumNoise.of(VECTORS, [1.0, 0.5]))
    drawn = errors.simulate(2, DRAWS, public_stream("a sum", 0))
    for weights in ([1.0, 1.0], [1.0, -1.0]):
        variance = errors.covariance.variance(np.array(2.0), np.array(sum(weights)))
        assert (weights @ drawn).var() == pytest.approx(variance, rel=0.04)


@pytest.mark.parametrize(
    "law", [*LAWS, KNormNoise(5000, -20, 5000, values=8)], ids=lambda law: law.kind
)
def test_a_sum_of_outputs_has_the_noise_of_one_release(law):
    """Of outputs of one vector too: their sum errs less than that of two releases."""
    size, outputs = 4, 2
    of_sum = OutputSum.of(law, (1.0,) * outputs)
    assert of_sum.values == law.values / outputs
    errors, single = errors_of(of_sum), errors_of(law)
    drawn = errors.simulate(size, DRAWS, public_stream("a sum of outputs", 0))
    both = single.simulate(outputs * size, DRAWS, public_stream("a sum of outputs", 0))
    np.testing.assert_array_equal(drawn, both[:size] + both[size:])
    found, told = np.cov(drawn), errors.covariance
    known = told.deviation**2 * (
        (1 - told.correlation) * np.eye(size) + told.correlation * np.ones((size, size))
    )
    np.testing.assert_allclose(found, known, atol=0.04 * known[0, 0])
    if law.values < math.inf:  # as independent releases it would be more
        assert told.deviation < 0.98 * errors_of(SumNoise.of(law, (1.0, 1.0))).covariance.deviation
        assert np.abs(found - 2 * single.covariance.deviation**2 * np.eye(size)).max() > (
            0.1 * known[0, 0]
        )
    level, weights = math.log(20), np.array([1.0, -0.5, 2.0, 0.3])
    for each in (weights, np.ones(size), np.eye(size)[0]):
        root, largest = np.array([np.linalg.norm(each)]), np.array([np.abs(each).max()])
        beyond = (np.abs(each @ drawn) > errors.weighted_tail(root, largest, level)).mean()
        assert beyond <= 2 / 20 + 5 * math.sqrt(0.05 / DRAWS)
        far = (np.abs(each @ drawn) > errors.weighted_tail(root / 3, largest / 3, level)).mean()
        assert far > 2 / 20 or law.values < math.inf, "a third of it would not do"
