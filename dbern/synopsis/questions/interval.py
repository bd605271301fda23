"""Intervals for integrals of the rows and quotients of two: the engine of every question.

An `Envelope` has splines below, near and above the weight g of a question, so that the released
bins bound ``int g dD``. Shares, means and conditional shares are the m with ``int (g - m k) dD =
0``: the answer is the set of m that the released numbers do not deny, first by the tail of the
noise's law, then by draws of it, at their parts of `dbern.failure.QUOTIENT`. Docs/intervals.md has
the proofs, of quotients, of their quantile, and for what the rows were drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dbern.errors import SpecError
from dbern.failure import QUOTIENT
from dbern.noise_quantile import quantile_rank
from dbern.synopsis.questions.envelopes.splines import Envelope, products
from dbern.synopsis.questions.noisy_measure import DRAWS, FLOATS, BinView, Functionals, NoisyMeasure
from dbern.types import BoolArray, FloatArray

CLUMPED = 0.05
"""Of the cells' width, for a likely error: about what it is where the rows of each cell stand at
ten values. Rows at many values err less, and rows at few values close to an edge more."""

_PARTS = 4
_SIMULATED = 1 << 21  # quotients times draws
_ALIKE = 1e-9  # of products of norms
_LAID_OUT = 1 << 21  # weights that are laid out one by one; of more nothing is simulated
_AT_ONCE = 1 << 17  # weights of many products at a time: they stay in a processor's cache


class Band(NamedTuple):
    """An estimate and the ends of its interval, (m,) each.

    `cells` is the width between the values that minorants and majorants have without noise. `error`
    is the likely error of the value: the root of the sum of squares of its noise's standard
    deviation and of `CLUMPED` times `cells`.
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

    def minus(self, other: Band) -> Band:
        """Return the band of the difference."""
        ends = self.value - other.value, self.low - other.high, self.high - other.low
        return Band(*ends, self.cells + other.cells, np.hypot(self.error, other.error))

    def scaled(self, low: FloatArray | float, width: FloatArray | float) -> Band:
        """Return the band of ``low + width x``, for a positive width."""
        value, first, last = (low + width * end for end in self[:3])
        return Band(value, first, last, width * self.cells, width * self.error)


class LinearFamily(NamedTuple):
    """Functionals ``a - m k``, for m from 0 to 1; (m,) each, draws (m, draws).

    `top` and `base` are the values of a and k on the released bins; `square`, `mixed` and
    `base_square` are ``|a|^2``, ``a k`` and ``|k|^2``. `largest` and `error` bound, for any m, a
    weight and the effect of rounding on the functional.
    """

    top: FloatArray
    base: FloatArray
    square: FloatArray
    mixed: FloatArray
    base_square: FloatArray
    largest: FloatArray
    error: FloatArray
    drawn: FloatArray
    base_drawn: FloatArray

    @classmethod
    def of(
        cls, view: BinView, number: Functionals, divisor: Functionals | None = None
    ) -> LinearFamily:
        """Return ``number - m divisor``; no divisor is the number 1."""
        if divisor is None:
            none = mixed = np.zeros(1)
            divisor = Functionals(none, none + 1, none, none, none, np.zeros_like(number.drawn[:1]))
        else:
            mixed = view.product(number.weights, divisor.weights)
        draws = min(number.drawn.shape[1], divisor.drawn.shape[1])
        return cls(
            *(number.value, divisor.value, number.square, mixed, divisor.square),
            *(number.largest + divisor.largest, number.error + divisor.error),
            *(number.drawn[:, :draws], divisor.drawn[:, :draws]),
        )

    @classmethod
    def through(
        cls, view: BinView, number: FloatArray, divisor: FloatArray | None = None
    ) -> LinearFamily:
        """Evaluate weights (m, layers, bins), and return the line of their functionals."""
        (top,) = view.functionals(number)
        return cls.of(view, top, None if divisor is None else view.functionals(divisor)[0])

    @classmethod
    def of_products(
        cls, measure: NoisyMeasure, terms: Sequence[Sequence[FloatArray]]
    ) -> LinearFamily:
        """Return sums of products of weights (m, bins) of the axes over the total, without draws.

        Everything about a product factors over axes.
        """
        count = len(terms[0][0])
        zeros, ones = np.zeros(count), np.ones(count)
        top = sum((_contracted(measure.bins, term) for term in terms), zeros)
        terms = [[measure.on_released(rows) for rows in term] for term in terms]
        total = [measure.on_released(np.ones(splines.count)) for splines in measure.splines]
        square = sum(
            (_product(np.einsum("mj,mj->m", x, y) for x, y in zip(left, right, strict=True))
             for left in terms for right in terms), zeros
        )  # fmt: skip
        pairs = [list(zip(term, total, strict=True)) for term in terms]
        mixed = sum((_product(x @ all_rows for x, all_rows in term) for term in pairs), zeros)
        largest = sum((_product(np.abs(x).max(axis=1) for x in term) for term in terms), zeros)
        sizes = sum((_product(np.abs(x).sum(axis=1) for x in term) for term in terms), zeros)
        base_square = float(_product(np.square(axis).sum() for axis in total))
        largest = largest + float(_product(np.abs(axis).max() for axis in total))
        sizes = sizes + float(_product(np.abs(axis).sum() for axis in total))
        none = np.empty((count, 0))
        return cls(
            *(top, measure.bins.sum() * ones, square, mixed, base_square * ones),
            *(largest, measure.bin_error * sizes, none, none),
        )

    def end(self, q: float, loose: float, sign: int) -> FloatArray:
        """Return the last m (sign 1) or first (-1) that is not denied; infinite where none is.

        ``a - m k + sign (rest + q |w(m)|)`` is zero at a root of a quadratic in m.
        """
        top = self.top + sign * (loose * self.largest + self.error)
        a = self.base**2 - q**2 * self.base_square
        b = top * self.base - q**2 * self.mixed
        c = top**2 - q**2 * self.square
        known = (self.base > 0) & (a > 0)
        root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
        return np.where(known, (b + sign * root) / np.where(known, a, 1.0), sign * np.inf)

    def reached(self, ends: FloatArray, sign: int) -> FloatArray:
        """Bound draws over ``|w(m)|``: the largest for m between `ends` (parts + 1, m)."""
        values = (-sign * ends)[..., None] * self.base_drawn
        values += sign * self.drawn
        nearest = self.mixed / np.where(self.base_square > 0, self.base_square, 1.0)
        m = np.clip(nearest, ends[:-1], ends[1:])
        size = self.square + m**2 * self.base_square
        least = size - 2 * m * self.mixed - FLOATS * size
        known = least > _ALIKE * size
        quotients = np.maximum(values[1:], values[:-1])
        quotients /= np.sqrt(np.where(known, least, 1.0))[..., None]
        largest = quotients.max(axis=0)
        largest[~known.all(axis=0)] = np.inf
        return np.asarray(largest)

    def noise_deviation(self, m: FloatArray | float, noise: float) -> FloatArray:
        """Return standard deviations of the quotient ``a / k`` near m; infinite without a divisor.

        `noise` is the standard deviation of a bin's.
        """
        size = self.square - 2 * m * self.mixed + m**2 * self.base_square
        known = self.base > 0
        deviation = noise * np.sqrt(np.maximum(size, 0.0)) / np.where(known, self.base, 1.0)
        return np.where(known, deviation, np.inf)

    def quotient(self, unknown: float) -> FloatArray:
        """Return released values of ``a / k``, and a number where there is no divisor."""
        known = self.base > 0
        return np.where(known, self.top / np.where(known, self.base, 1.0), unknown)

    def at(self, m: float, sign: int, measure: NoisyMeasure, beta: Fraction) -> FloatArray:
        """Bound the functionals of one m from above (sign 1), or from below (-1).

        Each bound holds with probability ``1 - beta``, by itself.
        """
        values = sign * (self.drawn - m * self.base_drawn)
        rank = _rank(values.shape[1], float(beta)) if values.size else None
        if rank is None:
            q, loose = measure.tail(1, beta)
            size = self.square - 2 * m * self.mixed + m**2 * self.base_square
            reached = q * np.sqrt(np.maximum(size, 0.0)) + loose * self.largest
        else:
            reached = np.partition(values, rank, axis=1)[:, rank]
        return np.asarray(self.top - m * self.base + sign * (reached + self.error))

    def of_one(self) -> LinearFamily:
        """Return the functionals themselves less m: the divisor is the number 1."""
        none = np.zeros_like(self.mixed)
        return self._replace(base=none + 1, mixed=none, base_square=none)

    @property
    def alike(self) -> BoolArray:
        """Whether a is a multiple of k, whatever is released: it is public, as weights are."""
        both = self.square * self.base_square
        return np.asarray((both > 0) & (both - self.mixed**2 <= _ALIKE * both))


class Denominator(NamedTuple):
    """Functionals that others are divided by: from below, their values about, and from above."""

    lower: Functionals
    value: FloatArray
    upper: Functionals

    @classmethod
    def of(cls, view: BinView, weights: Envelope) -> Denominator:
        """Evaluate weights (m, layers, bins), or (1, layers, bins) for all that are divided."""
        lower, upper = view.functionals(weights.lower, weights.upper)
        return cls(lower, view.of(weights.estimate), upper)

    @classmethod
    def total(cls, view: BinView) -> Denominator:
        """Return the sum of the first layer: all rows that count."""
        return cls(view.total, view.total.value, view.total)


def interval(view: BinView, number: Envelope, base: Denominator | None, beta: Fraction) -> Band:
    """Return ``int g dD`` over ``int k dD``, from 0 to 1, for weights (m, layers, bins) of g.

    All at once with probability ``1 - beta``. The number of all rows is public: without `base` it
    is the divisor.
    """
    value = view.of(number.estimate)
    below, above = view.functionals(number.lower, number.upper)
    if base is None:
        return quotients(
            value, LinearFamily.of(view, below), LinearFamily.of(view, above), view.measure, beta
        )
    lines = LinearFamily.of(view, below, base.upper), LinearFamily.of(view, above, base.lower)
    return quotients(over(value, base.value), *lines, view.measure, beta)


def over(values: FloatArray, total: FloatArray) -> FloatArray:
    """Return quotients, and a half where there is no divisor."""
    return np.where(total > 0, values / np.where(total > 0, total, 1.0), 0.5)


def in_parts(
    count: int, rows: int, beta: Fraction, band: Callable[[slice, Fraction], Band]
) -> Band:
    """Return the band of so many questions, asked so many at a time, each at its part of beta."""
    bands = []
    for start in range(0, count, max(rows, 1)):
        part = slice(start, min(start + max(rows, 1), count))
        bands.append(band(part, beta * (part.stop - start) / count))
    return Band(*map(np.concatenate, zip(*bands, strict=True)))


def product_intervals(
    measure: NoisyMeasure,
    axes: Callable[[slice], list[Envelope]],
    count: int,
    beta: Fraction,
    used: tuple[int, ...] = (),
    *,
    of_total: bool,
) -> Band:
    """Return shares of `count` products of weights: of many a part at a time, by the tail for all.

    Weights of axes that are not `used` are 1, where any are.
    """
    draws = DRAWS if measure.spread is None else 0
    if count * max(measure.values.size, draws) <= _LAID_OUT:
        envelopes = axes(slice(None))
        view = measure.marginal(used) if used else measure.joint()
        inside = products([envelopes[i] for i in used] or envelopes).layered()
        return interval(view, inside, Denominator.total(view) if of_total else None, beta)
    if measure.spread is not None:
        raise SpecError(f"population: {count} are too many at once. Ask for parts of them")

    def band(part: slice, beta_i: Fraction) -> Band:
        near, low, high = _product_lines(measure, axes(part))
        if of_total:
            near = over(near, measure.bins.sum())
        else:
            low, high = low.of_one(), high.of_one()
        return quotients(near, low, high, measure, beta_i)

    rows = _AT_ONCE // sum(splines.count for splines in measure.splines)
    return in_parts(count, rows, beta, band)


def _product_lines(
    measure: NoisyMeasure, axes: Sequence[Envelope]
) -> tuple[FloatArray, LinearFamily, LinearFamily]:
    """Return the estimates and lines of products of weights, (m,) each.

    The minorant of `envelopes.splines.products` is a sum of l products, ``L_1 U_2 .. U_l + U_1 (L_2
    - U_2) .. U_l + ..``.
    """
    high, low = [axis.upper for axis in axes], [axis.lower for axis in axes]
    gaps = [axis.lower - axis.upper for axis in axes]
    others = ([*high[:turn], gaps[turn], *high[turn + 1 :]] for turn in range(1, len(axes)))
    terms = [[low[0], *high[1:]], *others]
    near = _contracted(measure.bins, [axis.estimate for axis in axes])
    return near, LinearFamily.of_products(measure, terms), LinearFamily.of_products(measure, [high])


def _product(factors: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(np.prod(np.stack([*factors]), axis=0))


def _contracted(values: FloatArray, weights: Sequence[FloatArray]) -> FloatArray:
    """Return ``sum_j prod_i w_i[m, j_i] values_j``, axis by axis."""
    first, *others = weights
    sums = first @ values.reshape(len(values), -1)
    for rows in others:
        sums = np.einsum("mj,mjr->mr", rows, sums.reshape(len(rows), rows.shape[1], -1))
    return np.asarray(sums[:, 0])


_rank = lru_cache(maxsize=256)(quantile_rank)


def quotients(
    near: FloatArray, low: LinearFamily, high: LinearFamily, measure: NoisyMeasure, beta: Fraction
) -> Band:
    """Return estimates (m,) cut to what holds at once with probability ``1 - beta``, from 0 to 1.

    `low` and `high` are the lines of minorants and of majorants.
    """
    unlike = ~(low.alike & high.alike)  # of the others the tail alone tells as much
    simulated = int(unlike.sum()) * high.drawn.shape[1]
    few = 0 < simulated <= _SIMULATED
    rank = _rank(high.drawn.shape[1], float(beta * QUOTIENT["draws"])) if few else None
    q, loose = measure.tail(2 * len(near), beta if rank is None else beta * QUOTIENT["tail"])
    first = np.clip(low.end(q, loose, -1), 0.0, 1.0)
    last = np.clip(high.end(q, loose, 1), 0.0, 1.0)
    if rank is not None:
        ends = np.linspace(first, last, _PARTS + 1)
        both = np.maximum(low.reached(ends, -1), high.reached(ends, 1))
        q = float(np.sort(both[unlike].max(axis=0))[rank])
        if math.isfinite(q):
            first = np.where(unlike, np.maximum(first, low.end(q, 0.0, -1)), first)
            last = np.where(unlike, np.minimum(last, high.end(q, 0.0, 1)), last)
    first = np.minimum(first, 1.0)
    last = np.maximum(first, last)
    value = np.clip(near, first, last)
    noise = noise_deviation(value, (low, high), measure)
    start, stop = np.clip([low.quotient(0.0), high.quotient(1.0)], first, last)
    cells = np.maximum(stop - start, 0.0)
    return Band(value, first, last, cells, likely_error(noise, cells, last - first))


def noise_deviation(
    value: FloatArray, sides: tuple[LinearFamily, LinearFamily], measure: NoisyMeasure
) -> FloatArray:
    """Return standard deviations of values between minorants and majorants: about their mean."""
    low, high = (side.noise_deviation(value, measure.deviation) for side in sides)
    return np.asarray((low + high) / 2)


def likely_error(noise: FloatArray, cells: FloatArray, width: FloatArray | float) -> FloatArray:
    """Return likely errors, at most the width of the interval."""
    return np.asarray(np.minimum(np.hypot(noise, CLUMPED * cells), width))
