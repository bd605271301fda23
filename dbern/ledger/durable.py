"""Private files that survive a power cut once the call has returned."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dbern.data.drafts import open_descriptor
from dbern.errors import EnvironmentRefusedError


def write_new(path: Path, *content: bytes) -> None:
    """Create `path`, readable by its owner alone, with `content` on the disk; all or nothing.

    The caller syncs the directory entry (`sync_directory`).
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def sync_directory(path: Path) -> None:
    """Put a directory's entries on the disk; a synced file is lost without its name."""
    with open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def private_directory(path: Path) -> None:
    """Make a directory for its owner alone; one that is there must be just that."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        status = path.lstat()
        private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
        if not private or status.st_uid != os.geteuid():
            raise EnvironmentRefusedError(
                f"{path} must be a directory of this user alone. Run: chmod 700 {path}"
            ) from None
        return
    path.chmod(0o700)  # a umask may have taken the owner's own bits
    sync_directory(path.parent)
