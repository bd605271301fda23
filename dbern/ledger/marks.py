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

    def __init__(self, path: Path, ledger_id: str, *, always_there: bool) -> None:
        self.path = path
        self.always_there = always_there
        self._ledger_id = ledger_id

    def latest(self) -> Point | None:
        """The latest point; None where there is no mark of this ledger.

        Raises
        ------
        EnvironmentRefusedError
            When it is there and cannot be read.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(error) from error
        return self._parsed(content)

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
        if (self.latest() or Point(0, 0)) >= point:
            return
        try:
            os.close(self._opened())
        except OSError as error:
            raise self._refused(error) from error

    def advance(self, point: Point) -> None:
        """Note a point, durably, unless a later one is noted.

        Raises
        ------
        EnvironmentRefusedError
            When the file cannot be written.
        """
        if (self.latest() or Point(0, 0)) >= point:
            return
        try:
            descriptor = self._opened()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                found = self._parsed(os.pread(descriptor, _LONGEST, 0))
                if (found or Point(0, 0)) < point:
                    # One short write in place: a sector is on the disk whole or not at all.
                    text = f"{self._ledger_id} {point.epoch:010d} {point.event:020d}\n"
                    os.pwrite(descriptor, text.encode(), 0)
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._refused(error) from error

    def _opened(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _parsed(self, content: bytes) -> Point | None:
        try:
            whose, epoch, event = content.decode("ascii").split()
            return Point(int(epoch), int(event)) if whose == self._ledger_id else None
        except ValueError:
            return None

    def _refused(self, error: OSError) -> EnvironmentRefusedError:
        return EnvironmentRefusedError(
            f"the ledger's mark {self.path} cannot be used: {error.strerror}; make it readable and "
            "writable for this user, and free space"
        )
