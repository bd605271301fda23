"""Fitted functions: expansions in records' features, which are as private as the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.reproducing import ExplicitKernel, Kernel, ProductKernel
from dbern.learning.rounding import BLOCK, sum_by_pairs

_CACHED = 1 << 16


class Model(Protocol):
    """A fitted function with q outputs; its values are bounded by no noise: private."""

    def __call__(self, points: FloatArray) -> FloatArray:
        """Values (m, q) at points (m, l)."""

    def on_grid(self, axes: Sequence[FloatArray]) -> FloatArray:
        """Values (k_1, .., k_l, q) at the product of the axes' coordinates."""


def _grid_points(axes: Sequence[FloatArray]) -> FloatArray:
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


@dataclass(frozen=True)
class Expansion:
    """``f(y) = sum_i alpha_i K(d_i, y)`` for records d (n, l) and coefficients (n, q)."""

    kernel: Kernel
    records: FloatArray
    coefficients: FloatArray

    def __call__(self, points: FloatArray) -> FloatArray:
        """Values (m, q); sums over records as `rounding` counts them."""
        shape = (len(points), self.coefficients.shape[1])
        if not len(self.records):
            return np.zeros(shape)
        height = max(1, _CACHED // BLOCK)

        def term(block: slice) -> FloatArray:
            values = np.empty(shape)
            for top in range(0, len(points), height):
                rows = slice(top, top + height)
                gram = self.kernel(points[rows], self.records[block])
                np.matmul(gram, self.coefficients[block], out=values[rows])
            return values

        return sum_by_pairs(term, len(self.records))

    def on_grid(self, axes: Sequence[FloatArray]) -> FloatArray:
        """Values on a grid: for product kernels the axes' factors and one matrix product."""
        shape = (*(len(axis) for axis in axes), self.coefficients.shape[1])
        kernel = self.kernel
        if not (isinstance(kernel, ProductKernel) and kernel.product):
            return self(_grid_points(axes)).reshape(shape)
        if not len(self.records):
            return np.zeros(shape)
        half = (len(axes) + 1) // 2

        def term(block: slice) -> FloatArray:
            records = self.records[block]
            factors = [kernel.along(i, records[:, i], axis) for i, axis in enumerate(axes)]
            left = _rowwise_products(factors[:half])
            right = _rowwise_products([*factors[half:], self.coefficients[block]])
            return np.asarray((left.T @ right).reshape(shape))

        return sum_by_pairs(term, len(self.records))


def _rowwise_products(factors: Sequence[FloatArray]) -> FloatArray:
    result = factors[0]
    for factor in factors[1:]:
        result = (result[:, :, None] * factor[:, None, :]).reshape(len(result), -1)
    return result


@dataclass(frozen=True)
class LinearModel:
    """``f(y) = features(y) . weights`` for weights (p, q)."""

    kernel: ExplicitKernel
    weights: FloatArray

    def __call__(self, points: FloatArray) -> FloatArray:
        """Values (m, q)."""
        return np.asarray(self.kernel.features(points) @ self.weights)

    def on_grid(self, axes: Sequence[FloatArray]) -> FloatArray:
        """Values on a grid."""
        return self(_grid_points(axes)).reshape(*(len(axis) for axis in axes), -1)
