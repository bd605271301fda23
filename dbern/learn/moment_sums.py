"""Least squares by exact moments: integer sums of a record's numbers, their products and squares.

A record whose axes and response are floats z in [-1, 1]^D (bounds mapped to -1 and 1), and whose
categories are places in public lists, adds the entries of `dbern.reconstruct.moments` in units of
``2^-s``, each rounded to an integer; a missing record adds nothing, and neither does one with a
category that is not listed. The sums are exact; division by n and the noise come after. With degree
2 the products ``z_i z_j`` and ``2 z_i^2 - 1`` are further numbers: they lie in [-1, 1] too, as
floats as well, for products of such floats and ``2 p - 1`` round monotonically; the bound for so
many numbers holds, and is not attained.

Sensitivity
-----------
That module bounds how far the exact entries of any two z in the cube part. An entry as a float is
at most 128 (the largest weight) and off by two roundings at most, below ``2^-44``: ``2^-12`` units,
as s is at most 32. And it is rounded, by half a unit. So the integers of two records part by at
most 1.001 units an entry more than the exact entries, those of an added record by half of that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.combination.functions import count_with_products, with_products
from dbern.data.domain import Column, Domain, Response
from dbern.measure.accumulator import Errors, Memory
from dbern.measure.record_weights import ResponseWeight
from dbern.measure.vector_sums import VectorSum
from dbern.reconstruct.base import AnyStrategy, SensitivityBound
from dbern.reconstruct.moments import Moments, product_names
from dbern.targets.typical import EXPLAINED, TYPICAL_STD, typical_variances
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

_MAX_BITS = 32
_ROUNDED_STEPS = 1.001  # units that rounding parts two integers by
_ROWS = 1 << 13  # whose products are in memory at a time


@dataclass(frozen=True)
class MomentSums(VectorSum):
    """The moments of the axes and the response."""

    domain: Domain
    response: Response
    moments: Moments
    degree: int = 1
    name: str = field(default="moments", kw_only=True)

    @classmethod
    def of(cls, domain: Domain, response: Response, degree: int = 1) -> MomentSums:
        """Moments of all axes, with degree 2 of their products, and of the response."""
        numbers = count_with_products(len(domain.numeric), degree)
        return cls(domain, response, Moments.of(numbers + 1, domain.blocks), degree)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axes and the response."""
        return (*self.domain.columns, self.response.column)

    @property
    def size(self) -> int:
        """Number of moments."""
        return self.moments.size

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the moments."""
        names = [axis.name for axis in self.domain.numeric]
        names += product_names(names) if self.degree == 2 else []
        values = [
            [f"{axis.name} = {v}" for v in axis.categories] for axis in self.domain.categorical
        ]
        return tuple(self.moments.entry_names([*names, self.response.name], values))

    def typical_noise(self, n: int, epsilon: Fraction) -> tuple[float, float]:
        """Squared errors that Laplace noise adds, of listed values and of numbers.

        *Values*: of responses by value, where those of a list are as frequent as each other.
        *Numbers*: of a direction's variance v (`typical_variances`), of the normal equations' noise
        over v; that has the part of the response's products, and of columns' as much as the squares
        of slopes, which sum to ``s/v`` where they explain a variance s, in each direction the same.
        In squared units of half the range.
        """
        moments = self.moments
        deviation = math.sqrt(2) * moments.sensitivity(1).value / n / float(epsilon)
        entry = deviation**2 * moments.variances[1, -1]
        by_value = float(entry * sum(size**2 for size in moments.blocks))
        directions = typical_variances(moments.numeric - 1)
        inverses, count = float(np.sum(1 / directions)), max(1, len(directions))
        slopes = EXPLAINED * TYPICAL_STD**2 * inverses / count
        equations = deviation**2 * (moments.variances[-2, -1] + slopes)
        return by_value, float(equations * inverses)

    def function_move(self, *, added: bool) -> float:
        """The response's sums move by two, times their weight; by half of that if added."""
        return (1.0 if added else 2.0) * self.moments.largest_entry

    def move(self, strategy: AnyStrategy, norm: int, *, added: bool) -> SensitivityBound:
        """Bound n times the sensitivity (`dbern.reconstruct.moments`)."""
        del strategy
        return self.moments.added_sensitivity(norm) if added else self.moments.sensitivity(norm)

    def bits(self, n: int) -> int:
        """As many bits as never overflow: ``n a 2^s < 2^62``."""
        room = 62 - n.bit_length() - self.moments.largest_entry.bit_length()
        return min(_MAX_BITS, room)

    def errors(self, bits: int) -> Errors:
        """Bound errors; rounding adds a unit for each entry to the sensitivity.

        *Kernel*: of one record's entry half a unit, and the floats before it, are less than one.
        *Position*: of numbers that are a few roundings off, and of their products. *Floats*: an
        integer as a float, and a division, of at most the weight a, which no record's entry
        exceeds; in all, of the sum of all entries, in either norm.
        """
        moments, step = self.moments, _ROUNDED_STEPS * 2.0**-bits
        norm = OUTWARD * 3.01 * UNIT_ROUNDOFF * moments.largest
        return Errors(
            kernel=step,
            kernel_norms=(OUTWARD * moments.size * step, OUTWARD * math.sqrt(moments.size) * step),
            position=OUTWARD * 16 * UNIT_ROUNDOFF * moments.largest_entry,
            floats=OUTWARD * 3 * UNIT_ROUNDOFF * moments.largest_entry,
            float_norms=(norm, norm),
            value_bound=1.001 * moments.largest_entry,
        )

    @property
    def memory(self) -> Memory:
        """Memory of numbers, positions and masks, and of the products of a few records."""
        moments = self.moments
        columns = 6 * moments.numeric + 3 * len(moments.blocks)
        return Memory(
            8 * (8 + columns), tables=8 * (4 * _ROWS * moments.numeric_size + moments.size)
        )

    def sums(self, records: Mapping[str, FloatArray], bits: int) -> Int64Array:
        """Integer sums of a batch."""
        valid, positions = self.domain.bounded(records)
        has_response, _, responses = ResponseWeight(self.response)(records)
        codes, axes = self.domain.parted(positions[has_response[valid]])
        axes, products = np.split(
            with_products(axes) if self.degree == 2 else axes, [axes.shape[1]], axis=1
        )
        numbers = np.column_stack([2.0 * axes - 1.0, products, responses[valid & has_response]])
        sums = np.zeros(self.size, dtype=np.int64)
        for start in range(0, len(numbers), _ROWS):
            block = slice(start, start + _ROWS)
            plain = self._integers(numbers[block], bits)
            sums[: plain.shape[1]] += plain.sum(axis=0)
            if self.moments.blocks:
                self._add_categories(sums[plain.shape[1] :], numbers[block], codes[block], bits)
        return sums

    def _integers(self, numbers: FloatArray, bits: int) -> Int64Array:
        """Entries of each record's numbers, (m, entries)."""
        moments, scale = self.moments, float(1 << bits)
        first, second = moments.pairs
        products = numbers[:, first] * numbers[:, second]
        products[:, first == second] -= 0.5
        entries = np.column_stack([np.ones(len(numbers)), numbers, products])
        return np.rint(entries * moments.scales[: moments.numeric_size] * scale).astype(np.int64)

    def _add_categories(
        self, sums: Int64Array, numbers: FloatArray, codes: Int64Array, bits: int
    ) -> None:
        """Add counts and sums by value, and then counts of pairs of values, one after the other."""
        scale, blocks = 1 << bits, self.moments.blocks
        entries = np.column_stack([np.ones(len(numbers)), numbers])
        plain = self.moments.numeric_size
        scales = self.moments.scales[plain : plain + entries.shape[1]]  # of every value
        entries = np.rint(entries * scales * float(scale))
        width, start = entries.shape[1], 0
        for size, values in zip(blocks, codes.T, strict=True):
            cells = sums[start : start + size * width].reshape(size, width)
            np.add.at(cells, values, entries.astype(np.int64))
            start += cells.size
        for a, b in itertools.combinations(range(len(blocks)), 2):
            size = blocks[a] * blocks[b]
            pairs = np.bincount(codes[:, a] * blocks[b] + codes[:, b], minlength=size)
            sums[start : start + size] += scale * pairs
            start += size
