"""The interval of a quotient of two integrals over the rows: why every answer covers.

Let D be the rows' measure, and ``c_j = int beta_j dD`` the bins, which are released with noise.
Let l and u be coefficients of splines below and above a weight g, and l^k, u^k of those around a
weight ``k >= 0`` (`Envelope`). The answer is ``m = int g dD / int k dD``, in [0, 1] as ``g <= k``.
Of sums over the normalizer of a private number of rows (``k = 1``) m is any number from 0 on.

*Theorem.* For every database `quotient_interval` returns an interval with m in it, with probability
``1 - beta``.

1. *Lemma* (docs/intervals.md, "Splines around a weight bound its integral for every database"):
   ``sum_j l_j c_j <= int g dD <= sum_j u_j c_j``, as D is a measure. As m >= 0, therefore ::

       sum_j (l_j - m u^k_j) c_j <= int (g - m k) dD = 0 <= sum_j (u_j - m l^k_j) c_j

   The two sides are functionals ``a - m k`` of the bins, linear in m, that `Sides` has.
2. The released numbers *deny* an m where a side has the wrong sign by more than its noise. The
   noise of the true m alone has to be bounded, as m does not depend on it: that all others are
   tried costs nothing. The m that are not denied end at roots of quadratics (`Contrast.accepted`).
3. The noise of a side of norm |w| is at most q |w|: first by the tail of its law, at its
   fraction of beta in `dbern.certify.failure.QUOTIENT`; then, for m between these ends, by an order
   statistic of draws, at the rest.
4. Of many answers, some at a time, the tail counts all functionals, and of each draw the largest of
   all of them is kept: there is one order statistic for all (`simultaneous_intervals`).

5. Of many points of the released function its band at the same beta may be narrower. Public facts
   alone decide which is taken (`Everywhere`): each covers, and so does the one that they choose.

In docs/intervals.md "A quotient's interval is every m that the bins do not deny" has the proof of 2
to 5, and "A population adds the variance of its rows" what they say of a population.

Of products of weights, such as boxes and kernels at points, everything factors over axes: values,
norms and largest weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from dbern.ask.answer import Interval
from dbern.ask.bins import RELATIVE_ROUNDING, BinView, Functionals, NoisyMeasure, draws_used
from dbern.ask.splines import Envelope, products
from dbern.ask.weights import ProductWeights, WeightBatches, slices
from dbern.certify.failure import QUOTIENT
from dbern.certify.noise import Radius, quantile_rank
from dbern.types import BoolArray, FloatArray

Range: TypeAlias = tuple[float, float]
"""Least and largest m that are looked at: finite, as ends of a range are tried."""
Ends: TypeAlias = tuple[FloatArray, FloatArray]
"""First and last m, (m,) each."""
_PROPORTIONAL = 1e-9  # of products of norms
_HIGHEST = 2.0**100  # sum over a normalizer, of any number of rows
noise_rank = lru_cache(maxsize=256)(quantile_rank)
"""Rank of the order statistic of draws that bounds noise at a beta; None where they are too few."""
_PIECES = 4  # of an interval, on each of which draws are bounded
BATCH_NUMBERS = 1 << 21  # weights of bins, or draws at the ends of pieces, at a time: 16 MiB
_BATCH_WEIGHTS = 1 << 17  # of factors at a time: they stay in a processor's cache


class Draws(NamedTuple):
    """Draws of the noise of a and of k, (m, draws) each; none where they tell nothing."""

    a: FloatArray
    k: FloatArray


NO_DRAWS = Draws(np.empty((1, 0)), np.empty((1, 0)))


@dataclass(frozen=True, eq=False)
class SquaredNorm:
    """``|w(m)|^2 = aa - 2 m ak + m^2 kk``, of products of the weights of a and of k, (m,) each."""

    aa: FloatArray
    ak: FloatArray
    kk: FloatArray

    def at(self, m: FloatArray | float) -> FloatArray:
        """Return it at an m, at least 0: roundings may put it below."""
        return np.maximum(self.aa - 2 * m * self.ak + m**2 * self.kk, 0.0)

    @property
    def is_proportional(self) -> BoolArray:
        """Whether a is a multiple of k, whatever is released: it is public, as weights are."""
        both = self.aa * self.kk
        return np.asarray((both > 0) & (both - self.ak**2 <= _PROPORTIONAL * both))


@dataclass(frozen=True, eq=False)
class Contrast:
    """Functionals ``a - m k`` of released numbers, of every m, (m,) each.

    `a` and `k` are the released values. `largest` and `slack` bound, for any m that is asked about,
    a weight, and all but noise that the functional may be off by.
    """

    a: FloatArray
    k: FloatArray
    norm: SquaredNorm
    largest: FloatArray | float = 0.0
    slack: FloatArray | float = 0.0
    draws: Draws = NO_DRAWS

    @classmethod
    def of(cls, view: BinView, a: Functionals, k: Functionals | None = None) -> Contrast:
        """Return ``a - m k``; no k is the number 1."""
        if k is None:
            zero = ak = np.zeros(1)
            k = Functionals(zero, zero + 1, zero, zero, zero, np.zeros_like(a.draws[:1]))
        else:
            ak = view.product(a.weights, k.weights)
        count = min(a.draws.shape[1], k.draws.shape[1])
        return cls(
            a.value,
            k.value,
            SquaredNorm(a.squared, ak, k.squared),
            a.max_weight + k.max_weight,
            a.rounding_error + k.rounding_error,
            Draws(a.draws[:, :count], k.draws[:, :count]),
        )

    @classmethod
    def of_weights(cls, view: BinView, a: FloatArray, k: FloatArray | None = None) -> Contrast:
        """Evaluate weights (m, layers, bins), and return the contrast of their functionals."""
        return cls.of(view, *(view.functionals(rows)[0] for rows in (a, k) if rows is not None))

    def with_unit_denominator(self) -> Contrast:
        """Return ``a - m``."""
        zero = np.zeros_like(self.k)
        return replace(self, k=zero + 1, norm=SquaredNorm(self.norm.aa, zero, zero))

    def accepted(self, radius: Radius, sign: int, within: Range) -> tuple[FloatArray, FloatArray]:
        """Return the first and the last m of a range that are not denied: inf and -inf of none.

        An m is denied where ``a - m k`` is below 0 (sign 1), or above (-1), by more than slack and
        noise: where ``g(m) = p + r m + q |w(m)|`` is negative. That is convex, so that an end of
        the range is denied with all m up to one zero of g, or with all of the range. Of ``(p + r
        m)^2 - q^2 |w(m)|^2``, which is positive where g is negative and nowhere else near there,
        this zero is the root where it rises, where m behind it are denied, or else falls.
        """
        (start, stop), q, norm = within, radius.q, self.norm
        p, r = self._line(radius, sign)
        at_start, at_stop = self._at_ends(radius, sign, within)
        half = p * r + q**2 * norm.ak
        square = r**2 * norm.aa + 2 * p * r * norm.ak + p**2 * norm.kk
        square -= q**2 * (norm.aa * norm.kk - norm.ak**2)
        size = np.where(at_start < 0, -q, q) * np.sqrt(np.maximum(square, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):  # where there is no zero
            cancels = half * size > 0
            zero = np.where(
                cancels,
                (p**2 - q**2 * norm.aa) / np.where(cancels, -half - size, 1.0),
                (size - half) / (r**2 - q**2 * norm.kk),
            )
        zero = np.clip(np.nan_to_num(zero), start, stop)
        first = np.where(at_start >= 0, start, np.where(at_stop >= 0, zero, math.inf))
        last = np.where(at_stop >= 0, stop, np.where(at_start >= 0, zero, -math.inf))
        return first, last

    def nearest(self, radius: Radius, sign: int, within: Range) -> Ends:
        """Return what `accepted` does, or twice the end of the range that is denied by less."""
        first, last = self.accepted(radius, sign, within)
        at_start, at_stop = self._at_ends(radius, sign, within)
        end, none = np.where(at_start >= at_stop, *within), first > last
        return np.where(none, end, first), np.where(none, end, last)

    def _line(self, radius: Radius, sign: int) -> tuple[FloatArray, FloatArray]:
        """Return p and r of ``g(m) = p + r m + q |w(m)|``, which is negative where m is denied."""
        return sign * self.a + self.slack + radius.loose * self.largest, -sign * self.k

    def _at_ends(self, radius: Radius, sign: int, within: Range) -> tuple[FloatArray, FloatArray]:
        """Return g at both ends of a range: it is convex, and so nowhere above both."""
        p, r = self._line(radius, sign)
        at_start, at_stop = (p + r * m + radius.q * np.sqrt(self.norm.at(m)) for m in within)
        return at_start, at_stop

    def max_standardized_draws(self, cuts: FloatArray, sign: int) -> FloatArray:
        """Bound draws over ``|w(m)|``, (m, draws): the largest for m within `cuts` (pieces + 1, m).

        On a piece ``w(m) x`` is linear in m, so at most the larger of both ends, and ``|w(m)|`` is
        at least its least value.
        """
        norm = self.norm
        values = (-sign * cuts)[..., None] * self.draws.k
        values += sign * self.draws.a
        nearest = norm.ak / np.where(norm.kk > 0, norm.kk, 1.0)
        m = np.clip(nearest, cuts[:-1], cuts[1:])
        size = norm.aa + m**2 * norm.kk
        min_square = size - 2 * m * norm.ak - RELATIVE_ROUNDING * size
        known = min_square > _PROPORTIONAL * size
        quotients = np.maximum(values[1:], values[:-1])
        quotients /= np.sqrt(np.where(known, min_square, 1.0))[..., None]
        largest = quotients.max(axis=0)
        largest[~known.all(axis=0)] = np.inf
        return np.asarray(largest)

    def end_at(self, m: float, sign: int, measure: NoisyMeasure, beta: Fraction) -> FloatArray:
        """Bound the functionals of one m from above (sign 1), or from below (-1).

        Each bound holds with probability ``1 - beta``, by itself.
        """
        values = sign * (self.draws.a - m * self.draws.k)
        rank = noise_rank(values.shape[1], float(beta)) if values.size else None
        if rank is None:
            radius = measure.tail(1, beta)
            noise = radius.q * np.sqrt(self.norm.at(m)) + radius.loose * self.largest
        else:
            noise = np.partition(values, rank, axis=1)[:, rank]
        return np.asarray(self.a - m * self.k + sign * (noise + self.slack))

    def quotient(self, unknown: float) -> FloatArray:
        """Return released values of ``a / k``, and a number where there is no denominator."""
        known = self.k > 0
        return np.where(known, self.a / np.where(known, self.k, 1.0), unknown)


def quotient_or_half(values: FloatArray, total: FloatArray) -> FloatArray:
    """Return quotients, and a half where there is no denominator."""
    return np.where(total > 0, values / np.where(total > 0, total, 1.0), 0.5)


class Denominator(NamedTuple):
    """Functionals of k: from below, their values about, and from above."""

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


@dataclass(frozen=True, eq=False)
class Sides:
    """Contrasts that are at most and at least 0 at the m that are asked about, and estimates."""

    estimate: FloatArray
    lower: Contrast
    upper: Contrast

    @classmethod
    def of(cls, view: BinView, a: Envelope, k: Denominator | None) -> Sides:
        """Evaluate weights (m, layers, bins); no denominator is the number 1."""
        estimate = view.of(a.estimate)
        lower, upper = view.functionals(a.lower, a.upper)
        if k is None:
            return cls(estimate, Contrast.of(view, lower), Contrast.of(view, upper))
        return cls(
            quotient_or_half(estimate, k.value),
            Contrast.of(view, lower, k.upper),
            Contrast.of(view, upper, k.lower),
        )

    @property
    def simulated(self) -> BoolArray:
        """Whether draws tell more than the tail: not where a is a multiple of k, as noise is."""
        return ~(self.lower.norm.is_proportional & self.upper.norm.is_proportional)

    def max_standardized_draws(self, ends: Ends) -> FloatArray:
        """Bound the quotients of noise and norm, (draws,): the largest of all m between ends."""
        cuts = np.linspace(*ends, _PIECES + 1)
        below = self.lower.max_standardized_draws(cuts, -1)
        largest = np.maximum(below, self.upper.max_standardized_draws(cuts, 1))
        return np.asarray(largest[self.simulated].max(axis=0, initial=-math.inf))

    def without_draws(self) -> Sides:
        """Return the same, seven numbers of each side."""
        lower, upper = (replace(side, draws=NO_DRAWS) for side in (self.lower, self.upper))
        return Sides(self.estimate, lower, upper)


def confidence_set(sides: Sides, radius: Radius, within: Range) -> Ends:
    """Return the first and the last m of a range that no side denies, (m,) each.

    With the probability of the radius they enclose the true m, if that is in the range. The first
    is above the last where all are denied.
    """
    below, above = sides.lower.accepted(radius, -1, within), sides.upper.accepted(radius, 1, within)
    return np.maximum(below[0], above[0]), np.minimum(below[1], above[1])


def nearest_set(sides: Sides, radius: Radius, within: Range) -> Ends:
    """Return the ends of `confidence_set`, the first nowhere above the last.

    Where a side denies all of the range, its share of it is the end that it denies by less: of
    no rows, whose noise is far below 0, that is 0. Where both sides deny what the other does not,
    the ends are those of what is denied by both.
    """
    below, above = sides.lower.nearest(radius, -1, within), sides.upper.nearest(radius, 1, within)
    first, last = np.maximum(below[0], above[0]), np.minimum(below[1], above[1])
    return np.minimum(first, last), np.maximum(first, last)


def quotient_interval(
    view: BinView, numerator: WeightBatches, denominator: Denominator | None, beta: Fraction
) -> Interval:
    """Return ``int g dD`` over ``int k dD``, from 0 to 1, for weights g of the layers' bins.

    All at once with probability ``1 - beta``. Without `denominator` it is the public number of all
    rows, or the normalizer, and ``k = 1``: up to the measure's `max_total`.
    """
    maximum = view.measure.max_total if denominator is None else 1.0

    def sides(view: BinView, batch: slice) -> Sides:
        return Sides.of(view, numerator.select(batch).layered(len(view.values)), denominator)

    return laid_out_intervals(view, len(numerator), sides, beta, maximum)


def laid_out_intervals(
    view: BinView,
    count: int,
    sides: Callable[[BinView, slice], Sides],
    beta: Fraction,
    maximum: float = 1.0,
    everywhere: Everywhere | None = None,
) -> Interval:
    """Return intervals of `count` quotients, which are laid out, and drawn, a batch at a time.

    All have the same draws, as many as so many functionals use: none where these are too few for
    `beta`.
    """
    draws = min(view.noise.shape[-1], draws_used(count, view.values.size))
    rank = noise_rank(draws, float(beta * QUOTIENT["draws"]))
    view = view.first_draws(0 if rank is None else draws)
    batch_size = BATCH_NUMBERS // max(view.values.size, (_PIECES + 1) * view.noise.shape[-1])
    batches = (sides(view, batch) for batch in slices(count, batch_size))
    return simultaneous_intervals(count, batches, view.measure, beta, maximum, everywhere)


def simultaneous_intervals(
    count: int,
    batches: Iterable[Sides],
    measure: NoisyMeasure,
    beta: Fraction,
    maximum: float = 1.0,
    everywhere: Everywhere | None = None,
) -> Interval:
    """Return all m from 0 to `maximum` that are not denied, at once with probability ``1 - beta``.

    They are `count` quotients in batches, of which draws are not kept. The values are estimates,
    moved into these intervals.

    Draw by draw the largest quotient of noise and norm, of all m between the ends by the tail and
    of all that are simulated, exceeds that at the true m; so does its order statistic. Where a band
    that holds `everywhere` is narrower by public facts, the intervals are that one's.
    """
    tail, within = measure.tail(2 * count, beta * QUOTIENT["tail"]), (0.0, min(maximum, _HIGHEST))
    summaries, largest = [], np.array(-math.inf)
    for batch in batches:
        ends = nearest_set(batch, tail, within)
        largest = np.maximum(largest, batch.max_standardized_draws(ends))
        summaries.append(batch.without_draws())
    rank, drawn = noise_rank(len(largest), float(beta * QUOTIENT["draws"])), None
    if rank is None or largest.max() == -math.inf:  # nothing is simulated: the tail has all of beta
        tail = measure.tail(2 * count, beta)
    else:
        drawn = Radius(float(np.sort(largest)[rank]))
    if everywhere is not None and everywhere.is_narrower(summaries, tail, drawn):
        estimates = np.concatenate([sides.estimate for sides in summaries])
        return everywhere.intervals(estimates, within)
    by_batch = [_interval(sides, tail, drawn, within) for sides in summaries]
    return Interval(*map(np.concatenate, zip(*by_batch, strict=True)))


def _interval(sides: Sides, tail: Radius, drawn: Radius | None, within: Range) -> Interval:
    """Return the intervals by the tail, and by draws where these tell more."""
    low, high = nearest_set(sides, tail, within)
    if drawn is not None and math.isfinite(drawn.q):
        simulated = sides.simulated
        first, last = nearest_set(sides, drawn, within)
        low = np.where(simulated, np.clip(first, low, high), low)
        high = np.where(simulated, np.clip(last, low, high), high)
    value = np.clip(sides.estimate, low, high)
    start, stop = np.clip([sides.lower.quotient(0.0), sides.upper.quotient(1.0)], low, high)
    return Interval(value, low, high, np.maximum(stop - start, 0.0))


class FunctionBand(Protocol):
    """Band of the released function, in its units."""

    @property
    def follows_data(self) -> bool:
        """Whether it is narrower about these data than about any database."""

    def promised(self, beta: Fraction, column: int) -> float:
        """Return the half-width of a column that public facts promise, infinite if they do not."""

    def ends(self, points: FloatArray, beta: Fraction) -> FloatArray:
        """Return low and high ends (m, columns, 2), NaN where all values may be."""


class Everywhere(NamedTuple):
    """The band of what is asked about, ``low + width m``, for each m of a question."""

    band: FunctionBand
    points: FloatArray
    beta: Fraction
    column: int
    low: float
    width: float

    def is_narrower(self, batches: Sequence[Sides], tail: Radius, drawn: Radius | None) -> bool:
        """Whether it is narrower than intervals are by the draws of their noise, or by its tail.

        Public facts alone decide, so that whichever is chosen holds as often as it says: how many
        are asked, and of sums the noise, whose norm no released number changes. By the tail alone
        intervals are wider than any band that follows the data, of sums and of quotients.
        """
        if drawn is None and self.band.follows_data:
            return True
        sides = [side for batch in batches for side in (batch.lower, batch.upper)]
        if any(side.norm.kk.any() for side in sides):
            return False
        q, loose = tail if drawn is None else drawn
        noises = [q * np.sqrt(side.norm.aa) + loose * side.largest for side in sides]
        return bool(
            self.width * np.concatenate(noises).mean() >= self.band.promised(self.beta, self.column)
        )

    def intervals(self, estimate: FloatArray, within: Range) -> Interval:
        """Return its intervals, and estimates moved into them."""
        ends = self.band.ends(self.points, self.beta)[:, self.column]
        low, high = (ends.T - self.low) / self.width
        low = np.clip(np.where(np.isnan(low), within[0], low), *within)
        high = np.clip(np.where(np.isnan(high), within[1], high), *within)
        return Interval.without_cells(np.clip(estimate, low, high), low, high)


def product_intervals(
    measure: NoisyMeasure,
    weights: ProductWeights,
    beta: Fraction,
    *,
    of_total: bool,
    everywhere: Everywhere | None = None,
) -> Interval:
    """Return shares of products of weights: by the tail, where they are too many to be drawn.

    Of a population all are laid out: what its rows add to the noise is told bin by bin.
    """
    count, shape = len(weights), measure.values.shape
    used = weights.used or tuple(range(len(shape)))
    maximum = 1.0 if of_total else measure.max_total
    if measure.spread is not None or draws_used(count, math.prod(shape[i] for i in used)):
        view = measure.marginal(used)
        denominator = Denominator.total(view) if of_total else None

        def laid_out(view: BinView, batch: slice) -> Sides:
            envelopes = weights.axes(batch)
            inside = products([envelopes[i] for i in used]).layered()
            return Sides.of(view, inside, denominator)

        return laid_out_intervals(view, count, laid_out, beta, maximum, everywhere)

    def factored(batch: slice) -> Sides:
        return product_sides(measure, weights.axes(batch), of_total=of_total)

    batch_size = _BATCH_WEIGHTS // sum(splines.count for splines in measure.splines)
    batches = map(factored, slices(count, batch_size))
    return simultaneous_intervals(count, batches, measure, beta, maximum, everywhere)


def product_sides(measure: NoisyMeasure, axes: Sequence[Envelope], *, of_total: bool) -> Sides:
    """Return sides of products of weights over the total, or over the number 1, without draws.

    The minorant of `envelopes.splines.products` is a sum of l products, ``L_1 U_2 .. U_l + U_1 (L_2
    - U_2) .. U_l + ..``.
    """
    high, low = [axis.upper for axis in axes], [axis.lower for axis in axes]
    gaps = [axis.lower - axis.upper for axis in axes]
    corrections = (
        [*high[:index], gaps[index], *high[index + 1 :]] for index in range(1, len(axes))
    )
    terms = [[low[0], *high[1:]], *corrections]
    estimate = _contracted(measure.bins, [axis.estimate for axis in axes])
    lower, upper = _contrast_of_sum(measure, terms), _contrast_of_sum(measure, [high])
    if of_total:
        return Sides(quotient_or_half(estimate, measure.bins.sum()), lower, upper)
    return Sides(estimate, lower.with_unit_denominator(), upper.with_unit_denominator())


def _contrast_of_sum(measure: NoisyMeasure, terms: Sequence[Sequence[FloatArray]]) -> Contrast:
    """Return sums of products of weights (m, bins) of the axes over the total, without draws."""
    count = len(terms[0][0])
    zeros, ones = np.zeros(count), np.ones(count)
    numerator = sum((_contracted(measure.bins, term) for term in terms), zeros)
    terms = [[measure.on_released(rows, i) for i, rows in enumerate(term)] for term in terms]
    total = [measure.on_released(np.ones(count), i) for i, count in enumerate(measure.shape)]
    squared = sum(
        (_product(np.einsum("mj,mj->m", x, y) for x, y in zip(left, right, strict=True))
         for left in terms for right in terms), zeros
    )  # fmt: skip
    pairs = [list(zip(term, total, strict=True)) for term in terms]
    mixed = sum((_product(x @ all_rows for x, all_rows in term) for term in pairs), zeros)
    max_weight = sum((_product(np.abs(x).max(axis=1) for x in term) for term in terms), zeros)
    sizes = sum((_product(np.abs(x).sum(axis=1) for x in term) for term in terms), zeros)
    total_squared = float(_product(np.square(axis).sum() for axis in total))
    max_weight = max_weight + float(_product(np.abs(axis).max() for axis in total))
    sizes = sizes + float(_product(np.abs(axis).sum() for axis in total))
    norm = SquaredNorm(squared, mixed, total_squared * ones)
    total_value = measure.bins.sum() * ones
    return Contrast(numerator, total_value, norm, max_weight, measure.bin_error * sizes)


def _product(factors: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(np.prod(np.stack([*factors]), axis=0))


def _contracted(values: FloatArray, weights: Sequence[FloatArray]) -> FloatArray:
    """Return ``sum_j prod_i w_i[m, j_i] values_j``, axis by axis."""
    first, *remaining = weights
    sums = first @ values.reshape(len(values), -1)
    for rows in remaining:
        sums = np.einsum("mj,mjr->mr", rows, sums.reshape(len(rows), rows.shape[1], -1))
    return np.asarray(sums[:, 0])
