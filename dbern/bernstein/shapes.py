"""Enclose the values, the mean and the positive part's mean of a function, from its coefficients.

Of polynomials these are Bernstein coefficients. `linear` functions are linear, axis by axis,
between values at equal steps, and nowhere beyond the largest of them.

Integral of the positive part
-----------------------------
On a cell with mean m and mean square s, Jensen's inequality gives ``|m| <= mean |p| <= sqrt(s)``,
so ``mean max(p, 0) = (mean |p| + m) / 2`` is between ``max(m, 0)`` and that plus
``(sqrt(s) - |m|) / 2``. m and s come from a quadrature that is exact for the degree of p squared.
A linear function is a mean of the values at a cell's corners, each with an equal weight over the
cell, and the positive part is convex: its mean is at most that of the corners' positive parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.blocks import apply_to_axes
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD
from dbern.types import FloatArray

_MOST_VALUES = 1 << 22  # numbers in an array
_CELLS = 1 << 22


def value_range(bernstein: FloatArray, *, linear: bool = False) -> tuple[float, float]:
    """Enclose the values of a function on the unit cube, from its coefficients.

    Values at the enclosing nodes bound ``|p - middle|``, as p less a constant is a polynomial of
    the same degree; and p is never outside the range of its coefficients.
    """
    low, high = float(bernstein.min()), float(bernstein.max())
    if linear:
        return low, high
    for oversampling in (8, 4, 3, 2):
        enclosing = [enclosing_nodes(count - 1, oversampling) for count in bernstein.shape]
        nodes, factors = zip(*enclosing, strict=True)
        if math.prod(map(len, nodes)) <= _MOST_VALUES:
            break
    else:
        return low, high
    values = apply_to_axes(bernstein, _bases(nodes, bernstein.shape))
    middle = float(values.max() + values.min()) / 2
    half = OUTWARD * math.prod(factors) * float(values.max() - values.min()) / 2
    return max(low, middle - half), min(high, middle + half)


def mean(bernstein: FloatArray, *, linear: bool = False) -> float:
    """Return the mean over the unit cube: all coefficients of a polynomial weigh the same."""
    return float((_cell_averages(bernstein) if linear else bernstein).mean())


def positive_mean(bernstein: FloatArray, *, linear: bool = False) -> tuple[float, float]:
    """Mean of ``max(p, 0)`` over the unit cube: a lower bound, and how far above it may be.

    Cells of a regular grid, by Jensen's inequality.
    """
    if linear:
        lower = float(np.maximum(_cell_averages(bernstein), 0.0).mean())
        upper = float(_cell_averages(np.maximum(bernstein, 0.0)).mean())
        return lower, OUTWARD * max(0.0, upper - lower)
    dimensions = bernstein.ndim
    cells = min(1 << 12, math.floor(_CELLS ** (1 / dimensions)))
    nodes, averages = zip(*(_cell_means(n - 1, cells) for n in bernstein.shape), strict=True)
    means, squares = np.zeros((cells,) * dimensions), np.zeros((cells,) * dimensions)
    bases = _bases(nodes, bernstein.shape)
    rows = max(1, _MOST_VALUES // math.prod(map(len, nodes[1:])))
    for first in range(0, len(nodes[0]), rows):  # layers of nodes, so that memory stays bounded
        layers = slice(first, first + rows)
        values = apply_to_axes(bernstein, [bases[0][layers], *bases[1:]])
        maps = [averages[0][:, layers], *averages[1:]]
        means += apply_to_axes(values, maps)
        squares += apply_to_axes(values**2, maps)
    gaps = np.sqrt(np.maximum(squares, means**2)) - np.abs(means)
    return float(np.maximum(means, 0.0).mean()), OUTWARD * float(gaps.mean()) / 2


def _cell_averages(values: FloatArray) -> FloatArray:
    """Means of the corners of each cell of a lattice."""
    for axis in range(values.ndim):
        values = np.moveaxis(values, axis, 0)
        values = np.moveaxis((values[1:] + values[:-1]) / 2, 0, axis)
    return values


@lru_cache(maxsize=4)  # axes mostly share it, and so do orders
def _cell_means(degree: int, cells: int) -> tuple[FloatArray, FloatArray]:
    """Nodes of [0, 1], and the map from values there to means over equal cells.

    Exact for twice the degree: Gauss nodes give the Legendre series, whose terms integrate to
    ``(P_{n+1} - P_{n-1}) / (2n+1)``.
    """
    exact_degree = 2 * degree
    from scipy.special import roots_legendre

    nodes, weights = roots_legendre(exact_degree + 1)
    series = np.polynomial.legendre.legvander(nodes, exact_degree) * weights[:, None] / 2
    at_edges = np.polynomial.legendre.legvander(np.linspace(-1.0, 1.0, cells + 1), exact_degree + 1)
    integrals = np.column_stack([at_edges[:, 1], at_edges[:, 2:] - at_edges[:, :-2]])
    means = np.diff(integrals, axis=0) * cells / 2
    positions, averages = (nodes + 1) / 2, means @ series.T
    positions.setflags(write=False)
    averages.setflags(write=False)
    return positions, averages


def _bases(nodes: Sequence[FloatArray], shape: Sequence[int]) -> list[FloatArray]:
    return [bernstein_basis(y, count - 1) for y, count in zip(nodes, shape, strict=True)]
