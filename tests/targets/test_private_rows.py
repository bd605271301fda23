"""Where the number of rows is private: plans, full shards, refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from conformance import ADDED, CASES

import dbern
from dbern.bernstein.kernels import kernel_of
from dbern.data.domain import Axis, Domain
from dbern.data.footers import Footer
from dbern.erm.risk import Risk
from dbern.measure.accumulator import most_rows
from dbern.measure.kernel_sums import KernelSum
from dbern.measure.statistic import Statistic
from dbern.planning.planner import plan_files
from dbern.privacy.budget import Neighbors, PrivacyUnit, Protection

UNIT = {"unit": {"column": "user", "max_contributions": 2}, "normalizer": "2"}


def planned(files=(), **data):
    return plan_files(CASES["density"].spec(1, 2, "laplace", rows={**ADDED, **data}), files)


@pytest.mark.slow
def test_add_or_remove_costs_half():
    for name, noise in (("machine", "laplace"), ("regression", "binned-laplace")):
        stated = {"C": 1.0} if name == "machine" else {}
        case = replace(CASES[name], target={**CASES[name].target, **stated})
        public = plan_files(case.spec(1, 10**6, noise, k=20), ())
        spec = case.spec(1, 2, noise, rows={**ADDED, "normalizer": "1000000"}, k=20)
        ratio = plan_files(spec, ()).noise.scale / public.noise.scale
        assert ratio == pytest.approx(0.5, rel=0.05)


def test_the_plan_does_not_know_the_number_of_rows():
    plans = [planned(files=[Footer("/a", 1 + n, (n,))]).to_dict() for n in (0, 1, 10**6)]
    assert plans[0] == plans[1] == plans[2]
    plan = planned()
    assert "n" not in plan.to_dict()
    assert dbern.ReleasePlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert "one row added or removed" in plan.explain(details=True)


def test_more_rows_than_integers_hold_are_refused():
    assert planned(files=[Footer("/a", 1, (2**31, 2**31))])
    with pytest.raises(dbern.SpecError, match=r"^data\.source: more than 4294967296 rows"):
        planned(files=[Footer("/a", 1, (2**31, 2**31, 1))])


@pytest.mark.parametrize("noise", ["laplace", "binned-laplace"])
def test_the_most_rows_there_can_be_stay_within_the_bounds(noise):
    """Their sums are those of one record, times their number: no integer overflows."""
    spec = CASES["density"].spec(1, 2, noise, rows=ADDED, k=9)
    plan = plan_files(spec, ())
    counters = plan.counters(spec)
    one = counters.count([{"x": np.array([0.5])}], bytes(32))
    total = one * most_rows(2)
    assert (total // most_rows(2) == one).all()
    (slab,) = plan.strategy.layout.slabs()
    value = counters.to_values(total, 0, 0, slab)
    accumulator = counters.parts[0]
    assert np.abs(value).max() <= accumulator.errors.value_bound
    law = plan.noise.law
    assert accumulator.errors.value_bound < math.ldexp(2.0**62, law.granularity_exponent)


@pytest.mark.usefixtures("noiseless")
def test_no_rows_at_all_are_a_database(project, client):
    project.write({"x": np.zeros(0), "y": np.zeros(0)})
    spec = project.spec(
        data={"neighbors": "add-or-remove-one", "normalizer": "100"}, budget={"dataset": "rides"}
    )
    with pytest.raises(dbern.BudgetError, match=r"--neighbors add-or-remove-one$"):
        dbern.release(spec, client=client)
    with project.ledger() as ledger:
        ledger.grant("rides", spec.charge, neighbors=dbern.Neighbors.ADD_OR_REMOVE_ONE)
    synopsis = dbern.release(spec, client=client).synopsis
    assert synopsis.metadata["target"]["normalizer"] == 100
    assert synopsis.metadata["neighbors"] == "add-or-remove-one"
    assert "n" not in synopsis.metadata["target"]
    assert (synopsis(np.array([[5.0, 0.0]])) == 0).all()
    assert synopsis.band() > 0


@pytest.mark.parametrize(("data", "key"), [(ADDED, "neighbors"), (UNIT, "unit")])
def test_a_learner_about_which_nothing_is_proved_is_refused(monkeypatch, data, key):
    """Such as one of another package, whose statistic knows replaced rows alone."""

    class Unproved(KernelSum):
        protected = Statistic.protected

    monkeypatch.setattr("dbern.targets.smoother.KernelSum", Unproved)
    with pytest.raises(dbern.SpecError, match=rf"^data\.{key}: nothing is proved .*. Write "):
        CASES["density"].spec(1, 2, "laplace", rows=data)
    assert CASES["density"].spec(1, 2, "laplace").components


SIDE = Domain((Axis("x", 0.0, 1.0),))
PEOPLE = Protection(Neighbors.ADD_OR_REMOVE_ONE, PrivacyUnit("person", 5))


def test_what_bins_choose_from_moves_by_as_many_rows():
    kernels = [KernelSum("density", SIDE, (kernel_of("gaussian", width),)) for width in (0.1, 0.2)]
    chosen = replace(kernels[0], candidates=tuple(kernels)).protected(PEOPLE, None)
    moves = [one.function_sensitivity for one in kernels]
    assert [one.function_sensitivity for one in chosen.candidates] == pytest.approx(
        [5 * move for move in moves]
    )


# --- weights of full shards --------------------------------------------------------------------


def full(counts, label=1.0):
    """Weights of one shard of records at one place, as many as say, and how far they may move."""
    spec = CASES["logistic"].spec(1, 2, "laplace", rows={**ADDED, "normalizer": "1"})
    component = spec.components[0].bind(1, spec.charge)
    points = component.space.points(np.array([[1.0], [1.0]]))
    labels = np.array([1.0, label])
    found = [component.fitted(points, labels, np.array(some))[1][:, 0] for some in counts]
    risk = component.risk
    assert (
        max(np.linalg.norm(one) for one in found) <= risk.shard_bounds(risk.bounds.max_weight).norm
    )
    return found, risk.bounds.sensitivity / 2 + 2 * component.bounds.distance


def largest_step(label):
    counts = [(float(c), float(more)) for c in range(0, 140, 3) for more in (0, 1)]
    found, bound = full(counts, label)
    pairs = zip(found[::2], found[1::2], strict=True)
    return max(float(np.linalg.norm(one - other)) for one, other in pairs) / bound


@pytest.mark.parametrize("label", [1.0, -1.0])
def test_a_record_moves_a_shard_no_further_however_full_it_is(label):
    assert 0.3 < largest_step(label) <= 1


def test_a_shard_cut_off_at_once_is_caught(monkeypatch):
    """Planted: full weight up to some number of rows, and none beyond."""
    monkeypatch.setattr(Risk, "relative_weight", lambda _self, rows: float(rows <= 30))
    assert largest_step(1.0) > 1


def test_a_statistic_that_spends_less_than_nothing_is_refused(monkeypatch):
    """What it spends before its values are computed would hide a fraction of the budget."""

    class Hidden(KernelSum):
        objective_fraction = Fraction(-1, 2)

    monkeypatch.setattr("dbern.targets.smoother.KernelSum", Hidden)
    with pytest.raises(dbern.SpecError, match="spends less than 0"):
        plan_files(CASES["density"].spec(1, 2, "laplace"), ())
