"""Functions of records and points that a spec names, the records that they get, and a trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np

from dbern.data.domain import Column, Domain, RecordSchema
from dbern.errors import SpecError
from dbern.privacy.keystream import KeyStream
from dbern.privacy.public_numbers import public_stream, uniform
from dbern.system import named_function
from dbern.types import FloatArray

FUNCTION: Final = "target.function"


@dataclass(frozen=True)
class Range:
    """Range of a column's values; `integer` for positions in a list."""

    low: float
    high: float
    integer: bool = False


def load_function(name: str) -> Callable[..., Any]:
    """Import the function that a spec names; SpecError where that fails."""
    return named_function(name, FUNCTION, "of records (n, columns) and points (m, l)")


@dataclass(frozen=True)
class UserFunction:
    """A function, the records it is called with and its bounds.

    `function` is ``module:name``, `digest` that of its module's text. The columns of `schema` are
    those of the function's records: axes, then label, response and group as far as there are some;
    of categories the position in their list. Values have the public bounds `low` and `high`;
    `failure` replaces a value where the function fails, None stops the release. `points` is the
    domain of the points that it is evaluated at, where that is not the records'. `n` is the public
    number of rows, 0 before a plan.
    """

    function: str
    digest: str
    schema: RecordSchema
    low: float
    high: float
    failure: float | None
    points: Domain | None = field(default=None, kw_only=True)
    n: int = field(default=0, kw_only=True)

    @property
    def domain(self) -> Domain:
        """Axes of the records."""
        return self.schema.domain

    @property
    def function_domain(self) -> Domain:
        """Axes of the points."""
        return self.points or self.schema.domain

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column of a record."""
        schema = self.schema
        response = schema.response.column if schema.response else None
        roles = (column for column in (schema.label, response, schema.group) if column)
        return (*schema.domain.columns, *roles)

    def rows(self, records: Mapping[str, FloatArray]) -> FloatArray:
        """Records that count (m', columns), in data units."""
        valid, _ = self.domain.bounded(records)
        values = [records[column.name] for column in self.columns]
        valid &= np.isfinite(values).all(axis=0)
        low, high = zip(*((column.low, column.high) for column in self.ranges), strict=True)
        # Adding 0.0 makes one zero of two, here as in the hash.
        return np.clip(np.column_stack(values)[valid], low, high) + 0.0

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Ranges of the columns' values."""
        ranges = [Range(axis.low, axis.high) for axis in self.domain.axes]
        for column in self.columns[len(ranges) :]:
            response = self.schema.response
            if column.categories or response is None:
                ranges.append(Range(0.0, len(column.categories) - 1.0, integer=True))
            else:
                ranges.append(Range(response.low, response.high))
        return tuple(ranges)


_TRIAL_POINTS = 3


def _uniform_records(ranges: Sequence[Range], rows: int, stream: KeyStream) -> FloatArray:
    """Independent records (rows, columns), uniform over their public ranges."""
    columns = []
    positions = uniform(stream, rows * len(ranges)).reshape(rows, len(ranges))
    for position, bounds in zip(positions.T, ranges, strict=True):
        if bounds.integer:
            columns.append(np.floor(position * (bounds.high + 1)))
        else:
            columns.append(
                np.clip(bounds.low + position * (bounds.high - bounds.low), bounds.low, bounds.high)
            )
    return np.column_stack(columns)


@lru_cache(maxsize=16)
def try_out(
    function: str, ranges: tuple[Range, ...], axes: tuple[tuple[float, float], ...], rows: int
) -> None:
    """Call a function once, with made-up records and a few points, within bounds of their `axes`.

    Raises SpecError for a function that raises, or does not return one number a point.
    """
    records = _uniform_records(ranges, rows, public_stream("trial of a function", 0))
    position = np.linspace(0, 1, _TRIAL_POINTS)[:, None]
    bounds = np.array(axes)
    points = bounds[:, 0] + position * (bounds[:, 1] - bounds[:, 0])
    user_function = load_function(function)
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(user_function(records, points), dtype=np.float64)
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- it may fail in any way
        shapes = f"records {(rows, len(ranges))} and points {points.shape}"
        raise SpecError(
            f"{FUNCTION}: fails on made-up records ({type(error).__name__}). It gets {shapes}. "
            "Mend it."
        ) from None
    if values.shape != (_TRIAL_POINTS,):
        raise SpecError(
            f"{FUNCTION}: returns shape {values.shape} for {_TRIAL_POINTS} points; return one "
            f"number a point, shape ({_TRIAL_POINTS},)"
        )
