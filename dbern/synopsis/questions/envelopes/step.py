"""Splines around sharp steps of an axis: docs/intervals.md, "A step"."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from dbern.synopsis.questions.envelopes.splines import AxisSplines, Envelope, bezier
from dbern.types import BoolArray, FloatArray, Int64Array

OFFSETS = 32
"""Positions in a cell for which majorants of a step are made."""

SOLVER_ERROR = 1e-7
"""By how much a majorant from the solver may fall short: added to its coefficients."""

_ROUNDING_FACTOR = 2  # what splines and their sum are off by roundings is less than as much again
_OFFSET_TOLERANCE = 1e-9  # of a cell's offsets
_MAX_CACHED = 1 << 13  # cells times bins of which steps at all offsets are cached: three of 2 MiB
_PARTS = 4  # of a cell, on each of which Bezier coefficients prove a sign
_MIN_COEFFICIENT, _MAX_COEFFICIENT = -0.25, 1.25  # beyond, the noise grows faster than gaps close


def steps(splines: AxisSplines, x: FloatArray) -> Envelope:
    """Return the envelopes of ``1{t <= x}`` for x (m,), which at their ends count as outside too.

    At 0 and below these are nothing, at 1 and above everything. An x is met to 1e-11.
    """
    scaled = np.clip(x, 0.0, 1.0) * (splines.cells * OFFSETS)
    after = np.ceil(scaled - _OFFSET_TOLERANCE).astype(np.int64)
    before = np.floor(scaled + _OFFSET_TOLERANCE).astype(np.int64)
    (lower, estimate, upper), (first, second) = _at(splines, np.stack([before, after]))
    fraction = np.clip(scaled - before, 0.0, 1.0)[:, None]
    middle = (1 - fraction) * estimate[first] + fraction * estimate[second]
    envelope = Envelope(lower[first], middle, upper[second])
    for side in (envelope.lower, envelope.estimate, envelope.upper):
        side[x <= 0], side[x >= 1] = 0.0, 1.0
    return envelope


def intervals(splines: AxisSplines, low: FloatArray, high: FloatArray) -> Envelope:
    """Return the envelopes of ``1{low <= t <= high}``.

    Where rows stand at multiples alone, of both ends included; else ends count as either. Where
    `high` is below `low` it is nothing.
    """
    if splines.multiples is None:
        envelope = steps(splines, np.concatenate([np.maximum(low, high), low]))
    else:
        last, before = splines.multiples.up_to(high), splines.multiples.below(low)
        last = np.concatenate([np.maximum(last, before), before])
        envelope = steps_of_multiples(splines, last)
    return envelope.select(slice(len(high))).minus(envelope.select(slice(len(high), None)))


def steps_of_multiples(splines: AxisSplines, last: Int64Array) -> Envelope:
    """Return the envelopes of the first multiples, up to the i-th each, of rows at multiples alone.

    Up to -1 is nothing. With a bin of their own at each they are the bins', but for how far floats
    are from their multiples: a bin's neighbour has at most ``cells deviation`` of such a row, and
    splines sum to one. Other splines need to be above and below such a step at multiples alone:
    above one that falls at the i-th, and below one that falls at the next.
    """
    multiples = splines.multiples
    if multiples is None:
        raise TypeError("splines without multiples")
    bins, off = multiples.bins(splines.cells, splines.degree), multiples.deviation
    if bins is not None:
        estimate = np.zeros((len(last), splines.count))
        estimate[:, bins] = np.arange(len(bins)) <= last[:, None]
        error = _ROUNDING_FACTOR * splines.cells * off
        envelope = Envelope(estimate - error, estimate, estimate + error)
    else:
        here, following = np.clip([last, last + 1], 0, multiples.count) / multiples.count
        upper, lower = steps(splines, here + off).upper, steps(splines, following - off).lower
        envelope = Envelope(lower, steps(splines, (here + following) / 2).estimate, upper)
    for side in (envelope.lower, envelope.estimate, envelope.upper):
        side[last < 0], side[last >= multiples.count] = 0.0, 1.0
    return envelope


def _at(splines: AxisSplines, offsets: Int64Array) -> tuple[FloatArray, Int64Array]:
    """Lower, estimate and upper at so many parts of a cell, (3, n, bins), and which of n."""
    if splines.cells * splines.count > _MAX_CACHED:
        used, index = np.unique(offsets, return_inverse=True)
        return _solved(splines, used), index.reshape(offsets.shape)
    table, known = _table(splines)
    if not known[offsets].all():
        used = np.unique(offsets[~known[offsets]])
        table[:, used] = _solved(splines, used)
        known[used] = True
    return table, offsets


@lru_cache(maxsize=8)
def _table(splines: AxisSplines) -> tuple[FloatArray, BoolArray]:
    """Envelopes of steps at all parts of the cells, and which of them are known so far."""
    last = splines.cells * OFFSETS
    return np.empty((3, last + 1, splines.count)), np.zeros(last + 1, dtype=np.bool_)


def _solved(splines: AxisSplines, offsets: Int64Array) -> FloatArray:
    last = splines.cells * OFFSETS
    upper = _majorants(splines, offsets) + SOLVER_ERROR
    lower = 1.0 - SOLVER_ERROR - _majorants(splines, last - offsets)[:, ::-1]
    estimate = (lower + upper) / 2 @ splines.residual
    estimate = estimate + splines.integrals(offsets / last) @ splines.smoother
    return np.stack([lower, estimate, upper])


def _majorants(splines: AxisSplines, offsets: Int64Array) -> FloatArray:
    """Coefficients (m, bins), of steps at so many parts of a cell."""
    cell, offset = np.divmod(offsets, OFFSETS)
    used, which = np.unique(offset, return_inverse=True)
    table = np.stack([_majorant(splines.degree, int(position)) for position in used])
    column = np.arange(splines.count) - cell[:, None] + _pad(splines.degree)
    return np.asarray(table[which[:, None], np.clip(column, 0, table.shape[1] - 1)])


def _pad(degree: int) -> int:
    return degree + 2  # cells on either side of the step's in which coefficients may change


@lru_cache(maxsize=512)
def _majorant(degree: int, offset: int) -> FloatArray:
    """Coefficients of the least majorant of a step at ``offset / OFFSETS`` of a cell.

    They are those of the bins around it, ones before and zeros after.
    """
    from scipy.optimize import linprog  # takes 0.1 s to import

    pad, step = _pad(degree), offset / OFFSETS
    count = 2 * pad + 1 + degree
    rows, minima = [], []
    for cell in range(-pad, pad + 1):
        cuts = {*np.linspace(0, 1, _PARTS + 1).tolist(), *([step] if cell == 0 else [])}
        for start, stop in pairwise(sorted(cuts)):
            matrix = np.zeros((degree + 1, count))
            matrix[:, cell + pad : cell + pad + degree + 1] = bezier(degree, start, stop)
            rows.append(matrix)
            minima += [float(cell < 0 or (cell == 0 and stop <= step))] * (degree + 1)
    before, after = [(1.0, 1.0)] * degree, [(0.0, 0.0)] * degree
    solution = linprog(
        np.ones(count),
        -np.vstack(rows),
        -np.array(minima),
        bounds=[*before, *[(_MIN_COEFFICIENT, _MAX_COEFFICIENT)] * (count - 2 * degree), *after],
        options={"primal_feasibility_tolerance": 1e-10},
    )
    coefficients = np.asarray(solution.x, dtype=np.float64)
    coefficients.setflags(write=False)
    return coefficients
