"""A ledger of schema 1 opens, keeps all it held, and goes on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from fractions import Fraction

import pytest

from dbern.errors import BudgetError, EnvironmentRefusedError
from dbern.ledger import BudgetLedger, Request, State
from dbern.ledger import tables as schema
from dbern.privacy.budget import Budget, PrivacyUnit


@pytest.fixture
def database():
    return "sqlite"


OPEN_ID, DONE_ID = "0a" * 16, "0b" * 16
SCHEMA_1 = f"""
CREATE TABLE meta ("key" VARCHAR NOT NULL, value VARCHAR NOT NULL, PRIMARY KEY ("key"));
CREATE TABLE datasets (
    name VARCHAR NOT NULL, neighbors VARCHAR NOT NULL, unit_column VARCHAR,
    unit_max_contributions INTEGER NOT NULL, accountant VARCHAR NOT NULL, created VARCHAR NOT NULL,
    PRIMARY KEY (name));
CREATE TABLE audit (
    id INTEGER NOT NULL, at VARCHAR NOT NULL, event VARCHAR NOT NULL, dataset VARCHAR NOT NULL,
    name VARCHAR, release_id VARCHAR, detail TEXT NOT NULL, PRIMARY KEY (id));
CREATE TABLE grants (
    id INTEGER NOT NULL, dataset VARCHAR NOT NULL, epsilon VARCHAR NOT NULL,
    delta VARCHAR NOT NULL, created VARCHAR NOT NULL,
    PRIMARY KEY (id), FOREIGN KEY(dataset) REFERENCES datasets (name));
CREATE TABLE releases (
    id INTEGER NOT NULL, release_id VARCHAR NOT NULL, dataset VARCHAR NOT NULL,
    name VARCHAR NOT NULL, state VARCHAR NOT NULL, epsilon VARCHAR NOT NULL,
    delta VARCHAR NOT NULL, identity TEXT NOT NULL, inputs TEXT NOT NULL, "plan" TEXT NOT NULL,
    output VARCHAR NOT NULL, salt BLOB NOT NULL, seal BLOB, manifest_digest VARCHAR,
    created VARCHAR NOT NULL,
    PRIMARY KEY (id),
    CHECK (state IN ('reserved', 'reading', 'spent', 'committed', 'abandoned', 'refunded')),
    UNIQUE (release_id), FOREIGN KEY(dataset) REFERENCES datasets (name));
CREATE UNIQUE INDEX one_release_a_name ON releases (dataset, name) WHERE state != 'refunded';
CREATE TRIGGER datasets_no_update BEFORE UPDATE ON datasets
    BEGIN SELECT RAISE(ABORT, 'datasets refuses UPDATE'); END;
CREATE TRIGGER datasets_no_delete BEFORE DELETE ON datasets
    BEGIN SELECT RAISE(ABORT, 'datasets refuses DELETE'); END;
CREATE TRIGGER grants_no_update BEFORE UPDATE ON grants
    BEGIN SELECT RAISE(ABORT, 'grants refuses UPDATE'); END;
CREATE TRIGGER grants_no_delete BEFORE DELETE ON grants
    BEGIN SELECT RAISE(ABORT, 'grants refuses DELETE'); END;
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'audit refuses UPDATE'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'audit refuses DELETE'); END;
CREATE TRIGGER releases_no_delete BEFORE DELETE ON releases
    BEGIN SELECT RAISE(ABORT, 'releases refuses DELETE'); END;
INSERT INTO meta VALUES ('schema', '1');
INSERT INTO datasets VALUES
    ('trips', 'replace-one', NULL, 1, 'basic', '2026-01-01T00:00:00+00:00'),
    ('riders', 'add-or-remove-one', 'rider', 8, 'basic', '2026-01-01T00:00:00+00:00');
INSERT INTO grants VALUES
    (1, 'trips', '1', '0', '2026-01-01T00:00:00+00:00'),
    (2, 'trips', '1/3', '1/1000000', '2026-01-02T00:00:00+00:00'),
    (3, 'riders', '2', '0', '2026-01-02T00:00:00+00:00');
INSERT INTO releases VALUES
    (1, '{DONE_ID}', 'trips', 'done', 'committed', '1/2', '0', '{{}}', '{{}}', '{{}}', 'a.zarr',
     x'00', x'01', 'digest', '2026-01-03T00:00:00+00:00'),
    (2, '{OPEN_ID}', 'trips', 'open', 'reserved', '1/10', '1/1000000', '{{"k": 20}}',
     '{{"n": 5}}', '{{"k": 20}}', 'b.zarr', x'02', NULL, NULL, '2026-01-04T00:00:00+00:00');
INSERT INTO audit VALUES
    (1, '2026-01-01T00:00:00+00:00', 'grant', 'trips', NULL, NULL, '{{"epsilon": "1"}}');
"""


@pytest.fixture
def old(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA_1)
    keys = path.with_name("ledger.db.keys")
    keys.mkdir(mode=0o700)
    (keys / f"{OPEN_ID}.key").write_bytes(bytes(32))
    return f"sqlite:///{path}"


def structure(path):
    """Tables with their columns in any order, and everything else by name."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT type, name FROM sqlite_master").fetchall()
        tables = [name for kind, name in found if kind == "table"]
        columns = {
            name: sorted(row[1:4] for row in connection.execute(f"PRAGMA table_info({name})"))
            for name in tables
        }
        version = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchall()
        facts = sorted(connection.execute("SELECT key FROM meta").fetchall())
    return sorted(found), columns, version, facts


@pytest.mark.parametrize("read_only", [True, False])
def test_an_old_ledger_opens_with_all_it_held(old, path, tmp_path, read_only):
    with BudgetLedger.open(old, read_only=read_only) as ledger:
        riders, trips = ledger.status()
        found = ledger.find("trips", "open")
        log = ledger.log()
    assert trips.granted == Budget(Fraction(4, 3), Fraction(1, 10**6))
    assert trips.spent == Budget(Fraction(1, 2))
    assert trips.reserved == Budget(Fraction(1, 10), Fraction(1, 10**6))
    assert (trips.accountant, trips.period, trips.earlier) == ("basic", None, Budget(Fraction(0)))
    assert (riders.unit, riders.granted) == (PrivacyUnit("rider", 8), Budget.parse("2"))
    assert (found.state, found.identity, found.salt) == (State.RESERVED, {"k": 20}, b"\x02")
    assert [line.event for line in log] == ["grant"]
    BudgetLedger.create(f"sqlite:///{tmp_path}/new.db")
    assert structure(path) == structure(tmp_path / "new.db")


def test_an_old_release_goes_on_and_new_ones_are_charged(old):
    request = Request(
        "trips", "open", Budget.parse("0.1", "1e-6"), identity={"k": 20}, inputs={"n": 5}
    )
    with BudgetLedger.open(old) as ledger:
        held = ledger.reserve(request)
        assert held.release_id == OPEN_ID
        assert ledger.key(held) == bytes(32)
        ledger.commit(ledger.spend(ledger.begin_reading(held), bytes(32)), "digest")
        ledger.reserve(Request("trips", "next", Budget.parse("0.7")))
        (status,) = ledger.status("trips")
        assert status.remaining == Budget(Fraction(4, 3) - Fraction(13, 10))
        ledger.grant("fresh", Budget.parse("1", "1e-6"), accountant="zcdp", period="day")


def test_what_was_written_stays_written(old, path):
    BudgetLedger.open(old).close()
    for statement in ("UPDATE datasets SET period = 'day'", "DELETE FROM audit"):
        refused = pytest.raises(sqlite3.IntegrityError, match="refuses")
        with closing(sqlite3.connect(path)) as connection, refused:
            connection.execute(statement)


def test_a_migration_that_fails_changes_nothing(old, path, monkeypatch):
    before = structure(path)
    broken = {"1": (*schema._MIGRATIONS["1"], "ALTER TABLE nowhere ADD COLUMN x VARCHAR")}
    monkeypatch.setattr(schema, "_MIGRATIONS", broken)
    with pytest.raises(EnvironmentRefusedError):
        BudgetLedger.open(old)
    assert structure(path) == before


def test_a_ledger_put_back_to_before_an_upgrade_must_be_reconciled(old, path):
    before = path.read_bytes()
    with BudgetLedger.open(old) as ledger:
        name = ledger.id
        assert not ledger.is_pending()
        ledger.reserve(Request("trips", "next", Budget.parse("0.7")))
    path.write_bytes(before)
    with BudgetLedger.open(old) as ledger:
        assert ledger.id == name  # by which its synopses are found
        with pytest.raises(BudgetError, match="reconcile"):
            ledger.reserve(Request("trips", "next", Budget.parse("0.7")))


OPEN = """
import sys
from dbern.ledger import BudgetLedger
with BudgetLedger.open(sys.argv[1]) as ledger:
    print(len(ledger.status()))
"""


@pytest.mark.slow
def test_processes_that_open_an_old_ledger_at_once_migrate_it_once(old, path, python):
    processes = [python(OPEN, old) for _ in range(2)]
    results = [process.communicate(timeout=300) for process in processes]
    assert results == [("2\n", "")] * 2
    assert structure(path)[2] == [(schema.VERSION,)]
