"""Folders and buckets that hold synopses, which a stranger may have filled.

Only plain files below a folder are read, of a size that is known: a link could lead out of it, a
device has no end, and a FIFO waits for somebody to write.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from dbern.data.drafts import draft_of, lock_draft, open_descriptor, remove_abandoned
from dbern.data.objects import Objects, check_url
from dbern.errors import EnvironmentRefusedError, IntegrityError, ReleaseError, printable
from dbern.system import is_url

MAX_NAME = 1024
"""Characters of the name of an object of a store."""
_BLOCK = 1 << 20
_PART = re.compile(r"(?!\.)[^/\\\x00-\x1f]+")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = {stat.S_IFLNK: "link", stat.S_IFDIR: "folder", stat.S_IFREG: "file", stat.S_IFIFO: "FIFO"}
MANIFEST = "manifest.json"
ROOT = "zarr.json"
MOST_METADATA = 1 << 21
"""Most bytes of an object that is read before anything says how large it is, and of any JSON."""


def is_object_name(name: str) -> bool:
    """Return whether a stranger's name is one of something below a store, on any file system."""
    return all(map(_PART.fullmatch, name.split("/")))


def _names_below(root: Path) -> Iterator[str]:
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


class Folder:
    """A folder of a file system, written so that what is torn is never taken for anything else.

    Any method raises an OSError where the folder, there or not, cannot be read or written.
    """

    noun, worth_threads = "folder", 16

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """Return whether anything is there."""
        return self.path.exists()

    def try_writing(self) -> None:
        """Make a file without a name in the nearest folder that is there, and nothing else."""
        parents = self.path.absolute().parents
        folder = next(parent for parent in parents if parent.exists())
        tempfile.TemporaryFile(dir=folder).close()

    def read(self, name: str, most: int = MOST_METADATA) -> bytes:
        """Return one object.

        Raises IntegrityError for more than `most` bytes, no plain file, or a link on its path.
        """
        return b"".join(self.parts(name, most))

    def parts(self, name: str, most: int) -> Iterator[bytes]:
        """Yield one object in parts, for what never fits into memory."""
        with os.fdopen(_open(self.path, name), "rb", buffering=0) as file:
            left = os.fstat(file.fileno()).st_size
            if left > most:
                raise too_large(self.path, name, most)
            while left and (part := file.read(min(_BLOCK, left))):
                left -= len(part)
                yield part

    def names(self) -> list[str]:
        """Return the sorted names of everything but folders and the manifest."""
        return sorted(name for name in _names_below(self.path) if name != MANIFEST)

    def begin(self, objects: Mapping[str, bytes], release_id: str) -> None:
        """Make the folder with its first objects, at once: it says whose it is from the start."""
        draft = self._beside(release_id, "new")
        for name, data in objects.items():
            _write(draft / name, data)
        draft.rename(self.path)

    def write(self, name: str, data: bytes) -> None:
        """Write one object, whole or not at all."""
        _write(self.path / name, data)

    def replace(self, name: str, data: bytes) -> None:
        """Write one object of several processes, durably, in place of any that is there."""
        self.path.mkdir(parents=True, exist_ok=True)
        with draft_of(self.path / name) as draft:
            draft.write_bytes(data)

    def settle(self) -> None:
        """Make every object durable, and that it is there."""
        for name in self.names():
            _sync(self.path / name)
        folders = [path for path in self.path.rglob("*") if path.is_dir()]
        for folder in (*folders, self.path, self.path.parent):
            _sync(folder)

    def create(self, name: str, data: bytes) -> None:
        """Create an object, whole or not at all, unless the same one is there.

        Raises FileExistsError for another one there.
        """
        target, draft = self.path / name, self.path / f"{name}.{os.getpid()}.tmp"
        try:
            with draft.open("wb") as file:
                lock_draft(file.fileno())
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                try:
                    os.link(draft, target)  # fails where the target exists: create-if-absent
                except FileExistsError:
                    if self.read(name) != data:
                        raise
        finally:
            draft.unlink(missing_ok=True)
        _sync(self.path)

    def tidy(self) -> None:
        """Remove drafts of the manifest that processes left when they were killed."""
        remove_abandoned(self.path.glob(f"{MANIFEST}.*.tmp"))

    def discard(self, release_id: str) -> None:
        """Remove what an interrupted attempt of this release left, and nothing else."""
        dead = self._beside(release_id, "dead")
        for remains in (dead, self._beside(release_id, "new")):
            shutil.rmtree(remains, ignore_errors=True)
        if self.exists() and not (self.path / MANIFEST).exists() and owner(self) == release_id:
            self.path.rename(dead)  # first: half removed it would be no one's
            shutil.rmtree(dead)

    def synopses(self) -> list[str]:
        """Return the paths of the published synopses right below, sorted."""
        try:
            paths = sorted(self.path.iterdir())
        except FileNotFoundError:
            return []
        return [str(path) for path in paths if (path / MANIFEST).exists()]

    def advice(self, error: OSError) -> str:
        """Return what to do about a failure, up to the command to run again."""
        full = error.errno == errno.ENOSPC
        return "The disk is full: free some space, then run" if full else "Mend the folder, and run"

    def _beside(self, release_id: str, what: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{release_id}.{what}")


class MemoryFolder(Folder):
    """Objects in memory, by name, to be read only; readers check digests as they do on a disk."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        super().__init__(Path("memory"))
        self._objects = objects

    def exists(self) -> bool:
        """Return whether anything is there."""
        return True

    def parts(self, name: str, most: int = MOST_METADATA) -> Iterator[bytes]:
        """Yield one object in one part, of any size: it is in memory already."""
        del most
        if name not in self._objects:
            raise FileNotFoundError(name)
        yield self._objects[name]

    def names(self) -> list[str]:
        """Return the sorted names of everything but the manifest."""
        return sorted(name for name in self._objects if name != MANIFEST)


class Bucket:
    """A prefix of a bucket: no object is ever renamed, and the root metadata says whose it is.

    Raises SpecError for any URL but ``s3://bucket/name.zarr``; any method, an OSError where the
    store refuses or does not answer.
    """

    noun, worth_threads = "prefix", 2

    def __init__(self, url: str) -> None:
        self.url = check_url(url, "the synopsis")
        self._objects = Objects(self.url)
        self.write = self.replace = self._objects.write
        self.create = self._objects.create

    def __reduce__(self) -> tuple[type[Bucket], tuple[str]]:
        """Pickle the URL, without what may hold credentials."""
        return Bucket, (self.url,)

    def __str__(self) -> str:
        return self.url

    def exists(self) -> bool:
        """Return whether anything is there."""
        return bool(self._objects.sizes())

    def try_writing(self) -> None:
        """Do nothing: ``dbern doctor`` puts an object, which it has to remove again."""

    def read(self, name: str, most: int = MOST_METADATA) -> bytes:
        """Return one object.

        Raises IntegrityError for more than `most` bytes; none of them is fetched.
        """
        with self._size_errors(name, most):
            return self._objects.read(name, most)

    def parts(self, name: str, most: int) -> Iterator[bytes]:
        """Yield one object in parts, for what never fits into memory."""
        with self._size_errors(name, most):
            yield from self._objects.parts(name, most)

    @contextmanager
    def _size_errors(self, name: str, most: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise too_large(self.url, name, most) from None

    def names(self) -> list[str]:
        """Return every object but the manifest, sorted."""
        return [name for name in self._objects.sizes() if name != MANIFEST]

    def begin(self, objects: Mapping[str, bytes], release_id: str) -> None:
        """Create the root metadata, which claims the prefix, then the other first objects.

        Raises FileExistsError for a prefix that another release claimed, EnvironmentRefusedError
        for a store that creates a name twice, where nothing could be published exactly once.
        """
        del release_id  # is in the root metadata
        self.create(ROOT, objects[ROOT])
        if not self._objects.excludes():
            raise EnvironmentRefusedError(
                f"{self}: the object store does not heed If-None-Match. Choose one that does."
            )
        for name, data in objects.items():
            if name != ROOT:
                self.write(name, data)

    def settle(self) -> None:
        """Do nothing: an object that was put is durable."""

    def tidy(self) -> None:
        """Do nothing: an object has no draft."""

    def discard(self, release_id: str) -> None:
        """Remove what an interrupted attempt of this release left, and nothing else."""
        names = self._objects.sizes()
        if names and MANIFEST not in names and owner(self) == release_id:
            self._objects.remove([name for name in names if name != ROOT])
            self._objects.remove([ROOT])  # last: without it the rest would be no one's

    def synopses(self) -> list[str]:
        """Return the URLs of the published synopses right below, sorted."""
        names = (name.split("/") for name in self._objects.sizes())
        return sorted(f"{self}/{name[0]}" for name in names if name[1:] == [MANIFEST])

    def advice(self, _error: OSError) -> str:
        """Return what to do about a failure, up to the command to run again."""
        return "Check the bucket, and the endpoint and credentials in the environment, and run"


Location: TypeAlias = Folder | Bucket


def location_at(where: str | Path) -> Location:
    """The location of a path or URL; a SpecError for a URL that is not of S3, or holds a secret."""
    if is_url(where):
        return Bucket(where)
    return Folder(Path(where))


def is_published(location: Location) -> bool:
    """Return whether there is a manifest."""
    try:
        location.read(MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def published(where: str | Path) -> list[str]:
    """Return the whole synopses right below a folder or a prefix, in the order of their names.

    Parameters
    ----------
    where : path or URL
        A folder, there or not, or a prefix as ``s3://bucket/name``.

    Returns
    -------
    list of str
        Their paths or URLs; partitions that are named by their dates come the newest last.

    Raises
    ------
    SpecError
        For a URL that is not of S3, or holds a secret.
    ReleaseError
        Where the store cannot be read.

    Examples
    --------
    >>> published("no-such-folder")
    []
    """
    location = location_at(where)
    with storage_errors(location, "read"):
        return location.synopses()


def owner(location: Location) -> str | None:
    """Return the release whose unfinished store this is, by the root metadata, written first."""
    try:
        root = json.loads(location.read(ROOT))
        release_id = root["attributes"]["release_id"]
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return release_id if isinstance(release_id, str) else None


@contextmanager
def storage_errors(location: Location, done: str = "written") -> Iterator[None]:
    """Raise an `OSError` as a `ReleaseError` with the remedy for the store."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        text = (
            f"{location}: cannot be {done} ({why}). {location.advice(error)} the same command again"
        )
        safe = ": nothing is lost, and nothing is charged twice" if done == "written" else ""
        raise ReleaseError(f"{text}{safe}.") from None


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.partial")
    draft.write_bytes(data)
    draft.replace(path)


def _sync(path: Path) -> None:
    with open_descriptor(path, os.O_RDONLY) as handle:
        os.fsync(handle)
