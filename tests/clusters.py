"""Dask clusters on the loopback: of this process, or of processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1:0"  # any port that is free


@contextmanager
def local_cluster(n_workers: int = 1, threads: int = 1, **options: Any) -> Iterator[Any]:
    """A cluster of this process; with `processes`, of workers that are processes."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=n_workers, threads_per_worker=threads, dashboard_address=None,
        scheduler_kwargs={"dashboard_address": LOOPBACK}, worker_dashboard_address=LOOPBACK,
        **{"processes": False, **options},
    ) as local:  # fmt: skip
        yield local


def wait(condition: Callable[[], Any], seconds: float = 300, pause: float = 0.01) -> None:
    """However slow the machine is: this long only what never comes is waited for."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(pause)


class DaskProcesses:
    """What the command line of Dask starts, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, list[subprocess.Popen[bytes]]()

    def dask(self, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *words, "--host", "127.0.0.1"], cwd=self.folder,
            env=env or os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def scheduler(self, *words: str, env: dict[str, str] | None = None) -> dict[str, Any]:
        """Start a scheduler; what it says of itself as soon as it listens."""
        file = self.folder / f"scheduler-{len(self.processes)}.json"
        self.dask("scheduler", *words, "--scheduler-file", str(file), env=env)
        wait(lambda: file.exists() and file.stat().st_size > 0)
        return dict(json.loads(file.read_text()))

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
