"""Random DP is paid only by datasets that were first granted for it, and never looks like DP."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dbern.errors import BudgetError
from dbern.ledger import Request
from dbern.privacy.budget import Budget

TENTH = Fraction(1, 10)


def request(dataset, name="sampled", gamma=TENTH):
    return Request(dataset, name, Budget.parse("0.25"), gamma=gamma)


def test_random_dp_is_refused_by_default_and_leaves_nothing(ledger):
    with pytest.raises(BudgetError, match=r"RANDOM DP only \(gamma 0.1\).*--allow-random-dp") as no:
        ledger.reserve(request("trips"))
    assert no.value.exit_code == 3
    (status,) = ledger.status("trips")
    assert status.releases == ()
    assert status.remaining == status.granted
    assert ledger.log()[-1].event == "refused"


def test_random_dp_is_allowed_by_the_first_grant_alone(ledger):
    with pytest.raises(BudgetError, match="random DP allowed"):
        ledger.grant("trips", Budget.parse("1"), random_dp=True)
    ledger.grant("made", Budget.parse("1"), random_dp=True)
    ledger.grant("made", Budget.parse("1"))
    with pytest.raises(BudgetError, match="random DP allowed"):
        ledger.grant("made", Budget.parse("1"), random_dp=False)
    ledger.reserve(request("made"))
    ledger.reserve(request("made", "other", Fraction(1, 20)))
    ledger.reserve(request("made", "proved", None))
    ledger.abandon("made", "other")
    (status,) = ledger.status("made")
    assert status.terms.random_dp
    assert [row.gamma for row in status.releases] == [TENTH, Fraction(1, 20), None]
    assert status.gamma == TENTH  # what was refunded leaves nothing out
    assert ledger.log()[-4].detail["gamma"] == "1/10"


def test_random_dp_keeps_its_label_when_reconciled(ledger, found):
    ledger.grant("made", Budget.parse("1"), random_dp=True)
    ledger.reconcile([found(gamma=TENTH, dataset="made")])
    assert ledger.status("made")[0].gamma == TENTH
