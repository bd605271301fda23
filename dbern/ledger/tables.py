"""The ledger's tables, their version, and its metadata."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
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
    inspect,
    select,
)

from dbern.errors import EnvironmentRefusedError, IntegrityError
from dbern.ledger.values import (
    State,
)

VERSION = "6"

_MIGRATIONS: dict[str, tuple[str, ...]] = {}
"""Statements that take a ledger of a version to the next one; no earlier one was ever published."""

metadata = MetaData()


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


_MOMENTS = ("at", "created")
"""Columns of times, in ISO text."""


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
