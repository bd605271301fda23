"""Least squares after the release: a linear function of any response, in data units.

`ReleasedMoments` solves for it from released moments; released weights are one already.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from dbern.ask.points import Points, as_points, like
from dbern.combination.base import Combination
from dbern.combination.responses import LeastSquares, Shifted
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError, printable
from dbern.model.component import VectorComponent
from dbern.reconstruct.least_squares import Fit, NoisyMoments, coefficient_intervals, least_squares
from dbern.reconstruct.moments import product_names
from dbern.synopsis.released import Released, ReleasedVector
from dbern.synopsis.store import ReadableStore
from dbern.system.texts import IntervalDigits, percent
from dbern.types import FloatArray

_MIN_COUNTED = 0.95  # of the rows that count: fewer are reported
_HIDDEN = (
    "no intervals: the noise hides how the columns vary, or what tells them apart. Write bounds "
    "nearer to the records, fewer columns or a larger epsilon"
)


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
    coefficients, intercept = in_data_units(released.entries, domain, constant)
    return Regression(
        response="response",
        domain=domain,
        intercept=intercept + combination.middle,
        coefficients=MappingProxyType(coefficients),
        intervals=MappingProxyType({}),
        r2=math.nan,
        residual=math.nan,
    )


@dataclass(frozen=True)
class _Column(Axis):
    """Response or product of columns: no array of a store has its name, so it may be any."""

    def __post_init__(self) -> None:
        """Check nothing: the metadata's bounds were checked with it."""


class ReleasedMoments(ReleasedVector):
    """Moments of which a combination takes the weights of the least-squares function."""

    def __init__(
        self,
        store: ReadableStore,
        name: str,
        component: VectorComponent,
        domain: Domain,
        combination: LeastSquares,
    ) -> None:
        super().__init__(store, name, component)
        response = _Column(combination.response, combination.low, combination.high)
        columns = [axis.name for axis in domain.numeric]
        names = product_names(columns) if combination.degree == 2 else []
        products = tuple(_Column(name, -1.0, 1.0) for name in names)
        self._pairs = dict(
            zip(names, itertools.combinations_with_replacement(columns, 2), strict=False)
        )
        self._lists, self._numbers = domain.categorical, (*domain.numeric, *products, response)
        self._names = (*domain.names, response.name)
        self._combination = combination
        self._private_rows = store.released.target.n is None

    @cached_property
    def weights(self) -> FloatArray:
        """Weights of the unit cube's coordinates, and of 1, in the response's units."""
        axes = len(self._numbers) - 1 - len(self._pairs)
        return self._combination.weights(self._measured, axes)

    @cached_property
    def _measured(self) -> NoisyMoments:
        lists = tuple(len(axis.categories) for axis in self._lists)
        moments = self._combination.moments(len(self._numbers), lists)
        return NoisyMoments.of(moments, self.entries, self.deviation(self.smoothing()))

    def regression(
        self,
        response: str | None,
        columns: Sequence[str] | None,
        ridge: Literal["auto"] | float | None,
        beta: Fraction,
    ) -> Regression:
        """Solve a regression, by the parameters of `Synopsis.regression`."""
        names = self._names
        response = names[-1] if response is None else response
        chosen = [name for name in names if name != response] if columns is None else [*columns]
        if response in [axis.name for axis in self._lists]:
            raise SpecError(
                f"regression: {printable(response)} is a list of values. Write one of numbers"
            )
        unknown = [name for name in (response, *chosen) if name not in names]
        if unknown or response in chosen or len(set(chosen)) < len(chosen):
            raise SpecError(
                f"regression: response and columns must be different ones of {', '.join(names)}"
            )
        stated = self._combination.ridge if ridge is None else ridge
        ridge_number = None if stated is None or stated == "auto" else float(stated)
        if ridge_number is not None and not 0 < ridge_number < math.inf:
            raise SpecError('ridge: must be above 0. Write ridge = "auto", or ridge = 0.01')
        chosen = [name for name in names if name in chosen] if self._pairs else chosen
        products = [name for name, pair in self._pairs.items() if set(pair) <= set(chosen)]
        target, axes = self._axis(response), tuple(map(self._axis, [*chosen, *products]))
        indices = [index for axis in axes for index in self._columns(axis)]
        (index,) = self._columns(target)
        solved = self._measured, index, indices
        to = _to_data_units([axis for axis in axes for _ in self._columns(axis)], target)
        ends = coefficient_intervals(*solved, to, float(beta), ridge_number)
        return self._in_data_units(least_squares(*solved, ridge_number), to, ends, target, axes)

    def _axis(self, name: str) -> Axis:
        return next(axis for axis in (*self._lists, *self._numbers) if axis.name == name)

    def _columns(self, axis: Axis) -> range:
        """Indices of an axis's columns among all: those of lists come first, then numbers."""
        position = [column.name for column in (*self._lists, *self._numbers)].index(axis.name)
        counts = [len(column.categories) or 1 for column in (*self._lists, *self._numbers)]
        return range(sum(counts[:position]), sum(counts[: position + 1]))

    def _in_data_units(
        self,
        fit: Fit,
        to: FloatArray,
        ends: FloatArray | None,
        target: Axis,
        axes: tuple[Axis, ...],
    ) -> Regression:
        """Convert a fit, and put intervals around it: of numbers that are drawn to zero too."""
        middle = np.append(np.zeros(len(fit.slopes)), (target.low + target.high) / 2)
        estimates = middle + to @ np.append(fit.slopes, fit.intercept)
        names = [name for axis in axes for name in columns_of(axis)]
        intervals = {}
        if ends is not None:
            low, high = np.minimum(middle + ends[:, 0], estimates), middle + ends[:, 1]
            pairs = zip(low.tolist(), np.maximum(high, estimates).tolist(), strict=True)
            intervals = dict(zip([*names, "intercept"], pairs, strict=True))
        (index,) = self._columns(target)
        resolved = fit.varied > 2 * math.sqrt(self._measured.noise[1:, 1:][index, index])
        rest = fit.varied - fit.explained
        rest = rest if rest > fit.doubt else math.nan
        return Regression(
            response=target.name,
            domain=Domain(tuple(axis for axis in axes if axis.name not in self._pairs)),
            products={a.name: self._pairs[a.name] for a in axes if a.name in self._pairs},
            intercept=float(estimates[-1]),
            coefficients=MappingProxyType(dict(zip(names, estimates[:-1].tolist(), strict=True))),
            intervals=MappingProxyType(intervals),
            note="" if intervals else _HIDDEN,
            r2=max(1 - rest / fit.varied, 0.0) if resolved else math.nan,
            residual=target.width / 2 * math.sqrt(rest),
            counted=math.nan if self._private_rows else min(self._measured.count, 1.0),
        )


def _to_data_units(columns: Sequence[Axis], target: Axis) -> FloatArray:
    """Return the matrix from slopes and intercept of columns in [-1, 1] to those in data units.

    Columns are ``(2 x - low - high) / width``, listed values 0 or 1.
    """
    radius = target.width / 2
    widths = np.array([2.0 if axis.categories else axis.width for axis in columns])
    middles = np.array([0.0 if a.categories else (a.low + a.high) / 2 for a in columns])
    to = np.zeros((len(columns) + 1,) * 2)
    to[:-1, :-1] = np.diag(2 * radius / widths)
    to[-1] = np.append(-2 * radius * middles / widths, radius)
    return to
