"""Schedulers, workers and clients as processes of their own, forked from one that has imported all.

Hundreds of releases would otherwise spend their time importing.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import runner
from clusters import LOOPBACK, wait

CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = (
    *("runner", "dbern.cli.main", "dbern.run.stages", "dbern.measure.loops", "psycopg"),
    *("distributed.cli.dask_worker", "distributed.cli.dask_scheduler", "zarr.storage"),
    *("sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql.psycopg", "dask.array"),
    *("dbern.run.client", "threadpoolctl", "tornado.platform.asyncio", "ready"),
)
CLUSTER = {
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "120s",
    "DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "10s",
}


def prepare() -> None:
    """Start the process that forks, which imports all; what the tests' own process sees stays."""
    here = Path(__file__).parent
    places = [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    CONTEXT.set_forkserver_preload(list(PRELOADED))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
        patch.setenv("OPENBLAS_NUM_THREADS", "1")  # several processes want the cores
        forkserver.ensure_running()


def fork(target: Any, folder: Path, output: Path, *arguments: Any, **environment: str) -> Any:
    """A process that runs `target` in a folder, its output in two files."""
    process = CONTEXT.Process(
        target=target, args=(str(folder), str(output), environment, *arguments), daemon=True
    )
    process.start()
    return process


class Cluster:
    """A scheduler and two workers of one thread on the loopback; those that died are replaced."""

    def __init__(self, folder: Path, leak: str = "", **environment: str) -> None:
        self.folder, self._environment = folder, {**CLUSTER, **environment}
        self._leak = leak
        self._numbers = itertools.count()
        self.scheduler: Any = None
        self.workers: list[Any] = []
        folder.mkdir(parents=True)
        self.quiet()

    def quiet(self) -> Path:
        """No fault from now on; where the tasks from now on leave their numbers."""
        return self.fault(-1, "", "")

    def fault(self, number: int, when: str, what: str | int) -> Path:
        """Do `what` at the `number`-th task from now on."""
        folder = self.folder / f"tasks-{next(self._numbers)}"
        folder.mkdir()
        draft = self.folder / "fault.draft"
        draft.write_text(json.dumps([str(folder), number, when, what]))
        draft.replace(self.folder / "fault.json")
        return folder

    def restore(self) -> None:
        """Start what is not running."""
        if self.scheduler is None or not self.scheduler.is_alive():
            self._end(self.workers)
            self.workers = []
            self.start_scheduler()
        dead = [one for one in self.workers if not one.is_alive()]
        self.workers = [one for one in self.workers if one.is_alive()]
        while len(self.workers) < 2:
            arguments = [self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
                         "--host", "127.0.0.1", "--memory-limit", "4GiB",
                         "--local-directory", str(self.folder)]  # fmt: skip
            self.workers.append(self._fork(runner.worker, "worker", arguments, self._leak))
        for one in dead:
            one.close()

    def ready(self) -> None:
        """Restore, and wait for the workers."""
        self.restore()
        self.wait_for_workers(2)

    def wait_for_workers(self, count: int) -> None:
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=300)

    def kill(self, process: Any) -> None:
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)

    def close(self) -> None:
        self._end([self.scheduler, *self.workers])

    def start_scheduler(self) -> None:
        file = self.folder / f"scheduler-{next(self._numbers)}.json"
        arguments = ["--host", "127.0.0.1", "--port", "0",
                     "--dashboard-address", LOOPBACK, "--scheduler-file", str(file)]  # fmt: skip
        self.scheduler = self._fork(runner.scheduler, "scheduler", arguments)
        wait(lambda: file.exists() and file.stat().st_size > 0)
        self.address = json.loads(file.read_text())["address"]

    def _fork(self, target: Any, name: str, *arguments: Any, **more: str) -> Any:
        environment = {**self._environment, **more}
        return fork(target, self.folder, self.folder / name, *arguments, **environment)

    @staticmethod
    def _end(processes: list[Any]) -> None:
        for one in processes:
            if one is not None and one.is_alive():
                one.kill()
                one.join(60)
