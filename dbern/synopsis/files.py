"""Files of a folder that a stranger may have filled: plain ones, below it, of a size that is known.

A link could lead out of the folder, a device has no end, and a FIFO waits for somebody to write.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from dbern.errors import IntegrityError, printable

_BLOCK = 1 << 20
_PART = re.compile(r"(?!\.)[^/\\\x00-\x1f]+")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = {stat.S_IFLNK: "link", stat.S_IFDIR: "folder", stat.S_IFREG: "file", stat.S_IFIFO: "FIFO"}


def is_object_name(name: str) -> bool:
    """Whether a stranger's name is one of something below a store, on any file system.

    Examples
    --------
    >>> is_object_name("components/f/c/0"), is_object_name("a/../../b"), is_object_name("/etc/b")
    (True, False, False)
    """
    return all(map(_PART.fullmatch, name.split("/")))


def parts_of(root: Path, name: str, most: int) -> Iterator[bytes]:
    """The content of a plain file below a folder, block by block.

    Raises
    ------
    IntegrityError
        Where it has more than `most` bytes, is no plain file, or is behind a link.
    OSError
        Where it is not there, or cannot be read.
    """
    handle = _open(root, name)
    try:
        left = os.fstat(handle).st_size
        if left > most:
            raise too_large(root, name, most)
        while left and (part := os.read(handle, min(_BLOCK, left))):
            left -= len(part)
            yield part
    finally:
        os.close(handle)


def names_below(root: Path) -> Iterator[str]:
    """Everything below a folder but folders, links not followed, in no order.

    Raises
    ------
    OSError
        Where a folder cannot be read.
    """
    for folder, folders, files in os.walk(root, onerror=_raise):
        for name in folders + files:
            path = Path(folder, name)
            if name in files or path.is_symlink():
                yield path.relative_to(root).as_posix()


def no_plain_file(root: Path, name: str, kind: str) -> IntegrityError:
    """The error for what is there in place of a plain file."""
    return IntegrityError(
        f"{root}: {name} is a {kind} or behind one, and objects are plain files; copy the synopsis "
        "again, with what its links point to"
    )


def too_large(where: Path | str, name: str, most: int) -> IntegrityError:
    """The error for an object of more bytes than it can have."""
    return IntegrityError(
        f"{where}: {printable(name)} is not what was released: it has more than {most} bytes; "
        "copy the synopsis again"
    )


def _open(root: Path, name: str) -> int:
    *folders, last = name.split("/")
    here = os.open(root, _FOLDER)
    try:
        for folder in folders:
            _require(stat.S_IFDIR, folder, here, root, name)
            inner = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        _require(stat.S_IFREG, last, here, root, name)
        handle = os.open(last, _FILE, dir_fd=here)
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # put there since it was looked at
        os.close(handle)
        raise no_plain_file(root, name, "device")
    return handle


def _require(kind: int, part: str, folder: int, root: Path, name: str) -> None:
    found = stat.S_IFMT(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    if (kind, found) == (stat.S_IFDIR, stat.S_IFREG):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if found != kind:
        raise no_plain_file(root, name, _KINDS.get(found, "device"))


def _raise(error: OSError) -> None:
    raise error
