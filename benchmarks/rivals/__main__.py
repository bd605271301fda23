"""Others beside dbern, in one run: ``make rivals RIVALS='--part bayes --seeds 5 --json all.json'``.

Parts: `functions` are densities and the machine of the paper's figures, by the error of what is
released; `linear`, `bayes`, `logistic`, `machines` and `several` (kernels, of several classes or
three axes) are learners on records that they have not seen, and so are regressions on `rounded`
values. After the table stand the cells in which a rival is ahead, and those that are further from
scikit-learn without privacy than wanted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from threadpoolctl import threadpool_limits

from rivals import learners, table
from rivals.cells import EPSILONS, SEEDS, Cell, summary, to_markdown
from rivals.records import ADULT
from rivals.tasks import FLIGHTS, every_task

_REPEATS = 10  # releases of a function a seed: they cost little
_LEARNERS = ("linear", "bayes", "logistic", "machines", "several", "rounded")
PARTS = ("functions", *_LEARNERS)


def progress(found: Sequence[Cell]) -> None:
    cell = found[0]
    texts = " ".join(cell.text for cell in found)
    about = f"{cell.panel}: {cell.table}, {cell.learner}: {texts}"
    print(f"{about} {cell.note}".rstrip(), file=sys.stderr, flush=True)


def functions(task: str, epsilons: Sequence[float], repeats: int) -> tuple[str, list[Cell]]:
    """The table of released functions, and its cells."""
    tasks = [one for one in every_task() if one.name.startswith(task)]
    found = table.rows(tasks, table.MECHANISMS, epsilons, repeats, lambda row: progress([row.cell]))
    return table.to_markdown(found) + table.remarks(tasks), [row.cell for row in found]


def task_names(part: str) -> list[str]:
    """List the tasks or tables of a part."""
    if part == "functions":
        return [task.name for task in every_task()]
    return [table.name for table in learners.panels()[part][0]()]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="rivals", description=__doc__)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--task", default="", help="only tasks whose name begins like this")
    parser.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"default: {SEEDS}")
    parser.add_argument("--markdown", type=Path, help="also write the tables here")
    parser.add_argument("--json", type=Path, help="also write the cells here")
    given = parser.parse_args(arguments)
    known = [name for part in given.part for name in task_names(part)] if given.task else []
    if given.task and not any(name.startswith(given.task) for name in known):
        listed = "; ".join(dict.fromkeys(known))
        parser.error(f'--task: none begins with "{given.task}". Write the beginning of: {listed}')
    for path in (FLIGHTS, ADULT):
        if not path.exists():
            print(f"without {path.stem}: {path} is not there", file=sys.stderr)
    with threadpool_limits(1):
        text, found = _ran(given)
    print(text, end="")
    if given.markdown:
        given.markdown.write_text(text, encoding="utf-8")
    if given.json:
        written = json.dumps([asdict(cell) for cell in found], indent=1)
        given.json.write_text(written + "\n", encoding="utf-8")


def _ran(given: argparse.Namespace) -> tuple[str, list[Cell]]:
    found: list[Cell] = []
    text = ""
    if "functions" in given.part:
        text, found = functions(given.task, given.epsilon, _REPEATS * given.seeds)
    shown = []
    for part in given.part:
        if part not in _LEARNERS:
            continue
        for row in learners.cells(part, given.task, given.epsilon, given.seeds):
            progress(row)
            shown.extend(row)
    if shown:
        text += ("\n" if text else "") + to_markdown(shown)
    found += shown
    return text + "\n" + summary(found), found


if __name__ == "__main__":
    main()
