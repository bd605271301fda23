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
from models import FAST, MODELS, POINTS, VALUES, allowed, gaussian, released, table

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


@pytest.mark.sample(test=1)
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


@pytest.mark.sample(test=1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in MODELS]
)
def test_a_release_without_noise_is_what_another_solver_finds(exact_release, name):
    model, at = MODELS[name], np.linspace(0, 1, 201)
    columns = table(model.rows, model.seed)
    plan, synopsis, records = released(
        exact_release, model.case, columns, model.noise, **model.mechanism
    )
    found, exact = synopsis(at), model.exact(at, *records)
    error, certified = np.abs(found - exact).max(), allowed(plan) + model.slack
    assert found.shape == exact.shape
    assert error <= certified <= model.certified
    assert error <= model.error
    assert np.ptp(exact) > 4 * error
    assert all(sentence in plan.explain(details=True) for sentence in model.said)
    assert (VALUES in plan.explain(details=True)) == (VALUES in model.said)
    if "spectral" in model.noise:
        (component,) = plan.components
        assert component.strategy.layout.shape == (len(component.maps[0].eigenvalues),)
    low, high = synopsis.interval(at)
    assert ((low <= exact + model.slack) & (exact <= high + model.slack)).all()
    assert synopsis.verify() > 0
    if "label" in model.case.roles:
        best = (found > 0).astype(int) if found.ndim == 1 else found.argmax(axis=1)
        assert synopsis.predict(at).tolist() == np.array(synopsis.classes)[best].tolist()
        np.testing.assert_array_equal(synopsis.decision_function(at), found)
    if not model.case.linear:
        assert np.isfinite(synopsis(at, h="auto")).all()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("closed machine", r"a support-vector-machine of . classes has none. Use decision_f"),
        ("densities of groups", r"a kernel-density of . classes has none"),
        ("linear logistics", r"of 3 classes has none\. Use decision_f"),
    ],
)
def test_elsewhere_there_is_no_class_and_many_learners_have_no_probabilities(
    exact_release, name, sentence
):
    _, synopsis, _ = released(exact_release, MODELS[name].case, table(50))
    with pytest.raises(dbern.SpecError, match=sentence):
        synopsis.predict_proba(POINTS)
    if name != "densities of groups":
        elsewhere = np.concatenate([POINTS[:1] + 1e6, POINTS[:1] * np.nan, POINTS[:2]])
        of_two = synopsis.predict(POINTS[:2]).tolist()
        assert synopsis.predict(elsewhere).tolist() == [None, None, *of_two]


@pytest.mark.slow
def test_a_release_of_groups_answers_grids_tables_and_dask(exact_release, tmp_path):
    _, synopsis, _ = released(exact_release, CASES["groups"], table(50), k=60)
    values = synopsis(POINTS)
    grid = synopsis.grid(11)
    assert grid.dims == ("x", "group")
    assert grid["group"].values.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(grid.sel(group="b").values, values[::4, 1], atol=1e-12)
    pq.write_table(pa.table({"x": [0.5, 2.0], "who": ["p", "q"]}), tmp_path / "q.parquet")
    assert answer(synopsis, tmp_path / "q.parquet", tmp_path / "a.parquet") == (2, 1, 0)
    answers = pq.read_table(tmp_path / "a.parquet")
    assert answers.column_names == ["x", "who", "value_a", "value_b", "value_c"]
    assert answers["value_b"][0].as_py() == synopsis(np.array([0.5]))[0, 1]
    assert np.isnan(answers["value_b"][1].as_py())
    for shape in ((41,), (41, 1)):
        lazy = synopsis(da.from_array(POINTS.reshape(shape), chunks=13))
        assert lazy.shape == (41, 3)
        np.testing.assert_allclose(lazy.compute(scheduler="sync"), values, atol=1e-15)


def weighted_mean(x, response):
    weights = gaussian(POINTS, x, 0.25)
    return weights @ np.clip(response, -1.0, 3.0) / weights.sum(axis=1)


def without_noise_of_the_mean(synopsis, **none):
    """Values as if no noise were expected: none was drawn."""
    points, function = POINTS[:, None], synopsis._function
    parts = function.parts(points, function.smoothings(None), len(points))
    return replace(synopsis.combination, **none).values(parts)


@pytest.mark.slow
def test_regression_is_the_weighted_mean_of_the_clamped_responses(exact_release):
    _, synopsis, records = released(exact_release, CASES["regression"], table(), k=60)
    exact = weighted_mean(*records)
    assert np.abs(without_noise_of_the_mean(synopsis, noise=None) - exact).max() < 1e-3
    low, high = synopsis.interval(POINTS)
    assert not ((exact < low) | (high < exact)).any()  # of few rows there is no interval
    assert not (high - low > 4.0).any()


@pytest.mark.slow
def test_bins_draw_a_regression_to_the_mean_of_the_clamped_responses(exact_release):
    case = CASES["regression"]
    _, synopsis, records = released(exact_release, case, table(), "binned-laplace", k=60)
    mean = np.clip(records[1], -1.0, 3.0).mean()
    assert 1 + 2 * synopsis.combination.center == pytest.approx(mean, abs=1e-6)
    plain = without_noise_of_the_mean(synopsis, noise=None)
    nearer = np.abs(synopsis(POINTS) - mean) <= np.abs(plain - mean) + 1e-12
    assert nearer.all()
    assert (np.abs(synopsis(POINTS) - plain) > 1e-6).any()


@pytest.mark.slow
def test_regressions_of_groups_are_those_of_each_group_alone(exact_release, tmp_path):
    case = CASES["regressions"]
    _, synopsis, (x, response, groups) = released(exact_release, case, table(), k=60)
    assert (synopsis.classes, synopsis.meaning) == (("a", "b", "c"), "response")
    exact = np.stack([weighted_mean(x[groups == name], response[groups == name])
                      for name in synopsis.classes], axis=1)  # fmt: skip
    assert np.abs(without_noise_of_the_mean(synopsis, noises=()) - exact).max() < 1e-3
    low, high = synopsis.interval(POINTS)
    assert not ((exact < low) | (high < exact)).any()
    values = np.where(np.isnan(low), np.nan, synopsis(POINTS))
    np.testing.assert_array_equal(synopsis.predict(POINTS), values)  # no class
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
    assert (one.outputs, grouped.outputs) == (2, 6)
    assert grouped.sensitivity.function == one.sensitivity.function
    if noise != "binned-laplace":  # whose bins are fewer
        assert grouped.noise.scale == pytest.approx(one.noise.scale, rel=1e-3)
    assert grouped.sensitivity.derivation[0] == one.sensitivity.derivation[0]


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
        (pa.array([1]), ["a", "b"]), (pa.array([1]), [True, False]),
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

    point = SimpleNamespace(name="mine", module="mine", load=lambda: Mine)
    points = {"dbern.targets": [point]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points[group])
    monkeypatch.setattr(targets.ALL_LEARNERS, "_others", {})
    assert targets.learner_of("mine") is Mine
    with pytest.raises(dbern.SpecError, match="mine"):
        targets.learner_of("min")
