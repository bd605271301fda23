from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from questioned import asked
from scipy.stats import binom, poisson

from dbern.synopsis.questions import population as module
from dbern.synopsis.questions.band import Band
from dbern.synopsis.questions.population import levels_of_rows, population_band

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")

BETA = Fraction(1, 20)


def least_coverage(rows, *, shares, factor=1.0):
    """Of all expectations, how probable those counts are whose interval has it."""
    counts = np.arange(rows + 1.0)
    band = Band.without_cells(*[counts / rows] * 3)
    ends = population_band(band, rows * factor, BETA * (rows + 1), shares=shares)  # each at beta
    low, high = ends[1:3]
    most = 1.0 if shares else 0.3
    p = np.linspace(1e-6, most - 1e-6, 500)[:, None]
    law = binom.pmf(counts, rows, p) if shares else poisson.pmf(counts, rows * p)
    return (law * ((low <= p) & (p <= high))).sum(axis=1).min()


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 60])
def test_what_rows_were_drawn_from_is_covered_whatever_their_law(rows, shares):
    if shares or rows == 60:
        assert least_coverage(rows, shares=shares) >= 0.95


def test_more_rows_than_there_are_are_caught():
    assert least_coverage(60, shares=True, factor=3.0) < 0.93


def test_ranks_of_a_quantile_are_covered():
    levels = np.array([0.02, 0.5, 0.97])
    low, high = levels_of_rows(levels, 50, BETA)
    counts = np.arange(51) / 50
    missed = [
        binom.pmf(np.arange(51), 50, level)[(counts < a - 1e-12) | (counts > b + 1e-12)].sum()
        for level, a, b in zip(levels, low, high, strict=True)
    ]
    assert sum(missed) <= 0.05
    assert levels_of_rows(levels, 0, BETA)[1].tolist() == [1, 1, 1]


def rare(draws):
    """How many of so many intervals have the share of a rare kind of rows, and of their law."""
    rng, covered, laws = np.random.default_rng(5), 0, set()
    for key in range(draws):
        rows = np.where(rng.uniform(size=(300, 1)) < 0.003, 0.9, 0.1)
        answer = asked(rows, key + 1, epsilon=1e5).cdf(0.75, population=True)
        covered += answer.low <= 0.997 <= answer.high
        laws.add(answer.law)
    return covered, laws


@pytest.mark.slow
def test_few_rows_are_covered_where_the_normal_law_does_not(monkeypatch):
    assert rare(60) == (pytest.approx(60, abs=3), {"any"})
    monkeypatch.setattr(module, "FEW_ROWS", 0)
    covered, laws = rare(60)
    assert covered < 48
    assert laws == {"normal"}


def test_answers_about_a_population_say_by_which_law():
    rng = np.random.default_rng(1)
    d = asked(rng.uniform(size=(5000, 2)))
    assert d.mean("x").law is None
    assert ", 95 % sure for the population, sampling errors taken as normal)" in str(
        d.mean("x", population=True)
    )
    few = asked(rng.uniform(size=(20, 2)), epsilon=1e4)
    for answer in [
        few.mean("x", given={"y": (0.2, 0.3)}, population=True),
        few.quantile([0.1, 0.5], "x", population=True),
        few.density([[0.5, 0.5]], population=True),
        few.marginal([0.5], "x", population=True),
        few.count({"x": (0.2, 0.5)}, population=True),
        few.mass([{"x": (0.2, 0.5)}, {"x": (0.9, None)}], population=True),
    ]:
        assert answer.law == "any"
        assert "population, of any law" in str(answer)
        assert answer.to_dataset().attrs["law"] == "any"
        assert np.all(answer.low <= answer.value)
        assert np.all(answer.value <= answer.high)


def test_the_expected_count_of_as_many_rows_is_wider_than_the_count():
    d = asked(np.random.default_rng(1).uniform(size=(5000, 1)))
    count, expected = d.count({"x": (0.2, 0.4)}), d.count({"x": (0.2, 0.4)}, population=True)
    assert (expected.low, expected.high) != (count.low, count.high)
    assert expected.high - expected.low > count.high - count.low
    assert expected.low <= 1000 <= expected.high
    assert expected.question.startswith("expected rows in x 0.2 to 0.4")
