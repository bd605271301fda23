"""Staging: the sealed center between counting and noise, encrypted.

The exact private center between counting and noise is staged in encrypted blocks, each created
once. The same key with another center would be a two-time pad, so the center that is charged for is
the center that gets the noise: `Staging.seal` binds every block under a subkey of the release key,
and the seal is in the ledger before the first noise is drawn (docs/sensitivity.md, "Noise").
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import shutil
import struct
import weakref
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dbern.data import drafts
from dbern.data.drafts import private_directory, sync_directory
from dbern.errors import IntegrityError, ReleaseError
from dbern.privacy.keystream import subkey
from dbern.types import Int64Array

_NONCE_BYTES = 12
_MAX_NAME_BYTES = 100
_SEAL_FORMAT = b"dbern seal 1"
_BLOCK_FORMAT = b"dbern block 1"
_BLOCK_FILE = re.compile(r"((?:[0-9a-f]{2}){1,100})-(0\d{19})\.block", re.ASCII)
_RELEASE = re.compile(r"([0-9a-f]{32})(\.dead-[0-9a-f]+|\.spool)?")


class Staging:
    """The staged center of one release.

    Parameters
    ----------
    directory : Path
        Directory of this release alone; created with mode 0700 if it is missing.
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
        with staging_errors(directory):
            private_directory(directory.parent)
            self._open()

    def put(self, component: str, block: int, values: Int64Array) -> None:
        """Stage a block; staging the same values again changes nothing.

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
            When the block exists with other values: two arrays under one name would get one
            center, and noise of the other's law.
        """
        path, content = self._path(component, block), _encode(values)
        if not path.exists() and self._write_new(path, content, _block_label(component, block)):
            return
        staged, _ = self._read(component, block)
        if not hmac.compare_digest(staged, content):
            raise IntegrityError(
                f"Block {block} of {component!r} is staged in {self.directory} with other values. "
                "Abandon the release (no noise was drawn), and give each released array a name of "
                "its own."
            )

    def put_new(self, component: str, block: int, values: Int64Array) -> bool:
        """Stage a block as `put` does; return False where it exists, whatever its values are."""
        label = _block_label(component, block)
        return self._write_new(self._path(component, block), _encode(values), label)

    def get(self, component: str, block: int) -> Int64Array:
        """Return a staged block, exactly as it was put."""
        content, _ = self._read(component, block)
        expected = self._verified.get((component, block))
        if expected is not None and hashlib.sha256(content).digest() != expected:
            raise IntegrityError(
                f"A block in {self.directory} changed after it was verified: no noise is drawn for "
                "it. Restore the directory, or abandon the release (the charge stands)."
            )
        return _decode(content)

    def get_digested(self, component: str, block: int) -> tuple[Int64Array, bytes]:
        """Return a staged block, and a keyed digest of its file.

        A block that is written elsewhere, or again, has another nonce and so another digest,
        whatever its values are.
        """
        content, written = self._read(component, block)
        return _decode(content), hmac.digest(self._seal_key, _BLOCK_FORMAT + written, "sha256")

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
        component_name = component.encode().hex()
        return sorted(block for name, block in self._files() if name == component_name)

    def seal(self) -> bytes:
        """Return the HMAC-SHA256 of every staged block in canonical order.

        The plaintexts are sealed, each behind its component, number and length, so that no two
        different centers have the same encoding. One block is in memory at a time.

        Raises
        ------
        IntegrityError
            When a block is not as it was staged.
        """
        mac = hmac.new(self._seal_key, _SEAL_FORMAT, hashlib.sha256)
        digests = {}
        with ThreadPoolExecutor(1) as pool:  # a block is hashed twice, at the same time
            for component in self.components():
                for block in self.blocks(component):
                    content, _ = self._read(component, block)
                    digest = pool.submit(hashlib.sha256, content)
                    mac.update(_block_label(component, block) + struct.pack(">Q", len(content)))
                    mac.update(content)
                    digests[component, block] = digest.result().digest()
        self._verified = digests  # `get` returns nothing but what was sealed from now on
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
        with staging_errors(self.directory):
            self._verified = {}
            destroy_staging(self.directory)
            self._open()

    def _open(self) -> None:
        private_directory(self.directory)
        self._handle = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._handle)

    def _write_new(self, path: Path, content: bytes, label: bytes) -> bool:
        """Encrypt and write a new file, durably; return False where one is there, which stays."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, content, label)
        temporary = self.directory / f"{secrets.token_hex(8)}.partial"
        with staging_errors(self.directory):
            drafts.write_new(temporary, nonce, sealed)
            try:
                os.link(temporary.name, path.name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
                is_new = True
            except FileExistsError:
                is_new = False
            finally:
                temporary.unlink(missing_ok=True)
            os.fsync(self._handle)
        return is_new

    def _read(self, component: str, block: int) -> tuple[bytes, bytes]:
        """Return the plaintext of a block, and its file."""
        name = f"block {block} of {component!r} in {self.directory}"
        with staging_errors(self.directory):
            try:
                written = self._path(component, block).read_bytes()
            except FileNotFoundError:
                if not self.directory.is_dir():
                    raise
                raise IntegrityError(
                    f"The staged {name} is missing. Restore the directory, or abandon the release."
                ) from None
        sealed, label = memoryview(written), _block_label(component, block)
        try:
            content = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], label)
        except (InvalidTag, ValueError):
            raise IntegrityError(
                f"The staged {name} is damaged or not this release's. Restore the directory, or "
                "abandon the release."
            ) from None
        return content, written

    def _files(self) -> Iterator[tuple[str, int]]:
        with staging_errors(self.directory):
            matches = [_BLOCK_FILE.fullmatch(path.name) for path in self.directory.iterdir()]
        return ((match[1], int(match[2])) for match in matches if match)

    def _path(self, component: str, block: int) -> Path:
        name = component.encode()
        if not 0 < len(name) <= _MAX_NAME_BYTES or not 0 <= block < 10**19:
            raise ValueError(f"no block {block} of a component named {component!r} can be staged")
        return self.directory / f"{name.hex()}-{block:020d}.block"


def destroy_staging(directory: Path) -> None:
    """Remove a staging directory; do nothing where it is gone already.

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
    """List the staging directories of all releases but `live` ones; leave out other files."""
    paths = sorted(root.iterdir()) if root.is_dir() else []
    return [
        path
        for path in paths
        if _RELEASE.fullmatch(path.name) and path.name.removesuffix(".spool") not in live
    ]


def sweep_staging(root: Path, live: Collection[str]) -> None:
    """Destroy the staging directories that `dead_staging` lists."""
    for path in dead_staging(root, live):
        destroy_staging(path)


@contextmanager
def staging_errors(directory: Path, what: str = "staging") -> Iterator[None]:
    """Raise a `ReleaseError` that names the directory for each refusal of the system within."""
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


def _block_label(component: str, block: int) -> bytes:
    name = component.encode()
    return struct.pack(">I", len(name)) + name + struct.pack(">Q", block)


def _encode(values: Int64Array) -> bytes:
    if values.dtype != np.int64:
        raise TypeError(f"a center is staged as int64, not {values.dtype}")
    header = struct.pack(f">I{values.ndim}Q", values.ndim, *values.shape)
    return b"".join([header, np.ascontiguousarray(values, dtype="<i8").ravel().data])


def _decode(content: bytes) -> Int64Array:
    (ndim,) = struct.unpack_from(">I", content)
    shape = struct.unpack_from(f">{ndim}Q", content, 4)
    values = np.frombuffer(content, dtype="<i8", offset=4 + 8 * ndim)
    return values.astype(np.int64).reshape(shape)
