"""Notice a restored or copied ledger, and stop spending until it is reconciled.

A database that was restored to an earlier state has forgotten charges. Each time that is noticed
or declared a restore epoch begins, in which nothing is spent until the published releases are
reconciled. A database counts as restored

- when its high-water mark has a later point or, for SQLite, when it has events and no mark;
- when a SQLite database with events is another file than its mark was noted for: it is a copy of
  the folder, and both would spend;
- when it does not live where it did: what PostgreSQL says of itself changes when a dump is loaded,
  a base backup is recovered to a point in time, or a standby is promoted.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from dbern.errors import BudgetError
from dbern.ledger import statements
from dbern.ledger.backend import LedgerBackend
from dbern.ledger.high_water_mark import Point
from dbern.ledger.tables import LedgerMetadata, metadata_of, set_metadata


@contextmanager
def writing(backend: LedgerBackend) -> Iterator[Connection]:
    """Begin a write transaction that notices a restored database, and raise the mark at its end.

    What the transaction refuses is rolled back together with what was noticed: then the database
    has no new event either, and the next transaction notices it again.
    """
    with backend.write() as connection:
        why = _put_back(connection, backend)
        if why:
            begin(connection, backend, why)
        yield connection
        metadata = metadata_of(connection)
        point = _point(connection, metadata)
        mark = backend.high_water_mark(metadata.ledger_id)
        if mark is not None:  # a grant that is told as refused would be given again
            mark.require_writable(point)
    if mark is not None:
        mark.advance(point)


def _put_back(
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
        if latest is None and mark.always_there and point.event:
            return f"{mark.path} is missing or another ledger's, so this database is a copy"
        seen = seen or latest
        if seen is not None and seen > point:
            return (
                f"event {seen.event} of epoch {seen.epoch} was seen, and the database ends at "
                f"event {point.event} of epoch {point.epoch}"
            )
        if point.event and mark.of_another_file():
            return f"{mark.path} was noted for another file, so this database is a copy"
    if backend.home(connection) != metadata.home:
        return "the database was restored, moved or failed over"
    return None


def begin(connection: Connection, backend: LedgerBackend, why: str) -> None:
    """Begin a restore epoch: nothing is spent until it is reconciled."""
    metadata = metadata_of(connection)
    mark = backend.high_water_mark(metadata.ledger_id)
    seen = None if mark is None else mark.latest()
    epoch = max(metadata.epoch, seen.epoch if seen else 0) + 1
    set_metadata(connection, epoch=epoch, home=backend.home(connection))
    statements.add_audit(connection, "restored", "", detail={"epoch": epoch, "why": why})


def reconciled(connection: Connection) -> None:
    """Record that the restore epoch is reconciled: spending goes on."""
    set_metadata(connection, reconciled=metadata_of(connection).epoch)


def last_seen(backend: LedgerBackend, ledger_id: str) -> Point | None:
    """Return the latest point of the mark, to be read before a transaction that only reads."""
    mark = backend.high_water_mark(ledger_id)
    return None if mark is None else mark.latest()


def is_pending(connection: Connection, backend: LedgerBackend, seen: Point | None = None) -> bool:
    """Return whether published releases must be reconciled before anything is spent.

    A transaction that only reads gives what the mark had `seen` before it began.
    """
    metadata = metadata_of(connection)
    if metadata.epoch != metadata.reconciled:
        return True
    return _put_back(connection, backend, seen) is not None


def require_reconciled(
    connection: Connection, backend: LedgerBackend, seen: Point | None = None
) -> None:
    """Refuse to spend in a restore epoch that is not reconciled; `seen` as of `is_pending`."""
    if is_pending(connection, backend, seen):
        command = shlex.join(["dbern", "ledger", "reconcile", "--ledger", backend.url])
        raise BudgetError(
            "This ledger was restored or copied and may be missing charges. Spending is blocked. "
            f"Run, with every folder that holds published synopses: {command} FOLDER .."
        )


def _point(connection: Connection, metadata: LedgerMetadata) -> Point:
    return Point(metadata.epoch, statements.last_event(connection))
