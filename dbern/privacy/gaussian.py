"""The exact discrete Gaussian law, sampled by integer arithmetic from a keyed stream.

The law is that of Canonne, Kamath & Steinke 2020 ("The Discrete Gaussian for Differential
Privacy"): ``P(X = x)`` proportional to ``e^(-x^2 / (2 sigma^2))``, for an integer sigma. With
``|X| = U + sigma K``, U in {0..sigma-1}, and ``x = U/sigma``, the weight of a magnitude is ::

    e^(-(K + x)^2 / 2) = e^(-K^2 / 2) * e^(-x^2 / 2) * (e^-x)^K.

So K is drawn from the first factor, U and the sign are uniform, and the pair is accepted with the
probability of the other two (Karney 2016, "Sampling Exactly from the Normal Distribution"): .715.
Their Algorithm 3 with t = sigma draws (U, K) as a discrete Laplace magnitude, weight
``e^(-x - K)``, and accepts it with probability ``e^(-(K + x - 1)^2 / 2)``. The product is this
weight times ``e^(-1/2)``: the same law, but the first step throws away candidates for an ``e^-x``
that the second step takes back, which leaves .48. Here everything is a comparison of one word with
``U`` or of binary digits with a constant: no number exceeds 64 bits for any sigma up to 2**61, and
none is a floating-point number.

Stream format version 1 of the Gaussian
---------------------------------------
The samples are a function of (sigma, words of the stream), and these rules never change. They are
repeated word for word, in plain Python integers, by ``tests/privacy/reference_gaussian.py``.
Digits, ``uniform`` and ``bernoulli`` are those of `dbern.privacy.laplace` (rules 1 and 2 there).

1. ``whole(n)``, integers K with ``P(K = k)`` proportional to ``e^(-k^2/2)``: let ``F(k)`` be
   ``P(K <= k)``. Read n digits; K of entry i is the number of k with ``floor(2^32 F(k))`` below its
   digit. Then, in order of i, each entry whose digit equals one of these reads one word after
   another, each appended to the digit's binary digits, until the number R of b digits so formed
   equals no ``floor(2^b F(k))``; K is the number of k with ``floor(2^b F(k)) < R``.
2. Candidates come in batches of `BATCH`. Let ``q = floor((2^64 - 1) / 2 sigma)``,
   ``L = 2 sigma q``.
   a. ``A = uniform(BATCH, L)``; ``H = floor(A/q)``; U is ``floor(H/2)``; negative where H is odd.
   b. ``K = whole(BATCH)``.
   c. Stage n = 1, 2, ...: with m candidates going on (all, in stage 1), ``bernoulli(m, 1/2n)``;
      with the m' of them where it is true, ``W = uniform(m', L)``; with the m'' of those where
      ``W < 2 U q``, ``W = uniform(m'', L)`` again: those with ``W < 2 U q`` pass, until none does.
      A candidate that passed an even number of stages is kept.
   d. Each kept candidate gets K trials, those of one candidate adjacent. They go all together
      through the stages of rule 3b of the Laplace format, and a candidate stays where each of its
      trials passed an even number of them.
   e. Candidates that are negative with ``U = K = 0`` are dropped; the others are the next samples.
3. Batches follow one another until there are enough samples; the surplus is dropped. Hence fewer
   samples are always a prefix of more.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from itertools import count as counting
from typing import Final

import numpy as np

from dbern.privacy.keystream import KeyStream
from dbern.privacy.laplace import (
    MAX_SCALE,
    SignedNoise,
    _bernoulli,
    _decay,
    _first,
    _magnitude,
    _reciprocal,
    _uniform,
)
from dbern.types import BoolArray, UInt64Array

STREAM_VERSION: Final = 1
BATCH: Final = 13312  # seven fill a block of 65536 but for odds of 1e-14; part of version 1
MAX_SIGMA: Final = MAX_SCALE
_WORD_MAX: Final = 2**64 - 1
_GUARD: Final = 64  # binary digits of an enclosure beyond those that are wanted


def discrete_gaussian(sigma: int, count: int, stream: KeyStream) -> SignedNoise:
    """Draw independent exact integers X, ``P(X = x)`` proportional to ``e^(-x^2/(2 sigma^2))``.

    Proof. Candidates (sign, U, K) are independent; U and the sign are uniform, K has weight
    ``e^(-K^2/2)`` (`_whole`). A candidate is kept with probability ``e^(-x^2/2)``
    (`_half_square_decay`), then stays with probability ``(e^-x)^K``: K independent trials, all of
    which succeed (`dbern.privacy.laplace._decay`). What stays has the weight of the module's
    identity. With the sign, every x != 0 has one representation of weight
    ``e^(-x^2/(2 sigma^2))``; 0 has two and the negative one is dropped. The samples are the first
    `count` entries of this sequence of independent draws: nothing is skipped inside it.

    The standard deviation is at most sigma (and equal to it within 1e-6 from sigma = 1 on). The
    parameters' ranges, and the error beyond them, are those of `discrete_laplace`.
    """
    if not 1 <= sigma <= MAX_SIGMA:
        raise ValueError(f"sigma must be from 1 to 2**61 granules, not {sigma}")
    return _first(count, lambda: _batch(sigma, stream))


def _batch(sigma: int, stream: KeyStream) -> SignedNoise:
    repeats = _WORD_MAX // (2 * sigma)
    limit = 2 * sigma * repeats
    # Each of the 2 sigma values of H has exactly `repeats` words below the limit.
    halves = _uniform(stream, BATCH, limit) // np.uint64(repeats)
    below = (halves & np.uint64(_WORD_MAX - 1)) * np.uint64(repeats)
    whole = _whole(stream, BATCH)
    accepted = np.flatnonzero(_half_square_decay(stream, below, limit))
    accepted = accepted[_power_decay(stream, below[accepted], limit, whole[accepted])]
    halves = halves[accepted]
    negative = (halves & np.uint64(1)).astype(np.bool_)
    magnitude = _magnitude(sigma, halves >> np.uint64(1), whole[accepted])
    keep = ~negative | (magnitude != 0)
    return SignedNoise(magnitude[keep], negative[keep])


def _half_square_decay(stream: KeyStream, below: UInt64Array, limit: int) -> BoolArray:
    """Events of probability ``exp(-x^2/2)``, x = below/limit in [0, 1) (rule 2c).

    As `dbern.privacy.laplace._decay`, with ``y = x^2/2`` for x: stage n is passed with probability
    ``1/(2n) * x * x = y/n``, so an even number of stages with ``sum_n (-1)^n y^n / n!``.
    """
    events = np.ones(below.size, np.bool_)
    alive = np.arange(below.size)
    for stage in counting(1):
        alive = alive[_bernoulli(stream, alive.size, partial(_reciprocal, 2 * stage))]
        for _ in range(2):
            alive = alive[_uniform(stream, alive.size, limit) < below[alive]]
        events[alive] = stage % 2 == 0
        if not alive.size:
            break
    return events


def _power_decay(
    stream: KeyStream, below: UInt64Array, limit: int, power: UInt64Array
) -> BoolArray:
    """Events of probability ``exp(-x)**power``: that many independent trials succeed (rule 2d)."""
    trials = np.repeat(np.arange(below.size), power.astype(np.int64))
    failed = ~_decay(stream, below[trials], limit)
    events = np.ones(below.size, np.bool_)
    events[trials[failed]] = False
    return events


def _whole(stream: KeyStream, count: int) -> UInt64Array:
    """Independent K, ``P(K = k)`` proportional to ``e^(-k^2/2)``, exactly (rule 1).

    K is the least k with R < F(k), for a uniform real R. Where the digits of R that are known make
    a number above ``floor(2^b F(k))``, R is above F(k); where below, R is below F(k). So they
    settle K unless they equal one of these.
    """
    drawn = stream.words((count + 1) // 2).astype("<u8", copy=False).view("<u4")[:count]
    whole = np.zeros(count, np.uint64)
    tied = np.zeros(count, np.bool_)
    for threshold in _thresholds(32):
        whole += drawn > np.uint32(threshold)
        tied |= drawn == np.uint32(threshold)
    for entry in np.flatnonzero(tied):
        whole[entry] = _whole_on(stream, int(drawn[entry]))
    return whole


def _whole_on(stream: KeyStream, digits: int) -> int:
    """K for a uniform real whose first 32 binary digits settle nothing."""
    for bits in counting(96, 64):
        digits = digits << 64 | int(stream.words(1)[0])
        thresholds = _thresholds(bits)
        if digits not in thresholds:
            return sum(threshold < digits for threshold in thresholds)
    raise AssertionError  # pragma: no cover - the loop has no end


@lru_cache(maxsize=16)
def _thresholds(bits: int) -> tuple[int, ...]:
    """``floor(2**bits F(k))`` for k = 0, 1, ... up to the first that is ``2**bits - 1``.

    All later ones are ``2**bits - 1`` too, as F(k) < 1. Enclosures of F(k) are refined until both
    ends have the same floor, which is then that of F(k).
    """
    thresholds: list[int] = []
    while not thresholds or thresholds[-1] != 2**bits - 1:
        for precision in counting(bits + _GUARD, _GUARD):
            low, high = _cumulative(len(thresholds), bits, precision)
            if low == high:
                thresholds.append(low)
                break
    return tuple(thresholds)


def _cumulative(k: int, bits: int, precision: int) -> tuple[int, int]:
    """Floors of an enclosure of ``2**bits F(k)``, from weights known to `precision` digits.

    With A the weight up to k and B that beyond, ``F(k) = A/(A + B)`` grows with A and falls with
    B. The weights from ``J = isqrt(2 precision) + 2`` on are together less than
    ``2 e^(-J^2/2) < 2 e^(-precision) < 2**-precision``: one unit in the last place covers them.
    """
    end = max(k, math.isqrt(2 * precision)) + 2
    weights = [_weight(j, precision) for j in range(end)]
    low, high = (sum(weight[side] for weight in weights[: k + 1]) for side in (0, 1))
    low_beyond, high_beyond = (sum(weight[side] for weight in weights[k + 1 :]) for side in (0, 1))
    high_beyond += 1
    return (low << bits) // (low + high_beyond), (high << bits) // (high + low_beyond)


@lru_cache(maxsize=256)
def _weight(j: int, precision: int) -> tuple[int, int]:
    """Integers around ``2**precision e^(-j^2/2)``, from ``r <= 2**precision e^(-1/2) <= r + 1``."""
    root, power = _inverse_root_e(precision), j * j
    shift = precision * power
    low = (root**power << precision) >> shift
    return low, (((root + 1) ** power << precision) >> shift) + 1


@lru_cache(maxsize=64)
def _inverse_root_e(bits: int) -> int:
    """``floor(2**bits * e**(-1/2))``.

    The series ``1 - 1/2 + 1/(4 * 2!) - 1/(8 * 3!) + ...`` encloses it between successive partial
    sums; with ``D = 2^n n!`` those to n-1 and n are integers over D. Once both have the same floor,
    so has ``e**(-1/2)`` (it is irrational, so they do).
    """
    previous, total, scale = 1, 1, 1  # the last two sums, over scale; the first one twice
    for n in counting(1):
        scale *= 2 * n
        previous, total = total * 2 * n, total * 2 * n + (1 if n % 2 == 0 else -1)
        low, high = sorted(((previous << bits) // scale, (total << bits) // scale))
        if low == high:
            return low
    raise AssertionError  # pragma: no cover - the loop has no end
