"""The ledger's statements: values in, values out, inside the caller's transaction."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from fractions import Fraction

from sqlalchemy import Connection, RowMapping, func, select

from dbern.ledger.accounting import rho_of_charge
from dbern.ledger.identity import abridged, json_text
from dbern.ledger.schema import audit, datasets, grants, releases
from dbern.ledger.values import (
    LIVE,
    AuditLine,
    Published,
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
    random_dp = row["random_dp"] is not None
    return Terms(Neighbors(row["neighbors"]), unit, row["accountant"], row["period"], random_dp)


def granted(connection: Connection, dataset: str) -> Budget:
    """All grants of a dataset, summed exactly: the database adds no fractions."""
    found = connection.execute(select(grants).where(grants.c.dataset == dataset)).mappings()
    return sum((_amount(row) for row in found), start=Budget(Fraction(0)))


def history(connection: Connection, dataset: str) -> list[ReleaseRow]:
    """Every release of a dataset, in the order of their reservations."""
    query = select(releases).where(releases.c.dataset == dataset).order_by(releases.c.id)
    return [_release_row(row) for row in connection.execute(query).mappings()]


def log(connection: Connection, dataset: str | None) -> list[AuditLine]:
    """The audit log of one dataset, or all of it, oldest first."""
    query = select(audit).order_by(audit.c.id)
    if dataset is not None:
        query = query.where(audit.c.dataset == dataset)
    return [
        AuditLine(
            row["at"], row["event"], row["dataset"], row["name"], row["release_id"],
            json.loads(row["detail"]),
        )
        for row in connection.execute(query).mappings()
    ]  # fmt: skip


def last_event(connection: Connection) -> int:
    """The number of the last line of the audit log; 0 where there is none."""
    return connection.scalar(select(func.max(audit.c.id))) or 0


def add_dataset(connection: Connection, dataset: str, terms: Terms) -> None:
    """Fix a dataset's terms."""
    row = {
        "name": dataset,
        "neighbors": terms.neighbors.value,
        "unit_column": terms.unit.column,
        "unit_max_contributions": terms.unit.max_contributions,
        "accountant": terms.accountant,
        "period": terms.period,
        "random_dp": "allowed" if terms.random_dp else None,
        "created": now(),
    }
    connection.execute(datasets.insert().values(row))


def add_grant(connection: Connection, dataset: str, budget: Budget) -> None:
    """Add budget to a dataset."""
    row = {"dataset": dataset, **amount_columns(budget), "created": now()}
    connection.execute(grants.insert().values(row))
    add_audit(connection, "grant", dataset, detail=amount_columns(budget))


def add_release(
    connection: Connection, request: Request, release_id: str, created: str
) -> Reservation:
    """Write a new reservation, with a salt of its own; `created` decides on its period."""
    rho = rho_of_charge(request.charge, request.rho)
    amounts = {**amount_columns(request.charge), "rho": _text(rho)}
    if request.gamma is not None:
        amounts["gamma"] = str(request.gamma)
    row = {
        "release_id": release_id,
        "dataset": request.dataset,
        "name": request.name,
        "state": State.RESERVED.value,
        **amounts,
        "identity": json_text(request.identity),
        "inputs": json_text(request.inputs),
        "plan": json_text(request.plan),
        "output": request.output,
        "salt": secrets.token_bytes(_SALT_BYTES),
        "created": created,
    }
    inserted = connection.execute(releases.insert().values(row).returning(releases))
    reservation = _reservation(inserted.mappings().one())
    add_audit(connection, "reserve", request.dataset, request.name, release_id, amounts)
    return reservation


def add_published(
    connection: Connection, one: Published, dataset: str, name: str, state: State
) -> None:
    """Write a release that this ledger did not make: it has no plan, and its salt is of no use."""
    row = {
        "release_id": one.release_id,
        "dataset": dataset,
        "name": name,
        "state": state.value,
        **amount_columns(one.charge),
        "rho": _text(one.rho),
        "gamma": _text(one.gamma),
        **dict.fromkeys(("identity", "inputs", "plan"), "{}"),
        "output": one.output,
        "salt": secrets.token_bytes(_SALT_BYTES),
        "manifest_digest": one.manifest_digest,
        "created": one.created,
    }
    connection.execute(releases.insert().values(row))


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
    """Compare and set: change a release if it is still in one of `states`.

    One that is over then keeps its plan without the matrices, which are megabytes: nothing is
    carried out any more, and what was published has them.
    """
    change = (
        releases.update()
        .where(releases.c.release_id == release_id)
        .where(releases.c.state.in_([state.value for state in states]))
        .values(dict(values))
    )
    changed = connection.execute(change).rowcount == 1
    if changed and "state" in values and State(str(values["state"])) not in LIVE:
        _abridge(connection, release_id)
    return changed


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


def amount_columns(budget: Budget) -> dict[str, object]:
    """A budget as the ledger stores it: exact text."""
    return {"epsilon": str(budget.epsilon), "delta": str(budget.delta)}


def _abridge(connection: Connection, release_id: str) -> None:
    whose = releases.c.release_id == release_id
    plan = str(connection.scalar(select(releases.c.plan).where(whose)))
    kept = json_text(abridged(json.loads(plan)))
    if len(kept) < len(plan):
        connection.execute(releases.update().where(whose).values(plan=kept))


def _text(amount: Fraction | None) -> str | None:
    return None if amount is None else str(amount)


def _amount(row: RowMapping) -> Budget:
    return Budget(Fraction(row["epsilon"]), Fraction(row["delta"]))


def _release_row(row: RowMapping) -> ReleaseRow:
    rho, gamma = (None if row[one] is None else Fraction(row[one]) for one in ("rho", "gamma"))
    state, charge = State(row["state"]), _amount(row)
    return ReleaseRow(row["name"], state, charge, rho, row["release_id"], row["created"], gamma)


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
