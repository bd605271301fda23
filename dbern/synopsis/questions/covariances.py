"""Covariances, variances and correlations of axes, of the rows that a condition holds.

Proof: docs/intervals.md, "One ball holds all functionals of a span".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar, Self

import numpy as np

from dbern.errors import SpecError
from dbern.synopsis.question_options import CORRELATION, COV
from dbern.synopsis.questions.band import Band
from dbern.synopsis.questions.noisy_measure import NoisyMeasure
from dbern.synopsis.questions.polynomial_span import (
    CONSTANT,
    CenteredAxes,
    PolynomialSpan,
    centered_axes,
    product_bounds,
    times,
)
from dbern.synopsis.questions.question import (
    CommonOptions,
    DeferredQuestion,
    OptionQuestion,
    deferred,
)
from dbern.synopsis.questions.regions import Boxes, Region, condition_text
from dbern.synopsis.questions.released_bins import ReleasedBins


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

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        span = PolynomialSpan.of(measure, self.axes, self.condition, beta)
        lower = 0.0 if len(self.axes) == 1 else -0.25
        widths = [self.bins.domain.axes[index].width for index in self.axes]
        scale = math.prod(widths) ** (2 // len(self.axes))
        return _statistic_band(span, _covariance, (lower, 0.25)).scaled(0.0, scale)

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

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        return Band(*map(np.sqrt, super()._band(measure, beta)))


class Correlation(Covariance):
    """Correlation of two axes."""

    option = CORRELATION
    statistic = "correlation"

    @classmethod
    def _check(cls, axes: Sequence[int]) -> None:
        if len(axes) == 1:
            raise SpecError("correlation: an axis has 1 with itself. Name two axes")

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        span = PolynomialSpan.of(measure, self.axes, self.condition, beta)
        return _statistic_band(span, _correlation, (-1.0, 1.0))


def _covariance(span: PolynomialSpan, axes: CenteredAxes) -> tuple[float, float, float]:
    product, half = times(axes.u, axes.v), axes.half
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
    return value, max(low, 0.0 if single else -0.25), min(high, 0.25)


def _correlation(span: PolynomialSpan, axes: CenteredAxes) -> tuple[float, float, float]:
    u, v, half = axes.u, axes.v, axes.half
    product, difference = times(u, v), (times(u, u) - times(v, v)) / 2
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
    return value, max(float(low), -1.0), min(float(high), 1.0)


def _statistic_band(
    span: PolynomialSpan,
    statistic: Callable[[PolynomialSpan, CenteredAxes], tuple[float, float, float]],
    bounds: tuple[float, float],
) -> Band:
    """Return the band of a statistic, which is within `bounds` whatever the rows are."""
    low, high = bounds
    value = (low + high) / 2
    if span.estimate(CONSTANT) > 0:
        value, low, high = statistic(span, centered_axes(span))
    value = min(max(value, low), high)
    return Band.without_cells(*(np.array([number]) for number in (value, low, high)))
