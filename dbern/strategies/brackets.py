"""Brackets of a kernel by the bins that a release reads: what it misses, place by place.

A release of unsigned bins answers ``sum_j a_j(y) c_j`` where ``F(y) = int K(y - t) dD(t)`` and
``c_j = int beta_j(t) dD(t)``, so it misses ``int r_y(t) dD(t)`` with ``r_y(t) = K(y - t) - sum_j
a_j(y) beta_j(t)``. The B-splines are nonnegative and sum to one at every t. So with any ``e_j >=
sup |r_y|`` over the support of beta_j, ``|r_y(t)| <= sum_j e_j beta_j(t)``, and for **every**
database D, whatever the matrix A, the order or the rank,

    ``|F(y) - sum_j a_j(y) c_j| <= sum_j e_j c_j``.

The right side is small where records are few. Records of weights w in [-1, 1] obey it too with c
of the bins that count each of these records once: ``|int w r_y dD| <= int |r_y| dD``.

*All y of a public cell I.* e_j(I) is a bound over y in I. Along one axis r is sampled on a grid of
I and of each cell C of the bins. Between two grid points w apart a function f is at most the
larger of its values there and ``w^2 sup |f''| / 8 + w J / 4``, J the sum of the jumps of f'. In y
the sum ``sum_j a_j(y) beta_j(t)`` is a mixture of the a_j, so its second derivative is at most
that of the worst a_j, a polynomial that nodes enclose. In t it is a spline, whose second
derivative is ``g^2 sum_j (a_{j+2} - 2 a_{j+1} + a_j) N_j``, N_j splines of degree p - 2 that sum
to one. A grid in both directions errs by the sum of the two terms.

*More axes.* With ``kappa_j >= K`` and ``rho_j >= |r|`` on an axis for y in I and t in the support,
``prod K_i - prod (K_i - r_i)`` is at most ``prod (kappa_i + rho_i) - prod kappa_i`` in size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dbern.bernstein.basis import bernstein_basis, enclosing_nodes, iterated_matrix
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.strategies.bins import AxisBins, local_weights
from dbern.types import FloatArray

MOST_AXES = 3
"""With more, bounds multiply beyond use, and cells are too many."""

_OVERSAMPLING = 4
_SHARE = 1 / 64  # of the largest error found, that the grid may add
_FINEST = 1e-6  # of the kernel's peak: no grid is finer than that
_COARSE = 4  # steps in a cell of the first grid
_MOST_WORK = 1e9  # values of r on a grid: seconds
_BLOCK = 1 << 21
_MOST_CELLS = 1 << 20  # of y, on all axes together
_CELLS_A_BIN = 2
_FLOATS = 1e-12  # of the largest coefficient: far above what roundings make of it


@dataclass(frozen=True, eq=False)
class AxisBracket:
    """Bounds on one axis for y in each public cell and t in the support of each bin.

    Attributes
    ----------
    kernel, error : array (cells, bins)
        kappa, at least K(y - t); and rho, at least ``|r_y(t)|``.
    """

    kernel: FloatArray
    error: FloatArray


@lru_cache(maxsize=16)
def axis_bracket(
    kernel: Kernel, k: int, h: int, bins: AxisBins, counted: tuple[int, int], cells: int
) -> AxisBracket:
    """Bound K and what a release of `bins` misses of it, on so many equal cells of y.

    Parameters
    ----------
    counted : (int, int)
        Cells and degree of the bins that count the records; they may be others.

    Examples
    --------
    >>> from dbern.bernstein.kernels import Gaussian
    >>> from dbern.strategies.bins import axis_bins
    >>> bins = axis_bins(Gaussian(0.2), k=40, cells=8)
    >>> found = axis_bracket(Gaussian(0.2), 40, 8, bins, (8, 2), cells=16)
    >>> found.error.shape, bool(found.error.max() < 0.1 * found.kernel.max())
    ((16, 10), True)
    """
    coefficients = iterated_matrix(k, h) @ bins.synthesis
    in_y, in_t = _curvatures(kernel, k, coefficients, bins)
    coarse = _Grid(_COARSE, _COARSE)
    rough = float(_errors(kernel, k, coefficients, bins, cells, coarse).max())
    allowed = max(_SHARE * rough, _FINEST * kernel.peak) / 2
    kinks = kernel.slope / allowed if kernel.jumps else 0.0
    grid = _Grid(
        max(_COARSE, math.ceil(max(math.sqrt(in_y / (8 * allowed)), kinks) / cells)),
        max(_COARSE, math.ceil(max(math.sqrt(in_t / (8 * allowed)), kinks) / bins.cells)),
    ).within(_MOST_WORK / (cells * bins.cells))
    largest = _errors(kernel, k, coefficients, bins, cells, grid)
    width_y, width_t = 1 / (cells * grid.in_y), 1 / (bins.cells * grid.in_t)
    largest += (in_y * width_y**2 + in_t * width_t**2) / 8
    if kernel.jumps:
        largest += kernel.slope * (width_y + width_t) * _near_kinks(kernel, cells, bins.cells)
    largest += _FLOATS * (kernel.peak + kernel.slope + float(np.abs(coefficients).max()))
    return AxisBracket(_kernel_maxima(kernel, counted, cells), _over_supports(largest, counted))


def brackets_of(
    kernels: Sequence[Kernel],
    k: Sequence[int],
    h: Sequence[int],
    bins: Sequence[AxisBins],
    counted: Sequence[AxisBins],
) -> list[AxisBracket]:
    """Axis by axis, on public cells of half a bin or so; of the `counted` bins' records."""
    most = int(_MOST_CELLS ** (1 / len(kernels)))
    found = []
    for kernel, degree, order, own, other in zip(kernels, k, h, bins, counted, strict=True):
        cells = min(most, _CELLS_A_BIN * max(own.cells, other.cells))
        shape = (other.cells, other.degree)
        found.append(axis_bracket(kernel, degree, order, own, shape, cells))
    return found


def telescoped(axes: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """``prod (a_i + b_i) - prod a_i`` for every combination of entries of the axes; outward."""
    whole, grown = np.ones(()), np.ones(())
    for size, error in axes:
        whole = np.multiply.outer(whole, size)
        grown = np.multiply.outer(grown, size + error)
    return np.asarray(OUTWARD * (grown - whole) + 2.0**-45 * grown)


def norms(brackets: Sequence[AxisBracket], order: float) -> FloatArray:
    """Bound ``|e(I)|`` in an l_p norm for every cell, by the triangle inequality; l1 exactly."""
    axes = [(_norm(one.kernel, order), _norm(one.error, order)) for one in brackets]
    return telescoped(axes)


def _norm(rows: FloatArray, order: float) -> FloatArray:
    return np.asarray(OUTWARD * np.linalg.norm(rows, ord=order, axis=1))


@dataclass(frozen=True)
class _Grid:
    """Steps in a cell of y, and in one of the bins."""

    in_y: int
    in_t: int

    def within(self, values: float) -> _Grid:
        """The same proportions with so many values a pair of cells, or the coarsest."""
        share = min(1.0, math.sqrt(values / (self.in_y * self.in_t)))
        return _Grid(max(_COARSE, int(share * self.in_y)), max(_COARSE, int(share * self.in_t)))


def _curvatures(
    kernel: Kernel, k: int, coefficients: FloatArray, bins: AxisBins
) -> tuple[float, float]:
    """Bounds on the second derivatives of r in y and in t, off kinks and knots."""
    in_y = in_t = kernel.curvature
    if k > 1:
        nodes, factor = enclosing_nodes(k - 2, _OVERSAMPLING)
        bends = k * (k - 1) * np.diff(coefficients, n=2, axis=0)
        values = bernstein_basis(nodes, k - 2) @ bends if k > 2 else bends
        in_y += factor * float(np.abs(values).max())
    if bins.degree > 1:
        nodes, factor = enclosing_nodes(k, _OVERSAMPLING)
        bends = bernstein_basis(nodes, k) @ np.diff(coefficients, n=2, axis=1)
        in_t += bins.cells**2 * factor * float(np.abs(bends).max())
    return OUTWARD * in_y, OUTWARD * in_t


def _errors(
    kernel: Kernel, k: int, coefficients: FloatArray, bins: AxisBins, cells: int, grid: _Grid
) -> FloatArray:
    """The largest ``|r|`` on the grid, for each cell of y and each of the bins; ends included."""
    offsets = np.linspace(-1.0, 1.0, grid.in_t + 1)
    weights = np.stack(local_weights(offsets, bins.degree))
    first = np.arange(bins.cells)[:, None] + (offsets + 1) / 2
    places = first / bins.cells  # (cells of t, offsets)
    steps = np.linspace(0.0, 1.0, grid.in_y + 1)
    found = np.empty((cells, bins.cells))
    together = max(1, _BLOCK // (len(steps) * bins.cells))
    for start in range(0, cells, together):
        some = np.arange(start, min(start + together, cells))
        y = np.minimum((some[:, None] + steps).reshape(-1) / cells, 1.0)
        weighed = bernstein_basis(y, k) @ coefficients
        largest = np.zeros((len(y), bins.cells))
        for offset in range(len(offsets)):
            error = kernel(y[:, None] - places[:, offset])
            for r in range(bins.degree + 1):
                error -= weights[r, offset] * weighed[:, r : r + bins.cells]
            np.maximum(largest, np.abs(error), out=largest)
        found[some] = largest.reshape(len(some), len(steps), -1).max(axis=1)
    return found


def _near_kinks(kernel: Kernel, cells: int, of_bins: int) -> FloatArray:
    """One for pairs of cells of y and of the bins whose points may be a kink's distance apart."""
    nearest, farthest = _distances(
        cells, np.arange(of_bins) / of_bins, np.arange(1, of_bins + 1) / of_bins
    )
    touched = [(nearest <= kink) & (kink <= farthest) for kink in kernel.kinks]
    return np.asarray(np.any(touched, axis=0), dtype=np.float64)


def _kernel_maxima(kernel: Kernel, counted: tuple[int, int], cells: int) -> FloatArray:
    """K at the least distance, as it falls away from its center."""
    of_bins, degree = counted
    bins = np.arange(of_bins + degree)
    low, high = np.maximum(bins - degree, 0) / of_bins, np.minimum(bins + 1, of_bins) / of_bins
    nearest, _ = _distances(cells, low, high)
    return np.asarray(OUTWARD * kernel(nearest) + _FLOATS * kernel.peak)


def _distances(cells: int, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The least and the largest between a cell of y and an interval, (cells, intervals)."""
    start = np.arange(cells)[:, None] / cells
    stop = start + 1 / cells
    margin = 2.0**-50
    nearest = np.maximum(np.maximum(low - stop, start - high) - margin, 0.0)
    return nearest, np.maximum(stop - low, high - start) + margin


def _over_supports(largest: FloatArray, counted: tuple[int, int]) -> FloatArray:
    """The largest over the cells that the support of each counting bin meets."""
    of_bins, degree = counted
    own = largest.shape[1]
    found = np.empty((len(largest), of_bins + degree))
    for j in range(of_bins + degree):
        first = max(j - degree, 0) * own // of_bins
        last = -(-min(j + 1, of_bins) * own // of_bins)
        found[:, j] = largest[:, first:last].max(axis=1)
    return found
