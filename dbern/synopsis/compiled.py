"""Evaluate the pieces of a function at many points: the loops that are compiled, no fastmath."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numba import types

from dbern.bernstein.pieces import Pieces
from dbern.compiling import compiled
from dbern.types import FloatArray

_BLOCK = 1 << 14  # points and what is known of them fit the cache of a core
_CACHED_TABLE = 1 << 17  # numbers; a larger table is gone through in order of its cells

_INTEGERS, _FLOATS = types.int64[::1], types.float64[:, ::1]
_READ_ONLY = types.Array(types.float64, 2, "C", readonly=True)
_LOCATE = types.void(_READ_ONLY, _FLOATS, _INTEGERS, _INTEGERS, _FLOATS)
_ARRANGE = types.int64(_INTEGERS, _INTEGERS, _INTEGERS)
_HORNER = types.void(_INTEGERS, _INTEGERS, _FLOATS, _READ_ONLY, types.float64[::1])


def evaluate_pieces(
    pieces: Pieces, points: FloatArray, low: Sequence[float], high: Sequence[float]
) -> FloatArray:
    """Values at points (m, l) in data units, of a function on the box from `low` to `high`.

    NaN outside the box. The interpreter's lock is not held, so threads may share the work.

    Examples
    --------
    >>> from dbern.bernstein.pieces import resample
    >>> line = resample(np.array([0.0, 0.5, 1.0]))
    >>> evaluate_pieces(line, np.array([[5.0], [11.0]]), [0.0], [10.0]).round(9).tolist()
    [0.5, nan]
    """
    points = np.require(points, np.float64, ["C", "A"])
    bounds = np.array([low, high], dtype=np.float64)
    halves = np.array(pieces.cells) // 2
    locate, arrange = compiled(_locate, _LOCATE), compiled(_arrange, _ARRANGE)
    run = compiled(_horner(len(halves), pieces.order), _HORNER)
    cells, ordered = np.empty((2, min(_BLOCK, len(points))), np.int64)
    offsets = np.empty((len(cells), len(halves)))
    starts = np.empty(len(pieces.table) + 1 if pieces.table.size > _CACHED_TABLE else 0, np.int64)
    values = np.full(len(points), np.nan)
    for first in range(0, len(points), _BLOCK):
        part = points[first : first + _BLOCK]
        locate(part, bounds, halves, cells, offsets)
        inside = arrange(cells[: len(part)], starts, ordered)
        run(ordered[:inside], cells, offsets, pieces.table, values[first : first + _BLOCK])
    return values


def _locate(points: Any, bounds: Any, halves: Any, cells: Any, offsets: Any) -> None:
    """Each point's cell, -1 outside, and its place in that cell (see `Pieces`)."""
    for m in range(len(points)):
        cell = 0
        for axis in range(len(halves)):
            x, low, high = points[m, axis], bounds[0, axis], bounds[1, axis]
            if not low <= x <= high:
                cell = -1
                break
            y = (x - low) / (high - low)
            half = halves[axis]
            far = y > 0.5
            s = np.sqrt(2.0 * (1.0 - y if far else y)) * half
            index = min(int(s), half - 1)
            offsets[m, axis] = s - index - 0.5
            cell = cell * (2 * half) + index + (half if far else 0)
        cells[m] = cell


def _arrange(cells: Any, starts: Any, ordered: Any) -> int:
    """List the points that lie inside, sorted by cell if `starts` has room; returns how many."""
    count = 0
    if len(starts) == 0:
        for m in range(len(cells)):
            if cells[m] >= 0:
                ordered[count] = m
                count += 1
        return count
    starts[:] = 0
    for cell in cells:
        if cell >= 0:
            starts[cell + 1] += 1
    for cell in range(1, len(starts)):
        starts[cell] += starts[cell - 1]
    for m in range(len(cells)):
        if cells[m] >= 0:
            ordered[starts[cells[m]]] = m
            starts[cells[m]] += 1
            count += 1
    return count


@lru_cache
def _horner(dimensions: int, order: int) -> Callable[..., None]:
    """Horner's rule along the first axis, then along each other; both numbers are compiled in."""
    inner = order ** (dimensions - 1)

    def run(ordered: Any, cells: Any, offsets: Any, table: Any, values: Any) -> None:
        work = np.empty(inner)
        for m in ordered:
            piece = table[cells[m]]
            t = offsets[m, 0]
            for j in range(inner):
                work[j] = piece[(order - 1) * inner + j]
            for power in range(order - 2, -1, -1):
                for j in range(inner):
                    work[j] = work[j] * t + piece[power * inner + j]
            width = inner
            for axis in range(1, dimensions):
                t = offsets[m, axis]
                width //= order
                last = (order - 1) * width
                for power in range(order - 2, -1, -1):
                    for j in range(width):
                        work[last + j] = work[last + j] * t + work[power * width + j]
                for j in range(width):
                    work[j] = work[last + j]
            values[m] = work[0]

    return run
