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
(`dbern.erm.risk`), by ``g M``: together ``G = R a n (e_L' + g M)``. The subtractions of the
gradient round by ``U = 4 u (w + a R r + a n M R)``.

*Certificate.* By `dbern.erm.risk` ``|W - W*| <= |rho| + e sqrt(a n Λ)/2 + G + U``, rho the gradient
as computed, Λ the loss's curvature, for a float state W. Whenever that is at most gamma, or proves
``|W*| >= 2 B``, the state is the answer. Newton's steps, halved until the objective or its gradient
falls, are expected to get there; nothing is proved about them. Where they do not, accelerated ones
follow, which get there in exact arithmetic.

*Plain steps* do, on every database: ``W+ = W - eta rho``, ``eta = 1/(1 + beta)``, ``beta = a n R^2
Λ`` up to 2^40. The state is a sum of two floats, so that adding a step rounds by ``8 u^2 |W|`` and
a part u of the step, which takes less than a hundredth of the contraction. With the lemma of
`dbern.erm.risk` states stay within 1.01 of ``e sqrt(a n Λ / 2) + G + U + 8 u^2 |W| (1 + beta)`` of
the exact iteration, which nears ``W*`` by ``1 - eta`` a step from ``|W*| <= a (R r + n M R)``.
Where ``|W*| <= 4 B`` every iterate has norm at most ``8 B``, for which gamma has room; beyond, the
state comes nearer to ``W*`` than half of its norm, so that t of both is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbern.bernstein.kernels import EXP_ULPS, OUTWARD
from dbern.erm.risk import BLOCK, Loss, sum_by_pairs
from dbern.erm.solver import one_vs_rest
from dbern.errors import SpecError
from dbern.privacy.keystream import KeyStream
from dbern.privacy.perturbation import MOST_SCALES, Perturbation
from dbern.types import UNIT_ROUNDOFF, FloatArray

LISTED = 0.375
"""h: a listed value's feature, whose weight is penalized more, so that numbers are less."""

_LEAST_TOLERANCE = 2.0**-26
_NEWTON_STEPS = 100
_ROUNDING = 2.0**-40  # of values, generously
_HALVINGS = 40
_MOST_CONDITION = 2.0**40
_CERTAIN = 64.0  # of b: beyond it with probability exp(-64), where the answer is cut


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
    entry = 1.0
    """Bounds an entry of L'."""
    diagonal = 0.25
    """Bounds a diagonal entry of L''."""

    @property
    def tied(self) -> bool:
        """Whether a slope p comes with the curvature ``p (1 - p)``: of two classes."""
        return self.outputs == 1

    @property
    def single(self) -> Softmax:
        """The loss of one output."""
        return Softmax(1)

    @property
    def slope(self) -> float:
        """Bound ``|L'|``."""
        return 1.0 if self.outputs == 1 else OUTWARD * math.sqrt(2)

    @property
    def curvature(self) -> float:
        """Bound the eigenvalues of L''."""
        return 0.25 if self.outputs == 1 else 0.5

    @property
    def trace(self) -> float:
        """Bound the trace of L''."""
        return 0.25 if self.outputs == 1 else 1 - 1 / self.outputs

    @property
    def at_zero(self) -> float:
        """``log(o + 1)``."""
        return OUTWARD * math.log(self.outputs + 1)

    @property
    def derivative_error(self) -> float:
        """Bound the norm of the float error of a derivative."""
        return math.sqrt(self.outputs) * (2 * EXP_ULPS + self.outputs + 8) * UNIT_ROUNDOFF

    def labels(self, weights: FloatArray) -> FloatArray:
        """Labels (n,) from record weights: of two classes the second has label 0."""
        return np.where(weights > 0, 0.0, 1.0) if self.outputs == 1 else weights

    def whole(self, state: FloatArray) -> FloatArray:
        """Weights of all classes less their mean; of two classes those of the second."""
        if self.outputs == 1:
            return state
        state = np.vstack([state, np.zeros(state.shape[1])])
        return np.asarray(state - state.mean(axis=0))

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L (n,)."""
        own = np.where(labels[:, None] == np.arange(self.outputs), predictions, 0.0).sum(axis=1)
        largest = np.maximum(predictions.max(axis=1), 0.0)
        rest = np.exp(-largest) + np.exp(predictions - largest[:, None]).sum(axis=1)
        return np.asarray(largest + np.log(rest) - own)

    def shares(self, predictions: FloatArray) -> FloatArray:
        """Probabilities p (n, o)."""
        largest = np.maximum(predictions.max(axis=1, keepdims=True), 0.0)
        odds = np.exp(predictions - largest)
        return np.asarray(odds / (np.exp(-largest) + odds.sum(axis=1, keepdims=True)))

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L' (n, o)."""
        ours = labels[:, None] == np.arange(self.outputs)
        return np.asarray(self.shares(predictions) - ours)

    def second(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L'' (n, o, o): for steps alone, no proof rests on it."""
        del labels
        shares = self.shares(predictions)
        return np.asarray(shares[:, :, None] * (np.eye(self.outputs) - shares[:, None, :]))


_NEAR = 2.0**-24


@dataclass(frozen=True)
class Separate:
    """The sum over o outputs of a loss of one prediction: a response, or a class against the rest.

    ``L'`` has an entry an output, each at most the loss's slope. ``L''`` is diagonal where there is
    one, that is almost everywhere, with entries in [0, Λ], Λ the loss's curvature: its trace is at
    most ``o Λ``. Rounding of a residual is part of `derivative_error` of the loss, for each output.
    """

    loss: Loss
    outputs: int = 1
    tied = False

    @property
    def entry(self) -> float:
        """Bound an entry of L'."""
        return self.loss.slope(math.inf)

    @property
    def diagonal(self) -> float:
        """Bound a diagonal entry of L''."""
        return self.loss.curvature

    @property
    def single(self) -> Separate:
        """The loss of one output."""
        return Separate(self.loss)

    @property
    def slope(self) -> float:
        """Bound ``|L'|``."""
        return OUTWARD * math.sqrt(self.outputs) * self.entry

    @property
    def curvature(self) -> float:
        """Bound the eigenvalues of L''."""
        return self.diagonal

    @property
    def trace(self) -> float:
        """Bound the trace of L''."""
        return self.outputs * self.diagonal

    @property
    def at_zero(self) -> float:
        """Bound L at predictions of 0."""
        return OUTWARD * self.outputs * self.loss.at_zero

    @property
    def derivative_error(self) -> float:
        """Bound the norm of the float error of a derivative."""
        return OUTWARD * math.sqrt(self.outputs) * self.loss.derivative_error

    def labels(self, weights: FloatArray) -> FloatArray:
        """Labels from record weights: the same."""
        return weights

    def whole(self, state: FloatArray) -> FloatArray:
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
        above, below = (self.derivative(labels, predictions + h) for h in (_NEAR, -_NEAR))
        return np.asarray(((above - below) / (2 * _NEAR))[:, :, None] * np.eye(self.outputs))


@dataclass(frozen=True)
class PerturbedRisk:
    """One perturbed problem, by public facts only.

    All records together weigh at most `n`. `radii` bound a record's numbers, for one output.
    `weight` is a; `scale` is that of b for numbers, `list_scale` for lists. Each category has as
    many features as `lists` says it has values, of which a record's own is h and the others are 0;
    they come before the numbers.
    """

    loss: Softmax | Separate
    n: int
    radii: tuple[float, ...]
    weight: float
    scale: float
    lists: tuple[int, ...] = ()
    list_scale: float = math.inf

    def __post_init__(self) -> None:
        conditioned = self.smoothness <= _MOST_CONDITION
        if not (conditioned and self.largest <= MOST_SCALES * min(self.scale, self.list_scale)):
            raise SpecError(
                "budget.epsilon: too large for so many rows with a perturbed objective. Write "
                'method = "weights" under target'
            )

    @cached_property
    def laws(self) -> tuple[Perturbation, ...]:
        """Laws of b, for numbers and for lists."""
        numbers = Perturbation(self.radii * self.loss.outputs, self.scale)
        if not self.lists:
            return (numbers,)
        blocks = self.lists * self.loss.outputs
        return numbers, Perturbation((LISTED,) * sum(blocks), self.list_scale, blocks)

    def drawn(self, stream: KeyStream) -> tuple[FloatArray, float]:
        """Draw b (o, p), as the middles of its cells, and the larger of its norms."""
        found = [law.draw(stream) for law in self.laws]
        parts = [b.reshape(self.loss.outputs, -1) for b, _ in reversed(found)]
        return np.hstack(parts), max(largest for _, largest in found)

    @property
    def features(self) -> int:
        """Number p of features of one output."""
        return sum(self.lists) + len(self.radii)

    @cached_property
    def norm(self) -> float:
        """Norm R of the features of one output."""
        return OUTWARD * math.hypot(*self.radii, *(LISTED for _ in self.lists))

    @cached_property
    def spread(self) -> float:
        """``|R_j|_2`` of all of b."""
        return OUTWARD * self.norm * math.sqrt(self.loss.outputs)

    @property
    def total(self) -> float:
        """``a n``."""
        return OUTWARD * self.weight * self.n

    @property
    def undisturbed(self) -> float:
        """Bound ``|W|`` of the minimizer without b, by ``J(W) <= J(0)`` and by its gradient."""
        pulled = self.total * self.loss.slope * self.norm
        return OUTWARD * min(pulled, math.sqrt(2 * self.total * self.loss.at_zero))

    @cached_property
    def radius(self) -> float:
        """B: no minimizer is larger, but for b beyond what has probability exp(-64).

        ``J(W*) <= J(0)``, so ``|W*| <= a |b| + sqrt((a |b|)^2 + 2 a n L(0))``.
        """
        size = self.loss.outputs * self.features
        usual = size + math.sqrt(2 * size * _CERTAIN) + _CERTAIN
        scale = max(law.scale for law in self.laws)
        drawn = self.weight * self.spread * scale * usual
        return OUTWARD * (2 * drawn + math.sqrt(2 * self.total * self.loss.at_zero))

    @cached_property
    def largest(self) -> float:
        """r_max."""
        most = 2 * self.radius / self.weight + self.n * self.loss.slope * self.norm
        return OUTWARD * most * (math.sqrt(max(self.lists)) / LISTED if self.lists else 1.0)

    @cached_property
    def smoothness(self) -> float:
        """beta, the smoothness of the loss part."""
        return OUTWARD * self.total * self.norm**2 * self.loss.curvature

    @cached_property
    def farthest(self) -> float:
        """``a (R r + n M R)``: no minimizer that is solved for is larger."""
        pulled = self.total * self.loss.slope * self.norm
        return OUTWARD * (1.01 * self.weight * self.spread * self.largest + pulled)

    def certified(self, size: float, gradient: float) -> float:
        """Bound the distance to the minimizer of a state of that norm by its gradient's."""
        terms = self.features + 4 + max(4.0, math.sqrt(self.loss.outputs))
        prediction = terms * UNIT_ROUNDOFF * self.norm * size
        curved = prediction * math.sqrt(self.total * self.loss.curvature / 2)
        return OUTWARD * (gradient + curved + self._floats(size))

    def _floats(self, size: float) -> float:
        """Bounds G and U on float errors, together."""
        terms = (BLOCK + 64 + 2 * self.features + 16) * UNIT_ROUNDOFF
        errors = self.loss.derivative_error + terms * self.loss.slope
        subtracted = 4 * UNIT_ROUNDOFF * (size + self.farthest)
        return 1.01 * self.norm * self.total * errors + subtracted

    @cached_property
    def tolerance(self) -> float:
        """Tolerance on the computed gradient: the size of what floats may add."""
        floats = self.certified(8 * self.radius, 0.0)
        return max(_LEAST_TOLERANCE, floats)

    @cached_property
    def distance(self) -> float:
        """gamma: the computed values are this near to ``t(W*)``, for any database and b."""
        unknown = max(law.error(1.01 * self.largest) for law in self.laws)
        digits = self.weight * self.spread * unknown
        added = 8 * UNIT_ROUNDOFF**2 * self.farthest * (1 + self.smoothness)
        kept = 8 * UNIT_ROUNDOFF * self.radius  # t, as floats
        return 1.01 * (self.certified(8 * self.radius, self.tolerance) + digits + added + kept)

    @cached_property
    def most_steps(self) -> int:
        """Plain steps that suffice on every database."""
        times = math.log(2 + self.farthest / self.tolerance)
        return math.ceil(1.01 * (1 + self.smoothness) * times) + 1

    @property
    def accelerated_steps(self) -> int:
        """Steps that suffice in exact arithmetic.

        With L, ``1 + beta``, ``J - J(W*) + |W - W*|^2/2`` is at most ``L |W*|^2`` at first, and
        falls by ``1 - L^(-1/2)`` in each; the gradient is at most 5 L times its root.
        """
        root = math.sqrt(1 + self.smoothness)
        times = math.log(2 + self.farthest / self.tolerance) + 4 * math.log1p(root)
        return math.ceil(2.02 * (1 + root) * times) + 1

    def kept(self, state: FloatArray) -> FloatArray:
        """The truncation t of a state."""
        size = float(np.linalg.norm(state))
        return state * max(0.0, min(1.0, 2 * self.radius / max(size, self.radius) - 1.0))


class PerturbedObjective:
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
        self.risk = risk
        self._features, self._labels, self._counts, self.b = features, labels, counts, b

    def _rows(self, block: slice) -> FloatArray:
        lists, rows = self.risk.lists, self._features[block]
        if not lists:
            return rows
        listed = [LISTED * (rows[:, [i]] == np.arange(q)) for i, q in enumerate(lists)]
        return np.column_stack([*listed, rows[:, len(lists) :]])

    def value(self, state: FloatArray) -> float:
        """J."""

        def term(block: slice) -> FloatArray:
            values = self.risk.loss.value(self._labels[block], self._rows(block) @ state.T)
            return np.asarray([self._counts[block] @ values])

        losses = float(sum_by_pairs(term, len(self._features))[0]) if len(self._features) else 0.0
        return self.risk.weight * (losses + float((self.b * state).sum())) + float(
            (state * state).sum() / 2
        )

    def spread(self, state: FloatArray) -> float:
        """Size of the terms that cancel in J."""
        linear = float(np.abs(self.b * state).sum())
        return self.risk.weight * linear + float((state * state).sum())

    def gradient(self, state: FloatArray) -> FloatArray:
        """Gradient rho, in blocks of records."""

        def term(block: slice) -> FloatArray:
            features = self._rows(block)
            slopes = self.risk.loss.derivative(self._labels[block], features @ state.T)
            return np.asarray((slopes * self._counts[block, None]).T @ features)

        pulled = sum_by_pairs(term, len(self._features)) if len(self._features) else 0.0
        return np.asarray(state + self.risk.weight * (pulled + self.b))

    def step(self, state: FloatArray, gradient: FloatArray) -> FloatArray:
        """Newton's step."""
        outputs, size = state.shape

        def term(block: slice) -> FloatArray:
            features = self._rows(block)
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
        return np.asarray(-np.linalg.solve(hessian, gradient.ravel()).reshape(state.shape))


def minimized(problem: PerturbedObjective) -> FloatArray:
    """A state whose `PerturbedRisk.kept` is within gamma of the minimizer's."""
    found = _newton(problem, np.zeros_like(problem.b), _NEWTON_STEPS)
    found = _accelerated(problem) if found is None else found
    return _plain(problem) if found is None else found


def _is_near(problem: PerturbedObjective, state: FloatArray, gradient: FloatArray) -> bool:
    risk, size = problem.risk, float(np.linalg.norm(state))
    distance = risk.certified(size, float(np.linalg.norm(gradient)))
    limit = risk.certified(8 * risk.radius, risk.tolerance)
    return distance <= limit or OUTWARD * (2 * risk.radius + distance) <= size


def _newton(problem: PerturbedObjective, state: FloatArray, steps: int) -> FloatArray | None:
    """Newton's steps to a certificate, or None where floats keep them from one."""
    gradient, value = problem.gradient(state), problem.value(state)
    for _ in range(steps):
        if _is_near(problem, state, gradient):
            return state
        step, share = problem.step(state, gradient), 1.0
        along, size = float((gradient * step).sum()), float(np.linalg.norm(gradient))
        for _ in range(_HALVINGS):
            tried = state + share * step
            found, slope = problem.value(tried), problem.gradient(tried)
            if found <= value + 1e-4 * share * along:
                break
            # Where values differ by their rounding alone, gradients tell; elsewhere steps that make
            # the gradient smaller and the value larger could go round in circles.
            rounding = _ROUNDING * (abs(value) + abs(found) + problem.spread(tried))
            smaller = float(np.linalg.norm(slope)) <= (1 - share / 4) * size
            if smaller and share * abs(along) <= rounding:
                break
            share /= 2
        else:
            return None
        state, gradient, value = tried, slope, found
    return state if _is_near(problem, state, gradient) else None


def _accelerated(problem: PerturbedObjective) -> FloatArray | None:
    """Nesterov's steps to a certificate, or None where floats keep them from one."""
    risk = problem.risk
    root = math.sqrt(1 + risk.smoothness)
    momentum = (root - 1) / (root + 1)
    state = leading = np.zeros_like(problem.b)
    for _ in range(risk.accelerated_steps):
        gradient = problem.gradient(leading)
        if _is_near(problem, leading, gradient):
            return leading
        before, state = state, leading - gradient / root**2
        leading = state + momentum * (state - before)
    return None


def _plain(problem: PerturbedObjective) -> FloatArray:
    """A state after as many steps as are proved to suffice, each state a sum of two floats."""
    risk = problem.risk
    eta = 1 / (1 + risk.smoothness) / OUTWARD
    state = np.zeros_like(problem.b)
    rest = np.zeros_like(state)
    for _ in range(risk.most_steps):
        gradient = problem.gradient(state) + rest
        if _is_near(problem, state, gradient):
            break
        step = rest - eta * gradient
        whole = state + step
        added = whole - state
        rest = (state - (whole - added)) + (step - added)
        state = whole
    return state
