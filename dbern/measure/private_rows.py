"""Sums where the number of rows is private: over a public normalizer n instead.

*The most rows.* Integers must not overflow, and floats err in proportion to what they hold, on
every database. So accumulators are resolved for `most_rows`, m, a public power of two: their bounds
hold for any number of rows up to that, values being over m. Division by m is exact; values times m
(exact too) are then divided by n instead, which rounds once, as the accumulator's bound for its own
division allows. Errors over m become errors over n times ``m / n``. More rows are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dbern.bernstein.kernels import OUTWARD
from dbern.measure.accumulator import DerivedAccumulator, Errors
from dbern.privacy.budget import Protection
from dbern.reconstruct.base import AnyStrategy
from dbern.reconstruct.layouts import Slab
from dbern.types import FloatArray, Int64Array

_MIN_MOST_ROWS = 1 << 32
_ROWS_PER_NORMALIZER = 8


def most_rows(normalizer: int) -> int:
    """The most rows there can be where their number is private: a public power of two."""
    return max(_MIN_MOST_ROWS, _ROWS_PER_NORMALIZER << normalizer.bit_length())


@dataclass(frozen=True)
class NormalizedAccumulator(DerivedAccumulator):
    """An accumulator for the most rows, m, whose values are over the normalizer n instead."""

    strategy: AnyStrategy
    protection: Protection
    n: int

    @property
    def errors(self) -> Errors:
        """Bound errors of a replaced record, or half of it for each row of a unit.

        Norms are over all databases.

        Errors of one value are those for at most as many records as the normalizer: accuracy alone.
        """
        errors, rows = self.inner.errors, self.protection.unit.max_contributions
        scale, added = OUTWARD * most_rows(self.n) / self.n, self.protection.added
        l1, l2 = (OUTWARD * rows * (norm / 2 if added else norm) for norm in errors.kernel_norms)
        floats_l1, floats_l2 = (OUTWARD * scale * norm for norm in errors.float_norms)
        return replace(
            errors,
            kernel_norms=(l1, l2),
            float_norms=(floats_l1, floats_l2),
            value_bound=OUTWARD * scale * errors.value_bound,
        )

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Values over the normalizer."""
        return self.inner.to_values(state, output, slab) * float(most_rows(self.n)) / self.n
