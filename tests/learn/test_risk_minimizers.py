"""Solved learners: sensitivities near their bounds, the model itself, passes, plans and errors."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from conformance import CASES, LABEL, RESPONSE, SALT, Case, counted, integers, release_spec
from models import POINTS, allowed, released, table, with_one
from sklearn import linear_model

import dbern
from dbern.certify.certificate import vector_bound
from dbern.data.domain import FeatureShape
from dbern.erm import solutions
from dbern.erm.models import RiskModel
from dbern.measure.gathered import GatheredAccumulator, Gathering
from dbern.planning.planner import plan_files
from dbern.planning.resolved import spec_for_rows
from dbern.privacy.keystream import KEY_BYTES
from dbern.privacy.laws import GaussianNoise
from dbern.privacy.mechanism import privatize
from dbern.run import publish as publishing

SOLVED = [name for name, case in CASES.items() if "C" in case.target]


def flipped(case):
    """The l2 move, over the plan's bound, of one label in a balanced database at one point."""
    noise = "discrete-gaussian" if case.linear else "spectral-gaussian"
    spec = case.spec(1, 60, noise, k=9)
    plan = plan_files(spec, ())
    column = next(iter(case.values))
    low, high = (-1.0, 3.0) if column == "response" else (0.0, 1.0)
    rows = [{"x": 1.0, column: (low, high)[i % 2]} for i in range(60)]
    (before,) = integers(spec, plan, rows)
    (after,) = integers(spec, plan, [*rows[:-1], {"x": 1.0, column: low}])
    bound = math.sqrt(plan.noise.law.l2_sensitivity_granules_squared)
    return np.linalg.norm((before - after).astype(float)) / bound


@pytest.mark.parametrize("name", SOLVED)
def test_a_flipped_label_stays_within_the_bound(name):
    assert 0.2 < flipped(CASES[name]) <= 1


@pytest.mark.parametrize(
    "name", ["solved machine", "kernel logistic", "kernel tube", "own kernel", "logistic"]
)
def test_half_of_the_bound_as_printed_fails(name, monkeypatch):
    original = RiskModel.bounds.func

    def halved(model):
        bounds = original(model)
        return replace(bounds, sensitivity=bounds.sensitivity / 2)

    monkeypatch.setattr(RiskModel, "bounds", property(halved))
    # The logistic loss's slope is near M only where the function is near 0.
    cost = 0.1 if "logistic" in name else CASES[name].target["C"]
    target = {**CASES[name].target, "shards": 1, "C": cost}
    assert flipped(replace(CASES[name], target=target)) > 1


# --- the model without noise -------------------------------------------------------------------


@pytest.mark.parametrize("link", ["linear", "sigmoid"])
def test_logistic_regression_is_that_of_scikit_learn(exact_release, link):
    target = {"kind": "logistic-regression", "method": "weights", "C": 40.0, "link": link}
    case = Case(target, {"label": LABEL}, {"label": (0.0,)}, linear=True)
    plan, synopsis, (x, y) = released(exact_release, case, table(300, 3))
    peer = linear_model.LogisticRegression(C=40 / 300, fit_intercept=False, tol=1e-12)
    peer.fit(with_one(x), y == "yes")
    exact = with_one(POINTS) @ peer.coef_[0]
    odds, chance = exact, 1 / (1 + np.exp(-exact))
    exact = chance if link == "sigmoid" else exact
    assert plan.k == plan.h == ()
    assert plan.components[0].entries == ("weight of x", "weight of the constant")
    assert plan.certificate.approximation < 1e-15
    # The certified tolerance of the solver is a share of the sensitivity.
    assert np.abs(synopsis(POINTS) - exact).max() <= allowed(plan) < 2e-3
    assert synopsis.predict(POINTS).tolist() == np.where(odds > 0, "yes", "no").tolist()
    np.testing.assert_allclose(synopsis.decision_function(POINTS), odds, atol=0.01)
    both = np.column_stack([1 - chance, chance])
    np.testing.assert_allclose(synopsis.predict_proba(POINTS), both, atol=2e-3)


def test_records_beyond_the_unit_ball_are_projected():
    spec = CASES["logistic"].spec(2, 4, "laplace")
    plan = plan_files(spec, ())
    near = [{"x": 2**-0.5, "y": 2**-0.5, "label": 1.0}] * 4
    far = [{"x": 1.0, "y": 1.0, "label": 1.0}] * 4
    (one,), (other,) = integers(spec, plan, near), integers(spec, plan, far)
    assert np.abs(one - other).max() <= 1
    assert one.any()


# --- passes and shards -------------------------------------------------------------------------


def test_a_mean_of_shards_is_near_the_whole(monkeypatch):
    rng = np.random.default_rng(6)
    x = rng.uniform(size=4000)
    rows = [{"x": a, "label": float(a + b > 0.8)} for a, b in zip(x, rng.normal(0, 0.2, 4000),
                                                                  strict=True)]  # fmt: skip
    target = {"kind": "kernel-erm", "loss": "logistic", "length_scale": [0.3], "C": 5.0}
    found = {}
    monkeypatch.setattr(solutions, "PASS_ROWS", 1000)
    for shards in (1, 4, 8):
        case = Case({**target, "shards": shards}, {"label": LABEL}, {})
        spec = case.spec(1, 4000, "laplace", k=10)
        plan = plan_files(spec, ())
        assert plan.counters(spec).passes == min(shards, 4) == plan.cost.tasks
        assert f"{shards} shards by content" in plan.explain(details=True) or shards == 1
        found[shards] = integers(spec, plan, rows)[0] * plan.noise.granularity
    largest = np.abs(found[1]).max()
    assert largest > 0.1
    for shards in (4, 8):
        assert 0 < np.abs(found[shards] - found[1]).max() < 0.02 * largest


class Solver(GatheredAccumulator):
    """Solves shards of records "d" by a function."""

    columns, description, errors, memory, shape, to_values = ("a", "b"), *(None,) * 5
    shards = 1

    def __init__(self, solve):
        self.solve = solve

    @property
    def content(self):
        return self

    def rows(self, records):
        return records["d"]

    def solved(self, rows, counts, block):
        return self.solve(rows, counts)


class SevenShards(Solver):
    shards = 7


def test_a_pass_keeps_its_shards_and_every_record_is_in_one():
    rng = np.random.default_rng(7)
    data = rng.integers(0, 40, (500, 2)).astype(float)
    seen = []

    def solved(rows, counts):
        seen.append(np.column_stack([rows, counts]))
        return np.ones(1, dtype=np.int64)

    state = np.zeros(1, dtype=np.int64)
    for index in range(3):
        gathering = Gathering(SevenShards(solved), state, SALT, 3, index)
        for batch in np.array_split(data, 9):
            gathering.add({"d": batch})
        gathering.finish()
    rows = np.concatenate(seen)
    distinct, counts = np.unique(data, axis=0, return_counts=True)
    order = np.lexsort(rows[:, 1::-1].T)
    np.testing.assert_array_equal(rows[order], np.column_stack([distinct, counts]))
    assert state[0] == len(seen) == 7


def test_equal_records_are_kept_once(monkeypatch):
    monkeypatch.setattr("dbern.measure.gathered._MIN_MERGED_ROWS", 100)
    state, solved = np.zeros(1, dtype=np.int64), lambda r, c: np.array([int(c.sum())])
    gathering = Gathering(Solver(solved), state, SALT)
    for _ in range(100):
        gathering.add({"d": np.tile([[0.25, 1.0], [0.5, -1.0]], (50, 1))})
        assert sum(len(rows) for rows in gathering._gathered) <= 300
    gathering.finish()
    assert state[0] == 10_000


def test_no_record_at_all_is_a_function_too():
    for name in SOLVED:
        case = CASES[name]
        spec = case.spec(1, 5, "laplace", k=4)
        plan = plan_files(spec, ())
        (nothing,) = integers(spec, plan, [{"x": np.nan, next(iter(case.values)): 1.0}] * 5)
        assert not nothing.any()


def test_another_salt_gives_other_shards_and_the_same_counts():
    case = replace(CASES["kernel logistic"], target={**CASES["kernel logistic"].target,
                                                     "shards": 4})  # fmt: skip
    rng = np.random.default_rng(8)
    rows = [{"x": a, "label": float(a > 0.5)} for a in rng.uniform(size=40)]
    spec = case.spec(1, 40, "laplace", k=6)
    counters = plan_files(spec, ()).counters(spec)
    columns = [{c: np.array([r[c] for r in rows]) for c in ("x", "label")}]
    one = counted(counters, [rows])
    other = counters.count(columns, bytes(32), 0)
    assert one.any()
    assert (one != other).any()


# --- plans and errors --------------------------------------------------------------------------


def test_the_plan_shows_both_forms_of_c_and_the_costs():
    spec = CASES["solved machine"].spec(1, 3_000_000, "auto", k=20)
    plan = plan_files(spec, ())
    text = plan.explain(details=True)
    assert "C = 2 in the paper's form C/n: scikit-learn's C = 6.66667e-07" in text
    assert "3 shards by content, 3 passes over the files, about" in text
    assert plan.cost.tasks == 3
    records = 8 * 3 * plan.n / 3
    target = {**CASES["machine"].target, "C": 1.0}
    summed = replace(CASES["machine"], target=target).spec(1, 3_000_000, "laplace", k=20)
    assert plan.cost.worker_bytes > plan_files(summed, ()).cost.worker_bytes + records
    assert plan.certificate.lower_bound == 0
    assert type(plan).from_dict(plan.to_dict()) == plan


def test_the_weights_of_linear_functions_err_less_than_values_at_corners():
    """Mean largest error over the cube, the noise of either scaled to what a record can move."""
    rng = np.random.default_rng(11)
    for axes, constant in itertools.product((1, 2, 3), (0.0, 0.02, 0.3, 1.0, 8.0)):
        corners = np.array(list(itertools.product((0.0, 1.0), repeat=axes)))
        phi = np.column_stack([corners, np.full(len(corners), constant)])
        phi = phi[:, : axes + (constant > 0)]
        signs = np.array(list(itertools.product((-1, 1), repeat=len(phi))))
        for norm, draw in ((1, rng.laplace), (2, rng.normal)):
            moved = (np.linalg.norm(signs @ phi, axis=1).max() if norm == 1
                     else np.linalg.norm(phi, 2))  # fmt: skip
            at_corners = moved * np.abs(draw(size=(20_000, len(phi)))).max(axis=1).mean()
            size = phi.shape[1]
            noise = draw(size=(20_000, size)) @ phi.T
            of_weights = (math.sqrt(size) if norm == 1 else 1.0) * np.abs(noise).max(axis=1).mean()
            assert of_weights < 0.98 * at_corners, (axes, constant, norm)


def test_the_certificate_of_weights_covers_the_function_everywhere():
    """As often as it says, and not far more often."""
    rng = np.random.default_rng(12)
    law = GaussianNoise(1 << 20, -20, 1)
    for axes, constant, outputs in ((1, 1.0, 1), (3, 0.0, 1), (5, 2.0, 3)):
        size = axes + (constant > 0)
        features = FeatureShape(axes, constant)
        bound = vector_bound(law, outputs * size, features, 0.0, Fraction(1, 10)).noise
        corners = np.array(list(itertools.product((0.0, 1.0), repeat=axes)))
        phi = np.column_stack([corners, np.full(len(corners), constant)])[:, :size]
        largest = np.abs(rng.normal(size=(20_000, outputs, size)) @ phi.T).max(axis=(1, 2))
        assert 0.005 < (largest > bound).mean() < 0.1
        assert bound < vector_bound(law, outputs * size, None, 0.0, Fraction(1, 10)).noise * (
            axes + constant)  # fmt: skip


def test_linear_functions_have_many_axes(exact_release):
    """Sixty columns: no lattice would hold its 2^60 corners."""
    rng = np.random.default_rng(13)
    x = rng.uniform(0, 1, (400, 60))
    y = x[:, 0] - x[:, 1] + 0.1 * rng.normal(size=400)
    names = [f"a{i}" for i in range(60)]
    target = {"kind": "ridge-regression", "method": "weights", "C": 30.0}
    response = {"column": "response", "bounds": [-1.0, 1.0]}
    spec = release_spec(target, names, response=response)
    plan, synopsis = exact_release(spec, {**dict(zip(names, x.T, strict=True)), "response": y})
    ball = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    peer = linear_model.Ridge(alpha=400 / 30.0, fit_intercept=False)
    peer.fit(np.column_stack([ball, np.ones(400)]), np.clip(y, -1, 1))
    exact = np.column_stack([x, np.ones(400)]) @ peer.coef_
    assert np.abs(synopsis(x) - exact).max() <= allowed(plan)
    assert np.abs(exact).max() > 0.1
    outside = np.vstack([x[:1], x[:1] + 0.9])
    assert np.isfinite(synopsis(outside)).tolist() == [True, False]


def test_any_zarr_reader_can_rebuild_a_linear_function(exact_release):
    """From FORMAT.md alone: weights, axes and constant."""
    import zarr

    target = {"kind": "logistic-regression", "C": 40.0, "link": "sigmoid", "constant": 0.5}
    case = Case(target, {"label": LABEL}, {"label": (0.0,)}, linear=True)
    _, synopsis, *_ = released(exact_release, case, table(100, 3))
    group = zarr.open_group(synopsis.url, mode="r")
    array = group["components/weights/coefficients"]
    weights = array[...] * array.attrs["scale_factor"]
    assert group.attrs["combine"]["constant"] == 0.5
    assert group.attrs["components"][0]["features"] == {"axes": 1, "constant": 0.5}
    np.testing.assert_allclose(
        synopsis(POINTS), 1 / (1 + np.exp(-(weights[0] * POINTS + 0.5 * weights[1]))), rtol=1e-12
    )
    np.testing.assert_allclose(synopsis.grid(41).values, synopsis(POINTS), rtol=1e-12)
    assert synopsis.band() == synopsis.metadata["certificate"]["total"]
    with pytest.raises(dbern.SpecError, match="cannot be shaped"):
        synopsis.shaped("nonnegative")


def test_a_release_by_the_command_line(project, run):
    rng = np.random.default_rng(9)
    x = rng.uniform(0, 10, 400)
    project.write({"x": x, "y": rng.uniform(-1, 1, 400), "late": (x > 4).tolist()})
    project.spec(
        target={"kind": "support-vector-machine", "bandwidth": None, "length_scale": [3.0, 0.6],
                "C": 8.0, "shards": 2},
        data__label={"column": "late", "classes": [False, True]}, mechanism={"noise": "auto"},
    )  # fmt: skip
    planned = run("plan", "release.toml", "--details")
    assert "2 shards by content" in planned.out
    assert "scikit-learn's C = 0.02" in planned.out
    assert run("release", "release.toml").code == 0
    synopsis = dbern.open(project.output)
    assert synopsis.predict(np.array([[0.5, 0.0], [9.5, 0.0]])).tolist() == [False, True]
    assert SimpleNamespace(**synopsis.metadata["target"]).C == 8.0
    assert run("verify", "out.zarr").code == 0


# --- the C of "auto" ---------------------------------------------------------------------------

MACHINE = {"kind": "support-vector-machine", "length_scale": [0.3]}
CHOSEN = {
    "machine": (MACHINE, {"label": LABEL}),
    "logistic": ({"kind": "kernel-erm", "loss": "logistic", "length_scale": [0.3]},
                 {"label": LABEL}),
    "square": ({"kind": "kernel-erm", "loss": "square", "length_scale": [0.3]},
               {"response": RESPONSE}),
    "polynomial": ({"kind": "kernel-erm", "loss": "huber", "kernel": "polynomial"},
                   {"response": RESPONSE}),
}  # fmt: skip


def cost_of(target, roles, n, epsilon):
    spec = Case(target, roles).spec(2, n, "auto").changed({"budget": {"epsilon": epsilon}})
    return spec_for_rows(spec, n).learner.C


@pytest.mark.parametrize("name", CHOSEN)
def test_more_rows_and_a_larger_epsilon_never_choose_a_smaller_c(name):
    rows, epsilons = [10**power for power in range(1, 9)], ["0.01", "0.3", "1", "10"]
    found = [[cost_of(*CHOSEN[name], n, epsilon) for epsilon in epsilons] for n in rows]
    assert (np.diff(found, axis=0) >= 0).all()
    assert (np.diff(found, axis=1) >= 0).all()
    assert np.min(found) == 1 < np.max(found) <= 1000
    assert len(np.unique(found)) >= 4


def test_of_several_classes_c_has_less_noise_and_a_machine_is_a_sum():
    two, five = ({"label": {"column": "label", "classes": [*range(q)]}} for q in (2, 5))
    logistic = CHOSEN["logistic"][0]
    assert cost_of(logistic, five, 25 * 10**4, "1") == cost_of(logistic, two, 10**4, "1") > 1
    assert cost_of(MACHINE, two, 10**6, "1") > 1 == cost_of(MACHINE, five, 10**6, "1")
    plan = plan_files(Case(MACHINE, five).spec(1, 10**6, "auto"), ())
    assert "C = 1 in the paper's form C/n" in plan.explain(details=True)
    assert plan.components[0].strategy.kind == "binned"  # nothing is solved for


def test_c_does_not_depend_on_a_responses_units():
    target, roles = CHOSEN["square"]
    wide = {"response": {"column": "response", "bounds": [-1000.0, 3000.0]}}
    assert cost_of(target, roles, 10**4, "1") == cost_of(target, wide, 10**4, "1") > 1


def test_a_unit_of_many_rows_has_the_c_of_as_many_times_less_epsilon():
    unit = {"unit": {"column": "who", "max_contributions": 10}, "normalizer": "10000"}
    target, roles = CHOSEN["logistic"]
    assert cost_of(target, roles, 10**4, "1") > cost_of(target, roles, 10**4, "0.1")
    content = Case(target, roles).spec(1, 1, "auto", rows=unit)
    assert cost_of(target, roles, 10**4, "0.1") == spec_for_rows(content, 10**4).learner.C


def test_a_stated_c_and_that_of_a_kernel_too_narrow_to_solve_for_stay():
    target, roles = CHOSEN["machine"]
    spec = Case({**target, "C": 1.0}, roles).spec(1, 10**6, "auto")
    assert spec_for_rows(spec, 10**6) is spec
    assert cost_of({**target, "length_scale": [0.005]}, roles, 10**6, "1") == 1


@pytest.mark.parametrize(
    ("cost", "used", "least", "most"), [(1.0, 1, 0.6, 0.7), ("auto", 30, 0.0, 0.5)]
)
def test_the_chosen_c_is_told_and_beats_one(project, release, monkeypatch, cost, used, least, most):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=3000)
    yes = rng.uniform(size=3000) < 1 / (1 + np.exp(-6 * np.sin(9 * x)))
    columns = {"x": x.tolist(), "label": np.where(yes, "yes", "no").tolist()}
    target, roles = CHOSEN["logistic"]
    case = Case({**target, "C": cost}, roles, {"label": (0.0,)})

    def drawn(center, first, law, _key, whose):
        return privatize(center, first, law, bytes(KEY_BYTES), whose)

    monkeypatch.setattr(publishing, "privatize", drawn)
    plan, synopsis, *_ = released(release, case, columns, "spectral-laplace")
    odds, chances = synopsis(POINTS), 1 / (1 + np.exp(-6 * np.sin(9 * POINTS)))
    loss = np.mean(np.logaddexp(0, odds) - chances * odds)
    assert f"C = {used} in the paper's form C/n" in plan.explain(details=True)
    manifest = (project.output / "zarr.json").read_text()
    assert f'"C":{used:.1f}' in re.sub(r"\s", "", manifest)
    assert least < loss < most
