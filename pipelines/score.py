"""Score a table against the newest synopsis: ``python -m pipelines.score SYNOPSES TABLE --out F``.

Runs ``dbern verify`` and then ``dbern query``, which streams Parquet to Parquet in bounded memory.
Each of the three may be an ``s3://`` URL. It needs neither records nor ledger nor key, and spends
nothing: scoring is post-processing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import dbern
from dbern.cli.main import run_json

FAILED, USAGE = 1, 2


def score(synopses: str, table: str, out: str) -> tuple[int, dict[str, Any]]:
    """Score `table` into ``out/<table>-<partition>.parquet``; a table that is there stays.

    The release whose name is last in order counts, for partitions are named by their dates. Returns
    the exit code of the first command that failed, 2 where nothing was published yet, or 0; and
    ``synopsis``, ``scores``, ``rows`` and whether they were there ``already``, or a failure's
    ``message``.
    """
    try:
        found = dbern.published(synopses)
    except dbern.DbernError as error:
        return error.exit_code, {"message": str(error)}
    if not found:
        return USAGE, {"message": f"{synopses}: holds no published synopsis yet"}
    synopsis = found[-1]
    name = f"{PurePosixPath(table).stem}-{PurePosixPath(synopsis).stem}.parquet"
    facts = {"synopsis": synopsis, "scores": f"{out.rstrip('/')}/{name}"}
    try:
        if "://" not in out:
            Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{out}: cannot be made ({error.strerror}); mend that, or write another --out"
        return FAILED, {**facts, "message": message}
    for command in (
        ["verify", synopsis, "--quiet"],
        ["query", synopsis, table, "--out", facts["scores"], "--once"],
    ):
        code, said = run_json(command)
        if code:
            return code, {**facts, "message": said.get("message", "no more is known")}
    return 0, {**facts, "rows": said["rows"], "already": said["already"]}


def say(text: str, *, failed: bool = False) -> None:
    """Print a line; that a log's disk is full, or its reader gone, changes no exit code."""
    stream = sys.stderr if failed else sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError:  # what is left in the buffer would fail again as the interpreter ends
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, score, and say what became of it."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.score", description=__doc__)
    parser.add_argument("synopses", metavar="SYNOPSES", help="folder or s3:// URL of the releases")
    parser.add_argument("table", metavar="TABLE", help="a Parquet file, or its s3:// URL, to score")
    parser.add_argument(
        "--out", required=True, metavar="FOLDER", help="folder or s3:// URL for the scores"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    code, facts = score(given.synopses, given.table, given.out)
    if given.json:
        say(json.dumps({"exit_code": code, **facts}, indent=1))
    elif code:
        say(facts["message"], failed=True)
    elif facts["already"]:
        say(f"{facts['scores']} is there already")
    else:
        say(f"{facts['scores']}: {facts['rows']} rows by {facts['synopsis']}")
    return code


if __name__ == "__main__":
    sys.exit(main())
