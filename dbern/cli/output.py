"""Results of commands: on stdout, as text or as JSON, or in a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from inspect import signature
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from dbern.cli.progress import tell
from dbern.data.drafts import draft_of
from dbern.errors import DbernError, EnvironmentRefusedError, printable, unreadable_refused

DETAILS = click.option("--details", is_flag=True, help="Print all that there is to say.")
MORE = "    (more: --details)"
SYNOPSIS = click.argument("synopsis_path", metavar="SYNOPSIS", type=click.Path())


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
                with stdout_refusals():
                    click.echo(plain)
        except DbernError as error:
            if not any(code):
                raise
            tell(f"dbern: {error}")  # what the command itself says of its end counts more
        return code[0] if code else 0

    return printed


def parsed(read: Callable[[str], Any]) -> Callable[..., Any]:
    """Return a click callback that reads an option's text, where it is given."""
    return lambda _context, _parameter, value: None if value is None else read(value)


@contextmanager
def stdout_refusals() -> Iterator[None]:
    """Report a result that a full disk under stdout does not take."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read it has enough, as `head` does; click ends in silence
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
    """Write what the encoding of stdout or stderr lacks, such as latin-1, as ``\\u2264``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def close_quietly() -> None:
    """Drop what a full disk or a reader that has gone refused, so that the exit code stays.

    What is left in a buffer is tried again as the interpreter ends, which then ends with 120.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):  # none: it was closed before
        try:
            stream.flush()
        except OSError:
            with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())  # of a file; a caller's stream has none
