"""Published releases against the ledger: what was forgotten is charged, what is over is closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from dbern.ledger import refusals, rows
from dbern.ledger.accounting import ZCDP, rho_of_charge
from dbern.ledger.values import Published, Reconciled, Reservation, State

_OVER = (State.COMMITTED, State.ABANDONED)


@dataclass(frozen=True)
class Known:
    """The ledger that reconciles; `pending` if it was put back, so nothing is under way."""

    url: str
    ledger_id: str
    pending: bool


def reconcile(connection: Connection, ledger: Known, published: Sequence[Published]) -> Reconciled:
    """Account for every published release; a refusal leaves all as it was.

    A release that the ledger does not know is charged to the dataset that it names, even beyond
    what was granted: the loss is real. One that it knows in an earlier state is closed, so that
    its charge can never be refunded and its key goes; one that it refunded is charged again.
    Whole synopses come first, for of a release that has one an unfinished folder adds nothing.
    """
    charged: list[Published] = []
    known: list[Published] = []
    foreign: list[Published] = []
    for one in sorted(published, key=lambda one: (one.manifest_digest is None, one.created)):
        found = rows.identified(connection, one.release_id)
        if found is None and one.ledger_id not in (None, ledger.ledger_id):
            foreign.append(one)
        elif found is None or found.state is State.REFUNDED:
            charged.append(_charge(connection, ledger, found, one))
        else:
            _close(connection, ledger, found, one)
            known.append(one)
    return Reconciled(tuple(charged), tuple(known), tuple(foreign))


def _charge(
    connection: Connection, ledger: Known, found: Reservation | None, one: Published
) -> Published:
    if found is not None:
        _require_same(found, one)
    dataset = one.dataset if found is None else found.dataset
    if dataset is None:
        raise refusals.of_no_dataset(one)
    one = replace(one, dataset=dataset, rho=rho_of_charge(one.charge, one.rho))
    _require_terms(connection, ledger, one, dataset)
    state = _state(one)
    # Its own name may have been given to another release since.
    taken = rows.named(connection, dataset, one.name) is not None
    name = f"{one.name}~{one.release_id[:8]}" if taken else one.name
    if found is None:
        rows.add_published(connection, one, dataset, name, state)
    else:
        values = {"state": state.value, "name": name, "manifest_digest": one.manifest_digest}
        rows.moved(connection, one.release_id, [found.state], values)
    _log(connection, replace(one, name=name), found)
    return replace(one, name=name)


def _close(connection: Connection, ledger: Known, found: Reservation, one: Published) -> None:
    _require_same(found, one)
    # A charged release without a manifest goes on; one with a manifest may be about to say so
    # itself, unless the ledger was put back and whoever published it is long gone.
    under_way = found.state is State.SPENT and not (ledger.pending and one.manifest_digest)
    if found.state in _OVER or under_way:
        return
    values = {"state": _state(one).value, "manifest_digest": one.manifest_digest}
    rows.moved(connection, one.release_id, [found.state], values)
    _log(connection, replace(one, dataset=found.dataset, name=found.name), found)


def _state(one: Published) -> State:
    return State.ABANDONED if one.manifest_digest is None else State.COMMITTED


def _require_same(found: Reservation, one: Published) -> None:
    if found.charge != one.charge:
        raise refusals.other_guarantee(one, found.charge)


def _require_terms(connection: Connection, ledger: Known, one: Published, dataset: str) -> None:
    terms = rows.terms_of(connection, dataset)
    if terms is None:
        others = rows.dataset_names(connection)
        raise refusals.not_granted(ledger.url, dataset, others, one.charge)
    if (terms.neighbors.value, str(terms.unit)) != (one.neighbors, one.unit):
        raise refusals.terms_published(one, dataset, terms)
    if one.gamma is not None and not terms.random_dp:
        raise refusals.random_dp(dataset, one.gamma, one.output)
    if terms.accountant == ZCDP and one.rho is None:
        raise refusals.no_rho_published(one, dataset)


def _log(connection: Connection, one: Published, found: Reservation | None) -> None:
    detail = {
        **rows.amount_columns(one.charge),
        "rho": None if one.rho is None else str(one.rho),
        "was": "unknown" if found is None else found.state.value,
        "output": one.output,
    }
    dataset = one.dataset or ""
    rows.add_audit(connection, "reconciled", dataset, one.name, one.release_id, detail)
