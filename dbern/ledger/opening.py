"""Opening of a ledger: the backend of its URL, and the version of its tables."""

from __future__ import annotations

import shlex
from pathlib import Path

from dbern.errors import EnvironmentRefusedError
from dbern.ledger import tables
from dbern.ledger.backend import LedgerBackend
from dbern.ledger.postgres import PostgresBackend
from dbern.ledger.sqlite import SqliteBackend
from dbern.ledger.tables import ledger_id_of, version_of
from dbern.system import ledger_file


def backend_of(url: str, *, read_only: bool = False, busy_timeout: float = 30.0) -> LedgerBackend:
    """Return the backend that a ledger URL names; nothing is opened yet.

    Raises SpecError for a URL that holds a password, or names another database than SQLite or
    PostgreSQL.
    """
    path = ledger_file(url)
    if path is None:
        return PostgresBackend(url, read_only=read_only, busy_timeout=busy_timeout)
    return SqliteBackend(Path(path).resolve(), read_only=read_only, busy_timeout=busy_timeout)


def migrate_ledger(backend: LedgerBackend, busy_timeout: float) -> str:
    """Migrate a ledger of an older version to this one; return the ledger's public name."""
    version = None
    if backend.exists():
        with backend.read() as connection:
            version = version_of(connection)
    if version is None:
        command = shlex.join(["dbern", "ledger", "init", "--ledger", backend.url])
        raise EnvironmentRefusedError(f"ledger: no ledger is at {backend.url}. Make one: {command}")
    if version != tables.VERSION:  # reading, too, needs the columns of this version
        with backend_of(backend.url, busy_timeout=busy_timeout).write() as connection:
            tables.migrate(connection)
    with backend.read() as connection:
        return ledger_id_of(connection)
