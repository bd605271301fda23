"""Released bins, and linear functionals of them with the noise that they have.

What is released of a bin is ``z_j = c_j + x_j + f_j``: x_j independent draws of the published law,
``|f_j|`` at most the published error. So a linear functional ``sum_j w_j c_j`` is within ``q |w|_2
+ max |f| |w|_1`` of ``sum_j w_j z_j`` with the probability that ``sum_j w_j x_j`` stays below ``q
|w|_2``. Intervals for quotients of such functionals: `dbern.ask.quotients`.

Of axes with two scales (`dbern.reconstruct.two_scales`) ``z = M c + x + f`` is released. A
functional w of the bins is the functional ``v = w P`` of what is released, as ``v M = w``: all of
the above holds for v. `NoisyMeasure.on_released` is the one place where weights become those.
M and P are products over axes, and so are weights of the released numbers if those of bins are.

*The rows in two parts.* Of a regression the bins of ``P = v D`` and ``Q = (1 - v) D`` are released,
v the response, moved from its bounds to [0, 1]. They are measures: the rows in two parts, one for
the response and one against it. Of groups P has the rows of one, Q those of all the others. The
mean of v is the m that the noisy bins of both do not deny; docs/intervals.md, "A mean response lies
between the bins of two measures", has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np

from dbern.ask.splines import AxisSplines, Envelope
from dbern.certify.noise import Radius
from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.families import errors_of
from dbern.privacy.noise_law import ValueNoise
from dbern.privacy.public_numbers import public_stream, uniform
from dbern.privacy.sums import OutputSum
from dbern.reconstruct.two_scales import TwoScales, along_axis
from dbern.types import FloatArray

RELATIVE_ROUNDING = 1e-12
"""Relative error of floats: of the sum of sizes that a sum of products is made of."""
_MAX_DRAWS, DRAWS, _MIN_DRAWS = 4096, 1000, 200
"""Of `DRAWS` draws or fewer all are used for as many functionals as are simulated."""
_NOISE_NUMBERS = 1 << 22  # of noise that are cached: 32 MiB; of more draws than `DRAWS` 8 MiB
_USED_NUMBERS = 1 << 18  # functionals times draws, of more draws than `DRAWS`
_MAX_WORK = 1 << 26
"""Functionals times the sum of released values and `DRAWS`: beyond it there are no draws.

So 4096 are drawn of up to 15 000 bins, 50 000 of few. At most boxes take 6 s of a processor, means
of responses 16: by the tail .3 and 8.
"""
_FEW_FUNCTIONALS = 12  # functionals, for which noise is read a block at a time
_BLOCK_NUMBERS = 1 << 17  # numbers of noise: they stay in a processor's cache


@dataclass(frozen=True, eq=False)
class NoisyMeasure:
    """Released values that tell the bins of one array, in shares of the public number of rows.

    `values` are the bins (b_1, .., b_l), or of an axis those of its two `scales`; where these are
    empty each axis has one. `law` is the noise of each value, `error` bounds its other errors, and
    the public stream `stream` simulates its noise.
    `spread` (b_1, .., b_l) are variances of sampling of the bins (`population`). `max_total` is the
    most that bins sum to: infinite where the number of rows is private, as shares are then of a
    normalizer, of which there may be any number of rows.
    """

    values: FloatArray
    splines: tuple[AxisSplines, ...]
    law: ValueNoise
    error: float
    stream: int = 0
    spread: FloatArray | None = None
    scales: tuple[TwoScales | None, ...] = ()
    max_total: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of bins (b_1, .., b_l)."""
        return tuple(splines.count for splines in self.splines)

    @property
    def _released_shape(self) -> tuple[int, ...]:
        return self.values.shape[-len(self.splines) :]

    @cached_property
    def bins(self) -> FloatArray:
        """Estimates of the bins: the released ones, or those of least noise."""
        values = self.values
        for index, scales in enumerate(self.scales, values.ndim - len(self.scales)):
            values = values if scales is None else along_axis(scales.bins, values, index)
        return values

    def on_released(self, weights: FloatArray, *axes: int) -> FloatArray:
        """Return the weights (.., released) of released values that equal weights (.., bins).

        They are those of some axes, or without any named of all.
        """
        return self._along(TwoScales.on_released, weights, self.shape, axes)

    def on_bins(self, weights: FloatArray, *axes: int) -> FloatArray:
        """Return the weights (.., bins) of bins that equal weights (.., released), likewise."""
        return self._along(TwoScales.on_bins, weights, self._released_shape, axes)

    def _along(
        self,
        step: Callable[[TwoScales, FloatArray], FloatArray],
        numbers: FloatArray,
        shape: Sequence[int],
        axes: Sequence[int],
    ) -> FloatArray:
        """Apply a step of two scales to the axes that have them, of numbers (.., values)."""
        if not any(self.scales):
            return numbers
        axes = axes or range(len(shape))
        result = numbers.reshape(*numbers.shape[:-1], *(shape[axis] for axis in axes))
        for index, axis in enumerate(axes, numbers.ndim - 1):
            if (scales := self.scales[axis]) is not None:
                result = along_axis(partial(step, scales), result, index)
        return np.asarray(result.reshape(*numbers.shape[:-1], -1))

    def of_sum(self) -> NoisyMeasure:
        """Return the measure of the sums of all outputs, values (outputs, b_1, ..)."""
        (values, *others), law = self.values, self.law
        if others:
            values, law = self.values.sum(axis=0), OutputSum.of(law, (1.0,) * len(self.values))
        return replace(self, values=values, law=law, error=self.error * len(self.values))

    def population(self, rows: float) -> NoisyMeasure:
        """Return the measure of independent rows, whose functionals are about their population.

        A functional of zero mean, ``sum_j w_j c_j``, is a mean over rows of ``w(t) = sum_j w_j
        beta_j(t)``, and ``w(t)^2 <= sum_j w_j^2 beta_j(t)``: its variance is at most ``sum_j w_j^2
        p_j / n``. The p_j are estimated by the released bins, and the law is taken as normal.
        """
        return replace(self, spread=np.maximum(self.bins, 0.0) / rows)

    @property
    def noise(self) -> FloatArray:
        """Draws of the noise of all that is released, in shares: (b_1, .., b_l, draws)."""
        noise = _simulate_noise(self.law, self.values.size, self.stream)
        if self.spread is not None:
            sampled = normal_draws(self.spread.size, noise.shape[1], self.stream)
            noise = noise + self.released_shifts(np.sqrt(self.spread).reshape(-1, 1) * sampled)
        return noise.reshape(*self.values.shape, -1)

    def released_shifts(self, shifts: FloatArray) -> FloatArray:
        """Return the shifts of released values by shifts (bins, m) of the bins."""
        return self._along(TwoScales.numbers, shifts.T, self.shape, ()).T

    @property
    def variances(self) -> FloatArray | None:
        """Variances of sampling of the bins over that of the noise; None without any."""
        return None if self.spread is None else self.spread / self.deviation**2

    @property
    def covariance(self) -> NoiseCovariance:
        """Covariance of the bins' noise, which one law may draw jointly."""
        return errors_of(self.law).covariance.scaled(math.ldexp(1.0, self.law.granularity_exponent))

    def orthonormal(self, weights: FloatArray) -> FloatArray:
        """Return a basis (released, m) of released values' weights, from weights (m, bins) of bins.

        Each has the noise of one value, sampling included, and no two have any in common.
        """
        released, count = self.on_released(weights), self.values.size
        if self.variances is None:
            return np.linalg.qr(released.T)[0]
        sampled = weights * np.sqrt(self.variances.ravel())
        return np.linalg.qr(np.hstack([released, sampled]).T)[0][:count]

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of a bin's noise."""
        return self.covariance.deviation

    @cached_property
    def bin_error(self) -> float:
        """Bound on the effect of rounding and of its other errors on a released number.

        Weights that are made for two scales are a little off, by a share of all rows.
        """
        largest = float(np.abs(self.values).max(initial=1.0 if any(self.scales) else 0.0))
        return self.error + RELATIVE_ROUNDING * largest

    def tail(self, count: int, beta: Fraction) -> Radius:
        """Bound noise of `count` functionals, all at once."""
        exponent = math.log(count / beta)
        grid_step = math.ldexp(1.0, self.law.granularity_exponent)
        norms = np.array([1.0, 0.0])
        q, loose = errors_of(self.law).weighted_tail(norms, norms[::-1], exponent)
        return Radius(float(grid_step * q), float(grid_step * loose))

    def joint(self) -> BinView:
        """Return the view of all bins, in one layer."""
        return self.marginal(tuple(range(self.values.ndim)))

    def marginal(self, axes: tuple[int, ...]) -> BinView:
        """Return the view of the bins of some axes, summed over the others, in one layer."""
        return _marginal(self, axes)

    def conditional(self, axis: int, others: Envelope) -> BinView:
        """Return the view of one axis under a condition on the others, a layer for each side of it.

        `others` are weights of the bins of the other axes, in order: (b_1, ..) each.
        """
        layers = np.stack([others.lower, others.estimate, others.upper]).reshape(3, -1)
        return _conditional(self, axis, layers.tobytes())


@dataclass(frozen=True, eq=False)
class BinView:
    """Layers of released values (layers, released), weights of whose bins make functionals.

    Weights are (m, layers, bins), and those of the released values (m, layers, released): of one
    scale they are the same. `noise` has draws of it, (layers, released, draws). `gram` (layers,
    layers, released) has products of the weights of the released values in two layers, and
    `sampled` (layers, layers, bins) those of bins, by the variances of sampling over that of the
    noise; `max_weights` has the largest sizes of these weights. The bins are those of `axes`.
    """

    values: FloatArray
    noise: FloatArray
    gram: FloatArray
    sampled: FloatArray | None
    max_weights: FloatArray
    measure: NoisyMeasure
    axes: tuple[int, ...]

    @cached_property
    def total(self) -> Functionals:
        """Sum of the first layer."""
        count = math.prod(self.measure.shape[axis] for axis in self.axes)
        weights = np.zeros((1, len(self.values), count))
        weights[:, 0] = 1.0
        return self.functionals(weights)[0]

    def first_draws(self, count: int) -> BinView:
        """Return the view with the first draws; without draws the law's tail bounds the noise."""
        return replace(self, noise=self.noise[..., :count])

    def of(self, weights: FloatArray) -> FloatArray:
        """Return the functionals of the released bins."""
        weights = self.measure.on_released(weights, *self.axes)
        return np.asarray(np.einsum("mlb,lb->m", weights, self.values))

    def draws_of(self, *weights: FloatArray) -> list[FloatArray]:
        """Return the functionals of each draw of noise, (m, draws), by `on_released` weights.

        Noise does not fit into a processor's cache, and to read it takes longer than to multiply:
        it is read once for all of them.
        """
        counts = [len(rows) for rows in weights]
        rows = np.concatenate(weights).reshape(sum(counts), -1)
        noise = self.noise.reshape(rows.shape[1], -1)[:, : draws_used(max(counts), rows.shape[1])]
        if len(rows) > _FEW_FUNCTIONALS:
            draws = rows @ noise
        else:  # of few rows a product of two matrices would copy all noise first
            draws = np.zeros((len(rows), noise.shape[1]))
            step = max(1, _BLOCK_NUMBERS // max(noise.shape[1], 1))
            for start in range(0, len(noise), step):
                draws += rows[:, start : start + step] @ noise[start : start + step]
        return np.split(draws, np.cumsum(counts)[:-1])

    def product(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return products of `on_released` weights, as variances of two functionals are."""
        product = np.einsum("mlb,lkb,mkb->m", left, self.gram, right)
        if self.sampled is not None:
            left, right = (self.measure.on_bins(side, *self.axes) for side in (left, right))
            product = product + np.einsum("mlb,lkb,mkb->m", left, self.sampled, right)
        return np.asarray(product)

    @cached_property
    def bin_error(self) -> float:
        """Bound on the effect of rounding and of its other errors on a bin."""
        return float(self.measure.bin_error * self.measure.values.size / self.values.shape[1])

    def functionals(self, *weights: FloatArray) -> list[Functionals]:
        """Evaluate the functionals that weights (m, layers, bins) make, for each of weights."""
        released = [self.measure.on_released(rows, *self.axes) for rows in weights]
        pairs = zip(released, self.draws_of(*released), strict=True)
        return [self._evaluate(*pair) for pair in pairs]

    def _evaluate(self, weights: FloatArray, draws: FloatArray) -> Functionals:
        sizes = (np.abs(weights) * self.max_weights[:, None]).sum(axis=1)
        rounding_error = self.bin_error * sizes.sum(axis=1)
        value = np.asarray(np.einsum("mlb,lb->m", weights, self.values))
        squared = self.product(weights, weights)
        return Functionals(weights, value, squared, sizes.max(axis=1), rounding_error, draws)


class Functionals(NamedTuple):
    """Functionals of a view's bins, (m,) each: `on_released` weights, values, draws of noise.

    `squared` is the square of the weights' norm. `max_weight` bounds a weight, and `rounding_error`
    the effect of rounding; `draws` is (m, draws).
    """

    weights: FloatArray
    value: FloatArray
    squared: FloatArray
    max_weight: FloatArray
    rounding_error: FloatArray
    draws: FloatArray


def draws_used(count: int, released: int) -> int:
    """Return how many draws functionals use at most, by public facts alone."""
    few = count * (released + DRAWS) <= _MAX_WORK
    return max(DRAWS, _USED_NUMBERS // max(count, 1)) if few else 0


@lru_cache(maxsize=8)
def _marginal(measure: NoisyMeasure, axes: tuple[int, ...]) -> BinView:
    summed = [axis for axis in range(measure.values.ndim) if axis not in axes]
    single = tuple(axis for axis in summed if not (measure.scales and measure.scales[axis]))
    weights = {  # of released numbers, for the sum of an axis's bins
        axis: measure.on_released(np.ones(measure.shape[axis]), axis)
        for axis in summed
        if axis not in single
    }

    def total(numbers: FloatArray, power: int = 1) -> FloatArray:
        numbers = numbers.sum(axis=single, keepdims=True)
        for axis, rows in weights.items():
            numbers = np.expand_dims(np.tensordot(rows**power, numbers, (0, axis)), axis)
        return numbers

    values, noise = total(measure.values), total(measure.noise)
    gram = total(np.ones(measure.values.shape), 2).reshape(1, 1, -1)
    sampled = measure.variances
    if sampled is not None:
        sampled = sampled.sum(axis=tuple(summed)).reshape(1, 1, -1)
    flat = noise.reshape(1, values.size, -1)
    largest = np.array([math.prod(np.abs(rows).max() for rows in weights.values())], np.float64)
    return BinView(values.reshape(1, -1), flat, gram, sampled, largest, measure, axes)


@lru_cache(maxsize=8)
def _conditional(measure: NoisyMeasure, axis: int, weights: bytes) -> BinView:
    of_bins = np.frombuffer(weights).reshape(3, -1)
    others = [other for other in range(measure.values.ndim) if other != axis]
    conditions = measure.on_released(of_bins, *others) if others else of_bins
    values = np.moveaxis(measure.values, axis, 0)
    noise = np.moveaxis(measure.noise, axis, 0)
    layers = np.einsum("lo,bo->lb", conditions, values.reshape(len(values), -1))
    noise = noise.reshape(len(values), conditions.shape[1], noise.shape[-1])
    # Without a condition all sides are alike, and noise is summed once.
    distinct = {side.tobytes(): side for side in conditions}
    sums = {key: np.einsum("o,bod->bd", side, noise) for key, side in distinct.items()}
    summed = np.stack([sums[side.tobytes()] for side in conditions])

    def products(sides: FloatArray, variances: FloatArray) -> FloatArray:
        sizes = np.moveaxis(variances, axis, 0).reshape(variances.shape[axis], -1)
        return np.asarray(np.einsum("lo,ko,bo->lkb", sides, sides, sizes, optimize=True))

    gram, variances = products(conditions, np.ones(measure.values.shape)), measure.variances
    sampled = None if variances is None else products(of_bins, variances)
    max_weights = np.abs(conditions).max(axis=1)
    return BinView(layers, summed, gram, sampled, max_weights, measure, (axis,))


@lru_cache(maxsize=8)
def _simulate_noise(law: ValueNoise, size: int, stream: int) -> FloatArray:
    """Draw the noise of so many bins, in shares, (bins, draws); no draws of too many bins."""
    max_draws = _NOISE_NUMBERS // size
    draws = max(_MIN_DRAWS, min(_MAX_DRAWS, max_draws // 4), min(DRAWS, max_draws))
    if size * draws > 4 * _NOISE_NUMBERS:
        return np.empty((size, 0))
    noise = errors_of(law).simulate(size, draws, public_stream("questions", stream))
    noise *= math.ldexp(1.0, law.granularity_exponent)
    noise.setflags(write=False)
    return noise


@lru_cache(maxsize=2)
def normal_draws(size: int, draws: int, stream: int) -> FloatArray:
    """Return standard normal numbers, (size, draws), of a public stream."""
    from scipy.special import ndtri  # takes 30 ms to import

    uniforms = uniform(public_stream("questions, sampling", stream), size * draws)
    return np.asarray(ndtri(uniforms + 2.0**-54)).reshape(size, draws)


@dataclass(frozen=True, eq=False)
class SplitMeasure(NoisyMeasure):
    """The rows in two parts: `values` are the bins of P and of Q, (2, b_1, .., b_l).

    `mixing` (2, outputs) makes P and Q of what is `released`, (outputs, b_1, .., b_l).
    """

    released: NoisyMeasure = field(kw_only=True)
    mixing: FloatArray = field(kw_only=True)

    @classmethod
    def of(cls, released: NoisyMeasure, mixing: FloatArray) -> SplitMeasure:
        """Return the parts of released outputs."""
        return cls(
            np.tensordot(mixing, released.values, axes=1),
            released.splines,
            released.law,
            released.error * float(np.abs(mixing).sum(axis=1).max()),
            scales=released.scales,
            released=released,
            mixing=mixing,
        )

    def joint(self) -> BinView:
        """Return the view of all bins: P in one layer, Q in another."""
        values = self.values.reshape(2, -1)
        count = values.shape[1]
        outputs = self.released.noise.reshape(self.mixing.shape[1], count, -1)
        noise = np.tensordot(self.mixing, outputs, axes=1)
        gram = (self.mixing @ self.mixing.T)[..., None] * np.ones(count)
        variances = self.variances
        if self.spread is not None and variances is not None:
            spread = self.spread.reshape(2, -1)
            draws = normal_draws(spread.size, noise.shape[-1], self.stream)
            shifts = np.sqrt(spread)[..., None] * draws.reshape(*spread.shape, -1)
            noise += np.stack([self.released_shifts(layer) for layer in shifts])
            variances = np.eye(2)[..., None] * variances.reshape(2, -1)
        axes = tuple(range(len(self.splines)))
        return BinView(values, noise, gram, variances, np.abs(self.mixing).max(axis=1), self, axes)
