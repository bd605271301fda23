"""Paths and URLs, and the database that a ledger's URL names."""

from __future__ import annotations

from pathlib import Path
from typing import TypeGuard
from urllib.parse import parse_qsl, urlsplit

from dbern.errors import SpecError


def is_url(where: str | Path) -> TypeGuard[str]:
    """Return whether it is anything but a path."""
    return "://" in str(where)  # which no `Path` holds: it has single slashes


_SQLITE = "sqlite:///"
_POSTGRES = "postgresql+psycopg://"


def resolve_url(url: str, base: Path) -> str:
    """Return the ledger's URL, a relative SQLite path taken from `base`, the spec's folder.

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
    """
    if is_postgres(url):
        return url
    return f"{_SQLITE}{base / sqlite_path(url)}"


def is_postgres(url: str) -> bool:
    """Return whether it names a PostgreSQL database, in a form that may be used."""
    options = _refuse_password(url)
    if not url.startswith(_POSTGRES):
        return False
    if "options" in options:
        raise SpecError(
            "ledger: the URL sets `options`, which the ledger sets itself. Leave them out."
        )
    return True


def sqlite_path(url: str) -> str:
    """Return the file of a SQLite URL; no message repeats a URL, for it may hold a password."""
    _refuse_password(url)
    if not url.startswith("sqlite:"):
        scheme = url.partition(":")[0]
        what = f"{scheme} is not available in this version" if ":" in url else "this is no URL"
        raise SpecError(f'ledger: {what}. Write "sqlite:///ledger.db" or "{_POSTGRES}host/db".')
    path = url.removeprefix(_SQLITE)
    if path in (url, "", ":memory:") or "?" in path or "#" in path:
        raise SpecError(
            "ledger: a sqlite URL is three slashes and a file, without options. Write "
            '"sqlite:///ledger.db", or with an absolute path "sqlite:////srv/ledger.db".'
        )
    return path


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
