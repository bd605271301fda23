"""``dbern doctor``: does this installation hold what a release relies on."""

from __future__ import annotations

import click

from dbern.cli.output import common, report

_ENVIRONMENT = 4


@click.command()
@click.option("--ledger", "url", metavar="URL", help="Look at this ledger, as sqlite:///ledger.db.")
@click.option("--scheduler", metavar="ADDRESS", help="Look at this Dask cluster.")
@click.option(
    "--output", metavar="PATH", type=click.Path(), help="Where a synopsis is to go: path or URL."
)
@common
def doctor(
    url: str | None, scheduler: str | None, output: str | None, as_json: bool, quiet: bool
) -> int:
    """Check an installation and say what to mend.

    Reads no record and spends nothing. Looks at versions and the clock, and at what is named:
    permissions and locks of a ledger, or the way to its database; the file system or store of an
    output; transport, dashboards, versions and memory of a cluster. Exit code 4 if something must
    be mended before a release; warnings alone are 0.
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
    for one in findings:
        if quiet and one.state == "good":
            continue
        lines.append(f"{one.state:<6}{one.what:<18}{one.found}")
        if one.mend:
            lines.append(f"{'':<24}{one.mend}")
    warned = sum(finding.state == "warn" for finding in findings)
    lines.append(f"{broken} to mend, {warned} warned, {len(findings) - broken - warned} good")
    content = {"ok": not broken, "findings": [vars(finding) for finding in findings]}
    report(content, "\n".join(lines), as_json=as_json)
    return _ENVIRONMENT if broken else 0
