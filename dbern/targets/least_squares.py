"""Least squares by exact moments: integer sums of a record's numbers, their products and squares.

A record whose axes and response are floats z in [-1, 1]^D (bounds mapped to -1 and 1) adds the
entries of `dbern.strategies.moments` in units of ``2^-s``, each rounded to an integer; the null
record adds nothing. The sums are exact; division by n and the noise come after.

Sensitivity
-----------
That module bounds how far the exact entries of any two z in the cube part. An entry as a float is
at most 129 (the largest weight) and off by two roundings at most, below ``2^-45``: ``2^-13`` units,
as s is at most 32. And it is rounded, by half a unit. So the integers of two records part by at
most 1.001 units an entry more than the exact entries, those of an added record by half of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.counting.kernel_sums import ByResponse
from dbern.counting.measurement import WHOLE, Vector
from dbern.data.domain import Column, Domain, Response
from dbern.strategies.base import BumpBound, Entries, Slab
from dbern.strategies.moments import Moments
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

_MOST_BITS = 32
_ROUNDED = 1.001  # units that rounding parts two integers by
_ROWS = 1 << 13  # whose products are in memory at a time


@dataclass(frozen=True)
class MomentSums(Vector):
    """The moments of the axes and the response, over n.

    Examples
    --------
    >>> from dbern.data.domain import Axis
    >>> sums = MomentSums.of(Domain((Axis("x", 0.0, 1.0),)), Response("y", 0.0, 9.0))
    >>> sums.entries[1:4], round(sums.movement(1).value, 3)
    (('sum of x', 'sum of y', 'square of x'), 5.333)
    """

    domain: Domain
    response: Response
    moments: Moments

    @classmethod
    def of(cls, domain: Domain, response: Response, *, share: Fraction = WHOLE) -> MomentSums:
        """Those of all axes and the response."""
        moments = Moments.of(domain.dimensions + 1)
        entries = moments.entries((*domain.names, response.name))
        return cls("moments", share, entries, domain, response, moments)

    @property
    def entry_movement(self) -> float:
        """The response's sum moves by two, times its weight."""
        return 2.0 * self.moments.weight

    def movement(self, norm: int) -> BumpBound:
        """See `dbern.strategies.moments`."""
        return self.moments.movement(norm)

    @property
    def added_entry_movement(self) -> float:
        """The count moves by one, times its weight."""
        return float(self.moments.weight)

    def added_movement(self, norm: int) -> BumpBound:
        """See `dbern.strategies.moments`."""
        return self.moments.added_movement(norm)

    def statistic(self, n: int) -> MomentStatistic:
        """As many bits as never overflow: ``n a 2^s < 2^62``."""
        room = 62 - n.bit_length() - self.moments.weight.bit_length()
        return MomentStatistic(self, n, min(_MOST_BITS, room))

    def restore(self, n: int, counting: Mapping[str, Any]) -> MomentStatistic:
        """With the planned bits."""
        return MomentStatistic(self, n, counting["bits"])


@dataclass(frozen=True)
class MomentStatistic:
    """The integers: what workers add up."""

    component: MomentSums
    n: int
    bits: int

    @property
    def coordinates(self) -> Entries:
        """The entries."""
        return Entries(self.component.moments.size)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axes and the response."""
        return (*self.component.domain.columns, self.component.response.column)

    @property
    def counting(self) -> dict[str, Any]:
        """The fixed-point bits."""
        return {"bits": self.bits}

    @property
    def description(self) -> str:
        """Exact integers."""
        return f"{self.component.moments.size} exact integer sums"

    @property
    def kernel_error(self) -> float:
        """Of one record's entry: half a unit, and the floats before it."""
        return _ROUNDED * 2.0**-self.bits

    @property
    def position_error(self) -> float:
        """Of numbers that are a few roundings off, and of their products."""
        return OUTWARD * 16 * UNIT_ROUNDOFF * self.component.moments.weight

    @property
    def float_error(self) -> float:
        """An integer as a float, and a division, of at most the weight."""
        return OUTWARD * 3 * UNIT_ROUNDOFF * self.component.moments.weight

    @property
    def value_bound(self) -> float:
        """No record's entry exceeds the weight."""
        return 1.001 * self.component.moments.weight

    def kernel_error_norm(self, norm: int) -> float:
        """One unit for each entry: see the top of the module."""
        each = self.component.moments.size ** (1 / norm)
        return float(OUTWARD * each * self.kernel_error)

    def float_error_norm(self, norm: int) -> float:
        """``3 2^-53`` of the sum of all entries, in either norm."""
        del norm
        return OUTWARD * 3.01 * UNIT_ROUNDOFF * self.component.moments.largest

    @property
    def batch_bytes(self) -> int:
        """Numbers and masks; products are made of a few records at a time."""
        return 8 * (8 + 6 * self.component.moments.numbers)

    @property
    def table_bytes(self) -> int:
        """The products of a few records."""
        return 8 * 4 * _ROWS * self.component.moments.size

    @property
    def shape(self) -> tuple[int, ...]:
        """The entries."""
        return (self.component.moments.size,)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        kept, positions = self.component.domain.bounded(records)
        known, _, responses = ByResponse(self.component.response)(records)
        axes = 2.0 * positions[known[kept]] - 1.0
        numbers = np.column_stack([axes, responses[kept & known]])
        for start in range(0, len(numbers), _ROWS):
            state += self._integers(numbers[start : start + _ROWS]).sum(axis=0)

    def _integers(self, numbers: FloatArray) -> Int64Array:
        """Each record's, (m, entries)."""
        moments, unit = self.component.moments, float(1 << self.bits)
        first, second = moments.pairs
        products = numbers[:, first] * numbers[:, second]
        products[:, first == second] -= 0.5
        linear = np.column_stack([np.ones(len(numbers)), numbers]) * moments.weights
        return np.rint(np.hstack([linear, products]) * unit).astype(np.int64)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """The entries of one slab over n."""
        del output
        part = state[slab.start : slab.stop].astype(np.float64)
        return np.ldexp(part, -self.bits) / self.n
