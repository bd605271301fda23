"""Shares of a measure: of boxes, polygons and kernels, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.errors import SpecError
from dbern.synopsis.questions.envelopes.kernel import density_envelope, mass_envelope
from dbern.synopsis.questions.envelopes.polygon import polygon_envelope
from dbern.synopsis.questions.envelopes.smoothed_polygon import smoothed_polygon_envelope
from dbern.synopsis.questions.envelopes.splines import Envelope, products
from dbern.synopsis.questions.envelopes.step import intervals
from dbern.synopsis.questions.factored import product_lines
from dbern.synopsis.questions.measure import (
    DRAWS,
    Band,
    Divisor,
    Measure,
    in_parts,
    interval,
    over,
    quotients,
)
from dbern.synopsis.questions.polygons import Polygons
from dbern.synopsis.questions.regions import Boxes
from dbern.types import FloatArray

_FEW = 1 << 21  # weights of boxes that are laid out one by one; of more nothing is simulated
_HARMLESS = 20  # of a bin's deviation, what integration may miss
_LAID_OUT = 1 << 22  # weights of boxes under a condition, at a time: more than are simulated
_AT_ONCE = 1 << 17  # weights of many boxes at a time: they stay in a processor's cache


@dataclass(frozen=True)
class Weights:
    """Weight of a point for an interval: 0 or 1, or the share of its kernel that is inside.

    There is a kernel an axis, and none where rows count themselves.
    """

    kernels: tuple[Kernel, ...] = ()

    def between(self, measure: Measure, axis: int, low: FloatArray, high: FloatArray) -> Envelope:
        """Return the envelopes of the weights of intervals of one axis, reversed ones empty."""
        splines = measure.splines[axis]
        if not self.kernels:
            return intervals(splines, low, high)
        return mass_envelope(splines, self.kernels[axis], low, np.maximum(low, high))

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

    def others(self, measure: Measure, box: Boxes, *without: int) -> Envelope:
        """Return the envelope of one box for the bins of all axes but some, (b_1, ..) each."""
        axes = [axis for i, axis in enumerate(self.axes(measure, box)) if i not in without]
        return products(axes).part(0) if axes else Envelope(*[np.ones(1)] * 3)


def regions_band(measure: Measure, inside: Envelope, beta: Fraction, *, of_total: bool) -> Band:
    """Return shares for weights (m, b_1, ..): of the total, or of all rows."""
    view = measure.whole()
    return interval(view, inside.layered(), view.total if of_total else None, beta)


def box_band(
    measure: Measure,
    weights: Weights,
    boxes: Boxes,
    condition: Boxes | None,
    beta: Fraction,
    *,
    of_total: bool,
) -> Band:
    """Return the shares of boxes: of the total, of what is in another box, or of all rows."""
    if condition is not None:
        view = measure.whole()
        base = Divisor.of(view, products(weights.axes(measure, condition)).layered())
        start, stop = np.maximum(boxes.low, condition.low), np.minimum(boxes.high, condition.high)
        met = replace(boxes, low=start, high=stop)

        def band(part: slice, share: Fraction) -> Band:
            inside = products(weights.axes(measure, met.part(part)))
            return interval(view, inside.layered(), base, share)

        return in_parts(len(boxes), _LAID_OUT // measure.values.size, beta, band)
    cut = ((boxes.low > 0) | (boxes.high < 1)).any(axis=0)
    used = () if weights.kernels else tuple(np.flatnonzero(cut).tolist())

    def axes(part: slice) -> list[Envelope]:
        return weights.axes(measure, boxes.part(part))

    return _products_band(measure, axes, len(boxes), beta, used, of_total=of_total)


def least_share(measure: Measure, box: Boxes, beta: Fraction) -> float:
    """Bound from below the share of all rows that are in a box."""
    inside = products(Weights().axes(measure, box)).layered()
    return float(measure.whole().line(inside.lower).at(0.0, -1, measure, beta)[0])


def density_band(
    measure: Measure,
    kernels: Sequence[Sequence[Kernel]],
    chosen: int,
    points: FloatArray,
    beta: Fraction,
) -> Band:
    """Return the density at points (m, l) of the unit cube by one of several products of kernels.

    It covers whichever of them is chosen after the release.
    """
    rows = []
    for axis, splines in enumerate(measure.splines):
        y, back = np.unique(points[:, axis], return_inverse=True)  # few, of a grid
        envelopes = (density_envelope(splines, product[axis], y) for product in kernels)
        rows.append(Envelope.joined(envelope.part(back) for envelope in envelopes))

    def axes(part: slice) -> list[Envelope]:
        return [envelope.part(part) for envelope in rows]

    count = len(points)
    band = _products_band(measure, axes, count * len(kernels), beta, of_total=False)
    part = slice(chosen * count, (chosen + 1) * count)
    peak = math.prod(kernel.peak for kernel in kernels[chosen])
    return Band(*(numbers[part] for numbers in band)).scaled(0.0, peak)


def _products_band(
    measure: Measure,
    axes: Callable[[slice], list[Envelope]],
    count: int,
    beta: Fraction,
    used: tuple[int, ...] = (),
    *,
    of_total: bool,
) -> Band:
    """Band of shares of `count` products of weights: of many a part at a time, by the tail for all.

    Weights of axes that are not `used` are 1, where any are.
    """
    drawn = DRAWS if measure.spread is None else 0
    if count * max(measure.values.size, drawn) <= _FEW:
        envelopes = axes(slice(None))
        view = measure.onto(used) if used else measure.whole()
        inside = products([envelopes[i] for i in used] or envelopes).layered()
        return interval(view, inside, view.total if of_total else None, beta)
    if measure.spread is not None:
        raise SpecError(f"population: {count} are too many at once. Ask for parts of them")

    def band(part: slice, share: Fraction) -> Band:
        near, low, high = product_lines(measure, axes(part))
        if of_total:
            near = over(near, measure.values.sum())
        else:
            low, high = low.of_one(), high.of_one()
        return quotients(near, low, high, measure, share)

    rows = _AT_ONCE // sum(splines.count for splines in measure.splines)
    return in_parts(count, rows, beta, band)
