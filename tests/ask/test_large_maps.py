"""Questions to maps whose noise is too much to simulate: the tail of its law answers them."""

from __future__ import annotations

import numpy as np
import pytest
from banding import covers
from questioned import OF_RESPONSES, OF_TWO, QUESTIONS, asked, databases, responding

from dbern.ask import bins, quotients

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")

ROWS = databases(2, 2000)["clustered"]
POPULATION = {
    "mean": lambda d: d.mean("x", population=True),
    "boxes": lambda d: d.mass([{"x": (0.2, 0.5)}, {"y": (0.1, 0.6)}], population=True),
    "marginal": lambda d: d.marginal([0.3, 0.5], "x", given={"y": (0.1, 0.7)}, population=True),
    "median": lambda d: d.quantile(0.5, "y", population=True),
}


def mostly_slow(questions, *quick):
    slow = [name for name in questions if name not in quick]
    return [*quick, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]


@pytest.fixture
def without_draws(monkeypatch):
    """Any map is too large to simulate its noise."""
    monkeypatch.setattr(bins, "_simulate_noise", bins._simulate_noise.__wrapped__)
    monkeypatch.setattr(bins, "_NOISE_NUMBERS", 1)


@pytest.mark.parametrize("question", mostly_slow(QUESTIONS | OF_TWO, "mean", "marginal"))
def test_what_is_not_simulated_is_answered_by_the_tail(without_draws, question):
    d = asked(ROWS)
    assert not d.measures[0].noise.size
    ask, truth = (QUESTIONS | OF_TWO)[question]
    assert covers(ask(d), truth(*ROWS.T))


@pytest.mark.parametrize("question", mostly_slow(OF_RESPONSES, "curve"))
def test_responses_too(without_draws, question):
    ask, truth = OF_RESPONSES[question]
    x = databases(1, 2000)["clustered"]
    assert covers(ask(responding(x, x[:, 0])), truth(x[:, 0], x[:, 0]))


@pytest.mark.parametrize("question", mostly_slow(POPULATION, "mean"))
def test_of_a_population_too_and_not_much_wider(monkeypatch, without_draws, question):
    ask = POPULATION[question]
    by_tail = ask(asked(ROWS))
    monkeypatch.undo()
    drawn = ask(asked(ROWS))
    assert np.all((by_tail.low <= drawn.value) & (drawn.value <= by_tail.high))
    assert np.all(by_tail.high - by_tail.low < 2.5 * (drawn.high - drawn.low))


def test_boxes_of_a_population_that_are_not_laid_out_at_once_are_answered_in_parts(monkeypatch):
    """A box of a map with more bins than are laid out at once was refused as too many boxes."""
    ask, d = POPULATION["boxes"], asked(ROWS)
    whole = ask(d)
    monkeypatch.setattr(quotients, "BATCH_NUMBERS", 20)
    parts = ask(d)
    for part, end in ((parts.low, whole.low), (parts.high, whole.high)):
        np.testing.assert_allclose(part, end, rtol=0, atol=1e-12)
