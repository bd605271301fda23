"""What a look at one thing found."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from dbern.errors import DbernError

SKEW_SECONDS = 60
"""How far two clocks may be apart."""

Where = TypeVar("Where", Path, str)
State = Literal["good", "warn", "mend"]


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes
    ----------
    what : str
        What was looked at.
    state : str
        "good"; "warn": works, and should be changed; "mend": must be changed before a release.
    found : str
        What is there.
    mend : str
        What to do about it; empty where it is good.
    """

    what: str
    state: State
    found: str
    mend: str = ""


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def tried(what: str, path: Where, attempt: Callable[[Where], bool], advice: str) -> Finding:
    """Whether an exclusion holds that a release relies on."""
    try:
        holds = attempt(path)
    except (OSError, DbernError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return Finding(what, "mend", f"cannot be tried at {path}: {reason}", advice)
    if not holds:
        return Finding(what, "mend", f"do not exclude anyone at {path}", advice)
    return Finding(what, "good", "work")
