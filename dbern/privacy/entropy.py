"""Keyed entropy: everything secret or random in a release is a function of one 256-bit key.

Each purpose has a subkey of its own (HKDF-SHA256), so no two uses can ever share key stream. The
stream of a canonical block is AES-256-CTR with the block's number in the upper half of the
counter: blocks never overlap as long as one consumes fewer than 2**64 cipher blocks. The stream
makes the privacy guarantee computational: it rests on AES-256 being a pseudo-random function.
"""

from __future__ import annotations

import secrets

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dbern.arrays import UInt64Array

KEY_BYTES = 32


def new_key() -> bytes:
    """Draw a release key: 256 bits from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


def subkey(key: bytes, purpose: str, *labels: str) -> bytes:
    """Derive the 256-bit key of one purpose; labels are length-prefixed, so none can collide.

    Examples
    --------
    >>> subkey(bytes(32), "noise", "a", "bc") != subkey(bytes(32), "noise", "ab", "c")
    True
    """
    parts = [part.encode() for part in ("dbern", purpose, *labels)]
    info = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(key)


class KeyStream:
    """The pseudo-random 64-bit words of one canonical block, read in order.

    Parameters
    ----------
    key : bytes
        The 32-byte subkey of the purpose (see `subkey`).
    block : int
        The canonical block's number, below ``2**64``.

    Examples
    --------
    >>> stream = KeyStream(bytes(32), block=0)
    >>> first = stream.words(4)
    >>> bool((first == KeyStream(bytes(32), block=0).words(4)).all())
    True
    """

    def __init__(self, key: bytes, block: int) -> None:
        counter = block.to_bytes(8, "big") + bytes(8)
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()

    def words(self, count: int) -> UInt64Array:
        """The next `count` words as ``uint64`` (little-endian)."""
        stream = self._cipher.update(bytes(8 * count))
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)
