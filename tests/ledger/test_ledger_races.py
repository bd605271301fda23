"""Many processes on one ledger: nothing is overspent, nothing is lost."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dbern.errors import BudgetError
from dbern.ledger import BudgetLedger, Request
from dbern.privacy.budget import Budget

AT_ONCE = """
import os, sys
import sqlalchemy.dialects.postgresql.psycopg, sqlalchemy.dialects.sqlite
from dbern.errors import BudgetError
from dbern.ledger import BudgetLedger, Request
from dbern.privacy.budget import Budget
url, processes, *given = sys.argv[1:]
{}
for who in range(int(processes)):
    if not os.fork():  # of a process that has imported everything, and opened nothing
        os.write(1, f"{work(who)}\\n".encode())  # whole
        os._exit(0)
for _ in range(int(processes)):
    assert os.wait()[1] == 0
"""

CREATE = """
def work(_who):
    return BudgetLedger.create(url)
"""

SPEND = """
def work(who):
    count, epsilon = int(given[0]), given[1]
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
    return won
"""

SAME = """
def work(_who):
    with BudgetLedger.open(url, busy_timeout=300) as ledger:
        held = ledger.reserve(Request("shared", "one", Budget.parse("1")))
        with ledger.lock(held):
            held = ledger.find("shared", "one")
            if held.state == "committed":
                return f"found {held.release_id}"
            held = ledger.spend(ledger.begin_reading(held), bytes(32))
            ledger.commit(held, "digest")
            return f"worked {held.release_id}"
"""


def at_once(python, work, url, processes, *given):
    """What so many processes say that do the same work on one ledger."""
    process = python(AT_ONCE.replace("{}", work), url, str(processes), *map(str, given))
    said, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    assert len(said.splitlines()) == processes
    return said.splitlines()


def spend_at_once(url, python, grant, processes, count, epsilon):
    with BudgetLedger.open(url) as ledger:
        ledger.grant("shared", grant, accountant="zcdp" if grant.delta else "basic")
    won = at_once(python, SPEND, url, processes, count, epsilon)
    with BudgetLedger.open(url) as ledger:
        (status,) = ledger.status("shared")
    assert sum(map(int, won)) == len(status.releases)
    return status


@pytest.mark.slow
def test_clients_that_create_a_ledger_at_once_make_one(empty_url, python):
    assert sorted(at_once(python, CREATE, empty_url, 3)) == ["False", "False", "True"]


@pytest.mark.sample(verify=1)
@pytest.mark.slow
def test_80_spends_from_8_processes_use_the_grant_exactly(url, keys_held, python):
    status = spend_at_once(url, python, Budget.parse("1"), 8, 10, "1/57")
    assert status.spent == Budget(Fraction(1))
    assert len(status.releases) == 57
    assert keys_held() == {row.release_id for row in status.releases}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "count", "epsilon", "rho", "fit"),
    [(8, 4, "0.045", Fraction("0.0010125"), 24), (2, 5, "0.08", Fraction("0.0032"), 7)],
)
def test_spends_at_once_keep_a_zcdp_grant(url, python, processes, count, epsilon, rho, fit):
    """Its rho is 0.024356."""
    status = spend_at_once(url, python, Budget.parse("1", "1e-6"), processes, count, epsilon)
    assert len(status.releases) == fit
    assert status.spent.rho == fit * rho
    assert 0 <= status.remaining.rho < rho


@pytest.mark.slow
def test_clients_on_one_release_take_turns(url, python):
    with BudgetLedger.open(url) as ledger:
        ledger.grant("shared", Budget.parse("1"))
    said = [line.split() for line in at_once(python, SAME, url, 4)]
    assert sorted(word for word, _ in said) == ["found", "found", "found", "worked"]
    assert len({release for _, release in said}) == 1
    with BudgetLedger.open(url) as ledger, pytest.raises(BudgetError):
        ledger.reserve(Request("shared", "two", Budget.parse("1e-9")))
