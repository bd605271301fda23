"""Uniform B-splines on the unit interval, and equations between them."""

from __future__ import annotations

import math

import numpy as np

from dbern.types import FloatArray, Int64Array

_CELLS_TOGETHER = 32
_BLOCK = 64  # bins that are solved for together


def _cell_of(positions: FloatArray, cells: int) -> tuple[Int64Array, FloatArray]:
    """Cells of the positions, and offsets in them from -1 to 1; single IEEE operations."""
    scaled = positions * cells
    cell = np.minimum(scaled.astype(np.int64), cells - 1)
    return cell, 2.0 * (scaled - cell) - 1.0


def local_weights(offset: FloatArray, degree: int) -> list[FloatArray]:
    """Values of the degree + 1 B-splines that live on a cell, in order, at offsets in [-1, 1].

    The recurrence of Cox and de Boor on uniform knots, divided by ``degree!`` at its end: with u in
    [0, 1], ``w_r <- (u + d - r) w_{r-1} + (r + 1 - u) w_r`` for d = 1, 2, .. Nothing is subtracted
    but u from an integer that is at least one, so each step rounds by factors of ``1 +- 2^-53``, of
    which a weight gathers at most ``3 degree + 2``: weights are nonnegative, exact up to as many
    units of their own size, and as many of one in their sum.
    """
    u = (offset + 1.0) / 2.0
    weights = [np.ones_like(u)]
    for d in range(1, degree + 1):
        rising = [(u + (d - r)) * weights[r - 1] for r in range(1, d)]
        middle = [up + ((r + 1) - u) * weights[r] for r, up in enumerate(rising, start=1)]
        weights = [(1.0 - u) * weights[0], *middle, u * weights[-1]]
    return [weight / math.factorial(degree) for weight in weights]


def bin_matrix(positions: FloatArray, cells: int, degree: int) -> FloatArray:
    """``beta_j(t)`` for each position t and bin j, shape (m, cells + degree); rows sum to one."""
    cell, offset = _cell_of(positions, cells)
    values = np.zeros((len(positions), cells + degree))
    for r, weight in enumerate(local_weights(offset, degree)):
        values[np.arange(len(positions)), cell + r] = weight
    return values


def bin_products(
    positions: FloatArray, position_weights: FloatArray, values: FloatArray, cells: int, degree: int
) -> tuple[FloatArray, FloatArray]:
    """Weighted sums over positions in order of ``beta beta'`` and ``beta f'``.

    Returns (bins, bins) and (bins, m), for values (m, positions) of functions f. A cell meets
    ``degree + 1`` bins: some cells at a time, few of the products are zero.
    """
    cell, offset = _cell_of(positions, cells)
    weights = np.stack(local_weights(offset, degree), axis=1)
    bin_sums = np.zeros((cells + degree, cells + degree))
    value_sums = np.zeros((cells + degree, len(values)))
    for first in range(0, cells, _CELLS_TOGETHER):
        rows = slice(*np.searchsorted(cell, [first, first + _CELLS_TOGETHER]))
        bins = slice(first, min(first + _CELLS_TOGETHER, cells) + degree)
        beta = np.zeros((rows.stop - rows.start, bins.stop - first))
        columns = (cell[rows] - first)[:, None] + np.arange(degree + 1)
        np.put_along_axis(beta, columns, weights[rows], axis=1)
        left = beta.T * position_weights[rows]
        bin_sums[bins, bins] += left @ beta
        value_sums[bins] += left @ values[:, rows].T
    return bin_sums, value_sums


def solve_in_blocks(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve equations of bins (n, n) for right sides (n, m), some bins at a time.

    `matrix` is positive definite and couples no bins that are more than 64 apart, as `bin_products`
    of degrees below that.
    """
    eliminated: list[tuple[FloatArray, FloatArray]] = []
    for first in range(0, len(matrix), _BLOCK):
        rows, after = slice(first, first + _BLOCK), slice(first + _BLOCK, first + 2 * _BLOCK)
        block, values = matrix[rows, rows], right[rows]
        if eliminated:
            before = matrix[rows, first - _BLOCK : first]
            coupling, constant = eliminated[-1]
            block, values = block - before @ coupling, values - before @ constant
        sides = np.hstack([matrix[rows, after], values])
        solution = np.asarray(np.linalg.solve(block, sides), np.float64)
        eliminated.append((solution[:, : -right.shape[1]], solution[:, -right.shape[1] :]))
    solutions = [eliminated[-1][1]]
    for coupling, constant in eliminated[-2::-1]:
        solutions.append(constant - coupling @ solutions[-1])
    return np.concatenate(solutions[::-1])
