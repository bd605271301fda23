"""Shares, means and quantiles of a measure, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dbern.bernstein.basis import bin_products, on_axes
from dbern.bernstein.kernels import Kernel
from dbern.errors import SpecError
from dbern.privacy.accuracy import public_stream, uniform
from dbern.synopsis.questions.measure import (
    DRAWS,
    FIRST,
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
from dbern.synopsis.questions.regions import Boxes, Polygons, smoothed_sides
from dbern.synopsis.questions.splines import (
    OFFSETS,
    AxisSplines,
    Sides,
    density_sides,
    mass_sides,
    products,
)
from dbern.types import FloatArray

_FEW = 1 << 21  # weights of boxes that are laid out one by one; of more nothing is simulated
_HARMLESS = 20  # of a bin's deviation, what integration may miss
_LAID_OUT = 1 << 22  # weights of boxes under a condition, at a time: more than are simulated
_AT_ONCE = 1 << 17  # weights of many boxes at a time: they stay in a processor's cache
_PLACES = 1024  # at which quantiles are told apart, where cells are no more
_SHARP = 0.5  # between the sides of a step: of the rows themselves
_FINER, _FINEST = 8, 256  # places in a bin's deviation, of density 1; and between two of `_PLACES`


@dataclass(frozen=True)
class Weights:
    """Weight of a point for an interval: 0 or 1, or the share of its kernel that is inside.

    There is a kernel an axis, and none where rows count themselves.
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

    def polygons(self, measure: Measure, shapes: Polygons) -> Sides:
        """Return the sides of polygons of both axes, (m, b_1, b_2)."""
        if not self.kernels:
            return shapes.sides(measure.splines)
        return smoothed_sides(shapes, measure.splines, self.kernels, measure.deviation / _HARMLESS)

    def others(self, measure: Measure, given: Boxes, *own: int) -> Sides:
        """Return the sides of one box for the bins of all axes but some, (b_1, ..) each."""
        axes = [one for i, one in enumerate(self.axes(measure, given)) if i not in own]
        if not axes:
            return Sides(*[np.ones(1)] * 3)
        return products(axes).part(0)


class Base(NamedTuple):
    """Divisor of shares: the integral of a weight, of its sides, and about."""

    low: Functionals
    near: float
    high: Functionals


def _everything(view: View) -> Base:
    return Base(view.total, float(view.total.value[0]), view.total)


def _share_band(view: View, inside: Sides, base: Base | None, beta: Fraction) -> Band:
    """Return ``int g dD`` over ``int k dD`` for weights (m, b_1, ..) of g, and k those of `base`.

    Without `base` the divisor is the number of all rows, which is public. `view`: of one layer.
    """
    near = view.of(_layer(inside.near))
    below, above = view.functionals(_layer(inside.low), _layer(inside.high))
    low = view.over(below, None if base is None else base.high)
    high = view.over(above, None if base is None else base.low)
    if base is not None:
        near = _over(near, base.near)
    return quotients(near, low, high, view.measure, beta)


def regions_band(measure: Measure, inside: Sides, beta: Fraction, *, of_total: bool) -> Band:
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
        low, high = view.functionals(_layer(inside.low), _layer(inside.high))
        base = Base(low, float(view.of(_layer(inside.near))[0]), high)
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

    def sides(part: slice) -> list[Sides]:
        return weights.axes(measure, boxes.part(part))

    return _factored_band(measure, sides, len(boxes), beta, kept, of_total=of_total)


def least_share(measure: Measure, box: Boxes, beta: Fraction) -> float:
    """Bound from below the share of all rows that are in a box."""
    sides = products(Weights().axes(measure, box))
    return float(measure.whole().line(_layer(sides.low)).at(0.0, -1, measure, beta)[0])


def _layer(weights: FloatArray) -> FloatArray:
    return weights.reshape(len(weights), 1, -1)


def _factored_band(
    measure: Measure,
    sides: Callable[[slice], list[Sides]],
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
        found = [density_sides(splines, one[axis], each) for one in kernels]
        whole = ([getattr(one, side)[back] for one in found] for side in ("low", "near", "high"))
        rows.append(Sides(*map(np.concatenate, whole)))

    def sides(part: slice) -> list[Sides]:
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
    start, stop = _undenied(view.still(), below, above, None, 0.0, beta * FIRST)
    part = slice(start, stop + 1)
    inner = _undenied(view, below[part], above[part], None, 0.0, beta * (1 - FIRST))
    first, last = places[max(start + inner[0] - 1, 0)], places[min(start + inner[1] + 1, _PLACES)]
    value = np.clip(value, first, last)
    away = t - value
    gap = _weights({high: np.abs(away), low: -np.abs(away)})
    cells = np.maximum(_over(view.of(gap), total), 0.0)
    sharp = view.still().line(_weights({near: away}), _weights({near: one}))
    error = likely_error(sharp.noise_deviation(0.0, view.measure.deviation), cells, last - first)
    return Band(value, np.array([first]), np.array([last]), cells, error)


def weighted_band(view: View, sides: Sides, beta: Fraction) -> Band:
    """Return means of nonnegative weights (m, bins) of an axis, over those under its condition."""
    low, near, high = _LAYERS
    below, above = _product_sides(sides)
    one = np.ones((1, sides.near.shape[1]))
    value = _over(view.of(_weights({near: sides.near})), float(view.of(_weights({near: one}))[0]))
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
    between: Callable[[FloatArray, FloatArray], Sides],
    levels: FloatArray,
    beta: Fraction,
) -> Band:
    """Return ends between which a quantile is, each level by itself at beta.

    On a public grid x_0 = 0 < x_1 < .. let the quantile be in [x_k, x_{k+1}]. At most a share tau
    is below x_k and at least tau up to x_{k+1}: two inequalities at places that are not known but
    do not depend on the noise, each of which the released numbers deny with probability at most
    beta / 2. So the quantile is between the neighbours of the first and the last place where they
    are not denied. First by the tail, at `FIRST` of beta, on a coarse grid; then by draws, at the
    rest, on one that is finer where steps are smooth, if what is left of it is not too much.
    """
    within = 2 ** int(np.log2(np.clip(_PLACES / splines.cells, 1, OFFSETS)))
    count = splines.cells * within
    places = np.linspace(0.0, 1.0, count + 1)
    steps, whole = between(np.zeros_like(places), places), between(np.zeros(1), np.ones(1))
    near = _LAYERS[1]
    lines, bases = _product_sides(steps), _product_sides(whole)
    smooth = float((steps.high - steps.low).max()) < _SHARP
    apart = 1 / (count * view.measure.deviation)
    finer = 2 ** int(np.log2(np.clip(_FINER * apart, 1, _FINEST))) if smooth else 1
    total = float(view.of(_weights({near: whole.near}))[0])
    shares = np.maximum.accumulate(_over(view.of(_weights({near: steps.near})), total))
    ends = list[tuple[float, float, float]]()
    for level in map(float, levels):
        # By the tail first: draws are for the places that it does not deny.
        start, stop = _undenied(view.still(), *lines, bases, level, beta * FIRST)
        low, high = max(start - 1, 0), min(stop + 1, count)
        if (high - low) * finer <= max(count, 2 * _PLACES):
            fine = np.arange(low * finer, high * finer + 1) / (count * finer)
            own = lines if finer == 1 else _product_sides(between(np.zeros_like(fine), fine))
            part = slice(low, high + 1) if finer == 1 else slice(None)
            below, above = own[0][part], own[1][part]
            inner = _undenied(view, below, above, bases, level, beta * (1 - FIRST))
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


def _product_sides(sides: Sides) -> tuple[FloatArray, FloatArray]:
    """Weights of the layers for the sides of a weight times the condition.

    A minorant of the product is ``L_x U + U_x L - U_x U``.
    """
    low, _, high = _LAYERS
    return _weights({high: sides.low - sides.high, low: sides.high}), _weights({high: sides.high})


# --- Which kernels bins resolve, which suits the rows, and points that look like the rows

_MISSED = 0.1  # of a kernel's peak, on an axis
_LOOKED_AT = 65
_SHARES = 40  # of a bandwidth, tried in turn
_CANDIDATES = np.geomspace(0.5, 4.0, 14)  # times the released bandwidth
_UNTOLD = 2.0  # deviations of the noise
_DAMPING = 1e-7  # of the mean square of a bin, as of sides


def least_bandwidth(splines: AxisSplines, kernel: Kernel, released: Kernel) -> float:
    """Return 0 for a kernel that bins resolve on an axis, or the bandwidth that it needs.

    They resolve it if they miss at most a tenth of the peak, or 1.5 times what they miss of the
    released one.
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


def candidates(
    splines: Sequence[AxisSplines], kernels: Sequence[Kernel]
) -> list[tuple[Kernel, ...]]:
    """Return kernels wider and narrower than the released ones, all that bins resolve."""
    found = []
    for share in _CANDIDATES:
        new = tuple(replace(one, bandwidth=one.bandwidth * float(share)) for one in kernels)
        axes = zip(splines, new, kernels, strict=True)
        if not any(least_bandwidth(*one) for one in axes):
            found.append(new)
    return found


def best_kernels(
    measures: Sequence[Measure], tried: Sequence[Sequence[Kernel]], rows: float
) -> int:
    """Return the index of the kernels, from the narrowest on, that the released bins find best.

    Those of the least estimate of `_cross_validation`. On several axes, where noise misleads it,
    the widest whose estimate is within two deviations of the noise of that: Lepski's comparison.
    """
    estimates = [
        sum(_cross_validation(one, kernels, rows) for one in measures) for kernels in tried
    ]
    best = int(np.argmin(estimates))
    if len(measures[0].splines) == 1:
        return best
    for wide in range(len(tried) - 1, best, -1):
        spread = sum(_apart(one, tried[wide], tried[best], rows) for one in measures)
        if estimates[wide] - estimates[best] <= _UNTOLD * math.sqrt(spread):
            return wide
    return best


def _apart(measure: Measure, one: Sequence[Kernel], other: Sequence[Kernel], rows: float) -> float:
    """Approximate the variance that independent noise gives the difference of two estimates.

    For ``(c + x)'D(c + x)`` it is ``2 s^4 |D|^2 + 4 s^2 |Dc|^2``, and ``|Dc|^2`` is about ``|D(c +
    x)|^2 - s^2 |D|^2``.
    """
    terms: list[tuple[float, list[FloatArray]]] = []
    for sign, kernels in ((1.0, one), (-1.0, other)):
        forms = [_forms(*axis) for axis in zip(measure.splines, kernels, strict=True)]
        terms.append((sign, [square for square, _ in forms]))
        crossed = [(cross + cross.T) / 2 for _, cross in forms]
        terms.append((-2 * sign * rows / max(rows - 1, 1.0), crossed))
    size = sum(
        a * b * math.prod(float((x * y).sum()) for x, y in zip(left, right, strict=True))
        for a, left in terms
        for b, right in terms
    )
    moved = sum((a * on_axes(measure.values, each) for a, each in terms), np.zeros(()))
    noise = measure.deviation**2
    shift = max(0.0, float(np.square(moved).sum()) - noise * size)
    return 2 * noise**2 * max(0.0, size) + 4 * noise * shift


def _cross_validation(measure: Measure, kernels: Sequence[Kernel], rows: float) -> float:
    """Estimate ``int F^2 - 2 int F f``, the integrated squared error but for ``int f^2``.

    Least squares cross-validation leaves each row out of its own density. Both terms are quadratic
    in the bins, ``c'Gc`` and ``c'Rc``, R of the spline that the density is nearly. The noise, whose
    covariance S is public, adds ``tr GS`` and ``tr RS`` in expectation: they are taken off.
    """
    axes = zip(measure.splines, kernels, strict=True)
    squares, crossed = zip(*(_forms(*axis) for axis in axes), strict=True)
    norm, cross = (
        float((measure.values * on_axes(measure.values, each)).sum()) - _of_noise(measure, each)
        for each in (squares, crossed)
    )
    own = math.prod(one.peak for one in kernels) * float(measure.values.sum())
    return norm - 2 * (rows * cross - own) / max(rows - 1, 1.0)


def _of_noise(measure: Measure, forms: Sequence[FloatArray]) -> float:
    """Return ``tr FS`` for the product F of the axes' forms."""
    noise = measure.covariance
    trace, total = (math.prod(map(float, map(of, forms))) for of in (np.trace, np.sum))
    return noise.deviation**2 * ((1 - noise.correlation) * trace + noise.correlation * total)


@lru_cache(maxsize=64)
def _forms(splines: AxisSplines, kernel: Kernel) -> tuple[FloatArray, FloatArray]:
    """G and R of one axis: least squares over t, and integrals over y, by nodes in each cell."""
    (t, in_t), (y, in_y) = (_nodes(splines, splines.degree + more) for more in (1, 2))
    axis = splines.cells, splines.degree
    damped = splines.gram + _DAMPING * np.trace(splines.gram) / splines.count * np.eye(
        splines.count
    )
    _, onto = bin_products(t, in_t, kernel(y[:, None] - t), *axis)
    made = np.linalg.solve(damped, onto)
    _, crossed = bin_products(y, in_y, made, *axis)
    return in_y * made @ made.T, np.linalg.solve(damped, crossed)


def _nodes(splines: AxisSplines, count: int) -> tuple[FloatArray, FloatArray]:
    """Gauss nodes and weights of every cell."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    places = (np.arange(splines.cells)[:, None] + (nodes + 1) / 2) / splines.cells
    return places.reshape(-1), np.tile(weights / 2 / splines.cells, splines.cells)


def sampled(measure: Measure, count: int, seed: int) -> FloatArray:
    """Draw places (count, l) of the unit cube by the law of `Distribution.sample`."""
    stream = public_stream("questions, sample", seed)
    shares = np.cumsum(np.maximum(measure.values, 0.0).ravel())
    if not shares[-1] > 0:
        raise SpecError(
            "sample: no released number is above 0, so the noise hides all rows. Ask for counts, "
            "whose intervals say how many there can be"
        )
    picked = np.searchsorted(shares, uniform(stream, count) * shares[-1], side="right")
    found = []
    for splines, index in zip(
        measure.splines, np.unravel_index(picked, measure.values.shape), strict=True
    ):
        steps = uniform(stream, count * (splines.degree + 1)).reshape(count, -1).sum(axis=1)
        place = (index - splines.degree + steps) / splines.cells
        found.append(np.clip(1.0 - np.abs(1.0 - np.abs(place)), 0.0, 1.0))
    return np.column_stack(found)
