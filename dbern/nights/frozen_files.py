"""The files of a night: of one night only, and frozen when it closes.

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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dbern.data.footers import UnreadableFileError, open_source, reader_failures
from dbern.data.objects import identity
from dbern.data.sources import discover
from dbern.errors import IntegrityError, ReleaseError, SpecError
from dbern.ledger import BudgetLedger, Reservation, State
from dbern.nights.horizon import StreamNode
from dbern.planning.spec import ReleaseSpec
from dbern.system import is_url

_PART_BYTES = 1 << 22
_SEALED = (State.SPENT, State.COMMITTED, "reconciled")  # in the log


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
    nights = {night: _files_of_night(ledger, spec, block, night) for night in block.counted_nights}
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
    for night in node.counted_nights:
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
