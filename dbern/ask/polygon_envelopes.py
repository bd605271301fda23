"""Splines around polygons of the unit square, sharp and smoothed (docs/intervals.md, "A polygon").

Maps have thousands of small cells along each axis, and each meets the few bins of its cell alone:
sums and values of bins are made cell by cell, by the same weights in each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbern.ask.regions import Parts, Polygons, outline
from dbern.ask.splines import (
    AxisSplines,
    Envelope,
    between_nodes,
    bezier,
    cell_maxima,
    grid,
    grid_fit,
    support_maxima,
)
from dbern.bernstein.kernels import Kernel
from dbern.bernstein.splines import bin_products, local_weights, solve_in_blocks
from dbern.types import BoolArray, FloatArray, Int64Array

_SUBDIVISION = 8  # small cells in a cell, along each axis
_PARTS = 4  # of a cell, along each axis, on which Bezier coefficients prove a sign
_BUMP_RADIUS = 0.75  # cells: less is no spline, more is wider
_REACH = round(_BUMP_RADIUS * _SUBDIVISION)  # small cells
_DAMPING = 0.02  # of the mean square of a bin, for differences of coefficients: noise weighs them
_ROUNDING = 1e-9  # of coefficients from 0 to 1, about
_BATCH_NUMBERS = 1 << 20  # Bezier coefficients
_MARGIN = 1e-12  # of the unit square
_MIN_ERROR, _MAX_ERROR = 1e-5, 1e-3  # of a share
_MAX_PIECES = 1 << 14
_STEPS_IN_CELL = 4, 32  # of a cell
_SMOOTHED_ROUNDING = 1e-11


def polygon_envelope(polygons: Polygons, axes: Sequence[AxisSplines]) -> Envelope:
    """Return the envelopes of the polygons' weights, (m, b_1, b_2)."""
    return Envelope.joined(_envelope(parts, axes) for parts in polygons.regions)


def _envelope(parts: Parts, axes: Sequence[AxisSplines]) -> Envelope:
    counts = [splines.cells * _SUBDIVISION for splines in axes]
    cut, middle = _cut(parts, counts), _inside(parts, counts)
    upper = _majorant(middle | cut, axes)
    lower = 1.0 - _majorant(~middle | cut, axes)
    estimate = (lower + upper) / 2
    integrals: NDArray[Any] = middle
    for splines in axes:
        integrals = _summed(integrals, _local_values(splines.degree), splines.cells).T
    residual = integrals / np.prod(counts) - axes[0].gram @ estimate @ axes[1].gram
    estimate = estimate + axes[0].smoother @ residual @ axes[1].smoother
    return Envelope(lower[None], estimate[None], upper[None])


def _majorant(touched: BoolArray, axes: Sequence[AxisSplines]) -> FloatArray:
    """Coefficients of a spline that is at least 1 where the small cells are touched, or else 0."""
    wide = _widened(_widened(touched).T).T
    coefficients = _smoothed(_smoothed(wide, axes[0]).T, axes[1]).T
    deficit = _deficit(coefficients, touched, axes)
    for axis, splines in enumerate(axes):
        deficit = support_maxima(deficit, splines, axis)
    return np.asarray(coefficients + deficit + _ROUNDING)


def _widened(touched: BoolArray) -> BoolArray:
    """Small cells within `_REACH` of those that are touched, along the first axis."""
    padded = np.pad(touched, [(_REACH, _REACH), (0, 0)])
    shifted = (padded[shift : shift + len(touched)] for shift in range(2 * _REACH + 1))
    return reduce(np.logical_or, shifted)


def _deficit(
    coefficients: FloatArray, touched: BoolArray, axes: Sequence[AxisSplines]
) -> FloatArray:
    """Largest deficit of a spline on each cell: below 1 where small cells are touched, else 0."""
    step = _SUBDIVISION // _PARTS
    shape = [size for splines in axes for size in (splines.cells * _PARTS, step)]
    needed = touched.reshape(shape).any(axis=(1, 3)).astype(float)
    orders, cells = [splines.degree + 1 for splines in axes], axes[0].cells
    across = _on_cells(coefficients.T, orders[1]).reshape(-1, len(coefficients)).T
    batch_cells = max(1, _BATCH_NUMBERS // (across.shape[1] * _PARTS * orders[0]))
    minima = []
    for start in range(0, cells, batch_cells):
        bins = slice(start, min(start + batch_cells, cells) + orders[0] - 1)
        batch = _on_cells(across[bins], orders[0])
        minima.append(batch.reshape(-1, orders[0], needed.shape[1], orders[1]).min(axis=(1, 3)))
    lacking = np.maximum(needed - np.concatenate(minima), 0.0)
    parts = lacking.reshape(cells, _PARTS, axes[1].cells, _PARTS)
    return np.asarray(parts.max(axis=(1, 3)))


def _on_cells(coefficients: FloatArray, order: int) -> FloatArray:
    """Bezier coefficients (cells, parts order, m) of bins (bins, m) on the parts of all cells."""
    windows = np.lib.stride_tricks.sliding_window_view(coefficients, order, axis=0)
    return np.asarray(np.einsum("rj,cmj->crm", _bezier(order - 1), windows, optimize=True))


def _summed(values: NDArray[Any], weights: FloatArray, cells: int) -> FloatArray:
    """Sum values (small cells, m) by the weights (small cells, order) of each cell's bins."""
    order = weights.shape[1]
    sums = np.zeros((cells + order - 1, values.shape[1]))
    for offset, row in enumerate(weights):
        of_cells = values[offset : offset + cells * _SUBDIVISION : _SUBDIVISION]
        for r, weight in enumerate(row):
            sums[r : r + cells] += weight * of_cells
    return sums


def _smoothed(values: NDArray[Any], splines: AxisSplines) -> FloatArray:
    """Coefficients (bins, m) near values (small cells, m), smoothed over `_BUMP_RADIUS`."""
    bump = np.hanning(2 * _REACH + 3)[1:-1]
    local = _local_values(splines.degree).T
    weights = np.stack([np.convolve(column, bump / bump.sum()) for column in local], axis=1)
    around = np.pad(values, [(_REACH, _REACH), (0, 0)], mode="edge")
    return solve_in_blocks(_square(splines), _summed(around, weights, splines.cells))


def _local_values(degree: int) -> FloatArray:
    """Values of a cell's bins at the middles of its small cells: (small cells, order)."""
    offsets = (2 * np.arange(_SUBDIVISION) + 1) / _SUBDIVISION - 1
    return np.stack(local_weights(offsets, degree), axis=1)


@lru_cache(maxsize=8)
def _square(splines: AxisSplines) -> FloatArray:
    """Equations (bins, bins) of least squares at the small cells, of few differences."""
    count = splines.cells * _SUBDIVISION
    middles = (np.arange(count) + 0.5) / count
    empty = np.empty((0, count))
    square, _ = bin_products(middles, np.ones(count), empty, splines.cells, splines.degree)
    steps = np.diff(np.eye(splines.count), axis=0)
    return np.asarray(square + _DAMPING * np.trace(square) / splines.count * steps.T @ steps)


@lru_cache(maxsize=8)
def _bezier(degree: int) -> FloatArray:
    """Bezier coefficients of a cell's bins on its parts: (parts order, order)."""
    cuts = np.linspace(0.0, 1.0, _PARTS + 1)
    return np.concatenate([bezier(degree, *pair) for pair in pairwise(cuts)])


def _cut(parts: Parts, cells: Sequence[int]) -> BoolArray:
    """The cells that an edge touches: along its longer side, cell by cell, between its heights."""
    marks = [np.zeros((n, m + 1), np.int16) for n, m in (cells, cells[::-1])]
    for ring in (ring for rings in parts for ring in rings):
        for a, b in pairwise(ring):
            steep = int(abs(b[0] - a[0]) * cells[0] < abs(b[1] - a[1]) * cells[1])
            order = [steep, 1 - steep]
            _mark(marks[steep], a[order], b[order])
    by_columns, by_rows = (np.cumsum(m[:, :-1], axis=1, dtype=np.int16) > 0 for m in marks)
    return np.asarray(by_columns | by_rows.T)


def _mark(marks: NDArray[np.int16], a: FloatArray, b: FloatArray) -> None:
    """Mark the first cell that an edge touches in each column, and the one after the last."""
    a, b = (a, b) if a[0] <= b[0] else (b, a)
    columns, rows = len(marks), marks.shape[1] - 1
    first, last = _cell_numbers(np.array([a[0] - _MARGIN, b[0] + _MARGIN]), columns)
    sides = np.arange(first, last + 2) / columns
    part = (sides - a[0]).clip(0.0) / max(b[0] - a[0], np.finfo(float).tiny)
    y = a[1] + part.clip(max=1.0) * (b[1] - a[1])
    low = _cell_numbers(np.minimum(y[1:], y[:-1]) - _MARGIN, rows)
    high = _cell_numbers(np.maximum(y[1:], y[:-1]) + _MARGIN, rows)
    column = np.arange(first, last + 1)
    marks[column, low] += 1
    marks[column, high + 1] -= 1


def _cell_numbers(t: FloatArray, count: int) -> Int64Array:
    return np.floor(t * count).astype(np.int64).clip(0, count - 1)


def _inside(parts: Parts, cells: Sequence[int]) -> BoolArray:
    """Whether each cell's middle is left of an odd number of the edges of a part."""
    inside, middles = np.zeros(cells, np.bool_), [(np.arange(n) + 0.5) / n for n in cells]
    for rings in parts:
        corners = np.concatenate(rings)
        ends = np.stack([corners.min(axis=0), corners.max(axis=0)], axis=1)
        around = tuple(
            slice(*np.searchsorted(middle, pair))
            for middle, pair in zip(middles, ends, strict=True)
        )
        x, y = (middle[part] for middle, part in zip(middles, around, strict=True))
        inside[around] |= _enclosed(rings, x, y)
    return inside


def _enclosed(rings: Sequence[FloatArray], x: FloatArray, y: FloatArray) -> BoolArray:
    """Whether an odd number of the rings' edges is to the right of each point of a grid."""
    crossed = np.zeros((len(x) + 1, len(y)), dtype=np.uint8)  # an even number of them is 256
    for ring in rings:
        for a, b in pairwise(ring):
            row = np.flatnonzero((a[1] <= y) != (b[1] <= y))
            if len(row):
                at = a[0] + (y[row] - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
                crossed[np.searchsorted(x, at), row] += 1
    return np.asarray(np.cumsum(crossed[::-1], axis=0, dtype=np.uint8)[-2::-1] % 2 == 1)


def smoothed_polygon_envelope(
    polygons: Polygons, axes: Sequence[AxisSplines], kernels: Sequence[Kernel], error: float
) -> Envelope:
    """Return the envelopes of the polygons' shares of the kernels of rows, (m, b_1, b_2).

    Numerical integration may miss up to `error` of a share.
    """
    error = min(max(error, _MIN_ERROR), _MAX_ERROR)
    return Envelope.joined(
        _smoothed_envelope(parts, axes, kernels, error) for parts in polygons.regions
    )


def _smoothed_envelope(
    parts: Parts,
    axes: Sequence[AxisSplines],
    kernels: Sequence[Kernel],
    error: float,
) -> Envelope:
    grids, fits = [], []
    for splines, kernel in zip(axes, kernels, strict=True):
        steps = math.sqrt(kernel.slope / (2 * error)) / splines.cells
        steps_in_cell = round(np.clip(steps, *_STEPS_IN_CELL))
        grids.append(grid(splines, steps_in_cell))
        fits.append(grid_fit(splines, steps_in_cell))
    values, integration_error = _integrated(parts, grids, kernels, error)
    betas, solvers = zip(*fits, strict=True)
    estimate = solvers[0] @ values @ solvers[1].T
    rise = integration_error + _SMOOTHED_ROUNDING
    for axis, (splines, kernel) in enumerate(zip(axes, kernels, strict=True)):
        bend = 2 * kernel.slope
        if splines.degree > 1:
            bend += splines.cells**2 * float(np.abs(np.diff(estimate, n=2, axis=axis)).max())
        rise += between_nodes(grids[axis][1], bend)
    residual = values - betas[0] @ estimate @ betas[1].T
    upper, lower = (_over_supports(excess, axes) + rise for excess in (residual, -residual))
    return Envelope((estimate - lower)[None], estimate[None], (estimate + upper)[None])


def _over_supports(excess: FloatArray, axes: Sequence[AxisSplines]) -> FloatArray:
    """Largest value on the cells of each bin's support, of values on the grid."""
    largest = np.maximum(excess, 0.0)
    for axis, splines in enumerate(axes):
        largest = support_maxima(cell_maxima(largest, splines, axis), splines, axis)
    return largest


def _integrated(
    parts: Parts,
    grids: Sequence[FloatArray],
    kernels: Sequence[Kernel],
    error: float,
) -> tuple[FloatArray, float]:
    """Integrate kernels at the points of a grid over a region; and bound the error of that."""
    edges = outline(parts)
    vectors = edges[:, 1] - edges[:, 0]
    lengths = np.maximum(np.hypot(*vectors.T), 1e-300)
    x, y = np.abs(vectors.T) / lengths
    first, second = kernels
    # Of f for a unit of length, times the share of a length that is upward.
    bends = x**2 * first.slope * second.peak + 2 * x * y * first.peak * second.slope
    bends += y**2 * second.curvature / 2
    loose = 3 / 8 * second.jumps * float((y**2).sum()) * second.slope  # three kinks, J / 2 at most
    scale = float((bends * y * lengths).sum()) / 24 + loose + 1e-300
    longest = max(math.sqrt(error / scale), float(lengths.sum()) / _MAX_PIECES)
    counts = np.ceil(lengths / longest).astype(np.int64)
    edge = np.repeat(np.arange(len(edges)), counts)
    piece = np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)
    points = edges[edge, 0] + ((piece + 0.5) / counts[edge])[:, None] * vectors[edge]
    upward = vectors[edge, 1] / counts[edge]
    across = first.cumulative(points[:, 0] - grids[0][:, None]) - 0.5
    integrals = across @ (second(points[:, 1, None] - grids[1]) * upward[:, None])
    return integrals, scale * longest**2
