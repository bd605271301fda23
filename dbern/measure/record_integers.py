"""Integers that a record adds to sums, by numpy alone: this defines them.

Compiled loops (`dbern.measure.loops`) have the same bits; a small release need not wait for them.

A record adds a product of one factor an axis for each of some *terms*: Chebyshev polynomials of
its offset in its cell (`dbern.measure.kernel_sketch`), or the B-splines that live there
(`dbern.reconstruct.bins`). Only single IEEE operations on one record at a time, none fused: a
record adds the same integers on every host and beside any other records. A record that does not
count adds zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbern.bernstein.splines import local_weights
from dbern.types import BoolArray, FloatArray, Int64Array


@dataclass(frozen=True)
class Rows:
    """A batch of records as it was read, and the public rules from there to the unit cube.

    `columns` has an array (m,) for each axis, in data units, NaN for null; `low` and `high` are the
    axes' bounds. With `clamp` finite values outside are moved to the bound, otherwise they do not
    count. By default all records count, in the first output, with weight one; weights are in [-1,
    1].
    """

    columns: Sequence[FloatArray]
    low: Sequence[float]
    high: Sequence[float]
    clamp: bool = False
    counts: BoolArray | None = None
    output: Int64Array | None = None
    weight: FloatArray | None = None


@dataclass(frozen=True)
class Terms:
    """Terms of a record, and where the state has them.

    Row t of `indices` (terms, l) chooses the factor of each axis, ``targets[t]`` is where the
    flat state has the term for the first output and the first cells. The state has `outputs`
    layers of cells, each of the lengths `extents`. Axes have equal `periods`, cut at `edges` from 0
    to 1; ``(0, 1)`` for equal cells. A weight of one is the integer ``2^bits``. `degree` is that
    of the B-splines (`splines`), or the largest of the polynomials.
    """

    indices: Int64Array
    targets: Int64Array
    outputs: int
    extents: tuple[int, ...]
    periods: tuple[int, ...]
    edges: tuple[tuple[float, ...], ...]
    bits: int
    degree: int
    splines: bool

    @cached_property
    def min_state_size(self) -> int:
        """Smallest size that a state may have."""
        last = [p * (len(e) - 1) - 1 for p, e in zip(self.periods, self.edges, strict=True)]
        cell = np.ravel_multi_index((self.outputs - 1, *last), (self.outputs, *self.extents))
        return int(cell) + int(self.targets.max()) + 1


def require_inside(state: Int64Array, rows: Rows, terms: Terms) -> None:
    """Refuse, by an IndexError, records that would be added outside the state."""
    optional = (rows.counts, rows.output, rows.weight)
    lengths = {len(array) for array in (*rows.columns, *optional) if array is not None}
    if len(lengths) != 1 or not state.flags.c_contiguous or state.size < terms.min_state_size:
        raise IndexError("columns of different lengths, or too small a state")
    output = rows.output
    if output is not None and len(output) and not 0 <= output.min() <= output.max() < terms.outputs:
        raise IndexError("an output that there is not")


def add_rows_plainly(state: Int64Array, rows: Rows, terms: Terms) -> None:
    """Drop or clamp records, scale and round them, and add them to a state, in place.

    Bit for bit, this defines a record's integers. What is clamped here are its coordinates;
    responses come as weights, clamped by `ResponseWeight` in `dbern.measure.record_weights`.

    Raises IndexError for arrays of different lengths, missing outputs and a smaller state.
    """
    require_inside(state, rows, terms)
    points = np.column_stack(rows.columns)
    low, high = np.array(rows.low), np.array(rows.high)
    counts = np.isfinite(points).all(axis=1)
    if rows.clamp:
        points = np.clip(points, low, high)
    else:
        counts &= ((points >= low) & (points <= high)).all(axis=1)
    if rows.counts is not None:
        counts &= rows.counts
    positions = np.clip((points[counts] - low) / (high - low), 0.0, 1.0)
    target = np.zeros(len(positions), np.int64) if rows.output is None else rows.output[counts]
    factors = []
    for axis, (periods, edges) in enumerate(zip(terms.periods, terms.edges, strict=True)):
        cell, offset = _locate(positions[:, axis], periods, np.array(edges))
        target = target * terms.extents[axis] + cell
        rule = local_weights if terms.splines else _chebyshev
        factors.append(rule(offset, terms.degree))
    scale = np.full(len(positions), 2.0**terms.bits)
    if rows.weight is not None:
        scale = rows.weight[counts] * scale
    for index, first in zip(terms.indices, terms.targets, strict=True):
        product = scale
        for axis, chosen in enumerate(index):
            product = product * factors[axis][chosen]
        np.add.at(state.reshape(-1), first + target, np.rint(product).astype(np.int64))


def _locate(
    positions: FloatArray, periods: int, edges: FloatArray
) -> tuple[Int64Array, FloatArray]:
    """Cells and offsets in [-1, 1] of positions in the unit interval."""
    scaled = positions * periods
    period = np.minimum(scaled.astype(np.int64), periods - 1)
    fraction = scaled - period
    if len(edges) == 2:
        return period, 2.0 * fraction - 1.0
    cell = np.searchsorted(edges[1:-1], fraction, side="right")
    fraction = (fraction - edges[cell]) / np.diff(edges)[cell]
    return period * (len(edges) - 1) + cell, 2.0 * fraction - 1.0


def _chebyshev(offsets: FloatArray, degree: int) -> list[FloatArray]:
    powers = [np.ones_like(offsets), offsets]
    while len(powers) <= degree:
        powers.append(2.0 * offsets * powers[-1] - powers[-2])
    return powers
