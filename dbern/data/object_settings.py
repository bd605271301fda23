"""Settings and credentials that the environment gives for an object store.

The variables are those of Amazon's own tools, so that one environment serves all. Credentials stay
out of `ObjectStoreSettings`, which is compared and cached; nothing here is ever in a spec, a graph
or a log.
"""

from __future__ import annotations

import os
from configparser import ConfigParser, Error
from pathlib import Path
from typing import NamedTuple

from dbern.errors import EnvironmentRefusedError
from dbern.system import read_small

_AUTHORITY, _CREDENTIALS = "AWS_CA_BUNDLE", "AWS_SHARED_CREDENTIALS_FILE"
_REGION = "us-east-1"


class ObjectStoreSettings(NamedTuple):
    """Store, and the settings of its protocol."""

    server: str  # its address; empty for Amazon's
    region: str
    authority: str  # a file of certificates to trust; empty for the system's
    credentials: str  # a file; empty where the environment or the identity of the machine has them
    profile: str  # which of them
    changed: tuple[int, int]  # when the two files were: whoever keeps a client makes another then


def current_settings() -> ObjectStoreSettings:
    """Settings from the variables of this process, as they are now."""
    variable = os.environ.get
    authority = variable(_AUTHORITY) or ""
    credentials = "" if variable("AWS_ACCESS_KEY_ID") else variable(_CREDENTIALS) or ""
    return ObjectStoreSettings(
        server=variable("AWS_ENDPOINT_URL_S3") or variable("AWS_ENDPOINT_URL") or "",
        region=variable("AWS_REGION") or variable("AWS_DEFAULT_REGION") or _REGION,
        authority=authority,
        credentials=credentials,
        profile=variable("AWS_PROFILE") or "default",
        changed=(_changed(authority), _changed(credentials)),
    )


def trusted(settings: ObjectStoreSettings) -> bytes | None:
    """Return certificates to trust besides the system's, as PEM; None where none are named.

    Raises EnvironmentRefusedError for a file that cannot be read.
    """
    return _content(settings.authority, _AUTHORITY).encode() if settings.authority else None


def read_credentials(settings: ObjectStoreSettings) -> dict[str, str]:
    """Content of the file of credentials, by obstore's names; no message quotes the file."""
    if not settings.credentials:
        return {}
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(_content(settings.credentials, _CREDENTIALS))
        profile = parser[settings.profile]
        keys = {name: profile[f"aws_{name}"] for name in ("access_key_id", "secret_access_key")}
    except (Error, KeyError):
        raise EnvironmentRefusedError(
            f"{_CREDENTIALS}: {settings.credentials} has no profile {settings.profile} with "
            "aws_access_key_id and aws_secret_access_key. Write both below its name in brackets, "
            "or name another in AWS_PROFILE."
        ) from None
    token = profile.get("aws_session_token")
    return {**keys, "session_token": token} if token else keys


def _changed(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns if file else 0
    except (OSError, ValueError):  # said when it is read
        return 0


def _content(file: str, variable: str) -> str:
    try:
        return read_small(file).decode()
    except (OSError, ValueError) as error:
        shown = "no path" if {"\n", "="} & set(file) else file  # but the content itself
        raise EnvironmentRefusedError(
            f"{variable} names {shown}, which cannot be read ({type(error).__name__}). Write the "
            f"path of a file that is mounted, or unset {variable}."
        ) from None
