"""Public rules from a record to an output and a weight in [-1, 1]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dbern.data.domain import Column, Response
from dbern.types import BoolArray, FloatArray, Int64Array

WEIGHTS_BYTES = 64
"""Memory of a record's output, weight and the temporaries on the way there."""


class RecordWeights(ABC):
    """A public rule from a record to an output and a weight; frozen and importable.

    It reads no column, has one output and no negative weights unless it says so.
    """

    @property
    def signed(self) -> bool:
        """Whether weights may be negative."""
        return False

    @property
    def divided(self) -> bool:
        """Whether a record is in two outputs: with its weight, not negative, and the rest of 1.

        The rest is exact, and in the output that is half of all outputs further on.
        """
        return False

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns it reads."""
        return ()

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return 1

    @abstractmethod
    def __call__(
        self, records: Mapping[str, FloatArray]
    ) -> tuple[BoolArray | None, Int64Array | None, FloatArray | None]:
        """Return which records count, outputs and weights, each (m,); None: all, first, one.

        Outputs and weights of records that do not count may be anything finite.
        """


@dataclass(frozen=True)
class UnitWeight(RecordWeights):
    """A rule by which every record counts one."""

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[None, None, None]:
        """Return every record, the first output, weight one."""
        del records
        return None, None, None


UNIT_WEIGHT = UnitWeight()


@dataclass(frozen=True)
class CategoryWeights(RecordWeights):
    """A rule by a column's category; an unknown one is the missing record."""

    column: Column

    @property
    def columns(self) -> tuple[Column, ...]:
        """The column."""
        return (self.column,)


@dataclass(frozen=True)
class ByCategory(CategoryWeights):
    """A rule by which each record counts one in its category's output."""

    @property
    def outputs(self) -> int:
        """Number of categories."""
        return len(self.column.categories)

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[BoolArray, Int64Array, None]:
        """Return known categories, their positions, one."""
        codes = records[self.column.name]
        known = np.isfinite(codes)
        return known, np.where(known, codes, 0).astype(np.int64), None


@dataclass(frozen=True)
class SignWeight(CategoryWeights):
    """A rule by which the second of two categories counts plus one, the first minus one."""

    signed = True

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[BoolArray, None, FloatArray]:
        """Return known categories, first, plus or minus one."""
        codes = records[self.column.name]
        known = np.isfinite(codes)
        return known, None, 2.0 * np.where(known, codes, 0.0) - 1.0


@dataclass(frozen=True)
class InGroups(CategoryWeights):
    """A rule that counts a record in its category's output, weighed or divided by another rule."""

    weights: RecordWeights

    @property
    def signed(self) -> bool:
        """Whether the other rule's weights may be negative."""
        return self.weights.signed

    @property
    def divided(self) -> bool:
        """Whether the other rule divides a record; those of other packages need not say so."""
        return bool(getattr(self.weights, "divided", False))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The category's column and the other rule's."""
        return (self.column, *self.weights.columns)

    @property
    def outputs(self) -> int:
        """Number of categories, for each of the other rule's outputs."""
        return self.weights.outputs * len(self.column.categories)

    def __call__(
        self, records: Mapping[str, FloatArray]
    ) -> tuple[BoolArray, Int64Array, FloatArray | None]:
        """Return known categories of records that the other rule counts, positions, weights."""
        known, codes, _ = ByCategory(self.column)(records)
        counts, _, weight = self.weights(records)
        return known if counts is None else known & counts, codes, weight


@dataclass(frozen=True)
class ResponseWeight(RecordWeights):
    """The response, clamped to its bounds: its distance from their middle over their half-width.

    Only single IEEE operations; the division rounds to at most one because the radius is rounded
    outward.
    """

    response: Response
    signed = True

    @property
    def columns(self) -> tuple[Column, ...]:
        """The response's column."""
        return (self.response.column,)

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[BoolArray, None, FloatArray]:
        """Return finite responses, first, numbers in [-1, 1]."""
        values = records[self.response.name]
        known = np.isfinite(values)
        clamped = np.clip(np.where(known, values, 0.0), self.response.low, self.response.high)
        return known, None, np.clip((clamped - self.response.middle) / self.response.radius, -1, 1)


@dataclass(frozen=True)
class DividedResponse(ResponseWeight):
    """A rule that divides a record by its response: by how far it is from the low to the high end.

    Weights are multiples of 2^-52, so that a float has the rest.
    """

    signed = False
    divided = True

    @property
    def outputs(self) -> int:
        """For the high end and for the low one."""
        return 2

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[BoolArray, None, FloatArray]:
        """Return finite responses, first, numbers in [0, 1]."""
        known, _, weight = super().__call__(records)
        return known, None, np.rint((weight + 1) * 2.0**51) * 2.0**-52
