"""A regular grid over the whole domain: its axes, a function on it, and its labels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.combination import Combination
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError
from dbern.synopsis.arrays import ReleasedArray, ReleasedVector, Smoothing
from dbern.system import memory_limit, memory_used
from dbern.types import FloatArray

if TYPE_CHECKING:
    import xarray

_BLOCK_POINTS = 1 << 16
"""Of a grid, for which several arrays are combined at a time."""

_WORK_BYTES = 64 << 20
"""What evaluating takes besides what grows with the grid: `evaluate_grid`, and blocks."""


def grid_axes(
    shape: Sequence[int] | int,
    domain: Domain,
    numbers: int = 1,
    arrays: Sequence[ReleasedArray | ReleasedVector] = (),
) -> list[FloatArray]:
    """Positions in [0, 1] along each axis, ends included.

    Parameters
    ----------
    numbers : int
        How many are held of each point.
    arrays : sequence
        What is evaluated whole, and takes memory of its own.

    Raises
    ------
    SpecError
        For a shape that is not one count of at least 2 for each axis, or that needs more memory
        than this process may still use: values, coordinates and what evaluating takes.

    Examples
    --------
    >>> from dbern.data.domain import Axis
    >>> grid_axes(3, Domain((Axis("x", 0, 9),)))
    [array([0. , 0.5, 1. ])]
    """
    given: list[Any] = (
        list(shape) if isinstance(shape, list | tuple) else [shape] * domain.dimensions
    )
    whole = all(isinstance(count, int | np.integer) and count >= 2 for count in given)
    if len(given) != domain.dimensions or not whole:
        names = ", ".join(domain.names)
        raise SpecError(f"grid shape {shape}: write a count of at least 2 for each of {names}")
    counts = list(map(int, given))
    points = math.prod(counts)
    # A position becomes a coordinate, and there are up to two more of it while one is made.
    needed = 8 * points * numbers + 24 * sum(counts) + min(_WORK_BYTES, 64 * points * numbers)
    needed += sum(array.grid_bytes(counts) for array in arrays)
    offered = max(0, memory_limit() - memory_used())
    if needed > offered:
        raise SpecError(
            f"grid shape {shape}: {points} points need {needed >> 20} MiB, and this process may "
            f"use {offered >> 20} more; write smaller counts, or ask for parts of it by "
            "iter_batches"
        )
    return [np.linspace(0.0, 1.0, count) for count in counts]


def values_on_grid(
    shape: Sequence[int] | int,
    domain: Domain,
    arrays: Sequence[ReleasedArray | ReleasedVector],
    smoothings: Sequence[Smoothing],
    combination: Combination,
) -> tuple[FloatArray, list[FloatArray]]:
    """The function on a grid, the classes last if there are any, and the positions of its axes.

    One array is evaluated whole, in little more memory than its values. Several are combined by
    blocks, unless they are so large that their shards would be read again for each.

    Raises
    ------
    SpecError
        As `grid_axes`.
    """

    def evaluate(axes: Sequence[FloatArray]) -> FloatArray:
        parts = [
            on_grid(array, domain, axes, smoothing)
            for array, smoothing in zip(arrays, smoothings, strict=True)
        ]
        mesh = combination.of_points
        points = np.stack(np.meshgrid(*axes, indexing="ij"), -1) if mesh else None
        return combination.values(parts, points)

    columns = (len(combination.classes),) if combination.several else ()
    values = math.prod(columns)
    if combination.kind == "linear" and not combination.of_points:
        unit = grid_axes(shape, domain, 1, arrays)
        return evaluate(unit), unit
    if any(isinstance(array, ReleasedArray) and array.large for array in arrays):
        unit = grid_axes(shape, domain, len(arrays) + 3 * values, arrays)
        return evaluate(unit), unit
    unit = grid_axes(shape, domain, values)
    return _in_blocks(unit, evaluate, columns), unit


def _in_blocks(
    unit: Sequence[FloatArray],
    evaluate: Callable[[Sequence[FloatArray]], FloatArray],
    columns: tuple[int, ...],
) -> FloatArray:
    """Values on the grid of some axes, evaluated by blocks that are long in the last ones."""
    found = np.empty((*(len(axis) for axis in unit), *columns))
    sizes, room = [], _BLOCK_POINTS
    for axis in reversed(unit):
        sizes.append(min(len(axis), room))
        room //= sizes[-1]
    steps = [
        [slice(start, start + size) for start in range(0, len(axis), size)]
        for axis, size in zip(unit, reversed(sizes), strict=True)
    ]
    for place in itertools.product(*steps):
        found[place] = evaluate([axis[part] for axis, part in zip(unit, place, strict=True)])
    return found


def on_grid(
    array: ReleasedArray | ReleasedVector,
    domain: Domain,
    unit: Sequence[FloatArray],
    smoothing: Smoothing,
) -> FloatArray:
    """An array's values on the grid of all axes, constant along those it does not have."""
    if isinstance(array, ReleasedVector):
        return array.entries
    own = [unit[domain.names.index(axis)] for axis in array.axes]
    values = array.on_grid(own, smoothing)
    missing = [i for i, name in enumerate(domain.names) if name not in array.axes]
    if not missing:
        return values
    shape = tuple(len(positions) for positions in unit)
    return np.broadcast_to(np.expand_dims(values, missing), shape)


def coordinates(axis: Axis, positions: FloatArray) -> FloatArray:
    """The positions themselves, made coordinates in data units."""
    for start in range(0, len(positions), _BLOCK_POINTS):
        part = slice(start, start + _BLOCK_POINTS)
        positions[part] = axis.at(positions[part])
    return positions


def labelled(
    values: FloatArray,
    domain: Domain,
    unit: Sequence[FloatArray],
    classes: Sequence[Any],
    name: str,
) -> xarray.DataArray:
    """Values on the grid, the classes last if there are any, with coordinates in data units."""
    import xarray

    dims, labels = [*domain.names], dict[str, Any]()
    for axis, positions in zip(domain.axes, unit, strict=True):
        labels[axis.name] = (axis.name, coordinates(axis, positions), axis.attributes)
    if classes:
        dims, labels["class"] = [*dims, "class"], list(classes)
    return xarray.DataArray(values, coords=labels, dims=dims, name=name)
