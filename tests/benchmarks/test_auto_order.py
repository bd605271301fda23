"""`h = "auto"`, chosen from released values alone, beside the best fixed h of an oracle.

With the plan's own noise, which is bins on these tasks. The oracle knows the truth, and which h has
the least mean sup error over all repeats; "auto" sees one release at a time.
"""

import os

import numpy as np
import pytest
from rivals.ours import Planned, planned
from rivals.tasks import figure_one, grid, mixture

from dbern.bernstein.basis import bernstein_basis
from dbern.privacy.families import errors_of
from dbern.synopsis.smoothing import ORDERS, Smoothing, full_ranks, select, smoothed

REPEATS = int(os.environ.get("DBERN_REPEATS", "20"))
TASKS = {"figure 1, b .1": figure_one(0.1), "figure 1, b .05": figure_one(0.05), "2-d": mixture()}
MOST = 1.1  # times the best fixed h


def on_grid(released, strategy, smoothing, positions):
    used = smoothed(strategy, smoothing)
    for k, matrix in zip(used.lattice.k, used.matrices(smoothing.h), strict=True):
        released = np.tensordot(released, bernstein_basis(positions, k) @ matrix, axes=(0, 1))
    return released


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("name", TASKS)
def test_auto_is_within_a_tenth_of_the_best_fixed_order(name, epsilon):
    task, rng = TASKS[name], np.random.default_rng(11)
    plan, granules = planned(task, epsilon)
    strategy, axes = plan.strategy, len(plan.k)
    count = {1: 401, 2: 81}[axes]
    positions = np.linspace(0, 1, count)
    truth = task.exact(grid(count, axes)).reshape((count,) * axes)
    law = plan.noise.law
    noise = errors_of(law).covariance.scaled(2.0**law.granularity_exponent)
    fixed = [Smoothing((h,) * axes, full_ranks(strategy)) for h in sorted({*ORDERS, *plan.h})]
    errors, chosen = [], []
    for noisy in Planned(plan, granules).draw(rng, REPEATS):
        released = noisy.reshape(strategy.layout.shape)
        best = select(released, noise, strategy, plan.h)
        each = [on_grid(released, strategy, one, positions) for one in (*fixed, best)]
        *known, own = (float(np.abs(one - truth).max()) for one in each)
        errors.append(known)
        chosen.append(own)
    means = np.mean(errors, axis=0)
    ratio = np.mean(chosen) / means.min()
    least = fixed[int(means.argmin())].h[0]
    print(
        f"\n{name}, epsilon {epsilon:g}: {plan.noise.kind}, k {plan.k[0]}, h {plan.h[0]}: auto "
        f"{np.mean(chosen):.4g}, best fixed h {least}: {means.min():.4g}, worst {means.max():.4g}, "
        f"ratio {ratio:.3f}"
    )
    assert ratio <= MOST
