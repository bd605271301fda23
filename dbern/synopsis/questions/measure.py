"""Released bins as a measure: bands of integrals, and of quotients of integrals.

What is released of a bin is ``z_j = c_j + x_j + f_j``: x_j independent draws of the published law,
``|f_j|`` at most the published error. So a linear functional ``sum_j w_j c_j`` is within ``q |w|_2
+ max |f| |w|_1`` of ``sum_j w_j z_j`` with the probability that ``sum_j w_j x_j`` stays below ``q
|w|_2``. Shares, means and conditional shares are the m with ``int (g - m k) dD = 0``: the answer is
the set of m that the released numbers do not deny. Docs/intervals.md has the proofs, of
quotients, of their quantile, and for what the rows were drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from dbern.certificate import quantile_rank
from dbern.failure import QUOTIENT
from dbern.privacy.accuracy import Covariance, public_stream, uniform
from dbern.privacy.families import covariance_of, family_of
from dbern.privacy.mechanism import Noise
from dbern.synopsis.questions.envelopes.splines import AxisSplines, Envelope
from dbern.types import BoolArray, FloatArray

CLUMPED = 0.05
"""Of the cells' width, for a likely error: about what it is where the rows of each cell stand at
ten values. Rows at many values err less, and rows at few values close to an edge more."""

_PARTS = 4
_MOST_DRAWS, DRAWS, _FEWEST_DRAWS = 4096, 1000, 200
"""Of so many draws or fewer all are used for as many functionals as are simulated."""

_DRAWN = 1 << 22  # numbers of noise that are kept: 32 MiB; of more draws than `DRAWS` 8 MiB
_USED = 1 << 18  # functionals times draws, of more draws than `DRAWS`
_SIMULATED = 1 << 21  # quotients times draws
_FEW = 12  # functionals, for which noise is read a block at a time
_BLOCK = 1 << 17  # numbers of noise: they stay in a processor's cache
_ALIKE = 1e-9  # of products of norms
_FLOATS = 1e-12  # of the sum of sizes that a sum of products is made of


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


@dataclass(frozen=True, eq=False)
class Measure:
    """The bins (b_1, .., b_l) of one array, as released, in shares of the public number of rows.

    `law` is the noise of every bin, `error` bounds a bin's other errors, and the public stream
    `stream` simulates its noise. `spread` (b_1, .., b_l) are variances of sampling (`population`).
    """

    values: FloatArray
    splines: tuple[AxisSplines, ...]
    law: Noise
    error: float
    stream: int = 0
    spread: FloatArray | None = None

    def population(self, rows: float) -> Measure:
        """Return the same, of independent rows, so that functionals tell their population's.

        A functional of zero mean, ``sum_j w_j c_j``, is a mean over rows of ``w(t) = sum_j w_j
        beta_j(t)``, and ``w(t)^2 <= sum_j w_j^2 beta_j(t)``: its variance is at most ``sum_j w_j^2
        p_j / n``. The p_j are estimated by the released bins, and the law is taken as normal.
        """
        return replace(self, spread=np.maximum(self.values, 0.0) / rows)

    @property
    def noise(self) -> FloatArray:
        """Draws of the noise of all bins, in shares: (b_1, .., b_l, draws)."""
        size = self.values.size
        drawn = _simulated(self.law, size, self.stream)
        if self.spread is not None:
            sampled = normal(size, drawn.shape[1], self.stream)
            drawn = drawn + np.sqrt(self.spread).reshape(-1, 1) * sampled
        return drawn.reshape(*self.values.shape, -1)

    @property
    def variances(self) -> FloatArray:
        """Variances of the bins over that of the noise."""
        if self.spread is None:
            return np.ones(self.values.shape)
        return 1.0 + self.spread / self.deviation**2

    @property
    def covariance(self) -> Covariance:
        """Covariance of the bins' noise, which one law may draw jointly."""
        return covariance_of(self.law).scaled(math.ldexp(1.0, self.law.granularity_exponent))

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of a bin's noise."""
        return self.covariance.deviation

    @cached_property
    def bin_error(self) -> float:
        """Bound on the effect of rounding and of its other errors on a bin."""
        return self.error + _FLOATS * float(np.abs(self.values).max(initial=0.0))

    def tail(self, count: int, beta: Fraction) -> tuple[float, float]:
        """Bound so many functionals, all at once: per ``|w|_2``, and per ``|w|_inf``."""
        level = math.log(count / beta)
        granule = math.ldexp(1.0, self.law.granularity_exponent)
        ends = np.array([1.0, 0.0])
        reached = family_of(self.law).weighted_tail(self.law, ends, ends[::-1], level)
        return float(granule * reached[0]), float(granule * reached[1])

    def whole(self) -> View:
        """Return the view of all bins, in one layer."""
        return self.onto(tuple(range(self.values.ndim)))

    def onto(self, axes: tuple[int, ...]) -> View:
        """Return the view of the bins of some axes, summed over the others, in one layer."""
        return _onto(self, axes)

    def along(self, axis: int, others: Envelope) -> View:
        """Return the view of one axis under a condition on the others, a layer for each side of it.

        `others` are weights of the bins of the other axes, in order: (b_1, ..) each.
        """
        layers = np.stack([others.lower, others.estimate, others.upper]).reshape(3, -1)
        return _along(self, axis, layers.tobytes())


@dataclass(frozen=True, eq=False)
class View:
    """Layers of bins (layers, bins), weights (m, layers, bins) of which make functionals.

    `noise` is (layers, bins, draws). `gram` (layers, layers, bins) has products of the weights of
    the released bins in two layers, by their variances over that of the noise; `largest` has the
    largest sizes of these weights.
    """

    values: FloatArray
    noise: FloatArray
    gram: FloatArray
    largest: FloatArray
    measure: Measure

    @cached_property
    def total(self) -> Divisor:
        """Sum of the first layer."""
        weights = np.zeros((1, *self.values.shape))
        weights[:, 0] = 1.0
        (total,) = self.functionals(weights)
        return Divisor(total, total.value, total)

    def still(self) -> View:
        """Return the same without draws."""
        return replace(self, noise=self.noise[..., :0])

    def of(self, weights: FloatArray) -> FloatArray:
        """Return the functionals of the released bins."""
        return np.asarray(np.einsum("mlb,lb->m", weights, self.values))

    def drawn(self, *weights: FloatArray) -> list[FloatArray]:
        """Return the functionals of each draw of their noise, (m, draws), for each of weights.

        Noise does not fit into a processor's cache, and to read it takes longer than to multiply:
        it is read once for all of them.
        """
        counts = [len(rows) for rows in weights]
        rows = np.concatenate(weights).reshape(sum(counts), -1)
        used = max(DRAWS, _USED // max(*counts, 1))
        noise = self.noise.reshape(rows.shape[1], -1)[:, :used]
        if len(rows) > _FEW:
            drawn = rows @ noise
        else:  # of few rows a product of two matrices would copy all noise first
            drawn = np.zeros((len(rows), noise.shape[1]))
            step = max(1, _BLOCK // max(noise.shape[1], 1))
            for start in range(0, len(noise), step):
                drawn += rows[:, start : start + step] @ noise[start : start + step]
        return np.split(drawn, np.cumsum(counts)[:-1])

    def product(self, weights: FloatArray, others: FloatArray) -> FloatArray:
        """Return products of weights as those of the released bins."""
        return np.asarray(np.einsum("mlb,lkb,mkb->m", weights, self.gram, others))

    @cached_property
    def bin_error(self) -> float:
        """Bound on the effect of rounding and of its other errors on a bin."""
        return float(self.measure.bin_error * self.measure.values.size / self.values.shape[1])

    def functionals(self, *weights: FloatArray) -> list[Functionals]:
        """Evaluate the functionals that weights (m, layers, bins) make, for each of weights."""
        return [self._evaluated(*pair) for pair in zip(weights, self.drawn(*weights), strict=True)]

    def _evaluated(self, weights: FloatArray, drawn: FloatArray) -> Functionals:
        sizes = (np.abs(weights) * self.largest[:, None]).sum(axis=1)
        error = self.bin_error * sizes.sum(axis=1)
        square = self.product(weights, weights)
        return Functionals(weights, self.of(weights), square, sizes.max(axis=1), error, drawn)

    def line(self, number: FloatArray, divisor: FloatArray | None = None) -> Line:
        """Return the functionals ``number - m divisor`` of every m; no divisor is the number 1."""
        (top,) = self.functionals(number)
        return self.over(top, None if divisor is None else self.functionals(divisor)[0])

    def over(self, number: Functionals, divisor: Functionals | None) -> Line:
        """Return the functionals ``number - m divisor`` of what is evaluated already."""
        if divisor is None:
            none = mixed = np.zeros(1)
            divisor = Functionals(none, none + 1, none, none, none, np.zeros_like(number.drawn[:1]))
        else:
            mixed = self.product(number.weights, divisor.weights)
        draws = min(number.drawn.shape[1], divisor.drawn.shape[1])
        return Line(
            *(number.value, divisor.value, number.square, mixed, divisor.square),
            *(number.largest + divisor.largest, number.error + divisor.error),
            *(number.drawn[:, :draws], divisor.drawn[:, :draws]),
        )


class Functionals(NamedTuple):
    """Functionals of a view's bins, (m,) each: weights (m, layers, bins), values, draws.

    `square` is the square of the weights' norm. `largest` bounds a weight, and `error` the effect
    of rounding; `drawn` is (m, draws).
    """

    weights: FloatArray
    value: FloatArray
    square: FloatArray
    largest: FloatArray
    error: FloatArray
    drawn: FloatArray


class Line(NamedTuple):
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
        least = size - 2 * m * self.mixed - _FLOATS * size
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

    def at(self, m: float, sign: int, measure: Measure, beta: Fraction) -> FloatArray:
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

    def of_one(self) -> Line:
        """Return the functionals themselves less m: the divisor is the number 1."""
        none = np.zeros_like(self.mixed)
        return self._replace(base=none + 1, mixed=none, base_square=none)

    @property
    def alike(self) -> BoolArray:
        """Whether a is a multiple of k, whatever is released: it is public, as weights are."""
        both = self.square * self.base_square
        return np.asarray((both > 0) & (both - self.mixed**2 <= _ALIKE * both))


class Divisor(NamedTuple):
    """Functionals that others are divided by: from below, their values about, and from above."""

    lower: Functionals
    value: FloatArray
    upper: Functionals

    @classmethod
    def of(cls, view: View, weights: Envelope) -> Divisor:
        """Evaluate weights (m, layers, bins), or (1, layers, bins) for all that are divided."""
        lower, upper = view.functionals(weights.lower, weights.upper)
        return cls(lower, view.of(weights.estimate), upper)


def interval(view: View, number: Envelope, base: Divisor | None, beta: Fraction) -> Band:
    """Return ``int g dD`` over ``int k dD``, from 0 to 1, for weights (m, layers, bins) of g.

    All at once with probability ``1 - beta``. The number of all rows is public: without `base` it
    is the divisor.
    """
    value = view.of(number.estimate)
    below, above = view.functionals(number.lower, number.upper)
    if base is None:
        return quotients(value, view.over(below, None), view.over(above, None), view.measure, beta)
    lines = view.over(below, base.upper), view.over(above, base.lower)
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


_rank = lru_cache(maxsize=256)(quantile_rank)


def quotients(near: FloatArray, low: Line, high: Line, measure: Measure, beta: Fraction) -> Band:
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


def noise_deviation(value: FloatArray, sides: tuple[Line, Line], measure: Measure) -> FloatArray:
    """Return standard deviations of values between minorants and majorants: about their mean."""
    low, high = (side.noise_deviation(value, measure.deviation) for side in sides)
    return np.asarray((low + high) / 2)


def likely_error(noise: FloatArray, cells: FloatArray, width: FloatArray | float) -> FloatArray:
    """Return likely errors, at most the width of the interval."""
    return np.asarray(np.minimum(np.hypot(noise, CLUMPED * cells), width))


@lru_cache(maxsize=8)
def _onto(measure: Measure, axes: tuple[int, ...]) -> View:
    others = tuple(axis for axis in range(measure.values.ndim) if axis not in axes)
    values, noise = measure.values.sum(axis=others), measure.noise.sum(axis=others)
    gram = measure.variances.sum(axis=others).reshape(1, 1, -1)
    flat = noise.reshape(1, values.size, -1)
    return View(values.reshape(1, -1), flat, gram, np.ones(1), measure)


@lru_cache(maxsize=8)
def _along(measure: Measure, axis: int, weights: bytes) -> View:
    conditions = np.frombuffer(weights).reshape(3, -1)
    # Without a condition all sides are alike, and noise is summed once.
    used, which = np.unique(conditions, axis=0, return_inverse=True)
    values = np.moveaxis(measure.values, axis, 0)
    noise = np.moveaxis(measure.noise, axis, 0)
    count, draws = len(values), noise.shape[-1]
    layers = np.einsum("lo,bo->lb", conditions, values.reshape(count, -1))
    noise = noise.reshape(count, -1, draws)
    drawn = np.stack([np.einsum("o,bod->bd", condition, noise) for condition in used])
    sizes = np.moveaxis(measure.variances, axis, 0).reshape(count, -1)
    gram = np.einsum("lo,ko,bo->lkb", conditions, conditions, sizes, optimize=True)
    return View(layers, drawn[which.reshape(-1)], gram, np.abs(conditions).max(axis=1), measure)


@lru_cache(maxsize=8)
def _simulated(law: Noise, size: int, stream: int) -> FloatArray:
    """Draw the noise of so many bins, in shares: (bins, draws); none where they are too many."""
    more, draws = min(_MOST_DRAWS, _DRAWN // size // 4), min(DRAWS, _DRAWN // size)
    draws = max(_FEWEST_DRAWS, more, draws)
    if size * draws > 4 * _DRAWN:
        return np.empty((size, 0))
    drawn = family_of(law).drawn(law, size, draws, public_stream("questions", stream))
    drawn *= math.ldexp(1.0, law.granularity_exponent)
    drawn.setflags(write=False)
    return drawn


@lru_cache(maxsize=2)
def normal(size: int, draws: int, stream: int) -> FloatArray:
    """Return standard normal numbers, (size, draws), of a public stream."""
    from scipy.special import ndtri  # takes 30 ms to import

    uniforms = uniform(public_stream("questions, sampling", stream), size * draws)
    return np.asarray(ndtri(uniforms + 2.0**-54)).reshape(size, draws)
