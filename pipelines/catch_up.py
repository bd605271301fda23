"""Release every partition that is due: ``python -m pipelines.catch_up SPEC --every day``.

The command of the timer, of the CronJob and of a person after an outage. It runs ``dbern release
SPEC --partition P`` for the last few complete partitions, the oldest first. Those that are
published already cost nothing, one that was interrupted goes on, and two of these at once spend
once: all that is `dbern`'s doing, and this module remembers nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import date
from typing import Any

from dbern.cli.metrics import DAYS, due
from pipelines.commands import say, told

BUDGET, ENVIRONMENT, INTERRUPTED = 3, 4, 130
SAME_FOR_ALL = {BUDGET, ENVIRONMENT, INTERRUPTED}
"""Exit codes after which the next partition would fare no better."""


def catch_up(
    spec: str, partitions: Sequence[str], scheduler: str | None = None
) -> tuple[int, list[dict[str, Any]]]:
    """Release the partitions in turn.

    A missing or damaged file is one partition's trouble, and the others go on; a refused budget, an
    environment that will not do or Ctrl-C ends the round.

    Returns
    -------
    int
        The exit code that ended the round, else the first that was not 0, else 0.
    list of dict
        For each partition tried: it, its exit code, and what ``dbern release --json`` printed.
    """
    cluster = ["--scheduler", scheduler] if scheduler else []
    outcomes: list[dict[str, Any]] = []
    for partition in partitions:
        code, said = told(["release", spec, "--partition", partition, *cluster])
        outcomes.append({"partition": partition, "exit_code": code, **said})
        if code in SAME_FOR_ALL:
            return code, outcomes
    return next((one["exit_code"] for one in outcomes if one["exit_code"]), 0), outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, catch up, and say what became of each partition."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.catch_up", description=__doc__)
    parser.add_argument("spec", metavar="SPEC", help="a spec with {partition} in it")
    parser.add_argument("--every", choices=sorted(DAYS), required=True, help="what a partition is")
    parser.add_argument("--last", type=int, default=7, metavar="N", help="how many to look back")
    parser.add_argument(
        "--since", type=date.fromisoformat, metavar="DATE", help="nothing before this date"
    )
    parser.add_argument("--today", type=date.fromisoformat, metavar="DATE", help="instead of today")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="a Dask cluster, as tls://host:8786")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    if given.last < 1:  # nothing would ever be released, and nothing would say so
        parser.error("--last: write how many partitions to look back, at least 1")
    partitions = due(given.every, given.last, given.today, given.since)
    code, outcomes = catch_up(given.spec, partitions, given.scheduler)
    if given.json:
        say(json.dumps({"exit_code": code, "partitions": outcomes}, indent=1))
    elif not outcomes:
        say(f"nothing is due: no complete {given.every} since {given.since}")
    else:
        for one in outcomes:
            say(f"{one['partition']}: {_told(one)}")
    return code


def _told(one: dict[str, Any]) -> str:
    if one["exit_code"]:
        return f"exit code {one['exit_code']}: {one.get('message', 'no more is known')}"
    return "; ".join([f"{one['url']} for {one['charge']}", *one["notes"]])


if __name__ == "__main__":
    sys.exit(main())
