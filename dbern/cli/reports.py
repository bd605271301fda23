"""``dbern report`` and ``dbern export``: what others are told about a release or a budget."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dbern.cli.output import common
from dbern.cli.output import report as print_result
from dbern.errors import ReleaseError


@click.command()
@click.argument("synopsis_path", metavar="[SYNOPSIS]", required=False, type=click.Path())
@click.option("--ledger", "url", metavar="URL", help="Report on budgets over time instead.")
@click.option("--dataset", metavar="NAME", help="With --ledger: only this one.")
@click.option(
    "--out",
    metavar="FILE.html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where it goes; a file that is there is replaced.  [default: SYNOPSIS's name, or "
    "budgets.html]",
)
@common
def report(
    synopsis_path: str | None,
    url: str | None,
    dataset: str | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write one HTML file about a synopsis or about budgets.

    It holds everything it shows: it opens anywhere, and asks for nothing from the network.
    """
    del quiet
    if (synopsis_path is None) == (url is None):
        raise click.UsageError("write either a SYNOPSIS or --ledger URL")
    if dataset is not None and url is None:
        raise click.UsageError("--dataset: write --ledger URL with it")
    if url is not None:
        page, target = _budgets(url, dataset), out or Path("budgets.html")
    else:
        page, name = _synopsis(str(synopsis_path)), Path(str(synopsis_path)).resolve().stem
        target = out or Path(f"{name}.html")
    write_whole(target, page, "--out")
    print_result({"report": str(target)}, f"wrote {target}", as_json=as_json)


@click.command()
@click.argument("synopsis_path", metavar="SYNOPSIS", type=click.Path())
@click.option(
    "--out",
    metavar="FILE.yaml",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where it goes; a file that is there is replaced.  [default: stdout]",
)
@common
def export(synopsis_path: str, out: Path | None, as_json: bool, quiet: bool) -> None:
    """Describe a release in the form of the DP deployments registry.

    What a synopsis knows is filled in; what only its publisher knows is left empty, and named.
    """
    from dbern.reporting.registry import as_yaml, blanks, deployment_of
    from dbern.synopsis.reader import open_synopsis

    content = deployment_of(open_synopsis(synopsis_path).metadata)
    if out is not None:
        write_whole(out, as_yaml(content), "--out")
    if not quiet:
        click.echo(f"to be filled in: {', '.join(blanks(content))}", err=True)
    text = as_yaml(content).rstrip() if out is None else f"wrote {out}"
    print_result(content, text, as_json=as_json)


def _synopsis(path: str) -> str:
    from dbern.reporting.html import synopsis_page
    from dbern.synopsis.reader import open_synopsis

    return synopsis_page(open_synopsis(path))


def _budgets(url: str, dataset: str | None) -> str:
    from dbern.ledger import BudgetLedger
    from dbern.reporting.budgets import ledger_page

    with BudgetLedger.open(url, read_only=True) as opened:
        return ledger_page(opened.status(dataset), opened.log(dataset), pending=opened.is_pending())


def write_whole(target: Path, text: str, option: str, mode: int | None = None) -> None:
    """Write the whole file or none of it; its permissions are `mode`, or those of the umask.

    Raises
    ------
    ReleaseError
        Where it cannot be written; `option` is what named it.
    """
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        if mode is not None:
            draft.chmod(mode)
        draft.replace(target)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ReleaseError(
            f"{option}: {target} cannot be written ({why}); write another path"
        ) from None
    finally:
        draft.unlink(missing_ok=True)
