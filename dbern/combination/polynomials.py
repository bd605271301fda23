"""Polynomials of coordinates that released numbers are the coefficients of."""

from __future__ import annotations

import numpy as np

from dbern.types import FloatArray


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


def grid_polynomials(positions: FloatArray, points: int, count: int) -> FloatArray:
    """Return polynomials of degrees 0 to `count` - 1 at positions (...) in [0, 1]: (..., count).

    Gram's: on the regular grid of `points` there their products have mean 0, and squares 1.
    """
    k = np.arange(count + 1.0)
    steps = k / (points - 1) * np.sqrt((points**2 - k**2).clip(0) / np.maximum(4 * k**2 - 1, 1))
    polynomials = [np.ones_like(positions)]
    for i in range(1, count):
        before = steps[i - 1] * polynomials[i - 2] if i > 1 else 0.0
        polynomials += [((2 * positions - 1) * polynomials[-1] - before) / steps[i]]
    return np.stack(polynomials, axis=-1)
