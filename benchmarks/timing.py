"""What the benchmarks of speed share: medians, tables, and the page that keeps them.

Times are medians of the processor's, after one run that does not count: it imports, compiles and
fills caches. What else the machine does counts little, and ratios of one run count. `make bench`
(`DBERN_REPEATS` set) runs at full size and writes each table into docs/benchmarks.json and the
page; without it the benchmarks run small, so that they cannot rot, and write nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BENCH = "DBERN_REPEATS" in os.environ
REPEATS = 5 if BENCH else 1
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
MEASURED = PAGE.with_suffix(".json")

Clock = Callable[[], float]

_SHORTEST = 1e-9


def seconds(
    work: Callable[[], Any], repeats: int = REPEATS, clock: Clock = time.process_time
) -> float:
    """Median of some runs, never zero."""
    work()
    return max(statistics.median(_once(work, clock) for _ in range(repeats)), _SHORTEST)


def together(
    *works: Callable[[], Any], repeats: int = REPEATS, clock: Clock = time.process_time
) -> list[float]:
    """The medians of several, which take turns: what disturbs one disturbs the others.

    Each turn begins with a run that does not count, as the others have used caches and memory.
    """
    spent: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, own in zip(works, spent, strict=True):
            work()
            own.append(_once(work, clock))
    return [max(statistics.median(own), _SHORTEST) for own in spent]


def _once(work: Callable[[], Any], clock: Clock) -> float:
    begin = clock()
    work()
    return clock() - begin


@dataclass(frozen=True)
class Table:
    """Numbers by row and column; None, where there is nothing to measure, is a dash.

    Attributes
    ----------
    unit : str
        What the numbers are, in the corner of the table.
    """

    unit: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[float | None, ...]]

    @classmethod
    def of(cls, unit: str, found: Mapping[str, Mapping[str, float | None]]) -> Table:
        """That of columns, each by row; the rows of all columns in the order they come in."""
        names = dict.fromkeys(name for column in found.values() for name in column)
        rows = {name: tuple(column.get(name) for column in found.values()) for name in names}
        return cls(unit, tuple(found), rows)

    def text(self) -> str:
        """Aligned lines."""
        first = max(len(name) for name in (self.unit, *self.rows))
        widths = [max(12, len(column) + 2) for column in self.columns]
        lines = [(self.unit, self.columns)]
        lines += [(name, tuple(map(shown, cells))) for name, cells in self.rows.items()]
        return "\n".join(
            f"{name:<{first}}" + "".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True))
            for name, cells in lines
        )


def shown(number: float | None) -> str:
    """Three digits, or all before the point."""
    if number is None:
        return "-"
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) >= 0.001 or number == 0 else f"{number:.1e}"


def keep(name: str, table: Table) -> None:
    """Print a table; from a whole run, write it, too."""
    print("", table.text(), sep="\n")
    if BENCH:
        write(name, table)


def write(name: str, table: Table) -> None:
    """Into the page and the numbers it is made from."""
    found = {**stored(), name: table}
    content = {key: asdict(one) for key, one in found.items()}
    MEASURED.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


def stored() -> dict[str, Table]:
    """The tables that the page was made from."""
    content = json.loads(MEASURED.read_text(encoding="utf-8"))
    return {
        name: Table(
            one["unit"],
            tuple(one["columns"]),
            {row: tuple(cells) for row, cells in one["rows"].items()},
        )
        for name, one in content.items()
    }


def page(text: str, tables: Mapping[str, Table]) -> str:
    """The page with its tables."""
    return with_blocks(text, {name: table.text() for name, table in tables.items()})


def with_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """A page with its blocks of numbers: what stands between fences below ``<!-- name -->``.

    Raises
    ------
    ValueError
        For a page without a block of that name.
    """
    for name, block in blocks.items():
        before, mark, after = text.partition(f"<!-- {name} -->\n```\n")
        if not mark:
            raise ValueError(f"the page has no block <!-- {name} -->")
        text = before + mark + block + after[after.index("\n```\n") :]
    return text
