"""Shares, means and quantiles of a measure, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.errors import SpecError
from dbern.failure import QUOTIENT
from dbern.synopsis.questions.envelopes.kernel import density_envelope, mass_envelope
from dbern.synopsis.questions.envelopes.polygon import polygon_envelope
from dbern.synopsis.questions.envelopes.smoothed_polygon import smoothed_polygon_envelope
from dbern.synopsis.questions.envelopes.splines import AxisSplines, Envelope, products
from dbern.synopsis.questions.envelopes.step import OFFSETS, intervals
from dbern.synopsis.questions.measure import (
    DRAWS,
    Band,
    Functionals,
    Line,
    Measure,
    View,
    likely_error,
    many_boxes,
    noise_deviation,
    quotients,
)
from dbern.synopsis.questions.polygons import Polygons
from dbern.synopsis.questions.regions import Boxes
from dbern.types import FloatArray

_FEW = 1 << 21  # weights of boxes that are laid out one by one; of more nothing is simulated
_HARMLESS = 20  # of a bin's deviation, what integration may miss
_LAID_OUT = 1 << 22  # weights of boxes under a condition, at a time: more than are simulated
_AT_ONCE = 1 << 17  # weights of many boxes at a time: they stay in a processor's cache
_PLACES = 1024  # at which quantiles are told apart, where cells are no more
_SHARP = 0.5  # between both splines of a step: of the rows themselves
_FINER, _FINEST = 8, 256  # places in a bin's deviation, of density 1; and between two of `_PLACES`


@dataclass(frozen=True)
class Weights:
    """Weight of a point for an interval: 0 or 1, or the share of its kernel that is inside.

    There is a kernel an axis, and none where rows count themselves.
    """

    kernels: tuple[Kernel, ...] = ()

    def between(self, measure: Measure, axis: int, low: FloatArray, high: FloatArray) -> Envelope:
        """Return the envelopes of the weights of intervals of one axis."""
        splines = measure.splines[axis]
        if not self.kernels:
            return intervals(splines, low, high)
        return mass_envelope(splines, self.kernels[axis], low, high)

    def axes(self, measure: Measure, boxes: Boxes) -> list[Envelope]:
        """Return the envelopes of boxes, axis by axis."""
        pairs = enumerate(zip(boxes.low.T, boxes.high.T, strict=True))
        return [self.between(measure, axis, low, high) for axis, (low, high) in pairs]

    def polygons(self, measure: Measure, shapes: Polygons) -> Envelope:
        """Return the envelopes of polygons of both axes, (m, b_1, b_2)."""
        if not self.kernels:
            return polygon_envelope(shapes, measure.splines)
        error = measure.deviation / _HARMLESS
        return smoothed_polygon_envelope(shapes, measure.splines, self.kernels, error)

    def others(self, measure: Measure, given: Boxes, *own: int) -> Envelope:
        """Return the envelope of one box for the bins of all axes but some, (b_1, ..) each."""
        axes = [one for i, one in enumerate(self.axes(measure, given)) if i not in own]
        if not axes:
            return Envelope(*[np.ones(1)] * 3)
        return products(axes).part(0)


class Base(NamedTuple):
    """Divisor of shares: the integral of a weight, from below, about and from above."""

    low: Functionals
    near: float
    high: Functionals


def _everything(view: View) -> Base:
    return Base(view.total, float(view.total.value[0]), view.total)


def _share_band(view: View, inside: Envelope, base: Base | None, beta: Fraction) -> Band:
    """Return ``int g dD`` over ``int k dD`` for weights (m, b_1, ..) of g, and k those of `base`.

    Without `base` the divisor is the number of all rows, which is public. `view`: of one layer.
    """
    near = view.of(_layer(inside.estimate))
    below, above = view.functionals(_layer(inside.lower), _layer(inside.upper))
    low = view.over(below, None if base is None else base.high)
    high = view.over(above, None if base is None else base.low)
    if base is not None:
        near = _over(near, base.near)
    return quotients(near, low, high, view.measure, beta)


def regions_band(measure: Measure, inside: Envelope, beta: Fraction, *, of_total: bool) -> Band:
    """Return shares for weights (m, b_1, ..): of the total, or of all rows."""
    view = measure.whole()
    return _share_band(view, inside, _everything(view) if of_total else None, beta)


def box_band(
    measure: Measure,
    weights: Weights,
    boxes: Boxes,
    given: Boxes | None,
    beta: Fraction,
    *,
    of_total: bool,
) -> Band:
    """Return the shares of boxes: of the total, of what is in another box, or of all rows."""
    if given is not None:
        view = measure.whole()
        inside = products(weights.axes(measure, given))
        low, high = view.functionals(_layer(inside.lower), _layer(inside.upper))
        base = Base(low, float(view.of(_layer(inside.estimate))[0]), high)
        start, stop = np.maximum(boxes.low, given.low), np.minimum(boxes.high, given.high)
        met = replace(boxes, low=start, high=np.maximum(start, stop))
        bands, rows = [], max(1, _LAID_OUT // measure.values.size)
        for first in range(0, len(boxes), rows):
            part = met.part(slice(first, first + rows))
            inside, share = products(weights.axes(measure, part)), beta * len(part) / len(boxes)
            bands.append(_share_band(view, inside, base, share))
        return Band(*map(np.concatenate, zip(*bands, strict=True)))
    cut = ((boxes.low > 0) | (boxes.high < 1)).any(axis=0)
    kept = () if weights.kernels else tuple(np.flatnonzero(cut).tolist())

    def sides(part: slice) -> list[Envelope]:
        return weights.axes(measure, boxes.part(part))

    return _factored_band(measure, sides, len(boxes), beta, kept, of_total=of_total)


def least_share(measure: Measure, box: Boxes, beta: Fraction) -> float:
    """Bound from below the share of all rows that are in a box."""
    inside = products(Weights().axes(measure, box))
    return float(measure.whole().line(_layer(inside.lower)).at(0.0, -1, measure, beta)[0])


def _layer(weights: FloatArray) -> FloatArray:
    return weights.reshape(len(weights), 1, -1)


def _factored_band(
    measure: Measure,
    sides: Callable[[slice], list[Envelope]],
    count: int,
    beta: Fraction,
    kept: tuple[int, ...] = (),
    *,
    of_total: bool,
) -> Band:
    """Band of shares of `count` products of weights: of many a part at a time, by the tail for all.

    Weights of axes that are not `kept` are 1, where any are kept.
    """
    drawn = DRAWS if measure.spread is None else 0
    if count * max(measure.values.size, drawn) <= _FEW:
        axes = sides(slice(None))
        view = measure.onto(kept) if kept else measure.whole()
        base = _everything(view) if of_total else None
        return _share_band(view, products([axes[i] for i in kept] or axes), base, beta)
    if measure.spread is not None:
        raise SpecError(f"population: {count} are too many at once. Ask for parts of them")
    rows = max(1, _AT_ONCE // sum(one.count for one in measure.splines))
    bands = []
    for start in range(0, count, rows):
        near, low, high = many_boxes(measure, sides(slice(start, start + rows)))
        if of_total:
            near = _over(near, float(measure.values.sum()))
        else:
            low, high = low.of_one(), high.of_one()
        bands.append(quotients(near, low, high, measure, beta * len(near) / count))
    return Band(*map(np.concatenate, zip(*bands, strict=True)))


def _over(values: FloatArray, total: float) -> FloatArray:
    return values / total if total > 0 else np.full(len(values), 0.5)


def density_band(
    measure: Measure,
    kernels: Sequence[Sequence[Kernel]],
    chosen: int,
    places: FloatArray,
    beta: Fraction,
) -> Band:
    """Return the density at places (m, l) of the unit cube by one of several products of kernels.

    It covers whichever of them is chosen after the release.
    """
    rows = []
    for axis, splines in enumerate(measure.splines):
        each, back = np.unique(places[:, axis], return_inverse=True)  # few, of a grid
        envelopes = (density_envelope(splines, product[axis], each) for product in kernels)
        rows.append(Envelope.joined(envelope.part(back) for envelope in envelopes))

    def sides(part: slice) -> list[Envelope]:
        return [each.part(part) for each in rows]

    count = len(places)
    band = _factored_band(measure, sides, count * len(kernels), beta, of_total=False)
    own = slice(chosen * count, (chosen + 1) * count)
    peak = math.prod(one.peak for one in kernels[chosen])
    return Band(*(one[own] for one in band)).scaled(0.0, peak)


def mean_band(view: View, splines: AxisSplines, beta: Fraction, *, whole: bool) -> Band:
    """Return the mean of t, which is a spline: of all rows a quotient, without any gap.

    Under a condition G: with ``P = sum_j max(s_j - mu, 0) beta_j`` and ``N = sum_j max(mu - s_j, 0)
    beta_j``, both nonnegative, s_j the coefficients of t, ``(t - mu) 1_G = P 1_G - N 1_G`` is at
    most ``P U_G - N L_G`` and at least ``P L_G - N U_G``: places mu of a public grid are denied or
    not as in `quantile_band`.
    """
    low, near, high = _LAYERS
    t, one = splines.centers, np.ones(splines.count)
    total = float(view.of(_weights({near: one}))[0])
    value = _over(view.of(_weights({near: t})), total)
    if whole:
        line = view.line(_weights({near: t}), _weights({near: one}))
        return quotients(value, line, line, view.measure, beta)
    places = np.linspace(0.0, 1.0, _PLACES + 1)
    more, less = np.maximum(t - places[:, None], 0.0), np.maximum(places[:, None] - t, 0.0)
    # Integrals of t - mu fall as mu grows: signs are those of shares up to a place, reversed.
    above = _weights({high: less, low: -more})
    below = _weights({low: less, high: -more})
    # By the tail first: draws are for the places that it does not deny.
    start, stop = _undenied(view.still(), below, above, None, 0.0, beta * QUOTIENT["tail"])
    part = slice(start, stop + 1)
    inner = _undenied(view, below[part], above[part], None, 0.0, beta * QUOTIENT["draws"])
    first, last = places[max(start + inner[0] - 1, 0)], places[min(start + inner[1] + 1, _PLACES)]
    value = np.clip(value, first, last)
    away = t - value
    gap = _weights({high: np.abs(away), low: -np.abs(away)})
    cells = np.maximum(_over(view.of(gap), total), 0.0)
    sharp = view.still().line(_weights({near: away}), _weights({near: one}))
    error = likely_error(sharp.noise_deviation(0.0, view.measure.deviation), cells, last - first)
    return Band(value, np.array([first]), np.array([last]), cells, error)


def weighted_band(view: View, weights: Envelope, beta: Fraction) -> Band:
    """Return means of nonnegative weights (m, bins) of an axis, over those under its condition."""
    low, near, high = _LAYERS
    below, above = _product_sides(weights)
    one = np.ones((1, weights.estimate.shape[1]))
    value = _over(
        view.of(_weights({near: weights.estimate})), float(view.of(_weights({near: one}))[0])
    )
    lines = view.line(below, _weights({high: one})), view.line(above, _weights({low: one}))
    return quotients(value, *lines, view.measure, beta)


_LAYERS = (0, 1, 2)
"""Of `Measure.along`: its condition from below, nearly, and from above."""


def _weights(layers: Mapping[int, FloatArray]) -> FloatArray:
    """Weights (m, layers, bins), zero but for the given layers."""
    rows = np.atleast_2d(next(iter(layers.values())))
    found = np.zeros((len(rows), len(_LAYERS), rows.shape[1]))
    for layer, one in layers.items():
        found[:, layer] = one
    return found


def quantile_band(
    view: View,
    splines: AxisSplines,
    between: Callable[[FloatArray, FloatArray], Envelope],
    levels: FloatArray,
    beta: Fraction,
) -> Band:
    """Return ends between which a quantile is, each level by itself at beta.

    On a public grid x_0 = 0 < x_1 < .. let the quantile be in [x_k, x_{k+1}]. At most a share tau
    is below x_k and at least tau up to x_{k+1}: two inequalities at places that are not known but
    do not depend on the noise, each of which the released numbers deny with probability at most
    beta / 2. So the quantile is between the neighbours of the first and the last place where they
    are not denied. First by the tail, at its share of `QUOTIENT`, on a coarse grid; then by draws,
    at the rest, on one that is finer where steps are smooth, if what is left is not too much.
    """
    within = 2 ** int(np.log2(np.clip(_PLACES / splines.cells, 1, OFFSETS)))
    count = splines.cells * within
    places = np.linspace(0.0, 1.0, count + 1)
    steps, whole = between(np.zeros_like(places), places), between(np.zeros(1), np.ones(1))
    near = _LAYERS[1]
    lines, bases = _product_sides(steps), _product_sides(whole)
    smooth = float((steps.upper - steps.lower).max()) < _SHARP
    apart = 1 / (count * view.measure.deviation)
    finer = 2 ** int(np.log2(np.clip(_FINER * apart, 1, _FINEST))) if smooth else 1
    total = float(view.of(_weights({near: whole.estimate}))[0])
    shares = np.maximum.accumulate(_over(view.of(_weights({near: steps.estimate})), total))
    ends = list[tuple[float, float, float]]()
    for level in map(float, levels):
        # By the tail first: draws are for the places that it does not deny.
        start, stop = _undenied(view.still(), *lines, bases, level, beta * QUOTIENT["tail"])
        low, high = max(start - 1, 0), min(stop + 1, count)
        if (high - low) * finer <= max(count, 2 * _PLACES):
            fine = np.arange(low * finer, high * finer + 1) / (count * finer)
            own = lines if finer == 1 else _product_sides(between(np.zeros_like(fine), fine))
            part = slice(low, high + 1) if finer == 1 else slice(None)
            below, above = own[0][part], own[1][part]
            inner = _undenied(view, below, above, bases, level, beta * QUOTIENT["draws"])
            first, last = fine[max(inner[0] - 1, 0)], fine[min(inner[1] + 1, len(fine) - 1)]
        else:
            first, last = places[low], places[high]
        guess = float(np.interp(level, shares, places))
        ends.append((min(max(guess, first), last), first, last))
    value, first, last = np.array(ends).T
    still = view.still()
    sides = still.line(lines[0], bases[1]), still.line(lines[1], bases[0])
    cells, error = _quantile_errors(value, levels, places, shares, sides, view.measure)
    return Band(value, first, last, cells, np.minimum(error, last - first))


def _quantile_errors(
    value: FloatArray,
    levels: FloatArray,
    places: FloatArray,
    shares: FloatArray,
    sides: tuple[Line, Line],
    measure: Measure,
) -> tuple[FloatArray, FloatArray]:
    """Return widths of cells and likely errors along the axis, by those of shares up to places."""
    below, above = sides
    low = np.maximum.accumulate(below.quotient(0.0))
    high = np.maximum.accumulate(above.quotient(1.0))
    first, last = np.interp(levels, high, places), np.interp(levels, low, places)
    of_shares = likely_error(
        noise_deviation(shares, sides, measure), np.maximum(high - low, 0.0), np.inf
    )
    error = np.interp(value, places, of_shares)
    start, stop = (np.interp(levels + sign * error, shares, places) for sign in (-1, 1))
    return np.maximum(last - first, 0.0), (stop - start) / 2


def _undenied(
    view: View,
    below: FloatArray,
    above: FloatArray,
    bases: tuple[FloatArray, FloatArray] | None,
    level: float,
    beta: Fraction,
) -> tuple[int, int]:
    """First place whose majorant may be above 0, and last whose minorant may be below."""
    base_below, base_above = (None, None) if bases is None else bases
    over, under = view.line(above, base_below), view.line(below, base_above)
    up = np.flatnonzero(over.at(level, 1, view.measure, beta / 2) >= 0)
    down = np.flatnonzero(under.at(level, -1, view.measure, beta / 2) <= 0)
    stop = int(down[-1]) if len(down) else 0
    return min(int(up[0]), stop) if len(up) else stop, stop


def _product_sides(weights: Envelope) -> tuple[FloatArray, FloatArray]:
    """Weights of the layers for both splines of a weight times the condition.

    A minorant of the product is ``L_x U + U_x L - U_x U``.
    """
    low, _, high = _LAYERS
    below = _weights({high: weights.lower - weights.upper, low: weights.upper})
    return below, _weights({high: weights.upper})
