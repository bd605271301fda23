"""Composition: amounts of an account, how they add up (basic or in zCDP), and their periods."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Final, Protocol, Self

from dbern.errors import IntegrityError, SpecError
from dbern.privacy.budget import Budget, decimal_text, exact
from dbern.privacy.zcdp import epsilon_of, pure_rho, rho_for

BASIC: Final = "basic"
ZCDP: Final = "zcdp"
ACCOUNTANTS: Final = (BASIC, ZCDP)
"""How a dataset's charges compose: "basic" adds epsilons and deltas, "zcdp" adds rhos."""
PERIODS: Final = ("day", "week", "month", "year")
"""When a dataset's budget is renewed: calendar days, weeks from Monday, months or years, in UTC."""
_MAX_EPSILON = 10**12
_MAX_DENOMINATOR = 10**100  # a status can still show sums of grants


class Amount(Protocol):
    """Amount of an account: `Budget` or `Zcdp`, one of them for a dataset."""

    def __add__(self, other: Self) -> Self:
        """Sum of both amounts."""

    def __sub__(self, other: Self) -> Self:
        """Remainder of this amount after the other."""

    def covers(self, other: Self) -> bool:
        """Return whether `other` fits inside this amount."""

    def fraction_of(self, total: Self) -> Fraction:
        """Return the fraction of `total` that this is."""


@dataclass(frozen=True)
class Zcdp:
    """An exact amount of rho, with the delta at which it is shown as an epsilon."""

    rho: Fraction
    delta: Fraction

    @property
    def epsilon(self) -> Fraction:
        """Epsilon of `rho` at `delta`, rounded up; below 0 for an overdrawn account's rest."""
        amount = epsilon_of(abs(self.rho), self.delta)
        return amount if self.rho >= 0 else -amount

    def __add__(self, other: Zcdp) -> Zcdp:
        return Zcdp(self.rho + other.rho, self.delta)

    def __sub__(self, other: Zcdp) -> Zcdp:
        return Zcdp(self.rho - other.rho, self.delta)

    def covers(self, other: Zcdp) -> bool:
        """Return whether `other` fits inside this amount."""
        return other.rho <= self.rho

    def fraction_of(self, total: Zcdp) -> Fraction:
        """Return the fraction of `total` that this is; 0 of nothing."""
        return self.rho / total.rho if total.rho else Fraction(0)

    def __str__(self) -> str:
        as_epsilon = f"epsilon {float(self.epsilon):.6g} at delta {decimal_text(self.delta)}"
        return f"rho {float(self.rho):.6g} ({as_epsilon})"


def granted_amount(accountant: str, granted: Budget) -> Amount:
    """Amount that the grants of a dataset allow in all.

    In zCDP that is the largest rho, rounded down, whose conversion keeps the granted epsilon and
    delta: mechanisms of rhos that add up to no more are together zCDP of that rho, however each
    was chosen from the outcome of those before (Bun & Steinke 2016; Feldman & Zrnic 2021), and so
    (epsilon, delta)-DP.
    """
    if accountant == BASIC:
        return granted
    if not 0 < granted.delta < 1:
        raise SpecError(
            f"grant.delta: comes to {decimal_text(granted.delta)} in all, and a zcdp account needs "
            'it above 0 and below 1. Write --delta "1e-6" with the first grant.'
        )
    return Zcdp(rho_for(granted.epsilon, granted.delta), granted.delta)


def charged_amount(granted: Amount, charge: Budget, rho: Fraction | None) -> Amount:
    """Amount that one release costs an account of which `granted` was granted."""
    if not isinstance(granted, Zcdp):
        return charge
    if rho is None:
        raise ValueError("a zcdp account holds a charge without a rho")
    return Zcdp(rho, granted.delta)


def rho_of_charge(charge: Budget, rho: Fraction | None) -> Fraction | None:
    """Return the declared rho of a charge, else ``epsilon^2/2`` if it is pure, else None."""
    if rho is None and not charge.delta:
        return pure_rho(charge.epsilon)
    return rho


def period_of(created: str, period: str | None) -> str | None:
    """Return the calendar period of a time in ISO text, UTC; None for a budget without renewal."""
    if period is None:
        return None
    day = date.fromisoformat(created[:10])
    if period == "week":
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02}"
    return day.isoformat()[: {"day": 10, "month": 7, "year": 4}[period]]


def stored_amount(text: object, column: str) -> Fraction:
    """Read an amount of a ledger's row or log, as one of a spec is read.

    Raises IntegrityError for any other text: ``"1e-400000000"`` would be a number of 400 million
    digits.
    """
    try:
        return exact(text, column)
    except SpecError:
        raise IntegrityError(
            f"The ledger is damaged: the {column} of a row is not an exact number. Restore it from "
            "a backup."
        ) from None


def require_positive(budget: Budget, rho: Fraction | None = None) -> None:
    """Refuse an amount at or below zero: a negative charge would be a grant by the back door.

    An amount that can only be a typing error is refused too: a grant cannot be taken back.
    """
    is_zero = budget == Budget(Fraction(0)) or (rho is not None and rho <= 0)
    if budget.epsilon < 0 or budget.delta < 0 or is_zero:
        raise SpecError('budget: must be above 0. Write epsilon = "1.0".')
    if budget.epsilon > _MAX_EPSILON:
        raise SpecError(f'budget: epsilon must be at most {_MAX_EPSILON}. Write epsilon = "1.0".')
    if max(budget.epsilon.denominator, budget.delta.denominator) > _MAX_DENOMINATOR:
        raise SpecError('budget: has more than 100 decimals. Write epsilon = "1.0".')
