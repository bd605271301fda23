"""The suite that every learner inherits: sensitivities, the model without noise, free order."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conformance import CASES, counted, everyone, integers

import dbern
from dbern import targets
from dbern.data.domain import Column
from dbern.data.footers import read_footers
from dbern.data.parquet import read_batches
from dbern.planning.planner import plan_files
from dbern.synopsis.tables import answer


@pytest.mark.parametrize("name", CASES)
def test_shares_sum_to_the_budget(name):
    spec = CASES[name].spec(1, 100, "laplace")
    plan = plan_files(spec, ())
    assert sum(component.output_fraction for component in spec.components) == 1
    spent = sum(Fraction(one.noise.law.epsilon) for one in plan.components)
    assert Fraction(99, 100) <= spent <= 1


def test_a_flipped_label_moves_the_machine_by_twice_what_is_printed():
    """The paper's bound MC kappa^2 / n is .02 here; the move is .04."""
    spec = CASES["machine"].spec(1, 50, "laplace", k=4)
    plan = plan_files(spec, ())
    rows = [{"x": 0.5, "label": 1.0}] * 50
    flipped = [*rows[:-1], {"x": 0.5, "label": 0.0}]
    (before,), (after,) = integers(spec, plan, rows), integers(spec, plan, flipped)
    move = np.abs(before - after).max() * plan.noise.granularity
    assert move == pytest.approx(0.04, rel=1e-3)
    assert move <= plan.sensitivity.function == pytest.approx(0.04, rel=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_any_order_and_partition_gives_the_same_integers(name):
    case, rng = CASES[name], np.random.default_rng(2)
    axes = min(2, case.most_axes)
    records = everyone(case, axes, rng)[1:]
    spec = case.spec(axes, len(records), "laplace", k=5)
    plan = plan_files(spec, ())
    counters = plan.counters(spec)
    together = counted(counters, [records])
    shuffled = [records[i] for i in rng.permutation(len(records))]
    batches = [shuffled[i : i + 7] for i in range(0, len(shuffled), 7)]
    np.testing.assert_array_equal(counted(counters, batches), together)
    if not counters.passes:
        parts = [counted(counters, [batch]) for batch in batches]
        np.testing.assert_array_equal(np.sum(parts, axis=0), together)
    assert together.any()


# --- the model without noise -------------------------------------------------------------------


def table(rows, rng):
    labels = rng.choice(["no", "yes", "maybe", None], rows, p=[0.45, 0.45, 0.05, 0.05])
    response = rng.normal(1.0, 1.5, rows).round(3).tolist()
    response[0] = None
    return {
        "x": [None, *rng.uniform(0, 1, rows - 1).tolist()],
        "label": labels.tolist(),
        "group": rng.choice(["a", "b", "c", "other"], rows).tolist(),
        "response": response,
    }


def released(release, name, columns):
    case = CASES[name]
    chosen = {"x": columns["x"], **{key: columns[key] for key in case.values}}
    return release(case.spec(1, len(columns["x"]), "laplace", k=60, h=8), chosen)


def bumps(points, columns, width, keep):
    x = np.array([np.nan if v is None else v for v in columns["x"]])[keep]
    x = x[np.isfinite(x)]
    return np.exp(-(((points[:, None] - x) / width) ** 2) / 2)


def where(columns, test):
    return np.array([test(i) for i in range(len(columns["x"]))])


POINTS = np.linspace(0, 1, 41)


def test_densities_by_group_are_those_of_the_groups(exact_release):
    columns = table(300, np.random.default_rng(0))
    plan, synopsis = released(exact_release, "groups", columns)
    values = synopsis(POINTS)
    assert values.shape == (41, 3)
    with pytest.raises(dbern.SpecError, match=r"a kernel-density of . classes has none"):
        synopsis.predict_proba(POINTS)
    for i, group in enumerate("abc"):
        keep = where(columns, lambda j, group=group: columns["group"][j] == group)
        exact = bumps(POINTS, columns, 0.2, keep).sum(axis=1) / (300 * 0.2 * np.sqrt(2 * np.pi))
        certificate = plan.certificate
        error = np.abs(values[:, i] - exact).max()
        assert error <= certificate.approximation + certificate.rounding
    grid = synopsis.grid(11)
    assert grid.dims == ("x", "class")
    assert grid["class"].values.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(grid.sel({"class": "b"}).values, values[::4, 1], atol=1e-12)


def test_the_machine_is_the_closed_form(exact_release):
    columns = table(200, np.random.default_rng(1))
    plan, synopsis = released(exact_release, "machine", columns)
    label = columns["label"]
    yes, no = (where(columns, lambda j, w=w: label[j] == w) for w in ("yes", "no"))
    exact = bumps(POINTS, columns, 0.3, yes).sum(1) - bumps(POINTS, columns, 0.3, no).sum(1)
    found = synopsis(POINTS)
    certificate = plan.certificate
    assert np.abs(found - exact / 200).max() <= certificate.approximation + certificate.rounding
    assert synopsis.predict(POINTS).tolist() == np.where(found > 0, "yes", "no").tolist()
    np.testing.assert_array_equal(synopsis.decision_function(POINTS), found)
    somewhere_else = np.concatenate([POINTS[:1] + 1e6, POINTS[:1] * np.nan, POINTS[:2]])
    of_two = synopsis.predict(POINTS[:2]).tolist()
    assert synopsis.predict(somewhere_else).tolist() == [None, None, *of_two]  # no class is told
    with pytest.raises(
        dbern.SpecError, match=r"a support-vector-machine of . classes has none. Use decision_f"
    ):
        synopsis.predict_proba(POINTS)


def test_more_machines_are_one_against_the_rest(exact_release):
    rng = np.random.default_rng(3)
    columns = table(200, rng)
    columns["label"] = rng.choice([0, 1, 2, 7], 200).tolist()
    plan, synopsis = released(exact_release, "machines", columns)
    sums = []
    for c in range(3):
        keep = where(columns, lambda j, c=c: columns["label"][j] == c)
        sums.append(bumps(POINTS, columns, 0.3, keep).sum(axis=1) / 200)
    exact = 2 * np.stack(sums, axis=1) - np.sum(sums, axis=0)[:, None]
    found = synopsis(POINTS)
    certificate = plan.certificate
    assert np.abs(found - exact).max() <= certificate.approximation + certificate.rounding
    assert synopsis.predict(POINTS).tolist() == found.argmax(axis=1).tolist()
    assert synopsis.predict(np.concatenate([POINTS[:1], POINTS[:1] + 1e6])).tolist()[1] is None


def test_regression_is_the_weighted_mean_of_the_clamped_responses(exact_release):
    columns = table(300, np.random.default_rng(4))
    _, synopsis = released(exact_release, "regression", columns)
    keep = where(
        columns, lambda j: columns["response"][j] is not None and columns["x"][j] is not None
    )
    clamped = np.clip(np.array(columns["response"], dtype=float)[keep], -1.0, 3.0)
    weights = bumps(POINTS, columns, 0.25, keep)
    exact = (weights @ clamped) / weights.sum(axis=1)
    points = np.reshape(POINTS, (-1, 1))
    parts = synopsis._function.parts(points, synopsis._function.smoothings(None), len(points))
    plain = replace(synopsis.combination, noise=None)  # none was drawn
    assert np.abs(plain.values(parts) - exact).max() < 1e-3
    low, high = synopsis.interval(POINTS)
    assert ((low <= exact) & (exact <= high)).all()
    assert (high - low).max() <= 4.0


def test_bins_draw_a_regression_to_the_mean_of_the_clamped_responses(exact_release):
    columns = table(300, np.random.default_rng(4))
    case = CASES["regression"]
    chosen = {"x": columns["x"], "response": columns["response"]}
    _, synopsis = exact_release(case.spec(1, 300, "binned-laplace", k=60, h=8), chosen)
    keep = where(
        columns, lambda j: columns["response"][j] is not None and columns["x"][j] is not None
    )
    mean = np.clip(np.array(columns["response"], dtype=float)[keep], -1.0, 3.0).mean()
    assert 1 + 2 * synopsis.combination.center == pytest.approx(mean, abs=1e-6)
    points = np.reshape(POINTS, (-1, 1))
    parts = synopsis._function.parts(points, synopsis._function.smoothings(None), len(points))
    plain = replace(synopsis.combination, noise=None).values(parts)
    nearer = np.abs(synopsis(POINTS) - mean) <= np.abs(plain - mean) + 1e-12
    assert nearer.all()
    assert (np.abs(synopsis(POINTS) - plain) > 1e-6).any()


def test_regressions_of_groups_are_those_of_each_group_alone(exact_release, tmp_path):
    columns = table(300, np.random.default_rng(4))
    _, synopsis = released(exact_release, "regressions", columns)
    assert (synopsis.classes, synopsis.meaning) == (("a", "b", "c"), "response")
    points = np.reshape(POINTS, (-1, 1))
    parts = synopsis._function.parts(points, synopsis._function.smoothings(None), len(points))
    plain = replace(synopsis.combination, noises=())  # none was drawn
    low, high = synopsis.interval(POINTS)
    for group, name in enumerate(synopsis.classes):
        known = where(
            columns, lambda j: columns["response"][j] is not None and columns["x"][j] is not None
        )
        keep = known & np.array([label == name for label in columns["group"]])
        clamped = np.clip(np.array(columns["response"], dtype=float)[keep], -1.0, 3.0)
        weights = bumps(POINTS, columns, 0.25, keep)
        exact = (weights @ clamped) / weights.sum(axis=1)
        assert np.abs(plain.values(parts)[:, group] - exact).max() < 1e-3
        assert ((low[:, group] <= exact) & (exact <= high[:, group])).all()
    np.testing.assert_array_equal(synopsis.predict(POINTS), synopsis(POINTS))  # no class
    with pytest.raises(dbern.SpecError, match=r"^decision_function: this function has no classes"):
        synopsis.decision_function(POINTS)
    pq.write_table(pa.table({"x": [0.5]}), tmp_path / "q.parquet")
    answer(synopsis, tmp_path / "q.parquet", tmp_path / "a.parquet")
    answers = pq.read_table(tmp_path / "a.parquet")
    assert answers.column_names == ["x", "value_a", "value_b", "value_c"]


@pytest.mark.parametrize("noise", ["laplace", "binned-laplace", "discrete-gaussian"])
def test_groups_cost_a_regression_nothing_more(noise):
    """They share no record: sums and laws are those of one regression, but for their number."""
    (one, *_), (grouped, *_) = (
        plan_files(CASES[name].spec(1, 2000, noise, k=12), ()).components
        for name in ("regression", "regressions")
    )
    assert (one.outputs, grouped.outputs) == (1, 3)
    assert grouped.sensitivity.function == one.sensitivity.function
    if noise != "binned-laplace":  # whose bins are fewer
        assert grouped.noise.scale == pytest.approx(one.noise.scale, rel=1e-3)
    assert grouped.sensitivity.derivation[0] == one.sensitivity.derivation[0]


def test_the_answers_have_one_column_a_class(exact_release, tmp_path):
    columns = table(50, np.random.default_rng(5))
    _, synopsis = released(exact_release, "groups", columns)
    pq.write_table(pa.table({"x": [0.5, 2.0], "who": ["p", "q"]}), tmp_path / "q.parquet")
    assert answer(synopsis, tmp_path / "q.parquet", tmp_path / "a.parquet") == 2
    answers = pq.read_table(tmp_path / "a.parquet")
    assert answers.column_names == ["x", "who", "value_a", "value_b", "value_c"]
    assert answers["value_b"][0].as_py() == synopsis(np.array([0.5]))[0, 1]
    assert np.isnan(answers["value_b"][1].as_py())


def test_dask_in_dask_out_with_classes(exact_release):
    columns = table(50, np.random.default_rng(6))
    _, synopsis = released(exact_release, "groups", columns)
    for shape in ((41,), (41, 1)):
        lazy = synopsis(da.from_array(POINTS.reshape(shape), chunks=13))
        assert lazy.shape == (41, 3)
        np.testing.assert_allclose(lazy.compute(scheduler="sync"), synopsis(POINTS), atol=1e-15)


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (pa.array([True, False, None]), [False, True]),
        (pa.array([1, 0, None], pa.int8()), [0, 1]),
        (pa.array(["b", "a", None]), ["a", "b"]),
        (pa.array(["b", "a", None]).dictionary_encode(), ["a", "b"]),
        (pa.array(["b", "a", None], pa.large_string()), ["a", "b"]),
    ],
)
def test_categories_of_any_type_are_read(tmp_path, values, classes):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": values}), path)
    column = Column("c", "data.label.classes", tuple(classes))
    read_footers([path], [column])
    (batch,) = read_batches(str(path), [0], [column])
    np.testing.assert_array_equal(batch["c"], [1.0, 0.0, np.nan])


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (pa.array([True]), [0, 1]), (pa.array([1], pa.int8()), [0, 1000]),
        (pa.array([1]), ["a", "b"]), (pa.array([0.5]), [0, 1]), (pa.array([1]), [True, False]),
    ],
)  # fmt: skip
def test_categories_that_a_column_cannot_hold_are_refused(tmp_path, values, classes):
    pq.write_table(pa.table({"c": values}), tmp_path / "a.parquet")
    with pytest.raises(dbern.SpecError, match=r"^data\.label\.classes: c is of type .* Write "):
        read_footers([tmp_path / "a.parquet"], [Column("c", "data.label.classes", tuple(classes))])


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("data.label.classes", "data.label.column"), ("data.group.values", "data.group.column"),
        ("data.filter.values", "data.filter.column"),
        ("data.response.bounds", "data.response.column"),
        ("data.unit", "data.unit"), ("data.bounds.d", "data.bounds.d"),
    ],
)  # fmt: skip
def test_a_column_that_is_not_there_is_named_by_its_own_key(tmp_path, key, place):
    pq.write_table(pa.table({"c": [1]}), tmp_path / "a.parquet")
    with pytest.raises(dbern.SpecError, match=rf'^{place}: .* no column "d"\. .* of: c$'):
        read_footers([tmp_path / "a.parquet"], [Column("d", key, (1, 2))])


def test_a_third_party_learner_is_found_by_its_entry_point(monkeypatch):
    class Mine(targets.KernelDensity):
        kind = "mine"

    point = SimpleNamespace(name="mine", load=lambda: Mine)
    monkeypatch.setattr(targets, "entry_points", lambda group: [point] if "dbern" in group else [])
    assert targets.learner_of("mine") is Mine
    with pytest.raises(dbern.SpecError, match="mine"):
        targets.learner_of("min")
