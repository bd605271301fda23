"""What a database must do to hold a ledger; each database is one module that does it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from sqlalchemy import Connection

from dbern.errors import SpecError
from dbern.ledger.keys import KeyFiles
from dbern.ledger.refusals import not_installed
from dbern.ledger.schema import VERSION, migrate, version_of
from dbern.ledger.sqlite import SqliteBackend

_SQLITE = "sqlite:///"


class Backend(Protocol):
    """One database with its keys, its staging and its locks.

    Every failure of the database leaves these methods as a `DbernError` that says what to do.
    """

    url: str
    keys: KeyFiles
    staging: Path

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

    def sweep_locks(self, live: set[str]) -> None:
        """Forget the locks of releases that are not among `live`."""

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
    >>> backend_of("postgresql://steward@host/db")
    Traceback (most recent call last):
    dbern.errors.SpecError: ledger: postgresql is not available in this version; write a sqlite \
URL such as "sqlite:///ledger.db"
    """
    path = Path(_sqlite_path(url)).resolve()
    return SqliteBackend(path, read_only=read_only, busy_timeout=busy_timeout)


def check_installed(backend: Backend, busy_timeout: float) -> None:
    """Require a ledger, and bring one of an older version to this one.

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
        raise not_installed(backend.url)
    if version != VERSION:  # looking, too, needs the columns of this version
        with backend_of(backend.url, busy_timeout=busy_timeout).write() as connection:
            migrate(connection)


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
    return f"{_SQLITE}{base / _sqlite_path(url)}"


def _sqlite_path(url: str) -> str:
    """The file of a SQLite URL; no message repeats a URL, for it may hold a password."""
    _refuse_password(url)
    if not url.startswith("sqlite:"):
        scheme = url.partition(":")[0].partition("+")[0]
        what = f"{scheme} is not available in this version" if ":" in url else "this is no URL"
        raise SpecError(f'ledger: {what}; write a sqlite URL such as "sqlite:///ledger.db"')
    path = url.removeprefix(_SQLITE)
    if path in (url, "", ":memory:") or "?" in path or "#" in path:
        raise SpecError(
            "ledger: a sqlite URL is three slashes and a file, without options; write "
            '"sqlite:///ledger.db", or with an absolute path "sqlite:////srv/ledger.db"'
        )
    return path


def _refuse_password(url: str) -> None:
    try:
        parts = urlsplit(url)
        asked = {key.lower() for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
        held = parts.password is not None or "password" in asked
    except ValueError:
        raise SpecError('ledger: is not a URL; write one such as "sqlite:///ledger.db"') from None
    if held:
        raise SpecError(
            "ledger: the URL holds a password; leave it out and give it in the environment"
        )
