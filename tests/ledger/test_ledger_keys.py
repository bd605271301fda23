"""Keys: on the disk before their reservation, nowhere else, gone when the release is over."""

from __future__ import annotations

import os

import numpy as np
import pytest

from dbern.data.drafts import private_directory
from dbern.errors import EnvironmentRefusedError, IntegrityError, ReleaseError
from dbern.ledger import BudgetLedger
from dbern.ledger.keys import KeyFiles
from dbern.privacy.budget import Budget


@pytest.fixture
def database():
    return "sqlite"


@pytest.fixture
def keys(path):
    return path.with_name("ledger.db.keys")


def test_a_key_is_a_private_file_of_its_own(ledger, held, keys):
    (file,) = keys.iterdir()
    assert file.name == f"{held.release_id}.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert keys.stat().st_mode & 0o777 == 0o700
    assert ledger.key(held) == file.read_bytes()
    assert len(ledger.key(held)) == 32


def test_an_open_umask_changes_nothing(umask, request, path, keys):
    umask(0)
    request.getfixturevalue("held")
    assert path.stat().st_mode & 0o777 == 0o600
    assert {file.stat().st_mode & 0o077 for file in (keys, *keys.iterdir())} == {0}


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o177, 0o377])
def test_the_folder_of_keys_is_the_owner_s_whatever_the_umask(tmp_path, umask, mask):
    umask(mask)
    private_directory(tmp_path / "keys")
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700


def test_the_key_is_nowhere_in_the_database(ledger, held, path, advance):
    key = ledger.key(held)
    advance(held, "spent")
    content = path.read_bytes()
    for form in (key, key.hex().encode(), key[:8], held.salt):
        assert (form in content) == (form is held.salt)
    assert held.release_id not in key.hex()


@pytest.mark.parametrize("state", ["committed", "abandoned", "refunded"])
def test_key_and_staging_die_with_the_release(ledger, held, advance, path, keys, state):
    ledger.staging(held)
    assert list(path.with_name("ledger.db.staging").iterdir())
    advance(held, state)
    assert list(keys.iterdir()) == []
    assert list(path.with_name("ledger.db.staging").iterdir()) == []
    with pytest.raises(IntegrityError, match=f"is {state}, not reserved"):
        ledger.key(held)


@pytest.mark.parametrize(("state", "fate"), [("reserved", "refunded"), ("reading", "stands")])
def test_a_missing_or_damaged_key_says_so(ledger, held, advance, keys, state, fate):
    reservation = advance(held, state)
    (keys / f"{held.release_id}.key").unlink()
    with pytest.raises(IntegrityError, match=f"{fate}.*dbern ledger abandon"):
        ledger.key(reservation)
    with pytest.raises(IntegrityError, match="dbern ledger abandon"):
        ledger.staging(reservation)
    (keys / f"{held.release_id}.key").write_bytes(bytes(16))
    with pytest.raises(IntegrityError, match="damaged"):
        ledger.key(reservation)
    ledger.abandon("trips", "density")


@pytest.mark.parametrize("state", ["reserved", "reading", "spent", "committed"])
def test_the_ledger_sweeps_orphans_when_opened_and_nothing_else(
    ledger, held, advance, url, path, keys, state
):
    advance(held, state)
    live = {f"{held.release_id}.key"} if state != "committed" else set()
    staging = path.with_name("ledger.db.staging")
    (keys / f"{'f' * 32}.key").write_bytes(bytes(32))
    (keys / "README").write_text("not a key")
    for orphan in ("e" * 32, f"{'d' * 32}.dead-0a", "notes"):
        (staging / orphan).mkdir(parents=True)
        (staging / orphan / "block").write_bytes(b"x")
    locks = path.with_name("ledger.db.locks")
    with ledger.lock(held):
        (locks / f"{'c' * 32}.lock").write_text("")
        BudgetLedger.open(url).close()
        assert (locks / f"{held.release_id}.lock").exists() == bool(live)
    assert {file.name for file in keys.iterdir()} == {"README"} | live
    assert {file.name for file in staging.iterdir()} == {"notes"}
    assert not (locks / f"{'c' * 32}.lock").exists()


def test_a_read_only_ledger_sweeps_nothing(ledger, held, url, keys):
    orphan = keys / f"{'f' * 32}.key"
    orphan.write_bytes(bytes(32))
    with BudgetLedger.open(url, read_only=True) as looking:
        assert looking.find("trips", "density") == held
    assert orphan.exists()


def test_the_key_is_there_before_the_row_and_unsweepable_meanwhile(ledger, ask, url, monkeypatch):
    # While a key is being made, its maker holds the write lock that a sweep needs.
    create = KeyFiles.create
    seen = []

    def watched(self, release_id):
        create(self, release_id)
        with pytest.raises(EnvironmentRefusedError, match="locked"):
            BudgetLedger.open(url, busy_timeout=0.05)
        with BudgetLedger.open(url, read_only=True) as looking:
            seen.append(looking.find("trips", "density"))

    monkeypatch.setattr(KeyFiles, "create", watched)
    held = ledger.reserve(ask())
    assert seen == [None]
    assert len(ledger.key(held)) == 32


def test_a_key_that_cannot_be_made_stops_the_charge(ledger, ask, keys, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(os, "fsync", full)
        with pytest.raises(EnvironmentRefusedError, match=r"No space left on device.*charged"):
            ledger.reserve(ask())
    assert ledger.status("trips")[0].remaining == Budget.parse("1")
    assert not keys.exists() or list(keys.iterdir()) == []
    ledger.reserve(ask())


def killed(python, url, place, step):
    """Take a step in a process that is killed where it comes to a place."""
    script = (
        "import os, signal\n"
        "from dbern.ledger import BudgetLedger, Request, tables\n"
        "from dbern.ledger.keys import KeyFiles\n"
        "from dbern.privacy.budget import Budget\n"
        f"{place} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"ledger = BudgetLedger.open({url!r})\n"
        f"ledger.{step}\n"
    )
    process = python(script)
    process.communicate(timeout=300)
    assert process.returncode == -9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "state"),
    [("commit(ledger.find('trips', 'density'), 'digest')", "committed"),
     ("abandon('trips', 'density')", "abandoned")],
)  # fmt: skip
def test_a_kill_between_state_and_key_is_mended_by_the_next_opening(
    ledger, held, advance, url, keys, python, step, state
):
    advance(held, "spent")
    ledger.staging(held).put("a", 0, np.array([1]))
    killed(python, url, "KeyFiles.destroy", step)
    assert ledger.find("trips", "density").state == state
    assert len(list(keys.iterdir())) == 1
    BudgetLedger.open(url).close()
    assert list(keys.iterdir()) == []
    assert list(keys.with_name("ledger.db.staging").iterdir()) == []


@pytest.mark.slow
def test_a_kill_between_key_and_row_charges_nothing(ledger, url, keys, python):
    reserve = "reserve(Request('trips', 'density', Budget.parse('0.4')))"
    killed(python, url, "tables.add_release", reserve)
    assert len(list(keys.iterdir())) == 1
    with BudgetLedger.open(url) as again:
        assert again.status("trips")[0].remaining == Budget.parse("1")
    assert list(keys.iterdir()) == []


def test_a_key_that_cannot_be_removed_is_reported(ledger, held, monkeypatch):
    def refuse(self, release_id):
        raise PermissionError(13, "Permission denied", f"{release_id}.key")

    monkeypatch.setattr(KeyFiles, "destroy", refuse)
    with pytest.raises(ReleaseError, match=r"is refunded, but its key .* Permission denied"):
        ledger.abandon("trips", "density")
    with pytest.raises(EnvironmentRefusedError, match="cannot be removed: Permission denied"):
        ledger.sweep()


def test_a_link_to_the_ledger_finds_the_same_keys(ledger, held, path, tmp_path):
    (tmp_path / "link.db").symlink_to(path)
    with BudgetLedger.open(f"sqlite:///{tmp_path}/link.db") as linked:
        assert linked.key(held) == ledger.key(held)


def test_messages_and_reprs_hold_no_secrets(ledger, held):
    spent = ledger.spend(ledger.begin_reading(held), os.urandom(32))
    for secret in (spent.salt, spent.seal, ledger.key(spent)):
        assert repr(secret) not in repr(spent)
        assert secret.hex() not in repr(spent)


def test_salts_and_ids_are_fresh(ledger, ask):
    held = [ledger.reserve(ask(f"r{number}", "0.1")) for number in range(5)]
    assert len({reservation.salt for reservation in held}) == 5
    assert len({reservation.release_id for reservation in held}) == 5
    assert len({ledger.key(reservation) for reservation in held}) == 5
    assert not any(ledger.key(reservation) == reservation.salt for reservation in held)


def test_a_hard_link_to_a_key_is_overwritten_and_one_to_a_staged_block_is_worth_nothing(
    ledger, held, advance, tmp_path, keys, path
):
    """As docs/threat-model.md says: backups made of links keep what has another name."""
    key = ledger.key(held)
    ledger.staging(held).put("density", 0, np.arange(1000))
    (block,) = path.with_name("ledger.db.staging").rglob("*.block")
    os.link(keys / f"{held.release_id}.key", tmp_path / "key")
    os.link(block, tmp_path / "block")
    advance(held, "abandoned")
    assert (tmp_path / "key").read_bytes() == bytes(32) != key
    assert not block.exists()
    assert np.arange(1000).tobytes()[:64] not in (tmp_path / "block").read_bytes()
