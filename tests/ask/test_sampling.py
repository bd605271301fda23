"""Answers for the population that rows were drawn from: by the normal law, of enough rows."""

from __future__ import annotations

import numpy as np
import pytest
from questioned import asked

from dbern.ask import question
from dbern.errors import SpecError

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")

REFUSED = "fewer than 10 rows.*leave population out"


def rare_rows(rng):
    """300 rows, each with probability 0.003 of a rare kind."""
    return np.where(rng.uniform(size=(300, 1)) < 0.003, 0.9, 0.1)


@pytest.mark.slow
def test_few_rows_are_refused_where_the_normal_law_does_not_cover(monkeypatch):
    rng, covered = np.random.default_rng(5), 0
    for key in range(60):
        d = asked(rare_rows(rng), key + 1, epsilon=1e5)
        with monkeypatch.context() as patch:
            patch.setattr(question, "FEW_ROWS", 0)
            answer = d.cdf(0.75, population=True)
        covered += answer.low <= 0.997 <= answer.high
        with pytest.raises(SpecError, match=REFUSED):
            d.cdf(0.75, population=True)
    assert covered < 48


def test_answers_about_a_population_say_by_which_law():
    d = asked(np.random.default_rng(1).uniform(size=(5000, 2)))
    of_rows, of_population = d.mean("x"), d.mean("x", population=True)
    assert "population" not in str(of_rows)
    assert ", 95 % sure for the population, sampling errors taken as normal)" in str(of_population)
    assert of_population.to_dataset().attrs["interval"] == "population"


FEW = {
    "mean": lambda d: d.mean("x", given={"y": (0.2, 0.7)}, population=True),
    "quantile": lambda d: d.quantile([0.1, 0.5], "x", population=True),
    "density": lambda d: d.density([[0.5, 0.5]], population=True),
    "marginal": lambda d: d.marginal([0.5], "x", population=True),
    "count": lambda d: d.count({"x": (0.2, 0.5)}, population=True),
    "mass": lambda d: d.mass({"x": (0.2, 0.5)}, population=True),
}


@pytest.mark.parametrize("kind", FEW)
def test_a_population_of_few_rows_is_refused_and_the_rows_are_answered(kind):
    rng = np.random.default_rng(1)
    with pytest.raises(SpecError, match=REFUSED):
        FEW[kind](asked(rng.uniform(size=(20, 2)), epsilon=1e4))
    FEW[kind](asked(rng.uniform(size=(5000, 2)), epsilon=1e4))


def test_a_refusal_names_the_first_region_of_few_rows():
    """Rows that noise leaves open are no reason: what is not normal of them hardly counts."""
    rows = np.repeat([[0.1], [0.4], [0.9]], [150, 147, 3], axis=0)
    regions = [{"x": (None, 0.25)}, {"x": (0.75, None)}]
    with pytest.raises(SpecError, match=r"population: the answer of region 1 may be of fewer"):
        asked(rows, epsilon=1e4).mass(regions, population=True)
    assert asked(rows, epsilon=1.0).mass(regions, population=True).interval == "population"


def test_the_expected_count_of_as_many_rows_is_wider_than_the_count():
    d = asked(np.random.default_rng(1).uniform(size=(5000, 1)))
    count, expected = d.count({"x": (0.2, 0.4)}), d.count({"x": (0.2, 0.4)}, population=True)
    assert (expected.low, expected.high) != (count.low, count.high)
    assert expected.high - expected.low > count.high - count.low
    assert expected.low <= 1000 <= expected.high
    assert expected.question.startswith("expected rows in x 0.2 to 0.4")
