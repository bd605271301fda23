"""Oblique coordinates, in which a Gaussian of full covariance is a product over axes.

Let H be positive definite, and order the axes somehow. The regression of each axis on those before
it leaves a residual, ``z_i = y_i - sum_j beta_ij y_j``, uncorrelated with them: with the rows of C
for these residuals, C has ones on its diagonal, determinant one, and ``C H C' = D``
is diagonal. So the density of N(0, H) is a product,

    ``K_H(y - t) = prod_i K_{D_i}(z_i(y) - z_i(t))``,

and all that is proved of product kernels over a box holds of it over the box of z: whatever
positions there records have, whatever y a value is asked for. Over the unit cube z_i takes values
from ``sum_j min(0, C_ij)`` to ``sum_j max(0, C_ij)``. Of all orders the one with the smallest box
is taken: for two axes its area is ``1 + |beta|``, less than two.

Residuals are found in exact arithmetic, whatever the condition of H; C is those rounded once, the
same on every host. Where a record is put is a function of that record alone, by single IEEE
operations.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from dbern.types import BoolArray, FloatArray

Number: TypeAlias = Fraction | float
Matrix: TypeAlias = Sequence[Sequence[Number]]


@dataclass(frozen=True)
class Oblique:
    """Coordinates ``(C y - low) / width``, C the `rows`, from the unit cube to a unit cube."""

    rows: tuple[tuple[float, ...], ...]

    @property
    def low(self) -> tuple[float, ...]:
        """Least values of ``C y``."""
        return tuple(math.fsum(min(0.0, c) for c in row) for row in self.rows)

    @property
    def width(self) -> tuple[float, ...]:
        """Lengths of the ranges of ``C y``."""
        return tuple(math.fsum(abs(c) for c in row) for row in self.rows)

    def positions(self, unit: FloatArray) -> FloatArray:
        """Oblique coordinates (m, l) of points (m, l) of the unit cube, in the unit cube."""
        coordinates = np.empty_like(unit)
        for i, (row, low, width) in enumerate(zip(self.rows, self.low, self.width, strict=True)):
            value = np.zeros(len(unit))
            for j, c in enumerate(row):
                value = value + c * unit[:, j]
            coordinates[:, i] = (value - low) / width
        return np.clip(coordinates, 0.0, 1.0)

    def points(self, positions: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Points that have these coordinates, and which of them lie in the unit cube."""
        values = np.array(self.low) + positions * np.array(self.width)
        points = np.linalg.solve(np.array(self.rows), values.T).T
        return points, np.asarray(((points >= 0) & (points <= 1)).all(axis=1))


def decorrelate(covariance: Matrix) -> tuple[Oblique, tuple[float, ...]]:
    """The coordinates with the smallest box, and the standard deviations in it, one an axis.

    `covariance` is symmetric, of coordinates of the unit cube; a ValueError unless it is positive
    definite.
    """
    axes = range(len(covariance))
    _residuals(covariance, axes)  # refuses what is not positive definite, exactly
    order = min(itertools.permutations(axes), key=lambda order: _volume(covariance, order))
    rows, variances = _residuals(covariance, order)
    oblique = Oblique(tuple(tuple(float(c) for c in row) for row in rows))
    pairs = zip(variances, oblique.width, strict=True)
    return oblique, tuple(math.sqrt(variance) / width for variance, width in pairs)


def _volume(covariance: Matrix, order: Sequence[int]) -> float:
    """Volume of the box, in floats: a choice, no bound; the same on every host."""
    try:
        rows, _ = _residuals([[float(entry) for entry in row] for row in covariance], order)
    except ValueError:
        return math.inf
    return math.prod(math.fsum(abs(float(c)) for c in row) for row in rows)


def _residuals(covariance: Matrix, order: Sequence[int]) -> tuple[list[list[Number]], list[Number]]:
    """Rows of C and the diagonal D, by Gram and Schmidt: exact for fractions."""
    size = len(covariance)
    rows: list[list[Number]] = [[] for _ in range(size)]
    variances: list[Number] = [0] * size
    for step, i in enumerate(order):
        row: list[Number] = [int(j == i) for j in range(size)]
        for before in order[:step]:
            beta = _product(covariance[i], rows[before]) / variances[before]
            row = [c - beta * earlier for c, earlier in zip(row, rows[before], strict=True)]
        rows[i] = row
        variances[i] = _product(covariance[i], row)
        if variances[i] <= 0:
            raise ValueError("not positive definite")
    return rows, variances


def _product(left: Sequence[Number], right: Sequence[Number]) -> Number:
    total: Number = 0
    for a, b in zip(left, right, strict=True):
        total = total + a * b
    return total
