"""``Regression``: a linear function of a response in data units, and that of released weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from dbern.combination.base import Combination
from dbern.combination.responses import Shifted
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError, printable
from dbern.percentages import IntervalDigits, percent
from dbern.synopsis.points import Points, as_points, like
from dbern.synopsis.released import Released
from dbern.synopsis.vectors import ReleasedVector
from dbern.types import FloatArray

_MIN_COUNTED = 0.95  # of the rows that count: fewer are reported


@dataclass(frozen=True)
class Regression:
    """A linear regression in data units: solved of released moments, or released as it is.

    Attributes
    ----------
    response : str
    domain : Domain
        The columns and their bounds.
    intercept : float
    coefficients : mapping of str to float
        Units of the response for each unit of the column. A category has one for each listed value,
        such as ``"state = NY"``; in each list they sum to 0.
    intervals : mapping of str to (float, float)
        Of each coefficient, and of ``"intercept"``: where that of least squares without privacy is,
        each by itself with probability about ``1 - beta``. Approximate: from the variances of the
        known noise, in first order. Nothing is said of other records than these. Empty where the
        noise hides the columns' covariances, which `note` then says, and of released weights, by
        objective or by weights.
    r2 : float
        The share of the response's variance that is explained, estimated; NaN where the released
        variance, or that of the residuals, is not above its noise, and of released weights.
    residual : float
        The standard deviation of the residuals, estimated; NaN where their variance is not above
        its noise, and of released weights.
    counted : float
        The share of the rows that count, estimated: a small one where bounds or lists of values
        leave most of them out. NaN where the number of rows is private.
    note : str
        Why moments tell no intervals; empty where they do, and of released weights.
    products : mapping of str to (str, str)
        Of degree 2: by the name of its coefficient the two columns of a product ``z_i z_j``, or of
        ``2 z_i^2 - 1``, where z is a column moved from its bounds to [-1, 1].
    """

    response: str
    domain: Domain
    intercept: float
    coefficients: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    r2: float
    residual: float
    counted: float = 1.0
    note: str = ""
    products: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def __str__(self) -> str:
        intervals = self.intervals
        rows = [("intercept", self.intercept), *self.coefficients.items()]
        width = max(len(name) for name, _ in rows)
        lines = []
        for name, value in rows:
            if intervals:
                low, high = intervals[name]
                digits = IntervalDigits.of([low], [high])
                texts = digits.value(value), f"({digits.low(low)} to {digits.high(high)})"
            else:
                texts = f"{value:.6g}", "no interval"
            lines.append(f"{name:<{width}}  {texts[0]:>12}  {texts[1]}")
        fit_text = (
            "R2 not resolved from the noise"
            if intervals or self.note
            else "released weights, without moments"
        )
        fit_text = fit_text if math.isnan(self.r2) else f"R2 {self.r2:.3f}"
        if not math.isnan(self.residual):
            fit_text += f", residual {self.residual:.4g}"
        about = f"{self.response}: {fit_text}"
        if self.counted <= _MIN_COUNTED:
            about += f", of {percent(self.counted, 2)} of the rows"
        if self.products:
            about += (
                "\nper unit of a column; of a product, of columns z moved from their bounds to "
                "[-1, 1]: x * y is z_x z_y, x^2 is 2 z_x^2 - 1"
            )
        notes = [self.note] if self.note else []
        return printable("\n".join([about, *lines, *notes]), keep="\n")

    @property
    def polynomial(self) -> tuple[FloatArray, float]:
        """Coefficients in units of the columns and their products, and the intercept.

        Those of products are of ``x_i x_j``, not of numbers moved to [-1, 1], with i up to j.
        """
        names = [name for name in self.coefficients if name not in self.products]
        linear = {name: self.coefficients[name] for name in names}
        intercept, quadratic = self.intercept, {}
        moves = {  # z = a x + b
            axis.name: (2 / axis.width, -(axis.low + axis.high) / axis.width)
            for axis in self.domain.numeric
        }
        for name, (first, second) in self.products.items():
            (a, b), (c, d), coefficient = moves[first], moves[second], self.coefficients[name]
            if first == second:  # 2 z^2 - 1
                intercept -= coefficient
                coefficient *= 2
            quadratic[name] = coefficient * a * c
            linear[first] += coefficient * a * d
            linear[second] += coefficient * b * c
            intercept += coefficient * b * d
        return np.array([*linear.values(), *quadratic.values()]), intercept

    def predict(self, points: Points) -> Any:
        """Return values (m,) at points with these columns, in their order or by name.

        Linear, also outside the bounds.

        Raises
        ------
        SpecError
            For points of the wrong shape.
        """
        array, domain = as_points(points, self.domain), self.domain
        numbers = array[:, [not axis.categories for axis in domain.axes]]
        values = self.intercept + numbers @ self._slopes(domain.numeric)
        within = Domain(domain.numeric)
        z = dict(zip(within.names, 2 * within.to_unit(numbers).T - 1, strict=True))
        for name, (first, second) in self.products.items():
            product = z[first] * z[second]
            values += self.coefficients[name] * (2 * product - 1 if first == second else product)
        if domain.categorical:
            listed = domain.features(array)[:, : sum(domain.blocks)]
            values += listed @ self._slopes(domain.categorical)
            values[np.isnan(array).any(axis=1)] = np.nan
        return like(points, values, self.domain, [self.response])

    def _slopes(self, axes: Sequence[Axis]) -> FloatArray:
        return np.array([self.coefficients[name] for axis in axes for name in columns_of(axis)])


def columns_of(axis: Axis) -> list[str]:
    """Return the names of an axis's coefficients: one of numbers, one for each listed value."""
    return [f"{axis.name} = {value}" for value in axis.categories] or [axis.name]


def in_data_units(
    weights: FloatArray, domain: Domain, constant: float
) -> tuple[dict[str, float], float]:
    """Return coefficients by column, in the axes' order, and the intercept of a linear function.

    Weights are of each listed value, of the unit cube's axes of numbers, and of the constant
    feature `constant`, which is 0 for none.
    """
    blocks, numbers = domain.blocks, domain.numeric
    listed, slopes, rest = np.split(weights, np.cumsum([sum(blocks), len(numbers)]))
    widths = np.array([axis.width for axis in numbers])
    slopes, intercept = slopes / widths, constant * float(rest.sum())
    intercept -= float(slopes @ [axis.low for axis in numbers])
    values = {axis.name: (slope,) for axis, slope in zip(numbers, slopes, strict=True)}
    for axis, block in zip(domain.categorical, np.split(listed, np.cumsum(blocks)), strict=False):
        values[axis.name] = block - block.mean()  # a number more in all of a list is an intercept
        intercept += float(block.mean())
    names = [name for axis in domain.axes for name in columns_of(axis)]
    coefficients = [float(value) for axis in domain.axes for value in values[axis.name]]
    return dict(zip(names, coefficients, strict=True)), intercept


def released_regression(released: Released, domain: Domain, combination: Combination) -> Regression:
    """Return the regression whose weights were released: no interval is known of them.

    Raises SpecError where they are not of a linear function of a response.
    """
    if not (
        combination.linear_response
        and isinstance(combination, Shifted)
        and isinstance(released, ReleasedVector)
    ):
        raise SpecError(
            'regression: no linear function of a response was released. Release "ridge-regression"'
        )
    constant = combination.constant or 0.0
    coefficients, intercept = in_data_units(released.numbers, domain, constant)
    return Regression(
        response="response",
        domain=domain,
        intercept=intercept + combination.middle,
        coefficients=MappingProxyType(coefficients),
        intervals=MappingProxyType({}),
        r2=math.nan,
        residual=math.nan,
    )
