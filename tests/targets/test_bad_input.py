"""Records that tell nothing: every learner that is tried first answers, or says what to write."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import dbern
from dbern.combination.responses import LeastSquares
from dbern.planning.planner import plan_files

ROWS = 60
BOUNDS = {"x": [0.0, 1.0], "y": [0.0, 1.0]}
LISTED = {"data__bounds__c": {"values": ["a", "b", "c"]}}
LONG = {"data__bounds__c": {"values": [*"abcdefghijklmnop"]}}
LABEL = {"data__label": {"column": "label", "classes": ["no", "yes"]}}
RESPONSE = {"data__response": {"column": "r", "bounds": [-1.0, 1.0]}}
LATTICE = {"mechanism": {"k": 4, "h": 1, "noise": "laplace"}}
VECTOR = {"mechanism": {"k": None, "h": None, "noise": None}}
BAYES = {"kind": "naive-bayes", "bandwidth": [0.2, 0.2]}
LEARNERS = {
    "ridge": ({"kind": "ridge-regression", "method": "moments"}, RESPONSE | VECTOR),
    "ridge, lists": ({"kind": "ridge-regression"}, RESPONSE | VECTOR | LONG),  # by objective
    "ridge, lists, moments": (
        {"kind": "ridge-regression", "method": "moments"}, RESPONSE | VECTOR | LISTED
    ),
    "ridge, degree 2": ({"kind": "ridge-regression", "degree": 2}, RESPONSE | VECTOR),
    "ridge, weights": ({"kind": "ridge-regression", "method": "weights"}, RESPONSE | VECTOR),
    "logistic": ({"kind": "logistic-regression"}, LABEL | VECTOR),
    "logistic, weights": ({"kind": "logistic-regression", "method": "weights"}, LABEL | VECTOR),
    "Gaussian": ({"kind": "gaussian-naive-bayes", "std_floor": [0.01, 0.01]}, LABEL | VECTOR),
    "Gaussian, lists": (
        {"kind": "gaussian-naive-bayes", "std_floor": [0.01, 0.01]}, LABEL | VECTOR | LISTED
    ),
    "Bayes": (BAYES, LABEL | LATTICE),
    "Bayes, lists": (BAYES, LABEL | LATTICE | LISTED),
    "Bayes, joint": (BAYES | {"release": "joint"}, LABEL | LATTICE),
}  # fmt: skip
FAST = {("ridge, lists", "one row"), ("Gaussian", "one class")}


def fine() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    x, y = rng.uniform(0, 1, (2, ROWS))
    label = np.where(x + 0.3 * rng.normal(size=ROWS) > 0.5, "yes", "no")
    return {
        "x": x,
        "y": y,
        "r": np.clip(x - y, -1, 1),
        "label": label,
        "c": rng.choice([*"abc"], ROWS),
    }


BAD = {
    "constant columns": lambda found: found | {"x": np.full(ROWS, 0.5), "y": np.ones(ROWS)},
    "constant response": lambda found: found | {"r": np.zeros(ROWS)},
    "fewer rows than columns": lambda found: {name: own[:2] for name, own in found.items()},
    "one row": lambda found: {name: own[:1] for name, own in found.items()},
    "one class": lambda found: found | {"label": np.full(ROWS, "yes")},
    "separable": lambda found: found | {"label": np.where(found["x"] > 0.5, "yes", "no")},
    "wide bounds": lambda found: found | {name: found[name] / 1000 for name in ("x", "y", "r")},
    "not listed": lambda found: found | {"c": np.full(ROWS, "elsewhere")},
    "missing": lambda found: found | {"x": np.full(ROWS, math.nan)},
}


def answered(project, client, columns, target, sections, points):
    project.write(columns, files=1)
    project.grant("1")
    given = project.spec(
        **{"data__bounds": BOUNDS, "target": {"bandwidth": None, **target}} | sections
    )
    released = dbern.release(given, client=client)
    warnings = [note for note in dbern.plan(given).notes if note.startswith("WARNING")]
    assert list(released.notes) == warnings  # a note of a plan is soon out of sight
    synopsis = released.synopsis
    values = synopsis(points)
    assert np.isfinite(np.asarray(values, dtype=float)).all()
    if "data__label" in sections:
        assert set(np.asarray(synopsis.predict(points)).tolist()) <= {"no", "yes"}
    elif isinstance(synopsis.combination, LeastSquares):
        found = synopsis.regression()
        assert np.isfinite([*found.coefficients.values(), found.intercept]).all()
        assert all(low < high for low, high in found.intervals.values())


@pytest.mark.parametrize(
    ("learner", "bad"),
    [
        pytest.param(*one, marks=() if one in FAST else pytest.mark.slow)
        for one in itertools.product(LEARNERS, BAD)
    ],
)
def test_bad_input_has_an_answer(project, client, learner, bad):
    target, sections = LEARNERS[learner]
    points = {name: own[:5] for name, own in fine().items() if name in ("x", "y")}
    points |= {"c": np.array([*"abcab"])} if "lists" in learner else {}
    answered(project, client, BAD[bad](fine()), target, sections, points)


ERM = {"kind": "kernel-erm", "length_scale": [0.3, 0.3]}
FLAT = {"kind": "kernel-erm", "kernel": "linear"}


ODD = (5e-324, 1e-310, 1e-200, 1e-12, 1e200, 1e308)


@pytest.mark.slow
def test_lengths_far_from_what_is_predicted_are_refused(project):
    """In place of a division by what underflows, or of steps without number."""
    cases = [
        ({**FLAT, "loss": "hinge"}, LABEL, "width"),
        ({**ERM, "loss": "hinge"}, LABEL, "width"),
        ({"kind": "support-vector-machine", "length_scale": [0.3, 0.3]}, LABEL, "width"),
        ({**FLAT, "loss": "huber"}, RESPONSE, "threshold"),
        ({**ERM, "loss": "huber"}, RESPONSE, "threshold"),
        ({**ERM, "loss": "epsilon-insensitive"}, RESPONSE, "width"),
        ({**ERM, "loss": "epsilon-insensitive"}, RESPONSE, "tube"),
        ({**ERM, "loss": "logistic"}, LABEL, "C"),
        ({**ERM, "loss": "square"}, RESPONSE, "C"),
        ({"kind": "logistic-regression"}, LABEL, "C"),
        ({"kind": "ridge-regression", "method": "weights"}, RESPONSE, "C"),
    ]
    for (target, roles, key), odd in itertools.product(cases, ODD):
        large = key == "C" and odd > 1  # then a length scale or an epsilon may be what is refused
        given = {"bandwidth": None, **target, key: odd}
        told = "^(target|budget)" if large else rf"target\.{key}: "
        with pytest.raises(dbern.SpecError, match=told):
            plan_files(project.spec(**roles | VECTOR, data={"n": 1000}, target=given), ())
