"""Kernel densities: brute-force sensitivities, and the sums the integers stand for."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import reference
from conformance import granules
from strategies import density_plan, density_spec

from dbern.bernstein.kernels import Gaussian
from dbern.errors import SpecError
from dbern.measure.moments import Cells, truncation_error
from dbern.measure.sketch_choice import smallest_sketch
from dbern.targets import KernelDensity

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


def positions(k: tuple[int, ...]) -> np.ndarray:
    """A dense grid off and on the lattice, ends and middle included."""
    axes = []
    for count in k:
        many = {1: 4, 2: 2, 3: 1}[len(k)] * count
        grid = np.concatenate([np.linspace(0, 1, many + 1), [0.5, 0.5 - 0.5 / count, 0.31]])
        axes.append(np.unique(np.clip(grid, 0, 1)))
    return np.array(np.meshgrid(*axes, indexing="ij")).reshape(len(k), -1).T


@pytest.mark.thorough
@pytest.mark.parametrize(("bandwidth", "k"), CASES)
def test_no_replacement_moves_the_exact_values_more_than_planned(bandwidth, k):
    n = 50
    plan = density_plan(bandwidth, k, n=n)
    rows = reference.contributions(positions(k), k, bandwidth)
    worst = reference.delta1(rows) / n
    assert worst <= plan.sensitivity.l1
    null = np.abs(rows).sum(axis=1).max() / n
    assert plan.sensitivity.l1 <= 2.1 * max(worst, null)
    pointwise = max(np.ptp(rows[:, p]) for p in range(rows.shape[1])) / n
    assert pointwise <= plan.sensitivity.function <= 1.05 * pointwise


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("bandwidth", "k", "epsilon"),
    [
        ((0.02,), (20,), "10"),
        ((0.1,), (20,), "10"),
        ((0.1,), (20,), "1000"),
        ((10.0,), (3,), "1"),
        ((0.3,), (1,), "10"),
        ((0.1, 0.3), (6, 4), "10"),
        ((5.0, 0.05), (3, 9), "10"),
        ((2.0, 2.0), (4, 4), "100"),
    ],
)
def test_no_replacement_moves_the_released_integers_more_than_planned(bandwidth, k, epsilon):
    n = 1000
    spec = density_spec(bandwidth, k, n=n, epsilon=epsilon)
    plan = density_plan(bandwidth, k, n=n, epsilon=epsilon)
    rng = np.random.default_rng(1)
    others = rng.uniform(size=(n - 1, len(k)))
    null = np.full((1, len(k)), np.nan)
    every = positions(k)
    every = every[:: max(1, len(every) // 40)]
    databases = [np.vstack([others, t[None]]) for t in [*every, null[0]]]
    rows = np.array([granules(spec, plan, records) for records in databases])
    worst = max(int(np.abs(row - rows).sum(axis=1).max()) for row in rows)
    assert worst <= plan.noise.law.l1_sensitivity_granules
    assert plan.noise.law.l1_sensitivity_granules <= 2.2 * worst


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


@pytest.mark.thorough
@pytest.mark.parametrize(("bandwidth", "k"), CASES)
@pytest.mark.parametrize("epsilon", ["0.1", "10"])
def test_the_chosen_sketch_costs_a_percent_of_the_sensitivity(bandwidth, k, epsilon):
    n = 10_000
    spec = density_spec(bandwidth, k, n=n, epsilon=epsilon)
    plan = density_plan(bandwidth, k, n=n, epsilon=epsilon)
    rho = plan.counters(spec).parts[0].errors.kernel
    size = math.prod(count + 1 for count in k)
    assert 2 * size * rho / n <= 0.0101 * plan.sensitivity.l1
    assert n * 2 ** plan.counters(spec).parts[0].sketch.bits < 2**62
    assert all(
        0.5 / c <= b
        for c, b in zip(plan.counters(spec).parts[0].sketch.cells, bandwidth, strict=True)
    )


@pytest.mark.parametrize("bandwidth", [(0.1,), (0.003,), (2.0,), (0.1, 0.4), (0.2, 0.3, 0.5)])
@pytest.mark.parametrize("order", [0, 1, 3, 8])
@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-5])
def test_thesmallest_sketch_meets_its_tolerance_and_is_small(bandwidth, order, tolerance):
    kernels = [Gaussian(b) for b in bandwidth]
    sketch = smallest_sketch(kernels, (20,) * len(kernels), order, 28, tolerance)
    if sketch is None:  # only where order 0 would need far too many cells
        assert order <= 1
        return
    assert truncation_error(kernels, sketch.axes, order, 28) <= tolerance
    fewer = tuple(math.ceil(0.95 * cells) - 1 for cells in sketch.cells)
    if all(0.5 / max(1, c) < b for c, b in zip(fewer, bandwidth, strict=True)) and min(fewer) > 0:
        assert truncation_error(kernels, [Cells(count) for count in fewer], order, 28) > tolerance


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("bandwidth", "k"), [((0.05,), (30,)), ((0.2, 0.1), (5, 9)),
                                              ((0.4, 0.3, 0.2), (3, 4, 2))])  # fmt: skip
def test_values_without_noise_are_the_density(bandwidth, k, seed):
    rng = np.random.default_rng(seed)
    bounds = ((-60.0, 180.0), (1e6, 1e6 + 3.0), (0.0, 1e-6))[: len(k)]
    low, width = np.array(bounds)[:, 0], np.diff(np.array(bounds))[:, 0]
    unit = rng.beta(2, 5, size=(400, len(k)))
    records = low + unit * width
    records[::17] = np.nan  # missing records: they count in n and nowhere else
    records[5::31, 0] = low[0] - 1.0
    stretched = tuple(b * w for b, w in zip(bandwidth, width, strict=True))
    plan = density_plan(stretched, k, n=400, bounds=bounds)
    spec = density_spec(stretched, k, n=400, bounds=bounds)
    kept = np.isfinite(records).all(axis=1) & (records[:, 0] >= low[0])
    points = reference.lattice_points(k)
    positions = (records[kept] - low) / width
    exact = reference.density(points, positions, bandwidth, 400)
    g = float(plan.noise.law.granularity)
    (counters,) = plan.counters(spec).parts
    allowed = counters.errors.kernel + counters.errors.position + counters.errors.floats + g / 2
    got = granules(spec, plan, records) * g
    assert np.abs(got - exact).max() <= allowed
    assert allowed / spec.domain.volume <= plan.certificate.rounding
    assert np.abs(exact).max() <= counters.errors.value_bound
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


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        ({"bandwidth": (0.0,)}, "target.bandwidth"),
        ({"bandwidth": (-1.0,)}, "target.bandwidth"),
        ({"bandwidth": (math.nan,)}, "target.bandwidth"),
        ({"bandwidth": (math.inf,)}, "target.bandwidth"),
        ({"bandwidth": (1.0,), "kernel": "box"}, "target.kernel"),
    ],
)
def test_wrong_parameters_are_named(parameters, key):
    with pytest.raises(SpecError, match=f"^{key}: .*[Ww]rite "):
        KernelDensity(**parameters)
