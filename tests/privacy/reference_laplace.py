"""Stream format version 1 in plain Python integers: the twin of `dbern.privacy.laplace`.

Written from the format's text, without numpy arithmetic: lists, big integers, no wrap-around. The
two must agree word for word, and on how many words they consume.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

import numpy as np

from dbern.privacy.keystream import KeyStream

BATCH = 13184
INVERSE_E = Fraction(Context(prec=400).exp(Decimal(-1)))  # 400 digits: beyond any comparison here


class Recorder(KeyStream):
    """A key stream that counts its words."""

    def __init__(self, key: bytes, block: int) -> None:
        super().__init__(key, block)
        self.consumed = 0

    def words(self, count: int) -> np.ndarray:
        self.consumed += count
        return super().words(count)


class HostileStream(Recorder):
    """A stream in which the words that steer rare paths are common."""

    def __init__(self, key: bytes, block: int, special: list[int]) -> None:
        super().__init__(key, block)
        self.special = np.array(special, np.uint64)

    def words(self, count: int) -> np.ndarray:
        drawn = super().words(2 * count).reshape(count, 2)
        which = drawn[:, 1] % np.uint64(3 * self.special.size)
        common = which < self.special.size
        return np.where(common, self.special[np.where(common, which, 0).astype(int)], drawn[:, 0])


def twin(scale: int, count: int, stream: KeyStream) -> list[int]:
    """The samples, as exact integers of any size."""
    samples: list[int] = []
    while len(samples) < count:
        samples += laplace_batch(scale, stream)
    return samples[:count]


def _words(stream: KeyStream, count: int) -> list[int]:
    return [int(word) for word in stream.words(count)]


def _uniform(stream: KeyStream, count: int, limit: int) -> list[int]:
    words = _words(stream, count)
    rejected = [i for i, word in enumerate(words) if word >= limit]
    if rejected:
        for i, word in zip(rejected, _uniform(stream, len(rejected), limit), strict=True):
            words[i] = word
    return words


def _bernoulli(stream: KeyStream, count: int, p: Fraction) -> list[bool]:
    digits = []
    for word in _words(stream, -(-count // 2)):
        digits += [word % 2**32, word // 2**32]
    digits = digits[:count]
    first = int(p * 2**32)
    events = [digit < first for digit in digits]
    for i, digit in enumerate(digits):
        bits = 32
        while digit == first:
            bits += 64
            word, expected = _words(stream, 1)[0], int(p * 2**bits) % 2**64
            if word != expected:
                events[i] = word < expected
                break
    return events


def laplace_batch(scale: int, stream: KeyStream) -> list[int]:
    q = (2**64 - 1) // (2 * scale)
    limit = 2 * scale * q
    halves = [word // q for word in _uniform(stream, BATCH, limit)]
    passed = [0] * BATCH
    going = list(range(BATCH))
    stage = 0
    while going:
        stage += 1
        if stage > 1:
            going = _where(going, _bernoulli(stream, len(going), Fraction(1, stage)))
        draws = _uniform(stream, len(going), limit)
        going = [i for i, w in zip(going, draws, strict=True) if w < 2 * (halves[i] // 2) * q]
        for i in going:
            passed[i] += 1
    kept = [half for half, stages in zip(halves, passed, strict=True) if stages % 2 == 0]
    candidates = zip(kept, _geometric(stream, len(kept)), strict=True)
    signed = [(half % 2, half // 2 + scale * v) for half, v in candidates]
    return [-m if negative else m for negative, m in signed if not (negative and m == 0)]


def _where(entries: list[int], events: list[bool]) -> list[int]:
    return [i for i, event in zip(entries, events, strict=True) if event]


def _geometric(stream: KeyStream, count: int) -> list[int]:
    lengths, run = [], 0
    while len(lengths) < count:
        missing = count - len(lengths)
        for success in _bernoulli(stream, missing + 5 * missing // 8 + 64, INVERSE_E):
            if success:
                run += 1
            else:
                lengths.append(run)
                run = 0
    return lengths[:count]


def saturated(total: int) -> int:
    return max(-(2**63 - 1), min(2**63 - 1, total))
