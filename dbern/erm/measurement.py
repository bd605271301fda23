"""Regularized risk minimizers as released measurements: functions on a lattice, or weights.

Risk minimizers as functions on a lattice; their sensitivity is proved in `risk_models`.

Linear functions are released by their weights instead (`dbern.erm.measurement`).

*Weights of features* are d numbers: the mean over shards is off by ``2^-s sqrt(d) / 2`` in norm,
and a value by that times ``sup |phi|``; together with the floats of the linear map this is the
float error, which the noise's calibration counts twice.

*Kernels without features*: a shard is solved with the Gram matrix of its own records, ``f_s =
sum_i alpha_i K(d_i, .)``, and evaluated at the lattice points; these values are stored in steps of
``2^-s``, each rounded by half a step, so the sum over shards is exact. Released is a public linear
map of their mean. The float error of a value is that of evaluating the expansions
(`dbern.erm.risk.value_error`), half a step, and that of the map: what rows of T that sum
to one make of N products of values at most V.

Linear risk minimizers, released by their weights: as many numbers as there are features.

``f(y) = w . y + w_0 constant`` in unit-cube coordinates, for each of q outputs.

Sensitivity under replace-one
-----------------------------
The weights of one output move by at most ``r`` (and the solver's distance) in the Euclidean norm
(`dbern.erm.models`), so by ``sqrt(l + 1) r`` in the l1 norm (``sqrt(l) r`` without a
constant feature): q times that, and ``sqrt(q) r`` in the l2 norm, for q outputs, as every record is
in the problem of each. ``S(f) <= r sup |phi| = r sqrt(l + constant^2)``.

Why not the corners
-------------------
Values at the 2^l corners, k = 1 and h = 1 of the mechanism, would make the function as exactly, and
their l1 norm is a maximum over all signs, ``r max_s |sum_v s_v phi(v)|``: at l = 1, 2, 3 and a
constant of 1 that is 2.2, 4.9 and 10.6 times r, where the weights have 1.4, 1.7 and 2. For every
constant and either norm the largest error over the cube is smaller from the weights (the tests
compare them), so nothing else is offered; and there are no 2^l numbers, so any number of axes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.counting.measurement import WHOLE, Measurement
from dbern.counting.passes import Accumulator, Errors
from dbern.erm.gram import GramSpace
from dbern.erm.models import MOST_BITS, RiskModel, SolvedAccumulator, SolvedWeights
from dbern.erm.risk import BLOCK, value_error
from dbern.erm.solver import STORED_ROWS
from dbern.erm.spaces import FeatureSpace, LinearSpace, Space
from dbern.strategies.base import Bound, Entries, LatticeMapStrategy, Slab
from dbern.strategies.bias import Approximation
from dbern.strategies.gram import GramStrategy
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

# --- Risk minimizers as functions on a lattice


@dataclass(frozen=True)
class RiskMinimizer(RiskModel):
    """A regularized risk minimizer as a function on the lattice."""

    space: Space
    name: str = "decision"
    fraction: Fraction = WHOLE

    def measurement(self) -> Measurement:
        """Return it as a measurement: before n is known, one that only says so."""
        found = Measurement(
            self.name,
            self.domain,
            sensitivity=self.sensitivity,
            accumulator=self.accumulator,
            restore=self.restore,
            kernels=self.space.kernels,
            outputs=self.outputs,
            fraction=self.fraction,
            spectral=True,
            cube=self.space.cube if isinstance(self.space, GramSpace) else None,
            largest_lattice=self.space.largest_lattice,
            protected=lambda *neighbors: self.protected(*neighbors).measurement(),
            for_rows=lambda n: self.for_rows(n).measurement(),
        )
        if self.n == 0:
            return found
        function = self.function_sensitivity
        return replace(
            found, function_sensitivity=function, bias=self.approximation, unit=self.unit
        )

    @cached_property
    def approximation(self) -> Approximation:
        """The space's, for the norm of the mean of the minimizers, concave in a shard's weight."""
        total = min(self.risk.most_weight / self.risk.shards, OUTWARD * OUTWARD * self.cost)
        norm = self.risk.norm(total) / self.unit
        return self.space.approximation(OUTWARD * norm * math.sqrt(self.space.volume))

    @property
    def unit(self) -> float:
        """``C M c``."""
        return self.cost * self.risk.slope * self.space.volume

    @property
    def _moved(self) -> float:
        """n times what a record can do to the weights of one output, in units of values."""
        return OUTWARD * self.n * self.moved / self.unit

    @property
    def function_sensitivity(self) -> float:
        """``n (r + instability) sup |phi|``."""
        return OUTWARD * self._moved * self.space.reach

    def sensitivity(self, strategy: Any, norm: int, loose: bool = False) -> Bound:
        """See the proof at the top of `risk_models`."""
        del loose
        gain = self.space.gain(strategy, norm)
        outputs = math.sqrt(self.outputs) if norm == 2 else self.outputs
        text = f"{self.outputs}{'^{1/2}' if norm == 2 else ''} x " if self.outputs > 1 else ""
        return Bound(
            OUTWARD * outputs * self._moved * gain.value,
            f"{text}r {gain.derivation}, r = {self.steps}M C kappa / n and twice the solver's "
            "distance",
        )

    def accumulator(self, strategy: Any, n: int, tolerance: float) -> Accumulator:
        """Weights as fine as 64-bit integers allow, whatever the tolerance."""
        del tolerance
        return _accumulated(self.for_rows(n) if self.n != n else self, strategy)

    def restore(self, strategy: Any, n: int, counting: Mapping[str, Any]) -> Accumulator:
        """The statistic that a plan has chosen."""
        return _accumulated(self.restored(n, counting), strategy)


def _accumulated(component: RiskMinimizer, strategy: Any) -> Accumulator:
    """Weights of features, or where there are none values on the lattice."""
    if isinstance(component.space, FeatureSpace):
        return RiskAccumulator(component, strategy)
    return ValueAccumulator(component, strategy)


@dataclass(frozen=True)
class OnLattice(SolvedAccumulator):
    """A solution of which coordinates of a lattice are released."""

    component: RiskMinimizer
    strategy: LatticeMapStrategy | GramStrategy

    @property
    def _unit(self) -> float:
        return self.component.unit

    @property
    @abstractmethod
    def _row_error(self) -> float:
        """Bound on the error of a value whose row of the map sums to one."""

    @property
    def _largest_row(self) -> float:
        axes = range(len(self.strategy.lattice.k))
        return math.prod(float(self.strategy.row_sums(axis).max()) for axis in axes)

    @cached_property
    def errors(self) -> Errors:
        """No kernel adds to the sensitivity: see `dbern.erm.models`.

        *Positions*: that of the weights at its largest, and the kernel's cut. *Floats*, fixed point
        included, of all values of all outputs: the norm of the row sums, which factors. *Values*:
        ``sup |phi|`` times the norm of the mean, mapped; and everything floats can add.
        """
        space, row_error, largest = self.component.space, self._row_error, self._largest_row
        outputs = self.component.outputs
        position = space.reach * self.weight_error + space.cut_error(self._risk)
        return Errors(
            kernel=0.0,
            kernel_norms=(0.0, 0.0),
            position=OUTWARD * position / self._unit,
            floats=row_error * largest,
            float_norms=(
                OUTWARD * outputs * row_error * self._row_norm(1),
                OUTWARD * math.sqrt(outputs) * row_error * self._row_norm(2),
            ),
            value_bound=OUTWARD * 1.001 * largest * space.reach * self.mean_norm / self._unit,
        )

    def _row_norm(self, norm: int) -> float:
        axes = (self.strategy.row_sums(axis) for axis in range(len(self.strategy.lattice.k)))
        return math.prod(float((sums**norm).sum() ** (1 / norm)) for sums in axes)


@dataclass(frozen=True)
class RiskAccumulator(OnLattice, SolvedWeights):
    """A risk minimizer's released values, from its weights."""

    strategy: LatticeMapStrategy

    @property
    def _space(self) -> FeatureSpace:
        return cast("FeatureSpace", self.component.space)

    @cached_property
    def _row_error(self) -> float:
        """By stationarity the mean of the minimizers has weights that sum to at most C M.

        Times the most rows over n.
        """
        space, risk = self._space, self._risk
        mass = risk.cost * risk.slope * (risk.most_rows / risk.n)
        rest = self.component.method.distance(risk) + self.step
        floats = space.value_error(self.strategy, mass, rest)
        floats += 6 * UNIT_ROUNDOFF * space.reach * self.mean_norm
        return OUTWARD * (floats + self.step * space.reach) / self._unit

    @property
    def _table_bytes(self) -> int:
        """Features at the lattice points of each axis, mapped, and the products under way."""
        nodes = self.strategy.lattice.shape
        return 8 * 3 * (sum(nodes) + max(nodes)) * self._space.size

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab."""
        mean = self.mean(state[output])
        return self._space.values(mean, self.strategy, slab) / self._unit


@dataclass(frozen=True)
class ValueAccumulator(OnLattice):
    """A solution is its values on the lattice."""

    @property
    def solution(self) -> str:
        """Where."""
        return f"values at {self.strategy.lattice.size} lattice points"

    @property
    def bits(self) -> int:
        """s: the sum over shards stays below 2^62."""
        norm = self._risk.norm(self._risk.most_weight) + self._apart + 1
        largest = self._risk.shards * max(1.0, self.component.space.reach) * norm
        return min(MOST_BITS, 61 - math.frexp(largest)[1])

    @property
    def step(self) -> float:
        """The functions themselves are not rounded."""
        return 0.0

    @cached_property
    def _row_error(self) -> float:
        space, risk = self.component.space, self._risk
        radius = max(space.radius, risk.radius)
        floats = value_error(risk, radius) + math.ldexp(0.5, -self.bits)
        depth = 6 + sum(nodes + 4 for nodes in self.strategy.lattice.shape)
        if len(self.strategy.layout.shape) != len(self.strategy.lattice.shape):
            depth = 10 + self.strategy.lattice.size  # one product over the whole lattice
        floats += 2 * depth * UNIT_ROUNDOFF * (space.reach * self.mean_norm + floats)
        return OUTWARD * floats / self._unit

    @property
    def _gathered_bytes(self) -> int:
        """Memory of one pass: its records, a shard's Gram matrix, and values under way."""
        heavy = min(self._pass_rows, math.ceil(1.25 * self._risk.n / self._risk.shards) + 64)
        gram = heavy**2 if heavy <= STORED_ROWS else BLOCK**2
        values = self.strategy.lattice.size * (2 * self.component.outputs + BLOCK)
        return self._rows_bytes + 8 * (2 * gram + values)

    @property
    def _table_bytes(self) -> int:
        """The mean's values, and the products under way."""
        return 8 * 4 * self.strategy.lattice.size

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs, then the lattice."""
        return (self.component.outputs, *self.strategy.lattice.shape)

    def _solved(self, rows: FloatArray, counts: FloatArray) -> Int64Array:
        problem, state = self.component.fitted(rows[:, :-1], rows[:, -1], counts)
        lattice, space = self.strategy.lattice, self.component.space
        axes = space.nodes([lattice.nodes(axis) for axis in range(len(lattice.k))])
        values = problem.model(state).on_grid(axes)
        return np.rint(np.ldexp(np.moveaxis(values, -1, 0), self.bits)).astype(np.int64)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab."""
        mean = np.ldexp(state[output].astype(np.float64), -self.bits) / self._risk.shards
        return self.strategy.measure(mean, slab) / self._unit


# --- Linear risk minimizers, released by their weights


@dataclass(frozen=True)
class LinearFunctions:
    """The weights of every output, one output after the other; see the top of the module.

    Examples
    --------
    >>> from dbern.data.domain import Axis, Column, Domain
    >>> from dbern.erm.losses import Logistic
    >>> from dbern.counting.kernel_sums import BySign
    >>> label = BySign(Column("late", "data.label.classes", (False, True)))
    >>> box = Domain((Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0)))
    >>> model = RiskModel(box, Logistic(), LinearSpace(2, 1.0), label, cost=1.0)
    >>> weights = LinearFunctions(model.for_rows(1000))
    >>> weights.entries, 3.4 < weights.sensitivity(Entries(3), 1).value < 5
    (('weight of x', 'weight of y', 'weight of the constant'), True)
    """

    model: RiskModel

    @property
    def entries(self) -> tuple[str, ...]:
        """Axes and constant, of each output."""
        names = [f"weight of {name}" for name in self.model.domain.names]
        if self._space.size > len(names):
            names.append("weight of the constant")
        outputs = range(self.model.outputs)
        several = [f"{name}, {output}" for output in outputs for name in names]
        return tuple(names if self.model.outputs == 1 else several)

    def measurement(self, fraction: Fraction = WHOLE) -> Measurement:
        """Return them as a measurement: before n is known, one that only says so."""
        model = self.model

        def protected(*neighbors: Any) -> Measurement:
            return LinearFunctions(model.protected(*neighbors)).measurement(fraction)

        return Measurement(
            "weights",
            model.domain,
            sensitivity=self.sensitivity,
            accumulator=self.accumulator,
            restore=self.restore,
            function_sensitivity=self.function_sensitivity if model.n else math.nan,
            entries=self.entries,
            features=(self._space.dimensions, self._space.constant),
            fraction=fraction,
            protected=protected,
            for_rows=lambda n: LinearFunctions(model.for_rows(n)).measurement(fraction),
        )

    @property
    def _space(self) -> LinearSpace:
        return cast("LinearSpace", self.model.space)

    @property
    def _moved(self) -> float:
        return OUTWARD * self.model.n * self.model.moved

    @property
    def function_sensitivity(self) -> float:
        """n times the largest move of a function's value, which exceeds that of its weights."""
        return OUTWARD * self._moved * max(1.0, self._space.reach)

    def sensitivity(self, strategy: Entries, norm: int, loose: bool = False) -> Bound:
        """See the top of the module."""
        del strategy, loose
        outputs, size = self.model.outputs, self._space.size
        times = math.sqrt(outputs) if norm == 2 else outputs * math.sqrt(size)
        text = "r" if outputs == 1 else f"{outputs}{'^{1/2}' if norm == 2 else ''} x r"
        text += f" sqrt({size})" if norm == 1 else ""
        return Bound(
            OUTWARD * times * self._moved,
            f"{text}, r = {self.model.steps}M C kappa / n and twice the solver's distance",
        )

    def accumulator(self, strategy: Entries, n: int, tolerance: float) -> WeightAccumulator:
        """Weights as fine as 64-bit integers allow, whatever the tolerance."""
        del tolerance
        return WeightAccumulator(
            self.model.for_rows(n) if self.model.n != n else self.model, strategy
        )

    def restore(self, strategy: Entries, n: int, counting: Mapping[str, Any]) -> WeightAccumulator:
        """With the planned shards."""
        return WeightAccumulator(self.model.restored(n, counting), strategy)


@dataclass(frozen=True)
class WeightAccumulator(SolvedWeights):
    """The means of the shards' weights as they are."""

    strategy: Entries

    @property
    def errors(self) -> Errors:
        """No kernel adds to the sensitivity: see `dbern.erm.models`.

        *Floats* of one output: fixed point; an integer as a float, and a division. No entry's is
        larger than the norm, none is farther from its meaning than the weights, and none exceeds
        the norm of the mean.
        """
        outputs, size = self.component.outputs, self._features.size
        floats = OUTWARD * (self.step + 4 * UNIT_ROUNDOFF * self.mean_norm)
        l1, l2 = outputs * math.sqrt(size), math.sqrt(outputs)
        return Errors(
            kernel=0.0,
            kernel_norms=(0.0, 0.0),
            position=self.weight_error,
            floats=floats,
            float_norms=(OUTWARD * l1 * floats, OUTWARD * l2 * floats),
            value_bound=OUTWARD * 1.001 * self.mean_norm,
        )

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """The entries of one slab."""
        del output
        return np.asarray(self.mean(state.reshape(-1)[slab.start : slab.stop]))
