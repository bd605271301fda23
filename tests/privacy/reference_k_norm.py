"""Stream format version 1 of the K-norm law in plain Python: `discrete_k_norm`'s twin.

Written from the format's text, on the twin of the Laplace format.
"""

from __future__ import annotations

from fractions import Fraction

from reference_laplace import _bernoulli, _geometric, _uniform, laplace_batch

from dbern.privacy.keystream import KeyStream


def twin(
    scale: int, values: int, count: int, samples: KeyStream, trials: KeyStream
) -> list[list[int]]:
    """The first so many vectors, as exact integers of any size."""
    vectors: list[list[int]] = []
    waiting: list[int] = []
    while len(vectors) < count:
        waiting += laplace_batch(scale, samples)
        runs = []
        while len(waiting) >= values:
            runs.append(waiting[:values])
            waiting = waiting[values:]
        sums = [abs(sum(run)) for run in runs]
        times = _geometric(trials, len(runs))
        even = _stages(scale, [one % scale for one in sums], trials)
        tried = zip(runs, sums, times, even, strict=True)
        vectors += [run for run, one, v, passed in tried if v >= one // scale and passed]
    return vectors[:count]


def _stages(scale: int, rests: list[int], trials: KeyStream) -> list[bool]:
    q = (2**64 - 1) // (2 * scale)
    passed = [0] * len(rests)
    going = list(range(len(rests)))
    stage = 0
    while going:
        stage += 1
        if stage > 1:
            events = _bernoulli(trials, len(going), Fraction(1, stage))
            going = [i for i, event in zip(going, events, strict=True) if event]
        draws = _uniform(trials, len(going), 2 * scale * q)
        going = [i for i, w in zip(going, draws, strict=True) if w < 2 * rests[i] * q]
        for i in going:
            passed[i] += 1
    return [stages % 2 == 0 for stages in passed]
