"""Run a ``dbern`` command as a person would type it, and hear what it has to say."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from dbern.cli.main import run


def say(text: str, *, failed: bool = False) -> None:
    """Print a line; that a log's disk is full, or its reader gone, changes no exit code."""
    stream = sys.stderr if failed else sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError:  # what is left in the buffer would fail again as the interpreter ends
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def told(arguments: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Its exit code, and the object that it prints with ``--json``; empty where it printed none."""
    with redirect_stdout(StringIO()) as printed:
        code = run([*arguments, "--json"])
    return code, json.loads(printed.getvalue() or "{}")
