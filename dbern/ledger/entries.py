"""Entries of a ledger: values that go into it and come out of it."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dbern.ledger.composition import BASIC, Amount
from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit

DIGEST_BYTES = 32
"""Bytes of the MAC of a staged center, and of the digest of a staged block."""
FREE = Budget(Fraction(0))
"""What a release costs that is within a charge."""


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


PENDING = (State.RESERVED, State.READING)
"""The states whose charge counts as reserved."""


LIVE = (*PENDING, State.SPENT)
"""The states whose release still needs its key and its staged center."""


OVER = (State.COMMITTED, State.ABANDONED)
"""The states of a release that is over and keeps its charge."""


NEXT: Mapping[State, tuple[State, ...]] = {
    State.RESERVED: (State.READING, State.SPENT, *OVER, State.REFUNDED),
    State.READING: (State.SPENT, *OVER),
    State.SPENT: OVER,
    State.REFUNDED: OVER,
}
"""The states that may follow each; only `reconcile` finds that a refunded release was published."""


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

    def __str__(self) -> str:
        renewed = f", renewed every {self.period}" if self.period else ""
        fixed = f"neighbors {self.neighbors.value}, unit {self.unit}"
        return f"{fixed}, accountant {self.accountant}{renewed}"


@dataclass(frozen=True)
class StatedTerms:
    """Terms as a grant states them: None where it leaves out what the first grant fixed."""

    neighbors: Neighbors | None = None
    unit: PrivacyUnit | None = None
    accountant: str | None = None
    period: str | None = None

    def completed(self, fixed: Terms) -> Terms:
        """Return the terms, taking those that are left out from `fixed`."""
        return Terms(
            self.neighbors or fixed.neighbors,
            self.unit or fixed.unit,
            self.accountant or fixed.accountant,
            self.period or fixed.period,
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
    within : Request, optional
        The charge that has paid for this release already, as a stream's has for its nodes: it has
        to be in the ledger, and this release costs nothing.

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
    within: Request | None = None


@dataclass(frozen=True)
class ReservedContent:
    """JSON values that a release was reserved with, see `Request`."""

    identity: dict[str, Any]
    inputs: dict[str, Any]
    plan: dict[str, Any]


@dataclass(frozen=True)
class Reservation:
    """A release as the ledger holds it, at the moment it was looked at.

    `salt` keys the fingerprints taken on workers and is unrelated to the key; `seal` is the MAC of
    the staged center, and behind it the digest of what else it was counted by, if anything. Neither
    is shown by ``repr``, so neither reaches a log by accident.

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
    def center_seal(self) -> bytes | None:
        """MAC of the staged center alone."""
        return self.seal and self.seal[:DIGEST_BYTES]

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
