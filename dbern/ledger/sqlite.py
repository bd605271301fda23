"""A ledger in one SQLite file, with its keys, staging and locks in directories beside it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from dbern.data.drafts import private_directory, sync_directory
from dbern.errors import DbernError, EnvironmentRefusedError, IntegrityError
from dbern.ledger import guards
from dbern.ledger.backend import damage_refused
from dbern.ledger.high_water_mark import HighWaterMark
from dbern.ledger.keys import KeyFiles
from dbern.ledger.tables import install, version_of
from dbern.system import file_url

# Nothing private may linger: no write-ahead log beside the file, deleted content overwritten.
_PRAGMAS = (
    "journal_mode = DELETE",
    "synchronous = EXTRA",  # FULL leaves the journal's removal to chance: a power cut undoes it
    "secure_delete = ON",
    "foreign_keys = ON",
)

_NEW = "auto_vacuum = FULL"
"""What a plan took is given back when it is over. A file that has pages would be written and synced
at every connection."""

_LOOKING = ("query_only = ON",)

_HELD = "another process holds it. Run the same command again once that is done."
_ADVICE = {
    sqlite3.SQLITE_ERROR: "a table or a column is not there. Restore a backup.",
    sqlite3.SQLITE_BUSY: _HELD,
    sqlite3.SQLITE_LOCKED: _HELD,
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database. Name the ledger's own file.",
    sqlite3.SQLITE_READONLY: "it is read-only. Make the file and its directory writable.",
    sqlite3.SQLITE_PERM: "permission is denied. Run as the user who owns the ledger.",
    sqlite3.SQLITE_CANTOPEN: "the file or its directory is not accessible. Check who owns them.",
    sqlite3.SQLITE_FULL: "the disk is full. Free space and run the same command again.",
    sqlite3.SQLITE_IOERR: "the disk failed. Check it and run the same command again.",
}


class SqliteBackend:
    """One SQLite file; a connection lives for one transaction, so forks and threads are safe.

    `path` is the resolved file: every way to name it must find the same keys and locks. With
    `read_only` SQLite itself refuses every change. `busy_timeout` is the wait for another process's
    transaction, in seconds.
    """

    def __init__(self, path: Path, *, read_only: bool = False, busy_timeout: float = 30.0) -> None:
        self.path = path
        self.url = file_url(path)
        self._keys = KeyFiles(self._beside("keys"))
        self._locks = self._beside("locks")
        self._engine = _engine(path, read_only, busy_timeout)

    def exists(self) -> bool:
        """Return whether there is a file; one that cannot be looked at is for SQLite to refuse."""
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    def create(self) -> bool:
        """Make the file, readable by its owner alone, and its tables."""
        self._refuse_lost()
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            sync_directory(self.path.parent)
        except OSError as error:
            raise EnvironmentRefusedError(
                f"The ledger {self.path} cannot be made: {error.strerror}. "
                "Name a file in a directory that exists and is writable."
            ) from error
        with self.write() as connection:
            return version_of(connection) is None and _install(connection)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Begin a transaction with ``BEGIN IMMEDIATE``: the write lock comes before any read."""
        refused = damage_refused(self.url)
        with self._refusals(), refused, self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Begin a transaction that reads one consistent state and holds up no other reader."""
        with self._refusals(), damage_refused(self.url), self._engine.connect() as connection:
            reading = connection.execution_options(reading=True)
            with reading.begin():
                yield reading

    @contextmanager
    def lock(self, release_id: str, wait: Callable[[], None] | None) -> Iterator[None]:
        """Hold an exclusive ``flock``, which the operating system drops when the process dies."""
        path = self._locks / f"{release_id}.lock"
        try:
            private_directory(self._locks)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EnvironmentRefusedError(
                f"The lock {path} cannot be made: {error.strerror}. Make its directory writable."
            ) from error
        try:
            _take(descriptor, wait)
            yield
        finally:
            os.close(descriptor)

    def sweep_locks(self, live: set[str]) -> None:
        """Remove the lock files of releases that are over; a waiter then finds the new state."""
        for path in self._locks.glob("*.lock"):
            if path.stem not in live:
                path.unlink(missing_ok=True)

    def require_lock(self) -> None:
        """Do nothing: only the end of this process takes its ``flock`` away."""

    def keys(self, connection: Connection) -> KeyFiles:
        """Return the key files; the database never holds a key."""
        del connection
        return self._keys

    def staging(self, ledger_id: str) -> Path:
        """Return the directory beside the file, which no other ledger can have."""
        del ledger_id
        return self._beside("staging")

    def runs(self, ledger_id: str) -> Path:
        """Return the directory of run records beside the file."""
        del ledger_id
        return self._beside("runs")

    def high_water_mark(self, ledger_id: str) -> HighWaterMark:
        """Return the file beside the database; where it is missing or another's, this is a copy."""
        return HighWaterMark(self._beside("mark"), ledger_id, required=True, file=self.path)

    def home(self, connection: Connection) -> str:
        """Return nothing: a SQLite file does not know its location; its high-water mark does."""
        del connection
        return ""

    def close(self) -> None:
        """Do nothing: no connection outlives its transaction."""

    def _refuse_lost(self) -> None:
        mark = self.high_water_mark("")
        if mark.owner() and not (self.exists() and self.path.stat().st_size):
            raise EnvironmentRefusedError(
                f"{mark.path} says that a ledger was at {self.path}, and it is gone. Put its "
                "backup there, for a new ledger would forget what was spent. If nothing of it "
                f"counts any more, first move {self.path}.* elsewhere."
            )

    def _beside(self, what: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{what}")

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise _refusal(self.path, error.orig) from error


@lru_cache(maxsize=16)  # an engine keeps what it compiled of statements
def _engine(path: Path, read_only: bool, busy_timeout: float) -> Engine:
    connect = partial(_connect, path, read_only, busy_timeout)
    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True)
    event.listen(engine, "begin", _begin)
    return engine


def _connect(path: Path, read_only: bool, busy_timeout: float) -> sqlite3.Connection:
    # mode=rw: a ledger that is missing is never made by the way. To look, too: what a killed
    # process left half written is rolled back first. Where nothing can be written SQLite only
    # reads.
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=busy_timeout,
        # SQLAlchemy's "begin" event begins the transactions, not the driver's guesses.
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        for pragma in _LOOKING if read_only else _PRAGMAS if pages else (_NEW, *_PRAGMAS):
            connection.execute(f"PRAGMA {pragma}").close()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _begin(connection: Connection) -> None:
    reading = connection.get_execution_options().get("reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _install(connection: Connection) -> bool:
    install(connection, home="")
    for statement in guards.sqlite_triggers():
        connection.exec_driver_sql(statement)
    return True


def _take(descriptor: int, wait: Callable[[], None] | None) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if wait is not None:
            wait()
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _refusal(path: Path, error: BaseException | None) -> DbernError:
    """Return the driver's error as ours; the low byte of SQLite's code is the kind of failure."""
    code = (getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT):
        return IntegrityError(
            f"The ledger {path} is damaged or was changed by hand ({error}). Restore a backup."
        )
    advice = _ADVICE.get(code, "check the file, its directory and its disk")
    return EnvironmentRefusedError(f"the ledger {path} cannot be used ({error}): {advice}")
