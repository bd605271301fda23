"""The Dask graph: count row groups, add up in a tree, contract to lattice slabs.

Tasks return codes instead of raising, because the scheduler logs a failing task's arguments and
ships exception text. No key, and nothing derived from one, is an argument of a task that leaves
this process: what needs a key is counted by threads of this process.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from dbern.data.footers import Footer, read_footer, read_together, tag_and_digest
from dbern.errors import ReleaseError
from dbern.measure.counters import Counters, Portion
from dbern.planning.cost import task_rows
from dbern.privacy.laplace import MAX_CENTER
from dbern.privacy.noise_law import NoiseLaw
from dbern.run import tasks as worker_tasks
from dbern.run.connection import workers_of
from dbern.run.messages import CLUSTER_ERROR_NAMES, TaskResult, open_bytes, unpack
from dbern.run.tasks import FAILURES, NOT_KNOWN, PUBLIC_LOCATIONS, SlabJob, kind_of, known_location
from dbern.run.threads import Threads
from dbern.run.workers import DaskWorkers
from dbern.system import Progress
from dbern.types import Int64Array

if TYPE_CHECKING:
    from distributed import Client as Client
    from distributed import Future

_FAN_IN = 8
_MAX_FILE_TASKS = 10_000  # one a file up to here, where nobody may know its rows
_TASKS_AHEAD = 3  # tasks submitted for each worker thread: enough to keep it busy, few partial sums
_POLL_SECONDS, _POLL_LATER = 0.005, 0.05  # at first, and where nothing has come for a while
_LOOK_SECONDS = 2.0
_PATIENCE_SECONDS = _SILENCE_SECONDS = 60
_log = logging.getLogger(__name__)


def task_reads(
    counters: Counters, tasks: Sequence[tuple[Portion, ...]]
) -> list[tuple[tuple[Portion, ...], int]]:
    """Return the portions and the pass of each counting task: all portions in every pass."""
    if not counters.passes:
        return [(task, 0) for task in tasks]
    whole = tuple(portion for task in tasks for portion in task)
    return [(whole, index) for index in range(counters.passes)]


def make_tasks(
    files: Sequence[Footer], salt: bytes, *, whole: bool = False
) -> list[tuple[Portion, ...]]:
    """Return tasks of a sensible size: large files in parts, small ones together.

    With `whole`, each has as many files, however many rows there are. Raises IntegrityError or
    UnreadableFileError where a file is not of the size and row groups of its footer, or cannot be
    opened.
    """
    if whole:
        portions, count = _portions(files, salt, sys.maxsize), -(-len(files) // _MAX_FILE_TASKS)
        return list(iter(lambda: tuple(islice(portions, count)), ()))
    size = task_rows(sum(file.rows for file in files))
    tasks: list[tuple[Portion, ...]] = []
    bundle, rows = list[Portion](), 0
    for portion in _portions(files, salt, size):
        if bundle and rows + portion.rows > size:
            tasks.append(tuple(bundle))
            bundle, rows = [], 0
        bundle.append(portion)
        rows += portion.rows
    return [*tasks, tuple(bundle)] if bundle else tasks


def _portions(files: Sequence[Footer], salt: bytes, size: int) -> Iterator[Portion]:
    for file, tag in zip(files, read_together(partial(_tag_of, salt=salt), files), strict=True):
        if not file.row_groups:
            yield Portion(file.path, tag, (), 0)
        first = rows = 0
        for group, group_rows in enumerate(file.row_groups):
            rows += group_rows
            if rows >= size or group == len(file.row_groups) - 1:
                yield Portion(file.path, tag, tuple(range(first, group + 1)), rows)
                first, rows = group + 1, 0


def _tag_of(file: Footer, salt: bytes) -> str:
    tag, digest = tag_and_digest(file.path, salt)  # first: readers notice later changes
    if not (digest and digest == file.digest) and read_footer(file.path) != file:
        raise FAILURES["changed"](file.path)
    return tag


def tree_reduce(
    client: Client,
    counters: Counters,
    tasks: Sequence[tuple[Portion, ...]],
    salt: bytes,
    progress: Progress,
    partitions: Sequence[Any] = (),
) -> Future:
    """Count all tasks and add their sums up in a tree; the total stays on the cluster.

    Partitions of a Dask frame, in place of tasks, are counted where they are. Partial sums are
    merged eight at a time as they finish, and tasks are submitted a few ahead of the workers, so
    neither records nor partial sums pile up anywhere.
    """
    workers = workers_of(client)
    window = _TASKS_AHEAD * max(1, workers.thread_count())
    work: list[Callable[[], Future]] = [
        partial(workers.submit, worker_tasks.count_portions, counters, task, salt, index)
        for task, index in task_reads(counters, tasks)
    ] + [
        partial(workers.compute, partial(worker_tasks.count_table, counters, salt), partition)
        for partition in partitions
    ]
    waiting = iter(work)
    level: dict[str, int] = {}
    finished: dict[int, list[Future]] = {}
    done, active = 0, workers.as_completed()

    def submit(depth: int, start: Callable[[], Future]) -> None:
        future = start()
        level[future.key] = depth
        active.add(future)

    for start in islice(waiting, window):
        submit(0, start)
    for future in _as_completed(workers, active):
        depth = level.pop(future.key)
        peers = finished.setdefault(depth, [])
        peers.append(future)
        if depth == 0:
            done += 1
            progress("reading and counting", done, len(work))
            for start in islice(waiting, 1):
                submit(0, start)
        if len(peers) == _FAN_IN:
            submit(depth + 1, partial(workers.submit, worker_tasks.merge, finished.pop(depth)))
    rest = [future for peers in finished.values() for future in peers]
    return workers.submit(worker_tasks.merge, rest)


def centers(
    client: Client,
    total: Future,
    counters: Counters,
    jobs: Sequence[tuple[SlabJob, NoiseLaw]],
    salt: bytes,
    files: Sequence[Footer] = (),
) -> Iterator[tuple[SlabJob, Int64Array, int]]:
    """Yield each piece's integers and the number of rows read, as workers finish them.

    A failure may name one of `files`. Raises ReleaseError for the first failure of any task behind
    the total, and IntegrityError where a file changed, or slabs come from different sums: a lost
    total was counted again from files that had changed under the same footers; or where a worker
    sends what the plan does not expect.
    """
    workers = workers_of(client)
    window = _TASKS_AHEAD * max(1, workers.thread_count())
    waiting = iter(jobs)
    job_of: dict[Any, SlabJob] = {}
    origins: set[str] = set()
    active = workers.as_completed()

    def submit(job: SlabJob, noise: NoiseLaw) -> None:
        future = workers.submit(worker_tasks.sent, total, counters, job, noise, salt)
        job_of[future.key] = job
        active.add(future)

    for job, noise in islice(waiting, window):
        submit(job, noise)
    for future in _as_completed(workers, active):
        with workers.require_scheduler():
            try:
                result = future.result(timeout=_PATIENCE_SECONDS)
            except TimeoutError:  # lost with its worker since
                active.add(future)
                continue
        outcome = _unpack_result(result, counters, job_of[future.key])
        if outcome.state is None:
            raise FAILURES[outcome.failure](known_location(outcome, files))
        origins.add(outcome.origin)
        if len(origins) > 1:
            raise FAILURES["changed"]("data.source")
        yield job_of.pop(future.key), outcome.state, outcome.rows
        for job, noise in islice(waiting, 1):
            submit(job, noise)


def _unpack_result(result: object, counters: Counters, job: SlabJob) -> TaskResult:
    """Unpack a result of `sent`, of the plan's size, or a failure that is known here."""
    layout = counters.parts[job.part].strategy.layout
    size = math.prod(layout.slab_shape(job.slab))
    outcome = unpack(open_bytes(result), size, MAX_CENTER)
    if outcome.failure and outcome.failure not in FAILURES:
        return TaskResult(None, failure="internal", location=NOT_KNOWN)
    return outcome


def _as_completed(workers: DaskWorkers | Threads, active: Any) -> Iterator[Future]:
    """Yield futures as they finish; the wait for a cluster without a working worker is bounded.

    A result that was lost with its worker since is computed again, and waited for.
    """
    looked = last_seen = told_at = time.monotonic()
    pause = _POLL_SECONDS
    while not active.is_empty():
        if active.has_ready():
            future, pause = next(active), _POLL_SECONDS
            status = future.status  # once: it may be lost the moment after
            if status == "lost":
                active.add(future)
                continue
            if status != "finished":
                with workers.require_scheduler():  # without one tasks end as well: say so first
                    failure = _given_up(future, status)
                raise failure
            yield future
            last_seen = told_at = time.monotonic()  # whoever took it may have taken its time
            continue
        with active.thread_condition:  # a notice between the look and the wait is seen late
            active.thread_condition.wait(pause)
        pause = min(1.2 * pause, _POLL_LATER)
        now = time.monotonic()
        if now - looked < _LOOK_SECONDS:
            continue
        looked = now
        if now - told_at > _SILENCE_SECONDS:
            told_at = now
            _log.warning(
                "nothing has arrived for %d s: tasks are long, or a worker is frozen, which the "
                "scheduler gives up after its distributed.scheduler.worker-ttl",
                _SILENCE_SECONDS,
            )
        last_seen = now if workers.is_at_work() else last_seen
        if now - last_seen > _PATIENCE_SECONDS:
            raise ReleaseError(
                f"For {_PATIENCE_SECONDS} s the cluster has had no workers, or all are paused, "
                "short of memory. Start some with the memory that `dbern plan` says, and run the "
                "same command again."
            )


def _given_up(future: Future, status: str) -> ReleaseError:
    if status == "error":  # of a Dask frame in this process its type may be made of a record
        status = kind_of(future.exception(), PUBLIC_LOCATIONS | CLUSTER_ERROR_NAMES)
    return ReleaseError(
        f"A task was given up ({status}). Bring back workers that are gone, and run the same "
        "command again."
    )
