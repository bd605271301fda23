"""Logistic regression by a perturbed objective: what is released, resumed, chosen and refused."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from conformance import LABEL, release_spec
from projects import objects
from sklearn import linear_model
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

import dbern
from dbern.bernstein.reproducing import Linear
from dbern.data.domain import Axis, Column, Domain
from dbern.erm import perturbed
from dbern.erm.losses import Hinge, Huber, Logistic
from dbern.erm.objective import ONE_HOT_VALUE
from dbern.erm.perturbed import (
    CONSTANT_FEATURE,
    MAX_SMOOTHNESS,
    OUTPUT_FRACTION,
    PerturbedAccumulator,
    PerturbedFunctions,
    _row_weight,
    _row_weights_charge,
)
from dbern.erm.solver import Certified, count_steps
from dbern.erm.spaces import LinearFeatures
from dbern.erm.statistics import LinearFunctions
from dbern.measure.record_weights import SignWeight
from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.privacy.budget import Neighbors, Protection
from dbern.privacy.perturbation import Perturbation
from dbern.reconstruct.base import Slab, VectorStrategy
from dbern.run import counting, stages
from dbern.run.threads import Threads
from dbern.targets import LogisticRegression
from dbern.testing import search

KEY, SALT = bytes(range(32)), bytes(32)
CLASSES = {"label": {"column": "note", "classes": ["no", "yes"]}}


def spec_of(target=None, bounds="xy", *, n=2000, label=LABEL, **more):
    rows = {"n": n} if n else {}
    roles = {"label": label} if label else {}
    target = {"kind": "logistic-regression", **(target or {})}
    return release_spec(target, bounds, **rows, **roles, **more)


def table(rows=2000, seed=0, classes=2):
    rng = np.random.default_rng(seed)
    places = rng.uniform(size=(rows, 2))
    odds = (places - 0.5) @ rng.normal(0, 8, (2, classes)) + rng.gumbel(size=(rows, classes))
    return {"x": places[:, 0], "y": places[:, 1], "label": odds.argmax(axis=1).astype(float)}


def solved(plan, spec, columns, key=KEY):
    (part,) = plan.counters(spec).with_key(key).parts
    state = np.zeros(part.shape, np.int64)
    one = part.start_pass(state, SALT, 0)
    one.add(columns)
    one.finish()
    return part, part.to_values(state, 0, Slab(0, 0, plan.strategy.layout.shape[0]))


def at(weights, columns):
    places = np.column_stack([columns["x"], columns["y"], np.ones(len(columns["x"]))])
    return places @ weights.reshape(-1, 3).T


@pytest.mark.parametrize("method", ["auto", "objective"])
def test_a_release_is_near_logistic_regression_without_privacy(method):
    columns = table(20_000)
    spec = spec_of({"method": method}, n=20_000)
    plan = plan_files(spec, ())
    _, weights = solved(plan, spec, columns)
    peer = linear_model.LogisticRegression(C=1e6)
    places = np.column_stack([columns["x"], columns["y"]])
    peer.fit(places, columns["label"])
    ours = roc_auc_score(columns["label"], at(weights, columns)[:, 0])
    assert ours > roc_auc_score(columns["label"], peer.decision_function(places)) - 0.002


@pytest.mark.slow
def test_more_classes_are_one_multinomial_model():
    columns = table(20_000, 1, classes=5)
    label = {"column": "label", "classes": list(range(5))}
    spec = spec_of(n=20_000, label=label, epsilon="3")
    plan = plan_files(spec, ())
    part, weights = solved(plan, spec, columns)
    assert len(plan.components[0].entries) == weights.size == 15
    assert part.shape == (4, 3)
    found = at(weights, columns)
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-9)
    peer = linear_model.LogisticRegression(C=1e6, max_iter=1000)
    places = np.column_stack([columns["x"], columns["y"]])
    peer.fit(places, columns["label"])
    right = (found.argmax(axis=1) == columns["label"]).mean()
    assert right > peer.score(places, columns["label"]) - 0.02


def test_integers_do_not_depend_on_order_batches_or_where_the_plan_was():
    columns = table(300)
    spec = spec_of({"method": "objective"}, n=300)
    plan = ReleasePlan.from_dict(plan_files(spec, ()).to_dict())
    (part,) = plan.counters(spec).with_key(KEY).parts
    found = []
    for seed in range(3):
        order, state = np.random.default_rng(seed).permutation(300), np.zeros(part.shape, np.int64)
        one = part.start_pass(state, SALT, 0)
        for rows in np.array_split(order, 1 + 4 * seed):
            one.add({name: column[rows] for name, column in columns.items()})
        one.finish()
        found.append(state)
    assert found[0].any()
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


def test_the_linear_term_is_a_function_of_the_key_and_of_the_very_records(monkeypatch):
    """A record that is there twice in place of another is another database, too."""
    spec = spec_of({"method": "objective"}, n=300)
    changes = ({"epsilon": "1.5"}, {"target": {"method": "objective", "C": 5.0}})  # other constants
    specs = [spec_of(**{"target": {"method": "objective"}, "n": 300, **each}) for each in changes]
    plan, *plans = [plan_files(each, ()) for each in (spec, *specs)]
    drawn = []
    original = Perturbation.draw

    def recorded(self, stream):
        b, largest = original(self, stream)
        drawn.append((b, self.scale))
        return b, largest

    monkeypatch.setattr(Perturbation, "draw", recorded)
    one, other = table(300), table(300)
    other["x"][7] = np.nextafter(other["x"][7], 1)
    twice = [{name: column[[0, i, *range(1, 299)]] for name, column in one.items()} for i in (0, 1)]
    flipped = {**one, "label": np.where(np.arange(300) == 7, 1 - one["label"], one["label"])}
    for columns, key in ((one, KEY), (one, KEY), (other, KEY), (one, SALT), (flipped, KEY),
                         (twice[0], KEY), (twice[1], KEY)):  # fmt: skip
        solved(plan, spec, columns, key)
    for plan, spec in zip(plans, specs, strict=True):
        solved(plan, spec, one)
    (first, scale), (again, _), *others = drawn
    assert (first == again).all()
    for (b, size), (other, larger) in itertools.combinations([(first, scale), *others], 2):
        assert (b / size != other / larger).all()


def test_nothing_is_solved_without_the_key():
    spec = spec_of({"method": "objective"}, n=300)
    plan = plan_files(spec, ())
    (part,) = plan.counters(spec).parts
    with pytest.raises(ValueError, match="release's key"):
        part.start_pass(np.zeros(part.shape, np.int64), SALT, 0).finish()


def test_the_key_of_the_linear_term_is_that_of_key_and_name():
    (part,) = (
        plan_files(spec_of({"method": "objective"}), ())
        .counters(spec_of({"method": "objective"}))
        .parts
    )
    model = replace(part.functions.model, name="another")
    other = replace(part, functions=replace(part.functions, model=model))
    secrets = {each.with_key(key).secret for each in (part, other) for key in (KEY, SALT)}
    assert len(secrets) == 4
    assert not any(key in secrets for key in (KEY, SALT))
    assert repr(part.with_key(KEY)) == repr(part)


LOGISTIC = Logistic()


def functions(epsilon=Fraction(1), share=Fraction(1, 2), loss=LOGISTIC) -> PerturbedFunctions:
    box = Domain((Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0)))
    label = SignWeight(Column("label", "data.label.classes", (False, True)))
    model = LinearFunctions(box, loss, LinearFeatures(2, Linear(1.0)), label, cost=1.0)
    return PerturbedFunctions.for_budget(model, 50, epsilon, share)


def spent_by(risk, square, rows=1, rank=1, added=False) -> float:
    """What linear terms and Jacobian of two classes cost: slopes and curvatures are tied."""
    scales = [one for one in (risk.scale, risk.list_scale) if math.isfinite(one)]
    p = np.linspace(0.0, 1.0, 100_001)
    bent = rank * np.log1p(risk.weight * rows * square / rank * p * (1 - p))
    pulled = rows * (p if added else 1 + p)
    return float((pulled * sum(1 / one for one in scales) + bent).max())


@pytest.mark.parametrize("epsilon", ["0.1", "1", "20"])
@pytest.mark.parametrize("loss", [LOGISTIC, Hinge(1.0)])
def test_three_parts_are_the_charge(epsilon, loss):
    charge, share = Fraction(epsilon), Fraction(1, 4)
    one = functions(charge, share=share, loss=loss)
    of_two = 2 / one.risk.scale + math.log1p(one.risk.weight * one.risk.bounds.length**2)
    if loss == LOGISTIC:
        of_two = spent_by(one.risk, one.risk.bounds.length**2)
    assert one.output_fraction + one.objective_fraction == 1
    spent = of_two + float(OUTPUT_FRACTION * charge)
    assert 0.999999 * float(charge) < spent <= float(charge)
    plan = plan_files(spec_of({"method": "objective"}, epsilon=epsilon), ())
    law = plan.components[0].noise.law
    assert law.epsilon <= OUTPUT_FRACTION * charge


def largest_move(functions: PerturbedFunctions, n: int) -> float:
    """Before the map two computed values of one minimizer are within 2 gamma: over their bound."""
    rng, features, most = np.random.default_rng(3), functions.risk.features, 0.0
    for _ in range(2000):
        step = rng.choice([-1.0, 1.0], (1, features)) * rng.uniform(0, 1, features)
        step *= 2 * functions.risk.bounds.distance / np.linalg.norm(step)
        apart = functions.released(step) - functions.released(0 * step)
        most = max(most, float(np.abs(apart).sum()))
    return most / (functions.sensitivity(VectorStrategy(functions.size), 1).value / n)


def test_noise_hides_how_far_what_is_computed_is_from_the_minimizer():
    assert 0.5 < largest_move(functions(), 50) <= 1


def test_noise_hides_the_rounding_of_what_is_kept(monkeypatch):
    """Where steps are coarse: two minimizers at one place, each rounded to a side of its own."""
    monkeypatch.setattr(perturbed, "MAX_BITS", 12)
    charged = functions()
    assert charged.step > 1000 * charged.risk.bounds.distance
    corners = [np.array([signs]) * math.ldexp(0.5, -charged.bits)
               for signs in itertools.product((-1, 1), repeat=3)]  # fmt: skip
    released = [charged.released(state) for state in corners]
    apart = [a - b for a, b in itertools.product(released, repeat=2)]
    for norm in (1, 2):
        moved = charged.sensitivity(VectorStrategy(charged.size), norm).value / 50
        assert 0.5 * moved < max(np.linalg.norm(move.ravel(), norm) for move in apart) <= moved


def test_values_and_their_floats_are_within_what_the_contract_is_told():
    """All that may be kept, mapped exactly and in floats; a constant's row is the longest."""
    charged = functions(loss=Huber(0.3, 0.1))
    charged = replace(charged, radius=20 / 3)
    errors = PerturbedAccumulator(charged, VectorStrategy(3)).errors
    rng, largest, off = np.random.default_rng(9), 0.0, [0.0, 0.0]
    longest = np.array([[-1.0, -1.0, CONSTANT_FEATURE]])
    for direction in (longest, *rng.normal(size=(200, 1, 3))):
        kept = charged.risk.bounds.radius * direction / np.linalg.norm(direction)
        values = charged.released(kept)[0]
        x, y, c = map(Fraction, kept[0].tolist())
        exact = [2 * x, 2 * y, Fraction(CONSTANT_FEATURE) * c - x - y]
        apart = np.array([float(abs(Fraction(value) - Fraction(charged.radius) * v))
                          for value, v in zip(values.tolist(), exact, strict=True)])  # fmt: skip
        off = [max(size, float(np.linalg.norm(apart, i + 1))) for i, size in enumerate(off)]
        largest = max(largest, float(np.abs(values).max()))
    assert 0.6 * errors.value_bound < largest <= errors.value_bound
    for size, bound in zip(off, errors.float_norms, strict=True):
        assert 0 < size <= bound


def test_nothing_is_solved_for_a_linear_term_beyond_what_is_proved(monkeypatch):
    spec = spec_of({"method": "objective"}, n=300)
    (part,) = plan_files(spec, ()).counters(spec).with_key(KEY).parts
    risk = part.functions.risk
    for times, kept in ((0.9, True), (1.1, False)):
        b = times * risk.bounds.largest * np.array([[1.0, 0.0, 0.0]])
        monkeypatch.setattr(type(risk), "draw_linear_term", lambda *_, b=b: (b, float(b.max())))
        monkeypatch.setattr(perturbed, "minimize", lambda b, _: Certified(np.ones_like(b), 0.0))
        monkeypatch.setattr(perturbed, "PerturbedObjective", lambda *given: given[-1])
        assert part.solved(np.zeros((1, 3)), np.ones(1), 0).any() == kept


@pytest.mark.parametrize(
    "target", [{}, {"kind": "kernel-erm", "kernel": "linear", "loss": "hinge"}]
)
@pytest.mark.parametrize("rows", ["none", "one class", "separable", "constant", "few", "narrow"])
def test_odd_databases_have_a_model_too(rows, target):
    columns = table(2 if rows == "few" else 300)
    if rows == "narrow":  # in a thousandth of the bounds
        columns |= {name: 0.5 + columns[name] / 1000 for name in "xy"}
    if rows == "none":
        columns["x"][:] = np.nan
    if rows == "one class":
        columns["label"][:] = 1.0
    if rows == "separable":
        columns["label"] = (columns["x"] > 0.5).astype(float)
    if rows == "constant":
        columns["x"][:] = 0.25
    n = len(columns["x"])
    spec = spec_of({"method": "objective", **target}, n=n)
    part, weights = solved(plan_files(spec, ()), spec, columns)
    assert np.isfinite(weights).all()
    assert np.abs(weights).max() <= part.errors.value_bound


def test_what_is_chosen_and_what_is_said_of_it():
    good = plan_files(spec_of(n=20_000), ())
    assert "weight" in good.components[0].counting
    assert "excess log loss" in good.explain(details=True)
    assert "WARNING" not in good.explain(details=True)
    poor = plan_files(spec_of(n=30, epsilon="0.1"), ())
    assert poor.explain(details=True).startswith("WARNING      no better than a constant")
    assert "share" not in good.components[0].counting


def test_a_c_that_is_chosen_is_kept_in_the_plan():
    spec = spec_of({"method": "weights"}, n=20_000)
    plan = plan_files(spec, ())
    assert plan.components[0].counting["C"] > 1
    (part,) = plan.counters(spec).parts
    assert part.model.cost == plan.components[0].counting["C"]


def test_a_stated_c_is_the_penalty():
    columns = table(2000)
    spec = spec_of({"method": "objective", "C": 40.0}, epsilon="50")
    part, weights = solved(plan_files(spec, ()), spec, columns)
    assert part.functions.risk.weight == 40 / (4 * 2000)
    peer = linear_model.LogisticRegression(C=40 / 2000, fit_intercept=True, tol=1e-10)
    places = np.column_stack([columns["x"], columns["y"]])
    peer.fit(places, columns["label"])
    np.testing.assert_allclose(weights[:2], peer.coef_[0], rtol=0.1)


def test_a_search_for_neighbours_says_that_it_would_show_nothing():
    with pytest.raises(dbern.SpecError, match="before it is computed"):
        search(LogisticRegression, spec_of({"method": "objective"}))


@pytest.mark.parametrize("epsilon", ["0.0001", "100", "10000"])
def test_any_epsilon_is_planned_and_solved(epsilon):
    spec = spec_of(n=300, epsilon=epsilon)
    plan = plan_files(spec, ())
    part, weights = solved(plan, spec, table(300))
    assert np.abs(weights).max() <= part.errors.value_bound


@pytest.mark.parametrize(("n", "epsilon"), [(10**6, "3"), (4 * 10**6, "20"), (10**5, "1000")])
def test_the_work_of_a_release_is_bounded(n, epsilon):
    for target in ({}, {**LINEAR, "loss": "hinge"}):
        spec = spec_of({"method": "objective", **target}, n=n, epsilon=epsilon)
        (part,) = plan_files(spec, ()).counters(spec).parts
        risk = part.functions.risk
        assert risk.bounds.disturbed.smoothness <= 1.001 * MAX_SMOOTHNESS
        plain, accelerated = count_steps(risk.bounds.disturbed, risk.bounds.tolerance)
        assert accelerated < 2e5
        assert plain < 1e8
    spec = spec_of({"method": "objective", "C": 100.0 * n}, n=n, epsilon=epsilon)
    with pytest.raises(dbern.SpecError, match=r"target\.C: too large .* Write C = ") as caught:
        plan_files(spec, ())
    told = float(re.search(r"Write C = (\S+) or less", str(caught.value)).group(1))
    plan_files(spec_of({"method": "objective", "C": told}, n=n, epsilon=epsilon), ())


# --- categories

LISTS = {"work": {"values": ["a", "b", "c"]}, "sex": {"values": ["f", "m"]}}


def listed_spec(target=None, *, n=20_000, **changes):
    axes = {"x": [0.0, 1.0], **LISTS, "y": [0.0, 1.0]}
    return spec_of(target, axes, n=n, **changes)


def listed_table(rows=20_000, classes=2):
    rng, columns = np.random.default_rng(11), table(rows, classes=classes)
    columns |= {"work": rng.integers(0, 3, rows) * 1.0, "sex": rng.integers(0, 2, rows) * 1.0}
    flips = rng.uniform(size=rows) < 0.2 + 0.3 * (columns["work"] == 2)
    columns["label"] = np.where(flips, columns["sex"], columns["label"])
    return columns


def one_hot(columns):
    listed = [np.equal.outer(columns[name], np.arange(size)) for name, size in
              (("work", 3), ("sex", 2))]  # fmt: skip
    return np.column_stack([*listed, columns["x"], columns["y"]])


@pytest.mark.parametrize("classes", [2, 3])
def test_categories_are_features_of_their_own(classes):
    columns = listed_table(classes=classes)
    spec = listed_spec(label={"column": "label", "classes": list(range(classes))})
    plan = ReleasePlan.from_dict(plan_files(spec, ()).to_dict())
    part, weights = solved(plan, spec, columns)
    assert plan.components[0].entries[:5] == tuple(
        f"weight of {name}" + ", 0" * (classes > 2)
        for name in ("work = a", "work = b", "work = c", "sex = f", "sex = m")
    )
    places = one_hot(columns)
    peer = linear_model.LogisticRegression(C=1e6, max_iter=1000).fit(places, columns["label"])
    values = spec.combination.values([weights], places)
    found = values > 0 if classes == 2 else values.argmax(axis=1)
    right = (found == columns["label"]).mean()
    assert right > peer.score(places, columns["label"]) - 0.01
    assert right > (columns["label"] == 1).mean() + 0.1
    assert np.abs(weights).max() <= part.errors.value_bound
    assert "lists that tell nothing" in plan.explain(details=True)


def test_a_value_that_is_not_listed_is_a_missing_record():
    columns, spec = listed_table(300), listed_spec(n=300)
    plan = plan_files(spec, ())
    there = columns["work"] != 1
    fewer = {name: column[there] for name, column in columns.items()}
    columns["work"][~there] = np.nan
    (_, one), (_, other) = (solved(plan, spec, some) for some in (columns, fewer))
    np.testing.assert_array_equal(one, other)


def test_numbers_lists_jacobian_and_rounding_share_the_charge():
    plan = plan_files(listed_spec(epsilon="2"), ())
    (part,) = plan.counters(listed_spec(epsilon="2")).parts
    risk = part.functions.risk
    square = 2 + CONSTANT_FEATURE**2 + 2 * ONE_HOT_VALUE**2
    assert 1.9999 < spent_by(risk, square) + 2 * float(OUTPUT_FRACTION) <= 2


def test_a_stated_c_is_the_penalty_of_numbers_with_categories_too():
    spec = listed_spec({"C": 40.0}, epsilon="5")
    (part,) = plan_files(spec, ()).counters(spec).parts
    assert part.functions.risk.weight == 40 / (4 * 20_000)
    assert math.isfinite(part.functions.risk.list_scale)


def test_noise_hides_as_much_of_the_weights_of_listed_values():
    spec = listed_spec()
    (part,) = plan_files(spec, ()).counters(spec).parts
    assert 0.3 < largest_move(part.functions, 20_000) <= 1


# --- other losses

LINEAR = {"kind": "kernel-erm", "kernel": "linear"}
RESPONSE = {"column": "z", "bounds": [-10.0, 30.0]}


@pytest.mark.parametrize("classes", [2, 3])
def test_a_linear_machine_is_near_one_without_privacy(classes):
    columns = table(20_000, 1, classes)
    label = {"column": "label", "classes": list(range(classes))}
    spec = spec_of({**LINEAR, "loss": "hinge"}, n=20_000, label=label)
    plan = ReleasePlan.from_dict(plan_files(spec, ()).to_dict())
    _, weights = solved(plan, spec, columns)
    values = at(weights, columns)
    found = values[:, 0] > 0 if classes == 2 else values.argmax(axis=1)
    places = np.column_stack([columns["x"], columns["y"]])
    peer = LinearSVC().fit(places, columns["label"])
    right = (found == columns["label"]).mean()
    assert right > peer.score(places, columns["label"]) - 0.01
    assert "of equally large classes" in plan.explain(details=True)


def responses():
    columns = listed_table(20_000)
    rest = np.random.default_rng(16).normal(0, 2, 20_000)
    slopes = 6 * columns["x"] - 4 * columns["y"] + 3 * (columns["work"] == 1)
    return {**columns, "z": np.clip(10 + slopes + rest, -10, 30)}


@pytest.mark.parametrize("lists", [False, True])
def test_huber_regression_is_in_units_of_the_response(lists):
    columns = responses()
    target = {**LINEAR, "loss": "huber", "threshold": 5.0}
    make = listed_spec if lists else spec_of
    spec = make(target, n=20_000, label=None, response=RESPONSE)
    plan = ReleasePlan.from_dict(plan_files(spec, ()).to_dict())
    part, weights = solved(plan, spec, columns)
    np.testing.assert_allclose(weights[-3:-1], [6, -4], atol=0.4)
    if lists:
        assert 2 < weights[1] - weights[[0, 2]].mean() < 3.2
    unit = one_hot(columns) if lists else np.column_stack([columns["x"], columns["y"]])
    truth = 10 + 6 * columns["x"] - 4 * columns["y"] + 3 * (columns["work"] == 1)
    off = spec.combination.values([weights], unit) - truth
    assert np.sqrt(np.mean(off**2)) < (0.4 if lists else 1.6)
    assert "predictions are off by" in plan.explain(details=True)
    risk = part.functions.risk
    spent = 2 * (5 / 20) / risk.scale + math.log1p(risk.weight * risk.bounds.length**2)
    spent += 2 * (5 / 20) / risk.list_scale
    assert 0.9999 < spent + float(OUTPUT_FRACTION) <= 1
    assert 0.3 < largest_move(part.functions, 20_000) <= 1


RIDGE = {"kind": "ridge-regression"}
LONG = {
    "bounds": {
        "x": [0.0, 1.0], "work": {"values": [*"abcdefghijkl"]}, "sex": LISTS["sex"],
        "more": {"values": [*"abcdefghijkl"]}, "y": [0.0, 1.0],
    },
    "label": None, "response": RESPONSE, "epsilon": "0.1", "n": 20_000,
}  # fmt: skip


def test_least_squares_with_lists_are_by_objective():
    columns = responses()
    columns["more"] = np.random.default_rng(4).integers(0, 12, 20_000) * 1.0
    plan = plan_files(spec_of(RIDGE, **LONG), ())
    said = plan.explain(details=True)
    assert "by objective: residuals beyond a quarter" in said
    assert 'other responses write method = "moments"' in said
    assert "predictions are off by" in said
    part, weights = solved(plan, spec_of(RIDGE, **LONG), columns)
    assert part.functions.risk.loss.bounds.gradient_entry_bound == 0.5
    spec = spec_of({**RIDGE, "method": "objective"}, **LONG)
    truth = 10 + 6 * columns["x"] - 4 * columns["y"] + 3 * (columns["work"] == 1)
    sizes = (("work", 12), ("sex", 2), ("more", 12))
    listed = [np.equal.outer(columns[name], np.arange(size)) for name, size in sizes]
    points = np.column_stack([*listed, columns["x"], columns["y"]])
    off = spec.combination.values([weights], points) - truth
    assert np.sqrt(np.mean(off**2)) < 1.5  # of 2.5 that a constant has


def test_a_stated_c_of_least_squares_by_objective_is_the_penalty():
    target = {**RIDGE, "method": "objective", "C": 100.0}
    spec = spec_of(target, n=20_000, label=None, response=RESPONSE)
    plan = plan_files(spec, ())
    (part,) = plan.counters(spec).parts
    assert part.functions.risk.weight == 100 / (4 * 20_000)
    assert "C = 100 in the paper's form" in plan.explain(details=True)


@pytest.mark.parametrize(
    ("target", "changes"),
    [({}, {}), ({"method": "weights"}, {}),
     ({**RIDGE, "method": "objective"}, {"label": None, "response": RESPONSE})],
)  # fmt: skip
def test_a_plan_says_the_method_and_the_c_that_auto_chose(target, changes):
    plan = plan_files(spec_of(target, n=20_000, **changes), ())
    assert "auto" not in plan.explain(details=True)
    (choice,) = (note for note in plan.notes if "in the paper's form" in note)
    method, cost, other_name = re.fullmatch(
        r"by (\w+), C = ([\d.e+-]+) in the paper's form C/n: scikit-learn's (.*)", choice
    ).groups()
    name, value = ("alpha = n/C", 20_000 / float(cost)) if changes else ("C", float(cost) / 20_000)
    assert other_name.startswith(f"{name} = ")
    assert float(other_name.rpartition(" ")[2]) == pytest.approx(value, rel=1e-5)
    stated = {**target, "method": method, "C": float(cost)}
    same = plan_files(spec_of(stated, n=20_000, **changes), ())
    for chosen, again in zip(plan.components, same.components, strict=True):
        assert again.counting.get("weight", 0) == pytest.approx(
            chosen.counting.get("weight", 0), 1e-5
        )
        if method == "weights":
            assert again.sensitivity.l1 == pytest.approx(chosen.sensitivity.l1, rel=1e-5)


def test_a_poor_regression_is_warned_of():
    target = {**LINEAR, "loss": "huber"}
    spec = spec_of(target, n=30, epsilon="0.1", label=None, response=RESPONSE)
    assert "WARNING      no better than a constant" in plan_files(spec, ()).explain(details=True)


@pytest.mark.parametrize(
    ("target", "taken"),
    [({}, {"method": "objective"}), ({"C": 40.0}, {"method": "objective"}),
     ({"C": 40.0, "constant": 2.0}, {"method": "weights"}),
     ({"kind": "gaussian-naive-bayes", "std_floor": [0.1, 0.1]}, {}),
     ({**LINEAR, "loss": "hinge"}, {"method": "objective"}),
     ({"kind": "kernel-erm", "loss": "hinge", "length_scale": [1.0, 1.0], "C": 1.0}, {})],
)  # fmt: skip
def test_what_auto_takes_is_told(target, taken):
    spec = spec_of(target, n=20_000)
    assert spec.learner.taken(plan_files(spec, ()).components[0].counting) == taken


PRIVATE = {"n": 0, "neighbors": "add-or-remove-one", "normalizer": "50"}
HINGE = {**LINEAR, "loss": "hinge"}


def method(name, target, common, *rows):
    """Rows of changes of a target and of a release, for which that method is planned."""
    return [pytest.param({**target, **changes}, {**common, **more}, name) for changes, more in rows]


def ridges(name, *rows):
    """Of least squares: changes of the target, axes, rows and epsilon."""
    of_responses = {"label": None, "response": RESPONSE}
    return method(name, RIDGE, of_responses, *(
        (changes, {"bounds": "xyuvwt"[:axes], "n": n, "epsilon": epsilon})
        for changes, axes, n, epsilon in rows
    ))  # fmt: skip


METHODS = [
    *method("weights", {}, {}, ({"constant": 0.5}, {}), ({"shards": 2}, {}),
            ({"method": "weights"}, {}), ({}, {"delta": "1e-6"}),
            ({"method": "weights"}, {**PRIVATE, "normalizer": "2000"})),
    *method("weights", HINGE, {}, ({"method": "weights"}, {}), ({"constant": 0.5}, {})),
    *method("objective", {}, {"n": 20_000}, ({}, {}), ({"C": 40.0}, {})),
    *method("objective", HINGE, {}, ({"C": 40.0}, {})),
    *ridges("moments", ({"C": 2.0}, 2, 10_000, "1"), ({"method": "moments"}, 2, 10_000, "1")),
    *ridges("weights", ({"method": "weights"}, 2, 10_000, "1"), ({"constant": 0.5}, 2, 10_000, "1"),
            ({"shards": 2}, 2, 10_000, "1")),
    # Moments where their noise is not felt: of six columns that takes a large epsilon, of two not
    # much is lost, and cut residuals cost more.
    *ridges("objective", ({}, 2, 10_000, "1"), ({}, 6, 25_000, "1"), ({}, 5, 24_000, "3"),
            ({}, 1, 2_000, "1"), *(({}, 6, 53_940, epsilon) for epsilon in ("0.1", "1", "3", "8"))),
    *ridges("moments", ({}, 2, 20_000, "1"), ({}, 2, 10_000, "3"), ({}, 2, 5_000_000, "0.001"),
            ({}, 6, 53_940, "12"), ({}, 2, 150_000, "0.1"), ({}, 1, 5_000, "1")),
    *(pytest.param(*row.values, marks=pytest.mark.slow) for row in method(
        "moments", RIDGE, LONG, ({}, {"n": 2_000_000}), ({}, {"n": 5_000_000, "epsilon": "0.001"}),
        ({}, {"delta": "1e-6"}), ({"C": 40.0}, {}), ({"method": "moments"}, {}),
        ({"degree": 2}, {}),
        ({}, {"bounds": {"x": [0.0, 1.0], **LISTS, "y": [0.0, 1.0]}, "n": 600_000}))),
]  # fmt: skip


@pytest.mark.parametrize(("target", "release", "name"), METHODS)
def test_a_method_is_released_where_it_is_asked_for_or_errs_less(target, release, name):
    spec = spec_of(target, **release)
    plan = plan_files(spec, ())
    again = ReleasePlan.from_dict(plan.to_dict())
    assert again == plan
    counting = plan.components[0].counting
    assert {"objective": "weight", "moments": "bits", "weights": "shards"}[name] in counting
    if name == "objective":
        return
    assert not again.counters(spec).keyed
    if name == "moments":
        assert list(counting) == ["bits"]
    else:
        (part,) = again.counters(spec).parts
        assert counting == {"shards": part.shards, **part.model.stored_params}
    if target.get("kind") == RIDGE["kind"] and "values" not in str(release["bounds"]):
        assert plan.components[0].name == name
        assert plan.notes[0].startswith(f"by {name}")


# --- private rows


@pytest.mark.parametrize("most", [1, 2, 40])
def test_a_row_more_changes_all_weights_together_by_one_at_most(most):
    """Rows are added one after another, up to many times as many as weigh their most."""
    weights = [_row_weight(rows, most) for rows in range(1, 12 * most + 3)]
    moved = [c * (g - after) + after for c, (g, after) in
             enumerate(itertools.pairwise(weights), start=1)]  # fmt: skip
    assert weights[0] == 1
    assert 0.999 < max(moved) <= 1 + 1e-12
    totals = [c * g for c, g in enumerate(weights, start=1)]
    assert max(totals) <= most * (1 + 1e-12)
    assert max(totals) > 0.999 * most
    grown = max(math.log(g / after) for g, after in itertools.pairwise(weights))
    assert (
        0.5 * float(_row_weights_charge(1, 1, most))
        < grown
        <= float(_row_weights_charge(1, 1, most))
    )
    assert _row_weight(most / 4, most) > 15 / 16


@pytest.mark.parametrize(("changes", "private"), [(PRIVATE, True), ({"n": 400}, False)])
def test_a_release_weighs_rows_by_how_many_there_are(changes, private, monkeypatch):
    spec = spec_of({"method": "objective"}, **changes)
    plan = ReleasePlan.from_dict(plan_files(spec, ()).to_dict())
    weighed = []

    def weigh(problem, tolerance):
        weighed.append(problem._counts)
        return Certified(0 * problem.b, tolerance)

    monkeypatch.setattr(perturbed, "minimize", weigh)
    columns = table(900)
    columns |= {name: np.where(np.arange(900) < 9, 0.5, columns[name]) for name in columns}
    for rows in (50, 400, 900):
        solved(plan, spec, {name: column[:rows] for name, column in columns.items()})
        weight = _row_weight(rows, 4 * 50) if private else 1.0
        assert sorted(weighed.pop()) == [weight] * (rows - 9) + [9 * weight]


@pytest.mark.parametrize(
    ("make", "features", "lists"), [(spec_of, 3, 0), (listed_spec, 8, 2)], ids=["numbers", "lists"]
)
@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("neighbors", ["replace-one", "add-or-remove-one"])
def test_a_unit_of_rows_costs_as_many(rows, make, features, lists, neighbors):
    """A listed value is a feature, so that u rows bend as many directions with lists.

    One that is added or removed pulls half as much as one that is replaced.
    """
    unit, added = {"column": "user", "max_contributions": rows}, neighbors != "replace-one"
    spec = make({"method": "objective"}, unit=unit, n=0, normalizer="2000", neighbors=neighbors)
    (part,) = plan_files(spec, ()).counters(spec).parts
    assert part.functions.risk.n == 4 * 2000
    square, rank = 2 + CONSTANT_FEATURE**2 + lists * ONE_HOT_VALUE**2, min(rows, features)
    assert part.functions.risk.features == features
    charged = [(part.functions.risk, 2000)]
    for share in (Fraction(1, 4), Fraction(3, 4)):  # on the Jacobian
        model = part.functions.model
        charged.append((PerturbedFunctions.for_budget(model, 500, Fraction(1), share).risk, 500))
    for risk, n in charged:
        rest = float(OUTPUT_FRACTION + _row_weights_charge(rows, features, 4 * n))
        assert 0.999 < spent_by(risk, square, rows, rank, added) + rest <= 1
    machine = replace(part.functions.model, loss=Hinge(1.0))
    risk = PerturbedFunctions.for_budget(machine, 500, Fraction(1), Fraction(1, 4)).risk
    along = (1 if added else 2) * rows * (1 / risk.scale + 1 / risk.list_scale)
    bent = rank * math.log1p(risk.weight * rows * risk.loss.bounds.trace * square / rank)
    assert 0.999 < along + bent + rest <= 1


@pytest.mark.parametrize("loss", [LOGISTIC, Hinge(1.0)])
def test_too_few_rows_for_what_others_weigh_are_refused(loss):
    """Nothing is left of so small an epsilon, and no law has a scale that is not above zero."""
    private = Protection(Neighbors.ADD_OR_REMOVE_ONE)
    model = replace(functions(loss=loss).model, protection=private)
    with pytest.raises(dbern.SpecError, match=r"data\.normalizer: too small .* Write a larger"):
        PerturbedFunctions.for_budget(model, 5, Fraction(1, 20), Fraction(1, 4))
    assert PerturbedFunctions.for_budget(model, 5, Fraction(1), Fraction(1, 4)).risk.scale > 0
    plan = plan_files(spec_of(**{**PRIVATE, "normalizer": "5"}, epsilon="0.02"), ())
    assert "shards" in plan.components[0].counting  # of "auto": weights


def test_rows_of_a_unit_have_as_many_eigenvalues_as_features_with_lists_too():
    """Five rows with eight features: two numbers, five listed values and the constant."""
    unit = {"column": "user", "max_contributions": 5}
    spec = listed_spec({"method": "objective"}, n=0, unit=unit, normalizer="2000")
    (part,) = plan_files(spec, ()).counters(spec).parts
    square = 2 + CONSTANT_FEATURE**2 + 2 * ONE_HOT_VALUE**2
    rest = float(OUTPUT_FRACTION + _row_weights_charge(5, 8, 4 * 2000))
    assert 0.999 < spent_by(part.functions.risk, square, 5, 5) + rest <= 1


def test_every_database_has_a_linear_term_of_its_own(monkeypatch):
    """Under one key: b may meet no second database, should a ledger be put back unnoticed."""
    spec = spec_of({"method": "objective"})
    (part,) = plan_files(spec, ()).counters(spec).with_key(KEY).parts
    terms = []

    def keep(problem, tolerance):
        terms.append(problem.b)
        return Certified(problem.b, tolerance)

    monkeypatch.setattr(perturbed, "minimize", keep)
    rows, counts = np.array([[0.1, 0.2, 0.0], [0.3, 0.4, 1.0]]), np.array([2.0, 3.0])
    databases = [
        (rows, counts),
        (rows, counts[::-1]),
        (rows, np.array([2.0, 4.0])),
        (rows[:1], counts[:1]),
        (np.nextafter(rows, 1.0), counts),
        (rows * [1, 1, 0], counts),
    ]
    for database in (*databases, databases[0]):
        part.solved(*database, 0)
    assert len({b.tobytes() for b in terms}) == len(databases)
    np.testing.assert_array_equal(terms[0], terms[-1])


# --- releases


def prepared(project):
    columns = table(400)
    project.write({**{name: columns[name] for name in "xy"},
                   "note": np.where(columns["label"] > 0, "yes", "no")})  # fmt: skip
    return project.spec(
        data__label=CLASSES["label"],
        data__bounds={"x": [0.0, 1.0], "y": [0.0, 1.0]},
        target={"kind": "logistic-regression", "bandwidth": None, "method": "auto"},
        mechanism={"k": None, "h": None, "noise": "auto"},
    )


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
@pytest.mark.parametrize("place", ["seal", "publish", "stage"])
def test_a_crash_anywhere_publishes_the_same_bytes_for_one_charge(project, monkeypatch, place):
    spec = prepared(project)
    whole = project.twin("whole")
    crashed = 0

    def crash(*_arguments, **_named):
        nonlocal crashed
        crashed += 1
        raise OSError

    at = {"seal": (dbern.ledger.Staging, "seal"), "publish": (stages, "publish"),
          "stage": (dbern.ledger.Staging, "put")}[place]  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(*at, crash)
        with pytest.raises(dbern.DbernError, match="OSError"):  # the crash planted above
            dbern.release(spec)
    assert crashed
    found = dbern.release(spec)
    assert project.spent() == "epsilon 1, epsilon 0 reserved"
    assert project.remains() == []
    other = dbern.release(dbern.ReleaseSpec.load(whole.spec_path))
    assert objects(project.output) == objects(whole.output)
    assert found.synopsis.predict(np.array([[0.1, 0.2]])) == other.synopsis.predict([[0.1, 0.2]])


def test_the_key_is_used_in_this_process_and_not_on_a_cluster(project, client, monkeypatch):
    spec = prepared(project)
    places = []
    tree_reduce = counting.tree_reduce
    monkeypatch.setattr(
        counting, "tree_reduce", lambda here, *rest: places.append(here)
        or tree_reduce(here, *rest),
    )  # fmt: skip
    found = dbern.release(spec, client=client).synopsis
    assert len(places) == 1
    assert found.metadata["target"]["method"] == "objective"  # of "auto"
    least, largest = found.metadata["extent"]
    assert least == -largest < 0
    assert type(places[0]) is Threads
