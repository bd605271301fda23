"""Slow twins of compiled loops, in numpy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dbern.bernstein.basis import local_weights
from dbern.bernstein.pieces import Pieces
from dbern.counting.rows import Rows, Terms


def evaluate_pieces(
    pieces: Pieces, points: np.ndarray, low: Sequence[float], high: Sequence[float]
) -> np.ndarray:
    """What ``dbern.synopsis.compiled.evaluate_pieces`` does, straight from `Pieces`."""
    inside = ((points >= low) & (points <= high)).all(axis=1)
    unit = (points[inside] - low) / (np.array(high) - low)
    halves = np.array(pieces.cells) // 2
    far = unit > 0.5
    s = halves * np.sqrt(2 * np.where(far, 1 - unit, unit))
    index = np.minimum(s.astype(np.int64), halves - 1)
    t = s - index - 0.5
    cell = np.ravel_multi_index(tuple((index + far * halves).T), pieces.cells)
    result = pieces.table[cell].reshape(len(unit), *[pieces.order] * len(halves))
    for axis in range(len(halves)):
        place, total = t[:, axis].reshape(-1, *[1] * (result.ndim - 2)), result[:, -1]
        for power in range(pieces.order - 2, -1, -1):
            total = total * place + result[:, power]
        result = total
    values = np.full(len(points), np.nan)
    values[inside] = result
    return values


def add_rows(state: np.ndarray, rows: Rows, terms: Terms) -> None:
    """What ``dbern.counting.loops.add_rows`` does: the definition of a record's integers."""
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
        cell, offset = located(positions[:, axis], periods, np.array(edges))
        place = place * terms.extents[axis] + cell
        rule = local_weights if terms.splines else chebyshev
        factors.append(rule(offset, terms.order))
    unit = np.full(len(positions), 2.0**terms.bits)
    if rows.weight is not None:
        unit = rows.weight[kept] * unit
    for index, begins in zip(terms.indices, terms.places, strict=True):
        product = unit
        for axis, degree in enumerate(index):
            product = product * factors[axis][degree]
        np.add.at(state.reshape(-1), begins + place, np.rint(product).astype(np.int64))


def located(positions: np.ndarray, periods: int, edges: np.ndarray) -> tuple[np.ndarray, ...]:
    """Cell and offset in [-1, 1] of each position in the unit interval."""
    scaled = positions * periods
    period = np.minimum(scaled.astype(np.int64), periods - 1)
    share = scaled - period
    if len(edges) == 2:
        return period, 2.0 * share - 1.0
    part = np.searchsorted(edges[1:-1], share, side="right")
    share = (share - edges[part]) / np.diff(edges)[part]
    return period * (len(edges) - 1) + part, 2.0 * share - 1.0


def chebyshev(offsets: np.ndarray, order: int) -> list[np.ndarray]:
    powers = [np.ones_like(offsets), offsets]
    while len(powers) <= order:
        powers.append(2.0 * offsets * powers[-1] - powers[-2])
    return powers
