"""No role that may write to a ledger edits it without a trace: every column of it is tried."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import LargeBinary, create_engine, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, StaticPool

from dbern.cli import diagnosis
from dbern.errors import IntegrityError
from dbern.ledger import Request, State
from dbern.ledger.entries import FREE
from dbern.ledger.replay import contradictions
from dbern.ledger.tables import audit, last_event, meta, metadata, releases
from dbern.privacy.budget import Budget

TABLES = metadata.sorted_tables
COLUMNS = {(table.name, column.name) for table in TABLES for column in table.columns}
RIGHTS = (  # of docs/ledger.md, to grant and to release
    "SELECT, INSERT ON ALL TABLES IN SCHEMA public",
    "UPDATE ON meta, releases",
    "DELETE ON keys",
    "USAGE ON ALL SEQUENCES IN SCHEMA public",
)
GRANT = "INSERT INTO {}grants (dataset, epsilon, delta, created) VALUES ('trips', '9', '0', '')"


@pytest.fixture
def many(ledger, ask, advance, found):
    """A ledger with releases in all states, charges, a restored epoch and what it found."""
    for state in State:
        advance(ledger.reserve(ask(state.value, "0.01")), state.value)
    ledger.charge(ask("stream", "0.01", output=""), under_way=True)
    ledger.declare_restored()
    ledger.reconcile([found()])
    ledger.set_output(ledger.find("trips", "reading"), "elsewhere.zarr")
    assert ledger.contradictions() == []
    return ledger


@pytest.fixture
def attacker(many, database, path, request):
    """A connection, by no client of ours, of whoever has the rights that a releasing role needs.

    In SQLite to a copy, in memory.
    """
    if database == "sqlite":
        engine = create_engine("sqlite://", poolclass=StaticPool)
        with engine.connect() as connection, closing(sqlite3.connect(path)) as original:
            original.backup(connection.connection.driver_connection)
            connection.rollback()
            yield connection
        return
    server, url = request.getfixturevalue("server"), request.getfixturevalue("url")
    name = url.rpartition("/")[2]
    server.execute("DROP ROLE IF EXISTS releaser")
    server.execute(f"CREATE ROLE releaser LOGIN PASSWORD '{server.password}'")
    for right in RIGHTS:
        server.execute(f"GRANT {right} TO releaser", name)
    engine = create_engine(url.replace("steward@", "releaser@"), poolclass=NullPool)
    with engine.connect() as connection:
        yield connection
    server.execute("DROP OWNED BY releaser", name)


def outcome(connection, statement, **values):
    """Run a statement, take it back, and tell what became of it."""
    was, event = content(connection), last_event(connection)
    with taken_back(connection):
        try:
            connection.execute(text(statement), values)
        except DBAPIError as error:
            told = str(error.orig)
            assert any(word in told for word in ("refuses", "denied", "constraint")), told
            return "refused"
        if content(connection) == was:
            return "nothing"
        if last_event(connection) != event:
            return "logged"
        return "found" if contradictions(connection) else "no trace"


@contextmanager
def taken_back(connection):
    with connection.begin_nested() as nested:
        yield
        nested.rollback()


def content(connection):
    return [sorted(map(repr, connection.execute(select(table)))) for table in TABLES]


def values_of(column):
    """Values of a column that may pass for others."""
    if isinstance(column.type, LargeBinary):
        return (b"", bytes(32))
    if column.type.python_type is int:
        return (10**6, 1)
    return tuple(State) if column is releases.c.state else ("0", "7")


@pytest.mark.sample(verify=2)
@pytest.mark.slow
@pytest.mark.parametrize("verb", ["UPDATE", "UPDATE OR REPLACE"])
def test_no_column_is_changed_without_a_trace(attacker, database, verb):
    if database != "sqlite" and verb != "UPDATE":
        pytest.skip("PostgreSQL has no such statement")
    outcomes = {}
    for table in TABLES:
        (key,) = table.primary_key
        keys = [*attacker.scalars(select(key))]
        if table is meta:
            keys.remove("schema")  # with another one nothing opens the ledger any more
        if table is audit:
            del keys[2:]
        for column, row in itertools.product(table.columns, keys):
            statement = f"{verb} {table.name} SET {column.name} = :value WHERE {key.name} = :key"
            for value in values_of(column):
                became = outcome(attacker, statement, value=value, key=row)
                outcomes.setdefault((table.name, column.name), set()).add(became)
    assert outcomes.keys() == COLUMNS
    assert not {where for where, became in outcomes.items() if "no trace" in became}
    changing = {where for where, became in outcomes.items() if became - {"refused", "nothing"}}
    assert changing == {("meta", "value"), ("releases", "state"), ("releases", "output")}


@pytest.mark.slow
def test_no_row_is_removed_or_added_without_a_trace(attacker, database):
    verbs = ["INSERT"] + ["INSERT OR REPLACE", "INSERT OR IGNORE"] * (database == "sqlite")
    outcomes = set()
    for table, verb in itertools.product(TABLES, verbs):
        assert outcome(attacker, f"DELETE FROM {table.name}") == "refused"
        old = attacker.execute(select(table)).mappings().first()
        values = ", ".join(f":{name}" for name in old)
        statement = f"{verb} INTO {table.name} ({', '.join(old)}) VALUES ({values})"
        amounts = {name: "7" for name in ("epsilon", "value", "detail") if name in old}
        changes = {"id": 10**6, "release_id": "ab" * 16, "name": "another"}
        for count in range(4):
            for names in itertools.combinations(changes, count):
                new = {name: changes[name] for name in names if name in old}
                outcomes.add(outcome(attacker, statement, **{**old, **amounts, **new}))
    assert outcomes <= {"refused", "nothing", "logged", "found"}


def test_a_row_is_not_replaced_by_another_of_its_key(attacker, database):
    """REPLACE deletes in silence, and an upsert is an update."""
    columns = ", ".join(column.name for column in releases.columns)
    for key in ("id", "release_id"):
        upsert = f"ON CONFLICT ({key}) DO UPDATE SET epsilon = '0'"
        copied = f"INSERT INTO releases SELECT {columns} FROM releases WHERE id = 4"
        assert outcome(attacker, f"{copied} {upsert}") == "refused"
    if database == "sqlite":
        for table in TABLES:
            copied = f"REPLACE INTO {table.name} SELECT * FROM {table.name}"
            assert outcome(attacker, copied) == "refused"


def test_a_release_goes_forward_alone(attacker):
    """Nothing is read again, refunded after it was read, or another release's, with its state."""
    for change in (
        "state = 'reserved' WHERE state = 'reading'",
        "state = 'refunded' WHERE state IN ('reading', 'spent', 'committed', 'abandoned')",
        "state = 'spent' WHERE state IN ('committed', 'abandoned', 'refunded')",
        "state = 'refunded', epsilon = '0' WHERE state = 'reserved'",
        "state = 'refunded', created = '' WHERE state = 'reserved'",
        "state = 'committed', name = 'another' WHERE state = 'spent'",
        "state = 'committed', seal = NULL WHERE state = 'spent'",
        "state = 'committed', output = 'x' WHERE state = 'refunded'",
        "state = 'reading', plan = '{}' WHERE state = 'reserved'",
    ):
        assert outcome(attacker, f"UPDATE releases SET {change}") == "refused", change


def test_a_grant_is_logged_by_the_database_with_its_terms(attacker, database):
    with taken_back(attacker):
        line = select(audit).order_by(audit.c.id.desc()).limit(1)
        if database == "postgresql":  # which would come before the ledger's own
            for table in ("audit", "datasets"):
                copied = f"CREATE TEMPORARY TABLE {table} AS SELECT * FROM public.{table}"
                attacker.execute(text(copied))
            line = select(text("* FROM public.audit ORDER BY id DESC LIMIT 1"))
        attacker.execute(text(GRANT.format("public." if database == "postgresql" else "")))
        logged = attacker.execute(line).mappings().one()
    assert (logged["event"], logged["dataset"]) == ("grant", "trips")
    assert '"9"' in logged["detail"]
    assert "replace-one" in logged["detail"]


def test_a_line_of_the_log_has_the_next_number(attacker, database):
    """A later number would hide from the high-water mark that the ledger was put back."""
    line = (
        "INSERT INTO audit (id, at, event, dataset, detail) VALUES (2000000000, '', '', '', '{}')"
    )
    if database == "sqlite":
        assert outcome(attacker, line) == "refused"
        return
    with taken_back(attacker):
        before = last_event(attacker)
        attacker.execute(text(line))
        assert last_event(attacker) == before + 1


def test_terms_without_a_grant_are_refused(ledger, execute):
    execute(
        "INSERT INTO datasets (name, neighbors, unit_max_contributions, accountant, created) "
        "VALUES ('people', 'replace-one', 1, 'basic', '2026-01-01T00:00:00+00:00')"
    )
    assert ledger.contradictions() == ["terms of dataset 'people'"]
    with pytest.raises(IntegrityError, match="has terms and no grant"):
        ledger.grant("people", Budget.parse("1"))


EDITS = {
    "UPDATE releases SET epsilon = '0' WHERE id = 1": "release 'reserved' of dataset 'trips'",
    "UPDATE releases SET state = 'refunded' WHERE id = 4": "release 'committed' of dataset 'trips'",
    "DELETE FROM releases WHERE id = 1": "release 'reserved' of dataset 'trips'",
    GRANT.format(""): "grants of dataset 'trips'",
    "UPDATE grants SET epsilon = '9'": "grants of dataset 'trips'",
    "UPDATE datasets SET accountant = 'zcdp'": "terms of dataset 'trips'",
    "UPDATE meta SET value = '7' WHERE key = 'reconciled'": "the ledger's reconciled",
    "UPDATE audit SET event = 'refunded' WHERE event = 'spent'": "('refunded')",
    "DELETE FROM audit WHERE id = 3": "log entry 3 ('reading')",
    "DELETE FROM audit WHERE event = 'grant'": "terms of dataset 'trips'",
}


def test_doctor_finds_what_the_owner_of_the_tables_changed(many, url, execute, path, database):
    """Who may drop the triggers, drops them: the log still tells what was."""
    assert verdict(url).state == "good"
    if database == "sqlite":
        for (trigger,) in execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            execute(f"DROP TRIGGER {trigger}")
        engine = create_engine("sqlite://", poolclass=StaticPool)
        with engine.connect() as connection, closing(sqlite3.connect(path)) as original:
            original.backup(connection.connection.driver_connection)
            connection.rollback()
            for edit, told in EDITS.items():
                with taken_back(connection):
                    connection.execute(text(edit))
                    assert any(told in differing for differing in contradictions(connection)), edit
    else:
        execute("ALTER TABLE releases DISABLE TRIGGER USER")
    execute("UPDATE releases SET epsilon = '0' WHERE id = 1")
    finding = verdict(url)
    assert finding.state == "mend"
    assert "what the tables hold: release 'reserved' of dataset 'trips'" in finding.observed


def verdict(url):
    return next(finding for finding in diagnosis.ledger(url) if finding.subject == "ledger's log")


def test_the_log_tells_everything_that_a_ledger_does(many, ask, found):
    """Refunds published after all, names taken meanwhile, unfinished folders, other accounts."""
    ledger = many
    ids = {row.name: row.release_id for row in ledger.status()[0].releases}
    ledger.reserve(ask("refunded", "0.02"))
    within = ask("stream", "0.01", output="")
    node = ledger.reserve(replace(ask("node"), charge=FREE, within=within))
    ledger.declare_restored()
    published = [
        found(ids["refunded"], "refunded", charge=Budget.parse("0.01")),
        found("cd" * 16, "unfinished", manifest_digest=None),
        found("ef" * 16, "node", charge=FREE),
        found(ids["reading"], "reading", charge=Budget.parse("0.01")),
    ]
    ledger.reconcile(published)
    assert ledger.find("trips", f"node~{node.release_id[:8]}").state is State.ABANDONED
    ledger.grant("other", Budget.parse("1", "1e-6"), accountant="zcdp")
    ledger.grant("other", Budget.parse("1"))
    ledger.reserve(Request("other", "pure", Budget.parse("0.1")))
    ledger.reconcile([found("01" * 16, "rho", dataset="other", rho=Budget.parse("1").epsilon)])
    assert ledger.contradictions() == []
