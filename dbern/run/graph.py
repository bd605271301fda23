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

from dbern.data.footers import FileFacts, file_facts, footer_tag, read_together
from dbern.errors import ReleaseError, SpecError
from dbern.measure.counters import Counters, Portion
from dbern.planning.cost import task_rows
from dbern.privacy.laplace import MAX_CENTER
from dbern.privacy.noise_law import NoiseLaw
from dbern.run import tasks as worker_tasks
from dbern.run.connection import workers_of
from dbern.run.messages import CLUSTERS, TaskResult, opened, unpacked
from dbern.run.tasks import FAILURES, NOT_KNOWN, PUBLIC_LOCATIONS, SlabJob, kind_of, known_location
from dbern.run.threads import Threads
from dbern.run.workers import DaskWorkers
from dbern.system import Progress, dict_of
from dbern.types import Int64Array

if TYPE_CHECKING:
    from distributed import Client as Client
    from distributed import Future


_FAN_IN = 8
_MAX_FILE_TASKS = 10_000  # of files whose rows nobody may count: one a file up to here
_TASKS_AHEAD = 3  # tasks submitted for each worker thread: enough to keep it busy, few partial sums
_POLL_SECONDS, _POLL_LATER = 0.005, 0.05  # at first, and where nothing has come for a while
_LOOK_SECONDS = 2.0
_PATIENCE_SECONDS = _SILENCE_SECONDS = 60
_log = logging.getLogger(__name__)


def passes(
    counters: Counters, tasks: Sequence[tuple[Portion, ...]]
) -> list[tuple[tuple[Portion, ...], int]]:
    """Return the reads of each counting task: some portions once, or all in each pass."""
    if not counters.passes:
        return [(task, 0) for task in tasks]
    whole = tuple(portion for task in tasks for portion in task)
    return [(whole, index) for index in range(counters.passes)]


def make_tasks(
    files: Sequence[FileFacts], salt: bytes, *, whole: bool = False
) -> list[tuple[Portion, ...]]:
    """Return tasks of a sensible size: large files in parts, small ones together.

    `whole`: as many files for each task, however many rows there are. Raises IntegrityError or
    UnreadableFileError where a file is not of the size and row groups of its facts, or cannot be
    opened.
    """
    if whole:
        portions, together = _portions(files, salt, sys.maxsize), -(-len(files) // _MAX_FILE_TASKS)
        return list(iter(lambda: tuple(islice(portions, together)), ()))
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


def _portions(files: Sequence[FileFacts], salt: bytes, size: int) -> Iterator[Portion]:
    for file, tag in zip(files, read_together(partial(_tagged, salt=salt), files), strict=True):
        if not file.row_groups:
            yield Portion(file.path, tag, (), 0)
        first = rows = 0
        for group, here in enumerate(file.row_groups):
            rows += here
            if rows >= size or group == len(file.row_groups) - 1:
                yield Portion(file.path, tag, tuple(range(first, group + 1)), rows)
                first, rows = group + 1, 0


def _tagged(file: FileFacts, salt: bytes) -> str:
    tag = footer_tag(file.path, salt)  # first: what changes afterwards, readers of it find out
    if file_facts(file.path) != file:
        raise FAILURES["changed"](file.path)
    return tag


def refuse_shared_steps(partitions: Sequence[Any]) -> None:
    """Refuse partitions of a Dask frame with a common step, which may run again for each of them.

    Run twice, a shuffle by a random column gives a row to two partitions and another to none: one
    record would move more than the noise is calibrated to. A cluster's future waits for itself.
    """
    from dask.core import get_dependencies

    graph, whose = dict(partitions[0].dask), dict[Any, int]()  # the graph is of all partitions
    for number, partition in enumerate(partitions):
        waiting = {partition.key}
        while waiting:
            step = waiting.pop()
            if whose.setdefault(step, number) != number:
                raise SpecError(
                    "data: partitions of this Dask frame share steps, as after a shuffle, a sort "
                    "or a merge, which may give other rows each time that they run. Give "
                    "data.persist(), or write Parquet files and name them in data.source."
                )
            waiting |= {x for x in get_dependencies(graph, step) if whose.get(x) != number}


def refuse_elsewhere(partitions: Sequence[Any], connect: Callable[[], Client] | None) -> None:
    """Refuse partitions of a Dask frame that are results on another cluster than counts them.

    `connect` returns a client of that one; None where it is this process.
    """
    if "distributed" not in sys.modules:
        return
    from distributed import Future

    results = [step for step in dict(partitions[0].dask).values() if isinstance(step, Future)]
    for owner in {id(future.client): future.client for future in results}.values():
        there = dict_of(owner.scheduler_info()).get("id") if owner.status == "running" else None
        if connect is None or there != dict_of(connect().scheduler_info()).get("id"):
            raise SpecError(
                "data: this Dask frame is persisted on a cluster, which alone has its partitions. "
                "Give a client of it: dbern.release(spec, client, data=frame)."
            )


def tree_reduce(
    client: Client,
    counters: Counters,
    tasks: Sequence[tuple[Portion, ...]],
    salt: bytes,
    progress: Progress,
    partitions: Sequence[Any] = (),
) -> Future:
    """Count all tasks and add their sums up in a tree; the total stays on the cluster.

    In place of tasks it may be partitions of a Dask frame: each is counted where it is.
    Partial sums are merged eight at a time as soon as they are there, and tasks are submitted a
    few ahead of the workers, so neither records nor partial sums pile up anywhere.
    """
    workers = workers_of(client)
    window = _TASKS_AHEAD * max(1, workers.threads())
    work: list[Callable[[], Future]] = [
        partial(workers.submit, worker_tasks.count_portions, counters, task, salt, index)
        for task, index in passes(counters, tasks)
    ] + [
        partial(workers.compute, partial(worker_tasks.count_table, counters, salt), partition)
        for partition in partitions
    ]
    waiting = iter(work)
    level: dict[str, int] = {}
    finished: dict[int, list[Future]] = {}
    done, active = 0, workers.arriving()

    def submit(depth: int, start: Callable[[], Future]) -> None:
        future = start()
        level[future.key] = depth
        active.add(future)

    for start in islice(waiting, window):
        submit(0, start)
    for future in _arriving(workers, active):
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
    files: Sequence[FileFacts] = (),
) -> Iterator[tuple[SlabJob, Int64Array, int]]:
    """Yield each piece's integers and the number of rows read, as workers finish them.

    A failure may name one of `files`. Raises ReleaseError for the first failure of any task behind
    the total, and IntegrityError where a file changed, or slabs come from different sums: a lost
    total was counted again from files that had changed under the same footers. Or where what a
    worker sent is not what the plan expects.
    """
    workers = workers_of(client)
    window = _TASKS_AHEAD * max(1, workers.threads())
    waiting = iter(jobs)
    job_of: dict[Any, SlabJob] = {}
    origins: set[str] = set()
    active = workers.arriving()

    def submit(job: SlabJob, noise: NoiseLaw) -> None:
        future = workers.submit(worker_tasks.sent, total, counters, job, noise, salt)
        job_of[future.key] = job
        active.add(future)

    for job, noise in islice(waiting, window):
        submit(job, noise)
    for future in _arriving(workers, active):
        with workers.there():
            try:
                result = future.result(timeout=_PATIENCE_SECONDS)
            except TimeoutError:  # lost with its worker since
                active.add(future)
                continue
        outcome = _unpacked_result(result, counters, job_of[future.key])
        if outcome.state is None:
            raise FAILURES[outcome.failure](known_location(outcome, files))
        origins.add(outcome.origin)
        if len(origins) > 1:
            raise FAILURES["changed"]("data.source")
        yield job_of.pop(future.key), outcome.state, outcome.rows
        for job, noise in islice(waiting, 1):
            submit(job, noise)


def _unpacked_result(result: object, counters: Counters, job: SlabJob) -> TaskResult:
    """Unpack what `sent` packed, of the plan's size, or a failure that is known here."""
    layout = counters.parts[job.part].strategy.layout
    size = math.prod(layout.slab_shape(job.slab))
    outcome = unpacked(opened(result), size, MAX_CENTER)
    if outcome.failure and outcome.failure not in FAILURES:
        return TaskResult(None, failure="internal", location=NOT_KNOWN)
    return outcome


def _arriving(workers: DaskWorkers | Threads, active: Any) -> Iterator[Future]:
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
                with workers.there():  # tasks of a scheduler that is gone end as well: say so first
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
        last_seen = now if workers.at_work() else last_seen
        if now - last_seen > _PATIENCE_SECONDS:
            raise ReleaseError(
                f"For {_PATIENCE_SECONDS} s the cluster has had no workers, or all are paused, "
                "short of memory. Start some with the memory that `dbern plan` says, and run the "
                "same command again."
            )


def _given_up(future: Future, status: str) -> ReleaseError:
    # In this process, of a Dask frame, it may be the user's: its type may be made of a record.
    kind = kind_of(future.exception(), PUBLIC_LOCATIONS | CLUSTERS) if status == "error" else status
    return ReleaseError(
        f"A task was given up ({kind}). Bring back workers that are gone, and run the same command "
        "again."
    )
