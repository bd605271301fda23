"""Every sensitivity is searched for a counterexample: one table of statistics and neighbours.

Records are at every edge of what a spec allows (`dbern.testing.search`), where `test_neighbors` has
some that suit each learner, on more axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from conformance import ADDED, CASES, LABEL, RESPONSE, UNPROVED, USERS, Case, release_spec

import dbern
from dbern.targets import learner_of
from dbern.testing import search

LISTS = {
    "x": [0.0, 10.0], "y": [-1.0, 1.0], "state": {"values": ["NY", "CA", "TX"]},
    "kind": {"values": [1, 2]},
}  # fmt: skip
LISTS_ALONE = {"state": LISTS["state"], "kind": LISTS["kind"]}
ONE_LIST = {"x": [0.0, 10.0], "kind": {"values": [1, 2]}}
VECTOR = ("laplace", "discrete-gaussian")

MEASUREMENTS = {
    **{name: (case, "x") for name, case in CASES.items()},
    "density of any bandwidth": (
        Case({"kind": "kernel-density", "bandwidth": "auto"}, noises=("binned-laplace",)), "x",
    ),
    "density of rounded rows": (
        replace(CASES["density"], roles={"resolution": {"x": 0.25}}), "x",
    ),
    "least squares of lists": (
        replace(CASES["least squares"], noises=VECTOR, reached=0.6), LISTS,
    ),
    "least squares of products": (
        Case({"kind": "ridge-regression", "degree": 2}, {"response": RESPONSE}, noises=VECTOR,
             reached=0.4, linear=True), ONE_LIST,
    ),
    "bayes of lists": (
        Case({"kind": "naive-bayes", "bandwidth": [2.0, 0.4]}, {"label": LABEL},
             noises=("laplace",), reached=0.6), LISTS,
    ),
    "bayes-gaussian of lists": (
        Case({"kind": "gaussian-naive-bayes", "std_floor": [0.5, 0.1]}, {"label": LABEL},
             noises=VECTOR, reached=0.6, linear=True), LISTS,
    ),
    "least squares of lists alone": (
        replace(CASES["least squares"], noises=VECTOR, reached=0.6), LISTS_ALONE,
    ),
    "bayes of lists alone": (
        Case({"kind": "naive-bayes", "bandwidth": []}, {"label": LABEL}, noises=VECTOR,
             reached=0.6, linear=True), LISTS_ALONE,
    ),
    "bayes-gaussian of lists alone": (
        Case({"kind": "gaussian-naive-bayes", "std_floor": []}, {"label": LABEL}, noises=VECTOR,
             reached=0.6, linear=True), LISTS_ALONE,
    ),
}  # fmt: skip
RELATIONS = {
    "replaced": {"n": 2},
    "added": ADDED,
    "replaced unit": {"neighbors": "replace-one", **USERS},
    "added unit": {"neighbors": "add-or-remove-one", **USERS},
}
FAST = ("density", "least squares", "bayes-gaussian")


def rows() -> Iterator[tuple[str, str, str]]:
    """Relation, statistic and noise: of units, and of added records, the first noise alone."""
    for relation in RELATIONS:
        for name, (case, _) in MEASUREMENTS.items():
            if relation == "replaced":
                yield from ((relation, name, noise) for noise in case.noises)
            elif name not in UNPROVED:
                yield relation, name, case.noises[0]


ROWS = [
    pytest.param(*row, marks=[] if row[1] in FAST else pytest.mark.slow, id="-".join(row))
    for row in rows()
]


def spec_of(relation: str, name: str, noise: str) -> dbern.ReleaseSpec:
    case, bounds = MEASUREMENTS[name]
    if bounds == "x":
        k = {} if case.linear or case.target.get("bandwidth") == "auto" else {"k": 9}
        return case.spec(1, 2, noise, rows=RELATIONS[relation], **k)
    mechanism = {"noise": noise} | ({} if case.linear else {"k": 6, "h": 1})
    return release_spec(
        case.target, bounds, mechanism=mechanism, **case.roles, **RELATIONS[relation]
    )


@pytest.mark.sample(verify=16)
@pytest.mark.parametrize(("relation", "name", "noise"), ROWS)
def test_a_search_finds_no_counterexample(relation, name, noise):
    """What is solved for is diluted by the other rows of a unit's neighbours."""
    case, _ = MEASUREMENTS[name]
    found = search(learner_of(case.target["kind"]), spec_of(relation, name, noise))
    least = case.reached * (0.5 if "unit" in relation else 1.0)
    assert least * (0.5 if "gaussian" in noise else 1.0) < found.largest <= 1, str(found)


@pytest.mark.parametrize("name", ["density", "bayes-gaussian of lists", "logistic"])
def test_a_bound_of_a_third_is_found(name, monkeypatch):
    """Planted in the law, so that it is of every statistic."""
    spec = spec_of("replaced", name, "laplace")
    kind = learner_of(MEASUREMENTS[name][0].target["kind"])
    assert not search(kind, spec).found
    right = dbern.testing._sensitivity
    third = lambda planned: (right(planned)[0], right(planned)[1] / 3)  # noqa: E731
    monkeypatch.setattr("dbern.testing._sensitivity", third)
    assert search(kind, spec).found
