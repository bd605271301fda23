"""A dataset's account: terms, remaining budget, and whether a request may be charged."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NoReturn

from sqlalchemy import Connection

from dbern.errors import BudgetError, IntegrityError, SpecError
from dbern.ledger import tables
from dbern.ledger.composition import (
    ACCOUNTANTS,
    PERIODS,
    ZCDP,
    Amount,
    Zcdp,
    charged_amount,
    granted_amount,
    period_of,
    rho_of_charge,
)
from dbern.ledger.entries import (
    PENDING,
    DatasetStatus,
    ReleaseRow,
    Request,
    Reservation,
    State,
    StatedTerms,
    Terms,
)
from dbern.privacy.budget import Budget, decimal_text

_MAX_LISTED_CHANGES = 8
_MAX_LISTED_NAMES = 10


def require_same(reservation: Reservation, request: Request, url: str) -> None:
    """Require that a request is the release that holds its name, and may go on.

    The charge is part of the identity even where the spec's part of it left epsilon out.
    """
    title = reservation.title
    if reservation.state is State.ABANDONED:
        raise SpecError(
            f"{title}: was abandoned, and its charge stands. Choose a new release name."
        )
    changed = changes(reservation.content.identity, request.identity)
    changed = changed or changes(_charge(reservation.charge), _charge(request.charge))
    if changed and not reservation.content.identity:
        where = f" at {reservation.output}" if reservation.output else ""  # a stream has none
        raise SpecError(
            f"{title}: was published{where} before the ledger was restored, and its spec is lost, "
            "so none can be compared with it. Use what is published, or choose a new release name, "
            "which spends again."
        )
    if changed:
        raise SpecError(
            f"{title}: is another release ({_first(changed)} changed). Undo the change, or choose "
            "a new release name, which spends again."
        )
    if reservation.state in PENDING:
        _require_same_inputs(reservation, request, url)


def require_paid(connection: Connection, request: Request, url: str) -> None:
    """Require that the charge which a release is within is in the ledger, and is what it says."""
    paid = request.within
    if paid is None:
        return
    charged = tables.named(connection, request.dataset, paid.name)
    if charged is None or charged.state in PENDING:
        raise BudgetError(
            f"release {request.name!r}: is paid by {paid.name!r}, which dataset "
            f"{request.dataset!r} was not charged for. Run dbern release with the stream's spec"
        )
    require_same(charged, paid, url)


def _require_same_inputs(reservation: Reservation, request: Request, url: str) -> None:
    changed = changes(reservation.content.inputs, request.inputs)
    if not changed:
        return
    what = f"{reservation.title}: its input changed"
    keys = _first(changed)  # alone: a file's compressed size depends on its records
    abandon = reservation.abandon_command(url)
    if reservation.state is State.RESERVED:
        raise SpecError(
            f"{what} since it was reserved ({keys}). Nothing was read. Restore the input, or "
            f"refund the charge ({abandon}) and run the same command again."
        )
    raise IntegrityError(
        f"{what} after reading began ({keys}). Restore the input, or give the release up "
        f"(its charge stands): {abandon}"
    )


def changes(was: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return sections, or their keys, in which two JSON objects differ, order of keys included."""
    before, after = _plain(was), _plain(now)
    return [key for name in {**before, **after} for key in _differing(name, before, after)]


def _first(parts: Sequence[str]) -> str:
    rest = len(parts) - _MAX_LISTED_CHANGES
    text = "; ".join(parts[:_MAX_LISTED_CHANGES])
    return text if rest <= 0 else f"{text}; and {rest} more"


def _charge(budget: Budget) -> dict[str, object]:
    parts = {"epsilon": decimal_text(budget.epsilon), "delta": decimal_text(budget.delta)}
    return {"budget": parts}


def _plain(content: Mapping[str, object]) -> dict[str, Any]:
    """Return content as JSON has it; 10.0 is 10, and a list of files has each by its path."""
    plain: dict[str, Any] = json.loads(tables.json_text(content), parse_float=_number)
    if isinstance(plain.get("files"), list):
        plain["files"] = {file["path"]: file for file in plain["files"]}
    return plain


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _differing(name: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    was, now = before.get(name), after.get(name)
    if isinstance(was, dict) and isinstance(now, dict):
        keys = [f"{name}.{key}" for key in {**was, **now} if _text(was, key) != _text(now, key)]
        if keys:
            return keys
    return [name] if _text(before, name) != _text(after, name) else []


def _text(content: dict[str, Any], key: str) -> str | None:
    return json.dumps(content[key]) if key in content else None


def granted_terms(connection: Connection, dataset: str, stated: StatedTerms) -> Terms:
    """Return the terms of a grant; the first one fixes them, later ones may leave them out."""
    _require_known("accountant", stated.accountant, ACCOUNTANTS)
    _require_known("period", stated.period, PERIODS)
    fixed = tables.terms_of(connection, dataset)
    terms = stated.completed(fixed or Terms())
    if fixed is None:
        tables.add_dataset(connection, dataset, terms)
    elif tables.granted(connection, dataset) == Budget(Fraction(0)):
        raise IntegrityError(
            f"dataset {dataset!r}: has terms and no grant, so the ledger was changed by hand. See "
            "what dbern ledger status --log says, and restore a backup."
        )
    elif fixed != terms:
        _refuse_terms(dataset, fixed, terms)
    return terms


def dataset_terms(
    connection: Connection,
    url: str,
    dataset: str,
    charge: Budget | None = None,
    wanted: Terms | None = None,
) -> Terms:
    """Return the terms that the first grant fixed; a refusal advises to grant `charge`, `wanted`.

    It names the ledger's other datasets first: a grant to a misspelt name is a second budget for
    the same people.
    """
    terms = tables.terms_of(connection, dataset)
    if terms is not None:
        return terms
    what = f"dataset {dataset!r}: has no budget in this ledger"
    command = grant_command(url, dataset, charge, wanted)
    names = tables.dataset_names(connection)
    if not names:
        raise BudgetError(f"{what}. Grant one: {command}")
    more = " and more" if len(names) > _MAX_LISTED_NAMES else ""
    raise BudgetError(
        f"{what}, which has budgets of {', '.join(names[:_MAX_LISTED_NAMES])}{more}. Write the "
        f"name of the dataset that has the same people, or grant one: {command}"
    )


def account(
    connection: Connection, url: str, dataset: str, at: str, request: Request | None = None
) -> DatasetStatus:
    """Return a dataset's account at a time; `request` is what a refusal advises to grant for."""
    wanted = None if request is None else Terms(request.neighbors, request.unit)
    charge = None if request is None else request.charge
    terms = dataset_terms(connection, url, dataset, charge, wanted)
    budget = tables.granted(connection, dataset)
    granted = granted_amount(terms.accountant, budget)
    history = tables.history(connection, dataset)

    def total(counted: Iterable[ReleaseRow]) -> Amount:
        amounts = (charged_amount(granted, release.charge, release.rho) for release in counted)
        return sum(amounts, start=granted - granted)

    period = period_of(at, terms.period)
    current: list[ReleaseRow] = []
    earlier: list[ReleaseRow] = []
    for release in history:
        if release.state is not State.REFUNDED:
            now = period_of(release.created, terms.period) == period
            (current if now else earlier).append(release)
    return DatasetStatus(
        dataset=dataset,
        terms=terms,
        budget=budget,
        granted=granted,
        reserved=total(release for release in current if release.state in PENDING),
        spent=total(release for release in current if release.state not in PENDING),
        earlier=total(earlier),
        period=period,
        releases=tuple(history),
    )


def require_terms(status: DatasetStatus, request: Request) -> None:
    """Refuse a release for other neighbours, another unit or less privacy than its dataset's."""
    requested = replace(status.terms, neighbors=request.neighbors, unit=request.unit)
    if requested != status.terms:
        _refuse_terms(status.dataset, status.terms, requested)


def require_cover(url: str, status: DatasetStatus, request: Request) -> None:
    """Refuse a new release that the account cannot pay."""
    rho = rho_of_charge(request.charge, request.rho)
    if status.accountant == ZCDP and rho is None:
        raise BudgetError(
            f"dataset {status.dataset!r}: is accounted in zCDP, and this release "
            f'({request.charge}) has an epsilon and a delta only: noise = "laplace-advanced" has '
            'no rho. Write noise = "auto".'
        )
    cost = charged_amount(status.granted, request.charge, rho)
    if status.remaining.covers(cost):
        return
    charge = request.charge
    requested = str(charge) if cost == charge else f"{charge}, {cost}"
    granted = str(status.budget)
    if status.granted != status.budget:
        granted += f", {status.granted}"
    amounts = (
        f"requested {requested}; spent {status.spent}; reserved {status.reserved}; "
        f"remaining {status.remaining} of {granted} granted"
    )
    when = f" in {status.period}, renewed every {status.terms.period}" if status.period else ""
    mend = grant_command(url, status.dataset, _missing(status, charge, cost))
    fractions = re.compile(r"-?\d+/\d+")
    amounts = fractions.sub(lambda m: f"{m[0]} (about {float(Fraction(m[0])):.6g})", amounts)
    raise BudgetError(
        f"dataset {status.dataset!r}: cannot pay: {amounts}{when}. "
        f"Ask for less, or grant more: {mend}"
    )


def _missing(status: DatasetStatus, charge: Budget, cost: Amount) -> Budget:
    """The grant that must be added for the charge to fit; in zCDP the epsilon, to a millionth."""
    match status.used, cost:
        case Zcdp() as used, Zcdp() as more:
            epsilon = (used + more).epsilon - status.budget.epsilon
            return Budget(Fraction(math.floor(epsilon * 10**6) + 1, 10**6))
        case Budget() as spent, _:
            lacking = spent + charge - status.budget
            return Budget(max(Fraction(0), lacking.epsilon), max(Fraction(0), lacking.delta))
    return charge


def recorded(
    connection: Connection, reservation: Reservation, changed: bool, wanted: str, event: str
) -> Reservation:
    """Return the release after a compare-and-set, with its audit line."""
    current = tables.identified(connection, reservation.release_id)
    if current is None or not changed:
        raise moved_on(current, wanted)
    detail = {"output": current.output} if current.output != reservation.output else {}
    whose = (current.dataset, current.name, current.release_id)
    tables.add_audit(connection, event, *whose, detail)
    return current


def moved_on(current: Reservation | None, wanted: str) -> IntegrityError:
    """Return the error of a release that is not in the state that the caller held it in."""
    if current is None:
        return IntegrityError(
            "This ledger does not hold the release any more. A backup may have replaced it. Bring "
            "the ledger back and run the same command again."
        )
    return IntegrityError(
        f"{current.title}: is {current.state.value}, not {wanted}, because another process went on "
        "with it. Run the same command again to see where it stands."
    )


def _require_known(key: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        choices = " or ".join(f"--{key} {choice}" for choice in known)
        raise SpecError(f"{key}: {value!r} is not available in this version. Write {choices}.")


def _refuse_terms(dataset: str, fixed: Terms, requested: Terms) -> NoReturn:
    raise BudgetError(
        f"dataset {dataset!r}: was granted for {fixed}, and this asks for {requested}. The first "
        "grant fixes the terms. Ask for the same, or choose another dataset name for other terms."
    )


def grant_command(
    url: str, dataset: str, budget: Budget | None = None, terms: Terms | None = None
) -> str:
    """Return the command that grants a dataset a budget, on these terms or the usual ones."""
    epsilon = "1.0" if budget is None else decimal_text(budget.epsilon)
    words = ["dbern", "ledger", "grant", "--ledger", url, "--dataset", dataset]
    words += ["--epsilon", epsilon]
    if budget is not None and budget.delta:
        words += ["--delta", decimal_text(budget.delta)]
    usual, terms = Terms(), terms or Terms()
    if terms.neighbors is not usual.neighbors:
        words += ["--neighbors", terms.neighbors.value]
    if terms.unit != usual.unit:
        words += ["--unit", terms.unit.text]
    return shlex.join(words)
