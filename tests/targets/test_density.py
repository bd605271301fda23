"""Kernel densities: brute-force sensitivities, the sums that integers stand for, and plans."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import reference
from conformance import granules, granules_of_each, moves
from strategies import density_plan, density_spec, sections

from dbern.bernstein.kernels import KERNELS, Gaussian
from dbern.errors import SpecError
from dbern.measure.kernel_sketch import Cells, smallest_sketch, truncation_error
from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.spec import ReleaseSpec

# bandwidth and k per axis: narrow, matched, wide, beyond the domain, mixed axes
CASES = [
    ((0.02,), (20,)),
    ((0.1,), (20,)),
    ((0.5,), (7,)),
    ((1.0,), (20,)),
    ((10.0,), (3,)),
    ((0.3,), (1,)),
    ((0.004,), (150,)),
    ((0.1, 0.3), (6, 4)),
    ((5.0, 0.05), (3, 9)),
    ((2.0, 2.0), (4, 4)),
    ((0.2, 0.4, 1.0), (3, 2, 2)),
]
KINKED = [((0.08,), (10,)), ((0.15,), (9,)), ((0.6,), (5,)), ((3.0,), (4,)), ((0.3, 0.2), (4, 5))]
NAMES = [name for name in KERNELS if name != "gaussian"]


def paced(name):
    """Every kernel at once would take too long: some go with the slow tests."""
    return () if name in ("gaussian", "triangle", "matern-3/2") else pytest.mark.slow


def with_kernels(cases, kinked):
    """Rows of a kernel and a case: Gaussians for the first ones, the others for the second."""
    fast = {("gaussian", *cases[0]), ("triangle", *kinked[0]), ("matern-3/2", *kinked[0])}
    rows = [("gaussian", *case) for case in cases]
    rows += [(name, *case) for name in NAMES for case in kinked]
    return [pytest.param(*row, marks=[] if row in fast else pytest.mark.slow) for row in rows]


def positions(k, name="gaussian", bandwidth=()):
    """A dense grid off and on the lattice, ends and middle included; kinks and their neighbours."""
    axes = []
    for axis, count in enumerate(k):
        many = {1: 4, 2: 2, 3: 1}[len(k)] * count
        grid = np.concatenate([np.linspace(0, 1, many + 1), [0.5, 0.5 - 0.5 / count, 0.31]])
        if name != "gaussian":
            v = np.arange(count + 1) / count
            kinks = np.concatenate([v + sign * bandwidth[axis] for sign in (-1, 1)])
            middle = 0.5 + np.linspace(-0.5, 0.5, 9) / count
            grid = np.concatenate([v, v + 1e-9, v + 0.5 / count, kinks, kinks + 1e-9, middle])
            grid = np.unique(grid[(grid >= 0) & (grid <= 1)])
            grid = grid if len(k) == 1 else grid[:: len(grid) // 12 + 1]
        axes.append(np.unique(np.clip(grid, 0, 1)))
    return np.array(np.meshgrid(*axes, indexing="ij")).reshape(len(k), -1).T


# --- sensitivities


@pytest.mark.parametrize(("name", "bandwidth", "k"), with_kernels(CASES, KINKED))
def test_no_replacement_moves_the_exact_values_more_than_planned(name, bandwidth, k):
    plan = density_plan(bandwidth, k, n=50, kernel=name)
    rows = reference.contributions(positions(k, name, bandwidth), k, bandwidth, name)
    worst = reference.delta1(rows) / 50
    assert worst <= plan.sensitivity.l1 <= 2.1 * worst
    pointwise = max(np.ptp(rows[:, p]) for p in range(rows.shape[1])) / 50
    assert pointwise <= plan.sensitivity.function <= 1.05 * pointwise


RELEASED = with_kernels(
    [(*CASES[case], 1000, epsilon, "laplace")
     for case, epsilon in ((0, "10"), (1, "10"), (1, "1000"), (4, "1"), (5, "10"), (7, "10"),
                           (8, "10"), (9, "100"))],
    [(*KINKED[case], 2, "1", noise)
     for case in (0, 4) for noise in ("laplace", "binned-laplace")],
)  # fmt: skip


@pytest.mark.parametrize(("name", "bandwidth", "k", "n", "epsilon", "noise"), RELEASED)
def test_no_replacement_moves_the_released_integers_more_than_planned(
    name, bandwidth, k, n, epsilon, noise
):
    given = {"n": n, "epsilon": epsilon, "kernel": name, "noise": noise}
    spec, plan = density_spec(bandwidth, k, **given), density_plan(bandwidth, k, **given)
    rng = np.random.default_rng(1)
    every = rng.permutation(positions(k, name, bandwidth))[:40]
    others = rng.uniform(size=(n - 1, len(k)))
    missing = np.array([[np.nan], [7.0]]) * np.ones(len(k))
    databases = [np.vstack([others, row]) for row in (*every, *missing)]
    assert 0.4 < max(moves(plan, granules_of_each(spec, plan, databases))) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("bandwidth", "k"), CASES)
def test_the_papers_calibration_is_n_times_the_function(bandwidth, k):
    plan = density_plan(bandwidth, k, n=50, calibration="paper")
    size = math.prod(count + 1 for count in k)
    peak = math.prod(1 / (b * math.sqrt(2 * math.pi)) for b in bandwidth)
    assert size * peak / 50 <= plan.sensitivity.l1 <= 1.03 * size * peak / 50
    assert density_plan(bandwidth, k, n=50).sensitivity.l1 <= plan.sensitivity.l1 * 1.01


def test_the_search_catches_wrong_formulas():
    """Each of these was printed or proposed somewhere, and brute force exceeds it."""

    def worst(bandwidth, k):
        return reference.delta1(reference.contributions(positions(k), k, bandwidth))

    def sums(bandwidth, k):
        rows = reference.contributions(positions(k), k, bandwidth)
        return np.abs(rows).sum(axis=1).max()

    # the remove-one figure where one record is replaced
    assert worst((0.05,), (20,)) > 1.5 * sums((0.05,), (20,))
    # k^l lattice points instead of (k + 1)^l: a wide bump against the missing record
    for k in ((3,), (4, 4)):
        wide = (10.0,) * len(k)
        peak = math.prod(1 / (b * math.sqrt(2 * math.pi)) for b in wide)
        assert worst(wide, k) > math.prod(k) * peak
    # the pairwise maximum without the missing record: 1.82 against 8.01
    rows = reference.contributions(positions((20,)), (20,), (1.0,))
    assert reference.delta1(rows[:-1]) == pytest.approx(1.82, abs=0.02)
    assert reference.delta1(rows) == pytest.approx(8.01, abs=0.02)


def test_gains_over_the_papers_calibration():
    # The tight sensitivity is smaller by these factors on one axis, k = 20.
    for bandwidth, gain in ((0.1, 2.1), (0.05, 4.2), (0.02, 9.7)):
        tight = density_plan((bandwidth,), (20,), n=100_000).sensitivity.l1
        paper = density_plan((bandwidth,), (20,), n=100_000, calibration="paper").sensitivity.l1
        assert paper / tight == pytest.approx(gain, rel=0.04)


def test_the_effective_kernel_enters_the_sensitivity_and_the_certificate():
    """Delta_int covers the exact kernel, 2 N rho / n, and both roundings, term by term."""
    n, k, bandwidth = 40, (9,), (0.2,)
    spec, plan = density_spec(bandwidth, k, n=n), density_plan(bandwidth, k, n=n)
    (counters,) = plan.counters(spec).parts
    g = plan.noise.law.granularity
    exact = 2 * Fraction(Gaussian(0.2).lattice_sum(9)) / n
    parts = exact + 2 * 10 * Fraction(counters.errors.kernel) / n
    parts += 10 * (2 * Fraction(counters.errors.floats) + g)
    assert plan.noise.law.l1_sensitivity_granules >= parts / g
    assert plan.noise.law.scale >= plan.noise.law.l1_sensitivity_granules  # epsilon 1
    assert plan.certificate.rounding >= counters.errors.kernel + float(g) / 2


# --- sketches and values


@pytest.mark.sample(test=1)
@pytest.mark.parametrize(("bandwidth", "k"), CASES)
@pytest.mark.parametrize("epsilon", ["0.1", "10"])
def test_the_chosen_sketch_costs_a_percent_of_the_sensitivity(bandwidth, k, epsilon):
    n = 10_000
    spec = density_spec(bandwidth, k, n=n, epsilon=epsilon)
    plan = density_plan(bandwidth, k, n=n, epsilon=epsilon)
    (counters,) = plan.counters(spec).parts
    rho, sketch = counters.errors.kernel, counters.sketch
    size = math.prod(count + 1 for count in k)
    assert 2 * size * rho / n <= 0.0101 * plan.sensitivity.l1
    assert rho <= 0.0101 * plan.noise.scale
    assert n * 2**sketch.bits < 2**62
    assert all(0.5 / c <= b for c, b in zip(sketch.cells, bandwidth, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 10**7, 2**34, 2**45 - 1])
@pytest.mark.parametrize(("bandwidth", "k"), [((0.1,), (20,)), ((0.2, 0.2), (10, 10))])
@pytest.mark.parametrize("epsilon", ["1", "10"])
def test_every_number_of_rows_has_a_plan_that_cannot_overflow(bandwidth, k, n, epsilon):
    plan = density_plan(bandwidth, k, n=n, epsilon=epsilon)
    assert n * 2 ** plan.components[0].counting["bits"] < 2**62


@pytest.mark.parametrize("bandwidth", [(0.1,), (0.003,), (2.0,), (0.1, 0.4), (0.2, 0.3, 0.5)])
@pytest.mark.parametrize("order", [0, 1, 3, 8])
@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-5])
def test_the_smallest_sketch_meets_its_tolerance_and_is_small(bandwidth, order, tolerance):
    kernels = [Gaussian(b) for b in bandwidth]
    sketch = smallest_sketch(kernels, (20,) * len(kernels), order, 28, tolerance)
    if sketch is None:  # only where order 0 would need far too many cells
        assert order <= 1
        return
    assert truncation_error(kernels, sketch.axes, order, 28) <= tolerance
    fewer = tuple(math.ceil(0.95 * cells) - 1 for cells in sketch.cells)
    if all(0.5 / max(1, c) < b for c, b in zip(fewer, bandwidth, strict=True)) and min(fewer) > 0:
        assert truncation_error(kernels, [Cells(count) for count in fewer], order, 28) > tolerance


@pytest.mark.parametrize(
    ("name", "bandwidth", "k", "seed"),
    [
        *(("gaussian", *case, seed) for seed in range(3)
          for case in (((0.05,), (30,)), ((0.2, 0.1), (5, 9)), ((0.4, 0.3, 0.2), (3, 4, 2)))),
        *(pytest.param(name, *KINKED[case], 5, marks=paced(name)) for name in NAMES
          for case in (1, 4)),
    ],
)  # fmt: skip
def test_values_without_noise_are_the_density(name, bandwidth, k, seed):
    rng = np.random.default_rng(seed)
    bounds = ((-60.0, 180.0), (1e6, 1e6 + 3.0), (0.0, 1e-6))[: len(k)]
    low, width = np.array(bounds)[:, 0], np.diff(np.array(bounds))[:, 0]
    unit = rng.beta(2, 5, size=(400, len(k)))
    unit[:100] = rng.choice(positions(k, name, bandwidth), 100)
    records = low + unit * width
    records[::17] = np.nan  # missing records: they count in n and nowhere else
    records[5::31, 0] = low[0] - 1.0
    stretched = tuple(b * w for b, w in zip(bandwidth, width, strict=True))
    given = {"n": 400, "bounds": bounds, "kernel": name}
    spec, plan = density_spec(stretched, k, **given), density_plan(stretched, k, **given)
    kept = np.isfinite(records).all(axis=1) & (records[:, 0] >= low[0])
    inside = (records[kept] - low) / width
    exact = reference.density(reference.lattice_points(k), inside, bandwidth, 400, name)
    g = float(plan.noise.law.granularity)
    errors = plan.counters(spec).parts[0].errors
    allowed = errors.kernel + errors.position + errors.floats + g / 2
    got = granules(spec, plan, records) * g
    assert np.abs(got - exact).max() <= allowed
    assert allowed / spec.domain.volume <= plan.certificate.rounding
    assert np.abs(exact).max() <= errors.value_bound
    assert errors.kernel <= 0.0101 * plan.noise.law.scale * g
    assert got[0] != got[-1]


def test_the_value_bound_covers_everyone_at_one_place():
    spec, plan = density_spec((0.05,), (30,), n=64), density_plan((0.05,), (30,), n=64)
    for position in (0.0, 1 / 3, 0.5, 1.0):
        values = granules(spec, plan, np.full((64, 1), position)) * float(
            plan.noise.law.granularity
        )
        assert np.abs(values).max() <= plan.counters(spec).parts[0].errors.value_bound


def test_an_empty_state_is_zero():
    spec, plan = density_spec((0.1,), (20,)), density_plan((0.1,), (20,))
    counters = plan.counters(spec)
    assert [column.name for column in counters.columns] == ["x"]
    assert not counters.empty().any()
    assert counters.state_bytes == counters.empty().nbytes
    assert not granules(spec, plan, np.empty((0, 1))).any()


# --- plans


def planned(axes, target, mechanism, data=(), budget=()):
    """The spec and plan of a density on the unit cube of axes."""
    bounds = {name: [0.0, 1.0] for name in "xyzuv"[:axes]}
    spec = ReleaseSpec(
        **sections(
            data={"bounds": bounds, **dict(data)},
            target=target,
            mechanism=mechanism,
            budget=dict(budget),
        )
    )
    return spec, plan_files(spec, ())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_plans_survive_json_and_name_the_noise_they_may(name):
    automatic = {"k": "auto", "h": "auto", "noise": "auto"}
    _, plan = planned(1, {"kernel": name, "bandwidth": [0.3]}, automatic)
    assert ReleasePlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert plan.noise.kind in {"binned-k-norm", "binned-laplace", "laplace"}


@pytest.mark.slow
def test_auto_chooses_no_lattice_too_fine_for_its_cells():
    target = {"kernel": "biweight", "bandwidth": [0.07] * 3}
    spec, plan = planned(3, target, {"k": "auto", "h": 2, "noise": "laplace"})
    assert max(plan.k) < 0.8 / (0.07 / 7**0.5)  # coarser than any usual resolution
    assert plan.counters(spec).state_bytes <= 1 << 28


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("axes", "n", "width", "mechanism"),
    [(3, 80_000, 0.0185, {}), (3, 90_000_000, 0.0282, {"h": 2}), (4, 50_000_000, 0.083, {"h": 2}),
     (5, 10_000, 0.3, {"k": "auto"})],
)  # fmt: skip
def test_auto_chooses_what_can_be_counted(kernel, axes, n, width, mechanism):
    target = {"kernel": kernel, "bandwidth": [width] * axes}
    mechanism = {"noise": "auto", "k": None, "h": None, **mechanism}
    budget = {"epsilon": "100", "delta": "1e-6"}
    spec, plan = planned(axes, target, mechanism, {"n": n}, budget)
    assert plan.counters(spec).state_bytes <= 1 << 32


@pytest.mark.slow
def test_a_lattice_too_fine_for_its_noise_gives_way_to_a_coarser_one():
    """Where the noise is of lattice values; the finest that can be counted is taken."""
    target = {"kernel": "triweight", "bandwidth": [0.1] * 3}
    mechanism = {"k": "auto", "h": None, "noise": "laplace"}
    _, plan = planned(3, target, mechanism, {"n": 2000}, {"epsilon": "1"})
    assert plan.k == (16, 16, 16)


def test_the_least_bandwidth_that_a_message_names_is_taken():
    """Of an axis of width 24 it is .0024, a share just below 1e-4 in floats."""
    given = {"data": {"bounds": {"x": [0.0, 24.0]}}, "target": {"bandwidth": [0.0024]}}
    assert 0.0024 / 24 < 1e-4
    assert ReleaseSpec(**sections(**given)).components[0].kernels[0].bandwidth < 1e-4
    given["target"] = {"bandwidth": [0.0023]}
    with pytest.raises(SpecError, match=r"Write one of 0.0024 to"):
        list(ReleaseSpec(**sections(**given)).components)
