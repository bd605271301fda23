"""What a database must do to hold a ledger; each database is one module that does it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from sqlalchemy import Connection

from dbern.errors import EnvironmentRefusedError, SpecError
from dbern.ledger.marks import Mark, Point
from dbern.ledger.postgres import PostgresBackend
from dbern.ledger.secrets import Keys
from dbern.ledger.sqlite import SqliteBackend
from dbern.ledger.tables import VERSION, facts_of, ledger_id_of, migrate, set_facts, version_of

_SQLITE = "sqlite:///"
_POSTGRES = "postgresql+psycopg://"


class Backend(Protocol):
    """One database with its keys, its staging and its locks.

    Every failure of the database leaves these methods as a `DbernError` that says what to do.
    """

    url: str

    def exists(self) -> bool:
        """Whether there is a database that could hold a ledger."""

    def create(self) -> bool:
        """Make the ledger; False when it was there already."""

    def write(self) -> AbstractContextManager[Connection]:
        """A transaction that sees and excludes every other writer from its first statement."""

    def read(self) -> AbstractContextManager[Connection]:
        """A transaction that reads one consistent state."""

    def lock(
        self, release_id: str, wait: Callable[[], None] | None
    ) -> AbstractContextManager[None]:
        """Hold a release's lock, which dies with the process; `wait` is called if it is taken."""

    def require_lock(self) -> None:
        """Refuse to go on when the lock that this thread took was lost meanwhile."""

    def sweep_locks(self, live: set[str]) -> None:
        """Forget the locks of releases that are not among `live`."""

    def keys(self, connection: Connection) -> Keys:
        """The release keys, as this transaction may see and change them."""

    def staging(self, ledger_id: str) -> Path | None:
        """Where a ledger's centers are staged; None where this process was told no place."""

    def runs(self, ledger_id: str) -> Path | None:
        """Where the private records of a ledger's runs are; None where there is no place."""

    def mark(self, ledger_id: str) -> Mark | None:
        """The note, outside the database, of a ledger's latest event, if there can be one."""

    def home(self, connection: Connection) -> str:
        """Where the database says it lives; a restored one says something else, if it can tell."""

    def close(self) -> None:
        """Let go of the database."""


def backend_of(url: str, *, read_only: bool = False, busy_timeout: float = 30.0) -> Backend:
    """The backend that a ledger URL names; nothing is opened yet.

    Raises
    ------
    SpecError
        When the URL holds a password, or names a database that this version cannot use.

    Examples
    --------
    >>> backend_of("mysql://steward@host/db")
    Traceback (most recent call last):
    dbern.errors.SpecError: ledger: mysql is not available in this version; write \
"sqlite:///ledger.db" or "postgresql+psycopg://host/db"
    """
    if _is_postgres(url):
        return PostgresBackend(url, read_only=read_only, busy_timeout=busy_timeout)
    path = Path(_sqlite_path(url)).resolve()
    return SqliteBackend(path, read_only=read_only, busy_timeout=busy_timeout)


def check_installed(backend: Backend, busy_timeout: float) -> str:
    """Require a ledger, bring one of an older version to this one, and return its public name.

    Raises
    ------
    EnvironmentRefusedError
        When there is none, it is of a version that cannot be read, or it cannot be written.
    """
    version = None
    if backend.exists():
        with backend.read() as connection:
            version = version_of(connection)
    if version is None:
        command = shlex.join(["dbern", "ledger", "init", "--ledger", backend.url])
        raise EnvironmentRefusedError(f"ledger: no ledger is at {backend.url}. Make one: {command}")
    if version != VERSION:  # looking, too, needs the columns of this version
        with backend_of(backend.url, busy_timeout=busy_timeout).write() as connection:
            named = "ledger_id" in facts_of(connection)  # then its mark is what it should be
            if migrate(connection) and not named:
                mark = backend.mark("")
                before = None if mark is None else mark.owner()
                if before:  # it was of this version once, and put back to before that
                    set_facts(connection, ledger_id=before, reconciled="0")
                # Before this is durable: a ledger of this version without its mark is a copy.
                start_mark(backend, ledger_id_of(connection))
    with backend.read() as connection:
        return ledger_id_of(connection)


def start_mark(backend: Backend, ledger_id: str) -> None:
    """Make the mark of a ledger that never had one."""
    mark = backend.mark(ledger_id)
    if mark is not None:
        mark.advance(Point(1, 0))


def resolve_url(url: str, base: Path) -> str:
    """The ledger's URL with a relative SQLite path taken from `base`, the specification's folder.

    Raises
    ------
    SpecError
        As `backend_of`.

    Examples
    --------
    >>> resolve_url("sqlite:///ledger.db", Path("/srv/specs"))
    'sqlite:////srv/specs/ledger.db'
    >>> resolve_url("sqlite:////var/ledger.db", Path("/srv/specs"))
    'sqlite:////var/ledger.db'
    """
    if _is_postgres(url):
        return url
    return f"{_SQLITE}{base / _sqlite_path(url)}"


def _is_postgres(url: str) -> bool:
    """Whether it names a PostgreSQL database, in a form that may be used."""
    asked = _refuse_password(url)
    if not url.startswith(_POSTGRES):
        return False
    if "options" in asked:
        raise SpecError(
            "ledger: the URL sets `options`, which the ledger sets itself; leave them out"
        )
    return True


def _sqlite_path(url: str) -> str:
    """The file of a SQLite URL; no message repeats a URL, for it may hold a password."""
    _refuse_password(url)
    if not url.startswith("sqlite:"):
        scheme = url.partition(":")[0]
        what = f"{scheme} is not available in this version" if ":" in url else "this is no URL"
        raise SpecError(f'ledger: {what}; write "sqlite:///ledger.db" or "{_POSTGRES}host/db"')
    path = url.removeprefix(_SQLITE)
    if path in (url, "", ":memory:") or "?" in path or "#" in path:
        raise SpecError(
            "ledger: a sqlite URL is three slashes and a file, without options; write "
            '"sqlite:///ledger.db", or with an absolute path "sqlite:////srv/ledger.db"'
        )
    return path


def _refuse_password(url: str) -> set[str]:
    """Refuse a URL that holds a password; returns the names of its options."""
    try:
        parts = urlsplit(url)
        asked = {key.lower() for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
        held = parts.password is not None or any("password" in key for key in asked)
    except ValueError:
        raise SpecError('ledger: is not a URL; write one such as "sqlite:///ledger.db"') from None
    if held:
        raise SpecError(
            "ledger: the URL holds a password; leave it out and give it by a password file "
            "(PGPASSFILE), by PGPASSWORD or by a service (?service=NAME)"
        )
    return asked
