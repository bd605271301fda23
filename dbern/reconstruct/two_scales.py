"""Bins of two scales on an axis: wide ones for smooth functions, narrow ones for sharp edges.

A density is estimated best from few wide bins, whose noise adds up least, and a share of rows up to
a sharp edge from many narrow ones, which know where rows are. Both together cost little more than
the wide ones alone. Each record adds to numbers of the B-splines beta_i of g narrow cells and of
the B-splines beta'_j of wide cells, `times` as wide, the last of which may reach beyond the axis,

    ``z_i = (1 / parts) int beta_i dD``,  ``z'_j = (1 - 1 / parts) int beta'_j dD``.

As ``beta'_j = sum_i R_ji beta_i`` with ``R >= 0`` of columns that sum to one, all of these are
``M c`` with c the narrow bins and a matrix ``M >= 0`` whose columns sum to one. So they are
nonnegative, they sum to one at every t, and no norm or side of what a record moves is more than
that of c: sensitivities of bins hold as they are (`dbern.measure.kernel_sums`).

A linear functional ``w c`` is read from them by the weights v with ``v M = w`` whose noise is
least, ``v = w P`` with ``P = (M'M)^{-1} M'``: least squares, the best linear unbiased estimate of c
(Gauss and Markov). What is smooth is read from the wide ones, edges from the narrow ones.

*Several axes* have the Kronecker product of their matrices: it is nonnegative, and its columns,
products of columns, sum to one. So all of the above holds, P the product of the axes' P.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dbern.system import one_thread
from dbern.types import FloatArray

MOST_NARROW = 2048
"""Narrow cells of an axis at most: a matrix of the wide ones takes 8 MiB."""


def along_axis(step: Callable[[Any], Any], numbers: Any, axis: int) -> Any:
    """Apply to any axis what is for the last one."""
    return np.moveaxis(step(np.moveaxis(numbers, axis, -1)), -1, axis)


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
        return -(-self.cells // self.times) + self.degree

    @property
    def count(self) -> int:
        """Number of bins of both scales."""
        return self.wide + self.cells + self.degree

    @cached_property
    def _mask(self) -> Any:
        """``times^degree R_j`` in pieces as long as a wide cell, (degree + 1, times).

        Its integers are coefficients of ``(1 + x + .. + x^{times - 1})^{degree + 1}``.
        """
        mask, zeros = [1], [0] * (self.times - 1)
        for _ in range(self.degree + 1):
            padded = zeros + mask + zeros
            mask = [sum(padded[i : i + self.times]) for i in range(len(mask) + self.times - 1)]
        return np.array([*mask, *[0] * self.degree], dtype=object).reshape(-1, self.times)

    @cached_property
    def _pieces(self) -> FloatArray:
        """The mask in floats."""
        return np.asarray(self._mask.astype(np.float64) / self.times**self.degree)

    @property
    def unit(self) -> int:
        """Number of units in one, for `multiply_exactly`."""
        return self.parts * int(self.times**self.degree)

    def multiply_exactly(self, narrow: Any) -> Any:
        """Return ``unit M c`` of integers c (.., bins), without any rounding: Python's own."""
        counts = narrow.astype(object)
        wide = (self.parts - 1) * self._gather(counts, self._mask)
        return np.concatenate([wide, self.unit // self.parts * counts], axis=-1)

    @cached_property
    def _inverse_square(self) -> FloatArray:
        """``(f^2 / a^2 + RR')^{-1}``, (wide bins, wide bins), a and f the parts of both scales.

        By the identity of Woodbury no system is as large as the narrow bins: with ``S`` this times
        R, ``P = (S' / a, (1 - R'S) / f)``.
        """
        f = 1 / self.parts
        with one_thread():  # so that plans do not depend on what was made before them
            square = self._gather(self._spread(np.eye(self.wide)), self._pieces)
            square[np.diag_indices(len(square))] += (f / (1 - f)) ** 2
            return np.asarray(np.linalg.inv(square))

    def on_released(self, weights: FloatArray) -> FloatArray:
        """Return ``weights P`` of weights (.., bins), in as many steps as there are bins."""
        f = 1 / self.parts
        wide = self._gather(weights, self._pieces) @ self._inverse_square
        narrow = (weights - self._spread(wide)) / f
        return np.asarray(np.concatenate([wide / (1 - f), narrow], axis=-1))

    def on_bins(self, weights: FloatArray) -> FloatArray:
        """Return ``weights M`` of weights (.., numbers), likewise."""
        wide, narrow = weights[..., : self.wide], weights[..., self.wide :]
        return (1 - 1 / self.parts) * self._spread(wide) + narrow / self.parts

    def numbers(self, bins: FloatArray) -> FloatArray:
        """Return ``M c`` of bins c (.., bins), likewise."""
        f = 1 / self.parts
        return np.concatenate([(1 - f) * self._gather(bins, self._pieces), f * bins], axis=-1)

    def bins(self, numbers: FloatArray) -> FloatArray:
        """Return ``P z`` of numbers z (.., numbers), likewise: the estimate of least noise."""
        f, wide, narrow = 1 / self.parts, numbers[..., : self.wide], numbers[..., self.wide :]
        smooth = wide / (1 - f) - self._gather(narrow, self._pieces) / f
        return self._spread(smooth @ self._inverse_square) + narrow / f

    @property
    def _inside(self) -> slice:
        """Narrow bins among those of the wide ones' cells, on the axis and beside it."""
        first = self.degree * (self.times - 1)
        return slice(first, first + self.cells + self.degree)

    def _gather(self, bins: Any, mask: Any) -> Any:
        """Return ``R c`` (.., wide bins) of c (.., bins), by pieces of a mask."""
        blocks = np.zeros((*bins.shape[:-1], self.wide + self.degree, self.times), bins.dtype)
        blocks.reshape(*bins.shape[:-1], -1)[..., self._inside] = bins
        return sum(blocks[..., r : r + self.wide, :] @ piece for r, piece in enumerate(mask))

    def _spread(self, wide: FloatArray) -> FloatArray:
        """Return ``t R`` (.., bins) of t (.., wide bins)."""
        blocks = np.zeros((*wide.shape[:-1], self.wide + self.degree, self.times))
        for r, piece in enumerate(self._pieces):
            blocks[..., r : r + self.wide, :] += wide[..., None] * piece
        return blocks.reshape(*wide.shape[:-1], -1)[..., self._inside]
