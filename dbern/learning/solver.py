"""Gradient methods from zero, whose output is within a stated distance of the minimizer.

Write ``J = P + |w|^2/2`` for a shard's objective, c for its total weight: P is convex, its gradient
Lipschitz with ``beta = c kappa^2 curvature``. Steps are ``w - eta grad J(w)`` with
``eta = 1/(1 + beta)``; float errors are those of `dbern.learning.rounding`.

Lemma (contraction). ``T(w) = w - eta grad J(w)`` with ``0 < eta <= 2/(2 + beta)`` satisfies
``|T(w) - T(w')| <= (1 - eta) |w - w'|``. Proof. With ``d = w - w'``, ``p = grad P(w) - grad P(w')``
and cocoercivity ``<p, d> >= |p|^2 / beta``: ``|(1-eta) d - eta p|^2 <= (1-eta)^2 |d|^2 +
(eta^2 - 2 eta (1-eta)/beta) |p|^2``, and the bracket is at most 0 for ``eta (2 + beta) <= 2``.
(Half of that longest step leaves room for the errors of floats.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.kernels import OUTWARD
from dbern.errors import SpecError
from dbern.learning.model import Model
from dbern.learning.objective import Objective, objective
from dbern.learning.risk import Risk
from dbern.learning.rounding import mean_state_error, state_error

_CHECK_EVERY = 8


@dataclass(frozen=True)
class Certified:
    """Steps fitted to each shard's own weight, to a proved distance from its minimizer.

    Sensitivity is that of the minimizers, r, plus twice the distance. The number of steps may
    depend on the shard (its size is private; time is not part of the guarantee) because the
    distance is reached on every database: there is no cap below the proved worst case.

    *Certificate.* J is 1-strongly convex, so ``|w - w*| <= |grad J(w)|``: whenever the gradient's
    norm is at most the tolerance, the state is the answer, float error as in `rounding`.

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

    Parameters
    ----------
    tolerance : float
        Distance allowed to the iteration; floats add theirs. `for_sensitivity` chooses it.
    observed : bool
        Whether the last state is looked at too: where the number of steps rests on what somebody
        states of a loss, it need not be enough.

    Raises
    ------
    SpecError
        For a tolerance that is not positive; from `run`, where the last state is looked at and not
        within the tolerance.

    Examples
    --------
    >>> Certified(1e-9).tolerance
    1e-09
    """

    tolerance: float
    observed: bool = False

    def __post_init__(self) -> None:
        if not self.tolerance > 0:
            raise SpecError("target.gap: must be positive; write gap = 1e-9")

    @classmethod
    def for_sensitivity(cls, risk: Risk, share: float = 2.0**-8) -> Certified:
        """The tolerance that adds that share of r to r."""
        return cls(share * risk.sensitivity / 2)

    def run(self, problem: Objective) -> FloatArray:
        """A state within the tolerance and the float error of the shard's minimizer."""
        risk, total = problem.risk, problem.total
        plain = _plain_steps(risk, total, self.tolerance)
        accelerated = self._accelerated_steps(risk, total)
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
                self._look(problem, state)
        return state

    def _look(self, problem: Objective, state: FloatArray) -> None:
        floats = state_error(problem.risk, problem.total)
        if not problem.distance(state, problem.pull(state), True) <= self.tolerance + floats:
            raise SpecError(
                "target.loss: did not converge, so it is not what is stated of it: convex, "
                "Lipschitz and as smooth; write larger constants, or a loss that is"
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

    def instability(self, risk: Risk) -> float:
        """Twice the distance."""
        return 2 * self.distance(risk)

    def distance(self, risk: Risk) -> float:
        """The tolerance and the float error, in the mean over shards."""
        return self.tolerance + mean_state_error(risk)

    def most_steps(self, risk: Risk) -> int:
        """Steps on a shard that holds every row, after accelerated steps that failed."""
        return self._most(risk, risk.most_weight)

    def expected_steps(self, risk: Risk) -> int:
        """Proved steps on a shard of average weight, floats aside: what to plan time with."""
        total = risk.most_weight / risk.shards
        return min(_plain_steps(risk, total, self.tolerance), self._accelerated_steps(risk, total))

    def _most(self, risk: Risk, total: float) -> int:
        plain = _plain_steps(risk, total, self.tolerance)
        accelerated = self._accelerated_steps(risk, total)
        return plain + (accelerated if accelerated < plain else 0)

    def _accelerated_steps(self, risk: Risk, total: float) -> int:
        energy = min(total * risk.loss.at_zero, (total * risk.slope * risk.kappa) ** 2)
        momentum = _momentum(risk, total)
        # Half of the tolerance, as the computed norm is a bound; then up to the next exact check.
        start = 2 * math.sqrt(2 * energy) / momentum**2
        return _CHECK_EVERY + _steps_until(start, self.tolerance, -0.5 * math.log1p(-momentum))


def solve(risk: Risk, method: Certified, points: FloatArray, labels: FloatArray) -> Model:
    """Fit one shard.

    Parameters
    ----------
    risk : Risk
    method : Certified
    points : array (n_s, l)
        The shard's records, within the risk's radius; the null record left out.
    labels : array (n_s,) or (n_s, q)
        One column a model; signs for classification (`one_vs_rest`).

    Returns
    -------
    Model
        With a Gram matrix the same, bit for bit on one machine, for any order of the records.

    Examples
    --------
    >>> from dbern.bernstein.reproducing import Gaussian
    >>> from dbern.learning.losses import Logistic
    >>> risk = Risk(Logistic(), Gaussian((0.5,)), cost=1.0, n=4, radius=1.0, dimensions=1)
    >>> x = np.array([[0.1], [0.2], [0.8], [0.9]])
    >>> model = solve(risk, Certified(1e-10), x, np.array([-1.0, -1, 1, 1]))
    >>> model(np.array([[0.0], [1.0]])).round(3).ravel()
    array([-0.166,  0.166])
    """
    problem = objective(risk, points, labels)
    return problem.model(method.run(problem))


def one_vs_rest(classes: FloatArray, count: int) -> FloatArray:
    """Labels (n, count): 1 in the column of the record's class (0 to count - 1), -1 elsewhere.

    Examples
    --------
    >>> one_vs_rest(np.array([2.0, 0.0]), 3)
    array([[-1., -1.,  1.],
           [ 1., -1., -1.]])
    """
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
