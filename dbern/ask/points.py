"""Arguments of queries: points in many forms, orders and confidences; answers in the same form."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from dbern.ask.labels import conventional, upright
from dbern.bernstein.basis import MOST_H
from dbern.data.domain import Axis, Domain
from dbern.data.times import TimeUnit, moment_of
from dbern.errors import SpecError
from dbern.privacy.budget import exact
from dbern.system import memory_limit
from dbern.types import FloatArray

Points: TypeAlias = Any
"""A numpy or dask array (m, l), or (m,) where l = 1, or a table or xarray object by column name."""
Shape: TypeAlias = int | Sequence[int]
"""Of a grid: one count for all axes, or one for each."""
Window: TypeAlias = Mapping[str, Any] | None
"""A box ``{"x": (low, high)}`` that a grid is of, or None for the whole domain."""
Order: TypeAlias = int | Sequence[int] | str | None
"""Order of the iterated operator: one, one per axis, "auto", or None for the released one."""
LEAST_BETA = 1e-12
"""Below it tails are of numbers that floats do not have."""


def as_points(points: Points, domain: Domain) -> FloatArray:
    """Return the points in memory as an array (m, l) in axis order.

    Coordinates of xarray over one dimension are points; over a dimension each they span a grid, of
    which all points are given, the last coordinate changing fastest. Raises SpecError for anything
    else; it does not quote a value.
    """
    # Numbers need no reading, which takes most of the time of one point.
    if type(points) is np.ndarray and points.dtype.kind in "biuf" and not domain.categorical:
        return _shaped(np.asarray(points, dtype=np.float64), domain)
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
    elif domain.categorical:
        table: Any = points if hasattr(points, "dtype") else np.asarray(points, dtype=object)
        check_shape(table.shape, domain)
        return _of_columns(list(table.T), domain)
    else:
        units = {axis.unit for axis in domain.axes}
        array = as_numbers(points, units.pop() if len(units) == 1 else None, domain)
    return _shaped(array, domain)


def _shaped(array: FloatArray, domain: Domain) -> FloatArray:
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
    labels: Mapping[str, Sequence[Any]] = MappingProxyType({}),
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
    return gridded(points, values, domain, labels, attributes)


def gridded(
    points: Points,
    values: Any,
    domain: Domain,
    labels: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Return values (m,) or (m, classes) on the grid that the points' coordinates span, labelled.

    It has the coordinates of that grid, also those of no axis, and the dimensions of an array in
    its order, else upright; several values of a point are along the one dimension of `labels`.
    Points that span none (`as_points`) leave the values as they are.
    """
    columns = _columns_of_grid(points, domain)
    if columns is None:
        return values
    import xarray

    shape, dims = tuple(len(column) for column in columns), [column.dims[0] for column in columns]
    coords = getattr(points, "coords", {})
    spanned = {name: coord for name, coord in coords.items() if {*coord.dims} <= {*dims}}
    spanned |= dict(zip(domain.names, columns, strict=True))
    is_array = hasattr(points, "dtype")  # one array, and neither a dataset nor a mapping
    order = [dim for dim in points.dims if dim in dims] if is_array else upright(dims)
    if values.ndim == 2:
        ((last, of),) = labels.items()
        shape, dims, spanned[last] = (*shape, len(of)), [*dims, last], list(of)
        order = [*order, last]
    grid = xarray.DataArray(values.reshape(shape), spanned, dims, "value", attributes)
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


def read_beta(beta: float | str) -> Fraction:
    """Return the probability that an answer may fail, exactly as it is written: 0.05 is 1/20.

    Raises SpecError for what is no number between 0 and 1, or so small that tails at it are of
    numbers that floats do not have.
    """
    probability = exact(str(beta), "beta", "0.05")
    if not LEAST_BETA <= probability < 1:
        raise SpecError(
            f"beta: must be between 0 and 1, and at least {LEAST_BETA:g}. Write one such as 0.05"
        )
    return probability


def check_shape(shape: tuple[int, ...], domain: Domain) -> None:
    """Refuse a shape other than (m, l), or (m,) where l = 1."""
    flat = domain.dimensions == 1 and len(shape) == 1
    if not flat and (len(shape) != 2 or shape[1] != domain.dimensions):
        raise SpecError(
            f"points have shape {shape}. Write (m, {domain.dimensions}) in the order "
            f"{', '.join(domain.names)}"
        )


def _axis_columns(columns: Sequence[Any], domain: Domain) -> list[FloatArray]:
    return [_axis_numbers(*column, domain) for column in zip(columns, domain.axes, strict=True)]


def _axis_numbers(values: Any, axis: Axis, domain: Domain) -> FloatArray:
    """Return numbers, or the positions of values in the axis's list; NaN for what is not listed."""
    if not axis.categories:
        return as_numbers(values, axis.unit, domain)
    chunks = _arrow_chunks(values)
    if chunks is not None:
        return np.concatenate([np.empty(0), *(_arrow_positions(chunk, axis) for chunk in chunks)])
    if _is_masked(values):
        return _unless_masked(values, _axis_numbers(values.data, axis, domain))
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if {type(value) for value in axis.categories} == {str} and kind in tuple("biufc"):
        raise SpecError(
            f"points: {axis.name} is a list of texts. Write a table with the columns "
            f"{', '.join(domain.names)}, or a list of points with one of the texts in each"
        )
    codes = {(isinstance(value, bool), value): float(i) for i, value in enumerate(axis.categories)}
    listed = np.asarray(values, dtype=object)
    try:
        positions = [
            codes.get((isinstance(value, bool | np.bool_), value), np.nan) for value in listed.flat
        ]
    except TypeError:  # whose text quotes the value
        raise SpecError(
            f"points: {axis.name} is a list of values. Write one of them for each point"
        ) from None
    return np.array(positions, dtype=np.float64).reshape(listed.shape)


def as_numbers(values: Any, unit: TimeUnit | None, domain: Domain) -> FloatArray:
    """Return a column as numbers; dates and times in the unit of their axis; NaN for missing ones.

    Raises SpecError for anything else; it does not quote a value.
    """
    chunks = _arrow_chunks(values)
    if chunks is not None:
        return np.concatenate(
            [np.empty(0), *(_arrow_numbers(chunk, unit, domain) for chunk in chunks)]
        )
    if _is_masked(values):
        return _unless_masked(values, as_numbers(values.data, unit, domain))
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    with suppress(ValueError, TypeError, OverflowError):  # whose text quotes the value
        if kind in tuple("biuf"):  # pandas would make objects of some
            return np.asarray(values, dtype=np.float64)
        column = np.asarray(values)
        if column.dtype.kind in "biuf":
            return column.astype(np.float64)
        if column.dtype.kind == "M" and unit is not None:
            return unit.of_datetimes(column)
        if column.dtype.kind in "UTO":
            numbers = [_number(value, unit) for value in column.flat]
            return np.array(numbers, dtype=np.float64).reshape(column.shape)
    raise _no_numbers(unit, domain)


def _number(value: Any, unit: TimeUnit | None) -> float:
    """Return a value as a number, NaN for what stands for a missing one; TypeError for others."""
    if value is None or type(value).__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return np.nan
    if hasattr(value, "as_py"):  # in a list of an Arrow array's scalars
        return _number(value.as_py(), unit)
    if isinstance(value, np.timedelta64):  # by numpy an integer
        raise TypeError
    if isinstance(value, Real | Decimal | np.bool_):
        return float(value)
    if unit is not None and isinstance(value, np.datetime64):
        return float(unit.of_datetimes(np.asarray(value)))
    moment = moment_of(value) if isinstance(value, str) else value
    if unit is None or not isinstance(moment, date):
        raise TypeError
    return unit.of(moment)


def _no_numbers(unit: TimeUnit | None, domain: Domain) -> SpecError:
    if unit is not None:
        return SpecError(
            "points are not dates or times. Write numpy datetime64 or ISO texts, such as "
            '"2026-01-01"'
        )
    return SpecError(
        f"points must be numbers, neither texts nor dates, and of times of day their hours, such "
        f"as 6.5; or a table of Arrow, which has types. Write an array (m, {domain.dimensions}) "
        f"in the order {', '.join(domain.names)}"
    )


def _is_masked(values: Any) -> bool:
    ma = sys.modules.get("numpy.ma")  # numpy imports it when it is first used
    return ma is not None and isinstance(values, ma.MaskedArray)


def _unless_masked(values: Any, numbers: FloatArray) -> FloatArray:
    """Return numbers where values are not masked, which is null, as in a table."""
    return np.where(np.ma.getmaskarray(values), np.nan, numbers)


def _arrow_chunks(values: Any) -> list[Any] | None:
    """Return the Arrow arrays of a column that has some, which numpy would misread; else None."""
    dtype, streamed = getattr(values, "dtype", None), hasattr(values, "__arrow_c_stream__")
    of_numpy = isinstance(dtype, np.dtype) or hasattr(values, "iloc")  # or of a type of pandas
    of_arrow = (streamed or hasattr(values, "__arrow_c_array__")) and not of_numpy
    if not (of_arrow or hasattr(dtype, "pyarrow_dtype")):
        return None
    import pyarrow as pa

    chunks: list[Any] = pa.chunked_array(values if streamed else [pa.array(values)]).chunks
    return chunks


def _arrow_positions(chunk: Any, axis: Axis) -> FloatArray:
    from dbern.data.columns import as_floats, check_kind, plain_layout

    values = plain_layout(chunk)
    if str(values.type) == "null":
        return np.full(len(values), np.nan)
    check_kind("the points", values.type, axis.column)
    return as_floats(values, axis.column)


def _arrow_numbers(chunk: Any, unit: TimeUnit | None, domain: Domain) -> FloatArray:
    from dbern.data.columns import is_measured, is_text, is_time, numbers, plain_layout

    values = plain_layout(chunk)
    kind = values.type
    counted = is_measured(kind, unit)
    if str(kind) == "null":
        return np.full(len(values), np.nan)
    if unit is not None and is_text(kind):
        return as_numbers(values.to_numpy(zero_copy_only=False), unit, domain)
    if unit is not None and counted and hasattr(chunk, "storage"):  # such as pandas' periods
        raise _no_numbers(unit, domain)
    if counted or (unit is not None and is_time(kind)):
        return numbers(values, unit)
    raise _no_numbers(unit, domain)


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
