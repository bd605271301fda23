"""Release keys in files beside a SQLite ledger."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from dbern.data import drafts
from dbern.data.drafts import open_descriptor, private_directory, sync_directory
from dbern.errors import EnvironmentRefusedError, IntegrityError
from dbern.privacy.keystream import KEY_BYTES, new_key
from dbern.system import read_small

_KEY_FILE = re.compile(r"([0-9a-f]{32})\.key")


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
