"""The ledger's tables; amounts are exact text, for no database holds a fraction exactly."""

from __future__ import annotations

import uuid

from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
)

from dbern.errors import EnvironmentRefusedError
from dbern.ledger.values import State

VERSION = "4"

_MIGRATIONS = {
    "1": (
        "ALTER TABLE datasets ADD COLUMN period VARCHAR",
        "ALTER TABLE releases ADD COLUMN rho VARCHAR",
    ),
    "2": (
        "INSERT INTO meta VALUES ('ledger_id', lower(hex(randomblob(16)))), ('epoch', '1'), "
        "('reconciled', '1'), ('home', '')",
    ),
    "3": (
        "ALTER TABLE datasets ADD COLUMN random_dp VARCHAR",
        "ALTER TABLE releases ADD COLUMN gamma VARCHAR",
    ),
}
"""What takes a ledger of an older version to the next one; before 3 only SQLite has some."""

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", String, nullable=False),
)
"""Facts of the ledger as a whole.

`schema`: its version; `ledger_id`: a random, public name; `epoch`: how often it was put back to an
earlier state, from 1; `reconciled`: the epoch up to which published releases are accounted for;
`home`: where the database said it lives.
"""

datasets = Table(
    "datasets",
    metadata,
    Column("name", String, primary_key=True),
    Column("neighbors", String, nullable=False),
    Column("unit_column", String),
    Column("unit_max_contributions", Integer, nullable=False),
    Column("accountant", String, nullable=False),
    Column("created", String, nullable=False),
    Column("period", String),
    Column("random_dp", String),  # "allowed", or NULL
)

grants = Table(
    "grants",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("dataset", ForeignKey("datasets.name"), nullable=False),
    Column("epsilon", String, nullable=False),
    Column("delta", String, nullable=False),
    Column("created", String, nullable=False),
)

releases = Table(
    "releases",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("release_id", String, nullable=False, unique=True),
    Column("dataset", ForeignKey("datasets.name"), nullable=False),
    Column("name", String, nullable=False),
    Column("state", String, nullable=False),
    Column("epsilon", String, nullable=False),
    Column("delta", String, nullable=False),
    Column("identity", Text, nullable=False),
    Column("inputs", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("output", String, nullable=False),
    Column("salt", LargeBinary, nullable=False),
    Column("seal", LargeBinary),
    Column("manifest_digest", String),
    Column("created", String, nullable=False),
    Column("rho", String),
    Column("gamma", String),  # of random differential privacy, or NULL
    CheckConstraint("state IN ({})".format(", ".join(f"'{state}'" for state in State))),
)

# One release a name; only a refund frees the name, and the refunded row stays as history.
_unrefunded = releases.c.state != State.REFUNDED.value
Index(
    "one_release_a_name",
    releases.c.dataset,
    releases.c.name,
    unique=True,
    sqlite_where=_unrefunded,
    postgresql_where=_unrefunded,
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", String, nullable=False),
    Column("event", String, nullable=False),
    Column("dataset", String, nullable=False),
    Column("name", String),
    Column("release_id", String),
    Column("detail", Text, nullable=False),
)

APPEND_ONLY = (datasets, grants, audit)
"""Tables whose rows are never changed or deleted; the backend makes the database refuse it."""

PERMANENT = (releases,)
"""Tables whose rows change but are never deleted."""


def version_of(connection: Connection) -> str | None:
    """The version of the ledger that the database holds; None for an empty database.

    Raises
    ------
    EnvironmentRefusedError
        When it holds something else, or a ledger of a version that cannot be read.
    """
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if not {meta.name, audit.name, releases.name} <= set(tables):
        raise EnvironmentRefusedError(
            "the ledger's database holds other tables and no ledger; give the ledger one of its own"
        )
    version = connection.scalar(select(meta.c.value).where(meta.c.key == "schema"))
    if version != VERSION and version not in _MIGRATIONS:
        raise EnvironmentRefusedError(
            f"the ledger has schema {version}, this version of dbern reads schema {VERSION}; "
            "use the version of dbern that wrote it"
        )
    return str(version)


def install(connection: Connection, home: str) -> None:
    """Make the tables and facts of a new ledger."""
    metadata.create_all(connection)
    facts = {
        "schema": VERSION,
        "ledger_id": new_ledger_id(),
        "epoch": "1",
        "reconciled": "1",
        "home": home,
    }
    rows = [{"key": key, "value": value} for key, value in facts.items()]
    connection.execute(meta.insert(), rows)


def new_ledger_id() -> str:
    """A random name for a ledger; synopses carry it, so nothing secret may enter one."""
    return uuid.uuid4().hex


def facts_of(connection: Connection) -> dict[str, str]:
    """The facts of the ledger as a whole, see `meta`."""
    return {row.key: row.value for row in connection.execute(select(meta))}


def ledger_id_of(connection: Connection) -> str:
    """The ledger's public name."""
    return str(facts_of(connection)["ledger_id"])


def set_facts(connection: Connection, **facts: str) -> None:
    """Change facts of the ledger as a whole."""
    for key, value in facts.items():
        connection.execute(meta.update().where(meta.c.key == key).values(value=value))


def migrate(connection: Connection) -> bool:
    """Bring an older ledger to this version, inside the caller's transaction; False if it is."""
    if version_of(connection) in (None, VERSION):
        return False
    while (version := version_of(connection)) not in (None, VERSION):
        for statement in _MIGRATIONS[str(version)]:
            connection.exec_driver_sql(statement)
        set_facts(connection, schema=str(int(str(version)) + 1))
    return True
