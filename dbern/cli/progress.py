"""Lines on stderr while a command runs: progress, notes, and what is logged, as JSON too."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast

import click

from dbern.errors import printable
from dbern.system import Progress, imports_told, silent

_LINE_SECONDS = 5.0


def tell(text: str) -> None:
    """Print a line on stderr; one that a closed terminal or a full disk refuses stops nothing."""
    with suppress(OSError):
        click.echo(printable(text, keep="\n\t"), err=True)


class JsonLines(logging.Handler):
    """Prints what is logged; lines before a release has an id hold null for it.

    Of other libraries only warnings are printed, and of these the text before values are filled
    in: what they quote is not ours to vouch for.
    """

    _installed: JsonLines | None = None

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(logging.ERROR if quiet else logging.INFO)
        self._release: dict[str, Any] = {"release_id": None}

    @classmethod
    def installed(cls) -> JsonLines | None:
        """Return the handler that a command of this process installed."""
        return cls._installed

    def install(self, *, here: bool) -> None:
        """Log here until `remove`, a cluster's client too if the release is not `here`."""
        from dbern.releasing.journal import logged_by

        logged_by(self, here=here)
        JsonLines._installed = self

    def remove(self) -> None:
        """Stop logging here."""
        logging.root.removeHandler(self)
        JsonLines._installed = None

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        fields: dict[str, Any] | None = getattr(record, "release", None)
        if fields is not None:
            self._release = {key: fields[key] for key in ("release_id", "release", "dataset")}
        elif record.levelno < logging.WARNING:
            return
        else:
            fields = {"event": "said", "message": str(record.msg)}
        self._print(record.levelname.lower(), {"logger": record.name, **fields})

    def failed(self, kind: str, message: str, code: int) -> None:
        """Print how the command failed."""
        self._print(
            "error", {"event": "failed", "error": kind, "message": message, "exit_code": code}
        )

    def _print(self, level: str, fields: dict[str, Any]) -> None:
        tell(json.dumps({"level": level, **self._release, **fields}))


@contextmanager
def imports_noted(*, silent: bool) -> Iterator[None]:
    """Note on stderr each module that a spec names, before its code runs."""

    def note(module: str, key: str) -> None:
        if not silent:
            tell(f"note: {key} runs the code of module {module}; a spec is trusted like a program")

    with imports_told(note):
        yield


log_format = click.option(
    "--log-format",
    type=click.Choice(["plain", "json"]),
    default="plain",
    show_default=True,
    help="json: one object a line on stderr, each with the release's id.",
)


@contextmanager
def shown_progress(quiet: bool, lines: str = "plain", *, here: bool = True) -> Iterator[Progress]:
    """Show a progress bar on a terminal, elsewhere a line every few seconds, or JSON lines."""
    if lines == "json":
        JsonLines(quiet=quiet).install(here=here)  # removed when a failure, too, was printed
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
        drawn = Console(file=cast(IO[str], _Vanishing(sys.stderr)))
        with Bars(*columns, console=drawn) as bars:
            tasks: dict[str, Any] = {}

            def update(stage: str, done: int, total: int) -> None:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=total)
                bars.update(tasks[stage], completed=done, total=total)

            yield update


class _Vanishing:
    """A terminal that may be closed under way: what is drawn then is lost, and stops nothing."""

    def __init__(self, terminal: IO[str]) -> None:
        self._terminal = terminal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._terminal.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._terminal.flush()


def _plain_lines() -> Progress:
    started = last = time.monotonic()

    def update(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        waits = done == 0  # for someone else, and nobody knows how long
        if waits or (done >= total and now - started > 1) or now - last > _LINE_SECONDS:
            last = now
            tell(f"{stage}: {done} of {total}")

    return update
