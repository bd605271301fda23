"""Statistics of a ledger for dashboards and alerts, as Prometheus text: ``dbern metrics``.

It holds public facts only: budgets, states, the times of reservations, and when certificates end.
How long a stage took may depend on records and is in the private run record: it is among them where
``--private`` asks for it, and then the text file is as private.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dbern.cli.output import common, note_imports, parse_with, write_file
from dbern.cli.releases import DAYS, due
from dbern.system import version

if TYPE_CHECKING:
    from dbern.ledger import BudgetLedger, DatasetStatus, ReleaseRow

_HELP = {
    "info": "The version that measured this.",
    "measured_timestamp_seconds": "When this was measured.",
    "ledger_reconciliation_pending": "1 where the ledger was restored or copied: nothing is spent.",
    "ledger_leftover_staging": "Staging folders of releases that are over; opening removes them.",
    "budget_granted": "What was granted in all, or for each period.",
    "budget_remaining": "What is left of it, reserved budget taken off.",
    "budget_remaining_ratio": "The share of the grant that is left, of what is scarcest.",
    "releases": "Releases and charges by state.",
    "newest_publication_timestamp_seconds": "When the newest published release was reserved.",
    "oldest_unfinished_timestamp_seconds": "When the oldest unfinished release was reserved.",
    "partitions_due": "Complete partitions that a schedule looks back to.",
    "partitions_missing": "Those of them that are not published, nor abandoned in a stream.",
    "certificate_end_timestamp_seconds": "When the first certificate of a file ends.",
    "stage_seconds": "How long a stage of the newest publication took. Private.",
}
_UNFINISHED = ("reserved", "reading", "spent")
_READABLE = 0o644  # by the collector, which is another user: every fact in it is public
_PRIVATE = 0o600


class Sample(NamedTuple):
    """One measured value."""

    name: str
    value: float
    labels: dict[str, str]


class Schedule(NamedTuple):
    """The partitions of a spec that should be published: the `last` complete ones."""

    spec: str
    every: str
    last: int


def _schedule(value: str) -> Schedule:
    match = re.fullmatch(rf"(.+):({'|'.join(DAYS)}):0*([1-9][0-9]{{0,8}})", value, re.DOTALL)
    if match is None:
        raise click.BadParameter("write a spec, what a partition is, and how many: SPEC:day:7")
    return Schedule(match[1], match[2], int(match[3]))


@click.command()
@click.option("--ledger", "url", required=True, metavar="URL", help="As sqlite:///ledger.db.")
@click.option(
    "--due",
    "schedules",
    multiple=True,
    callback=parse_with(lambda values: [*map(_schedule, values)]),
    metavar="SPEC:day|week:N",
    help="Count which of the last N partitions are not published. May be repeated.",
)
@click.option(
    "--certificate",
    "certificates",
    multiple=True,
    metavar="FILE.pem",
    help="Tell when it ends. May be repeated.",
)
@click.option(
    "--textfile",
    metavar="FILE.prom",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it there, for the collector of node_exporter.  [default: stdout]",
)
@click.option(
    "--private",
    is_flag=True,
    help="Add seconds by stage, which may depend on records; the file is for its owner alone.",
)
@common
def metrics(
    url: str, schedules: list[Schedule], certificates: Sequence[str], textfile: Path | None,
    private: bool, as_json: bool, quiet: bool,
) -> tuple[Any, str]:  # fmt: skip
    """Print public facts of a ledger for Prometheus.

    Run it by a timer with --textfile. It changes nothing. Specs of --due are code, as in dbern
    plan.
    """
    with note_imports(silent=quiet or as_json):
        statistics = list(samples(url, schedules, certificates, private=private))
    text = _exposition(statistics)
    if textfile is not None:
        write_file(textfile, text, "--textfile", _PRIVATE if private else _READABLE)
        text = f"wrote {textfile}"
    return {"metrics": [sample._asdict() for sample in statistics]}, text.rstrip()


def samples(
    url: str,
    schedules: Sequence[Schedule],
    certificates: Sequence[str],
    today: date | None = None,
    *,
    private: bool = False,
) -> Iterator[Sample]:
    """Measure a ledger, the schedules that it should have kept to, and certificates."""
    from dbern.ledger import BudgetLedger
    from dbern.run.connection import expiry

    yield Sample("info", 1, {"version": version("dbern")})
    yield Sample("measured_timestamp_seconds", int(time.time()), {})
    with BudgetLedger.open(url, read_only=True) as opened:
        statuses, pending = opened.status(), opened.is_pending()
        left = opened.left_over()
        durations = [
            sample for status in statuses if private for sample in _durations(opened, status)
        ]
    yield Sample("ledger_reconciliation_pending", int(pending), {})
    yield Sample("ledger_leftover_staging", left, {})
    for status in statuses:
        yield from _account(status)
    yield from durations
    for schedule in schedules:
        yield from _missing(schedule, statuses, today)
    for path in certificates:
        end = expiry(path, "--certificate").timestamp()
        yield Sample("certificate_end_timestamp_seconds", int(end), {"file": path})


def _account(status: DatasetStatus) -> Iterator[Sample]:
    whose = {"dataset": status.dataset}
    counted = ("rho",) if status.accountant == "zcdp" else ("epsilon", "delta")
    for key, amount in (("granted", status.granted), ("remaining", status.remaining)):
        for quantity in counted:
            value = float(getattr(amount, quantity))
            yield Sample(f"budget_{key}", value, {**whose, "quantity": quantity})
    yield Sample("budget_remaining_ratio", float(status.remaining_share), whose)
    states = Counter(str(row.state) for row in status.releases)
    for state in (*_UNFINISHED, "committed", "abandoned", "refunded"):
        yield Sample("releases", states[state], {**whose, "state": state})
    if newest := _newest(status):
        yield Sample("newest_publication_timestamp_seconds", _seconds(newest.created), whose)
    unfinished = [  # but for charges of streams, which are under way as long as their horizon
        _seconds(row.created)
        for row in status.releases
        if row.state in _UNFINISHED and row.note is None
    ]
    if unfinished:
        yield Sample("oldest_unfinished_timestamp_seconds", min(unfinished), whose)


def _newest(status: DatasetStatus) -> ReleaseRow | None:
    published = (row for row in status.releases if row.state == "committed" and row.note is None)
    return max(published, key=lambda row: _seconds(row.created), default=None)


def _durations(opened: BudgetLedger, status: DatasetStatus) -> Iterator[Sample]:
    if newest := _newest(status):
        path, seconds = opened.run_record(newest.release_id).path, Counter[str]()
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
        for fields in map(json.loads, lines):  # of all runs of the release
            if "seconds" in fields:
                seconds[fields["stage"]] += fields["seconds"]
        for stage, taken in seconds.items():
            whose = {"dataset": status.dataset, "release": newest.name, "stage": stage}
            yield Sample("stage_seconds", taken, whose)


def _missing(
    schedule: Schedule, statuses: Sequence[DatasetStatus], today: date | None
) -> Iterator[Sample]:
    from dbern.planning.spec import ReleaseSpec

    partitions = due(schedule.every, schedule.last, today)
    specs = [ReleaseSpec.load(schedule.spec, partition=partition) for partition in partitions]
    dataset, stream = specs[0].budget.dataset, specs[0].stream
    closed = ("committed", "abandoned") if stream else ("committed",)  # such a night stays empty
    published = {
        row.name
        for status in statuses
        for row in status.releases
        if row.state in closed and status.dataset == dataset
    }
    scheduled = [
        spec.partition_name
        for spec, partition in zip(specs, partitions, strict=True)
        if not (stream and stream.first and partition < str(stream.first))
    ]
    whose = {"dataset": dataset, "spec": Path(schedule.spec).name, "every": schedule.every}
    yield Sample("partitions_due", len(scheduled), whose)
    yield Sample("partitions_missing", sum(name not in published for name in scheduled), whose)


def _seconds(created: str) -> float:
    return int(datetime.fromisoformat(created).timestamp())


def _exposition(samples: Sequence[Sample]) -> str:
    lines = []
    for name, description in _HELP.items():
        named = [sample for sample in samples if sample.name == name]
        if named:
            lines += [f"# HELP dbern_{name} {description}", f"# TYPE dbern_{name} gauge"]
        for sample in named:
            labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sample.labels.items())
            lines.append(f"dbern_{name}{{{labels}}} {float(sample.value)!r}".replace("{}", ""))
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
