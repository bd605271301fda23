"""Output of commands: results on stdout or in a file, lines on stderr meanwhile; as JSON too."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from inspect import signature
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, cast

import click

from dbern.data.drafts import draft_of
from dbern.errors import DbernError, EnvironmentRefusedError, printable, unreadable_refused
from dbern.system import Progress, imports_told, silent

DETAILS = click.option("--details", is_flag=True, help="Print all that there is to say.")
MORE = "    (more: --details)"
SYNOPSIS = click.argument("synopsis_path", metavar="SYNOPSIS", type=click.Path())
_LINE_SECONDS = 5.0
log_format = click.option(
    "--log-format",
    type=click.Choice(["plain", "json"]),
    default="plain",
    show_default=True,
    help="json: one object a line on stderr, each with the release's id.",
)


def common(command: Callable[..., tuple[Any, ...] | None]) -> Callable[..., int]:
    """Add the options that every command has, and print what it returns.

    A command returns its result as JSON values and as text, and may return an exit code
    after them. It is given `quiet` or `as_json` where it has a parameter of that name.
    """
    parameters = signature(command).parameters

    @click.option("--quiet", is_flag=True, help="Print results and errors only.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
    @wraps(command)
    def printed(quiet: bool, as_json: bool, **arguments: Any) -> int:
        flags = {"quiet": quiet, "as_json": as_json}
        arguments |= {name: value for name, value in flags.items() if name in parameters}
        store = arguments.get("synopsis_path")
        with unreadable_refused(store) if store else nullcontext():
            content, text, *code = command(**arguments) or (None, "")
        plain = json.dumps(content, indent=1) if as_json else printable(text, keep="\n\t")
        try:
            if content is not None:
                with check_stdout():
                    click.echo(plain)
        except DbernError as error:
            if not any(code):
                raise
            print_line(f"dbern: {error}")  # the command's own exit code counts more
        return code[0] if code else 0

    return printed


def parse_with(read: Callable[[str], Any]) -> Callable[..., Any]:
    """Return a click callback that reads an option's text, where it is given."""
    return lambda _context, _parameter, value: None if value is None else read(value)


@contextmanager
def check_stdout() -> Iterator[None]:
    """Report a result that a full disk under stdout does not take."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader has enough, as `head`; click ends silently
    except OSError as error:
        raise DbernError(
            f"the result cannot be printed ({error.strerror}), and what was asked is done. "
            "Free space, or write to another place, before you ask for more"
        ) from None


def write_file(target: Path, content: str | bytes, option: str, mode: int | None = None) -> None:
    """Write all of a file or none of it; its permissions are `mode`, or those of the umask."""
    try:
        with draft_of(target) as draft:
            if mode is not None:
                draft.chmod(mode)
            draft.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise EnvironmentRefusedError(
            f"{option}: {target} cannot be written ({reason}). Write a path in a folder that "
            "exists and is writable"
        ) from None


def escape_unencodable() -> None:
    """Write characters that the encoding of stdout or stderr lacks as ``\\u2264``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def close_quietly() -> None:
    """Drop output that a full disk or a closed pipe refused, so that the exit code stays.

    Otherwise the interpreter writes its buffers again as it ends, fails, and exits with 120.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where it was closed before
        try:
            stream.flush()
        except OSError:
            with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())  # a caller's stream has no number


def print_line(text: str) -> None:
    """Print a line on stderr; ignore a closed terminal or a full disk."""
    with suppress(OSError):
        click.echo(printable(text, keep="\n\t"), err=True)


class JsonLines(logging.Handler):
    """Handler that prints log records as JSON; `release_id` is null until a release has one.

    Records of other libraries are printed from warnings on, as their text before values are filled
    in: the values may be private.
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
        """Log to this handler until `remove`; the cluster's client too, if not `here`."""
        from dbern.run.journal import logged_by

        logged_by(self, here=here)
        JsonLines._installed = self

    def remove(self) -> None:
        """Stop logging to this handler."""
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

    def print_failure(self, kind: str, message: str, code: int) -> None:
        """Print how the command failed."""
        fields = {"event": "failed", "error": kind, "message": message, "exit_code": code}
        self._print("error", fields)

    def _print(self, level: str, fields: dict[str, Any]) -> None:
        print_line(json.dumps({"level": level, **self._release, **fields}))


@contextmanager
def note_imports(*, silent: bool) -> Iterator[None]:
    """Note on stderr each module that a spec names, before its code runs."""

    def note(module: str, key: str) -> None:
        if not silent:
            run = f"{key} runs the code of module {module}"
            print_line(f"note: {run}; a spec is trusted like a program")

    with imports_told(note):
        yield


@contextmanager
def show_progress(quiet: bool, lines: str = "plain", *, here: bool = True) -> Iterator[Progress]:
    """Show a progress bar on a terminal, elsewhere a line every few seconds, or JSON lines."""
    if lines == "json":
        JsonLines(quiet=quiet).install(here=here)  # main removes it after it prints a failure
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
        console = Console(file=cast(IO[str], _ClosableTerminal(sys.stderr)))
        with Bars(*columns, console=console) as bars:
            tasks: dict[str, Any] = {}

            def update(stage: str, done: int, total: int) -> None:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=total)
                bars.update(tasks[stage], completed=done, total=total)

            yield update


class _ClosableTerminal:
    """A terminal that may be closed during the command: later drawings are lost, no error."""

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
        waits = done == 0  # a wait of unknown length
        if waits or (done >= total and now - started > 1) or now - last > _LINE_SECONDS:
            last = now
            print_line(f"{stage}: {done} of {total}")

    return update
