"""Release a night of a stream: charge the horizon once, then every node that is due.

A night is closed once it is published or abandoned, and a block is due when its nights are closed.
So nights may come in any order, late or again: what is published is left as it is, what was
interrupted goes on, and whichever night of a block closes last releases the block.

A block waits, reserved, for a file of its nights that is lost, and the others go on. Once it is
abandoned, which refunds it, it is released without the nights that have lost files, and says so.

*A row is in the files of one night.* The guarantee assumes it of the source, and whoever writes
files there sees to it. A night is refused that has a file of another, as far as the file system
says so: by its path, or by inode and time of change. No file's content is compared with another's:
how that ends would tell whoever placed the one what the other holds, all records of a night. Where
the ledger was put back and does not know a published night's files, no further night is counted,
for any file may have been among them.

*The nights of a node are frozen when they close.* A night's files enter the ledger with a keyed
digest of all their bytes; when a block closes, its files are those of its nights and no others, and
before anything is sealed their digests are compared again. So a row is counted alike in all nodes
that have it, and one that arrives later is of the night in which it arrives.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeAlias

from dbern.data.footers import UnreadableFileError, open_source, reader_failures
from dbern.data.objects import identity
from dbern.data.sources import discover
from dbern.errors import BudgetError, DbernError, IntegrityError, ReleaseError, SpecError
from dbern.ledger import BudgetLedger, Request, Reservation, State
from dbern.ledger.entries import OVER
from dbern.nights.horizon import Horizon, Node, StreamNode, day_of
from dbern.nights.section import horizon_of, stream_identity
from dbern.nights.stream import StreamIndex
from dbern.planning.planner import footers, plan_files
from dbern.planning.spec import ReleaseSpec
from dbern.system import is_url

_PART_BYTES = 1 << 22
_SEALED = (State.SPENT, State.COMMITTED, "reconciled")  # in the log
_PUBLISHED_WITH_FILES = (State.COMMITTED, True)
"""Of a night, that blocks may count: its files are in the ledger."""
_States: TypeAlias = dict[Node, tuple[State | None, bool]]


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
    """
    if not node.is_night:
        digests = dict(_closed_files(ledger, spec, node))
        return {"files": [{"path": name} for name in digests], "digests": digests}
    salt = charge_of(ledger, spec, node).salt
    (source,) = spec.sources
    paths = {spec.name_of(path): path for path in discover(source)}
    inputs = {
        "files": [{"path": name} for name in paths],
        "digests": {name: _digest(path, salt) for name, path in paths.items()},
        "inodes": {name: _inode(path) for name, path in paths.items() if not is_url(path)},
    }
    known = ledger.find(spec.budget.dataset, node.release_name)
    if known is not None and known.content.inputs.get("digests") == inputs["digests"]:
        inputs = known.content.inputs  # what is brought back from a copy has another inode
    _refuse_shared(ledger, spec, node, inputs)
    return inputs


def require_frozen(ledger: BudgetLedger, spec: ReleaseSpec, reservation: Reservation) -> None:
    """Refuse to seal what was counted of files that changed since their night closed.

    Raises IntegrityError: nothing is released of them, and nothing is charged.
    """
    if spec.stream_node is None:
        return
    salt = charge_of(ledger, spec, spec.stream_node).salt
    inputs = reservation.content.inputs
    if spec.stream_node.is_night:  # of two nights at once, the one that is sealed last sees both
        _refuse_shared(ledger, spec, spec.stream_node, inputs)
    for name, digest in inputs["digests"].items():
        if _digest(spec.path_of(name), salt) != digest:
            raise IntegrityError(
                f"data.source: {name} is not what it was when its night closed. Bring it back and "
                "run the same command again. Rows that come later are of the night in which they "
                "come"
            )


def nights_with_lost_files(
    ledger: BudgetLedger, spec: ReleaseSpec, block: StreamNode
) -> frozenset[int]:
    """Return the nights of a block of whose files one is not there."""
    nights = {night: _files_of_night(ledger, spec, block, night) for night in block.counted}
    return frozenset(night for night, files in nights.items() if _lost(spec, files))


def files_there(spec: ReleaseSpec, inputs: Mapping[str, Any]) -> list[str]:
    """Return the paths of a node's files; of a block without those that are lost.

    So it is reserved all the same, and can be abandoned.
    """
    names, lost = inputs["digests"], set[str]()
    if spec.stream_node is not None and not spec.stream_node.is_night:
        lost.update(_lost(spec, names))
    return [spec.path_of(name) for name in names if name not in lost]


def unopened_file(
    ledger: BudgetLedger, spec: ReleaseSpec, reservation: Reservation
) -> ReleaseError:
    """Return the error of a release of whose files one cannot be opened."""
    node, lost = spec.stream_node, []
    if node is not None and not node.is_night:
        lost = _lost(spec, reservation.content.inputs["digests"])
    what = "a file of the reservation cannot be opened"
    if lost:
        what = f"{lost[0]}, of a night of block {reservation.name}, is not there"
    mend = "Bring it back and run the same command again"
    if lost:
        mend += (
            f". If it is lost for good, run {reservation.abandon_command(ledger.url)} and then the "
            "same command: the block is released without that night, if nothing of it was read yet"
        )
    return ReleaseError(f"data.source: {what}. {mend}")


def _lost(spec: ReleaseSpec, names: Iterable[str]) -> list[str]:
    """Return the files that are not there; a disk or store that fails has not said so."""
    lost = []
    for name in names:
        path = spec.path_of(name)
        try:
            identity(path) if is_url(path) else Path(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            lost.append(name)
        except OSError:
            continue
    return lost


def _closed_files(
    ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode
) -> Iterator[tuple[str, str]]:
    for night in node.counted:
        yield from _files_of_night(ledger, spec, node, night).items()


def _files_of_night(
    ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode, night: int
) -> dict[str, str]:
    """Return the files of a published night, with their digests."""
    name = node.at(node.horizon.node(0, night)).release_name
    closed = ledger.find(spec.budget.dataset, name)
    if closed is None or closed.state is not State.COMMITTED:
        raise ReleaseError(f"{node.horizon.day(night)}: is not released. Release it first")
    return dict(closed.content.inputs.get("digests", {}))


def _refuse_shared(
    ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode, inputs: Mapping[str, Any]
) -> None:
    """Refuse a file that another night has: its rows would count twice.

    Raises IntegrityError where the ledger does not know the files of a night that was sealed.
    """
    every, sealed = ledger.inputs(spec.budget.dataset), sealed_nights(ledger, spec, node)
    for release_name, night in (_night_names(node) | sealed).items():
        other, day = every.get(release_name, {}), node.horizon.day(night)
        if release_name in sealed and "digests" not in other:
            raise IntegrityError(
                f"stream {node.stream}: the ledger was restored and forgot which files {day} has. "
                "A row of them could count in another night too, so no further night is released. "
                "Its charge and what is published stay; go on with a stream of another name, which "
                "is charged by itself"
            )
        if release_name == node.release_name:
            continue
        inodes = set(other.get("inodes", {}).values())
        for name in inputs["digests"]:
            if name in other.get("digests", {}) or inputs.get("inodes", {}).get(name) in inodes:
                raise SpecError(
                    f"data.source: {name} is a file of {day} too. Write "
                    'a source by which a file is of one night, such as "data/{partition}/*.parquet"'
                )


def _night_names(node: StreamNode) -> dict[str, int]:
    """Return the nights of a node's stream by the names of their releases."""
    nights = (other for other in node.horizon.nodes() if other.level == 0)
    return {node.at(night).release_name: night.start for night in nights}


def sealed_nights(ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode) -> dict[str, int]:
    """Return the nights of which something was or may be published, by the names of releases.

    The ledger's log has them, those that it forgot and were found by `reconcile` too, under
    whatever name and also where they are unfinished.
    """
    nights, sealed = _night_names(node), {}
    for line in ledger.log(spec.budget.dataset):
        if line.event in _SEALED and line.name and line.release_id:
            night = nights.get(line.name.removesuffix(f"~{line.release_id[:8]}"))
            if night is not None:
                sealed[line.name] = night
    return sealed


def charge_of(ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode) -> Reservation:
    """Return the charge that paid for a node; raises ReleaseError where there is none."""
    paid = ledger.find(spec.budget.dataset, node.stream)
    if paid is None:
        raise ReleaseError(f"stream {node.stream}: is not charged. Run dbern release with its spec")
    return paid


def _inode(path: str) -> str:
    """Return what tells a file of a disk from others whatever they hold, also when it is moved.

    The number of a file that is removed is given to another, so the time of change is with it.
    """
    with _reading(path):
        status = Path(path).stat()
    return f"{status.st_ino} {status.st_mtime_ns}"


def _digest(path: str, salt: bytes) -> str:
    """Return a keyed digest of all bytes of a file: of records, so it never leaves the ledger."""
    digest = hmac.new(salt, digestmod=hashlib.sha256)
    with _reading(path), open_source(path) as source:
        while part := source.read(_PART_BYTES):
            digest.update(part)
    return digest.hexdigest()


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        with reader_failures(path):
            yield
    except UnreadableFileError:
        raise ReleaseError(
            f"data.source: {path} cannot be read. Make it readable, and run the same command again"
        ) from None


def release_night(
    spec: ReleaseSpec, ledger: BudgetLedger, release_node: Callable[[ReleaseSpec], object]
) -> tuple[str, ...]:
    """Release the nodes that are due with a night, by `release_node`; return what was done.

    Raises SpecError for a night that is outside the horizon or in the future, and for a spec that
    is not the stream's; BudgetError where the account cannot pay for the horizon.
    """
    day = _day(spec)
    node = _charged(ledger, spec, day)
    horizon = node.horizon
    state, has_files = _states(ledger, spec, node)[node.span]
    if state is State.ABANDONED:
        notes = [f"{day} was abandoned: it stays empty"]
    elif state is State.COMMITTED and not has_files:
        notes = [f"{day} was published before the ledger was restored, and stays as it is"]
    else:
        release_node(spec.at(node))
        notes = [f"{day} is published"]
    states = _states(ledger, spec, node)
    closed = {night.start: states[night][0] for night in states if _is_closed_night(night, states)}
    abandoned = [night for night, state in closed.items() if state is State.ABANDONED]
    StreamIndex.of(spec.budget.dataset, node.stream, horizon, abandoned).write(spec.output)
    failures: list[DbernError] = []
    for block in _due_blocks(ledger, spec, node, states):
        days = ", ".join(str(horizon.day(night)) for night in sorted(block.without))
        try:
            release_node(spec.at(block))
        except DbernError as error:
            failures.append(error)
        else:
            left_out = f" without {days}" if days else ""
            notes.append(f"{horizon.name(block.span)} is published{left_out}")
    if spec.enforces_nights and len(closed) == horizon.count:
        _end(ledger, spec, node)
    if failures:
        raise failures[0]
    return tuple(notes)


def _is_closed_night(node: Node, states: _States) -> bool:
    return node.level == 0 and states[node][0] in OVER


def _due_blocks(
    ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode, states: _States
) -> Iterator[StreamNode]:
    """Yield the blocks that are not closed and whose nights are; none that would have no rows."""
    closed = {night.start for night in states if _is_closed_night(night, states)}
    counted = {
        night for night in closed if states[Node(0, night, night + 1)] == _PUBLISHED_WITH_FILES
    }
    for span, (state, _) in states.items():
        if span.level and state not in OVER and closed.issuperset(span.nights):
            without = _left_out(ledger, spec, replace(node, span=span), counted)
            if not without.issuperset(span.nights):
                yield replace(node, span=span, without=without)


def _left_out(
    ledger: BudgetLedger, spec: ReleaseSpec, block: StreamNode, counted: Set[int]
) -> frozenset[int]:
    """Return the nights that a block leaves out; of one that is under way, as it was begun."""
    known = ledger.find(spec.budget.dataset, block.release_name)
    if known is not None and known.content.identity:
        return frozenset(known.content.identity["stream"]["node"]["without"])
    without = frozenset(block.span.nights) - counted
    releases = ledger.status(spec.budget.dataset)[0].releases
    if any(row.name == block.release_name and row.state is State.REFUNDED for row in releases):
        without |= nights_with_lost_files(ledger, spec, replace(block, without=without))
    return without


def _end(ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode) -> None:
    """Destroy what a stream keeps of the units of its nights, now that all are closed."""
    with ledger.lock(charge_of(ledger, spec, node)):
        paid = charge_of(ledger, spec, node)
        if paid.state is State.SPENT:
            ledger.commit(paid, None)


def _day(spec: ReleaseSpec) -> date:
    if spec.partition is None:
        raise SpecError(
            "stream: is released night by night. Write --partition 2026-11-20 on the command line, "
            'or ReleaseSpec.load(path, partition="2026-11-20")'
        )
    day, today = day_of(spec.partition), datetime.now(UTC).date()
    if day > today:
        raise SpecError(f"--partition: {day} is in the future; today is {today}, in UTC")
    return day


def _charged(ledger: BudgetLedger, spec: ReleaseSpec, day: date) -> StreamNode:
    """Return the stream as it was charged, and charge it if it is not.

    It begins where the spec says, or with the night that is released first, whose files are looked
    at before: no stream is charged for a misspelt path.
    """
    known = ledger.find(spec.budget.dataset, spec.release.name)
    charged = known.content.identity.get("stream") if known else None
    section = spec.stream_section
    first = section.first or (day_of(charged["first"]) if charged else day)
    if charged and section.levels == "auto":  # as it was chosen then
        horizon = Horizon(first, section.horizon, tuple(charged["levels"]))
    else:
        horizon = horizon_of(section, first, spec.charge)
    node = StreamNode(spec.release.name, horizon, horizon.node(0, horizon.night(day)))
    node_spec = spec.at(node)
    request = stream_request(node_spec, node)
    if known is None:
        _require_one_budget(ledger, spec)
        files = footers(node_spec)
        ids = {"ids": max(file.ids for file in files)} if spec.enforces_nights else {}
        request = replace(request, rho=plan_files(node_spec, files).rho, inputs=ids)
    try:
        ledger.charge(request, under_way=spec.enforces_nights)
    except SpecError:
        if known is None and ledger.find(spec.budget.dataset, spec.release.name) is not None:
            return _charged(ledger, spec, day)  # by another process, from another first night
        raise
    return node


def _require_one_budget(ledger: BudgetLedger, spec: ReleaseSpec) -> None:
    """Refuse an account that is renewed: nights of a later period would be paid by an earlier."""
    period = ledger.status(spec.budget.dataset)[0].terms.period
    if period:
        raise BudgetError(
            f"dataset {spec.budget.dataset!r}: its budget is whole again every {period}, and a "
            "stream is paid once for all its nights. Grant another dataset, without --period"
        )


def _states(ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode) -> _States:
    """Return the state of each node of the stream, and whether the ledger has its files.

    It has none of a node that was reconciled. Nights are first, and smaller blocks before larger.
    """
    releases = ledger.status(spec.budget.dataset)[0].releases
    states = {row.name: row.state for row in releases if row.state is not State.REFUNDED}
    inputs = ledger.inputs(spec.budget.dataset)
    names = {other: node.at(other).release_name for other in node.horizon.nodes()}
    return {
        other: (states.get(name), "digests" in inputs.get(name, {}))
        for other, name in names.items()
    }
