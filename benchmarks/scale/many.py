"""One release of many small files, or of many row groups, on threads of this process."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dbern
from dbern.ledger import BudgetLedger
from dbern.privacy.budget import Budget
from scale.runs import begin_peak, peak

GROUP_ROWS = 100


def write_copies(folder: Path, files: int, groups: int) -> None:
    """Files of so many row groups each, copies of one, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    first, rng, rows = folder / f"{0:06}.parquet", np.random.default_rng(0), groups * GROUP_ROWS
    table = pa.table({name: rng.beta(2, 5, rows) for name in "xy"})
    pq.write_table(table, first, row_group_size=GROUP_ROWS)
    for number in range(1, files):
        path = folder / f"{number:06}.parquet"
        if not path.exists():
            shutil.copyfile(first, path)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Elapsed and processor seconds."""
    began, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - used


def many(files: int, groups: int, folder: Path) -> str:
    """Plan and release so many files of so many row groups each; the files stay."""
    data = folder / f"files-{files}-{groups}"
    write_copies(data, files, groups)
    work = Path(tempfile.mkdtemp(dir=folder))
    try:
        url = f"sqlite:///{work / 'ledger.db'}"
        BudgetLedger.create(url)
        with BudgetLedger.open(url) as ledger:
            ledger.grant("scale", Budget.parse("1"))
        spec = dbern.ReleaseSpec(
            release={"name": "many", "output": str(work / "many.zarr")},
            data={"source": str(data), "bounds": {name: [0.0, 1.0] for name in "xy"}},
            target={"kind": "kernel-density", "bandwidth": [0.1, 0.1]},
            mechanism={"k": 20, "h": 4, "noise": "laplace"},
            budget={"epsilon": "1", "ledger": url, "dataset": "scale"},
        )
        begin_peak()
        planning = timed(lambda: dbern.plan(spec))
        releasing = timed(lambda: dbern.release(spec))
    finally:
        shutil.rmtree(work)
    planned = "planned in {:.1f} s, of the processors {:.1f} s".format(*planning)
    released = "released in {:.1f} s, of the processors {:.1f} s".format(*releasing)
    return f"{files} files of {groups} row groups: {planned}; {released}; peak {peak() >> 20} MiB"
