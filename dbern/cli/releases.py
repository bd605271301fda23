"""``dbern plan``, ``dbern release`` and ``dbern catch-up``, which releases all partitions due.

``dbern catch-up`` is for a timer, a CronJob and a person after an outage. It runs ``dbern release
SPEC --partition P`` for the last few complete partitions, the oldest first, and stores nothing:
a release by itself costs nothing if published, goes on if interrupted, and is charged once if two
commands run at the same time.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from dbern.cli.output import DETAILS, MORE, common, log_format, note_imports, show_progress
from dbern.errors import DbernError, OtherDataError, OtherVersionError, SpecError, printable

if TYPE_CHECKING:
    from dbern.nights.forecast import StreamPlan
    from dbern.planning.release_plan import ReleasePlan
    from dbern.planning.target_error import Aim


DAYS: Final = {"day": 1, "week": 7}
"""Days of each kind of partition."""
MOST_PARTITIONS: Final = 3660
"""Most partitions to look back: ten years of days, as long as the longest stream."""
BUDGET, ENVIRONMENT, INTERRUPTED = 3, 4, 130
SAME_FOR_ALL = {BUDGET, ENVIRONMENT, INTERRUPTED}
"""Exit codes after which the next partition would fare no better."""
_PARTITION_ERROR = OtherVersionError.kind
"""Kind of error of the environment that concerns one partition alone."""
RunJson: TypeAlias = Callable[[list[str]], tuple[int, dict[str, Any]]]
"""From a command line to its exit code and the object that it prints with ``--json``."""
Outcome: TypeAlias = dict[str, Any]
"""A partition with its exit code, and the object that its release printed."""
_DATE = click.DateTime(["%Y-%m-%d"])
_SPEC = click.argument("spec_path", metavar="SPEC", type=click.Path(dir_okay=False))
_PARTITION = click.option(
    "--partition", metavar="P", help="Replace {partition} in the spec's name, output and source."
)
_SCHEDULER = click.option(
    "--scheduler", metavar="ADDRESS", help="Use this Dask cluster, as tls://host:8786."
)


def due(every: str, last: int, today: date | None = None, since: date | None = None) -> list[str]:
    """Return the `last` complete partitions before `today`, the oldest first, none before `since`.

    A day is called by its date, a week by its Monday. Today's are not complete and not among them.

    Raises SpecError for more than `MOST_PARTITIONS`, and for some before the year 1.
    """
    length, end = DAYS[every], today or datetime.now(UTC).date()
    days = end.weekday() if every == "week" else 0
    if last > MOST_PARTITIONS or length * last + days >= end.toordinal():
        raise SpecError(
            f"{every}: the last {last} before {end} are more than {MOST_PARTITIONS}, or begin "
            "before the year 1. Look back on fewer, such as 7"
        )
    end -= timedelta(days=days)
    begins = (end - timedelta(days=length * back) for back in range(last, 0, -1))
    return [str(day) for day in begins if since is None or day >= since]


@click.command("catch-up")
@_SPEC
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
@_SCHEDULER
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
    report_outcome = (lambda _outcome: None) if as_json else _print_outcome
    partitions = due(every, last, *dates)
    code, outcomes = _release_partitions(run_json, spec_path, partitions, cluster, report_outcome)
    if outcomes and not as_json:
        return None, "", code  # each was printed as it came
    text = f"nothing is due: no complete {every} since {since:%Y-%m-%d}" if since else ""
    return {"exit_code": code, "partitions": outcomes}, text, code


def _release_partitions(
    run_json: RunJson,
    spec: str,
    partitions: Sequence[str],
    cluster: Sequence[str],
    report_outcome: Callable[[Outcome], None],
) -> tuple[int, list[dict[str, Any]]]:
    """Release the partitions in turn, as the help of `catch_up` says.

    Returns the exit code that ended the round, else the first that was not 0, and what
    ``dbern release --json`` printed for each partition.
    """
    outcomes: list[dict[str, Any]] = []
    for partition in partitions:
        code, printed = run_json(["release", spec, "--partition", partition, *cluster])
        if printed.get("error") == OtherDataError.kind:
            code = 0  # it is published, and no more is due
        outcomes.append({"partition": partition, "exit_code": code, **printed})
        report_outcome(outcomes[-1])
        if code in SAME_FOR_ALL and printed.get("error") != _PARTITION_ERROR:
            return code, outcomes
    failed = (outcome["exit_code"] for outcome in outcomes if outcome["exit_code"])
    return next(failed, 0), outcomes


def _print_outcome(outcome: Outcome) -> None:
    with suppress(OSError):  # a reader that has gone stops no release
        click.echo(printable(f"{outcome['partition']}: {_outcome_text(outcome)}", keep="\n\t"))


def _outcome_text(outcome: Outcome) -> str:
    if outcome["exit_code"]:
        message = outcome.get("message", "no more is known")
        return f"exit code {outcome['exit_code']}: {message}"
    if "message" in outcome:
        return f"published before: {outcome['message']}"
    if outcome["partition"] not in outcome["name"]:  # a stream's, whose nights are paid once
        return "; ".join([outcome["url"], *outcome["notes"]])
    return "; ".join([f"{outcome['url']} for {outcome['charge']}", *outcome["notes"]])


@click.command()
@_SPEC
@_PARTITION
@click.option(
    "--target-error",
    type=click.FloatRange(min=0, min_open=True),
    metavar="A",
    help="Find the smallest epsilon that certifies a sup error of A, in data units.",
)
@click.option(
    "--of",
    "about",
    type=click.Choice(["expected", "these-data", "any-database"]),
    default="any-database",
    show_default=True,
    help="Which error --target-error is: what typical data are expected to have, the band of "
    "evenly spread records after the release, or what is promised for any database.",
)
@DETAILS
@common
def plan(
    spec_path: str,
    partition: str | None,
    target_error: float | None,
    about: Aim,
    details: bool,
    as_json: bool,
    quiet: bool,
) -> tuple[Any, str]:
    """Show what a release would do and cost. It reads no record and charges nothing.

    A spec is code: modules that it names as module:name (an oracle's function, a reference, kernels
    and losses) are imported and run here. Plan only specs that you would run as a program.
    """
    from dbern.planning.planner import plan as make_plan
    from dbern.planning.spec import ReleaseSpec
    from dbern.planning.target_error import smallest_epsilon
    from dbern.privacy.budget import decimal_text
    from dbern.system import resolve_url

    with note_imports(silent=quiet or as_json):
        spec = ReleaseSpec.load(spec_path, partition=partition)
        resolve_url(spec.budget.ledger, spec.base)  # refuses what the release would
        if spec.stream is not None:
            from dbern.nights.forecast import plan_stream

            if target_error is not None:
                raise click.UsageError("--target-error is not for a stream")
            stream = plan_stream(spec)
            content = stream.to_dict() | {"node": _content(stream.node)}
            night = f"{shlex.quote(spec_path)} --partition NIGHT"
            return content, _plan_text(stream, night, details=details)
        if target_error is None:
            planned = make_plan(spec)
            arguments = shlex.quote(spec_path) + (f" --partition {partition}" if partition else "")
            return _content(planned), _plan_text(planned, arguments, details=details)
        with show_progress(quiet) as progress:
            epsilon, planned = smallest_epsilon(spec, target_error, progress, about)
    advice = f'write epsilon = "{decimal_text(epsilon)}"'
    if about == "any-database" and planned.on_lattice:
        advice += ' and objective = "certified"'
    content = {"epsilon": decimal_text(epsilon), "plan": _content(planned)}
    return content, f"{advice}\n{planned.explain(details=details)}"


def _plan_text(planned: ReleasePlan | StreamPlan, arguments: str, *, details: bool) -> str:
    text = planned.explain(details=details)
    return text if details else f"{text}\nnext      dbern release {arguments}{MORE}"


def _content(planned: ReleasePlan) -> dict[str, Any]:
    content: dict[str, Any] = planned.to_dict()
    for fields, component in zip(content["components"], planned.components, strict=True):
        fields["ranks"] = [axis.rank for axis in component.maps]
        del fields["maps"]
    return content


@click.command()
@_SPEC
@_PARTITION
@_SCHEDULER
@click.option(
    "--wait-for-workers",
    type=click.FloatRange(min=0, max=86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the first worker of the cluster.",
)
@log_format
@common
def release(
    spec_path: str,
    partition: str | None,
    scheduler: str | None,
    wait_for_workers: float,
    log_format: str,
    as_json: bool,
    quiet: bool,
) -> tuple[Any, str]:
    """Publish a release and charge it once. Run it again to go on after any interruption.

    A spec is code: modules that it names as module:name (an oracle's function, a reference, kernels
    and losses) are imported and run, here and on workers, with the records. Release only specs that
    you would run as a program.
    """
    from dbern.ledger import BudgetLedger
    from dbern.planning.spec import ReleaseSpec
    from dbern.run import stages

    silent, here = quiet or as_json or log_format == "json", scheduler is None
    with note_imports(silent=silent), show_progress(quiet, log_format, here=here) as progress:
        spec = ReleaseSpec.load(spec_path, partition=partition)
        out = stages.release(
            spec, scheduler=scheduler, wait_for_workers=wait_for_workers, progress=progress
        )
    fields = {"charge": str(out.charge), "guarantee": str(out.guarantee), "notes": list(out.notes)}
    if spec.stream is not None:
        nights = f"{spec.stream.horizon} nights were paid once: {out.guarantee}"
        lines = [f"{'; '.join(out.notes)}; {out.url}: its {nights}"]
    else:
        lines = [f"note: {note}" for note in out.notes]
        lines.append(f"released {out.url} for {out.guarantee}")
        dataset = spec.budget.dataset
        try:
            with BudgetLedger.open(spec.ledger_url) as ledger:
                (account,) = ledger.status(dataset)
            lines[-1] += f"; dataset {dataset} has {account.remaining} left"
        except DbernError as refusal:  # it is published all the same
            lines.append(f"note: what dataset {dataset} has left was not read: {refusal}")
    return {"url": out.url, "name": spec.release.name, **fields}, "\n".join(lines)
