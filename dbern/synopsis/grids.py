"""A regular grid over the domain or a window: its axes, and a function on it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.synopsis.points import Shape, per_axis
from dbern.synopsis.released import Released
from dbern.synopsis.released_function import ReleasedFunction
from dbern.synopsis.smoothing import Smoothing
from dbern.system import memory_limit, memory_used
from dbern.types import FloatArray

_BLOCK_POINTS = 1 << 16
"""Of a grid, for which several arrays are combined at a time."""

_WORK_BYTES = 64 << 20
"""What evaluating takes besides what grows with the grid: `Polynomial.grid`, and blocks."""


def check_numeric(domain: Domain, purpose: str) -> None:
    """Raise SpecError where an axis is a list of values, which has no positions of a grid."""
    if domain.categorical:
        raise SpecError(
            f"{purpose}: {domain.categorical[0].name} is a list of values. Call the synopsis with "
            "a table of points, or with coordinates of xarray"
        )


def _grid_axes(
    shape: Shape,
    domain: Domain,
    numbers: int,
    arrays: Sequence[Released],
    window: Domain | None,
) -> list[FloatArray]:
    """Return positions in [0, 1] along each axis, ends included: of the domain, or a part of it.

    `numbers` are stored of each point; `arrays` are evaluated whole. Raises SpecError for a shape
    that is not a count of at least 2 for each axis, or that needs more memory than this process may
    still use: values, coordinates and what evaluating takes.
    """
    check_numeric(domain, "grid")
    counts = per_axis(shape, domain.dimensions, 2)
    if counts is None:
        names = ", ".join(domain.names)
        raise SpecError(f"grid shape {shape}: write a count of at least 2 for each of {names}")
    points = math.prod(counts)
    # A position becomes a coordinate, and there are up to two more of it while one is made.
    needed = 8 * points * numbers + 24 * sum(counts) + min(_WORK_BYTES, 64 * points * numbers)
    needed += sum(array.grid_bytes(counts) for array in arrays)
    offered = max(0, memory_limit() - memory_used())
    if needed > offered:
        raise SpecError(
            f"grid shape {shape}: {points} points need {needed >> 20} MiB, and this process may "
            f"use {offered >> 20} more. Write smaller counts, or ask for parts of it by "
            "iter_batches"
        )
    positions = [np.linspace(0.0, 1.0, count) for count in counts]
    if window is None:
        return positions
    return [
        np.clip((window_axis.at(axis_positions) - axis.low) / axis.width, 0.0, 1.0)
        for axis_positions, window_axis, axis in zip(
            positions, window.axes, domain.axes, strict=True
        )
    ]


def values_on_grid(
    function: ReleasedFunction,
    shape: Shape,
    smoothings: Sequence[Smoothing],
    window: Domain | None = None,
) -> FloatArray:
    """Evaluate the function on a grid over the domain or a part of it, classes last.

    One array is evaluated whole, in little more memory than its values. Several are combined by
    blocks, unless they are so large that their shards would be read again for each. Raises
    SpecError for a shape that is none, or that needs more memory than there is.
    """
    domain, arrays, combination = function.domain, function.arrays, function.combination

    def evaluate(axes: Sequence[FloatArray]) -> FloatArray:
        parts = [
            _on_grid(array, domain, axes, smoothing)
            for array, smoothing in zip(arrays, smoothings, strict=True)
        ]
        mesh = combination.of_points
        points = np.stack(np.meshgrid(*axes, indexing="ij"), -1) if mesh else None
        return combination.values(parts, points)

    columns = function.answer_shape("value")
    values = math.prod(columns)
    if combination.is_array:
        return evaluate(_grid_axes(shape, domain, 1, arrays, window))
    if any(array.large for array in arrays):
        return evaluate(_grid_axes(shape, domain, len(arrays) + 3 * values, arrays, window))
    return _in_blocks(_grid_axes(shape, domain, values, (), window), evaluate, columns)


def _in_blocks(
    axis_positions: Sequence[FloatArray],
    evaluate: Callable[[Sequence[FloatArray]], FloatArray],
    columns: tuple[int, ...],
) -> FloatArray:
    """Evaluate the grid of some axes by blocks that are long in the last ones."""
    values = np.empty((*(len(axis) for axis in axis_positions), *columns))
    sizes, room = [], _BLOCK_POINTS
    for axis in reversed(axis_positions):
        sizes.append(min(len(axis), room))
        room //= sizes[-1]
    slices = [
        [slice(start, start + size) for start in range(0, len(axis), size)]
        for axis, size in zip(axis_positions, reversed(sizes), strict=True)
    ]
    for block in itertools.product(*slices):
        values[block] = evaluate(
            [axis[steps] for axis, steps in zip(axis_positions, block, strict=True)]
        )
    return values


def _on_grid(
    array: Released, domain: Domain, grid_positions: Sequence[FloatArray], smoothing: Smoothing
) -> FloatArray:
    """Return an array's values on the grid of all axes, constant along those it does not have."""
    axis_positions = [grid_positions[domain.names.index(axis)] for axis in array.axes]
    values = array.on_grid(axis_positions, smoothing)
    missing = [i for i, name in enumerate(domain.names) if name not in array.axes]
    if not missing or not axis_positions:  # a vector has no axes
        return values
    shape = tuple(len(positions) for positions in grid_positions)
    return np.broadcast_to(np.expand_dims(values, missing), shape)
