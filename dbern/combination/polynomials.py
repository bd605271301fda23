"""Products of coordinates, which released numbers are the coefficients of."""

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
