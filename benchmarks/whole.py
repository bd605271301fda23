"""Whole releases of one density, from Parquet to answers, each way in a process of its own.

``python -m whole WAY FOLDER AXES REPEATS`` prints, as JSON, what test_whole_release_speed.py makes
a table of. The others are ten lines that are easily written instead: counts by cell, Laplace noise
from floats, which is not private, a Gaussian filter and interpolation; no budget is kept, nothing
survives a crash and nothing is proved of an answer.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

BANDWIDTH, CELLS = 0.1, 50
NAMES = "xyz"
Way = Callable[[], object]


def points(axes: int) -> np.ndarray:
    """Where answers are asked: a grid of about 10^4 points, or 10^5 on three axes."""
    nodes = np.linspace(0, 1, {1: 10_001, 2: 101, 3: 41}[axes])
    return np.stack(np.meshgrid(*[nodes] * axes, indexing="ij"), axis=-1).reshape(-1, axes)


def answers(counts: np.ndarray) -> np.ndarray:
    """From counts by cell to a density: noise, smoothing and interpolation."""
    from scipy.interpolate import RegularGridInterpolator
    from scipy.ndimage import gaussian_filter

    axes = counts.ndim
    noisy = counts + np.random.default_rng().laplace(scale=2.0, size=counts.shape)
    smooth = gaussian_filter(noisy, BANDWIDTH * CELLS, mode="constant")
    middles = [(np.arange(CELLS) + 0.5) / CELLS] * axes
    found = RegularGridInterpolator(middles, smooth, bounds_error=False, fill_value=None)
    return np.asarray(found(points(axes)) * CELLS**axes / counts.sum())


def by_cell(cells: np.ndarray, counts: np.ndarray, axes: int) -> np.ndarray:
    every = np.zeros(CELLS**axes)
    every[cells] = counts
    return every.reshape([CELLS] * axes)


def duckdb(folder: Path, axes: int) -> Way:
    import duckdb

    clamped = [f"least(greatest(floor({name} * {CELLS}), 0), {CELLS - 1})" for name in NAMES]
    cell = " + ".join(f"{clamped[i]} * {CELLS ** (axes - 1 - i)}" for i in range(axes))
    query = f"select ({cell})::integer as cell, count(*) as n from '{folder}/*.parquet' group by 1"

    def release() -> np.ndarray:
        found = duckdb.sql(query).fetchnumpy()
        return answers(by_cell(found["cell"], found["n"], axes))

    return release


def polars(folder: Path, axes: int) -> Way:
    import polars

    clamped = [(polars.col(name) * CELLS).floor().clip(0, CELLS - 1) for name in NAMES]
    terms = [clamped[i] * CELLS ** (axes - 1 - i) for i in range(axes)]
    cell = polars.sum_horizontal(terms).cast(polars.Int32).alias("cell")

    def release() -> np.ndarray:
        rows = polars.scan_parquet(folder / "*.parquet")
        found = rows.group_by(cell).len().collect(engine="streaming")
        return answers(by_cell(found["cell"].to_numpy(), found["len"].to_numpy(), axes))

    return release


def numpy(folder: Path, axes: int) -> Way:
    """Row group by row group, in one thread."""
    import pyarrow.parquet as pq

    def release() -> np.ndarray:
        counts = np.zeros(CELLS**axes, np.int64)
        for path in sorted(folder.glob("*.parquet")):
            file = pq.ParquetFile(path)
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=list(NAMES[:axes]))
                cell = np.zeros(rows.num_rows, np.int64)
                for column in rows.columns:
                    near = np.floor(column.to_numpy() * CELLS).astype(np.int64)
                    cell = cell * CELLS + np.clip(near, 0, CELLS - 1)
                counts += np.bincount(cell, minlength=CELLS**axes)
        return answers(counts.reshape([CELLS] * axes))

    return release


def dbern(folder: Path, axes: int) -> tuple[Way, Way]:
    """A plan, and a release of another name each time, opened and asked."""
    import tempfile

    import dbern

    work = Path(tempfile.mkdtemp(dir=folder.parent))  # a search for rows does not pass through it
    ledger, asked = f"sqlite:///{work}/ledger.db", points(axes)
    dbern.BudgetLedger.create(ledger)
    with dbern.BudgetLedger.open(ledger) as opened:
        opened.grant("rows", dbern.Budget.parse("1000"))

    def spec() -> dbern.ReleaseSpec:
        name = f"release-{time.time_ns()}"
        return dbern.ReleaseSpec(
            release={"name": name, "output": f"{work}/{name}.zarr"},
            data={"source": str(folder), "bounds": {c: [0.0, 1.0] for c in NAMES[:axes]}},
            target={"kind": "kernel-density", "bandwidth": [BANDWIDTH] * axes},
            mechanism={"k": 20, "h": 4},
            budget={"epsilon": "1", "dataset": "rows", "ledger": ledger},
        )

    return lambda: dbern.plan(spec()), lambda: dbern.release(spec()).synopsis(asked)


OTHERS = {"duckdb": duckdb, "polars": polars, "numpy": numpy}


def spent(work: Way) -> tuple[float, float]:
    """Elapsed seconds, and those of the processors in all threads."""
    elapsed, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - elapsed, time.process_time() - used


def medians(work: Way, repeats: int) -> tuple[float, float]:
    every = [spent(work) for _ in range(repeats)]
    elapsed, used = (statistics.median(column) for column in zip(*every, strict=True))
    return elapsed, used


def main() -> None:
    way, folder, axes, repeats = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
    found = {}
    if way == "dbern":
        plan, release = dbern(folder, axes)
        found["plan"], found["plan again"] = spent(plan)[1], medians(plan, repeats)[1]
    else:
        release = OTHERS[way](folder, axes)
    release()
    found["first, with imports"] = time.process_time()
    found["elapsed"], found["processors"] = medians(release, repeats)
    most = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    found["peak MiB"] = int(most[1]) / 1024 if most else 0.0
    print(json.dumps(found))


if __name__ == "__main__":
    main()
