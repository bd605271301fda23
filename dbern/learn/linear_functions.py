"""Linear functions by objective or weights: how, and with which C, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Literal

from dbern.bernstein.reproducing import Linear
from dbern.data.domain import RecordSchema
from dbern.erm.losses import Loss
from dbern.erm.perturbed import PerturbedFunctions, loss_of
from dbern.erm.spaces import LinearFeatures
from dbern.erm.statistics import LinearFunctions
from dbern.errors import SpecError
from dbern.learn.minimizers import (
    Cost,
    Method,
    Shards,
    alpha_text,
    cost_text,
    label_weights,
    num_shards,
    stated_cost,
)
from dbern.learn.predictions import (
    determinant_fraction,
    predicted_perturbed,
    predicted_weights,
    typical_records,
)
from dbern.measure.gathered import GatheredAccumulator
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.reconstruct.base import AnyStrategy, VectorStrategy
from dbern.targets.typical import (
    UNPREDICTED,
    Typical,
    TypicalResponses,
)

MAX_OBJECTIVE_ROWS = 1 << 22
"""Rows that "auto" has the releasing process hold at most."""

_COST_GRID = tuple(4.0**power for power in range(11))
_DETERMINANT_FRACTIONS = tuple(Fraction(1, 1 << power) for power in range(1, 7))
_MAX_PREDICTED = 64  # numbers: above, a prediction takes seconds
_MAX_CATEGORICAL = 256  # with lists, where weights are no choice
_PURE_EPSILON = (
    'target.method: "objective" is for a pure epsilon. Write method = "weights", or delta = "0" '
    "under budget"
)
_CATEGORICAL_DELTA = (
    'budget.delta: linear functions with lists of values are for a pure epsilon. Write delta = "0"'
)
WEIGHTS_ONLY = 'target.constant, target.shards: are of method = "weights". Leave them out.'
NUMERIC_ONLY = 'target.method: weights are of axes of numbers in this version. Write method = "{}".'


@dataclass(frozen=True, kw_only=True)
class UnboundLinearFunctions(LinearFunctions):
    """Linear functions before a plan chooses the method and C.

    Where C is `chosen`, `cost` is none yet. Functions are predicted for the records of `typical`.
    """

    release_method: Literal["auto", "objective", "weights"]
    typical: Typical

    @property
    def model(self) -> LinearFunctions:
        """The functions alone."""
        names = [parameter.name for parameter in fields(LinearFunctions)]
        return LinearFunctions(**{name: getattr(self, name) for name in names})

    def from_params(
        self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]
    ) -> GatheredAccumulator:
        """Return the sums of the method that a plan has chosen."""
        if "weight" in params:
            functions = PerturbedFunctions.of_params(self.model, n, params)
            return functions.from_params(strategy, n, params)
        return self.model.from_params(strategy, n, params)

    def bind(self, n: int, charge: Budget) -> Statistic:
        """The method and C that predict the smaller risk, with the prediction's text.

        The risk of more than two classes is the share of wrong ones, as noise costs the log loss
        long before it costs the largest score.
        """
        lists, epsilon = self.domain.categorical, charge.epsilon
        stated = self.release_method == "objective"
        if (stated or lists) and charge.delta:
            raise SpecError(_CATEGORICAL_DELTA if lists else _PURE_EPSILON)
        numbers = (self.space.dimensions + 1) * max(2, self.num_models)
        small = numbers <= (_MAX_CATEGORICAL if lists else _MAX_PREDICTED)
        free = self.release_method == "auto" and not lists
        usual = (self.space.kernel.constant, self.shards) == (1, None)
        candidates: list[LinearFunctions | PerturbedFunctions] = []
        with suppress(SpecError) if free else nullcontext():  # too few rows for an objective
            if stated or lists or (free and usual and not charge.delta and n <= MAX_OBJECTIVE_ROWS):
                candidates += self._by_objective(
                    n, epsilon, self._determinant_fractions(n, epsilon, small=small)
                )
        if not candidates or (free and small):
            costs = _COST_GRID if self.chosen and small else (self.cost,)
            candidates += [replace(self.model, cost=cost).resolved(n) for cost in costs]
        if not small:
            return self._with_notes(candidates[0], UNPREDICTED)
        risks = [self._predicted(candidate, epsilon) for candidate in candidates]
        risk = min(risks)
        predictions = self.typical.note(risk) if self.loss.typical_risk else ()
        return self._with_notes(candidates[risks.index(risk)], predictions)

    def _with_notes(
        self, functions: LinearFunctions | PerturbedFunctions, predictions: tuple[str, ...]
    ) -> Statistic:
        """Note the method and the C that were chosen; a stated C is noted by its learner."""
        if isinstance(functions, PerturbedFunctions):
            n = functions.model.n
            method, cost = "objective", 4 * n * functions.risk.weight  # as in `_by_objective`
        else:
            n, method, cost = functions.n, "weights", functions.cost
        if not self.chosen:
            return replace(functions, notes=(f"by {method}", *predictions))
        text = alpha_text if isinstance(self.typical, TypicalResponses) else cost_text
        return replace(functions, notes=(f"by {method}, {text(cost, n)}", *predictions))

    def _predicted(
        self, functions: LinearFunctions | PerturbedFunctions, epsilon: Fraction
    ) -> tuple[float, float]:
        if isinstance(functions, PerturbedFunctions):
            return predicted_perturbed(self.typical, functions)
        sensitivity = functions.sensitivity(VectorStrategy(len(functions.entries)), 1).value
        noise = math.sqrt(2) * sensitivity / functions.n / float(epsilon)
        space, loss, cost = functions.space, functions.loss, functions.cost
        return predicted_weights(self.typical, space, loss, cost, noise)[0]

    def _determinant_fractions(
        self, n: int, epsilon: Fraction, *, small: bool
    ) -> Sequence[Fraction]:
        """Fractions of epsilon that the Jacobian may have: by formula, or to be predicted with.

        No formula says how many of several classes are told wrong: there a penalty costs little
        that shrinks all scores alike, but draws to the most frequent class.
        """
        if self.typical.models > 1 and small:
            return _DETERMINANT_FRACTIONS
        epsilon_of_row = epsilon / self.protection.unit.max_contributions
        return (determinant_fraction(n, epsilon_of_row, loss_of(self.model), self.typical),)

    def _by_objective(
        self, n: int, epsilon: Fraction, determinants: Sequence[Fraction]
    ) -> list[PerturbedFunctions]:
        model = self.model
        if self.chosen:
            return [
                PerturbedFunctions.for_budget(model, n, epsilon, determinant)
                for determinant in determinants
            ]
        # A weight of the unit cube is twice one of [-1, 1], and J is divided by the penalty.
        weight = self.cost / (4 * n)
        for k in range(1, 125):
            functions = PerturbedFunctions.for_budget(model, n, epsilon, Fraction(k, 128))
            if functions.risk.weight >= weight:
                return [replace(functions, risk=replace(functions.risk, weight=weight))]
        raise SpecError(
            f"target.C: too large for {n} rows and epsilon {float(epsilon):g} by objective. Write "
            f'C = {0.99 * self.cost * functions.risk.weight / weight:.2g} or less, or C = "auto"'
        )


def build_linear_functions(
    schema: RecordSchema, loss: Loss, method: Method, cost: Cost, constant: float, shards: Shards
) -> Statistic:
    """Linear functions by objective or weights, as the plan chooses.

    Raises SpecError for parameters that an axis of categories has no use for.
    """
    domain, response = schema.domain, schema.response
    if domain.categorical and method == "weights":
        raise SpecError(NUMERIC_ONLY.format("objective"))
    if domain.categorical and (constant, shards) != (1.0, "auto"):
        raise SpecError(WEIGHTS_ONLY)
    space = LinearFeatures(sum(domain.blocks) + len(domain.numeric), Linear(constant))
    radius, weights = response.radius if response else 1.0, label_weights(schema)
    return UnboundLinearFunctions(
        domain, loss, space, weights, stated_cost(cost), radius, num_shards(shards),
        chosen=cost == "auto", release_method=method, typical=typical_records(schema, loss),
    )  # fmt: skip


def released_method(counting: Mapping[str, Any]) -> dict[str, Any]:
    """Method of linear functions with these counting parameters."""
    return {"method": "objective" if "weight" in counting else "weights"}
