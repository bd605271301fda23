"""A dataset's account: what a grant makes of it, what it holds, and whether it can pay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import Connection

from dbern.errors import BudgetError, IntegrityError, SpecError
from dbern.ledger import refusals
from dbern.ledger import tables as rows
from dbern.ledger.accounting import (
    ACCOUNTANTS,
    PERIODS,
    ZCDP,
    Amount,
    charged_amount,
    granted_amount,
    period_of,
    rho_of_charge,
)
from dbern.ledger.backend import Backend
from dbern.ledger.restore import writing
from dbern.ledger.values import (
    PENDING,
    DatasetStatus,
    ReleaseRow,
    Request,
    Reservation,
    State,
    Terms,
)
from dbern.privacy.budget import Neighbors, PrivacyUnit


def granted_terms(
    connection: Connection,
    dataset: str,
    neighbors: Neighbors | None,
    unit: PrivacyUnit | None,
    accountant: str | None,
    period: str | None,
    random_dp: bool | None,
) -> Terms:
    """The terms of a grant; the first one fixes them, later ones may leave them out.

    Raises
    ------
    BudgetError
        When they are not those of the first grant.
    SpecError
        When the accountant or the period is not available.
    """
    if accountant is not None and accountant not in ACCOUNTANTS:
        raise refusals.unknown_terms("accountant", accountant, ACCOUNTANTS)
    if period is not None and period not in PERIODS:
        raise refusals.unknown_terms("period", period, PERIODS)
    fixed = rows.terms_of(connection, dataset)
    default = fixed or Terms()
    asked = Terms(
        neighbors or default.neighbors,
        unit or default.unit,
        accountant or default.accountant,
        period or default.period,
        default.random_dp if random_dp is None else random_dp,
    )
    if fixed is None:
        rows.add_dataset(connection, dataset, asked)
    elif fixed != asked:
        raise refusals.terms_differ(dataset, fixed, asked)
    return asked


def account(
    connection: Connection, url: str, dataset: str, at: str, request: Request | None = None
) -> DatasetStatus:
    """A dataset's account at a time; `request` is what a refusal advises to grant for.

    Raises
    ------
    BudgetError
        When nothing was ever granted.
    """
    terms = rows.terms_of(connection, dataset)
    if terms is None:
        others = rows.dataset_names(connection)
        if request is None:
            raise refusals.not_granted(url, dataset, others)
        wanted = Terms(request.neighbors, request.unit)
        raise refusals.not_granted(url, dataset, others, request.charge, wanted)
    budget = rows.granted(connection, dataset)
    granted = granted_amount(terms.accountant, budget)
    history = rows.history(connection, dataset)

    def total(counted: Iterable[ReleaseRow]) -> Amount:
        start = granted - granted
        return sum((charged_amount(granted, one.charge, one.rho) for one in counted), start=start)

    period = period_of(at, terms.period)
    current: list[ReleaseRow] = []
    earlier: list[ReleaseRow] = []
    for one in history:
        if one.state is not State.REFUNDED:
            now = period_of(one.created, terms.period) == period
            (current if now else earlier).append(one)
    return DatasetStatus(
        dataset=dataset,
        terms=terms,
        budget=budget,
        granted=granted,
        reserved=total(one for one in current if one.state in PENDING),
        spent=total(one for one in current if one.state not in PENDING),
        earlier=total(earlier),
        period=period,
        releases=tuple(history),
    )


def require_terms(status: DatasetStatus, request: Request) -> None:
    """Refuse a release for other neighbours, another unit or less privacy than its dataset's.

    Raises
    ------
    BudgetError
        When they differ, or it is random DP and the dataset does not allow that.
    """
    if request.gamma is not None and not status.terms.random_dp:
        raise refusals.random_dp(request.dataset, request.gamma)
    asked = replace(status.terms, neighbors=request.neighbors, unit=request.unit)
    if asked != status.terms:
        raise refusals.terms_differ(request.dataset, status.terms, asked)


def require_cover(url: str, status: DatasetStatus, request: Request) -> None:
    """Refuse a new release that the account cannot pay.

    Raises
    ------
    BudgetError
        When the charge does not fit into what remains, or the accountant knows no cost of it.
    """
    rho = rho_of_charge(request.charge, request.rho)
    if status.accountant == ZCDP and rho is None:
        raise refusals.no_rho(status, request.charge)
    asked = charged_amount(status.granted, request.charge, rho)
    if not status.remaining.covers(asked):
        raise refusals.overdrawn(url, status, request.charge, asked)


def recorded(
    connection: Connection, reservation: Reservation, changed: bool, wanted: str, event: str
) -> Reservation:
    """The release after a compare-and-set, with its audit line.

    Raises
    ------
    IntegrityError
        When it did not match.
    """
    found = rows.identified(connection, reservation.release_id)
    if found is None or not changed:
        raise refusals.moved_on(found, wanted)
    rows.add_audit(connection, event, found.dataset, found.name, found.release_id)
    return found


@contextmanager
def refusals_logged(
    backend: Backend, dataset: str, name: str | None, detail: dict[str, object]
) -> Iterator[None]:
    """Around a transaction: what it refuses is rolled back, and then recorded."""
    try:
        yield
    except (BudgetError, SpecError, IntegrityError) as refusal:
        with writing(backend) as connection:
            why = {**detail, "kind": refusal.kind, "why": str(refusal)}
            rows.add_audit(connection, "refused", dataset, name, detail=why)
        raise
