"""B-splines of an axis, and functions between two of them.

Bins count ``c_j = int beta_j dD`` with B-splines of degree p on equal cells. A question about the
records is ``int g dD`` for a weight g. With coefficients ``l`` and ``u`` such that

    ``sum_j l_j beta_j(t) <= g(t) <= sum_j u_j beta_j(t)``  for every t of the axis,

``sum_j l_j c_j <= int g dD <= sum_j u_j c_j`` for every database: bins are exact but for what they
do not tell within a cell. An `Envelope` is l, u and an estimate between them. Proofs,
weight by weight and of products over axes, are in docs/intervals.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dbern.bernstein.splines import bin_matrix, local_weights
from dbern.data.resolution import Multiples
from dbern.types import FloatArray

FIT_DAMPING = 1e-7
"""Of the mean square of a bin, where weights are fitted by splines."""

_RIDGE = 1e-2  # of a bin's mean square, for estimates: they lean on the majorants' middle


@dataclass(frozen=True, eq=False)
class Envelope:
    """Coefficients of splines below, near and above each of some weights, (m, bins)."""

    lower: FloatArray
    estimate: FloatArray
    upper: FloatArray

    def __len__(self) -> int:
        return len(self.estimate)

    @classmethod
    def joined(cls, envelopes: Iterable[Envelope]) -> Envelope:
        """Return the envelopes of the weights of all of them, in order."""
        sides = zip(*((e.lower, e.estimate, e.upper) for e in envelopes), strict=True)
        return cls(*map(np.concatenate, sides))

    def select(self, which: Any) -> Envelope:
        """Return the envelopes of some of the weights."""
        return Envelope(self.lower[which], self.estimate[which], self.upper[which])

    def layered(self) -> Envelope:
        """Return weights (m, b_1, ..) as those of one layer of bins, (m, 1, bins)."""
        sides = self.lower, self.estimate, self.upper
        return Envelope(*(side.reshape(len(side), 1, -1) for side in sides))

    def minus(self, subtracted: Envelope) -> Envelope:
        """Return the envelope of the difference."""
        estimate = self.estimate - subtracted.estimate
        return Envelope(self.lower - subtracted.upper, estimate, self.upper - subtracted.lower)


@dataclass(frozen=True)
class AxisSplines:
    """The B-splines of a degree on equal cells of the unit interval.

    Where rows are rounded they stand at the `multiples` of the axis alone.
    """

    cells: int
    degree: int
    multiples: Multiples | None = None

    @property
    def count(self) -> int:
        """Number of splines."""
        return self.cells + self.degree

    @cached_property
    def centers(self) -> FloatArray:
        """Coefficients of the function t itself: the mean of a spline's inner knots."""
        return (np.arange(self.count) - (self.degree - 1) / 2) / self.cells

    @cached_property
    def powers(self) -> FloatArray:
        """Coefficients of 1, t, t^2; the last are means of products of two of the inner knots.

        At degree 1 it is the interpolation.
        """
        t = self.centers
        correction = (self.degree + 1) / 12 if self.degree > 1 else 0.0
        return np.stack([np.ones_like(t), t, t**2 - correction / self.cells**2])

    def values(self, t: FloatArray) -> FloatArray:
        """Return ``beta_j(t)``, (m, bins)."""
        return bin_matrix(t, self.cells, self.degree)

    def integrals(self, x: FloatArray) -> FloatArray:
        """Return ``int_0^x beta_j``, (m, bins): splines of the next degree, summed from j on."""
        from_zero = np.concatenate([[0.0], x])
        above = bin_matrix(from_zero, self.cells, self.degree + 1)[:, :0:-1]
        sums = np.cumsum(above, axis=1)[:, ::-1] / self.cells
        return np.asarray(sums[1:] - sums[0])

    def gauss(self, count: int) -> tuple[FloatArray, FloatArray]:
        """Return `count` nodes of each cell and their weights: exact to degree ``2 count - 1``."""
        nodes, weights = np.polynomial.legendre.leggauss(count)
        t = (np.arange(self.cells)[:, None] + (nodes + 1) / 2).reshape(-1) / self.cells
        return np.asarray(t, np.float64), np.asarray(np.tile(weights / 2 / self.cells, self.cells))

    @cached_property
    def gram(self) -> FloatArray:
        """Integrals ``int beta_i beta_j``."""
        t, weights = self.gauss(self.degree + 1)
        rows = self.values(t)
        return np.asarray(rows.T @ (weights[:, None] * rows))

    @cached_property
    def smoother(self) -> FloatArray:
        """Matrix from integrals against bins to coefficients, with a ridge."""
        return np.asarray(np.linalg.inv(damped(self.gram, _RIDGE)), dtype=np.float64)

    @cached_property
    def residual(self) -> FloatArray:
        """Matrix from coefficients to those of what the smoother leaves of them."""
        return np.eye(self.count) - self.gram @ self.smoother


def damped(square: FloatArray, damping: float) -> FloatArray:
    """Return a Gram matrix with a multiple of its mean diagonal added to the diagonal."""
    return np.asarray(square + damping * np.trace(square) / len(square) * np.eye(len(square)))


def bezier(degree: int, start: float, stop: float) -> FloatArray:
    """Return Bezier coefficients, on a part of a cell, of its p + 1 splines, which are columns."""
    nodes = np.linspace(0.0, 1.0, degree + 1)
    values = np.stack(local_weights(2 * (start + nodes * (stop - start)) - 1, degree), axis=1)
    powers = np.arange(degree + 1)
    binomials = np.array([math.comb(degree, i) for i in powers])
    basis = binomials * nodes[:, None] ** powers * (1 - nodes[:, None]) ** (degree - powers)
    return np.asarray(np.linalg.solve(basis, values), dtype=np.float64)


def products(axes: Sequence[Envelope]) -> Envelope:
    """Return the envelope of products of nonnegative weights, axis by axis: (m, b_1, .., b_l)."""
    upper = _outer([axis.upper for axis in axes])
    lower = -(len(axes) - 1.0) * upper
    for k in range(len(axes)):
        lower = lower + _outer(
            [axis.lower if i == k else axis.upper for i, axis in enumerate(axes)]
        )
    return Envelope(lower, _outer([axis.estimate for axis in axes]), upper)


def _outer(axes: Sequence[FloatArray]) -> FloatArray:
    product = np.ones(len(axes[0]))
    for rows in axes:
        product = product[..., None] * rows.reshape(len(rows), *[1] * (product.ndim - 1), -1)
    return product


# A weight is evaluated on a grid of each cell, and exceeds the larger of its values at the ends of
# a step of w by at most ``w^2 B / 8``, B a bound on its second derivative. As B-splines sum to one,
# the coefficient of a bin may be raised by the largest excess over the cells of its support.


def grid(splines: AxisSplines, steps: int) -> FloatArray:
    """Return points at which weights are evaluated, both ends of each cell among them."""
    return np.linspace(0.0, 1.0, splines.cells * steps + 1)


@lru_cache(maxsize=16)
def grid_fit(splines: AxisSplines, steps: int) -> tuple[FloatArray, FloatArray]:
    """Return values of the splines on a `grid`, (points, bins), and the map from values back.

    It is least squares, slightly damped: (bins, points).
    """
    values = splines.values(grid(splines, steps))
    square = damped(values.T @ values, FIT_DAMPING)
    return values, np.asarray(np.linalg.solve(square, values.T), dtype=np.float64)


def between_nodes(step: float, bend: Any) -> Any:
    """Bound the excess of a function over the ends of a step, by its second derivative."""
    return step**2 * bend / 8


def cell_maxima(values: FloatArray, splines: AxisSplines, axis: int = -1) -> FloatArray:
    """Return the largest values on each cell, ends included, of values on a `grid`."""
    rows = np.moveaxis(values, axis, -1)
    steps = (rows.shape[-1] - 1) // splines.cells
    inner = rows[..., :-1].reshape(*rows.shape[:-1], splines.cells, steps).max(axis=-1)
    return np.moveaxis(np.maximum(inner, rows[..., steps::steps]), -1, axis)


def support_maxima(cells: FloatArray, splines: AxisSplines, axis: int = -1) -> FloatArray:
    """Return the largest values over the cells of each bin's support; 0 beyond the bounds."""
    reach = [(splines.degree * (i == axis % cells.ndim),) * 2 for i in range(cells.ndim)]
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(cells, reach), splines.degree + 1, axis=axis
    )
    return np.asarray(windows.max(axis=-1))
