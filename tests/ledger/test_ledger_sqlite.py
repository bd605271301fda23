"""The SQLite file: how it is made, opened and refused, and what it will not forget."""

from __future__ import annotations

import hashlib
import pkgutil
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

import dbern.ledger
from dbern.errors import DbernError, EnvironmentRefusedError, SpecError
from dbern.ledger import BudgetLedger, resolve_url, sqlite
from dbern.ledger.sqlite import SqliteBackend
from dbern.privacy.budget import Budget


@pytest.fixture
def database():
    return "sqlite"


def test_a_creation_that_was_cut_off_is_finished_by_the_next(path, empty_url):
    path.touch()
    with pytest.raises(EnvironmentRefusedError, match="dbern ledger init"):
        BudgetLedger.open(empty_url)
    assert BudgetLedger.create(empty_url)
    BudgetLedger.open(empty_url).close()


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
def test_a_file_that_is_no_database_is_left_alone(tmp_path, opens):
    text = tmp_path / "text.db"
    text.write_text("hello " * 1000)
    with pytest.raises(EnvironmentRefusedError, match="not a SQLite database"):
        opens(f"sqlite:///{text}")
    assert text.read_text() == "hello " * 1000


@pytest.mark.parametrize(
    ("url", "refusal"),
    [
        ("postgresql+psycopg://steward:hunter2@host/db", "password"),
        ("postgresql://host/db?user=a&password=hunter2", "password"),
        ("sqlite://user:hunter2@/ledger.db", "password"),
        ("postgresql+psycopg://steward:hunter2@host/db", "PGPASSFILE"),
        ("postgresql+psycopg://host/db?sslpassword=hunter2", "PGPASSFILE"),
        ("postgresql+psycopg://host/db?options=-csearch_path%3Dhunter2", "sets `options`"),
        ("ledger.db", r'no URL. Write .*"sqlite:///ledger.db"'),
        ("", r'no URL. Write .*"sqlite:///ledger.db"'),
        ("postgresql://host/db", "not available in this version"),
        ("postgresql+psycopg:/host/db", "not available in this version"),
        ("mysql://host/db", "mysql is not available in this version"),
        ("sqlite:///", "Write"),
        ("sqlite://", "Write"),
        ("sqlite:///:memory:", "Write"),
        ("sqlite:///a.db?mode=ro", "Write"),
        ("x://[y", "Write"),
    ],
)
def test_a_url_of_no_ledger_is_refused_and_no_password_repeated(url, refusal):
    for use in (BudgetLedger.open, BudgetLedger.create, lambda url: resolve_url(url, Path("/"))):
        with pytest.raises(SpecError, match=refusal) as refused:
            use(url)
        assert "hunter2" not in str(refused.value)


POSTGRES = "postgresql+psycopg://steward@host/db?sslmode=verify-full"


@pytest.mark.parametrize(
    ("url", "resolved"),
    [
        ("sqlite:///a/l.db", "sqlite:////srv/specs/a/l.db"),
        ("sqlite:////l.db", "sqlite:////l.db"),
        (POSTGRES, POSTGRES),
    ],
)
def test_relative_urls_resolve_against_the_spec(url, resolved):
    assert resolve_url(url, Path("/srv/specs")) == resolved


@pytest.mark.parametrize("name", ["a b.db", "a%20b.db", "é'\".db"])
def test_odd_file_names_are_names(tmp_path, name):
    url = f"sqlite:///{tmp_path}/{name}"
    assert BudgetLedger.create(url)
    with BudgetLedger.open(url) as ledger:
        ledger.grant("a", Budget.parse("1"))
    assert (tmp_path / name).is_file()


def test_a_ledger_that_is_locked_for_reading_too_is_refused_after_the_timeout(url, path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(EnvironmentRefusedError, match="another process holds it"):
            BudgetLedger.open(url, read_only=True, busy_timeout=0.05)


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


@pytest.mark.slow
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


def test_no_module_is_a_public_name():
    modules = {module.name for module in pkgutil.iter_modules(dbern.ledger.__path__)}
    assert not modules & set(dbern.ledger.__all__)


DIGEST = hashlib.sha256(b"A" * 2_500_000).hexdigest()
LARGE = {"k": [1000], "components": [{"maps": [{"kind": "binned", "synthesis": "A" * 2_500_000}]}]}


@pytest.mark.parametrize("state", ["committed", "abandoned", "refunded"])
def test_plans_of_releases_that_are_over_take_no_megabytes(ledger, ask, advance, path, state):
    for name in ("one", "two"):
        held = ledger.reserve(ask(name, "0.2", plan=LARGE))
        assert held.content.plan == ledger.find("trips", name).content.plan == LARGE
        over = advance(held, state)
        assert path.stat().st_size < 200_000
    (part,) = over.content.plan["components"]
    assert part["maps"] == [{"kind": "binned", "synthesis": f"sha256:{DIGEST}"}]
    assert over.content.plan["k"] == [1000]
    if state != "refunded":
        assert ledger.find("trips", "two").content.plan == over.content.plan


def test_an_unfinished_release_keeps_its_plan_whole(ledger, ask, advance):
    spent = advance(ledger.reserve(ask(plan=LARGE)), "spent")
    ledger.reconcile([])
    assert ledger.find("trips", "density").content.plan == spent.content.plan == LARGE


def test_a_connection_writes_nothing(path, url):
    """SQLite counts what was committed in bytes 24 to 27 of the file."""
    before = path.read_bytes()
    with SqliteBackend(path).write() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM audit")
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["#1", "what?", "100%", "%23", "a?b#c%25"])
def test_a_folder_of_any_name_has_a_ledger(tmp_path, name):
    (tmp_path / name).mkdir()
    url = resolve_url("sqlite:///ledger.db", tmp_path / name)
    assert BudgetLedger.create(url)
    assert (tmp_path / name / "ledger.db").exists()
    with BudgetLedger.open(url) as ledger:
        assert resolve_url(ledger.url, Path("/elsewhere")) == ledger.url
        ledger.grant("trips", Budget.parse("1"))
    with BudgetLedger.open(ledger.url, read_only=True) as again:
        assert len(again.status()) == 1
    with pytest.raises(SpecError, match="without options"):
        resolve_url("sqlite:///ledger.db?timeout=3", tmp_path)
