"""Risk minimizers as integers: what a pass over the records solves, and what is released of it.

Each shard's solution is stored in steps of ``2^-s``, each number rounded by half a step, so states
of disjoint shards add up exactly.

*Weights of features* are d numbers: the mean over shards is off by ``2^-s sqrt(d) / 2`` in norm,
and a value by that times ``sup |phi|``; together with the floats of the linear map this is the
float error, which the noise's calibration counts twice.

Records are gathered by shard, equal ones counted, in sorted order: the solutions do not depend on
how records were distributed, on their order, or on the number of workers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.coordinates import Coordinates
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.lattice import Slab
from dbern.bernstein.spectrum import UNIT_ROUNDOFF
from dbern.domain import Column
from dbern.learning.objective import STORED_FEATURES
from dbern.learning.risk import Risk
from dbern.learning.rounding import BLOCK
from dbern.targets.gathering import Gathering

if TYPE_CHECKING:
    from dbern.targets.risk_minimizers import RiskMinimizer, RiskModel
    from dbern.targets.spaces import Features, FeatureSpace

PASS_ROWS = 1 << 18
"""Rows that a pass gathers, unless a shard has more: reading them again costs less than solving."""

MOST_BITS = 60
_SOLVER_COPIES = 5  # of the rows of a pass: gathered, sorted, split, their labels and slopes


@dataclass(frozen=True)
class SolvedStatistic(ABC):
    """A risk minimizer resolved: state is the sum over shards of solutions in fixed point."""

    component: RiskModel

    @property
    def _risk(self) -> Risk:
        return self.component.risk

    @property
    def columns(self) -> tuple[Column, ...]:
        """The component's."""
        return self.component.columns

    @property
    def counting(self) -> dict[str, Any]:
        """Shards, and what the space stores."""
        return {"shards": self._risk.shards, **self.component.space.counting}

    @property
    @abstractmethod
    def solution(self) -> str:
        """What is kept of a shard, in a few words."""

    @property
    def description(self) -> str:
        """What is kept, shards, passes and steps; and what a user's loss can show."""
        method, risk = self.component.method, self._risk
        what = "content" if self.component.ids is None else "unit"
        shards = f"{risk.shards} shards by {what}" if risk.shards > 1 else "one shard"
        passes = f"{self.passes} passes over the files" if self.passes > 1 else "one pass"
        steps = f"about {method.expected_steps(risk)} steps each, {method.most_steps(risk)} at most"
        seen = "; that a solve of your loss failed can be observed" if method.observed else ""
        return f"{self.solution}: {shards}, {passes}, {steps}{seen}"

    @property
    def _apart(self) -> float:
        return self._risk.shards * self.component.method.distance(self._risk)

    @property
    def mean_norm(self) -> float:
        """Bound on the norm of the mean of the weights, which is concave in a shard's weight."""
        norm = self._risk.norm(self._risk.most_weight / self._risk.shards)
        return OUTWARD * (norm + self.component.method.distance(self._risk)) + self.step

    @property
    @abstractmethod
    def step(self) -> float:
        """Bound on the norm of what fixed point changes of the mean of the weights."""

    @property
    def weight_error(self) -> float:
        """Distance of the weights from the minimizers of the very records: accuracy alone.

        That of the solver, and positions rounded by a few units: a feature that moves by delta is a
        prediction's error ``|w| delta`` and a gradient's ``C M delta`` (`dbern.learning.rounding`).
        """
        risk, delta = self._risk, self.component.space.drift(16 * UNIT_ROUNDOFF)
        moved = self.mean_norm * math.sqrt(risk.most_weight * risk.loss.curvature) / 2
        moved = delta * (moved + risk.cost * risk.slope + self.mean_norm)
        return self.component.method.distance(risk) + moved

    @property
    def kernel_error(self) -> float:
        """None: see the module."""
        return 0.0

    def kernel_error_norm(self, norm: int) -> float:
        """None: see the module."""
        del norm
        return 0.0

    @property
    def passes(self) -> int:
        """Passes over all files, each of which gathers its shards' records and solves them."""
        return min(self._risk.shards, -(-self._risk.n // PASS_ROWS))

    @property
    def shards(self) -> int:
        """The learning problem's."""
        return self._risk.shards

    @property
    def _pass_rows(self) -> int:
        groups = -(-self._risk.shards // self.passes)
        share = min(1.0, groups / self._risk.shards)
        return math.ceil(1.05 * share * self._risk.n) + 64

    @property
    def batch_bytes(self) -> int:
        """Positions, labels, hashes and a few temporaries."""
        return 8 * (24 + 6 * len(self.component.domain.axes))

    @property
    @abstractmethod
    def gathered_bytes(self) -> int:
        """Memory of one pass."""

    @property
    def _rows_bytes(self) -> int:
        """Of a pass's records."""
        width = len(self.component.domain.axes) + 2 + 2 * self.component.outputs
        return 8 * _SOLVER_COPIES * width * self._pass_rows

    @property
    @abstractmethod
    def table_bytes(self) -> int:
        """Memory that `finish` takes besides state and slab."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of the state."""

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Records are not added one by one."""
        raise NotImplementedError("records of a risk minimizer are gathered by shard")

    def gather(self, salt: bytes, index: int) -> Gathering:
        """What one pass gathers and solves; of bounded units it is given its own alone."""
        given = self.component.ids is not None
        return Gathering(
            rows=self.component.rows,
            solved=self._solved,
            salt=salt,
            shards=self._risk.shards,
            passes=1 if given else self.passes,
            index=0 if given else index,
            names=self.component.units if given else None,
        )

    @abstractmethod
    def _solved(self, rows: FloatArray, counts: FloatArray) -> Int64Array:
        """One shard in fixed point, from its distinct records."""

    @abstractmethod
    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab."""


@dataclass(frozen=True)
class SolvedWeights(SolvedStatistic):
    """A solution is the weights of features."""

    @property
    def _features(self) -> Features:
        return cast("Features", self.component.space)

    @property
    def solution(self) -> str:
        """How many."""
        return f"weights of {self._features.size} features"

    @property
    def bits(self) -> int:
        """s: the sum over shards stays below 2^62, each within ``|w_s|`` and its float error."""
        largest = self._risk.shards * (self._risk.norm(self._risk.most_weight) + self._apart + 1)
        return min(MOST_BITS, 61 - math.frexp(largest)[1])

    @property
    def step(self) -> float:
        """Of as many numbers, each by half a step."""
        return OUTWARD * math.ldexp(0.5, -self.bits) * math.sqrt(self._features.size)

    @property
    def gathered_bytes(self) -> int:
        """Memory of one pass: its records, and the features of a shard or of a block of it."""
        size = self._features.size
        features = min(STORED_FEATURES, self._pass_rows * size)
        return self._rows_bytes + 8 * (2 * features + 4 * BLOCK * size)

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs, features."""
        return (self.component.outputs, self._features.size)

    def _solved(self, rows: FloatArray, counts: FloatArray) -> Int64Array:
        _, weights = self.component.fitted(rows[:, :-1], rows[:, -1], counts)
        return np.rint(np.ldexp(weights.T, self.bits)).astype(np.int64)

    def mean(self, state: Int64Array) -> FloatArray:
        """Over the shards: weights, from some of the state."""
        return np.asarray(np.ldexp(state.astype(np.float64), -self.bits) / self._risk.shards)


@dataclass(frozen=True)
class OnLattice(SolvedStatistic):
    """A solution of which coordinates of a lattice are released."""

    component: RiskMinimizer
    coordinates: Coordinates

    @property
    def _unit(self) -> float:
        return self.component.unit

    @property
    @abstractmethod
    def _row_error(self) -> float:
        """Bound on the error of a value whose row of the map sums to one."""

    @cached_property
    def float_error(self) -> float:
        """Bound on the error of any one released value, fixed point included."""
        return self._row_error * self._largest_row

    def float_error_norm(self, norm: int) -> float:
        """The same of all values of all outputs: the norm of the row sums, which factors."""
        outputs = math.sqrt(self.component.outputs) if norm == 2 else self.component.outputs
        axes = (self.coordinates.row_sums(axis) for axis in range(len(self.coordinates.lattice.k)))
        rows = math.prod(float((sums**norm).sum() ** (1 / norm)) for sums in axes)
        return OUTWARD * outputs * self._row_error * rows

    @property
    def _largest_row(self) -> float:
        axes = range(len(self.coordinates.lattice.k))
        return math.prod(float(self.coordinates.row_sums(axis).max()) for axis in axes)

    @cached_property
    def position_error(self) -> float:
        """That of the weights at its largest, and the kernel's cut: accuracy, never privacy."""
        space = self.component.space
        return (
            OUTWARD * (space.reach * self.weight_error + space.cut_error(self._risk)) / self._unit
        )

    @property
    def value_bound(self) -> float:
        """``sup |phi|`` times the norm of the mean, mapped; and everything floats can add."""
        reach = self.component.space.reach
        return OUTWARD * 1.001 * self._largest_row * reach * self.mean_norm / self._unit


@dataclass(frozen=True)
class RiskStatistic(OnLattice, SolvedWeights):
    """A risk minimizer's coordinates, from its weights."""

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
        floats = space.value_error(self.coordinates, mass, rest)
        floats += 6 * UNIT_ROUNDOFF * space.reach * self.mean_norm
        return OUTWARD * (floats + self.step * space.reach) / self._unit

    @property
    def table_bytes(self) -> int:
        """Features at the lattice points of each axis, mapped, and the products under way."""
        nodes = self.coordinates.lattice.shape
        return 8 * 3 * (sum(nodes) + max(nodes)) * self._space.size

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab."""
        mean = self.mean(state[output])
        return self._space.values(mean, self.coordinates, slab) / self._unit
