"""``dbern report`` and ``dbern change``: pages and pictures of releases and budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dbern.cli.output import common, write_file


@click.command("report")
@click.argument("synopsis_path", metavar="[SYNOPSIS]", required=False, type=click.Path())
@click.option("--ledger", "url", metavar="URL", help="Report on budgets over time instead.")
@click.option("--dataset", metavar="NAME", help="With --ledger: only this one.")
@click.option(
    "--out",
    metavar="FILE.html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; one that exists is replaced.  [default: SYNOPSIS's name, or budgets.html]",
)
@common
def write_report(
    synopsis_path: str | None, url: str | None, dataset: str | None, out: Path | None
) -> tuple[Any, str]:
    """Write one HTML file about a synopsis or about budgets.

    The file holds everything it shows. It opens offline.
    """
    if (synopsis_path is None) == (url is None):
        raise click.UsageError("write either a SYNOPSIS or --ledger URL")
    if dataset is not None and url is None:
        raise click.UsageError("--dataset: write --ledger URL with it")
    if url is not None:
        from dbern.ledger import BudgetLedger
        from dbern.report.budgets import ledger_page

        with BudgetLedger.open(url, read_only=True) as ledger:
            accounts, log = ledger.status(dataset), ledger.log(dataset)
            page = ledger_page(accounts, log, pending=ledger.is_pending())
        target = out or Path("budgets.html")
    else:
        from dbern.report.page import synopsis_page
        from dbern.synopsis.opening import open_synopsis
        from dbern.system import one_thread

        with one_thread():  # a page's last bit is the same on every machine, as a plan's
            page = synopsis_page(open_synopsis(str(synopsis_path)))
        target = out or Path(f"{Path(str(synopsis_path)).resolve().stem}.html")
    write_file(target, page, "--out")
    return {"report": str(target)}, f"wrote {target}"


@click.command("change")
@click.argument("new_path", metavar="NEW", type=click.Path())
@click.argument("old_path", metavar="OLD", type=click.Path())
@click.option(
    "--out",
    default="change.png",
    show_default=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Picture to write, .png, .svg or .pdf; one that exists is replaced.",
)
@click.option(
    "--beta",
    default="0.05",
    show_default=True,
    help="One minus the confidence that all is true that is in colour.",
)
@common
def draw_change(new_path: str, old_path: str, out: Path, beta: str) -> tuple[Any, str]:
    """Draw where two releases surely differ.

    A map of two axes, or a curve of one: NEW less OLD, in colour where the bands of both prove that
    there is more or less, all at once, and pale elsewhere. Both are densities, or regressions, of
    the same axes, bounds and bandwidth.
    """
    from dbern.report.changes import ProvenShares, change_between, change_picture
    from dbern.report.pictures import value_name
    from dbern.synopsis.opening import open_synopsis

    kind = out.suffix[1:]
    if kind not in ("png", "svg", "pdf"):
        raise click.UsageError(f"--out: {out.name} is no picture. Write one such as change.png")
    new = open_synopsis(new_path)
    change = change_between(new, open_synopsis(old_path), beta)
    write_file(out, change_picture(change, kind, value_name(new)), "--out")
    shares = ProvenShares.of(change)
    content = {"picture": str(out), "beta": beta, "more": shares.more, "less": shares.less}
    text = f"wrote {out}: {', '.join(shares.labels.values())}"
    rows = {name: change.attrs[name] for name in ("new_rows", "old_rows") if name in change.attrs}
    if len(rows) == 2:
        counts = f"{rows['new_rows']:,} rows of the new and {rows['old_rows']:,} of the old one"
        text += f"\nabout {counts.replace(',', ' ')} had a value"
    return content | rows, text
