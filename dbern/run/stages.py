"""Run a release: plan, reserve, count, stage, spend, add noise, publish, commit.

Each step leaves the ledger in a state from which the same call goes on. Noise is a function of the
release key, the sealed center, the law and the position, and the center is staged before the
charge: a crash anywhere gives the same bytes for one charge when the call is made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbern.data.footers import Footer
from dbern.data.frames import Frame, is_another
from dbern.data.storage import is_published, location_at, storage_errors
from dbern.errors import (
    EnvironmentRefusedError,
    IntegrityError,
    OtherDataError,
    OtherVersionError,
    ReleaseError,
    SpecError,
    unreadable_refused,
    withhold_texts,
)
from dbern.ledger import Abandoned, BudgetLedger, Request, Reservation, State
from dbern.ledger.entries import FREE, PENDING
from dbern.nights.frozen_files import files_there, frozen_inputs
from dbern.nights.night import release_night, stream_request
from dbern.nights.people import require_same_ids
from dbern.planning.planner import footers, frame_for, plan_files, refuse_passes
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget
from dbern.run.connection import WAIT_SECONDS, cluster, is_here, require_address, same_cluster
from dbern.run.counting import Run, count
from dbern.run.journal import Journal
from dbern.run.partitions import refuse_other_clusters, refuse_shared_steps
from dbern.run.publish import publish
from dbern.synopsis.opening import open_synopsis
from dbern.synopsis.reader import Synopsis
from dbern.synopsis.writer import SynopsisWriter, check_output, discard
from dbern.system import Progress, silent, version

if TYPE_CHECKING:
    from dbern.run.graph import Client


_WAITING = "waiting for another process with this release"


@dataclass(frozen=True)
class Release:
    """A published release.

    Attributes
    ----------
    url : str
        Where the synopsis is.
    charge : Budget
        What it cost, once.
    notes : tuple of str
        What the caller should know, such as that nothing was done because it was there already.
    """

    url: str
    charge: Budget
    notes: tuple[str, ...] = ()

    @property
    def guarantee(self) -> Budget:
        """Guarantee that the charge bought."""
        return self.synopsis.guarantee

    @property
    def synopsis(self) -> Synopsis:
        """The synopsis, opened."""
        return open_synopsis(self.url)


@dataclass(frozen=True)
class ReleasedNight(Release):
    """A night of a stream, which was charged for all of them; `url` is the stream's."""

    @property
    def guarantee(self) -> Budget:
        """Guarantee of the stream; it has no synopsis before its first night is published."""
        return self.charge


def release(
    spec: ReleaseSpec | str | Path,
    client: Client | None = None,
    *,
    data: Any = None,
    scheduler: str | None = None,
    wait_for_workers: float = WAIT_SECONDS,
    progress: Progress = silent,
) -> Release:
    """Release the spec's function: charge the ledger once and publish the synopsis once.

    Call it again after any interruption: it continues, with the same bytes and no second charge.

    Parameters
    ----------
    spec : ReleaseSpec, or the path of its file
    client : distributed.Client, optional
        A running cluster, reached by a connection of its own, which unpickles nothing; otherwise
        `scheduler`'s, ``tls://host:8786``, otherwise threads of this process.
    data : table, optional
        In place of files: a pandas, polars or Dask frame, Arrow table or reader, DuckDB relation.
    wait_for_workers : float
        Seconds that workers have to come where a running cluster has none.
    progress : callable
        Told of each stage.

    Raises
    ------
    SpecError
        For a spec, files or an output that cannot work, or that differ from the reserved ones.
    BudgetError, EnvironmentRefusedError
        Where the budget does not cover the charge; for a ledger or cluster that cannot be used.
    IntegrityError
        For files that changed under way, or a staged center that is not what was sealed.
    ReleaseError
        Where work could not finish; run it again.
    """
    spec, frame = _parse(spec, data, client, scheduler)
    if spec.stream is not None and spec.stream_node is None:
        return _release_stream(spec, client, scheduler, wait_for_workers, progress)
    with withhold_texts(), BudgetLedger.open(spec.ledger_url) as ledger, ExitStack() as stack:
        began, context = time.monotonic(), _cluster(client, scheduler, wait_for_workers, progress)
        connect = cache(lambda: stack.enter_context(context))
        reservation, files = _reserve(ledger, spec, frame, connect if client or scheduler else None)
        journal = Journal(ledger, reservation, progress, time.monotonic() - began)
        with ledger.lock(reservation, wait=partial(journal.progress, _WAITING, 0, 1)):
            reservation = _reread(ledger, reservation)
            if reservation.state is State.COMMITTED:
                return _committed(spec, reservation, frame)
            plan, notes = _stored_plan(reservation), _notes(ledger, reservation, frame)
            reservation = _redirect(ledger, reservation, spec.output)
            if reservation.state in PENDING:
                run = Run(ledger, spec, plan, frame, reservation, journal, files)
                reservation = count(connect, run)
                stack.close()
            with journal.stage("adding noise and publishing"):
                manifest = publish(ledger, spec, plan, reservation, journal.progress)
            with journal.stage("committing"):
                ledger.commit(reservation, manifest)
        return Release(reservation.output, reservation.charge, notes + _warnings(plan))


def _release_stream(
    spec: ReleaseSpec, client: Client | None, scheduler: str | None, wait: float, progress: Progress
) -> Release:
    node = partial(release, client=client, scheduler=scheduler, progress=progress)
    with withhold_texts(), BudgetLedger.open(spec.ledger_url) as ledger:
        notes = release_night(spec, ledger, partial(node, wait_for_workers=wait))
    return ReleasedNight(spec.output, spec.charge, notes)


def abandon(
    ledger: BudgetLedger, dataset: str, name: str, progress: Progress = silent
) -> Abandoned:
    """Give a release up: refund it if no record was read, destroy its key, staging and torso.

    The key goes first, whatever becomes of the output; the rest of a torso that could not be
    removed is removed when this is called again.
    """
    reservation = ledger.find(dataset, name)
    if reservation is None:
        return ledger.abandon(dataset, name)  # which says why not
    with ledger.lock(reservation, wait=partial(progress, _WAITING, 0, 1)):
        if reservation.state is State.ABANDONED:
            given_up = Abandoned(reservation, refunded=False)
        else:
            given_up = ledger.abandon(dataset, name, reservation.release_id)
    if reservation.output:  # a stream's charge has none
        discard(location_at(given_up.reservation.output), reservation.release_id)
    return given_up


def _parse(
    source: ReleaseSpec | str | Path, data: Any, client: Client | None, scheduler: str | None
) -> tuple[ReleaseSpec, Frame | None]:
    """Return the spec, and the table in place of files, which no other process can count."""
    spec = ReleaseSpec.of(source)
    frame = frame_for(spec, data)
    here = not scheduler and (client is None or is_here(client))
    if spec.data.source is None and not here and not (frame and frame.partitions):
        raise SpecError(
            "data: a table is counted by this process, and no other has the key of its spool. "
            "Leave out the scheduler or client, or give a Dask frame, or write files and name them "
            "in data.source."
        )
    return spec, frame


def _reserve(
    ledger: BudgetLedger,
    spec: ReleaseSpec,
    frame: Frame | None,
    check_cluster: Callable[[], Client] | None = None,
) -> tuple[Reservation, tuple[Footer, ...]]:
    """Find this release's reservation or make it; after the charge the records are not needed.

    With the footers that were read for it. `check_cluster` for the cluster, which may refuse,
    before anything is reserved.
    """
    files: tuple[Footer, ...] = ()
    known, node = ledger.find(spec.budget.dataset, spec.release.name), spec.stream_node
    request = Request(
        dataset=spec.budget.dataset,
        name=spec.release.name,
        charge=FREE if node else spec.charge,
        neighbors=spec.protection.neighbors,
        unit=spec.protection.unit,
        identity=spec.identity(),
        output=spec.output,
        within=stream_request(spec, node) if node else None,
    )
    if known is None:
        ledger.require_account(request)
    if known is not None and spec.data.source is None and _is_spooled(ledger, known, frame):
        request = replace(request, inputs=known.content.inputs)  # what is spooled goes on
    elif known is None or known.state not in (State.SPENT, State.COMMITTED):
        frozen = frozen_inputs(ledger, spec, node) if node else None
        files = footers(spec, frame, None if frozen is None else files_there(spec, frozen))
        if node and spec.enforces_nights:
            require_same_ids(ledger, spec, node, files)
        planned = plan_files(spec, files)
        refuse_passes(spec, planned, frame)
        if frame and frame.partitions:
            refuse_shared_steps(frame.partitions)
            refuse_other_clusters(frame.partitions, check_cluster)
        rows_alone = {} if planned.protection.private_rows else {"n": planned.n}
        request = replace(
            request,
            inputs=frozen or (_inputs(files, spec) if frame is None else rows_alone),
            plan={"dbern_version": version("dbern"), **planned.to_dict()},
            rho=None if node else planned.rho,
        )
    if known is None or known.state is State.REFUNDED:
        _check_output(ledger, spec)
        if check_cluster:
            check_cluster()
    return ledger.reserve(request), files


def _check_output(ledger: BudgetLedger, spec: ReleaseSpec) -> None:
    """Refuse an output that cannot be written, while nothing is charged yet, or one that is taken.

    Not one of this release, begun by another process since.
    """
    output = location_at(spec.output)
    try:
        check_output(output, None)
    except SpecError:
        known = ledger.find(spec.budget.dataset, spec.release.name)
        if known is None or known.state is State.REFUNDED:
            raise
    try:
        output.try_writing()
    except OSError as error:
        raise EnvironmentRefusedError(
            f"release.output: {output} cannot be written ({error.strerror}). Write another output, "
            "or make a folder there that this user may write to"
        ) from None


def _reread(ledger: BudgetLedger, reservation: Reservation) -> Reservation:
    """Read the reservation again now that it is locked.

    Before the lock was taken it may have been abandoned, and its name reserved anew by another
    spec: then this process must not touch what is there.
    """
    current = ledger.find(reservation.dataset, reservation.name)
    if current is None or current.release_id != reservation.release_id:
        raise ReleaseError(
            f"release {reservation.name} was abandoned by another process. Run the same command "
            "again if it is still wanted"
        )
    return current


def _stored_plan(reservation: Reservation) -> ReleasePlan:
    """Parse the plan that was reserved, which only the version that made it may carry out."""
    content = dict(reservation.content.plan)
    planned_by = content.pop("dbern_version", "of no version")
    if planned_by != version("dbern"):
        raise OtherVersionError(
            f"release {reservation.name} was planned by dbern {planned_by}, and this is "
            f"{version('dbern')}. Finish it with that version, or abandon it"
        )
    mend = "Restore the ledger from a backup; where nobody changed it"
    with unreadable_refused(f"ledger: the plan of {reservation.title}", mend):
        return ReleasePlan.from_dict(content)


def _refuse_rolled_back(reservation: Reservation, output: str) -> None:
    """Refuse to count records once anything of the release was written.

    A ledger that says otherwise was put back to an earlier state, by a backup or a lost disk
    write; going on could draw the same noise for other records.
    """
    for location in {reservation.output, output}:
        writer = SynopsisWriter(location_at(location), reservation.release_id)
        if writer.published() is not None or writer.is_begun():
            raise IntegrityError(
                f"{location} already holds release {reservation.name}, which the ledger says was "
                "not charged yet: the ledger was rolled back. Abandon the release, remove what is "
                "there and choose a new release.name"
            )


def _inputs(files: tuple[Footer, ...], spec: ReleaseSpec) -> dict[str, Any]:
    """File list of the ledger: paths relative to the spec where they are below it.

    Where the number of rows is private, no more than the paths: neighbours differ in sizes.
    """
    if spec.protection.private_rows:
        return {"files": [{"path": spec.name_of(file.path)} for file in files]}
    return {
        "n": sum(file.rows for file in files),
        "files": [
            {
                "path": spec.name_of(file.path),
                "size": file.size,
                "row_groups": list(file.row_groups),
            }
            for file in files
        ],
    }


def _is_spooled(ledger: BudgetLedger, reservation: Reservation, frame: Frame | None) -> bool:
    if reservation.state not in PENDING or (frame is not None and frame.partitions):
        return False
    return ledger.spool(reservation).path.exists()


def _notes(ledger: BudgetLedger, reservation: Reservation, frame: Frame | None) -> tuple[str, ...]:
    counted = reservation.state is State.SPENT
    if frame is None or not (counted or _is_spooled(ledger, reservation, frame)):
        return ()
    return ("what was spooled or counted before goes on: this table was not read",)


def _warnings(plan: ReleasePlan) -> tuple[str, ...]:
    return tuple(note for note in plan.notes if note.startswith("WARNING"))


def _redirect(ledger: BudgetLedger, reservation: Reservation, output: str) -> Reservation:
    if reservation.state in PENDING:
        _refuse_rolled_back(reservation, output)
    if reservation.output == output:
        return reservation
    check_output(location_at(output), reservation.release_id)
    discard(location_at(reservation.output), reservation.release_id)
    return ledger.set_output(reservation, output)


def _committed(spec: ReleaseSpec, reservation: Reservation, frame: Frame | None) -> Release:
    """Return the release that is there; only a new name spends again.

    Raises OtherDataError where public facts tell that it is of other data: never by their values.
    """
    location = location_at(reservation.output)
    with storage_errors(location, "read"):
        is_there = is_published(location)
    if not is_there:
        raise IntegrityError(
            f"{reservation.output}: was published and is gone. Bring it back from a copy: its key "
            "is destroyed, and only a new release.name spends again"
        )
    day = reservation.created[:10]
    notes = [
        f"this release was already published, on {day}: nothing was read, and nothing was charged"
    ]
    if reservation.output != spec.output:
        notes.append(
            f"it is at {reservation.output}; copy it to {spec.output}, or choose a new release.name"
        )
    if frame is None:
        notes += _require_same_files(spec, reservation)
    else:
        _require_same_table(spec, reservation, frame)
        notes.append("nothing public tells whether this is the table that it was made from")
    return Release(reservation.output, reservation.charge, tuple(notes))


def _require_same_files(spec: ReleaseSpec, reservation: Reservation) -> list[str]:
    """Refuse files that are not those of a release; a note where they are no longer there."""
    try:
        files = () if spec.data.source is None or spec.stream_node else footers(spec)
    except SpecError:  # gone, or no longer what the spec says: the synopsis does not need them
        return ["its files have changed since, or are gone: it describes the old ones"]
    if files and not _are_the_files(files, spec, reservation.content.inputs.get("files", [])):
        raise _other_data("data.source: the files are not those", reservation)
    return []


def _are_the_files(
    files: tuple[Footer, ...], spec: ReleaseSpec, recorded: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether files are those of the ledger, though a spec that lies elsewhere names them anew."""
    if len(files) != len(recorded):
        return False
    for file, now, before in zip(files, _inputs(files, spec)["files"], recorded, strict=True):
        parts = _names(before["path"])
        if _names(file.path)[-len(parts) :] != parts:
            return False
        if {**now, "path": ""} != {**before, "path": ""}:
            return False
    return True


def _names(path: str) -> list[str]:
    """Names of folders and of the file, of a path or a URL."""
    return [part for part in path.split("/") if part not in ("", "..")]


def _require_same_table(spec: ReleaseSpec, reservation: Reservation, frame: Frame) -> None:
    """Refuse a table that is not the one of a release; the types of a column may be data."""
    if is_another(reservation.release_id, frame.table):
        raise _other_data("data: this is not the table", reservation)
    if frame.partitions or spec.protection.private_rows:
        return
    rows, before = 0, reservation.content.inputs.get("n")
    with suppress(SpecError):  # of a table that cannot be counted: the synopsis needs no rows
        rows = sum(file.rows for file in frame.footers)
    if rows not in (0, before):  # a reader does not tell
        raise _other_data(f"data: {rows} rows are not the {before}", reservation)


def _other_data(what: str, reservation: Reservation) -> OtherDataError:
    return OtherDataError(
        f"{what} that {reservation.title} was made from, on {reservation.created[:10]}. Choose "
        "another release.name, which is paid for again, or read what is there: "
        f"dbern.open({reservation.output!r})"
    )


def _cluster(
    client: Client | None, scheduler: str | None, wait: float, progress: Progress
) -> AbstractContextManager[Client]:
    if scheduler is not None:
        require_address(scheduler)
    if client is None:
        return cluster(scheduler, wait, progress)
    return same_cluster(client, wait, progress)
