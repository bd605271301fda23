"""Uniform B-splines of one axis, and the matrix from sums of them to lattice values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dbern.types import FloatArray, Int64Array


@dataclass(frozen=True)
class Synthesis:
    """Cells, degree, and the matrix A from bins to lattice values.

    Attributes
    ----------
    packed : bytes
        A as little-endian float64 in C order, shape (k + 1, cells + degree).
    used : int
        How many leading singular vectors of A an evaluation uses; 0: all.
    """

    cells: int
    degree: int
    packed: bytes = field(repr=False)
    used: int = 0

    @property
    def rank(self) -> int:
        """How many bins there are."""
        return self.cells + self.degree

    @cached_property
    def synthesis(self) -> FloatArray:
        """A, or its best approximation of rank `used`; shape (k + 1, bins)."""
        whole = np.frombuffer(self.packed, dtype="<f8").astype(np.float64).reshape(-1, self.rank)
        if not 0 < self.used < self.rank:
            return whole
        left, sizes, right = np.linalg.svd(whole, full_matrices=False)
        kept = slice(self.used)
        return np.asarray((left[:, kept] * sizes[kept]) @ right[kept])


def cell_of(positions: FloatArray, cells: int) -> tuple[Int64Array, FloatArray]:
    """Each position's cell, and its offset in it, from -1 to 1; single IEEE operations.

    Examples
    --------
    >>> cell, offset = cell_of(np.array([0.0, 0.5, 1.0]), 2)
    >>> cell.tolist(), offset.tolist()
    ([0, 1, 1], [-1.0, -1.0, 1.0])
    """
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

    Examples
    --------
    >>> [float(w[0]) for w in local_weights(np.array([0.0]), 2)]
    [0.125, 0.75, 0.125]
    """
    u = (offset + 1.0) / 2.0
    weights = [np.ones_like(u)]
    for d in range(1, degree + 1):
        rising = [(u + (d - r)) * weights[r - 1] for r in range(1, d)]
        middle = [up + ((r + 1) - u) * weights[r] for r, up in enumerate(rising, start=1)]
        weights = [(1.0 - u) * weights[0], *middle, u * weights[-1]]
    return [weight / math.factorial(degree) for weight in weights]


def bin_matrix(positions: FloatArray, cells: int, degree: int) -> FloatArray:
    """``beta_j(t)`` for each position t and bin j, shape (m, cells + degree); rows sum to one.

    Examples
    --------
    >>> bin_matrix(np.array([0.25]), cells=2, degree=1).tolist()
    [[0.5, 0.5, 0.0]]
    """
    cell, offset = cell_of(positions, cells)
    values = np.zeros((len(positions), cells + degree))
    for r, weight in enumerate(local_weights(offset, degree)):
        values[np.arange(len(positions)), cell + r] = weight
    return values
