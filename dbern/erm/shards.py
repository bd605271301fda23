"""A shard's objective: ``J = P + |w|^2/2``, P the weighted sum of its losses.

Equal records are merged into one with their number as weight, in sorted order: the objective is the
same, the Gram matrix smaller, and the result free of the order of the records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.reproducing import ExplicitKernel, Kernel, ProductKernel, rowwise_products
from dbern.erm.risk import Risk
from dbern.erm.solver import Objective
from dbern.erm.summation import BLOCK, sum_by_pairs
from dbern.errors import SpecError
from dbern.types import UNIT_ROUNDOFF, FloatArray

STORED_ROWS = 8192
"""Up to this many distinct records the Gram matrix is kept (512 MiB), beyond it recomputed."""

STORED_FEATURES = 1 << 25
"""Up to this many numbers the explicit features are kept (256 MiB), beyond it recomputed."""

_CACHED = 1 << 16  # entries of a Gram matrix computed at a time


@dataclass(frozen=True)
class Expansion:
    """``f(y) = sum_i alpha_i K(d_i, y)`` for records d (n, l) and coefficients (n, q): private."""

    kernel: Kernel
    records: FloatArray
    coefficients: FloatArray

    def __call__(self, points: FloatArray) -> FloatArray:
        """Values (m, q) at points (m, l); sums over records are by pairs of blocks."""
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
        """Values (k_1, .., k_l, q) at the product of the axes' coordinates.

        For product kernels from the axes' factors, by one matrix product.
        """
        shape = (*(len(axis) for axis in axes), self.coefficients.shape[1])
        kernel = self.kernel
        if not (isinstance(kernel, ProductKernel) and kernel.product):
            points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
            return self(points.reshape(-1, len(axes))).reshape(shape)
        if not len(self.records):
            return np.zeros(shape)
        half = (len(axes) + 1) // 2

        def term(block: slice) -> FloatArray:
            records = self.records[block]
            factors = [kernel.along(i, records[:, i], axis) for i, axis in enumerate(axes)]
            left = rowwise_products(factors[:half])
            right = rowwise_products([*factors[half:], self.coefficients[block]])
            return np.asarray((left.T @ right).reshape(shape))

        return sum_by_pairs(term, len(self.records))


class ShardObjective(Objective):
    """A shard: `counts` are the weights of its distinct records, in units of `RiskBounds.weight`.

    `labels` (n, q) have a column for each of q models.
    """

    def __init__(
        self, risk: Risk, points: FloatArray, labels: FloatArray, counts: FloatArray
    ) -> None:
        self.risk, self._points = risk, points
        self.total = OUTWARD * risk.bounds.weight * float(counts.sum())
        self.bounds = risk.shard_bounds(self.total)
        self._labels, self._counts = labels, counts[:, None]

    def _slopes(self, predictions: FloatArray, rows: slice = slice(None)) -> FloatArray:
        """dL/df clipped at M; a user's loss that is not a number pulls nowhere."""
        derivative = self.risk.loss.derivative(self._labels[rows], predictions)
        slope = self.risk.bounds.slope
        return np.clip(np.where(np.isnan(derivative), 0.0, derivative), -slope, slope)


class DualObjective(ShardObjective):
    """A shard by its Gram matrix: states are coefficients (n, q) of an expansion in its records."""

    def __init__(
        self, risk: Risk, points: FloatArray, labels: FloatArray, counts: FloatArray
    ) -> None:
        super().__init__(risk, np.ascontiguousarray(points), labels, counts)
        self.shape = labels.shape
        self._weights = risk.bounds.weight * self._counts
        self._gram = _gram(risk.kernel, self._points) if len(points) <= STORED_ROWS else None

    def pull(self, state: FloatArray) -> FloatArray:
        """``-grad P``: coefficients ``-a_i L'_i``."""
        return np.asarray(-self._weights * self._slopes(self._predictions(state)))

    def certificate(self, state: FloatArray, gradient: FloatArray) -> float:  # noqa: ARG002
        """Bound the norm of the gradient by ``kappa |v|_1``, v its coefficients.

        It is the largest of the q models'. The Euclidean norm of v is none of the Hilbert space.
        """
        return OUTWARD * self.risk.bounds.kappa * self._length(gradient)

    def exact_certificate(self, state: FloatArray, gradient: FloatArray) -> float:
        """Bound it by ``sqrt(v'Kv)`` with the float error of ``v'Kv`` where that is less."""
        largest, risk = self._length(gradient), self.risk
        if not largest:
            return 0.0
        square = float((gradient * self._predictions(gradient)).sum(axis=0).max())
        kernel = risk.kernel.error(risk.dimensions, risk.radius)
        order = 2 * len(gradient) * UNIT_ROUNDOFF
        kappa = risk.bounds.kappa
        error = 2 * (risk.bounds.summation * kappa**2 + kernel + order * kappa**2) * largest**2
        norm = OUTWARD * math.sqrt(max(square, 0.0) + error)
        return min(self.certificate(state, gradient), norm)

    def model(self, state: FloatArray) -> Expansion:
        """The function that a state stands for."""
        return Expansion(self.risk.kernel, self._points, state)

    @staticmethod
    def _length(gradient: FloatArray) -> float:
        order = 2 * len(gradient) * UNIT_ROUNDOFF  # sums down a column are in sequence
        return float(np.abs(gradient).sum(axis=0).max(initial=0.0)) * (1 + order)

    def _predictions(self, state: FloatArray) -> FloatArray:
        if not len(state):
            return state
        gram = self._gram
        if gram is None:
            return self.model(state)(self._points)
        return sum_by_pairs(lambda block: np.asarray(gram[block].T @ state[block]), len(state))


class PrimalObjective(ShardObjective):
    """A shard by explicit features: states are weights (p, q)."""

    def __init__(
        self, risk: Risk, points: FloatArray, labels: FloatArray, counts: FloatArray
    ) -> None:
        super().__init__(risk, points, labels, counts)
        self._kernel = kernel = cast("ExplicitKernel", risk.kernel)
        size = kernel.features(points[:0]).shape[1]
        self.shape = size, labels.shape[1]
        small = len(points) * size <= STORED_FEATURES
        self._features = kernel.features(points) if small else None

    def pull(self, state: FloatArray) -> FloatArray:
        """``-grad P = -a sum_i c_i L'_i x_i``, c_i the counts, in blocks of records."""

        def term(block: slice) -> FloatArray:
            stored = self._features
            features = (
                self._kernel.features(self._points[block]) if stored is None else stored[block]
            )
            slopes = self._slopes(features @ state, block)
            return np.asarray(features.T @ (slopes * self._counts[block]))

        if not len(self._points):
            return np.zeros(self.shape)
        return np.asarray(-self.risk.bounds.weight * sum_by_pairs(term, len(self._points)))

    def certificate(self, state: FloatArray, gradient: FloatArray) -> float:  # noqa: ARG002
        """Bound the gradient's norm: that of the Hilbert space is the Euclidean one here."""
        return OUTWARD * float(np.linalg.norm(gradient, axis=0).max(initial=0.0))


def objective(
    risk: Risk, points: FloatArray, labels: FloatArray, counts: FloatArray
) -> DualObjective | PrimalObjective:
    """The shard's objective, in explicit features where the kernel has them.

    `points` (n, l) are the shard's distinct records, sorted, within the risk's radius, missing
    records left out; `labels` (n,) or (n, q) have a column for each model, signs for classification
    (`one_vs_rest`); `counts` are the numbers of equal records. Raises SpecError for points or
    labels of the wrong shape.
    """
    labels = labels[:, None] if labels.ndim == 1 else labels
    if points.ndim != 2 or points.shape[1] != risk.dimensions or len(labels) != len(points):
        raise SpecError(
            f"target: a shard needs points (n, {risk.dimensions}) and as many labels. Pass one row "
            "per record."
        )
    labels = risk.loss.admissible(labels)
    counts = counts * risk.relative_weight(float(counts.sum()))
    kind = DualObjective if risk.features is None else PrimalObjective
    return kind(risk, points, labels, counts)


def _gram(kernel: Kernel, points: FloatArray) -> FloatArray:
    count = len(points)
    values = np.empty((count, count))
    height = max(1, _CACHED // max(count, 1))
    for first in range(0, count, height):
        rows = slice(first, first + height)
        values[rows] = kernel(points[rows], points)
    return values
