"""Files that appear whole, under their name, or not at all, and survive a power cut once written.

A draft lies beside its file and is renamed. It is locked as long as its process lives. So what a
killed process left is known, and goes when the same file is written, or asked for, again. Its name
is random: process ids repeat in containers that share a folder.
"""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dbern.errors import EnvironmentRefusedError

_RANDOM_BYTES = 8
_RANDOM_PART = "[0-9a-f]" * 2 * _RANDOM_BYTES
"""Pattern of what makes a draft's name random: no file that a user named is taken for one."""
_LOOKING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe of that name does not stop it


@contextmanager
def draft_of(target: Path) -> Iterator[Path]:
    """Yield an empty file to write to; after the block it is durable and has the target's name.

    Where the block fails it is gone, and what was there stays.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(open_descriptor(target.parent, os.O_RDONLY | os.O_DIRECTORY))
        draft, handle = _locked_draft(target, stack)
        remove_abandoned(other for other in _drafts(target) if other != draft)
        yield draft
        os.fsync(handle)  # before it has its name: what is there is whole for good
        draft.rename(target)
        os.fsync(folder)


def remove_drafts(target: Path) -> None:
    """Remove the drafts of a file whose processes are gone."""
    remove_abandoned(_drafts(target))


def remove_abandoned(drafts: Iterable[Path]) -> None:
    """Remove those that no living process has locked."""
    for draft in drafts:
        with suppress(OSError), open_descriptor(draft, _LOOKING) as handle:
            if _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB):
                draft.unlink()


def lock_draft(descriptor: int) -> None:
    """Lock an open file as long as it is open, where the file system has locks."""
    _lock(descriptor, fcntl.LOCK_EX)


def _locked_draft(target: Path, stack: ExitStack) -> tuple[Path, int]:
    while True:
        draft = target.with_name(f".{target.name}.{secrets.token_hex(_RANDOM_BYTES)}.tmp")
        handle = stack.enter_context(open_descriptor(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        stack.callback(draft.unlink, missing_ok=True)
        lock_draft(handle)
        if os.fstat(handle).st_nlink:  # nobody took it for a dead one's before it was locked
            return draft, handle


def _drafts(target: Path) -> Iterator[Path]:
    return target.parent.glob(f".{glob.escape(target.name)}.{_RANDOM_PART}.tmp")


@contextmanager
def open_descriptor(path: Path, flags: int, mode: int = 0o666) -> Iterator[int]:
    """Open a file by the system's own flags, and close it at the end; children do not have it."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, how: int) -> bool:
    """Return whether that could be done: another may hold it, or the file system have no locks."""
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        return False
    return True


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
