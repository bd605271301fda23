"""Columns of X and y, read by their shapes and types alone.

scikit-learn's own checks count labels, and refuse a value with its text: either tells of a record.
Here a value that is no number, or none of those that are listed, is a missing one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning

from dbern.errors import SpecError
from dbern.types import FloatArray

Pair: TypeAlias = Sequence[float]
Values: TypeAlias = Sequence[Any] | Mapping[str, Sequence[Any]]
Bounds: TypeAlias = Pair | Sequence[Pair | Values] | Mapping[str, Pair | Values]
"""A pair for all columns, one for each in their order, or one for each by its name; in place of a
pair the list of a category's values, or ``{"values": [..]}``."""


def split_columns(table: Any) -> list[Any]:
    """Return the columns of a table or of a matrix.

    Raises
    ------
    TypeError, ValueError
        For what has another shape or a type that no column is read of.
    """
    if issparse(table):
        raise TypeError("X: sparse data was passed, but dense data is required. Use X.toarray()")
    if hasattr(table, "columns") and hasattr(table, "iloc"):
        columns = [table.iloc[:, index] for index in range(table.shape[1])]
    elif hasattr(table, "get_columns"):  # of polars
        columns = table.get_columns()
    else:
        matrix = table if hasattr(table, "dtype") else np.asarray(table, dtype=object)
        matrix = np.asarray(matrix)
        if matrix.ndim != 2:
            raise ValueError(
                f"X: expected a 2D array, got {matrix.ndim}D. Reshape your data with "
                "X.reshape(-1, 1) if it is of one column, or X.reshape(1, -1) if of one row"
            )
        columns = list(matrix.T)
    shape = (len(columns[0]) if columns else len(table), len(columns))
    for count, what in zip(shape, ("sample", "feature"), strict=True):
        if count < 1:
            raise ValueError(
                f"X: {count} {what}(s) (shape={shape}) while a minimum of 1 is required."
            )
    return columns


def to_numbers(column: Any, what: str = "X") -> FloatArray:
    """Return a column as floats; what is no number is NaN, which is a missing value.

    Raises
    ------
    ValueError
        For a column whose type holds no numbers.
    """
    values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if values.dtype.kind == "c":
        raise ValueError(f"{what}: Complex data not supported")
    if values.dtype.kind not in "OUST":
        raise ValueError(f"{what}: a column is of type {values.dtype}. Convert it to numbers")
    return np.fromiter(map(_to_number, values.tolist()), np.float64, len(values))


def _to_number(value: Any) -> float:
    try:
        return float(value)
    except Exception:  # noqa: BLE001 -- whatever a value's own code raises would tell of it
        return np.nan


def to_listed(column: Any, values: Sequence[Any]) -> pa.Array:
    """Return a column as Arrow's, in which all but the listed values are null."""
    listed = {value: value for value in values}
    known = [_look_up(listed, value) for value in _to_list(column)]
    return pa.array(known, pa.array(list(values)).type)


def _look_up(listed: Mapping[Any, Any], value: Any) -> Any:
    try:
        return listed.get(value)
    except TypeError:  # no value that could be listed: it has no hash
        return None


def _to_list(column: Any) -> list[Any]:
    return list(column.to_list() if hasattr(column, "to_list") else np.asarray(column).tolist())


def one_column(y: Any, rows: int) -> np.ndarray:
    """Return y as one column of as many rows as X.

    Raises
    ------
    ValueError
        For a missing y, or one of another shape.
    """
    if y is None:
        raise ValueError("y: requires y to be passed, but the target y is None")
    column = np.asarray(y) if hasattr(y, "dtype") else np.asarray(y, dtype=object)
    shape = column.shape
    if len(shape) == 2 and shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Use y.ravel()",
            DataConversionWarning,
            stacklevel=4,
        )
        column = column[:, 0]
    elif len(shape) != 1:
        raise ValueError(f"y: should be a 1d array, got an array of shape {shape} instead")
    if len(column) != rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[rows, len(column)]}"
        )
    return column


def public_bounds(bounds: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return each column's bounds as a spec writes them: a pair, or the values that it may have.

    Raises
    ------
    SpecError
        Where they are missing, or not those of the columns.
    """
    fix = (
        f"Write bounds=[(low, high), ..] with a pair for each of the {len(names)} columns of X, a "
        "list of values for a category, or one pair for all, from what they mean: X.min() would "
        "be a look at the data"
    )
    if bounds is None:
        raise SpecError(f"bounds: are missing. {fix}")
    try:
        if hasattr(bounds, "keys"):
            each = [bounds[name] for name in names]
        else:
            each = [bounds] * len(names) if _is_pair(bounds) else list(bounds)
        return dict(zip(names, map(_bounds_of_column, each), strict=True))
    except (KeyError, TypeError, ValueError):
        raise SpecError(f"bounds: are not those of X. {fix}") from None


def _is_pair(bounds: Any) -> bool:
    numbers = (int, float, np.integer, np.floating)
    return np.shape(bounds) == (2,) and all(
        isinstance(end, numbers) and not isinstance(end, bool) for end in bounds
    )


def _bounds_of_column(bounds: Any) -> list[float] | dict[str, list[Any]]:
    if _is_pair(bounds):
        return [float(end) for end in bounds]
    values = bounds["values"] if hasattr(bounds, "keys") else bounds
    if isinstance(values, str) or np.ndim(values) != 1:
        raise TypeError
    return {"values": np.asarray(values).tolist() if hasattr(values, "dtype") else list(values)}
