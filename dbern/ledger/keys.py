"""Keys of releases, in files beside a SQLite ledger or wrapped inside a database.

A wrapping secret is in no backup of the database.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Column, Connection, LargeBinary, MetaData, String, Table, select

from dbern.data import drafts
from dbern.data.drafts import open_descriptor, private_directory, sync_directory
from dbern.errors import EnvironmentRefusedError, IntegrityError
from dbern.privacy.keystream import KEY_BYTES, new_key
from dbern.system import read_small

_KEY_FILE = re.compile(r"([0-9a-f]{32})\.key")
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


class KeyFiles:
    """The keys of one ledger, a 0600 file per release in a 0700 directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.where = str(directory)

    def create(self, release_id: str) -> None:
        """Draw a key and put it on the disk, file and directory entry both, before returning."""
        try:
            private_directory(self.directory)
            drafts.write_new(self._path(release_id), new_key())
            sync_directory(self.directory)
        except OSError as error:
            raise EnvironmentRefusedError(
                f"The key directory {self.directory} cannot be written: {error.strerror}. "
                "Nothing was charged. Make it writable or free space."
            ) from error

    def read(self, release_id: str) -> bytes | None:
        """Return the key, or None when there is none."""
        try:
            key = read_small(self._path(release_id))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EnvironmentRefusedError(
                f"A key in {self.directory} cannot be read: {error.strerror}. "
                "Run as the user who owns the ledger."
            ) from error
        if len(key) != KEY_BYTES:
            raise IntegrityError(f"A key in {self.directory} is damaged. Abandon its release.")
        return key

    def destroy(self, release_id: str) -> None:
        """Overwrite and remove a key; one that is gone already is no error.

        Overwriting is what software can do; a journaling file system or a solid-state disk may
        keep the old blocks, so the directory belongs on an encrypted volume and in no backup.
        """
        path = self._path(release_id)
        with suppress(FileNotFoundError):
            with open_descriptor(path, os.O_WRONLY) as descriptor:
                os.write(descriptor, bytes(KEY_BYTES))
                os.fsync(descriptor)
            path.unlink(missing_ok=True)
            sync_directory(self.directory)

    def held(self) -> list[str]:
        """Return the releases that have a key."""
        if not self.directory.is_dir():
            return []
        matches = (_KEY_FILE.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(match[1] for match in matches if match)

    def sweep(self, live: Collection[str]) -> None:
        """Destroy every key whose release is not among `live`; other files are left alone."""
        for release_id in self.held():
            if release_id not in live:
                self.destroy(release_id)

    def _path(self, release_id: str) -> Path:
        return self.directory / f"{release_id}.key"


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
