"""Run a ``dbern`` command as a person would type it, and hear what it has to say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from dbern.cli.main import run


def told(arguments: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Its exit code, and the object that it prints with ``--json``; empty where it printed none."""
    with redirect_stdout(StringIO()) as printed:
        code = run([*arguments, "--json"])
    return code, json.loads(printed.getvalue() or "{}")
