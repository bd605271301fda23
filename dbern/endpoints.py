"""What the environment says of an object store: where it is, whom to trust, and credentials.

The variables are those of Amazon's own tools, so that one environment serves all. Credentials stay
out of `Settings`, which is compared and kept; nothing here is ever in a spec, a graph or a log.
"""

from __future__ import annotations

import os
from configparser import ConfigParser, Error
from pathlib import Path
from typing import NamedTuple

from dbern.errors import EnvironmentRefusedError

_AUTHORITY, _CREDENTIALS = "AWS_CA_BUNDLE", "AWS_SHARED_CREDENTIALS_FILE"
_REGION = "us-east-1"


class Settings(NamedTuple):
    """Which store, and how to speak to it.

    Attributes
    ----------
    server : str
        Its address; empty for Amazon's.
    region : str
        Its region.
    authority : str
        A file of certificates to trust; empty for the system's.
    credentials, profile : str
        A file of credentials, and which of them; empty where the environment or the identity of
        the machine gives them.
    changed : tuple of int
        When the two files were last changed: whoever keeps a client makes another one then.
    """

    server: str
    region: str
    authority: str
    credentials: str
    profile: str
    changed: tuple[int, int]


def settings() -> Settings:
    """What the variables of this process say just now."""
    named = os.environ.get
    authority = named(_AUTHORITY) or ""
    given = "" if named("AWS_ACCESS_KEY_ID") else named(_CREDENTIALS) or ""
    return Settings(
        server=named("AWS_ENDPOINT_URL_S3") or named("AWS_ENDPOINT_URL") or "",
        region=named("AWS_REGION") or named("AWS_DEFAULT_REGION") or _REGION,
        authority=authority,
        credentials=given,
        profile=named("AWS_PROFILE") or "default",
        changed=(_changed(authority), _changed(given)),
    )


def trusted(given: Settings) -> bytes | None:
    """Certificates to trust besides the system's, as PEM; None where none are named.

    Raises
    ------
    EnvironmentRefusedError
        Where the file cannot be read.
    """
    return _content(given.authority, _AUTHORITY).encode() if given.authority else None


def credentials(given: Settings) -> dict[str, str]:
    """What the file of credentials holds, by the names that obstore has for it; empty without one.

    Raises
    ------
    EnvironmentRefusedError
        Where it cannot be read, or has no such profile; the message never holds its content.
    """
    if not given.credentials:
        return {}
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(_content(given.credentials, _CREDENTIALS))
        found = parser[given.profile]
        needed = {name: found[f"aws_{name}"] for name in ("access_key_id", "secret_access_key")}
    except (Error, KeyError):
        raise EnvironmentRefusedError(
            f"{_CREDENTIALS}: {given.credentials} has no profile {given.profile} with "
            "aws_access_key_id and aws_secret_access_key; write both below its name in brackets, "
            "or name another in AWS_PROFILE"
        ) from None
    token = found.get("aws_session_token")
    return {**needed, "session_token": token} if token else needed


def _changed(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns if file else 0
    except (OSError, ValueError):  # said when it is read
        return 0


def _content(file: str, variable: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        shown = "no path" if {"\n", "="} & set(file) else file  # but the content itself
        raise EnvironmentRefusedError(
            f"{variable} names {shown}, which cannot be read ({type(error).__name__}); write the "
            f"path of a file that is mounted, or unset {variable}"
        ) from None
