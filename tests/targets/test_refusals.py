"""What a learner cannot release is refused with its key, and a sentence that says what to write."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from conformance import ADDED, CASES, LABEL, RESPONSE, THREE, UNPROVED, release_spec

import dbern
from dbern.planning.planner import plan_files

ERM = {"kind": "kernel-erm", "length_scale": [0.3]}
LINEAR = {"kind": "kernel-erm", "kernel": "linear"}
LOGISTIC = {"kind": "logistic-regression"}
DENSITY = {"kind": "kernel-density", "bandwidth": [0.2]}
OWN_LOSS = CASES["own loss"].target
OWN_KERNEL = {"kernel": "conformance:cosine", "length_scale": None}
GAPS = CASES["gaps"].target
BAYES = {"kind": "naive-bayes", "bandwidth": [0.15, 0.15], "floor": 0.0}
JOINT = {**BAYES, "release": "joint"}
NORMAL = {"kind": "gaussian-naive-bayes", "std_floor": [0.1, 0.1]}
ROUND = [[1.0, 0.0], [0.0, 1.0]]
PLANE = {"x": [0.0, 10.0], "y": [-1.0, 1.0]}
LISTS = {
    "x": [0.0, 1.0], "work": {"values": ["a", "b", "c"]}, "sex": {"values": ["f", "m"]},
    "y": [0.0, 1.0],
}  # fmt: skip
USERS = {"unit": {"column": "user", "max_contributions": 2}, "normalizer": "2"}

Row = tuple[dict[str, Any], dict[str, Any], str]


def of(
    learner: str, target: Mapping[str, Any], common: Mapping[str, Any], *rows: Row
) -> Iterator[Any]:
    """Rows of changes of a target (None leaves a key out), of the release, and of the sentence."""
    for number, (changes, more, sentence) in enumerate(rows):
        changed = {k: v for k, v in {**target, **changes}.items() if v is not None}
        yield pytest.param(changed, {**common, **more}, sentence, id=f"{learner} {number}")


SPECS = [
    *of("density", DENSITY, {"bounds": "x"},
        ({}, {"neighbors": "add-or-remove-one"}, r'^data\.normalizer: .*normalizer = "2000000"'),
        ({}, {**ADDED, "n": 10}, r"^data\.n: .*the number of rows is private"),
        ({}, {**ADDED, "normalizer": "1.5"}, r"^data\.normalizer: .*must be a whole number"),
        ({}, {**ADDED, "normalizer": "0"}, r"^data\.normalizer: .*must be a whole number"),
        ({}, {"unit": {"column": "x", "max_contributions": 3}, "normalizer": "4"},
         'the column "x" has two roles')),
    *of("covariance", {"kind": "kernel-density"}, {"bounds": PLANE, "n": 40},
        ({"covariance": [[1.0]]}, {},
         "^target.covariance: .*must have 2 rows of 2 numbers, in the order x, y"),
        ({"covariance": [[1.0, 0.1], [0.2, 1.0]]}, {}, "^target.covariance: .*is not symmetric"),
        ({"covariance": [[1.0, 1.0], [1.0, 1.0]]}, {},
         "^target.covariance: .*is not positive definite"),
        ({"covariance": [[-1.0, 0.0], [0.0, 1.0]]}, {},
         "^target.covariance: .*is not positive definite"),
        ({"covariance": [[1e-10, 0.0], [0.0, 1.0]]}, {},
         "^target.covariance: .*from 0.0001 to 10000 times"),
        ({"covariance": [[1.0, 0.0], [0.0, math.nan]]}, {},
         "^target.covariance: .*rite covariance = "),
        ({"covariance": 1.0}, {}, "^target.covariance: .*rite covariance = ")),
    *of("gaps", GAPS, {"bounds": "x", "response": RESPONSE, "n": 10},
        *(({"max_gap": gap}, {}, r"^target\.max_gap: .*[Ww]rite max_gap = ")
          for gap in (0.0, -1.0, 1e-9, 1.5, math.inf, "x")),
        ({"bandwidth": [0.25] * 2}, {"bounds": "xy"}, r"^data\.bounds: .*nadaraya-watson"),
        ({}, {"response": None}, r"^data\.response: is missing")),
    *(row for name, data in itertools.product(sorted(UNPROVED), (ADDED, USERS))
      for row in of(f"{name}, {min(data)}", CASES[name].target, {"bounds": "x", **data},
                    ({}, CASES[name].roles, "nothing is proved for this target"))),
    *of("risk", ERM, {"bounds": "x", "n": 10},
        ({"loss": "logistic", "length_scale": None}, {"label": LABEL}, r"target\.length"),
        ({"loss": "logistic"}, {}, r"data\.lab"),
        ({"loss": "square"}, {}, r"data\.response"),
        ({"loss": "square"}, {"response": RESPONSE, "label": LABEL}, r"data\.label: loss"),
        ({"loss": "hinge"}, {"response": RESPONSE, "label": LABEL}, r"data\.response: loss"),
        ({"loss": "hinge", "kernel": "linear"}, {"label": LABEL},
         r'target\.length_scale: is of kernel = "gaussian", .*, not of kernel = "linear"'),
        ({"loss": "log"}, {"label": LABEL}, r"target\.loss")),
    *of("linear", LOGISTIC, {"bounds": "x", "n": 10},
        ({"C": 0.0}, {"label": LABEL}, r"target\.C"),
        ({"shards": 0}, {"label": LABEL}, r"target\.shards"),
        ({"link": "sigmoid"}, {"label": THREE}, r"target\.link"),
        ({"kind": "ridge-regression"}, {"label": LABEL}, r"data\.label"),
        ({"kind": "ridge-regression", "method": "objective", "degree": 2}, {"response": RESPONSE},
         r'target\.degree: is of method = "auto" or "moments", not of method = "objective"'),
        ({"kind": "nadaraya-watson", "bandwidth": [0.1] * 60},
         {"bounds": [f"a{i}" for i in range(60)], "response": RESPONSE},
         r"^data\.bounds: 60 axes, and a lattice has")),
    *of("own loss", OWN_LOSS, {"bounds": "x", "n": 100, "response": RESPONSE},
        ({"loss": "nowhere:pinball"}, {},
         r'^target\.loss: "nowhere:pinball" cannot be imported'),
        ({"lipschitz": None}, {}, r"^target\.lipschitz: is missing .*. Write lipschitz = 1\.0"),
        ({"at_zero": None}, {}, r"^target\.at_zero: is missing"),
        ({"lipschitz": -1.0}, {}, r"^target\.lipschitz: "),
        ({"loss": "hinge"}, {}, r'^target\.lipschitz: is of loss = "module:name", not'),
        ({"loss": "cubic"}, {}, r'^target\.loss: "cubic" is unknown. Write one of "logistic"'),
        ({"kernel": "cauchy"}, {},
         r'^target\.kernel: "cauchy" is unknown. Write one of "gaussian"'),
        ({"kernel": "polynomial"}, {}, r'^target\.length_scale: is of kernel = '),
        ({"degree": 3}, {}, r"^target\.degree: "),
        ({"kernel_bound": 3.0}, {}, r"^target\.kernel_bound: "),
        (OWN_KERNEL, {}, r"^target\.kernel_bound: is missing"),
        ({**OWN_KERNEL, "kernel": "conformance:none", "kernel_bound": 1.0}, {},
         r'^target\.kernel: "conformance:none" cannot be imported'),
        ({"kernel": "laplace", "length_scale": None}, {}, r"^target\.length_scale: is missing")),
    *of("removed", {"kind": "kernel-density", "bandwidth": [0.5]}, {"bounds": {"t": [0.0, 24.0]}},
        ({"kind": "functional-mean"}, {}, r'^target.kind: "functional-mean" is no kind. Write a'),
        ({}, {"response": {"column": "load", "bounds": [-2.0, 3.0], "points": 9}},
         r"^data.response.points: no learner takes lists. Write a column for each")),
]  # fmt: skip


@pytest.mark.parametrize(("target", "release", "sentence"), SPECS)
def test_a_spec_that_cannot_be_is_refused(target, release, sentence):
    with pytest.raises(dbern.SpecError, match=sentence):
        release_spec(target, **{key: value for key, value in release.items() if value is not None})


def noise(name: str, **mechanism: Any) -> dict[str, Any]:
    return {"mechanism": {"noise": name, **mechanism}}


PLANS = [
    *of("private rows", DENSITY, {"bounds": "x", **ADDED},
        *(({}, noise(name, h=2), r'^mechanism\.noise: .* Write noise = "')
          for name in ("spectral-laplace", "laplace-advanced"))),
    *of("density", DENSITY, {"bounds": {"x": [-1.0, 3.0]}, "n": 10},
        ({}, {"delta": "1e-5", **noise("laplace")}, "budget.delta.*Write"),
        *(({}, {"delta": "0", **noise(name)}, "mechanism.noise.*Write")
          for name in ("discrete-gaussian", "laplace-advanced")),
        *(({"kernel": kernel}, {"delta": delta, **noise(f"spectral-{law}")},
           rf'^mechanism.noise: "spectral-{law}" is not for .*Write noise = "{plain}" or "auto"')
          for kernel in ("gaussian", "laplace")
          for law, delta, plain in (("laplace", "0", "laplace"),
                                    ("gaussian", "1e-5", "discrete-gaussian"))),
        ({}, {"delta": "1e-5", **noise("auto", calibration="paper")},
         "mechanism.calibration.*Write"),
        ({}, {"delta": "1e-5", **noise("laplace-advanced", calibration="paper")},
         "mechanism.calibration.*Write"),
        ({}, {"delta": "1e-16"}, "budget.delta.*Write"),
        ({}, {"delta": "1e-5", "n": 1000, "epsilon": "1000",
              **noise("laplace-advanced", k=12, h=3)}, r"mechanism.noise: .*not proved.*. Write"),
        ({"bandwidth": [0.3] * 3, "kernel": "triangle"},
         {"bounds": "xyz", **noise("laplace", k=150, h=2)},
         r"^mechanism\.k: too fine .*Write a smaller k")),
    *of("Bayes", BAYES, {"bounds": "xy", "n": 10, "label": LABEL},
        ({}, {"label": None}, r"data\.label: is missing. Write \[data\.label\]"),
        ({**JOINT}, {"label": THREE}, r'target\.release: "joint" is for two classes. Write rel'),
        *((JOINT, noise(name, h=2), r"mechanism\.noise: .*[Ww]rite noise = \"laplace\"")
          for name in ("spectral-laplace", "binned-laplace")),
        ({"floor": -1.0}, {}, r"target\.floor: .*[Ww]rite floor = 0\.01"),
        ({}, {"n": 10_000, "label": {"column": "label", "classes": list(range(1000))},
              **noise("laplace", h=2)}, r"objects and names of .* List fewer of them")),
    *of("Gaussian Bayes", NORMAL, {"bounds": "xy", "n": 10, "label": LABEL},
        ({}, {"label": None}, r"data\.label: is missing. Write \[data\.label\]"),
        ({"std_floor": [0.1]}, {}, r"target\.std_floor: has 1 entries"),
        ({"std_floor": [0.1, 9.0]}, {}, r"target\.std_floor: must be from"),
        ({"release": "joint"}, {}, r"target\.release: .*\"factored\"")),
    *of("risk", CASES["kernel logistic"].target, {"bounds": "x", "n": 50, "label": LABEL},
        ({}, noise("binned-laplace", h=1), r"mechanism\.noise"),
        ({}, {"n": 1, **noise("laplace", h=1)}, r"target\.shards"),
        ({"length_scale": [0.002] * 2}, {"bounds": "xy", "n": 1000, **noise("laplace", k=4, h=2)},
         r"target\.length_scale: too short"),
        ({**CASES["kernel polynomial"].target, "length_scale": None, "shards": None},
         {"bounds": "xy", "n": 100, **noise("spectral-laplace", k=64, h=2)},
         r"Write k = 63 or less, or noise = \"laplace\"")),
    *of("objective", {**LOGISTIC, "method": "objective"},
        {"bounds": "xy", "n": 2000, "label": LABEL},
        ({"method": None, "C": 1.0}, noise("spectral-laplace", h=1), r"mechanism\.noise"),
        ({"constant": 2.0}, {}, r'target\.constant: is of method = "auto" or "weights", not of'),
        ({"C": 1e6}, {"epsilon": "0.1"}, r"target\.C: too large"),
        ({}, {"delta": "1e-6"}, r'target\.method: "objective" is'),
        ({**LINEAR, "loss": "hinge", "kernel": "gaussian", "length_scale": [1.0] * 2}, {},
         r"target\.method: an"),
        ({**LINEAR, "loss": "logistic", "constant": 2.0}, {},
         r'target\.constant: is of method = "auto" or "weights", not of')),
    *of("lists", LOGISTIC, {"bounds": LISTS, "n": 20_000, "label": LABEL},
        ({"method": "weights"}, {}, r'target\.method: .* Write method = "objective"'),
        ({"shards": 2}, {}, r"target\.constant, target\.shards"),
        ({}, {"delta": "1e-6"}, r"budget\.delta: linear functions with lists"),
        ({**LINEAR, "loss": "hinge", "kernel": "gaussian", "length_scale": [1.0] * 4}, {},
         r"data\.bounds: an objective, and lists")),
    *of("least squares", {"kind": "ridge-regression", "method": "moments"},
        {"bounds": "xy", "n": 10_000, "response": RESPONSE},
        *(({key: 3}, {}, rf'{key}: is of method = "auto" or "weights", not of method = "moments"')
          for key in ("constant", "shards")),
        ({"method": "auto", "degree": 2, "shards": 3}, {}, r'are of method = "weights". Leave')),
]  # fmt: skip


@pytest.mark.parametrize(("target", "release", "sentence"), PLANS)
def test_a_plan_that_cannot_be_is_refused(target, release, sentence):
    release = {key: value for key, value in release.items() if value is not None}
    with pytest.raises(dbern.SpecError, match=sentence):
        plan_files(release_spec(target, **release), ())
