"""Stream format version 1 of the Gaussian in plain Python integers: the twin of the sampler.

Written from the text of `dbern.privacy.gaussian`, without numpy arithmetic. The two must agree word
for word, and on how many words they consume.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from functools import cache

from reference_laplace import _bernoulli, _uniform, _where, _words

from dbern.privacy.keystream import KeyStream

BATCH = 13312
_DIGITS = Context(prec=400)


@cache
def cumulative() -> list[Fraction]:
    """F(0), F(1), ..., to 390 digits: beyond any comparison here."""
    weights = [Fraction(_DIGITS.exp(Decimal(-k * k) / 2)) for k in range(45)]
    total = sum(weights)
    return [sum(weights[: k + 1], Fraction(0)) / total for k in range(40)]


@cache
def cuts(bits: int) -> list[int]:
    return [int(f * 2**bits) for f in cumulative()]


def twin(sigma: int, count: int, stream: KeyStream) -> list[int]:
    """The samples, as exact integers of any size."""
    samples: list[int] = []
    while len(samples) < count:
        samples += _batch(sigma, stream)
    return samples[:count]


def _batch(sigma: int, stream: KeyStream) -> list[int]:
    q = (2**64 - 1) // (2 * sigma)
    limit = 2 * sigma * q
    halves = [word // q for word in _uniform(stream, BATCH, limit)]
    residues = [half // 2 for half in halves]
    whole = _whole(stream, BATCH)
    kept = _even(stream, list(range(BATCH)), [2 * u * q for u in residues], limit)
    trials = [i for i in kept for _ in range(whole[i])]
    passed = _decay(stream, [2 * residues[i] * q for i in trials], limit)
    lost = {i for i, stages in zip(trials, passed, strict=True) if stages % 2}
    signed = [(halves[i] % 2, residues[i] + sigma * whole[i]) for i in kept if i not in lost]
    return [-m if negative else m for negative, m in signed if not (negative and m == 0)]


def _whole(stream: KeyStream, count: int) -> list[int]:
    digits = []
    for word in _words(stream, -(-count // 2)):
        digits += [word % 2**32, word // 2**32]
    first = cuts(32)
    found = [None if d in first else sum(cut < d for cut in first) for d in digits[:count]]
    for i, digit in enumerate(digits[:count]):
        bits, known = 32, digit
        while found[i] is None:
            bits, known = bits + 64, known * 2**64 + _words(stream, 1)[0]
            if known not in cuts(bits):
                found[i] = sum(cut < known for cut in cuts(bits))
    return found


def _even(stream: KeyStream, going: list[int], below: list[int], limit: int) -> list[int]:
    """Those that passed an even number of the stages of rule 2c."""
    candidates, passed, stage = going, [0] * len(below), 0
    while going:
        stage += 1
        going = _where(going, _bernoulli(stream, len(going), Fraction(1, 2 * stage)))
        for _ in range(2):
            draws = _uniform(stream, len(going), limit)
            going = [i for i, w in zip(going, draws, strict=True) if w < below[i]]
        for i in going:
            passed[i] += 1
    return [i for i in candidates if passed[i] % 2 == 0]


def _decay(stream: KeyStream, below: list[int], limit: int) -> list[int]:
    """How many stages of rule 3b of the Laplace format each trial passed."""
    passed, going, stage = [0] * len(below), list(range(len(below))), 0
    while going:
        stage += 1
        if stage > 1:
            going = _where(going, _bernoulli(stream, len(going), Fraction(1, stage)))
        draws = _uniform(stream, len(going), limit)
        going = [i for i, w in zip(going, draws, strict=True) if w < below[i]]
        for i in going:
            passed[i] += 1
    return passed
