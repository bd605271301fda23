"""A database put back to an earlier state is noticed, and spends nothing until reconciled."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from contextlib import closing, nullcontext
from fractions import Fraction

import pytest

from dbern.errors import BudgetError, EnvironmentRefusedError, IntegrityError, SpecError
from dbern.ledger import BudgetLedger
from dbern.ledger.high_water_mark import HighWaterMark, Point
from dbern.ledger.tables import metadata_of
from dbern.privacy.budget import Budget


@pytest.fixture
def copied(path, tmp_path):
    """Copy the SQLite file now; calling it again puts the copy back."""

    def copy():
        kept = tmp_path / "kept.db"
        source, target = (kept, path) if kept.exists() else (path, kept)
        target.write_bytes(source.read_bytes())

    return copy


@pytest.fixture
def there(tmp_path):
    """A folder beside the ledger's files, and the URL of a ledger in it."""
    folder = tmp_path / "there"
    folder.mkdir()
    return folder, f"sqlite:///{folder}/ledger.db"


@pytest.fixture
def spends_nothing(ask):
    """Whether a ledger refuses what would spend: a new release, a known one, a reserved one."""

    def refuses(ledger, reservation, mends="dbern ledger reconcile"):
        for spend in (
            lambda: ledger.reserve(ask("new", "0.1")),
            lambda: ledger.reserve(ask()),
            lambda: ledger.begin_reading(reservation),
        ):
            with pytest.raises(BudgetError, match=mends):
                spend()
        return ledger.is_pending()

    return refuses


def restores(ledger):
    """What the log says of each restore that was noticed."""
    return [line.detail for line in ledger.log() if line.event == "restored"]


sqlite_only = pytest.mark.parametrize("database", ["sqlite"])


@pytest.mark.slow
@pytest.mark.parametrize("database", ["postgresql"])  # SQLite's readers hold up who commits
@pytest.mark.parametrize("asked", ["require_account", "is_pending"])
def test_a_commit_beside_a_read_is_no_restored_database(ledger, ask, url, monkeypatch, asked):
    """The mark that it notes is later than all that the read began with."""
    began = []

    def another_commits(connection):
        metadata = metadata_of(connection)  # from here on the read sees the ledger as it is now
        if not began:
            began.append(metadata)
            with BudgetLedger.open(url) as beside:
                beside.reserve(ask("beside", "0.1"))
        return metadata

    monkeypatch.setattr("dbern.ledger.restore_epochs.metadata_of", another_commits)
    request = [ask("new", "0.1")] if asked == "require_account" else []
    assert not getattr(ledger, asked)(*request)
    assert began


@sqlite_only
def test_a_copy_put_back_spends_nothing(ledger, held, ask, advance, copied, url, spends_nothing):
    """Each refusal is an event of its own: none of them makes up for the lost ones."""
    other = ledger.reserve(ask("other", "0.1"))
    copied()
    advance(held, "spent")
    copied()
    for opened in (ledger, BudgetLedger.open(url)):
        assert spends_nothing(opened, other, f"dbern ledger reconcile --ledger {url}")
    assert len(restores(ledger)) == 1


@sqlite_only
@pytest.mark.parametrize("lost", [1, 4])
def test_one_lost_event_is_noticed(ledger, ask, copied, lost):
    copied()
    for number in range(lost):
        ledger.reserve(ask(f"r{number}", "0.1"))
    assert not ledger.is_pending()
    copied()
    assert ledger.is_pending()


def test_a_mark_that_cannot_be_raised_changes_nothing(ledger, ask, monkeypatch):
    """What is told as refused is asked for again: a grant would then be given twice."""

    def refused(_mark):
        raise PermissionError(errno.EACCES, "Permission denied")

    before = ledger.status(), ledger.log()
    with monkeypatch.context() as patch:
        patch.setattr(HighWaterMark, "_open_file", refused)
        for change in (
            lambda: ledger.grant("trips", Budget.parse("1")),
            lambda: ledger.reserve(ask()),
            ledger.declare_restored,
        ):
            with pytest.raises(EnvironmentRefusedError, match=r"mark .* writable for this user"):
                change()
    assert (ledger.status(), ledger.log()) == before


NAMES = ("ledger.db", "ledger.db.mark", "ledger.db.keys")


@sqlite_only
def test_a_ledger_moved_with_its_mark_goes_on(ledger, held, path, there):
    for name in NAMES:
        shutil.move(path.with_name(name), there[0] / name)
    with BudgetLedger.open(there[1]) as moved:
        moved.begin_reading(held)


@sqlite_only
@pytest.mark.parametrize(("mark", "why"), [(True, "noted for another file"), (False, "is missing")])
def test_a_copied_folder_spends_nothing_and_its_ledger_goes_on(
    ledger, held, ask, path, there, spends_nothing, mark, why
):
    shutil.copytree(path.parent, there[0], dirs_exist_ok=True, ignore=lambda *_: ["there"])
    if not mark:
        (there[0] / "ledger.db.mark").unlink()
    with BudgetLedger.open(there[1], read_only=True) as looking:
        assert looking.is_pending()
    with BudgetLedger.open(there[1]) as copy:
        assert spends_nothing(copy, held)
        (detail,) = restores(copy)
        assert why in detail["why"]
        assert not ledger.is_pending()
        ledger.begin_reading(held)
        copy.reconcile([])
        copy.reserve(ask("new", "0.1"))
        assert not copy.is_pending()


@sqlite_only
@pytest.mark.parametrize(
    ("words_of", "is_copy"),
    [
        (lambda file: [], True),  # it names no file
        (lambda file: [file.st_ino, 77], False),  # another device, as after a reboot
        (lambda file: [file.st_ino + 1, file.st_dev], True),
    ],
)
def test_a_mark_is_of_the_inode_that_it_names(ledger, held, path, url, words_of, is_copy):
    mark = path.with_name("ledger.db.mark")
    words = [f"{number:020d}" for number in words_of(path.stat())]
    mark.write_text(" ".join([*mark.read_text().split()[:3], *words]) + "\n")
    with BudgetLedger.open(url, read_only=True) as looking:
        assert looking.is_pending() is is_copy
    with pytest.raises(BudgetError, match="reconcile") if is_copy else nullcontext():
        ledger.begin_reading(held)


@sqlite_only
def test_a_vacuum_is_no_copy(ledger, held, path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
    ledger.begin_reading(held)


@sqlite_only
def test_an_empty_ledger_has_nothing_to_forget(path, url):
    path.with_name("ledger.db.mark").unlink()
    with BudgetLedger.open(url) as ledger:
        ledger.grant("trips", Budget.parse("1"))
        assert not ledger.is_pending()


@sqlite_only
def test_a_ledger_put_back_again_after_reconciling_is_noticed(ledger, held, ask, copied):
    copied()
    ledger.begin_reading(held)
    copied()
    ledger.sweep()
    ledger.reconcile([])
    for number in range(9):  # more events than the first epoch ever had
        ledger.reserve(ask(f"r{number}", "0.01"))
    assert not ledger.is_pending()
    copied()
    assert ledger.is_pending()
    ledger.sweep()
    assert restores(ledger)[-1]["epoch"] == 3


@sqlite_only
def test_a_damaged_mark_is_no_mark(ledger, held, path):
    for text in ("", "garbage", "a 1 x", f"{ledger.id} 1"):
        path.with_name("ledger.db.mark").write_text(text)
        assert ledger.is_pending()
    path.with_name("ledger.db.mark").unlink()
    assert ledger.is_pending()


def test_an_event_that_another_process_saw_first_is_no_alarm(url, ledger, ask):
    with BudgetLedger.open(url) as other:
        for number in range(3):
            ledger.reserve(ask(f"a{number}", "0.01"))
            other.reserve(ask(f"b{number}", "0.01"))
    assert not ledger.is_pending()


def test_a_mark_never_falls(tmp_path):
    mark = HighWaterMark(tmp_path / "mark", "0" * 32, required=True)
    for point in (Point(1, 5), Point(1, 4), Point(2, 1), Point(1, 9), Point(2, 0)):
        mark.advance(point)
    assert mark.latest() == Point(2, 1)
    assert HighWaterMark(tmp_path / "mark", "1" * 32, required=True).latest() is None


def test_a_declared_restore_blocks_spending_until_reconciled(ledger, held, ask, url, keys_held):
    ledger.declare_restored()
    for step in (lambda: ledger.begin_reading(held), lambda: ledger.reserve(ask("new", "0.1"))):
        with pytest.raises(BudgetError, match="reconcile"):
            step()
    assert keys_held() == {held.release_id}  # refused before a key was made
    ledger.grant("trips", Budget.parse("1"))  # granting spends nothing
    ledger.reconcile([], more=True)
    assert ledger.is_pending()
    ledger.reconcile([])
    with BudgetLedger.open(url, read_only=True) as looking:
        assert not looking.is_pending()
    ledger.reserve(ask("new", "0.1"))
    ledger.begin_reading(held)


def test_a_release_charged_before_a_restore_may_be_committed(ledger, held, advance, ask):
    spent = advance(held, "spent")
    ledger.declare_restored()
    assert ledger.reserve(ask()) == spent
    ledger.commit(spent, "digest")
    assert ledger.reserve(ask()).state == "committed"


def test_an_unknown_release_is_charged_once(ledger, found, ask):
    done = ledger.reconcile([found(), found(output="copy.zarr")])
    assert ([one.name for one in done.charged], len(done.known)) == (["lost"], 1)
    assert len(ledger.reconcile([found()]).known) == 1
    (status,) = ledger.status("trips")
    assert status.spent == Budget.parse("0.25")
    (row,) = status.releases
    assert (row.name, row.state, row.created) == ("lost", "committed", found().created)
    with pytest.raises(SpecError, match=r"published at lost\.zarr"):
        ledger.reserve(ask("lost"))
    (line,) = [line for line in ledger.log() if line.event == "reconciled"]
    assert (line.detail["epsilon"], line.detail["was"]) == ("1/4", "unknown")


def test_reconciled_charges_beyond_the_grant_count(ledger, found, ask):
    ledger.reconcile([found(charge=Budget.parse("3"))])
    assert ledger.status("trips")[0].remaining == Budget(Fraction(-2))
    with pytest.raises(BudgetError, match="remaining epsilon -2"):
        ledger.reserve(ask("new", "0.1"))


def test_a_zcdp_account_is_charged_a_reconciled_rho(ledger, found):
    ledger.grant("zcdp", Budget.parse("1", "1e-6"), accountant="zcdp")
    gaussian = found(dataset="zcdp", charge=Budget.parse("0.5", "1e-6"), rho=Fraction(1, 300))
    ledger.reconcile([gaussian, found("ac" * 16, "pure", dataset="zcdp")])
    (status,) = ledger.status("zcdp")
    assert status.spent.rho == Fraction(1, 300) + Fraction(1, 32)
    assert "rho -0." in str(status.remaining)
    with pytest.raises(BudgetError, match="no rho"):
        ledger.reconcile([found("ad" * 16, dataset="zcdp", charge=Budget.parse("0.1", "1e-9"))])


def test_a_reconciled_release_counts_in_the_period_of_its_reservation(ledger, found, monkeypatch):
    monkeypatch.setattr("dbern.ledger.tables.now", lambda: "2026-11-21T01:00:00+00:00")
    ledger.grant("nightly", Budget.parse("1"), period="day")
    ledger.reconcile([found(dataset="nightly")])
    (status,) = ledger.status("nightly")
    assert (status.spent, status.earlier) == (Budget(Fraction(0)), Budget.parse("0.25"))


@pytest.mark.parametrize("state", ["reserved", "reading", "spent"])
def test_a_release_known_as_unfinished_is_closed(ledger, held, advance, found, keys_held, state):
    advance(held, state)
    ledger.declare_restored()
    done = ledger.reconcile([found(held.release_id, "density", charge=held.charge)])
    assert (done.charged, len(done.known)) == ((), 1)
    assert ledger.find("trips", "density").state == "committed"
    assert ledger.find("trips", "density").manifest_digest == "digest"
    assert keys_held() == set()  # a key beside its synopsis would be the data
    assert ledger.status("trips")[0].spent == Budget.parse("0.4")
    with pytest.raises(SpecError, match="is committed"):
        ledger.abandon("trips", "density")


def test_a_release_that_is_just_publishing_is_left_to_itself(ledger, held, advance, found):
    spent = advance(held, "spent")
    ledger.reconcile([found(held.release_id, charge=held.charge)])
    ledger.commit(spent, "digest")


def test_a_refund_is_taken_back(ledger, held, found, ask):
    """Put back to its reservation, then abandoned: it was published all the same."""
    ledger.abandon("trips", "density")
    ledger.reserve(ask())
    done = ledger.reconcile([found(held.release_id, "density", charge=held.charge)])
    assert [one.name for one in done.charged] == [f"density~{held.release_id[:8]}"]
    (status,) = ledger.status("trips")
    assert (status.spent, status.reserved) == (Budget.parse("0.4"), Budget.parse("0.4"))


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, "abandoned"), ("reserved", "abandoned"), ("reading", "abandoned"), ("spent", "spent")],
)
def test_an_unfinished_folder_is_charged_but_not_published(
    ledger, ask, advance, found, before, after
):
    torso = found(manifest_digest=None)
    if before:
        held = advance(ledger.reserve(ask("lost", "0.25")), before)
        torso = found(held.release_id, manifest_digest=None)
    ledger.declare_restored()
    ledger.reconcile([torso])
    (status,) = ledger.status("trips")
    assert [row.state for row in status.releases] == [after]
    assert status.spent == Budget.parse("0.25")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dataset": "new"}, "dbern ledger grant .* --dataset new --epsilon 0.25"),
        ({"unit": "rider (at most 8 rows)"}, "was granted for neighbors replace-one"),
        ({"neighbors": "add-or-remove-one"}, "was granted for"),
    ],
)
def test_a_release_that_cannot_be_charged_changes_nothing(ledger, found, fields, said):
    ledger.declare_restored()
    with pytest.raises(BudgetError, match=said):
        ledger.reconcile([found("00" * 16, "fine"), found(**fields)])
    assert ledger.status("trips")[0].releases == ()
    assert ledger.is_pending()


@pytest.mark.parametrize("state", ["reserved", "committed", "refunded"])
def test_another_guarantee_than_the_charge_is_an_integrity_error(
    ledger, held, advance, found, state
):
    advance(held, state)
    with pytest.raises(IntegrityError, match=r"states epsilon 0\.25.* was charged epsilon 0\.4"):
        ledger.reconcile([found(held.release_id)])


@sqlite_only
def test_the_mark_says_nothing_of_what_was_released(ledger, held, path):
    with closing(sqlite3.connect(path)) as connection:
        ((last,),) = connection.execute("SELECT max(id) FROM audit").fetchall()
    file = path.stat()
    assert path.with_name("ledger.db.mark").read_text().split() == [
        ledger.id, "0000000001", f"{last:020d}", f"{file.st_ino:020d}", f"{file.st_dev:020d}",
    ]  # fmt: skip


@sqlite_only
def test_a_charge_is_in_the_mark_before_it_is_used(ledger, held, path, monkeypatch):
    """Killed between: the charge is there, the mark not yet, and nothing was done with it."""
    reading = ledger.begin_reading(held)

    def killed(self, point):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HighWaterMark, "advance", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger.spend(reading, bytes(32))
    with BudgetLedger.open(ledger.url) as again:
        assert not again.is_pending()
        assert again.find("trips", "density").state == "spent"
    mark = HighWaterMark(path.with_name("ledger.db.mark"), ledger.id, required=True)
    assert mark.latest() == Point(1, 4)
