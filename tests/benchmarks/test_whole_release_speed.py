"""From 10^7 rows of Parquet to answers: dbern beside counts by cell, noise and smoothing, in a run.

Each way is measured in a process of its own (`whole`), on the same cores. dbern's release has its
plan, which the process made before for another name, its charge in a ledger that survives a crash,
its synopsis on disk, opened again, and answers on a grid.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import whole
from timing import BENCH, Table, keep

from dbern.data.parquet import write_records

ROWS, REPEATS = (10_000_000, 5) if BENCH else (20_000, 1)
AXES = {"one axis": 1, "two axes": 2, "three axes": 3}
if not BENCH:  # all ways release two axes in the test below
    del AXES["two axes"]


def measured(way: str, folder: Path, axes: int) -> dict[str, float]:
    path = os.pathsep.join(filter(None, sys.path))
    cache = str(folder.parent / "cache")  # a plan of its own, whatever this user planned before
    ran = subprocess.run(
        [sys.executable, "-m", "whole", way, str(folder), str(axes), str(REPEATS)],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": cache},
    )
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def column(folder: Path, axes: int) -> dict[str, float]:
    """Of each way processors, elapsed and memory, and dbern's to the others'."""
    ways = ["dbern", *(name for name in whole.OTHERS if find_spec(name))]
    every = {way: measured(way, folder, axes) for way in ways}
    ours = every["dbern"]
    found = {f"dbern, {part}": ours.pop(part) for part in ("plan", "plan again")}
    for part in ours:
        found |= {f"{way}, {part}": each[part] for way, each in every.items()}
    for part in ("processors", "elapsed", "peak MiB"):
        for way in ways[1:]:
            found[f"{part}, dbern to {way}"] = ours[part] / every[way][part]
    return found


@pytest.mark.slow
def test_whole_releases(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    columns = {name: draw.beta(2, 5, ROWS) for name in whole.NAMES}
    rows = tmp_path / "rows"
    rows.mkdir()
    write_records(rows / "rows.parquet", columns, group=1 << 20)
    found = {name: column(rows, axes) for name, axes in AXES.items()}
    keep("whole", Table.of("seconds", found))


@pytest.mark.slow
def test_all_ways_find_the_same_density(tmp_path: Path) -> None:
    """What is timed is also right: counts by cell, smoothed, are within their cells' width."""
    pytest.importorskip("duckdb")
    pytest.importorskip("polars")
    draw = np.random.default_rng(0)
    write_records(tmp_path / "rows.parquet", {c: draw.beta(2, 5, 400_000) for c in whole.NAMES})
    found = [way(tmp_path, 2)() for way in whole.OTHERS.values()]
    _, release = whole.dbern(tmp_path, 2)
    truth = release()
    for one in found:
        assert np.abs(one - truth).max() <= 0.03 * np.abs(truth).max()
