"""Tables of a ledger, and the reads and writes of their rows."""

from __future__ import annotations

import hashlib
import json
import secrets
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    RowMapping,
    Select,
    String,
    Table,
    Text,
    func,
    inspect,
    select,
)

from dbern.errors import EnvironmentRefusedError, IntegrityError
from dbern.ledger.composition import ACCOUNTANTS, PERIODS, rho_of_charge, stored_amount
from dbern.ledger.entries import (
    LIVE,
    AuditLine,
    Published,
    ReleaseRow,
    Request,
    Reservation,
    ReservedContent,
    State,
    Terms,
)
from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit

VERSION = "6"
_MIGRATIONS: dict[str, tuple[str, ...]] = {}
"""Statements that take a ledger of a version to the next one; no earlier one was ever published."""
metadata = MetaData()
_MOMENTS = ("at", "created")
"""Columns of times, in ISO text."""
_SALT_BYTES = 32
_CONTENT = ("identity", "inputs", "plan")  # columns of JSON
_MAX_TEXT_LENGTH = 1000


def _texts(*names: str) -> list[Column[str]]:
    return [Column(name, String, nullable=False) for name in names]


meta = Table("meta", metadata, Column("key", String, primary_key=True), *_texts("value"))
"""Metadata of the ledger as a whole, see `LedgerMetadata`; `schema` is its version."""


datasets = Table(
    "datasets",
    metadata,
    Column("name", String, primary_key=True),
    *_texts("neighbors"),
    Column("unit_column", String),
    Column("unit_max_contributions", Integer, nullable=False),
    *_texts("accountant", "created"),
    Column("period", String),
)


TERMS = [column.name for column in datasets.columns if column.name not in ("name", "created")]
"""Columns of what the first grant of a dataset fixes."""


grants = Table(
    "grants",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("dataset", ForeignKey("datasets.name"), nullable=False),
    *_texts("epsilon", "delta", "created"),
)


releases = Table(
    "releases",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("release_id", String, nullable=False, unique=True),
    Column("dataset", ForeignKey("datasets.name"), nullable=False),
    *_texts("name", "state", "epsilon", "delta"),
    *(Column(name, Text, nullable=False) for name in ("identity", "inputs", "plan")),
    *_texts("output"),
    Column("salt", LargeBinary, nullable=False),
    Column("seal", LargeBinary),
    Column("manifest_digest", String),
    *_texts("created"),
    Column("rho", String),
    CheckConstraint("state IN ({})".format(", ".join(f"'{state}'" for state in State))),
)


# One release a name; only a refund frees the name, and the refunded row stays as history.
_one_name = Index("one_release_a_name", releases.c.dataset, releases.c.name, unique=True)


audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    *_texts("at", "event", "dataset"),
    Column("name", String),
    Column("release_id", String),
    Column("detail", Text, nullable=False),
)


def rows_of(connection: Connection, query: Select[Any]) -> Sequence[RowMapping]:
    """Return all rows of a query: one left open, as where a row is damaged, would lock the file."""
    return connection.execute(query).mappings().all()


def checked(row: RowMapping, table: Table) -> RowMapping:
    """Return a row of a table, its values of the columns' types: a file of SQLite holds any.

    Raises IntegrityError for a value of another type, or for none where there has to be one.
    """
    for column in table.columns:
        value = row[column.name]
        absent = value is None and column.nullable
        if not (absent or isinstance(value, column.type.python_type)):
            raise damaged(table.name, column.name, f"is no {column.type.python_type.__name__}")
        if column.name in _MOMENTS and not _is_moment(value):
            raise damaged(table.name, column.name, "is no time with a zone")
    return row


def _is_moment(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def damaged(table: str, column: str, what: str) -> IntegrityError:
    """Return the error of a row that no ledger writes."""
    return IntegrityError(
        f"The ledger is damaged: {column} of a row of {table} {what}. Restore it from a backup."
    )


def version_of(connection: Connection) -> str | None:
    """Return the version of the ledger that the database holds; None for an empty database."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if not {meta.name, audit.name, releases.name} <= set(tables):
        raise EnvironmentRefusedError(
            "The ledger's database holds other tables, but no ledger. Name a database of its own."
        )
    version = connection.scalar(select(meta.c.value).where(meta.c.key == "schema"))
    if version != VERSION and version not in _MIGRATIONS:
        raise EnvironmentRefusedError(
            f"The ledger has schema {version}, this version of dbern reads schema {VERSION}. "
            "Use the version of dbern that wrote it."
        )
    return str(version)


def install(connection: Connection, home: str) -> None:
    """Make the tables and metadata of a new ledger."""
    unrefunded = releases.c.state != State.REFUNDED.value
    # Here, because to say it of a database imports all that there is for that one.
    _one_name.dialect_kwargs[f"{connection.dialect.name}_where"] = unrefunded
    metadata.create_all(connection)
    values = {
        "schema": VERSION, "ledger_id": _new_ledger_id(), "epoch": "1", "reconciled": "1",
        "home": home,
    }  # fmt: skip
    rows = [{"key": key, "value": value} for key, value in values.items()]
    connection.execute(meta.insert(), rows)


def _new_ledger_id() -> str:
    """Return a random name for a ledger; synopses carry it, so nothing secret may enter one."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class LedgerMetadata:
    """Record of a ledger as a whole.

    `ledger_id` is a random, public name; `epoch` is the restore epoch, from 1; `reconciled` is the
    restore epoch up to which published releases are accounted for; `home` is where the database
    said it lives.
    """

    ledger_id: str
    epoch: int
    reconciled: int
    home: str


def metadata_of(connection: Connection) -> LedgerMetadata:
    """Read the ledger's metadata."""
    rows = (checked(row, meta) for row in rows_of(connection, select(meta)))
    values = {row["key"]: row["value"] for row in rows}
    epochs = int(values["epoch"]), int(values["reconciled"])
    return LedgerMetadata(values["ledger_id"], *epochs, values["home"])


def ledger_id_of(connection: Connection) -> str:
    """Return the ledger's public name."""
    return metadata_of(connection).ledger_id


def set_metadata(connection: Connection, **changes: str | int) -> None:
    """Change the ledger's metadata."""
    for key, value in changes.items():
        connection.execute(meta.update().where(meta.c.key == key).values(value=str(value)))


def migrate(connection: Connection) -> None:
    """Bring an older ledger to this version, inside the caller's transaction."""
    while (version := version_of(connection)) not in (None, VERSION):
        for statement in _MIGRATIONS[str(version)]:
            connection.exec_driver_sql(statement)
        set_metadata(connection, schema=int(str(version)) + 1)


def dataset_names(connection: Connection) -> list[str]:
    """Return every dataset that was ever granted a budget."""
    return list(connection.scalars(select(datasets.c.name).order_by(datasets.c.name)))


def terms_of(connection: Connection, dataset: str) -> Terms | None:
    """Return what the first grant fixed, or None without a grant."""
    row = connection.execute(select(datasets).where(datasets.c.name == dataset)).mappings().first()
    if row is None:
        return None
    checked(row, datasets)
    accountant, period = row["accountant"], row["period"]
    if accountant not in ACCOUNTANTS or period not in (None, *PERIODS):
        raise damaged("datasets", "accountant or period", "is none that this version knows")
    unit = PrivacyUnit(row["unit_column"], row["unit_max_contributions"])
    return Terms(Neighbors(row["neighbors"]), unit, accountant, period)


def granted(connection: Connection, dataset: str) -> Budget:
    """Return all grants of a dataset, summed exactly: the database adds no fractions."""
    amounts = rows_of(connection, select(grants).where(grants.c.dataset == dataset))
    return sum((_amount(checked(row, grants)) for row in amounts), start=Budget(Fraction(0)))


def history(connection: Connection, dataset: str) -> list[ReleaseRow]:
    """Return every release of a dataset, in the order of their reservations."""
    query = select(releases).where(releases.c.dataset == dataset).order_by(releases.c.id)
    return [_release_row(row) for row in rows_of(connection, query)]


def inputs(connection: Connection, dataset: str) -> dict[str, dict[str, Any]]:
    """Return what the releases of a dataset read, by their names; refunded ones hold none."""
    query = select(releases.c.name, releases.c.inputs).where(
        releases.c.dataset == dataset, releases.c.state != State.REFUNDED.value
    )
    return {row["name"]: _json(row["inputs"], "inputs") for row in rows_of(connection, query)}


def seals(connection: Connection, dataset: str) -> dict[str, bytes]:
    """Return the seals of the releases of a dataset that were sealed, by their names."""
    query = select(releases.c.name, releases.c.seal).where(
        releases.c.dataset == dataset, releases.c.seal.is_not(None)
    )
    return {row["name"]: bytes(row["seal"]) for row in rows_of(connection, query)}


def log(connection: Connection, dataset: str | None) -> list[AuditLine]:
    """Return the audit log of one dataset, or all of it, oldest first."""
    query = select(audit).order_by(audit.c.id)
    if dataset is not None:
        query = query.where(audit.c.dataset == dataset)
    names = ("at", "event", "dataset", "name", "release_id")
    return [
        AuditLine(
            **{name: checked(row, audit)[name] for name in names},
            detail=_json(row["detail"], "detail"),
        )
        for row in rows_of(connection, query)
    ]


def charging_time(connection: Connection, dataset: str) -> str:
    """Return the time at which a dataset is charged, which is now.

    Where its budget is renewed and the clock was set back, it is that of the dataset's newest
    event: a period that is over is never paid from again.
    """
    terms = terms_of(connection, dataset)
    if terms is None or terms.period is None:
        return now()
    newest = select(func.max(audit.c.at)).where(audit.c.dataset == dataset)
    return max(now(), connection.scalar(newest) or "")


def last_event(connection: Connection) -> int:
    """Return the number of the last line of the audit log; 0 where there is none."""
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
        "created": now(),
    }
    connection.execute(datasets.insert().values(row))


def add_grant(connection: Connection, dataset: str, budget: Budget) -> None:
    """Add budget to a dataset; the database logs it, whoever adds it (`dbern.ledger.guards`)."""
    row = {"dataset": dataset, **amount_columns(budget), "created": now()}
    connection.execute(grants.insert().values(row))


def content_columns(request: Request) -> dict[str, str]:
    """Return what a release is reserved with as the ledger stores it, see `json_text`."""
    return {column: json_text(getattr(request, column)) for column in _CONTENT}


def add_release(
    connection: Connection,
    request: Request,
    content: Mapping[str, str],
    release_id: str,
    created: str,
) -> Reservation:
    """Write a new reservation, with a salt of its own; `created` decides on its period."""
    rho = rho_of_charge(request.charge, request.rho)
    amounts = {**amount_columns(request.charge), "rho": _text(rho)}
    row = {
        "release_id": release_id,
        "dataset": request.dataset,
        "name": request.name,
        "state": State.RESERVED.value,
        **amounts,
        **content,
        "output": request.output,
        "salt": secrets.token_bytes(_SALT_BYTES),
        "created": created,
    }
    inserted = connection.execute(releases.insert().values(row).returning(releases))
    detail = {**amounts, "output": request.output}
    add_audit(connection, "reserve", request.dataset, request.name, release_id, detail)
    return _reservation(inserted.mappings().one())


def add_published(
    connection: Connection, release: Published, dataset: str, name: str, state: State
) -> None:
    """Write a release that this ledger did not make: it has no plan, and its salt is of no use."""
    row = {
        "release_id": release.release_id,
        "dataset": dataset,
        "name": name,
        "state": state.value,
        **amount_columns(release.charge),
        "rho": _text(release.rho),
        **dict.fromkeys(_CONTENT, "{}"),
        "output": release.output,
        "salt": secrets.token_bytes(_SALT_BYTES),
        "manifest_digest": release.manifest_digest,
        "created": release.created,
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
    """Return the release that holds a name; a refunded one holds none."""
    query = select(releases).where(
        releases.c.dataset == dataset,
        releases.c.name == name,
        releases.c.state != State.REFUNDED.value,
    )
    return _first_reservation(connection, query)


def identified(connection: Connection, release_id: str) -> Reservation | None:
    """Return the release of an id, whatever its state."""
    return _first_reservation(
        connection, select(releases).where(releases.c.release_id == release_id)
    )


def _first_reservation(connection: Connection, query: Select[Any]) -> Reservation | None:
    row = connection.execute(query).mappings().first()
    return None if row is None else _reservation(row)


def live_ids(connection: Connection) -> set[str]:
    """Return the releases that still need their keys."""
    query = select(releases.c.release_id).where(releases.c.state.in_([s.value for s in LIVE]))
    return set(connection.scalars(query))


def moved(
    connection: Connection, release_id: str, states: Collection[State], values: Mapping[str, object]
) -> bool:
    """Change a release if it is still in one of `states` (compare and set).

    One that is over then keeps its plan without the matrices, which are megabytes: nothing is
    carried out any more, and what was published has them.
    """
    values = dict(values)
    if "state" in values and State(str(values["state"])) not in LIVE:
        values |= _abridged_plan(connection, release_id)
    change = (
        releases.update()
        .where(releases.c.release_id == release_id)
        .where(releases.c.state.in_([state.value for state in states]))
        .values(values)
    )
    return connection.execute(change).rowcount == 1


def new_id() -> str:
    """Return a random release id; ids are public, so nothing secret may enter one."""
    return uuid.uuid4().hex


def now() -> str:
    """Return the time as ISO text in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def json_text(value: Mapping[str, object]) -> str:
    """Return the text that the ledger stores: JSON in ASCII, as file names need no Unicode.

    Keys stay in the order of the mapping. Raises TypeError or ValueError for a value that is not
    JSON (NaN included).
    """
    return json.dumps(value, allow_nan=False)


def _abridged(value: Any) -> Any:
    """Return a JSON value with each long text, such as a plan's matrix, replaced by its digest."""
    match value:
        case dict():
            return {key: _abridged(element) for key, element in value.items()}
        case list():
            return [_abridged(element) for element in value]
        case str() if len(value) > _MAX_TEXT_LENGTH:
            return f"sha256:{hashlib.sha256(value.encode()).hexdigest()}"
    return value


def amount_columns(budget: Budget) -> dict[str, object]:
    """Return a budget as the ledger stores it: exact text."""
    return {"epsilon": str(budget.epsilon), "delta": str(budget.delta)}


def _abridged_plan(connection: Connection, release_id: str) -> dict[str, object]:
    """Return the value to change where a release's plan has matrices, else none."""
    plan = connection.scalar(select(releases.c.plan).where(releases.c.release_id == release_id))
    if plan is None:
        return {}
    abridged = json_text(_abridged(json.loads(plan)))
    return {"plan": abridged} if len(abridged) < len(plan) else {}


def _text(amount: Fraction | None) -> str | None:
    return None if amount is None else str(amount)


def _amount(row: RowMapping) -> Budget:
    return Budget(*(stored_amount(row[name], name) for name in ("epsilon", "delta")))


def _json(text: object, column: str) -> dict[str, Any]:
    """Read a column of JSON, which is of an object."""
    try:
        value = json.loads(str(text))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise damaged("releases or audit", column, "is no object of JSON")
    return value


def _release_row(row: RowMapping) -> ReleaseRow:
    checked(row, releases)
    rho = None if row["rho"] is None else stored_amount(row["rho"], "rho")
    state, charge = State(row["state"]), _amount(row)
    note = None if row["output"] else _json(row["identity"], "identity").get("note")
    whose = row["release_id"], row["created"]
    return ReleaseRow(row["name"], state, charge, rho, *whose, note)


def _reservation(row: RowMapping) -> Reservation:
    checked(row, releases)
    columns = ("release_id", "dataset", "name", "output", "salt", "seal", "created")
    return Reservation(
        **{column: row[column] for column in (*columns, "manifest_digest")},
        content=ReservedContent(**{column: _json(row[column], column) for column in _CONTENT}),
        state=State(row["state"]),
        charge=_amount(row),
    )
