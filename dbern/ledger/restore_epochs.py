"""Restored and copied ledgers, never crashed ones: noticed, and reconciled before more is spent.

A crash loses no charge that was committed: docs/ledger.md has where a release may stop, and what an
operator does after a restore.

A database that was restored to an earlier state has forgotten charges. Each time that is noticed
or declared a restore epoch begins, in which nothing is spent until the published releases are
reconciled. A database counts as restored

- when its high-water mark has a later point or, for SQLite, when it has events and no mark;
- when a SQLite database with events is another file than its mark was noted for: it is a copy of
  the folder, and both would spend;
- when it does not live where it did: what PostgreSQL says of itself changes when a dump is loaded,
  a base backup is recovered to a point in time, or a standby is promoted.

Published releases are then charged, closed, or another ledger's.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import Connection

from dbern.errors import BudgetError, IntegrityError
from dbern.ledger import tables
from dbern.ledger.accounts import dataset_terms
from dbern.ledger.backend import LedgerBackend
from dbern.ledger.composition import ZCDP, rho_of_charge
from dbern.ledger.entries import FREE, OVER, PENDING, Published, Reconciled, Reservation, State
from dbern.ledger.high_water_mark import Point
from dbern.ledger.tables import LedgerMetadata, metadata_of, set_metadata

_BY_ITSELF = "Reconcile such synopses by themselves with --dataset NAME --more"


@contextmanager
def write_transaction(backend: LedgerBackend) -> Iterator[Connection]:
    """Begin a write transaction that notices a restored database, and raise the mark at its end.

    What the transaction refuses is rolled back together with what was noticed: then the database
    has no new event either, and the next transaction notices it again.
    """
    with backend.write() as connection:
        why = _why_restored(connection, backend)
        if why:
            begin_epoch(connection, backend, why)
        yield connection
        metadata = metadata_of(connection)
        point = _point(connection, metadata)
        mark = backend.high_water_mark(metadata.ledger_id)
        if mark is not None:  # a grant that is told as refused would be given again
            mark.require_writable(point)
    if mark is not None:
        mark.advance(point)


def _why_restored(
    connection: Connection, backend: LedgerBackend, seen: Point | None = None
) -> str | None:
    """Reason why the database must have been restored to an earlier state, or None.

    A transaction that only reads may see less than has been committed and noted since it began:
    it tells what the mark had `seen` before that.
    """
    metadata = metadata_of(connection)
    point, mark = _point(connection, metadata), backend.high_water_mark(metadata.ledger_id)
    if mark is not None:
        latest = mark.latest()
        if latest is None and mark.required and point.event:
            return f"{mark.path} is missing or another ledger's, so this database is a copy"
        seen = seen or latest
        if seen is not None and seen > point:
            return (
                f"event {seen.event} of epoch {seen.epoch} was seen, and the database ends at "
                f"event {point.event} of epoch {point.epoch}"
            )
        if point.event and mark.is_of_another_file():
            return f"{mark.path} was noted for another file, so this database is a copy"
    if backend.home(connection) != metadata.home:
        return "the database was restored, moved or failed over"
    return None


def begin_epoch(connection: Connection, backend: LedgerBackend, why: str) -> None:
    """Begin a restore epoch: nothing is spent until it is reconciled."""
    metadata = metadata_of(connection)
    mark = backend.high_water_mark(metadata.ledger_id)
    seen = None if mark is None else mark.latest()
    epoch = max(metadata.epoch, seen.epoch if seen else 0) + 1
    set_metadata(connection, epoch=epoch, home=backend.home(connection))
    tables.add_audit(connection, "restored", "", detail={"epoch": epoch, "why": why})


def end_epoch(connection: Connection) -> None:
    """Record that the restore epoch is reconciled: spending goes on."""
    set_metadata(connection, reconciled=metadata_of(connection).epoch)


def last_seen(backend: LedgerBackend, ledger_id: str) -> Point | None:
    """Return the latest point of the mark, to be read before a transaction that only reads."""
    mark = backend.high_water_mark(ledger_id)
    return None if mark is None else mark.latest()


def must_reconcile(
    connection: Connection, backend: LedgerBackend, seen: Point | None = None
) -> bool:
    """Return whether published releases must be reconciled before anything is spent.

    A transaction that only reads gives what the mark had `seen` before it began.
    """
    metadata = metadata_of(connection)
    if metadata.epoch != metadata.reconciled:
        return True
    return _why_restored(connection, backend, seen) is not None


def require_reconciled(
    connection: Connection, backend: LedgerBackend, seen: Point | None = None
) -> None:
    """Refuse to spend in a restore epoch that is not reconciled; `seen` as of `must_reconcile`."""
    if must_reconcile(connection, backend, seen):
        command = shlex.join(["dbern", "ledger", "reconcile", "--ledger", backend.url])
        raise BudgetError(
            "This ledger was restored or copied and may be missing charges. Spending is blocked. "
            f"Run, with every folder that holds published synopses: {command} FOLDER .."
        )


def _point(connection: Connection, metadata: LedgerMetadata) -> Point:
    return Point(metadata.epoch, tables.last_event(connection))


def reconcile(
    connection: Connection,
    url: str,
    ledger_id: str,
    published: Sequence[Published],
    *,
    restored: bool,
) -> Reconciled:
    """Charge or close every published release; a refusal leaves everything as it was.

    Where the ledger was `restored`, no release is under way: see `_close`.
    A release that the ledger does not know is charged to the dataset that it names, even beyond
    what was granted: the loss is real. One that it knows in an earlier state is closed, so that
    its charge can never be refunded and its key goes; one that it refunded is charged again.
    Whole synopses come first, for of a release that has one an unfinished folder adds nothing.
    """
    charged: list[Published] = []
    known: list[Published] = []
    foreign: list[Published] = []
    for release in sorted(
        published, key=lambda release: (release.manifest_digest is None, release.created)
    ):
        reservation = tables.identified(connection, release.release_id)
        if reservation is None and release.ledger_id != ledger_id:
            foreign.append(release)
        elif reservation is None or reservation.state is State.REFUNDED:
            charged.append(_charge(connection, url, reservation, release))
        else:
            _close(connection, reservation, release, restored=restored)
            known.append(release)
    return Reconciled(tuple(charged), tuple(known), tuple(foreign))


def _charge(
    connection: Connection,
    url: str,
    reservation: Reservation | None,
    release: Published,
) -> Published:
    if reservation is not None:
        _require_same(reservation, release)
    dataset = release.dataset if reservation is None else reservation.dataset
    release = replace(release, dataset=dataset, rho=rho_of_charge(release.charge, release.rho))
    _require_terms(connection, url, release, dataset)
    state = _state(release)
    # Its own name may have been given to another release since.
    holder = tables.named(connection, dataset, release.name)
    if holder and holder.state in PENDING and release.charge == FREE:
        # A node that its stream paid for costs nothing under any name, so it gets no second one.
        aside, gone = f"{holder.name}~{holder.release_id[:8]}", State.ABANDONED.value
        change = {"state": gone, "name": aside}
        tables.moved(connection, holder.release_id, PENDING, change)
        tables.add_audit(connection, gone, dataset, aside, holder.release_id)
        holder = None
    taken = holder is not None
    name = f"{release.name}~{release.release_id[:8]}" if taken else release.name
    if reservation is None:
        tables.add_published(connection, release, dataset, name, state)
    else:
        values = {"state": state.value, "name": name, "manifest_digest": release.manifest_digest}
        tables.moved(connection, release.release_id, [reservation.state], values)
    _log(connection, replace(release, name=name), reservation)
    return replace(release, name=name)


def _close(
    connection: Connection, reservation: Reservation, release: Published, *, restored: bool
) -> None:
    _require_same(reservation, release)
    # A charged release without a manifest goes on; one with a manifest may be about to say so
    # itself, unless the ledger was restored and whoever published it is long gone. A stream's
    # charge, which has no output, is under way as long as its horizon.
    under_way = reservation.state is State.SPENT and not (
        restored and release.manifest_digest and release.output
    )
    if reservation.state in OVER or under_way:
        return
    values = {"state": _state(release).value, "manifest_digest": release.manifest_digest}
    tables.moved(connection, release.release_id, [reservation.state], values)
    _log(
        connection,
        replace(release, dataset=reservation.dataset, name=reservation.name),
        reservation,
    )


def _state(release: Published) -> State:
    return State.ABANDONED if release.manifest_digest is None else State.COMMITTED


def _require_same(reservation: Reservation, release: Published) -> None:
    if reservation.charge != release.charge:
        raise IntegrityError(
            f"{release.output}: states {release.charge}, and its release {release.name!r} was "
            f"charged {reservation.charge}, so one of them was changed. Nothing was reconciled. "
            "Bring the synopsis or the ledger back as it was."
        )


def _require_terms(connection: Connection, url: str, release: Published, dataset: str) -> None:
    terms = dataset_terms(connection, url, dataset, release.charge)
    if (terms.neighbors.value, str(terms.unit)) != (release.neighbors, release.unit):
        raise BudgetError(
            f"{release.output}: protects neighbors {release.neighbors}, unit {release.unit}, and "
            f"dataset {dataset!r} was granted for {terms}, so its cost does not add up with the "
            f"others. Grant another dataset on its terms. {_BY_ITSELF}."
        )
    if terms.accountant == ZCDP and release.rho is None:
        raise BudgetError(
            f"{release.output}: states {release.charge} and no rho, and dataset {dataset!r} is "
            f"accounted in zCDP, so another account paid for it. {_BY_ITSELF}."
        )


def _log(connection: Connection, release: Published, reservation: Reservation | None) -> None:
    detail = {
        **tables.amount_columns(release.charge),
        "rho": None if release.rho is None else str(release.rho),
        "was": "unknown" if reservation is None else reservation.state.value,
        "state": _state(release).value,
        "output": release.output,
    }
    tables.add_audit(
        connection, "reconciled", release.dataset, release.name, release.release_id, detail
    )
