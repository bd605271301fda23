"""Answers at many points: on grids, block by block, and labelled with names and units."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dbern.ask.labels import labelled, named_values
from dbern.ask.points import Points, Shape, as_points, check_shape, gridded, like, per_axis, plain
from dbern.combination.base import Answer, Combination
from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.synopsis.evaluate import LEAST_RESAMPLED
from dbern.synopsis.function import ReleasedFunction
from dbern.synopsis.released import Released
from dbern.synopsis.smoothing import Smoothing
from dbern.system import cpu_count, memory_limit, memory_used
from dbern.types import FloatArray

if TYPE_CHECKING:
    import xarray


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


class Sent(Protocol):
    """A synopsis, which can be sent to another process."""

    @property
    def domain(self) -> Domain:
        """Axes and bounds of its points."""


def map_points(
    synopsis: Sent, points: Points, evaluate: Callable[..., FloatArray], columns: tuple[int, ...]
) -> Any:
    """Return an answer (m, *columns) at each point; of a dask array lazy.

    `evaluate` takes the synopsis, points (m, l) in memory, the count of all points of the request
    and, optionally, that of threads.
    """
    array = plain(points, synopsis.domain)
    if isinstance(array, np.ndarray):
        return evaluate(synopsis, array, len(array), cpu_count())
    check_shape(array.shape, synopsis.domain)
    total = LEAST_RESAMPLED if np.isnan(array.shape[0]) else array.shape[0]
    chunks = (array.chunks[0], *((count,) for count in columns))
    layout: dict[str, Any] = {"dtype": np.float64, "meta": np.empty((0,) * len(chunks))}
    layout |= {"chunks": chunks, "drop_axis": list(range(1, array.ndim))}
    layout |= {"new_axis": list(range(1, len(chunks)))}
    array = array.rechunk({1: -1}) if array.ndim == 2 else array
    return array.map_blocks(partial(_evaluate_block, evaluate=evaluate), synopsis, total, **layout)


def _evaluate_block(
    points: Points, synopsis: Sent, total: int, *, evaluate: Callable[..., FloatArray]
) -> FloatArray:
    return evaluate(synopsis, as_points(points, synopsis.domain), total)


@dataclass(frozen=True)
class LabelledAnswers:
    """Names that a function's values have, by its release's metadata."""

    combination: Combination
    domain: Domain
    metadata: Mapping[str, Any]

    def like(self, points: Points, values: Any, answer: Answer = "value") -> Any:
        """Return values (m,) or (m, classes) in the form of the points."""
        names = self.combination.columns_of(answer)
        attributes = self._attributes if answer == "value" else None
        return self._named(like(points, values, self.domain, names, self._labels, attributes))

    def gridded(self, points: Points, values: FloatArray) -> Any:
        """Return values (m,) or (m, classes) on the grid that the points span, if any."""
        return self._named(gridded(points, values, self.domain, self._labels))

    def grid(self, values: FloatArray, box: Domain | None) -> xarray.DataArray:
        """Return values on a regular grid over the domain, or over a box in it."""
        name, attributes = self.metadata["name"], self._attributes
        grid = labelled(values, box or self.domain, self._labels, name, attributes)
        named: xarray.DataArray = self._named(grid)
        return named

    @property
    def _labels(self) -> dict[str, Sequence[Any]]:
        """Dimension of several values: groups have functions, and classes are told apart."""
        grouped = self.combination.meaning(self.metadata["target"]) in ("density", "response")
        grouped &= "group" not in self.domain.names  # an axis has that name
        return {"group" if grouped else "class": self.combination.classes}

    @property
    def _attributes(self) -> dict[str, Any]:
        """Attributes of values, by the CF conventions where these have a word."""
        name, units = named_values(self.combination, self.domain, self.metadata)
        attributes = {"long_name": name} | ({"units": units} if units else {})
        for key in ("title", "description"):
            attributes |= {key: self.metadata[key]} if key in self.metadata else {}
        done = self.metadata.get("post_processing")  # netCDF 3 has no lists
        return attributes | ({"post_processing": ", ".join(done)} if done else {})

    def _named(self, answer: Any) -> Any:
        """Name the column that classes or groups are values of."""
        ((role, _),) = self._labels.items()
        if role in getattr(answer, "coords", ()):
            columns = self.metadata.get("columns", {})
            column = columns.get("group", columns.get("label", role))
            answer[role].attrs["long_name"] = str(column)
        return answer
