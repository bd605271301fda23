"""Splines around polygons of the unit square (docs/intervals.md, "A polygon")."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from dbern.synopsis.questions.envelopes.splines import (
    AxisSplines,
    Envelope,
    bezier,
    support_maxima,
)
from dbern.synopsis.questions.polygons import Parts, Polygons, side
from dbern.types import BoolArray, FloatArray

_SUBDIVISION = 8  # small cells in a cell, along each axis
_PARTS = 4  # of a cell, along each axis, on which Bezier coefficients prove a sign
_BUMP_RADIUS = 0.75  # cells: less is no spline, more is wider
_DAMPING = 0.02  # of the mean square of a bin, for differences of coefficients: noise weighs them
_ROUNDING = 1e-9  # of coefficients from 0 to 1, about
_BATCH_NUMBERS = 1 << 20  # Bezier coefficients
_MARGIN = 1e-12  # of the unit square


def polygon_envelope(polygons: Polygons, axes: Sequence[AxisSplines]) -> Envelope:
    """Return the envelopes of the polygons' weights, (m, b_1, b_2)."""
    return Envelope.joined(_envelope(parts, axes) for parts in polygons.regions)


def _envelope(parts: Parts, axes: Sequence[AxisSplines]) -> Envelope:
    counts = [splines.cells * _SUBDIVISION for splines in axes]
    cut = np.any([_cut(rings, counts) for rings in parts], axis=0)
    middle = np.any([_inside(rings, counts) for rings in parts], axis=0)
    upper = _majorant(middle | cut, axes)
    lower = 1.0 - _majorant(~middle | cut, axes)
    first, second = (_values(splines) / splines.cells / _SUBDIVISION for splines in axes)
    estimate = (lower + upper) / 2
    residual = first.T @ middle @ second - axes[0].gram @ estimate @ axes[1].gram
    estimate = estimate + axes[0].smoother @ residual @ axes[1].smoother
    return Envelope(lower[None], estimate[None], upper[None])


def _majorant(touched: BoolArray, axes: Sequence[AxisSplines]) -> FloatArray:
    """Coefficients of a spline that is at least 1 where the small cells are touched, or else 0."""
    reach = round(_BUMP_RADIUS * _SUBDIVISION)
    wide = touched
    for axis in (0, 1):
        padded = np.pad(wide, [(reach, reach) if i == axis else (0, 0) for i in (0, 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1, axis=axis)
        wide = np.asarray(windows.any(axis=-1))
    first, second = (_smoothing(splines) for splines in axes)
    coefficients = first @ wide @ second.T
    deficit = _deficit(coefficients, touched, axes)
    for axis, splines in enumerate(axes):
        deficit = support_maxima(deficit, splines, axis)
    return np.asarray(coefficients + deficit + _ROUNDING)


def _deficit(
    coefficients: FloatArray, touched: BoolArray, axes: Sequence[AxisSplines]
) -> FloatArray:
    """Largest deficit of a spline on each cell: below 1 where small cells are touched, else 0."""
    step = _SUBDIVISION // _PARTS
    shape = [size for splines in axes for size in (splines.cells * _PARTS, step)]
    needed = touched.reshape(shape).any(axis=(1, 3)).astype(float)
    first, second = (_bezier(splines) for splines in axes)
    across, sizes = coefficients @ second.T, [splines.degree + 1 for splines in axes]
    rows = max(1, _BATCH_NUMBERS // (sizes[0] * len(second))) * sizes[0]
    minima = []
    for start in range(0, len(first), rows):
        batch = first[start : start + rows] @ across
        minima.append(batch.reshape(-1, sizes[0], len(needed[0]), sizes[1]).min(axis=(1, 3)))
    lacking = np.maximum(needed - np.concatenate(minima), 0.0)
    parts = lacking.reshape(axes[0].cells, _PARTS, axes[1].cells, _PARTS)
    return np.asarray(parts.max(axis=(1, 3)))


def _values(splines: AxisSplines) -> FloatArray:
    """Values of the bins at the middles of the small cells: (middles, bins)."""
    count = splines.cells * _SUBDIVISION
    return splines.values((np.arange(count) + 0.5) / count)


@lru_cache(maxsize=8)
def _smoothing(splines: AxisSplines) -> FloatArray:
    """Matrix from values at the small cells to coefficients, smoothed over `_BUMP_RADIUS`."""
    values, reach = _values(splines), round(_BUMP_RADIUS * _SUBDIVISION)
    square, steps = values.T @ values, np.diff(np.eye(splines.count), axis=0)
    square += _DAMPING * np.trace(square) / splines.count * steps.T @ steps
    bump = np.hanning(2 * reach + 3)[1:-1]
    blurred = np.zeros((len(values), len(values)))
    for shift, weight in zip(range(-reach, reach + 1), bump / bump.sum(), strict=True):
        columns = np.clip(np.arange(len(values)) + shift, 0, len(values) - 1)
        blurred[np.arange(len(values)), columns] += weight
    return np.asarray(np.linalg.solve(square, values.T @ blurred))


@lru_cache(maxsize=8)
def _bezier(splines: AxisSplines) -> FloatArray:
    """Bezier coefficients of the bins on the parts of all cells: (cells parts (p + 1), bins)."""
    cuts = np.linspace(0.0, 1.0, _PARTS + 1)
    parts = np.concatenate([bezier(splines.degree, *pair) for pair in pairwise(cuts)])
    matrix = np.zeros((splines.cells, len(parts), splines.count))
    for cell in range(splines.cells):
        matrix[cell, :, cell : cell + splines.degree + 1] = parts
    return matrix.reshape(-1, splines.count)


def _cut(rings: Sequence[FloatArray], cells: Sequence[int]) -> BoolArray:
    """The cells that an edge touches: their boxes meet, and corners are not all on one side."""
    touched = np.zeros(cells, dtype=np.bool_)
    counts = np.array(cells)
    for ring in rings:
        for a, b in pairwise(ring):
            low = np.floor((np.minimum(a, b) - _MARGIN) * counts).astype(int).clip(0, counts - 1)
            high = np.floor((np.maximum(a, b) + _MARGIN) * counts).astype(int).clip(0, counts - 1)
            x, y = (np.arange(low[i], high[i] + 2) / counts[i] for i in (0, 1))
            corners = side(a, b, np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1))
            four = np.stack([corners[i : len(x) - 1 + i, j : len(y) - 1 + j]
                             for i in (0, 1) for j in (0, 1)])  # fmt: skip
            crossed = (four.min(axis=0) <= _MARGIN) & (four.max(axis=0) >= -_MARGIN)
            touched[low[0] : high[0] + 1, low[1] : high[1] + 1] |= crossed
    return touched


def _inside(rings: Sequence[FloatArray], cells: Sequence[int]) -> BoolArray:
    """Whether an odd number of edges is to the right of each cell's middle."""
    x, y = ((np.arange(count) + 0.5) / count for count in cells)
    crossed = np.zeros((cells[0] + 1, cells[1]), dtype=np.int64)
    for ring in rings:
        for a, b in pairwise(ring):
            row = np.flatnonzero((a[1] <= y) != (b[1] <= y))
            if len(row):
                at = a[0] + (y[row] - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
                crossed[np.searchsorted(x, at), row] += 1
    return np.asarray(np.cumsum(crossed[::-1], axis=0)[-2::-1] % 2 == 1)
