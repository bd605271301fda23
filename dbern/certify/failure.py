"""Shares of a probability of failure, beta: one table for every bound that is made of several.

A bound at ``1 - beta`` that needs several others gives each a share of beta. All hold at once with
the probability that is promised, as the shares sum to one: the union bound, whatever depends on
what. What arrays, groups, candidates, questions or both sides of an interval share is dealt out in
equal parts before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from dbern.errors import SpecError


@dataclass(frozen=True)
class FailureBudget:
    """Shares of a probability of failure, in per cent, by the name of what may fail with each.

    `within` has, for some of the names, the budget by which that share is dealt out in turn.
    """

    percent: Mapping[str, int]
    within: Mapping[str, FailureBudget] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sum(self.percent.values()) != 100 or min(self.percent.values()) <= 0:
            raise ValueError("shares of a probability of failure are above 0 and sum to one")

    def __getitem__(self, name: str) -> Fraction:
        return Fraction(self.percent[name], 100)

    def lines(self, beta: Fraction, indent: str = "  ") -> Iterator[str]:
        """Yield a line for each share of `beta`, and indented below it those that it is made of."""
        for name in self.percent:
            yield f"{indent}{float(self[name] * beta):<8.3g} {name}"
            if name in self.within:
                yield from self.within[name].lines(self[name] * beta, indent + "  ")


@dataclass
class Account:
    """Probability of failure that several answers share, and what is left of it."""

    beta: Fraction
    questions: int | None = None
    count: int = 0
    spent: Fraction = Fraction(0)

    @property
    def left(self) -> float:
        """Probability that is not yet taken."""
        return float(self.beta - self.spent)

    def __str__(self) -> str:
        return f"{self.count} asked, {self.left:.3g} left of beta = {float(self.beta):.3g}"

    def take(self, wanted: Fraction | None) -> Fraction:
        """Return the next question's part, or what it wants.

        Raises SpecError where less is left.
        """
        self.count += 1
        divisor = self.questions or self.count * (self.count + 1)
        beta_i = self.beta / divisor if wanted is None else wanted
        if beta_i > self.beta - self.spent:
            raise SpecError(
                f"confidence: {self}. Ask fewer questions, or write more of them in "
                "confidence(.., questions=..)"
            )
        self.spent += beta_i
        return beta_i


SIMULATION = FailureBudget({"quantile": 96, "draws": 4})
"""Simulated quantile: the quantile itself, and the draws that it is read off."""

NODES = FailureBudget({"values at nodes": 90, "largest draw": 10})
"""Tail of values: those at nodes, and the largest draw, which bounds what was cut off."""

FIELD = FailureBudget(
    {"at nodes": 99, "between nodes": 1}, {"at nodes": SIMULATION, "between nodes": NODES}
)
"""Simulated sup over the domain: at the nodes of the draws, and in between."""

BAND = FailureBudget({"values": 99, "approximation": 1}, {"values": FIELD})
"""Band about these data: noise of the values, and of the bound on what they miss."""

QUOTIENT = FailureBudget({"draws": 98, "tail": 2}, {"draws": SIMULATION})
"""Interval by draws of the noise: these, and the interval by its tail that they refine."""
