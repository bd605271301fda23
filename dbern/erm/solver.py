"""Solve a shard's objective to within a declared distance of its minimizer.

A shard's objective is ``J = P + |w|^2/2``, P the weighted sum of losses. The solver sees its
*pull*, ``-grad P(w) = -a sum_i L'(l_i, f_w(d_i)) phi(d_i)``, so ``grad J(w) = w - pull(w)``. Equal
records are merged into one with their number as weight, in sorted order: the objective is the same,
the Gram matrix smaller, and the result free of the order of the records.

Gradient methods start at zero. Write c for the total weight: P is convex, its gradient Lipschitz
with ``beta = c kappa^2 curvature``. Steps are ``w - eta grad J(w)`` with ``eta = 1/(1 + beta)``;
float errors are those of `dbern.erm.risk`.

Lemma (contraction). ``T(w) = w - eta grad J(w)`` with ``0 < eta <= 2/(2 + beta)`` satisfies
``|T(w) - T(w')| <= (1 - eta) |w - w'|``. Proof. With ``d = w - w'``, ``p = grad P(w) - grad P(w')``
and cocoercivity ``<p, d> >= |p|^2 / beta``: ``|(1-eta) d - eta p|^2 <= (1-eta)^2 |d|^2 +
(eta^2 - 2 eta (1-eta)/beta) |p|^2``, and the bracket is at most 0 for ``eta (2 + beta) <= 2``.
(Half of that longest step leaves room for the errors of floats.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.reproducing import ExplicitKernel, Kernel, ProductKernel
from dbern.erm.risk import BLOCK, Risk, mean_state_error, state_error, sum_by_pairs, summation_error
from dbern.errors import SpecError
from dbern.types import UNIT_ROUNDOFF, FloatArray

# --- Fitted functions


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
            left = _rowwise_products(factors[:half])
            right = _rowwise_products([*factors[half:], self.coefficients[block]])
            return np.asarray((left.T @ right).reshape(shape))

        return sum_by_pairs(term, len(self.records))


def _rowwise_products(factors: Sequence[FloatArray]) -> FloatArray:
    result = factors[0]
    for factor in factors[1:]:
        result = (result[:, :, None] * factor[:, None, :]).reshape(len(result), -1)
    return result


# --- A shard's objective as the solver sees it

STORED_ROWS = 8192
"""Up to this many distinct records the Gram matrix is kept (512 MiB), beyond it recomputed."""

STORED_FEATURES = 1 << 25
"""Up to this many numbers the explicit features are kept (256 MiB), beyond it recomputed."""


class DualObjective:
    """A shard by its Gram matrix: states are coefficients (n, q) of an expansion in its records.

    `labels` (n, q) have a column for each of q models; `counts` are the weights of the distinct
    records, in units of `Risk.weight`.
    """

    def __init__(
        self, risk: Risk, points: FloatArray, labels: FloatArray, counts: FloatArray
    ) -> None:
        self.risk = risk
        self.total = OUTWARD * risk.weight * float(counts.sum())
        self._points = np.ascontiguousarray(points)
        self._labels = labels
        self._weights = (risk.weight * counts)[:, None]
        self._gram = _gram(risk.kernel, self._points) if len(points) <= STORED_ROWS else None

    def zero(self) -> FloatArray:
        """The state of w = 0."""
        return np.zeros_like(self._labels)

    def pull(self, state: FloatArray) -> FloatArray:
        """``-grad P``: coefficients ``-a_i L'_i``."""
        slopes = _slopes(self.risk, self._labels, self._predictions(state))
        return np.asarray(-self._weights * slopes)

    def distance(self, state: FloatArray, pull: FloatArray, exact: bool) -> float:
        """Bound ``|state - pull|``, the gradient's norm but for its float error.

        The largest of the q models': ``kappa |v|_1``, v the difference of coefficients, whose
        Euclidean norm is no norm of the Hilbert space. Where `exact` spends a product with the Gram
        matrix, ``sqrt(v'Kv)`` with the float error of ``v'Kv`` where that is less.
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

    def model(self, state: FloatArray) -> Expansion:
        """The function that a state stands for."""
        return Expansion(self.risk.kernel, self._points, state)

    def _predictions(self, state: FloatArray) -> FloatArray:
        if not len(state):
            return state
        gram = self._gram
        if gram is None:
            return self.model(state)(self._points)
        return sum_by_pairs(lambda block: np.asarray(gram[block].T @ state[block]), len(state))


class PrimalObjective:
    """A shard by explicit features, in blocks of any number of records: states are weights (p, q).

    Parameters as of `DualObjective`; `kernel` is the risk's.
    """

    def __init__(
        self,
        risk: Risk,
        kernel: ExplicitKernel,
        points: FloatArray,
        labels: FloatArray,
        counts: FloatArray,
    ) -> None:
        self.risk = risk
        self.total = OUTWARD * risk.weight * float(counts.sum())
        self._counts = counts[:, None]
        self._kernel = kernel
        self._points = points
        self._labels = labels
        self._size = kernel.features(points[:0]).shape[1]
        kept = len(points) * self._size <= STORED_FEATURES
        self._features = kernel.features(points) if kept else None

    def zero(self) -> FloatArray:
        """The state of w = 0."""
        return np.zeros((self._size, self._labels.shape[1]))

    def pull(self, state: FloatArray) -> FloatArray:
        """``-grad P = -a sum_i c_i L'_i x_i``, c_i the counts, in blocks of records."""

        def term(block: slice) -> FloatArray:
            kept = self._features
            features = self._kernel.features(self._points[block]) if kept is None else kept[block]
            slopes = _slopes(self.risk, self._labels[block], features @ state)
            return np.asarray(features.T @ (slopes * self._counts[block]))

        if not len(self._points):
            return self.zero()
        return np.asarray(-self.risk.weight * sum_by_pairs(term, len(self._points)))

    def distance(self, state: FloatArray, pull: FloatArray, exact: bool) -> float:  # noqa: ARG002
        """Bound ``|state - pull|`` by the Euclidean norm: that of the Hilbert space here."""
        return OUTWARD * float(np.linalg.norm(state - pull, axis=0).max(initial=0.0))


Objective = DualObjective | PrimalObjective


def objective(risk: Risk, points: FloatArray, labels: FloatArray, counts: FloatArray) -> Objective:
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
    if risk.features is None:
        return DualObjective(risk, points, labels, counts)
    return PrimalObjective(risk, risk.features, points, labels, counts)


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


# --- Gradient methods from zero, whose output is within a declared distance of the minimizer

_CHECK_EVERY = 8


@dataclass(frozen=True)
class Certified:
    """Steps fitted to each shard's own weight, to a proved distance from its minimizer.

    Sensitivity is that of the minimizers, r, plus twice the distance. The number of steps may
    depend on the shard (its size is private; time is not part of the guarantee) because the
    distance is reached on every database: there is no cap below the proved worst case.

    *Certificate.* J is 1-strongly convex, so ``|w - w*| <= |grad J(w)|``: whenever the gradient's
    norm is at most the tolerance, the state is the answer, float error as in `dbern.erm.risk`.

    *Plain steps* reach it: ``(1 - eta)^T |w*|`` is at most the tolerance after a number of steps
    known in advance, certified on the way or not. This is the proof for every database.

    *Accelerated steps* come first where they are expected to be fewer; if floats kept them from a
    certificate, plain steps follow. With ``q = 1 + beta`` (J is q-smooth), ``theta = q^(-1/2)``:
    ``y = (x + theta z)/(1 + theta)``, ``g = grad J(y)``, ``x+ = y - g/q``,
    ``z+ = (1 - theta) z + theta (y - g)``. Lemma: ``E = J(x) - J* + |z - w*|^2/2`` satisfies
    ``E+ <= (1 - theta) E``. Proof. ``J(x+) <= J(y) - |g|^2/(2q)``. With
    ``p = (1-theta)(z - w*) + theta (y - w*)``, ``|z+ - w*|^2/2 = |p|^2/2 - theta <g, p> +
    |g|^2/(2q)``, and ``|p|^2 <= (1-theta)|z - w*|^2 + theta |y - w*|^2``. From
    ``theta (z - w*) = (y - x) + theta (y - w*)``, ``theta <g, p> = (1-theta) <g, y - x> +
    theta <g, y - w*>``, at least ``(1-theta)(J(y) - J(x)) + theta (J(y) - J* + |y - w*|^2/2)`` by
    convexity and strong convexity. Adding up leaves ``(1-theta)(J(x) - J*) +
    (1-theta)|z - w*|^2/2``. From zero ``E_0 <= min(c L(0), (c M kappa)^2)``, and ``|y - w*| <=
    sqrt(2 E)``, so ``|grad J(y)| <= q sqrt(2 E)`` falls below the tolerance.

    `tolerance`, chosen by `for_sensitivity`, is the distance allowed to the iteration; floats add
    theirs. If it is `observed` the last state is checked too, by a SpecError from `run`: where the
    number of steps rests on constants that a user declares, it need not be enough. Raises
    ValueError for a tolerance that is not positive.
    """

    tolerance: float
    observed: bool = False

    def __post_init__(self) -> None:
        if not self.tolerance > 0:
            raise ValueError("the tolerance must be positive")

    @classmethod
    def for_sensitivity(cls, risk: Risk, share: float = 2.0**-8) -> Certified:
        """The method whose tolerance adds the fraction `share` of r to r."""
        return cls(share * risk.sensitivity / 2)

    def run(self, problem: Objective) -> FloatArray:
        """A state within the tolerance and the float error of the shard's minimizer."""
        plain, accelerated = self._steps(problem.risk, problem.total)
        if accelerated < plain:
            certified = self._accelerated(problem, accelerated)
            if certified is not None:
                return certified
        return self._plain(problem, plain)

    def _plain(self, problem: Objective, steps: int) -> FloatArray:
        step = _step(problem.risk, problem.total)
        state = problem.zero()
        for count in range(steps):
            pull = problem.pull(state)
            if self._is_near(problem, state, pull, count):
                break
            state = _mix(state, pull, step)
        else:
            if self.observed:
                self._check(problem, state)
        return state

    def _check(self, problem: Objective, state: FloatArray) -> None:
        floats = state_error(problem.risk, problem.total)
        if not problem.distance(state, problem.pull(state), True) <= self.tolerance + floats:
            raise SpecError(
                "target.loss: did not converge, so it is not what the spec declares: convex, "
                "Lipschitz and as smooth. Write larger constants, or a loss that is."
            )

    def _accelerated(self, problem: Objective, steps: int) -> FloatArray | None:
        momentum = _momentum(problem.risk, problem.total)
        state, leading = problem.zero(), problem.zero()
        for count in range(steps):
            point = _mix(state, leading, momentum / (1 + momentum))
            pull = problem.pull(point)
            if self._is_near(problem, point, pull, count):
                return point
            # grad J(y) = y - pull, so both updates are averages with the pull.
            state = _mix(point, pull, momentum**2)
            leading = _mix(leading, pull, momentum)
        return None

    def _is_near(self, problem: Objective, state: FloatArray, pull: FloatArray, count: int) -> bool:
        exact = count % _CHECK_EVERY == _CHECK_EVERY - 1
        return problem.distance(state, pull, exact) <= self.tolerance

    def distance(self, risk: Risk) -> float:
        """Bound the distance to the minimizer, floats included, in the mean over shards."""
        return self.tolerance + mean_state_error(risk)

    def instability(self, risk: Risk) -> float:
        """Bound the addition to the sensitivity by the distance: twice the distance."""
        return 2 * self.distance(risk)

    def most_steps(self, risk: Risk) -> int:
        """Bound the steps on a shard that holds every row, after accelerated steps that failed."""
        plain, accelerated = self._steps(risk, risk.most_weight)
        return plain + (accelerated if accelerated < plain else 0)

    def expected_steps(self, risk: Risk) -> int:
        """Proved number of steps on a shard of average weight, floats aside: to plan time with."""
        return min(self._steps(risk, risk.most_weight / risk.shards))

    def _steps(self, risk: Risk, total: float) -> tuple[int, int]:
        """Numbers of plain and of accelerated steps."""
        plain = _plain_steps(risk, total, self.tolerance)
        return plain, self._accelerated_steps(risk, total)

    def _accelerated_steps(self, risk: Risk, total: float) -> int:
        energy = min(total * risk.loss.at_zero, (total * risk.slope * risk.kappa) ** 2)
        momentum = _momentum(risk, total)
        # Half of the tolerance, as the computed norm is a bound; then up to the next exact check.
        start = 2 * math.sqrt(2 * energy) / momentum**2
        return _CHECK_EVERY + _steps_until(start, self.tolerance, -0.5 * math.log1p(-momentum))


def one_vs_rest(classes: FloatArray, count: int) -> FloatArray:
    """Labels (n, count): 1 in the column of the class (0 to count - 1), -1 elsewhere."""
    return np.where(classes[:, None] == np.arange(count), 1.0, -1.0)


def _mix(first: FloatArray, second: FloatArray, share: float) -> FloatArray:
    return np.asarray((1 - share) * first + share * second)


def _step(risk: Risk, total: float) -> float:
    return 1 / (1 + risk.smoothness(total)) / OUTWARD


def _momentum(risk: Risk, total: float) -> float:
    """theta; J is smoother than ``1/theta^2``, which is all that the proof needs."""
    return 1 / math.sqrt(1 + risk.smoothness(total)) / OUTWARD


def _plain_steps(risk: Risk, total: float, distance: float) -> int:
    return _steps_until(risk.norm(total), distance, -math.log1p(-_step(risk, total)))


def _steps_until(start: float, end: float, rate: float) -> int:
    if start <= end:
        return 0
    return math.ceil(OUTWARD * math.log(start / end) / rate) + 1
