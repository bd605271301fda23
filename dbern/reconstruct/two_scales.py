"""Bins of two scales on one axis: wide ones for smooth functions, narrow ones for sharp edges.

A density is estimated best from few wide bins, whose noise adds up least, and a share of rows up to
a sharp edge from many narrow ones, which know where rows are. Both together cost little more than
the wide ones alone. Each record adds to numbers of the B-splines beta_i of g narrow cells and, g
divided by `times`, of the B-splines beta'_j of the wide cells,

    ``z_i = (1 / parts) int beta_i dD``,  ``z'_j = (1 - 1 / parts) int beta'_j dD``.

As ``beta'_j = sum_i R_ji beta_i`` with ``R >= 0`` of columns that sum to one, all of these are
``M c`` with c the narrow bins and a matrix ``M >= 0`` whose columns sum to one. So they are
nonnegative, they sum to one at every t, and no norm or side of what a record moves is more than
that of c: sensitivities of bins hold as they are (`dbern.measure.kernel_sums`).

A linear functional ``w c`` is read from them by the weights v with ``v M = w`` whose noise is
least, ``v = w P`` with ``P = (M'M)^{-1} M'``: least squares, the best linear unbiased estimate of c
(Gauss and Markov). What is smooth is read from the wide ones, edges from the narrow ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbern.system import one_thread
from dbern.types import FloatArray, Int64Array

MOST_NARROW = 2048
"""Narrow cells of an axis at most: matrices of them take 66 MiB, of few a wide one 112."""


@dataclass(frozen=True)
class TwoScales:
    """Narrow cells, the degree of their B-splines, how many are a wide one, and the parts.

    The narrow scale counts one part of each record, the wide one all others.
    """

    cells: int
    degree: int
    times: int
    parts: int

    @property
    def wide(self) -> int:
        """Number of wide bins."""
        return self.cells // self.times + self.degree

    @property
    def count(self) -> int:
        """Number of bins of both scales."""
        return self.wide + self.cells + self.degree

    @cached_property
    def _mask(self) -> list[int]:
        """``times^degree R_j``: coefficients of ``(1 + x + .. + x^{times - 1})^{degree + 1}``."""
        mask, zeros = [1], [0] * (self.times - 1)
        for _ in range(self.degree + 1):
            padded = zeros + mask + zeros
            mask = [sum(padded[i : i + self.times]) for i in range(len(mask) + self.times - 1)]
        return mask

    def _narrow_bins(self, j: int) -> tuple[int, range]:
        """Return where the mask of a wide bin begins, and the narrow bins that it overlaps."""
        first = (j - self.degree) * self.times + self.degree
        stop = min(first + len(self._mask), self.cells + self.degree)
        return first, range(max(first, 0), stop)

    @property
    def unit(self) -> int:
        """Number of units in one, for `multiply_exactly`."""
        return self.parts * int(self.times**self.degree)

    def multiply_exactly(self, narrow: Int64Array) -> list[int]:
        """Return ``unit M c`` of integers c (bins,), without any rounding."""
        counts, sums = [int(count) for count in narrow], []
        for j in range(self.wide):
            first, bins = self._narrow_bins(j)
            sums.append((self.parts - 1) * sum(self._mask[i - first] * counts[i] for i in bins))
        return [*sums, *(int(self.times**self.degree) * count for count in counts)]

    @cached_property
    def refinement(self) -> FloatArray:
        """R (wide bins, bins)."""
        mask = np.array(self._mask, dtype=np.float64) / self.times**self.degree
        rows = np.zeros((self.wide, self.cells + self.degree))
        for j, row in enumerate(rows):
            first, bins = self._narrow_bins(j)
            row[bins] = mask[bins.start - first : bins.stop - first]
        return rows

    @cached_property
    def matrix(self) -> FloatArray:
        """M (numbers, bins)."""
        narrow = np.eye(self.cells + self.degree)
        return np.vstack([(1 - 1 / self.parts) * self.refinement, narrow / self.parts])

    @cached_property
    def _square(self) -> FloatArray:
        """``f^2 / a^2 + RR'``, (wide bins, wide bins), a and f the parts of both scales."""
        f = 1 / self.parts
        with one_thread():  # so that plans do not depend on what was made before them
            square = self.refinement @ self.refinement.T
        square[np.diag_indices(len(square))] += (f / (1 - f)) ** 2
        return square

    @cached_property
    def _inverse_square(self) -> FloatArray:
        with one_thread():
            return np.asarray(np.linalg.inv(self._square))

    @cached_property
    def inverse(self) -> FloatArray:
        """P (bins, numbers), without a system as large as the narrow bins.

        With ``S = (f^2 / a^2 + RR')^{-1} R``, by the identity of Woodbury ``P = (S' / a, (1 - R'S)
        / f)``.
        """
        f, refinement = 1 / self.parts, self.refinement
        with one_thread():
            solved = np.linalg.solve(self._square, refinement)
            rest = np.eye(self.cells + self.degree) - refinement.T @ solved
        return np.hstack([solved.T / (1 - f), rest / f])

    def on_released(self, weights: FloatArray) -> FloatArray:
        """Return ``weights P`` of weights (.., bins), in as many steps as there are bins."""
        f = 1 / self.parts
        wide = self._gather(weights) @ self._inverse_square
        narrow = (weights - self._spread(wide)) / f
        return np.asarray(np.concatenate([wide / (1 - f), narrow], axis=-1))

    def on_bins(self, weights: FloatArray) -> FloatArray:
        """Return ``weights M`` of weights (.., numbers), likewise."""
        wide, narrow = weights[..., : self.wide], weights[..., self.wide :]
        return (1 - 1 / self.parts) * self._spread(wide) + narrow / self.parts

    def numbers(self, bins: FloatArray) -> FloatArray:
        """Return ``M c`` of bins c (.., bins), likewise."""
        f = 1 / self.parts
        return np.concatenate([(1 - f) * self._gather(bins), f * bins], axis=-1)

    def bins(self, numbers: FloatArray) -> FloatArray:
        """Return ``P z`` of numbers z (.., numbers), likewise: the estimate of least noise."""
        f, wide, narrow = 1 / self.parts, numbers[..., : self.wide], numbers[..., self.wide :]
        smooth = (wide / (1 - f) - self._gather(narrow) / f) @ self._inverse_square
        return self._spread(smooth) + narrow / f

    @cached_property
    def _pieces(self) -> FloatArray:
        """The mask in pieces as long as a wide cell, (degree + 1, times)."""
        pieces = np.zeros((self.degree + 1) * self.times)
        pieces[: len(self._mask)] = np.array(self._mask, dtype=np.float64) / self.times**self.degree
        return pieces.reshape(self.degree + 1, self.times)

    def _gather(self, bins: FloatArray) -> FloatArray:
        """Return ``R c`` (.., wide bins) of c (.., bins), by pieces of the mask."""
        first, last = self.degree * (self.times - 1), self.wide * self.times
        blocks = np.zeros((*bins.shape[:-1], self.wide + self.degree, self.times))
        blocks.reshape(*bins.shape[:-1], -1)[..., first:last] = bins
        pieces = enumerate(self._pieces)
        return np.asarray(sum(blocks[..., r : r + self.wide, :] @ piece for r, piece in pieces))

    def _spread(self, wide: FloatArray) -> FloatArray:
        """Return ``t R`` (.., bins) of t (.., wide bins)."""
        first, last = self.degree * (self.times - 1), self.wide * self.times
        blocks = np.zeros((*wide.shape[:-1], self.wide + self.degree, self.times))
        for r, piece in enumerate(self._pieces):
            blocks[..., r : r + self.wide, :] += wide[..., None] * piece
        return blocks.reshape(*wide.shape[:-1], -1)[..., first:last]
