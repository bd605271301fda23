"""``dbern doctor``: does this installation hold what a release relies on."""

from __future__ import annotations

from typing import Any

import click

from dbern.cli.output import common

_ENVIRONMENT = 4


@click.command()
@click.option("--ledger", "url", metavar="URL", help="Look at this ledger, as sqlite:///ledger.db.")
@click.option("--scheduler", metavar="ADDRESS", help="Look at this Dask cluster.")
@click.option(
    "--output", metavar="PATH", type=click.Path(), help="Where a synopsis is to go: path or URL."
)
@common
def doctor(
    url: str | None, scheduler: str | None, output: str | None, quiet: bool
) -> tuple[Any, str, int]:
    """Check an installation and say how to mend it.

    Reads no record and spends no budget. Checks versions, and what you name: a ledger's
    permissions, log, clock and locks; whether an output is created once only; of a cluster, a
    database or a store whether it is reached in clear; a cluster's versions and whether its workers
    spill. Exit code 4 means that something must be mended before a release. Warnings alone end with
    0.
    """
    from dbern.cli import diagnosis

    findings = diagnosis.installation()
    if url is not None:
        findings += diagnosis.ledger(url)
    if output is not None:
        findings += diagnosis.output(output)
    if scheduler is not None:
        findings += diagnosis.scheduler(scheduler)
    broken = sum(finding.state == "mend" for finding in findings)
    lines = []
    for finding in findings:
        if quiet and finding.state == "good":
            continue
        lines.append(f"{finding.state:<6}{finding.subject:<18}{finding.observed}")
        if finding.remedy:
            lines.append(f"{'':<24}{finding.remedy}")
    warned = sum(finding.state == "warn" for finding in findings)
    lines.append(f"{broken} to mend, {warned} warned, {len(findings) - broken - warned} good")
    content = {"ok": not broken, "findings": [finding.to_dict() for finding in findings]}
    return content, "\n".join(lines), _ENVIRONMENT if broken else 0
