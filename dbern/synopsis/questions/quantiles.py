"""Quantiles and means along an axis, under a condition on the others, each with its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np

from dbern.data.resolution import Multiples
from dbern.failure import QUOTIENT
from dbern.synopsis.questions.envelopes.splines import AxisSplines, Envelope
from dbern.synopsis.questions.envelopes.step import OFFSETS, steps_of_multiples
from dbern.synopsis.questions.measure import (
    Band,
    Divisor,
    Line,
    Measure,
    View,
    interval,
    likely_error,
    noise_deviation,
    over,
    quotients,
)
from dbern.types import FloatArray, Int64Array

_POINTS = 1024  # between which quantiles are distinguished, where cells are no more
_SHARP = 0.5  # between both splines of a step: of the rows themselves
_FINER, _FINEST = 8, 256  # points in a bin's deviation, of density 1; and between two of `_POINTS`

_LAYERS = (0, 1, 2)
"""Of `Measure.along`: its condition from below, nearly, and from above."""


def mean_band(view: View, splines: AxisSplines, beta: Fraction, *, whole: bool) -> Band:
    """Return the mean of t, which is a spline: of all rows a quotient, without any gap.

    Under a condition G: with ``P = sum_j max(s_j - mu, 0) beta_j`` and ``N = sum_j max(mu - s_j, 0)
    beta_j``, both nonnegative, s_j the coefficients of t, ``(t - mu) 1_G = P 1_G - N 1_G`` is at
    most ``P U_G - N L_G`` and at least ``P L_G - N U_G``: points mu of a public grid are denied or
    not as in `quantile_band`.
    """
    low, near, high = _LAYERS
    t, ones = splines.centers, np.ones(splines.count)
    number, base = _weights({near: t}), _weights({near: ones})
    value, total = view.of(number), view.of(base)
    if whole:
        line = view.line(number, base)
        return quotients(over(value, total), line, line, view.measure, beta)
    points = np.linspace(0.0, 1.0, _POINTS + 1)
    more, less = np.maximum(t - points[:, None], 0.0), np.maximum(points[:, None] - t, 0.0)
    # Integrals of t - mu fall as mu grows: signs are those of shares up to a point, reversed.
    above = _weights({high: less, low: -more})
    below = _weights({low: less, high: -more})
    # By the tail first: draws are for the points that it does not deny.
    start, stop = _undenied(view.still(), below, above, None, 0.0, beta * QUOTIENT["tail"])
    part = slice(start, stop + 1)
    inner = _undenied(view, below[part], above[part], None, 0.0, beta * QUOTIENT["draws"])
    first, last = points[max(start + inner[0] - 1, 0)], points[min(start + inner[1] + 1, _POINTS)]
    value = np.clip(over(value, total), first, last)
    away = t - value
    gap = _weights({high: np.abs(away), low: -np.abs(away)})
    cells = np.maximum(over(view.of(gap), total), 0.0)
    sharp = view.still().line(_weights({near: away}), base)
    error = likely_error(sharp.noise_deviation(0.0, view.measure.deviation), cells, last - first)
    return Band(value, np.array([first]), np.array([last]), cells, error)


def weighted_band(view: View, weights: Envelope, beta: Fraction) -> Band:
    """Return means of nonnegative weights (m, bins) of an axis, over those under its condition."""
    ones = np.ones((1, weights.estimate.shape[1]))
    base = Envelope(*(_weights({layer: ones}) for layer in _LAYERS))
    return interval(view, _under_condition(weights), Divisor.of(view, base), beta)


def quantile_band(
    view: View,
    splines: AxisSplines,
    between: Callable[[FloatArray, FloatArray], Envelope],
    levels: FloatArray,
    beta: Fraction,
) -> Band:
    """Return ends between which a quantile is, each level by itself at beta.

    On a public grid x_0 = 0 < x_1 < .. let the quantile be in [x_k, x_{k+1}]. At most a share tau
    is below x_k and at least tau up to x_{k+1}: two inequalities at points that are not known but
    do not depend on the noise, each of which the released numbers deny with probability at most
    beta / 2. So the quantile is between the neighbours of the first and the last point where they
    are not denied. First by the tail, at its share of `QUOTIENT`, on a coarse grid; then by draws,
    at the rest, on one that is finer where steps are smooth, if what is left is not too much.

    Where rows stand at `multiples` alone, so do quantiles of them: `multiples_band`.
    """
    within = 2 ** int(np.log2(np.clip(_POINTS / splines.cells, 1, OFFSETS)))
    count = splines.cells * within
    points = np.linspace(0.0, 1.0, count + 1)
    steps = between(np.zeros_like(points), points)
    lines, base = _under_condition(steps), _under_condition(between(np.zeros(1), np.ones(1)))
    smooth = float((steps.upper - steps.lower).max()) < _SHARP
    step = 1 / (count * view.measure.deviation)
    finer = 2 ** int(np.log2(np.clip(_FINER * step, 1, _FINEST))) if smooth else 1
    shares = np.maximum.accumulate(over(view.of(lines.estimate), view.of(base.estimate)))
    ends = list[tuple[float, float, float]]()
    for level in map(float, levels):
        # By the tail first: draws are for the points that it does not deny.
        tail = beta * QUOTIENT["tail"]
        start, stop = _undenied(view.still(), lines.lower, lines.upper, base, level, tail)
        low, high = max(start - 1, 0), min(stop + 1, count)
        if (high - low) * finer <= max(count, 2 * _POINTS):
            fine = np.arange(low * finer, high * finer + 1) / (count * finer)
            inner = lines.part(slice(low, high + 1))
            if finer > 1:
                inner = _under_condition(between(np.zeros_like(fine), fine))
            rest = beta * QUOTIENT["draws"]
            start, stop = _undenied(view, inner.lower, inner.upper, base, level, rest)
            first, last = fine[max(start - 1, 0)], fine[min(stop + 1, len(fine) - 1)]
        else:
            first, last = points[low], points[high]
        guess = float(np.interp(level, shares, points))
        ends.append((min(max(guess, first), last), first, last))
    value, first, last = np.array(ends).T
    still = view.still()
    sides = still.line(lines.lower, base.upper), still.line(lines.upper, base.lower)
    cells, error = _quantile_errors(value, levels, points, shares, sides, view.measure)
    return Band(value, first, last, cells, np.minimum(error, last - first))


def multiples_band(
    view: View, splines: AxisSplines, multiples: Multiples, levels: FloatArray, beta: Fraction
) -> Band:
    """Return multiples between which a quantile of rows at multiples is, each level at beta.

    For i_0 = -1 < i_1 < .. let the quantile be one of the multiples after i_k, up to i_{k+1}. At
    most a share tau is up to i_k and at least tau up to i_{k+1}: denied or not as in
    `quantile_band`, first at up to `_POINTS` multiples, then at all that are left, if few are.
    """
    base = _under_condition(steps_of_multiples(splines, np.array([multiples.count])))
    coarse = np.arange(-1, multiples.count, -(-multiples.count // _POINTS))
    coarse = np.append(coarse, multiples.count)
    lines = _under_condition(steps_of_multiples(splines, coarse))
    numbers = list[tuple[int, int, int]]()
    for level in map(float, levels):
        tail, grid, inner = beta * QUOTIENT["tail"], coarse, lines
        reached = _reached(view.still(), lines.lower, lines.upper, base, level, tail)
        first, last = _between(coarse, *reached)
        if last - first <= 2 * _POINTS:
            grid = np.arange(first - 1, last + 1)
            inner = _under_condition(steps_of_multiples(splines, grid))
            rest = beta * QUOTIENT["draws"]
            reached = _reached(view, inner.lower, inner.upper, base, level, rest)
            first, last = _between(grid, *reached)
        shares = np.maximum.accumulate(over(view.of(inner.estimate), view.of(base.estimate)))
        guess = int(grid[min(int(np.searchsorted(shares, level)), len(grid) - 1)])
        numbers.append((min(max(guess, first), last), first, last))
    value, low, high = multiples.positions[np.array(numbers).T]
    shares = np.maximum.accumulate(over(view.of(lines.estimate), view.of(base.estimate)))
    still, points = view.still(), multiples.positions[np.maximum(coarse, 0)]
    sides = still.line(lines.lower, base.upper), still.line(lines.upper, base.lower)
    cells, error = _quantile_errors(value, levels, points, shares, sides, view.measure)
    cells = np.where(2 * multiples.count * cells < 1, 0.0, cells)
    return Band(value, low, high, cells, np.minimum(error, high - low))


def _between(grid: Int64Array, start: int, stop: int) -> tuple[int, int]:
    """First and last multiple of those after a point of a grid and up to the next."""
    last = min(stop + 1, len(grid) - 1)
    return int(grid[max(min(start, last) - 1, 0)]) + 1, int(grid[last])


def _quantile_errors(
    value: FloatArray,
    levels: FloatArray,
    points: FloatArray,
    shares: FloatArray,
    sides: tuple[Line, Line],
    measure: Measure,
) -> tuple[FloatArray, FloatArray]:
    """Return widths of cells and likely errors along the axis, by those of shares up to points."""
    below, above = sides
    low = np.maximum.accumulate(below.quotient(0.0))
    high = np.maximum.accumulate(above.quotient(1.0))
    first, last = np.interp(levels, high, points), np.interp(levels, low, points)
    of_shares = likely_error(
        noise_deviation(shares, sides, measure), np.maximum(high - low, 0.0), np.inf
    )
    error = np.interp(value, points, of_shares)
    start, stop = (np.interp(levels + sign * error, shares, points) for sign in (-1, 1))
    return np.maximum(last - first, 0.0), (stop - start) / 2


def _undenied(
    view: View,
    below: FloatArray,
    above: FloatArray,
    base: Envelope | None,
    level: float,
    beta: Fraction,
) -> tuple[int, int]:
    """First and last point that are not denied, where some are."""
    start, stop = _reached(view, below, above, base, level, beta)
    return min(start, stop), stop


def _reached(
    view: View,
    below: FloatArray,
    above: FloatArray,
    base: Envelope | None,
    level: float,
    beta: Fraction,
) -> tuple[int, int]:
    """First point whose majorant may be above 0, and last whose minorant may be below."""
    lower, upper = (None, None) if base is None else (base.lower, base.upper)
    top, bottom = view.line(above, lower), view.line(below, upper)
    up = np.flatnonzero(top.at(level, 1, view.measure, beta / 2) >= 0)
    down = np.flatnonzero(bottom.at(level, -1, view.measure, beta / 2) <= 0)
    return int(up[0]) if len(up) else len(above), int(down[-1]) if len(down) else 0


def _under_condition(weights: Envelope) -> Envelope:
    """Weights of the layers for those of an axis times the condition.

    A minorant of the product is ``L_x U + U_x L - U_x U``.
    """
    low, near, high = _LAYERS
    below = _weights({high: weights.lower - weights.upper, low: weights.upper})
    return Envelope(below, _weights({near: weights.estimate}), _weights({high: weights.upper}))


def _weights(layers: Mapping[int, FloatArray]) -> FloatArray:
    """Weights (m, layers, bins), zero but for the layers that are named."""
    rows = np.atleast_2d(next(iter(layers.values())))
    weights = np.zeros((len(rows), len(_LAYERS), rows.shape[1]))
    for layer, values in layers.items():
        weights[:, layer] = values
    return weights
