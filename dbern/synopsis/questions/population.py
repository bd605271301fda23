"""The population behind the rows, whatever its law: Chernoff's bound in place of the normal law."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dbern.synopsis.questions.band import Band
from dbern.types import BoolArray, FloatArray

FEW_ROWS = 10
"""Rows of a region, or outside it, from which on the sampling error is taken as normal."""

_BISECTIONS = 64


def population_band(band: Band, rows: float, beta: Fraction, *, shares: bool) -> Band:
    """Extend a band (m,) of rows to the law that they were drawn from, all entries at once.

    There are at least `rows`. `shares`: means of these rows; else sums over any number of rows, in
    units of so many.
    """
    if rows <= 0:
        return Band.without_error(band.value, np.zeros_like(band.low), np.ones_like(band.high))
    max_divergence = math.log(2 * len(band.value) / beta) / rows

    def allowed(x: FloatArray) -> Callable[[FloatArray], BoolArray]:
        return lambda p: _divergence(x, p, shares=shares) <= max_divergence

    beyond = band.high + (2 * max_divergence + np.sqrt(2 * max_divergence * band.high))
    limit = np.ones_like(band.high) if shares else beyond
    low = _last_allowed(allowed(band.low), band.low, np.zeros_like(band.low))
    high = _last_allowed(allowed(band.high), band.high, limit)
    return Band.without_error(band.value, low, high)


def levels_of_rows(
    levels: FloatArray, rows: float, beta: Fraction
) -> tuple[FloatArray, FloatArray]:
    """Return bounds of the shares that rows have up to a population's quantiles of levels (m,)."""
    if rows <= 0:
        return np.zeros_like(levels), np.ones_like(levels)
    max_divergence = math.log(2 * len(levels) / beta) / rows

    def allowed(x: FloatArray) -> BoolArray:
        return _divergence(x, levels, shares=True) <= max_divergence

    low = _last_allowed(allowed, levels, np.zeros_like(levels))
    return low, _last_allowed(allowed, levels, np.ones_like(levels))


def are_few(band: Band, rows: float, *, shares: bool) -> bool:
    """Return whether the normal law may not do: few rows inside or outside, and they are known.

    Where noise or bins leave so many open, what is not normal of the sampling error hardly counts.
    """
    inside = np.minimum(band.low, 1.0 - band.high) if shares else band.low
    return bool(((inside * rows < FEW_ROWS) & ((band.high - band.low) * rows < 2 * FEW_ROWS)).any())


def _divergence(x: FloatArray, p: FloatArray, *, shares: bool) -> FloatArray:
    from scipy.special import kl_div  # x ln(x / p) - x + p; takes 30 ms to import

    return np.asarray(kl_div(x, p) + (kl_div(1 - x, 1 - p) if shares else 0.0))


def _last_allowed(
    allowed: Callable[[FloatArray], BoolArray], start: FloatArray, end: FloatArray
) -> FloatArray:
    """Return points from an allowed `start` to `end`, beyond the last that is allowed."""
    for _ in range(_BISECTIONS):
        middle = (start + end) / 2
        inside = allowed(middle)
        start, end = np.where(inside, middle, start), np.where(inside, end, middle)
    return end
