"""What plans predict of kernel functions, and what releases of such records are worth."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from conformance import release_spec

import dbern
from dbern.planning.planner import plan_files
from dbern.privacy import mechanism
from dbern.run import publish
from dbern.targets.typical import TypicalBayes

AXES = {"x": [0.0, 10.0], "y": [-1.0, 1.0]}
SPREAD, EXPLAINED, ODDS, APART = 1 / 8, 0.5, 2.0, 1.35  # of the bounds, as the plan says
RESPONSE = {"response": {"column": "z", "bounds": [-3.0, 5.0]}}
TWO, THREE = ({"label": {"column": "label", "classes": list(range(q))}} for q in (2, 3))
LENGTHS = {"length_scale": [2.0, 0.4]}
NADARAYA = {"kind": "nadaraya-watson", "bandwidth": [1.0, 0.2]}
MACHINE = {"kind": "support-vector-machine", **LENGTHS}
BAYES = {"kind": "naive-bayes", "bandwidth": [1.0, 0.2]}
ERM = {"kind": "kernel-erm", **LENGTHS}
LINEAR = {"kind": "kernel-erm", "kernel": "linear"}
KNOTS = {"k": 10, "h": 4, "noise": "laplace"}


def spec_of(target, roles, n, epsilon, axes=2, mechanism=KNOTS):
    bounds = dict(list(AXES.items())[:axes])
    return release_spec(target, bounds, n=n, epsilon=epsilon, mechanism=mechanism, **roles)


def typical(rng, n, axes, classes, *, bayes):
    """Records as plans speak of: places of the unit cube, what is learned, and its mean or odds."""
    unit = np.clip(0.5 + SPREAD * rng.normal(size=(n, axes)), 0, 1)
    if not classes:
        wanted = 2 * (unit - 0.5) @ np.full(axes, math.sqrt(EXPLAINED / axes))
        rest = 2 * SPREAD * math.sqrt(1 - EXPLAINED) * rng.normal(size=n)
        return unit, np.clip(wanted + rest, -1, 1), wanted
    turns = 2 * np.pi * np.arange(classes)[:, None] / classes + np.pi * np.arange(axes) / axes
    ways = np.cos(turns) / np.linalg.norm(np.cos(turns[0]) - np.cos(turns[1]))
    if bayes:
        labels = rng.integers(0, classes, n)
        unit = 0.5 + APART * SPREAD * ways[labels] + SPREAD * rng.normal(size=(n, axes))
        kept = ((unit >= 0) & (unit <= 1)).all(axis=1)
        return np.clip(unit, 0, 1), labels, kept
    shares = np.exp(ODDS / SPREAD * (unit - 0.5) @ ways.T)
    shares /= shares.sum(axis=1, keepdims=True)
    return unit, (shares.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1), shares


def table(unit, learned, classes):
    axes = zip(AXES.items(), unit.T, strict=False)
    places = {name: low + own * (high - low) for (name, (low, high)), own in axes}
    return places, {"label": learned} if classes else {"z": 1 + 4 * learned}


def told(plan):
    """Of the line: what is predicted, and of a constant."""
    line = next(note for note in plan.notes if note.startswith(("excess ", "for typical rows ")))
    number, kinds = r"(-?\d[-+.\de]*)", ("excess risk", "excess log loss")
    line = next((note for note in plan.notes if note.startswith(kinds)), line)
    first, constant = re.search(rf"{number}.*(?:constant|for all) {number}", line).groups()
    scale = 1 if line.startswith("excess") else 100
    return float(first) / scale, float(constant) / scale


def warned(plan):
    return any(note.startswith("WARNING: no better than a constant") for note in plan.notes)


CASES = {
    "nadaraya": (NADARAYA, RESPONSE, 2, KNOTS),
    "covariance": ({"kind": "nadaraya-watson", "covariance": [[1.0, 0.1], [0.1, 0.04]]},
                   RESPONSE, 2, KNOTS),
    "gaps": ({"kind": "priestley-chao", "bandwidth": [1.0], "max_gap": 0.02}, RESPONSE, 1,
             {**KNOTS, "k": 20}),
    "rounded gaps": ({"kind": "priestley-chao", "bandwidth": [1.0], "max_gap": 0.1},
                     {**RESPONSE, "resolution": {"x": 0.1}}, 1, {**KNOTS, "k": 20}),
    "rounded gaps, cut": ({"kind": "priestley-chao", "bandwidth": [1.0], "max_gap": 0.07},
                          {**RESPONSE, "resolution": {"x": 0.1}}, 1, {**KNOTS, "k": 20}),
    "closed machine": ({**MACHINE, "C": 1.0}, TWO, 2, KNOTS),
    "three closed machines": ({**MACHINE, "C": 1.0}, THREE, 2, KNOTS),
    "machine": ({**MACHINE, "C": 10.0}, TWO, 2, KNOTS),
    "spectral machine": ({**MACHINE, "C": 10.0}, TWO, 2, {**KNOTS, "noise": "spectral-laplace"}),
    "logistic": ({**ERM, "loss": "logistic", "C": 30.0}, THREE, 2, KNOTS),
    "squares": ({**ERM, "loss": "square", "C": 10.0}, RESPONSE, 2, KNOTS),
    "huber": ({"kind": "kernel-erm", "kernel": "polynomial", "loss": "huber", "C": 10.0}, RESPONSE,
              2, {"k": 4, "h": 8, "noise": "laplace"}),
    "linear": ({**LINEAR, "loss": "square", "C": 100.0}, RESPONSE, 2, {}),
    "bayes": (BAYES, TWO, 2, KNOTS),
    "bayes of three": (BAYES, THREE, 2, KNOTS),
    "joint": ({**BAYES, "release": "joint"}, TWO, 2, KNOTS),
}  # fmt: skip
FEW = (60, "1/20")
SIZES = {
    "poor": {"bayes": FEW},
    "good": {"huber": (3000, "300"), "squares": (3000, "150"), "linear": (3000, "70"),
             "rounded gaps": (3000, "40"),
             "rounded gaps, cut": (3000, "40")},
}  # fmt: skip
USUAL = {"poor": (300, "1/20"), "good": (3000, "7")}


def planned(case, n, epsilon):
    target, roles, axes, noise = CASES[case]
    return plan_files(spec_of(target, roles, n, epsilon, axes, noise), ())


@pytest.mark.slow
@pytest.mark.parametrize("case", ["nadaraya", "gaps", "machine", "linear", "bayes"])
def test_a_plan_warns_where_a_constant_is_as_good(case):
    poor, good = planned(case, *FEW), planned(case, 1_000_000, "10")
    assert warned(poor)
    assert not warned(good)
    assert told(poor)[0] > 0.8 * told(poor)[1]
    assert told(good)[0] < 0.9 * told(good)[1]


@pytest.mark.parametrize(
    ("target", "predicted"),
    [({"loss": "square"}, True), ({"loss": "epsilon-insensitive"}, False),
     ({"loss": "conformance:pinball", "lipschitz": 0.75, "at_zero": 1.5}, False)],
)  # fmt: skip
@pytest.mark.parametrize("kernel", [ERM, LINEAR])
def test_squared_errors_are_predicted_of_losses_that_are_about_them(target, predicted, kernel):
    target = {**kernel, "C": 10.0, **target}
    plan = plan_files(spec_of(target, RESPONSE, *FEW), ())
    assert any("predictions are off by" in note for note in plan.notes) is predicted


@pytest.mark.parametrize(("n", "said"), [(500, True), (100_000, False)])
def test_a_plan_says_which_class_alone_is_as_good(n, said):
    """It is as good where it has more than what the release tells right."""
    plan = plan_files(spec_of({**ERM, "loss": "logistic"}, THREE, n, "1/5"), ())
    right = 1 - told(plan)[0]
    line = f"where one class has more than {right:.0%} of the rows: that class for all is as good"
    assert (line in plan.notes) is said
    less = 'of several classes kind = "support-vector-machine" has less noise: plan it'
    assert (less in plan.notes) is said
    if said:
        machine = plan_files(spec_of(MACHINE, THREE, n, "1/5"), ())
        assert told(machine)[0] < told(plan)[0]


def test_a_plan_says_what_a_gap_below_the_resolution_leaves():
    """Ten widths over n, of whole numbers: every gap is cut to a hundredth of itself."""
    gaps, wide = CASES["gaps"][0], {**RESPONSE, "resolution": {"x": 0.5}}
    silent, cut, whole = (
        plan_files(spec_of({**gaps, "max_gap": gap}, roles, 20_000, "1", 1, KNOTS), ())
        for gap, roles in ((0.005, RESPONSE), (0.005, wide), (0.5, wide))
    )
    assert not warned(silent)
    assert any("state data.resolution.x" in note for note in silent.notes)
    assert warned(cut)
    assert told(cut)[0] > 0.9 * told(cut)[1]
    assert any("Write max_gap = 0.5; or kind = " in note for note in cut.notes)
    assert warned(whole)  # the noise is a hundred times that
    assert 'kind = "nadaraya-watson" has less noise: plan it' in whole.notes
    better = plan_files(spec_of({**NADARAYA, "bandwidth": [1.0]}, wide, 20_000, "1", 1, KNOTS), ())
    assert told(better)[0] < 0.5 * told(better)[1]


@pytest.mark.slow
def test_many_classes_stay_within_the_bounds():
    label = {"label": {"column": "label", "classes": list(range(100))}}
    target = {**BAYES, "bandwidth": [0.5]}
    for noise in ("laplace", "binned-laplace"):
        plan = plan_files(spec_of(target, label, 10**7, "1", 1, {**KNOTS, "noise": noise}), ())
        assert 0.9 < told(plan)[0] <= told(plan)[1] + 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "classes", "axes"),
    [({"kind": "gaussian-naive-bayes", "std_floor": [0.1, 0.1]}, 1000, 2),
     ({**BAYES, "bandwidth": [0.5]}, 300, 1), ({"kind": "logistic-regression"}, 300, 2)],
)  # fmt: skip
def test_what_would_take_long_to_predict_is_left_out_and_said(target, classes, axes, monkeypatch):
    monkeypatch.setattr(TypicalBayes, "unit", None)  # that records are made is seen
    label = {"label": {"column": "label", "classes": list(range(classes))}}
    given = KNOTS if "bandwidth" in target else {}
    plan = plan_files(spec_of(target, label, 10**6, "1", axes, given), ())
    assert any(note.startswith("no prediction: for so many classes") for note in plan.notes)


def test_there_is_no_prediction_of_a_loss_that_is_not_known(monkeypatch, tmp_path):
    (tmp_path / "own_hinge.py").write_text(
        "import numpy as np\ndef loss(labels, f):\n    raise RuntimeError\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    target = {**ERM, "loss": "own_hinge:loss", "lipschitz": 1.0, "at_zero": 1.0}
    plan = plan_files(spec_of(target, TWO, 1000, "1"), ())
    assert not any("predicted" in note for note in plan.notes)


@pytest.mark.sample(verify=4)
@pytest.mark.slow
@pytest.mark.parametrize("budget", ["poor", "good"])
@pytest.mark.parametrize("case", CASES)
def test_releases_of_typical_records_are_as_good_as_predicted(case, budget, project, monkeypatch):
    """In the mean of six releases; and where a plan warns, they are no better than a constant."""
    target, roles, axes, noise = CASES[case]
    n, epsilon = SIZES[budget].get(case, USUAL[budget])
    spec = project.local(spec_of(target, roles, n, epsilon, axes, noise))
    project.grant("10000")
    classes, bayes = (
        len(roles["label"]["classes"]) if "label" in roles else 0,
        "bayes" in str(target),
    )
    rng, privatize, risks = np.random.default_rng(3), mechanism.privatize, []
    unit, learned, _ = typical(rng, n, axes, classes, bayes=bayes)
    places, others = table(unit, learned, classes)
    project.write(places | others)
    unit, learned, known = typical(rng, 4000, axes, classes, bayes=bayes)
    places, _ = table(unit, learned, classes)
    plan = dbern.plan(spec)
    for draw in range(6):
        key = bytes([draw]) * 32
        monkeypatch.setattr(
            publish, "privatize",
            lambda center, start, law, _, whose, key=key: privatize(center, start, law, key, whose),
        )  # fmt: skip
        output = str(project.folder / f"{draw}.zarr")
        spec = spec.changed({"release": {"name": f"case{draw}", "output": output}})
        synopsis = dbern.release(spec).synopsis
        points = np.column_stack(list(places.values()))
        found = np.asarray(synopsis.predict(points) if classes else synopsis(points))
        if not classes:
            risks.append(16 * np.mean(((found - 1) / 4 - known) ** 2))
        elif bayes:
            risks.append(np.mean(found[known] != learned[known]))
        else:
            risks.append(1 - known[np.arange(len(known)), found.astype(int)].mean())
    (predicted, constant), observed = told(plan), float(np.mean(risks))
    assert warned(plan) == (budget == "poor")
    if budget == "poor":
        assert observed > 0.8 * constant
    else:
        assert observed < 0.9 * constant
    if classes:
        assert observed == pytest.approx(predicted, abs=0.07)
    elif budget == "good":
        assert predicted / 2 < observed < 2 * predicted
    else:
        assert predicted / 4 < observed < 4 * predicted
