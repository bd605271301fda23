"""Public rules from a record to an output and a weight: what a kernel sum adds up.

Every rule decides by one record alone, with single IEEE operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dbern.arrays import BoolArray, FloatArray, Int64Array
from dbern.domain import Column, Response

WEIGHING_BYTES = 64
"""Memory of a record's output, weight and the temporaries on the way there."""


class Weighing(Protocol):
    """The public rule from a record to an output and a weight; frozen and importable."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns it reads."""

    @property
    def outputs(self) -> int:
        """How many outputs there are."""

    @property
    def signed(self) -> bool:
        """Whether weights may be negative."""

    def __call__(
        self, records: Mapping[str, FloatArray]
    ) -> tuple[BoolArray | None, Int64Array | None, FloatArray | None]:
        """Which records count, their outputs and weights, each (m,); None: all, first, one.

        Outputs and weights of records that do not count may be anything finite.
        """


@dataclass(frozen=True)
class Alike:
    """Every record counts one."""

    columns: tuple[Column, ...] = ()
    outputs: int = 1
    signed: bool = False

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[None, None, None]:
        """All, first, one."""
        del records
        return None, None, None


ALIKE = Alike()


@dataclass(frozen=True)
class ByCategory:
    """Each record counts one in the output of its category; an unknown one is the null record."""

    column: Column
    signed: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        """The category's."""
        return (self.column,)

    @property
    def outputs(self) -> int:
        """One a category."""
        return len(self.column.categories)

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[BoolArray, Int64Array, None]:
        """Known categories, their positions, one."""
        codes = records[self.column.name]
        known = np.isfinite(codes)
        return known, np.where(known, codes, 0).astype(np.int64), None


@dataclass(frozen=True)
class BySign:
    """The second of two categories counts plus one, the first minus one."""

    column: Column
    outputs: int = 1
    signed: bool = True

    @property
    def columns(self) -> tuple[Column, ...]:
        """The category's."""
        return (self.column,)

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[BoolArray, None, FloatArray]:
        """Known categories, first, plus or minus one."""
        codes = records[self.column.name]
        known = np.isfinite(codes)
        return known, None, 2.0 * np.where(known, codes, 0.0) - 1.0


@dataclass(frozen=True)
class ByResponse:
    """The response, clamped to its bounds, as a share of their half-width from their middle.

    Only single IEEE operations; the division rounds to at most one because the radius is rounded
    outward.
    """

    response: Response
    outputs: int = 1
    signed: bool = True

    @property
    def columns(self) -> tuple[Column, ...]:
        """The response's."""
        return (self.response.column,)

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[BoolArray, None, FloatArray]:
        """Finite responses, first, numbers in [-1, 1]."""
        values = records[self.response.name]
        known = np.isfinite(values)
        clamped = np.clip(np.where(known, values, 0.0), self.response.low, self.response.high)
        return known, None, np.clip((clamped - self.response.middle) / self.response.radius, -1, 1)


@dataclass(frozen=True)
class Present:
    """Every record with a finite response counts one."""

    response: Response
    outputs: int = 1
    signed: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        """The response's."""
        return (self.response.column,)

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[BoolArray, None, None]:
        """Finite responses, first, one."""
        return np.isfinite(records[self.response.name]), None, None
