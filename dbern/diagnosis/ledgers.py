"""A ledger's file, its folders, its locks and its place."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from dbern.diagnosis.databases import database
from dbern.diagnosis.finding import SKEW_SECONDS, Finding, tried
from dbern.diagnosis.histories import clock
from dbern.errors import DbernError, EnvironmentRefusedError
from dbern.ledger import BudgetLedger
from dbern.ledger.backend import backend_of
from dbern.ledger.sqlite import SqliteBackend

_NETWORK = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "lustre", "ceph", "glusterfs", "afs")
_BESIDE = ("keys", "staging", "locks", "runs")
_WAIT_SECONDS = 0.05


def ledger(url: str) -> list[Finding]:
    """The ledger's file, its folders of keys and staging, its locks and its place.

    Of one in PostgreSQL, what this client needs: a verified way to it, its secret, its staging.

    Raises
    ------
    SpecError
        When `url` names no ledger that this version can use.
    """
    backend = backend_of(url, read_only=True)
    backend.close()
    if not backend.exists():
        mend = f"run: dbern ledger init --ledger {url}"
        return [Finding("ledger", "mend", f"there is none at {backend.url}", mend)]
    if not isinstance(backend, SqliteBackend):  # its server keeps permissions, locks and disk
        return [*_content(url), *database(url)]
    path = backend.path
    folders = [path.with_name(f"{path.name}.{what}") for what in _BESIDE]
    return [
        _private("ledger file", path, 0o600),
        *(_private(folder.suffix[1:], folder, 0o700) for folder in folders if _present(folder)),
        *_content(url),
        *_locks(path),
        _place(path),
        _repository(path),
    ]


def _present(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _private(what: str, path: Path, mode: int) -> Finding:
    facts = path.lstat()
    if path.is_symlink() or facts.st_uid != os.geteuid():
        found = "is a link" if path.is_symlink() else "belongs to another user"
        mend = "put the ledger's own file or folder there, owned by the user who releases"
        return Finding(what, "mend", f"{path} {found}", mend)
    if facts.st_mode & 0o077:
        found = f"{path} is open to others (mode {facts.st_mode & 0o777:o})"
        return Finding(what, "mend", found, f"run: chmod {mode:o} {path}")
    return Finding(what, "good", f"{path}, mode {facts.st_mode & 0o777:o}")


def _content(url: str) -> list[Finding]:
    try:
        with BudgetLedger.open(url, read_only=True) as opened:
            accounts, log = opened.status(None), opened.log(None)
    except DbernError as error:
        return [Finding("ledger content", "mend", str(error), "see above; else restore a backup")]
    last = datetime.fromisoformat(log[-1].at).timestamp() if log else 0.0
    if last > time.time() + SKEW_SECONDS:
        found = f"its last entry is of the future ({log[-1].at})"
        content = Finding("ledger content", "mend", found, "set the system's clock")
    else:
        found = f"{len(accounts)} accounts, {len(log)} log entries"
        content = Finding("ledger content", "good", found)
    return [content, clock(log, accounts)]


def _locks(path: Path) -> Iterator[Finding]:
    advice = "keep the ledger on a local disk of the machine that releases"
    yield tried("file locks", path.parent, _second_flock_refused, advice)
    yield tried("ledger locks", path, _second_writer_refused, advice)


def _second_flock_refused(folder: Path) -> bool:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".dbern-doctor-") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(file.name, "rb") as again:  # noqa: PTH123 -- a second description of one file
            try:
                fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def _second_writer_refused(path: Path) -> bool:
    one = SqliteBackend(path)
    two = SqliteBackend(path, busy_timeout=_WAIT_SECONDS)
    try:
        with one.write():
            try:
                with two.write():
                    return False
            except EnvironmentRefusedError:
                return True
    finally:
        one.close()
        two.close()


def _place(path: Path) -> Finding:
    kind = _file_system(path)
    if kind.startswith(_NETWORK):
        return Finding(
            "ledger's disk", "warn", f"{path} is on {kind}, a network file system",
            "keep the ledger on a local disk: locks and durable writes are only as good as the "
            "server's",
        )  # fmt: skip
    return Finding("ledger's disk", "good", kind)


def _file_system(path: Path) -> str:
    """The kind of file system below `path`, as Linux names it."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown file system"
    found = (Path("/"), "unknown file system")
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        where, kind = line.split()[1:3]
        at = Path(where.replace("\\040", " "))
        if path.is_relative_to(at) and len(at.parts) >= len(found[0].parts):
            found = (at, kind)
    return found[1]


def _repository(path: Path) -> Finding:
    inside = next((folder for folder in path.parents if (folder / ".git").exists()), None)
    if inside is not None:
        return Finding(
            "ledger's folder", "warn", f"{path} is inside the git repository {inside}",
            "keep ledger and keys out of every repository and backup: the keys of unfinished "
            "releases are as secret as the records",
        )  # fmt: skip
    return Finding("ledger's folder", "good", "in no git repository")
