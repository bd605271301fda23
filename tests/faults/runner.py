"""Run the command line with faults planted in it: ``runner.py FAULTS-AS-JSON ARGUMENTS..``.

A fault is ``[place, call, when, what]``: at the call-th call of ``module:attribute.path`` (or at
every call whose arguments contain the text ``call``), before or after it, do what:

- ``kill``: SIGKILL to this process; ``interrupt``: SIGINT;
- ``full``: raise ENOSPC;
- ``disconnect``: let the PostgreSQL server end every connection of this process's user;
- ``wait:PATH``: say so by creating PATH, then sleep;
- ``tear``: of the first call with a folder that has a ``zarr.json``, remove that file, as a torn
  `rmtree` may, then SIGKILL.

``dbern`` itself has no hooks: everything here replaces attributes from outside. Reservations get
a fixed id, time, salt and key.
"""

from __future__ import annotations

import errno
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

KEY = bytes(range(32))
SALT = bytes(range(100, 132))
RELEASE_ID = "0123456789abcdef" * 2
CREATED = "2026-11-20T12:00:00+00:00"


def owner_of(place: str) -> tuple[Any, str]:
    module, path = place.split(":")
    *outer, name = path.split(".")
    owner = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    return owner, name


def replace(place: str, value: Any) -> None:
    setattr(*owner_of(place), value)


def happen(what: str) -> None:
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
    elif what == "disconnect":
        disconnect()
    elif what == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    else:
        Path(what.partition(":")[2]).touch()
        time.sleep(60)


def disconnect() -> None:
    """Past what is replaced: the calls that are counted are the release's own."""
    import tomllib

    url = tomllib.loads(Path("release.toml").read_text())["budget"]["ledger"]
    name = url.rpartition("/")[2]
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid()"
    command = [
        "psql",
        "-q",
        "-d",
        url.replace("+psycopg", ""),
        "-c",
        f"{ended} AND datname = '{name}'",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def tear(folder: Path) -> None:
    if (folder / "zarr.json").exists():
        (folder / "zarr.json").unlink()
        happen("kill")


def plant(place: str, call: int | str, when: str, what: str) -> None:
    owner, name = owner_of(place)
    original = getattr(owner, name)
    calls = itertools.count(1)

    def faulty(*arguments: Any, **named: Any) -> Any:
        number = next(calls)
        due = number == call if isinstance(call, int) else call in str(arguments)
        if what == "tear":
            due = False
            tear(Path(arguments[0]))
        if due and when == "before":
            happen(what)
        result = original(*arguments, **named)
        if due and when == "after":
            happen(what)
        return result

    setattr(owner, name, faulty)


def fix_reservations() -> None:
    for module in ("keys", "wrapping"):
        replace(f"dbern.ledger.{module}:new_key", lambda: KEY)
    replace("dbern.ledger.rows:new_id", lambda: RELEASE_ID)
    replace("dbern.ledger.rows:now", lambda: CREATED)
    replace("dbern.ledger.rows:secrets", SimpleNamespace(token_bytes=lambda _count: SALT))


def main() -> None:
    settings = json.loads(sys.argv[1])
    fix_reservations()
    replace("dbern.bernstein.lattice:SLAB_COEFFICIENTS", settings.get("slab", 1 << 20))
    if settings.get("rows_a_task"):
        replace("dbern.engine:task_rows", lambda _rows: settings["rows_a_task"])
    for fault in settings["faults"]:
        plant(*fault)
    sys.argv[1:] = sys.argv[2:]
    command = importlib.import_module("dbern.cli.main")
    command.main()


if __name__ == "__main__":
    main()
