"""Where a synopsis goes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from dbern.diagnosis.finding import SKEW_SECONDS, Finding, tried
from dbern.errors import SpecError

_FREE_BYTES = 1 << 30


def output(path: Path) -> list[Finding]:
    """Whether the file system of a synopsis creates a name once only, and has room.

    Raises
    ------
    SpecError
        For a URL.
    """
    if ":/" in str(path):
        raise SpecError("--output: is no local path; write one such as --output out.zarr")
    path = path.resolve()
    folder = next(parent for parent in (path, *path.parents) if parent.is_dir())
    advice = "choose an output on a file system with hard links, writable by this user"
    findings = [
        tried("create-if-absent", folder, _second_link_refused, advice),
        _skew(folder),
        _room(folder),
    ]
    if path.exists():
        findings.append(
            Finding("output", "warn", f"{path} exists", "a new release needs another output")
        )
    return findings


def _second_link_refused(folder: Path) -> bool:
    """As `dbern.synopsis.manifest.publish` does: the second creation of a name must fail."""
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
    if abs(off) > SKEW_SECONDS:
        found = f"the file server's is off by {off:.0f} s"
        return Finding("output's clock", "warn", found, "synchronize both clocks")
    return Finding("output's clock", "good", "agrees with this machine's")


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    shown = f"{free / 2**30:.1f} GiB free at {folder}"
    if free < _FREE_BYTES:
        return Finding("room", "warn", shown, "free some: a release that finds none waits for it")
    return Finding("room", "good", shown)
