"""The high-water mark: how far a ledger has come, kept outside the database and its backups."""

from __future__ import annotations

import fcntl
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from dbern.data.drafts import open_descriptor
from dbern.errors import EnvironmentRefusedError
from dbern.system import read_small

_MAX_MARK_BYTES = 128


@dataclass(frozen=True, order=True)
class Point:
    """A moment of a ledger: its restore epoch, and the number of its last audited event."""

    epoch: int
    event: int


@dataclass(frozen=True)
class _Entry:
    point: Point
    inode: int | None  # None in PostgreSQL


class HighWaterMark:
    """A small file with the latest point of one ledger that was ever seen from here; not a secret.

    It is raised after a transaction is durable and before anything relies on the transaction, so a
    published release is never later than the mark: a database that ends before it was restored.

    Another ledger's mark, by `ledger_id`, says nothing about this one. With `required` a ledger
    with events must have its mark here. The database `file` beside it is known by its inode number,
    which a reboot, a move within its file system and SQLite's VACUUM leave alone, and which no copy
    in the same file system shares. Its device number is written for people, and never compared:
    anonymous ones (NFS, overlay, btrfs) and those of disks found in another order differ after a
    reboot, and that would stop every ledger there.
    """

    def __init__(
        self, path: Path, ledger_id: str, *, required: bool, file: Path | None = None
    ) -> None:
        self.path = path
        self.required = required
        self._ledger_id = ledger_id
        self._file = file

    def latest(self) -> Point | None:
        """Return the latest point; None where there is no mark of this ledger.

        Raises EnvironmentRefusedError for a file that cannot be read.
        """
        entry = self._read_entry()
        return None if entry is None else entry.point

    def is_of_another_file(self) -> bool:
        """Return whether the mark was made for another database file than lies beside it now."""
        entry = self._read_entry()
        try:
            return entry is not None and entry.inode != self._inode()
        except OSError as error:
            raise self._refused(error) from error

    def owner(self) -> str | None:
        """Return the id of the ledger whose mark is here; None where there is no mark."""
        try:
            return read_small(self.path, _MAX_MARK_BYTES).decode("ascii").split()[0]
        except (OSError, ValueError, IndexError):
            return None

    def require_writable(self, point: Point) -> None:
        """Refuse a point that could not be written, while the transaction is not durable yet."""
        try:
            if not self._covers(point):
                with self._open_file():
                    pass
        except OSError as error:
            raise self._refused(error) from error

    def advance(self, point: Point) -> None:
        """Write a point and the file's inode, durably, unless that file has a later point."""
        try:
            if self._covers(point):
                return
            with self._open_file() as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                entry = self._parse(os.pread(descriptor, _MAX_MARK_BYTES, 0))
                latest = point if entry is None else max(entry.point, point)
                # One short write in place: a sector is on the disk whole or not at all.
                os.pwrite(descriptor, self._text(latest).encode(), 0)
                os.fsync(descriptor)
        except OSError as error:
            raise self._refused(error) from error

    def _read_entry(self) -> _Entry | None:
        try:
            content = read_small(self.path, _MAX_MARK_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(error) from error
        return self._parse(content)

    def _covers(self, point: Point) -> bool:
        entry = self._read_entry()
        return entry is not None and entry.point >= point and entry.inode == self._inode()

    def _inode(self) -> int | None:
        return None if self._file is None else self._file.stat().st_ino

    def _text(self, point: Point) -> str:
        text = f"{self._ledger_id} {point.epoch:010d} {point.event:020d}"
        if self._file is not None:
            status = self._file.stat()
            text += f" {status.st_ino:020d} {status.st_dev:020d}"
        return f"{text}\n"

    def _open_file(self) -> AbstractContextManager[int]:
        return open_descriptor(self.path, os.O_RDWR | os.O_CREAT, 0o644)

    def _parse(self, content: bytes) -> _Entry | None:
        try:
            ledger_id, epoch, event, *file = content.decode("ascii").split()
            inode, _device = map(int, file) if file else (None, None)
            entry = _Entry(Point(int(epoch), int(event)), inode)
        except ValueError:
            return None
        return entry if ledger_id == self._ledger_id else None

    def _refused(self, error: OSError) -> EnvironmentRefusedError:
        return EnvironmentRefusedError(
            f"The high-water mark {self.path} cannot be used: {error.strerror}. Make it readable "
            "and writable for this user, and free space."
        )
