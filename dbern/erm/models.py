"""Regularized risk minimizers: what is learned, how far one record moves it, and how it is solved.

``F = (1/m) sum_s w_s . phi``, w_s the minimizer of shard s (`dbern.erm.risk`), for each of q
outputs: one model, or one a class against the rest.

Sensitivity under replace-one
-----------------------------
*Weights.* Every w_s that is computed is within a proved distance of its shard's minimizer, and the
mean of the minimizers moves by at most ``r = 2 M C kappa / n``: the mean of what is computed moves
by ``r + instability`` in the Euclidean norm (`dbern.erm.solver`). A record's shard is a
function of its content alone, so this holds for any m. *Released values* are a linear map of the
weights, whose norm `Space.gain` bounds; ``S(F)`` is the move times ``sup |phi|``. *Outputs.* Every
record is in the problem of every output, so each moves by as much: q times in the l1 norm, and
``sqrt(q)`` times in the l2 norm. The paper prints half of r, and half of it is what removing a
record can do; a flipped label attains r.

Private rows
------------
n is then the public normalizer, and a shard may hold any number c of rows. So that its weight stays
bounded (and with it the error of floats), a record of a shard of c rows has the weight ``g(c) = a
max(0, 1 - (c - 1)/K)``, ``a = C m / n``, K a public power of two of at least 128 times the usual
``n / m``: usually this is less than one percent below a, and ``c g(c) <= a (K + 1)^2 / (4 K)``.

*A record added or removed* still moves w_s by at most ``a M kappa``. Proof: as of the theorem of
`dbern.erm.risk`, but the gradient now differs by ``g(c+1) L' phi`` of the new record and by
``(g(c) - g(c+1)) L' phi`` of each of the c others, ``M kappa (g(c+1) + c (g(c) - g(c+1)))`` at
most. Up to c = K that is ``M kappa a (1 - c/K + c/K)``, and 0 beyond. So the mean moves by r/2,
and by r where a record is replaced. Weights as floats are off by ``2^-53`` of themselves, which all
records make at most ``2^-52`` of all weight times ``M kappa``, for each of two databases.

*A unit of at most u rows*: a chain of u databases, each a record further, moves the minimizers by u
times that; what is computed is within its distance of them at both ends alone, so instability
enters once. The shard of a record is a function of its unit's id. M is that of a shard a quarter
heavier than usual, and the derivative is clipped there: a square loss becomes a Huber loss where
there are many more rows than n says.

Units: values are in units of ``C M c``, c the volume of a bump, so that a minimizer with a Gaussian
kernel is a mixture of densities with signed weights that sum to at most one.

What a pass over the records solves of a risk minimizer, as integers.

Each shard's solution is stored in steps of ``2^-s``, each number rounded by half a step, so states
of disjoint shards add up exactly.

Records are gathered by shard, equal ones counted, in sorted order: the solutions do not depend on
how records were distributed, on their order, or on the number of workers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.counting.kernel_sums import RecordWeights
from dbern.counting.passes import Accumulator, Gathering, Memory, StoppedError
from dbern.data.domain import Column, Domain
from dbern.erm.losses import Loss
from dbern.erm.risk import BLOCK, Risk
from dbern.erm.solver import STORED_FEATURES, Certified, Objective, objective, one_vs_rest
from dbern.erm.spaces import Features, Hypotheses
from dbern.erm.user import UserLoss, imported
from dbern.errors import SpecError
from dbern.privacy.budget import Protection
from dbern.system import source_digest
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

# --- What is learned, and how far one record moves it


_HEAVY = 1.25  # times the usual weight of a shard
_SPARE = 128  # times the usual rows of a shard, at which a record's weight is nothing
_USUAL = Protection()


@dataclass(frozen=True)
class RiskModel:
    """What is learned, whatever is released of it: see the top of the module.

    Parameters
    ----------
    loss : Loss
    space : Hypotheses
        What functions it is chosen from.
    record_weights : RecordWeights
        Gives a record's label as its weight (times `radius`), or where there are several outputs
        as its output, one against the rest.
    cost : float
        The paper's C.
    radius : float
        Half-width of the responses' bounds; 1 for classes.
    shards : int, optional
        Unless stated, so many that the features of one are kept in memory.
    ids : Column, optional
        Units' ids, where shards are of whole units.
    n : int
        Public number of rows, or normalizer; 0 before a plan: only a plan's component has
        sensitivities.
    sources : tuple of (str, str, str)
        Of a kernel and a loss that the spec names its key, name and module's digest: bounds are
        proved for the text that was planned with.
    """

    domain: Domain
    loss: Loss
    space: Hypotheses
    record_weights: RecordWeights
    cost: float
    radius: float = 1.0
    shards: int | None = None
    n: int = 0
    protection: Protection = _USUAL
    ids: Column | None = None
    sources: tuple[tuple[str, str, str], ...] = ()

    def for_rows(self, n: int) -> Self:
        """The same for n records: shards and features are fixed.

        Raises
        ------
        SpecError
            For more shards than records, or features that do not suffice.
        """
        if self.shards is not None and self.shards > n:
            raise SpecError(f"target.shards: more than the {n} records; write shards = 1")
        shards = self.shards or -(-n // self._resolved(1, n).shard_rows)
        return replace(self, n=n, shards=shards, space=self._resolved(shards, n))

    def protected(self, protection: Protection, ids: Column | None) -> Self:
        """The same for other neighbours."""
        return replace(self, protection=protection, ids=ids)

    def restored(self, n: int, counting: Mapping[str, Any]) -> Self:
        """The model that a plan has resolved."""
        return replace(self, n=n, shards=counting["shards"], space=self.space.restored(counting))

    def _resolved(self, shards: int, n: int) -> Hypotheses:
        factor = 1 + math.sqrt(self.cost * shards * self.loss.curvature) / 2
        return self.space.resolved(factor, n)

    @property
    def outputs(self) -> int:
        """As many as the record weights have."""
        return self.record_weights.outputs

    @cached_property
    def risk(self) -> Risk:
        """The learning problem of one output.

        By content a shard may hold every record, m times its usual weight, and the loss's M there
        is for weights that never occur. So where there is more than one shard the derivative is
        clipped at the M of a shard a quarter heavier than usual (of the square loss this is a
        Huber loss): shards up to that weight have the same minimizers, and all the same
        sensitivity.
        """
        shards, private = self.shards or 1, self.protection.private_rows
        risk = Risk(
            self.loss,
            self.space.kernel,
            self.cost * (_HEAVY if shards > 1 or private else 1),
            self.n,
            self.space.radius,
            self.space.dimensions,
        )
        rows = shards * (self._full // 4 + 1) if private else None
        return replace(risk, cost=self.cost, shards=shards, lipschitz=risk.slope, rows=rows)

    @property
    def _full(self) -> int:
        """K: see the top of the module."""
        return 1 << (_SPARE * -(-self.n // (self.shards or 1)) - 1).bit_length()

    def _weight_of(self, rows: float) -> float:
        """``g / a`` in a shard of so many rows: exact, as K is a power of two far below 2^53."""
        return max(0.0, 1.0 - (rows - 1.0) / self._full)

    @cached_property
    def method(self) -> Certified:
        """Steps to a proved distance from the minimizer, which adds 0.4 % to r.

        Of a user's loss the number of steps follows from what its user states: whether the distance
        is reached is looked at, and a failure is seen.
        """
        method = Certified.for_sensitivity(self.risk)
        return replace(method, observed=isinstance(self.loss, UserLoss))

    @property
    def moved(self) -> float:
        """What a neighbour can do to the weights of one output, in the Euclidean norm."""
        rows = self.protection.unit.max_contributions / (2 if self.protection.added else 1)
        risk, floats = self.risk, 0.0
        if self.protection.private_rows:
            floats = 4 * UNIT_ROUNDOFF * risk.most_weight * risk.slope * risk.kappa
        return OUTWARD * (rows * risk.sensitivity + self.method.instability(risk) + floats)

    @property
    def steps(self) -> str:
        """How many times ``M C kappa / n`` that is, in words."""
        rows = self.protection.unit.max_contributions
        times = "" if self.protection.added else "2 "
        return times if rows == 1 else f"{rows} rows x {times}"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axes' columns and the label's."""
        return self.domain.columns + self.record_weights.columns

    def rows(self, records: Mapping[str, FloatArray]) -> FloatArray:
        """Points and label (m', l + 1) of the records that count: their content."""
        kept, positions = self.domain.bounded(records)
        known, output, weight = self.record_weights(records)
        if known is not None:
            positions, kept = positions[known[kept]], kept & known
        labels = output if weight is None else weight
        assert labels is not None, "record weights that give labels"  # noqa: S101 - for the types
        # Adding 0.0 makes one zero of two, here as in the hash.
        chosen = labels[kept] * (self.radius if weight is not None else 1)
        return np.column_stack([self.space.points(positions), chosen]) + 0.0

    def units(self, records: Mapping[str, FloatArray]) -> FloatArray:
        """Ids (m', 2) of the same records."""
        kept, _ = self.domain.bounded(records)
        known, _, _ = self.record_weights(records)
        kept = kept if known is None else kept & known
        assert self.ids is not None, "a unit wider than a row"  # noqa: S101 - for the types
        return records[self.ids.name][kept]

    def fitted(
        self, points: FloatArray, labels: FloatArray, counts: FloatArray
    ) -> tuple[Objective, FloatArray]:
        """One shard's problem and its solution, of its distinct records and their counts."""
        targets = one_vs_rest(labels, self.outputs) if self.outputs > 1 else labels
        if self.protection.private_rows:
            counts = counts * self._weight_of(float(counts.sum()))
        problem = objective(self.risk, points, targets, counts)
        return problem, self.method.run(problem)


# --- What a pass over the records solves of a risk minimizer, as integers

PASS_ROWS = 1 << 18
"""Rows that a pass gathers, unless a shard has more: reading them again costs less than solving."""

MOST_BITS = 60
_SOLVER_COPIES = 5  # of the rows of a pass: gathered, sorted, split, their labels and slopes


@dataclass(frozen=True)
class SolvedAccumulator(Accumulator):
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
        prediction's error ``|w| delta`` and a gradient's ``C M delta`` (`dbern.erm.risk`).
        """
        risk, delta = self._risk, self.component.space.drift(16 * UNIT_ROUNDOFF)
        moved = self.mean_norm * math.sqrt(risk.most_weight * risk.loss.curvature) / 2
        moved = delta * (moved + risk.cost * risk.slope + self.mean_norm)
        return self.component.method.distance(risk) + moved

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
    def memory(self) -> Memory:
        """Positions, labels, hashes and a few temporaries; what `finish` takes; one pass."""
        batch = 8 * (24 + 6 * len(self.component.domain.axes))
        return Memory(batch, self._table_bytes, self._gathered_bytes)

    @property
    @abstractmethod
    def _gathered_bytes(self) -> int:
        """Memory of one pass."""

    @property
    def _table_bytes(self) -> int:
        """Memory that `finish` takes besides state and slab."""
        return 0

    @property
    def _rows_bytes(self) -> int:
        """Of a pass's records."""
        width = len(self.component.domain.axes) + 2 + 2 * self.component.outputs
        return 8 * _SOLVER_COPIES * width * self._pass_rows

    def begin(self, state: Int64Array, salt: bytes, index: int) -> Gathering:
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
            state,
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


@dataclass(frozen=True)
class SolvedWeights(SolvedAccumulator):
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
    def _gathered_bytes(self) -> int:
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
