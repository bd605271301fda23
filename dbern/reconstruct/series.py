"""Released polynomials of an axis as Chebyshev series, which nodes enclose, and their norms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from dbern.bernstein.basis import INTERPOLATED, bernstein_basis, by_parity, of_parities, parities
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD
from dbern.reconstruct.axis_maps import AxisMap, LinearMap, evaluation_matrix, synthesis_matrix
from dbern.types import FloatArray

_OVERSAMPLING = 8
CUT = 1e-5  # of a polynomial's size, left out to enclose the rest at fewer nodes
_ROUNDING = 1e-11  # of the coefficients' sizes: far above their floats' error


@dataclass(frozen=True, eq=False)
class Series:
    """``b(y) M`` in Chebyshev polynomials of y, cut where hardly anything is left of them.

    `coefficients` (degree + 1, columns) are those of ``cos(a theta)``, ``y = (1 - cos theta) / 2``;
    `norm` and `tail` bound ``sup_y sum_j |(b(y) M)_j|``, and that of what is cut off.
    """

    coefficients: FloatArray
    norm: float
    tail: float

    @classmethod
    def of(cls, k: int, matrix: FloatArray, cut: float = CUT, mirrored: bool = False) -> Series:
        """Interpolate in k + 1 nodes, where ``b(y) M`` is exact but for rounding.

        What is left out is `cut` times the norm, or hardly more. By parity: half of the work.
        `mirrored`: M is half of a matrix that is the same in reverse, and is cut where that is.
        """
        of_even, of_odd = _cosines(k + 1, k)
        basis = by_parity(bernstein_basis((1 - of_odd[:, 0]) / 2, k), k + 1)
        even, odd = (rows @ half for rows, half in zip(basis, parities(matrix), strict=True))
        values, half = of_parities(even, odd), len(odd)
        of_even[:half] *= math.sqrt(2)
        coefficients = np.empty((k + 1, matrix.shape[1]))
        coefficients[::2] = of_even.T @ even * (2 / (k + 1))
        coefficients[1::2] = of_odd[:half].T @ odd * (math.sqrt(8) / (k + 1))
        coefficients[0] /= 2
        tails = np.cumsum(np.abs(coefficients).sum(axis=1)[::-1])[::-1]  # of degree a and beyond
        norm, largest = float(tails[0]), _sizes(values, mirrored).max() / (1 + mirrored)
        degree = max(1, int(np.argmax(np.append(tails, 0.0) <= cut * largest)) - 1)
        left_out = float(tails[degree + 1]) if degree < k else 0.0
        return cls(coefficients[: degree + 1], norm, left_out + _ROUNDING * norm)

    def at_nodes(self, oversampling: int) -> tuple[FloatArray, float]:
        """Values (nodes, columns) of the cut series, and the factor of `enclosing_nodes`."""
        degree = len(self.coefficients) - 1
        nodes, factor = enclosing_nodes(degree, oversampling)
        return _at_nodes(self.coefficients, len(nodes)), factor

    def at_finer_nodes(self, oversampling: int, finer: int) -> FloatArray:
        """Values (angles, columns), so many angles to a step between nodes of `at_nodes`.

        From a step before the first node to a step after the last: mirrored at the ends.
        """
        degree = len(self.coefficients) - 1
        steps = finer * oversampling * max(degree, 1)  # in half a turn
        turns = 2 * np.arange(-finer, steps + 1) + finer
        angles = turns[:, None] * np.arange(degree + 1) % (4 * steps)
        return np.asarray(np.cos(angles * (np.pi / (2 * steps))) @ self.coefficients)

    def sup_norm(self, oversampling: int = 8) -> float:
        """Bound ``sup_y sum_j |(b(y) M)_j|``: with its largest signs that is a polynomial."""
        values, factor = self.at_nodes(oversampling)
        return factor * float(np.abs(values).sum(axis=1).max()) * (1 + 1e-9) + self.tail


@dataclass(frozen=True, eq=False)
class Hats:
    """A function of y that is linear between k + 1 nodes, as a `Series` is used.

    `matrix` (k + 1, columns) are its values there. It is nowhere larger, so the nodes enclose it.
    """

    matrix: FloatArray
    tail: ClassVar[float] = 0.0

    @cached_property
    def norm(self) -> float:
        """``sup_y sum_j |(hats(y) M)_j|``, convex between nodes; rounded outward."""
        return OUTWARD * float(np.abs(self.matrix).sum(axis=1).max())

    def at_nodes(self, oversampling: int) -> tuple[FloatArray, float]:
        """Values at the nodes, and one; no oversampling is needed."""
        del oversampling
        return self.matrix, 1.0

    def sup_norm(self) -> float:
        """The norm."""
        return self.norm


def excess_between_nodes(
    axes: Sequence[Series | Hats], oversampling: int
) -> Iterator[tuple[float, list[FloatArray]]]:
    """Yield, axis by axis, the excess of a polynomial over its values at nodes.

    A weight, and bases of values (nodes, columns) of which the weight times the largest is the
    axis's part. In angles the nodes of `at_nodes` are ``w = pi / M`` apart on an axis, mirrored at
    its ends. Linear interpolation between them, axis by axis, is nowhere above them, and misses at
    most ``w^2 / 8`` times the largest second derivative along each axis: of smooth ones far less
    than the square of the degree times their size. That is a polynomial of the same degrees in all
    axes, as ``cos(a theta)'' = -a^2 cos(a theta)``, so nodes enclose it.
    """
    values, factors = zip(*[axis.at_nodes(_OVERSAMPLING) for axis in axes], strict=True)
    for turn, (axis, rows) in enumerate(zip(axes, values, strict=True)):
        if isinstance(axis, Hats):
            continue  # nowhere above its nodes
        degree = len(axis.coefficients) - 1
        squares = np.arange(degree + 1.0)[:, None] ** 2
        second = _at_nodes(squares * axis.coefficients, len(rows))
        width = math.pi / (oversampling * degree)
        yield width**2 / 8 * math.prod(factors), [*values[:turn], second, *values[turn + 1 :]]


def _cosines(nodes: int, degree: int) -> tuple[FloatArray, FloatArray]:
    """``cos(a theta)`` of even and odd a at the first half of so many nodes, of exact turns."""
    turns = (2 * np.arange((nodes + 1) // 2)[:, None] + 1) * np.arange(degree + 1) % (4 * nodes)
    even, odd = (np.cos(half * (np.pi / (2 * nodes))) for half in (turns[:, ::2], turns[:, 1::2]))
    return even, odd


def _at_nodes(coefficients: FloatArray, nodes: int) -> FloatArray:
    parts = _cosines(nodes, len(coefficients) - 1)
    even, odd = parts[0] @ coefficients[::2], parts[1] @ coefficients[1::2]
    return np.concatenate([even + odd, (even - odd)[: nodes // 2][::-1]])


def _sizes(values: FloatArray, mirrored: bool) -> FloatArray:
    """Sums of sizes over columns; `mirrored`: with those of the other half, at nodes in reverse."""
    sizes = np.asarray(np.abs(values).sum(axis=1))
    return sizes + sizes[::-1] if mirrored else sizes


@lru_cache(maxsize=64)
def released_sup_norm(k: int, h: int, axis: AxisMap | None) -> float:
    """Bound the sup of an axis's polynomial by the largest of its released values."""
    return released_series(k, h, axis).sup_norm()


@lru_cache(maxsize=16)
def released_series(k: int, h: int, axis: AxisMap | None, cut: float = CUT) -> Series | Hats:
    """Series that multiplies an axis's released values, or hats."""
    if h == INTERPOLATED:
        return Hats(synthesis_matrix(k, h, axis))
    return Series.of(k, synthesis_matrix(k, h, axis), cut)


@lru_cache(maxsize=256)
def lebesgue_constant(k: int, h: int, spectrum: LinearMap | None = None) -> float:
    """Bound the sup of the axis's polynomial by the largest lattice value, within 2 %."""
    if h == INTERPOLATED and spectrum is None:
        return 1.0  # hats are from zero to one, and sum to one
    matrix = evaluation_matrix(k, h, spectrum)
    if spectrum is not None:
        return Series.of(k, matrix).sup_norm()
    half = matrix[:, : k // 2 + 1].copy()  # the other columns have the same values at 1 - y
    half[:, k - k // 2 :] /= 2
    series = Series.of(k, half, mirrored=True)
    values, factor = series.at_nodes(_OVERSAMPLING)
    return factor * float(_sizes(values, True).max()) * (1 + 1e-9) + 2 * series.tail
