"""Linear functions: how their weights are released, and with which C, from public facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from dbern.counting.measurement import Measurement
from dbern.counting.passes import Accumulator
from dbern.data.domain import Column
from dbern.erm.measurement import LinearFunctions
from dbern.erm.perturbed import PerturbedFunctions, loss_of, restored
from dbern.errors import SpecError
from dbern.privacy.budget import Budget, Protection
from dbern.targets.predictions import (
    UNPREDICTED,
    Typical,
    determinant_share,
    predicted_perturbed,
    predicted_released,
)

MOST_ROWS = 1 << 22
"""Rows that "auto" has the releasing process hold at most."""

_COSTS = tuple(4.0**power for power in range(11))
_MOST_PREDICTED = 64  # numbers: above, a prediction takes seconds
_MOST_LISTED = 256  # with lists, where weights are no choice
_WHERE = (
    'target.method: "objective" is for a pure epsilon. Write method = "weights", or delta = "0" '
    "under budget"
)
_LISTED = (
    'budget.delta: linear functions with lists of values are for a pure epsilon. Write delta = "0"'
)


@dataclass(frozen=True)
class Classifier:
    """Linear functions before a plan chooses its method and its C.

    Parameters
    ----------
    model : LinearFunctions
        By weights; its cost is stated, or not chosen yet.
    method : str
    cost : float, optional
        None where the plan is to choose.
    typical : Typical
        Records that it is predicted for.
    protected : (Protection, Column or None), optional
        Where rows are private.
    """

    model: LinearFunctions
    method: Literal["auto", "objective", "weights"]
    cost: float | None
    typical: Typical
    protected: tuple[Protection, Column | None] | None = None

    def measurement(self) -> Measurement:
        """Return the measurement, of which a plan makes what is released."""
        return replace(
            self._protected.measurement(),
            for_charge=self._planned,
            restore=self._restored,
            protected=lambda *neighbors: replace(self, protected=neighbors).measurement(),
        )

    def _restored(self, strategy: Any, n: int, counting: Mapping[str, Any]) -> Accumulator:
        if "weight" in counting:
            return restored(self._protected, strategy, n, counting)
        return self._protected.measurement().restore(strategy, n, counting)

    @property
    def _protected(self) -> LinearFunctions:
        return self.model if self.protected is None else self.model.protected(*self.protected)

    def _planned(self, n: int, charge: Budget) -> Measurement:
        """Return the method and C that predict the smaller risk, with what a plan says."""
        classes, domain = max(2, self.model.outputs), self.model.domain
        numbers = (self.model.space.dimensions + 1) * classes
        small = numbers <= (_MOST_LISTED if domain.lists else _MOST_PREDICTED)
        typical = self.typical
        able = not charge.delta
        if (self.method == "objective" or domain.lists) and not able:
            raise SpecError(_LISTED if domain.lists else _WHERE)
        stated = self.cost, self.model.space.kernel.constant, self.model.shards
        usual = stated == (None, 1, None)
        perturbed = self.method == "objective" or bool(domain.lists)
        perturbed |= self.method == "auto" and able and usual and n <= MOST_ROWS
        found: list[tuple[tuple[float, float], Measurement]] = []
        if perturbed:
            functions = self._perturbed(n, charge.epsilon)
            risk = predicted_perturbed(typical, functions) if small else (0.0, 0.0)
            found.append((risk, functions.measurement()))
        if not perturbed or (self.method == "auto" and small and not domain.lists):
            model, risk = self._by_weights(n, charge.epsilon, small)
            found.append((risk, model.measurement()))
        risk, best = min(found, key=lambda one: one[0])
        return replace(best, notes=typical.note(risk) if small else UNPREDICTED)

    def _perturbed(self, n: int, epsilon: Fraction) -> PerturbedFunctions:
        model = self._protected
        if self.cost is None:
            a_row = epsilon / model.protection.unit.max_contributions
            share = determinant_share(n, a_row, loss_of(model), self.typical)
            return PerturbedFunctions.for_budget(model, n, epsilon, share)
        # A weight of the unit cube is twice one of [-1, 1], and J is divided by the penalty.
        weight = self.cost / (4 * n)
        for k in range(1, 125):
            functions = PerturbedFunctions.for_budget(model, n, epsilon, Fraction(k, 128))
            if functions.risk.weight >= weight:
                return replace(functions, risk=replace(functions.risk, weight=weight))
        raise SpecError(
            f"target.C: too large for {n} rows and epsilon {float(epsilon):g} by objective. Write "
            f'C = {0.99 * self.cost * functions.risk.weight / weight:.2g} or less, or C = "auto"'
        )

    def _by_weights(
        self, n: int, epsilon: Fraction, small: bool
    ) -> tuple[LinearFunctions, tuple[float, float]]:
        model = self._protected
        costs = _COSTS if self.cost is None and small else (model.cost,)
        found = []
        for cost in costs:
            one = replace(model, cost=cost).for_rows(n)
            risk = predicted_released(self.typical, one, epsilon) if small else (0.0, 0.0)
            found.append((risk, one))
        risk, best = min(found, key=lambda one: one[0])
        return best, risk
