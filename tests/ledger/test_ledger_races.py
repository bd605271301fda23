"""Many processes on one ledger: nothing is overspent, nothing is lost."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dbern.errors import BudgetError
from dbern.ledger import BudgetLedger, Request
from dbern.privacy.budget import Budget

SPEND = """
import sys
from dbern.errors import BudgetError
from dbern.ledger import BudgetLedger, Request
from dbern.privacy.budget import Budget
url, who, count, epsilon = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
won = 0
for number in range(count):
    with BudgetLedger.open(url, busy_timeout=300) as ledger:
        try:
            held = ledger.reserve(Request("shared", f"{who}-{number}", Budget.parse(epsilon)))
        except BudgetError:
            continue
        assert len(ledger.key(held)) == 32
        ledger.spend(ledger.begin_reading(held), bytes(32))
        won += 1
print(won)
"""

SAME = """
import sys
from dbern.ledger import BudgetLedger, Request
from dbern.privacy.budget import Budget
with BudgetLedger.open(sys.argv[1], busy_timeout=300) as ledger:
    held = ledger.reserve(Request("shared", "one", Budget.parse("1")))
    with ledger.lock(held):
        held = ledger.find("shared", "one")
        if held.state == "committed":
            print("found", held.release_id)
        else:
            held = ledger.spend(ledger.begin_reading(held), bytes(32))
            ledger.commit(held, "digest")
            print("worked", held.release_id)
"""


def spend_at_once(url, python, processes, count, epsilon):
    started = [python(SPEND, url, str(who), str(count), epsilon) for who in range(processes)]
    results = [process.communicate(timeout=300) for process in started]
    assert [errors for _, errors in results] == [""] * processes
    with BudgetLedger.open(url) as ledger:
        (status,) = ledger.status("shared")
    assert sum(int(output) for output, _ in results) == len(status.releases)
    return status


@pytest.mark.slow
def test_160_spends_from_8_processes_use_the_grant_exactly(url, keys_held, python):
    with BudgetLedger.open(url) as ledger:
        ledger.grant("shared", Budget.parse("1"))
    status = spend_at_once(url, python, 8, 20, "1/57")
    assert status.spent == Budget(Fraction(1))
    assert len(status.releases) == 57
    assert keys_held() == {row.release_id for row in status.releases}


@pytest.mark.slow
def test_64_spends_from_8_processes_keep_a_zcdp_grant(url, python):
    with BudgetLedger.open(url) as ledger:
        ledger.grant("shared", Budget.parse("1", "1e-6"), accountant="zcdp")
    status = spend_at_once(url, python, 8, 8, "0.03")
    assert len(status.releases) == 54  # rho 0.024356 of 0.00045 each
    assert 0 <= status.remaining.rho < Fraction("0.00045")


@pytest.mark.slow
def test_spends_at_once_keep_a_zcdp_grant(url, python):
    with BudgetLedger.open(url) as ledger:
        ledger.grant("shared", Budget.parse("1", "1e-6"), accountant="zcdp")
    status = spend_at_once(url, python, 2, 5, "0.08")
    assert len(status.releases) == 7  # rho 0.024356 of 0.0032 each
    assert status.spent.rho == 7 * Fraction("0.0032")


@pytest.mark.slow
def test_clients_on_one_release_take_turns(url, python):
    with BudgetLedger.open(url) as ledger:
        ledger.grant("shared", Budget.parse("1"))
    processes = [python(SAME, url) for _ in range(4)]
    results = [process.communicate(timeout=300) for process in processes]
    assert [errors for _, errors in results] == [""] * 4
    words = sorted(output.split()[0] for output, _ in results)
    assert words == ["found", "found", "found", "worked"]
    assert len({output.split()[1] for output, _ in results}) == 1
    with BudgetLedger.open(url) as ledger, pytest.raises(BudgetError):
        ledger.reserve(Request("shared", "two", Budget.parse("1e-9")))
