"""Sizes of the sensitivity sampler: the paper's formulas, and its theorem by simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import lambertw

from dbern.errors import SpecError
from dbern.privacy.budget import Budget
from dbern.privacy.random_privacy import RandomPrivacy, fewest_samples, order_statistic

GAMMAS = ["0.9", "0.5", "0.1", "0.05", "0.01", "0.002"]


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_fewest_samples_are_the_papers(gamma):
    g = float(gamma)
    rho = math.exp(lambertw(-g / (2 * math.sqrt(math.e)), -1).real + 0.5)
    assert 0 < rho < min(g, 0.5)
    fewest = fewest_samples(Fraction(gamma))
    assert fewest == math.ceil(math.log(1 / rho) / (2 * (g - rho) ** 2))
    assert order_statistic(fewest, Fraction(gamma)) <= fewest
    assert order_statistic(fewest - 1, Fraction(gamma)) > fewest - 1


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("samples", [10, 300, 5000, 100_000])
def test_the_order_is_the_papers_and_no_rho_gives_less(gamma, samples):
    g = float(gamma)

    def order(rho):
        return samples * (1 - g + rho + math.sqrt(math.log(1 / rho) / (2 * samples)))

    found = order_statistic(samples, Fraction(gamma))
    paper = order(math.exp(lambertw(-1 / (4 * samples), -1).real / 2))
    assert paper <= found <= paper + 1 + 1e-6
    assert all(found <= order(rho) + 1 for rho in np.geomspace(1e-12, 0.5, 2000))


@pytest.mark.parametrize("gamma", ["0.5", "0.1"])
def test_fresh_neighbours_are_farther_apart_no_more_often_than_gamma(gamma):
    """Uniform distances are the general case: only ranks matter. One order lower is near the edge
    of what the inequality proves, not of the truth; half of the samples' share is beyond it."""
    samples = fewest_samples(Fraction(gamma))
    rng = np.random.default_rng(8)
    draws = np.sort(rng.uniform(size=(20_000, samples)), axis=1)

    def missed(order):
        return float(1 - draws[:, order - 1].mean())

    assert missed(order_statistic(samples, Fraction(gamma))) <= float(gamma)
    assert missed(max(1, math.floor(samples * (1 - 1.5 * float(gamma))))) > float(gamma)


def test_it_survives_json_and_never_looks_like_a_budget():
    found = RandomPrivacy(Budget.parse("1", "1e-6"), Fraction(1, 20), "mine:draw", 1305, 1305, 7)
    assert RandomPrivacy.from_dict(found.to_dict(), found.budget) == found
    assert not isinstance(found, Budget)
    assert "RANDOM DP only" in str(found)


@pytest.mark.parametrize("gamma", ["0", "1", "0.0001", "1.5"])
def test_a_gamma_that_cannot_be_is_refused(gamma):
    with pytest.raises(SpecError, match=r'^target\.sensitivity\.gamma: .*[Ww]rite gamma = "0.1"'):
        fewest_samples(Fraction(gamma))
