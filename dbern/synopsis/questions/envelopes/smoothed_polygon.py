"""Splines around polygons' shares of rows' kernels: docs/intervals.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.synopsis.questions.envelopes.splines import (
    AxisSplines,
    Envelope,
    between_nodes,
    cell_maxima,
    grid,
    grid_fit,
    support_maxima,
)
from dbern.synopsis.questions.polygons import Polygons
from dbern.types import FloatArray

_MIN_ERROR, _MAX_ERROR = 1e-5, 1e-3  # of a share
_MAX_PIECES = 1 << 14
_STEPS_IN_CELL = 4, 32  # of a cell
_ROUNDING = 1e-11


def smoothed_polygon_envelope(
    polygons: Polygons, axes: Sequence[AxisSplines], kernels: Sequence[Kernel], error: float
) -> Envelope:
    """Return the envelopes of the polygons' shares of the kernels of rows, (m, b_1, b_2).

    Numerical integration may miss up to `error` of a share.
    """
    error = min(max(error, _MIN_ERROR), _MAX_ERROR)
    return Envelope.joined(_envelope(rings, axes, kernels, error) for rings in polygons.rings)


def _envelope(
    rings: Sequence[FloatArray],
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
    values, integration_error = _integrated(rings, grids, kernels, error)
    betas, solvers = zip(*fits, strict=True)
    estimate = solvers[0] @ values @ solvers[1].T
    rise = integration_error + _ROUNDING
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
    rings: Sequence[FloatArray],
    grids: Sequence[FloatArray],
    kernels: Sequence[Kernel],
    error: float,
) -> tuple[FloatArray, float]:
    """Integrate kernels at the points of a grid over a region; and bound the error of that."""
    edges = np.concatenate([_oriented(i, rings) for i in range(len(rings))])
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


def _oriented(index: int, rings: Sequence[FloatArray]) -> FloatArray:
    """Edges (m, 2, 2) of a ring, with what counts as inside on their left.

    Rings do not cross: one is within another where an inner point is, if it is smaller.
    """
    sizes = [(abs(_area(ring)), i) for i, ring in enumerate(rings)]
    ring, point = rings[index], _inner(rings[index])
    around = sum(
        size > sizes[index] and _holds(candidate, point)
        for size, candidate in zip(sizes, rings, strict=True)
    )
    outward = (_area(ring) > 0) == (around % 2 == 0)
    return np.stack([*pairwise(ring if outward else ring[::-1])])


def _area(ring: FloatArray) -> float:
    x, y = ring.T
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)


def _crossings(ring: FloatArray, y: float) -> FloatArray:
    a, b = ring[:-1], ring[1:]
    crossing = (a[:, 1] <= y) != (b[:, 1] <= y)
    a, b = a[crossing], b[crossing]
    at = a[:, 0] + (y - a[:, 1]) / (b[:, 1] - a[:, 1]) * (b[:, 0] - a[:, 0])
    return np.asarray(np.sort(at))


def _holds(ring: FloatArray, point: FloatArray) -> bool:
    return bool((_crossings(ring, point[1]) > point[0]).sum() % 2)


def _inner(ring: FloatArray) -> FloatArray:
    """Point inside, in the middle of the widest gap halfway between two corners' heights."""
    heights = np.unique(ring[:, 1])
    if len(heights) < 2:
        return np.asarray(ring[0])
    gaps = np.diff(heights)
    y = float(heights[gaps.argmax()] + gaps.max() / 2)
    intervals = _crossings(ring, y).reshape(-1, 2)
    widest = intervals[(intervals[:, 1] - intervals[:, 0]).argmax()]
    return np.array([float(widest.mean()), y])
