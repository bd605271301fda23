"""Release keys, run records and the sealed private center: files that survive a power cut.

The exact private center between counting and noise is staged in encrypted blocks, each created
once. The same key with another center would be a two-time pad, so the center that is charged for is
the center that gets the noise: `Staging.seal` binds every block under a subkey of the release key,
and the seal is in the ledger before the first noise is drawn (docs/mathematics.md, "Noise").
"""

from __future__ import annotations

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dbern.errors import EnvironmentRefusedError, IntegrityError, ReleaseError
from dbern.privacy.keystream import KEY_BYTES, new_key, subkey
from dbern.types import Int64Array

# --- Files that survive a power cut once the call has returned


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


# --- Where release keys live

_KEY_FILE = re.compile(r"([0-9a-f]{32})\.key")


class Keys(Protocol):
    """The release keys of one ledger."""

    where: str
    """Said when a key is missing."""

    def create(self, release_id: str) -> None:
        """Draw a key, which is durable before the reservation is, or not at all."""

    def read(self, release_id: str) -> bytes | None:
        """The key, or None when there is none."""

    def destroy(self, release_id: str) -> None:
        """Remove a key; one that is gone already is no error."""

    def sweep(self, live: Collection[str]) -> None:
        """Destroy every key whose release is not among `live`."""


class KeyFiles:
    """The keys of one ledger, a 0600 file per release in a 0700 directory.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keys = KeyFiles(Path(folder, "ledger.db.keys"))
    ...     keys.create("0" * 32)
    ...     key = keys.read("0" * 32)
    ...     keys.destroy("0" * 32)
    ...     len(key), keys.held()
    (32, [])
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.where = str(directory)

    def create(self, release_id: str) -> None:
        """Draw a key and put it on the disk, file and directory entry both, before returning.

        Raises
        ------
        EnvironmentRefusedError
            When the directory cannot be written; no partial key is left.
        """
        try:
            private_directory(self.directory)
            write_new(self._path(release_id), new_key())
            sync_directory(self.directory)
        except OSError as error:
            raise EnvironmentRefusedError(
                f"the key directory {self.directory} cannot be written: {error.strerror}; "
                "make it writable or free space; nothing was charged"
            ) from error

    def read(self, release_id: str) -> bytes | None:
        """The key, or None when there is none.

        Raises
        ------
        IntegrityError
            When the file does not hold a whole key.
        EnvironmentRefusedError
            When it cannot be read.
        """
        try:
            key = self._path(release_id).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EnvironmentRefusedError(
                f"a key in {self.directory} cannot be read: {error.strerror}; "
                "run as the user who owns the ledger"
            ) from error
        if len(key) != KEY_BYTES:
            raise IntegrityError(f"a key in {self.directory} is damaged: abandon its release")
        return key

    def destroy(self, release_id: str) -> None:
        """Overwrite and remove a key; one that is gone already is no error.

        Overwriting is what software can do; a journaling file system or a solid-state disk may
        keep the old blocks, so the directory belongs on an encrypted volume and in no backup.
        """
        path = self._path(release_id)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.write(descriptor, bytes(KEY_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path.unlink(missing_ok=True)
        sync_directory(self.directory)

    def held(self) -> list[str]:
        """The releases that have a key."""
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

    Durations can depend on records: they are written here and nowhere else, and the file is as
    private as the records are. A record that cannot be written stops no release.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     record = RunRecord(Path(folder, "ledger.db.runs", "7f.jsonl"))
    ...     record.add(stage="reading and counting", seconds=1.5)
    ...     json.loads(record.path.read_text())["seconds"], oct(record.path.stat().st_mode)[-3:]
    (1.5, '600')
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
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.path, flags, 0o600)
            try:
                os.write(descriptor, f"{line}\n".encode())
            finally:
                os.close(descriptor)


# --- The exact private center between counting and noise

_NONCE_BYTES = 12
_LONGEST_COMPONENT = 100
_SEAL_FORMAT = b"dbern seal 1"
_BLOCK_FILE = re.compile(r"((?:[0-9a-f]{2}){1,100})-(0\d{19})\.block", re.ASCII)
_RELEASE = re.compile(r"[0-9a-f]{32}(\.dead-[0-9a-f]+)?")


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
        if path.exists():
            self._require_same(component, block, content)
            return
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, content, _place(component, block))
        temporary = self.directory / f"{secrets.token_hex(8)}.partial"
        with _reported(self.directory):
            write_new(temporary, sealed)
            try:
                new = _link_new(temporary.name, path.name, self._handle)
            finally:
                temporary.unlink(missing_ok=True)
            os.fsync(self._handle)
        if not new:
            self._require_same(component, block, content)

    def get(self, component: str, block: int) -> Int64Array:
        """A staged block, exactly as it was put.

        Raises
        ------
        IntegrityError
            When the block is missing, or is not what this release staged there.
        ReleaseError
            When the disk fails.
        """
        content = self._plaintext(component, block)
        expected = self._verified.get((component, block))
        if expected is not None and hashlib.sha256(content).digest() != expected:
            raise IntegrityError(
                f"a block in {self.directory} changed after it was verified: no noise is drawn for "
                "it; restore the directory, or abandon the release (the charge stands)"
            )
        return _decoded(content)

    def components(self) -> list[str]:
        """The names that have blocks, in canonical (UTF-8 byte) order."""
        names = sorted({bytes.fromhex(name) for name, _ in self._files()})
        try:
            return [name.decode() for name in names]
        except UnicodeDecodeError:
            raise IntegrityError(f"{self.directory} holds a block that was not staged") from None

    def blocks(self, component: str) -> list[int]:
        """The numbers of a component's staged blocks, ascending."""
        wanted = component.encode().hex()
        return sorted(block for name, block in self._files() if name == wanted)

    def seal(self) -> bytes:
        """HMAC-SHA256 of every staged block in canonical order, whatever order they came in.

        The plaintexts are sealed, each behind its component, number and length, so that no two
        different centers have the same encoding. One block is in memory at a time.

        Raises
        ------
        IntegrityError
            When a block is not what was staged.
        """
        mac = hmac.new(self._seal_key, _SEAL_FORMAT, hashlib.sha256)
        digests = {}
        for component in self.components():
            for block in self.blocks(component):
                content = self._plaintext(component, block)
                mac.update(_place(component, block) + struct.pack(">Q", len(content)))
                mac.update(content)
                digests[component, block] = hashlib.sha256(content).digest()
        self._verified = digests  # what `get` gives from now on is what was sealed
        return mac.digest()

    def verify(self, seal: bytes | None) -> None:
        """Refuse a center other than the one that was charged for.

        Raises
        ------
        IntegrityError
            When the staged center does not match `seal`.
        """
        if seal is None or not hmac.compare_digest(self.seal(), seal):
            raise IntegrityError(
                f"the center staged in {self.directory} is not the one that was charged for: no "
                "noise is drawn; restore the directory, or abandon the release (the charge stands)"
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
                f"block {block} of {component!r} is staged in {self.directory} with other values; "
                "abandon the release (no noise was drawn), and give each released array a name of "
                "its own"
            )

    def _plaintext(self, component: str, block: int) -> bytes:
        where = f"block {block} of {component!r} in {self.directory}"
        with _reported(self.directory):
            try:
                sealed = self._path(component, block).read_bytes()
            except FileNotFoundError:
                if not self.directory.is_dir():
                    raise
                raise IntegrityError(f"the staged {where} is missing") from None
        nonce, content = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, content, _place(component, block))
        except (InvalidTag, ValueError):
            raise IntegrityError(f"the staged {where} is damaged or not this release's") from None

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

    Raises
    ------
    OSError
        When it cannot be removed.
    """
    dead = directory.with_name(f"{directory.name.split('.')[0]}.dead-{secrets.token_hex(4)}")
    try:
        directory.rename(dead)
    except FileNotFoundError:
        return
    shutil.rmtree(dead)
    sync_directory(directory.parent)


def dead_staging(root: Path, live: Collection[str]) -> list[Path]:
    """The staging of every release that is not among `live`; other files are none."""
    every = sorted(root.iterdir()) if root.is_dir() else []
    return [path for path in every if _RELEASE.fullmatch(path.name) and path.name not in live]


def sweep_staging(root: Path, live: Collection[str]) -> None:
    """Destroy the staging of every release that is not among `live`; other files are left alone."""
    for path in dead_staging(root, live):
        destroy_staging(path)


@contextmanager
def _reported(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise ReleaseError(
                f"the staging directory {directory} is gone: another process went on with this "
                "release, or abandoned it; run the same command again to see where it stands"
            ) from None
        raise ReleaseError(
            f"the staging directory {directory} cannot be used: {error.strerror}; free space or "
            "make it writable, then run the same command again: nothing staged is lost"
        ) from error


def _link_new(source: str, target: str, directory: int) -> bool:
    """Give `source` its final name; False where that exists: the first block put is the block."""
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
    return header + values.astype("<i8", copy=False).tobytes(order="C")


def _decoded(content: bytes) -> Int64Array:
    (ndim,) = struct.unpack_from(">I", content)
    shape = struct.unpack_from(f">{ndim}Q", content, 4)
    values = np.frombuffer(content, dtype="<i8", offset=4 + 8 * ndim)
    return values.astype(np.int64).reshape(shape)
