"""Slow twins of compiled loops, in numpy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dbern.bernstein.pieces import Pieces


def evaluate_pieces(
    pieces: Pieces, points: np.ndarray, low: Sequence[float], high: Sequence[float]
) -> np.ndarray:
    """What ``dbern.synopsis.evaluate._evaluate_pieces`` does, straight from `Pieces`."""
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
