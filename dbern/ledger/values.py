"""Amounts, how they compose, and what goes into the ledger and comes out of it."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from typing import Any, Final, Protocol, Self

from dbern.errors import IntegrityError, SpecError
from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit, decimal_text, exact
from dbern.privacy.zcdp import epsilon_of, pure_rho, rho_for

# --- How charges compose: by basic composition or in zCDP

BASIC: Final = "basic"
ZCDP: Final = "zcdp"

ACCOUNTANTS: Final = (BASIC, ZCDP)
"""How a dataset's charges compose: "basic" adds epsilons and deltas, "zcdp" adds rhos."""

PERIODS: Final = ("day", "week", "month", "year")
"""When a dataset's budget is renewed: calendar days, weeks from Monday, months or years, in UTC."""


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
    """An exact amount of rho, with the delta at which it is told as an epsilon."""

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


def rho_of_charge(charge: Budget, rho: Fraction | None = None) -> Fraction | None:
    """Return the rho of a charge: as declared, ``epsilon^2/2`` of a pure one, None if unknown."""
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


# --- What goes into the ledger and comes out of it


class State(enum.StrEnum):
    """Where a release stands.

    `ABANDONED` keeps its charge (records may have been read); `REFUNDED` gave it back and freed
    the name.

    Examples
    --------
    >>> State("spent") is State.SPENT and State.SPENT == "spent"
    True
    """

    RESERVED = "reserved"
    READING = "reading"
    SPENT = "spent"
    COMMITTED = "committed"
    ABANDONED = "abandoned"
    REFUNDED = "refunded"


_MAX_EPSILON = 10**12
_MAX_DENOMINATOR = 10**100  # sums of grants have to stay numbers that a status can show

PENDING = (State.RESERVED, State.READING)
"""The states whose charge counts as reserved."""

LIVE = (*PENDING, State.SPENT)
"""The states whose release still needs its key and its staged center."""


@dataclass(frozen=True)
class Terms:
    """Terms that the first grant of a dataset fixes for good.

    Examples
    --------
    >>> print(Terms())
    neighbors replace-one, unit row, accountant basic
    """

    neighbors: Neighbors = Neighbors.REPLACE_ONE
    unit: PrivacyUnit = field(default_factory=PrivacyUnit)
    accountant: str = BASIC
    period: str | None = None
    random_dp: bool = False

    def __str__(self) -> str:
        random = ", random DP allowed" if self.random_dp else ""
        renewed = f", renewed every {self.period}" if self.period else ""
        fixed = f"neighbors {self.neighbors.value}, unit {self.unit}"
        return f"{fixed}, accountant {self.accountant}{renewed}{random}"


@dataclass(frozen=True)
class StatedTerms:
    """Terms as a grant states them: None where it leaves out what the first grant fixed."""

    neighbors: Neighbors | None = None
    unit: PrivacyUnit | None = None
    accountant: str | None = None
    period: str | None = None
    random_dp: bool | None = None

    def completed(self, fixed: Terms) -> Terms:
        """Return the terms, taking those that are left out from `fixed`."""
        return Terms(
            self.neighbors or fixed.neighbors,
            self.unit or fixed.unit,
            self.accountant or fixed.accountant,
            self.period or fixed.period,
            fixed.random_dp if self.random_dp is None else self.random_dp,
        )


@dataclass(frozen=True)
class Request:
    """A release that asks for its charge; every mapping holds JSON values only.

    Parameters
    ----------
    dataset, name : str
        What identifies the release inside one ledger.
    charge : Budget
        What it costs.
    neighbors, unit : Neighbors, PrivacyUnit
        The terms it was planned for; they must be the dataset's.
    identity : mapping
        What may never change under this name (the spec less ``h``, output and cluster settings).
        Key order counts: the order of the bounds is the order of the axes.
    inputs : mapping
        What may not change until the charge: ``n`` and the files with their sizes.
    plan : mapping
        The resolved plan; the first one reserved wins.
    output : str
        Where the synopsis goes.
    rho : Fraction, optional
        What it costs in zCDP. A charge without delta costs ``epsilon^2/2`` if this is left out;
        one with a delta and without this cannot be paid by a zcdp account.
    gamma : Fraction, optional
        Of random differential privacy, where it is no more than that.

    Examples
    --------
    >>> Request("trips", "density", Budget.parse("0.5")).unit
    PrivacyUnit(column=None, max_contributions=1)
    """

    dataset: str
    name: str
    charge: Budget
    neighbors: Neighbors = Neighbors.REPLACE_ONE
    unit: PrivacyUnit = field(default_factory=PrivacyUnit)
    identity: Mapping[str, object] = field(default_factory=dict)
    inputs: Mapping[str, object] = field(default_factory=dict)
    plan: Mapping[str, object] = field(default_factory=dict)
    output: str = ""
    rho: Fraction | None = None
    gamma: Fraction | None = None


@dataclass(frozen=True)
class ReservedContent:
    """What a release was reserved with, as JSON values: see `Request`."""

    identity: dict[str, Any]
    inputs: dict[str, Any]
    plan: dict[str, Any]


@dataclass(frozen=True)
class Reservation:
    """A release as the ledger holds it, at the moment it was looked at.

    `salt` keys the fingerprints taken on workers and is unrelated to the key; `seal` is the MAC of
    the staged center. Neither is shown by ``repr``, so neither reaches a log by accident.

    Examples
    --------
    >>> content = ReservedContent({}, {}, {})
    >>> salted = Reservation("0f", "trips", "density", State.RESERVED, Budget.parse("1"), content,
    ...                      "out.zarr", b"salt", None, "2026-01-01T00:00:00+00:00")
    >>> "salt" in repr(salted)
    False
    """

    release_id: str
    dataset: str
    name: str
    state: State
    charge: Budget
    content: ReservedContent = field(repr=False)
    output: str
    salt: bytes = field(repr=False)
    seal: bytes | None = field(repr=False)
    created: str
    manifest_digest: str | None = None

    @property
    def title(self) -> str:
        """The release in a message."""
        return f"release {self.name!r} of dataset {self.dataset!r}"

    def abandon_command(self, url: str) -> str:
        """Return the command that gives the release up."""
        words = ["dbern", "ledger", "abandon", "--ledger", url]
        return shlex.join([*words, "--dataset", self.dataset, "--name", self.name])


@dataclass(frozen=True)
class Abandoned:
    """A release that was given up, as it now is, and whether its charge came back."""

    reservation: Reservation
    refunded: bool


@dataclass(frozen=True)
class ReleaseRow:
    """One release in a dataset's account; `note` is of a charge for another tool's alone."""

    name: str
    state: State
    charge: Budget
    rho: Fraction | None
    release_id: str
    created: str
    gamma: Fraction | None = None
    note: str | None = None


@dataclass(frozen=True)
class AuditLine:
    """One event of the audit log: a grant, a reservation, a change of state, a refusal."""

    at: str
    event: str
    dataset: str
    name: str | None
    release_id: str | None
    detail: dict[str, Any]


@dataclass(frozen=True)
class Published:
    """A synopsis as it was found, with the guarantee that it states.

    `manifest_digest` is None where there is no manifest: coefficients may be there all the same.
    """

    release_id: str
    name: str
    charge: Budget
    rho: Fraction | None
    neighbors: str
    unit: str
    created: str
    output: str
    dataset: str
    ledger_id: str
    manifest_digest: str | None
    gamma: Fraction | None = None


@dataclass(frozen=True)
class Reconciled:
    """Outcome for published releases: charged now, known before, or another ledger's."""

    charged: tuple[Published, ...]
    known: tuple[Published, ...]
    foreign: tuple[Published, ...]


@dataclass(frozen=True)
class DatasetStatus:
    """A dataset's account: ``granted = spent + reserved + remaining``, exactly.

    `budget` is what was granted as epsilon and delta; the amounts are in what the accountant
    counts. With a period they are those of the current one, `period`, and `earlier` is what the
    other periods cost.

    Examples
    --------
    >>> budget = Budget.parse("1")
    >>> none = budget - budget
    >>> print(DatasetStatus("trips", Terms(), budget, budget, none, none, none, None, ()).remaining)
    epsilon 1
    """

    dataset: str
    terms: Terms
    budget: Budget
    granted: Amount
    reserved: Amount
    spent: Amount
    earlier: Amount
    period: str | None
    releases: tuple[ReleaseRow, ...]

    @property
    def neighbors(self) -> Neighbors:
        """The dataset's neighbouring relation."""
        return self.terms.neighbors

    @property
    def unit(self) -> PrivacyUnit:
        """The dataset's unit of privacy."""
        return self.terms.unit

    @property
    def accountant(self) -> str:
        """Composition of the dataset's charges, by name."""
        return self.terms.accountant

    @property
    def gamma(self) -> Fraction:
        """Probability that its random DP releases leave out in all (union bound)."""
        charged = (release for release in self.releases if release.state is not State.REFUNDED)
        return sum((release.gamma or Fraction(0) for release in charged), start=Fraction(0))

    @property
    def remaining(self) -> Amount:
        """Amount that a new release may still cost."""
        return self.granted - self.used

    @property
    def remaining_share(self) -> Fraction:
        """Fraction of the granted amount that remains; below 0 where charges exceed it."""
        return self.remaining.fraction_of(self.granted)

    @property
    def used(self) -> Amount:
        """Spent and reserved together."""
        return self.spent + self.reserved


def stored_amount(text: object, column: str) -> Fraction:
    """Read an amount of a ledger's row or log, as one of a spec is read.

    Raises IntegrityError where it is none: ``"1e-400000000"`` would be a number of 400 million
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

    An amount that can only be a slip of the keyboard is refused too: a grant is for good.
    """
    free = budget == Budget(Fraction(0)) or (rho is not None and rho <= 0)
    if budget.epsilon < 0 or budget.delta < 0 or free:
        raise SpecError('budget: must be above 0. Write epsilon = "1.0".')
    if budget.epsilon > _MAX_EPSILON:
        raise SpecError(f'budget: epsilon must be at most {_MAX_EPSILON}. Write epsilon = "1.0".')
    if max(budget.epsilon.denominator, budget.delta.denominator) > _MAX_DENOMINATOR:
        raise SpecError('budget: has more than 100 decimals. Write epsilon = "1.0".')
