"""Public rules from a record to an output and a weight: what a kernel sum adds up.

Every rule decides by one record alone, with single IEEE operations. `Summands` are all that is
public about what a sum adds: the rule, and where records are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dbern.arrays import BoolArray, FloatArray, Int64Array
from dbern.bernstein.rows import Rows
from dbern.bernstein.spectrum import UNIT_ROUNDOFF
from dbern.domain import Column, Domain, Outside, Response
from dbern.oblique import Oblique

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


@dataclass(frozen=True)
class Summands:
    """What of each record a kernel sum adds up: its position, output and weight.

    Parameters
    ----------
    domain : Domain
        The axes of the sum.
    box : Domain, optional
        All axes in which a record must be valid to count; by default those.
    oblique : Oblique, optional
        From positions in the box to those in `domain`.
    """

    domain: Domain
    weighing: Weighing
    box: Domain | None = None
    oblique: Oblique | None = None

    @property
    def outputs(self) -> int:
        """As many as the weighing has."""
        return self.weighing.outputs

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the axes and those of the weights."""
        return (self.box or self.domain).columns + self.weighing.columns

    def rows(self, records: Mapping[str, FloatArray]) -> Rows:
        """A batch as it is added up: axes with their bounds, outputs and weights."""
        axes = self.domain.axes
        counts, output, weight = self.weighing(records)
        if self.box is not None:
            kept, unit = self.box.bounded(records)
            counts = kept if counts is None else kept & counts
            if self.oblique is not None:
                columns = np.zeros((len(axes), len(kept)))
                columns[:, kept] = self.oblique.positions(unit).T
                ends = [0.0] * len(axes), [1.0] * len(axes)
                return Rows(list(columns), *ends, True, counts, output, weight)
        return Rows(
            [records[axis.name] for axis in axes],
            [axis.low for axis in axes],
            [axis.high for axis in axes],
            self.domain.outside is Outside.CLAMP,
            counts,
            output,
            weight,
        )

    @property
    def shift(self) -> float:
        """Bound on what a position is rounded by, in shares of its axis.

        Eight roundings; oblique, those of l products, of their factors and of l sums besides, and
        the same of the points that are asked for.
        """
        return UNIT_ROUNDOFF * (8 if self.oblique is None else 24 + 4 * self.domain.dimensions)

    @property
    def row_bytes(self) -> int:
        """Memory that a record of a batch takes before it is added."""
        return WEIGHING_BYTES + (0 if self.oblique is None else 48 * self.domain.dimensions)

    @property
    def coordinates_text(self) -> str:
        """What a description says of the axes."""
        return "" if self.oblique is None else ", in oblique coordinates"
