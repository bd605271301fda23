"""Axes of categories: what a record moves, what is released, and what is asked of it."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import CategoricalNB

import dbern
from dbern.combination.gaussian_scores import GaussianScores, _gaussian_score_error
from dbern.data.domain import Axis, Column, Domain, Response
from dbern.learn.least_squares import MomentSums
from dbern.reconstruct.base import VectorStrategy
from dbern.reconstruct.moments import Moments
from dbern.reconstruct.noisy_least_squares import least_squares
from dbern.reconstruct.noisy_moments import NoisyMoments
from dbern.targets.class_sums import ClassSums

SEED = 411
STATES, KINDS = ["NY", "CA", "TX"], [1, 2]
BOUNDS = {
    "x": [0.0, 10.0], "y": [-1.0, 1.0], "state": {"values": STATES}, "kind": {"values": KINDS},
}  # fmt: skip


def columns_of(moments: Moments, z: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """One, a column a listed value, and the numbers, of each record."""
    listed = [np.eye(size)[own] for size, own in zip(moments.blocks, codes.T, strict=True)]
    return np.hstack([np.ones((len(z), 1)), *listed, z])


def exact(moments: Moments, z: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The entries of records, by their definition."""
    v, (first, second) = columns_of(moments, z, codes), moments.column_pairs
    squares = (first == second) & (first > 0)
    kinds = np.append(0, np.repeat([1, 2, 3], [sum(moments.blocks), moments.numbers - 1, 1]))
    scales = np.array([
        [moments.weight, 2, 1, moments.weight],  # one with one, a value, a feature, the response
        [0, 1, 0.5, 4], [0, 0, 1, 2], [0, 0, 0, 2],
    ])[kinds[first], kinds[second]]  # fmt: skip
    return scales * (v[:, first] * v[:, second] - 0.5 * squares)


def largest(moments: Moments, norm: int, rng: np.random.Generator) -> float:
    """The largest distance of two records that a search finds, by moves of single numbers."""
    d, m, best = moments.numbers, len(moments.blocks), 0.0
    for start in range(8):
        z, w = np.ones(d), np.ones(d)
        w[-((d + 1) // 2) :] = -1.0
        if start > 3:
            z, w = rng.choice([-1.0, 1.0], d), rng.uniform(-1, 1, d)
        same = np.arange(m) < [0, m, m // 2, 0][start % 4]
        codes = np.repeat([np.where(same, 0, 1)], 41, axis=0)
        for _ in range(3):
            for i in range(2 * d):
                tried = np.repeat([np.append(z, w)], 41, axis=0)
                tried[:, i] = np.append(np.linspace(-1, 1, 40), tried[0, i])
                one, other = tried[:, :d], tried[:, d:]
                apart = exact(moments, one, 0 * codes) - exact(moments, other, codes)
                sizes = np.linalg.norm(apart, norm, axis=1)
                z, w = np.split(tried[sizes.argmax()], 2)
                best = max(best, float(sizes.max()))
    return best


SMALL = [(2, 1, 4), (2, 2, 2), (3, 2, 4), (3, 4, 2)]


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize(
    ("numbers", "lists", "weight"),
    [*SMALL, *(pytest.param(*one, marks=pytest.mark.slow)
               for one in itertools.product((2, 3, 5), (1, 2, 3), (2, 5)))],
)  # fmt: skip
def test_no_replacement_moves_moments_with_categories_by_more_than_is_proved(
    numbers, lists, weight, norm
):
    moments, rng = Moments(numbers, weight, (3,) * lists), np.random.default_rng(SEED)
    bound, found = moments.sensitivity(norm).value, largest(moments, norm, rng)
    whole = lists > 1 and numbers % 2 == 0  # of others half of one is not attained
    assert (0.999 if norm == 1 and whole else 0.95) * bound <= found <= bound
    missing = exact(moments, np.ones((1, numbers)), np.zeros((1, lists), dtype=int))[0]
    added = moments.added_sensitivity(norm).value
    assert 0.999 * added <= np.linalg.norm(missing, norm) <= added < bound


def test_the_bound_does_not_depend_on_how_many_values_are_listed():
    for norm in (1, 2):
        one, other = (Moments(4, 2, (size,) * 3).sensitivity(norm).value for size in (2, 40))
        assert one == other


def domain() -> Domain:
    return Domain(
        (Axis("x", 0.0, 10.0), Axis.of_values("state", STATES), Axis.of_values("kind", KINDS))
    )


def records(rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    found = {"x": rng.uniform(0, 10, rows), "minutes": rng.uniform(-5, 70, rows)}
    found["state"] = rng.integers(0, 3, rows).astype(float)
    found["kind"] = rng.integers(0, 2, rows).astype(float)
    found["label"] = rng.integers(0, 2, rows).astype(float)
    found["x"][0], found["state"][1], found["kind"][2] = math.nan, math.nan, math.nan
    return found


def test_integers_are_the_moments_and_a_value_that_is_not_listed_is_a_missing_record():
    rng = np.random.default_rng(SEED)
    vector, columns = MomentSums.of(domain(), Response("minutes", 0.0, 60.0)), records(300, rng)
    accumulator = vector.accumulator(VectorStrategy(vector.size), 300, 0.0)
    whole, parts = np.zeros((2, *accumulator.shape), dtype=np.int64)
    accumulator.add(whole, columns)
    for i in rng.permutation(300):
        accumulator.add(parts, {name: column[i : i + 1] for name, column in columns.items()})
    assert (whole == parts).all()
    kept = slice(3, None)
    y = (np.clip(columns["minutes"][kept], 0, 60) - 30) / 30
    z = np.column_stack([columns["x"][kept] / 5 - 1, y])
    codes = np.column_stack([columns[name][kept] for name in ("state", "kind")]).astype(int)
    wanted = exact(vector.moments, z, codes).sum(axis=0)
    found = np.ldexp(whole.astype(float), -accumulator.bits)
    np.testing.assert_allclose(found, wanted, atol=300 * 2.0**-accumulator.bits)
    names = vector.entries
    assert len(names) == len(set(names)) == vector.moments.size
    for name, value in {
        "count": 297,
        "count of state = CA": 2 * (codes[:, 0] == 1).sum(),
        "sum of x where kind = 2": z[codes[:, 1] == 1, 0].sum() / 2,
        "count of state = TX and kind = 1": ((codes == [2, 0]).all(axis=1)).sum(),
    }.items():
        weight = vector.moments.weight if name == "count" else 1
        assert found[names.index(name)] == pytest.approx(weight * value, abs=1e-6), name


@pytest.mark.parametrize("moments", [True, False])
def test_cells_of_naive_bayes_are_counts(moments):
    rng = np.random.default_rng(SEED)
    label = Column("label", "data.label.classes", ("no", "yes"))
    sums, columns = ClassSums(domain(), label, moments=moments), records(200, rng)
    accumulator = sums.accumulator(VectorStrategy(sums.size), 200, 0.0)
    state = np.zeros(accumulator.shape, dtype=np.int64)
    accumulator.add(state, columns)
    found = np.ldexp(state.astype(float), -accumulator.bits)
    kept = {name: column[3:] for name, column in columns.items()}
    for code, value in itertools.product(range(2), range(3)):
        wanted = ((kept["label"] == code) & (kept["state"] == value)).sum()
        name = f"count of state = {STATES[value]} in {['no', 'yes'][code]}"
        assert found[sums.entries.index(name)] == wanted
    assert found[sums.entries.index("count of no")] == (kept["label"] == 0).sum()


def test_a_class_s_listed_values_sum_to_one_whatever_the_noise():
    """A share that is off by a tenth moves log odds by one tenth, not by one for each list."""
    lists, noise = (3, 2, 4), [1e-9]
    cells = np.array([[0.3, 0.2, 0.2, 0.5, 0.2, 0.1, 0.2, 0.3, 0.1],
                      [0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05]])  # fmt: skip
    scores = GaussianScores((0, 1), lists=lists, squares="centred")
    points = np.zeros((1, 9))
    points[0, [0, 3, 5]] = 1

    def odds(first, second):
        moments = np.hstack([[[first], [second]], cells]).ravel()
        return scores.decisions([moments], points, noise).item()

    exact = math.log(0.3 / 0.7) + math.log((0.1 * 0.2 * 0.1) / 0.3**3 / (0.3 * 0.5 * 0.1 / 0.7**3))
    assert odds(0.7, 0.3) == pytest.approx(exact, abs=1e-6)
    assert odds(0.7, 0.33) - odds(0.7, 0.3) == pytest.approx(math.log(1.1), abs=1e-6)
    cells[1] *= 1.1  # and cells that are all off by as much say nothing
    assert odds(0.7, 0.3) == pytest.approx(exact, abs=1e-6)
    cells[1] = -0.01
    assert np.isfinite(odds(0.7, 0.3))


def test_errors_of_cells_move_scores_by_no_more_than_is_proved():
    rng, facts = np.random.default_rng(SEED), {"peaks": (3.0,), "floors": (0.1,)}
    scores = GaussianScores(("no", "yes"), **facts, lists=(2, 2))
    unit = np.column_stack([np.tile([1.0, 0.0, 1.0, 0.0], (20, 1)), rng.uniform(0, 1, 20)])
    for _ in range(300):
        share, error, mean = rng.uniform(0, 1), 10 ** rng.uniform(-4, -1), rng.uniform(-0.5, 0.5)
        square = mean**2 + rng.uniform(0, 0.25 - mean**2)
        exact = share * np.append([1.0, mean, square], rng.uniform(0, 1, 4))
        noisy = exact + rng.choice([-error, error], 7)
        one, other = (scores.values([np.append(np.zeros(7), x)], unit) for x in (exact, noisy))
        bound = _gaussian_score_error(error, *facts.values(), lists=2)
        assert np.abs(one - other).max() <= bound
        assert scores.error([error]) == pytest.approx(2 * bound)
    more = [_gaussian_score_error(1e-6, *facts.values(), lists=lists) for lists in (0, 2)]
    assert more[1] - more[0] == pytest.approx(4 * 3.0 * 1e-6)


# --- What is solved


def test_without_noise_coefficients_are_those_of_least_squares():
    rng, moments = np.random.default_rng(SEED), Moments.of(3, (3, 2))
    codes = np.column_stack([rng.integers(0, 3, 500), rng.integers(0, 2, 500)])
    z = 0.5 * rng.uniform(-1, 1, (500, 3))
    z[:, 2] = 0.3 * z[:, 0] + np.array([0.1, -0.2, 0.3])[codes[:, 0]] - 0.1 * codes[:, 1]
    z[:, 2] += 0.1 * rng.uniform(-1, 1, 500)
    v = columns_of(moments, z, codes)
    found = NoisyMoments.of(moments, moments.of_products(v.T @ v), 1e-9)
    fit = least_squares(found, 7, range(7))
    peer = LinearRegression().fit(v[:, 1:-1], z[:, 2])
    values = fit.intercept + v[:, 1:-1] @ fit.slopes
    np.testing.assert_allclose(values, peer.predict(v[:, 1:-1]), atol=1e-6)
    assert abs(fit.slopes[:3].sum()) < 1e-9
    assert abs(fit.slopes[3:5].sum()) < 1e-9


def test_noise_of_many_cells_costs_little_where_lists_are_independent():
    """Without what `NoisyMoments.columns_covariance` leaves out it is 1.09 times as much."""
    rng, moments = np.random.default_rng(SEED), Moments.of(3, (3, 5, 8, 12))
    codes = np.column_stack([rng.integers(0, size, 20_000) for size in moments.blocks])
    effects = [rng.normal(0, 0.1, size) for size in moments.blocks]
    z = rng.uniform(-0.6, 0.6, (20_000, 3))
    z[:, 2] = 0.2 * z[:, 0] + sum(own[codes[:, i]] for i, own in enumerate(effects))
    z[:, 2] = np.clip(z[:, 2] + 0.1 * rng.normal(size=20_000), -1, 1)
    v = columns_of(moments, z, codes)
    entries, scale = moments.of_products(v.T @ v / 20_000), moments.sensitivity(1).value / 20_000

    def error(noise: np.ndarray, deviation: float) -> float:
        measured, last = NoisyMoments.of(moments, entries + noise, deviation), moments.columns - 1
        fit = least_squares(measured, last, range(last))
        return float(np.std(z[:, 2] - v[:, 1:-1] @ fit.slopes))

    noises = rng.laplace(0, scale, (4, moments.size))
    found = np.mean([error(noise, math.sqrt(2) * scale) for noise in noises])
    assert found < 1.06 * error(np.zeros(moments.size), 0.0)


def table(rows: int = 600) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    x, y = rng.uniform(0, 10, rows), rng.uniform(-1, 1, rows)
    state = np.array([*STATES, "elsewhere"])[rng.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1])]
    kind = rng.choice(KINDS, rows)
    minutes = 20 + 2 * x - 5 * y + 6.0 * (state == "CA") + 4.0 * (kind == 2)
    minutes = np.clip(minutes + rng.normal(0, 2, rows), 0, 60)
    label = np.where(rng.random(rows) < 0.25 + 0.5 * (state == "CA"), "yes", "no")
    return {"x": x, "y": y, "state": state, "kind": kind, "minutes": minutes, "label": label}


def spec(project, target, role, bounds=BOUNDS, **changes):
    listed = {name: ends for name, ends in bounds.items() if "values" in ends}
    sections = {
        "data__bounds": {"x": None, "y": None, **bounds, **dict.fromkeys(listed)},
        **{f"data__bounds__{name}": ends for name, ends in listed.items()},
        **role,
        "target": {"bandwidth": None, **target},
        "mechanism": {"k": None, "h": None, "noise": None},
    }
    return project.spec(**sections | changes)


RIDGE = (
    {"kind": "ridge-regression"},
    {"data__response": {"column": "minutes", "bounds": [0.0, 60.0]}},
)
NORMAL = (
    {"kind": "gaussian-naive-bayes", "std_floor": [0.1, 0.1]},
    {"data__label": {"column": "label", "classes": ["no", "yes"]}},
)


@pytest.fixture
def exact_release(project, exact_release):
    """Without noise, at an epsilon at which none is expected."""
    project.grant("1000000")

    def made(given, columns):
        return exact_release(spec(project, *given, budget={"epsilon": "1000000"}), columns)[1]

    return made


def test_a_release_answers_tables_of_every_kind(exact_release):
    columns = table()
    synopsis = exact_release(RIDGE, columns)
    frame = pd.DataFrame(columns)
    known = frame[frame.state != "elsewhere"]

    def dummies(rows):
        state, kind = pd.Categorical(rows.state, STATES), pd.Categorical(rows.kind, KINDS)
        return np.column_stack([rows.x, rows.y, pd.get_dummies(state), pd.get_dummies(kind)])

    peer = LinearRegression().fit(dummies(known).astype(float), known.minutes)
    wanted = np.clip(peer.predict(dummies(known).astype(float)), 0, 60)
    np.testing.assert_allclose(synopsis(known), wanted, atol=0.01)
    assert synopsis(frame).isna().equals(frame.state == "elsewhere")
    ordered = frame[["x", "y", "state", "kind"]]
    arrow = pa.Table.from_pandas(ordered.astype({"state": "category"}), preserve_index=False)
    for points in (ordered.to_numpy(object), ordered.to_numpy().tolist(), arrow,
                   ordered.astype({"state": "category"}), dict(ordered)):  # fmt: skip
        np.testing.assert_array_equal(np.asarray(synopsis(points)), synopsis(frame))
    low, high = synopsis.interval(known)
    assert (low.min(), high.max()) == (0.0, 60.0)
    for points, text in ((np.zeros((3, 4)), "list of texts"), ([[1.0, 0.0, [], 1]], "list of val")):
        with pytest.raises(dbern.SpecError, match=f"points: state is a {text}"):
            synopsis(points)
    with pytest.raises(dbern.SpecError, match="grid: state is a list of values"):
        synopsis.grid(3)
    found = synopsis.regression()
    assert list(found.coefficients) == [
        "x", "y", "state = NY", "state = CA", "state = TX", "kind = 1", "kind = 2",
    ]  # fmt: skip
    assert found.coefficients["x"] == pytest.approx(peer.coef_[0], abs=0.01)
    steps = [found.coefficients[f"state = {one}"] for one in STATES]
    np.testing.assert_allclose(np.diff(steps), np.diff(peer.coef_[2:5]), atol=0.05)
    np.testing.assert_allclose(found.predict(known), peer.predict(dummies(known)), atol=0.1)
    assert np.isnan(found.predict(frame[frame.state == "elsewhere"])).all()
    share = (frame.state != "elsewhere").mean()
    assert found.counted == pytest.approx(share, abs=1e-3)
    assert f"of {100 * share:.0f} % of the rows" in str(found)
    few = synopsis.regression("x", ["kind"])
    assert list(few.intervals) == ["kind = 1", "kind = 2", "intercept"]
    with pytest.raises(dbern.SpecError, match="state is a list of values"):
        synopsis.regression("state")


def test_naive_bayes_counts_categories_as_its_own(exact_release):
    columns = table(2000)
    synopsis = exact_release(NORMAL, columns)
    frame = pd.DataFrame(columns)
    known = frame[frame.state != "elsewhere"]
    flat = known.assign(x=5.0, y=0.0)  # where the Gaussians are alike
    codes = np.column_stack(
        [pd.Categorical(known.state, STATES).codes, pd.Categorical(known.kind, KINDS).codes]
    )
    peer = CategoricalNB(alpha=1e-9).fit(codes, known.label)
    logs = peer.predict_joint_log_proba(codes)
    odds, wanted = synopsis.decision_function(flat), logs[:, 1] - logs[:, 0]
    np.testing.assert_allclose(odds - odds.mean(), wanted - wanted.mean(), atol=1e-3)
    share = synopsis.predict_proba(known)
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
    assert set(synopsis.predict(frame[frame.state == "elsewhere"])) == {None}
    root = zarr.open_group(synopsis.url, mode="r")
    array = root["components/classes/coefficients"]
    rows = (array[...] * array.attrs["scale_factor"]).reshape(2, 1 + 4 + 5)
    np.testing.assert_allclose(rows[:, 5:8].sum(axis=1), rows[:, 0], atol=1e-6)
    facts = dict(root.attrs)
    assert facts["combine"]["lists"] == [3, 2]
    assert facts["domain"]["axes"][2] == {"name": "state", "low": 0.0, "high": 2.0,
                                          "values": STATES}  # fmt: skip
    score = synopsis(known.iloc[:1]).item()
    z = {"x": known.x.iloc[0] / 10 - 0.5, "y": known.y.iloc[0] / 2}
    scores = []
    for p, *own in rows:
        value = p * own[4 + STATES.index(known.state.iloc[0])] / p
        value *= own[7 + KINDS.index(known.kind.iloc[0])] / p
        for i, name in enumerate("xy"):
            mean, square = own[i] / 2 / p, (own[2 + i] + p / 2) / 4 / p
            spread = math.sqrt(max(square - mean**2, facts["combine"]["floors"][i] ** 2))
            peak = facts["combine"]["peaks"][i] * facts["combine"]["floors"][i] / spread
            value *= peak * math.exp(-((z[name] - mean) ** 2) / 2 / spread**2)
        scores.append(value)
    assert score == pytest.approx(scores[1] - scores[0], abs=1e-9)


# --- What is refused


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"values": ["NY"]}, r"bounds.state.values: one value tells no records apart"),
        ({"values": []}, r"bounds.state.values: one value tells no records apart"),
        ({"values": ["NY", "CA", "NY"]}, r"bounds.state.values: a value is listed twice"),
        ({"values": [0.5, 1.5]}, r"data.bounds.state: has a wrong value"),
        ({"values": list(range(1001))}, r"has 1001 values, and at most 1000"),
        ({"values": ["NY", "CA"], "value": 1}, r"data.bounds.state: .*state = \{ values = "),
        (["NY", "CA"], r"data.bounds.state: .*state = \{ values = "),
    ],
)
def test_lists_that_cannot_be_are_refused(project, bounds, message):
    with pytest.raises(dbern.SpecError, match=message):
        spec(project, *RIDGE, {"x": [0.0, 10.0], "state": bounds})


def test_what_has_no_use_for_lists_says_so(project):
    fares = {"data__response": {"column": "fare", "bounds": [0.0, 50.0]}}
    for kind, key, role, sections in (
        ("kernel-density", "bandwidth", {}, ["group", "filter"]),
        ("nadaraya-watson", "bandwidth", fares, ["group", "filter"]),
        ("priestley-chao", "bandwidth", fares, ["filter"]),
        ("support-vector-machine", "length_scale", NORMAL[1], ["filter"]),
    ):
        gap = {"max_gap": 0.1} if kind == "priestley-chao" else {}
        with pytest.raises(dbern.SpecError, match="no use for a list of values") as refused:
            spec(project, {"kind": kind, key: [1.0, 1.0], **gap}, role)
        assert re.findall(r"\[data\.(\w+)\]", str(refused.value)) == sections
        for section in sections:  # what the message names is no refusal's turn again
            listed = {f"data__{section}": {"column": "county", "values": STATES}}
            target = {"kind": kind, key: [1.0], **gap}
            spec(project, target, role | listed, {"x": [0.0, 10.0]})
            with pytest.raises(dbern.SpecError, match="no use for a list of values") as refused:
                spec(project, {"kind": kind, key: [1.0, 1.0], **gap}, role | listed)
            assert f"[data.{section}]" not in str(refused.value)
    with pytest.raises(dbern.SpecError, match="every axis is a list of values"):
        spec(project, *RIDGE, {"state": {"values": STATES}})
    with pytest.raises(dbern.SpecError, match=r"target.method: weights are of axes of numbers"):
        spec(project, {**RIDGE[0], "method": "weights"}, RIDGE[1])
    many = {"x": [0.0, 1.0], "state": {"values": list(range(127))}}
    with pytest.raises(dbern.SpecError, match="1 axes and 127 listed values"):
        spec(project, *RIDGE, many)
    with pytest.raises(dbern.SpecError, match='"joint" is for axes of numbers'):
        spec(
            project, {"kind": "naive-bayes", "bandwidth": [1.0, 1.0], "release": "joint"}, NORMAL[1]
        )


@pytest.mark.parametrize("values", [["NY", 1], [1, 2], [True, False]])
def test_a_list_that_the_column_cannot_hold_is_refused(project, values):
    project.write(table())
    with pytest.raises(dbern.SpecError, match=r"data.bounds.state.values: state is of type string"):
        dbern.plan(spec(project, *RIDGE, BOUNDS | {"state": {"values": values}}))


def test_a_plan_names_the_lists(project):
    project.write(table())
    text = str(dbern.plan(spec(project, *NORMAL)).notes)
    assert "state: 3 listed values; a record with another counts as missing" in text


# --- Products of axes


def quadratic(columns):
    x, y = columns["x"] / 5 - 1, columns["y"]
    return np.column_stack([x, y, 2 * x**2 - 1, x * y, 2 * y**2 - 1])


def test_products_are_moments_of_further_numbers():
    rng = np.random.default_rng(SEED)
    box = Domain((Axis("x", 0.0, 10.0), Axis("y", -1.0, 1.0), Axis.of_values("kind", KINDS)))
    vector = MomentSums.of(box, Response("minutes", 0.0, 60.0), 2)
    assert vector.moments == Moments.of(6, (2,))
    assert {"sum of x^2", "product of x * y and minutes", "sum of y^2 where kind = 2"} <= {
        *vector.entries
    }
    columns = {"x": rng.uniform(0, 10, 100), "y": rng.uniform(-1, 1, 100)}
    columns |= {"minutes": rng.uniform(0, 60, 100), "kind": rng.integers(0, 2, 100) * 1.0}
    accumulator = vector.accumulator(VectorStrategy(vector.size), 100, 0.0)
    state = np.zeros(accumulator.shape, dtype=np.int64)
    accumulator.add(state, columns)
    z = np.column_stack([quadratic(columns), columns["minutes"] / 30 - 1])
    wanted = exact(vector.moments, z, columns["kind"][:, None].astype(int)).sum(axis=0)
    found = np.ldexp(state.astype(float), -accumulator.bits)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_release_of_degree_two_is_quadratic_least_squares(exact_release):
    columns = table()
    columns["minutes"] = np.clip(20 + (columns["x"] - 4) ** 2 * (1 + columns["y"] / 3), 0, 60)
    given = {**RIDGE[0], "degree": 2}, RIDGE[1]
    bounds = {"x": BOUNDS["x"], "y": BOUNDS["y"], "kind": BOUNDS["kind"]}
    synopsis = exact_release((*given, bounds), columns)
    frame = pd.DataFrame(columns)
    x = np.column_stack([quadratic(columns), pd.get_dummies(frame.kind)])
    peer = LinearRegression().fit(x, columns["minutes"])
    np.testing.assert_allclose(synopsis(frame), np.clip(peer.predict(x), 0, 60), atol=0.05)
    found = synopsis.regression()
    assert found.products == {"x^2": ("x", "x"), "x * y": ("x", "y"), "y^2": ("y", "y")}
    assert found.coefficients["x * y"] == pytest.approx(peer.coef_[3], abs=0.05)
    np.testing.assert_allclose(found.predict(frame), peer.predict(x), atol=0.05)
    other = synopsis.regression("y", ["minutes", "x"])
    assert list(other.coefficients) == ["x", "minutes", "x^2"]
    few = np.column_stack([x[:, 0], columns["minutes"], x[:, 2]])
    peer = LinearRegression().fit(few, columns["y"])
    np.testing.assert_allclose(other.predict(frame), peer.predict(few), atol=1e-3)


def test_a_plan_says_what_degree_two_costs(project):
    project.write(table())
    for degree, said in ((1, False), (2, True)):
        given = spec(project, {**RIDGE[0], "degree": degree}, RIDGE[1], {"x": [0, 1], "y": [0, 1]})
        notes = dbern.plan(given).notes
        assert ("degree 2: 2.6 times the sensitivity of degree 1" in notes) == said


def test_degree_two_is_refused_where_it_cannot_be(project):
    for target, text in (
        ({"degree": 3}, r"target.degree"),
        ({"degree": 2, "method": "weights"}, r"target.degree: 2 is of moments"),
    ):
        with pytest.raises(dbern.SpecError, match=text):
            spec(project, {**RIDGE[0], **target}, RIDGE[1])
    many = {f"x{i}": [0.0, 1.0] for i in range(11)}
    with pytest.raises(dbern.SpecError, match=r"target.degree: axes and products are 77"):
        spec(project, {**RIDGE[0], "degree": 2}, RIDGE[1], many)
