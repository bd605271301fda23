"""Multiples that an axis counts in, from its lower bound on, and records rounded to them.

A spec may say that an axis counts in halves or in whole years. Its records are then rounded to
``lower + i r`` in exact rational arithmetic of the decimals that the spec writes, ties to even i.
That maps one record at a time, by public numbers alone. So databases that differ in one record
differ in one after it, and every sensitivity holds as it is: docs/sensitivity.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from dbern.types import FloatArray, Int64Array

MAX_STEPS = 1 << 20
"""Most steps of an axis, from its lower bound to its upper one."""

NEAR = 1e-9
"""Share of a step: an end of a region that is as near to a multiple is at it."""

_ROUNDING = 2.0**-50  # of the largest bound: see `deviation`


@dataclass(frozen=True)
class Multiples:
    """The values ``low + i step`` for i from 0 to `count`, exactly.

    Each stands in data for its nearest 64-bit float.
    """

    low: Fraction
    step: Fraction
    count: int

    @property
    def over_one_denominator(self) -> tuple[int, int, int]:
        """Numerators of the first and of a step, and their common denominator."""
        denominator = math.lcm(self.low.denominator, self.step.denominator)
        return int(self.low * denominator), int(self.step * denominator), denominator

    @property
    def values(self) -> FloatArray:
        """The floats that stand for the multiples (count + 1,), in data units."""
        return _values(self)

    @property
    def positions(self) -> FloatArray:
        """These floats as positions in the unit interval, as records get them."""
        return _positions(self)

    @property
    def deviation(self) -> float:
        """Bound how far a float is from its multiple, both as positions in the unit interval.

        ``(x - a) / (b - a)`` with each of x, a, b the nearest float to its decimal: these are off
        by ``2^-53`` of the largest at most, so the quotient is off by a little more than four of
        these over the width. It is doubled.
        """
        high = self.low + self.count * self.step
        return float(max(abs(self.low), abs(high)) / (high - self.low)) * _ROUNDING

    def bins(self, cells: int, degree: int) -> Int64Array | None:
        """Return for each multiple the bin that alone counts its rows, if there is one for each.

        So it is of splines of degree 1 with a node at each: there one is 1, and all others are 0.
        """
        between, rest = divmod(cells, self.count)
        if degree != 1 or rest:
            return None
        return np.arange(self.count + 1) * between

    def rounded(self, numbers: FloatArray) -> FloatArray:
        """Round numbers within the bounds to the nearest multiple, of two to that of even i.

        Others, and NaN, stay as they are: they are dropped, or moved to a bound, which is one.
        """
        values, thresholds = self.values, _thresholds(self)
        nearest = values[np.searchsorted(thresholds, numbers, side="right")]
        inside = (numbers >= values[0]) & (numbers <= values[-1])
        return np.where(inside, nearest, numbers)

    def at(self, positions: FloatArray) -> FloatArray:
        """Return the multiples that are nearest to positions of the unit interval."""
        return self.values[np.rint(positions * self.count).astype(np.int64)]

    def up_to(self, positions: FloatArray) -> Int64Array:
        """Return the last i whose multiple is not above each position of the unit interval; or -1.

        A position that is nearer than `NEAR` of a step to a multiple is at it.
        """
        return self._last(positions, NEAR)

    def below(self, positions: FloatArray) -> Int64Array:
        """Return the last i whose multiple is below each position, as `up_to`."""
        return self._last(positions, -NEAR)

    def _last(self, positions: FloatArray, more: float) -> Int64Array:
        side: Literal["left", "right"] = "right" if more > 0 else "left"
        reached = positions + more / self.count
        return np.searchsorted(self.positions, reached, side=side) - 1


def decimal_of(number: float) -> Fraction:
    """Return the shortest decimal that reads as a float: what a spec writes."""
    return Fraction(repr(float(number)))


@lru_cache(maxsize=16)
def _values(multiples: Multiples) -> FloatArray:
    first, step, denominator = multiples.over_one_denominator
    return _constant([(first + i * step) / denominator for i in range(multiples.count + 1)])


@lru_cache(maxsize=16)
def _positions(multiples: Multiples) -> FloatArray:
    values = multiples.values
    return _constant((values - values[0]) / (values[-1] - values[0]))


@lru_cache(maxsize=16)
def _thresholds(multiples: Multiples) -> FloatArray:
    """Return for each i below the last the least float that rounds to i + 1."""
    first, step, denominator = multiples.over_one_denominator
    thresholds = []
    for i in range(multiples.count):
        middle, twice = 2 * first + (2 * i + 1) * step, 2 * denominator
        nearest = middle / twice  # Python rounds quotients of integers correctly
        above, below = nearest.as_integer_ratio()
        excess = above * twice - middle * below
        tie_goes_down = excess == 0 and i % 2 == 0
        if excess < 0 or tie_goes_down:
            nearest = math.nextafter(nearest, math.inf)
        thresholds.append(nearest)
    return _constant(thresholds)


def _constant(numbers: Any) -> FloatArray:
    array = np.array(numbers, dtype=np.float64)
    array.setflags(write=False)
    return array
