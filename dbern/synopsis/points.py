"""Points in the forms that a query may have them, as one array."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from dbern.arrays import FloatArray
from dbern.domain import Domain
from dbern.errors import SpecError

Points: TypeAlias = Any
"""A numpy or dask array (m, l), or (m,) where l = 1, or a table by column name."""


def as_points(points: Points, domain: Domain) -> FloatArray:
    """Points in memory as an array (m, l) in axis order.

    Raises
    ------
    SpecError
        For anything else; it does not quote a value.

    Examples
    --------
    >>> from dbern.domain import Axis
    >>> as_points({"y": [1, 2], "x": [3, 4]}, Domain((Axis("x", 0, 9), Axis("y", 0, 9)))).tolist()
    [[3.0, 1.0], [4.0, 2.0]]
    """
    plain = isinstance(points, np.ndarray | list | tuple | float | int | np.number)
    array = _floats(points, domain) if plain else _stacked(points, domain)
    check_shape(array.shape, domain)
    return array.reshape(len(array), domain.dimensions)


def check_shape(shape: tuple[int, ...], domain: Domain) -> None:
    """Refuse a shape other than (m, l), or (m,) where l = 1."""
    flat = domain.dimensions == 1 and len(shape) == 1
    if not flat and (len(shape) != 2 or shape[1] != domain.dimensions):
        raise SpecError(
            f"points have shape {shape}; write (m, {domain.dimensions}) in the order "
            f"{', '.join(domain.names)}"
        )


def _floats(values: Any, domain: Domain) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError):  # whose text quotes the value
        raise SpecError(
            f"points must be numbers; write an array (m, {domain.dimensions}) in the "
            f"order {', '.join(domain.names)}"
        ) from None


def _stacked(table: Any, domain: Domain) -> FloatArray:
    names = domain.names
    if not hasattr(table, "__getitem__") or hasattr(table, "to_dask_array"):
        raise SpecError(
            f"points of type {type(table).__name__} cannot be used; write a numpy or dask "
            f"array (m, {len(names)}), or a table with the columns {', '.join(names)}"
        )
    try:
        columns = [table[name] for name in names]
    except (KeyError, IndexError, TypeError):
        raise SpecError(
            f"the table has not every axis; it needs the columns {', '.join(names)}"
        ) from None
    stacked = [_floats(column, domain) for column in columns]
    if len({column.shape for column in stacked}) > 1 or stacked[0].ndim != 1:
        raise SpecError(f"the columns {', '.join(names)} must be flat and equally long")
    return np.column_stack(stacked)
