"""Whether the database is what it was: one put back to an earlier state forgets charges.

Each time that is noticed or declared a new epoch begins, in which nothing is spent until the
published releases are reconciled (privacy.md, section 5). A database is taken for put back

- when a later point of it was seen (its mark) or, for SQLite, when it has events and no mark;
- when a SQLite database with events is another file than its mark was noted for: a copy of the
  whole folder, of which both would spend;
- when it does not live where it did: what PostgreSQL says of itself changes when a dump is loaded,
  a base backup recovered to a point in time, or a standby promoted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from dbern.ledger import refusals, rows
from dbern.ledger.backend import Backend
from dbern.ledger.marks import Point
from dbern.ledger.schema import facts_of, set_facts


@contextmanager
def writing(backend: Backend) -> Iterator[Connection]:
    """A write transaction that notices a database put back, and raises the mark when it is over.

    What the transaction refuses is rolled back together with what was noticed: then the database
    has no new event either, and the next transaction notices it again.
    """
    with backend.write() as connection:
        why = put_back(connection, backend)
        if why:
            begin(connection, backend, why)
        yield connection
        facts = facts_of(connection)
        point = _point(connection, facts)
        mark = backend.mark(facts["ledger_id"])
        if mark is not None:  # a grant that is told as refused would be given again
            mark.require_writable(point)
    if mark is not None:
        mark.advance(point)


def put_back(connection: Connection, backend: Backend) -> str | None:
    """Why the database must have been put back to an earlier state; None when nothing says so."""
    facts = facts_of(connection)
    point, mark = _point(connection, facts), backend.mark(facts["ledger_id"])
    if mark is not None:
        seen = mark.latest()
        if seen is None and mark.always_there and point.event:
            return f"{mark.path} is missing or another ledger's, so this database is a copy"
        if seen is not None and seen > point:
            return (
                f"event {seen.event} of epoch {seen.epoch} was seen, and the database ends at "
                f"event {point.event} of epoch {point.epoch}"
            )
        if point.event and mark.of_another_file():
            return f"{mark.path} was noted for another file, so this database is a copy"
    if backend.home(connection) != facts["home"]:
        return "the database was restored, moved or failed over"
    return None


def begin(connection: Connection, backend: Backend, why: str) -> None:
    """Begin a new epoch: nothing is spent until it is reconciled."""
    facts = facts_of(connection)
    mark = backend.mark(facts["ledger_id"])
    seen = None if mark is None else mark.latest()
    epoch = max(int(facts["epoch"]), seen.epoch if seen else 0) + 1
    set_facts(connection, epoch=str(epoch), home=backend.home(connection))
    rows.add_audit(connection, "restored", "", detail={"epoch": epoch, "why": why})


def reconciled(connection: Connection) -> None:
    """Spending may go on."""
    set_facts(connection, reconciled=facts_of(connection)["epoch"])


def is_pending(connection: Connection, backend: Backend) -> bool:
    """Whether published releases must be reconciled before anything is spent."""
    facts = facts_of(connection)
    return facts["epoch"] != facts["reconciled"] or put_back(connection, backend) is not None


def require_reconciled(connection: Connection, backend: Backend) -> None:
    """Refuse to spend in an epoch that is not reconciled.

    Raises
    ------
    BudgetError
        Naming the command that reconciles it.
    """
    if is_pending(connection, backend):
        raise refusals.unreconciled(backend.url)


def _point(connection: Connection, facts: dict[str, str]) -> Point:
    return Point(int(facts["epoch"]), rows.last_event(connection))
