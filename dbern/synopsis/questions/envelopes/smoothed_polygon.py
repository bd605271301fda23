"""Splines around polygons' shares of rows' kernels: docs/intervals.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
from dbern.synopsis.questions.polygons import Parts, Polygons, outline
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
    return Envelope.joined(_envelope(parts, axes, kernels, error) for parts in polygons.regions)


def _envelope(
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
