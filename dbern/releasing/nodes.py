"""A node of a stream beside an ordinary release: what pays for it, and what its files were.

The nights of a node are frozen when they close. A night's files enter the ledger with a keyed
digest of all their bytes; when a block closes, its files are those of its nights and no others, and
before anything is sealed their digests are compared again. So a row is counted alike in all nodes
that have it, and one that arrives later is of the night in which it arrives.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Any

from dbern.data.footers import UnreadableFileError, file_facts, open_source, reader_failures
from dbern.data.horizon import StreamNode
from dbern.data.source_files import discover
from dbern.errors import IntegrityError, ReleaseError, SpecError
from dbern.ledger import BudgetLedger, Request, Reservation, State
from dbern.planning.spec import ReleaseSpec
from dbern.planning.streams import stream_identity

_PART_BYTES = 1 << 22


def stream_request(spec: ReleaseSpec, node: StreamNode) -> Request:
    """Return the charge of the horizon that a node is of, without the rho of its plan."""
    horizon = node.horizon
    note = f"stream of {horizon.count} nights from {horizon.first}"
    return Request(
        dataset=spec.budget.dataset,
        name=node.stream,
        charge=spec.charge,
        neighbors=spec.protection.neighbors,
        unit=spec.protection.unit,
        identity={"note": note, **stream_identity(spec.identity())},
    )


def frozen_inputs(ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode) -> dict[str, Any]:
    """Return the files of a node with the digests that they have to keep.

    Of a night they are found and read now; of a block they are those of its nights, in the ledger.
    Raises IntegrityError for a night whose files the ledger does not have.
    """
    if not node.is_night:
        digests = dict(_closed_files(ledger, spec, node))
    else:
        salt = charge_of(ledger, spec, node).salt
        (source,) = spec.sources
        digests = {spec.name_of(path): _digest(path, salt) for path in discover(source)}
        _refuse_shared(ledger, spec, node, digests)
    return {"files": [{"path": name} for name in digests], "digests": digests}


def require_frozen(ledger: BudgetLedger, spec: ReleaseSpec, reservation: Reservation) -> None:
    """Refuse to seal what was counted of files that changed since their night closed.

    Raises IntegrityError: nothing is released of them, and nothing is charged.
    """
    if spec.stream_node is None:
        return
    salt = charge_of(ledger, spec, spec.stream_node).salt
    digests = reservation.content.inputs["digests"]
    if spec.stream_node.is_night:  # of two nights at once, each sees the other here
        _refuse_shared(ledger, spec, spec.stream_node, digests)
    for name, digest in digests.items():
        if _digest(spec.path_of(name), salt) != digest:
            raise IntegrityError(
                f"data.source: {name} is not what it was when its night closed. Bring it back and "
                "run the same command again. Rows that come later are of the night in which they "
                "come"
            )


def _closed_files(
    ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode
) -> Iterator[tuple[str, str]]:
    for night in node.counted:
        name = node.at(node.horizon.node(0, night)).release_name
        closed = ledger.find(spec.budget.dataset, name)
        if closed is None or closed.state is not State.COMMITTED:
            raise ReleaseError(f"{node.horizon.day(night)}: is not released. Release it first")
        yield from closed.content.inputs.get("digests", {}).items()


def _refuse_shared(
    ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode, digests: Mapping[str, str]
) -> None:
    """Refuse a file that another night has, under whatever name: its rows would count twice."""
    every = ledger.inputs(spec.budget.dataset)
    for other in map(node.at, node.horizon.nodes()):
        if not other.is_night or other.release_name == node.release_name:
            continue
        day = node.horizon.day(other.span.start)
        known = set(every.get(other.release_name, {}).get("digests", {}).values())
        for name, digest in digests.items():
            if digest in known and file_facts(spec.path_of(name)).rows:
                raise SpecError(
                    f"data.source: {name} is a file of {day} too. Write "
                    'a source by which a file is of one night, such as "data/{partition}/*.parquet"'
                )


def charge_of(ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode) -> Reservation:
    """Return the charge that paid for a node; raises ReleaseError where there is none."""
    paid = ledger.find(spec.budget.dataset, node.stream)
    if paid is None:
        raise ReleaseError(f"stream {node.stream}: is not charged. Run dbern release with its spec")
    return paid


def _digest(path: str, salt: bytes) -> str:
    """Return a keyed digest of all bytes of a file: of records, so it never leaves the ledger."""
    digest = hmac.new(salt, digestmod=hashlib.sha256)
    try:
        with reader_failures(path), open_source(path) as source:
            while part := source.read(_PART_BYTES):
                digest.update(part)
    except UnreadableFileError:
        raise ReleaseError(
            f"data.source: {path} cannot be read. Bring it back and run the same command again"
        ) from None
    return digest.hexdigest()
