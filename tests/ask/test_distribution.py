from __future__ import annotations

import itertools
import re
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from banding import covering, covers, drawn, planned, released
from questioned import (
    OF_TWO,
    QUESTIONS,
    SMOOTHED,
    asked,
    counted,
    covered,
    databases,
    grouped,
    smoothed_median,
    too_few,
)

from dbern.ask import bins as module
from dbern.ask import kernel_envelopes as of_kernel
from dbern.ask import polygon_envelopes as of_polygon
from dbern.ask import shares as of_quantiles
from dbern.ask import splines as of_step
from dbern.ask.distribution import _nearest_measure, draw_points
from dbern.ask.kernel_envelopes import candidates
from dbern.ask.polygon_envelopes import polygon_envelope
from dbern.ask.quotients import Denominator, quotient_interval
from dbern.ask.regions import Polygons, region_text
from dbern.ask.splines import AxisSplines, Envelope, intervals, products, steps
from dbern.bernstein.kernels import WIDEST, Gaussian, kernel_of, with_edges
from dbern.data.domain import Axis, Domain
from dbern.data.times import TimeUnit
from dbern.errors import SpecError
from dbern.planning.bin_grids import BIN_RESOLUTIONS

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")


# --- Splines around a step


@pytest.mark.slow
@pytest.mark.parametrize("degree", BIN_RESOLUTIONS)
def test_a_step_lies_between_its_splines(degree):
    splines = AxisSplines(12, degree)
    t = np.linspace(0.0, 1.0, 3001)[1:]
    places = np.concatenate([[0.0, 0.25, 1.0], np.random.default_rng(degree).uniform(size=9)])
    sides, beta = steps(splines, places), splines.values(t)
    step = (t[:, None] <= places).astype(float)
    assert (beta @ sides.lower.T <= step + 1e-12).all()
    assert (beta @ sides.upper.T >= step - 1e-12).all()
    apart = (beta @ (sides.upper - sides.lower).T).mean(axis=0) * 12
    assert apart.max() < 2.6  # cells; the bins that a step meets would make it degree + 1
    assert np.abs(splines.integrals(np.ones(1)) - splines.gram.sum(axis=0)).max() < 1e-15


def test_a_step_at_either_end_is_nothing_or_everything():
    sides = steps(AxisSplines(cells=4, degree=2), np.array([0.0, 0.5, 1.0]))
    assert sides.lower[2].tolist() == [1.0] * 6
    assert sides.upper[0].tolist() == [0.0] * 6


def test_a_step_that_is_not_moved_outward_is_caught(monkeypatch):
    """Majorants are of places in 32 parts of a cell: between them the next one is needed."""
    monkeypatch.setattr(of_step.np, "ceil", np.floor)
    with pytest.raises(AssertionError):
        test_a_step_lies_between_its_splines(3)


def test_steps_that_are_kept_are_those_that_are_not(monkeypatch):
    """Whatever was asked before: another order, one of them twice, between the kept places."""
    places = np.random.default_rng(0).uniform(size=40)
    of_step._table.cache_clear()
    first, kept = (steps(AxisSplines(7, 3), one) for one in (places[5:9], places))
    monkeypatch.setattr(of_step, "_MAX_CACHED", 0)
    fresh = steps(AxisSplines(7, 3), places)
    for side in ("lower", "estimate", "upper"):
        np.testing.assert_allclose(getattr(kept, side), getattr(fresh, side), rtol=0, atol=1e-14)
        np.testing.assert_array_equal(getattr(kept, side)[5:9], getattr(first, side))


def test_an_axis_that_is_whole_is_summed_first():
    d = asked(databases(2, 5000)["clustered"])
    measure, share = d.measures[0], Fraction(1, 20)
    ends = np.array([[0.2], [0.0]]), np.array([[0.5], [1.0]])
    x = [intervals(one, *pair) for one, *pair in zip(measure.splines, *ends, strict=True)]
    told, view = d.mass({"x": (0.2, 0.5)}), measure.joint()
    found = quotient_interval(view, products(x).layered(), Denominator.total(view), share)
    numbers = told.value, told.low, told.high
    np.testing.assert_allclose(numbers, np.ravel(found[:3]), rtol=0, atol=1e-12)


def test_a_box_lies_between_products_of_splines():
    axes = [AxisSplines(6, 2), AxisSplines(5, 3)]
    sides = products([intervals(one, np.array([0.2]), np.array([0.61])) for one in axes])
    t = np.linspace(0.001, 1.0, 300)
    beta = [one.values(t) for one in axes]
    inside = (t > 0.2) & (t <= 0.61)
    box = np.outer(inside, inside)
    low, high = (np.einsum("jk,aj,bk->ab", one[0], *beta) for one in (sides.lower, sides.upper))
    assert (low <= box + 1e-12).all()
    assert (box <= high + 1e-12).all()


KERNELS_OF = {
    "gaussian": 0.12,
    "biweight": 0.3,
    "triangle": 0.25,
    "epanechnikov": 0.3,
    "laplace": 0.2,
}


def smooth_weights(name, degree):
    """What sides of a kernel and of its integral miss, at most, at places of no grid."""
    splines, kernel = AxisSplines(9, degree), kernel_of(name, KERNELS_OF[name])
    rng = np.random.default_rng(degree)
    t = np.sort(np.concatenate([np.linspace(0, 1, 20_011), rng.uniform(size=2000)]))
    y, beta = np.array([0.0, 0.3131, 0.5, 0.87]), splines.values(t)
    values = kernel(y[:, None] - t) / kernel.peak
    yield of_kernel.density_envelope(splines, kernel, y), values, beta
    low, high = np.array([0.0, 0.0, 0.2]), np.array([0.4, 1.0, 0.2871])
    values = kernel.cumulative(high[:, None] - t) - kernel.cumulative(low[:, None] - t)
    yield of_kernel.mass_envelope(splines, kernel, low, high), values, beta


@pytest.mark.parametrize("degree", BIN_RESOLUTIONS)
@pytest.mark.parametrize("name", KERNELS_OF)
def test_smooth_weights_lie_between_their_splines(name, degree):
    for sides, values, beta in smooth_weights(name, degree):
        assert (sides.lower @ beta.T <= values + 1e-14).all()
        assert (sides.upper @ beta.T >= values - 1e-14).all()


def test_smooth_weights_between_places_of_their_grid_are_caught(monkeypatch):
    monkeypatch.setattr(of_kernel, "_bent", lambda *_: 0.0)
    monkeypatch.setattr(of_kernel, "_derivative", lambda *_: np.zeros(1))
    monkeypatch.setattr(of_kernel, "_ROUNDING", 0.0)
    monkeypatch.setattr(type(kernel_of("gaussian", 0.12)), "third_derivative_bound", 0.0)
    with pytest.raises(AssertionError):
        test_smooth_weights_lie_between_their_splines("gaussian", 3)


# --- Bands


@pytest.mark.turns("coverage", 8)
@pytest.mark.parametrize(
    ("axes", "draws"),
    [(1, 2), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, 6), (2, 6)))],
)
def test_answers_cover_at_least_as_often_as_they_say(axes, draws):
    names = ["clustered"] if draws < 5 else list(databases(axes, 10))
    found = covered(axes, 5000, QUESTIONS | (OF_TWO if axes == 2 else SMOOTHED), names, draws)
    assert too_few(found, draws) == {}


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
@pytest.mark.parametrize(("question", "part"), [("mean", 2), ("variance", 4)])
def test_a_part_of_the_noise_is_caught(monkeypatch, question, part):
    """They have no bias: their whole band is noise, of variances in three directions."""
    simulated = module._simulate_noise
    monkeypatch.setattr(module, "_simulate_noise", lambda *asked: simulated(*asked) / part)
    found = covered(1, 5000, {question: QUESTIONS[question]}, ["smooth"], 100)
    assert found["smooth", question] < 90


@pytest.mark.parametrize(
    "degree", [1, 2, 3, *(pytest.param(p, marks=pytest.mark.slow) for p in (5, 7))]
)
def test_variances_and_covariances_are_those_of_the_rows(degree):
    """Without noise they are exact: of degree 1 but for what squares miss."""
    rows = databases(2, 5000)["clustered"] ** [2, 1]
    d, missed = asked(rows, 0, degree=degree, epsilon=1e7), (degree == 1) / 12**2
    x, y = rows.T
    for answer, truth in [
        (d.cov("x", "y"), np.cov(x, y, bias=True)[0, 1]),
        (d.var("x"), x.var()),
        (d.std("y"), y.std()),
        (d.correlation("x", "y"), np.corrcoef(x, y)[0, 1]),
    ]:
        assert answer.low <= truth <= answer.high
        assert abs(answer.value - truth) < 1e-6 + missed
        assert answer.high - answer.low < 1e-4 + 40 * missed
    assert d.cov("x", "x").value == d.var("x").value
    inside = d.cov("x", "y", given={})
    assert (inside.low, inside.high) == (d.cov("x", "y").low, d.cov("x", "y").high)


def test_a_band_without_its_sides_is_caught(monkeypatch):
    """All rows just left of the edge: the middle of the splines misses what the sides cover."""
    d = asked(np.full((200_000, 1), 0.499))
    assert d.mass({"x": (None, 0.5)}).high == 1.0
    exact = of_step.steps

    def middle(splines, places):
        sides = exact(splines, places)
        return Envelope(sides.estimate, sides.estimate, sides.estimate)

    monkeypatch.setattr(of_step, "steps", middle)
    assert d.mass({"x": (None, 0.5)}).high < 1.0


def test_the_share_of_everything_is_one_and_parts_are_consistent():
    d = asked(databases(2, 5000)["smooth"])
    assert d.mass({}).value == pytest.approx(1.0)
    parts = d.mass({"x": ([0.0, 0.5], [0.5, 1.0])})
    assert parts.value.dims == ("region",)
    assert float(parts.value.sum()) == pytest.approx(1.0, abs=1e-6)
    one = d.mass({"x": (0.25, 0.5), "y": (None, 0.5)})
    two = d.count({"x": (0.25, 0.5), "y": (None, 0.5)})
    assert two.value == pytest.approx(5000 * one.value, rel=0.1)


def test_many_boxes_have_the_answers_of_each(monkeypatch):
    d = asked(databases(2, 5000)["clustered"])
    draw = np.random.default_rng(0).uniform(size=(2, 2, 40))
    low, high = 0.6 * draw[0], 0.6 * draw[0] + 0.05 + 0.3 * draw[1]
    boxes = {"x": (low[0], high[0]), "y": (low[1], high[1])}
    few = d.mass(boxes)
    monkeypatch.setattr("dbern.ask.bins._MAX_WORK", 0)
    monkeypatch.setattr("dbern.ask.quotients._BATCH_WEIGHTS", 200)
    many = d.mass(boxes)
    counts = d.count(boxes)
    np.testing.assert_allclose(few.value, many.value, atol=1e-9)
    assert (many.low <= few.low + 1e-9).all()  # without a simulation no narrower
    assert (many.high >= few.high - 1e-9).all()
    assert (many.high - many.low < 1.5 * (few.high - few.low) + 0.02).all()
    assert ((counts.low <= 5000 * few.value) & (5000 * few.value <= counts.high)).all()


@pytest.mark.slow
def test_groups_have_answers_of_their_own():
    roles = '{"group": {"column": "g", "values": ["a", "b"]}}'
    rng = np.random.default_rng(1)
    x, g = rng.uniform(size=5000), (np.arange(5000) >= 1000).astype(float)
    x[g == 0] /= 2
    d = released(planned(1, 5000, roles=roles), {"x": x, "g": g})
    assert d.mean().value.dims == ("group",)
    assert covers(d.mean(), np.array([x[g == 0].mean(), x[g == 1].mean()]))
    assert float(d.mass({"x": (None, 0.6)}).value.sel(group="a")) > 0.95
    assert d.std().value.dims == ("group",)


@pytest.mark.slow
def test_of_a_regression_the_rows_with_a_response_are_told():
    roles = '{"response": {"column": "r", "bounds": [-1.0, 1.0]}}'
    x = np.random.default_rng(1).uniform(size=5000) / 2
    case = planned(1, 5000, roles=roles, kind="nadaraya-watson")
    assert covers(released(case, {"x": x, "r": np.sin(9 * x)}).mean(), x.mean())


def test_gaussian_noise_is_answered_too():
    rows = databases(1, 5000)["smooth"]
    assert covers(asked(rows, gaussian=True).mean(), rows.mean())


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_the_population_is_covered_about_as_often_as_it_says():
    """Beta(2, 5) on the unit interval: its mean and median are known."""
    rng, found = np.random.default_rng(3), np.zeros(3)
    for draw in range(100):
        d = asked(rng.beta(2, 5, size=(5000, 1)), draw + 1)
        answers = [d.mean(population=True), d.mean(), d.quantile(0.5, population=True)]
        found += [covers(*each) for each in zip(answers, (2 / 7, 2 / 7, 0.26445), strict=True)]
    assert found[0] >= 88
    assert found[1] < 85  # what these rows' mean is, is another question
    assert found[2] >= 88


def test_another_density_is_about_that_of_the_rows():
    rows = databases(1, 5000)["smooth"]
    d = asked(rows)
    y = np.linspace(0.05, 0.95, 19)[:, None]
    answer = d.density(y, bandwidth=0.12)
    truth = Gaussian(0.12)(y - rows[:, 0]).mean(axis=1)
    assert float(np.abs(answer.value - truth).max()) < 0.1
    assert float((answer.high - answer.low).max()) < 0.4
    with pytest.raises(SpecError, match=r"less than the bins resolve\. Write at least 0\.0"):
        d.density(y, bandwidth=0.01)
    with pytest.raises(SpecError, match="outside the bounds"):
        d.density([[2.0]])


def test_no_kernel_is_wider_than_its_period_has_room_for():
    """A periodic kernel is a sum of two: of a wider one rows round the corner were missing."""
    d = asked(databases(1, 5000)["uniform"])
    d = replace(d, kernels=with_edges(d.kernels, ["periodic"]))
    with pytest.raises(SpecError, match=r"period of x under so wide .* Write 0\.124 or less"):
        d.density([[0.5]], bandwidth=0.5)
    with pytest.raises(SpecError, match="period of x"):
        d.density([[0.5]], bandwidth=0.5, kernel="biweight")
    assert d.density([[0.5]], bandwidth=0.124).value == pytest.approx(1, abs=0.1)
    chosen = candidates(d.measures[0].splines, d.kernels)
    assert 0.1 < max(kernel.deviation for (kernel,) in chosen) <= WIDEST


def smoothed_medians(draws):
    """Of how many releases of many rows a smoothed median is covered, and the widest interval."""
    rows = databases(1, 5000)["smooth"]
    d, truth = asked(rows, 0, epsilon=400.0), smoothed_median(rows[:, 0])
    exact, found = d.measures[0].values, []
    for draw in range(draws):
        answer = asked(rows, draw + 1, epsilon=400.0, exact=exact).quantile(0.5, target="smoothed")
        found.append((answer.low <= truth <= answer.high, answer.high - answer.low))
    return np.sum([one for one, _ in found]), max(width for _, width in found)


@pytest.mark.slow
def test_a_quantile_is_told_finer_than_where_it_is_looked_for():
    covering, widest = smoothed_medians(20)
    assert covering >= 17
    assert widest < 0.9 / 1024


@pytest.mark.slow
def test_a_quantile_without_the_neighbors_of_its_places_is_caught(monkeypatch):
    """The noise is little beside the step between places, of which none is the quantile."""
    bracket = of_quantiles.bracket
    monkeypatch.setattr(of_quantiles, "_POINTS_IN_DEVIATION", 0)
    assert smoothed_medians(6)[0] == 6

    def alone(*asked):
        first, last, points = bracket(*asked)
        return first + 1, last - 1, points

    monkeypatch.setattr(of_quantiles, "bracket", alone)
    assert smoothed_medians(6)[0] < 6


TRIANGLE = [[0.1, 0.1], [0.8, 0.2], [0.3, 0.9], [0.1, 0.1]]


@pytest.mark.parametrize("name", ["smooth", "clustered", "half at 50 places"])
def test_polygons_are_cells_inside_and_cells_cut(name):
    rows = databases(2, 20_000)[name]
    d = asked(rows, cells=20, degree=2)
    polygon = {"type": "Polygon", "coordinates": [TRIANGLE]}
    share, count = d.mass(polygon), d.count(polygon)
    truth = in_ring(TRIANGLE, rows).mean()
    assert share.low <= truth <= share.high
    assert count.low <= truth * len(rows) <= count.high
    if name == "smooth":
        assert share.value == pytest.approx(truth, abs=0.02)
        assert share.high - share.low < 0.55
    around = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]
    rest = {"type": "Polygon", "coordinates": [around, TRIANGLE]}
    several = [{"type": "Feature", "geometry": one} for one in (polygon, rest)]
    both = d.mass({"type": "FeatureCollection", "features": several})
    assert both.value.dims == ("region",)
    assert ((both.low <= [truth, 1 - truth]) & ([truth, 1 - truth] <= both.high)).all()
    assert float(both.value.sum()) == pytest.approx(1.0, abs=0.05)


def ring_of(seed):
    """A star of some corners, and places inside and outside, of which many are near its edges."""
    rng = np.random.default_rng(seed)
    angles = np.sort(rng.uniform(0, 2 * np.pi, size=rng.integers(4, 9)))
    reach = rng.uniform(0.1, 0.49, size=(len(angles), 1))
    corners = 0.5 + reach * np.column_stack([np.cos(angles), np.sin(angles)])
    ring = np.vstack([corners, corners[:1]])
    share, part = rng.uniform(size=(400, 1)), rng.integers(len(corners), size=400)
    edge = (1 - share) * ring[part] + share * ring[part + 1]
    near = edge + rng.normal(size=edge.shape) * 10.0 ** rng.uniform(-7, -1, size=(400, 1))
    return ring, np.clip(np.vstack([near, rng.uniform(size=(400, 2))]), 0, 1)


def in_ring(ring, at):
    x, y = at[:, :1], at[:, 1:]
    a, b = np.array(ring[:-1]).T, np.array(ring[1:]).T
    between = (a[1] <= y) != (b[1] <= y)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = a[0] + (y - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
    return (between & (x < crossing)).sum(axis=1) % 2 == 1


@pytest.mark.parametrize("degree", BIN_RESOLUTIONS)
def test_a_polygon_lies_between_its_splines(degree):
    axes = AxisSplines(11, degree), AxisSplines(7, degree)
    for seed in range(4):
        ring, at = ring_of(seed)
        sides = polygon_envelope(Polygons([[[ring]]], [None]), axes)
        inside, beta = in_ring(ring, at), [one.values(x) for one, x in zip(axes, at.T, strict=True)]
        low, high = (
            np.einsum("aj,jk,ak->a", beta[0], one[0], beta[1]) for one in (sides.lower, sides.upper)
        )
        assert (low <= inside + 1e-12).all()
        assert (high >= inside - 1e-12).all()
        apart = (axes[0].gram @ (sides.upper - sides.lower)[0] @ axes[1].gram).sum()
        edges = (np.hypot(*(np.diff(ring, axis=0) * [11, 7]).T)).sum() / 77
        assert apart < 4.2 * edges  # cells; those that a bin's support meets would make it 11


def test_a_polygon_whose_splines_are_not_mended_is_caught(monkeypatch):
    monkeypatch.setattr(of_polygon, "_deficit", lambda found, met, axes: np.zeros((11, 7)))
    with pytest.raises(AssertionError):
        test_a_polygon_lies_between_its_splines(3)


def test_a_cut_cell_that_is_taken_as_inside_is_caught(monkeypatch):
    """All rows just outside of an edge, in cells whose middle is inside."""
    rows = np.tile([[0.449, 0.14]], (20_000, 1))
    polygon = {"type": "Polygon", "coordinates": [TRIANGLE]}
    assert not in_ring(TRIANGLE, rows[:1])[0]
    assert d_low(rows, polygon) == 0.0
    monkeypatch.setattr(of_polygon, "_cut", lambda _rings, cells: np.zeros(cells, dtype=bool))
    above = np.broadcast_to(np.arange(160) >= 16, (160, 160))
    monkeypatch.setattr(of_polygon, "_inside", lambda _rings, _cells: above)
    assert d_low(rows, polygon) > 0.5


def d_low(rows, polygon):
    return asked(rows, cells=20, degree=1).mass(polygon).low


def test_marginals():
    rows = databases(2, 5000)["smooth"]
    d = asked(rows)
    at = np.linspace(0.1, 0.9, 9)
    answer = d.marginal(at, "x")
    truth = Gaussian(0.1)(at[:, None] - rows[:, 0]).mean(axis=1)
    assert answer.value.dims == ("x",)
    assert covers(answer, truth)
    part = rows[rows[:, 1] < 0.3, 0]
    truth = Gaussian(0.1)(at[:, None] - part).mean(axis=1)
    assert covers(d.marginal(at, "x", given={"y": (None, 0.3)}), truth)


def test_points_that_look_like_the_rows():
    rows = databases(2, 20_000)["smooth"]
    points = asked(rows).sample(20_000, seed=3)
    assert points.shape == (20_000, 2)
    assert ((points >= 0) & (points <= 1)).all()
    np.testing.assert_allclose(points.mean(axis=0), rows.mean(axis=0), atol=0.02)
    cell = (3 + 1) * (1 / 12) ** 2 / 6  # half of the bins, half of the places in them
    np.testing.assert_allclose(points.var(axis=0), rows.var(axis=0) + cell, rtol=0.1)
    np.testing.assert_array_equal(points, asked(rows).sample(20_000, seed=3))


def test_points_are_where_the_rows_are_however_many_bins_are_noise():
    """Cut off at zero, noise is a uniform law beside the rows: x would be .21 and y .13."""
    rng = np.random.default_rng(0)
    x = rng.gamma(2, 0.4, 50_000)
    rows = np.clip(np.column_stack([x / 5, x**1.7 / 15]), 0, 1)
    bins = np.histogram2d(*rows.T, bins=90, range=[[0, 1]] * 2)[0] / len(rows)
    noisy = bins + rng.laplace(0, 3 / len(rows), bins.shape)
    measure = replace(
        asked(databases(2, 5000)["smooth"]).measures[0],
        values=noisy, splines=(AxisSplines(90, 0),) * 2, scales=(),
    )  # fmt: skip
    np.testing.assert_allclose(
        draw_points(measure, 20_000, 1).mean(axis=0), rows.mean(axis=0), atol=0.01
    )
    nearest = _nearest_measure(noisy.ravel())
    assert nearest.min() == 0
    assert nearest.sum() == pytest.approx(noisy.sum())
    kept = nearest > 0  # the nearest: all by one number less, and none is left out for nothing
    threshold = (noisy.ravel() - nearest)[kept]
    np.testing.assert_allclose(threshold, threshold[0], atol=1e-15)
    assert noisy.ravel()[~kept].max() <= threshold[0]


def test_no_points_are_drawn_where_noise_hides_all_rows():
    d = asked(databases(1, 50)["smooth"])
    d = replace(d, measures=(replace(d.measures[0], values=-np.abs(d.measures[0].values)),))
    with pytest.raises(SpecError, match="do not sum to more than 0"):
        d.sample(3)


def test_two_releases_are_compared():
    one = asked(databases(1, 5000)["smooth"], 1)
    two = asked(databases(1, 5000)["uniform"], 2)
    region = {"x": (None, 0.5)}
    answer = one.compare(two, region)
    assert answer.value == pytest.approx(one.mass(region).value - two.mass(region).value, abs=0.02)
    assert answer.low > 0


def smoothed_difference(x, y, kernel, low=0.2, high=0.6):
    """What a smoothed density of x has in an interval, less that of y."""
    shares = [kernel.cumulative(high - one) - kernel.cumulative(low - one) for one in (x, y)]
    return shares[0].mean() - shares[1].mean()


@pytest.mark.turns("coverage", 8)
@pytest.mark.parametrize("draws", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_smoothed_differences_of_releases_cover_at_least_as_often_as_they_say(draws):
    """By the same kernels, and where one release is smoothed more widely, by these."""
    one, two = (databases(1, n)[name] for name, n in (("clustered", 5000), ("smooth", 4000)))
    exact, region = [counted(rows) for rows in (one, two)], {"x": (0.2, 0.6)}

    def releases(draw):
        here, there = (
            asked(one, 1 + draw, exact=exact[0]),
            asked(two, 10_000 + draw, exact=exact[1]),
        )
        return here, replace(there, name="other")

    def compared(pair, width=0.15, target="smoothed"):
        return pair[0].compare(replace(pair[1], kernels=(Gaussian(width),)), region, target=target)

    asks = {
        width: (lambda pair, width=width: compared(pair, width),
                smoothed_difference(one, two, Gaussian(width)))
        for width in (0.1, 0.15)
    }  # fmt: skip
    assert too_few(covering(map(releases, range(draws)), asks), draws) == {}
    answer, rows = (compared(releases(0), target=target) for target in ("smoothed", "records"))
    assert answer.question == ("share of the smoothed density in x 0.2 to 0.6, less that of other")
    assert answer.high - answer.low < 0.1 * (rows.high - rows.low)


def test_kernels_that_were_chosen_share_beta_on_the_side_that_chose():
    """Each side's interval holds for whichever kernel it may have chosen."""
    one, two = (
        asked(databases(1, 5000)[name], key) for key, name in ((1, "smooth"), (2, "uniform"))
    )
    region = {"x": (0.2, 0.6)}
    for here, there in ((8, 1), (1, 8), (4, 4)):
        sides = replace(one, choices=here), replace(two, choices=there)
        found = sides[0].compare(sides[1], region, target="smoothed")
        first, second = (side.mass(region, target="smoothed", beta="0.025") for side in sides)
        assert found.low == pytest.approx(first.low - second.high, abs=1e-12)
        assert found.high == pytest.approx(first.high - second.low, abs=1e-12)


def test_releases_by_group_are_compared_group_by_group():
    rows = databases(1, 5000)["uniform"]
    codes = (rows[:, 0] > 0.3) * 1 + (rows[:, 0] > 0.7)
    three, region = grouped(rows, codes), {"x": (None, 0.5)}
    two = replace(three, groups=(1, 2), measures=three.measures[1:])
    found = three.compare(two, region)
    assert found.value.group.values.tolist() == [1, 2]
    np.testing.assert_allclose(found.value, 0, atol=1e-12)
    whole = asked(rows)
    beside, turned = three.compare(whole, region), whole.compare(three, region)
    assert beside.value.group.values.tolist() == turned.value.group.values.tolist() == [0, 1, 2]
    np.testing.assert_allclose(beside.value, -turned.value, atol=1e-12)
    with pytest.raises(SpecError, match="no group is in both"):
        three.compare(replace(two, groups=("a", "b")), region)


def test_smoothed_densities_of_other_bounds_or_kernels_are_not_compared():
    d = asked(databases(1, 500)["smooth"])
    wide = replace(d, domain=Domain((Axis("x", 0.0, 2.0),)))
    with pytest.raises(SpecError, match=r"same axes and bounds.*Compare the rows"):
        d.compare(wide, {"x": (0.2, 0.6)}, target="smoothed")
    rough = replace(d, kernels=(kernel_of("biweight", 0.2),))
    with pytest.raises(SpecError, match="by gaussian kernels, the other by biweight ones"):
        d.compare(rough, {"x": (0.2, 0.6)}, target="smoothed")
    round_the_clock = replace(d, kernels=with_edges(d.kernels, ["periodic"]))
    with pytest.raises(SpecError, match=r"edges of one density are natural, .* other periodic"):
        d.compare(round_the_clock, {"x": (0.2, 0.6)}, target="smoothed")
    with pytest.raises(SpecError, match='write "records" or "smoothed"'):
        d.compare(d, {"x": (0.2, 0.6)}, target="rows")
    assert d.compare(wide, {"x": (0.2, 0.6)}).target == "records"


def test_periodic_densities_are_compared_round_their_period():
    """Each side's smoothed share is of the kernels that it has, on the other side of 0 too."""
    late, early = 0.9 + databases(1, 5000)["uniform"] / 10, databases(1, 5000)["uniform"] / 10
    here, there = (
        replace(d, kernels=with_edges(d.kernels, ["periodic"]))
        for d in (asked(late, 1), asked(early, 2))
    )
    region = {"x": (0.0, 0.1)}
    found = here.compare(there, region, target="smoothed")
    shares = [side.mass(region, target="smoothed").value for side in (here, there)]
    assert min(map(float, shares)) > 0.2  # of late rows, too
    assert found.value == pytest.approx(shares[0] - shares[1], abs=1e-9)


def test_rows_that_are_rounded_otherwise_are_not_compared():
    """The same rows have other shares: those that are rounded into a box count as inside."""
    d, region = asked(databases(1, 500)["smooth"]), {"x": (0.25, 0.5)}

    def rounded(step, low=0.0, high=1.0):
        return replace(d, domain=Domain((Axis("x", low, high, resolution=step),)))

    coarse, fine = rounded(0.25), rounded(0.05)
    others = (
        (d, r"rounded to 0.25 in one release and as it is in"),
        (fine, r"rounded to 0.25 in one release and rounded to 0.05 in"),
        (rounded(0.25, 0.05, 1.05), r"rounded to 0.25 in the other, from 0.05 on"),
    )
    for (other, said), target in itertools.product(others, ("records", "smoothed")):
        with pytest.raises(SpecError, match=said):
            coarse.compare(other, region, target=target)
    with pytest.raises(SpecError, match=r"as it is in one release.*one \[data.resolution\]"):
        d.compare(coarse, region)
    assert coarse.compare(rounded(0.25, -1.0, 2.0), region).target == "records"


# --- Answers and confidence


def test_an_answer_prints_itself():
    d = asked(databases(1, 5000)["smooth"])
    one = d.mass({"x": (0.2, 0.5)})
    assert str(one) == repr(one)
    assert str(one).startswith("55 % of the rows lie in x 0.2 to 0.5 (")
    number = r"\d+(?:\.\d+)?"
    share = rf"{number} % of the rows lie in x 0.2 to 0.5 \({number} to {number}, 95 % sure\)"
    assert re.match(share, str(one))
    low, high = (float(end) for end in re.search(r"\((\S+) to (\S+),", str(one)).groups())
    assert low <= 100 * one.low <= 100 * one.high <= high
    assert high - low == pytest.approx(100 * (one.high - one.low), rel=0.2)
    mean = replace(d, domain=Domain((Axis("x", 20454, 20514, TimeUnit.DAYS),))).mean()
    moment = r"2026-01-\d\dT\d\d:\d\dZ"
    assert re.match(rf"mean of x: {moment} \({moment} to {moment}, 95 % sure\)", str(mean))
    two = d.quantile([0.25, 0.75])
    assert two.to_dataset()["value"].dims == ("quantile",)
    assert str(two).count("\n") >= 3
    assert "%" not in str(two).partition("\n")[2]
    shares = d.mass({"x": ([0.0, 0.2], [0.2, 0.5])})
    assert ", in %, all at once" in str(shares)
    assert float(shares.value[1]) == one.value
    assert re.search(rf"1 +{100 * one.value:.0f}", str(shares))
    assert "%" in shares._repr_html_()
    assert " percentage points (" in str(d.compare(d, {"x": (0.2, 0.5)}))
    assert " % " not in str(d.count({"x": (0.2, 0.5)})).replace("95 % sure", "")
    assert (one.target, one.interval, one.beta) == ("records", "these-data", 0.05)


def test_several_questions_share_one_confidence():
    d = asked(databases(1, 5000)["smooth"])
    with d.confidence(0.05, questions=2) as c:
        assert c.mean().beta == 0.025
        assert c.account.left == pytest.approx(0.025)
        assert c.mean(beta="0.01").beta == 0.01
        with pytest.raises(SpecError, match=r"2 asked|3 asked"):
            c.mean()
    with d.confidence(0.05) as c:
        assert [c.mean().beta for _ in range(3)] == pytest.approx([0.05 / 2, 0.05 / 6, 0.05 / 12])
        assert "left of beta = 0.05" in repr(c)


@pytest.mark.filterwarnings("default")
def test_questions_without_a_common_confidence_are_told_once():
    d = asked(databases(1, 5000)["smooth"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        d.mean()
        assert not caught
        for _ in range(3):
            d.mean()
    assert [str(one.message) for one in caught if "confidence" in str(one.message)] == [
        "each answer holds with its own probability, not all of them together. For that write: "
        "with distribution.confidence(0.05) as c: and ask c"
    ]


POLYGON = {"type": "Polygon", "coordinates": [TRIANGLE]}
NO_POLYGONS = [
    ({"type": "Point", "coordinates": [0.5, 0.5]}, "write GeoJSON of type Polygon or"),
    ({"type": "Feature", "geometry": None}, "write GeoJSON of type Polygon or"),
    ({"type": "FeatureCollection"}, "has no feature"),
    ({"type": "FeatureCollection", "features": []}, "has no feature"),
    ({"type": "FeatureCollection", "features": 5}, "has no feature"),
    ({"type": "FeatureCollection", "features": [5]}, "a feature is no object"),
    *(({**POLYGON, "coordinates": rings}, said) for rings, said in [
        ([[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]], "crosses"),
        ([[[0, 0], [1, 1], [1, 0]]], "four points"),
        ([[[0, 0], [2, 1], [1, 0], [0, 0]]], "leaves the"),
        ([[[0.1, 0.1]] * 4], "has no area"),
        (["abc"], "rings of points"),
        (7, "rings of points"),
    ]),
    ({"type": "Polygon"}, "without a ring"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda d: d.mass({"q": (0, 1)}), 'no axis "q"'),
        (lambda d: d.mass({"x": (0.5, 0.5)}), "below"),
        (lambda d: d.mass({"x": (0.5, 2)}), "leaves its bounds, 0 to 1, with an end at 2.0"),
        (lambda d: d.mass({"x": (float("nan"), 1)}), "finite"),
        (lambda d: d.mass({"x": 3}), "two ends"),
        (lambda d: d.mass({"x": ([0.1, 0.2], [0.3, 0.4, 0.5])}), "equally long"),
        (lambda d: d.mass([]), "must hold boxes"),
        (lambda d: d.mass([3]), "must hold boxes"),
        (lambda d: d.mass(7), "is no region"),
        (lambda d: d.mass({}, given=[{}, {}]), "write one box"),
        (lambda d: d.mass({}, given=POLYGON), "given: polygons are not .*Write a box"),
        (lambda d: d.mean("x", given=POLYGON), "given: polygons are not .*Write a box"),
        (lambda d: d.mass([POLYGON, POLYGON]), "FeatureCollection"),
        (lambda d: d.quantile(0.5), 'axis: name one of x, y, such as axis = "x"'),
        (lambda d: d.quantile(0.5, "z"), "Write one of x, y"),
        (lambda d: d.mass({}, target="rows"), 'write "records" or "smoothed"'),
        (lambda d: d.density([[0.1, 0.1]], kernel="box"), "is unknown"),
        (lambda d: d.density([[0.1, 0.1]], bandwidth=0), "above 0"),
        (lambda d: d.density([[0.1, 0.1]], bandwidth="wide"), "above 0"),
        (lambda d: d.density([[0.1, 0.1]], bandwidth=np.ones(3)), "above 0"),
        (lambda d: d.mass({"x": ("a", "b")}), "ends must be numbers, or dates"),
        (lambda d: d.cdf("a", "x"), "above the lower bound of x"),
        (lambda d: d.density([[0.1, 1.1]]), "outside the bounds"),
        (lambda d: d.density(np.empty((0, 2))), "or none"),
        (lambda d: d.marginal([], "x"), "one or more, all within"),
        (lambda d: d.marginal([2.0], "x"), "one or more, all within the bounds of x"),
        (lambda d: d.cdf([], "x"), "above the lower bound of x"),
        (lambda d: d.cdf(0, "x"), "above the lower bound of x"),
        (lambda d: d.cdf([0.5, 2], "x"), "up to its upper one"),
        (lambda d: d.quantile("median", "x"), "between 0 and 1"),
        (lambda d: d.compare(3, {}), "what distribution.. of another"),
        (lambda d: d.mass({}, beta="1e-13"), "at least 1e-12"),
        *((lambda d, shape=shape: d.mass(shape), said) for shape, said in NO_POLYGONS),
        (lambda d: d.mass(POLYGON, given={}), "given: polygons have no condition"),
        (lambda d: d.sample(1.5), "at least 1"),
        (lambda d: d.sample(3, seed=-1), "not negative"),
        (lambda d: d.sample(0), "at least 1"),
        (lambda d: d.sample("3"), "at least 1"),
        (lambda d: d.sample(np.inf), "at least 1"),
        (lambda d: d.sample(10**30), "at least 1"),
        (lambda d: d.sample(10**15), "fit into memory"),
        (lambda d: d.sample(3, seed=10**30), "not negative"),
        (lambda d: d.quantile([0.5, 1.0], "x"), "between 0 and 1"),
        (lambda d: d.mean("x", given={"x": (0, 0.5)}), "what is asked about"),
        (lambda d: d.mean("x", beta=2), "between 0 and 1"),
        (lambda d: d.cov("x", "z"), "Write one of x, y"),
        (lambda d: d.cov("x", "y", given={"y": (0, 0.5)}), "y is what is asked about"),
        (lambda d: d.correlation("x", "x"), "Name two axes"),
        (lambda d: d.confidence(questions=0), "at least 1"),
    ],
)
def test_what_cannot_be_asked_is_refused(ask, said):
    with pytest.raises(SpecError, match=said):
        ask(asked(np.full((50, 2), 0.3)))


@pytest.mark.slow
def test_other_releases_are_refused():
    (synopsis,) = drawn(planned(1, 500, noise="laplace"), {"x": np.ones(500)}, [0])
    with pytest.raises(SpecError, match="does not count rows by bins"):
        synopsis.distribution()


@pytest.mark.slow
def test_dates_are_asked_as_dates():
    case = planned(1, 5000, roles='{"bounds": {"x": ["2026-01-01", "2026-03-02"]}}', bandwidth=6.0)
    days = 20454 + 60 * databases(1, 5000)["smooth"][:, 0]  # since 1970
    d = released(case, {"x": days})
    share = d.mass({"x": (None, "2026-02-01")})
    assert share.low <= (days <= 20485).mean() <= share.high
    medians = d.quantile([0.5])
    moment = r"2026-01-\d\dT\d\d:\d\dZ"
    assert re.search(rf"\n0\.5 +{moment} +{moment} +{moment}\n", str(medians))
    assert medians.value.attrs["units"].startswith("days since 1970")
    assert float(medians.low[0]) <= np.median(days) <= float(medians.high[0])


def test_regions_are_written_as_they_are_read():
    region = {"x": (None, None), "y": (None, 3), "z": (-0.5, None), "w": (1.0, 2.5)}
    assert region_text(region) == "any x, y up to 3, z from -0.5 up and w 1 to 2.5"


def test_a_column_may_have_braces_in_its_name():
    d = asked(databases(1, 500)["uniform"])
    d = replace(d, domain=Domain((Axis("x{y}{}", 0.0, 1.0),)))
    assert " % of the rows lie in x{y}{} up to 0.5 (" in str(d.cdf(0.5, "x{y}{}"))
