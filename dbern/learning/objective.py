"""A shard's objective as the solver sees it: where the loss pulls a state, and how far off it is.

``pull(w) = -grad P(w) = -a sum_i L'(l_i, f_w(d_i)) phi(d_i)``, so ``grad J(w) = w - pull(w)``.
Equal records are merged into one with their number as weight, in sorted order: the objective is
the same, the Gram matrix smaller, and the result free of the order of the records.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.reproducing import ExplicitKernel, Kernel
from dbern.bernstein.spectrum import UNIT_ROUNDOFF
from dbern.errors import SpecError
from dbern.learning.model import Expansion, LinearModel, Model
from dbern.learning.risk import Risk
from dbern.learning.rounding import sum_by_pairs, summation_error

STORED_ROWS = 8192
"""Up to this many distinct records the Gram matrix is kept (512 MiB), beyond it recomputed."""

STORED_FEATURES = 1 << 25
"""Up to this many numbers the explicit features are kept (256 MiB), beyond it recomputed."""

_CACHED = 1 << 16  # entries of the Gram matrix computed at a time


class Objective(Protocol):
    """One shard; states are arrays (size, q) with a column for each of q models."""

    @property
    def risk(self) -> Risk:
        """The public constants."""

    @property
    def total(self) -> float:
        """The shard's weight, rounded outward."""

    def zero(self) -> FloatArray:
        """The state of w = 0."""

    def pull(self, state: FloatArray) -> FloatArray:
        """``-grad P``."""

    def distance(self, state: FloatArray, pull: FloatArray, exact: bool) -> float:
        """Bound on ``|state - pull|``, the gradient's norm but for its float error.

        The largest of the q models; `exact` spends a product with the Gram matrix on it.
        """

    def model(self, state: FloatArray) -> Model:
        """What the state predicts."""


def objective(
    risk: Risk, points: FloatArray, labels: FloatArray, counts: FloatArray | None = None
) -> Objective:
    """The shard's objective, in explicit features where the kernel has them.

    `counts` (n,) says how many equal records a row stands for, of rows that are distinct and
    sorted; without them equal ones are merged where there is a Gram matrix.

    Raises
    ------
    SpecError
        For points or labels of the wrong shape.
    """
    labels = labels[:, None] if labels.ndim == 1 else labels
    if points.ndim != 2 or points.shape[1] != risk.dimensions or len(labels) != len(points):
        raise SpecError(
            f"target: a shard needs points (n, {risk.dimensions}) and as many labels; pass one row "
            "per record"
        )
    labels = risk.loss.admissible(labels)
    if isinstance(risk.kernel, ExplicitKernel):
        return PrimalObjective(risk, risk.kernel, points, labels, counts)
    return DualObjective(risk, points, labels, counts)


class DualObjective:
    """States are the coefficients of an expansion in the records' features."""

    def __init__(
        self,
        risk: Risk,
        points: FloatArray,
        labels: FloatArray,
        counts: FloatArray | None = None,
    ) -> None:
        distinct = np.column_stack([points, labels])
        if counts is None:
            distinct, found = np.unique(distinct, axis=0, return_counts=True)
            counts = found.astype(np.float64)
        self.risk = risk
        self.total = OUTWARD * risk.weight * float(counts.sum())
        self._points = np.ascontiguousarray(distinct[:, : points.shape[1]])
        self._labels = distinct[:, points.shape[1] :]
        self._weights = (risk.weight * counts)[:, None]
        self._gram = _gram(risk.kernel, self._points) if len(distinct) <= STORED_ROWS else None

    def zero(self) -> FloatArray:
        """No coefficients."""
        return np.zeros_like(self._labels)

    def pull(self, state: FloatArray) -> FloatArray:
        """Coefficients ``-a_i L'_i``."""
        slopes = _slopes(self.risk, self._labels, self._predictions(state))
        return np.asarray(-self._weights * slopes)

    def distance(self, state: FloatArray, pull: FloatArray, exact: bool) -> float:
        """See `Objective`: ``sqrt(v'Kv)`` with the float error of ``v'Kv``, or ``kappa |v|_1``.

        The Euclidean norm of the coefficients v is no norm of the Hilbert space.
        """
        difference = state - pull
        order = 2 * len(difference) * UNIT_ROUNDOFF  # sums down a column are in sequence
        largest = float(np.abs(difference).sum(axis=0).max(initial=0.0)) * (1 + order)
        bound = self.risk.kappa * largest
        if exact and largest > 0:
            square = float((difference * self._predictions(difference)).sum(axis=0).max())
            inner = summation_error(self.risk) * self.risk.kappa**2
            kernel = self.risk.kernel.error(self.risk.dimensions, self.risk.radius)
            error = 2 * (inner + kernel + order * self.risk.kappa**2) * largest**2
            bound = min(bound, math.sqrt(max(square, 0.0) + error))
        return OUTWARD * bound

    def model(self, state: FloatArray) -> Model:
        """The expansion."""
        return Expansion(self.risk.kernel, self._points, state)

    def _predictions(self, state: FloatArray) -> FloatArray:
        """``K alpha``."""
        if not len(state):
            return state
        gram = self._gram
        if gram is None:
            return Expansion(self.risk.kernel, self._points, state)(self._points)
        return sum_by_pairs(lambda block: np.asarray(gram[block].T @ state[block]), len(state))


class PrimalObjective:
    """States are weights of explicit features, block by block: any number of records."""

    def __init__(
        self,
        risk: Risk,
        kernel: ExplicitKernel,
        points: FloatArray,
        labels: FloatArray,
        counts: FloatArray | None = None,
    ) -> None:
        self.risk = risk
        rows = len(points) if counts is None else float(counts.sum())
        self.total = OUTWARD * risk.weight * rows
        self._counts = None if counts is None else counts[:, None]
        self._kernel = kernel
        self._points = points
        self._labels = labels
        self._size = kernel.features(points[:0]).shape[1]
        kept = len(points) * self._size <= STORED_FEATURES
        self._features = kernel.features(points) if kept else None

    def zero(self) -> FloatArray:
        """No weights."""
        return np.zeros((self._size, self._labels.shape[1]))

    def pull(self, state: FloatArray) -> FloatArray:
        """``-a sum_i c_i L'_i x_i``, in blocks of `BLOCK` records; c_i their counts."""

        def term(block: slice) -> FloatArray:
            kept = self._features
            features = self._kernel.features(self._points[block]) if kept is None else kept[block]
            slopes = _slopes(self.risk, self._labels[block], features @ state)
            slopes = slopes if self._counts is None else slopes * self._counts[block]
            return np.asarray(features.T @ slopes)

        if not len(self._points):
            return self.zero()
        return np.asarray(-self.risk.weight * sum_by_pairs(term, len(self._points)))

    def distance(self, state: FloatArray, pull: FloatArray, exact: bool) -> float:  # noqa: ARG002
        """The Euclidean norm: that of the Hilbert space, for explicit features."""
        return OUTWARD * float(np.linalg.norm(state - pull, axis=0).max(initial=0.0))

    def model(self, state: FloatArray) -> Model:
        """The linear function."""
        return LinearModel(self._kernel, state)


def _slopes(risk: Risk, labels: FloatArray, predictions: FloatArray) -> FloatArray:
    """dL/df clipped at M; a user's loss that is not a number pulls nowhere."""
    derivative = risk.loss.derivative(labels, predictions)
    return np.clip(np.nan_to_num(derivative, nan=0.0), -risk.slope, risk.slope)


def _gram(kernel: Kernel, points: FloatArray) -> FloatArray:
    count = len(points)
    values = np.empty((count, count))
    height = max(1, _CACHED // max(count, 1))
    for first in range(0, count, height):
        rows = slice(first, first + height)
        values[rows] = kernel(points[rows], points)
    return values
