"""What a release takes of the workers of a cluster, what they offer, and whether they are alike."""

from __future__ import annotations

import json
import math
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from dbern.bernstein.maps import maps_of
from dbern.components.counting import Counters
from dbern.costs import Cost
from dbern.errors import EnvironmentRefusedError, IntegrityError, ReleaseError
from dbern.limits import memory_limit
from dbern.plain import answer, opened, shown
from dbern.progress import Progress, silent
from dbern.records import BATCH_ROWS, READERS, FileFacts, reading_bytes

WAIT_SECONDS = 60.0
"""How long a cluster without workers is waited for, unless the caller says."""

_SAME = ("dbern", "numpy", "pyarrow", "dask", "distributed")
TASK_ROWS = 20_000_000
_TASKS_AT_LEAST = 16
WRITERS = 4
"""Threads that add noise and write shards, however many cores there are: memory is planned."""

_ASK_SECONDS, _ASK_AGAIN_SECONDS = 10.0, 0.1
_LOOK_SECONDS = 0.2
_VERSION = re.compile(r"[\w .+!-]{1,64}", re.ASCII)
_WRITER_SLABS = 6
_RELEASED_COPIES = 5 + WRITERS
_PROCESS_BYTES = 420 << 20
"""Measured: modules, compiled loops, threads, and what planning leaves."""

_FILE_BYTES, _GROUP_BYTES, _CHUNK_BYTES = 8000, 1500, 1500
"""Measured: of a file and of a row group as listed, and of each of its columns in a footer."""


def task_rows(rows: int) -> int:
    """Rows of one counting task: a second or so of work, and enough tasks to share it out."""
    return max(1, min(TASK_ROWS, -(-rows // _TASKS_AT_LEAST)))


def cost(
    counters: Counters, n: int, files: Sequence[FileFacts] = (), *, remote: bool = False
) -> Cost:
    """What counting n rows of files will take, as measured or more.

    `remote`: from an object store. Of files without row groups, as where the number of rows is
    private, no more than the names count.
    """
    lattices = [part.coordinates.lattice for part in counters.parts]
    slabs = sum(sum(1 for _ in lattice.slabs()) for lattice in lattices)
    slab = max(8 * lattice.slab_layers * lattice.layer for lattice in lattices)
    batch = BATCH_ROWS * max(part.batch_bytes for part in counters.parts)
    tables = max(part.table_bytes for part in counters.parts)
    tasks = counters.passes or max(1, -(-n // task_rows(n)))
    # Partial sums: eight wait at each level of the tree; a thread works at two and has three ahead.
    waiting = min(tasks, 8 * (1 + math.ceil(math.log(tasks, 8)))) * counters.state_bytes
    reading = reading_bytes(counters.columns, counters.filter, remote=remote)
    reading += batch + counters.gathered_bytes
    listed = _FILE_BYTES * len(files) + _GROUP_BYTES * sum(len(file.row_groups) for file in files)
    # A footer is in memory whole for each thread that reads: those of the plan, one when work is
    # shared out, and those of tasks. With a local cluster the worker's process is the client's.
    footers = sorted(_CHUNK_BYTES * len(file.row_groups) * file.columns for file in files)
    largest = footers[-1] if footers else 0
    listed += sum(footers[-READERS:]) + largest
    reading += largest
    working = 5 * counters.state_bytes + max(reading, tables + 6 * slab)
    # What is released of a lattice that is derived is whole there: blocks, sum, file, and floats.
    derived = [part.coordinates.layout.size for part in counters.parts if maps_of(part.coordinates)]
    writing = WRITERS * _WRITER_SLABS * slab + _RELEASED_COPIES * 8 * max(derived, default=0)
    return Cost(
        rows=n,
        tasks=tasks,
        slabs=slabs,
        worker_bytes=_PROCESS_BYTES + listed + waiting + working,
        thread_bytes=working,
        client_bytes=_PROCESS_BYTES + listed + writing,
    )


@contextmanager
def scheduler_there() -> Iterator[None]:
    """What is asked of a scheduler that is gone, or was going, fails as this."""
    try:
        yield
    except (CancelledError, OSError, TimeoutError) as error:
        raise ReleaseError(
            f"the scheduler is gone ({type(error).__name__}); start it again and run the same "
            "command again"
        ) from None


def threads(client: Any) -> int:
    """Of all workers that there are."""
    with _connected(client):
        found = client.nthreads()
    return sum(n for n in _dict(found).values() if type(n) is int)


def submitted(client: Any, task: Callable[..., Any], *arguments: object) -> Any:
    """The future of a task."""
    with _connected(client):
        return client.submit(task, *arguments, pure=False)


@contextmanager
def _connected(client: Any) -> Iterator[None]:
    with scheduler_there():
        if client.status == "closed":  # it tried in vain to connect again, and has no scheduler
            raise ConnectionError
        yield


def at_work(client: Any) -> bool:
    """Whether a worker takes tasks, or is at one; short of memory it only ends those it is at."""
    if not threads(client):  # which finds a scheduler gone, where the next would repeat old news
        return False
    with scheduler_there():
        workers = _dict(client.scheduler_info(n_workers=-1).get("workers")).values()
    return any(
        worker.get("status") == "running"
        or _dict(_dict(worker.get("metrics")).get("task_counts")).get("executing")
        for worker in map(_dict, workers)
    )


def _dict(found: object) -> dict[Any, Any]:
    """A dict, or none: of what a scheduler or a worker says, which may be anything."""
    return found if isinstance(found, dict) else {}


def check_memory(client: Any, cost: Cost) -> None:
    """Refuse workers, or a releasing process, that may use less memory than the plan says.

    Raises
    ------
    EnvironmentRefusedError
        With both numbers, and what to change.
    """
    _check_own_memory(cost)
    for worker, told in answers(client, say_offer).items():
        offered, threads = told.get("memory"), told.get("threads")
        if type(offered) is not int or type(threads) is not int:
            raise unlike(worker)
        needed = cost.memory(threads)
        if 0 < offered < needed:
            raise EnvironmentRefusedError(
                f"worker {shown(worker)} offers {offered >> 20} MiB and the plan takes up to "
                f"{-(-needed // 2**20)} MiB with {threads} threads; start workers with a larger "
                "--memory-limit or fewer --nthreads, write a smaller mechanism.k, or write the "
                "data in fewer and larger files and row groups"
            )


def say_offer(dask_worker: Any) -> bytes:
    """The memory limit of a worker in bytes, zero for none, and its threads."""
    memory = int(dask_worker.memory_manager.memory_limit or 0)
    return said({"memory": memory, "threads": dask_worker.state.nthreads})


def _check_own_memory(cost: Cost) -> None:
    """The same of this process; what others use is not looked at, for it changes by the minute."""
    offered = memory_limit()
    if offered < cost.client_bytes:
        raise EnvironmentRefusedError(
            f"the releasing process may use {offered >> 20} MiB and the plan takes up to "
            f"{-(-cost.client_bytes // 2**20)} MiB there; raise the limit that it is started with "
            "(its container's, its service's or ulimit's), release from a larger machine, write a "
            "smaller mechanism.k, or write the data in fewer and larger files and row groups"
        )


def environment() -> dict[str, str]:
    """Versions that must agree between this process and the workers."""
    return {"python": platform.python_version(), **{name: version(name) for name in _SAME}}


def say_environment() -> bytes:
    """A worker's `environment`."""
    return said(environment())


def said(facts: dict[str, Any]) -> bytes:
    """What a worker answers a question with: bytes, for nothing else is opened where the key is."""
    return json.dumps(facts).encode()


def check_workers(client: Any, wait: float = 0.0, progress: Progress = silent) -> None:
    """Refuse a cluster without workers, without dbern, or with other versions than here.

    Parameters
    ----------
    wait : float
        Seconds that workers have to come where there are none.
    """
    here = environment()
    _wait_for_workers(client, wait, progress)
    told = answers(client, say_environment)
    if not told:
        raise _no_workers(wait)
    for worker, there in told.items():
        if not all(isinstance(there.get(name), str) and _VERSION.fullmatch(there[name])
                   for name in here):  # fmt: skip
            raise unlike(worker)
        differing = [f"{name} {there[name]} there, {here[name]} here" for name in here
                     if there[name] != here[name]]  # fmt: skip
        if differing:
            raise EnvironmentRefusedError(
                f"worker {shown(worker)} runs other versions ({'; '.join(differing)}); install the "
                "same"
            )


def _wait_for_workers(client: Any, wait: float, progress: Progress) -> None:
    """Until there is one, or the time is over."""
    began, told = time.monotonic(), -1
    while not threads(client) and (waited := time.monotonic() - began) < wait:
        if int(waited) > told:
            told = int(waited)
            progress("waiting for workers, seconds", told, math.ceil(wait))
        time.sleep(min(_LOOK_SECONDS, wait))


def _no_workers(wait: float) -> EnvironmentRefusedError:
    waited = f", and none came in {wait:g} s" if wait else ""
    return EnvironmentRefusedError(
        f"the cluster has no workers{waited}; start some with `dask worker`, or wait longer for "
        "them with --wait-for-workers SECONDS"
    )


def unlike(worker: str) -> IntegrityError:
    """A worker that answers a question with something else."""
    return IntegrityError(
        f"worker {shown(worker)} answers as no worker of this version does; find out what runs "
        "there, and start one that runs what is here"
    )


def answers(client: Any, question: Callable[..., bytes]) -> dict[str, dict[str, Any]]:
    """What each worker answers; while one is dying all are asked again, until it is gone.

    Raises
    ------
    EnvironmentRefusedError
        Where one cannot answer.
    IntegrityError
        Where one answers with anything but a JSON object in bytes.
    """
    end = math.inf
    while True:
        with scheduler_there():
            found: dict[str, Any] = client.run(question, on_error="return")
        failures = [one for one in found.values() if isinstance(one, Exception)]
        if not failures:
            return {worker: answer(opened(one)) for worker, one in found.items()}
        now = time.monotonic()  # who hangs takes the first question until the scheduler lets go
        end = min(end, now + _ASK_SECONDS)
        if not all(isinstance(one, OSError) for one in failures) or now >= end:
            kinds = ", ".join(sorted({type(one).__name__ for one in failures}))
            raise EnvironmentRefusedError(
                f"a worker cannot say what it runs ({kinds}): it has no dbern, lacks a package or "
                "does not answer; install there what is here, or use one image for all"
            )
        time.sleep(_ASK_AGAIN_SECONDS)
