"""Count a release's records on workers, stage and seal their center, and charge."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from dbern.data.footers import Footer, UnreadableFileError, read_footer, unlocked
from dbern.data.frames import Frame, remember_table, write_spool
from dbern.errors import IntegrityError, SpecError
from dbern.ledger import BudgetLedger, Reservation, Staging, State
from dbern.measure.counters import Counters
from dbern.nights.frozen_files import require_frozen, unopened_file
from dbern.nights.people import admit_units
from dbern.planning.cost import WRITERS
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.resolved import public_rows
from dbern.planning.spec import ReleaseSpec
from dbern.run.connection import cluster, workers_of
from dbern.run.graph import centers, make_tasks, tree_reduce
from dbern.run.journal import Journal
from dbern.run.tasks import SlabJob

if TYPE_CHECKING:
    from dbern.run.graph import Client

_READ_ALREADY = "A reader is read once, and this one may have been: give a fresh one"


@dataclass(frozen=True)
class Run:
    """A release under way: its spec and plan, its data, and where it is charged."""

    ledger: BudgetLedger
    spec: ReleaseSpec
    plan: ReleasePlan
    frame: Frame | None
    reservation: Reservation
    journal: Journal
    footers: tuple[Footer, ...] = ()  # as the plan read them, where it was made just now


def count(connect: Callable[[], Client], run: Run) -> Reservation:
    """Count the records on workers, stage their center, seal it, and charge the reservation."""
    ledger, frame, counters = run.ledger, run.frame, run.plan.counters(run.spec)
    with ExitStack() as stack:
        # The key, and what is derived from it, never leaves this process; nor do ids of units.
        here = counters.keyed or counters.admits
        client = stack.enter_context(cluster()) if here else connect()
        workers = workers_of(client)
        versions = workers.require_versions(set(run.spec.packages().values()))
        counters = replace(counters, versions=tuple(versions.items()))
        workers.check_memory(run.plan.cost)
        files = stack.enter_context(_records(run))
        if run.reservation.state is State.RESERVED:
            run = replace(run, reservation=ledger.begin_reading(run.reservation))
        staging = ledger.staging(run.reservation)
        partitions = frame.partitions if frame and not files else ()
        if counters.keyed:
            counters = counters.with_key(ledger.key(run.reservation))
        counted_by = b""
        if counters.admits:
            with run.journal.stage("finding whose rows count"):
                block = admit_units(ledger, run.spec, run.reservation, counters, files)
            counters, counted_by = counters.admitting(block.units), block.digest
        _stage(client, counters, run, staging, files, partitions)
        require_frozen(ledger, run.spec, run.reservation)
        with run.journal.stage("sealing and charging"):
            return ledger.spend(run.reservation, staging.seal() + counted_by)


def _stage(
    client: Client,
    counters: Counters,
    run: Run,
    staging: Staging,
    files: list[Footer],
    partitions: tuple[Any, ...],
) -> None:
    """Count all records and stage the center, whole, from one pass over the files.

    An interrupted attempt's slabs are cleared first: a center pieced together from two passes is
    no function of one database if the files changed in between.
    """
    staging.clear()
    plan, salt, journal = run.plan, run.reservation.salt, run.journal
    pieces = [
        (SlabJob(part, output, slab), planned.noise.law)
        for part, planned in enumerate(plan.components)
        for output in range(planned.outputs)
        for slab in planned.strategy.layout.slabs()
    ]
    private = plan.protection.private_rows
    tasks = make_tasks(files, salt, whole=private)
    with journal.stage("reading and counting"):
        total = tree_reduce(client, counters, tasks, salt, journal.progress, partitions)
    with journal.stage("staging the lattice"), ThreadPoolExecutor(WRITERS) as pool:
        arriving = centers(client, total, counters, pieces, salt, files)
        writing = deque[Future[None]]()
        for done, (piece, values, rows) in enumerate(arriving, start=1):
            if private:
                public_rows(run.spec, [Footer("data", 0, (rows,))])
            elif rows != plan.n:
                raise IntegrityError(
                    f"data.source: {rows} rows were read and the plan says {plan.n}. Restore the "
                    "data and run the same command again"
                )
            name = plan.components[piece.part].arrays[piece.output]
            writing.append(pool.submit(staging.put, name, piece.slab.index, values.reshape(-1)))
            if len(writing) == WRITERS:  # each slab a thread: memory is planned
                writing.popleft().result()
            journal.progress("staging the lattice", done, len(pieces))
        for written in writing:
            written.result()


@contextmanager
def _records(run: Run) -> Iterator[list[Footer]]:
    """Files to count: of a frame its spool, which this process alone can read meanwhile.

    A spool is whole or not there, and is written while the charge can still be refunded. Of a Dask
    frame there are none.
    """
    frame, reservation = run.frame, run.reservation
    if run.spec.data.source is not None:
        try:
            yield _files(reservation.content.inputs, run)
        except UnreadableFileError:
            raise unopened_file(run.ledger, run.spec, reservation) from None
        return
    spool = run.ledger.spool(reservation)
    if frame is not None and frame.partitions:
        if spool.path.exists():
            raise SpecError(
                f"data: the rows of release {reservation.name} were spooled from another table. Go "
                "on from them with dbern.release(spec), or abandon the release."
            )
        remember_table(reservation.release_id, frame.table)
        yield []
        return
    if not spool.path.exists():
        if frame is None:
            raise SpecError(
                f"data: release {reservation.name} was reserved, and its rows are not spooled "
                "here. Give the data frame again: dbern.release(spec, data=frame)."
            )
        with run.journal.stage("spooling the rows"), spool.write() as file:
            rows = _spool_rows(run.ledger, reservation, frame, file, spool.key)
            n = run.plan.n
            if not run.plan.protection.private_rows and rows != n:
                raise SpecError(
                    f"data: {rows} rows were read, and the release was reserved for {n}. "
                    f"{'Give a table of as many' if rows else _READ_ALREADY}. For another data.n "
                    f"first run: dbern ledger abandon --dataset {reservation.dataset} --name "
                    f"{reservation.name}"
                )
            public_rows(run.spec, [Footer("data", 0, (rows,))])
        remember_table(reservation.release_id, frame.table)
    with unlocked(str(spool.path), spool.key):
        try:
            yield [read_footer(str(spool.path))]
        except UnreadableFileError:
            raise IntegrityError(
                f"{spool.path}: the spool of release {reservation.name} is damaged. Remove it and "
                "give the data frame again, or abandon the release."
            ) from None


def _spool_rows(
    ledger: BudgetLedger, reservation: Reservation, frame: Frame, file: BinaryIO, key: bytes
) -> int:
    """Write the rows of a table; no refund where that fails, which may be due to a record."""
    try:
        return write_spool(file, frame, key)
    except OSError:  # of the disk: what is written of a row is as long whatever its values are
        raise
    except Exception:
        if reservation.state is State.RESERVED:
            ledger.begin_reading(reservation)
        raise


def _files(inputs: dict[str, Any], run: Run) -> list[Footer]:
    spec = run.spec
    if spec.protection.private_rows:
        return [read_footer(spec.path_of(file["path"])) for file in inputs["files"]]
    files = [
        Footer(spec.path_of(file["path"]), file["size"], tuple(file["row_groups"]))
        for file in inputs["files"]
    ]
    planned = {file.path: file for file in run.footers}  # these have a digest
    return [planned[file.path] if planned.get(file.path) == file else file for file in files]
