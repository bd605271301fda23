"""Points in the forms that a query may have them, regular grids, and answers in the same form."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dbern.bernstein.basis import MOST_H
from dbern.combination.base import Combination
from dbern.data.domain import Axis, Domain, TimeUnit, moment_of, named_with
from dbern.errors import SpecError
from dbern.privacy.budget import exact
from dbern.synopsis.arrays import ReleasedArray, ReleasedVector
from dbern.synopsis.smoothing import Smoothing
from dbern.system import memory_limit, memory_used
from dbern.types import FloatArray

if TYPE_CHECKING:
    import xarray


Points: TypeAlias = Any
"""A numpy or dask array (m, l), or (m,) where l = 1, or a table or xarray object by column name."""

Shape: TypeAlias = int | Sequence[int]
"""Of a grid: one count for all axes, or one for each."""

Window: TypeAlias = Mapping[str, Any] | None
"""A box ``{"x": (low, high)}`` that a grid is of, or None for the whole domain."""

Order: TypeAlias = int | Sequence[int] | str | None
"""Order of the iterated operator: one, one per axis, "auto", or None for the released one."""


def as_points(points: Points, domain: Domain) -> FloatArray:
    """Return the points in memory as an array (m, l) in axis order.

    Coordinates of xarray over one dimension are points; over a dimension each they span a grid, of
    which all points are given, the last coordinate changing fastest. Raises SpecError for anything
    else; it does not quote a value.
    """
    grid = _columns_of_grid(points, domain)
    if grid is not None:
        return _mesh(grid, domain)
    if isinstance(points, str | bytes | float | int | date | np.generic):
        raise SpecError(
            f"points: this is one value of type {type(points).__name__}, not an array. Write a "
            f"list of points, each with {', '.join(domain.names)}"
        )
    if not isinstance(points, np.ndarray | list | tuple):
        array = _stacked(points, domain)
    elif domain.lists:
        table: Any = points if hasattr(points, "dtype") else np.asarray(points, dtype=object)
        check_shape(table.shape, domain)
        return _of_columns(list(table.T), domain)
    else:
        units = {axis.unit for axis in domain.axes}
        array = as_numbers(points, units.pop() if len(units) == 1 else None, domain)
    check_shape(array.shape, domain)
    return array.reshape(len(array), domain.dimensions)


def plain(points: Points, domain: Domain) -> Any:
    """Return points as an array: of dask as it is, else in memory by `as_points`."""
    lazy = hasattr(points, "dask") and hasattr(points, "rechunk")
    return points if lazy else as_points(points, domain)


def like(
    points: Points,
    values: FloatArray,
    domain: Domain,
    names: Sequence[str],
    classes: Sequence[Any] = (),
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Return values (m,) or (m, classes) in the form that was asked with.

    A pandas table gives a series or a table with its index; an Arrow table or batch gives an array
    or the same with one column for each of `names`; a grid gives a grid (`gridded`). Anything
    else gives the values as they are.
    """
    library = type(points).__module__.partition(".")[0]
    if library == "pandas" and hasattr(points, "columns"):
        import pandas as pd

        if values.ndim == 1:
            return pd.Series(values, index=points.index, name=names[0])
        return pd.DataFrame(values, index=points.index, columns=list(names))
    if library == "pyarrow" and hasattr(points, "column_names"):
        import pyarrow as pa

        if values.ndim == 1:
            return pa.array(values)
        columns = [pa.array(np.ascontiguousarray(column)) for column in values.T]
        return type(points).from_arrays(columns, names=list(names))
    return gridded(points, values, domain, classes, attributes)


def gridded(
    points: Points,
    values: Any,
    domain: Domain,
    classes: Sequence[Any] = (),
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Return values (m,) or (m, classes) on the grid that the points' coordinates span, labelled.

    It has the coordinates of that grid, also those of no axis, and the dimensions of an array in
    its order, else upright. Points that span none (`as_points`) leave the values as they are.
    """
    columns = _columns_of_grid(points, domain)
    if columns is None:
        return values
    import xarray

    shape, dims = tuple(len(column) for column in columns), [column.dims[0] for column in columns]
    coords = getattr(points, "coords", {})
    labels = {name: labels for name, labels in coords.items() if {*labels.dims} <= {*dims}}
    labels |= dict(zip(domain.names, columns, strict=True))
    is_array = hasattr(points, "dtype")  # one array, and neither a dataset nor a mapping
    order = [dim for dim in points.dims if dim in dims] if is_array else upright(dims)
    if values.ndim == 2:
        shape, dims, labels["class"] = (*shape, len(classes)), [*dims, "class"], list(classes)
        order = [*order, "class"]
    grid = xarray.DataArray(values.reshape(shape), labels, dims, "value", attributes)
    return conventional(grid.transpose(*order))


def _columns_of_grid(points: Points, domain: Domain) -> list[Any] | None:
    """Coordinates of a grid, in axis order; None where the points are something else."""
    if not isinstance(points, Mapping) and type(points).__module__.partition(".")[0] != "xarray":
        return None
    names = domain.names
    columns = [_named(points, name, names) for name in names]
    if not all(hasattr(column, "dims") for column in columns):
        return None
    dims = [tuple(column.dims) for column in columns]
    if len(dims) > 1 and len(set(dims)) == 1 and len(dims[0]) == 1:  # points along one
        return None
    if len(set(dims)) < len(dims) or any(len(dimensions) != 1 for dimensions in dims):
        stated = ", ".join(f"{name} over ({', '.join(map(str, dimensions))})"
                          for name, dimensions in zip(names, dims, strict=True))  # fmt: skip
        raise SpecError(
            f"the coordinates are {stated}. Write each over a dimension of its own for a grid, or "
            'all over one for points, such as dataset.stack(point=["x", "y"])'
        )
    return columns


def _mesh(columns: Sequence[Any], domain: Domain) -> FloatArray:
    count = math.prod(len(column) for column in columns)
    needed, offered = 16 * count * (domain.dimensions + 1), memory_limit()
    if needed > offered:
        raise SpecError(
            f"the coordinates span {count} points, which need {needed >> 20} MiB, and this process "
            f"may use {offered >> 20}. Ask for parts of the grid"
        )
    positions = _axis_columns(columns, domain)
    points = np.empty((*(len(axis_positions) for axis_positions in positions), len(positions)))
    for i, axis_positions in enumerate(np.ix_(*positions)):
        points[..., i] = axis_positions
    return points.reshape(-1, len(positions))


LEAST_BETA = 1e-12
"""Below it tails are of numbers that floats do not have."""


def confidence(beta: float | str) -> Fraction:
    """Return one minus a confidence level, exactly as it is written: 0.05 is 1/20.

    Raises SpecError for what is no number between 0 and 1, or so small that tails at it are of
    numbers that floats do not have.
    """
    level = exact(str(beta), "beta", "0.05")
    if not LEAST_BETA <= level < 1:
        raise SpecError(
            f"beta: must be between 0 and 1, and at least {LEAST_BETA:g}. Write one such as 0.05"
        )
    return level


def check_shape(shape: tuple[int, ...], domain: Domain) -> None:
    """Refuse a shape other than (m, l), or (m,) where l = 1."""
    flat = domain.dimensions == 1 and len(shape) == 1
    if not flat and (len(shape) != 2 or shape[1] != domain.dimensions):
        raise SpecError(
            f"points have shape {shape}. Write (m, {domain.dimensions}) in the order "
            f"{', '.join(domain.names)}"
        )


def _axis_columns(columns: Sequence[Any], domain: Domain) -> list[FloatArray]:
    return [_axis_column(*column, domain) for column in zip(columns, domain.axes, strict=True)]


def _axis_column(values: Any, axis: Axis, domain: Domain) -> FloatArray:
    """Numbers, or the positions of values in the axis's list; NaN for what is not listed."""
    if not axis.categories:
        return as_numbers(values, axis.unit, domain)
    codes_by_value = {value: float(i) for i, value in enumerate(axis.categories)}
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if {type(value) for value in axis.categories} == {str} and kind in tuple("biufc"):
        raise SpecError(
            f"points: {axis.name} is a list of texts. Write a table with the columns "
            f"{', '.join(domain.names)}, or a list of points with one of the texts in each"
        )
    listed = np.asarray(values, dtype=object)
    try:
        codes = [codes_by_value.get(value, np.nan) for value in listed.flat]
    except TypeError:  # whose text quotes the value
        raise SpecError(
            f"points: {axis.name} is a list of values. Write one of them for each point"
        ) from None
    return np.array(codes, dtype=np.float64).reshape(listed.shape)


def as_numbers(values: Any, unit: TimeUnit | None, domain: Domain) -> FloatArray:
    """Return a column as numbers; dates and times in the unit of their axis.

    Raises SpecError for anything else; it does not quote a value.
    """
    ma = sys.modules.get("numpy.ma")  # numpy imports it when it is first used
    if ma is not None and isinstance(values, ma.MaskedArray):  # masked is null, as in a table
        known = as_numbers(values.data, unit, domain)
        return np.where(ma.getmaskarray(values), np.nan, known)
    if unit is None:
        return _floats(values, domain)
    column = np.asarray(values)
    if column.dtype.kind == "M":
        return unit.of_datetimes(column)
    if column.dtype.kind == "U" or any(isinstance(moment, date | str) for moment in column.flat):
        try:
            moments = (
                moment_of(moment) if isinstance(moment, str) else moment for moment in column.flat
            )
            numbers = [np.nan if moment is None else unit.of(moment) for moment in moments]
        except (ValueError, AttributeError, TypeError):  # whose text quotes the value
            raise SpecError(
                "points are not dates or times. Write numpy datetime64 or ISO texts, such as "
                '"2026-01-01"'
            ) from None
        return np.array(numbers, dtype=np.float64).reshape(column.shape)
    return _floats(values, domain)


def _floats(values: Any, domain: Domain) -> FloatArray:
    with suppress(ValueError, TypeError):  # whose text quotes the value
        if not np.iscomplexobj(values):  # numpy would drop the imaginary parts
            return np.asarray(values, dtype=np.float64)
    raise SpecError(
        f"points must be numbers. Write an array (m, {domain.dimensions}) in the "
        f"order {', '.join(domain.names)}"
    )


def _stacked(table: Any, domain: Domain) -> FloatArray:
    names = domain.names
    if hasattr(table, "to_dask_array"):
        raise SpecError(
            "points in a table of dask cannot be used. Write table.map_partitions(synopsis, "
            'meta=("value", "f8")), or a dask array'
        )
    if hasattr(table, "to_frame") and not hasattr(table, "columns"):
        raise SpecError(
            "points: a pandas Series is one column without the name of its axis. Write a table "
            f'with the columns {", ".join(names)}, such as series.to_frame("{names[0]}")'
        )
    if not hasattr(table, "__getitem__"):
        raise SpecError(
            f"points of type {type(table).__name__} cannot be used. Write a numpy or dask "
            f"array (m, {len(names)}), or a table with the columns {', '.join(names)}"
        )
    return _of_columns([_named(table, name, names) for name in names], domain)


def _of_columns(columns: Sequence[Any], domain: Domain) -> FloatArray:
    stacked = _axis_columns(columns, domain)
    if len({column.shape for column in stacked}) > 1 or stacked[0].ndim != 1:
        raise SpecError(f"the columns {', '.join(domain.names)} must be flat and equally long")
    return np.column_stack(stacked)


def _named(table: Any, name: str, names: Sequence[str]) -> Any:
    try:
        return table[name]
    except (KeyError, IndexError, TypeError):
        raise SpecError(
            f'the table has no column "{name}"; it needs the columns {", ".join(names)}'
        ) from None


def orders(h: Any, domain: Domain) -> dict[str, int]:
    """Return the order of the operator on each axis, from one for all or one for each.

    Raises SpecError for anything else.
    """
    axis_orders = per_axis(h, domain.dimensions, 1, MOST_H)
    if axis_orders is None:
        raise SpecError(
            f'h = {h}: write an integer from 1 to {MOST_H}, one for each axis, or "auto"'
        )
    return dict(zip(domain.names, axis_orders, strict=True))


def per_axis(integers: Any, axes: int, minimum: int, maximum: float = math.inf) -> list[int] | None:
    """Return one integer for each axis, from one for all or one for each; else None."""
    by_axis = (
        list(integers) if isinstance(integers, list | tuple | np.ndarray) else [integers] * axes
    )
    valid = all(
        isinstance(integer, int | np.integer) and minimum <= integer <= maximum
        for integer in by_axis
    )
    return list(map(int, by_axis)) if valid and len(by_axis) == axes else None


# --- A regular grid over the whole domain: its axes, a function on it, and its labels


_BLOCK_POINTS = 1 << 16
"""Of a grid, for which several arrays are combined at a time."""

_WORK_BYTES = 64 << 20
"""What evaluating takes besides what grows with the grid: `Polynomial.grid`, and blocks."""


def grid_axes(
    shape: Shape,
    domain: Domain,
    numbers: int = 1,
    arrays: Sequence[ReleasedArray | ReleasedVector] = (),
    part: Domain | None = None,
) -> list[FloatArray]:
    """Return positions in [0, 1] along each axis, ends included: of the domain, or a part of it.

    `numbers` are stored of each point; `arrays` are evaluated whole. Raises SpecError for a shape
    that is not a count of at least 2 for each axis, or that needs more memory than this process may
    still use: values, coordinates and what evaluating takes.
    """
    if domain.lists:
        raise SpecError(
            f"grid: {domain.lists[0].name} is a list of values. Call the synopsis with a table of "
            "points, or with coordinates of xarray"
        )
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
    if part is None:
        return positions
    return [
        np.clip((window_axis.at(axis_positions) - axis.low) / axis.width, 0.0, 1.0)
        for axis_positions, window_axis, axis in zip(positions, part.axes, domain.axes, strict=True)
    ]


def values_on_grid(
    shape: Shape,
    domain: Domain,
    arrays: Sequence[ReleasedArray | ReleasedVector],
    smoothings: Sequence[Smoothing],
    combination: Combination,
    part: Domain | None = None,
) -> FloatArray:
    """Evaluate the function on a grid over the domain or a part of it, classes last.

    One array is evaluated whole, in little more memory than its values. Several are combined by
    blocks, unless they are so large that their shards would be read again for each. Raises
    SpecError as `grid_axes`.
    """

    def evaluate(axes: Sequence[FloatArray]) -> FloatArray:
        parts = [
            on_grid(array, domain, axes, smoothing)
            for array, smoothing in zip(arrays, smoothings, strict=True)
        ]
        mesh = combination.of_points
        points = np.stack(np.meshgrid(*axes, indexing="ij"), -1) if mesh else None
        return combination.values(parts, points)

    columns = (len(combination.classes),) if combination.multi_output else ()
    values = math.prod(columns)
    if combination.is_array:
        return evaluate(grid_axes(shape, domain, 1, arrays, part))
    if any(array.large for array in arrays):
        return evaluate(grid_axes(shape, domain, len(arrays) + 3 * values, arrays, part))
    return _in_blocks(grid_axes(shape, domain, values, (), part), evaluate, columns)


def _in_blocks(
    unit: Sequence[FloatArray],
    evaluate: Callable[[Sequence[FloatArray]], FloatArray],
    columns: tuple[int, ...],
) -> FloatArray:
    """Evaluate the grid of some axes by blocks that are long in the last ones."""
    values = np.empty((*(len(axis) for axis in unit), *columns))
    sizes, room = [], _BLOCK_POINTS
    for axis in reversed(unit):
        sizes.append(min(len(axis), room))
        room //= sizes[-1]
    slices = [
        [slice(start, start + size) for start in range(0, len(axis), size)]
        for axis, size in zip(unit, reversed(sizes), strict=True)
    ]
    for block in itertools.product(*slices):
        values[block] = evaluate([axis[steps] for axis, steps in zip(unit, block, strict=True)])
    return values


def on_grid(
    array: ReleasedArray | ReleasedVector,
    domain: Domain,
    unit: Sequence[FloatArray],
    smoothing: Smoothing,
) -> FloatArray:
    """Return an array's values on the grid of all axes, constant along those it does not have."""
    axis_positions = [unit[domain.names.index(axis)] for axis in array.axes]
    values = array.on_grid(axis_positions, smoothing)
    missing = [i for i, name in enumerate(domain.names) if name not in array.axes]
    if not missing or not axis_positions:  # a vector has no axes
        return values
    shape = tuple(len(positions) for positions in unit)
    return np.broadcast_to(np.expand_dims(values, missing), shape)


_LOCATION = "spatial_ref"  # a grid's coordinate system, by the name that rioxarray gives it

_NORTHWARD = ("lat", "latitude", "northing", "y")


def upright(names: Sequence[Any]) -> tuple[Any, ...]:
    """Return axes as dimensions that are drawn upright: the second up, the first to the right.

    The other way round where the first one says that it goes up, such as a latitude.
    """
    first, *others = names
    if others and str(first).lower() in _NORTHWARD:
        return (*others[:0:-1], first, others[0])
    return (*others[::-1], first)


def conventional(array: xarray.DataArray) -> xarray.DataArray:
    """Set how an array is to be stored, by the CF conventions: NaN is missing, but of no axis."""
    if array.dtype.kind == "f":
        array.encoding["_FillValue"] = np.nan
    if _LOCATION in array.coords:
        array.encoding["grid_mapping"] = _LOCATION
    for coordinate in array.coords.values():
        coordinate.encoding["_FillValue"] = None
    return array


def coordinates(axis: Axis, count: int) -> np.ndarray[Any, Any]:
    """Return so many coordinates, ends included, in little more than their memory."""
    positions = np.linspace(0.0, 1.0, count)
    values = positions if axis.unit is None else np.empty(count, dtype="datetime64[us]")
    for start in range(0, count, _BLOCK_POINTS):
        block = slice(start, start + _BLOCK_POINTS)
        values[block] = as_datetimes(axis.at(positions[block]), axis)
    return values


def as_datetimes(numbers: FloatArray, axis: Axis) -> np.ndarray[Any, Any]:
    """Return numbers of an axis of dates or times as datetime64, UTC; of another as they are.

    A microsecond may be coarser than a number; what is within the bounds stays within them.
    """
    if axis.unit is None:
        return numbers
    moments, step = axis.unit.to_datetimes(numbers), np.timedelta64(1, "us")
    back = axis.unit.of_datetimes(moments)
    moments[(back < axis.low) & (numbers >= axis.low)] += step
    moments[(back > axis.high) & (numbers <= axis.high)] -= step
    return moments


def describe_axis(coordinate: xarray.DataArray, axis: Axis) -> None:
    """Describe an axis's coordinate, and how dates are to be stored, by the CF conventions."""
    coordinate.attrs["long_name"] = axis.name
    if axis.unit is None:
        coordinate.attrs |= axis.attributes
    else:
        coordinate.encoding |= {"units": axis.unit.value, "dtype": "float64"}


def labelled(
    values: FloatArray,
    domain: Domain,
    classes: Sequence[Any] = (),
    name: str | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> xarray.DataArray:
    """Label values on a grid over a domain, classes last, by coordinates in data units, upright."""
    import xarray

    labels: dict[str, Any] = {
        axis.name: (axis.name, coordinates(axis, count))
        for axis, count in zip(domain.axes, values.shape, strict=False)
    }
    last = ["class"] if values.ndim > domain.dimensions else []
    labels |= {key: list(classes) for key in last}
    grid = xarray.DataArray(values, labels, [*domain.names, *last], name, attributes)
    for axis in domain.axes:
        describe_axis(grid[axis.name], axis)
    return conventional(grid.transpose(*upright(domain.names), *last))


def attributes_of(
    combination: Combination, domain: Domain, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the attributes of values, by the CF conventions where these have a word."""
    name, units = named_values(combination, domain, metadata)
    attributes = {"long_name": name} | ({"units": units} if units else {})
    attributes |= {key: metadata[key] for key in ("title", "description") if key in metadata}
    done = metadata.get("post_processing")  # netCDF 3 has no lists
    return attributes | ({"post_processing": ", ".join(done)} if done else {})


def named_values(
    combination: Combination, domain: Domain, metadata: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the name of values, and their units; "" where none are known."""
    meaning, columns = combination.meaning(metadata["target"]), metadata.get("columns", {})
    if meaning == "density":
        units = [axis.unit.name.lower() if axis.unit else axis.units for axis in domain.axes]
        if all(units):
            return meaning, " ".join(f"{u}-1" if u.isalpha() else f"({u})-1" for u in units)
        return meaning + combination.unit(domain.names, density=True), ""
    if meaning == "response":
        name = columns.get("response", meaning)
        return name, metadata.get("units", {}).get(name, "")
    if "label" not in columns:
        return meaning, ""
    binary = len(combination.classes) == 2 and not combination.multi_output
    positive = f" = {combination.classes[1]}" if binary else ""
    return f"{meaning} of {columns['label']}{positive}", ""


def of_columns(metadata: Mapping[str, Any]) -> str:
    """Return the columns that a function is of or by, in words that follow its kind."""
    columns, units = metadata.get("columns", {}), metadata.get("units", {})
    words = {"response": "of", "label": "of", "group": "by"}
    return "".join(
        f" {words[role]} {named_with(name, units.get(name, ''))}" for role, name in columns.items()
    )


def groups_column(metadata: Mapping[str, Any]) -> str:
    """Return the column that classes or groups are values of; "class" where it is not known."""
    columns = metadata.get("columns", {})
    return str(columns.get("group", columns.get("label", "class")))
