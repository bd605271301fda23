"""Least squares: a linear function of the axes that released moments determine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbern.combination.base import FeatureShape, ReleasedShapes
from dbern.combination.functions import linear_values
from dbern.combination.polynomials import count_with_products, with_products
from dbern.combination.responses import CutToRange
from dbern.reconstruct.moments import MOST_COLUMNS, MOST_NUMBERS, Moments
from dbern.reconstruct.noisy_least_squares import least_squares
from dbern.reconstruct.noisy_moments import NoisyMoments
from dbern.types import FloatArray


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
        numbers = count_with_products(len(shapes.numbers), self.degree)
        listed = self.degree is None or self.lists == shapes.lists
        fits = numbers < MOST_NUMBERS and self.response not in shapes.axes and listed
        fits &= numbers + sum(shapes.lists) < MOST_COLUMNS or not shapes.lists
        size = self.moments(numbers + 1, shapes.lists).size
        return fits and (shapes.arrays, self.constant) == ((size,), 1.0)

    def features(self, shapes: ReleasedShapes) -> FeatureShape:
        """Return the number of columns, products included, and the constant."""
        numbers = count_with_products(len(shapes.numbers), self.degree)
        return sum(shapes.lists) + numbers, self.constant
