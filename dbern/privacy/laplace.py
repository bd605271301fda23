"""The exact discrete Laplace law, sampled by integer arithmetic from a keyed stream.

The law is that of Canonne, Kamath & Steinke 2020 ("The Discrete Gaussian for Differential
Privacy"), Algorithm 2: ``P(X = x) = (e^(1/s) - 1)/(e^(1/s) + 1) * e^(-|x|/s)`` for an integer
scale s. A magnitude is ``U + s V`` with U in {0..s-1}, ``P(U = u)`` proportional to ``e^(-u/s)``,
and V geometric, ``P(V = v)`` proportional to ``e^-v``; the sign is fair and minus zero is
rejected. No floating-point number occurs in this module.

Stream format version 1
-----------------------
The samples are a function of (scale, words of the stream), and these rules never change. They are
repeated word for word, in plain Python integers, by ``tests/privacy/reference_laplace.py``.
A *digit* is half a 64-bit word, the low half first; a call for n digits reads ceil(n/2) words.

1. ``uniform(n, L)``, integers below L: read n words; replace those that are not below L by the
   values of ``uniform(their number, L)``, in order.
2. ``bernoulli(n, p)``: read n digits; entry i is true where its digit is below ``floor(2^32 p)``
   and false where it is above. Then, in order of i, each entry whose digit is equal reads one word
   after another until one differs from the next 64 binary digits of p: true where it is below.
3. Candidates come in batches of `BATCH`. Let ``q = floor((2^64 - 1) / 2s)``, ``L = 2 s q``.
   a. ``A = uniform(BATCH, L)``; ``H = floor(A/q)``; U is ``floor(H/2)``; negative where H is odd.
   b. Stage 1: ``W = uniform(BATCH, L)``; a candidate goes on where ``W < 2 U q``.
      Stage n = 2, 3, ...: with m candidates going on, ``B = bernoulli(m, 1/n)``, then with the m'
      of them where B is true, ``W = uniform(m', L)``: those with ``W < 2 U q`` go on, until none
      does. A candidate that passed an even number of stages is kept.
   c. With m candidates kept, trials ``bernoulli(t, 1/e)`` are drawn, t = r + floor(5 r/8) + 64 and
      r the failures still missing (m at first), until there are m failures in all. The i-th V is
      the number of successes between failures i-1 and i.
   d. Candidates that are negative with ``U = V = 0`` are dropped; the others are the next samples.
4. Batches follow one another until there are enough samples; the surplus is dropped. Hence fewer
   samples are always a prefix of more.

The K-norm law, and its stream format version 1
-----------------------------------------------
Let N(x) be the larger of what x adds and what it takes away, ::

    N(x) = max(sum x+, sum x-) = (|x|_1 + |sum x|) / 2,

a norm. The law of M integers ``P(x) ~ exp(-2 N(x)/s)`` is that of a K-norm mechanism (Hardt &
Talwar 2010): M independent Laplace variables, accepted with the probability ``exp(-|sum x|/s)``,
which is about ``.564/sqrt M``. Each value errs as Laplace noise does, and the sum of all no more
than one. Vectors are a function of (s, M, words of two streams, `samples` and `trials`):

5. Samples are those of rule 3, not cut, in batches from `samples`. Run i holds the M that follow
   run ``i - 1``, whatever batches they are from.
6. When a batch is read, the r runs that it completes are tried together. With S the sum of a run,
   r numbers V come from `trials` as in rule 3c; then r candidates go through the stages of rule
   3b, from `trials`, with ``|S| mod s`` for U.
7. A run is accepted where ``V >= floor(|S|/s)`` and an even number of stages was passed: these
   events have the probabilities ``e^-floor(|S|/s)`` and ``e^-((|S| mod s)/s)``. The accepted runs
   are the vectors. The twin is ``tests/privacy/reference_k_norm.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count as counting
from typing import Any, Final

import numpy as np

from dbern.privacy.keystream import KeyStream
from dbern.types import BoolArray, Int64Array, UInt64Array

STREAM_VERSION: Final = 1
K_NORM_STREAM_VERSION: Final = 1
BATCH: Final = 13184  # eight batches fill a block of 65536 but for odds of 1e-12; part of version 1
MAX_SCALE: Final = 2**61
MAX_CENTER: Final = 2**62  # what noise is added to lies strictly inside
_WORD_MAX: Final = 2**64 - 1
_HALF_WORD: Final = np.uint64(2**32 - 1)
_INT64_MAX: Final = 2**63 - 1

# floor(p 2**bits), for a probability p known to any number of binary digits
_Digits = Callable[[int], int]


@dataclass(frozen=True, eq=False)
class SignedNoise:
    """Exact integer noise X: ``min(|X|, 2**64 - 1)``, and whether X is below zero."""

    magnitude: UInt64Array
    negative: BoolArray

    def __len__(self) -> int:
        return self.magnitude.size

    def __getitem__(self, part: slice) -> SignedNoise:
        return SignedNoise(self.magnitude[part], self.negative[part])

    def added_to(self, center: Int64Array) -> Int64Array:
        """``center + X``, saturated at ``+-(2**63 - 1)``: a function of the exact sum alone.

        Let c be the center, ``|c| < 2**62``, negated where X is negative, and m the magnitude. In
        arithmetic modulo 2**64, ``room = 2**63 - 1 - c`` is exact, as it is between 0 and
        ``2**63 + 2**62``; so is ``c + min(m, room)``, which is ``min(c + m, 2**63 - 1)``. Where m
        was cut to ``2**64 - 1`` the exact sum is above ``2**63`` too and the result is the same.
        Clipping X to ``int64`` before adding would make the result depend on more than c + X,
        which is not post-processing.
        """
        flip = -self.negative.astype(np.int64)  # 0 or -1: (x ^ flip) - flip negates where -1
        signed = (center ^ flip) - flip
        unsigned = signed.view(np.uint64)
        unsigned += np.minimum(self.magnitude, np.uint64(_INT64_MAX) - unsigned)
        return (signed ^ flip) - flip


def discrete_laplace(scale: int, count: int, stream: KeyStream) -> SignedNoise:
    """Draw independent exact integers X, ``P(X = x)`` proportional to ``e^(-|x|/scale)``.

    Proof. Candidates (sign, U) are independent and uniform; a candidate is kept with probability
    ``e^(-U/s)`` (`_decay`), so a kept U has the law ``e^(-u/s)``. The V are independent of all that
    (`_geometric`). With the sign, every x != 0 has one representation of weight ``e^(-|x|/s)``; 0
    has two and the negative one is dropped. The samples are the first `count` entries of this
    sequence of independent draws: nothing is skipped inside it.

    Raises ValueError unless `scale`, in granules, is from 1 to ``2**61``. The stream is fresh; the
    module states the order in which its words are consumed.
    """
    if not 1 <= scale <= MAX_SCALE:
        raise ValueError(f"the scale must be from 1 to 2**61 granules, not {scale}")
    return _first(count, lambda: _batch(scale, stream))


def _first(count: int, batch: Callable[[], SignedNoise]) -> SignedNoise:
    parts, missing = [SignedNoise(np.empty(0, np.uint64), np.empty(0, np.bool_))], count
    while missing > 0:
        parts.append(batch()[:missing])
        missing -= len(parts[-1])
    magnitudes, negative = [part.magnitude for part in parts], [part.negative for part in parts]
    return SignedNoise(np.concatenate(magnitudes), np.concatenate(negative))


def _batch(scale: int, stream: KeyStream) -> SignedNoise:
    residue, quotient, negative = _samples(scale, stream)
    return SignedNoise(_magnitude(scale, residue, quotient), negative)


def _samples(scale: int, stream: KeyStream) -> tuple[UInt64Array, UInt64Array, BoolArray]:
    """The samples among the next `BATCH` candidates: U, V, and whether they are negative."""
    repeats = _WORD_MAX // (2 * scale)
    limit = 2 * scale * repeats
    # Each of the 2s values of H has exactly `repeats` words below the limit.
    halves = _uniform(stream, BATCH, limit) // np.uint64(repeats)
    below = (halves & np.uint64(_WORD_MAX - 1)) * np.uint64(repeats)
    # `compress`: a mask as an index takes three times as long.
    halves = halves.compress(_decay(stream, below, limit))
    residue = halves >> np.uint64(1)
    negative = (halves & np.uint64(1)).astype(np.bool_)
    quotient = _geometric(stream, residue.size)
    keep = ~negative | ((residue | quotient) != 0)
    if keep.all():  # nearly always, where the scale is large
        return residue, quotient, negative
    return residue.compress(keep), quotient.compress(keep), negative.compress(keep)


def _magnitude(scale: int, residue: UInt64Array, quotient: UInt64Array) -> UInt64Array:
    """``residue + scale * quotient``, cut to ``2**64 - 1``."""
    magnitude = quotient * np.uint64(scale) + residue
    if (int(quotient.max(initial=0)) + 1) * scale > _WORD_MAX:
        room = (np.uint64(_WORD_MAX) - residue) // np.uint64(scale)
        magnitude[quotient > room] = _WORD_MAX
    return magnitude


def discrete_k_norm(
    scale: int, values: int, samples: KeyStream, trials: KeyStream
) -> Iterator[SignedNoise]:
    """Draw independent vectors of integers, ``P(x)`` proportional to ``exp(-2 N(x)/scale)``.

    Proof. Runs are independent vectors of the Laplace law (`discrete_laplace`), trials independent
    of them and of each other. Each is accepted with ``exp(-|S|/s)``, S its exact sum: so the
    accepted ones are independent, of the law. How many runs are tried at a time changes nothing.
    """
    repeats = _WORD_MAX // (2 * scale)
    parts: list[Any] = [np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.bool_)]
    while True:
        drawn = _samples(scale, samples)
        parts = [np.concatenate(pair) for pair in zip(parts, drawn, strict=True)]
        runs = len(parts[0]) // values
        residue, quotient, negative = (part[: runs * values].reshape(runs, -1) for part in parts)
        parts = [part[runs * values :] for part in parts]
        sums = [divmod(abs(total), scale) for total in _sums(scale, residue, quotient, negative)]
        wholes = np.array([times for times, _ in sums], np.uint64)
        below = np.array([2 * repeats * rest for _, rest in sums], np.uint64)
        accepted = _geometric(trials, runs) >= wholes
        accepted &= _decay(trials, below, 2 * repeats * scale)
        for run in np.flatnonzero(accepted):
            yield SignedNoise(_magnitude(scale, residue[run], quotient[run]), negative[run])


def _sums(
    scale: int, residue: UInt64Array, quotient: UInt64Array, negative: BoolArray
) -> list[int]:
    """Exact sums of rows of at most 2**12: of halves of words, and of quotients below 2**50."""
    signs = 1 - 2 * negative.astype(np.int64)
    halves = (residue & _HALF_WORD, residue >> np.uint64(32), quotient)
    sums = ((signs * digits.astype(np.int64)).sum(axis=1).tolist() for digits in halves)
    return [low + (high << 32) + scale * times for low, high, times in zip(*sums, strict=True)]


def _uniform(stream: KeyStream, count: int, limit: int) -> UInt64Array:
    """Independent uniform integers below `limit`, by rejection of whole words (rule 1)."""
    words = stream.words(count)
    rejected = np.flatnonzero(words >= np.uint64(limit))
    if rejected.size:
        words = words.copy()
        words[rejected] = _uniform(stream, rejected.size, limit)
    return words


def _bernoulli(stream: KeyStream, count: int, digits: _Digits) -> BoolArray:
    """Independent events of one real probability p, exactly (rule 2).

    A uniform real R is below p if and only if, at the first binary digits where they differ, those
    of R are smaller. Digits of R are drawn only as far as the comparison needs them: 32 for all,
    more for the one in 2**32 that equals p's.
    """
    drawn = stream.words((count + 1) // 2).astype("<u8", copy=False).view("<u4")[:count]
    first = np.uint32(digits(32))
    events = drawn < first
    for entry in np.flatnonzero(drawn == first):
        events[entry] = _compare_on(stream, digits)
    return events


def _compare_on(stream: KeyStream, digits: _Digits) -> bool:
    """Whether R < p for a uniform real R that agrees with p in its first 32 binary digits."""
    for bits in counting(96, 64):
        word, expected = int(stream.words(1)[0]), digits(bits) & _WORD_MAX
        if word != expected:
            return word < expected
    raise AssertionError  # pragma: no cover - the loop has no end


def _reciprocal(divisor: int, bits: int) -> int:
    return (1 << bits) // divisor


@lru_cache(maxsize=64)
def _inverse_e(bits: int) -> int:
    """``floor(2**bits / e)``.

    The series ``1 - 1 + 1/2! - 1/3! + ...`` encloses 1/e between successive partial sums. With
    ``D = n!`` the sums to n-1 and n are integers over D; once both have the same floor, so has 1/e
    (it is irrational, so they do).
    """
    previous, total, factorial = 1, 0, 1  # the sums to 0 and 1, over 1!
    for n in counting(2):
        factorial *= n
        previous, total = total * n, total * n + (1 if n % 2 == 0 else -1)
        low, high = sorted(((previous << bits) // factorial, (total << bits) // factorial))
        if low == high:
            return low
    raise AssertionError  # pragma: no cover - the loop has no end


def _decay(stream: KeyStream, below: UInt64Array, limit: int) -> BoolArray:
    """Events of probability ``exp(-x)``, x = below/limit in [0, 1) (rule 3b).

    Canonne, Kamath & Steinke 2020, Algorithm 1, after von Neumann 1951. Stage n is passed with
    probability x/n, so more than n-1 stages with ``x^n / n!``; an even number of them with
    ``sum_n (-1)^n x^n / n! = exp(-x)``.
    """
    passed = _uniform(stream, below.size, limit) < below
    events = ~passed
    alive = np.flatnonzero(passed)
    for stage in counting(2):
        if not alive.size:
            break
        alive = alive.compress(_bernoulli(stream, alive.size, partial(_reciprocal, stage)))
        alive = alive.compress(_uniform(stream, alive.size, limit) < below[alive])
        events[alive] = stage % 2 == 0
    return events


def _geometric(stream: KeyStream, count: int) -> UInt64Array:
    """Independent V with ``P(V >= v) = e^-v``: successes of probability 1/e before a failure.

    One sequence of trials is cut at its failures (rule 3c). The first `count` stretches of an
    endless sequence of independent trials are independent; how many trials are drawn at a time,
    and those after the last failure used, change nothing.
    """
    failures = np.full(1, -1, np.int64)
    drawn = 0
    while failures.size <= count:
        missing = count - failures.size + 1
        trials = _bernoulli(stream, missing + 5 * missing // 8 + 64, _inverse_e)
        failures = np.concatenate([failures, np.flatnonzero(~trials) + drawn])
        drawn += trials.size
    gaps = np.diff(failures[: count + 1]) - 1
    return gaps.view(np.uint64)
