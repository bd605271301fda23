"""Files that survive a power cut once the call has returned."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dbern.errors import EnvironmentRefusedError


def write_new(path: Path, content: bytes) -> None:
    """Create `path`, readable by its owner alone, with `content` on the disk; all or nothing.

    The directory entry is the caller's to sync (see `sync_directory`).

    Raises
    ------
    OSError
        When the file exists or cannot be written whole; then nothing is left of it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_new(Path(folder, "a"), b"secret")
    ...     oct(Path(folder, "a").stat().st_mode & 0o777)
    '0o600'
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def sync_directory(path: Path) -> None:
    """Put a directory's entries on the disk; a synced file is lost without its name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_directory(path: Path) -> None:
    """Make a directory for its owner alone; one that is there must be just that.

    Raises
    ------
    EnvironmentRefusedError
        When it is another's, a link, or open to others.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        found = path.lstat()
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        if not private or found.st_uid != os.geteuid():
            raise EnvironmentRefusedError(
                f"{path} must be a directory of this user alone; run: chmod 700 {path}"
            ) from None
        return
    path.chmod(0o700)  # a umask may have taken the owner's own bits
    sync_directory(path.parent)
