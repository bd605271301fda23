"""One account of confidence for several answers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dbern.errors import SpecError


@dataclass
class Account:
    """What is left of a probability of failure that several answers share."""

    beta: Fraction
    questions: int | None = None
    asked: int = 0
    spent: Fraction = Fraction(0)

    @property
    def left(self) -> float:
        """What is not yet taken."""
        return float(self.beta - self.spent)

    def __str__(self) -> str:
        return f"{self.asked} asked, {self.left:.3g} left of beta = {float(self.beta):.3g}"

    def take(self, wanted: Fraction | None) -> Fraction:
        """Return the next question's part, or what it wants.

        Raises
        ------
        SpecError
            Where less is left.
        """
        self.asked += 1
        share = self.questions or self.asked * (self.asked + 1)
        part = self.beta / share if wanted is None else wanted
        if part > self.beta - self.spent:
            raise SpecError(
                f"confidence: {self}. Ask fewer questions, or write more of them in "
                "confidence(.., questions=..)"
            )
        self.spent += part
        return part
