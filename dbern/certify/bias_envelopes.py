"""Splines above what a release of bins misses: one table, from which all promises are read.

A release of unsigned bins misses ``int r_y(t) dD(t)`` of the records D (`bin_errors`). B-splines
are nonnegative and sum to one, so with any ``e_j >= sup |r_y|`` over the support of beta_j,
``|r_y(t)| <= sum_j e_j beta_j(t)``, and for **every** database D, whatever the matrix A, the order
or the rank,

    ``|F(y) - sum_j a_j(y) c_j| <= sum_j e_j c_j``.

The right side is small where records are few. Records of weights w in [-1, 1] obey it too with c
of the bins that count each of these records once: ``|int w r_y dD| <= int |r_y| dD``. With e_j(I) a
bound over all y of a public cell I the table is read

- at the worst point mass: no database misses more (`largest_errors`, of the bounds on boxes that
  the splines are raised to: splines above those would be up to 15 % above);
- at records that are evenly spread (`even_error`), which a plan expects;
- at the released bins, for the data at hand (`weighed`, `norms`; `dbern.synopsis.array_bands`).

*Closer than over supports.* Whatever u_j are, let v be 0 or by how much ``|r_y|`` exceeds ``sum_j
u_j beta_j`` on a cell of the bins; as B-splines sum to one, ``e_j = u_j + max v`` over the support
of beta_j will do. With u_j the largest ``|r_y|`` within half a cell of the middle of beta_j, v is
small: e is half as large again as the least spline above ``|r_y|`` where u = 0, a tenth with it. K
itself is at most ``sum_j (max_I a_j + e_j) beta_j``, of which supports make twice too much.

*More axes.* With splines ``kappa >= K`` and ``rho >= |r|`` on an axis for y in I, of coefficients
that may be negative, ``prod K_i - prod (K_i - r_i)`` is at most ``prod (kappa_i + rho_i) - prod
kappa_i`` in size: a polynomial in K_i and ``|r_i|``, all of whose coefficients are positive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dbern.bernstein.basis import INTERPOLATED, with_mirrored
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.splines import local_weights
from dbern.certify.bin_errors import FLOATS, ROWS, BinErrors, distances
from dbern.certify.interpolated_errors import InterpolatedErrors
from dbern.reconstruct.bins import AxisBins
from dbern.types import FloatArray

MOST_AXES = 3
"""With more, bounds multiply beyond use, and cells are too many."""

_MOST_CELLS, _CELLS_A_BIN = 1 << 20, 2  # of y, on all axes together
_CELLS_A_DEVIATION, _OF_KINKS = 8, 24
_FEWEST_CELLS = 128  # of y on one axis, where wide bins miss more than noise
_OFFSETS = np.linspace(-1, 1, 129)[1::2]  # in a cell, to average a bin over


@dataclass(frozen=True, eq=False)
class BiasEnvelope:
    """Coefficients of splines on one axis, for y in each public cell, at every t.

    Rows (cells, bins): of `kernel` kappa, whose spline is at least K(y - t), and of `error` rho,
    whose spline is at least ``|r_y(t)|``.
    """

    kernel: FloatArray
    error: FloatArray


@lru_cache(maxsize=16)
def _axis_envelope(
    kernel: Kernel, k: int, h: int, bins: AxisBins, counted: tuple[int, int], cells: int
) -> BiasEnvelope:
    """Bound K and the error of a release by `bins`, on so many equal cells of y.

    `counted` has the cells and degree of the bins that count the records, which may be others.
    """
    boxes = _bin_errors(kernel, k, h, bins, cells)
    kappa = _kernel_maxima(kernel, counted, cells)
    if counted != (bins.cells, bins.degree):
        error = _over_supports(boxes.bounds.max(axis=2), counted)
        return BiasEnvelope(kappa, with_mirrored(error, cells))
    halves = boxes.bounds.reshape(len(boxes.bounds), -1)
    left = 2 * np.arange(bins.rank) - bins.degree
    left, right = (np.clip(half, 0, halves.shape[1] - 1) for half in (left, left + 1))
    about = np.maximum(halves[:, left], halves[:, right])
    error = about + _over_supports(boxes.missed(about).max(axis=2), counted)
    closer = with_mirrored(boxes.highest() + error + boxes.floats, cells)
    smaller = np.abs(closer).sum(axis=1) < kappa.sum(axis=1)
    return BiasEnvelope(np.where(smaller[:, None], closer, kappa), with_mirrored(error, cells))


def bias_envelopes(
    kernels: Sequence[Kernel],
    k: Sequence[int],
    h: Sequence[int],
    bins: Sequence[AxisBins],
    counted: Sequence[AxisBins],
    *,
    finest: bool = True,
) -> list[BiasEnvelope]:
    """Return the envelopes of the axes, on public cells of half a bin, or parts of it on one axis.

    They are for records in the `counted` bins. Not `finest`: no more cells than `_enough_cells`.
    """
    whole, envelopes = int(_MOST_CELLS ** (1 / len(kernels))), []
    for kernel, degree, order, axis, counting in zip(kernels, k, h, bins, counted, strict=True):
        most = whole if finest else min(whole, _enough_cells(kernel))
        cells = _CELLS_A_BIN * max(axis.cells, counting.cells)
        if finest and len(kernels) == 1:
            cells *= max(1, -(-_FEWEST_CELLS // cells))
        cells = min(most, cells)
        counts = counting.cells, counting.degree
        envelopes.append(_axis_envelope(kernel, degree, order, axis.narrow, counts, cells))
    return envelopes


def _enough_cells(kernel: Kernel) -> int:
    """Number of cells of y that a plan looks at, where bins are much narrower than the kernel."""
    return math.ceil((_OF_KINKS if kernel.kinks else _CELLS_A_DEVIATION) / kernel.deviation)


def telescoped(axes: Iterable[tuple[FloatArray | float, FloatArray | float]]) -> FloatArray:
    """``prod (a_i + b_i) - prod a_i`` for every combination of entries of the axes; outward."""
    whole, grown = np.ones(()), np.ones(())
    for size, error in axes:
        whole = np.multiply.outer(whole, size)
        grown = np.multiply.outer(grown, size + error)
    return np.asarray(OUTWARD * (grown - whole) + 2.0**-45 * grown)


def norms(envelopes: Sequence[BiasEnvelope], order: float) -> FloatArray:
    """Bound ``|e(I)|`` in an l_p norm for every cell, by the triangle inequality; l1 exactly."""

    def size(rows: FloatArray) -> FloatArray:
        return np.asarray(OUTWARD * np.linalg.norm(rows, order, axis=1))

    return telescoped((size(axis.kernel), size(axis.error)) for axis in envelopes)


def weighed(values: FloatArray, envelopes: Sequence[BiasEnvelope]) -> FloatArray:
    """Evaluate ``sum_j e_j z_j`` with ``e = prod (kappa_i + rho_i) - prod kappa_i``, telescoped."""
    total: FloatArray | float = 0.0
    for turn in range(len(envelopes)):
        term = values
        for axis, envelope in enumerate(envelopes):
            grown = envelope.kernel if axis > turn else envelope.kernel + envelope.error
            term = np.tensordot(term, envelope.error if axis == turn else grown, axes=(0, 1))
        total = total + term
    return np.asarray(total)


def even_error(envelopes: Sequence[BiasEnvelope], bins: Sequence[AxisBins]) -> float:
    """Return the largest ``sum_j e_j c_j`` where records are evenly spread."""
    axes = []
    for envelope, axis in zip(envelopes, bins, strict=True):
        weights = [weight.mean() for weight in local_weights(_OFFSETS, axis.degree)]
        shares = np.convolve(np.full(axis.cells, 1 / axis.cells), weights)
        axes.append((envelope.kernel @ shares, envelope.error @ shares))
    return float(telescoped(axes).max())


def largest_errors(kernel: Kernel, k: int, h: int, bins: AxisBins) -> FloatArray:
    """Bound ``|r_y(t)|`` by cell of y and piece of t; half of the cells where A is mirrored."""
    cells = min(_CELLS_A_BIN * bins.cells, _enough_cells(kernel))
    whole = _bin_errors(kernel, k, h, bins, cells).bounds
    return whole.reshape(len(whole), -1)


@lru_cache(maxsize=16)
def _bin_errors(
    kernel: Kernel, k: int, h: int, bins: AxisBins, cells: int
) -> BinErrors | InterpolatedErrors:
    """Bounds on the error of a release by bins, on boxes, as its function is made."""
    if h == INTERPOLATED:
        return InterpolatedErrors(kernel, bins, cells)
    return BinErrors.of(kernel, k, h, bins, cells)


def _kernel_maxima(kernel: Kernel, counted: tuple[int, int], cells: int) -> FloatArray:
    """Largest K at the distances of each pair."""
    (of_bins, degree), bins = counted, np.arange(sum(counted))
    low, high = np.maximum(bins - degree, 0) / of_bins, np.minimum(bins + 1, of_bins) / of_bins
    maxima = np.empty((cells, len(bins)))
    for first in range(0, cells, ROWS):
        rows = slice(first, first + ROWS)
        start = np.arange(cells)[rows, None] / cells
        nearest, farthest = distances(start, start + 1 / cells, low, high)
        maxima[rows] = OUTWARD * kernel.largest(nearest, farthest) + FLOATS * kernel.peak
    return maxima


def _over_supports(largest: FloatArray, counted: tuple[int, int]) -> FloatArray:
    """Largest value over the cells that the support of each counting bin meets."""
    (of_bins, degree), cells = counted, largest.shape[1]
    maxima = np.empty((len(largest), of_bins + degree))
    for j in range(of_bins + degree):
        first = max(j - degree, 0) * cells // of_bins
        last = -(-min(j + 1, of_bins) * cells // of_bins)
        maxima[:, j] = largest[:, first:last].max(axis=1)
    return maxima
