"""Where a synopsis goes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from dbern.diagnosis.finding import SKEW_SECONDS, Finding, is_loopback, tried
from dbern.endpoints import settings
from dbern.objects import Objects, check_url, is_url

_FREE_BYTES = 1 << 30


def output(where: str | Path) -> list[Finding]:
    """Whether the file system or object store of a synopsis creates a name once only, and has room.

    Raises
    ------
    SpecError
        For a URL that is not of S3, or holds a secret.
    """
    if isinstance(where, str) and is_url(where):
        return _bucket(check_url(where, "--output"))
    path = Path(where).resolve()
    folder = next(parent for parent in (path, *path.parents) if parent.is_dir())
    advice = "choose an output on a file system with hard links, writable by this user"
    findings = [
        tried("create-if-absent", folder, _second_link_refused, advice),
        _skew(folder),
        _room(folder),
    ]
    if path.exists():
        findings.append(_taken(str(path)))
    return findings


def _taken(where: str) -> Finding:
    return Finding("output", "warn", f"{where} exists", "a new release needs another output")


def _bucket(url: str) -> list[Finding]:
    """Puts objects beside it and removes them: what is published holds nothing else."""
    place = Objects(f"{url}.dbern-doctor")
    advice = "name a bucket of a store that heeds If-None-Match; credentials and AWS_ENDPOINT_URL"
    advice += " come from the environment"
    findings = [tried("create-if-absent", url, lambda _: place.excludes(), advice), _transport()]
    if findings[0].state == "good":
        findings.append(_told_skew(place.skew(), "the object store's"))
        findings += [_taken(url)] if Objects(url).sizes() else []
    return findings


def _transport() -> Finding:
    server = urlsplit(settings().server)
    if server.scheme == "http" and not is_loopback(server.hostname or ""):
        found = "the object store is reached without TLS"
        return Finding("transport", "mend", found, "write https:// in AWS_ENDPOINT_URL")
    return Finding("transport", "good", "is encrypted" if server.scheme != "http" else "is local")


def _second_link_refused(folder: Path) -> bool:
    """As `dbern.synopsis.places.Folder.create` does: the second creation of a name must fail."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".dbern-doctor-") as scratch:
        draft, target = Path(scratch, "draft"), Path(scratch, "manifest")
        draft.write_bytes(b"{}")
        os.link(draft, target)
        try:
            os.link(draft, target)
        except FileExistsError:
            return True
    return False


def _skew(folder: Path) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".dbern-doctor-") as file:
            off = os.fstat(file.fileno()).st_mtime - time.time()
    except OSError as error:
        return Finding("output's clock", "warn", f"cannot be read: {error.strerror}", "see above")
    return _told_skew(off, "the file server's")


def _told_skew(off: float, whose: str) -> Finding:
    if abs(off) > SKEW_SECONDS:
        found = f"{whose} is off by {off:.0f} s"
        return Finding("output's clock", "warn", found, "synchronize both clocks")
    return Finding("output's clock", "good", "agrees with this machine's")


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    shown = f"{free / 2**30:.1f} GiB free at {folder}"
    if free < _FREE_BYTES:
        return Finding("room", "warn", shown, "free some: a release that finds none waits for it")
    return Finding("room", "good", shown)
