"""Print the table: ``make rivals``, or ``python -m rivals --task flights --json table.json``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rivals.table import EPSILONS, REPEATS, Row, remarks, rows, to_json, to_markdown
from rivals.tasks import FLIGHTS, every_task


def progress(row: Row) -> None:
    error = "-" if row.mean_sup is None else f"{row.mean_sup:.3g}"
    print(f"{row.task}, epsilon {row.epsilon:g}, {row.mechanism}: {error}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="rivals", description=__doc__)
    parser.add_argument("--task", default="", help="only tasks whose name begins like this")
    parser.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="default: DBERN_REPEATS")
    parser.add_argument("--markdown", type=Path, help="also write the table here")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    given = parser.parse_args(arguments)
    tasks = [task for task in every_task() if task.name.startswith(given.task)]
    if not FLIGHTS.exists():
        print(f"without the flights: {FLIGHTS} is not there", file=sys.stderr)
    found = rows(tasks, epsilons=given.epsilon, repeats=given.repeats, progress=progress)
    table = to_markdown(found) + remarks(tasks)
    print(table, end="")
    if given.markdown:
        given.markdown.write_text(table, encoding="utf-8")
    if given.json:
        given.json.write_text(to_json(found), encoding="utf-8")


if __name__ == "__main__":
    main()
