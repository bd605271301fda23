"""Paths and URLs, and the database that a ledger's URL names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard
from urllib.parse import parse_qsl, urlsplit

from dbern.errors import SpecError


def is_url(where: str | Path) -> TypeGuard[str]:
    """Return whether it is anything but a path."""
    return "://" in str(where)  # which no `Path` holds: it has single slashes


@dataclass(frozen=True)
class LedgerDatabase:
    """A kind of database: its backend's class, made of a file or, of a server, of its URL."""

    backend: str
    in_file: bool


LEDGER_DATABASES: Final[Mapping[str, LedgerDatabase]] = {
    "sqlite": LedgerDatabase("dbern.ledger.sqlite:SqliteBackend", in_file=True),
    "postgresql+psycopg": LedgerDatabase("dbern.ledger.postgres:PostgresBackend", in_file=False),
}
"""By the scheme of a ledger's URL; a new one is a file of `dbern.ledger` and a line here."""


def resolve_url(url: str, base: Path) -> str:
    """Return the ledger's URL, a file's relative path taken from `base`, the spec's folder.

    Raises
    ------
    SpecError
        When it holds a password, or names a database that this version cannot use.

    Examples
    --------
    >>> resolve_url("sqlite:///ledger.db", Path("/srv/specs"))
    'sqlite:////srv/specs/ledger.db'
    >>> resolve_url("sqlite:////var/ledger.db", Path("/srv/specs"))
    'sqlite:////var/ledger.db'
    >>> resolve_url("sqlite:///ledger.db", Path("/srv/#1"))
    'sqlite:////srv/%231/ledger.db'
    """
    database = database_of(url)
    return file_url(_scheme(url), base / ledger_file(url)) if database.in_file else url


def database_of(url: str) -> LedgerDatabase:
    """Return the database of a ledger's URL; no message repeats a URL: it may hold a password.

    Raises SpecError for a URL that holds one, or names a database that this version cannot use.
    """
    options = _refuse_password(url)
    scheme = _scheme(url)
    database = LEDGER_DATABASES.get(scheme)
    if database is None or not (database.in_file or url.startswith(f"{scheme}://")):
        what = f"{scheme} is not available in this version" if ":" in url else "this is no URL"
        raise SpecError(
            f'ledger: {what}. Write "sqlite:///ledger.db" or "postgresql+psycopg://host/db".'
        )
    if "options" in options and not database.in_file:
        raise SpecError(
            "ledger: the URL sets `options`, which the ledger sets itself. Leave them out."
        )
    return database


def file_url(scheme: str, path: Path) -> str:
    """Return the URL of a database in a file, as `ledger_file` reads it."""
    escaped = re.sub("[%?#]", lambda character: f"%{ord(character[0]):02X}", str(path))
    return f"{scheme}:///{escaped}"


def ledger_file(url: str) -> str:
    """Return the file that the URL of a database in a file names."""
    scheme = _scheme(url)
    path = url.removeprefix(f"{scheme}:///")
    if path in (url, "", ":memory:") or "?" in path or "#" in path:
        raise SpecError(
            f"ledger: a {scheme} URL is three slashes and a file, without options. Write "
            f'"{scheme}:///ledger.db", or with an absolute path "{scheme}:////srv/ledger.db", and '
            "%3F and %23 for ? and # in a name."
        )
    return re.sub("%(25|3F|23)", lambda escape: chr(int(escape[1], 16)), path, flags=re.IGNORECASE)


def _scheme(url: str) -> str:
    return url.partition(":")[0]


def _refuse_password(url: str) -> set[str]:
    """Refuse a URL that holds a password; returns the names of its options."""
    try:
        parts = urlsplit(url)
        options = {key.lower() for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
        held = parts.password is not None or any("password" in key for key in options)
    except ValueError:
        raise SpecError('ledger: is not a URL. Write one such as "sqlite:///ledger.db".') from None
    if held:
        raise SpecError(
            "ledger: the URL holds a password. Leave it out and give it by a password file "
            "(PGPASSFILE), by PGPASSWORD or by a service (?service=NAME)."
        )
    return options
