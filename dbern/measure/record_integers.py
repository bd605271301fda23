"""Records added to integer sums by numpy alone: this defines a record's integers.

Compiled loops (`dbern.measure.loops`) have the same bits; a small release need not wait for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dbern.bernstein.splines import local_weights
from dbern.measure.rows import Rows, Terms, require_inside
from dbern.types import FloatArray, Int64Array


def add_slowly(state: Int64Array, rows: Rows, terms: Terms) -> None:
    """Add records, in place; bit for bit, this defines a record's integers.

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
        factors.append(rule(offset, terms.order))
    scale = np.full(len(positions), 2.0**terms.bits)
    if rows.weight is not None:
        scale = rows.weight[counts] * scale
    for index, first in zip(terms.indices, terms.targets, strict=True):
        product = scale
        for axis, degree in enumerate(index):
            product = product * factors[axis][degree]
        np.add.at(state.reshape(-1), first + target, np.rint(product).astype(np.int64))


def _locate(positions: FloatArray, periods: int, edges: FloatArray) -> tuple[Any, FloatArray]:
    """Cells and offsets in [-1, 1] of positions in the unit interval."""
    scaled = positions * periods
    period = np.minimum(scaled.astype(np.int64), periods - 1)
    fraction = scaled - period
    if len(edges) == 2:
        return period, 2.0 * fraction - 1.0
    cell = np.searchsorted(edges[1:-1], fraction, side="right")
    fraction = (fraction - edges[cell]) / np.diff(edges)[cell]
    return period * (len(edges) - 1) + cell, 2.0 * fraction - 1.0


def _chebyshev(offsets: FloatArray, order: int) -> list[FloatArray]:
    powers = [np.ones_like(offsets), offsets]
    while len(powers) <= order:
        powers.append(2.0 * offsets * powers[-1] - powers[-2])
    return powers
