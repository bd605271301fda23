"""What a ledger refuses and keeps, whichever database it is in."""

from __future__ import annotations

import dataclasses
import sqlite3

import pytest

from dbern.errors import EnvironmentRefusedError, IntegrityError
from dbern.ledger import BudgetLedger
from dbern.ledger.opening import backend_of
from dbern.privacy.budget import Budget
from dbern.report.budgets import history

OPENINGS = [BudgetLedger.open, BudgetLedger.create]


def test_creating_twice_is_harmless_and_says_so(ledger, held, url):
    assert BudgetLedger.create(url) is False
    assert ledger.find("trips", "density") == held


def test_a_database_that_is_no_ledger_is_left_alone(empty_url, execute):
    with pytest.raises(EnvironmentRefusedError, match="dbern ledger init"):
        BudgetLedger.open(empty_url)
    execute("CREATE TABLE mine (a int)")
    for opens in OPENINGS:
        with pytest.raises(EnvironmentRefusedError, match="no ledger"):
            opens(empty_url)


@pytest.mark.parametrize("version", ["2", "7"])
def test_another_schema_is_refused(url, execute, version):
    execute(f"UPDATE meta SET value = '{version}' WHERE key = 'schema'")
    for opens in OPENINGS:
        with pytest.raises(EnvironmentRefusedError, match=f"schema {version}") as refused:
            opens(url)
        assert refused.value.exit_code == 4


def test_a_read_only_ledger_refuses_every_change(ledger, held, url, ask):
    with BudgetLedger.open(url, read_only=True) as looking:
        assert looking.status() == ledger.status()
        assert not looking.is_pending()
        for change in (
            lambda: looking.grant("trips", Budget.parse("1")),
            lambda: looking.reserve(ask("other")),
            lambda: looking.begin_reading(held),
            lambda: looking.abandon("trips", "density"),
        ):
            with pytest.raises(EnvironmentRefusedError, match="read-only"):
                change()
    assert ledger.find("trips", "density") == held


def test_a_locked_ledger_is_refused_after_the_timeout(ledger, url, ask):
    with backend_of(url).write():
        with pytest.raises(EnvironmentRefusedError, match="another process holds it"):
            BudgetLedger.open(url, busy_timeout=0.05)
        with BudgetLedger.open(url, read_only=True, busy_timeout=0.05) as looking:
            assert looking.find("trips", "density") is None
    ledger.reserve(ask())


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("DELETE FROM audit", "audit refuses"),
        ("UPDATE audit SET event = ''", "audit refuses"),
        ("DELETE FROM grants", "grants refuses"),
        ("UPDATE grants SET created = ''", "grants refuses"),
        ("DELETE FROM datasets", "datasets refuses"),
        ("UPDATE datasets SET created = ''", "datasets refuses"),
        ("DELETE FROM releases", "releases refuses DELETE"),
        ("UPDATE releases SET state = 'free'", "releases refuses UPDATE"),
        ("UPDATE releases SET epsilon = '0'", "releases refuses UPDATE"),
        ("UPDATE meta SET value = 'x' WHERE key = 'ledger_id'", "meta refuses UPDATE"),
        ("DELETE FROM meta", "meta refuses DELETE"),
    ],
)
def test_written_rows_stay_written(held, database, execute, statement, refusal):
    drivers = sqlite3 if database == "sqlite" else pytest.importorskip("psycopg")
    with pytest.raises(drivers.IntegrityError, match=refusal):
        execute(statement)


def test_the_database_refusing_a_change_is_an_integrity_error(ledger, held, url):
    refused = pytest.raises(IntegrityError, match="grants refuses UPDATE")
    with refused, backend_of(url).write() as connection:
        connection.exec_driver_sql("UPDATE grants SET epsilon = '100'")


def test_every_event_is_in_the_audit_log(ledger, held, advance, execute):
    advance(held, "committed")
    events = execute("SELECT event, dataset, name, release_id FROM audit ORDER BY id")
    names = ["grant", "reserve", "reading", "spent", "committed"]
    assert [event[0] for event in events] == names
    assert set(events[1:]) == {(n, "trips", "density", held.release_id) for n in names[1:]}


def test_a_refused_change_leaves_no_audit_line(ledger, held, execute):
    with pytest.raises(IntegrityError):
        ledger.spend(held, bytes(32))
    assert len(execute("SELECT * FROM audit")) == 2


def test_amounts_are_stored_as_exact_text(ledger, execute, ask):
    ledger.reserve(ask(epsilon="1/3"))
    assert execute("SELECT epsilon, delta FROM releases") == [("1/3", "0")]


@pytest.mark.parametrize("text", ["1e-400000000", "1e400000000", "1/0", "nan", "-1", "0x1", ""])
@pytest.mark.parametrize("column", ["epsilon", "delta", "rho"])
def test_amounts_of_rows_are_read_as_those_of_specs(ledger, held, execute, database, column, text):
    """`Fraction` itself would compute ten to the four hundred million."""
    drop = {"sqlite": "DROP TRIGGER releases_no_update"}
    execute(drop.get(database, "ALTER TABLE releases DISABLE TRIGGER USER"))
    execute(f"UPDATE releases SET {column} = '{text}'")
    with pytest.raises(IntegrityError, match=f"the {column} of a row is not an exact number"):
        ledger.status("trips")


def test_amounts_of_grants_are_read_as_those_of_specs(ledger, held, execute):
    columns = "dataset, delta, created, epsilon"
    values = "SELECT dataset, delta, created, '1e-400000000' FROM grants"
    execute(f"INSERT INTO grants ({columns}) {values}")
    with pytest.raises(IntegrityError, match="the epsilon of a row is not an exact number"):
        ledger.status("trips")


def test_amounts_of_the_audit_log_are_read_as_those_of_specs(ledger, held):
    status = ledger.status("trips")
    grant, *_ = ledger.log("trips")
    damaged = dataclasses.replace(grant, detail={**grant.detail, "epsilon": "1e-400000000"})
    with pytest.raises(IntegrityError, match="the epsilon of a row is not an exact number"):
        history([damaged], status[0])
