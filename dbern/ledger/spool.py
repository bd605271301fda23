"""Spool: the rows of a data frame in an encrypted file, beside the staging of their release."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from dbern.data.drafts import private_directory, sync_directory
from dbern.ledger.staging import destroy_staging, staging_errors


@dataclass(frozen=True)
class Spool:
    """The encrypted rows of one release, which live as long as its key and staging.

    `directory` is of this release alone; `key` is the subkey that encrypts the rows.
    """

    directory: Path
    key: bytes = field(repr=False)

    @property
    def path(self) -> Path:
        """Path of the file, which exists once it is whole."""
        return self.directory / "rows.parquet"

    @contextmanager
    def write(self) -> Iterator[BinaryIO]:
        """Write the file anew: it exists, durably, after the block, or not at all if that fails.

        Raises ReleaseError for a file that cannot be written.
        """
        with staging_errors(self.directory, "spool"):
            private_directory(self.directory.parent)
            destroy_staging(self.directory)
            private_directory(self.directory)
            draft = self.directory / f"{secrets.token_hex(8)}.partial"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                draft.rename(self.path)
                sync_directory(self.directory)
            except BaseException:
                destroy_staging(self.directory)
                raise
