"""The population behind the rows, whatever its law: Chernoff's bound in place of the normal law."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from dbern.synopsis.questions.band import Band
from dbern.types import FloatArray

FEW_ROWS = 10
"""Rows of a region, or outside it, from which on the sampling error is taken as normal."""

_BISECTIONS = 64


def population_band(band: Band, rows: float, beta: Fraction, *, shares: bool) -> Band:
    """Extend a band (m,) of rows to the law that they were drawn from, all entries at once.

    There are at least `rows`. `shares`: means of these rows; else sums over any number of rows, in
    units of so many.
    """
    if rows <= 0:
        return Band.without_cells(band.value, np.zeros_like(band.low), np.ones_like(band.high))
    maximum = math.log(2 * len(band.value) / beta) / rows
    beyond = band.high + (2 * maximum + np.sqrt(2 * maximum * band.high))
    limits = np.zeros_like(band.low), np.ones_like(band.high) if shares else beyond
    low, high = (
        _last_within(partial(_divergence, x, shares=shares), maximum, x, limit)
        for x, limit in zip((band.low, band.high), limits, strict=True)
    )
    return Band.without_cells(band.value, low, high)


def levels_of_rows(
    levels: FloatArray, rows: float, beta: Fraction
) -> tuple[FloatArray, FloatArray]:
    """Return bounds of the shares that rows have up to a population's quantiles of levels (m,)."""
    low, high = np.zeros_like(levels), np.ones_like(levels)
    if rows <= 0:
        return low, high
    maximum = math.log(2 * len(levels) / beta) / rows
    divergence = partial(_divergence, p=levels, shares=True)
    return (
        _last_within(divergence, maximum, levels, low),
        _last_within(divergence, maximum, levels, high),
    )


def are_few(band: Band, rows: float, *, shares: bool) -> bool:
    """Return whether the normal law may not do: few rows inside or outside, and they are known.

    Where noise or bins leave so many open, what is not normal of the sampling error hardly counts.
    """
    inside = np.minimum(band.low, 1.0 - band.high) if shares else band.low
    return bool(((inside * rows < FEW_ROWS) & ((band.high - band.low) * rows < 2 * FEW_ROWS)).any())


def _divergence(x: FloatArray, p: FloatArray, *, shares: bool) -> FloatArray:
    from scipy.special import kl_div  # x ln(x / p) - x + p; takes 30 ms to import

    return np.asarray(kl_div(x, p) + (kl_div(1 - x, 1 - p) if shares else 0.0))


def _last_within(
    divergence: Callable[[FloatArray], FloatArray],
    maximum: float,
    start: FloatArray,
    end: FloatArray,
) -> FloatArray:
    """Return points from `start` to `end`, beyond the last whose divergence is at most that."""
    for _ in range(_BISECTIONS):
        middle = (start + end) / 2
        inside = divergence(middle) <= maximum
        start, end = np.where(inside, middle, start), np.where(inside, end, middle)
    return end
