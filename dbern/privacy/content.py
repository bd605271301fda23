"""Keyed hashes of records' content: what shards and samples of rows are chosen by.

A record's hash is a function of its own values and a private salt, never of its position or of
other records: replacing one record moves no other. It is AES-256-CBC-MAC, a pseudo-random function
for messages of one length (Bellare, Kilian and Rogaway 1994); every number of columns has a key
of its own. The salt is drawn with the reservation, is unrelated to the noise key, and is never
published, nor is anything derived from it.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dbern.arrays import FloatArray, Int64Array, UInt64Array
from dbern.privacy.entropy import subkey

_HALF = np.uint64(32)


def content_words(records: FloatArray, salt: bytes) -> UInt64Array:
    """64 pseudo-random bits (n,) of each record (n, d): equal records have equal words.

    -0.0 and 0.0 are one value, and so are all NaN.

    Examples
    --------
    >>> words = content_words(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]]), bytes(32))
    >>> bool(words[0] == words[1]), bool(words[0] == words[2])
    (True, False)
    """
    count, width = records.shape
    blocks = max(1, -(-width // 2))
    padded = np.zeros((count, 2 * blocks), dtype="<f8")
    # Nothing is computed with a signaling NaN, which would warn; adding 0.0 turns -0.0 into 0.0.
    padded[:, :width] = np.where(np.isnan(records), np.nan, records) + 0.0
    message = padded.view("<u8").reshape(count, blocks, 2)
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

    Examples
    --------
    >>> content_buckets(np.arange(6.0).reshape(3, 2), bytes(32), buckets=1)
    array([0, 0, 0])
    """
    words = content_words(records, salt) >> _HALF
    return ((words * np.uint64(buckets)) >> _HALF).astype(np.int64)
