"""Answers for the population that rows were drawn from: by the normal law, of enough rows."""

from __future__ import annotations

import numpy as np
import pytest
from questioned import asked, grouped, responding

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


def of_response(n):
    """A regression of responses at 0 and 1 on y, of which x below 0.3 has 3 of 10 rows."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(size=(n, 2))
    return responding(rows, (rows[:, 1] > rng.uniform(size=n)) * 1.0, epsilon=1e4)


def of_groups(n):
    rng = np.random.default_rng(1)
    rows = rng.uniform(size=(n, 2))
    return grouped(rows, (rows[:, 1] > rng.uniform(size=n)) * 1, epsilon=1e4)


FEW = {
    "mean": lambda d: d.mean("x", given={"y": (0.2, 0.7)}, population=True),
    "quantile": lambda d: d.quantile([0.1, 0.5], "x", population=True),
    "density": lambda d: d.density([[0.5, 0.5]], population=True),
    "marginal": lambda d: d.marginal([0.5], "x", population=True),
    "count": lambda d: d.count({"x": (0.2, 0.5)}, population=True),
    "mass": lambda d: d.mass({"x": (0.2, 0.5)}, population=True),
    "smoothed mass": lambda d: d.mass(
        {"x": (0.2, 0.5)}, given={"y": (0.2, 0.7)}, target="smoothed", population=True
    ),
    "smoothed quantile": lambda d: d.quantile(0.4, "x", target="smoothed", population=True),
    "var": lambda d: d.var("x", given={"y": (0.0, 0.2)}, population=True),
    "std": lambda d: d.std("x", given={"y": (0.0, 0.2)}, population=True),
    "cov": lambda d: d.cov("x", "y", population=True),
    "correlation": lambda d: d.correlation("x", "y", population=True),
}
FEW_RESPONSES = {
    "curve": lambda d: d.curve([[0.3, 0.3]], population=True),
    "curve along": lambda d: d.curve_along([0.2, 0.5], "x", population=True),
    "average": lambda d: d.average({"x": (0.0, 0.3)}, population=True),
    "difference": lambda d: d.difference({"x": (0.0, 0.3)}, {"x": (0.3, 1.0)}, population=True),
}


@pytest.mark.parametrize("kind", FEW)
def test_a_population_of_few_rows_is_refused_and_the_rows_are_answered(kind):
    rng = np.random.default_rng(1)
    with pytest.raises(SpecError, match=REFUSED):
        FEW[kind](asked(rng.uniform(size=(20, 2)), epsilon=1e4))
    FEW[kind](asked(rng.uniform(size=(5000, 2)), epsilon=1e4))


@pytest.mark.parametrize("kind", FEW_RESPONSES)
@pytest.mark.parametrize("release", [of_response, of_groups])
def test_means_of_responses_of_few_rows_are_refused_of_a_population(kind, release):
    with pytest.raises(SpecError, match=REFUSED):
        FEW_RESPONSES[kind](release(20))
    FEW_RESPONSES[kind](release(5000))


def test_groups_of_few_rows_do_not_differ_in_a_population():
    def between(n):
        return of_groups(n).difference({"x": (0.0, 0.3)}, groups=(0, 1), population=True)

    with pytest.raises(SpecError, match=REFUSED):
        between(20)
    between(5000)


@pytest.mark.slow
def test_a_variance_that_few_rows_make_is_refused_where_the_normal_law_does_not_cover(monkeypatch):
    rng, covered = np.random.default_rng(0), 0
    for key in range(60):
        d = asked(rare_rows(rng), key + 1, epsilon=1e5)
        with monkeypatch.context() as patch:
            patch.setattr(question, "FEW_ROWS", 0)
            answer = d.var("x", population=True)
        covered += answer.low <= 0.003 * 0.997 * 0.8**2 <= answer.high
        with pytest.raises(SpecError, match=REFUSED):
            d.var("x", population=True)
    assert covered < 48


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
