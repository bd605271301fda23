"""Release keys, run records, the sealed center and the high-water mark: durable private files.

The exact private center between counting and noise is staged in encrypted blocks, each created
once. The same key with another center would be a two-time pad, so the center that is charged for is
the center that gets the noise: `Staging.seal` binds every block under a subkey of the release key,
and the seal is in the ledger before the first noise is drawn (docs/sensitivity.md, "Noise").
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import stat
import struct
import weakref
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dbern.data.drafts import open_descriptor
from dbern.errors import EnvironmentRefusedError, IntegrityError, ReleaseError
from dbern.privacy.keystream import KEY_BYTES, new_key, subkey
from dbern.types import Int64Array

# --- Files that survive a power cut once the call has returned


def _write_new(path: Path, *content: bytes) -> None:
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
        found = path.lstat()
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        if not private or found.st_uid != os.geteuid():
            raise EnvironmentRefusedError(
                f"{path} must be a directory of this user alone. Run: chmod 700 {path}"
            ) from None
        return
    path.chmod(0o700)  # a umask may have taken the owner's own bits
    sync_directory(path.parent)


# --- Where release keys live

_KEY_FILE = re.compile(r"([0-9a-f]{32})\.key")


class KeyFiles:
    """The keys of one ledger, a 0600 file per release in a 0700 directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.where = str(directory)

    def create(self, release_id: str) -> None:
        """Draw a key and put it on the disk, file and directory entry both, before returning."""
        try:
            private_directory(self.directory)
            _write_new(self._path(release_id), new_key())
            sync_directory(self.directory)
        except OSError as error:
            raise EnvironmentRefusedError(
                f"The key directory {self.directory} cannot be written: {error.strerror}. "
                "Nothing was charged. Make it writable or free space."
            ) from error

    def read(self, release_id: str) -> bytes | None:
        """Return the key, or None when there is none."""
        try:
            key = self._path(release_id).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EnvironmentRefusedError(
                f"A key in {self.directory} cannot be read: {error.strerror}. "
                "Run as the user who owns the ledger."
            ) from error
        if len(key) != KEY_BYTES:
            raise IntegrityError(f"A key in {self.directory} is damaged. Abandon its release.")
        return key

    def destroy(self, release_id: str) -> None:
        """Overwrite and remove a key; one that is gone already is no error.

        Overwriting is what software can do; a journaling file system or a solid-state disk may
        keep the old blocks, so the directory belongs on an encrypted volume and in no backup.
        """
        path = self._path(release_id)
        with suppress(FileNotFoundError):
            with open_descriptor(path, os.O_WRONLY) as descriptor:
                os.write(descriptor, bytes(KEY_BYTES))
                os.fsync(descriptor)
            path.unlink(missing_ok=True)
            sync_directory(self.directory)

    def held(self) -> list[str]:
        """Return the releases that have a key."""
        if not self.directory.is_dir():
            return []
        found = (_KEY_FILE.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(match[1] for match in found if match)

    def sweep(self, live: Collection[str]) -> None:
        """Destroy every key whose release is not among `live`; other files are left alone."""
        for release_id in self.held():
            if release_id not in live:
                self.destroy(release_id)

    def _path(self, release_id: str) -> Path:
        return self.directory / f"{release_id}.key"


# --- The private record of a release's runs


@dataclass(frozen=True)
class RunRecord:
    """One 0600 file of JSON lines for each release, in a 0700 directory beside the ledger.

    Durations can depend on records: they are written here, and elsewhere only where an operator
    asks for it. The file is as private as the records are. A record that cannot be written stops
    no release.
    """

    path: Path | None
    """None where this process was told no place for what is private."""

    def add(self, **facts: str | float) -> None:
        """Append a line with these facts and the time."""
        if self.path is None:
            return
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts})
        with suppress(OSError, EnvironmentRefusedError):
            private_directory(self.path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            with open_descriptor(self.path, flags, 0o600) as descriptor:
                os.write(descriptor, f"{line}\n".encode())


# --- The exact private center between counting and noise

_NONCE_BYTES = 12
_LONGEST_COMPONENT = 100
_SEAL_FORMAT = b"dbern seal 1"
_BLOCK_FILE = re.compile(r"((?:[0-9a-f]{2}){1,100})-(0\d{19})\.block", re.ASCII)
_RELEASE = re.compile(r"([0-9a-f]{32})(\.dead-[0-9a-f]+|\.spool)?")


class Staging:
    """The staged center of one release.

    Parameters
    ----------
    directory : Path
        Of this release alone; made 0700 if it is not there.
    key : bytes
        The release key; encryption and seal use subkeys of their own.

    Raises
    ------
    ReleaseError
        When the directory cannot be made.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     staging = Staging(Path(folder, "staging", "0" * 32), bytes(32))
    ...     staging.put("density", 0, np.array([3, -4]))
    ...     staging.get("density", 0), staging.blocks("density"), len(staging.seal())
    (array([ 3, -4]), [0], 32)
    """

    def __init__(self, directory: Path, key: bytes) -> None:
        self.directory = directory
        self._cipher = AESGCM(subkey(key, "staging"))
        self._seal_key = subkey(key, "seal")
        self._verified: dict[tuple[str, int], bytes] = {}
        with _reported(directory):
            private_directory(directory.parent)
            self._open()

    def put(self, component: str, block: int, values: Int64Array) -> None:
        """Stage a block; to stage the same values again changes nothing.

        Parameters
        ----------
        component : str
            The component's name, at most 100 bytes of UTF-8.
        block : int
            The canonical block's number.
        values : int64 array
            Any shape; `get` gives the shape back.

        Raises
        ------
        ReleaseError
            When the block cannot be written (a full disk); the other blocks stay and no partial
            file is left.
        IntegrityError
            When the block is there with other values: two arrays under one name would get one
            center, and noise of the other's law.
        """
        path, content = self._path(component, block), _encoded(values)
        if path.exists() or not self._written(path, content, _place(component, block)):
            self._require_same(component, block, content)

    def get(self, component: str, block: int) -> Int64Array:
        """Return a staged block, exactly as it was put."""
        content = self._plaintext(component, block)
        expected = self._verified.get((component, block))
        if expected is not None and hashlib.sha256(content).digest() != expected:
            raise IntegrityError(
                f"A block in {self.directory} changed after it was verified: no noise is drawn for "
                "it. Restore the directory, or abandon the release (the charge stands)."
            )
        return _decoded(content)

    def components(self) -> list[str]:
        """Return the names that have blocks, in canonical (UTF-8 byte) order."""
        names = sorted({bytes.fromhex(name) for name, _ in self._files()})
        try:
            return [name.decode() for name in names]
        except UnicodeDecodeError:
            raise IntegrityError(
                f"{self.directory} holds a block that was not staged. Abandon the release."
            ) from None

    def blocks(self, component: str) -> list[int]:
        """Return the numbers of a component's staged blocks, ascending."""
        wanted = component.encode().hex()
        return sorted(block for name, block in self._files() if name == wanted)

    def seal(self) -> bytes:
        """Return the HMAC-SHA256 of every staged block in canonical order.

        The plaintexts are sealed, each behind its component, number and length, so that no two
        different centers have the same encoding. One block is in memory at a time.

        Raises
        ------
        IntegrityError
            When a block is not what was staged.
        """
        mac = hmac.new(self._seal_key, _SEAL_FORMAT, hashlib.sha256)
        digests = {}
        with ThreadPoolExecutor(1) as beside:  # a block is hashed twice, at the same time
            for component in self.components():
                for block in self.blocks(component):
                    content = self._plaintext(component, block)
                    digest = beside.submit(hashlib.sha256, content)
                    mac.update(_place(component, block) + struct.pack(">Q", len(content)))
                    mac.update(content)
                    digests[component, block] = digest.result().digest()
        self._verified = digests  # what `get` gives from now on is what was sealed
        return mac.digest()

    def verify(self, seal: bytes | None) -> None:
        """Refuse a center other than the one that was charged for."""
        if seal is None or not hmac.compare_digest(self.seal(), seal):
            raise IntegrityError(
                f"The center staged in {self.directory} is not the one that was charged for: no "
                "noise is drawn. Restore the directory, or abandon the release (the charge stands)."
            )

    def clear(self) -> None:
        """Begin a new, empty directory, to count again.

        A process that lost its lock and does not know it yet adds to the old one: no center is
        ever pieced together from two passes.
        """
        with _reported(self.directory):
            self._verified = {}
            destroy_staging(self.directory)
            self._open()

    def _open(self) -> None:
        private_directory(self.directory)
        self._handle = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._handle)

    def _require_same(self, component: str, block: int, content: bytes) -> None:
        if not hmac.compare_digest(self._plaintext(component, block), content):
            raise IntegrityError(
                f"Block {block} of {component!r} is staged in {self.directory} with other values. "
                "Abandon the release (no noise was drawn), and give each released array a name of "
                "its own."
            )

    def _plaintext(self, component: str, block: int) -> bytes:
        what = f"block {block} of {component!r}"
        return self._opened(self._path(component, block), _place(component, block), what)

    def _written(self, path: Path, content: bytes, place: bytes) -> bool:
        """Encrypt and write a new file, durably; return False where one is there, which stays."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, content, place)
        temporary = self.directory / f"{secrets.token_hex(8)}.partial"
        with _reported(self.directory):
            _write_new(temporary, nonce, sealed)
            try:
                new = _link_new(temporary.name, path.name, self._handle)
            finally:
                temporary.unlink(missing_ok=True)
            os.fsync(self._handle)
        return new

    def _opened(self, path: Path, place: bytes, what: str) -> bytes:
        where = f"{what} in {self.directory}"
        with _reported(self.directory):
            try:
                sealed = memoryview(path.read_bytes())
            except FileNotFoundError:
                if not self.directory.is_dir():
                    raise
                raise IntegrityError(
                    f"The staged {where} is missing. Restore the directory, or abandon the release."
                ) from None
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)
        except (InvalidTag, ValueError):
            raise IntegrityError(
                f"The staged {where} is damaged or not this release's. Restore the directory, or "
                "abandon the release."
            ) from None

    def _files(self) -> Iterator[tuple[str, int]]:
        with _reported(self.directory):
            found = [_BLOCK_FILE.fullmatch(path.name) for path in self.directory.iterdir()]
        return ((match[1], int(match[2])) for match in found if match)

    def _path(self, component: str, block: int) -> Path:
        name = component.encode()
        if not 0 < len(name) <= _LONGEST_COMPONENT or not 0 <= block < 10**19:
            raise ValueError(f"no block {block} of a component named {component!r} can be staged")
        return self.directory / f"{name.hex()}-{block:020d}.block"


def destroy_staging(directory: Path) -> None:
    """Remove a staging directory; one that is gone already is no error.

    It is renamed first: a process that still counts for it can then add nothing to it.

    Raises OSError when it cannot be removed.
    """
    dead = directory.with_name(f"{directory.name.split('.')[0]}.dead-{secrets.token_hex(4)}")
    try:
        directory.rename(dead)
    except FileNotFoundError:
        return
    shutil.rmtree(dead)
    sync_directory(directory.parent)


def dead_staging(root: Path, live: Collection[str]) -> list[Path]:
    """List the staging of every release that is not among `live`; other files are left out."""
    every = sorted(root.iterdir()) if root.is_dir() else []
    return [
        path
        for path in every
        if _RELEASE.fullmatch(path.name) and path.name.removesuffix(".spool") not in live
    ]


def sweep_staging(root: Path, live: Collection[str]) -> None:
    """Destroy the staging of every release that is not among `live`; other files are left alone."""
    for path in dead_staging(root, live):
        destroy_staging(path)


@dataclass(frozen=True)
class Spool:
    """The encrypted rows of a release from a data frame, which live as long as its key and staging.

    `directory`, beside its staging, is of this release alone; `key` is the subkey that encrypts the
    rows.
    """

    directory: Path
    key: bytes = field(repr=False)

    @property
    def path(self) -> Path:
        """The file, which is there once it is whole."""
        return self.directory / "rows.parquet"

    @contextmanager
    def written(self) -> Iterator[BinaryIO]:
        """Write the file anew: after the block it is there, durably; where that fails, nothing is.

        Raises ReleaseError for a file that cannot be written.
        """
        with _reported(self.directory, "spool"):
            private_directory(self.directory.parent)
            destroy_staging(self.directory)
            private_directory(self.directory)
            draft = self.directory / f"{secrets.token_hex(8)}.partial"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                draft.rename(self.path)
                sync_directory(self.directory)
            except BaseException:
                destroy_staging(self.directory)
                raise


@contextmanager
def _reported(directory: Path, what: str = "staging") -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ReleaseError(
            f"The {what} directory {directory} is gone: another process went on with this "
            "release, or abandoned it. Run the same command again to see where it stands."
        ) from None
    except OSError as error:
        raise ReleaseError(
            f"The {what} directory {directory} cannot be used: {error.strerror}. Free space or "
            "make it writable, then run the same command again: nothing staged is lost."
        ) from error


def _link_new(source: str, target: str, directory: int) -> bool:
    """Give `source` its final name; return False where that exists: the first block put stays."""
    try:
        os.link(source, target, src_dir_fd=directory, dst_dir_fd=directory)
    except FileExistsError:
        return False
    return True


def _place(component: str, block: int) -> bytes:
    name = component.encode()
    return struct.pack(">I", len(name)) + name + struct.pack(">Q", block)


def _encoded(values: Int64Array) -> bytes:
    if values.dtype != np.int64:
        raise TypeError(f"a center is staged as int64, not {values.dtype}")
    header = struct.pack(f">I{values.ndim}Q", values.ndim, *values.shape)
    return b"".join([header, np.ascontiguousarray(values, dtype="<i8").ravel().data])


def _decoded(content: bytes) -> Int64Array:
    (ndim,) = struct.unpack_from(">I", content)
    shape = struct.unpack_from(f">{ndim}Q", content, 4)
    values = np.frombuffer(content, dtype="<i8", offset=4 + 8 * ndim)
    return values.astype(np.int64).reshape(shape)


# --- The high-water mark: how far a ledger has come, outside its database, which a backup forgets

_LONGEST = 128


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
            return self.path.read_text(encoding="ascii").split()[0]
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
                noted = self._parsed(os.pread(descriptor, _LONGEST, 0))
                latest = point if noted is None else max(noted.point, point)
                # One short write in place: a sector is on the disk whole or not at all.
                os.pwrite(descriptor, self._text(latest).encode(), 0)
                os.fsync(descriptor)
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
