"""Add a few records to integer sums by numpy alone, with the integers of compiled loops.

A small release does not wait for numba to start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dbern.bernstein.basis import local_weights
from dbern.counting.rows import Rows, Terms, require_inside
from dbern.types import FloatArray, Int64Array


def add_slowly(state: Int64Array, rows: Rows, terms: Terms) -> None:
    """Add records, in place; bit for bit, this is what a record's integers are.

    Raises
    ------
    IndexError
        For arrays of different lengths, outputs that there are not, or a smaller state.
    """
    require_inside(state, rows, terms)
    points = np.column_stack(rows.columns)
    low, high = np.array(rows.low), np.array(rows.high)
    kept = np.isfinite(points).all(axis=1)
    if rows.clamp:
        points = np.clip(points, low, high)
    else:
        kept &= ((points >= low) & (points <= high)).all(axis=1)
    if rows.counts is not None:
        kept &= rows.counts
    positions = np.clip((points[kept] - low) / (high - low), 0.0, 1.0)
    place = np.zeros(len(positions), np.int64) if rows.output is None else rows.output[kept]
    factors = []
    for axis, (periods, edges) in enumerate(zip(terms.periods, terms.edges, strict=True)):
        cell, offset = _located(positions[:, axis], periods, np.array(edges))
        place = place * terms.extents[axis] + cell
        rule = local_weights if terms.splines else _chebyshev
        factors.append(rule(offset, terms.order))
    unit = np.full(len(positions), 2.0**terms.bits)
    if rows.weight is not None:
        unit = rows.weight[kept] * unit
    for index, begins in zip(terms.indices, terms.places, strict=True):
        product = unit
        for axis, degree in enumerate(index):
            product = product * factors[axis][degree]
        np.add.at(state.reshape(-1), begins + place, np.rint(product).astype(np.int64))


def _located(positions: FloatArray, periods: int, edges: FloatArray) -> tuple[Any, FloatArray]:
    """Cell and offset in [-1, 1] of each position in the unit interval."""
    scaled = positions * periods
    period = np.minimum(scaled.astype(np.int64), periods - 1)
    share = scaled - period
    if len(edges) == 2:
        return period, 2.0 * share - 1.0
    part = np.searchsorted(edges[1:-1], share, side="right")
    share = (share - edges[part]) / np.diff(edges)[part]
    return period * (len(edges) - 1) + part, 2.0 * share - 1.0


def _chebyshev(offsets: FloatArray, order: int) -> list[FloatArray]:
    powers = [np.ones_like(offsets), offsets]
    while len(powers) <= order:
        powers.append(2.0 * offsets * powers[-1] - powers[-2])
    return powers
