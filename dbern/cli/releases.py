"""``dbern plan`` and ``dbern release``."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from dbern.cli.output import DETAILS, MORE, common
from dbern.cli.progress import imports_noted, log_format, shown_progress
from dbern.errors import DbernError

if TYPE_CHECKING:
    from dbern.planning.release_plan import ReleasePlan
    from dbern.planning.stream_plan import StreamPlan
    from dbern.planning.target_error import Aim

_SPEC = click.argument("spec_path", metavar="SPEC", type=click.Path(dir_okay=False))
_PARTITION = click.option(
    "--partition", metavar="P", help="Replace {partition} in the spec's name, output and source."
)


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

    with imports_noted(silent=quiet or as_json):
        spec = ReleaseSpec.load(spec_path, partition=partition)
        resolve_url(spec.budget.ledger, spec.base)  # refuses now what the release would refuse
        if spec.stream is not None:
            from dbern.planning.stream_plan import plan_stream

            if target_error is not None:
                raise click.UsageError("--target-error is not for a stream")
            stream = plan_stream(spec)
            content = stream.to_dict() | {"node": _content(stream.node)}
            night = f"{shlex.quote(spec_path)} --partition NIGHT"
            return content, _explained(stream, night, details=details)
        if target_error is None:
            planned = make_plan(spec)
            rest = shlex.quote(spec_path) + (f" --partition {partition}" if partition else "")
            return _content(planned), _explained(planned, rest, details=details)
        with shown_progress(quiet) as progress:
            epsilon, planned = smallest_epsilon(spec, target_error, progress, about)
    advice = f'write epsilon = "{decimal_text(epsilon)}"'
    if about == "any-database" and planned.on_lattice:
        advice += ' and objective = "certified"'
    content = {"epsilon": decimal_text(epsilon), "plan": _content(planned)}
    return content, f"{advice}\n{planned.explain(details=details)}"


def _explained(planned: ReleasePlan | StreamPlan, rest: str, *, details: bool) -> str:
    text = planned.explain(details=details)
    return text if details else f"{text}\nnext      dbern release {rest}{MORE}"


def _content(planned: ReleasePlan) -> dict[str, Any]:
    content: dict[str, Any] = planned.to_dict()
    for fields, component in zip(content["components"], planned.components, strict=True):
        fields["ranks"] = [axis.rank for axis in component.maps]
        del fields["maps"]
    return content


@click.command()
@_SPEC
@_PARTITION
@click.option("--scheduler", metavar="ADDRESS", help="Use this Dask cluster, as tls://host:8786.")
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
    from dbern.releasing import run

    silent, here = quiet or as_json or log_format == "json", scheduler is None
    with imports_noted(silent=silent), shown_progress(quiet, log_format, here=here) as progress:
        spec = ReleaseSpec.load(spec_path, partition=partition)
        out = run.release(
            spec, scheduler=scheduler, wait_for_workers=wait_for_workers, progress=progress
        )
    fields = {"charge": str(out.charge), "guarantee": str(out.guarantee), "notes": list(out.notes)}
    if spec.stream is not None:
        nights = f"{spec.stream.horizon} nights were paid once: {out.guarantee}"
        lines = [f"{'; '.join(out.notes)}; {out.url}: its {nights}"]
    else:
        lines = [f"note: {note}" for note in out.notes]
        lines.append(f"released {out.url} for {out.guarantee}")
        with suppress(DbernError), BudgetLedger.open(spec.ledger_url) as ledger:
            (account,) = ledger.status(spec.budget.dataset)  # it is published, whatever is here
            lines[-1] += f"; dataset {spec.budget.dataset} has {account.remaining} left"
    return {"url": out.url, "name": spec.release.name, **fields}, "\n".join(lines)
