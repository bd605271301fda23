"""Versions, the clock, and memory."""

from __future__ import annotations

import platform
import re
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version

from dbern.diagnosis.finding import Finding
from dbern.limits import memory_limit

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9.]+)$")
_BUILT = 1_700_000_000  # seconds since 1970: this package is younger


def installation() -> list[Finding]:
    """Python, every package that ``dbern`` needs, the clock, and memory.

    Examples
    --------
    >>> installation()[0].what
    'python'
    """
    python = platform.python_version()
    old = sys.version_info < (3, 11)
    return [
        Finding("python", "mend", python, "install Python 3.11 or newer")
        if old
        else Finding("python", "good", python),
        Finding("dbern", "good", version("dbern")),
        *(_package(*match.groups()) for match in map(_REQUIREMENT.match, _requirements()) if match),
        _clock(),
        Finding("memory", "good", f"{memory_limit() / 2**30:.1f} GiB for a releasing process"),
    ]


def _requirements() -> list[str]:
    return [line for line in requires("dbern") or () if ";" not in line]


def _package(name: str, least: str) -> Finding:
    mend = f'run: python -m pip install "{name}>={least}"'
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, "mend", "is not installed", mend)
    if _numbers(found) < _numbers(least):
        return Finding(name, "mend", f"{found} is older than {least}", mend)
    return Finding(name, "good", found)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _clock() -> Finding:
    now = time.time()
    shown = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    if now < _BUILT:
        return Finding(
            "clock", "mend", f"{shown}, before this package was written", "set the system's clock"
        )
    return Finding("clock", "good", shown)
