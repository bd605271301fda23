"""Weak scaling on paper: what measured costs make of a release that no machine here can run.

``python -m scale.weak`` prints what docs/benchmarks.md shows, from the costs in docs/scaling.json.
Every stage is counted as if nothing overlapped, each at the processor speed that was measured.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
MEASURED = PAGE.with_name("scaling.json")

ROWS, COEFFICIENTS, WORKERS = 10**12, 10**9, 1000
FILE_ROWS = 10**7
NETWORK = 1.25e9
"""Bytes a second of one machine: 10 Gbit/s, an assumption."""

_FAN_IN = 8


@dataclass(frozen=True)
class Costs:
    """Processor seconds and bytes, as measured.

    Attributes
    ----------
    row, task, file : float
        Of a worker to count a row; of the releasing process for a task and for a file.
    contract, stage, publish : float
        Of a coefficient: on a worker, in the releasing process before the charge, and after it.
    task_rows : int
        Rows of one task at most.
    state_bytes : int
        Of a partial sum.
    """

    row: float
    task: float
    file: float
    contract: float
    stage: float
    publish: float
    task_rows: int
    state_bytes: int


@dataclass(frozen=True)
class Stage:
    """Seconds of one stage, and whether more workers make it shorter."""

    name: str
    seconds: float
    parallel: bool


def task_count(costs: Costs, rows: int) -> int:
    """Whole files a task, as `make_tasks` bundles them, and sixteen tasks at least."""
    files = -(-rows // FILE_ROWS)
    return max(16, -(-files // max(1, costs.task_rows // FILE_ROWS)))


def stages(costs: Costs, rows: int, coefficients: int, workers: int) -> list[Stage]:
    """What a release takes, stage by stage."""
    files = -(-rows // FILE_ROWS)
    tasks = task_count(costs, rows)
    moved = tasks * costs.state_bytes * _FAN_IN / (_FAN_IN - 1) / workers
    return [
        Stage("footers of all files", 2 * files * costs.file, parallel=False),
        Stage("reading and counting", rows * costs.row / workers, parallel=True),
        Stage("submitting and scheduling", tasks * costs.task, parallel=False),
        Stage("partial sums on the network", moved / NETWORK, parallel=True),
        Stage("contraction", coefficients * costs.contract / workers, parallel=True),
        Stage("center on the network", 8 * coefficients / NETWORK, parallel=False),
        Stage("staging the center", coefficients * costs.stage, parallel=False),
        Stage("noise and writing", coefficients * costs.publish, parallel=False),
    ]


def report(costs: Costs) -> str:
    """The release of 10^12 rows, and rows and coefficients that grow with the workers."""
    found = stages(costs, ROWS, COEFFICIENTS, WORKERS)
    tasks = task_count(costs, ROWS)
    lines = [
        f"{ROWS:.0e} rows, {COEFFICIENTS:.0e} coefficients, {WORKERS} workers of one thread: "
        f"{tasks} tasks, {ROWS // FILE_ROWS} files",
        "",
        f"{'stage':<30}{'seconds':>9}  on",
    ]
    for stage in found:
        where = "all workers" if stage.parallel else "the releasing process alone"
        lines.append(f"{stage.name:<30}{stage.seconds:>9.1f}  {where}")
    first = max((stage for stage in found if not stage.parallel), key=lambda one: one.seconds)
    total = sum(stage.seconds for stage in found)
    lines += [f"{'together':<30}{total:>9.1f}", "", f"what breaks first: {first.name}", ""]
    lines.append(f"{'workers':>8}{'rows':>8}{'coefficients':>14}{'seconds':>9}{'efficiency':>12}")
    seconds = {}
    for workers in (1, 10, 100, 1000):
        rows, coefficients = (size // WORKERS * workers for size in (ROWS, COEFFICIENTS))
        seconds[workers] = sum(
            stage.seconds for stage in stages(costs, rows, coefficients, workers)
        )
        lines.append(
            f"{workers:>8}{rows:>8.0e}{coefficients:>14.0e}{seconds[workers]:>9.1f}"
            f"{100 * seconds[1] / seconds[workers]:>10.0f} %"
        )
    return "\n".join(lines)


def stored() -> Costs:
    """The costs that the page was made from."""
    return Costs(**json.loads(MEASURED.read_text())["costs"])


if __name__ == "__main__":
    print(report(stored()))
