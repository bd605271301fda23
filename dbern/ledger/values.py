"""What goes into the ledger and comes out of it, and whether two requests are one release."""

from __future__ import annotations

import enum
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dbern.errors import IntegrityError, SpecError
from dbern.ledger.accounting import BASIC, Amount
from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit, decimal_text

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


_MOST_EPSILON = 10**12
_MOST_DENOMINATOR = 10**100  # sums of grants have to stay numbers that a status can show

PENDING = (State.RESERVED, State.READING)
"""The states whose charge counts as reserved."""

LIVE = (*PENDING, State.SPENT)
"""The states whose release still needs its key and its staged center."""


@dataclass(frozen=True)
class Terms:
    """What the first grant of a dataset fixes for good.

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
class Reservation:
    """A release as the ledger holds it, at the moment it was looked at.

    `salt` keys the fingerprints taken on workers and is unrelated to the key; `seal` is the MAC of
    the staged center. Neither is shown by ``repr``, so neither reaches a log by accident.

    Examples
    --------
    >>> salted = Reservation("0f", "trips", "density", State.RESERVED, Budget.parse("1"), {}, {},
    ...                      {}, "out.zarr", b"salt", None, "2026-01-01T00:00:00+00:00")
    >>> "salt" in repr(salted)
    False
    """

    release_id: str
    dataset: str
    name: str
    state: State
    charge: Budget
    plan: dict[str, Any] = field(repr=False)
    inputs: dict[str, Any] = field(repr=False)
    identity: dict[str, Any] = field(repr=False)
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

    `dataset` and `ledger_id` are None where an older version did not write them;
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
    dataset: str | None
    ledger_id: str | None
    manifest_digest: str | None
    gamma: Fraction | None = None


@dataclass(frozen=True)
class Reconciled:
    """What became of published releases: charged now, known before, or another ledger's."""

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
    >>> one = Budget.parse("1")
    >>> none = one - one
    >>> print(DatasetStatus("trips", Terms(), one, one, none, none, none, None, ()).remaining)
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
        """How the dataset's charges compose."""
        return self.terms.accountant

    @property
    def gamma(self) -> Fraction:
        """What its random DP releases leave out in all, by a union bound; 0 without any."""
        charged = (one for one in self.releases if one.state is not State.REFUNDED)
        return sum((one.gamma or Fraction(0) for one in charged), start=Fraction(0))

    @property
    def remaining(self) -> Amount:
        """What a new release may still cost."""
        return self.granted - self.used

    @property
    def remaining_share(self) -> Fraction:
        """What remains of what was granted, from 0 to 1; below 0 where charges exceed it."""
        return self.remaining.share_of(self.granted)

    @property
    def used(self) -> Amount:
        """Spent and reserved together."""
        return self.spent + self.reserved


def require_positive(budget: Budget, rho: Fraction | None = None) -> None:
    """Refuse an amount at or below zero: a negative charge would be a grant by the back door.

    And one that can only be a slip of the keyboard: a grant is for good.

    Raises
    ------
    SpecError
        When either parameter is negative, or both are zero, or `rho` is not above zero; or when
        epsilon is above 10^12, or either has more than about 100 decimals.

    Examples
    --------
    >>> require_positive(Budget.parse("0.1"))
    """
    free = budget == Budget(Fraction(0)) or (rho is not None and rho <= 0)
    if budget.epsilon < 0 or budget.delta < 0 or free:
        raise SpecError('budget: must be above 0; write epsilon = "1.0"')
    if budget.epsilon > _MOST_EPSILON:
        raise SpecError(f'budget: epsilon must be at most {_MOST_EPSILON}; write epsilon = "1.0"')
    if max(budget.epsilon.denominator, budget.delta.denominator) > _MOST_DENOMINATOR:
        raise SpecError('budget: has more than 100 decimals; write epsilon = "1.0"')


# --- Whether a request is the release that was reserved

_ABSENT = object()
_LONGEST_TEXT = 200
_MOST_CHANGES = 8
_LONGEST_KEPT = 1000


@dataclass(frozen=True)
class Change:
    """One difference: the dotted key and both values as text.

    Examples
    --------
    >>> print(Change("mechanism.k", "20", "30"))
    mechanism.k was 20, is 30
    """

    key: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.key} was {self.was}, is {self.now}"


@dataclass(frozen=True)
class Comparison:
    """A request beside the release of the same name."""

    reservation: Reservation
    identity: tuple[Change, ...]
    inputs: tuple[Change, ...]

    def require_same(self, url: str) -> None:
        """Require that the request is the release of its name and may go on.

        Parameters
        ----------
        url : str
            The ledger's, for the command that a refusal names.

        Raises
        ------
        SpecError
            When the release was abandoned, the request is another release, or the input changed
            before reading began.
        IntegrityError
            When the input changed after reading began.
        """
        title, state = self.reservation.title, self.reservation.state
        if state is State.ABANDONED:
            raise SpecError(
                f"{title}: was abandoned, and its charge stands. Choose a new release name."
            )
        if self.identity and not self.reservation.identity:
            raise SpecError(
                f"{title}: was published at {self.reservation.output} before the ledger was "
                "restored, and its spec is lost, so none can be compared with it. Use what is "
                "published, or choose a new release name, which spends again."
            )
        if self.identity:
            raise SpecError(
                f"{title}: is another release ({_listed(self.identity)}). Undo the change, or "
                "choose a new release name, which spends again."
            )
        if self.inputs and state in PENDING:
            self._refuse_inputs(url)

    def _refuse_inputs(self, url: str) -> None:
        what = f"{self.reservation.title}: its input changed"
        keys = _keys(self.inputs)
        abandon = self.reservation.abandon_command(url)
        if self.reservation.state is State.RESERVED:
            raise SpecError(
                f"{what} since it was reserved ({keys}). Nothing was read. Restore the input, or "
                f"refund the charge ({abandon}) and run the same command again."
            )
        raise IntegrityError(
            f"{what} after reading began ({keys}). Restore the input, or give the release up "
            f"(its charge stands): {abandon}"
        )


def compared(reservation: Reservation, request: Request) -> Comparison:
    """Set a request beside the stored release.

    The charge is part of the identity even where the spec's part of it left epsilon out.
    """
    identity = changes(reservation.identity, request.identity)
    charge = changes(_charge(reservation.charge), _charge(request.charge))
    return Comparison(
        reservation,
        tuple(identity or charge),
        tuple(changes(reservation.inputs, request.inputs)),
    )


def changes(was: Mapping[str, object], now: Mapping[str, object]) -> list[Change]:
    """Every difference between two JSON objects, order of keys included.

    Examples
    --------
    >>> was = {"bounds": {"x": [0, 1], "y": [0, 1]}}
    >>> [str(change) for change in changes(was, {"bounds": {"x": [0, 2], "y": [0, 1]}})]
    ['bounds.x was [0, 1], is [0, 2]']
    >>> [str(change) for change in changes(was, {"bounds": {"y": [0, 1], "x": [0, 1]}})]
    ['bounds was in the order x, y, is in the order y, x']
    """
    return _differences(json.loads(json_text(was)), json.loads(json_text(now)), "")


def json_text(value: Mapping[str, object]) -> str:
    """The text that the ledger stores: ASCII, for file names may be no Unicode; key order is kept.

    Raises
    ------
    TypeError, ValueError
        When the value is not JSON (NaN included).

    Examples
    --------
    >>> json_text({"b": 1, "a": (2, 3)})
    '{"b": 1, "a": [2, 3]}'
    """
    return json.dumps(value, allow_nan=False)


def abridged(value: Any) -> Any:
    """A JSON value with the digest of each long text in its place: a plan's matrices are such.

    Examples
    --------
    >>> abridged({"k": 20, "synthesis": "A" * 2000})["synthesis"][:16]
    'sha256:ccca68570'
    """
    if isinstance(value, dict):
        return {key: abridged(one) for key, one in value.items()}
    if isinstance(value, list):
        return [abridged(one) for one in value]
    if isinstance(value, str) and len(value) > _LONGEST_KEPT:
        return f"sha256:{hashlib.sha256(value.encode()).hexdigest()}"
    return value


def _listed(found: Sequence[Change]) -> str:
    return _first([str(change) for change in found])


def _keys(found: Sequence[Change]) -> str:
    """Name the changed keys alone: a file's compressed size depends on its records."""
    return _first([change.key for change in found])


def _first(parts: Sequence[str]) -> str:
    """Return the first few of what may be thousands of files."""
    rest = len(parts) - _MOST_CHANGES
    text = "; ".join(parts[:_MOST_CHANGES])
    return text if rest <= 0 else f"{text}; and {rest} more"


def _charge(budget: Budget) -> dict[str, object]:
    parts = {"epsilon": decimal_text(budget.epsilon), "delta": decimal_text(budget.delta)}
    return {"budget": parts}


def _differences(was: Any, now: Any, key: str) -> list[Change]:
    before, after = _children(was), _children(now)
    if before is None or after is None or type(was) is not type(now):
        return [] if _same(was, now) else [Change(key or "it", _text(was), _text(now))]
    found = [
        change
        for name in {**before, **after}
        for change in _differences(
            before.get(name, _ABSENT), after.get(name, _ABSENT), f"{key}.{name}" if key else name
        )
    ]
    if not found and list(before) != list(after):
        found.append(Change(key or "it", _order(before), _order(after)))
    return found


def _children(value: Any) -> dict[str, Any] | None:
    """A mapping's entries; a list's too where each item names itself, as files do."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list) or not value:
        return None
    names = [_own_name(item) for item in value]
    named = {name: item for name, item in zip(names, value, strict=True) if name is not None}
    return named if len(named) == len(value) else None


def _own_name(item: Any) -> str | None:
    """``{"path": "a.parquet", ..}`` and ``["a.parquet", ..]`` name themselves."""
    if isinstance(item, dict):
        item = item.get("path")
    elif isinstance(item, list) and item:
        item = item[0]
    else:
        return None
    return item if isinstance(item, str) else None


def _same(was: Any, now: Any) -> bool:
    # 10 and 10.0 are the same bound, True and 1 are not the same setting.
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(map(_same, was, now))
    return bool(was == now) and isinstance(was, bool) == isinstance(now, bool)


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    return _cut(json.dumps(value, ensure_ascii=False))


def _order(named: dict[str, Any]) -> str:
    return _cut(f"in the order {', '.join(named)}")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
