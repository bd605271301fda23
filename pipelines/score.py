"""Score a table against the newest synopsis: ``python -m pipelines.score SYNOPSES TABLE --out F``.

Runs ``dbern verify`` and then ``dbern query``, which streams Parquet to Parquet in bounded memory.
It needs neither records nor ledger nor key, and spends nothing: scoring is post-processing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dbern.cli.main import run

MANIFEST = "manifest.json"
USAGE = 2


def newest(synopses: Path) -> Path | None:
    """The published synopsis whose name is last in order: partitions are named by their date."""
    return max((path.parent for path in synopses.glob(f"*/{MANIFEST}")), default=None)


def score(synopses: Path, table: Path, out: Path) -> int:
    """Score `table` into ``out/<table>-<partition>.parquet``; a table that is there stays.

    Returns
    -------
    int
        The exit code of the first command that failed, or 0; 2 where nothing was published yet.
    """
    synopsis = newest(synopses)
    if synopsis is None:
        print(f"{synopses}: holds no published synopsis yet", file=sys.stderr)
        return USAGE
    scored = out / f"{table.stem}-{synopsis.stem}.parquet"
    if scored.exists():  # whole: queries are renamed into place
        print(f"{scored} is there already")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    return run(["verify", str(synopsis), "--quiet"]) or run(
        ["query", str(synopsis), str(table), "--out", str(scored)]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and score."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.score", description=__doc__)
    parser.add_argument("synopses", type=Path, metavar="SYNOPSES", help="folder of the releases")
    parser.add_argument("table", type=Path, metavar="TABLE", help="a Parquet file to score")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="for the scores")
    given = parser.parse_args(arguments)
    return score(given.synopses, given.table, given.out)


if __name__ == "__main__":
    sys.exit(main())
