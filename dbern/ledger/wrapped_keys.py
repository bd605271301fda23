"""Release keys inside the database, each wrapped by a secret that no backup of it holds."""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import (
    Column,
    Connection,
    LargeBinary,
    MetaData,
    String,
    Table,
    select,
)

from dbern.errors import (
    EnvironmentRefusedError,
    IntegrityError,
)
from dbern.privacy.keystream import new_key
from dbern.system import read_small

SECRET = "DBERN_LEDGER_SECRET"  # noqa: S105 -- the variable's name, not a secret
SECRET_FILE = "DBERN_LEDGER_SECRET_FILE"  # noqa: S105 -- the variable's name
SECRET_BYTES = 32
_NONCE_BYTES = 12

wrapped = Table(
    "keys",
    MetaData(),
    Column("release_id", String, primary_key=True),
    Column("wrapped", LargeBinary, nullable=False),
)
"""One row for each release that is under way."""


class WrappedKeys:
    """The keys of one ledger as rows, AES-256-GCM under the secret, each bound to its release.

    A key is made in the transaction of its reservation and destroyed in one of its own, so none
    is ever without its release.

    Keys are looked at and changed in the transaction of `connection`. A key of one ledger,
    `ledger_id`, is none in another under the same secret.
    """

    where = "the database"

    def __init__(self, connection: Connection, ledger_id: str) -> None:
        self._connection = connection
        self._ledger_id = ledger_id

    def create(self, release_id: str) -> None:
        """Draw a key and store it wrapped."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + _cipher().encrypt(nonce, new_key(), self._associated_data(release_id))
        row = {"release_id": release_id, "wrapped": sealed}
        self._connection.execute(wrapped.insert().values(row))

    def read(self, release_id: str) -> bytes | None:
        """Return the key, or None when there is none."""
        query = select(wrapped.c.wrapped).where(wrapped.c.release_id == release_id)
        sealed = self._connection.scalar(query)
        if sealed is None:
            return None
        nonce, content = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return _cipher().decrypt(nonce, content, self._associated_data(release_id))
        except (InvalidTag, ValueError):
            raise IntegrityError(
                f"{SECRET}: does not open this release's key. Set it to the secret that the "
                "release was reserved under, or abandon the release if that is lost."
            ) from None

    def destroy(self, release_id: str) -> None:
        """Delete a key's row.

        What the database keeps of a deleted row, in pages, logs and backups, is worth nothing
        without the secret.
        """
        self._connection.execute(wrapped.delete().where(wrapped.c.release_id == release_id))

    def sweep(self, live: Collection[str]) -> None:
        """Delete the key of every release that is not among `live`."""
        held = self._connection.scalars(select(wrapped.c.release_id)).all()
        for release_id in set(held) - set(live):
            self.destroy(release_id)

    def _associated_data(self, release_id: str) -> bytes:
        return f"dbern key 1 {self._ledger_id} {release_id}".encode()


def _secret_of(environment: Mapping[str, str]) -> bytes:
    """Return the 32 bytes of the secret, from hexadecimal or base64, or from the file named."""
    file = environment.get(SECRET_FILE)
    text = (environment.get(SECRET) or (_content(file) if file else "")).strip()
    try:
        secret = (
            bytes.fromhex(text)
            if len(text) == 2 * SECRET_BYTES
            else base64.b64decode(text, validate=True)
        )
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise EnvironmentRefusedError(
            f"{SECRET}: {'is not 32 bytes in hexadecimal or base64' if text else 'is not set'}. It "
            "wraps the release keys in a PostgreSQL ledger. Nothing was charged. Make one with "
            "`openssl rand -base64 32`, keep it outside the database and its backups, and set it, "
            f"or {SECRET_FILE} to a file that holds it, for every process that releases."
        )
    return secret


def _content(file: str) -> str:
    try:
        return read_small(file).decode("ascii")
    except OSError as error:
        raise EnvironmentRefusedError(
            f"{SECRET_FILE}: {file} cannot be read ({type(error).__name__}). Nothing was charged. "
            "Mount the secret there, readable by this user alone."
        ) from None
    except ValueError:
        return "?"  # no text: told as any other wrong secret


def _cipher() -> AESGCM:
    return AESGCM(_secret_of(os.environ))
