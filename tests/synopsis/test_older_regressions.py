"""Regressions of older stores: quotients of two sums, each released for half of the budget."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
import reference
from banding import covers, drawn, planned
from shared import restated

from dbern.combination.responses import QuotientOfSums, QuotientsOfSums
from dbern.errors import SpecError
from dbern.measure.record_weights import UNIT_WEIGHT, ByCategory, InGroups, ResponseWeight
from dbern.planning.release_plan import ErrorForecast
from dbern.targets import NadarayaWatson, known
from dbern.targets.learner import response_of

POINTS = np.linspace(0, 1, 61)[:, None]


class Sums(NadarayaWatson):
    """The sum of responses and the number of rows, as arrays of their own."""

    kind: ClassVar[str] = "sums"

    def components(self, schema):
        weights, rows = ResponseWeight(response_of(schema)), UNIT_WEIGHT
        if schema.group is not None:
            weights, rows = InGroups(schema.group, weights), ByCategory(schema.group)
        sums = [("numerator", weights), ("denominator", rows)]
        return tuple(
            replace(
                self.kernel_sum(name, schema.domain, rule),
                output_fraction=Fraction(1, 2),
                counted_in="denominator",
            )
            for name, rule in sums
        )

    def combination(self, schema):
        bounds = {"low": schema.response.low, "high": schema.response.high}
        if schema.group is None:
            return QuotientOfSums(**bounds)
        return QuotientsOfSums(**bounds, classes=schema.group.categories)

    def predictions(self, schema, n, designs):
        del schema, n, designs
        return ()


@pytest.fixture(autouse=True)
def unforecast(monkeypatch):
    """Nothing is predicted of what nothing plans any more."""
    monkeypatch.setattr("dbern.planning.planner.forecast_errors", lambda *_: ErrorForecast())


def older(roles, draws, **data):
    with known(Sums):
        case = planned(1, 4000, 0.1, "binned-laplace", "2", roles, kind="sums")
    return list(drawn(case, data, range(draws)))


def mean_at(points, t, response, bandwidth=0.1):
    weights = reference.kernel("gaussian", points - t, bandwidth)
    return weights @ response / weights.sum(axis=1)


def test_an_older_store_has_values_intervals_and_questions_about_its_rows():
    t = np.random.default_rng(0).random(4000)
    response = np.sin(6 * t)
    synopses = older('{"response": {"column": "r", "bounds": [-2, 2]}}', 20, x=t, r=response)
    exact = mean_at(POINTS, t, response)
    for synopsis in synopses:
        combine = {**synopsis.metadata["combine"], "center": 0.2, "noise": 0.01}
        assert combine["kind"] == "ratio"
        synopsis = restated(synopsis, {**synopsis.metadata, "combine": combine})
        top, below = (array.values(POINTS, array.smoothing(), 61) for array in synopsis.arrays)
        pulled = 0.2 + (top - 0.2 * below) / (below + 0.02**2 / below)
        np.testing.assert_allclose(synopsis(POINTS), 2 * pulled)
        low, high = synopsis.interval(POINTS)
        assert ((low <= exact) & (exact <= high)).all()
        assert (high - low).max() < 1
    distribution = synopses[0].distribution()
    assert covers(distribution.mass({"x": (0.0, 0.3)}, beta=1e-6), np.mean(t < 0.3))
    with pytest.raises(SpecError, match="average: this release has neither"):
        distribution.average({"x": (0.0, 0.3)})


def test_groups_of_an_older_store_have_a_quotient_each():
    t = np.random.default_rng(1).random(4000)
    group = (np.arange(4000) % 2).astype(float)
    response = np.where(group > 0, 1.0, -1.0) * t
    roles = {"response": {"column": "r", "bounds": [-2, 2]}}
    roles["group"] = {"column": "who", "values": ["a", "b"]}
    (synopsis,) = older(json.dumps(roles), 1, x=t, r=response, who=group)
    assert synopsis.metadata["combine"]["kind"] == "ratios"
    exact = np.stack([mean_at(POINTS, t[group == g], response[group == g]) for g in (0, 1)], -1)
    low, high = synopsis.interval(POINTS)
    assert ((low <= exact) & (exact <= high)).all()
    assert np.abs(synopsis(POINTS) - exact).max() < 0.3
