"""Plain files of a folder that a stranger may have filled.

Only plain files below the folder are read, of a size that is known: a link could lead out of it, a
device has no end, and a FIFO waits for somebody to write.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from dbern.errors import IntegrityError, printable

MAX_NAME = 1024
"""Characters of the name of an object of a store."""

_BLOCK = 1 << 20
_PART = re.compile(r"(?!\.)[^/\\\x00-\x1f]+")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = {stat.S_IFLNK: "link", stat.S_IFDIR: "folder", stat.S_IFREG: "file", stat.S_IFIFO: "FIFO"}


def is_object_name(name: str) -> bool:
    """Return whether a stranger's name is one of something below a store, on any file system."""
    return all(map(_PART.fullmatch, name.split("/")))


def read_parts(root: Path, name: str, most: int) -> Iterator[bytes]:
    """Yield a plain file's content, at most `most` bytes, that is behind no link."""
    with os.fdopen(_open(root, name), "rb", buffering=0) as file:
        left = os.fstat(file.fileno()).st_size
        if left > most:
            raise too_large(root, name, most)
        while left and (part := file.read(min(_BLOCK, left))):
            left -= len(part)
            yield part


def names_below(root: Path) -> Iterator[str]:
    """Yield the names of everything below a folder but folders; links are not followed."""
    folders = [""]
    while folders:  # os.walk calls itself at each level in Python 3.11
        folder = folders.pop()
        with os.scandir(Path(root, folder)) as entries:
            for entry in entries:
                name = folder + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    yield name
                elif len(name) > MAX_NAME:
                    raise IntegrityError(
                        f"{root}: {printable(name[:40])}.. is a folder deeper than any of a "
                        "release. Remove it"
                    )
                else:
                    folders.append(f"{name}/")


def _no_plain_file(root: Path, name: str, kind: str) -> IntegrityError:
    """Return the error for an object that is no plain file, or behind none."""
    return IntegrityError(
        f"{root}: {name} is a {kind} or behind one, and objects are plain files. Copy the synopsis "
        "again, with what its links point to."
    )


def too_large(where: Path | str, name: str, most: int) -> IntegrityError:
    """Return the error for an object of more bytes than it can have."""
    return IntegrityError(
        f"{where}: {printable(name)} is not what was released: it has more than {most} bytes. "
        "Copy the synopsis again."
    )


def _open(root: Path, name: str) -> int:
    *folders, last = name.split("/")
    descriptor = os.open(root, _FOLDER)
    try:
        for folder in folders:
            _require(stat.S_IFDIR, folder, descriptor, root, name)
            inner = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        _require(stat.S_IFREG, last, descriptor, root, name)
        handle = os.open(last, _FILE, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # put there since it was looked at
        os.close(handle)
        raise _no_plain_file(root, name, "device")
    return handle


def _require(kind: int, part: str, folder: int, root: Path, name: str) -> None:
    mode = stat.S_IFMT(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    if (kind, mode) == (stat.S_IFDIR, stat.S_IFREG):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if mode != kind:
        raise _no_plain_file(root, name, _KINDS.get(mode, "device"))
