"""Order and rank chosen after release, bands, and the piecewise-constant baseline."""

import math

import numpy as np
import pytest
from banding import planned

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.kernels import Gaussian
from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.laplace import discrete_laplace
from dbern.privacy.public_numbers import public_stream
from dbern.synopsis.smoothing import select, smoothed, smoothings


def figure_one(bandwidth, epsilon):
    """The paper's Figure 1 in miniature: plan, exact values, and the true curve on a grid."""
    rng = np.random.default_rng(5)
    n = 5000
    first = rng.random(n) < 0.4
    records = np.where(first, rng.normal(0.5, 0.141, n), rng.normal(0.75, 0.0707, n)).clip(0, 1)
    _, plan = planned(1, n, bandwidth, noise="laplace", epsilon=epsilon)
    kernel, y = Gaussian(bandwidth), np.linspace(0, 1, 201)
    lattice = kernel(plan.lattice.nodes(0)[:, None] - records).mean(axis=1)
    return plan, lattice, y, kernel(y[:, None] - records).mean(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize(("bandwidth", "epsilon"), [(0.1, "1"), (0.1, "0.1"), (0.05, "1")])
def test_auto_is_near_the_best_fixed_choice(bandwidth, epsilon):
    plan, exact, y, truth = figure_one(bandwidth, epsilon)
    candidates = smoothings(plan.strategy, plan.h)
    maps = [
        bernstein_basis(y, plan.k[0]) @ smoothed(plan.strategy, one).matrices(one.h)[0]
        for one in candidates
    ]
    chosen, errors = [], []
    for draw in range(60):
        stream = public_stream("test of selection", draw)
        noise_drawn = discrete_laplace(plan.noise.law.scale, len(exact), stream)
        noisy = (
            exact + noise_drawn.added_to(np.zeros(len(exact), np.int64)) * plan.noise.granularity
        )
        errors.append([np.abs(each @ noisy - truth).max() for each in maps])
        best = select(
            noisy, NoiseCovariance(math.sqrt(2) * plan.noise.scale), plan.strategy, plan.h
        )
        chosen.append(errors[-1][candidates.index(best)])
    fixed = np.mean(errors, axis=0)
    assert np.mean(chosen) <= 1.25 * fixed.min()
    assert np.mean(chosen) < 0.5 * fixed.max()  # choosing matters: the worst is far off
