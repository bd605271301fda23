"""What is promised of any database is worth something, or is said to be empty: every learner."""

from __future__ import annotations

import re

import numpy as np
import pytest
from banding import synopsis_of
from scipy.optimize import minimize
from scipy.special import logsumexp
from strategies import plan_of, spec_of

from dbern.erm.perturbed import CONSTANT_FEATURE
from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.targets import kinds

_AXES = {"x": [0.0, 10.0], "y": [0.0, 1.0]}
_LABEL = {"label": {"column": "k", "classes": ["a", "b"]}}
_THREE = {"label": {"column": "k", "classes": ["a", "b", "c"]}}
_RESPONSE = {"response": {"column": "r", "bounds": [0.0, 8.0]}}
_LISTED = {"bounds": {**_AXES, "v": {"values": ["p", "q"]}}}
_WIDE = {"bandwidth": [0.5, 0.1]}
_ORACLE = {"kind": "oracle", "function": "goldens.functions:share", "sensitivity": 0.1,
           "bounds": [-1.0, 3.0], "on_failure": 0.0}  # fmt: skip
_EVERY = [
    ({"kind": "kernel-density", **_WIDE}, {}),
    ({"kind": "kernel-density", "bandwidth": "auto"}, {}),
    ({"kind": "nadaraya-watson", **_WIDE}, _RESPONSE),
    ({"kind": "priestley-chao", "bandwidth": [0.5], "max_gap": 0.1},
     {**_RESPONSE, "bounds": {"x": [0.0, 10.0]}}),
    *(({"kind": "support-vector-machine", "length_scale": [3.0, 0.3], "C": cost}, labels)
      for cost in (1.0, 2.0) for labels in (_LABEL, _THREE)),
    *(({"kind": "naive-bayes", **_WIDE}, labels) for labels in (_LABEL, _THREE)),
    ({"kind": "gaussian-naive-bayes", "std_floor": [1.0, 0.1]}, _LABEL),
    *(({"kind": "kernel-erm", "loss": "logistic", "kernel": kernel, **more}, _LABEL)
      for kernel, more in (("gaussian", {"length_scale": [3.0, 0.3]}), ("arc-cosine", {}),
                           ("polynomial", {}), ("linear", {}))),
    *(({"kind": "logistic-regression", **more}, _LABEL)
      for more in ({}, {"method": "weights"}, {"link": "sigmoid"}, {"C": 2000.0})),
    ({"kind": "logistic-regression"}, _THREE),
    ({"kind": "logistic-regression"}, _LABEL | _LISTED),
    *(({"kind": "ridge-regression", "method": method}, _RESPONSE)
      for method in ("moments", "objective", "weights")),
    *(({**_ORACLE, "smoothness": smoothness}, {})
      for smoothness in ("linear", {"holder": [9.0, 0.5]}, {"derivatives": 2, "bound": 9.0})),
]  # fmt: skip


def _planned(target, data) -> ReleasePlan:
    return plan_of(data={"bounds": _AXES, **data}, target=target, budget={"epsilon": "0.1"})


def test_every_learner_is_asked_what_it_promises():
    assert {target["kind"] for target, _ in _EVERY} >= set(kinds())


@pytest.mark.slow
@pytest.mark.parametrize(("target", "data"), _EVERY)
def test_a_promise_is_less_than_a_constant_makes_or_is_said_to_be_empty(target, data):
    """The printed number, against half of what the function's values can be."""
    told = _planned(target, data).promises
    assert told.extent is not None
    half = (told.extent[1] - told.extent[0]) / 2
    words = dict(told.lines())["any database"]
    if (found := re.match(r"no value is off by more than ([0-9.e+-]+)", words)) is not None:
        assert float(found[1].rstrip(",")) < half
    else:
        assert words.startswith("empty: ")
        assert re.search(r"; (write|go by|some databases) ", words)


@pytest.mark.parametrize("labels", [_LABEL, _THREE])
def test_no_perturbed_function_leaves_the_extent_that_is_told(labels):
    """All records in one corner and of one class, solved without the random term."""
    planned = _planned({"kind": "logistic-regression"}, labels)
    low, high = planned.promises.extent
    weight, classes = planned.components[0].counting["weight"], len(labels["label"]["classes"])
    corner = np.array([1.0] * len(_AXES) + [CONSTANT_FEATURE])

    def objective(weights):
        scores = np.append(weights.reshape(-1, len(corner)) @ corner, 0.0)
        return 1000 * weight * (logsumexp(scores) - scores[0]) + weights @ weights / 2

    found = minimize(objective, np.zeros((classes - 1) * len(corner)), method="BFGS").x
    scores = np.append(found.reshape(-1, len(corner)) @ corner, 0.0)
    scores = scores[:1] if classes == 2 else scores - scores.mean()
    assert low <= scores.min() <= scores.max() <= high
    assert scores.max() > high / 5


@pytest.mark.parametrize(
    ("kind", "data"),
    [("logistic-regression", _LABEL), ("logistic-regression", _THREE),
     ("ridge-regression", _RESPONSE)],
)  # fmt: skip
def test_what_is_to_mend_an_empty_promise_mends_it(kind, data):
    by_objective = _planned({"kind": kind, "method": "objective"}, data).promises
    assert by_objective.empty
    assert dict(by_objective.lines())["any database"].endswith(
        '; write method = "weights" under target'
    )
    assert not _planned({"kind": kind, "method": "weights"}, data).promises.empty


def test_a_release_tells_the_same_extent_and_what_mends_its_promise():
    target = {"kind": "logistic-regression", "method": "objective"}
    spec = spec_of(data={"bounds": _AXES, "source": None, **_LABEL}, target=target)
    plan = plan_files(spec, ())
    weights = {"weights": np.zeros(3, dtype=np.int64)}
    told = synopsis_of(spec, plan, weights).promises()
    assert tuple(told.extent) == plan.promises.extent
    words = dict(told.lines())["any database"]
    assert words.endswith('; release with method = "weights" under target')


@pytest.mark.parametrize(("method", "empty"), [("moments", False), ("objective", True)])
def test_only_a_function_s_certificate_is_called_empty(method, empty):
    """That of moments is of their own numbers, whatever a function of them promises."""
    plan = _planned({"kind": "ridge-regression", "method": method}, _RESPONSE)
    (line,) = (
        one for one in plan.explain(details=True).splitlines() if one.startswith("certificate")
    )
    assert plan.promises.empty
    assert ("empty" in line) == empty
