"""Regularized risk minimizers: the learning problem, its sensitivity and its solution.

``F = (1/m) sum_s w_s . phi``, w_s the minimizer of shard s (`dbern.erm.risk`), for each of q
outputs: one model, or one a class against the rest.

Sensitivity under replace-one
-----------------------------
*Weights.* Every w_s that is computed is within a proved distance of its shard's minimizer, and the
mean of the minimizers moves by at most ``r = 2 M C kappa / n``: the mean of what is computed moves
by r and twice that distance in the Euclidean norm (`dbern.erm.solver`). A record's shard is a
function of its content alone, so this holds for any m. *Released values* are a linear map of the
weights, whose `operator_norm` the space bounds; ``S(F)`` is the weights' sensitivity times
``sup |phi|``. *Outputs.* Every record is in the problem of every output, so each moves by as much:
q times in the l1 norm, and ``sqrt(q)`` times in the l2 norm. The paper prints half of r, and half
of it is what removing a record can do; a flipped label attains r.

Private rows
------------
A record added or removed moves the mean by r/2 (`dbern.erm.risk`, where weights vanish in full
shards). K is a power of two of at least 128 times the usual ``n / m`` rows, so a record's weight is
usually less than one percent below a.

*A unit of at most u rows*: a chain of u databases, each a record further, moves the minimizers by u
times that; what is computed is within its distance of them at both ends alone, so that enters
once. The shard of a record is a function of its unit's id. M is that of a shard a quarter
heavier than usual, and the derivative is clipped there: a square loss becomes a Huber loss where
there are many more rows than n says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.data.domain import Column, Domain
from dbern.erm.float_errors import mean_state_error, state_error
from dbern.erm.losses import Loss, UserLoss, one_vs_rest
from dbern.erm.risk import Risk
from dbern.erm.shards import DualObjective, PrimalObjective, objective
from dbern.erm.solver import ProblemBounds, minimize
from dbern.erm.spaces import Space
from dbern.errors import SpecError
from dbern.measure.record_weights import RecordWeights
from dbern.privacy.budget import Protection
from dbern.types import UNIT_ROUNDOFF, BoolArray, FloatArray

_RELATIVE_TOLERANCE = 2.0**-8  # of the sensitivity
_HEAVY_SHARD = 1.25  # times the usual weight of a shard
_VANISHING_SHARD = 128  # times the usual rows of a shard, at which a record's weight is nothing
_DEFAULT_PROTECTION = Protection()


@dataclass(frozen=True)
class SolutionBounds:
    """Bounds of the solutions of all shards, each from those above it."""

    tolerance: float
    """Distance allowed to the iteration, which adds 0.4 % to r."""
    distance: float
    """Distance from the minimizers, floats included, in the mean over shards."""
    sensitivity: float
    """A neighbour's change of the weights of one output, in the Euclidean norm."""
    heaviest: ProblemBounds
    """The objective of a shard with every row."""
    average: ProblemBounds
    """The objective of a shard of average weight."""


@dataclass(frozen=True)
class RiskModel:
    """The learning problem, whatever is released of its solution.

    `space` has the functions it is chosen from. `record_weights` gives a record's label as its
    weight (times `radius`, the half-width of the responses' bounds, 1 for classes), or where there
    are several outputs as its output, one against the rest. `cost` is the paper's C, and `chosen`
    if a plan chose it, which then stores it. There are `shards`, by default so many that the
    features of one are kept in memory; where they are of whole units, `ids` has the units' ids. `n`
    is the public number of rows or the normalizer, 0 before a plan: only a plan's statistic has
    sensitivities. `sources` are key, name and digest of the module of a kernel and a loss that the
    spec names: bounds are proved for the text that was planned with.
    """

    domain: Domain
    loss: Loss
    space: Space
    record_weights: RecordWeights
    cost: float
    radius: float = 1.0
    shards: int | None = None
    n: int = 0
    protection: Protection = field(default=_DEFAULT_PROTECTION, kw_only=True)
    ids: Column | None = None
    sources: tuple[tuple[str, str, str], ...] = ()
    chosen: bool = False

    def resolved(self, n: int) -> Self:
        """The model for n records, with fixed shards and features.

        Raises SpecError for more shards than records, or features that do not suffice.
        """
        if self.shards is not None and self.shards > n:
            raise SpecError(f"target.shards: more than the {n} records. Write shards = 1")
        shards = self.shards or -(-n // self._resolve_space(1, n).shard_rows)
        return replace(self, n=n, shards=shards, space=self._resolve_space(shards, n))

    def protected(self, protection: Protection, ids: Column | None) -> Self:
        """The model for another neighboring relation."""
        return replace(self, protection=protection, ids=ids)

    def with_params(self, n: int, params: Mapping[str, Any]) -> Self:
        """The model that a plan has resolved."""
        cost, space = params.get("C", self.cost), self.space.with_params(params)
        return replace(self, n=n, shards=params["shards"], space=space, cost=cost)

    @property
    def stored_params(self) -> dict[str, Any]:
        """Parameters that the plan stores besides shards, as JSON values (`with_params`)."""
        return {**({"C": self.cost} if self.chosen else {}), **self.space.stored_params}

    def _resolve_space(self, shards: int, n: int) -> Space:
        factor = 1 + math.sqrt(self.cost * shards * self.loss.curvature) / 2
        return self.space.resolved(factor, n)

    @property
    def num_models(self) -> int:
        """Number of models."""
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
        heavy = self.cost * (_HEAVY_SHARD if shards > 1 or private else 1)
        space, axes = self.space, self.domain.dimensions
        risk = Risk(self.loss, space.kernel, heavy, self.n, space.radius, axes)
        risk = replace(risk, cost=self.cost, shards=shards, lipschitz=risk.bounds.slope)
        vanishing = 1 << (_VANISHING_SHARD * -(-self.n // shards) - 1).bit_length()
        return replace(risk, vanishing=vanishing) if private else risk

    @cached_property
    def bounds(self) -> SolutionBounds:
        """Bounds that hold for every database."""
        risk, bounds, protection = self.risk, self.risk.bounds, self.protection
        tolerance = _RELATIVE_TOLERANCE * bounds.sensitivity / 2
        distance = tolerance + mean_state_error(risk)
        rows, floats = protection.unit.max_contributions / (2 if protection.added else 1), 0.0
        if protection.private_rows:
            floats = 4 * UNIT_ROUNDOFF * bounds.max_weight * bounds.slope * bounds.kappa
        sensitivity = OUTWARD * (rows * bounds.sensitivity + 2 * distance + floats)
        heaviest = risk.shard_bounds(bounds.max_weight)
        average = risk.shard_bounds(bounds.max_weight / risk.shards)
        return SolutionBounds(tolerance, distance, sensitivity, heaviest, average)

    @property
    def derivation(self) -> str:
        """Derivation of r, in words."""
        rows = self.protection.unit.max_contributions
        times = "" if self.protection.added else "2 "
        times = times if rows == 1 else f"{rows} rows x {times}"
        return f"r = {times}M C kappa / n and twice the solver's distance"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axes' columns and the label's."""
        return self.domain.columns + self.record_weights.columns

    def rows(self, records: Mapping[str, FloatArray]) -> FloatArray:
        """Points and label (m', l + 1) of the records that count: their content."""
        _, positions, labels = self._counted(records)
        # Adding 0.0 makes one zero of two, here as in the hash.
        return np.column_stack([self.space.points(positions), labels]) + 0.0

    def units(self, records: Mapping[str, FloatArray]) -> FloatArray:
        """Ids (m', 2) of the units of the same records."""
        assert self.ids is not None, "a unit wider than a row"  # noqa: S101 - for the types
        return records[self.ids.name][self._counted(records)[0]]

    def _counted(
        self, records: Mapping[str, FloatArray]
    ) -> tuple[BoolArray, FloatArray, FloatArray]:
        valid, positions = self.domain.bounded(records)
        labelled, output, weight = self.record_weights(records)
        if labelled is not None:
            positions, valid = positions[labelled[valid]], valid & labelled
        labels = output if weight is None else weight
        assert labels is not None, "weights that give labels"  # noqa: S101 - for the types
        record_labels = labels[valid] * (self.radius if weight is not None else 1)
        return valid, positions, np.asarray(record_labels, dtype=np.float64)

    def fitted(
        self, points: FloatArray, labels: FloatArray, counts: FloatArray
    ) -> tuple[DualObjective | PrimalObjective, FloatArray]:
        """Problem and solution of one shard, from its distinct records and their counts.

        Of a user's loss the number of steps follows from what the user declares: whether the
        distance is reached is checked, and a SpecError that it is not can be observed.
        """
        targets = one_vs_rest(labels, self.num_models) if self.num_models > 1 else labels
        problem = objective(self.risk, points, targets, counts)
        solved = minimize(problem, self.bounds.tolerance)
        limit = self.bounds.tolerance + state_error(self.risk, problem.total)
        if isinstance(self.loss, UserLoss) and not solved.distance <= limit:
            raise SpecError(
                "target.loss: did not converge, so it is not what the spec declares: convex, "
                "Lipschitz and as smooth. Write larger constants, or a loss that is."
            )
        return problem, solved.state
