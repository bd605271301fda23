"""``dbern plan`` and ``dbern release``."""

from __future__ import annotations

import click

from dbern.cli.output import common, report, shown_progress

_SPEC = click.argument("spec_path", metavar="SPEC", type=click.Path(dir_okay=False))
_PARTITION = click.option(
    "--partition", metavar="P", help="Replace {partition} in the spec's name, output and source."
)


@click.command()
@_SPEC
@_PARTITION
@common
def plan(spec_path: str, partition: str | None, as_json: bool, quiet: bool) -> None:
    """Show what a release would do and cost; no record is read, nothing is charged."""
    del quiet
    from dbern.planning import plan as make_plan
    from dbern.spec import ReleaseSpec

    planned = make_plan(ReleaseSpec.load(spec_path, partition=partition))
    report(planned.to_dict(), planned.explain(), as_json=as_json)


@click.command()
@_SPEC
@_PARTITION
@click.option("--scheduler", metavar="ADDRESS", help="Use this Dask cluster, as tcp://host:8786.")
@common
def release(
    spec_path: str, partition: str | None, scheduler: str | None, as_json: bool, quiet: bool
) -> None:
    """Publish a release and charge it once; run it again to go on after any interruption."""
    from dbern.releasing import release as publish
    from dbern.spec import ReleaseSpec

    spec = ReleaseSpec.load(spec_path, partition=partition)
    with shown_progress(quiet) as progress:
        out = publish(spec, scheduler=scheduler, progress=progress)
    content = {
        "url": out.url,
        "name": spec.release.name,
        "charge": str(out.charge),
        "notes": list(out.notes),
    }
    lines = [*(f"note: {note}" for note in out.notes), f"released {out.url} for {out.charge}"]
    report(content, "\n".join(lines), as_json=as_json)
