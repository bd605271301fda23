"""Published releases against the ledger that was put back: charged, closed, or another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from dbern.errors import BudgetError, IntegrityError
from dbern.ledger import statements
from dbern.ledger.accounts import dataset_terms
from dbern.ledger.amounts import ZCDP, rho_of_charge
from dbern.ledger.values import FREE, PENDING, Published, Reconciled, Reservation, State

_OVER = (State.COMMITTED, State.ABANDONED)
_BY_ITSELF = "Reconcile such synopses by themselves with --dataset NAME --more"


@dataclass(frozen=True)
class ReconcilingLedger:
    """The ledger that reconciles; `pending` if it was put back, so nothing is under way."""

    url: str
    ledger_id: str
    pending: bool


def reconcile(
    connection: Connection, ledger: ReconcilingLedger, published: Sequence[Published]
) -> Reconciled:
    """Charge or close every published release; a refusal leaves everything as it was.

    A release that the ledger does not know is charged to the dataset that it names, even beyond
    what was granted: the loss is real. One that it knows in an earlier state is closed, so that
    its charge can never be refunded and its key goes; one that it refunded is charged again.
    Whole synopses come first, for of a release that has one an unfinished folder adds nothing.
    """
    charged: list[Published] = []
    known: list[Published] = []
    foreign: list[Published] = []
    for release in sorted(
        published, key=lambda release: (release.manifest_digest is None, release.created)
    ):
        reservation = statements.identified(connection, release.release_id)
        if reservation is None and release.ledger_id != ledger.ledger_id:
            foreign.append(release)
        elif reservation is None or reservation.state is State.REFUNDED:
            charged.append(_charge(connection, ledger, reservation, release))
        else:
            _close(connection, ledger, reservation, release)
            known.append(release)
    return Reconciled(tuple(charged), tuple(known), tuple(foreign))


def _charge(
    connection: Connection,
    ledger: ReconcilingLedger,
    reservation: Reservation | None,
    release: Published,
) -> Published:
    if reservation is not None:
        _require_same(reservation, release)
    dataset = release.dataset if reservation is None else reservation.dataset
    release = replace(release, dataset=dataset, rho=rho_of_charge(release.charge, release.rho))
    _require_terms(connection, ledger, release, dataset)
    state = _state(release)
    # Its own name may have been given to another release since.
    holder = statements.named(connection, dataset, release.name)
    if holder and holder.state in PENDING and release.charge == FREE:
        # A node that its stream paid for costs nothing under any name, so it gets no second one.
        aside, gone = f"{holder.name}~{holder.release_id[:8]}", State.ABANDONED.value
        change = {"state": gone, "name": aside}
        statements.moved(connection, holder.release_id, PENDING, change)
        statements.add_audit(connection, gone, dataset, aside, holder.release_id)
        holder = None
    taken = holder is not None
    name = f"{release.name}~{release.release_id[:8]}" if taken else release.name
    if reservation is None:
        statements.add_published(connection, release, dataset, name, state)
    else:
        values = {"state": state.value, "name": name, "manifest_digest": release.manifest_digest}
        statements.moved(connection, release.release_id, [reservation.state], values)
    _log(connection, replace(release, name=name), reservation)
    return replace(release, name=name)


def _close(
    connection: Connection, ledger: ReconcilingLedger, reservation: Reservation, release: Published
) -> None:
    _require_same(reservation, release)
    # A charged release without a manifest goes on; one with a manifest may be about to say so
    # itself, unless the ledger was put back and whoever published it is long gone. A stream's
    # charge, which has no output, is under way as long as its horizon.
    under_way = reservation.state is State.SPENT and not (
        ledger.pending and release.manifest_digest and release.output
    )
    if reservation.state in _OVER or under_way:
        return
    values = {"state": _state(release).value, "manifest_digest": release.manifest_digest}
    statements.moved(connection, release.release_id, [reservation.state], values)
    _log(
        connection,
        replace(release, dataset=reservation.dataset, name=reservation.name),
        reservation,
    )


def _state(release: Published) -> State:
    return State.ABANDONED if release.manifest_digest is None else State.COMMITTED


def _require_same(reservation: Reservation, release: Published) -> None:
    if reservation.charge != release.charge:
        raise IntegrityError(
            f"{release.output}: states {release.charge}, and its release {release.name!r} was "
            f"charged {reservation.charge}, so one of them was changed. Nothing was reconciled. "
            "Bring the synopsis or the ledger back as it was."
        )


def _require_terms(
    connection: Connection, ledger: ReconcilingLedger, release: Published, dataset: str
) -> None:
    terms = dataset_terms(connection, ledger.url, dataset, release.charge)
    if (terms.neighbors.value, str(terms.unit)) != (release.neighbors, release.unit):
        raise BudgetError(
            f"{release.output}: protects neighbors {release.neighbors}, unit {release.unit}, and "
            f"dataset {dataset!r} was granted for {terms}, so its cost does not add up with the "
            f"others. Grant another dataset on its terms. {_BY_ITSELF}."
        )
    if terms.accountant == ZCDP and release.rho is None:
        raise BudgetError(
            f"{release.output}: states {release.charge} and no rho, and dataset {dataset!r} is "
            f"accounted in zCDP, so another account paid for it. {_BY_ITSELF}."
        )


def _log(connection: Connection, release: Published, reservation: Reservation | None) -> None:
    detail = {
        **statements.amount_columns(release.charge),
        "rho": None if release.rho is None else str(release.rho),
        "was": "unknown" if reservation is None else reservation.state.value,
        "state": _state(release).value,
        "output": release.output,
    }
    statements.add_audit(
        connection, "reconciled", release.dataset, release.name, release.release_id, detail
    )
