"""Densities of every kernel: brute-force sensitivities, sums without noise, plans."""

from __future__ import annotations

import json

import numpy as np
import pytest
import reference
from conformance import granules
from strategies import density_plan, density_spec, sections

from dbern.bernstein.kernels import KERNELS
from dbern.errors import SpecError
from dbern.planning.planner import plan_files
from dbern.planning.plans import ReleasePlan
from dbern.planning.spec import ReleaseSpec

NAMES = [name for name in KERNELS if name != "gaussian"]
# Every kernel at once would take too long: the others go with the slow tests.
PACED = [
    pytest.param(name, marks=[] if name in ("triangle", "matern-3/2") else pytest.mark.slow)
    for name in NAMES
]
CASES = [((0.08,), (10,)), ((0.15,), (9,)), ((0.6,), (5,)), ((3.0,), (4,)), ((0.3, 0.2), (4, 5))]


def test_the_least_bandwidth_that_a_message_names_is_taken():
    """Of an axis of width 24 it is .0024, a share just below 1e-4 in floats."""
    given = {"data": {"bounds": {"x": [0.0, 24.0]}}, "target": {"bandwidth": [0.0024]}}
    assert 0.0024 / 24 < 1e-4
    assert ReleaseSpec(**sections(**given)).components[0].kernels[0].bandwidth < 1e-4
    given["target"] = {"bandwidth": [0.0023]}
    with pytest.raises(SpecError, match=r"Write one of 0.0024 to"):
        list(ReleaseSpec(**sections(**given)).components)


def positions(name, bandwidth, k):
    """Per axis: lattice points, kinks of some, their neighbours, between; then all combinations."""
    axes = []
    for b, count in zip(bandwidth, k, strict=True):
        v = np.arange(count + 1) / count
        kinks = np.concatenate([v + sign * b for sign in (-1, 1)])
        middle = 0.5 + np.linspace(-0.5, 0.5, 9) / count
        pool = np.concatenate([v, v + 1e-9, v + 0.5 / count, kinks, kinks + 1e-9, middle])
        pool = np.unique(pool[(pool >= 0) & (pool <= 1)])
        axes.append(pool if len(k) == 1 else pool[:: len(pool) // 12 + 1])
    return np.array(np.meshgrid(*axes, indexing="ij")).reshape(len(k), -1).T


@pytest.mark.parametrize("name", PACED)
@pytest.mark.parametrize(("bandwidth", "k"), CASES)
def test_no_replacement_moves_the_exact_values_more_than_planned(name, bandwidth, k):
    plan = density_plan(bandwidth, k, n=50, kernel=name)
    rows = reference.contributions(positions(name, bandwidth, k), k, bandwidth, name)
    worst = reference.delta1(rows) / 50
    assert worst <= plan.sensitivity.l1 <= 2.1 * worst
    pointwise = max(np.ptp(rows[:, p]) for p in range(rows.shape[1])) / 50
    assert pointwise <= plan.sensitivity.function <= 1.05 * pointwise


@pytest.mark.thorough
@pytest.mark.parametrize("name", PACED)
@pytest.mark.parametrize(("bandwidth", "k"), [CASES[0], CASES[4]])
@pytest.mark.parametrize("noise", ["laplace", "binned-laplace"])
def test_no_replacement_moves_the_released_integers_more_than_planned(name, bandwidth, k, noise):
    spec = density_spec(bandwidth, k, n=2, kernel=name, noise=noise)
    plan = plan_files(spec, ())
    every = positions(name, bandwidth, k)
    rng = np.random.default_rng(2)
    every = every[rng.permutation(len(every))[:28]]
    rows = np.vstack([every, np.full((1, len(k)), np.nan), np.full((1, len(k)), 7.0)])
    other = rng.uniform(size=(1, len(k)))
    staged = np.array([granules(spec, plan, np.vstack([other, row])) for row in rows])
    largest = max(int(np.abs(staged - one).sum(axis=1).max()) for one in staged)
    assert largest <= plan.noise.law.l1_sensitivity_granules
    assert largest > 0.4 * plan.noise.law.l1_sensitivity_granules


@pytest.mark.parametrize("name", PACED)
@pytest.mark.parametrize(("bandwidth", "k"), [CASES[1], CASES[4]])
def test_values_without_noise_are_the_density(name, bandwidth, k):
    rng = np.random.default_rng(5)
    records = np.vstack([rng.beta(2, 5, size=(150, len(k))),
                         rng.choice(positions(name, bandwidth, k), 50)])  # fmt: skip
    spec = density_spec(bandwidth, k, n=200, kernel=name)
    plan = plan_files(spec, ())
    exact = reference.density(reference.lattice_points(k), records, bandwidth, 200, name)
    (accumulator,), g = plan.counters(spec).parts, float(plan.noise.law.granularity)
    allowed = (
        accumulator.errors.kernel + accumulator.errors.position + accumulator.errors.floats + g / 2
    )
    assert np.abs(granules(spec, plan, records) * g - exact).max() <= allowed
    assert allowed <= plan.certificate.rounding
    assert accumulator.errors.kernel <= 0.0101 * plan.noise.scale


@pytest.mark.slow
@pytest.mark.parametrize("name", PACED)
def test_plans_survive_json_and_name_the_noise_they_may(name):
    content = sections(
        target={"kernel": name, "bandwidth": [0.3]},
        mechanism={"k": "auto", "h": "auto", "noise": "auto"},
    )
    plan = plan_files(ReleaseSpec(**content), ())
    assert ReleasePlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert plan.noise.kind in {"binned-k-norm", "binned-laplace", "laplace"}


@pytest.mark.slow
def test_auto_chooses_no_lattice_too_fine_for_its_cells():
    content = sections(
        data={"bounds": {name: [0.0, 1.0] for name in "xyz"}},
        target={"kernel": "biweight", "bandwidth": [0.07, 0.07, 0.07]},
        mechanism={"k": "auto", "h": 2, "noise": "laplace"},
    )
    plan = plan_files(ReleaseSpec(**content), ())
    assert max(plan.k) < 0.8 / (0.07 / 7**0.5)  # coarser than any usual resolution
    assert plan.counters(ReleaseSpec(**content)).state_bytes <= 1 << 28


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("axes", "n", "width", "mechanism"),
    [(3, 80_000, 0.0185, {}), (3, 90_000_000, 0.0282, {"h": 2}), (4, 50_000_000, 0.083, {"h": 2}),
     (5, 10_000, 0.3, {"k": "auto"})],
)  # fmt: skip
def test_auto_chooses_what_can_be_counted(kernel, axes, n, width, mechanism):
    content = sections(
        data={"bounds": {name: [0.0, 1.0] for name in "xyzuv"[:axes]}, "n": n},
        target={"kernel": kernel, "bandwidth": [width] * axes},
        mechanism={"noise": "auto", "k": None, "h": None, **mechanism},
        budget={"epsilon": "100", "delta": "1e-6"},
    )
    plan = plan_files(ReleaseSpec(**content), ())
    assert plan.counters(ReleaseSpec(**content)).state_bytes <= 1 << 32


def test_a_lattice_too_fine_for_its_noise_gives_way_to_a_coarser_one():
    """Where the noise is of lattice values; the finest that can be counted is taken."""
    content = sections(
        data={"bounds": {name: [0.0, 1.0] for name in "xyz"}, "n": 2000},
        target={"kernel": "triweight", "bandwidth": [0.1, 0.1, 0.1]},
        mechanism={"k": "auto", "h": None, "noise": "laplace"},
        budget={"epsilon": "1"},
    )
    assert plan_files(ReleaseSpec(**content), ()).k == (16, 16, 16)
