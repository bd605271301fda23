"""The SQLite file: how it is made, opened and refused, and what it will not forget."""

from __future__ import annotations

import dataclasses
import doctest
import hashlib
import os
import pkgutil
import shutil
import sqlite3
import tempfile
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest

import dbern.ledger
from dbern.errors import DbernError, EnvironmentRefusedError, IntegrityError, SpecError
from dbern.ledger import BudgetLedger, resolve_url, sqlite
from dbern.ledger.sqlite import SqliteBackend
from dbern.privacy.budget import Budget
from dbern.reporting.budgets import history


@pytest.fixture
def database():
    return "sqlite"


def execute(path, statement):
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement).fetchall()


def test_creating_twice_is_harmless_and_says_so(ledger, held, url):
    assert BudgetLedger.create(url) is False
    assert ledger.find("trips", "density") == held


def test_the_file_is_the_owners_alone(tmp_path):
    before = os.umask(0)
    try:
        BudgetLedger.create(f"sqlite:///{tmp_path}/new.db")
    finally:
        os.umask(before)
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600


def test_a_creation_that_was_cut_off_is_finished_by_the_next(tmp_path):
    (tmp_path / "new.db").touch()
    url = f"sqlite:///{tmp_path}/new.db"
    with pytest.raises(EnvironmentRefusedError, match="dbern ledger init"):
        BudgetLedger.open(url)
    assert BudgetLedger.create(url)
    BudgetLedger.open(url).close()


@pytest.mark.parametrize("left", [None, b""])
def test_a_lost_ledger_is_not_made_anew(ledger, held, url, path, left):
    """It would know of no charge, and destroy the keys of what is open."""
    kept = path.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    with pytest.raises(EnvironmentRefusedError, match=r"ledger\.db\.mark .* Put its backup there"):
        BudgetLedger.create(url)
    path.write_bytes(kept)
    assert BudgetLedger.create(url) is False
    assert len(ledger.key(held)) == 32


def test_a_missing_ledger_says_how_to_make_one_and_makes_none(tmp_path):
    with pytest.raises(
        EnvironmentRefusedError, match=f"dbern ledger init --ledger sqlite:///{tmp_path}/no.db"
    ):
        BudgetLedger.open(f"sqlite:///{tmp_path}/no.db")
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_needs_its_directory(tmp_path):
    with pytest.raises(EnvironmentRefusedError, match="No such file or directory"):
        BudgetLedger.create(f"sqlite:///{tmp_path}/no/ledger.db")
    with pytest.raises(EnvironmentRefusedError):
        BudgetLedger.create(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize("opens", [BudgetLedger.open, BudgetLedger.create])
def test_a_database_that_is_no_ledger_is_left_alone(tmp_path, opens):
    text, other = tmp_path / "text.db", tmp_path / "other.db"
    text.write_text("hello " * 1000)
    execute(other, "CREATE TABLE mine (a)")
    with pytest.raises(EnvironmentRefusedError, match="not a SQLite database"):
        opens(f"sqlite:///{text}")
    with pytest.raises(EnvironmentRefusedError, match="no ledger"):
        opens(f"sqlite:///{other}")
    assert text.read_text() == "hello " * 1000


@pytest.mark.parametrize("opens", [BudgetLedger.open, BudgetLedger.create])
def test_another_schema_is_refused(url, path, opens):
    execute(path, "UPDATE meta SET value = '7'")
    with pytest.raises(EnvironmentRefusedError, match="schema 7") as refused:
        opens(url)
    assert refused.value.exit_code == 4


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://steward:hunter2@host/db",
        "postgresql://host/db?user=a&password=hunter2",
        "sqlite://user:hunter2@/ledger.db",
    ],
)
def test_a_password_is_refused_and_not_repeated(url):
    for use in (BudgetLedger.open, BudgetLedger.create, lambda url: resolve_url(url, Path("/"))):
        with pytest.raises(SpecError, match="password") as refused:
            use(url)
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["ledger.db", ""])
def test_a_text_that_is_no_url_is_said_to_be_none(url):
    with pytest.raises(SpecError, match=r'no URL. Write .*"sqlite:///ledger.db"'):
        BudgetLedger.open(url)


@pytest.mark.parametrize("url", ["postgresql://host/db", "mysql://host/db"])
def test_other_databases_are_not_available_yet(url):
    with pytest.raises(SpecError, match="not available in this version"):
        BudgetLedger.open(url)


@pytest.mark.parametrize(
    "url", ["sqlite:///", "sqlite://", "sqlite:///:memory:", "sqlite:///a.db?mode=ro", "x://[y"]
)
def test_odd_urls_are_refused(url):
    with pytest.raises(SpecError, match="Write"):
        BudgetLedger.create(url)


def test_relative_urls_resolve_against_the_spec():
    base = Path("/srv/specs")
    assert resolve_url("sqlite:///a/l.db", base) == "sqlite:////srv/specs/a/l.db"
    assert resolve_url("sqlite:////l.db", base) == "sqlite:////l.db"


@pytest.mark.parametrize("name", ["a b.db", "a%20b.db", "é'\".db"])
def test_odd_file_names_are_names(tmp_path, name):
    url = f"sqlite:///{tmp_path}/{name}"
    assert BudgetLedger.create(url)
    with BudgetLedger.open(url) as ledger:
        ledger.grant("a", Budget.parse("1"))
    assert (tmp_path / name).is_file()


def test_a_locked_ledger_is_refused_after_the_timeout(ledger, url, path, ask):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EnvironmentRefusedError, match="another process holds it"):
            BudgetLedger.open(url, busy_timeout=0.05)
        with BudgetLedger.open(url, read_only=True, busy_timeout=0.05) as looking:
            assert looking.find("trips", "density") is None
        other.execute("COMMIT")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(EnvironmentRefusedError, match="another process holds it"):
            BudgetLedger.open(url, read_only=True, busy_timeout=0.05)
    ledger.reserve(ask())


def test_a_read_only_ledger_refuses_every_change(ledger, held, url, ask):
    with BudgetLedger.open(url, read_only=True) as looking:
        assert looking.status() == ledger.status()
        changes = [
            lambda: looking.grant("trips", Budget.parse("1")),
            lambda: looking.reserve(ask("other")),
            lambda: looking.begin_reading(held),
            lambda: looking.abandon("trips", "density"),
        ]
        for change in changes:
            with pytest.raises(EnvironmentRefusedError, match="read-only"):
                change()
    assert ledger.find("trips", "density") == held


def test_a_read_only_ledger_rolls_back_what_a_killed_process_left(ledger, held, path, tmp_path):
    """Or the daily alert would be refused until somebody writes."""
    there = tmp_path / "crashed"
    there.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE half AS SELECT randomblob(100000)")
        for file in (path, path.with_name("ledger.db-journal"), path.with_name("ledger.db.mark")):
            shutil.copy(file, there)
    with BudgetLedger.open(f"sqlite:///{there}/ledger.db", read_only=True) as looking:
        assert looking.status() == ledger.status()
    assert not (there / "ledger.db-journal").exists()


AS_ANYONE = """
import os, sys
from dbern.ledger import BudgetLedger
from dbern.privacy.budget import Budget
from dbern.errors import DbernError
import sqlalchemy.dialects.sqlite
if os.geteuid() == 0:  # no mode stops root
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    BudgetLedger.open(sys.argv[1]).grant("trips", Budget.parse("1"))
except DbernError as error:
    print(error.exit_code, error)
"""


@pytest.fixture
def reachable():
    """A directory that every user can enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "inner")
        folder.mkdir()
        folder.parent.chmod(0o755)
        yield folder
        folder.chmod(0o700)


@pytest.mark.parametrize(
    ("mode", "folder_mode", "said"),
    [(0o444, 0o777, "it is read-only"), (0o000, 0o777, "accessible"), (0o666, 0o000, "accessible")],
)
def test_a_ledger_without_permission_is_refused(reachable, python, mode, folder_mode, said):
    url = f"sqlite:///{reachable}/ledger.db"
    BudgetLedger.create(url)
    (reachable / "ledger.db").chmod(mode)
    (reachable / "ledger.db.mark").chmod(0o644)  # whatever the umask: the mark is not the question
    reachable.chmod(folder_mode)
    output, errors = python(AS_ANYONE, url).communicate(timeout=300)
    assert output.startswith("4 "), errors
    assert said in output


def test_a_damaged_ledger_is_an_integrity_error(ledger, url, path):
    for number in range(40):
        ledger.grant(f"dataset {number}", Budget.parse("1"))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(DbernError) as refused:
        BudgetLedger.open(url)
    assert refused.value.exit_code == 5


@pytest.mark.parametrize("table", ["audit", "grants", "datasets"])
@pytest.mark.parametrize("statement", ["DELETE FROM {}", "UPDATE {} SET created = 1"])
def test_written_rows_stay_written(ledger, held, path, table, statement):
    statement = statement.format(table)
    if table == "audit":
        statement = statement.replace("created", "event")
    with pytest.raises(sqlite3.IntegrityError, match=f"{table} refuses"):
        execute(path, statement)


def test_releases_are_never_deleted_nor_put_in_an_unknown_state(ledger, held, path):
    with pytest.raises(sqlite3.IntegrityError, match="releases refuses DELETE"):
        execute(path, "DELETE FROM releases")
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        execute(path, "UPDATE releases SET state = 'free'")


def test_replacing_a_row_is_deleting_it(ledger, held, path):
    refused = pytest.raises(IntegrityError, match="audit refuses DELETE")
    with refused, SqliteBackend(path).write() as connection:
        connection.exec_driver_sql("REPLACE INTO audit SELECT * FROM audit")


def test_the_database_refusing_a_change_is_an_integrity_error(ledger, held, path):
    refused = pytest.raises(IntegrityError, match="grants refuses UPDATE")
    with refused, SqliteBackend(path).write() as connection:
        connection.exec_driver_sql("UPDATE grants SET epsilon = '100'")


def test_every_event_is_in_the_audit_log(ledger, held, advance, path):
    advance(held, "committed")
    events = execute(path, "SELECT event, dataset, name, release_id FROM audit ORDER BY id")
    names = ["grant", "reserve", "reading", "spent", "committed"]
    assert [event[0] for event in events] == names
    assert set(events[1:]) == {(n, "trips", "density", held.release_id) for n in names[1:]}


def test_a_refused_change_leaves_no_audit_line(ledger, held, path):
    with pytest.raises(IntegrityError):
        ledger.spend(held, bytes(32))
    assert len(execute(path, "SELECT * FROM audit")) == 2


def test_amounts_are_stored_as_exact_text(ledger, path, ask):
    ledger.reserve(ask(epsilon="1/3"))
    rows = execute(path, "SELECT epsilon, typeof(epsilon), typeof(delta) FROM releases")
    assert rows == [("1/3", "text", "text")]


@pytest.mark.parametrize("text", ["1e-400000000", "1e400000000", "1/0", "nan", "-1", "0x1", ""])
@pytest.mark.parametrize("column", ["epsilon", "delta", "rho", "gamma"])
def test_amounts_of_rows_are_read_as_those_of_specs(ledger, held, path, column, text):
    """`Fraction` itself would compute ten to the four hundred million."""
    execute(path, f"UPDATE releases SET {column} = '{text}'")
    with pytest.raises(IntegrityError, match=f"the {column} of a row is not an exact number"):
        ledger.status("trips")


def test_amounts_of_grants_are_read_as_those_of_specs(ledger, held, path):
    columns = "dataset, delta, created, epsilon"
    execute(path, f"INSERT INTO grants ({columns}) SELECT dataset, delta, created, '1e-400000000' "
                  "FROM grants")  # fmt: skip
    with pytest.raises(IntegrityError, match="the epsilon of a row is not an exact number"):
        ledger.status("trips")


def test_amounts_of_the_audit_log_are_read_as_those_of_specs(ledger, held, path):
    status = ledger.status("trips")
    grant, *_ = ledger.log("trips")
    damaged = dataclasses.replace(grant, detail={**grant.detail, "epsilon": "1e-400000000"})
    with pytest.raises(IntegrityError, match="the epsilon of a row is not an exact number"):
        history([damaged], status[0])


PRAGMAS = sqlite._PRAGMAS  # before conftest.py has the tests wait for no disk


def test_connections_are_as_safe_as_sqlite_can_be(path, url, monkeypatch):
    monkeypatch.setattr(sqlite, "_PRAGMAS", PRAGMAS)
    with SqliteBackend(path).write() as connection:
        wanted = {"journal_mode": "delete", "synchronous": 3, "secure_delete": 1, "foreign_keys": 1}
        wanted["auto_vacuum"] = 1
        for pragma, value in wanted.items():
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value
        refused = pytest.raises(sqlite3.OperationalError, match="locked")
        with closing(sqlite3.connect(path, timeout=0)) as other, refused:
            other.execute("BEGIN IMMEDIATE")


def test_the_ledger_s_folder_holds_nothing_else(ledger, held, path):
    with ledger.lock(held):
        ledger.staging(held)
    names = {file.name for file in path.parent.iterdir()}
    beside = {f"ledger.db.{what}" for what in ("keys", "staging", "locks", "mark")}
    assert names == {"ledger.db"} | beside


MODULES = sorted(module.name for module in pkgutil.iter_modules(dbern.ledger.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    assert doctest.testmod(import_module(f"dbern.ledger.{name}")).failed == 0
    assert name not in dbern.ledger.__all__


DIGEST = hashlib.sha256(b"A" * 2_500_000).hexdigest()
LARGE = {"k": [1000], "components": [{"maps": [{"kind": "binned", "synthesis": "A" * 2_500_000}]}]}


@pytest.mark.parametrize("state", ["committed", "abandoned", "refunded"])
def test_plans_of_releases_that_are_over_take_no_megabytes(ledger, ask, advance, path, state):
    for name in ("one", "two"):
        held = ledger.reserve(ask(name, "0.2", plan=LARGE))
        assert held.plan == ledger.find("trips", name).plan == LARGE
        over = advance(held, state)
        assert path.stat().st_size < 200_000
    (part,) = over.plan["components"]
    assert part["maps"] == [{"kind": "binned", "synthesis": f"sha256:{DIGEST}"}]
    assert over.plan["k"] == [1000]
    if state != "refunded":
        assert ledger.find("trips", "two").plan == over.plan


def test_an_unfinished_release_keeps_its_plan_whole(ledger, ask, advance):
    spent = advance(ledger.reserve(ask(plan=LARGE)), "spent")
    ledger.reconcile([])
    assert ledger.find("trips", "density").plan == spent.plan == LARGE


def test_a_connection_writes_nothing(path, url):
    """SQLite counts what was committed in bytes 24 to 27 of the file."""
    before = path.read_bytes()
    with SqliteBackend(path).write() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM audit")
    assert path.read_bytes() == before
