"""Regularized risk minimizers as measurements: functions on a lattice, or weights as they are.

A pass gathers the records of its shards, equal ones counted, in sorted order: solutions do not
depend on how records were distributed, on their order, or on the number of workers. Each shard's
solution is stored in steps of ``2^-s``, each number rounded by half a step, so states of disjoint
shards add up exactly.

*Weights of features* (`WeightsAccumulator`) are d numbers: the mean over shards is off by
``2^-s sqrt(d) / 2`` in norm, and a value by that times ``sup |phi|``; together with the floats of
the linear map that releases them this is the float error, which the noise's calibration counts
twice.

*Values* (`ValuesAccumulator`), for kernels without features: a shard is solved with the Gram matrix
of its own records, ``f_s = sum_i alpha_i K(d_i, .)``, and evaluated at the lattice points; these
values are stored, so the sum over shards is exact. Released is a public linear map of their mean.
The float error of a value is that of evaluating the expansions (`dbern.erm.risk.value_error`), half
a step, and that of the map: what rows of T that sum to one make of N products of values at most V.

*Units.* Values on a lattice are in units of ``C M c``, c the volume of a kernel translate, so that
a minimizer with a Gaussian kernel is a mixture of densities with signed weights that sum to at most
one.

Linear functions
----------------
``f(y) = w . y + w_0 constant`` in unit-cube coordinates, for each of q outputs, is released by its
weights: as many numbers as there are features.

Sensitivity under replace-one. The weights of one output move by at most ``r`` (and the solver's
distance) in the Euclidean norm (`dbern.erm.models`), so by ``sqrt(l + 1) r`` in the l1 norm
(``sqrt(l) r`` without a constant feature): q times that, and ``sqrt(q) r`` in the l2 norm, for q
outputs, as every record is in the problem of each. ``S(f) <= r sup |phi|``, ``r sqrt(l +
constant^2)``.

Why not the corners. Values at the 2^l corners, k = 1 and h = 1 of the mechanism, would make the
function as exactly, and their l1 norm is a maximum over all signs, ``r max_s |sum_v s_v phi(v)|``:
at l = 1, 2, 3 and a constant of 1 that is 2.2, 4.9 and 10.6 times r, where the weights have 1.4,
1.7 and 2. For every constant and either norm the largest error over the cube is smaller from the
weights (the tests compare them), so nothing else is offered; and there are no 2^l numbers, so any
number of axes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.counting.accumulator import Errors, Memory
from dbern.counting.gathered import GatheredAccumulator
from dbern.counting.measurement import Measurement
from dbern.erm.models import RiskModel
from dbern.erm.risk import BLOCK, value_error
from dbern.erm.shards import STORED_FEATURES, STORED_ROWS, DualObjective
from dbern.erm.solver import count_steps
from dbern.erm.spaces import FeatureMap, GaussianFeatures, GramKernel, LinearFeatures
from dbern.erm.user import UserLoss
from dbern.privacy.budget import Budget
from dbern.strategies.base import AnyStrategy, Bound, Entries, LatticeMapStrategy, Slab
from dbern.strategies.bias import Approximation
from dbern.strategies.gram import CubeKernel, GramStrategy
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

PASS_ROWS = 1 << 18
"""Rows that a pass gathers, unless a shard has more: reading them again costs less than solving."""

MOST_BITS = 60
_SOLVER_COPIES = 5  # of the rows of a pass: gathered, sorted, split, their labels and slopes


# --- What is measured


@dataclass(frozen=True)
class _Released(RiskModel, Measurement):
    name: str = field(default="weights", kw_only=True)

    def bind(self, n: int, charge: Budget) -> Measurement:
        """Return it for n records; before, it has no sensitivities."""
        del charge
        return self.for_rows(n)

    @property
    def _sensitivity(self) -> float:
        """n times the move of the weights of one output by a record, in units of values."""
        return OUTWARD * self.n * self.bounds.sensitivity / self.unit

    @property
    def _norm(self) -> float:
        """Bound the norm of the mean of the minimizers, concave in a shard's weight."""
        shard = self.risk.bounds.max_weight / self.risk.shards
        return self.risk.shard_bounds(min(shard, OUTWARD * OUTWARD * self.cost)).norm

    def params(self, strategy: AnyStrategy, n: int, tolerance: float) -> dict[str, Any]:
        """Resolve for n records: as fine as 64-bit integers allow, whatever the tolerance."""
        del strategy, tolerance
        model = self.for_rows(n) if self.n != n else self
        return {"shards": model.shards, **model.counting}

    def from_params(
        self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]
    ) -> GatheredAccumulator:
        """Return the sums of what is solved for."""
        model = self.restored(n, params)
        if model.risk.features:
            weights = cast("LatticeMapStrategy | Entries", strategy)
            return WeightsAccumulator(model, weights, model.unit)
        lattice = cast("LatticeMapStrategy | GramStrategy", strategy)
        return ValuesAccumulator(model, lattice, model.unit)


def _times(outputs: int, norm: int) -> str:
    return f"{outputs}{'^{1/2}' if norm == 2 else ''}"


@dataclass(frozen=True)
class RiskMinimizer(_Released):
    """A regularized risk minimizer as a function on the lattice."""

    space: GaussianFeatures | GramKernel

    spectral = True

    @property
    def outputs(self) -> int:
        """Number of models: each is a function."""
        return self.num_models

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Densities of the space's kernel, where it is a product."""
        return self.space.kernels

    @property
    def cube(self) -> CubeKernel | None:
        """Kernel of the space, where it is none."""
        return None if self.space.kernels else self.space.cube

    @property
    def largest_lattice(self) -> float:
        """Lattice points that are not too costly."""
        return self.space.largest_lattice

    @cached_property
    def bias(self) -> Approximation | None:
        """The space's class of functions, for the norm of the mean of the minimizers."""
        if not self.n:
            return None
        norm = self._norm / self.unit
        return self.space.approximation(OUTWARD * norm * math.sqrt(self.space.volume))

    @property
    def unit(self) -> float:
        """``C M c``, once n is known."""
        return self.cost * self.risk.bounds.slope * self.space.volume if self.n else 1.0

    @property
    def function_sensitivity(self) -> float:
        """``n (r + 2 distance) sup |phi|``, of `dbern.erm.models`."""
        return OUTWARD * self._sensitivity * self.space.bound if self.n else math.nan

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> Bound:
        """Bound n times the sensitivity (proof in `dbern.erm.models`)."""
        bound = self.space.operator_norm(cast("LatticeMapStrategy", strategy), norm)
        outputs = math.sqrt(self.outputs) if norm == 2 else self.outputs
        text = f"{_times(self.outputs, norm)} x " if self.outputs > 1 else ""
        return Bound(
            OUTWARD * outputs * self._sensitivity * bound.value,
            f"{text}r {bound.derivation}, {self.derivation}",
        )


@dataclass(frozen=True)
class LinearFunctions(_Released):
    """Weights of every output, one output after the other (*Linear functions* above)."""

    space: LinearFeatures

    @property
    def features(self) -> tuple[float, ...]:
        """Axes and constant of the functions."""
        return self.space.dimensions, self.space.kernel.constant

    @property
    def extent(self) -> tuple[float, float] | None:
        """Bounds of a value by Cauchy and Schwarz, once n is known."""
        highest = OUTWARD * self._norm * self.space.bound if self.n else math.inf
        return (-highest, highest) if self.n else None

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the weights of each output: listed values, axes and constant."""
        names = [f"weight of {a.name} = {v}" for a in self.domain.lists for v in a.categories]
        names += [f"weight of {axis.name}" for axis in self.domain.numbers]
        if self.space.size > len(names):
            names.append("weight of the constant")
        if self.num_models == 1:
            return tuple(names)
        return tuple(f"{name}, {output}" for output in range(self.num_models) for name in names)

    @property
    def function_sensitivity(self) -> float:
        """n times a function's sensitivity, which exceeds that of its weights."""
        return OUTWARD * self._sensitivity * max(1.0, self.space.bound) if self.n else math.nan

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> Bound:
        """Bound n times the sensitivity of the weights (*Linear functions* above)."""
        del strategy
        outputs, size = self.num_models, self.space.size
        times = math.sqrt(outputs) if norm == 2 else outputs * math.sqrt(size)
        text = "r" if outputs == 1 else f"{_times(outputs, norm)} x r"
        text += f" sqrt({size})" if norm == 1 else ""
        return Bound(OUTWARD * times * self._sensitivity, f"{text}, {self.derivation}")


# --- How it is measured: solutions of shards as integers


@dataclass(frozen=True)
class _Solutions(GatheredAccumulator):
    """A model resolved: the state is the sum over shards of solutions in fixed point.

    A released value, by `strategy`, is in units of `unit`.
    """

    model: RiskModel
    strategy: AnyStrategy
    unit: float

    # What differs

    @property
    @abstractmethod
    def kept(self) -> str:
        """Stored numbers of a shard, for a description."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """Bound on a number of the state, for w of norm one."""

    @property
    @abstractmethod
    def step(self) -> float:
        """Bound on the norm of the change of the mean of the weights by fixed point."""

    # How shards are gathered

    @property
    def content(self) -> RiskModel:
        return self.model

    @property
    def description(self) -> str:
        """Stored numbers, shards, passes and steps; and what a user's loss can show."""
        model, risk = self.model, self.model.risk
        what = "content" if model.ids is None else "unit"
        shards = f"{risk.shards} shards by {what}" if risk.shards > 1 else "one shard"
        passes = f"{self.passes} passes over the files" if self.passes > 1 else "one pass"
        average = min(count_steps(model.bounds.average, model.bounds.tolerance))
        plain, accelerated = count_steps(model.bounds.heaviest, model.bounds.tolerance)
        largest = plain + (accelerated if accelerated < plain else 0)
        steps = f"about {average} steps each, {largest} at most"
        own_loss = isinstance(model.loss, UserLoss)
        seen = "; that a solve of your loss failed can be observed" if own_loss else ""
        return f"{self.kept}: {shards}, {passes}, {steps}{seen}"

    @property
    def shards(self) -> int:
        return self.model.risk.shards

    @property
    def passes(self) -> int:
        """Passes over all files, each of which gathers its shards' records and solves them."""
        return min(self.shards, -(-self.model.n // PASS_ROWS))

    @property
    def pass_rows(self) -> int:
        groups = -(-self.shards // self.passes)
        return math.ceil(1.05 * min(1.0, groups / self.shards) * self.model.n) + 64

    def memory_of(self, tables: int, solving: int) -> Memory:
        """A batch's positions, labels, hashes and a few temporaries; a pass's records."""
        axes = len(self.model.domain.axes)
        rows = 8 * _SOLVER_COPIES * (axes + 2 + 2 * self.model.num_models) * self.pass_rows
        return Memory(8 * (24 + 6 * axes), tables, rows + 8 * solving)

    @property
    def sources(self) -> tuple[tuple[str, str, str], ...]:
        return self.model.sources

    def names(self, records: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Units, where these are wider than a row; their records are in one pass already."""
        return rows if self.model.ids is None else self.model.units(records)

    def split(self, index: int) -> tuple[int, int, int]:
        return (self.passes, index, 0) if self.model.ids is None else (1, 0, 0)

    def mean(self, state: Int64Array) -> FloatArray:
        """Mean over the shards of a part of the state."""
        return np.asarray(np.ldexp(state.astype(np.float64), -self.bits) / self.shards)

    # How far they are from the minimizers; no kernel error adds to the sensitivity

    @property
    def bits(self) -> int:
        """s: the sum over shards stays below 2^62, each within ``|w_s|`` and its float error."""
        bounds = self.model.bounds
        norm = bounds.heaviest.norm + self.shards * bounds.distance + 1
        return min(MOST_BITS, 61 - math.frexp(self.shards * self.largest * norm)[1])

    @property
    def mean_norm(self) -> float:
        """Bound on the norm of the mean of the weights, which is concave in a shard's weight."""
        bounds = self.model.bounds
        return OUTWARD * (bounds.average.norm + bounds.distance) + self.step

    @property
    def weight_error(self) -> float:
        """Distance of the weights from the minimizers of the very records: accuracy alone.

        That of the solver, and positions rounded by a few units: a feature that moves by delta is a
        prediction's error ``|w| delta`` and a gradient's ``C M delta`` (`dbern.erm.risk`).
        """
        risk, delta = self.model.risk, self.model.space.drift(16 * UNIT_ROUNDOFF)
        bent = math.sqrt(risk.bounds.max_weight * risk.loss.curvature)
        predicted = self.mean_norm * bent / 2
        rounded = delta * (predicted + risk.cost * risk.bounds.slope + self.mean_norm)
        return self.model.bounds.distance + rounded

    def lattice_errors(self, row_error: float) -> Errors:
        """Bound errors by the float error of a value whose row of the map sums to one.

        *Floats*, fixed point included, of all values of all outputs: the norm of the row sums,
        which factors. *Position*: the weights' error at its largest, and the kernel's cut.
        *Values*: ``sup |phi|`` times the mean's norm, mapped, and everything that floats can add.
        """
        strategy = cast("LatticeMapStrategy", self.strategy)
        sums = [strategy.row_sums(axis) for axis in range(len(strategy.lattice.k))]
        largest = math.prod(float(one.max()) for one in sums)
        outputs, space = self.model.num_models, self.model.space
        accuracy = space.bound * self.weight_error + space.cut_error(self.model.risk)

        def norm(p: int, outputs: float) -> float:
            rows = math.prod(float((one**p).sum() ** (1 / p)) for one in sums)
            return OUTWARD * outputs * row_error * rows

        return Errors(
            kernel=0.0,
            kernel_norms=(0.0, 0.0),
            position=OUTWARD * accuracy / self.unit,
            floats=row_error * largest,
            float_norms=(norm(1, outputs), norm(2, math.sqrt(outputs))),
            value_bound=OUTWARD * 1.001 * largest * space.bound * self.mean_norm / self.unit,
        )


@dataclass(frozen=True)
class WeightsAccumulator(_Solutions):
    """Weights of features: released as they are, or as a function's values on a lattice."""

    strategy: LatticeMapStrategy | Entries
    largest = 1.0

    @property
    def _features(self) -> FeatureMap:
        return cast("FeatureMap", self.model.space)

    @property
    def _lattice(self) -> LatticeMapStrategy | None:
        return None if isinstance(self.strategy, Entries) else self.strategy

    @property
    def kept(self) -> str:
        """Number of weights, for a description."""
        return f"weights of {self._features.size} features"

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs and features."""
        return (self.model.num_models, self._features.size)

    @property
    def step(self) -> float:
        """Bound of half a step for each number, in norm."""
        return OUTWARD * math.ldexp(0.5, -self.bits) * math.sqrt(self._features.size)

    @property
    def memory(self) -> Memory:
        """Memory of the features of a shard or of a block of it.

        Tables are the features at the lattice points of each axis, mapped, and the products.
        """
        size, nodes = self._features.size, self.strategy.lattice.shape
        tables = 0 if self._lattice is None else 8 * 3 * (sum(nodes) + max(nodes)) * size
        features = min(STORED_FEATURES, self.pass_rows * size)
        return self.memory_of(tables, 2 * features + 4 * BLOCK * size)

    @cached_property
    def errors(self) -> Errors:
        """Bound errors by the floats of a function's map, or for weights those of a division.

        By stationarity the mean of the minimizers has weights that sum to at most C M, times the
        most rows over n. No weight is larger, or farther from its meaning, than the norm of all.
        """
        risk, bound = self.model.risk, self._features.bound
        if self._lattice is None:
            outputs, size = self.model.num_models, self._features.size
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
        mass = risk.cost * risk.bounds.slope * (risk.bounds.max_rows / risk.n)
        rest = self.model.bounds.distance + self.step
        floats = cast("GaussianFeatures", self._features).value_error(self._lattice, mass, rest)
        floats += 6 * UNIT_ROUNDOFF * bound * self.mean_norm
        return self.lattice_errors(OUTWARD * (floats + self.step * bound) / self.unit)

    def solved(self, rows: FloatArray, counts: FloatArray, block: int) -> Int64Array:
        """Weights of one shard in fixed point, from its distinct records."""
        del block
        _, weights = self.model.fitted(rows[:, :-1], rows[:, -1], counts)
        return np.rint(np.ldexp(weights.T, self.bits)).astype(np.int64)

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab."""
        if self._lattice is None:
            return self.mean(state.reshape(-1)[slab.start : slab.stop])
        space = cast("GaussianFeatures", self._features)
        return space.values(self.mean(state[output]), self._lattice, slab) / self.unit


@dataclass(frozen=True)
class ValuesAccumulator(_Solutions):
    """A function's values on the lattice, of an expansion in each shard's records."""

    strategy: LatticeMapStrategy | GramStrategy
    step = 0.0  # the functions themselves are not rounded

    @property
    def largest(self) -> float:
        """Bound on a number of the state: a value is at most ``sup |phi|`` times the norm."""
        return max(1.0, self.model.space.bound)

    @property
    def kept(self) -> str:
        """Number of values, for a description."""
        return f"values at {self.strategy.lattice.size} lattice points"

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs and lattice."""
        return (self.model.num_models, *self.strategy.lattice.shape)

    @property
    def memory(self) -> Memory:
        """Memory of a shard's Gram matrix and of values; tables are the mean's values, mapped."""
        size = self.strategy.lattice.size
        heavy = min(self.pass_rows, math.ceil(1.25 * self.model.n / self.shards) + 64)
        gram = heavy**2 if heavy <= STORED_ROWS else BLOCK**2
        return self.memory_of(8 * 4 * size, 2 * gram + size * (2 * self.model.num_models + BLOCK))

    @cached_property
    def errors(self) -> Errors:
        """Bound errors of evaluating expansions, half a step, and the map."""
        space, risk, lattice = self.model.space, self.model.risk, self.strategy.lattice
        floats = value_error(risk, max(space.radius, risk.radius)) + math.ldexp(0.5, -self.bits)
        depth = 6 + sum(nodes + 4 for nodes in lattice.shape)
        if len(self.strategy.layout.shape) != len(lattice.shape):
            depth = 10 + lattice.size  # one product over the whole lattice
        floats += 2 * depth * UNIT_ROUNDOFF * (space.bound * self.mean_norm + floats)
        return self.lattice_errors(OUTWARD * floats / self.unit)

    def solved(self, rows: FloatArray, counts: FloatArray, block: int) -> Int64Array:
        """Values of one shard in fixed point, from its distinct records."""
        del block
        problem, state = self.model.fitted(rows[:, :-1], rows[:, -1], counts)
        axes = cast("GramKernel", self.model.space).cube.axes(self.strategy.lattice)
        values = cast("DualObjective", problem).model(state).on_grid(axes)
        return np.rint(np.ldexp(np.moveaxis(values, -1, 0), self.bits)).astype(np.int64)

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab."""
        return self.strategy.measure(self.mean(state[output]), slab) / self.unit
