"""How charges compose: by basic composition or in zCDP; and the period that one counts in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Final, Protocol, Self

from dbern.errors import SpecError
from dbern.privacy.budget import Budget, decimal_text
from dbern.privacy.zcdp import epsilon_of, pure_rho, rho_for

BASIC: Final = "basic"
ZCDP: Final = "zcdp"

ACCOUNTANTS: Final = (BASIC, ZCDP)
"""How a dataset's charges compose: "basic" adds epsilons and deltas, "zcdp" adds rhos."""

PERIODS: Final = ("day", "week", "month")
"""When a dataset's budget is whole again: calendar days, weeks from Monday or months, in UTC."""


class Amount(Protocol):
    """What an account counts in: `Budget` or `Zcdp`, one of them for a dataset."""

    def __add__(self, other: Self) -> Self:
        """Both together."""

    def __sub__(self, other: Self) -> Self:
        """What is left of this."""

    def covers(self, other: Self) -> bool:
        """Whether `other` fits inside this amount."""

    def share_of(self, whole: Self) -> Fraction:
        """How much of `whole` this is."""


@dataclass(frozen=True)
class Zcdp:
    """An exact amount of rho, with the delta at which it is told as an epsilon.

    Examples
    --------
    >>> half = Zcdp(Fraction(1, 100), Fraction(1, 10**6))
    >>> print(half + half)
    rho 0.02 (epsilon 0.899935 at delta 0.000001)
    """

    rho: Fraction
    delta: Fraction

    @property
    def epsilon(self) -> Fraction:
        """What `rho` amounts to at `delta`, rounded up; below 0 for an overdrawn account's rest."""
        amount = epsilon_of(abs(self.rho), self.delta)
        return amount if self.rho >= 0 else -amount

    def __add__(self, other: Zcdp) -> Zcdp:
        return Zcdp(self.rho + other.rho, self.delta)

    def __sub__(self, other: Zcdp) -> Zcdp:
        return Zcdp(self.rho - other.rho, self.delta)

    def covers(self, other: Zcdp) -> bool:
        """Whether `other` fits inside this amount."""
        return other.rho <= self.rho

    def share_of(self, whole: Zcdp) -> Fraction:
        """How much of `whole` this is; 0 of nothing."""
        return self.rho / whole.rho if whole.rho else Fraction(0)

    def __str__(self) -> str:
        told = f"epsilon {float(self.epsilon):.6g} at delta {decimal_text(self.delta)}"
        return f"rho {float(self.rho):.6g} ({told})"


def granted_amount(accountant: str, granted: Budget) -> Amount:
    """What the grants of a dataset allow in all.

    In zCDP that is the largest rho, rounded down, whose conversion keeps the granted epsilon and
    delta: mechanisms of rhos that add up to no more are together zCDP of that rho, however each
    was chosen from the outcome of those before (Bun & Steinke 2016; Feldman & Zrnic 2021), and so
    (epsilon, delta)-DP.

    Raises
    ------
    SpecError
        In zCDP, when the deltas granted do not add up to a number above 0 and below 1.

    Examples
    --------
    >>> print(granted_amount("zcdp", Budget.parse("1", "1e-6")))
    rho 0.024356 (epsilon 1 at delta 0.000001)
    """
    if accountant == BASIC:
        return granted
    if not 0 < granted.delta < 1:
        raise SpecError(
            f"grant.delta: comes to {decimal_text(granted.delta)} in all, and a zcdp account needs "
            'it above 0 and below 1; write --delta "1e-6" with the first grant'
        )
    return Zcdp(rho_for(granted.epsilon, granted.delta), granted.delta)


def charged_amount(granted: Amount, charge: Budget, rho: Fraction | None) -> Amount:
    """What one release costs an account that was granted `granted`.

    Examples
    --------
    >>> granted = granted_amount("zcdp", Budget.parse("1", "1e-6"))
    >>> charged_amount(granted, Budget.parse("0.1"), rho_of_charge(Budget.parse("0.1"))).rho
    Fraction(1, 200)
    """
    if not isinstance(granted, Zcdp):
        return charge
    if rho is None:
        raise ValueError("a zcdp account holds a charge without a rho")
    return Zcdp(rho, granted.delta)


def rho_of_charge(charge: Budget, rho: Fraction | None = None) -> Fraction | None:
    """The rho of a charge: as stated, ``epsilon^2/2`` of a pure one, None where none is known."""
    if rho is None and not charge.delta:
        return pure_rho(charge.epsilon)
    return rho


def period_of(created: str, period: str | None) -> str | None:
    """The calendar period of a time in ISO text, UTC; None for a budget that is never renewed.

    Examples
    --------
    >>> [period_of("2026-01-01T00:00:00+00:00", period) for period in PERIODS]
    ['2026-01-01', '2026-W01', '2026-01']
    """
    if period is None:
        return None
    day = date.fromisoformat(created[:10])
    if period == "week":
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02}"
    return day.isoformat() if period == "day" else f"{day:%Y-%m}"
