"""The curves of docs/benchmarks.md, its tables, and the costs of its calculation, measured anew."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from timing import with_blocks

from dbern.planning.cost import TASK_ROWS
from dbern.planning.planner import footers, plan
from dbern.planning.spec import ReleaseSpec
from dbern.run.graph import make_tasks, tree_reduce
from dbern.system import silent
from scale.runs import Run, cluster, measure, write_files
from scale.weak import MEASURED, PAGE, Costs, report

ROWS, FEW = (100_000, 1_000_000, 10_000_000), 100_000
KS, SMALL = (9, 21, 46, 99, 215), 21
TASKS, FILES, REPEATS = 1000, 200, 3
SALT = b"a benchmark's salt"
Runs = dict[str, list[Run]]


def draw(folder: Path, sizes: Sequence[int] = ROWS, ks: Sequence[int] = KS) -> None:
    """Measure, and write the page's figures, its numbers and their source."""
    runs = measured(folder, sizes, ks)
    costs = costs_of(runs, folder)
    figure(runs, MEASURED.with_suffix(".png"))
    content = {"runs": {name: list(map(asdict, some)) for name, some in runs.items()}}
    MEASURED.write_text(json.dumps({"costs": asdict(costs), **content}, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), runs, costs), encoding="utf-8")
    print(table(runs), report(costs), sep="\n\n")


def page(text: str, runs: Runs, costs: Costs) -> str:
    """The page with its two blocks of numbers."""
    return with_blocks(text, {"scaling": table(runs), "weak scaling": report(costs)})


def stored() -> Runs:
    """The runs that the page was made from."""
    runs = json.loads(MEASURED.read_text())["runs"]
    return {name: [Run(**one) for one in some] for name, some in runs.items()}


def measured(folder: Path, sizes: Sequence[int], ks: Sequence[int]) -> Runs:
    """Runs by curve, on clusters that released before."""
    few, work = min(sizes), folder / "work"
    sources = {rows: folder / f"three-{rows}" for rows in sizes}
    for rows, source in sources.items():
        write_files(source, rows, 3)
    runs: Runs = {"rows": [], "coefficients": [], "workers": []}
    for workers in (1, 2):
        with cluster(workers) as client:

            def one(rows: int, k: int, client: Any = client) -> Run:
                """The median of some releases, by what they took of the processors."""
                found = [
                    measure(client, sources[rows], work, 3, k, "laplace") for _ in range(REPEATS)
                ]
                return sorted(found, key=lambda run: run.processor)[REPEATS // 2]

            one(few, min(ks))
            if workers == 1:
                runs["rows"] = [one(rows, SMALL) for rows in sizes]
                runs["coefficients"] = [one(few, k) for k in ks]
            runs["workers"].append(one(max(sizes), SMALL))
    return runs


def costs_of(runs: Runs, folder: Path) -> Costs:
    """Slopes between the two largest runs of a curve; tasks and files by themselves."""
    low, high = runs["rows"][-2:]
    small, large = runs["coefficients"][-2:]

    def slope(seconds: Callable[[Run], float]) -> float:
        more = large.coefficients - small.coefficients
        return max(0.0, seconds(large) - seconds(small)) / more

    rows = (high.workers[0] - low.workers[0]) / (high.rows - low.rows)
    return Costs(
        row=rows,
        task=task_seconds(folder / f"three-{low.rows}"),
        file=file_seconds(folder / f"three-{low.rows}"),
        contract=slope(lambda run: run.workers[1]),
        stage=slope(lambda run: run.releasing[1]),
        publish=slope(lambda run: run.releasing[2]),
        task_rows=TASK_ROWS,
        state_bytes=large.state_bytes,
    )


def _spec(source: Path) -> ReleaseSpec:
    return ReleaseSpec(
        release={"name": "scale", "output": "scale.zarr"},
        data={"source": str(source), "bounds": {c: [0.0, 1.0] for c in "xyz"}},
        target={"kind": "kernel-density", "bandwidth": [0.1] * 3},
        mechanism={"k": SMALL, "h": 4, "noise": "laplace"},
        budget={"epsilon": "1.0", "ledger": "sqlite:///ledger.db", "dataset": "scale"},
    )


def task_seconds(source: Path) -> float:
    """Of the releasing process, the scheduler in it, for one task and its share of the merges."""
    spec = _spec(source)
    counters = plan(spec).counters(spec)
    with cluster(1) as client:
        tree_reduce(client, counters, [()], SALT, silent).result()
        begin = time.process_time()
        tree_reduce(client, counters, [()] * TASKS, SALT, silent).result()
        return (time.process_time() - begin) / TASKS


def file_seconds(source: Path) -> float:
    """Of the releasing process for the footer of one file."""
    files = footers(_spec(source))[:1] * FILES
    begin = time.process_time()
    make_tasks(files, SALT)
    return (time.process_time() - begin) / FILES


def table(runs: Runs) -> str:
    """All runs, processor seconds by phase."""
    lines = [
        f"{'':<13}{'':>9}{'':>13}  processor seconds: workers, releasing process, peak MiB a",
        f"{'curve':<13}{'rows':>9}{'coefficients':>13}{'count':>8}{'contract':>9}{'stage':>7}"
        f"{'publish':>8}{'elapsed':>8}{'worker':>7}{'plan':>5}",
    ]
    for name, some in runs.items():
        for run in some:
            worker, releasing = run.workers, run.releasing
            lines.append(
                f"{name:<13}{run.rows:>9}{run.coefficients:>13}{worker[0]:>8.2f}{worker[1]:>9.2f}"
                f"{releasing[1]:>7.2f}{releasing[2]:>8.2f}{sum(run.elapsed):>8.1f}"
                f"{max(run.peaks) >> 20:>7}{run.planned >> 20:>5}"
            )
    return "\n".join(lines)


def figure(runs: Runs, path: Path) -> None:
    """Three panels: against rows, against coefficients, and by workers."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(11, 3.4), layout="constrained")
    FigureCanvasAgg(drawn)
    panels = drawn.subplots(1, 3)
    for panel, name in zip(panels[:2], ("rows", "coefficients"), strict=True):
        sizes = [getattr(run, name) for run in runs[name]]
        parts = {
            "workers": [sum(run.workers) for run in runs[name]],
            "releasing process": [sum(run.releasing) for run in runs[name]],
        }
        for label, seconds in parts.items():
            panel.loglog(sizes, seconds, "o-", label=label)
        panel.set(xlabel=name, ylabel="processor seconds")
        panel.legend(frameon=False)
    counted = runs["workers"]
    places = range(len(counted))
    bars = {"elapsed": [run.elapsed[0] for run in counted]}
    bars["processors"] = [run.workers[0] for run in counted]
    for aside, (label, seconds) in zip((-0.2, 0.2), bars.items(), strict=True):
        panels[2].bar([at + aside for at in places], seconds, 0.4, label=label)
    panels[2].set(xlabel="workers", ylabel="seconds of counting", xticks=list(places))
    panels[2].set_xticklabels([str(len(run.peaks)) for run in counted])
    panels[2].margins(y=0.3)
    panels[2].legend(frameon=False)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    drawn.savefig(path, dpi=110)
