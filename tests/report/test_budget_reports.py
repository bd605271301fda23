"""``dbern report --ledger``: the history that it draws ends at what the ledger says."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from pages_read import read

from dbern.ledger import BudgetLedger, Request
from dbern.privacy.budget import Budget
from dbern.report.budgets import _drawing, history, ledger_page

pytestmark = pytest.mark.slow

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def clock(monkeypatch):
    """The ledger's time, to be set."""
    time = ["2026-01-05T09:00:00+00:00"]
    monkeypatch.setattr("dbern.ledger.tables.now", lambda: time[0])
    return time


@pytest.fixture
def ledger(tmp_path, clock):
    url = f"sqlite:///{tmp_path}/ledger.db"
    BudgetLedger.create(url)
    with BudgetLedger.open(url) as opened:
        yield opened


def release(ledger, dataset, name, epsilon, steps=3):
    made = ledger.reserve(Request(dataset, name, Budget.parse(epsilon)))
    for step in (
        ledger.begin_reading,
        lambda one: ledger.spend(one, b"x" * 32),
        lambda one: ledger.commit(one, "ab"),
    )[:steps]:
        made = step(made)
    return made


def changes(ledger, dataset):
    (status,) = ledger.status(dataset)
    return history(ledger.log(dataset), status), status


def test_budget_history_has_a_moment_for_each_change(ledger, clock):
    ledger.grant("city", Budget.parse("3"))
    release(ledger, "city", "done", "0.5")
    clock[0] = "2026-02-01T00:00:00+00:00"
    release(ledger, "city", "given-back", "1", steps=0)
    ledger.abandon("city", "given-back")
    release(ledger, "city", "given-up", "0.25", steps=1)
    ledger.abandon("city", "given-up")
    ledger.grant("city", Budget.parse("2"))
    release(ledger, "city", "waiting", "0.7", steps=0)
    moments, status = changes(ledger, "city")
    found = [(one.granted, one.reserved, one.spent) for one in moments]
    assert list(dict.fromkeys(found)) == [
        (3, 0, 0), (3, 0.5, 0), (3, 0, 0.5), (3, 1, 0.5), (3, 0.25, 0.5), (3, 0, 0.75),
        (5, 0, 0.75), (5, 0.7, 0.75),
    ]  # fmt: skip
    assert moments[-1].granted == status.granted.epsilon
    assert Fraction(str(moments[-1].reserved)) == status.reserved.epsilon
    assert moments[-1].spent == status.spent.epsilon


def test_a_zcdp_account_counts_rhos(ledger):
    ledger.grant("city", Budget.parse("1", "1e-6"), accountant="zcdp")
    release(ledger, "city", "one", "0.1")
    moments, status = changes(ledger, "city")
    assert moments[-1].granted == float(status.granted.rho)
    assert moments[-1].spent == float(status.spent.rho) == 0.005


def test_a_period_begins_with_nothing_used(ledger, clock):
    ledger.grant("city", Budget.parse("1"), period="month")
    release(ledger, "city", "january", "0.75")
    clock[0] = "2026-02-05T09:00:00+00:00"
    release(ledger, "city", "february", "0.5")
    moments, _ = changes(ledger, "city")
    assert [one.spent for one in moments][-1] == 0.5
    assert max(one.spent for one in moments) == 0.75


def test_the_page_says_what_the_ledger_says(ledger):
    ledger.grant("city", Budget.parse("3"))
    ledger.grant(EVIL, Budget.parse("1"))
    release(ledger, "city", "trips", "0.5")
    release(ledger, EVIL, EVIL, "0.25", steps=0)
    page = read(ledger_page(ledger.status(), ledger.log(), pending=True))
    for said in ("trips", "committed", "epsilon 0.5", "epsilon 2.5", EVIL, "restored or copied"):
        assert said in page.words
    assert len(page.images()) == 2
    again = ledger_page(ledger.status(), ledger.log(), pending=True)
    assert again == page.text
    assert "restored or copied" not in read(ledger_page(ledger.status(), ledger.log())).words


def test_ticks_are_times_that_can_be_read_and_the_day_is_as_in_the_tables(ledger, clock):
    ledger.grant("city", Budget.parse("3"))
    clock[0] = "2026-01-05T09:03:30+00:00"
    release(ledger, "city", "trips", "0.5")
    drawing = _drawing(0, history(ledger.log("city"), ledger.status("city")[0]), "ε")
    for form, max_ticks in (("wide", 8), ("narrow", 6)):
        times = re.findall(r">(\d\d:\d\d(?::\d\d)?)<", drawing[form])
        assert 2 <= len(times) <= max_ticks
        assert ">2026-01-05<" in drawing[form]


def test_a_ledger_without_grants_has_a_page_too(ledger):
    assert "No budget was granted yet" in read(ledger_page([], ledger.log())).words


def test_the_command_reports_one_dataset_or_all(project, run):
    with project.ledger() as ledger:
        ledger.grant("other", Budget.parse("1"))
    assert run("report", "--ledger", project.url, "--out", "all.html").out == "wrote all.html\n"
    ran = run("report", "--ledger", project.url, "--dataset", "trips")
    assert ran.out == "wrote budgets.html\n"
    every, one = (
        read((project.folder / name).read_text()).words for name in ("all.html", "budgets.html")
    )
    assert "other" in every
    assert "other" not in one
