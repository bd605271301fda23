"""The ledger's statements: values in, values out, inside the caller's transaction."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from fractions import Fraction

from sqlalchemy import Connection, RowMapping, select

from dbern.ledger.identity import json_text
from dbern.ledger.schema import audit, datasets, grants, releases
from dbern.ledger.values import (
    LIVE,
    PENDING,
    DatasetStatus,
    ReleaseRow,
    Request,
    Reservation,
    State,
    Terms,
)
from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit

_SALT_BYTES = 32


def dataset_names(connection: Connection) -> list[str]:
    """Every dataset that was ever granted a budget."""
    return list(connection.scalars(select(datasets.c.name).order_by(datasets.c.name)))


def terms_of(connection: Connection, dataset: str) -> Terms | None:
    """What the first grant fixed, or None without a grant."""
    row = connection.execute(select(datasets).where(datasets.c.name == dataset)).mappings().first()
    if row is None:
        return None
    unit = PrivacyUnit(row["unit_column"], row["unit_max_contributions"])
    return Terms(Neighbors(row["neighbors"]), unit, row["accountant"])


def account(connection: Connection, dataset: str, terms: Terms) -> DatasetStatus:
    """A dataset's account, summed exactly: the database adds no fractions."""
    granted = connection.execute(select(grants).where(grants.c.dataset == dataset)).mappings()
    query = select(releases).where(releases.c.dataset == dataset).order_by(releases.c.id)
    history = [_release_row(row) for row in connection.execute(query).mappings()]
    charged = [row for row in history if row.state is not State.REFUNDED]
    return DatasetStatus(
        dataset=dataset,
        terms=terms,
        granted=_total(_amount(row) for row in granted),
        reserved=_total(row.charge for row in charged if row.state in PENDING),
        spent=_total(row.charge for row in charged if row.state not in PENDING),
        releases=tuple(history),
    )


def add_dataset(connection: Connection, dataset: str, terms: Terms) -> None:
    """Fix a dataset's terms."""
    row = {
        "name": dataset,
        "neighbors": terms.neighbors.value,
        "unit_column": terms.unit.column,
        "unit_max_contributions": terms.unit.max_contributions,
        "accountant": terms.accountant,
        "created": now(),
    }
    connection.execute(datasets.insert().values(row))


def add_grant(connection: Connection, dataset: str, budget: Budget) -> None:
    """Add budget to a dataset."""
    row = {"dataset": dataset, **_amount_columns(budget), "created": now()}
    connection.execute(grants.insert().values(row))
    add_audit(connection, "grant", dataset, detail=_amount_columns(budget))


def add_release(connection: Connection, request: Request, release_id: str) -> Reservation:
    """Write a new reservation, with a salt of its own."""
    row = {
        "release_id": release_id,
        "dataset": request.dataset,
        "name": request.name,
        "state": State.RESERVED.value,
        **_amount_columns(request.charge),
        "identity": json_text(request.identity),
        "inputs": json_text(request.inputs),
        "plan": json_text(request.plan),
        "output": request.output,
        "salt": secrets.token_bytes(_SALT_BYTES),
        "created": now(),
    }
    inserted = connection.execute(releases.insert().values(row).returning(releases))
    reservation = _reservation(inserted.mappings().one())
    detail = _amount_columns(request.charge)
    add_audit(connection, "reserve", request.dataset, request.name, release_id, detail)
    return reservation


def add_audit(
    connection: Connection,
    event: str,
    dataset: str,
    name: str | None = None,
    release_id: str | None = None,
    detail: Mapping[str, object] | None = None,
) -> None:
    """Append one line to the audit log."""
    row = {
        "at": now(),
        "event": event,
        "dataset": dataset,
        "name": name,
        "release_id": release_id,
        "detail": json_text(detail or {}),
    }
    connection.execute(audit.insert().values(row))


def named(connection: Connection, dataset: str, name: str) -> Reservation | None:
    """The release that holds a name; a refunded one holds none."""
    query = select(releases).where(
        releases.c.dataset == dataset,
        releases.c.name == name,
        releases.c.state != State.REFUNDED.value,
    )
    row = connection.execute(query).mappings().first()
    return None if row is None else _reservation(row)


def identified(connection: Connection, release_id: str) -> Reservation | None:
    """The release of an id, whatever its state."""
    query = select(releases).where(releases.c.release_id == release_id)
    row = connection.execute(query).mappings().first()
    return None if row is None else _reservation(row)


def live_ids(connection: Connection) -> set[str]:
    """The releases that still need their keys."""
    query = select(releases.c.release_id).where(releases.c.state.in_([s.value for s in LIVE]))
    return set(connection.scalars(query))


def moved(
    connection: Connection, release_id: str, states: Collection[State], values: Mapping[str, object]
) -> bool:
    """Compare and set: change a release if it is still in one of `states`."""
    change = (
        releases.update()
        .where(releases.c.release_id == release_id)
        .where(releases.c.state.in_([state.value for state in states]))
        .values(dict(values))
    )
    return connection.execute(change).rowcount == 1


def new_id() -> str:
    """A random release id; ids are public, so nothing secret may enter one."""
    return uuid.uuid4().hex


def now() -> str:
    """The time as ISO text in UTC, to the second.

    Examples
    --------
    >>> len(now()), now()[-6:]
    (25, '+00:00')
    """
    return datetime.now(UTC).isoformat(timespec="seconds")


def _amount_columns(budget: Budget) -> dict[str, object]:
    return {"epsilon": str(budget.epsilon), "delta": str(budget.delta)}


def _amount(row: RowMapping) -> Budget:
    return Budget(Fraction(row["epsilon"]), Fraction(row["delta"]))


def _total(amounts: Iterable[Budget]) -> Budget:
    return sum(amounts, start=Budget(Fraction(0)))


def _release_row(row: RowMapping) -> ReleaseRow:
    state = State(row["state"])
    return ReleaseRow(row["name"], state, _amount(row), row["release_id"], row["created"])


def _reservation(row: RowMapping) -> Reservation:
    return Reservation(
        release_id=row["release_id"],
        dataset=row["dataset"],
        name=row["name"],
        state=State(row["state"]),
        charge=_amount(row),
        plan=json.loads(row["plan"]),
        inputs=json.loads(row["inputs"]),
        identity=json.loads(row["identity"]),
        output=row["output"],
        salt=row["salt"],
        seal=row["seal"],
        created=row["created"],
        manifest_digest=row["manifest_digest"],
    )
