"""Shares of a probability of failure: they sum to it, and are what bounds are made with."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dbern.certify import failure
from dbern.certify.failure import FailureBudget

BUDGETS = {name: one for name, one in vars(failure).items() if isinstance(one, FailureBudget)}


def leaves(budget, beta):
    """The shares that no other budget deals out."""
    for name in budget.percent:
        within = budget.within.get(name)
        yield from [budget[name] * beta] if within is None else leaves(within, budget[name] * beta)


@pytest.mark.parametrize("name", BUDGETS)
def test_all_that_may_fail_together_is_beta(name):
    assert sum(leaves(BUDGETS[name], Fraction(1, 20))) == Fraction(1, 20)


@pytest.mark.parametrize("percent", [{"one": 60, "other": 50}, {"one": 100, "other": 0}])
def test_more_than_there_is_or_nothing_is_no_share(percent):
    with pytest.raises(ValueError, match="sum to one"):
        FailureBudget(percent)


def test_a_budget_prints_its_shares_and_what_they_are_made_of():
    budget = FailureBudget({"values": 80, "rest": 20}, {"values": failure.SIMULATION})
    assert [*budget.lines(Fraction(1, 20))] == [
        "  0.04     values",
        "    0.0384   quantile",
        "    0.0016   draws",
        "  0.01     rest",
    ]
