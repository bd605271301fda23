"""The population behind the rows, whatever its law: Chernoff's bound in place of the normal law."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dbern.synopsis.questions.band import Band
from dbern.types import BoolArray, FloatArray

FEW = 10
"""Rows of a region, or outside it, from which on the sampling error is taken as normal."""

_STEPS = 64  # of bisection


def population_band(band: Band, rows: float, beta: Fraction, *, shares: bool) -> Band:
    """Extend a band (m,) of rows to the law that they were drawn from, all entries at once.

    There are at least `rows`. `shares`: means of these rows; else sums over any number of rows, in
    units of so many.
    """
    if rows <= 0:
        return Band.without_error(band.value, np.zeros_like(band.low), np.ones_like(band.high))
    most = math.log(2 * len(band.value) / beta) / rows

    def near(x: FloatArray) -> Callable[[FloatArray], BoolArray]:
        return lambda p: _divergence(x, p, shares=shares) <= most

    away = 2 * most + np.sqrt(2 * most * band.high)
    far = np.ones_like(band.high) if shares else band.high + away
    low = _last(near(band.low), band.low, np.zeros_like(band.low))
    return Band.without_error(band.value, low, _last(near(band.high), band.high, far))


def levels_of_rows(
    levels: FloatArray, rows: float, beta: Fraction
) -> tuple[FloatArray, FloatArray]:
    """Return bounds of the shares that rows have up to a population's quantiles of levels (m,)."""
    if rows <= 0:
        return np.zeros_like(levels), np.ones_like(levels)
    most = math.log(2 * len(levels) / beta) / rows

    def near(x: FloatArray) -> BoolArray:
        return _divergence(x, levels, shares=True) <= most

    ends = np.zeros_like(levels), np.ones_like(levels)
    return _last(near, levels, ends[0]), _last(near, levels, ends[1])


def are_few(band: Band, rows: float, *, shares: bool) -> bool:
    """Return whether the normal law may not do: few rows inside or outside, and they are known.

    Where noise or bins leave so many open, what is not normal of the sampling error hardly counts.
    """
    inside = np.minimum(band.low, 1.0 - band.high) if shares else band.low
    return bool(((inside * rows < FEW) & ((band.high - band.low) * rows < 2 * FEW)).any())


def _divergence(x: FloatArray, p: FloatArray, *, shares: bool) -> FloatArray:
    from scipy.special import kl_div  # x ln(x / p) - x + p; takes 30 ms to import

    return np.asarray(kl_div(x, p) + (kl_div(1 - x, 1 - p) if shares else 0.0))


def _last(
    holds: Callable[[FloatArray], BoolArray], start: FloatArray, end: FloatArray
) -> FloatArray:
    """Points from where it holds to `end`, beyond the last where it does."""
    for _ in range(_STEPS):
        middle = (start + end) / 2
        inside = holds(middle)
        start, end = np.where(inside, middle, start), np.where(inside, end, middle)
    return end
