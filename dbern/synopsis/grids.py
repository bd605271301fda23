"""A regular grid over the whole domain: its axes, what an array is on it, and its labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.arrays import FloatArray
from dbern.domain import Domain
from dbern.errors import SpecError
from dbern.limits import memory_limit
from dbern.synopsis.released import ReleasedArray, ReleasedVector
from dbern.synopsis.selection import Smoothing

if TYPE_CHECKING:
    import xarray


def grid_axes(shape: Sequence[int] | int, domain: Domain, arrays: int) -> list[FloatArray]:
    """Positions in [0, 1] along each axis, ends included, for a function of so many arrays.

    Raises
    ------
    SpecError
        For a shape that is not one count of at least 2 for each axis, or whose values alone need
        more memory than this process may use.

    Examples
    --------
    >>> from dbern.domain import Axis
    >>> grid_axes(3, Domain((Axis("x", 0, 9),)), 1)
    [array([0. , 0.5, 1. ])]
    """
    counts: list[Any] = (
        list(shape) if isinstance(shape, list | tuple) else [shape] * domain.dimensions
    )
    whole = all(isinstance(count, int | np.integer) and count >= 2 for count in counts)
    if len(counts) != domain.dimensions or not whole:
        names = ", ".join(domain.names)
        raise SpecError(f"grid shape {shape}: write a count of at least 2 for each of {names}")
    points = math.prod(map(int, counts))
    needed, offered = 8 * points * (arrays + 1), memory_limit()
    if needed > offered:
        raise SpecError(
            f"grid shape {shape}: {points} points need {needed >> 20} MiB, and this process may "
            f"use {offered >> 20}; write smaller counts, or ask for parts of it by iter_batches"
        )
    return [np.linspace(0.0, 1.0, count) for count in counts]


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
    shape = tuple(len(positions) for positions in unit)
    return np.broadcast_to(np.expand_dims(values, missing), shape)


def labelled(
    values: FloatArray,
    domain: Domain,
    unit: Sequence[FloatArray],
    classes: Sequence[Any],
    name: str,
) -> xarray.DataArray:
    """Values on the grid, the classes last if there are any, with coordinates in data units."""
    import xarray

    dims, coordinates = [*domain.names], dict[str, Any]()
    for axis, positions in zip(domain.axes, unit, strict=True):
        coordinates[axis.name] = (axis.name, axis.at(positions), axis.attributes)
    if classes:
        dims, coordinates["class"] = [*dims, "class"], list(classes)
    return xarray.DataArray(values, coords=coordinates, dims=dims, name=name)
