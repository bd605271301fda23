"""The band of a question: an estimate and the ends of its interval."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dbern.types import FloatArray


class Band(NamedTuple):
    """An estimate and the ends of its interval, (m,) each.

    `cells` is the width between the values that minorants and majorants have without noise.
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    cells: FloatArray

    @classmethod
    def without_cells(cls, value: FloatArray, low: FloatArray, high: FloatArray) -> Band:
        """Return a band whose cells' width is not known: NaN."""
        return cls(value, low, high, np.full_like(value, np.nan))

    def minus(self, subtracted: Band) -> Band:
        """Return the band of the difference."""
        value, low = self.value - subtracted.value, self.low - subtracted.high
        high, cells = self.high - subtracted.low, self.cells + subtracted.cells
        return Band(value, low, high, cells)

    def scaled(self, low: FloatArray | float, width: FloatArray | float) -> Band:
        """Return the band of ``low + width x``, for a positive width."""
        value, first, last = (low + width * numbers for numbers in self[:3])
        return Band(value, first, last, width * self.cells)


def band_in_batches(
    count: int, batch_size: int, beta: Fraction, band: Callable[[slice, Fraction], Band]
) -> Band:
    """Return the band of `count` numbers, a batch at a time, each at its fraction of beta."""
    bands = []
    for start in range(0, count, max(batch_size, 1)):
        batch = slice(start, min(start + max(batch_size, 1), count))
        bands.append(band(batch, beta * (batch.stop - start) / count))
    return Band(*map(np.concatenate, zip(*bands, strict=True)))
