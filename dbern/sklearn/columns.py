"""Columns of X and y, read by their types and shapes alone.

`fit` runs in the caller's program, where an error or a warning is an answer that nobody charged
for. scikit-learn's own checks count labels, and refuse a value with its text. Here types and shapes
alone are checked, which are public as bounds are: dtypes of arrays and of a frame's columns, and
the shape of most entries of a list, which has no dtype. A value that is no number, or is not
listed, is missing.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning

from dbern.data.columns import as_floats, is_clock, is_number, is_text, is_time, plain_layout
from dbern.data.domain import Column
from dbern.data.times import TimeUnit, hours_of
from dbern.errors import SpecError
from dbern.types import FloatArray, Int64Array


class InputError(SpecError, ValueError):
    """X or y has a type or a shape that cannot be used; scikit-learn wants a ValueError."""


def split_columns(table: Any) -> tuple[Any, list[Any]]:
    """Return a frame as one whose names scikit-learn reads, else a matrix, and the columns.

    Raises InputError for what is no table of at least one row and one column.
    """
    names: list[Any] = []
    if hasattr(table, "dask") and hasattr(table, "columns"):
        table = table.compute()
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        names = list(table.columns)
        columns = [_column_of_pandas(table.iloc[:, index]) for index in range(len(names))]
    elif hasattr(table, "__arrow_c_stream__") and len(getattr(table, "shape", ())) == 2:
        try:
            table = pa.table(table)
            names, columns = table.column_names, [*map(_plain_column, table.columns)]
        except Exception:  # noqa: BLE001 -- of any library, whose text may quote a value
            raise InputError(
                "X: is no Arrow table. Find out why with pyarrow.table(X), and mend it"
            ) from None
    else:
        table = _to_array(table, "X")
        columns = list(table.T) if table.ndim == 2 else []
    if len(set(names)) < len(names):
        raise InputError("X: two columns have the same name. Rename one of them")
    shape = tuple(table.shape)
    if len(shape) != 2:
        raise InputError(
            f"X: has shape {shape}, not rows and columns. Reshape your data with "
            "X.reshape(-1, 1) if it is of one column, or X.reshape(1, -1) if of one row"
        )
    for count, noun in zip(shape, ("sample", "feature"), strict=True):
        if count < 1:
            raise InputError(
                f"X: {count} {noun}(s) (shape={shape}) while a minimum of 1 is required."
            )
    return table, columns


def to_column(y: Any, rows: int) -> Any:
    """Return y as one column of as many rows as X."""
    if y is None:
        raise InputError("y: requires y to be passed, but the target y is None")
    series = hasattr(y, "iloc")
    from_arrow = hasattr(y, "__arrow_c_stream__") and len(getattr(y, "shape", (0,))) == 1
    if isinstance(y, pa.Array):
        column = _plain_column([y])
    elif from_arrow and not series:
        column = _plain_column(y)
    else:
        column = _column_of_pandas(y) if series and y.ndim == 1 else _to_array(y, "y")
    shape: tuple[int, ...] = (len(column),)
    if not isinstance(column, pa.ChunkedArray):
        shape = tuple(column.shape)
    if len(shape) == 2 and shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Use y.ravel()",
            DataConversionWarning,
            stacklevel=4,
        )
        column, shape = column[:, 0], shape[:1]
    if shape != (rows,):
        raise InputError(
            f"y: should be a 1d array of one value for each of the {rows} rows of X, and has "
            f"shape {shape}"
        )
    return column


def _plain_column(column: Any) -> pa.ChunkedArray:
    """Return values row by row, not in a dictionary or as views, which Arrow cannot search."""
    chunks = [plain_layout(chunk) for chunk in pa.chunked_array(column).chunks]
    return pa.chunked_array(chunks) if chunks else column


def _column_of_pandas(series: Any) -> Any:
    return _plain_column(series) if hasattr(series.dtype, "pyarrow_dtype") else series


def _to_array(values: Any, name: str) -> np.ndarray[Any, Any]:
    if issparse(values):
        raise InputError(
            f"{name}: sparse data was passed, but dense data is required. Use {name}.toarray()"
        )
    if isinstance(values, list | tuple):
        return _from_list(values)
    if isinstance(values, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(values.astype(object), None))
    return np.asarray(values)


def _from_list(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return objects in the shape that most entries have; the other entries are missing."""
    rows = [isinstance(v, list | tuple) or getattr(v, "ndim", 0) == 1 for v in values]
    lengths = [len(v) if is_row else None for v, is_row in zip(values, rows, strict=True)]
    width = Counter(lengths).most_common(1)[0][0] if lengths else None
    if width is None:
        return np.fromiter(values, dtype=object, count=len(values))
    table = np.full((len(values), width), None, dtype=object)
    for row, entry, length in zip(table, values, lengths, strict=True):
        if length == width:
            row[:] = np.fromiter(entry, dtype=object, count=width)
    return table


def to_floats(values: Any, column: Column, name: str) -> FloatArray:
    """Return numbers (n,), or positions in the column's list; NaN for everything else.

    Raises InputError for any other type, which it names.
    """
    if column.unit is not None:
        return _times_to_floats(values, column, column.unit, name)
    if isinstance(values, pa.ChunkedArray):
        return _arrow_to_floats(values, column, name)
    dtype = values.dtype
    if str(dtype) == "category":
        dtype = dtype.categories.dtype
    text = dtype.kind in "UT" or str(dtype).startswith(("str", "string", "large_string"))
    if dtype.kind == "c":
        raise InputError(f"{name}: Complex data not supported. Write two columns")
    if column.categories:
        if str(dtype) != "object":
            _check_type(dtype, column, name, text=text, numbers=dtype.kind in "biuf")
        return _positions(values.tolist(), column)
    if str(dtype) == "object":
        return np.array([_number(value, column.of_hours) for value in values.tolist()])
    _check_type(dtype, column, name, text=text, numbers=dtype.kind in "biuf" and not text)
    with np.errstate(all="ignore"):
        if hasattr(values, "iloc"):
            return np.asarray(values.to_numpy(np.float64, na_value=np.nan))
        return np.asarray(values.astype(np.float64))


def _arrow_to_floats(values: pa.ChunkedArray, column: Column, name: str) -> FloatArray:
    if pa.types.is_null(values.type):  # as where polars sees no value at all
        return np.full(len(values), np.nan)
    text = is_text(values.type)
    numbers = is_number(values.type) or (column.of_hours and is_clock(values.type))
    _check_type(values.type, column, name, text=text, numbers=numbers)
    if column.categories and numbers:
        return _positions(values.to_pylist(), column)
    return np.concatenate([np.empty(0), *(as_floats(chunk, column) for chunk in values.chunks)])


def _check_type(dtype: Any, column: Column, name: str, *, text: bool, numbers: bool) -> None:
    if not column.categories:
        fits, noun = numbers, ""
    elif isinstance(column.categories[0], str):
        fits, noun = text, "texts"
    elif isinstance(column.categories[0], bool):
        fits, noun = str(dtype).startswith("bool"), "booleans"
    else:  # of which False and True are 0 and 1
        truths = str(dtype).startswith("bool")
        fits, noun = numbers and (not truths or {0, 1} <= set(column.categories)), "integers"
    if fits:
        return
    if noun:
        raise InputError(
            f"{name}: is of type {dtype}, and the listed values are {noun}. Write both alike"
        )
    advice = "Convert it to numbers, or list its values"
    if "date" in str(dtype) or "timestamp" in str(dtype):
        advice = "Write two dates, or two times, as its bounds"
    elif str(dtype).startswith("time"):
        advice = "Write two numbers of hours, such as (0, 24), as its bounds"
    raise InputError(f"{name}: is of type {dtype}. {advice}")


def _times_to_floats(values: Any, column: Column, unit: TimeUnit, name: str) -> FloatArray:
    """Return dates and times in the unit of the column's bounds; NaN for everything else."""
    kind = getattr(values, "type", None) or values.dtype
    if str(kind) in ("object", "null"):
        return np.array([_moment(value, unit) for value in values.tolist()])
    if not isinstance(values, pa.ChunkedArray) and kind.kind == "M":
        if not hasattr(values, "iloc"):
            return unit.of_datetimes(values)
        values = pa.chunked_array([pa.array(values)])
    if not isinstance(values, pa.ChunkedArray) or not is_time(values.type):
        raise InputError(
            f"{name}: is of type {kind}, and its bounds are dates or times. Convert it, such as "
            "with pandas.to_datetime"
        )
    return np.concatenate([np.empty(0), *(as_floats(chunk, column) for chunk in values.chunks)])


def _moment(value: Any, unit: TimeUnit) -> float:
    try:
        if isinstance(value, np.datetime64):
            return float(unit.of_datetimes(np.array([value]))[0])
        return unit.of(value) if isinstance(value, date) else np.nan
    except Exception:  # noqa: BLE001 -- not a time, or a value's own code
        return np.nan


def time_column(numbers: FloatArray, low: float, high: float, unit: TimeUnit) -> pa.Array:
    """Return numbers of a unit as times, null at NaN; those outside the bounds are just outside."""
    missing = np.isnan(numbers)
    near = np.clip(np.where(missing, low, numbers), low - 1, high + 1)
    return pa.array(unit.to_datetimes(near), mask=missing)


def _positions(values: Sequence[Any], column: Column) -> FloatArray:
    positions = {value: float(index) for index, value in enumerate(column.categories)}
    return np.array([_look_up(positions, value) for value in values], dtype=np.float64)


def _look_up(positions: Mapping[Any, float], value: Any) -> float:
    try:
        return positions.get(value, np.nan)
    except Exception:  # noqa: BLE001 -- whatever a value's own code raises would tell of it
        return np.nan


def _number(value: Any, of_hours: bool) -> float:
    if of_hours and isinstance(value, time):
        return hours_of(value)
    try:
        return float(value) if isinstance(value, Real | np.bool_ | Decimal) else np.nan
    except Exception:  # noqa: BLE001 -- an integer beyond floats, or a value's own code
        return np.nan


def listed_column(positions: FloatArray, values: Sequence[Any]) -> pa.Array:
    """Return the listed values at positions, null at NaN."""
    missing = np.isnan(positions)
    indices: Int64Array = np.where(missing, 0, positions).astype(np.int64)
    return pa.array(list(values)).take(pa.array(indices, mask=missing))
