"""A user's function of records and points: what it is asked of, and how its values are bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dbern.arrays import FloatArray
from dbern.domain import Column, Domain, RecordSchema
from dbern.functions import named_function

FUNCTION: Final = "target.function"


@dataclass(frozen=True)
class Range:
    """What a column's values are in; `whole` for positions in a list."""

    low: float
    high: float
    whole: bool = False


def load(name: str) -> Callable[..., Any]:
    """The function that a spec names.

    Raises
    ------
    SpecError
        Where it cannot be imported.
    """
    return named_function(name, FUNCTION, "of records (n, columns) and points (m, l)")


@dataclass(frozen=True)
class UserFunction:
    """A function, the records it is asked of and its bounds, whatever is known of it besides.

    Parameters
    ----------
    function, digest : str
        ``module:name``, and the digest of its module's text.
    schema : RecordSchema
        Its columns are those of the function's records: axes, then label, response and group as far
        as there are some; of categories the position in their list.
    low, high : float
        Public bounds of its values.
    failure : float, optional
        What stands for a value where it fails; None to stop the release.
    n : int
        Public number of rows; 0 before a plan.
    """

    function: str
    digest: str
    schema: RecordSchema
    low: float
    high: float
    failure: float | None
    n: int = field(default=0, kw_only=True)

    @property
    def domain(self) -> Domain:
        """The schema's."""
        return self.schema.domain

    @property
    def columns(self) -> tuple[Column, ...]:
        """All that a record has."""
        schema = self.schema
        response = schema.response.column if schema.response else None
        others = (one for one in (schema.label, response, schema.group) if one)
        return (*schema.domain.columns, *others)

    def rows(self, records: Mapping[str, FloatArray]) -> FloatArray:
        """The records that count (m', columns), in data units."""
        kept, _ = self.domain.bounded(records)
        values = [records[column.name] for column in self.columns]
        kept &= np.isfinite(values).all(axis=0)
        low, high = zip(*((one.low, one.high) for one in self.ranges), strict=True)
        # Adding 0.0 makes one zero of two, here as in the hash.
        return np.clip(np.column_stack(values)[kept], low, high) + 0.0

    @property
    def ranges(self) -> tuple[Range, ...]:
        """What each column's values are in."""
        found = [Range(axis.low, axis.high) for axis in self.domain.axes]
        for column in self.columns[len(found) :]:
            response = self.schema.response
            if column.categories or response is None:
                found.append(Range(0.0, len(column.categories) - 1.0, whole=True))
            else:
                found.append(Range(response.low, response.high))
        return tuple(found)
