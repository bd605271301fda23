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
from conformance import accumulator_of, sums_of
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import CategoricalNB

import dbern
from dbern.combination.gaussian_scores import GaussianScores, _gaussian_score_error
from dbern.data.domain import Axis, Column, Domain
from dbern.targets.class_sums import ClassSums

SEED = 411
STATES, KINDS = ["NY", "CA", "TX"], [1, 2]
BOUNDS = {
    "x": [0.0, 10.0], "y": [-1.0, 1.0], "state": {"values": STATES}, "kind": {"values": KINDS},
}  # fmt: skip


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


@pytest.mark.parametrize("moments", [True, False])
def test_cells_of_naive_bayes_are_counts(moments):
    rng = np.random.default_rng(SEED)
    label = Column("label", "data.label.classes", ("no", "yes"))
    sums, columns = ClassSums(domain(), label, moments=moments), records(200, rng)
    found = sums_of(accumulator_of(sums, 200), columns)
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

    def odds(second):
        moments = np.hstack([[[0.7], [second]], cells]).ravel()
        return scores.decisions([moments], points, noise).item()

    exact = math.log(0.3 / 0.7) + math.log((0.1 * 0.2 * 0.1) / 0.3**3 / (0.3 * 0.5 * 0.1 / 0.7**3))
    assert odds(0.3) == pytest.approx(exact, abs=1e-6)
    assert odds(0.33) - odds(0.3) == pytest.approx(math.log(1.1), abs=1e-6)
    cells[1] *= 1.1  # and cells that are all off by as much say nothing
    assert odds(0.3) == pytest.approx(exact, abs=1e-6)
    cells[1] = -0.01
    assert np.isfinite(odds(0.3))


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
    with pytest.raises(dbern.SpecError, match="plot: state is a list of values"):
        synopsis.plot()
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


ALONE = {"state": {"values": STATES}, "kind": {"values": KINDS}}
LABEL = NORMAL[1]


@pytest.mark.parametrize(
    ("target", "role", "accuracy"),
    [
        ({"kind": "ridge-regression"}, RIDGE[1], 0.02),
        ({"kind": "ridge-regression", "method": "objective"}, RIDGE[1], 0.5),
        ({"kind": "gaussian-naive-bayes", "std_floor": []}, LABEL, 1e-4),
        ({"kind": "naive-bayes", "bandwidth": "auto"}, LABEL, 1e-4),
        ({"kind": "logistic-regression", "C": 1e6}, LABEL, 0.02),
        ({"kind": "kernel-erm", "kernel": "linear", "loss": "huber"}, RIDGE[1], 5.0),
    ],
    ids=lambda value: value.get("kind") if isinstance(value, dict) else None,
)
def test_lists_alone_are_learned_from(project, release, run, target, role, accuracy):
    """At an epsilon at which noise is small, as without privacy; every door takes them."""
    project.grant("1000000")
    columns = table(3000)
    given = spec(project, target, role, ALONE, budget={"epsilon": "100000"})
    plan, synopsis = release(given, columns)
    assert not any("nan" in note for note in plan.notes)
    frame = pd.DataFrame(columns)
    known = frame[frame.state != "elsewhere"]
    codes = np.column_stack(
        [pd.Categorical(known.state, STATES).codes, pd.Categorical(known.kind, KINDS).codes]
    )
    hot = np.column_stack([codes[:, :1] == np.arange(3), codes[:, 1:] == np.arange(2)])
    points = known[["state", "kind"]]
    if role is LABEL:
        found = np.asarray(synopsis.predict_proba(points))[:, 1]
        if target["kind"] == "logistic-regression":
            peer, given = LogisticRegression(C=1e9), hot
        else:
            peer, given = CategoricalNB(alpha=1e-9), codes
        wanted = peer.fit(given, known.label).predict_proba(given)[:, 1]
        assert set(synopsis.predict(frame[frame.state == "elsewhere"])) == {None}
    else:
        found = synopsis(points)
        wanted = LinearRegression().fit(hot, known.minutes).predict(hot)
        assert np.isnan(synopsis(frame[frame.state == "elsewhere"])).all()
    np.testing.assert_allclose(found, wanted, atol=accuracy)
    assert run("show", project.output).code == 0
    assert run("report", project.output).code == 0
    for draw in (synopsis.plot, lambda: synopsis.grid(3)):
        with pytest.raises(dbern.SpecError, match="state is a list of values"):
            draw()


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
    with pytest.raises(dbern.SpecError, match=r"target.degree"):
        spec(project, {**RIDGE[0], "degree": 3}, RIDGE[1])
    many = {f"x{i}": [0.0, 1.0] for i in range(11)}
    with pytest.raises(dbern.SpecError, match=r"target.degree: axes and products are 77"):
        spec(project, {**RIDGE[0], "degree": 2}, RIDGE[1], many)
