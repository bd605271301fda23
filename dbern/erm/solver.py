"""Minimize a strongly convex objective to a proved distance from its minimizer.

An objective is ``J(w) = P(w) + |w|^2 / 2``, P convex and its gradient beta-Lipschitz. The solver
sees its *pull* ``-grad P(w)``, so that ``grad J(w) = w - pull(w)``. All steps start at zero.

*Certificate.* J is 1-strongly convex, so ``|w - w*| <= |grad J(w)|``: whenever the gradient's norm
is at most the tolerance, the state is the answer. What floats add is proved of each objective
(`dbern.erm.float_errors`, `dbern.erm.objective`).

*Newton's steps* come first where an objective has them, halved until its value or its gradient
falls. They are expected to get there; nothing is proved about them.

*Accelerated steps* follow where they are expected to be fewer than plain ones. With ``q = 1 +
beta`` (J is q-smooth), ``theta = q^(-1/2)``: ``y = (x + theta z)/(1 + theta)``, ``g = grad J(y)``,
``x+ = y - g/q``, ``z+ = (1 - theta) z + theta (y - g)``. Lemma: ``E = J(x) - J* + |z - w*|^2/2``
satisfies ``E+ <= (1 - theta) E``. Proof. ``J(x+) <= J(y) - |g|^2/(2q)``. With
``p = (1-theta)(z - w*) + theta (y - w*)``, ``|z+ - w*|^2/2 = |p|^2/2 - theta <g, p> +
|g|^2/(2q)``, and ``|p|^2 <= (1-theta)|z - w*|^2 + theta |y - w*|^2``. From
``theta (z - w*) = (y - x) + theta (y - w*)``, ``theta <g, p> = (1-theta) <g, y - x> +
theta <g, y - w*>``, at least ``(1-theta)(J(y) - J(x)) + theta (J(y) - J* + |y - w*|^2/2)`` by
convexity and strong convexity. Adding up leaves ``(1-theta)(J(x) - J*) +
(1-theta)|z - w*|^2/2``. As ``|y - w*| <= sqrt(2 E)``, ``|grad J(y)| <= q sqrt(2 E)`` falls below
the tolerance; if floats keep it from that, plain steps follow.

*Plain steps* ``w - eta grad J(w)``, ``eta = 1/(1 + beta)``, are the proof for every database:
``(1 - eta)^T |w*|`` is at most the tolerance after a number of steps known in advance, certified on
the way or not. There is no cap below it. The state is a sum of two floats, so that adding a step
rounds by ``8 u^2 |w|`` and 3 parts u of the step, ``u = 2^-53``. Lemma (contraction). ``T(w) = w -
eta grad J(w)`` with ``0 < eta <= 2/(2 + beta)`` satisfies ``|T(w) - T(w')| <= (1 - eta) |w -
w'|``. Proof. With ``d = w - w'``, ``p = grad P(w) - grad P(w')`` and cocoercivity ``<p, d> >=
|p|^2 / beta``: ``|(1-eta) d - eta p|^2 <= (1-eta)^2 |d|^2 + (eta^2 - 2 eta (1-eta)/beta) |p|^2``,
and the bracket is at most 0 for ``eta (2 + beta) <= 2``. (Half of that longest step leaves room for
the errors of floats.)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.types import FloatArray

_CHECK_EVERY = 8  # steps, where a certificate that costs a step is worth it
_NEWTON_STEPS = 100
_HALVINGS = 40
_ROUNDING = 2.0**-40  # of values, generously


@dataclass(frozen=True)
class ProblemBounds:
    """Bounds on an objective, from which the numbers of steps follow.

    `norm` bounds ``|w*|``, `energy` ``J(0) - J* + |w*|^2/2``; `smoothness` is beta.
    """

    norm: float
    energy: float
    smoothness: float

    @classmethod
    def of_losses(
        cls, total: float, slope: float, length: float, at_zero: float, curvature: float
    ) -> ProblemBounds:
        """Bounds for losses of weight `total` in all, of features up to `length`.

        ``|w*|`` is at most what they pull; and ``|w*|^2 / 2 <= J(w*) <= J(0)``, a loss being at
        most `at_zero` there. ``J(0) - J* <= |grad J(0)|^2 / 2`` and ``|w*| <= |grad J(0)|`` by
        strong convexity; and ``J* >= |w*|^2 / 2``.
        """
        pulled = total * slope * length
        norm = OUTWARD * min(pulled, math.sqrt(2 * total * at_zero))
        energy = min(total * at_zero, pulled * pulled)
        return cls(norm, energy, OUTWARD * total * length**2 * curvature)


class Objective(ABC):
    """An objective as the solver sees it; its columns may be minimizers of their own."""

    bounds: ProblemBounds
    shape: tuple[int, int]
    """Of a state; w = 0 is zeros."""

    @abstractmethod
    def pull(self, state: FloatArray) -> FloatArray:
        """``-grad P``."""

    @abstractmethod
    def certificate(self, state: FloatArray, gradient: FloatArray) -> float:
        """Bound the distance to the minimizer, but for what floats may add, by the gradient."""

    def exact_certificate(self, state: FloatArray, gradient: FloatArray) -> float:
        """Bound it more sharply, for about what a step costs."""
        return self.certificate(state, gradient)


class CurvedObjective(Objective):
    """An objective with Newton's steps."""

    @abstractmethod
    def value(self, state: FloatArray) -> tuple[float, float]:
        """J, and the size of the terms that cancel in it."""

    @abstractmethod
    def newton_step(self, state: FloatArray, gradient: FloatArray) -> FloatArray:
        """Newton's step."""


@dataclass(frozen=True)
class Certified:
    """A state, and a bound on its distance from the minimizer but for what floats may add."""

    state: FloatArray
    distance: float


def minimize(objective: Objective, tolerance: float) -> Certified:
    """Find a state that is proved to be within the tolerance of the minimizer, but for floats.

    Where the certificate of the last of all plain steps is larger, the constants that an objective
    states are not its own, or floats hide what was proved. Raises ValueError for a tolerance that
    is not positive.
    """
    if not tolerance > 0:
        raise ValueError("the tolerance must be positive")
    plain, accelerated = count_steps(objective.bounds, tolerance)
    certified = None
    if isinstance(objective, CurvedObjective):
        certified = _by_newton(objective, tolerance)
    if certified is None and accelerated < plain:
        certified = _by_acceleration(objective, tolerance, accelerated)
    return certified or _by_plain_steps(objective, tolerance, plain)


def count_steps(bounds: ProblemBounds, tolerance: float) -> tuple[int, int]:
    """Return the numbers of plain steps that suffice, and of accelerated ones without rounding."""
    rate = -math.log1p(-1 / (1 + bounds.smoothness) / OUTWARD)
    plain = _steps_until(bounds.norm, tolerance, rate)
    theta = _momentum(bounds)
    # Half of the tolerance, as the computed norm is a bound; then up to the next exact check.
    start = 2 * math.sqrt(2 * bounds.energy) / theta**2
    accelerated = _steps_until(start, tolerance, -0.5 * math.log1p(-theta))
    return plain, _CHECK_EVERY + accelerated


def _steps_until(start: float, end: float, rate: float) -> int:
    if start <= end:
        return 0
    return math.ceil(OUTWARD * math.log(start / end) / rate) + 1


def _momentum(bounds: ProblemBounds) -> float:
    """theta; J is smoother than ``1/theta^2``, which is all that the proof needs."""
    return 1 / math.sqrt(1 + bounds.smoothness) / OUTWARD


def _certify(
    objective: Objective, state: FloatArray, gradient: FloatArray, tolerance: float, count: int = 0
) -> Certified | None:
    exact = count % _CHECK_EVERY == _CHECK_EVERY - 1
    bound = objective.exact_certificate if exact else objective.certificate
    distance = bound(state, gradient)
    return Certified(state, distance) if distance <= tolerance else None


def _by_newton(objective: CurvedObjective, tolerance: float) -> Certified | None:
    state = np.zeros(objective.shape)
    gradient, value = state - objective.pull(state), objective.value(state)[0]
    for _ in range(_NEWTON_STEPS):
        if certified := _certify(objective, state, gradient, tolerance):
            return certified
        step, fraction = objective.newton_step(state, gradient), 1.0
        descent, size = float((gradient * step).sum()), float(np.linalg.norm(gradient))
        for _ in range(_HALVINGS):
            moved = state + fraction * step
            moved_gradient = moved - objective.pull(moved)
            moved_value, terms = objective.value(moved)
            if moved_value <= value + 1e-4 * fraction * descent:
                break
            # Where values differ by their rounding alone, gradients tell; elsewhere steps that make
            # the gradient smaller and the value larger could go round in circles.
            rounding = _ROUNDING * (abs(value) + abs(moved_value) + terms)
            smaller = float(np.linalg.norm(moved_gradient)) <= (1 - fraction / 4) * size
            if smaller and fraction * abs(descent) <= rounding:
                break
            fraction /= 2
        else:
            return None
        state, gradient, value = moved, moved_gradient, moved_value
    return None


def _by_acceleration(objective: Objective, tolerance: float, steps: int) -> Certified | None:
    theta = _momentum(objective.bounds)
    state = leading = np.zeros(objective.shape)
    for count in range(steps):
        point = _mix(state, leading, theta / (1 + theta))
        pull = objective.pull(point)
        if certified := _certify(objective, point, point - pull, tolerance, count):
            return certified
        # grad J(y) = y - pull, so both updates are averages with the pull.
        state = _mix(point, pull, theta**2)
        leading = _mix(leading, pull, theta)
    return None


def _mix(first: FloatArray, second: FloatArray, weight: float) -> FloatArray:
    return np.asarray((1 - weight) * first + weight * second)


def _by_plain_steps(objective: Objective, tolerance: float, steps: int) -> Certified:
    """Return the first certified state, or the one after all steps; a state is two floats."""
    eta = 1 / (1 + objective.bounds.smoothness) / OUTWARD
    state = rest = np.zeros(objective.shape)
    for count in range(steps):
        gradient = state - objective.pull(state) + rest
        if certified := _certify(objective, state, gradient, tolerance, count):
            return certified
        step = rest - eta * gradient
        total = state + step
        added = total - state
        rest = (state - (total - added)) + (step - added)
        state = total
    gradient = state - objective.pull(state) + rest
    return Certified(state, objective.exact_certificate(state, gradient))
