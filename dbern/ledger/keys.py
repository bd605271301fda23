"""Where release keys live: one file each, outside the database; or in it, wrapped by a secret."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from dbern.errors import EnvironmentRefusedError, IntegrityError
from dbern.ledger.durable import private_directory, sync_directory, write_new
from dbern.privacy.entropy import KEY_BYTES, new_key

_KEY_FILE = re.compile(r"([0-9a-f]{32})\.key")


class Keys(Protocol):
    """The release keys of one ledger."""

    where: str
    """Said when a key is missing."""

    def create(self, release_id: str) -> None:
        """Draw a key, which is durable before the reservation is, or not at all."""

    def read(self, release_id: str) -> bytes | None:
        """The key, or None when there is none."""

    def destroy(self, release_id: str) -> None:
        """Remove a key; one that is gone already is no error."""

    def sweep(self, live: Collection[str]) -> None:
        """Destroy every key whose release is not among `live`."""


class KeyFiles:
    """The keys of one ledger, a 0600 file per release in a 0700 directory.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keys = KeyFiles(Path(folder, "ledger.db.keys"))
    ...     keys.create("0" * 32)
    ...     key = keys.read("0" * 32)
    ...     keys.destroy("0" * 32)
    ...     len(key), keys.held()
    (32, [])
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.where = str(directory)

    def create(self, release_id: str) -> None:
        """Draw a key and put it on the disk, file and directory entry both, before returning.

        Raises
        ------
        EnvironmentRefusedError
            When the directory cannot be written; no partial key is left.
        """
        try:
            private_directory(self.directory)
            write_new(self._path(release_id), new_key())
            sync_directory(self.directory)
        except OSError as error:
            raise EnvironmentRefusedError(
                f"the key directory {self.directory} cannot be written: {error.strerror}; "
                "make it writable or free space; nothing was charged"
            ) from error

    def read(self, release_id: str) -> bytes | None:
        """The key, or None when there is none.

        Raises
        ------
        IntegrityError
            When the file does not hold a whole key.
        EnvironmentRefusedError
            When it cannot be read.
        """
        try:
            key = self._path(release_id).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EnvironmentRefusedError(
                f"a key in {self.directory} cannot be read: {error.strerror}; "
                "run as the user who owns the ledger"
            ) from error
        if len(key) != KEY_BYTES:
            raise IntegrityError(f"a key in {self.directory} is damaged: abandon its release")
        return key

    def destroy(self, release_id: str) -> None:
        """Overwrite and remove a key; one that is gone already is no error.

        Overwriting is what software can do; a journaling file system or a solid-state disk may
        keep the old blocks, so the directory belongs on an encrypted volume and in no backup.
        """
        path = self._path(release_id)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.write(descriptor, bytes(KEY_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path.unlink(missing_ok=True)
        sync_directory(self.directory)

    def held(self) -> list[str]:
        """The releases that have a key."""
        if not self.directory.is_dir():
            return []
        found = (_KEY_FILE.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(match[1] for match in found if match)

    def sweep(self, live: Collection[str]) -> None:
        """Destroy every key whose release is not among `live`; other files are left alone."""
        for release_id in self.held():
            if release_id not in live:
                self.destroy(release_id)

    def _path(self, release_id: str) -> Path:
        return self.directory / f"{release_id}.key"
