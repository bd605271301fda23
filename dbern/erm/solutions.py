"""Solutions of shards as integers: weights of features, or values on a lattice.

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
The float error of a value is that of evaluating the expansions
(`dbern.erm.float_errors.value_error`), half a step, and that of the map: what rows of T that sum to
one make of N products of values at most V.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.erm.float_errors import value_error
from dbern.erm.gaussian_features import GaussianFeatures
from dbern.erm.losses import UserLoss
from dbern.erm.models import RiskModel
from dbern.erm.shards import STORED_FEATURES, STORED_ROWS, DualObjective
from dbern.erm.solver import count_steps
from dbern.erm.spaces import FeatureMap, GramKernel
from dbern.erm.summation import BLOCK
from dbern.measure.accumulator import Errors, Memory
from dbern.measure.gathered import GatheredAccumulator
from dbern.reconstruct.base import AnyStrategy, LatticeMapStrategy, Slab, VectorStrategy
from dbern.reconstruct.gram import GramStrategy
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

PASS_ROWS = 1 << 18
"""Rows that a pass gathers, unless a shard has more: reading them again costs less than solving."""

MAX_BITS = 60
_ROW_COPIES = 5  # of the rows of a pass: gathered, sorted, split, their labels and slopes


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
    def stored_numbers(self) -> str:
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
        plain_steps, accelerated_steps = count_steps(model.bounds.heaviest, model.bounds.tolerance)
        largest = plain_steps + (accelerated_steps if accelerated_steps < plain_steps else 0)
        steps = f"about {average} steps each, {largest} at most"
        users_loss = isinstance(model.loss, UserLoss)
        seen = "; that a solve of your loss failed can be observed" if users_loss else ""
        return f"{self.stored_numbers}: {shards}, {passes}, {steps}{seen}"

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
        rows = 8 * _ROW_COPIES * (axes + 2 + 2 * self.model.num_models) * self.pass_rows
        return Memory(8 * (24 + 6 * axes), tables, rows + 8 * solving)

    @property
    def sources(self) -> tuple[tuple[str, str, str], ...]:
        return self.model.sources

    def shard_keys(self, records: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
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
        return min(MAX_BITS, 61 - math.frexp(self.shards * self.largest * norm)[1])

    @property
    def mean_norm(self) -> float:
        """Bound on the norm of the mean of the weights, which is concave in a shard's weight."""
        bounds = self.model.bounds
        return OUTWARD * (bounds.average.norm + bounds.distance) + self.step

    @property
    def weight_error(self) -> float:
        """Distance of the weights from the minimizers of the very records: accuracy alone.

        That of the solver, and positions rounded by a few units: a feature that moves by delta is a
        prediction's error ``|w| delta`` and a gradient's ``C M delta`` (`dbern.erm.float_errors`).
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
        row_sums = [strategy.row_sums(axis) for axis in range(len(strategy.lattice.k))]
        largest = math.prod(float(sums.max()) for sums in row_sums)
        outputs, space = self.model.num_models, self.model.space
        accuracy = space.bound * self.weight_error + space.cut_error(self.model.risk)

        def norm(p: int, outputs: float) -> float:
            rows = math.prod(float((sums**p).sum() ** (1 / p)) for sums in row_sums)
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

    strategy: LatticeMapStrategy | VectorStrategy
    largest = 1.0

    @property
    def _features(self) -> FeatureMap:
        return cast("FeatureMap", self.model.space)

    @property
    def _lattice(self) -> LatticeMapStrategy | None:
        return None if isinstance(self.strategy, VectorStrategy) else self.strategy

    @property
    def stored_numbers(self) -> str:
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
    def stored_numbers(self) -> str:
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
