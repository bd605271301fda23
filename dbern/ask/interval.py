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

   The two sides are functionals ``a - m k`` of the bins, linear in m, that `quotient_interval`
   makes.
2. The released numbers *deny* an m where a side has the wrong sign by more than its noise. The
   noise of the true m alone has to be bounded, as m does not depend on it: that all others are
   tried costs nothing. The m that are not denied end at roots of quadratics (`undenied_quotients`).
3. The noise of a side of norm |w| is at most q |w|: first by the tail of its law, at its
   fraction of beta in `dbern.certify.failure.QUOTIENT`; then, for m between these ends, by an order
   statistic of draws, at the rest.
4. Of many answers, some at a time, the tail counts all functionals, and of each draw the largest of
   all of them is kept: there is one order statistic for all (`undenied_quotients`).

Docs/intervals.md, "A quotient's interval is every m that the bins do not deny", has the proof of 2
to 4, and "A population adds the variance of its rows" what they say of a population.

Of products of weights, such as boxes and kernels at points, everything factors over axes: values,
norms and largest weights. On an axis, points are bracketed between neighbours on a public grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dbern.ask.answer import Band
from dbern.ask.bins import RELATIVE_ROUNDING, BinView, Functionals, NoisyMeasure, draws_used
from dbern.ask.splines import Envelope, products
from dbern.ask.weights import ProductWeights, WeightBatches, slices
from dbern.certify.failure import QUOTIENT
from dbern.certify.noise import quantile_rank
from dbern.types import BoolArray, FloatArray, Int64Array

_PROPORTIONAL = 1e-9  # of products of norms
noise_rank = lru_cache(maxsize=256)(quantile_rank)
"""Rank of the order statistic of draws that bounds noise at a beta; None where they are too few."""
_PIECES = 4  # of an interval, on each of which draws are bounded
_BATCH_NUMBERS = 1 << 21  # weights of bins, or draws at the ends of pieces, at a time: 16 MiB
GRID_POINTS = 1024
"""Points between which quantiles and means are distinguished, where cells are no more."""
_BATCH_WEIGHTS = 1 << 17  # of factors at a time: they stay in a processor's cache


class LinearFamily(NamedTuple):
    """Functionals ``a - m k``, for m from 0 to 1; (m,) each, draws (m, draws).

    `numerator` and `denominator` are the values of a and k on the released bins; `squared`,
    `mixed` and `denominator_squared` are the products ``|w_a|^2``, ``w_a w_k`` and ``|w_k|^2`` of
    their weights. `max_weight` and `rounding_error` bound, for any m, a weight and the effect of
    rounding on the functional.
    """

    numerator: FloatArray
    denominator: FloatArray
    squared: FloatArray
    mixed: FloatArray
    denominator_squared: FloatArray
    max_weight: FloatArray
    rounding_error: FloatArray
    draws: FloatArray
    denominator_draws: FloatArray

    @classmethod
    def of(
        cls, view: BinView, numerator: Functionals, denominator: Functionals | None = None
    ) -> LinearFamily:
        """Return ``numerator - m denominator``; no denominator is the number 1."""
        if denominator is None:
            zero = mixed = np.zeros(1)
            no_draws = np.zeros_like(numerator.draws[:1])
            denominator = Functionals(zero, zero + 1, zero, zero, zero, no_draws)
        else:
            mixed = view.product(numerator.weights, denominator.weights)
        count = min(numerator.draws.shape[1], denominator.draws.shape[1])
        return cls(
            *(numerator.value, denominator.value),
            *(numerator.squared, mixed, denominator.squared),
            numerator.max_weight + denominator.max_weight,
            numerator.rounding_error + denominator.rounding_error,
            *(numerator.draws[:, :count], denominator.draws[:, :count]),
        )

    @classmethod
    def of_weights(
        cls, view: BinView, numerator: FloatArray, denominator: FloatArray | None = None
    ) -> LinearFamily:
        """Evaluate weights (m, layers, bins), and return the family of their functionals."""
        (top,) = view.functionals(numerator)
        return cls.of(view, top, None if denominator is None else view.functionals(denominator)[0])

    def with_unit_denominator(self) -> LinearFamily:
        """Return ``a - m``."""
        zero = np.zeros_like(self.mixed)
        return self._replace(denominator=zero + 1, mixed=zero, denominator_squared=zero)

    def root(self, q: float, loose: float, sign: int) -> FloatArray:
        """Return the last m (sign 1) or first (-1) that is not denied; infinite where none is.

        ``a - m k + sign (rest + q |w(m)|)`` is zero at a root of a quadratic in m.
        """
        numerator = self.numerator + sign * (loose * self.max_weight + self.rounding_error)
        a = self.denominator**2 - q**2 * self.denominator_squared
        b = numerator * self.denominator - q**2 * self.mixed
        c = numerator**2 - q**2 * self.squared
        known = (self.denominator > 0) & (a > 0)
        root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
        return np.where(known, (b + sign * root) / np.where(known, a, 1.0), sign * np.inf)

    def max_standardized_draws(self, cuts: FloatArray, sign: int) -> FloatArray:
        """Bound draws over ``|w(m)|``, (m, draws): the largest for m within `cuts` (pieces + 1, m).

        On a piece ``w(m) x`` is linear in m, so at most the larger of both ends, and ``|w(m)|`` is
        at least its least value.
        """
        values = (-sign * cuts)[..., None] * self.denominator_draws
        values += sign * self.draws
        nearest = self.mixed / np.where(self.denominator_squared > 0, self.denominator_squared, 1.0)
        m = np.clip(nearest, cuts[:-1], cuts[1:])
        size = self.squared + m**2 * self.denominator_squared
        min_square = size - 2 * m * self.mixed - RELATIVE_ROUNDING * size
        known = min_square > _PROPORTIONAL * size
        quotients = np.maximum(values[1:], values[:-1])
        quotients /= np.sqrt(np.where(known, min_square, 1.0))[..., None]
        largest = quotients.max(axis=0)
        largest[~known.all(axis=0)] = np.inf
        return np.asarray(largest)

    def bound(self, m: float, sign: int, measure: NoisyMeasure, beta: Fraction) -> FloatArray:
        """Bound the functionals of one m from above (sign 1), or from below (-1).

        Each bound holds with probability ``1 - beta``, by itself.
        """
        values = sign * (self.draws - m * self.denominator_draws)
        rank = noise_rank(values.shape[1], float(beta)) if values.size else None
        if rank is None:
            q, loose = measure.tail(1, beta)
            noise = q * np.sqrt(np.maximum(self._squared_at(m), 0.0)) + loose * self.max_weight
        else:
            noise = np.partition(values, rank, axis=1)[:, rank]
        return np.asarray(
            self.numerator - m * self.denominator + sign * (noise + self.rounding_error)
        )

    def quotient(self, unknown: float) -> FloatArray:
        """Return released values of ``a / k``, and a number where there is no denominator."""
        known = self.denominator > 0
        return np.where(known, self.numerator / np.where(known, self.denominator, 1.0), unknown)

    def _squared_at(self, m: FloatArray | float) -> FloatArray:
        """Return ``|w(m)|^2``, which roundings may put below 0."""
        return self.squared - 2 * m * self.mixed + m**2 * self.denominator_squared

    @property
    def is_proportional(self) -> BoolArray:
        """Whether a is a multiple of k, whatever is released: it is public, as weights are."""
        both = self.squared * self.denominator_squared
        return np.asarray((both > 0) & (both - self.mixed**2 <= _PROPORTIONAL * both))


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


class Quotients(NamedTuple):
    """Quotients, (m,) each: estimates, and functionals that are at most and at least 0 at them."""

    estimate: FloatArray
    minorants: LinearFamily
    majorants: LinearFamily

    @classmethod
    def of(cls, view: BinView, numerator: Envelope, denominator: Denominator | None) -> Quotients:
        """Evaluate weights (m, layers, bins); no denominator is the number 1."""
        estimate = view.of(numerator.estimate)
        lower, upper = view.functionals(numerator.lower, numerator.upper)
        if denominator is None:
            return cls(estimate, LinearFamily.of(view, lower), LinearFamily.of(view, upper))
        return cls(
            quotient_or_half(estimate, denominator.value),
            LinearFamily.of(view, lower, denominator.upper),
            LinearFamily.of(view, upper, denominator.lower),
        )

    @property
    def simulated(self) -> BoolArray:
        """Whether draws tell more than the tail: not where a is a multiple of k, as noise is."""
        return ~(self.minorants.is_proportional & self.majorants.is_proportional)

    def ends(self, q: float, loose: float, maximum: float) -> tuple[FloatArray, FloatArray]:
        """Return the first and the last m from 0 to `maximum` that are not denied, (m,) each."""
        first, last = self.minorants.root(q, loose, -1), self.majorants.root(q, loose, 1)
        return np.clip(first, 0.0, maximum), np.clip(last, 0.0, maximum)

    def max_standardized_draws(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Bound the quotients of noise and norm, (draws,): the largest of all m between ends."""
        cuts = np.linspace(low, high, _PIECES + 1)
        below = self.minorants.max_standardized_draws(cuts, -1)
        largest = np.maximum(below, self.majorants.max_standardized_draws(cuts, 1))
        return np.asarray(largest[self.simulated].max(axis=0, initial=-math.inf))

    def without_draws(self) -> Quotients:
        """Return the same, seven numbers of each family."""
        none = np.empty((1, 0))
        families = (side._replace(draws=none, denominator_draws=none) for side in self[1:])
        return Quotients(self.estimate, *families)


def quotient_interval(
    view: BinView, numerator: WeightBatches, denominator: Denominator | None, beta: Fraction
) -> Band:
    """Return ``int g dD`` over ``int k dD``, from 0 to 1, for weights g of the layers' bins.

    All at once with probability ``1 - beta``. Without `denominator` it is the public number of all
    rows, or the normalizer, and ``k = 1``: up to the measure's `max_total`.
    """
    maximum = view.measure.max_total if denominator is None else 1.0

    def quotients(view: BinView, batch: slice) -> Quotients:
        return Quotients.of(view, numerator.select(batch).layered(len(view.values)), denominator)

    return laid_out_quotients(view, len(numerator), quotients, beta, maximum)


def laid_out_quotients(
    view: BinView,
    count: int,
    quotients: Callable[[BinView, slice], Quotients],
    beta: Fraction,
    maximum: float = 1.0,
) -> Band:
    """Return the band of `count` quotients, which are laid out, and drawn, a batch at a time.

    All have the same draws, as many as so many functionals use: none where these are too few for
    `beta`.
    """
    draws = min(view.noise.shape[-1], draws_used(count, view.values.size))
    rank = noise_rank(draws, float(beta * QUOTIENT["draws"]))
    view = view.first_draws(0 if rank is None else draws)
    batch_size = _BATCH_NUMBERS // max(view.values.size, (_PIECES + 1) * view.noise.shape[-1])
    batches = (quotients(view, batch) for batch in slices(count, batch_size))
    return undenied_quotients(count, batches, view.measure, beta, maximum)


def undenied_quotients(
    count: int,
    batches: Iterable[Quotients],
    measure: NoisyMeasure,
    beta: Fraction,
    maximum: float = 1.0,
) -> Band:
    """Return all m from 0 to `maximum` that are not denied, at once with probability ``1 - beta``.

    They are `count` quotients in batches, of which draws are not kept. The values are estimates,
    moved into these intervals.

    Draw by draw the largest quotient of noise and norm, of all m between the ends by the tail and
    of all that are simulated, exceeds that at the true m; so does its order statistic.
    """
    tail = measure.tail(2 * count, beta * QUOTIENT["tail"])
    summaries, largest = [], np.array(-math.inf)
    for batch in batches:
        largest = np.maximum(largest, batch.max_standardized_draws(*batch.ends(*tail, maximum)))
        summaries.append(batch.without_draws())
    rank = noise_rank(len(largest), float(beta * QUOTIENT["draws"]))
    if rank is None or largest.max() == -math.inf:  # nothing is simulated: the tail has all of beta
        q, tail = math.inf, measure.tail(2 * count, beta)
    else:
        q = float(np.sort(largest)[rank])
    bands = [_undenied(summary, tail, q, maximum) for summary in summaries]
    return Band(*map(np.concatenate, zip(*bands, strict=True)))


def _undenied(quotients: Quotients, tail: tuple[float, float], q: float, maximum: float) -> Band:
    """Return the band by the tail, and by draws whose quantile is q: infinite without any."""
    low, high = quotients.ends(*tail, maximum)
    if math.isfinite(q):
        simulated, (first, last) = quotients.simulated, quotients.ends(q, 0.0, maximum)
        low = np.where(simulated, np.maximum(low, first), low)
        high = np.where(simulated, np.minimum(high, last), high)
    high = np.maximum(low, high)
    value = np.clip(quotients.estimate, low, high)
    minorants, majorants = quotients.minorants, quotients.majorants
    start, stop = np.clip([minorants.quotient(0.0), majorants.quotient(1.0)], low, high)
    return Band(value, low, high, np.maximum(stop - start, 0.0))


class GridPoints(NamedTuple):
    """Points of a public grid by number, and a weight's envelope (m, layers, bins) at each.

    Whatever the rows, integrals of the weight grow with the points.
    """

    numbers: Int64Array
    envelope: Envelope


def bracket(
    view: BinView,
    coarse: GridPoints,
    at: Callable[[Int64Array], Envelope],
    base: Envelope | None,
    level: float,
    beta: Fraction,
) -> tuple[int, int, GridPoints]:
    """Return two points between which an integral passes `level`, and all among which they are.

    It passes `level` times the integral of a weight in the envelope `base`, or of 1. By the tail at
    coarse points first, so that draws are for points that it does not deny; then by these `at` all
    points in between, unless they are too many.
    """
    points = coarse
    first, last = _neighbors(
        view.first_draws(0), points.envelope, base, level, beta * QUOTIENT["tail"]
    )
    numbers = np.arange(points.numbers[first], points.numbers[last] + 1)
    if len(numbers) - 2 <= max(len(coarse.numbers) - 1, 2 * GRID_POINTS):
        points = GridPoints(numbers, at(numbers))
        first, last = _neighbors(view, points.envelope, base, level, beta * QUOTIENT["draws"])
    return int(points.numbers[first]), int(points.numbers[last]), points


def _neighbors(
    view: BinView, envelope: Envelope, base: Envelope | None, level: float, beta: Fraction
) -> tuple[int, int]:
    """Return the point before the first majorant above 0, and after the last minorant below.

    As far as the released numbers do not deny it.
    """
    lower, upper = (None, None) if base is None else (base.lower, base.upper)
    majorants = LinearFamily.of_weights(view, envelope.upper, lower)
    minorants = LinearFamily.of_weights(view, envelope.lower, upper)
    positive = np.flatnonzero(majorants.bound(level, 1, view.measure, beta / 2) >= 0)
    negative = np.flatnonzero(minorants.bound(level, -1, view.measure, beta / 2) <= 0)
    count = len(envelope.upper)
    start = int(positive[0]) if len(positive) else count
    stop = int(negative[-1]) if len(negative) else 0
    last = min(stop + 1, count - 1)
    return max(min(start, last) - 1, 0), last


def product_intervals(
    measure: NoisyMeasure, weights: ProductWeights, beta: Fraction, *, of_total: bool
) -> Band:
    """Return shares of products of weights: by the tail, where they are too many to be drawn.

    Of a population all are laid out: what its rows add to the noise is told bin by bin.
    """
    count, shape = len(weights), measure.values.shape
    used = weights.used or tuple(range(len(shape)))
    maximum = 1.0 if of_total else measure.max_total
    if measure.spread is not None or draws_used(count, math.prod(shape[i] for i in used)):
        view = measure.marginal(used)
        denominator = Denominator.total(view) if of_total else None

        def laid_out(view: BinView, batch: slice) -> Quotients:
            envelopes = weights.axes(batch)
            inside = products([envelopes[i] for i in used]).layered()
            return Quotients.of(view, inside, denominator)

        return laid_out_quotients(view, count, laid_out, beta, maximum)

    def factored(batch: slice) -> Quotients:
        estimate, minorants, majorants = _product_families(measure, weights.axes(batch))
        if of_total:
            estimate = quotient_or_half(estimate, measure.bins.sum())
        else:
            minorants = minorants.with_unit_denominator()
            majorants = majorants.with_unit_denominator()
        return Quotients(estimate, minorants, majorants)

    batch_size = _BATCH_WEIGHTS // sum(splines.count for splines in measure.splines)
    batches = map(factored, slices(count, batch_size))
    return undenied_quotients(count, batches, measure, beta, maximum)


def _product_families(
    measure: NoisyMeasure, axes: Sequence[Envelope]
) -> tuple[FloatArray, LinearFamily, LinearFamily]:
    """Return estimates (m,), minorants and majorants of products of weights over the total.

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
    return estimate, _family_of_sum(measure, terms), _family_of_sum(measure, [high])


def _family_of_sum(measure: NoisyMeasure, terms: Sequence[Sequence[FloatArray]]) -> LinearFamily:
    """Return sums of products of weights (m, bins) of the axes over the total, without draws."""
    count = len(terms[0][0])
    zeros, ones = np.zeros(count), np.ones(count)
    numerator = sum((_contracted(measure.bins, term) for term in terms), zeros)
    terms = [[measure.on_released(rows) for rows in term] for term in terms]
    total = [measure.on_released(np.ones(splines.count)) for splines in measure.splines]
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
    no_draws = np.empty((count, 0))
    return LinearFamily(
        *(numerator, measure.bins.sum() * ones, squared, mixed, total_squared * ones),
        *(max_weight, measure.bin_error * sizes, no_draws, no_draws),
    )


def _product(factors: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(np.prod(np.stack([*factors]), axis=0))


def _contracted(values: FloatArray, weights: Sequence[FloatArray]) -> FloatArray:
    """Return ``sum_j prod_i w_i[m, j_i] values_j``, axis by axis."""
    first, *remaining = weights
    sums = first @ values.reshape(len(values), -1)
    for rows in remaining:
        sums = np.einsum("mj,mjr->mr", rows, sums.reshape(len(rows), rows.shape[1], -1))
    return np.asarray(sums[:, 0])
