"""A ledger in a PostgreSQL database, shared by clients on many hosts, with wrapped keys."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    func,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from dbern.errors import (
    DbernError,
    EnvironmentRefusedError,
    IntegrityError,
    ReleaseError,
    SpecError,
)
from dbern.ledger import guards
from dbern.ledger.backend import STAGING, damage_refused
from dbern.ledger.high_water_mark import HighWaterMark
from dbern.ledger.keys import WrappedKeys, wrapped
from dbern.ledger.tables import install, ledger_id_of, meta, version_of

# A server that was told to end idle sessions would take away the lock of a release that counts for
# hours; and one that never asks a silent client would keep the lock of a host that is gone.
_SESSION = {
    "statement_timeout": "0",
    "idle_session_timeout": "0",
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "6",
    "client_connection_check_interval": "10s",
    "synchronous_commit": "on",  # a server told otherwise forgets charges when the power goes
}
_CLIENT = {"keepalives": 1, "keepalives_idle": 60, "keepalives_interval": 10, "keepalives_count": 6}
_INSTALLING = 0x646265726E  # "dbern": of clients that make a ledger at once, one does
_ADVICE = {
    "55P03": "another process holds it. Run the same command again once that is done.",
    "40P01": "another process holds it. Run the same command again once that is done.",
    "25006": "it is read-only. Connect to the server that takes writes.",
    "42501": "permission is denied. Grant this role the rights that docs/ledger.md lists.",
    "53100": "the disk is full. Free space and run the same command again.",
}
_UNREACHABLE = (
    "check that the server runs, and its address, user and password (PGPASSFILE, PGPASSWORD or "
    "?service=NAME). Then run the same command again."
)


class PostgresBackend:
    """One PostgreSQL database; a connection lives for one transaction, or as long as a lock.

    Every write transaction first takes one row, the ledger's own, ``FOR UPDATE``: a check and the
    charge that rests on it are never parted by another's charge (under READ COMMITTED they would
    be), and what is swept cannot be what another process is just making. While a thread holds a
    release's lock, its transactions run on the connection that holds it, so that a client whose
    lock was lost with its connection can change nothing any more.

    `url` is ``postgresql+psycopg://user@host/database`` without a password. With `read_only` the
    server refuses every change. `busy_timeout` is the wait for another process's transaction, in
    seconds.
    """

    path: Path | None = None
    """No file of this machine."""

    def __init__(self, url: str, *, read_only: bool = False, busy_timeout: float = 30.0) -> None:
        self.url = url
        self._wait = max(1, round(1000 * busy_timeout))
        session = {**_SESSION, "default_transaction_read_only": "on" if read_only else "off"}
        self._engine = _new_engine(url, session)
        self._held = threading.local()

    def exists(self) -> bool:
        """Return True: a server that cannot be reached fails when it is used."""
        return True

    def create(self) -> bool:
        """Make the tables, in a database that is there."""
        with self._transaction("READ COMMITTED, READ WRITE") as connection:
            connection.execute(select(func.pg_advisory_xact_lock(_INSTALLING)))
            return version_of(connection) is None and self._install(connection)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Begin a transaction that holds the ledger's row: the write lock comes before any read."""
        with self._transaction("READ COMMITTED") as connection:
            row = select(meta.c.value).where(meta.c.key == "schema").with_for_update()
            connection.execute(row)
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Begin a transaction that reads one consistent state and waits for nobody."""
        with self._transaction("REPEATABLE READ, READ ONLY") as connection:
            yield connection

    @contextmanager
    def lock(self, release_id: str, wait: Callable[[], None] | None) -> Iterator[None]:
        """Hold an advisory lock of a session, which the server drops with the connection."""
        number = int.from_bytes(bytes.fromhex(release_id)[:8], "big", signed=True)
        with self._refusals(), self._engine.connect() as connection:
            _take(connection, number, wait)
            self._held.connection = connection
            try:
                yield
            finally:
                del self._held.connection

    def require_lock(self) -> None:
        """Refuse to go on when the connection that holds the lock is gone, and the lock with it."""
        try:
            with self.read() as connection:
                connection.execute(select(1))
        except EnvironmentRefusedError:
            raise _lock_lost() from None

    def sweep_locks(self, live: set[str]) -> None:
        """Do nothing: an advisory lock leaves nothing behind."""

    def keys(self, connection: Connection) -> WrappedKeys:
        """Return the wrapped keys, in the same transaction as their releases."""
        return WrappedKeys(connection, ledger_id_of(connection))

    def staging(self, ledger_id: str) -> Path | None:
        """Return a directory for this ledger below the one that the environment names."""
        root = _root()
        return None if root is None else root / ledger_id

    def runs(self, ledger_id: str) -> Path | None:
        """Return a directory for this ledger's run records, beside its staging."""
        root = _root()
        return None if root is None else root / f"{ledger_id}.runs"

    def high_water_mark(self, ledger_id: str) -> HighWaterMark | None:
        """Return a file beside the staging; it is as good as the directory is shared and kept."""
        root = _root()
        if root is None or not root.is_dir():
            return None
        return HighWaterMark(root / f"{ledger_id}.mark", ledger_id, required=False)

    def home(self, connection: Connection) -> str:
        """Return cluster, timeline and table: another text after each way to restore but one.

        A loaded dump makes new tables; a base backup recovered to a point in time, and a standby
        promoted, begin a new timeline. A disk put back to a snapshot says nothing.
        """
        query = text(
            "SELECT system_identifier::text || '/' ||"
            " left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || 'meta'::regclass::oid::text"
            " FROM pg_control_system()"
        )
        return str(connection.scalar(query))

    def close(self) -> None:
        """Close the engine."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self, characteristics: str) -> Iterator[Connection]:
        with self._refusals(), damage_refused(self.url):
            held: Connection | None = getattr(self._held, "connection", None)
            if held is not None:
                if held.invalidated:  # it would connect anew, without the lock
                    raise _lock_lost()
                yield from self._begun(held, characteristics)
                return
            with self._engine.connect() as connection:
                yield from self._begun(connection, characteristics)

    def _begun(self, connection: Connection, characteristics: str) -> Iterator[Connection]:
        with connection.begin():
            connection.exec_driver_sql(f"SET TRANSACTION ISOLATION LEVEL {characteristics}")
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {self._wait}")
            yield connection

    def _install(self, connection: Connection) -> bool:
        install(connection, home="")
        wrapped.create(connection)
        connection.execute(
            meta.update().where(meta.c.key == "home").values(value=self.home(connection))
        )
        for statement in guards.postgresql_triggers(connection):
            connection.exec_driver_sql(statement)
        return True

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise _refusal(self.url, error) from error


def _lock_lost() -> ReleaseError:
    return ReleaseError(
        "The connection to the ledger was lost, and with it the lock of this release: another "
        "process may go on with it. Run the same command again."
    )


def _root() -> Path | None:
    named = os.environ.get(STAGING)
    return Path(named).resolve() if named else None


def _new_engine(url: str, session: dict[str, str]) -> Engine:
    options = " ".join(f"-c {key}={value}" for key, value in session.items())
    arguments = {**_CLIENT, "options": options}
    try:
        return create_engine(url, connect_args=arguments, poolclass=NullPool, hide_parameters=True)
    except (ArgumentError, ValueError):
        raise SpecError(
            "ledger: is not a URL. Write one such as postgresql+psycopg://user@host/db."
        ) from None
    except ImportError:
        raise EnvironmentRefusedError(
            "A PostgreSQL ledger needs psycopg. Run: pip install 'dbern[postgres]'"
        ) from None


def _take(connection: Connection, number: int, wait: Callable[[], None] | None) -> None:
    """Take the lock for the session; it outlives these transactions."""
    with connection.begin():
        if connection.scalar(select(func.pg_try_advisory_lock(number))):
            return
    if wait is not None:
        wait()
    with connection.begin():
        connection.execute(select(func.pg_advisory_lock(number)))


def _refusal(url: str, error: DBAPIError) -> DbernError:
    """Return the driver's error as ours, by its SQLSTATE; a connection that failed has none."""
    code = getattr(error.orig, "sqlstate", None) or ""
    message = (str(error.orig).strip().splitlines() or ["no reason given"])[0]
    if code.startswith("23"):
        return IntegrityError(
            f"The ledger {url} is damaged or was changed by hand ({message}). Restore a backup."
        )
    lost = not code or code.startswith(("08", "57P")) or error.connection_invalidated
    advice = _UNREACHABLE if lost else "check the server and its log"
    return EnvironmentRefusedError(
        f"the ledger {url} cannot be used ({message}): {_ADVICE.get(code, advice)}"
    )
