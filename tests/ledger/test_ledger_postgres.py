"""What only a PostgreSQL ledger has: a server, a secret, a shared disk, locks over a connection."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from dbern.errors import (
    BudgetError,
    EnvironmentRefusedError,
    IntegrityError,
    ReleaseError,
    SpecError,
)
from dbern.ledger import BudgetLedger, Request
from dbern.ledger.keys import _secret_of
from dbern.ledger.opening import backend_of
from dbern.privacy.budget import Budget


@pytest.fixture
def database():
    return "postgresql"


@pytest.fixture
def name(url):
    return url.rpartition("/")[2]


slow = pytest.mark.slow
pytestmark = pytest.mark.turns("PostgreSQL", 70)


@slow
@pytest.mark.parametrize("table", ["audit", "grants", "datasets", "releases"])
def test_written_rows_are_not_truncated(ledger, held, execute, table):
    import psycopg

    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match=f"{table} refuses"):
        execute(f"TRUNCATE {table} CASCADE")


@slow
def test_a_check_waits_for_the_charge_before_it(ledger, url, ask):
    """The overspend of trap 6: both see room for one, each charges it."""

    def reserve(name):
        with BudgetLedger.open(url) as other:
            try:
                return other.reserve(ask(name, "0.7")).name
            except BudgetError:
                return "refused"

    with ThreadPoolExecutor(2) as pool:
        with backend_of(url).write():
            answers = [pool.submit(reserve, name) for name in ("a", "b")]
            assert not wait(answers, 0.5).done
        assert [one.result(60) for one in answers].count("refused") == 1


@slow
def test_a_check_waits_where_the_server_isolates_otherwise(server, ledger, url, name, ask):
    server.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    server.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    test_a_check_waits_for_the_charge_before_it(ledger, url, ask)
    with backend_of(url).write() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


# Secrets


@slow
def test_the_key_is_wrapped_and_nowhere_else(server, ledger, held, name, advance):
    key = ledger.key(held)
    advance(held, "spent")
    ((wrapped,),) = server.execute("SELECT wrapped FROM keys", name)
    assert len(wrapped) == 12 + 32 + 16
    dump = server_dump(server, name)
    secret = os.environ["DBERN_LEDGER_SECRET"]
    for form in (key.hex(), bytes(range(32)).hex(), secret):
        assert form not in dump
        assert form not in server.log
    assert wrapped.hex() in dump  # the dump does show keys, were they there


def server_dump(server, name, *options):
    return as_client(server, "pg_dump", *options, name)


def load(server, dump, name=None):
    name = name or server.database().rpartition("/")[2]
    as_client(server, "psql", "-q", "-v", "ON_ERROR_STOP=1", name, input=dump)
    return server.url(name)


def as_client(server, program, *options, **given):
    """What a program of PostgreSQL prints to whoever has the password."""
    command = [str(server._programs / program), "-h", "127.0.0.1", "-p", str(server.port)]
    return subprocess.run(
        [*command, "-U", "steward", *options], env={**os.environ, **server.environment},
        check=True, capture_output=True, text=True, timeout=300, **given,
    ).stdout  # fmt: skip


@slow
def test_another_secret_or_row_opens_no_key(server, ledger, held, ask, name, monkeypatch):
    other = ledger.reserve(ask("other", "0.1"))
    with monkeypatch.context() as patch:
        patch.setenv("DBERN_LEDGER_SECRET", bytes(32).hex())
        with pytest.raises(IntegrityError, match=r"^DBERN_LEDGER_SECRET: "):
            ledger.key(held)
    server.execute(
        f"UPDATE keys SET wrapped = (SELECT wrapped FROM keys WHERE release_id = "
        f"'{other.release_id}') WHERE release_id = '{held.release_id}'", name,
    )  # fmt: skip
    with pytest.raises(IntegrityError, match=r"^DBERN_LEDGER_SECRET: "):
        ledger.key(held)
    assert len(ledger.key(other)) == 32


@slow
@pytest.mark.parametrize("variable", ["DBERN_LEDGER_SECRET", "DBERN_LEDGER_STAGING"])
def test_a_missing_secret_or_staging_stops_the_charge(ledger, ask, monkeypatch, variable, url):
    monkeypatch.delenv(variable)
    with pytest.raises(EnvironmentRefusedError, match=f"^{variable}: "):
        ledger.reserve(ask())
    with BudgetLedger.open(url) as granting:  # which needs neither
        assert granting.grant("trips", Budget.parse("1")).remaining == Budget.parse("2")


@slow
def test_staging_that_is_no_directory_is_refused_before_the_charge(ledger, ask, monkeypatch):
    monkeypatch.setenv("DBERN_LEDGER_STAGING", "/nowhere")
    with pytest.raises(EnvironmentRefusedError, match="names /nowhere, which is no directory"):
        ledger.reserve(ask())
    assert ledger.find("trips", "density") is None


@pytest.mark.parametrize("text", ["00" * 32, "A" * 43 + "=", "AAAA" * 10 + "AAA=\n"])
def test_a_secret_is_32_bytes(text):
    assert _secret_of({"DBERN_LEDGER_SECRET": text}) == bytes(32)


@pytest.mark.parametrize("text", ["", "hunter2", "00" * 31, "g" * 64, "A" * 44, "00" * 16])
def test_a_secret_of_another_form_is_refused_and_not_repeated(text):
    with pytest.raises(EnvironmentRefusedError, match="openssl rand -base64 32") as refused:
        _secret_of({"DBERN_LEDGER_SECRET": text})
    assert not text or text not in str(refused.value)


def test_the_secret_may_be_in_a_file(tmp_path):
    file = tmp_path / "secret"
    named = {"DBERN_LEDGER_SECRET_FILE": str(file)}
    with pytest.raises(EnvironmentRefusedError, match="cannot be read"):
        _secret_of(named)
    for content in (b"", b"00\n", b"\xff\xfe"):
        file.write_bytes(content)
        with pytest.raises(EnvironmentRefusedError, match="is not"):
            _secret_of(named)
    file.write_text("00" * 32 + "\n")
    assert _secret_of(named) == bytes(32)
    assert _secret_of({**named, "DBERN_LEDGER_SECRET": "01" * 32}) == b"\1" * 32


def test_a_port_that_is_no_number_is_refused_and_not_repeated():
    with pytest.raises(SpecError, match="is not a URL") as refused:
        BudgetLedger.open("postgresql+psycopg://host:hunter2/db")
    assert "hunter2" not in str(refused.value)


def test_a_server_that_is_not_there_is_said_to_be_unreachable():
    with pytest.raises(EnvironmentRefusedError, match="check that the server runs"):
        BudgetLedger.open("postgresql+psycopg://steward@127.0.0.1:1/db")


@slow
def test_a_wrong_password_is_said_and_not_repeated(url, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    with pytest.raises(EnvironmentRefusedError, match="password authentication failed") as refused:
        BudgetLedger.open(url)
    assert "hunter2" not in str(refused.value)
    assert refused.value.exit_code == 4


@slow
def test_the_password_may_come_from_a_file(url, tmp_path, server, monkeypatch):
    file = tmp_path / "pgpass"
    file.write_text(f"127.0.0.1:*:*:*:{server.password}\n")
    file.chmod(0o600)
    monkeypatch.delenv("PGPASSWORD")
    monkeypatch.setenv("PGPASSFILE", str(file))
    BudgetLedger.open(url).close()


@slow
def test_a_role_that_does_not_own_it_can_release_and_no_more(server, ledger, url, name, ask):
    """The rights that docs/ledger.md lists are enough, and do not let it drop a trigger."""
    server.execute("DROP ROLE IF EXISTS releaser")
    server.execute(f"CREATE ROLE releaser LOGIN PASSWORD '{server.password}'")
    for grant in (
        "SELECT ON ALL TABLES IN SCHEMA public",
        "INSERT ON releases, audit, keys",
        "UPDATE ON meta, releases",
        "DELETE ON keys",
        "USAGE ON ALL SEQUENCES IN SCHEMA public",
    ):
        server.execute(f"GRANT {grant} TO releaser", name)
    try:
        with BudgetLedger.open(url.replace("steward@", "releaser@")) as limited:
            held = limited.begin_reading(limited.reserve(ask()))
            limited.commit(limited.spend(held, bytes(32)), "digest")
            with pytest.raises(EnvironmentRefusedError, match="permission denied"):
                limited.grant("trips", Budget.parse("1"))
            refused = pytest.raises(EnvironmentRefusedError, match=r"must be owner|denied")
            with refused, limited._backend.write() as connection:
                connection.exec_driver_sql("ALTER TABLE audit DISABLE TRIGGER audit_stay")
    finally:
        server.execute("DROP OWNED BY releaser", name)


# Locks


@slow
def test_a_client_that_lost_its_connection_changes_nothing_any_more(
    server, ledger, held, name, url
):
    with ledger.lock(held):
        reading = ledger.begin_reading(held)
        ledger.require_lock()
        server.disconnect(name)
        with BudgetLedger.open(url) as other, other.lock(held):  # at once: the lock is free
            with pytest.raises(EnvironmentRefusedError, match="run the same command again"):
                ledger.spend(reading, bytes(32))
            for attempt in (lambda: ledger.spend(reading, bytes(32)), ledger.require_lock):
                with pytest.raises(ReleaseError, match="the lock of this release"):
                    attempt()
            assert other.find("trips", "density").state == "reading"
    assert ledger.find("trips", "density").state == "reading"  # outside it connects anew


@slow
def test_a_lock_waits_longer_than_a_transaction(ledger, held, url):

    def take():
        with BudgetLedger.open(url, busy_timeout=0.05) as other, other.lock(held):
            return True

    with ThreadPoolExecutor(1) as pool:
        with ledger.lock(held):
            waiting = pool.submit(take)
            assert not wait([waiting], 0.5).done
        assert waiting.result(60)


@slow
def test_releases_do_not_wait_for_each_other(ledger, held, ask, url):
    second = ledger.reserve(ask("other", "0.1"))
    with BudgetLedger.open(url) as other, ledger.lock(held), other.lock(second):
        other.begin_reading(second)


# Staging


@slow
def test_ledgers_that_share_a_staging_disk_sweep_only_their_own(server, ledger, held, staged):
    ledger.staging(held)
    url = server.database()
    BudgetLedger.create(url)
    with BudgetLedger.open(url) as other:
        assert other.id != ledger.id
    assert staged() == [held.release_id]
    ledger.abandon("trips", "density")
    assert staged() == []


@slow
def test_a_client_without_staging_abandons_and_the_next_sweeps(
    ledger, held, advance, staged, url, monkeypatch, keys_held
):
    ledger.staging(advance(held, "reading"))
    with monkeypatch.context() as patch:
        patch.delenv("DBERN_LEDGER_STAGING")
        ledger.abandon("trips", "density")
    assert (keys_held(), staged()) == (set(), [held.release_id])
    BudgetLedger.open(url).close()
    assert staged() == []


# Restored


@slow
def test_a_dump_loaded_elsewhere_is_a_copy(server, ledger, held, ask, name):
    url = load(server, server_dump(server, name))
    with BudgetLedger.open(url) as copy:
        assert copy.is_pending()
        with pytest.raises(BudgetError, match="reconcile"):
            copy.reserve(ask("new", "0.1"))
        copy.reconcile([])
        copy.reserve(ask("new", "0.1"))
    # Over the shared disk the ledger, too, learns that there are two of it.
    with pytest.raises(BudgetError, match="reconcile"):
        ledger.reserve(ask("new", "0.1"))


@slow
def test_a_dump_loaded_into_the_same_database_is_noticed(server, ledger, held, name, monkeypatch):
    monkeypatch.delenv("DBERN_LEDGER_STAGING")  # no mark: the database itself can tell
    dump = server_dump(server, name, "--clean")
    ledger.begin_reading(held)
    load(server, dump, name)
    with pytest.raises(BudgetError, match="reconcile"):
        ledger.begin_reading(held)
    ledger.sweep()
    assert "restored, moved or failed over" in next(
        line.detail["why"] for line in ledger.log() if line.event == "restored"
    )


@slow
def test_a_disk_put_back_is_noticed_where_the_staging_was_kept(server, ledger, held, name, ask):
    """As a snapshot of the volume: the server cannot tell, the mark can."""
    server.control("stop", "-m", "fast")
    kept = server.folder / "kept"
    server.run("/bin/cp", "-a", server.data, kept)
    server.control("start")
    ledger.begin_reading(held)
    server.control("stop", "-m", "fast")
    shutil.rmtree(server.data)
    kept.rename(server.data)
    server.control("start")
    assert ledger.find("trips", "density").state == "reserved"
    with pytest.raises(BudgetError, match="reconcile"):
        ledger.reserve(ask("new", "0.1"))


@slow
def test_a_promoted_standby_is_noticed(server, ledger, held, name, ask):
    """It may have missed the last charges; a new timeline begins."""
    server.control("stop", "-m", "fast")
    server.run("/usr/bin/touch", server.data / "standby.signal")
    server.control("start")
    server.control("promote")
    with pytest.raises(BudgetError, match="reconcile"):
        ledger.reserve(ask("new", "0.1"))


@slow
def test_a_server_that_lost_its_power_forgets_nothing(server, ledger, held):
    reading = ledger.begin_reading(held)
    server.control("restart", "-m", "immediate")
    ledger.spend(reading, bytes(32))
    assert not ledger.is_pending()
    ledger.reserve(Request("trips", "next", Budget.parse("0.1")))
