"""Paths and URLs, and the database that a ledger's URL names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeGuard
from urllib.parse import parse_qsl, urlsplit

from dbern.errors import SpecError


def is_url(location: str | Path) -> TypeGuard[str]:
    """Return whether a location is a URL, not a path."""
    return "://" in str(location)  # a `Path` has single slashes


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
    path = ledger_file(url)
    return url if path is None else file_url(base / path)


def ledger_file(url: str) -> str | None:
    """Return the SQLite file that a ledger's URL names; None for a PostgreSQL server.

    Raises SpecError for a URL that holds a password, which no message repeats, or names another
    database.
    """
    options = _refuse_password(url)
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        return _sqlite_file(url)
    if not url.startswith("postgresql+psycopg://"):
        problem = f"{scheme} is not available in this version" if ":" in url else "this is no URL"
        raise SpecError(
            f'ledger: {problem}. Write "sqlite:///ledger.db" or "postgresql+psycopg://host/db".'
        )
    if "options" in options:
        raise SpecError(
            "ledger: the URL sets `options`, which the ledger sets itself. Leave them out."
        )
    return None


def file_url(path: Path) -> str:
    """Return the URL of a database in a file, as `ledger_file` reads it."""
    escaped = re.sub("[%?#]", lambda character: f"%{ord(character[0]):02X}", str(path))
    return f"sqlite:///{escaped}"


def _sqlite_file(url: str) -> str:
    path = url.removeprefix("sqlite:///")
    if path in (url, "", ":memory:") or "?" in path or "#" in path:
        raise SpecError(
            "ledger: a sqlite URL is three slashes and a file, without options. Write "
            '"sqlite:///ledger.db", or with an absolute path "sqlite:////srv/ledger.db", and '
            "%3F and %23 for ? and # in a name."
        )
    return re.sub("%(25|3F|23)", lambda escape: chr(int(escape[1], 16)), path, flags=re.IGNORECASE)


def _refuse_password(url: str) -> set[str]:
    """Refuse a URL that holds a password; return the names of its options."""
    try:
        parts = urlsplit(url)
        options = {key.lower() for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
        has_password = parts.password is not None or any("password" in key for key in options)
    except ValueError:
        raise SpecError('ledger: is not a URL. Write one such as "sqlite:///ledger.db".') from None
    if has_password:
        raise SpecError(
            "ledger: the URL holds a password. Leave it out and give it by a password file "
            "(PGPASSFILE), by PGPASSWORD or by a service (?service=NAME)."
        )
    return options
