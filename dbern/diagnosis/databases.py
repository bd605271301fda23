"""A shared ledger, from where a client stands: the way to its database, its secret, its staging."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from dbern.diagnosis.finding import Finding, is_loopback
from dbern.errors import EnvironmentRefusedError
from dbern.ledger.postgres import STAGING
from dbern.ledger.wrapping import SECRET, SECRET_FILE, secret_of

_VERIFIED = "verify-full"
_ENCRYPTED = ("require", "verify-ca", _VERIFIED)


def database(url: str) -> list[Finding]:
    """How a client reaches a PostgreSQL ledger, and what it needs of its own to release."""
    return [_transport(url), _secret(), _staging()]


def _transport(url: str) -> Finding:
    """By what libpq reads: the URL, then the environment."""
    parts = urlsplit(url)
    asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    host = asked.get("host") or parts.hostname or os.environ.get("PGHOST", "")
    if not {"service"} & asked.keys() and (not host or host.startswith("/") or is_loopback(host)):
        return Finding("ledger's transport", "good", "is local")
    mode = asked.get("sslmode") or os.environ.get("PGSSLMODE") or "prefer"
    if mode == _VERIFIED:
        return Finding("ledger's transport", "good", "is encrypted, and the server is verified")
    mend = f"write ?sslmode={_VERIFIED} into the URL and name the authority in PGSSLROOTCERT"
    if mode in _ENCRYPTED:
        found = f"sslmode {mode}: encrypted, but another server may pass for the ledger's"
        return Finding("ledger's transport", "warn", found, mend)
    found = f"sslmode {mode} goes on without TLS where the server, or whoever is between, says so"
    return Finding("ledger's transport", "mend", found, mend)


def _secret() -> Finding:
    file = os.environ.get(SECRET_FILE)
    if not file and not os.environ.get(SECRET):
        found = f"neither {SECRET} nor {SECRET_FILE} is set"
        return Finding("ledger's secret", "warn", found, "set one where releases are made")
    try:
        secret_of(os.environ)
    except EnvironmentRefusedError as error:
        return Finding("ledger's secret", "mend", str(error), "see above")
    if file and Path(file).stat().st_mode & 0o007:
        found = f"{file} is open to everybody (mode {Path(file).stat().st_mode & 0o777:o})"
        return Finding("ledger's secret", "mend", found, f"run: chmod o= {file}")
    return Finding("ledger's secret", "good", "is set")


def _staging() -> Finding:
    named = os.environ.get(STAGING)
    if not named:
        return Finding(
            "ledger's staging", "warn", f"{STAGING} is not set", "set it where releases are made, "
            "to a folder that is in no backup and that all hosts which may continue them share",
        )  # fmt: skip
    folder = Path(named)
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        found = f"{folder} {'cannot be written' if folder.is_dir() else 'is no folder'}"
        return Finding("ledger's staging", "mend", found, "make one that this user may write to")
    return Finding("ledger's staging", "good", str(folder))
