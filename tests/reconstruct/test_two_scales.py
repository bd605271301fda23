"""Bins of two scales: exact sums, sensitivity, least squares, stores, and answers that cover."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
from banding import centers, synopsis_of
from strategies import spec_of

from dbern.bernstein.kernels import Gaussian
from dbern.bernstein.splines import bin_matrix
from dbern.planning.planner import plan_files
from dbern.reconstruct.bins import AxisBins, axis_bins
from dbern.reconstruct.two_scales import TwoScales
from dbern.testing import integers_of_each, moves

SHAPES = [
    TwoScales(40, 2, 4, 8),
    TwoScales(30, 1, 3, 5),
    TwoScales(60, 3, 5, 12),
    TwoScales(6, 3, 2, 2),
    TwoScales(41, 2, 4, 8),  # the last wide cell reaches beyond the axis
    TwoScales(103, 1, 11, 2),
]


def matrix(scales):
    """M (numbers, bins)."""
    return scales.on_bins(np.eye(scales.count))


@pytest.mark.parametrize("scales", SHAPES)
def test_numbers_are_the_splines_of_both_scales(scales):
    t = np.append(np.random.default_rng(0).uniform(size=500), [0.0, 0.5, 1.0])
    narrow = bin_matrix(t, scales.cells, scales.degree)
    cells = -(-scales.cells // scales.times)
    wide = bin_matrix(t * scales.cells / (cells * scales.times), cells, scales.degree)
    share = 1 / scales.parts
    expected = np.hstack([(1 - share) * wide, share * narrow])
    np.testing.assert_allclose(narrow @ matrix(scales).T, expected, rtol=0, atol=2e-15)
    assert expected.shape[1] == scales.count
    assert matrix(scales).min() >= 0
    np.testing.assert_allclose(matrix(scales).sum(axis=0), 1.0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("scales", SHAPES)
def test_integers_are_summed_exactly(scales):
    """Beside fractions; integers are as large as 2^62, which no sum of int64 holds."""
    counts = np.random.default_rng(1).integers(-(2**62), 2**62, scales.cells + scales.degree)
    whole = list(scales.multiply_exactly(counts))
    assert [number / scales.unit for number in whole] == [
        float(sum(Fraction(float(m)).limit_denominator(scales.unit) * int(c)
                  for m, c in zip(row, counts, strict=True)))
        for row in matrix(scales)
    ]  # fmt: skip
    assert len(whole) - len(counts) == scales.wide
    assert sum(whole) == scales.unit * sum(map(int, counts))


@pytest.mark.parametrize("scales", SHAPES)
def test_functionals_are_read_with_the_least_noise(scales):
    """Weights and numbers are multiplied in pieces as by the matrices M and P."""
    draw, count = np.random.default_rng(2), scales.cells + scales.degree
    weights, numbers = draw.normal(size=(3, 2, count)), draw.normal(size=(4, scales.count))
    inverse = np.linalg.pinv(matrix(scales))
    for found, expected in (
        (scales.on_released(weights), weights @ inverse),
        (scales.on_bins(numbers), numbers @ matrix(scales)),
        (scales.numbers(weights), weights @ matrix(scales).T),
        (scales.bins(numbers), numbers @ inverse.T),
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scales", SHAPES)
def test_the_largest_norm_is_that_of_both(scales):
    bins = AxisBins(scales.cells, scales.degree, b"", times=scales.times, parts=scales.parts)
    t = np.linspace(0, 1, 5003)
    moved = bin_matrix(t, scales.cells, scales.degree) @ matrix(scales).T
    assert bins.largest_l2 >= np.linalg.norm(moved, axis=1).max()
    assert bins.largest_l2 <= 1.2 * np.linalg.norm(moved, axis=1).max()


@pytest.mark.parametrize(("times", "wide"), [(6, 12), (7, 11)])
def test_both_levels_are_the_same_function(times, wide):
    plain = axis_bins(Gaussian(0.1), 40, 60, 2, 24)
    both = plain.on_two_scales(times, 8)
    assert both.rank == 62 + wide
    np.testing.assert_allclose(both.narrow.synthesis, plain.synthesis, rtol=0, atol=1e-12)
    assert both.narrow.mirrored
    sizes = [np.square(axis.synthesis).sum() for axis in (both, plain)]
    assert sizes[0] < 0.5 * sizes[1]  # the noise of a smooth function


def test_a_map_of_both_scales_is_stored_and_read():
    both = axis_bins(Gaussian(0.1), 40, 60, 2, 24).on_two_scales(6, 8)
    assert AxisBins.from_dict(both.to_dict()) == both
    stored = both.arrays()["synthesis"], both.attributes("synthesis")
    assert AxisBins.of_arrays(lambda _: stored) == both
    assert stored[1] == {"cells": 60, "degree": 2, "times": 6, "parts": 8}
    assert AxisBins.admits(both.rank, 41, 1, stored[1])
    assert AxisBins.admits(both.rank, 41, 2, stored[1])
    assert AxisBins.admits(73, 41, 1, {**stored[1], "times": 7})


@pytest.mark.parametrize(
    ("rank", "attributes"),
    [
        (62, {"times": 6, "parts": 8}), (74, {}), (74, {"times": 6}), (74, {"parts": 8}),
        (70, {"times": 7, "parts": 8}), (4098 + 2050, {"cells": 4096, "times": 2, "parts": 8}),
    ],
)  # fmt: skip
def test_a_map_of_other_sizes_is_refused(rank, attributes):
    assert not AxisBins.admits(rank, 41, 1, {"cells": 60, "degree": 2, **attributes})


def spec(n, budget=MappingProxyType({}), noise="auto"):
    return spec_of(
        data={"n": n}, target={"bandwidth": [0.05]}, budget=budget,
        mechanism={"k": None, "h": None, "noise": noise},
    )  # fmt: skip


pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")
ROWS = np.random.default_rng(5).beta(2, 4, 20_000)


@pytest.mark.slow
def test_a_plan_takes_both_levels_where_the_function_errs_hardly_more():
    (both,) = plan_files(spec(len(ROWS)), ()).components
    assert both.maps[0].scales is not None
    assert both.strategy.layout.shape == (both.maps[0].scales.count,)
    (few,) = plan_files(spec(200), ()).components  # whose noise is what matters
    assert few.maps[0].scales is None


@pytest.mark.parametrize("noise", ["binned-laplace", "binned-k-norm", "binned-gaussian"])
def test_no_neighbor_moves_more_than_is_planned(noise):
    """Records at edges of cells of both scales, and anywhere, by the exact integers."""
    case = spec(20_000, {"delta": "1e-6"} if "gaussian" in noise else {}, noise=noise)
    plan = plan_files(case, ())
    axis = plan.components[0].maps[0]
    assert axis.scales is not None
    edges = np.arange(axis.cells // axis.times + 1) * axis.times / axis.cells
    anywhere = np.random.default_rng(2).uniform(size=12)
    places = np.concatenate([edges[::5], edges[:3] + 0.5 / axis.cells, anywhere, [np.nan]])
    (worst,) = moves(plan, integers_of_each(case, plan, [[{"x": x}] for x in np.unique(places)]))
    assert 0.9 < worst <= 1 + 1e-12


def test_rounding_moves_numbers_by_no_more_than_is_planned():
    """Integers of the bins that a record touches are off by at most rho, all at once."""
    case = spec(len(ROWS))
    plan = plan_files(case, ())
    (counter,), axis = plan.counters(case).parts, plan.components[0].maps[0]
    errors, rho = counter.errors, 2.0**-counter.bits
    touched = np.arange(axis.cells)[:, None] + np.arange(axis.degree + 1)
    moved = np.stack([matrix(axis.scales)[:, bins].sum(axis=1) for bins in touched])
    assert errors.kernel >= rho * moved.max()
    assert errors.kernel_norms[0] >= 2 * rho * moved.sum(axis=1).max()
    assert errors.kernel_norms[1] >= 2 * rho * np.linalg.norm(moved, axis=1).max()


QUESTIONS = {
    "mass": (
        lambda d, beta: d.mass({"x": (0.2, 0.33)}, beta=beta),
        lambda x: ((x > 0.2) & (x < 0.33)).mean(),
    ),
    "masses": (
        lambda d, beta: d.mass([{"x": (0.1, 0.4)}, {"x": (0.35, None)}], beta=beta),
        lambda x: np.array([((x > 0.1) & (x < 0.4)).mean(), (x > 0.35).mean()]),
    ),
    "count": (lambda d, beta: d.count({"x": (None, 0.5)}, beta=beta), lambda x: (x < 0.5).sum()),
    "quantile": (
        lambda d, beta: d.quantile(0.3, beta=beta),
        lambda x: np.quantile(x, 0.3, method="inverted_cdf"),
    ),
    "mean": (lambda d, beta: d.mean(beta=beta), lambda x: x.mean()),
    "deviation": (lambda d, beta: d.std(beta=beta), lambda x: x.std()),
    "smoothed mass": (
        lambda d, beta: d.mass({"x": (0.2, 0.33)}, target="smoothed", beta=beta),
        lambda x: (Gaussian(0.05).cumulative(0.33 - x) - Gaussian(0.05).cumulative(0.2 - x)).mean(),
    ),
    "density": (
        lambda d, beta: d.density([[0.3]], beta=beta),
        lambda x: Gaussian(0.05)(0.3 - x).mean(),
    ),
}


@pytest.fixture(scope="module")
def counted():
    case = spec(len(ROWS))
    plan = plan_files(case, ())
    return case, plan, centers(case, plan, {"x": ROWS})


def answers(counted, name, keys, beta):
    ask, truth = QUESTIONS[name]
    exact = truth(ROWS)
    for key in keys:
        told = ask(synopsis_of(*counted, key.to_bytes(32, "big")).distribution(), beta)
        yield np.asarray(told.low), exact, np.asarray(told.high)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_hold(counted, name):
    for low, exact, high in answers(counted, name, range(1, 4), 1e-6):
        assert (low <= exact).all()
        assert (exact <= high).all()


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_cover_as_often_as_they_say(counted, name):
    held = [((low <= exact) & (exact <= high)).all()
            for low, exact, high in answers(counted, name, range(1, 41), 0.05)]  # fmt: skip
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 40)


def test_answers_that_take_the_levels_for_others_are_caught(counted):
    """Planted: weights for a narrow scale that counts another part of each record."""
    d = synopsis_of(*counted, bytes(32)).distribution()
    measure, box = d.measures[0], {"x": (None, 0.5)}
    (scales,) = measure.scales
    wrong_parts = replace(scales, parts=4 * scales.parts)
    mistaken = replace(d, measures=(replace(measure, scales=(wrong_parts,)),))
    exact = (Gaussian(0.05).cumulative(0.5 - ROWS) - Gaussian(0.05).cumulative(0.0 - ROWS)).sum()
    right, wrong = (case.count(box, target="smoothed", beta=1e-6) for case in (d, mistaken))
    assert not wrong.low <= exact <= wrong.high
    assert right.low <= exact <= right.high


@pytest.mark.parametrize("name", ["mass", "mean", "deviation"])
def test_populations_are_told_as_from_narrow_bins(counted, name):
    """The variance of sampling is that of the narrow bins, whatever is released of them."""
    d = synopsis_of(*counted, bytes(32)).distribution()
    ask = {
        "mass": lambda: d.mass({"x": (0.2, 0.33)}, population=True),
        "mean": lambda: d.mean(population=True),
        "deviation": lambda: d.std(population=True),
    }
    told, own = ask[name](), QUESTIONS[name][0](d, 0.05)
    assert told.low < own.low < own.high < told.high
    assert told.high - told.low < 4 * (own.high - own.low) + 4 / np.sqrt(len(ROWS))


def test_bands_of_values_hold(counted):
    case, plan, exact = counted
    synopsis, y = synopsis_of(case, plan, exact, bytes(32)), np.linspace(0, 1, 101)
    low, high = synopsis.interval(y[:, None])
    truth = np.array([Gaussian(0.05)(one - ROWS).mean() for one in y])
    assert ((low <= truth) & (truth <= high)).all()
    assert np.abs(synopsis(y[:, None]) - truth).max() <= plan.certificate.total
