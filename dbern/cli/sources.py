"""``dbern inspect``: the schema of a source, and a spec begun from it."""

from __future__ import annotations

from pathlib import Path

import click

from dbern.cli.output import common, report


@click.command()
@click.argument("source", metavar="SOURCE")
@click.option("--rows", is_flag=True, help="Show row counts: n is public under replace-one.")
@click.option(
    "--spec",
    "spec_path",
    metavar="OUT.toml",
    type=click.Path(dir_okay=False),
    help="Begin a spec that leaves every public choice to you.",
)
@common
def inspect(source: str, rows: bool, spec_path: str | None, as_json: bool, quiet: bool) -> None:
    """Show columns and types of Parquet files. Never a value or a statistic."""
    del quiet
    from dbern.data.inspection import inspect_source, write_skeleton

    found = inspect_source(source)
    text = found.explain(rows=rows)
    if spec_path is not None:
        write_skeleton(found, Path(spec_path))
        text += f"\nbegan {spec_path}: choose what its TODOs name, then dbern plan {spec_path}"
    report(found.to_dict(rows=rows), text, as_json=as_json)
