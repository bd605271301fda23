"""Covariances, variances and correlations of axes, of the rows that a condition holds.

Proof: docs/intervals.md, "One ball holds all functionals of a span".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar, Self, TypeAlias

import numpy as np

from dbern.errors import SpecError
from dbern.noise_quantile import quantile_rank
from dbern.synopsis.questions.band import Band
from dbern.synopsis.questions.envelopes.splines import Envelope
from dbern.synopsis.questions.linear_family import LinearFamily
from dbern.synopsis.questions.noisy_measure import BinView, NoisyMeasure
from dbern.synopsis.questions.options import QuestionOption
from dbern.synopsis.questions.question import (
    CommonOptions,
    DeferredQuestion,
    OptionQuestion,
    deferred,
)
from dbern.synopsis.questions.regions import Boxes, Region, Weights, condition_text
from dbern.synopsis.questions.released_bins import ReleasedBins
from dbern.types import FloatArray

Bounds: TypeAlias = FloatArray  # its ends, (2,)
PlanePolynomial: TypeAlias = FloatArray  # coefficients of x^i y^j, (3, 3)

_LEAST = 1e-4  # of a variance that scales: any is right
_CONSTANT = np.diag([1.0, 0.0, 0.0])


@dataclass(frozen=True, eq=False, kw_only=True)
class Covariance(OptionQuestion):
    """Covariance of two axes, in their units, or of one with itself."""

    option = QuestionOption("cov", None, "The covariance of each two axes.")
    statistic: ClassVar[str] = "covariance"
    axes: Sequence[int]
    condition: Boxes

    @classmethod
    def read(
        cls, bins: ReleasedBins, axis: str | None, other: str | None, condition: Region | None
    ) -> Self:
        """Read two axes, or the same twice, and a condition on the others."""
        axes = list(dict.fromkeys([bins.axis_index(axis), bins.axis_index(other)]))
        cls._check(axes)
        names = " and ".join(bins.domain.names[index] for index in axes)
        box = bins.read_condition(condition, *axes)
        text = f"{cls.statistic} of {names}{condition_text(condition)}"
        return cls(bins=bins, text=text, axes=axes, condition=box)

    @classmethod
    def _check(cls, axes: Sequence[int]) -> None:
        """Refuse axes that have no such statistic."""

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        spread = Spread.of(measure, self.axes, self.condition, beta)
        least = 0.0 if len(self.axes) == 1 else -0.25
        widths = [self.bins.domain.axes[index].width for index in self.axes]
        scale = math.prod(widths) ** (2 // len(self.axes))
        return _spread_band(spread, _covariance, (least, 0.25)).scaled(0.0, scale)

    @classmethod
    def from_text(
        cls, _text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Ask about each two axes without a condition."""
        return [
            deferred(partial(cls.read, bins, *pair, options.condition))
            for pair in itertools.combinations(options.unconditioned(bins.domain.names), 2)
        ]


class Variance(Covariance):
    """Variance of an axis."""

    statistic = "variance"


class Deviation(Covariance):
    """Standard deviation of an axis, in its units."""

    statistic = "standard deviation"

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        return Band(*map(np.sqrt, super()._band(measure, beta)))


class Correlation(Covariance):
    """Correlation of two axes."""

    option = QuestionOption("correlation", None, "The correlation of each two axes.")
    statistic = "correlation"

    @classmethod
    def _check(cls, axes: Sequence[int]) -> None:
        if len(axes) == 1:
            raise SpecError("correlation: an axis has 1 with itself. Name two axes")

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        spread = Spread.of(measure, self.axes, self.condition, beta)
        return _spread_band(spread, _correlation, (-1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Spread:
    """Polynomials of one axis or two, under a condition on the others.

    `others` are the condition's envelope for the bins of the other axes, in order.
    """

    measure: NoisyMeasure
    axes: tuple[int, ...]
    others: Envelope
    beta: Fraction

    @classmethod
    def of(cls, measure: NoisyMeasure, axes: Sequence[int], box: Boxes, beta: Fraction) -> Spread:
        """Return the polynomials of some axes under a condition on the others."""
        return cls(measure, tuple(axes), Weights().other_axes(measure, box, *axes), beta)

    @cached_property
    def view(self) -> BinView:
        """BinView of all bins."""
        return self.measure.joint()

    @cached_property
    def powers(self) -> list[FloatArray]:
        """Coefficients of 1, t and t^2, (3, bins), of both axes; of one axis the other has 1."""
        powers = [self.measure.splines[axis].powers for axis in self.axes]
        return [*powers, np.array([[1.0], [0.0], [0.0]])][:2]

    def weights(self, polynomial: PlanePolynomial, condition: FloatArray) -> FloatArray:
        """Return the polynomial's weights (1, 1, bins) times those of a condition."""
        weights = np.einsum("ij,ia,jb->ab", polynomial, *self.powers)
        shape = [self.measure.shape[axis] for axis in self.axes]
        rest = np.delete(self.measure.shape, self.axes)
        product = np.multiply.outer(weights, condition).reshape(*shape, *rest)
        return np.asarray(np.moveaxis(product, range(len(shape)), self.axes)).reshape(1, 1, -1)

    def near(self, polynomial: PlanePolynomial) -> FloatArray:
        """Return the weights of the best guess."""
        return self.weights(polynomial, self.others.estimate)

    def value(self, polynomial: PlanePolynomial) -> float:
        """Return the best guess of its integral."""
        return float(self.view.of(self.near(polynomial))[0])

    def guess(self, f: PlanePolynomial, g: PlanePolynomial) -> float:
        """Estimate the covariance of two functions of released mean 0, less what noise adds.

        The covariance is ``a / m - b c / m^2`` at ``b = c = 0``: half the trace of its second
        derivatives times the covariance of the noise is ``(a v_mm / m - v_am - v_bc) / m^2``.
        """
        both, total = _times(f, g), self.value(_CONSTANT)
        value = self.value(both) / total
        weights = np.concatenate([self.near(function) for function in (both, f, g, _CONSTANT)])
        (drawn,) = self.view.draws_of(self.measure.on_released(weights))
        if not drawn.size:
            return value
        noise = drawn @ drawn.T / drawn.shape[1] / total**2
        return float(value - (value * noise[3, 3] - noise[0, 3] - noise[1, 2]))

    def reach(self, polynomials: list[PlanePolynomial]) -> float:
        """Return the bound R for the span of these polynomials' powers of both axes."""
        used = np.any([polynomial != 0 for polynomial in polynomials], axis=0)
        single = np.zeros((int(used.sum()), 3, 3))
        single[(np.arange(len(single)), *np.nonzero(used))] = 1.0
        rows = [self.weights(power, each) for power in single for each in self._conditions]
        basis = self.measure.orthonormal(np.concatenate(rows)[:, 0])
        drawn = basis.T @ self.view.noise[0] if self.view.noise.size else np.empty((1, 0))
        rank = quantile_rank(drawn.shape[1], float(self.beta)) if drawn.size else None
        if rank is not None:
            return float(np.sort(np.sqrt((drawn**2).sum(axis=0)))[rank])
        q, loose = self.measure.tail(2 * basis.shape[1], self.beta)
        return float(np.sqrt(((q + loose * np.abs(basis).max(axis=0)) ** 2).sum()))

    @property
    def gaps(self) -> bool:
        """Whether the condition is not known exactly."""
        return len(self._conditions) > 1

    @cached_property
    def _conditions(self) -> list[FloatArray]:
        gap = self.others.upper - self.others.lower
        middle = (self.others.upper + self.others.lower) / 2
        return [middle, gap] if gap.any() else [middle]

    def ratio(
        self, reach: float, top: tuple[FloatArray, FloatArray], base: tuple[FloatArray, FloatArray]
    ) -> Bounds:
        """Return ends of ``int f 1_G / int k 1_G`` for pairs (f, g >= |f|); k is not negative.

        Above, ``f - r k`` is at most ``f + g gap / 2`` less r times the least of k, or the most
        where r is negative: the larger of both ends is right for either sign. Likewise below.
        """
        below, above = self._sides(*top)
        family = partial(LinearFamily.of_weights, self.view)
        pairs = [(family(below, k), family(above, k)) for k in self._sides(*base)]
        low = min(float(minorants.root(reach, 0.0, -1)[0]) for minorants, _ in pairs)
        high = max(float(majorants.root(reach, 0.0, 1)[0]) for _, majorants in pairs)
        return np.array([low, high])

    def _sides(self, f: FloatArray, bound: FloatArray) -> tuple[FloatArray, FloatArray]:
        middle, *gaps = self._conditions
        center = self.weights(f, middle)
        rest = sum((self.weights(bound, gap) / 2 for gap in gaps), np.zeros_like(center))
        return center - rest, center + rest


@dataclass(frozen=True, eq=False)
class Centered:
    """Both axes less their released means, scaled to the smaller of their released deviations.

    `u` and `v` are polynomials of one axis each, (3, 3), multiplied by `scales` (2,); `size` is
    their deviation. `missed` (2,) bounds by how much the square of each may be less than its
    spline.
    """

    u: PlanePolynomial
    v: PlanePolynomial
    scales: FloatArray
    size: float
    missed: FloatArray

    @property
    def half(self) -> PlanePolynomial:
        """Half the sum of both squares, at least ``|u v|``."""
        return (_times(self.u, self.u) + _times(self.v, self.v)) / 2

    def means(self, spread: Spread, reach: float) -> list[Bounds]:
        """Return ends of both means: ``|u|`` is at most ``(u^2 / size + size) / 2``."""
        bounds = [(_times(w, w) / self.size + self.size * _CONSTANT) / 2 for w in (self.u, self.v)]
        pairs = zip((self.u, self.v), bounds, strict=True)
        return [spread.ratio(reach, pair, (_CONSTANT, _CONSTANT)) for pair in pairs]


def _centered(spread: Spread) -> Centered:
    total = spread.value(_CONSTANT)
    centers, deviations, missed = [], [], []
    for turn, axis in enumerate(spread.axes):
        t = np.roll(_CONSTANT, 1, axis=turn)
        mean = float(np.clip(spread.value(t) / total, 0.0, 1.0))
        centered = t - mean * _CONSTANT
        variance = spread.value(_times(centered, centered)) / total
        centers.append(centered)
        deviations.append(math.sqrt(max(variance, _LEAST)))
        splines = spread.measure.splines[axis]
        missed.append(0.25 / splines.cells**2 if splines.degree == 1 else 0.0)
    size = min(deviations)
    scales = size / np.array([deviations[0], deviations[-1]])
    u, v = scales[0] * centers[0], scales[1] * centers[-1]
    return Centered(u, v, scales, size, scales**2 * [missed[0], missed[-1]])


def _covariance(spread: Spread, both: Centered) -> tuple[float, float, float]:
    product, half = _times(both.u, both.v), both.half
    polynomials = [_CONSTANT, both.u, both.v, product, *([half] if spread.gaps else [])]
    reach, single = spread.reach(polynomials), len(spread.axes) == 1
    ends = spread.ratio(reach, (product, half), (_CONSTANT, _CONSTANT))
    second = _product(*both.means(spread, reach))
    if single:
        second = np.maximum(second, 0.0)
    least, most = (0.0 if single else -0.25), 0.25
    scale = math.prod(both.scales)
    missed = single * both.missed[0]
    low, high = float(ends[0] - second[1] - missed) / scale, float(ends[1] - second[0]) / scale
    value = float(spread.guess(both.u, both.v) - missed * 2 / 3) / scale  # its mean over a cell
    return value, max(low, least), min(high, most)


def _correlation(spread: Spread, both: Centered) -> tuple[float, float, float]:
    u, v, half = both.u, both.v, both.half
    product, difference = _times(u, v), (_times(u, u) - _times(v, v)) / 2
    reach = spread.reach([_CONSTANT, u, v, product, half, difference])
    guesses = [spread.guess(*pair) for pair in ((u, v), (u, u), (v, v))]
    spreads = math.sqrt(max(guesses[1], 0.0) * max(guesses[2], 0.0))
    value = float(np.clip(guesses[0] / spreads, -1, 1)) if spreads > 0 else 0.0
    size = spread.ratio(reach, (half, half), (_CONSTANT, _CONSTANT))
    if not size[0] > 0:
        return value, -1.0, 1.0
    quotient = spread.ratio(reach, (product, half), (half, half))
    means = both.means(spread, reach)
    squares = [max(mean**2) for mean in means]
    second = _product(_product(*means), 1 / size)
    # M / P is from `least` to 1, and |Var u - Var v| / 2 at most `imbalance` P.
    least = 1 - (sum(squares) / 2 + both.missed.max()) / size[0]
    ends = spread.ratio(reach, (difference, half), (half, half))
    imbalance = np.abs(ends).max() + (max(squares) / 2 + both.missed.max()) / size[0]
    if not least > imbalance:
        return value, -1.0, 1.0
    # (M / P) sqrt(1 - d^2), d at most imbalance P / M.
    divisor = math.sqrt(least**2 - imbalance**2)
    low, high = quotient[0] - second[1], quotient[1] - second[0]
    low, high = low / (divisor if low < 0 else 1.0), high / (1.0 if high < 0 else divisor)
    return value, max(float(low), -1.0), min(float(high), 1.0)


def _spread_band(
    spread: Spread,
    statistic: Callable[[Spread, Centered], tuple[float, float, float]],
    bounds: tuple[float, float],
) -> Band:
    """Return the band of a statistic, which is within `bounds` whatever the rows are."""
    low, high = bounds
    value = (low + high) / 2
    if spread.value(_CONSTANT) > 0:
        value, low, high = statistic(spread, _centered(spread))
    ends = min(max(value, low), high), low, high
    return Band.without_error(*(np.array([end]) for end in ends))


def _times(f: PlanePolynomial, g: PlanePolynomial) -> PlanePolynomial:
    product = np.zeros((3, 3))
    for i, j in np.ndindex(2, 2):
        product[i : i + 2, j : j + 2] += f[i, j] * g[:2, :2]
    return product


def _product(x: Bounds, y: Bounds) -> Bounds:
    every = np.multiply.outer(x, y)
    return np.array([every.min(), every.max()])
