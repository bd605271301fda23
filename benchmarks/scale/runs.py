"""One release on a cluster of processes: time, processor time and peak memory, phase by phase.

Everything is measured inside the processes: the workers say what they used. The releasing process
holds the scheduler too. Peak memory is the kernel's high-water mark, begun anew for each release.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dbern
from dbern.ledger import BudgetLedger
from dbern.privacy.budget import Budget

GROUP_ROWS = 1_000_000
FILE_ROWS = 10 * GROUP_ROWS
MEMORY = "2GiB"
PHASES = ("count", "stage", "publish")
_PHASE = {"reading and counting": 0, "staging the lattice": 1, "adding noise and writing": 2}


@dataclass(frozen=True)
class Run:
    """A release as it was measured; seconds by phase, bytes by process.

    Attributes
    ----------
    elapsed, releasing, workers : tuple of float
        Elapsed, and of the processors: in the releasing process, and in all workers together.
    peaks : tuple of int
        Peak memory of each worker.
    planned, planned_releasing : int
        What the plan says of a worker, and of the releasing process.
    """

    rows: int
    coefficients: int
    tasks: int
    state_bytes: int
    elapsed: tuple[float, ...]
    releasing: tuple[float, ...]
    workers: tuple[float, ...]
    peaks: tuple[int, ...]
    planned: int
    peak_releasing: int
    planned_releasing: int

    @property
    def processor(self) -> float:
        """Processor seconds of all processes."""
        return sum(self.releasing) + sum(self.workers)


def write_files(folder: Path, rows: int, axes: int) -> None:
    """Parquet files of so many rows of float64, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        path, here = folder / f"{number:05}.parquet", min(FILE_ROWS, rows - start)
        if path.exists() and pq.read_metadata(path).num_rows == here:
            continue
        rng = np.random.default_rng(number)
        schema = pa.schema([(name, pa.float64()) for name in "xyz"[:axes]])
        with pq.ParquetWriter(path, schema) as writer:
            for first in range(0, here, GROUP_ROWS):
                count = min(GROUP_ROWS, here - first)
                writer.write_table(pa.table({c: rng.beta(2, 5, count) for c in "xyz"[:axes]}))


def scan(folder: Path) -> float:
    """Processor seconds of decoding all columns once."""
    begin = time.process_time()
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                for column in file.read_row_group(group, use_threads=False).columns:
                    column.to_numpy()
    return time.process_time() - begin


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """Worker processes of one thread that never spill."""
    import dask
    from distributed import Client, LocalCluster

    memory = "distributed.worker.memory"
    with (
        dask.config.set({f"{memory}.target": False, f"{memory}.spill": False}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=MEMORY,
            dashboard_address=None,
            # Without these, HTTP is served on every interface even with no dashboard.
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            worker_dashboard_address="127.0.0.1:0",
        ) as local,
        Client(local) as client,
    ):
        yield client


def begin_peak() -> None:
    """Begin the high-water mark of this process anew."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Most memory that this process had since, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def measure(client: Any, source: Path, work: Path, axes: int, k: int, noise: str) -> Run:
    """Release the density of the files once; `work` gets ledger and synopsis."""
    work.mkdir(parents=True, exist_ok=True)
    url, name = f"sqlite:///{work / 'ledger.db'}", f"scale-{time.time_ns()}"
    if not (work / "ledger.db").exists():
        BudgetLedger.create(url)
        with BudgetLedger.open(url) as ledger:
            ledger.grant("scale", Budget.parse("1000"))
    spec = dbern.ReleaseSpec(
        release={"name": name, "output": str(work / f"{name}.zarr")},
        data={"source": str(source), "bounds": {c: [0.0, 1.0] for c in "xyz"[:axes]}},
        target={"kind": "kernel-density", "bandwidth": [0.1] * axes},
        mechanism={"k": k, "h": 4, "noise": noise},
        budget={"epsilon": "1.0", "ledger": url, "dataset": "scale"},
    )
    plan = dbern.plan(spec)
    marks: list[tuple[float, float, float]] = []

    def mark(phases: int) -> None:
        """Up to the end of so many phases."""
        used = sum(client.run(time.process_time).values())
        while len(marks) <= phases:
            marks.append((time.perf_counter(), time.process_time(), used))

    def progress(what: str, done: int, total: int) -> None:
        del done, total
        if _PHASE.get(what, 0) >= len(marks):
            mark(_PHASE[what])

    begin_peak()
    client.run(begin_peak)
    mark(0)
    dbern.release(spec, client=client, progress=progress)
    mark(3)
    elapsed, releasing, workers = np.diff(np.array(marks), axis=0).T.tolist()
    return Run(
        rows=plan.n,
        coefficients=plan.lattice.size,
        tasks=plan.cost.tasks,
        state_bytes=plan.counters(spec).state_bytes,
        elapsed=tuple(elapsed),
        releasing=tuple(releasing),
        workers=tuple(workers),
        peaks=tuple(client.run(peak).values()),
        planned=plan.cost.memory(1),
        peak_releasing=peak(),
        planned_releasing=plan.cost.client_bytes,
    )
