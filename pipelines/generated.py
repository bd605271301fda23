"""Data to try the pipelines on: ``python -m pipelines.generated FOLDER --today 2026-11-20``.

Trips by day, loans by week and applicants to score, drawn from fixed seeds. Each file is renamed
into place when it is whole, as files that a schedule reads should be.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dbern.cli.releases import due

_HUBS = np.array([[5.0, 5.2], [2.6, 6.9], [7.4, 3.1]])


def trips(day: str, rows: int) -> dict[str, Any]:
    """Where trips began, in kilometres; at the weekend more of them at the lake."""
    draw = np.random.default_rng(date.fromisoformat(day).toordinal())
    weekend = date.fromisoformat(day).weekday() >= 5
    hub = draw.choice(3, rows, p=[0.3, 0.3, 0.4] if weekend else [0.6, 0.3, 0.1])
    places = _HUBS[hub] + draw.normal(0, 0.9, (rows, 2))
    return {"x": places[:, 0], "y": places[:, 1]}


def loans(week: str, rows: int) -> dict[str, Any]:
    """Loans and whether they defaulted."""
    draw = np.random.default_rng(date.fromisoformat(week).toordinal())
    applied = _applicants(draw, rows)
    return {**applied, "defaulted": draw.random(rows) < risk(applied["income"], applied["debt"])}


def applicants(rows: int) -> dict[str, Any]:
    """A table to score: an id that passes through, and the axes."""
    draw = np.random.default_rng(0)
    return {"applicant": np.arange(rows), **_applicants(draw, rows)}


def risk(income: Any, debt: Any) -> Any:
    """Return the probability of a default that the loans are drawn with."""
    return 1 / (1 + np.exp(-(8 * (debt - 0.5) - (income - 40) / 12)))


def _applicants(draw: np.random.Generator, rows: int) -> dict[str, Any]:
    return {"income": draw.gamma(4, 11, rows).clip(0, 100), "debt": draw.beta(2, 2, rows)}


def write(path: Path, columns: Mapping[str, Any]) -> None:
    """Write one Parquet file whole; what is there is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    pq.write_table(pa.table(dict(columns)), draft)
    draft.replace(path)


def generate(
    folder: Path, days: int = 14, weeks: int = 2, rows: int = 50_000, today: date | None = None
) -> None:
    """Write the days and weeks that are complete, and the applicants."""
    for day in due("day", days, today):
        write(folder / "trips" / f"{day}.parquet", trips(day, rows))
    for week in due("week", weeks, today):
        write(folder / "loans" / f"{week}.parquet", loans(week, rows))
    write(folder / "applicants.parquet", applicants(4 * rows))


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and generate."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.generated", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--weeks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=50_000, help="of each day and each week")
    parser.add_argument("--today", type=date.fromisoformat, metavar="DATE", help="instead of today")
    given = parser.parse_args(arguments)
    generate(given.folder, given.days, given.weeks, given.rows, given.today)


if __name__ == "__main__":
    main()
