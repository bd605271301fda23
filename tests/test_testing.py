"""The search that a stranger's learner is put through: it passes right ones and catches wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from pydantic import Field
from strategies import sections

import dbern
from dbern.data.domain import Column
from dbern.measure.kernel_sums import KernelSum
from dbern.reconstruct.base import SensitivityBound
from dbern.targets import KernelDensity, Learner, Lengths, NadarayaWatson, axis_kernels, kinds
from dbern.testing import _adversarial_records, search

DENSITY = {
    "data": {"bounds": {"x": [0.0, 10.0]}},
    "target": {"bandwidth": [2.0]},
    "mechanism": {"k": 9, "h": 2, "noise": "laplace"},
}
REGRESSION = {**DENSITY, "data": {**DENSITY["data"], "response": {"column": "y", "bounds": [0, 4]}}}


def changed(**sections):
    changes = {name: {**DENSITY.get(name, {}), **keys} for name, keys in sections.items()}
    return {**DENSITY, **changes}


@dataclass(frozen=True)
class Amount:
    """A record's weight is its response, which a right rule clamps."""

    column: Column
    most: float
    clamped: bool
    outputs: int = 1
    signed: bool = False

    @property
    def columns(self):
        return (self.column,)

    def __call__(self, records):
        values = records[self.column.name]
        known = np.isfinite(values) & (np.abs(values) < 100)
        weights = np.where(known, np.abs(values), 0.0) / self.most
        return known, None, np.minimum(weights, 1.0) if self.clamped else weights


class Amounts(Learner):
    """The density of records, weighted by their response."""

    kind: ClassVar[str] = "amounts"
    uses: ClassVar[tuple[str, ...]] = ("response",)
    clamped: ClassVar[bool] = True

    bandwidth: Lengths = Field(description="bandwidth = [0.5]")

    def components(self, schema):
        kernels = axis_kernels(schema.domain, self.bandwidth, "bandwidth", "gaussian")
        rule = Amount(schema.response.column, schema.response.high, self.clamped)
        return (KernelSum("amounts", schema.domain, kernels, rule),)


class Unclamped(Amounts):
    """The same, wrong: what the spec says of the response is not what is counted."""

    kind: ClassVar[str] = "unclamped"
    clamped: ClassVar[bool] = False


@pytest.mark.slow
def test_a_strangers_learner_passes_and_is_forgotten():
    found = search(Amounts, REGRESSION)
    assert not found.found
    assert 0.5 < found.largest <= 1
    assert found.pairs > 10_000
    assert str(found).startswith("no counterexample among ")
    assert "amounts" not in kinds()


def test_a_strangers_wrong_learner_is_caught():
    found = search(Unclamped, REGRESSION)
    assert found.found
    assert found.largest > 1
    values = [record["y"] for database in found.worst for record in database]
    assert max(values) > 4  # beyond the bounds: that is what is wrong
    assert "COUNTEREXAMPLE" in str(found)


NOISES = ["laplace", "discrete-gaussian", "laplace-advanced"]


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("noise", NOISES)
def test_a_bound_of_half_is_caught_with_every_norm(noise, monkeypatch):
    delta = {} if noise == "laplace" else {"budget": {"delta": "1e-6"}}
    budget = {"epsilon": "1", "ledger": "sqlite:///l.db", "dataset": "d", **delta.get("budget", {})}
    spec = changed(mechanism={"noise": noise}, budget=budget)
    right = search(KernelDensity, spec).largest
    assert 0.5 < right <= 1
    moved, function = KernelSum.sensitivity, KernelSum.function_sensitivity.fget
    half = lambda *a: replace(moved(*a), value=moved(*a).value / 4)  # noqa: E731
    monkeypatch.setattr(KernelSum, "sensitivity", half)
    quarter = property(lambda one: function(one) / 4)
    monkeypatch.setattr(KernelSum, "function_sensitivity", quarter)
    assert search(KernelDensity, spec).found


PRIVATE = [
    {"neighbors": "add-or-remove-one"},
    {"unit": {"column": "user", "max_contributions": 3}},
    {"neighbors": "add-or-remove-one", "unit": {"column": "user", "max_contributions": 3}},
]


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("data", PRIVATE, ids=["added", "unit", "added unit"])
def test_every_neighbouring_relation_is_searched(data, monkeypatch):
    spec = changed(data=data)
    assert 0.5 < search(KernelDensity, spec).largest <= 1
    monkeypatch.setattr("dbern.measure.statistic.RecordSum.sensitivity", third_of_one_row)
    assert search(KernelDensity, spec).found


def third_of_one_row(self, strategy, norm):
    bound = self.move(strategy, norm, added=self.protection.added)
    return SensitivityBound(bound.value / 3, "planted")


@pytest.mark.slow
def test_a_spec_is_searched_with_two_records():
    target = {"kind": "nadaraya-watson", "bandwidth": [2.0]}
    data, mechanism = {"n": 10**6, **REGRESSION["data"]}, REGRESSION["mechanism"]
    spec = dbern.ReleaseSpec(**sections(data=data, target=target, mechanism=mechanism))
    found = search(NadarayaWatson, spec)
    assert 0.5 < found.largest <= 1
    assert spec.data.n == 10**6


def test_records_are_at_every_edge():
    data = {"bounds": {"x": [0.0, 1.0], "y": [2.0, 4.0]},
            "label": {"column": "l", "classes": ["a", "b", "c"]}}  # fmt: skip
    target = {"kind": "naive-bayes", "bandwidth": [0.2, 0.2]}
    spec = dbern.ReleaseSpec(**sections(data=data, target=target))
    records = _adversarial_records(spec.records)
    assert len(records) <= 250
    for name, low, high in (("x", 0.0, 1.0), ("y", 2.0, 4.0)):
        found = {record[name] for record in records}
        edges = {low, high, math.inf, -math.inf, 1e300, -1e300}
        edges |= {math.nextafter(end, to) for end in (low, high) for to in edges}
        assert edges <= found
        assert any(math.isnan(value) for value in found)
    assert {str(record["l"]) for record in records} == {"0.0", "1.0", "2.0", "nan"}
