"""``dbern catch-up``: the command of a timer, of a CronJob and of a person after an outage.

It runs ``dbern release SPEC --partition P`` for the last few complete partitions, the oldest first.
Those that are published already cost nothing, one that was interrupted goes on, and two of these at
once spend once: all that is the release's doing, and nothing is remembered here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeAlias

import click

from dbern.cli.output import common
from dbern.cli.partitions import DAYS, due
from dbern.errors import OtherDataError, OtherVersionError, printable

BUDGET, ENVIRONMENT, INTERRUPTED = 3, 4, 130
SAME_FOR_ALL = {BUDGET, ENVIRONMENT, INTERRUPTED}
"""Exit codes after which the next partition would fare no better."""

_OF_ONE = OtherVersionError.kind
"""Kind of an error of the environment that is one partition's trouble all the same."""

RunJson: TypeAlias = Callable[[list[str]], tuple[int, dict[str, Any]]]
"""From a command line to its exit code and the object that it prints with ``--json``."""

Outcome: TypeAlias = dict[str, Any]
"""A partition with its exit code, and the object that its release printed."""

_DATE = click.DateTime(["%Y-%m-%d"])


@click.command("catch-up")
@click.argument("spec_path", metavar="SPEC", type=click.Path(dir_okay=False))
@click.option("--every", type=click.Choice(sorted(DAYS)), required=True, help="One partition.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=7,
    show_default=True,
    metavar="N",
    help="How many partitions to look back.",
)
@click.option("--since", type=_DATE, metavar="DATE", help="Nothing before this date.")
@click.option("--today", type=_DATE, metavar="DATE", help="Instead of today's, in UTC.")
@click.option("--scheduler", metavar="ADDRESS", help="Use this Dask cluster, as tls://host:8786.")
@common
def catch_up(
    spec_path: str,
    every: str,
    last: int,
    since: datetime | None,
    today: datetime | None,
    scheduler: str | None,
    as_json: bool,
) -> tuple[Any, str, int]:
    """Release each complete partition that is due.

    SPEC has {partition} in it. Days are called by their date, weeks by their Monday; today's is not
    complete. What is published costs nothing, and stays though its files be others by now. It goes
    on with the other partitions after 1, 2 and 5, and after one that another version of dbern
    began; ends the round after 3 (budget), 4 (environment) and 130; and exits with the code that
    ended it, else with the first not 0.
    """
    dates = (moment and moment.date() for moment in (today, since))
    run_json: RunJson = click.get_current_context().obj
    cluster = ["--scheduler", scheduler] if scheduler else []
    tell = (lambda _outcome: None) if as_json else _print_outcome
    partitions = due(every, last, *dates)
    code, outcomes = _release_partitions(run_json, spec_path, partitions, cluster, tell)
    if outcomes and not as_json:
        return None, "", code  # each was printed as it came
    text = f"nothing is due: no complete {every} since {since:%Y-%m-%d}" if since else ""
    return {"exit_code": code, "partitions": outcomes}, text, code


def _release_partitions(
    run_json: RunJson,
    spec: str,
    partitions: Sequence[str],
    cluster: Sequence[str],
    tell: Callable[[Outcome], None],
) -> tuple[int, list[dict[str, Any]]]:
    """Release the partitions in turn.

    A missing or damaged file, or another version that began it, is one partition's trouble, and the
    others go on; one that was published of other files than there are now is none. A refused
    budget, an environment that will not do or Ctrl-C ends the round.
    Returns the exit code that ended the round, else the first that was not 0, and what
    ``dbern release --json`` printed for each partition.
    """
    outcomes: list[dict[str, Any]] = []
    for partition in partitions:
        code, printed = run_json(["release", spec, "--partition", partition, *cluster])
        if printed.get("error") == OtherDataError.kind:
            code = 0  # it was published, which is all that is due
        outcomes.append({"partition": partition, "exit_code": code, **printed})
        tell(outcomes[-1])
        if code in SAME_FOR_ALL and printed.get("error") != _OF_ONE:
            return code, outcomes
    failed = (outcome["exit_code"] for outcome in outcomes if outcome["exit_code"])
    return next(failed, 0), outcomes


def _print_outcome(outcome: Outcome) -> None:
    with suppress(OSError):  # a reader that has gone stops no release
        click.echo(printable(f"{outcome['partition']}: {_to_text(outcome)}", keep="\n\t"))


def _to_text(outcome: Outcome) -> str:
    if outcome["exit_code"]:
        message = outcome.get("message", "no more is known")
        return f"exit code {outcome['exit_code']}: {message}"
    if "message" in outcome:
        return f"published before: {outcome['message']}"
    if outcome["partition"] not in outcome["name"]:  # a stream's, whose nights are paid once
        return "; ".join([outcome["url"], *outcome["notes"]])
    return "; ".join([f"{outcome['url']} for {outcome['charge']}", *outcome["notes"]])
