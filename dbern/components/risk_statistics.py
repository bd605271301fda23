"""What a pass over the records solves of a risk minimizer, as integers.

Each shard's solution is stored in steps of ``2^-s``, each number rounded by half a step, so states
of disjoint shards add up exactly.

Records are gathered by shard, equal ones counted, in sorted order: the solutions do not depend on
how records were distributed, on their order, or on the number of workers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.lattice import Slab
from dbern.bernstein.spectrum import UNIT_ROUNDOFF
from dbern.components.counting import StoppedError
from dbern.components.gathering import Gathering
from dbern.components.risk_models import RiskModel
from dbern.components.spaces import Features
from dbern.domain import Column
from dbern.errors import SpecError
from dbern.functions import source_digest
from dbern.learning.objective import STORED_FEATURES
from dbern.learning.risk import Risk
from dbern.learning.rounding import BLOCK
from dbern.learning.user import imported

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
        """What one pass gathers and solves; of bounded units it is given its own alone.

        Raises
        ------
        StoppedError
            Where a kernel or a loss of the user's is not the one that was planned.
        """
        for key, name, digest in self.component.sources:
            try:
                imported(name, key)
            except SpecError:
                raise StoppedError("unlike", key) from None
            if source_digest(name) != digest:
                raise StoppedError("unlike", key)
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
