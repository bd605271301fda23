"""The slot of a first migration: a ledger of this schema goes on in a next one, or in no other."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from dbern.errors import BudgetError, EnvironmentRefusedError
from dbern.ledger import BudgetLedger, State, tables
from dbern.privacy.budget import Budget

NEXT = str(int(tables.VERSION) + 1)
STATEMENTS = ("CREATE TABLE added (value VARCHAR)", "INSERT INTO added VALUES ('new')")


@pytest.fixture
def database():
    return "sqlite"


@pytest.fixture
def later(monkeypatch):
    """A later version of dbern, whose schema has a table more."""

    def become(*statements):
        monkeypatch.setattr(tables, "VERSION", NEXT)
        monkeypatch.setattr(tables, "_MIGRATIONS", {str(int(NEXT) - 1): statements})

    return become


def content(path):
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("version", ["1", "3", NEXT, ""])
def test_a_ledger_of_another_schema_is_refused_and_left_alone(ledger, path, url, version):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema'", [version])
    before = content(path)
    for read_only in (True, False):
        with pytest.raises(EnvironmentRefusedError, match="Use the version of dbern that wrote it"):
            BudgetLedger.open(url, read_only=read_only)
    assert content(path) == before


@pytest.mark.parametrize("read_only", [True, False])
def test_an_old_ledger_opens_with_all_it_held(ledger, held, path, url, later, read_only):
    before = ledger.status(), ledger.log(), ledger.key(held)
    later(*STATEMENTS)
    with BudgetLedger.open(url, read_only=read_only) as opened:
        assert (opened.status(), opened.log(), opened.key(held)) == before
        assert opened.find("trips", held.name) == held
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT value FROM added").fetchall() == [("new",)]
    with BudgetLedger.open(url) as opened:
        spent = opened.spend(opened.begin_reading(held), bytes(32))
        assert opened.commit(spent, "digest").state is State.COMMITTED


def test_what_was_written_stays_written(ledger, path, url, later):
    later(*STATEMENTS)
    BudgetLedger.open(url).close()
    for statement in ("UPDATE datasets SET period = 'day'", "DELETE FROM audit"):
        refused = pytest.raises(sqlite3.IntegrityError, match="refuses")
        with closing(sqlite3.connect(path)) as connection, refused:
            connection.execute(statement)


def test_a_migration_that_fails_changes_nothing(ledger, path, url, later):
    before = content(path)
    later(*STATEMENTS, "ALTER TABLE nowhere ADD COLUMN x VARCHAR")
    with pytest.raises(EnvironmentRefusedError):
        BudgetLedger.open(url)
    assert content(path) == before


def test_what_another_process_migrated_meanwhile_is_left_as_it_is(
    ledger, path, url, later, monkeypatch
):
    later(*STATEMENTS)
    migrate = tables.migrate

    def after_another(connection):
        migrate(connection)
        migrate(connection)

    monkeypatch.setattr(tables, "migrate", after_another)
    BudgetLedger.open(url).close()
    assert content(path).count("INSERT INTO \"added\" VALUES('new');") == 1


def test_a_ledger_put_back_to_before_an_upgrade_must_be_reconciled(ledger, ask, path, url, later):
    before = path.read_bytes()
    later(*STATEMENTS)
    with BudgetLedger.open(url) as opened:
        assert not opened.is_pending()
        opened.reserve(ask("next", "0.2"))
    path.write_bytes(before)
    with BudgetLedger.open(url) as opened:
        assert opened.id == ledger.id
        with pytest.raises(BudgetError, match="reconcile"):
            opened.reserve(ask("next", "0.2"))
        assert opened.grant("trips", Budget.parse("1")).granted == Budget.parse("2")


OPEN = f"""
import sys
from dbern.ledger import BudgetLedger, tables
tables.VERSION = {NEXT!r}
tables._MIGRATIONS = {{{tables.VERSION!r}: {STATEMENTS!r}}}
with BudgetLedger.open(sys.argv[1]) as ledger:
    print(len(ledger.status()))
"""


@pytest.mark.slow
def test_processes_that_open_an_old_ledger_at_once_migrate_it_once(ledger, path, url, python):
    processes = [python(OPEN, url) for _ in range(2)]
    results = [process.communicate(timeout=300) for process in processes]
    assert results == [("1\n", "")] * 2
    assert content(path).count("INSERT INTO \"added\" VALUES('new');") == 1
