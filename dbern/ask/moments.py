"""Means, covariances, variances and correlations of axes, of all rows or under a condition.

Integrals of polynomials of one axis or two have one ball for the noise of all of them. Proof:
docs/intervals.md, "One ball holds all functionals of a span".
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

from dbern.ask.answer import Interval
from dbern.ask.bins import BinView, NoisyMeasure
from dbern.ask.bracket import GRID_POINTS, GridPoints, bracket
from dbern.ask.options import CORRELATION, COV, MEAN
from dbern.ask.question import (
    CommonOptions,
    DeferredQuestion,
    OptionQuestion,
    ReleasedBins,
    are_means_of_few_rows,
    deferred,
)
from dbern.ask.quotients import (
    Contrast,
    Sides,
    quotient_or_half,
    simultaneous_intervals,
)
from dbern.ask.regions import Boxes, Region, condition_text
from dbern.ask.splines import AxisSplines, Envelope
from dbern.ask.weights import HIGH, LOW, NEAR, Weights, layer_weights
from dbern.certify.noise import Radius, quantile_rank
from dbern.data.domain import Axis
from dbern.errors import SpecError
from dbern.types import BoolArray, FloatArray

Bounds: TypeAlias = FloatArray  # lower and upper, (2,)
PlanePolynomial: TypeAlias = FloatArray  # coefficients of x^i y^j, (3, 3)
CONSTANT = np.diag([1.0, 0.0, 0.0])
_ALL_QUOTIENTS = (-(2.0**100), 2.0**100)
_MIN_VARIANCE = 1e-4  # of a scale, which may be any


@dataclass(frozen=True, eq=False, kw_only=True)
class Mean(OptionQuestion):
    """Mean of an axis, in its units, under a condition on the others."""

    option = MEAN
    axis: Axis
    index: int
    condition: Boxes
    of_all_rows: bool

    @classmethod
    def read(cls, bins: ReleasedBins, name: str | None, condition: Region | None = None) -> Mean:
        """Read an axis and a condition."""
        index = bins.axis_index(name)
        box, axis = bins.read_condition(condition, index), bins.domain.axes[index]
        return cls(
            bins=bins, text=f"mean of {axis.name}{condition_text(condition)}",
            axis=axis, index=index, condition=box, of_all_rows=condition is None,
        )  # fmt: skip

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        condition = Weights().other_axes(measure, self.condition, self.index)
        view, splines = measure.conditional(self.index, condition), measure.splines[self.index]
        mean = _mean_interval(view, splines, beta, of_all_rows=self.of_all_rows)
        return mean.scaled(self.axis.low, self.axis.width)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        low, width = self.axis.low, self.axis.width
        rows = self.bins.rows_in(self.condition, Weights(), measure, beta)
        return are_means_of_few_rows(self._interval(measure, beta), rows, low, width)

    @classmethod
    def from_text(
        cls, _text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Ask about each axis without a condition."""
        return [
            deferred(partial(cls.read, bins, name, options.condition))
            for name in options.unconditioned(bins.domain.names)
        ]


def _mean_interval(
    view: BinView, splines: AxisSplines, beta: Fraction, *, of_all_rows: bool
) -> Interval:
    """Return the mean of t, which is a spline: of all rows a quotient, without any gap.

    Under a condition G: with ``P = sum_j max(s_j - mu, 0) beta_j`` and ``N = sum_j max(mu - s_j, 0)
    beta_j``, both nonnegative, s_j the coefficients of t, ``(t - mu) 1_G = P 1_G - N 1_G`` is at
    most ``P U_G - N L_G`` and at least ``P L_G - N U_G``: points mu of a public grid are denied or
    not as shares up to points are (`bracket`).
    """
    t, ones = splines.centers, np.ones(splines.count)
    sum_of_t, row_count = layer_weights({NEAR: t}), layer_weights({NEAR: ones})
    total = view.of(row_count)
    estimate = quotient_or_half(view.of(sum_of_t), total)
    if of_all_rows:
        contrast = Contrast.of_weights(view, sum_of_t, row_count)
        return simultaneous_intervals(1, [Sides(estimate, contrast, contrast)], view.measure, beta)
    points = np.linspace(0.0, 1.0, GRID_POINTS + 1)[:, None]
    more, less = np.maximum(t - points, 0.0), np.maximum(points - t, 0.0)
    # Integrals of t - mu fall as mu grows: signs are those of shares up to a point, reversed.
    sides = Envelope(
        layer_weights({LOW: less, HIGH: -more}),
        layer_weights({NEAR: less - more}),
        layer_weights({HIGH: less, LOW: -more}),
    )
    coarse = GridPoints(np.arange(len(points)), sides)
    ends = bracket(view, coarse, sides.select, None, 0.0, beta)[:2]
    low, high = (end / GRID_POINTS for end in ends)
    value = np.clip(estimate, low, high)
    distance = np.abs(t - value)
    gap = layer_weights({HIGH: distance, LOW: -distance})
    cells = np.maximum(quotient_or_half(view.of(gap), total), 0.0)
    return Interval(value, np.array([low]), np.array([high]), cells)


@dataclass(frozen=True, eq=False)
class PolynomialSpan:
    """Polynomials of one axis or two, under a condition on the others.

    `condition` is its envelope for the bins of the other axes, in order.
    """

    measure: NoisyMeasure
    axes: tuple[int, ...]
    condition: Envelope
    beta: Fraction

    @classmethod
    def of(
        cls, measure: NoisyMeasure, axes: Sequence[int], box: Boxes, beta: Fraction
    ) -> PolynomialSpan:
        """Return the polynomials of some axes under a condition on the others."""
        return cls(measure, tuple(axes), Weights().other_axes(measure, box, *axes), beta)

    @cached_property
    def view(self) -> BinView:
        """View of all bins."""
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
        other_shape = np.delete(self.measure.shape, self.axes)
        product = np.multiply.outer(weights, condition).reshape(*shape, *other_shape)
        return np.asarray(np.moveaxis(product, range(len(shape)), self.axes)).reshape(1, 1, -1)

    def estimate_weights(self, polynomial: PlanePolynomial) -> FloatArray:
        """Return the weights of the best guess."""
        return self.weights(polynomial, self.condition.estimate)

    def estimate(self, polynomial: PlanePolynomial) -> float:
        """Return the best guess of its integral."""
        return float(self.view.of(self.estimate_weights(polynomial))[0])

    def covariance_estimate(self, f: PlanePolynomial, g: PlanePolynomial) -> float:
        """Estimate the covariance of two functions of released mean 0, less what noise adds.

        The covariance is ``a / m - b c / m^2`` at ``b = c = 0``: half the trace of its second
        derivatives times the covariance of the noise is ``(a v_mm / m - v_am - v_bc) / m^2``.
        """
        product, total = multiply(f, g), self.estimate(CONSTANT)
        value = self.estimate(product) / total
        functions = product, f, g, CONSTANT
        weights = np.concatenate([self.estimate_weights(function) for function in functions])
        (draws,) = self.view.draws_of(self.measure.on_released(weights))
        if not draws.size:
            return value
        noise = draws @ draws.T / draws.shape[1] / total**2
        return float(value - (value * noise[3, 3] - noise[0, 3] - noise[1, 2]))

    def radius(self, polynomials: list[PlanePolynomial]) -> Radius:
        """Return the radius of the ball for the span of these polynomials' powers of both axes."""
        used = np.any([polynomial != 0 for polynomial in polynomials], axis=0)
        powers = np.zeros((int(used.sum()), 3, 3))
        powers[(np.arange(len(powers)), *np.nonzero(used))] = 1.0
        rows = [
            self.weights(power, condition) for power in powers for condition in self._conditions
        ]
        basis = self.measure.orthonormal(np.concatenate(rows)[:, 0])
        draws = basis.T @ self.view.noise[0] if self.view.noise.size else np.empty((1, 0))
        rank = quantile_rank(draws.shape[1], float(self.beta)) if draws.size else None
        if rank is not None:
            return Radius(float(np.sort(np.sqrt((draws**2).sum(axis=0)))[rank]))
        tail = self.measure.tail(2 * basis.shape[1], self.beta)
        sizes = tail.q + tail.loose * np.abs(basis).max(axis=0)
        return Radius(float(np.sqrt((sizes**2).sum())))

    @property
    def has_gaps(self) -> bool:
        """Whether the condition is not known exactly."""
        return len(self._conditions) > 1

    @cached_property
    def _conditions(self) -> list[FloatArray]:
        gap = self.condition.upper - self.condition.lower
        middle = (self.condition.upper + self.condition.lower) / 2
        return [middle, gap] if gap.any() else [middle]

    def quotient_bounds(
        self,
        radius: Radius,
        top: tuple[FloatArray, FloatArray],
        base: tuple[FloatArray, FloatArray],
    ) -> Bounds:
        """Return ends of ``int f 1_G / int k 1_G`` for pairs (f, g >= |f|); k is not negative.

        Above, ``f - r k`` is at most ``f + g gap / 2`` less r times the least of k, or the most
        where r is negative: the larger of both ends is right for either sign. Likewise below.
        """
        below, above = self._sides(*top)
        contrast = partial(Contrast.of_weights, self.view)
        pairs = [(contrast(below, k), contrast(above, k)) for k in self._sides(*base)]
        first = min(lower.accepted(radius, -1, _ALL_QUOTIENTS)[0] for lower, _ in pairs)
        last = max(upper.accepted(radius, 1, _ALL_QUOTIENTS)[1] for _, upper in pairs)
        return np.asarray(np.clip(np.concatenate([first, last]), *_ALL_QUOTIENTS))

    def _sides(self, f: FloatArray, bound: FloatArray) -> tuple[FloatArray, FloatArray]:
        middle, *gaps = self._conditions
        center = self.weights(f, middle)
        half_gap = sum((self.weights(bound, gap) / 2 for gap in gaps), np.zeros_like(center))
        return center - half_gap, center + half_gap


@dataclass(frozen=True, eq=False)
class CenteredAxes:
    """Both axes less their released means, scaled to the smaller of their released deviations.

    `u` and `v` are polynomials of one axis each, (3, 3), multiplied by `scales` (2,); `size` is
    their deviation. `square_gaps` (2,) bound by how much the square of each may be less than its
    spline.
    """

    u: PlanePolynomial
    v: PlanePolynomial
    scales: FloatArray
    size: float
    square_gaps: FloatArray

    @property
    def half(self) -> PlanePolynomial:
        """Half the sum of both squares, at least ``|u v|``."""
        return (multiply(self.u, self.u) + multiply(self.v, self.v)) / 2

    def means(self, span: PolynomialSpan, radius: Radius) -> list[Bounds]:
        """Return ends of both means: ``|u|`` is at most ``(u^2 / size + size) / 2``."""
        bounds = [(multiply(w, w) / self.size + self.size * CONSTANT) / 2 for w in (self.u, self.v)]
        pairs = zip((self.u, self.v), bounds, strict=True)
        return [span.quotient_bounds(radius, pair, (CONSTANT, CONSTANT)) for pair in pairs]


def center_axes(span: PolynomialSpan) -> CenteredAxes:
    """Return the axes of a span, centered and scaled."""
    total = span.estimate(CONSTANT)
    polynomials, deviations, square_gaps = [], [], []
    for position, axis in enumerate(span.axes):
        t = np.roll(CONSTANT, 1, axis=position)
        mean = float(np.clip(span.estimate(t) / total, 0.0, 1.0))
        centered = t - mean * CONSTANT
        variance = span.estimate(multiply(centered, centered)) / total
        polynomials.append(centered)
        deviations.append(math.sqrt(max(variance, _MIN_VARIANCE)))
        splines = span.measure.splines[axis]
        square_gaps.append(0.25 / splines.cells**2 if splines.degree == 1 else 0.0)
    size = min(deviations)
    scales = size / np.array([deviations[0], deviations[-1]])
    u, v = scales[0] * polynomials[0], scales[1] * polynomials[-1]
    return CenteredAxes(u, v, scales, size, scales**2 * [square_gaps[0], square_gaps[-1]])


def multiply(f: PlanePolynomial, g: PlanePolynomial) -> PlanePolynomial:
    """Return the product of two polynomials of degree 1 an axis."""
    product = np.zeros((3, 3))
    for i, j in np.ndindex(2, 2):
        product[i : i + 2, j : j + 2] += f[i, j] * g[:2, :2]
    return product


def product_bounds(x: Bounds, y: Bounds) -> Bounds:
    """Return the ends of all products of two numbers between given ends."""
    products = np.multiply.outer(x, y)
    return np.array([products.min(), products.max()])


@dataclass(frozen=True, eq=False, kw_only=True)
class Covariance(OptionQuestion):
    """Covariance of two axes, in their units, or of one with itself."""

    option = COV
    statistic: ClassVar[str] = "covariance"
    axes: Sequence[int]
    condition: Boxes

    @classmethod
    def read(
        cls, bins: ReleasedBins, first: str | None, second: str | None, condition: Region | None
    ) -> Self:
        """Read two axes, or the same twice, and a condition on the others."""
        axes = list(dict.fromkeys([bins.axis_index(first), bins.axis_index(second)]))
        cls._check(axes)
        names = " and ".join(bins.domain.names[index] for index in axes)
        box = bins.read_condition(condition, *axes)
        text = f"{cls.statistic} of {names}{condition_text(condition)}"
        return cls(bins=bins, text=text, axes=axes, condition=box)

    @classmethod
    def _check(cls, axes: Sequence[int]) -> None:
        """Refuse axes that have no such statistic."""

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        span = PolynomialSpan.of(measure, self.axes, self.condition, beta)
        lower = 0.0 if len(self.axes) == 1 else -0.25
        widths = [self.bins.domain.axes[index].width for index in self.axes]
        scale = math.prod(widths) ** (2 // len(self.axes))
        return _statistic_interval(span, _covariance, (lower, 0.25)).scaled(0.0, scale)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        """Return whether so few rows could make the variance of an axis.

        Ten of n rows, half of them at either end and all others in the middle, have a variance of
        ``10 / 4n`` in the unit interval.
        """
        few = np.zeros(1, dtype=bool)
        rows = self.bins.rows_in(self.condition, Weights(), measure, beta)
        for axis in self.axes:
            span = PolynomialSpan.of(measure, [axis], self.condition, beta)
            variance = _statistic_interval(span, _covariance, (0.0, 0.25))
            few |= are_means_of_few_rows(variance, rows, width=0.25, maximum=np.inf)
        return few

    @classmethod
    def from_text(
        cls, _text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Ask about each two axes without a condition."""
        names = options.unconditioned(bins.domain.names)
        if len(names) < 2:
            raise SpecError(
                f"--{cls.option.name}: is of two axes, and only {' and '.join(names) or 'none'} is "
                "asked about here. In Python, distribution().var() and std() are of one"
            )
        return [
            deferred(partial(cls.read, bins, *pair, options.condition))
            for pair in itertools.combinations(names, 2)
        ]


class Variance(Covariance):
    """Variance of an axis."""

    statistic = "variance"


class Deviation(Covariance):
    """Standard deviation of an axis, in its units."""

    statistic = "standard deviation"

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        return Interval(*map(np.sqrt, super()._interval(measure, beta)))


class Correlation(Covariance):
    """Correlation of two axes."""

    option = CORRELATION
    statistic = "correlation"

    @classmethod
    def _check(cls, axes: Sequence[int]) -> None:
        if len(axes) == 1:
            raise SpecError("correlation: an axis has 1 with itself. Name two axes")

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        span = PolynomialSpan.of(measure, self.axes, self.condition, beta)
        return _statistic_interval(span, _correlation, (-1.0, 1.0))


def _covariance(span: PolynomialSpan, axes: CenteredAxes) -> tuple[float, float, float]:
    product, half = multiply(axes.u, axes.v), axes.half
    polynomials = [CONSTANT, axes.u, axes.v, product, *([half] if span.has_gaps else [])]
    radius, single = span.radius(polynomials), len(span.axes) == 1
    first = span.quotient_bounds(radius, (product, half), (CONSTANT, CONSTANT))
    second = product_bounds(*axes.means(span, radius))
    if single:
        second = np.maximum(second, 0.0)
    scale, gap = math.prod(axes.scales), single * axes.square_gaps[0]
    low, high = float(first[0] - second[1] - gap) / scale, float(first[1] - second[0]) / scale
    # Two thirds of the gap are its mean over a cell.
    value = float(span.covariance_estimate(axes.u, axes.v) - gap * 2 / 3) / scale
    return value, low, high


def _correlation(span: PolynomialSpan, axes: CenteredAxes) -> tuple[float, float, float]:
    u, v, half = axes.u, axes.v, axes.half
    product, difference = multiply(u, v), (multiply(u, u) - multiply(v, v)) / 2
    radius = span.radius([CONSTANT, u, v, product, half, difference])
    covariance, *variances = (span.covariance_estimate(*pair) for pair in ((u, v), (u, u), (v, v)))
    deviations = math.sqrt(max(variances[0], 0.0) * max(variances[1], 0.0))
    value = float(np.clip(covariance / deviations, -1, 1)) if deviations > 0 else 0.0
    size = span.quotient_bounds(radius, (half, half), (CONSTANT, CONSTANT))
    if not size[0] > 0:
        return value, -1.0, 1.0
    quotient = span.quotient_bounds(radius, (product, half), (half, half))
    means = axes.means(span, radius)
    squares = [max(mean**2) for mean in means]
    second = product_bounds(product_bounds(*means), 1 / size)
    # M / P is from `min_ratio` to 1, and |Var u - Var v| / 2 at most `imbalance` P.
    max_gap = axes.square_gaps.max()
    min_ratio = 1 - (sum(squares) / 2 + max_gap) / size[0]
    differences = span.quotient_bounds(radius, (difference, half), (half, half))
    imbalance = np.abs(differences).max() + (max(squares) / 2 + max_gap) / size[0]
    if not min_ratio > imbalance:
        return value, -1.0, 1.0
    # (M / P) sqrt(1 - d^2), d at most imbalance P / M.
    divisor = math.sqrt(min_ratio**2 - imbalance**2)
    low, high = quotient[0] - second[1], quotient[1] - second[0]
    low, high = low / (divisor if low < 0 else 1.0), high / (1.0 if high < 0 else divisor)
    return value, float(low), float(high)


def _statistic_interval(
    span: PolynomialSpan,
    statistic: Callable[[PolynomialSpan, CenteredAxes], tuple[float, float, float]],
    bounds: tuple[float, float],
) -> Interval:
    """Return the interval of a statistic, which is within `bounds` whatever the rows are.

    Where noise denies all of them its ends are the nearest ones, as those of quotients.
    """
    value, *ends = sum(bounds) / 2, *bounds
    if span.estimate(CONSTANT) > 0:
        value, *ends = statistic(span, center_axes(span))
    low, high = np.sort(np.clip(ends, *bounds)).tolist()
    value = min(max(value, low), high)
    return Interval.without_cells(*(np.array([number]) for number in (value, low, high)))
