"""Bins of two scales on several axes: their product, sensitivity, and answers that cover."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from banding import centers, covering, released, synopsis_of
from banding import planned as planned_of
from strategies import spec_of

from dbern.bernstein.kernels import Gaussian
from dbern.planning.planner import plan_files
from dbern.reconstruct.base import Slab
from dbern.testing import distance_ratios, integers_of_each, moves

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")
COUNTS = {"x": 53, "y": 49}  # cells of each axis: wide ones of 7 reach beyond that of x


def spec(n=5000, noise="auto", data=None, questions=("mass",)):
    rows = {"n": n} if data is None else {"n": None, "normalizer": str(n), **data}
    return spec_of(
        data={
            "bounds": {name: [0.0, count] for name, count in COUNTS.items()},
            "resolution": {"x": 1.0, "y": 1.0}, **rows,
        },
        target={"bandwidth": [4.0, 4.0]},
        budget={"delta": "1e-6"} if "gaussian" in noise else {},
        mechanism={"k": None, "h": None, "noise": noise, "questions": list(questions)},
    )  # fmt: skip


def planned(*args, **kwargs):
    case = spec(*args, **kwargs)
    plan = plan_files(case, ())
    maps = plan.components[0].maps
    assert [(axis.cells, axis.times, axis.parts) for axis in maps] == [(53, 7, 2), (49, 7, 2)]
    return case, plan


def places(count, seed):
    """Multiples, what is rounded to one of two, nearly a multiple, and out of bounds or missing."""
    anywhere = np.random.default_rng(seed).uniform(0, count, 3)
    at = [0.0, 6.5, 7.0, 7.5, count / 2, np.nextafter(7.0, 8), count - 1.0, count, -1.0, np.nan]
    return np.concatenate([at, anywhere])


@pytest.mark.parametrize("noise", ["binned-laplace", "binned-k-norm", "binned-gaussian"])
def test_no_neighbor_moves_more_than_is_planned(noise):
    case, plan = planned(noise=noise)
    pairs = [[{"x": x, "y": y}] for x in places(53, 1) for y in places(49, 2)]
    (worst,) = moves(plan, integers_of_each(case, plan, pairs))
    assert 0.9 < worst <= 1 + 1e-12


@pytest.mark.parametrize("noise", ["binned-laplace", "binned-gaussian"])
def test_no_record_that_is_added_moves_more_than_is_planned(noise):
    case, plan = planned(noise=noise, data={"neighbors": "add-or-remove-one"})
    pairs = [[{"x": x, "y": y}] for x in places(53, 1) for y in places(49, 2)]
    *records, nothing = integers_of_each(case, plan, [*pairs, [{"x": np.nan, "y": np.nan}]])
    (component,) = plan.components
    rows = np.array([counts[0] for counts in records])
    worst = distance_ratios(np.array(nothing), rows, component).max()
    assert 0.9 < worst <= 1 + 1e-12


def test_numbers_are_products_of_both_scales():
    """Beside fractions, of which each is rounded once, in two slabs."""
    case, plan = planned()
    (component,), (counter,) = plan.components, plan.counters(case).parts
    counts = np.random.default_rng(3).integers(0, 2**61, (1, *counter.shape[1:]))
    x, y = (exact_matrix(axis.scales) for axis in component.maps)
    numbers = x @ counts[0].astype(object) @ y.T / (Fraction(counter.n) * 2**counter.bits)
    slabs = Slab(0, 0, 40), Slab(1, 40, len(numbers))
    found = np.concatenate([counter.to_values(counts, 0, slab) for slab in slabs])
    np.testing.assert_array_equal(found, numbers.astype(float))
    rounded = (numbers * 10**9).astype(np.int64)
    total = component.strategy.total([rounded[:40], rounded[40:]])
    assert total == pytest.approx(10**9 * float(numbers.sum()), rel=1e-9)


def exact_matrix(scales):
    """M of fractions."""
    entries = [[Fraction(m).limit_denominator(scales.unit) for m in row]
               for row in scales.on_bins(np.eye(scales.count)).tolist()]  # fmt: skip
    return np.array(entries, dtype=object)


def test_rounding_moves_numbers_by_no_more_than_is_planned():
    case, plan = planned()
    (counter,), maps = plan.counters(case).parts, plan.components[0].maps
    errors, rho = counter.errors, 2.0**-counter.bits
    x, y = (axis.scales.on_bins(np.eye(axis.scales.count)) for axis in maps)
    touched = [(i, j) for i in range(0, 53, 7) for j in (0, 7, 24, 48)]
    moved = [np.outer(x[:, i : i + 2].sum(1), y[:, j : j + 2].sum(1)).ravel() for i, j in touched]
    assert errors.kernel >= rho * np.max(moved)
    for norm in (1, 2):
        assert errors.kernel_norms[norm - 1] >= 2 * rho * np.linalg.norm(moved, norm, axis=1).max()


def between(rows, low, high):
    return (rows >= low) & (rows <= high)


ROWS = np.random.default_rng(5).binomial([53, 49], [0.4, 0.6], (5000, 2)).astype(float)
ROWS[:, 1] = np.rint(np.clip(ROWS[:, 1] + (ROWS[:, 0] - 21) / 2, 0, 49))
BOX = {"x": (20, 28), "y": (30, 40)}
X, Y = ROWS.T
IN_X, IN_Y = between(X, 20, 28), between(Y, 30, 40)


def smoothed(low, high, rows, count):
    kernel = Gaussian(4 / count)
    return kernel.cumulative(high / count - rows / count) - kernel.cumulative((low - rows) / count)


QUESTIONS = {
    "mass": (lambda d, beta: d.mass(BOX, beta=beta), (IN_X & IN_Y).mean()),
    "masses": (
        lambda d, beta: d.mass([BOX, {"x": (10, 30)}, {"y": (None, 30)}], beta=beta),
        np.array([(IN_X & IN_Y).mean(), between(X, 10, 30).mean(), (Y <= 30).mean()]),
    ),
    "mass of one axis": (lambda d, beta: d.mass({"y": (30, 40)}, beta=beta), IN_Y.mean()),
    "mass under a condition": (
        lambda d, beta: d.mass({"x": (20, 28)}, given={"y": (30, 40)}, beta=beta),
        IN_X[IN_Y].mean(),
    ),
    "count": (lambda d, beta: d.count(BOX, beta=beta), (IN_X & IN_Y).sum()),
    "quantile": (
        lambda d, beta: d.quantile(0.3, "x", beta=beta),
        np.quantile(X, 0.3, method="inverted_cdf"),
    ),
    "quantile under a condition": (
        lambda d, beta: d.quantile(0.3, "y", given={"x": (20, 28)}, beta=beta),
        np.quantile(Y[IN_X], 0.3, method="inverted_cdf"),
    ),
    "mean": (lambda d, beta: d.mean("y", beta=beta), Y.mean()),
    "mean under a condition": (
        lambda d, beta: d.mean("y", given={"x": (20, 28)}, beta=beta), Y[IN_X].mean(),
    ),
    "deviation": (lambda d, beta: d.std("x", beta=beta), X.std()),
    "correlation": (lambda d, beta: d.correlation("x", "y", beta=beta), np.corrcoef(X, Y)[0, 1]),
    "smoothed mass": (
        lambda d, beta: d.mass(BOX, target="smoothed", beta=beta),
        (smoothed(20, 28, X, 53) * smoothed(30, 40, Y, 49)).mean(),
    ),
    "density": (
        lambda d, beta: d.density([[24.0, 34.0]], beta=beta),
        (Gaussian(4 / 53)((24 - X) / 53) * Gaussian(4 / 49)((34 - Y) / 49)).mean() / 53 / 49,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def counted():
    case, plan = planned()
    return case, plan, centers(case, plan, {"x": X, "y": Y})


def covered(counted, name, keys, beta):
    """How many releases cover what is known."""
    ask, exact = QUESTIONS[name]
    releases = (synopsis_of(*counted, key.to_bytes(32, "big")).distribution() for key in keys)
    return covering(releases, {name: (lambda release: ask(release, beta), exact)})[name,]


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_hold(counted, name):
    assert covered(counted, name, range(1, 3), 1e-6) == 2


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_cover_as_often_as_they_say(counted, name):
    least = 0.95 - 3 * np.sqrt(0.05 * 0.95 / 40)
    assert covered(counted, name, range(1, 41), 0.05) >= 40 * least


def test_many_boxes_are_told_by_products_of_weights(counted):
    """Beyond what is drawn answers are those of the tail, and hold; the same as one by one."""
    d = synopsis_of(*counted, bytes(32)).distribution()
    draw = np.random.default_rng(7)
    x, y = (np.sort(draw.integers(0, 50, (20_000, 2)), axis=1).T for _ in "xy")
    answer = d.mass({"x": tuple(x), "y": tuple(y)}, beta=1e-6)
    some = slice(0, 20_000, 500)
    ends = zip(*x[:, some], *y[:, some], strict=True)
    exact = [(between(X, *end[:2]) & between(Y, *end[2:])).mean() for end in ends]
    assert (answer.low[some] <= exact).all()
    assert (exact <= answer.high[some]).all()
    one = d.mass({"x": tuple(x[:, 0]), "y": tuple(y[:, 0])})
    assert float(one.value) == pytest.approx(float(answer.value[0]), abs=1e-9)


def test_answers_that_take_the_axes_for_others_are_caught(counted):
    """Planted: weights for scales of which one axis' narrow one counts another part."""
    d = synopsis_of(*counted, bytes(32)).distribution()
    (measure,), box = d.measures, {"y": (None, 34)}
    x, y = measure.scales
    mistaken = replace(d, measures=(replace(measure, scales=(replace(x, parts=4), y)),))
    right, wrong = (case.count(box, beta=1e-6) for case in (d, mistaken))
    exact = (Y <= 34).sum()
    assert right.low <= exact <= right.high
    assert not wrong.low <= exact <= wrong.high


@pytest.mark.parametrize("name", ["mass", "mass of one axis", "mean"])
def test_populations_are_told_as_from_narrow_bins(counted, name):
    d = synopsis_of(*counted, bytes(32)).distribution()
    ask = {
        "mass": lambda: d.mass(BOX, population=True),
        "mass of one axis": lambda: d.mass({"y": (30, 40)}, population=True),
        "mean": lambda: d.mean("y", population=True),
    }
    told, own = ask[name](), QUESTIONS[name][0](d, 0.05)
    assert told.low < own.low < own.high < told.high
    assert told.high - told.low < 4 * (own.high - own.low) + 4 * 49 / np.sqrt(len(ROWS))


def test_bands_of_values_hold(counted):
    synopsis = synopsis_of(*counted, bytes(32))
    points = np.random.default_rng(1).uniform(0, [53, 49], (60, 2))
    low, high = synopsis.interval(points)
    truth = np.array([
        (Gaussian(4 / 53)((x - X) / 53) * Gaussian(4 / 49)((y - Y) / 49)).mean() / 53 / 49
        for x, y in points
    ])  # fmt: skip
    assert ((low <= truth) & (truth <= high)).all()
    assert np.abs(synopsis(points) - truth).max() <= counted[1].certificate.total


def test_points_drawn_are_where_the_rows_are(counted):
    d = synopsis_of(*counted).distribution()  # without noise
    assert d.sample(20_000).mean(axis=0) == pytest.approx(ROWS.mean(axis=0), abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kernel-density", "nadaraya-watson"])
def test_groups_and_responses_are_told_of_both_axes(kind):
    """Of rows in two parts, each of two scales: their means in a box and under a polygon."""
    rows = np.rint(np.random.default_rng(1).uniform(size=(20_000, 2)) * 50) / 50
    g = (rows[:, 0] + rows[:, 1] > 0.9) * 1.0
    roles = {"resolution": {"x": 0.02, "y": 0.02}}
    if kind == "kernel-density":
        roles["group"] = {"column": "g", "values": ["a", "b"]}
    else:
        roles["response"] = {"column": "g", "bounds": [0.0, 1.0]}
    case = planned_of(
        2, 20_000, noise="auto", questions=("mass",), roles=json.dumps(roles), kind=kind
    )
    assert [axis.times for axis in case[1].components[0].maps] == [7, 7]
    inside = between(rows[:, 0], 0.3, 0.6) & between(rows[:, 1], 0.2, 0.7)
    triangle = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 1], [0, 0]]]}
    below = rows.sum(axis=1) <= 1
    for key in (1, 2):
        d = released(case, {"x": rows[:, 0], "y": rows[:, 1], "g": g}, key)
        for region, of in (
            ({"x": (0.3, 0.6), "y": (0.2, 0.7)}, inside),
            (triangle, below),
            ({}, g >= 0),
        ):
            told, share = d.average(region, beta=1e-6), g[of].mean()
            exact = share if kind == "nadaraya-watson" else np.array([1 - share, share])
            assert (np.asarray(told.low) <= exact).all()
            assert (exact <= np.asarray(told.high)).all()
