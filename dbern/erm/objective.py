"""Minimizers of a perturbed objective: solved to a proved distance, and truncated.

With features phi, labels l, a loss L of o predictions ``f = W phi`` and b of
`dbern.privacy.perturbation`, the objective of all records is

    ``J(W) = a sum_i L(l_i, W phi_i) + |W|^2 / 2 + a b'W``,

``1/a`` times less than there: 1-strongly convex. ``W*`` is its minimizer, a private real vector.

What is kept
------------
Let ``t(W) = W g(|W|)/|W|``, ``g(x) = max(0, min(x, 2 B - x))``, B public: W up to norm B, nothing
from 2 B on. It is 1-Lipschitz, as ``|g'| <= 1`` and ``g(x) <= x``. ``t(W*)`` is a function of
``W*``; what is computed is within a public gamma of it, on every database and for every b. So of
two databases with the same ``W*`` the computed values are within ``2 gamma``, and noise for that,
of epsilon_1, makes all of it as private as ``W*`` is and epsilon_1 more.

*Large b.* ``W* = -a (b + sum_i L' phi_i)``, so ``|W*| >= a (|b|_2 - n M R)``, M a bound on
``|L'|``, and ``|b|_2`` is at least its norm r. Where r exceeds ``r_max = 2 B / a + n M R``,
``t(W*) = 0``, and nothing is solved. Otherwise ``|b|_2 <= R r`` is bounded. With lists r is the
larger norm of two; of up to q features that are h <= 1 or 0 ``|b|_2`` is at least ``r h /
sqrt(q)``, and r_max is ``sqrt(q) / h`` times that.

*Digits of b.* Of b a vector within ``delta`` is known; the minimizer moves by ``a delta`` at most,
by strong convexity.

Floats
------
Features are floats, and the records' own. A float state W of norm w has predictions within ``e =
(p + 4 + max(4, sqrt(o))) u R w`` of exact ones, p features: p products and sums, and exponents,
differences from the largest prediction, which round by ``u (|f| + sqrt(o) |f|_max)`` in norm. Given
them a derivative errs by e_L', and weighting by counts and summing, in blocks and by pairs
(`dbern.erm.summation`), by ``g M``: together ``G = R a n (e_L' + g M)``. The subtractions of the
gradient round by ``U = 4 u (w + a R r + a n M R)``.

*Certificate.* By `dbern.erm.float_errors` ``|W - W*| <= |rho| + e sqrt(a n Λ)/2 + G + U``, rho the
gradient as computed, Λ the loss's curvature, for a float state W. Whenever that is at most gamma,
or proves ``|W*| >= 2 B``, the state is the answer (`dbern.erm.solver`).

*Plain steps* get there on every database: ``beta = a n R^2 Λ`` is up to 2^40. With the lemma of
`dbern.erm.float_errors` states stay within 1.01 of ``e sqrt(a n Λ / 2) + G + U + 8 u^2 |W| (1 +
beta)`` of the exact iteration, which nears ``W*`` by ``1 - eta`` a step from ``|W*| <= a (R r + n M
R)``. A step is no longer than ``|W - W*|``, so that rounding it takes ``3 u`` of ``eta``: T steps
leave ``(1 + 3 u / (1 - eta))^T`` times as much, less than 1.1 times.
Where ``|W*| <= 4 B`` every iterate has norm at most ``8 B``, for which gamma has room; beyond, the
state comes nearer to ``W*`` than half of its norm, so that t of both is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dbern.bernstein.kernels import EXP_ULPS, OUTWARD
from dbern.erm.float_errors import MAX_CONDITION
from dbern.erm.losses import Loss, one_vs_rest
from dbern.erm.solver import CurvedObjective, ProblemBounds
from dbern.erm.summation import sum_by_pairs, summation_error
from dbern.errors import SpecError
from dbern.privacy.keystream import KeyStream
from dbern.privacy.perturbation import MOST_SCALES, Perturbation
from dbern.types import UNIT_ROUNDOFF, FloatArray

ONE_HOT_VALUE = 0.375
"""h: a listed value's feature, whose weight is penalized more, so that numbers are less."""

_MIN_TOLERANCE = 2.0**-26
_TAIL_EXPONENT = 64.0  # of b: beyond it with probability exp(-64), where the answer is cut


@dataclass(frozen=True)
class LossBounds:
    """Bounds of a loss of o predictions, and of its derivatives L' and L''."""

    gradient_entry_bound: float
    """Largest entry of L'."""
    slope: float
    """Largest ``|L'|``."""
    hessian_entry_bound: float
    """Largest entry of L'', on its diagonal."""
    curvature: float
    """Largest eigenvalue of L''."""
    trace: float
    """Largest trace of L''."""
    at_zero: float
    """Largest L at predictions of 0."""
    derivative_error: float
    """Largest norm of the float error of L'."""


@dataclass(frozen=True)
class Softmax:
    """``log(1 + sum_k exp f_k) - f_l`` of o predictions, labels 0 to o: the last has none.

    ``L' = p - e_l`` has entries in [-1, 1] and norm at most 1 where o is 1 (the logistic loss), and
    ``sqrt 2``. ``L'' = diag(p) - p p'`` is positive semidefinite; its largest eigenvalue is at most
    1/4, and 1/2 for more; its trace ``sum_k p_k (1 - p_k)``, of shares that sum to at most one, is
    1/4, and ``1 - 1/o``.

    Float error: a share is a quotient of exponentials, each within `EXP_ULPS` units, and of their
    sum; exponents' rounding is that of predictions.
    """

    outputs: int

    @property
    def curvature_from_slope(self) -> bool:
        """Whether a slope p comes with the curvature ``p (1 - p)``: of two classes."""
        return self.outputs == 1

    @cached_property
    def bounds(self) -> LossBounds:
        """Bounds as above."""
        outputs, binary = self.outputs, self.outputs == 1
        errors = math.sqrt(outputs) * (2 * EXP_ULPS + outputs + 8) * UNIT_ROUNDOFF
        return LossBounds(
            gradient_entry_bound=1.0,
            slope=1.0 if binary else OUTWARD * math.sqrt(2),
            hessian_entry_bound=0.25,
            curvature=0.25 if binary else 0.5,
            trace=0.25 if binary else 1 - 1 / outputs,
            at_zero=OUTWARD * math.log(outputs + 1),
            derivative_error=errors,
        )

    def labels(self, weights: FloatArray) -> FloatArray:
        """Labels (n,) from record weights: of two classes the second has label 0."""
        return np.where(weights > 0, 0.0, 1.0) if self.outputs == 1 else weights

    def output_weights(self, state: FloatArray) -> FloatArray:
        """Weights of all classes less their mean; of two classes those of the second."""
        if self.outputs == 1:
            return state
        state = np.vstack([state, np.zeros(state.shape[1])])
        return np.asarray(state - state.mean(axis=0))

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L (n,)."""
        chosen = np.where(labels[:, None] == np.arange(self.outputs), predictions, 0.0)
        largest = np.maximum(predictions.max(axis=1), 0.0)
        rest = np.exp(-largest) + np.exp(predictions - largest[:, None]).sum(axis=1)
        return np.asarray(largest + np.log(rest) - chosen.sum(axis=1))

    def probabilities(self, predictions: FloatArray) -> FloatArray:
        """Probabilities p (n, o)."""
        largest = np.maximum(predictions.max(axis=1, keepdims=True), 0.0)
        odds = np.exp(predictions - largest)
        return np.asarray(odds / (np.exp(-largest) + odds.sum(axis=1, keepdims=True)))

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L' (n, o)."""
        is_label = labels[:, None] == np.arange(self.outputs)
        return np.asarray(self.probabilities(predictions) - is_label)

    def second(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L'' (n, o, o): for steps alone, no proof rests on it."""
        del labels
        probabilities = self.probabilities(predictions)
        return np.asarray(
            probabilities[:, :, None] * (np.eye(self.outputs) - probabilities[:, None, :])
        )


_DIFFERENCE_STEP = 2.0**-24


@dataclass(frozen=True)
class OutputwiseLoss:
    """The sum over o outputs of a loss of one prediction: a response, or a class against the rest.

    ``L'`` has an entry an output, each at most the loss's slope. ``L''`` is diagonal where there is
    one, that is almost everywhere, with entries in [0, Λ], Λ the loss's curvature: its trace is at
    most ``o Λ``. Rounding of a residual is part of `derivative_error` of the loss, for each output.
    """

    loss: Loss
    outputs: int = 1
    curvature_from_slope = False

    @cached_property
    def bounds(self) -> LossBounds:
        """Bounds as above."""
        loss, entry = self.loss, self.loss.slope(math.inf)
        root = math.sqrt(self.outputs)
        return LossBounds(
            gradient_entry_bound=entry,
            slope=OUTWARD * root * entry,
            hessian_entry_bound=loss.curvature,
            curvature=loss.curvature,
            trace=self.outputs * loss.curvature,
            at_zero=OUTWARD * self.outputs * loss.at_zero,
            derivative_error=OUTWARD * root * loss.derivative_error,
        )

    def labels(self, weights: FloatArray) -> FloatArray:
        """Labels from record weights: the same."""
        return weights

    def output_weights(self, state: FloatArray) -> FloatArray:
        """Weights of all outputs."""
        return state

    def _targets(self, labels: FloatArray) -> FloatArray:
        return one_vs_rest(labels, self.outputs) if self.outputs > 1 else labels[:, None]

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L (n,)."""
        return np.asarray(self.loss.value(self._targets(labels), predictions).sum(axis=1))

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L' (n, o)."""
        return self.loss.derivative(self._targets(labels), predictions)

    def second(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L'' (n, o, o), by differences: for steps alone, no proof rests on it."""
        above, below = (
            self.derivative(labels, predictions + h) for h in (_DIFFERENCE_STEP, -_DIFFERENCE_STEP)
        )
        return np.asarray(
            ((above - below) / (2 * _DIFFERENCE_STEP))[:, :, None] * np.eye(self.outputs)
        )


@dataclass(frozen=True)
class FloatErrors:
    """Constants of what floats add to a certificate (*Floats* above)."""

    prediction: float
    """``e / w``."""
    curvature_root: float
    """``sqrt(a n Λ / 2)``."""
    summation: float
    """G."""
    farthest: float

    def distance(self, size: float, gradient: float) -> float:
        """Bound the distance to the minimizer of a state of that norm by its gradient's."""
        curved = self.prediction * size * self.curvature_root
        subtracted = 4 * UNIT_ROUNDOFF * (size + self.farthest)
        return OUTWARD * (gradient + curved + (self.summation + subtracted))


@dataclass(frozen=True)
class PerturbedBounds:
    """Bounds of a `PerturbedRisk`, each from those above it."""

    length: float
    """R, of the features of one output."""
    spread: float
    """``|R_j|_2``, of all of b."""
    undisturbed: ProblemBounds
    """Bounds on the objective without b, for the weight ``a n`` of all records."""
    radius: float
    """B: no minimizer is larger, but for b beyond what has probability exp(-64)."""
    largest: float
    """r_max."""
    farthest: float
    """``a (R r + n M R)``: no minimizer that is solved for is larger."""
    floats: FloatErrors
    """What they add to a certificate."""
    tolerance: float
    """Norm of a computed gradient that is small enough: of the size of what floats may add."""
    distance: float
    """gamma: the computed values are this near to ``t(W*)``, for any database and b."""

    @classmethod
    def of(cls, risk: PerturbedRisk) -> PerturbedBounds:
        """Compute the bounds of one risk.

        B: ``J(W*) <= J(0)``, so ``|W*| <= a |b| + sqrt((a |b|)^2 + 2 a n L(0))``.
        """
        loss, outputs, laws = risk.loss.bounds, risk.loss.outputs, risk.laws
        length = OUTWARD * math.hypot(*risk.radii, *(ONE_HOT_VALUE for _ in risk.lists))
        spread = OUTWARD * length * math.sqrt(outputs)
        total = OUTWARD * risk.weight * risk.n
        undisturbed = ProblemBounds.of_losses(
            total, loss.slope, length, loss.at_zero, loss.curvature
        )

        size = outputs * risk.features
        usual = size + math.sqrt(2 * size * _TAIL_EXPONENT) + _TAIL_EXPONENT
        drawn = risk.weight * spread * max(law.scale for law in laws) * usual
        radius = OUTWARD * (2 * drawn + math.sqrt(2 * total * loss.at_zero))
        largest = 2 * radius / risk.weight + risk.n * loss.slope * length
        largest = (
            OUTWARD * largest * (math.sqrt(max(risk.lists)) / ONE_HOT_VALUE if risk.lists else 1.0)
        )
        pulled = total * loss.slope * length
        farthest = OUTWARD * (1.01 * risk.weight * spread * largest + pulled)

        terms = risk.features + 4 + max(4.0, math.sqrt(outputs))
        errors = loss.derivative_error + summation_error(risk.features) * loss.slope
        floats = FloatErrors(
            prediction=terms * UNIT_ROUNDOFF * length,
            curvature_root=math.sqrt(total * loss.curvature / 2),
            summation=1.01 * length * total * errors,
            farthest=farthest,
        )
        tolerance = max(_MIN_TOLERANCE, floats.distance(8 * radius, 0.0))
        digits = risk.weight * spread * max(law.error(1.01 * largest) for law in laws)
        added = 8 * UNIT_ROUNDOFF**2 * farthest * (1 + undisturbed.smoothness)
        truncated = 8 * UNIT_ROUNDOFF * radius  # t, as floats
        distance = 1.01 * (floats.distance(8 * radius, tolerance) + digits + added + truncated)
        return cls(
            length, spread, undisturbed, radius, largest, farthest, floats, tolerance, distance
        )

    @property
    def disturbed(self) -> ProblemBounds:
        """Bounds on the objective with b: `farthest` bounds its gradient at zero; steps round."""
        farthest = self.farthest
        return replace(self.undisturbed, norm=1.1 * farthest, energy=farthest * farthest)


@dataclass(frozen=True)
class PerturbedRisk:
    """One perturbed problem, by public facts only.

    All records together weigh at most `n`. `radii` bound a record's numbers, for one output.
    `weight` is a; `scale` is that of b for numbers, `list_scale` for lists. Each category has as
    many features as `lists` says it has values, of which a record's own is h and the others are 0;
    they come before the numbers.
    """

    loss: Softmax | OutputwiseLoss
    n: int
    radii: tuple[float, ...]
    weight: float
    scale: float
    lists: tuple[int, ...] = ()
    list_scale: float = math.inf

    def __post_init__(self) -> None:
        conditioned = self.bounds.undisturbed.smoothness <= MAX_CONDITION
        largest = MOST_SCALES * min(self.scale, self.list_scale)
        if not (conditioned and self.bounds.largest <= largest):
            raise SpecError(
                "budget.epsilon: too large for so many rows with a perturbed objective. Write "
                'method = "weights" under target'
            )

    @cached_property
    def bounds(self) -> PerturbedBounds:
        """Bounds that hold for every database."""
        return PerturbedBounds.of(self)

    @cached_property
    def laws(self) -> tuple[Perturbation, ...]:
        """Laws of b, for numbers and for lists."""
        numbers = Perturbation(self.radii * self.loss.outputs, self.scale)
        if not self.lists:
            return (numbers,)
        blocks = self.lists * self.loss.outputs
        return numbers, Perturbation((ONE_HOT_VALUE,) * sum(blocks), self.list_scale, blocks)

    def draw_linear_term(self, stream: KeyStream) -> tuple[FloatArray, float]:
        """Draw b (o, p), as the middles of its cells, and the larger of its norms."""
        draws = [law.draw(stream) for law in self.laws]
        parts = [b.reshape(self.loss.outputs, -1) for b, _ in reversed(draws)]
        return np.hstack(parts), max(largest for _, largest in draws)

    @property
    def features(self) -> int:
        """Number p of features of one output."""
        return sum(self.lists) + len(self.radii)

    def truncated(self, state: FloatArray) -> FloatArray:
        """The truncation t of a state."""
        size, radius = float(np.linalg.norm(state)), self.bounds.radius
        return state * max(0.0, min(1.0, 2 * radius / max(size, radius) - 1.0))


class PerturbedObjective(CurvedObjective):
    """The objective of records: states W are (o, p).

    Rows of `features` (n, m + l) have the positions in m lists, and l numbers. `counts` are the
    numbers of equal records that a row stands for, times what each weighs.
    """

    def __init__(
        self,
        risk: PerturbedRisk,
        features: FloatArray,
        labels: FloatArray,
        counts: FloatArray,
        b: FloatArray,
    ) -> None:
        self.risk, self.bounds, self.shape = risk, risk.bounds.disturbed, b.shape
        self._features, self._labels, self._counts, self.b = features, labels, counts, b

    def rows(self, block: slice) -> FloatArray:
        """Features (n, p) of a block of records."""
        lists, rows = self.risk.lists, self._features[block]
        if not lists:
            return rows
        listed = [ONE_HOT_VALUE * (rows[:, [i]] == np.arange(q)) for i, q in enumerate(lists)]
        return np.column_stack([*listed, rows[:, len(lists) :]])

    def value(self, state: FloatArray) -> tuple[float, float]:
        """J, and the size of the terms that cancel in it."""

        def term(block: slice) -> FloatArray:
            values = self.risk.loss.value(self._labels[block], self.rows(block) @ state.T)
            return np.asarray([self._counts[block] @ values])

        losses = float(sum_by_pairs(term, len(self._features))[0]) if len(self._features) else 0.0
        weight, square, linear = self.risk.weight, float((state * state).sum()), self.b * state
        value = weight * (losses + float(linear.sum())) + square / 2
        return value, weight * float(np.abs(linear).sum()) + square

    def pull(self, state: FloatArray) -> FloatArray:
        """Pull of b and of the losses, in blocks of records."""

        def term(block: slice) -> FloatArray:
            features = self.rows(block)
            slopes = self.risk.loss.derivative(self._labels[block], features @ state.T)
            return np.asarray((slopes * self._counts[block, None]).T @ features)

        pulled = sum_by_pairs(term, len(self._features)) if len(self._features) else 0.0
        return np.asarray(-self.risk.weight * (pulled + self.b))

    def certificate(self, state: FloatArray, gradient: FloatArray) -> float:
        """Bound the distance of the truncated states, but for floats of the largest state.

        Where the minimizer, too, is so large that nothing is kept it is 0; of a state that is no
        number it is infinite.
        """
        bounds, size = self.risk.bounds, float(np.linalg.norm(state))
        distance = bounds.floats.distance(size, float(np.linalg.norm(gradient)))
        if not math.isfinite(distance):
            return math.inf
        if OUTWARD * (2 * bounds.radius + distance) <= size:
            return 0.0
        return max(0.0, distance - bounds.floats.distance(8 * bounds.radius, 0.0))

    def newton_step(self, state: FloatArray, gradient: FloatArray) -> FloatArray:
        """Newton's step."""
        step = -np.linalg.solve(self.hessian(state), gradient.ravel())
        return np.asarray(step.reshape(state.shape))

    def hessian(self, state: FloatArray) -> FloatArray:
        """Hessian (o p, o p), in blocks of records: for steps and predictions, no proof uses it."""
        outputs, size = state.shape

        def term(block: slice) -> FloatArray:
            features = self.rows(block)
            second = self.risk.loss.second(self._labels[block], features @ state.T)
            second = np.moveaxis(second * self._counts[block, None, None], 0, -1).copy()
            blocks = [
                [(features * second[i, j, :, None]).T @ features for j in range(i + 1)]
                for i in range(outputs)
            ]
            blocks = [
                [blocks[max(i, j)][min(i, j)] for j in range(outputs)] for i in range(outputs)
            ]
            return np.asarray(np.block(blocks))

        hessian = np.eye(outputs * size)
        if len(self._features):
            hessian += self.risk.weight * sum_by_pairs(term, len(self._features))
        return hessian
