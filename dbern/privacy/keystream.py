"""Release keys, the keyed stream of noise, and keyed hashes of records' content.

Keyed entropy: everything secret or random in a release is a function of one 256-bit key.

Each purpose has a subkey of its own (HKDF-SHA256), so no two uses can ever share key stream. The
stream of a canonical block is AES-256-CTR with the block's number in the upper half of the
counter: blocks never overlap as long as one consumes fewer than 2**64 cipher blocks. The stream
makes the privacy guarantee computational: it rests on AES-256 being a pseudo-random function.

Keyed hashes of records' content choose shards and samples of rows.

A record's hash is a function of its own values and a private salt, never of its position or of
other records: replacing one record moves no other. It is AES-256-CBC-MAC, a pseudo-random function
for messages of one length (Bellare, Kilian and Rogaway 1994); every number of columns has a key
of its own. The salt is drawn with the reservation, is unrelated to the noise key, and is never
published, nor is anything derived from it.
"""

from __future__ import annotations

import secrets

import numpy as np

from dbern.types import FloatArray, Int64Array, UInt64Array

# The library of ciphers takes 25 ms to import: who reads a release needs none.

KEY_BYTES = 32


def new_key() -> bytes:
    """Draw a release key: 256 bits from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


def subkey(key: bytes, purpose: str, *labels: str) -> bytes:
    """Derive the 256-bit key of one purpose; labels are length-prefixed, so none can collide."""
    parts = [part.encode() for part in ("dbern", purpose, *labels)]
    info = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(key)


class KeyStream:
    """The pseudo-random 64-bit words of one canonical block, read in order.

    The key is the 32-byte subkey of the purpose (`subkey`); the block's number is below ``2**64``.
    """

    def __init__(self, key: bytes, block: int, half: int = 0) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._place = key, block
        counter = block.to_bytes(8, "big") + (half << 63).to_bytes(8, "big")
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()

    def words(self, count: int) -> UInt64Array:
        """The next `count` words as ``uint64`` (little-endian)."""
        stream = self._cipher.update(bytes(8 * count))
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)

    def second(self) -> KeyStream:
        """A stream of the same block that never meets this one: its counter begins at 2^63."""
        return KeyStream(*self._place, half=1)


_HALF = np.uint64(32)


def content_words(records: FloatArray, salt: bytes) -> UInt64Array:
    """64 pseudo-random bits (n,) of each record (n, d): equal records have equal words.

    -0.0 and 0.0 are one value, and so are all NaN.
    """
    count, width = records.shape
    blocks = max(1, -(-width // 2))
    padded = np.zeros((count, 2 * blocks), dtype="<f8")
    # Nothing is computed with a signaling NaN, which would warn; adding 0.0 turns -0.0 into 0.0.
    padded[:, :width] = np.where(np.isnan(records), np.nan, records) + 0.0
    message = padded.view("<u8").reshape(count, blocks, 2)
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = algorithms.AES256(subkey(salt, "content", str(width)))
    # The chaining is ours: all records' chains advance together, one block at a time.
    encrypt = Cipher(key, modes.ECB()).encryptor().update  # noqa: S305
    state = np.zeros((count, 2), dtype="<u8")
    for block in range(blocks):
        chained = encrypt((state ^ message[:, block]).tobytes())
        state = np.frombuffer(chained, dtype="<u8").reshape(count, 2)
    return state[:, 0].astype(np.uint64)


def content_buckets(records: FloatArray, salt: bytes, buckets: int) -> Int64Array:
    """The bucket (n,) of each record (n, d), from 0 to ``buckets - 1`` < 2^31.

    Distinct records spread as independent uniform draws, to within ``buckets / 2^32``.
    """
    words = content_words(records, salt) >> _HALF
    return ((words * np.uint64(buckets)) >> _HALF).astype(np.int64)
