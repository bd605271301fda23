"""The ledger's refusals in words: what was asked, what stands, and the command that mends it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from dbern.errors import (
    BudgetError,
    DbernError,
    EnvironmentRefusedError,
    IntegrityError,
    ReleaseError,
    SpecError,
)
from dbern.ledger.accounting import Amount, Zcdp
from dbern.ledger.values import (
    PENDING,
    Comparison,
    DatasetStatus,
    Published,
    Reservation,
    State,
    Terms,
    listed,
    named,
)
from dbern.privacy.budget import Budget, decimal_text

_MOST_NAMES = 10


def not_granted(
    url: str,
    dataset: str,
    others: Sequence[str],
    charge: Budget | None = None,
    terms: Terms | None = None,
) -> BudgetError:
    """Nothing was ever granted under this name.

    The `others` are named first: a grant to a misspelt name is a second budget for the same people.
    """
    mend = grant_command(url, dataset, charge, terms)
    held = ""
    if others:
        more = ", .." if len(others) > _MOST_NAMES else ""
        held = (
            f"it has budgets of {', '.join(others[:_MOST_NAMES])}{more}: write that of the same "
            "people; for others "
        )
    return BudgetError(f"dataset {dataset!r} has no budget in this ledger; {held}grant one: {mend}")


def terms_differ(dataset: str, fixed: Terms, asked: Terms) -> BudgetError:
    """A grant or a release on other terms than the dataset's."""
    return BudgetError(
        f"dataset {dataset!r} was granted for {fixed}, and this asks for {asked}; the first grant "
        "fixes the terms once: ask for the same, or keep another dataset name for other terms"
    )


def random_dp(dataset: str, gamma: Fraction, where: str = "this release") -> BudgetError:
    """A release that is not differential privacy, for a dataset that allows nothing less."""
    return BudgetError(
        f"{where} is RANDOM DP only (gamma {decimal_text(gamma)}), which dataset {dataset!r} does "
        "not allow: state a sensitivity that holds for every database (sensitivity = 0.01), or "
        "keep a dataset name for such releases, first granted with --allow-random-dp"
    )


def unknown_terms(key: str, value: str, known: Sequence[str]) -> SpecError:
    """An accountant or a period that this version does not have."""
    choices = " or ".join(f"--{key} {one}" for one in known)
    return SpecError(f"{key} {value!r} is not available in this version; write {choices}")


def no_rho(status: DatasetStatus, charge: Budget) -> BudgetError:
    """A guarantee that is an (epsilon, delta) only, for an account in zCDP."""
    return BudgetError(
        f"dataset {status.dataset!r} is accounted in zCDP, and this release ({charge}) has an "
        'epsilon and a delta only: noise = "laplace-advanced" has no rho; write noise = "auto"'
    )


def overdrawn(url: str, status: DatasetStatus, charge: Budget, asked: Amount) -> BudgetError:
    """The charge does not fit."""
    requested = str(charge) if asked == charge else f"{charge}, {asked}"
    granted = str(status.budget)
    if status.granted != status.budget:
        granted += f", {status.granted}"
    missing = _shortfall(status, charge, asked)
    when = f" in {status.period}, renewed every {status.terms.period}" if status.period else ""
    amounts = (
        f"requested {requested}; spent {status.spent}; reserved {status.reserved}; "
        f"remaining {status.remaining} of {granted} granted"
    )
    return BudgetError(
        f"dataset {status.dataset!r} cannot pay: {with_decimals(amounts)}{when}; "
        f"ask for less, or grant more: {grant_command(url, status.dataset, missing)}"
    )


def _shortfall(status: DatasetStatus, charge: Budget, asked: Amount) -> Budget:
    """What a grant must add for the charge to fit; in zCDP the epsilon, to a millionth."""
    used = status.used
    if isinstance(asked, Zcdp) and isinstance(used, Zcdp):
        epsilon = (used + asked).epsilon - status.budget.epsilon
        return Budget(Fraction(math.floor(epsilon * 10**6) + 1, 10**6))
    if not isinstance(used, Budget):
        return charge
    more = used + charge - status.budget
    return Budget(max(Fraction(0), more.epsilon), max(Fraction(0), more.delta))


def with_decimals(amounts: str) -> str:
    """Amounts that are no decimals as fractions and nearly: nobody reads a fraction at a glance.

    Examples
    --------
    >>> with_decimals(str(Budget.parse("5/3")))
    'epsilon 5/3 (about 1.66667)'
    """
    return re.sub(r"-?\d+/\d+", lambda match: f"{match[0]} (about {_float(match[0]):.6g})", amounts)


def _float(text: str) -> float:
    return float(Fraction(text))


def not_installed(url: str) -> EnvironmentRefusedError:
    """There is no ledger at the URL."""
    command = shlex.join(["dbern", "ledger", "init", "--ledger", url])
    return EnvironmentRefusedError(f"there is no ledger at {url}; make one: {command}")


def unreconciled(url: str) -> BudgetError:
    """The ledger may have forgotten charges."""
    return BudgetError(
        "this ledger was put back to an earlier state, or is a copy, and may have forgotten what "
        "was spent: nothing is spent until every published synopsis is accounted for; name all "
        f"folders where they are: {reconcile_command(url)} FOLDER .."
    )


def no_staging(root: Path | None) -> EnvironmentRefusedError:
    """A shared ledger, and no place for the private center."""
    what = "is not set" if root is None else f"names {root.parent}, which is no directory"
    return EnvironmentRefusedError(
        f"DBERN_LEDGER_STAGING {what}: a release under a PostgreSQL ledger keeps its encrypted "
        "center there until it is published; set it to a directory on a disk that every process "
        "which may go on with the release shares, never where synopses are published"
    )


def other_guarantee(one: Published, charged: Budget) -> IntegrityError:
    """A synopsis that states another guarantee than its release was charged."""
    return IntegrityError(
        f"{one.output} states {one.charge}, and its release {one.name!r} was charged {charged}: "
        "one of them was changed; nothing was reconciled"
    )


def of_no_dataset(one: Published) -> SpecError:
    """A synopsis that does not say whose budget paid for it."""
    return SpecError(
        f"{one.output} does not say whose budget paid for it (an older version wrote it); "
        "reconcile such synopses by themselves with --dataset NAME --more, then the others"
    )


def terms_published(one: Published, dataset: str, fixed: Terms) -> BudgetError:
    """A synopsis on other terms than its dataset's."""
    return BudgetError(
        f"{one.output} protects neighbors {one.neighbors}, unit {one.unit}, and dataset "
        f"{dataset!r} was granted for {fixed}: its cost does not add up with the others; grant "
        "another dataset on its terms and reconcile it by itself with --dataset NAME --more"
    )


def no_rho_published(one: Published, dataset: str) -> BudgetError:
    """A synopsis without a rho, for an account in zCDP."""
    return BudgetError(
        f"dataset {dataset!r} is accounted in zCDP, and {one.output} states {one.charge} and no "
        "rho; another account paid for it: reconcile it by itself with --dataset NAME --more"
    )


def not_abandonable(dataset: str, name: str, found: Reservation | None) -> SpecError:
    """Nothing is left to give up."""
    if found is None:
        return SpecError(
            f"dataset {dataset!r} has no release {name!r} to abandon; "
            "`dbern ledger status` lists the names"
        )
    return SpecError(
        f"{_title(found)} is {found.state.value}: its charge stands, nothing to abandon"
    )


def not_destroyed(reservation: Reservation, error: OSError) -> ReleaseError:
    """The state changed and the private remains are still there."""
    return ReleaseError(
        f"{_title(reservation)} is {reservation.state.value}, but its key or staged center cannot "
        f"be removed: {error.strerror} ({error.filename}); mend that: the next command that opens "
        "the ledger removes them"
    )


def not_swept(url: str, error: OSError) -> EnvironmentRefusedError:
    """Private remains of a finished release that will not go."""
    return EnvironmentRefusedError(
        f"what a finished release left beside {url} cannot be removed: {error.strerror}; "
        f"make {error.filename} writable"
    )


def moved_on(found: Reservation | None, wanted: str) -> IntegrityError:
    """A compare-and-set that found another state than the caller held."""
    if found is None:
        return IntegrityError("this ledger holds no such release; was it replaced by a backup?")
    return IntegrityError(
        f"{_title(found)} is {found.state.value}, not {wanted}: another process went on with it; "
        "run the same command again to see where it stands"
    )


def key_missing(url: str, reservation: Reservation, where: str) -> IntegrityError:
    """A live release without its key."""
    refund = reservation.state is State.RESERVED
    return IntegrityError(
        f"the key of {_title(reservation)} is missing from {where}, so it can never be finished; "
        f"{abandon_command(url, reservation)} gives it up "
        f"({'its charge is refunded' if refund else 'its charge stands'})"
    )


def unlike(url: str, found: Comparison) -> DbernError | None:
    """Why a request may not go on as the release of its name, or None when it may."""
    reservation = found.reservation
    if reservation.state is State.ABANDONED:
        return SpecError(
            f"{_title(reservation)} was abandoned and its charge stands; choose a new release name"
        )
    if found.identity and not reservation.identity:
        return SpecError(
            f"{_title(reservation)} was published at {reservation.output}, as `dbern ledger "
            "reconcile` found after the ledger was put back; its spec is forgotten, so none can "
            "be compared with it: leave it as it is, or choose a new release name, which spends "
            "again"
        )
    if found.identity:
        return SpecError(
            f"{_title(reservation)} is another release: {listed(found.identity)}; undo that, or "
            "choose a new release name: only a new name spends again"
        )
    if not found.inputs or reservation.state not in PENDING:
        return None
    return _inputs_changed(url, found)


def grant_command(
    url: str, dataset: str, budget: Budget | None = None, terms: Terms | None = None
) -> str:
    """The command that grants `budget`, on other than the usual neighbors and unit of `terms`.

    Examples
    --------
    >>> print(grant_command("sqlite:////l.db", "trips", Budget.parse("0.5")))
    dbern ledger grant --ledger sqlite:////l.db --dataset trips --epsilon 0.5
    """
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


def reconcile_command(url: str) -> str:
    """The command that reconciles a ledger with what was published."""
    return shlex.join(["dbern", "ledger", "reconcile", "--ledger", url])


def abandon_command(url: str, release: Reservation) -> str:
    """The command that gives a release up."""
    words = ["dbern", "ledger", "abandon", "--ledger", url]
    return shlex.join([*words, "--dataset", release.dataset, "--name", release.name])


def _inputs_changed(url: str, found: Comparison) -> DbernError:
    reservation = found.reservation
    what = f"the input of {_title(reservation)} is not what was reserved: {named(found.inputs)}"
    abandon = abandon_command(url, reservation)
    if reservation.state is State.RESERVED:
        return SpecError(
            f"{what}; nothing was read: restore it, or run {abandon} (which refunds the charge) "
            "and then the same command again"
        )
    return IntegrityError(
        f"{what}, and reading has begun; restore it, or give up with {abandon} (the charge stands)"
    )


def _title(reservation: Reservation) -> str:
    return f"release {reservation.name!r} of dataset {reservation.dataset!r}"
