"""The band of a question: an estimate, the ends of its interval, and its likely error."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dbern.types import FloatArray

CELL_ERROR_FRACTION = 0.05
"""Of the cells' width, for a likely error: about what it is where the rows of each cell stand at
ten values. Rows at many values err less, and rows at few values close to an edge more."""


class Band(NamedTuple):
    """An estimate and the ends of its interval, (m,) each.

    `cells` is the width between the values that minorants and majorants have without noise. `error`
    is the likely error of the value: the root of the sum of squares of its noise's standard
    deviation and of `CELL_ERROR_FRACTION` times `cells`.
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    cells: FloatArray
    error: FloatArray

    @classmethod
    def without_error(cls, value: FloatArray, low: FloatArray, high: FloatArray) -> Band:
        """Return a band whose likely error is not known: NaN."""
        unknown = np.full_like(value, np.nan)
        return cls(value, low, high, unknown, unknown)

    def minus(self, subtracted: Band) -> Band:
        """Return the band of the difference."""
        value, low = self.value - subtracted.value, self.low - subtracted.high
        high, cells = self.high - subtracted.low, self.cells + subtracted.cells
        return Band(value, low, high, cells, np.hypot(self.error, subtracted.error))

    def scaled(self, low: FloatArray | float, width: FloatArray | float) -> Band:
        """Return the band of ``low + width x``, for a positive width."""
        value, first, last = (low + width * numbers for numbers in self[:3])
        return Band(value, first, last, width * self.cells, width * self.error)


def likely_error(noise: FloatArray, cells: FloatArray, width: FloatArray | float) -> FloatArray:
    """Return likely errors, at most the width of the interval."""
    return np.asarray(np.minimum(np.hypot(noise, CELL_ERROR_FRACTION * cells), width))


def band_in_batches(
    count: int, batch_size: int, beta: Fraction, band: Callable[[slice, Fraction], Band]
) -> Band:
    """Return the band of `count` numbers, a batch at a time, each at its fraction of beta."""
    bands = []
    for start in range(0, count, max(batch_size, 1)):
        batch = slice(start, min(start + max(batch_size, 1), count))
        bands.append(band(batch, beta * (batch.stop - start) / count))
    return Band(*map(np.concatenate, zip(*bands, strict=True)))
