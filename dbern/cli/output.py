"""What commands print: results to stdout, progress and errors to stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from dbern.cli.lines import JsonLines
from dbern.progress import Progress, silent

_LINE_SECONDS = 5.0

_Command = TypeVar("_Command", bound=Callable[..., Any])


def common(command: _Command) -> _Command:
    """Add the options that every command has."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout."),
        click.option("--quiet", is_flag=True, help="Print results and errors only."),
    ):
        command = option(command)
    return command


def report(content: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print a result as one JSON object or as text."""
    click.echo(json.dumps(content, indent=1) if as_json else text)


log_format = click.option(
    "--log-format",
    type=click.Choice(["plain", "json"]),
    default="plain",
    show_default=True,
    help="json: one object a line on stderr, each with the release's id.",
)


@contextmanager
def shown_progress(quiet: bool, lines: str = "plain") -> Iterator[Progress]:
    """A progress bar on a terminal, a plain line every few seconds elsewhere, or JSON lines."""
    if lines == "json":
        JsonLines(quiet=quiet).install()  # removed when the command's failure, too, was printed
        yield silent
    elif quiet:
        yield silent
    elif not sys.stderr.isatty():
        yield _plain_lines()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Bars(*columns, console=Console(stderr=True)) as bars:
            tasks: dict[str, Any] = {}

            def update(stage: str, done: int, total: int) -> None:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=total)
                bars.update(tasks[stage], completed=done, total=total)

            yield update


def _plain_lines() -> Progress:
    started = last = time.monotonic()

    def update(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if (done >= total and now - started > 1) or now - last > _LINE_SECONDS:
            last = now
            click.echo(f"{stage}: {done} of {total}", err=True)

    return update
