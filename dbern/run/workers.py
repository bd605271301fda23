"""Workers of a cluster: the tasks they take, the memory they offer, the versions they run."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from dbern.errors import EnvironmentRefusedError, IntegrityError, ReleaseError
from dbern.planning.cost import Cost
from dbern.run.messages import address_text, decode_answer, open_bytes
from dbern.run.tasks import environment
from dbern.system import Progress, dict_of, memory_limit, silent
from dbern.system.imports import NO_PACKAGE

_SAME = ("dbern", "numpy", "pyarrow", "dask", "distributed")
_ASK_SECONDS, _ASK_AGAIN_SECONDS = 10.0, 0.1
_LOOK_SECONDS = 0.2
_LARGE = "distributed.admin.large-graph-warning-threshold"
_VERSION = re.compile(r"[\w .+!-]{1,64}", re.ASCII)


@contextmanager
def _require_scheduler(client: Any) -> Iterator[None]:
    """Raise a `ReleaseError` where the scheduler is gone, for what is asked within."""
    try:
        if client.status in ("closing", "closed"):  # it lost its connection
            raise ConnectionError
        yield
    except (CancelledError, OSError, TimeoutError) as error:
        raise ReleaseError(
            f"The scheduler is gone ({type(error).__name__}). Start it again and run the same "
            "command again."
        ) from None


class DaskWorkers:
    """The workers of a Dask scheduler, reached by a client.

    The client is a caller's, in this process, or one of `connect`. Where there is none
    `dbern.run.threads.Threads` can do the same.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def thread_count(self) -> int:
        """Return the number of threads of all workers together."""
        with _require_scheduler(self._client):
            counts = self._client.nthreads()
        return sum(n for n in dict_of(counts).values() if type(n) is int)

    def submit(self, task: Callable[..., Any], *arguments: object) -> Any:
        """Return the future of a task, whose size is the plan's: nothing a user could change."""
        import dask

        with _require_scheduler(self._client), dask.config.set({_LARGE: sys.maxsize}):
            return self._client.submit(task, *arguments, pure=False)

    def compute(self, task: Callable[[Any], Any], argument: Any) -> Any:
        """Return the future of a task of what a Dask graph computes, where that is computed."""
        made = delayed(task, argument)
        with _require_scheduler(self._client):
            return self._client.compute(made)

    def require_scheduler(self) -> AbstractContextManager[None]:
        """Raise a `ReleaseError` where the scheduler is gone, for what is asked within."""
        return _require_scheduler(self._client)

    def as_completed(self) -> Any:
        """Return a collection of futures, which yields them as they finish."""
        from distributed import as_completed

        return as_completed(loop=self._client.loop)

    def is_at_work(self) -> bool:
        """Return whether a worker takes or runs tasks; one short of memory only ends its own."""
        if not self.thread_count():  # finds a scheduler gone, where the next would repeat old news
            return False
        with _require_scheduler(self._client):
            workers = dict_of(self._client.scheduler_info(n_workers=-1).get("workers")).values()
        return any(
            worker.get("status") == "running"
            or dict_of(dict_of(worker.get("metrics")).get("task_counts")).get("executing")
            for worker in map(dict_of, workers)
        )

    def require_versions(self, origins: Collection[str]) -> dict[str, str]:
        """Refuse workers that may count with another kernel, loss or learner than is named here.

        `origins` are the packages, with versions, of what is counted and is not of dbern. Returns
        all versions that workers must have, those too that join later.
        """
        if NO_PACKAGE in origins:
            raise EnvironmentRefusedError(
                "The spec names what is of no package, of which workers may have another. Install "
                "its package here and on the workers, or release without a cluster."
            )
        packages = {origin.rpartition(" ")[0] for origin in origins}
        if packages:
            theirs = answers(self._client, partial(_say_environment, packages))
            _require_same(theirs, environment(packages))
        return environment({*_SAME, *packages})

    def check_memory(self, cost: Cost) -> None:
        """Refuse workers, or a releasing process, that may use less memory than the plan says."""
        check_own_memory(cost.client_bytes)
        for worker, offer in answers(self._client, _say_offer).items():
            offered, threads = offer.get("memory"), offer.get("threads")
            if type(offered) is not int or type(threads) is not int:
                raise unlike(worker)
            needed = cost.memory(threads)
            if 0 < offered < needed:
                raise EnvironmentRefusedError(
                    f"Worker {address_text(worker)} offers {offered >> 20} MiB and the plan takes "
                    f"up to {-(-needed // 2**20)} MiB with {threads} threads. Start workers with a "
                    "larger --memory-limit or fewer --nthreads, write a smaller mechanism.k, or "
                    "write the data in fewer and larger files and row groups."
                )


def delayed(task: Callable[[Any], Any], argument: Any) -> Any:
    """Return a task of what a Dask graph computes, as a graph."""
    import dask

    # Not looked into: what a task holds is no graph.
    return dask.delayed(task, pure=False, traverse=False)(argument)


def _say_offer(dask_worker: Any) -> bytes:
    """Memory limit of a worker in bytes, zero for none, and its threads."""
    memory = int(dask_worker.memory_manager.memory_limit or 0)
    return _encode_answer({"memory": memory, "threads": dask_worker.state.nthreads})


def check_own_memory(needed: int) -> None:
    """Check this process alike; what others use is not asked, for it changes by the minute."""
    offered = memory_limit()
    if offered < needed:
        raise EnvironmentRefusedError(
            f"The releasing process may use {offered >> 20} MiB and the plan takes up to "
            f"{-(-needed // 2**20)} MiB there. Raise the limit that it is started with "
            "(its container's, its service's or ulimit's), release from a larger machine, write a "
            "smaller mechanism.k, or write the data in fewer and larger files and row groups."
        )


def _say_environment(packages: Collection[str] = _SAME) -> bytes:
    return _encode_answer(environment(packages))


def _encode_answer(content: dict[str, Any]) -> bytes:
    """Return a worker's answer as bytes: where the key is, nothing else is opened."""
    return json.dumps(content).encode()


def check_workers(client: Any, wait: float = 0.0, progress: Progress = silent) -> None:
    """Refuse a cluster without workers, without dbern, or with other versions than here.

    Where there are no workers they have `wait` seconds to come.
    """
    _wait_for_workers(client, wait, progress)
    versions = answers(client, _say_environment)
    if not versions:
        waited = f", and none came in {wait:g} s" if wait else ""
        raise EnvironmentRefusedError(
            f"The cluster has no workers{waited}. Start some with `dask worker`, or wait longer "
            "for them with --wait-for-workers SECONDS."
        )
    _require_same(versions, environment(_SAME))


def _require_same(versions: dict[str, dict[str, Any]], here: dict[str, str]) -> None:
    """Refuse workers of which anything has another version than here."""
    for worker, theirs in versions.items():
        if not all(isinstance(theirs.get(name), str) and _VERSION.fullmatch(theirs[name])
                   for name in here):  # fmt: skip
            raise unlike(worker)
        differing = [f"{name} {theirs[name]} there, {here[name]} here" for name in here
                     if theirs[name] != here[name]]  # fmt: skip
        if differing:
            raise EnvironmentRefusedError(
                f"Worker {address_text(worker)} runs other versions ({'; '.join(differing)}). "
                "Install the same."
            )


def _wait_for_workers(client: Any, wait: float, progress: Progress) -> None:
    workers, began, reported = DaskWorkers(client), time.monotonic(), -1
    while not workers.thread_count() and (waited := time.monotonic() - began) < wait:
        if int(waited) > reported:
            reported = int(waited)
            progress("waiting for workers, seconds", reported, math.ceil(wait))
        time.sleep(min(_LOOK_SECONDS, wait))


def unlike(worker: str) -> IntegrityError:
    """Make the error for a worker that answers a question with something else."""
    return IntegrityError(
        f"Worker {address_text(worker)} answers as no worker of this version does. Find out what "
        "runs there, and start one that runs what is here."
    )


def answers(client: Any, question: Callable[..., bytes]) -> dict[str, dict[str, Any]]:
    """Ask each worker; while one is dying all are asked again, until it is gone."""
    end = math.inf
    while True:
        with _require_scheduler(client):
            results: dict[str, Any] = client.run(question, on_error="return")
        failures = [result for result in results.values() if isinstance(result, Exception)]
        if not failures:
            return {worker: decode_answer(open_bytes(result)) for worker, result in results.items()}
        now = time.monotonic()  # who hangs takes the first question until the scheduler lets go
        end = min(end, now + _ASK_SECONDS)
        if not all(isinstance(failure, OSError) for failure in failures) or now >= end:
            kinds = ", ".join(sorted({type(failure).__name__ for failure in failures}))
            raise EnvironmentRefusedError(
                f"A worker cannot say what it runs ({kinds}): it has no dbern, lacks a package or "
                "does not answer. Install there what is here, or use one image for all."
            )
        time.sleep(_ASK_AGAIN_SECONDS)
