"""Regularized risk minimizers: what is learned, whatever is released of it, and how far it moves.

``F = (1/m) sum_s w_s . phi``, w_s the minimizer of shard s (`dbern.learning.risk`), for each of q
outputs: one model, or one a class against the rest.

Sensitivity under replace-one
-----------------------------
*Weights.* Every w_s that is computed is within a proved distance of its shard's minimizer, and the
mean of the minimizers moves by at most ``r = 2 M C kappa / n``: the mean of what is computed moves
by ``r + instability`` in the Euclidean norm (`dbern.learning.solver`). A record's shard is a
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
`dbern.learning.risk`, but the gradient now differs by ``g(c+1) L' phi`` of the new record and by
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
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.spectrum import UNIT_ROUNDOFF
from dbern.components.hypotheses import Hypotheses
from dbern.components.weighings import Weighing
from dbern.domain import Column, Domain
from dbern.errors import SpecError
from dbern.learning.losses import Loss
from dbern.learning.objective import Objective, objective
from dbern.learning.risk import Risk
from dbern.learning.solver import Certified, one_vs_rest
from dbern.learning.user import UserLoss
from dbern.privacy.budget import Protection

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
    weighing : Weighing
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
    weighing: Weighing
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
        """As many as the weighing has."""
        return self.weighing.outputs

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
        return self.domain.columns + self.weighing.columns

    def rows(self, records: Mapping[str, FloatArray]) -> FloatArray:
        """Points and label (m', l + 1) of the records that count: their content."""
        kept, positions = self.domain.bounded(records)
        known, output, weight = self.weighing(records)
        if known is not None:
            positions, kept = positions[known[kept]], kept & known
        labels = output if weight is None else weight
        assert labels is not None, "a weighing that gives labels"  # noqa: S101 - for the types
        # Adding 0.0 makes one zero of two, here as in the hash.
        chosen = labels[kept] * (self.radius if weight is not None else 1)
        return np.column_stack([self.space.points(positions), chosen]) + 0.0

    def units(self, records: Mapping[str, FloatArray]) -> FloatArray:
        """Ids (m', 2) of the same records."""
        kept, _ = self.domain.bounded(records)
        known, _, _ = self.weighing(records)
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
