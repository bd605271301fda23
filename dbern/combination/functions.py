"""Functions themselves, and what links them to values: a sigmoid, columns, differences."""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbern.combination.base import Combination, ReleasedShapes
from dbern.data.domain import FeatureShape
from dbern.types import FloatArray


def linear_values(
    weights: FloatArray, unit_points: FloatArray, constant: float
) -> list[FloatArray]:
    """Return values of linear functions at points of the unit cube, shape (..., l).

    `weights` are, function by function, those of the coordinates and, unless it is zero, of the
    constant.
    """
    axes = unit_points.shape[-1]
    functions = weights.reshape(-1, axes + (constant > 0))
    return [
        np.asarray(unit_points @ row[:axes] + (constant * row[axes] if constant else 0.0))
        for row in functions
    ]


@dataclass(frozen=True, kw_only=True)
class FunctionCombination(Combination):
    """A combination of functions, which are the arrays.

    With a `constant` one vector of weights is released, and they are the linear functions of
    `linear_values`.
    """

    constant: float | None = None

    def functions(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None
    ) -> Sequence[FloatArray]:
        """Return the functions' values, (m,) each."""
        if self.constant is None or unit_points is None:
            return parts
        return linear_values(parts[0], unit_points, self.constant)

    @property
    def of_points(self) -> bool:
        """Whether its values depend on a point besides through the arrays."""
        return self.constant is not None

    @property
    def outputs(self) -> int:
        """The number of functions."""
        return 1

    def is_made_of(self, shapes: ReleasedShapes) -> bool:
        """Return whether there are as many weights, or the functions."""
        if self.constant is not None:
            return shapes.arrays == (self.outputs * (shapes.columns + (self.constant > 0)),)
        return isinstance(shapes.arrays[0], tuple)

    def features(self, shapes: ReleasedShapes) -> FeatureShape:
        """Return the number of columns, and the constant."""
        return FeatureShape(shapes.columns, self.constant or 0.0)


@dataclass(frozen=True, kw_only=True)
class Identity(FunctionCombination):
    """The one function; where there are two classes its sign decides."""

    kind: ClassVar[str] = "linear"
    keeps_values: ClassVar[bool] = True
    keeps_errors: ClassVar[bool] = True
    counts_rows: ClassVar[bool] = True

    def values(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None = None
    ) -> FloatArray:
        """Return the function's values."""
        return self.functions(parts, unit_points)[0]

    @property
    def is_array(self) -> bool:
        """Whether it is the one array, as it is."""
        return self.constant is None


@dataclass(frozen=True, kw_only=True)
class Sigmoid(FunctionCombination):
    """``1 / (1 + exp(-f))`` of the one function f, the probability of the second class."""

    kind: ClassVar[str] = "sigmoid"
    log_odds: ClassVar[bool] = True
    threshold: ClassVar[float] = 0.5

    def values(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None = None
    ) -> FloatArray:
        """Return probabilities."""
        return np.asarray(0.5 + 0.5 * np.tanh(0.5 * self.functions(parts, unit_points)[0]))

    def decisions(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None, noise: Sequence[float]
    ) -> FloatArray:
        """Return log odds, which are the function."""
        del noise
        return self.functions(parts, unit_points)[0]

    def errors(self, errors: Sequence[FloatArray]) -> FloatArray:
        """Bound errors by the slope, which is at most a quarter."""
        return np.minimum(0.25 * errors[0], 1.0)

    def extent(self, arrays: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return the range of probabilities."""
        del arrays
        return 0.0, 1.0


@dataclass(frozen=True, kw_only=True)
class _Columns(FunctionCombination):
    """One column for each class or group, each with a function."""

    class_counts: ClassVar[Container[int]] = range(1, sys.maxsize)

    @property
    def multi_output(self) -> bool:
        """Whether a point has one value for each class."""
        return True

    @property
    def outputs(self) -> int:
        """The number of functions."""
        return len(self.classes)

    def is_made_of(self, shapes: ReleasedShapes) -> bool:
        """Return whether there is a function for each class, or its weights."""
        if self.constant is not None:
            return super().is_made_of(shapes)
        return len(shapes.arrays) == len(shapes.functions) == self.outputs


@dataclass(frozen=True, kw_only=True)
class Stack(_Columns):
    """The functions themselves, one column each."""

    kind: ClassVar[str] = "stack"
    keeps_values: ClassVar[bool] = True
    counts_rows: ClassVar[bool] = True
    by_class: ClassVar[bool] = True

    def values(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None = None
    ) -> FloatArray:
        """Return the functions' values."""
        return np.asarray(np.stack(self.functions(parts, unit_points), axis=-1))

    def errors(self, errors: Sequence[FloatArray]) -> FloatArray:
        """Return each column's bounds, which are those of its array."""
        return np.stack(errors, axis=-1)


@dataclass(frozen=True, kw_only=True)
class OneVersusRest(_Columns):
    """Column c is twice function c minus the sum of all."""

    kind: ClassVar[str] = "one-vs-rest"

    def values(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None = None
    ) -> FloatArray:
        """Return each function minus all others."""
        stacked = np.stack(self.functions(parts, unit_points), axis=-1)
        return np.asarray(2 * stacked - stacked.sum(axis=-1, keepdims=True))

    def errors(self, errors: Sequence[FloatArray]) -> FloatArray:
        """Bound each column's errors by the sum of the arrays'."""
        return np.stack([sum(errors, np.asarray(0.0))] * len(self.classes), axis=-1)

    def extent(self, arrays: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return the range between the largest value of a function and its negative."""
        return (-max(map(abs, arrays)), max(map(abs, arrays))) if arrays else None


def with_products(unit_points: FloatArray) -> FloatArray:
    """Append products ``z_i z_j``, and ``2 z_i^2 - 1``, of z = 2 y - 1 to positions y."""
    first, second = np.triu_indices(unit_points.shape[-1])
    products = (2 * unit_points[..., first] - 1) * (2 * unit_points[..., second] - 1)
    return np.concatenate(
        [unit_points, np.where(first == second, 2 * products - 1, products)], axis=-1
    )


def count_with_products(axes: int, degree: int | None) -> int:
    """Return how many numbers there are of so many axes, with degree 2 of their products, too."""
    return axes + (axes * (axes + 1) // 2 if degree == 2 else 0)
