"""How far a ledger has come, noted outside its database: what a backup of the database forgets."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from dbern.errors import EnvironmentRefusedError

_LONGEST = 128


@dataclass(frozen=True, order=True)
class Point:
    """A moment of a ledger: its epoch, and the number of its last event in the audit log."""

    epoch: int
    event: int


@dataclass(frozen=True)
class _Noted:
    """What a mark says: the latest point, and the database file that it was noted for."""

    point: Point
    inode: int | None  # None in PostgreSQL, and in marks made before files were noted


class Mark:
    """A small file with the latest point of one ledger that was ever seen from here; no secret.

    It is raised after a transaction is durable and before anything is done on its strength, so a
    published release is never later than the mark: a database that ends before it was put back.

    Parameters
    ----------
    path : Path
        The file; made when a point is first noted.
    ledger_id : str
        Whose it is; another ledger's mark says nothing about this one.
    always_there : bool
        Whether a ledger with events must have it here.
    file : Path, optional
        The database file that it lies beside. It is known by its inode number, which a reboot, a
        move within its file system and SQLite's VACUUM leave alone, and which no copy in the same
        file system shares. Its device number is noted for whoever looks, and never compared:
        anonymous ones (NFS, overlay, btrfs) and those of disks found in another order differ after
        a reboot, and that would stop every ledger there.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mark = Mark(Path(folder, "ledger.db.mark"), "0" * 32, always_there=True)
    ...     mark.advance(Point(1, 7)), mark.advance(Point(1, 3))
    ...     mark.latest()
    (None, None)
    Point(epoch=1, event=7)
    """

    def __init__(
        self, path: Path, ledger_id: str, *, always_there: bool, file: Path | None = None
    ) -> None:
        self.path = path
        self.always_there = always_there
        self._ledger_id = ledger_id
        self._file = file

    def latest(self) -> Point | None:
        """The latest point; None where there is no mark of this ledger.

        Raises
        ------
        EnvironmentRefusedError
            When it is there and cannot be read.
        """
        noted = self._noted()
        return None if noted is None else noted.point

    def of_another_file(self) -> bool:
        """Whether it was noted for another database file than lies beside it now.

        Raises
        ------
        EnvironmentRefusedError
            When either cannot be looked at.
        """
        noted = self._noted()
        if noted is None or noted.inode is None:
            return False
        try:
            return noted.inode != self._inode()
        except OSError as error:
            raise self._refused(error) from error

    def owner(self) -> str | None:
        """The ledger whose mark is here, whichever it is; None where there is none."""
        try:
            return self.path.read_text(encoding="ascii").split()[0]
        except (OSError, ValueError, IndexError):
            return None

    def require_writable(self, point: Point) -> None:
        """Refuse, while nothing is durable yet, a point that could not be noted once it is.

        Raises
        ------
        EnvironmentRefusedError
            When it is later than what is noted, and the file cannot be opened to write.
        """
        try:
            if not self._says(point):
                os.close(self._opened())
        except OSError as error:
            raise self._refused(error) from error

    def advance(self, point: Point) -> None:
        """Note a point and the file, durably, unless a later one is noted for that file.

        Raises
        ------
        EnvironmentRefusedError
            When the file cannot be written.
        """
        try:
            if self._says(point):
                return
            descriptor = self._opened()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                found = self._parsed(os.pread(descriptor, _LONGEST, 0))
                latest = point if found is None else max(found.point, point)
                # One short write in place: a sector is on the disk whole or not at all.
                os.pwrite(descriptor, self._text(latest).encode(), 0)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._refused(error) from error

    def _noted(self) -> _Noted | None:
        try:
            content = self.path.read_bytes()
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
            facts = self._file.stat()
            text += f" {facts.st_ino:020d} {facts.st_dev:020d}"
        return f"{text}\n"

    def _opened(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

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
            f"the ledger's mark {self.path} cannot be used: {error.strerror}; make it readable and "
            "writable for this user, and free space"
        )
