"""Public bounds of the columns of X, as a user writes them and as a spec does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np

from dbern.errors import SpecError

Pair: TypeAlias = Sequence[float] | Sequence[date] | Sequence[np.datetime64]
Values: TypeAlias = Sequence[Any] | Mapping[str, Sequence[Any]]
Bounds: TypeAlias = Pair | Sequence[Pair | Values] | Mapping[str, Pair | Values]
"""A pair for all columns, one for each in their order, or one for each by its name; in place of a
pair the list of a category's values, or ``{"values": [..]}``."""

_INTEGERS = 2**63  # of a column


def public_bounds(bounds: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return each column's bounds as a spec writes them: a pair, or the values that it may have."""
    fix = (
        f"Write bounds=[(low, high), ..] with a pair for each of the {len(names)} columns of X, a "
        "list of values for a category, or one pair for all, from what they mean: X.min() would "
        "be a look at the data"
    )
    if bounds is None:
        raise SpecError(f"bounds: are missing. {fix}")
    if hasattr(bounds, "keys") and (missing := [name for name in names if name not in bounds]):
        raise SpecError(f"bounds: have none for {missing[0]!r}, a column of X. {fix}")
    try:
        if hasattr(bounds, "keys"):
            columns = [bounds[name] for name in names]
        else:
            columns = [bounds] * len(names) if _is_pair(bounds) else list(bounds)
        return dict(zip(names, map(_bounds_of_column, columns), strict=True))
    except (KeyError, TypeError, ValueError):
        raise SpecError(f"bounds: are not those of X. {fix}") from None


def _is_pair(bounds: Any) -> bool:
    numbers = (int, float, np.integer, np.floating)
    if not isinstance(bounds, Sequence | np.ndarray) or len(bounds) != 2:
        return False
    of_numbers = all(isinstance(end, numbers) and not isinstance(end, bool) for end in bounds)
    return of_numbers or all(isinstance(end, date | np.datetime64) for end in bounds)


def _bounds_of_column(bounds: Any) -> list[Any] | dict[str, list[Any]]:
    if _is_pair(bounds):
        return [end if isinstance(end, date) else _number_or_date(end) for end in bounds]
    return {"values": listed_values(bounds["values"] if hasattr(bounds, "keys") else bounds)}


def _number_or_date(end: Any) -> float | date | datetime:
    if not isinstance(end, np.datetime64):
        return float(end)
    moment = end.astype(
        "datetime64[D]" if end.dtype == "datetime64[D]" else "datetime64[us]"
    ).item()
    if not isinstance(moment, date):  # not a time, or of a year that no calendar of Python has
        raise TypeError(end)
    return moment


def listed_values(values: Any) -> list[Any]:
    """Return the values of a public list: texts, integers or booleans, all of one type.

    Raises TypeError for anything else.
    """
    if isinstance(values, str):
        raise TypeError
    listed = [value.item() if isinstance(value, np.generic) else value for value in values]
    kinds = {type(value) for value in listed}
    if len(kinds) != 1 or not kinds <= {str, int, bool}:
        raise TypeError
    if kinds == {int} and not -_INTEGERS <= min(listed) <= max(listed) < _INTEGERS:
        raise TypeError
    return listed
