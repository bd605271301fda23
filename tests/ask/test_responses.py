"""Means of responses and shares of groups: bounds for every database, coverage, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import questioned
from banding import columns, covering, covers, drawn, planned, released
from questioned import OF_RESPONSES, covered_responses, databases, grouped, responding, too_few
from scipy.stats import binom

from dbern.ask import bins, responses
from dbern.ask.question import CommonOptions, ReleasedResponses
from dbern.bernstein.kernels import Gaussian
from dbern.errors import SpecError

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")


def attacked(rows, v, ask, truth):
    """By how much the exact answer is outside of what bins without noise allow; of nearly no noise.

    Responses are at their bounds, so the inequalities are attained where a bin is met by halves.
    """
    answer = ask(responding(rows, v, key=0, epsilon=1e6))
    known = truth(rows[:, 0], v)
    off = np.maximum(np.asarray(answer.low) - known, known - np.asarray(answer.high))
    return np.max(np.where(np.isnan(known), -np.inf, off))


def attacks(draws):
    """Few rows around the edges of regions and cells, each response at a bound."""
    worst, rng = -np.inf, np.random.default_rng(5)
    for draw in range(draws):  # as many rows each time: one law, whose draws are kept
        count = 2 + draw % 5
        edges = rng.choice([0.2, 0.5, 5 / 12, 0.15, 0.4321, 0.8], size=count)
        steps = rng.choice([-1, 1], size=count) * 10 ** rng.uniform(-6, -1, size=count)
        x = np.concatenate([np.clip(edges + steps, 0, 1), rng.uniform(size=8 - count)])
        rows = x[:, None]
        v = rng.integers(0, 2, size=len(rows)).astype(float)
        for name in ("curve", "average", "difference of places"):
            ask, truth = OF_RESPONSES[name]
            worst = max(worst, attacked(rows, v, ask, truth))
    return worst


@pytest.mark.slow
def test_no_database_is_outside_of_the_bounds():
    assert attacks(15) <= 1e-9


@pytest.mark.parametrize("side", ["lower", pytest.param("upper", marks=pytest.mark.slow)])
def test_splines_that_do_not_bound_their_weight_are_caught(monkeypatch, side):
    """With the middle of the splines in place of a side, the search finds a counterexample."""
    exact = responses.mean_of_split

    def planted(split, weights, beta, *others):
        class Middle:
            def __len__(self):
                return len(weights)

            def select(self, which):
                g = weights.select(which)
                return replace(g, **{side: g.estimate})

        return exact(split, Middle(), beta, *others)

    monkeypatch.setattr(responses, "mean_of_split", planted)
    assert attacks(15) > 1e-3


@pytest.mark.slow
def test_one_side_for_both_parts_is_caught(monkeypatch):
    """What counts against needs the other side: rows near an edge may be inside or outside."""
    exact = responses.Denominator.of

    def planted(view, weights):
        lower, upper = (side[:, [0, 0]] for side in (weights.lower, weights.upper))
        return exact(view, replace(weights, lower=lower, upper=upper))

    monkeypatch.setattr(responses.Denominator, "of", planted)
    assert attacks(15) > 1e-3


@pytest.mark.turns("coverage", 8)
@pytest.mark.parametrize(
    ("names", "draws", "groups"),
    [
        (["clustered"], 1, False),
        *(
            pytest.param(list(databases(1, 10)), draws, groups, marks=pytest.mark.slow)
            for draws, groups in ((6, False), (6, True))
        ),
    ],
)
def test_means_of_responses_cover_at_least_as_often_as_they_say(names, draws, groups):
    found = covered_responses(5000, names, draws, groups)
    assert too_few(found, draws) == {}


def tell_noise_as(monkeypatch, part):
    """Plant: the noise of sums of responses is told as a part of what it is."""
    view = bins.SplitMeasure.joint
    less = lambda one: replace(view(one), noise=part * view(one).noise)  # noqa: E731
    monkeypatch.setattr(bins.SplitMeasure, "joint", less)


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_noise_that_is_told_as_half_is_caught(monkeypatch):
    """The mean of all responses has no bias: its band is noise alone."""
    ask, truth = (lambda d: d.average({}), lambda _x, v: v.mean())
    monkeypatch.setattr(questioned, "OF_RESPONSES", {"all": (ask, truth)})
    whole = covered_responses(5000, ["smooth"], 100)
    assert whole["smooth", "smooth", "all"] >= 88
    tell_noise_as(monkeypatch, 1 / 2)
    found = covered_responses(5000, ["smooth"], 100)
    assert found["smooth", "smooth", "all"] < 88


def test_responses_never_leave_their_bounds():
    rows = databases(1, 300)["smooth"]
    answer = responding(rows, np.ones(300), epsilon=0.05).curve(np.linspace(0, 1, 30)[:, None])
    for one in (answer.value, answer.low, answer.high):
        assert ((one >= 0) & (one <= 1)).all()
    assert (answer.low <= answer.value).all()
    assert (answer.value <= answer.high).all()
    assert float(answer.low.min()) == 0.0  # where the noise hides them, nothing is known
    assert float((answer.high - answer.low).max()) == 1.0


def test_a_mean_where_no_rows_are_is_not_known():
    x = databases(1, 5000)["uniform"] / 2
    d = responding(x, 0.5 + 0 * x[:, 0])
    known, unknown = d.average({"x": (0.1, 0.3)}), d.average({"x": (0.8, 0.9)})
    assert known.low <= 0.5 <= known.high
    assert " is not known" not in str(known)
    assert (unknown.low, unknown.high) == (0.0, 1.0)
    text = "mean of the response in x 0.8 to 0.9 is not known (0.00 to 1.00, 95 % sure)"
    assert str(unknown).startswith(text)


def test_many_places_have_the_answers_of_each(monkeypatch):
    x = databases(1, 5000)["smooth"]
    d, at = responding(x, 0.5 + 0.4 * np.sin(7 * x[:, 0])), np.linspace(0.1, 0.9, 9)[:, None]
    few = d.curve(at)
    monkeypatch.setattr("dbern.ask.bins._MAX_WORK", 0)
    monkeypatch.setattr("dbern.ask.quotients.BATCH_NUMBERS", 100)
    many = d.curve(at)
    np.testing.assert_allclose(few.value, many.value, atol=1e-12)
    assert ((many.low <= few.low) & (few.high <= many.high)).all()  # not simulated: by the tail
    assert (many.low < few.low).any()
    assert float((many.high - many.low).max()) < 2 * float((few.high - few.low).max())


def test_two_places_and_two_regions_differ():
    x = databases(1, 5000)["uniform"]
    d = responding(x, (x[:, 0] > 0.5) * 1.0)
    places = d.difference([[0.8]], [[0.2]])
    assert places.low > 0.5
    assert places.target == "smoothed"
    regions = d.difference({"x": (0.6, None)}, {"x": (None, 0.4)})
    assert 0.5 < regions.low <= regions.value <= regions.high <= 1.0
    listed = d.difference([{"x": (0.6, None)}] * 2, [{"x": (None, 0.4)}] * 2)
    np.testing.assert_allclose(listed.value, regions.value, atol=1e-12)
    several = d.difference(np.full((3, 1), 0.8), np.full((3, 1), 0.2))
    assert several.value.dims == ("point",)
    np.testing.assert_allclose(several.value, places.value, atol=1e-12)
    with pytest.raises(SpecError, match="two points, or two regions"):
        d.difference({"x": (0.6, None)}, [[0.2]])
    with pytest.raises(SpecError, match="3 less 1"):
        d.difference(np.full((3, 1), 0.8), [[0.2]])


def test_groups_share_a_place():
    rng = np.random.default_rng(2)
    rows = rng.uniform(size=(9000, 1))
    codes = np.clip(3 * rows[:, 0] + 0.3 * rng.normal(size=9000), 0, 2.9).astype(int)
    d, at = grouped(rows, codes), np.array([[0.1], [1 / 3], [0.9]])
    shares = d.curve(at)
    assert shares.value.dims == ("point", "group")
    weights = Gaussian(0.1)(at - rows[:, 0])
    truth = np.stack([weights @ (codes == one) / weights.sum(axis=1) for one in range(3)], axis=1)
    assert covers(shares, truth)
    assert (shares.low[0, 0] > shares.high[0, 1:]).all()
    assert (shares.low[2, 2] > shares.high[2, :2]).all()
    inside = d.average({"x": (None, 0.5)})
    known = [(codes[rows[:, 0] < 0.5] == one).mean() for one in range(3)]
    assert covers(inside, np.array(known))


ALONG = np.array([0.15, 0.4321, 0.8])


def near_given(rows, v, low, *, smoothed=False):
    """Mean of v by a kernel along x, of rows whose y is above `low`, or as their kernel is."""
    weights = Gaussian(0.1)(ALONG[:, None] - rows[:, 0])
    if smoothed:
        weights = weights * questioned.kernel_share(rows[:, 1], low, 1.0)
    else:
        weights = weights * (rows[:, 1] > low)
    return weights @ v / weights.sum(axis=1)


def half_by_half(draws):
    """How many releases cover curves along one of two axes, whole and under a condition."""
    rows = databases(2, 5000)["clustered"]
    v = ((rows[:, 0] + rows[:, 1]) % 0.3 < 0.15) * 1.0
    exact = [questioned.counted(rows, weights=part) for part in (v, 1 - v)]
    asked = {
        "whole": (lambda d: d.curve_along(ALONG, "x"), near_given(rows, v, 0.0)),
        "given": (
            lambda d: d.curve_along(ALONG, "x", given={"y": (0.4, None)}),
            near_given(rows, v, 0.4),
        ),
        "smoothed": (
            lambda d: d.curve_along(ALONG, "x", given={"y": (0.4, None)}, target="smoothed"),
            near_given(rows, v, 0.4, smoothed=True),
        ),
    }
    return covering((responding(rows, v, 1 + draw, exact=exact) for draw in range(draws)), asked)


@pytest.mark.turns("coverage", 8)
@pytest.mark.parametrize("draws", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_curves_along_an_axis_cover_at_least_as_often_as_they_say(draws):
    assert too_few(half_by_half(draws), draws) == {}


def test_a_curve_along_the_only_axis_is_that_at_its_points():
    rows = databases(1, 5000)["smooth"]
    d = responding(rows, 0.5 + 0.4 * np.sin(7 * rows[:, 0]))
    points, along = d.curve(ALONG[:, None]), d.curve_along(ALONG, "x")
    assert along.value.dims == ("x",)
    for end in ("value", "low", "high"):
        np.testing.assert_array_equal(getattr(points, end), getattr(along, end))
    with pytest.raises(SpecError, match="x is what is asked about"):
        d.curve_along(ALONG, "x", given={"x": (0, 1)})
    with pytest.raises(SpecError, match="all within the bounds of x"):
        d.curve_along([2.0], "x")


def between_groups(draws):
    """How many releases cover what two of three groups differ by: in a region, and at points."""
    rows = databases(1, 5000)["clustered"]
    phase = np.floor(36 * rows[:, 0]).astype(int) % 3  # differs within a cell
    exact = [questioned.counted(rows, weights=(phase == one) * 1.0) for one in range(3)]
    sign, at = (phase == 2) * 1.0 - (phase == 0), np.array([[0.2], [0.7]])
    x, weights = rows[:, 0], Gaussian(0.1)(at - rows[:, 0])
    region = {"x": (0.2, 0.5)}
    asked = {
        "region": (
            lambda d: d.difference(region, groups=(2, 0)),
            sign[(x > 0.2) & (x < 0.5)].mean(),
        ),
        "points": (
            lambda d: d.difference(at, groups=(2, 0)),
            weights @ sign / weights.sum(axis=1),
        ),
    }
    return covering((grouped(rows, phase, 1 + draw, exact=exact) for draw in range(draws)), asked)


@pytest.mark.turns("coverage", 8)
@pytest.mark.parametrize("draws", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_groups_differ_by_what_covers_at_least_as_often_as_it_says(draws):
    assert too_few(between_groups(draws), draws) == {}


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_a_difference_of_groups_whose_noise_is_told_as_half_is_caught(monkeypatch):
    rows = np.random.default_rng(1).uniform(size=(5000, 1))
    codes = np.random.default_rng(2).integers(0, 3, size=5000)
    exact = [questioned.counted(rows, weights=(codes == one) * 1.0) for one in range(3)]
    known = np.mean(codes == 2) - np.mean(codes == 0)
    asked = {"all": (lambda d: d.difference({}, groups=(2, 0)), known)}

    def found():
        releases = (grouped(rows, codes, 1 + draw, exact=exact) for draw in range(100))
        return covering(releases, asked)["all",]

    assert found() >= 88
    tell_noise_as(monkeypatch, 1 / 2)
    assert found() < 88


GROUPS_DIFFER = {
    "region": ({"x": (0.2, 0.5)}, lambda x: (x > 0.2) & (x < 0.5)),
    "everywhere": ({}, np.ones_like),
    "points": (np.array([[0.2], [0.7]]), lambda x: Gaussian(0.1)(np.array([[0.2], [0.7]]) - x)),
}


def responding_by_group(rows, key, exact):
    """As `responding`, of a regression by group."""
    measures, parts = [], []
    for group, pair in enumerate(exact):
        d = responding(rows, None, key and key + 10**6 * group, exact=pair)
        for found, one in ((measures, d.measures[0]), (parts, d.response.measures[0])):
            found.append(replace(one, stream=group))
    groups, response = tuple(range(len(exact))), ReleasedResponses(tuple(parts), 0.0, 1.0)
    return replace(d, measures=tuple(measures), groups=groups, response=response)


def of_groups(rows, codes, responses):
    """Exact bins of each group, of its rows in two parts."""
    return [
        [
            questioned.counted(rows, weights=(codes == group) * part)
            for part in (responses, 1 - responses)
        ]
        for group in range(codes.max() + 1)
    ]


def responses_between_groups(draws, *, alike=False, beta=0.05):
    """How many releases cover what the mean responses of two of three groups differ by."""
    rows = databases(1, 5000)["clustered"]
    x, codes = rows[:, 0], np.random.default_rng(2).integers(0, 3, size=5000)
    v = np.full(5000, 0.5) if alike else np.clip(x + 0.2 * codes, 0, 1)
    exact, asked = of_groups(rows, codes, v), {}
    for name, (where, weigh) in GROUPS_DIFFER.items():
        weights = [weigh(x) * (codes == group) for group in (2, 0)]
        first, second = (each @ v / each.sum(axis=-1) for each in weights)
        ask = lambda d, where=where: d.difference(where, groups=(2, 0), beta=beta)  # noqa: E731
        asked[name] = ask, first - second
    releases = (responding_by_group(rows, 1 + draw, exact) for draw in range(draws))
    return covering(releases, asked)


@pytest.mark.turns("coverage", 8)
@pytest.mark.parametrize("draws", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_responses_of_groups_differ_by_what_covers_at_least_as_often_as_it_says(draws):
    assert too_few(responses_between_groups(draws), draws) == {}


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_a_difference_of_responses_whose_noise_is_told_as_a_quarter_is_caught(monkeypatch):
    assert responses_between_groups(60, alike=True, beta=0.3)[("everywhere",)] >= 42
    tell_noise_as(monkeypatch, 1 / 4)
    assert responses_between_groups(60, alike=True, beta=0.3)[("everywhere",)] < 42


def test_a_difference_of_responses_is_named_and_holds_both_groups_at_half_of_beta():
    rows = databases(1, 4000)["uniform"]
    codes, v = (rows[:, 0] > 0.5) * 1, rows[:, 0]
    d = responding_by_group(rows, 1, of_groups(rows, codes, v))
    answer = d.difference({}, groups=(1, 0), beta=0.1)
    assert answer.question.startswith("mean of the response of 1 less that of 0 in ")
    assert answer.low > 0.3
    assert answer.percent is None
    averages = d.average({}, beta=0.1)
    value, low, high = (np.asarray(end) for end in (averages.value, averages.low, averages.high))
    assert answer.value == pytest.approx(value[1] - value[0])
    assert (answer.low, answer.high) == pytest.approx((low[1] - high[0], high[1] - low[0]))
    drawn = d.difference({}, groups=(1, 0), beta=0.1, population=True)
    assert drawn.low < answer.low < answer.high < drawn.high
    (asked,) = responses.Difference.from_text(
        "x=0..1 between 1 and 0", d, CommonOptions(None, "records")
    )
    assert next(asked(d, 0.1)).value == answer.value


def test_two_groups_of_a_release_are_named():
    rows = databases(1, 500)["uniform"]
    d = grouped(rows, (rows[:, 0] > 0.5) * 1)
    answer = d.difference({"x": (0.6, None)}, groups=(1, 0))
    assert answer.question == "share of 1 less that of 0 in x from 0.6 up"
    assert answer.low > 0
    np.testing.assert_allclose(answer.value, -d.difference({"x": (0.6, None)}, groups=(0, 1)).value)
    for groups in ((0,), (0, 0), (0, 7), (0, 1, 0)):
        with pytest.raises(SpecError, match="write two groups, the first less the second, of 0, 1"):
            d.difference({}, groups=groups)
    with pytest.raises(SpecError, match="this release has none"):
        responding(rows, rows[:, 0]).difference({}, groups=(0, 1))
    for other, groups in ((None, None), ({}, (0, 1))):
        with pytest.raises(SpecError, match="or one and its two groups"):
            d.difference({}, other, groups=groups)


def test_the_population_has_the_wider_interval():
    rows = databases(1, 5000)["smooth"]
    d = responding(rows, np.random.default_rng(3).integers(0, 2, size=5000).astype(float))
    these, all_rows = d.average({}), d.average({}, population=True)
    assert all_rows.interval == "population"
    assert all_rows.high - all_rows.low > 1.5 * (these.high - these.low)
    assert all_rows.low <= 0.5 <= all_rows.high


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_the_population_of_responses_is_covered_about_as_often_as_it_says():
    rng, found = np.random.default_rng(3), 0
    for draw in range(100):
        rows = rng.uniform(size=(3000, 1))
        d = responding(rows, (rng.uniform(size=3000) < 0.3) * 1.0, draw + 1)
        found += covers(d.average({"x": (None, 0.5)}, target="smoothed", population=True), 0.3)
    assert found >= 88


POLYGON = {"type": "Polygon", "coordinates": [[[0.1, 0.1], [0.8, 0.2], [0.3, 0.9], [0.1, 0.1]]]}


def test_of_polygons_the_mean_response_is_told():
    rows = databases(2, 20_000)["uniform"]
    d = responding(rows, (rows[:, 0] > 0.05) * 1.0)
    answer = d.average(POLYGON)
    assert answer.low <= 1.0 == answer.high


def test_what_has_no_response_is_refused():
    d = responding(np.full((50, 1), 0.3), np.ones(50))
    with pytest.raises(SpecError, match="outside the bounds"):
        d.curve([[2.0]])
    for ask in (lambda d: d.curve([[0.1]]), lambda d: d.average({})):
        with pytest.raises(SpecError, match="neither groups, nor responses"):
            ask(replace(d, response=None))


@pytest.mark.slow
def test_releases_answer_in_units_of_the_response():
    rng = np.random.default_rng(1)
    x = rng.uniform(size=20_000)
    roles = '{"response": {"column": "r", "bounds": [-1.0, 3.0]}}'
    case = planned(1, 30_000, roles=roles, kind="nadaraya-watson", noise="auto")
    d, r = released(case, {"x": x, "r": 1 + np.sin(9 * x)}), 1 + np.sin(9 * x)
    weights = Gaussian(0.1)(PLACE - x)
    answer = d.curve([[PLACE]])
    assert covers(answer, weights @ r / weights.sum())
    assert float((answer.high - answer.low)[0]) < 0.1
    assert covers(d.average({}), r.mean())


PLACE = 0.4321


@pytest.mark.slow
def test_releases_by_group_answer_each_group_s_responses():
    """Answers of both groups hold at once, as often as they say; neither tells of the other."""
    rng = np.random.default_rng(1)
    x, g = rng.uniform(size=6000), (rng.uniform(size=6000) < 0.3) * 1.0
    r = np.where(g == 1, 2.0 - x, 0.5 + np.sin(9 * x)) + rng.uniform(-0.5, 0.5, size=6000)
    response = '"response": {"column": "r", "bounds": [-1.0, 3.0]}'
    roles = f'{{{response}, "group": {{"column": "g", "values": ["a", "b"]}}}}'
    case = planned(1, 6000, roles=roles, kind="nadaraya-watson", noise="auto")
    places = np.array([PLACE, 0.01, 0.2, 0.7, 0.99])
    weights = Gaussian(0.1)(places[:, None] - x)
    curves = np.stack([(weights * (g == i)) @ r / (weights @ (g == i)) for i in (0, 1)], axis=1)
    means = [r[g == i].mean() for i in (0, 1)]
    weights = Gaussian(0.1)(np.array([[0.1], [0.9]]) - x)
    first, last = np.stack([(weights * (g == i)) @ r / (weights @ (g == i)) for i in (0, 1)], 1)
    differences = (first - last)[None]
    held, draws = np.zeros(5), 20
    for synopsis in drawn(case, {"x": x, "r": r, "g": g}, range(draws)):
        low, high = synopsis.interval(places, beta=0.3)
        held[4] += ((low <= curves) & (curves <= high)).all()
        assert synopsis.bound(beta=0.3).beta == 0.3
        d = synopsis.distribution()
        assert d.groups == ("a", "b")
        answers = [d.curve([[PLACE]], beta=0.3), d.average({}, beta=0.3), d.mass({}, beta=0.3)]
        truths = [curves[:1], np.array(means), np.ones(2)]
        for i, (answer, truth) in enumerate(zip(answers, truths, strict=True)):
            held[i] += covers(answer, truth)
        apart = d.difference([[0.1]], [[0.9]], beta=0.3)
        held[3] += covers(apart, differences)
    assert (binom.cdf(held, draws, 0.7) > 1e-4).all()
    assert (answers[0].high - answers[0].low).max() < 1
    assert (high - low).max() < 2
    assert "group" in str(answers[1])
    assert "in %" not in str(answers[1])
    apart = d.difference({}, groups=("a", "b"), beta=0.1)  # of their responses, not their shares
    assert covers(apart, means[0] - means[1])


def assert_each_is_larger_on_its_side(d):
    curve = d.curve([[0.1], [0.9]])
    surely = curve.low.values > curve.high.values[:, ::-1]
    assert surely.tolist() == [[True, False], [False, True]]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "role"), [("kernel-density", "group"), ("naive-bayes", "label")])
def test_releases_by_group_answer_their_shares(kind, role):
    """Of naive Bayes on one axis too; noise of all groups is one vector's (`KNormNoise`)."""
    x = np.random.default_rng(1).uniform(size=20_000)
    g = (x > 0.4) * 1.0
    named = "values" if role == "group" else "classes"
    roles = f'{{"{role}": {{"column": "g", "{named}": ["a", "b"]}}}}'
    d = released(planned(1, 20_000, roles=roles, kind=kind, noise="auto"), {"x": x, "g": g})
    assert d.groups == ("a", "b")
    assert covers(d.average({}), np.array([1 - g.mean(), g.mean()]))
    assert_each_is_larger_on_its_side(d)
    noise = [one.joint().noise.sum(axis=0) for one in responses.split_measures(d)]
    np.testing.assert_allclose(*noise, atol=1e-12)  # P and Q of one vector are all rows' noise
    apart = noise[0].sum(axis=0).std() / d.measures[0].deviation
    bins = d.measures[0].values.size
    assert apart < 0.3 * np.sqrt(2 * bins)  # its sum varies as one bin does, not as 2 x bins


@pytest.mark.slow
def test_of_naive_bayes_each_axis_is_asked_by_itself():
    rows = np.random.default_rng(1).uniform(size=(20_000, 2))
    g = (rows[:, 1] > 0.4) * 1.0
    roles = '{"label": {"column": "g", "classes": ["a", "b"]}}'
    case = planned(2, 20_000, roles=roles, kind="naive-bayes", noise="auto")
    (synopsis,) = drawn(case, {**columns(rows), "g": g}, [1])
    with pytest.raises(SpecError, match=r"of naive Bayes ask one axis, distribution\(axis\)"):
        synopsis.distribution()
    with pytest.raises(SpecError, match="Write one of x, y"):
        synopsis.distribution("z")
    d = synopsis.distribution("y")
    assert_each_is_larger_on_its_side(d)
    assert covers(d.mean(), np.array([rows[g == one, 1].mean() for one in (0, 1)]))
