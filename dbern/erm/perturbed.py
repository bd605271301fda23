"""Linear functions by a perturbed objective, as a statistic: one solve of all records.

Features of a record are ``2 y - 1`` of its unit-cube position y, in [-1, 1] exactly (doubling
is exact, and a subtraction rounds monotonically), and a constant k. A record's gradient has entries
in ``[-M R_j, M R_j]``, ``R = (1, .., 1, k)``, M the slope of the loss (1, but of Huber's the
threshold): one that is replaced moves the gradient of all by 2 M at most in the norm of
`dbern.privacy.perturbation`, the missing record included.

A category has a feature for each listed value, h for a record's own and 0 for the others: a block
of that module. A record with a value that is not listed is a missing record. Numbers and lists have
a part of b each: a record moves either by 2 M in its norm, so the sum of ``2 M / scale`` is what is
spent. In one norm for both the noise of a number would grow with how many values are listed.

A unit of u rows moves it by u times as much, and u records' Hessians have at most ``r = min(u,
p) o`` eigenvalues, p features, which sum to ``u t R^2``: `dbern.privacy.perturbation` with these.

*Tied.* Of the logistic loss of two classes slope and curvature are tied, and b gets all that
`dbern.privacy.perturbation` leaves it beside the penalty: never less than the rest of epsilon.

*Numbers and lists.* To second order noise costs the sum, over features, of its variance over the
feature's own. By the law of b that is ``2 m D (D + 1) s'^2`` for m lists of D values that are as
frequent, and ``d (d + 1) (d + 2) s^2 / (3 v)`` for d numbers of variance v, which is taken to be
between an eighth of their bounds and a fortieth. The parts that make the sum least are in
proportion to the third roots (`categorical_fraction`).

*Private rows.* Where the number of rows is private floats need a bound on what they weigh: m, which
is `MAX_WEIGHT_RATIO` times the normalizer. Of c rows each weighs ``g(c) = (4 m - 1 - c)/(4 m - 2)``
while c is below ``2 m``, and ``m/c`` from ``2 m - 1`` on, so that all together weigh m at most; as
many as the normalizer weigh a sixteenth less than they would. A row more changes all weights
together by ``c (g(c) - g(c+1)) + g(c+1)``: by ``c/(4 m - 2) + g(c+1) = 1`` below ``2 m - 1``, and
by ``2 m/(c + 1) <= 1`` from there on; u rows, one after another, by u at most. And ``g(c)/g(c+1) <=
1 + 1/(2 m - 1)``. So `dbern.privacy.perturbation` (*Added*) says what a unit costs that is added or
removed: half of what b costs for one that is replaced, and ``u p o ln(1 + 1/(2 m - 1))``, which is
kept from epsilon (`_row_weights_charge`). One that is replaced is removed, and another added: it
costs what it does beside a public number of rows, and that. Weights as floats are two roundings
off, for which the bound on a sum (`PerturbedRisk`) has room: it counts 16 more than there are.

``W*`` is solved for in the process that releases, which alone has the key of b; the records' exact
digest makes that key, so that every database has a b of its own. What is kept of it
(`dbern.erm.objective`), in steps of ``2^-s``, is within ``gamma + step`` of a function of ``W*``.

*Bounded work.* Plain steps are as many as the objective's condition beta, and accelerated ones its
root. So no penalty is lighter than what makes beta `MAX_SMOOTHNESS`, whatever n and epsilon are:
the minimizer is moved by a millionth of the loss's largest curvature, over what it has.

*Release.* Weights of the unit cube's axes and of a constant 1: with v an output's row, ``2 v`` and
``k v_0 - sum v``, a linear map of norm at most ``T = sqrt(4 + l + k^2)``: the square of its value
is ``4 sum v_j^2 + (k v_0 - sum v_j)^2``; a listed value's is ``h v``. With a response all are times
its half range, and T too. Of a multinomial model the last class has row zero, and the mean over all
classes is taken off each: a projection. So two databases with the same ``W*`` have weights within
``2 T (gamma + step)`` in the Euclidean norm, which is what the noise that is added is for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.data.domain import FeatureShape
from dbern.erm.losses import Logistic
from dbern.erm.objective import (
    ONE_HOT_VALUE,
    OutputwiseLoss,
    PerturbedObjective,
    PerturbedRisk,
    Softmax,
)
from dbern.erm.solutions import MAX_BITS
from dbern.erm.solver import count_steps, minimize
from dbern.erm.spaces import CubeFeatures
from dbern.erm.statistics import LinearFunctions
from dbern.errors import SpecError
from dbern.measure.accumulator import Errors, Memory
from dbern.measure.gathered import GatheredAccumulator
from dbern.measure.statistic import Statistic
from dbern.privacy.keystream import KeyStream, subkey
from dbern.privacy.perturbation import STREAM_LABEL, Perturbation, penalty_weight, tied_charge
from dbern.reconstruct.base import AnyStrategy, SensitivityBound, Slab, VectorStrategy
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

CONSTANT_FEATURE = 1.5
"""k: a penalty on the intercept that is 2.25 times lighter, for features that are longer."""

OUTPUT_FRACTION = Fraction(1, 128)
"""Of the budget: what is spent on the distance of what is computed from the minimizer."""

_TYPICAL_VARIANCE = 0.25 * 0.05
"""Product of the deviations of typical and of narrow numbers in [-1, 1]."""

MAX_WEIGHT_RATIO = 4
"""Of the normalizer: what all rows weigh together at most where their number is private."""
_ROW_COPIES = 6  # of the rows: gathered, sorted, split, features, labels and slopes
_TAIL_PROBABILITY = 1e-9  # of b, in the certificate
_REPLACED_MOVE = 2.0
_SMALL_NORMALIZER = (
    "data.normalizer: too small beside budget.epsilon for a perturbed objective. Write a larger "
    "normalizer, or a larger epsilon"
)
MAX_SMOOTHNESS = 2.0**20
_MAX_WEIGHT, _MIN_SCALE = 2.0**10, 2.0**-4  # no penalty or noise that matters is smaller


def _max_total_weight(model: LinearFunctions, n: int) -> int:
    return MAX_WEIGHT_RATIO * n if model.protection.private_rows else n


def _row_weight(rows: float, m: int) -> float:
    """Weight g of one row of `rows`, so that they sum to at most m (*Private rows* above)."""
    return (4 * m - 1 - rows) / (4 * m - 2) if rows < 2 * m else m / rows


def _row_weights_charge(rows: int, numbers: int, m: int) -> Fraction:
    """Bound ``u p o ln(1 + 1/(2 m - 1))``, the cost of other rows' weights (*Private rows*)."""
    return Fraction(rows * numbers, 2 * m - 1)


def categorical_noise(lists: tuple[int, ...]) -> int:
    """Cost of noise in lists, to second order, in squared scales of b (*Numbers and lists*)."""
    return 2 * len(lists) * sum(lists) * (sum(lists) + 1)


def categorical_fraction(numbers: int, lists: tuple[int, ...]) -> Fraction:
    """Fraction of the cost of b that is spent on lists (*Numbers and lists* above)."""
    if not lists:
        return Fraction(0)
    d = numbers + 1
    ratio = d * (d + 1) * (d + 2) / 3 / _TYPICAL_VARIANCE / categorical_noise(lists)
    return Fraction(min(63, max(1, round(64 / (1 + ratio ** (1 / 3))))), 64)  # numbers keep a part


def loss_of(model: LinearFunctions) -> Softmax | OutputwiseLoss:
    """The loss of all outputs, responses and their units over their radius."""
    if model.loss == Logistic():
        return Softmax(max(1, model.num_models - 1))
    return OutputwiseLoss(model.loss.scaled(model.radius), model.num_models)


@dataclass(frozen=True)
class PerturbedFunctions(Statistic):
    """Weights of linear functions, by a perturbed objective.

    b spends `objective_fraction` of the budget, and `output_fraction` pays for the noise that is
    added at the end. Responses are in [-1, 1] here: the released weights are `radius` times the
    solved ones.
    """

    model: LinearFunctions
    risk: PerturbedRisk
    objective_fraction: Fraction = Fraction(0)
    radius: float = 1.0
    output_fraction: Fraction = field(default=OUTPUT_FRACTION, kw_only=True)

    @classmethod
    def of(
        cls, model: LinearFunctions, n: int, weight: float, *scales: float
    ) -> PerturbedFunctions:
        """The functions for n records and the constants that a plan has resolved."""
        radii = (1.0,) * len(model.domain.numeric) + (CONSTANT_FEATURE,)
        loss, radius = loss_of(model), model.radius
        space = CubeFeatures(model.space.dimensions, model.space.kernel)
        model = replace(model, space=space, n=n, shards=1, radius=1.0)
        lists, scale, *list_scale = model.domain.blocks, *scales
        risk = PerturbedRisk(
            loss, _max_total_weight(model, n), radii, weight, scale, lists, *list_scale
        )
        return cls(model, risk, radius=radius, name=model.name, domain=model.domain)

    @classmethod
    def of_params(
        cls, model: LinearFunctions, n: int, params: Mapping[str, Any]
    ) -> PerturbedFunctions:
        """Read the functions that a plan has resolved."""
        scales = [params[name] for name in ("scale", "list_scale") if name in params]
        return cls.of(model, n, params["weight"], *scales)

    @classmethod
    def for_budget(
        cls, model: LinearFunctions, n: int, epsilon: Fraction, determinant: Fraction
    ) -> PerturbedFunctions:
        """The functions for an epsilon; the fraction `determinant` pays for the Jacobian."""
        loss, domain = loss_of(model), model.domain
        one_hot = len(domain.categorical) * ONE_HOT_VALUE**2
        square = len(domain.numeric) + CONSTANT_FEATURE**2 + one_hot
        rows = model.protection.unit.max_contributions
        trace, rank = rows * loss.bounds.trace, min(rows, model.space.dimensions + 1) * loss.outputs
        weight = penalty_weight(epsilon * determinant, trace, rank, square)
        max_weight, protection = _max_total_weight(model, n), model.protection
        weight = min(
            weight, _MAX_WEIGHT, MAX_SMOOTHNESS / (max_weight * square * loss.bounds.curvature)
        )
        charge = epsilon * (1 - OUTPUT_FRACTION)
        if protection.private_rows:
            num_weights = (model.space.dimensions + 1) * loss.outputs
            charge -= _row_weights_charge(rows, num_weights, max_weight)
        left = (charge - epsilon * determinant) * (2 if protection.added else 1)
        if loss.curvature_from_slope:
            left = tied_charge(charge, weight, rows, rank, square, protection.added)
        if left <= 0:
            raise SpecError(_SMALL_NORMALIZER)
        listed = categorical_fraction(len(domain.numeric), domain.blocks)
        parts = [left * (1 - listed), left * listed] if domain.categorical else [left]
        moved = _REPLACED_MOVE * loss.bounds.gradient_entry_bound
        laws = [Perturbation.for_budget((), rows * moved, part) for part in parts]
        scales = [max(law.scale, _MIN_SCALE) for law in laws]
        return replace(cls.of(model, n, weight, *scales), objective_fraction=1 - OUTPUT_FRACTION)

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the weights."""
        return self.model.entries

    @property
    def features(self) -> FeatureShape:
        """Axes and constant of the functions."""
        return self.model.features

    @property
    def extent(self) -> tuple[float, float]:
        """Bounds of a value."""
        bounds = self.risk.bounds
        highest = OUTWARD * self.radius * bounds.length * bounds.undisturbed.norm
        return -highest, highest

    @property
    def function_sensitivity(self) -> float:
        """n times a function's sensitivity."""
        return OUTWARD * math.sqrt(self.risk.features) * self._moved

    def params(self, strategy: AnyStrategy, n: int, tolerance: float) -> dict[str, Any]:
        """Constants of the law and of the objective."""
        del strategy, n, tolerance
        listed = {"list_scale": self.risk.list_scale} if self.risk.lists else {}
        return {"weight": self.risk.weight, "scale": self.risk.scale, **listed}

    def from_params(
        self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]
    ) -> PerturbedAccumulator:
        """Solve for all records at once: the constants are here already."""
        del n, params
        return PerturbedAccumulator(self, cast("VectorStrategy", strategy))

    def released(self, solved: FloatArray) -> FloatArray:
        """Weights of listed values, the unit cube's axes and the constant, by output."""
        solved = self.risk.loss.output_weights(solved)
        listed, numbers, constants = np.split(solved, [sum(self.risk.lists), -1], axis=1)
        constants = CONSTANT_FEATURE * constants[:, 0] - numbers.sum(axis=1)
        return self.radius * np.column_stack([ONE_HOT_VALUE * listed, 2.0 * numbers, constants])

    @property
    def size(self) -> int:
        """Number of released numbers."""
        return self.model.num_models * self.risk.features

    @property
    def gain(self) -> float:
        """Norm T of the map to released weights."""
        return OUTWARD * self.radius * math.sqrt(4 + sum(r * r for r in self.risk.radii))

    @property
    def bits(self) -> int:
        """Fixed-point bits s; the truncated state has norm B at most."""
        return min(MAX_BITS, 61 - math.frexp(self.risk.bounds.radius)[1])

    @property
    def step(self) -> float:
        """Bound on the norm of the change by fixed point."""
        numbers = self.risk.loss.outputs * self.risk.features
        return OUTWARD * math.ldexp(0.5, -self.bits) * math.sqrt(numbers)

    @property
    def _moved(self) -> float:
        """n times the distance of two databases with one minimizer, in the Euclidean norm."""
        return OUTWARD * 2 * self.model.n * self.gain * (self.risk.bounds.distance + self.step)

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> SensitivityBound:
        """Bound the distance of two databases with the same minimizer (*Release* above)."""
        del strategy
        times = math.sqrt(self.size) if norm == 1 else 1.0
        text = f"2 sqrt({self.size}) T gamma" if norm == 1 else "2 T gamma"
        return SensitivityBound(
            OUTWARD * times * self._moved, f"{text}, given the perturbed minimizer"
        )


@dataclass(frozen=True)
class PerturbedAccumulator(GatheredAccumulator):
    """All records, gathered and solved for at once; the state is the solution in fixed point.

    `secret` of the release's key derives that of b; a plan has none and solves nothing.
    """

    functions: PerturbedFunctions
    strategy: VectorStrategy
    secret: bytes = field(default=b"", repr=False, compare=False)

    keyed = True
    solves_empty = True

    def with_key(self, key: bytes) -> PerturbedAccumulator:
        """The accumulator with the release's key."""
        return replace(self, secret=subkey(key, STREAM_LABEL, self.functions.model.name))

    @property
    def content(self) -> LinearFunctions:
        """Points and labels of the records that count."""
        return self.functions.model

    @property
    def description(self) -> str:
        """The solved problem and the solving process, in words."""
        risk, bounds = self.functions.risk, self.functions.risk.bounds
        plain, accelerated = count_steps(bounds.disturbed, bounds.tolerance)
        scales = " and of lists ".join(f"{law.scale:.4g}" for law in risk.laws)
        return (
            f"one solve of all records in the releasing process, penalty {1 / risk.weight:.4g}, "
            f"random linear term of scale {scales}, within {bounds.distance:.2g} of its "
            f"minimizer (some 10 Newton steps; else {accelerated} accelerated ones, and "
            f"{plain} plain ones at most)"
        )

    @property
    def errors(self) -> Errors:
        """Bound the floats of the map; `position`, for the certificate, is the effect of b.

        Without b the minimizer is within ``a |b|_2``, except with probability 1e-9.
        """
        functions, risk = self.functions, self.functions.risk
        largest = OUTWARD * functions.gain * risk.bounds.radius
        floats = 4 * (risk.features + functions.model.num_models + 8) * UNIT_ROUNDOFF * largest
        from scipy.special import gammainccinv  # late: it takes 0.2 s

        unlikely = _TAIL_PROBABILITY / len(risk.laws)
        drawn = max(float(gammainccinv(len(a.radii), unlikely)) * a.scale for a in risk.laws)
        off = (
            OUTWARD * risk.weight * risk.bounds.spread * drawn
            + risk.bounds.distance
            + functions.step
        )
        size = functions.size
        return Errors(
            kernel=0.0,
            kernel_norms=(0.0, 0.0),
            position=functions.gain * off,
            floats=floats,
            float_norms=(OUTWARD * size * floats, OUTWARD * math.sqrt(size) * floats),
            value_bound=1.01 * largest,
        )

    @property
    def memory(self) -> Memory:
        """Memory of a batch's positions and labels; of all records, and a Hessian.

        Of a private number of rows those of as many as the normalizer says.
        """
        axes, rows = self.functions.model.domain.dimensions, self.functions.model.n
        outputs, numbers = self.functions.risk.loss.outputs, self.functions.size
        gathered = 8 * (_ROW_COPIES * (axes + 3) + 4 * outputs) * rows + 8 * 4 * numbers**2
        return Memory(8 * (24 + 6 * axes), 0, gathered)

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs and features."""
        return (self.functions.risk.loss.outputs, self.functions.risk.features)

    def solved(self, rows: FloatArray, counts: FloatArray, block: int) -> Int64Array:
        """Truncated minimizer in fixed point, from the distinct records in sorted order."""
        del block
        if not self.secret:
            raise ValueError("a perturbed objective is solved with the release's key")
        risk = self.functions.risk
        content = hashlib.sha256(np.column_stack([rows, counts]).tobytes()).hexdigest()
        terms = " ".join(map(repr, [*(law.scale for law in risk.laws), risk.weight]))
        b, largest = risk.draw_linear_term(KeyStream(subkey(self.secret, content, terms), 0))
        if largest > 1.001 * risk.bounds.largest:
            return np.zeros(self.shape, dtype=np.int64)
        codes, numbers = self.functions.model.domain.parted(rows[:, :-1])
        features = np.column_stack(
            [codes, 2.0 * numbers - 1.0, np.full(len(rows), CONSTANT_FEATURE)]
        )
        labels = risk.loss.labels(rows[:, -1])
        if self.functions.model.protection.private_rows:
            counts = counts * _row_weight(float(counts.sum()), risk.n)
        problem = PerturbedObjective(risk, features, labels, counts, b)
        state = risk.truncated(minimize(problem, risk.bounds.tolerance).state)
        return np.rint(np.ldexp(state, self.functions.bits)).astype(np.int64)

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Weights of the unit cube's axes and of the constant."""
        del output
        solved = np.ldexp(state.astype(np.float64), -self.functions.bits)
        return self.functions.released(solved).ravel()[slab.start : slab.stop]
