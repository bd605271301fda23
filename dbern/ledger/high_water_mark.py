"""The high-water mark: how far a ledger has come, outside its database, which a backup forgets."""

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
class _Noted:
    point: Point
    inode: int | None  # None in PostgreSQL


class HighWaterMark:
    """A small file with the latest point of one ledger that was ever seen from here; not a secret.

    It is raised after a transaction is durable and before anything relies on the transaction, so a
    published release is never later than the mark: a database that ends before it was restored.

    Another ledger's mark, by `ledger_id`, says nothing about this one. With `always_there` a ledger
    with events must have it here. The database `file` beside it is known by its inode number, which
    a reboot, a move within its file system and SQLite's VACUUM leave alone, and which no copy in
    the same file system shares. Its device number is noted for whoever looks, and never compared:
    anonymous ones (NFS, overlay, btrfs) and those of disks found in another order differ after a
    reboot, and that would stop every ledger there.
    """

    def __init__(
        self, path: Path, ledger_id: str, *, always_there: bool, file: Path | None = None
    ) -> None:
        self.path = path
        self.always_there = always_there
        self._ledger_id = ledger_id
        self._file = file

    def latest(self) -> Point | None:
        """Return the latest point; None where there is no mark of this ledger.

        Raises EnvironmentRefusedError for a file that cannot be read.
        """
        noted = self._noted()
        return None if noted is None else noted.point

    def of_another_file(self) -> bool:
        """Return whether it was noted for another database file than lies beside it now."""
        noted = self._noted()
        try:
            return noted is not None and noted.inode != self._inode()
        except OSError as error:
            raise self._refused(error) from error

    def owner(self) -> str | None:
        """Return the ledger whose mark is here, whichever it is; None where there is none."""
        try:
            return read_small(self.path, _MAX_MARK_BYTES).decode("ascii").split()[0]
        except (OSError, ValueError, IndexError):
            return None

    def require_writable(self, point: Point) -> None:
        """Refuse a point that could not be noted, while the transaction is not durable yet."""
        try:
            if not self._says(point):
                with self._opened():
                    pass
        except OSError as error:
            raise self._refused(error) from error

    def advance(self, point: Point) -> None:
        """Note a point and the file, durably, unless a later one is noted for that file."""
        try:
            if self._says(point):
                return
            with self._opened() as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                noted = self._parsed(os.pread(descriptor, _MAX_MARK_BYTES, 0))
                latest = point if noted is None else max(noted.point, point)
                # One short write in place: a sector is on the disk whole or not at all.
                os.pwrite(descriptor, self._text(latest).encode(), 0)
                os.fsync(descriptor)
        except OSError as error:
            raise self._refused(error) from error

    def _noted(self) -> _Noted | None:
        try:
            content = read_small(self.path, _MAX_MARK_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(error) from error
        return self._parsed(content)

    def _says(self, point: Point) -> bool:
        noted = self._noted()
        return noted is not None and noted.point >= point and noted.inode == self._inode()

    def _inode(self) -> int | None:
        return None if self._file is None else self._file.stat().st_ino

    def _text(self, point: Point) -> str:
        text = f"{self._ledger_id} {point.epoch:010d} {point.event:020d}"
        if self._file is not None:
            status = self._file.stat()
            text += f" {status.st_ino:020d} {status.st_dev:020d}"
        return f"{text}\n"

    def _opened(self) -> AbstractContextManager[int]:
        return open_descriptor(self.path, os.O_RDWR | os.O_CREAT, 0o644)

    def _parsed(self, content: bytes) -> _Noted | None:
        try:
            whose, epoch, event, *file = content.decode("ascii").split()
            inode, _device = map(int, file) if file else (None, None)
            noted = _Noted(Point(int(epoch), int(event)), inode)
        except ValueError:
            return None
        return noted if whose == self._ledger_id else None

    def _refused(self, error: OSError) -> EnvironmentRefusedError:
        return EnvironmentRefusedError(
            f"The high-water mark {self.path} cannot be used: {error.strerror}. Make it readable "
            "and writable for this user, and free space."
        )
