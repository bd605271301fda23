"""Shares, means and quantiles of a measure, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.errors import SpecError
from dbern.privacy.accuracy import public_stream, uniform
from dbern.synopsis.questions.measure import (
    FIRST,
    Band,
    Measure,
    View,
    many_boxes,
    quotients,
)
from dbern.synopsis.questions.regions import Boxes
from dbern.synopsis.questions.smoothing import density_sides, mass_sides
from dbern.synopsis.questions.splines import OFFSETS, AxisSplines, Sides, products
from dbern.types import FloatArray

_FEW = 1 << 21  # weights of boxes that are laid out one by one; of more nothing is simulated
_AT_ONCE = 1 << 21  # numbers of many boxes that are in memory
_PLACES = 1024  # at which quantiles are told apart, where cells are no more


@dataclass(frozen=True)
class Weights:
    """What a place counts in an interval: 0 or 1, or the share of its kernel that is inside.

    Attributes
    ----------
    kernels : tuple of Kernel
        One an axis; none where rows count themselves.
    """

    kernels: tuple[Kernel, ...] = ()

    def between(self, measure: Measure, axis: int, low: FloatArray, high: FloatArray) -> Sides:
        """Return the sides of the weights of intervals of one axis."""
        splines = measure.splines[axis]
        if not self.kernels:
            return splines.between(low, high)
        return mass_sides(splines, self.kernels[axis], low, high)

    def axes(self, measure: Measure, boxes: Boxes) -> list[Sides]:
        """Return the sides of boxes, axis by axis."""
        pairs = enumerate(zip(boxes.low.T, boxes.high.T, strict=True))
        return [self.between(measure, axis, low, high) for axis, (low, high) in pairs]

    def others(self, measure: Measure, given: Boxes, index: int) -> Sides:
        """Return the sides of one box for the bins of all axes but one, (b_1, ..) each."""
        axes = self.axes(measure, given)
        del axes[index]
        if not axes:
            return Sides(*[np.ones(1)] * 3)
        whole = products(axes)
        return Sides(whole.low[0], whole.near[0], whole.high[0])


def scaled(band: Band, low: float, width: float) -> Band:
    """Return a band of ``low + width x``."""
    return Band(*(low + width * one for one in band))


def share_band(measure: Measure, inside: Sides, base: Sides | None, beta: Fraction) -> Band:
    """Return ``int g dD`` over ``int k dD`` for weights (m, b_1, ..) of g, and k those of `base`.

    Without `base` the divisor is the number of all rows, which is public.
    """
    view = measure.whole()
    near = view.of(_layer(inside.near))
    if base is None:
        low, high = (view.line(_layer(one)) for one in (inside.low, inside.high))
        return quotients(near, low, high, measure, beta)
    total = float(view.of(_layer(base.near))[0])
    low = view.line(_layer(inside.low), _layer(base.high))
    high = view.line(_layer(inside.high), _layer(base.low))
    return quotients(_over(near, total), low, high, measure, beta)


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
    if len(boxes) * measure.values.size > _FEW:
        if given is not None or measure.spread is not None:
            raise SpecError(
                f"region: {len(boxes)} boxes are too many for given or population. Ask for parts "
                "of them"
            )
        return _many_band(measure, weights, boxes, beta, of_total=of_total)
    base = everything(measure) if of_total else None
    if given is not None:
        start, stop = np.maximum(boxes.low, given.low), np.minimum(boxes.high, given.high)
        boxes = Boxes(start, np.maximum(start, stop), boxes.labels)
        base = products(weights.axes(measure, given))
    return share_band(measure, products(weights.axes(measure, boxes)), base, beta)


def everything(measure: Measure) -> Sides:
    """Return the sides of the weight 1."""
    ones = np.ones((1, *measure.values.shape))
    return Sides(ones, ones, ones)


def _layer(weights: FloatArray) -> FloatArray:
    """Weights (m, b_1, ..) of all bins as those of the one layer."""
    return weights.reshape(len(weights), 1, -1)


def _many_band(
    measure: Measure, weights: Weights, boxes: Boxes, beta: Fraction, *, of_total: bool
) -> Band:
    """A part at a time; the tail holds for all of them."""
    rows = max(1, _AT_ONCE // sum(one.count for one in measure.splines))
    bands = []
    for start in range(0, len(boxes), rows):
        part = slice(start, start + rows)
        own = Boxes(boxes.low[part], boxes.high[part], boxes.labels)
        near, low, high = many_boxes(measure, weights.axes(measure, own))
        if of_total:
            near = _over(near, float(measure.values.sum()))
        else:
            low, high = low.of_one(), high.of_one()
        bands.append(quotients(near, low, high, measure, beta * len(near) / len(boxes)))
    return Band(*map(np.concatenate, zip(*bands, strict=True)))


def _over(values: FloatArray, total: float) -> FloatArray:
    return values / total if total > 0 else np.full(len(values), 0.5)


def density_band(
    measure: Measure, kernels: Sequence[Kernel], places: FloatArray, beta: Fraction
) -> Band:
    """Return ``F(y) / prod K_i(0)`` at places (m, l) of the unit cube, for any kernels."""
    axes = zip(measure.splines, kernels, places.T, strict=True)
    sides = products([density_sides(splines, kernel, y) for splines, kernel, y in axes])
    return share_band(measure, sides, None, beta)


def mean_band(view: View, splines: AxisSplines, beta: Fraction) -> Band:
    """Return the mean of t: a spline itself, and nonnegative times either side of a condition."""
    low, near, high = _LAYERS
    t, one = splines.centers, np.ones(splines.count)
    total = float(view.of(_weights({near: one}))[0])
    value = _over(view.of(_weights({near: t})), total)
    below = view.line(_weights({low: t}), _weights({high: one}))
    above = view.line(_weights({high: t}), _weights({low: one}))
    return quotients(value, below, above, view.measure, beta)


_LAYERS = (0, 1, 2)
"""Of `Measure.along`: its condition from below, nearly, and from above."""


def _weights(layers: Mapping[int, FloatArray]) -> FloatArray:
    """Weights (m, layers, bins) of which so many layers are not zero."""
    rows = np.atleast_2d(next(iter(layers.values())))
    found = np.zeros((len(rows), len(_LAYERS), rows.shape[1]))
    for layer, one in layers.items():
        found[:, layer] = one
    return found


def quantile_band(
    view: View,
    splines: AxisSplines,
    between: Callable[[FloatArray, FloatArray], Sides],
    levels: FloatArray,
    beta: Fraction,
) -> Band:
    """Return ends between which a quantile is, each level by itself at beta.

    On a public grid x_0 = 0 < x_1 < .. let the quantile be in [x_k, x_{k+1}]. At most a share tau
    is below x_k and at least tau up to x_{k+1}: two inequalities at places that are not known but
    do not depend on the noise, each of which the released numbers deny with probability at most
    beta / 2. So the quantile is between the neighbours of the first and the last place where they
    are not denied.

    Parameters
    ----------
    between : callable
        Of ends (m,): the sides of intervals of this axis.
    """
    finer = 2 ** int(np.log2(np.clip(_PLACES / splines.cells, 1, OFFSETS)))
    grid = np.linspace(0.0, 1.0, splines.cells * finer + 1)
    steps, whole = between(np.zeros_like(grid), grid), between(np.zeros(1), np.ones(1))
    near = _LAYERS[1]
    below, above = _product_sides(steps)
    base_below, base_above = _product_sides(whole)
    total = float(view.of(_weights({near: whole.near}))[0])
    shares = np.maximum.accumulate(_over(view.of(_weights({near: steps.near})), total))
    found = []
    for level in map(float, levels):
        start, stop = 0, len(grid) - 1
        # By the tail first: draws are for the places that it does not deny.
        for drawn, share in ((view.still(), beta * FIRST), (view, beta * (1 - FIRST))):
            part = slice(start, stop + 1)
            over, under = drawn.line(above[part], base_below), drawn.line(below[part], base_above)
            up = np.flatnonzero(over.at(level, 1, view.measure, share / 2) >= 0)
            down = np.flatnonzero(under.at(level, -1, view.measure, share / 2) <= 0)
            stop = start + (int(down[-1]) if len(down) else 0)
            start = min(start + int(up[0]), stop) if len(up) else stop
        first, last = grid[max(start - 1, 0)], grid[min(stop + 1, len(grid) - 1)]
        value = float(np.interp(level, shares, grid))
        found.append((min(max(value, first), last), first, last))
    return Band(*np.array(found).T)


def _product_sides(sides: Sides) -> tuple[FloatArray, FloatArray]:
    """Weights of the layers for the sides of a weight times the condition.

    Of products minorants are ``L_x U + U_x L - U_x U``.
    """
    low, _, high = _LAYERS
    return _weights({high: sides.low - sides.high, low: sides.high}), _weights({high: sides.high})


# --- Which kernels bins resolve, and points that look like the rows

_MISSED = 0.1  # of a kernel's peak, on an axis
_LOOKED_AT = 65
_SHARES = 40  # of a bandwidth, tried in turn


def least_bandwidth(splines: AxisSplines, kernel: Kernel, released: Kernel) -> float:
    """Return 0 for a kernel of which bins miss little on an axis, or the bandwidth that it needs.

    Little is a tenth of the peak, or half as much again as of the released one.
    """
    allowed = max(_MISSED, 1.5 * _missed(splines, released))
    if _missed(splines, kernel) <= allowed:
        return 0.0
    least = math.inf
    for share in np.geomspace(8.0, 0.2, _SHARES):
        narrow = replace(kernel, bandwidth=released.bandwidth * float(share))
        if _missed(splines, narrow) > allowed:
            break
        least = narrow.bandwidth
    return least


@lru_cache(maxsize=256)
def _missed(splines: AxisSplines, kernel: Kernel) -> float:
    sides = density_sides(splines, kernel, np.linspace(0.0, 1.0, _LOOKED_AT))
    return float(np.maximum(sides.high - sides.near, sides.near - sides.low).max())


def sampled(measure: Measure, count: int, seed: int) -> FloatArray:
    """Draw places (count, l) of the unit cube; see `Distribution.sample`."""
    stream = public_stream("questions, sample", seed)
    shares = np.cumsum(np.maximum(measure.values, 0.0).ravel())
    picked = np.searchsorted(shares, uniform(stream, count) * shares[-1], side="right")
    found = []
    for splines, index in zip(
        measure.splines, np.unravel_index(picked, measure.values.shape), strict=True
    ):
        steps = uniform(stream, count * (splines.degree + 1)).reshape(count, -1).sum(axis=1)
        place = (index - splines.degree + steps) / splines.cells
        found.append(np.clip(1.0 - np.abs(1.0 - np.abs(place)), 0.0, 1.0))
    return np.column_stack(found)
