"""Responses, in their public range: from a function's middle, a quotient, or least squares."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from dbern.combination.base import ArraySummary, Combination, Meaning, ReleasedShapes
from dbern.combination.functions import (
    FunctionCombination,
    count_with_products,
    linear_values,
    with_products,
)
from dbern.data.domain import MIN_NUMBER, FeatureShape
from dbern.reconstruct.least_squares import NoisyMoments, least_squares
from dbern.reconstruct.moments import MOST_COLUMNS, MOST_NUMBERS, Moments
from dbern.types import FloatArray

_T = TypeVar("_T")
_Number = TypeVar("_Number", float, FloatArray)
_NOISE_DEVIATIONS = 2.0
"""Deviations of a denominator's noise: of 1, 2 and 3, tried on real rows, 2 errs least in most."""
_LEAST_SPREAD, _SPREAD_STEPS = 1e-4, 30  # of the radius, as good as none; steps till it stands


@dataclass(frozen=True, kw_only=True)
class Ranged(Combination):
    """A combination whose values are responses, of the public range [`low`, `high`]."""

    class_counts: ClassVar[Container[int]] = (0,)

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> float:
        """Half of the range's width."""
        return (self.high - self.low) / 2

    def meaning(self, target: Mapping[str, Any]) -> Meaning:
        """Return "response"."""
        del target
        return "response"

    def extent(self, arrays: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return the range."""
        del arrays
        return self.low, self.high

    def to_range(self, values: FloatArray) -> FloatArray:
        """Cut values to the range."""
        return np.asarray(np.clip(values, self.low, self.high))

    def unit_text(self, volume: str, *, density: bool, response: str = "the response") -> str:
        """Return the response's."""
        del volume, density
        return f" of {response}"

    def inconsistency(self) -> str:
        """Return which parameters no release states together; empty where all is well."""
        ordered = self.high - self.low >= MIN_NUMBER
        return super().inconsistency() if ordered else "low must be below high"


@dataclass(frozen=True, kw_only=True)
class CutToRange(Ranged):
    """A response that is cut to its range, whose width bounds the error for any database."""

    pointwise: ClassVar[bool] = True

    def errors(self, errors: Sequence[FloatArray]) -> FloatArray:
        """Return the range's width."""
        return np.full_like(errors[0], self.high - self.low)


@dataclass(frozen=True, kw_only=True)
class Shifted(FunctionCombination, Ranged):
    """The one function, plus the middle of the range."""

    kind: ClassVar[str] = "response"
    keeps_errors: ClassVar[bool] = True

    def values(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None = None
    ) -> FloatArray:
        """Return the function's values, from the middle."""
        return np.asarray(self.functions(parts, unit_points)[0] + self.middle)

    @property
    def linear_response(self) -> bool:
        """Whether it is a response's linear function of the axes."""
        return self.constant is not None


def pull_scale(noise: float) -> float:
    """Return the denominator, with such noise, that is pulled half way to the center."""
    return _NOISE_DEVIATIONS * noise


@dataclass(frozen=True, kw_only=True)
class Ratio(CutToRange):
    """Quotients ``(P - Q) / (P + Q)`` of arrays: all P come first, then in the same order all Q.

    They are the rows in two parts, for the high end of the range and for the low one.
    """

    counts_rows: ClassVar[bool] = True
    looks_at_totals: ClassVar[bool] = True
    arrays_of_rows: ClassVar[int] = 2
    of_sums: ClassVar[bool] = False
    """Whether arrays are N and D themselves, of a component each, as in older stores."""

    @property
    @abstractmethod
    def quotients(self) -> tuple[Quotient, ...]:
        """The quotient of each pair of arrays."""

    def pairs(self, parts: Sequence[_T]) -> list[tuple[_T, _T]]:
        """Return P and Q of each quotient, or N and D."""
        count = len(self.quotients)
        return list(zip(parts[:count], parts[count:], strict=True))

    def is_made_of(self, shapes: ReleasedShapes) -> bool:
        """Return whether there are two functions of one component for each quotient."""
        count = len(shapes.arrays) if shapes.components == 1 + self.of_sums else 0
        return count == len(shapes.functions) == 2 * len(self.quotients)


@dataclass(frozen=True, kw_only=True)
class Quotient(Ratio):
    """A quotient N / D of two arrays P and Q, drawn to one `center` where the noise hides D.

    With ``N = P - Q`` and ``D = P + Q``, in units of the radius of the range and from its middle,
    it is ``c + (N - c D) D / (D^2 + s^2)``, cut to the range, with c the `center`, s twice the
    `noise`, and c where D is not positive. That is the mean response of the rows near a point with
    ``s^2 / D`` as many more rows, whose response is c. The `noise` is the deviation of that of D,
    or more where responses are spread little beside it (`_spread`): a range may be far wider than
    they are. A plan knows neither: then c and s are 0. A release has both, by its law and by
    released numbers alone: it is post-processing.
    """

    kind: ClassVar[str] = "mean"

    center: float | None = None
    noise: float | None = None

    @property
    def quotients(self) -> tuple[Quotient, ...]:
        """Itself."""
        return (self,)

    def values(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None = None
    ) -> FloatArray:
        """Return the quotient, in the range."""
        del unit_points
        numerator, denominator = self.sums(parts)
        center, denominator = self.center or 0.0, np.maximum(denominator, 0.0)
        # Nothing is squared: units may be any.
        size = np.hypot(denominator, pull_scale(self.noise or 0.0))
        size = np.where(size > 0, size, np.inf)
        quotient = center + (numerator - center * denominator) / size * (denominator / size)
        return self.to_range(self.middle + self.radius * quotient)

    def sums(self, parts: Sequence[_Number]) -> tuple[_Number, _Number]:
        """Return N and D."""
        first, second = parts
        return (first, second) if self.of_sums else (first - second, first + second)

    def settled(self, arrays: Sequence[ArraySummary]) -> Quotient:
        """Return it with the quotient of N and D in all as its center, and the noise of D.

        That is more where ``N - c D`` has noise of a deviation v and the quotient one of S about
        c: s is ``v / 3 S`` at least. The least squared error has ``v / S``, but few rows tell S
        badly: by a third of that no table that was tried erred more than 1.2 % more.
        """
        first, second = arrays
        numerator, denominator = self.sums((first.total, second.total))
        center = min(max(numerator / denominator, -1.0), 1.0) if denominator > 0 else 0.0
        hidden = math.hypot(1.0, center) / (3 * self._spread(center, arrays)) / _NOISE_DEVIATIONS
        noise = float(f"{arrays[self.of_sums].noise * max(1.0, hidden):.6g}")
        return replace(self, center=center, noise=noise)

    def _spread(self, center: float, arrays: Sequence[ArraySummary]) -> float:
        """Estimate the deviation S of the quotient about c, 1 at most, over the nodes of arrays.

        Where D is the weight of rows ``(N - c D)^2`` is ``S^2 D^2 + v^2`` on average, v^2 of noise
        alone. S^2 is what weighted least squares have, weights one over the square of that (as
        of random effects by Paule and Mandel 1982), in steps from 1 on.
        """
        first, second = arrays
        if first.values is None or second.values is None or first.shares is None:
            return 1.0
        unit = first.noise  # squares of densities may be any
        numerator, denominator = self.sums((first.values / unit, second.values / unit))
        known, square = (1 + center**2) * first.shares, 1.0
        explained = np.square(numerator - center * denominator) - known
        weights = np.square(np.maximum(denominator, 0.0))
        for _ in range(_SPREAD_STEPS):
            precisions = weights / np.square(known + square * weights)
            surely = max(float(precisions @ weights), sys.float_info.min)
            square = min(max(float(precisions @ explained) / surely, _LEAST_SPREAD**2), 1.0)
        return math.sqrt(square)

    def even(self, array_error: float, density: float, noise: float) -> float | None:
        """Bound the error where D is `density`, by that of either array.

        ``|(1 - m) e_P - (1 + m) e_Q| / (D + e_D)``, and ``|c - m| s^2 / ((D + e_D)^2 + s^2)`` of
        being drawn to the center, m and c at most 1; None where a constant promises as much.
        """
        if 2 * array_error >= density:
            return None
        smallest = density - 2 * array_error
        pull = pull_scale(noise) / math.hypot(smallest, pull_scale(noise))
        error = 2 * array_error / smallest + 2 * pull**2
        return (1 + 1e-12) * self.radius * error if error < 1 else None


@dataclass(frozen=True, kw_only=True)
class Quotients(Ratio):
    """A `Quotient` for each group, one column each; a release has all centers and noises."""

    kind: ClassVar[str] = "means"
    class_counts: ClassVar[Container[int]] = range(1, sys.maxsize)
    by_class: ClassVar[bool] = True

    centers: tuple[float, ...] = ()
    noises: tuple[float, ...] = ()

    @property
    def multi_output(self) -> bool:
        """Whether a point has one value for each group."""
        return True

    @property
    def quotients(self) -> tuple[Quotient, ...]:
        """The quotient of each group."""
        count = len(self.classes)
        centers, noises = (known or (None,) * count for known in (self.centers, self.noises))
        return tuple(
            (QuotientOfSums if self.of_sums else Quotient)(
                low=self.low, high=self.high, center=center, noise=noise
            )
            for center, noise in zip(centers, noises, strict=True)
        )

    def values(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None = None
    ) -> FloatArray:
        """Return the quotients, in the range."""
        pairs = zip(self.quotients, self.pairs(parts), strict=True)
        return np.stack([quotient.values(pair, unit_points) for quotient, pair in pairs], axis=-1)

    def errors(self, errors: Sequence[FloatArray]) -> FloatArray:
        """Return the range's width, of each."""
        return np.stack([super().errors(errors)] * len(self.classes), axis=-1)

    def settled(self, arrays: Sequence[ArraySummary]) -> Quotients:
        """Return it with each group's center and noise."""
        pairs = zip(self.quotients, self.pairs(arrays), strict=True)
        settled = [quotient.settled(pair) for quotient, pair in pairs]
        return replace(
            self,
            centers=tuple(quotient.center or 0.0 for quotient in settled),
            noises=tuple(quotient.noise or 0.0 for quotient in settled),
        )

    def inconsistency(self) -> str:
        """Return which parameters no release states together; empty where all is well."""
        counts = len(self.centers), len(self.noises)
        if counts not in ((0, 0), (len(self.classes),) * 2):
            return "centers and noises"
        return super().inconsistency()


@dataclass(frozen=True, kw_only=True)
class QuotientOfSums(Quotient):
    """A `Quotient` of an older store."""

    kind: ClassVar[str] = "ratio"
    of_sums: ClassVar[bool] = True
    arrays_of_rows: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class QuotientsOfSums(Quotients):
    """The `Quotients` of an older store."""

    kind: ClassVar[str] = "ratios"
    of_sums: ClassVar[bool] = True
    arrays_of_rows: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class LeastSquares(CutToRange):
    """The linear function whose coefficients the moments determine, from the middle of the range.

    The part that its values are made of are its `weights`. With `degree` 2 it is linear in
    `with_products`, after the columns of `lists`. The rest is what was released: the `response`'s
    name, the `weight` of its sum and how its `products` are weighed; and `ridge`, added to the
    diagonal of the columns' covariance matrix, None where the released numbers decide.
    """

    kind: ClassVar[str] = "least-squares"

    lists: tuple[int, ...] = ()
    degree: int | None = None
    constant: float
    response: str
    weight: int
    products: str | None = None
    ridge: float | None = None

    def values(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None = None
    ) -> FloatArray:
        """Return the linear function's values, in the range."""
        if unit_points is None:
            raise ValueError("least squares is of points")
        if self.degree is not None:
            listed, numbers = np.split(unit_points, [sum(self.lists)], axis=-1)
            unit_points = np.concatenate([listed, with_products(numbers)], axis=-1)
        return self.to_range(linear_values(parts[0], unit_points, self.constant)[0] + self.middle)

    @property
    def of_points(self) -> bool:
        """Whether its values depend on a point besides through the arrays."""
        return True

    @property
    def linear_response(self) -> bool:
        """Whether it is a response's linear function of the axes."""
        return True

    def moments(self, numbers: int, lists: tuple[int, ...]) -> Moments:
        """Return what was released of so many `numbers`, the response included, and of lists."""
        return Moments(numbers, self.weight, lists, older=self.products is None)

    def weights(self, measured: NoisyMoments, axes: int) -> FloatArray:
        """Return the weights of the unit cube's coordinates, and of 1, in the response's units.

        `axes` are how many numbers are no products, nor the response.
        """
        columns, listed = len(measured.means) - 1, sum(measured.blocks)
        fit = least_squares(measured, columns, range(columns), self.ridge)
        values, slopes, products = np.split(fit.slopes, [listed, listed + axes])
        middle = [fit.intercept - slopes.sum()]
        return self.radius * np.concatenate([values, 2 * slopes, products, middle])

    def inconsistency(self) -> str:
        """Return which parameters no release states together; empty where all is well."""
        return "grid and degree" if self.degree not in (None, 2) else super().inconsistency()

    def is_made_of(self, shapes: ReleasedShapes) -> bool:
        """Return whether there are the moments of the axes, of lists and of the response."""
        numbers = count_with_products(len(shapes.numeric_axes), self.degree)
        listed = self.degree is None or self.lists == shapes.lists
        fits = numbers < MOST_NUMBERS and self.response not in shapes.axes and listed
        fits &= numbers + sum(shapes.lists) < MOST_COLUMNS or not shapes.lists
        size = self.moments(numbers + 1, shapes.lists).size
        return fits and (shapes.arrays, self.constant) == ((size,), 1.0)

    def features(self, shapes: ReleasedShapes) -> FeatureShape:
        """Return the number of columns, products included, and the constant."""
        numbers = count_with_products(len(shapes.numeric_axes), self.degree)
        return FeatureShape(sum(shapes.lists) + numbers, self.constant)
