"""Reading and adding up, against decoding the same Parquet columns with pyarrow, in one run.

`make bench` prints the table; as a test it runs small, so that it cannot rot. Times are of the
processor, on one core, so that what else the machine does counts little. The peers sum kernels
directly at the lattice points, floats and no integers; they take time per record and point, so few
records will do. The target: 1.5 times the decoding on one axis, 2.5 times on two, and on three .26
s a million records.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import twins
from scipy.stats import gaussian_kde

from dbern.components.counting import Counters
from dbern.engine import Portion, count
from dbern.planning import plan
from dbern.records import footer_tag, read_batches, write_records
from dbern.spec import ReleaseSpec

BENCH = "DBERN_REPEATS" in os.environ
ROWS, FEW, REPEATS = (4_000_000, 2_000, 5) if BENCH else (20_000, 100, 1)
K, BANDWIDTH, SALT = 20, 0.2, b"a benchmark's salt"
KINDS = ("binned-laplace", "laplace")


@dataclass(frozen=True)
class Times:
    """Seconds of processor time a million records."""

    decode: float
    bins: float
    moments: float
    twin: float
    numpy: float
    scipy: float
    threads: float
    """Bins on one core, as a share of the elapsed time on two."""


def seconds(work: Callable[[], Any], rows: int, clock: Callable[[], float]) -> float:
    """Median a million records, compiled and cached before."""
    work()
    spent = []
    for _ in range(REPEATS):
        begin = clock()
        work()
        spent.append(clock() - begin)
    return max(statistics.median(spent), 1e-9) / rows * 1e6


def counters_of(path: Path, axes: int, kind: str) -> Counters:
    spec = ReleaseSpec(
        release={"name": "speed", "output": "speed.zarr"},
        data={"source": str(path), "bounds": {c: [0.0, 1.0] for c in "xyz"[:axes]}},
        target={"kind": "kernel-density", "bandwidth": [BANDWIDTH] * axes},
        mechanism={"k": K, "h": 4, "noise": kind},
        budget={"epsilon": "1.0", "ledger": "sqlite:///ledger.db", "dataset": "speed"},
    )
    return plan(spec).counters(spec)


def portions_of(path: Path) -> list[list[Portion]]:
    """Two halves of the row groups."""
    groups = tuple(range(pq.ParquetFile(path).metadata.num_row_groups))
    middle, tag = len(groups) // 2, footer_tag(str(path), SALT)
    return [[Portion(str(path), tag, part, 0)] for part in (groups[:middle], groups[middle:])]


def decode(path: Path, names: list[str]) -> None:
    table = pq.read_table(path, columns=names, use_threads=False)
    for name in names:
        table[name].to_numpy()


def direct(points: np.ndarray) -> np.ndarray:
    """The same sums by numpy, one axis after the other."""
    nodes, axes = np.arange(K + 1) / K, points.shape[1]
    factors = [np.exp(-0.5 * ((nodes - column[:, None]) / BANDWIDTH) ** 2) for column in points.T]
    letters = "abc"[:axes]
    subscripts = ",".join(f"m{letter}" for letter in letters) + "->" + letters
    return np.asarray(np.einsum(subscripts, *factors, optimize=True))


def lattice(axes: int) -> np.ndarray:
    nodes = np.meshgrid(*[np.arange(K + 1) / K] * axes, indexing="ij")
    return np.stack([axis.ravel() for axis in nodes])


def twin_state(counters: Counters, path: Path, portion: Portion) -> np.ndarray:
    (part,) = counters.parts
    state = counters.empty()
    for batch in read_batches(str(path), portion.row_groups, counters.columns):
        twins.add_rows(state, part.summands.rows(batch), part._terms)
    return state


def measure(path: Path, axes: int) -> Times:
    names, halves = list("xyz"[:axes]), portions_of(path)
    whole = [portion for half in halves for portion in half]
    bins, moments = (counters_of(path, axes, kind) for kind in KINDS)
    for counters in (bins, moments):  # what is timed is also right
        found = count(counters, halves[0], SALT).state
        np.testing.assert_array_equal(found, twin_state(counters, path, halves[0][0]))
    columns = pq.read_table(path, columns=names)
    points = np.column_stack([columns[name].to_numpy()[:FEW] for name in names])
    density, places = gaussian_kde(points.T, 0.1), lattice(axes)
    cpu, wall = time.process_time, time.perf_counter

    def one(counters: Counters) -> Callable[[], Any]:
        return lambda: count(counters, whole, SALT)

    with ThreadPoolExecutor(2) as pool:
        both = lambda: list(pool.map(lambda half: count(bins, half, SALT), halves))  # noqa: E731
        threads = seconds(one(bins), ROWS, wall) / seconds(both, ROWS, wall)
    return Times(
        decode=seconds(lambda: decode(path, names), ROWS, cpu),
        bins=seconds(one(bins), ROWS, cpu),
        moments=seconds(one(moments), ROWS, cpu),
        twin=seconds(lambda: twin_state(bins, path, halves[0][0]), ROWS // 2, cpu),
        numpy=seconds(lambda: direct(points), FEW, cpu),
        scipy=seconds(lambda: density(places), FEW, cpu),
        threads=threads,
    )


def report(found: dict[int, Times]) -> str:
    """Milliseconds a million records, and ratios."""
    lines = ["", f"{'ms a million records':<24}" + "".join(f"{f'l={axes}':>10}" for axes in found)]
    for name in ("decode", "bins", "moments", "twin", "numpy", "scipy"):
        cells = "".join(f"{1e3 * getattr(times, name):>10,.4g}" for times in found.values())
        lines.append(f"{name:<24}{cells}")
    for name in ("bins", "moments"):
        ratios = (getattr(times, name) / times.decode for times in found.values())
        lines.append(f"{name + ' to decoding':<24}" + "".join(f"{r:>10.2f}" for r in ratios))
    threads = "".join(f"{times.threads:>10.2f}" for times in found.values())
    return "\n".join([*lines, f"{'two threads to one':<24}{threads}"])


@pytest.mark.slow
def test_counting_speed(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(5), tmp_path / "records.parquet"
    write_records(path, {name: rng.beta(2, 5, ROWS) for name in "xyz"}, group=ROWS // 4)
    found = {axes: measure(path, axes) for axes in (1, 2, 3)}
    print(report(found))
    if BENCH:
        assert found[1].bins <= 1.5 * found[1].decode
        assert max(found[2].bins, found[2].moments) <= 2.5 * found[2].decode
        assert max(found[3].bins, found[3].moments) <= 0.26


if __name__ == "__main__":
    pytest.main([__file__, "-q", "-s", "-n0"])
