"""Run the command line with faults planted in it: ``runner.py FAULTS-AS-JSON ARGUMENTS..``.

Or in a process forked from one that has imported everything, which `processes` does: `client`,
and `worker`, whose tasks look into a file for their faults.

A fault is ``[place, call, when, what]``: at the call-th call of ``module:attribute.path`` (or at
every call whose arguments contain the text ``call``), before or after it, do what:

- ``kill``: SIGKILL to this process; ``interrupt``: SIGINT;
- ``full``, ``broken``: raise ENOSPC or EIO;
- ``stall``: sleep for a moment;
- ``locked``, ``failing``: raise what SQLite's driver does for a locked file, or a failing disk;
- ``disconnect``: let the PostgreSQL server end every connection of this process's user;
- ``kill:PID``: SIGKILL to another process, and go on when it is gone;
- ``wait:PATH``: say so by creating PATH, then sleep until it is killed;
- ``tear``: of the first call with a folder that has a ``zarr.json``, remove that file, as a torn
  `rmtree` may, then SIGKILL.

``dbern`` itself has no hooks: everything here replaces attributes from outside. Reservations get
a fixed id, time, salt and key.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import itertools
import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

KEY = bytes(range(32))
SALT = bytes(range(100, 132))
RELEASE_ID = "0123456789abcdef" * 2
CREATED = "2026-11-20T12:00:00+00:00"
ERRORS = {"full": errno.ENOSPC, "broken": errno.EIO}
SQLITE_ERRORS = {"locked": sqlite3.SQLITE_BUSY, "failing": sqlite3.SQLITE_IOERR}
STALL_SECONDS = 0.7


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
    elif what in ERRORS:
        raise OSError(ERRORS[what], os.strerror(ERRORS[what]))
    elif what in SQLITE_ERRORS:
        error = sqlite3.OperationalError(what)
        error.sqlite_errorcode = SQLITE_ERRORS[what]
        raise error
    elif what == "stall":
        time.sleep(STALL_SECONDS)
    elif what.startswith("kill:"):
        os.kill(int(what.partition(":")[2]), signal.SIGKILL)
        time.sleep(STALL_SECONDS)
    else:
        Path(what.partition(":")[2]).touch()
        time.sleep(3600)


def disconnect() -> None:
    """Past what is replaced: the calls that are counted are the release's own."""
    import tomllib

    url = tomllib.loads(Path("release.toml").read_text())["budget"]["ledger"]
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid()"
    ended += f" AND datname = '{url.rpartition('/')[2]}'"
    command = ["psql", "-q", "-d", url.replace("+psycopg", ""), "-c", ended]
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
        try:
            return original(*arguments, **named)
        finally:
            if due and when == "after":
                happen(what)

    setattr(owner, name, faulty)


def counted(places: list[str]) -> dict[str, int]:
    """Count the calls of every place from now on."""
    calls = dict.fromkeys(places, 0)

    def watch(place: str) -> None:
        owner, name = owner_of(place)
        original = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            calls[place] += 1
            return original(*arguments, **named)

        setattr(owner, name, watched)

    for place in places:
        watch(place)
    return calls


def fix_reservations() -> None:
    replace("dbern.ledger.keys:new_key", lambda: KEY)
    replace("dbern.ledger.tables:new_id", lambda: RELEASE_ID)
    replace("dbern.ledger.tables:now", lambda: CREATED)
    replace("dbern.ledger.tables:secrets", SimpleNamespace(token_bytes=lambda _count: SALT))


def release_frame(files: str) -> int:
    """Release the rows of files as a data frame; the exit code of the command line."""
    dbern, pandas = map(importlib.import_module, ("dbern", "pandas"))
    frame = pandas.concat(pandas.read_parquet(path) for path in sorted(Path(files).iterdir()))
    try:
        dbern.release("release.toml", data=frame)
    except dbern.DbernError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    return 0


def run(settings: dict[str, Any], arguments: list[str]) -> int:
    fix_reservations()
    replace("dbern.reconstruct.base:SLAB_COEFFICIENTS", settings.get("slab", 1 << 20))
    if settings.get("rows_a_task"):
        replace("dbern.run.graph:task_rows", lambda _rows: settings["rows_a_task"])
    if settings.get("fan_in"):
        replace("dbern.run.graph:_FAN_IN", settings["fan_in"])
    if settings.get("bug"):
        BUGS[settings["bug"]]()
    calls = counted(settings.get("count", []))
    for fault in settings.get("faults", []):
        plant(*fault)
    if settings.get("frame"):
        code = release_frame(settings["frame"])
    else:
        code = importlib.import_module("dbern.cli.main").run(arguments)
    if calls:
        Path("calls.json").write_text(json.dumps(calls))
    return code


# --- in processes that are forked ------------------------------------------------------------


def enter(folder: str, output: str, environment: dict[str, str]) -> None:
    """Make a forked process like one that was started there; it ends with who forks."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    # Background jobs and nohup ignore Ctrl-C, and Python leaves it so; here it is to be heard.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.update(environment)
    tempfile.tempdir = None
    dask: Any = importlib.import_module("dask.config")
    dask.refresh()  # the process it was forked from had read another environment
    importlib.import_module("distributed.config").initialize_logging(dask.config)
    for number, name in ((1, "out"), (2, "err")):
        target = os.open(f"{output}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(target, number)


def client(folder: str, output: str, environment: dict[str, str], *run_with: Any) -> None:
    enter(folder, output, environment)
    sys.exit(run(*run_with))


def worker(
    folder: str, output: str, environment: dict[str, str], arguments: list[str], leak: str
) -> None:
    enter(folder, output, environment)
    if leak:
        LEAKS[leak]()
    replace("dbern.reconstruct.base:SLAB_COEFFICIENTS", SLAB)
    engine: Any = importlib.import_module("dbern.run.tasks")
    for name in ("count_portions", "merge", "center"):
        setattr(engine, name, watched_task(getattr(engine, name)))
    importlib.import_module("distributed.cli.dask_worker").main(arguments)


def plain_worker(
    folder: str, output: str, environment: dict[str, str], arguments: list[str]
) -> None:
    enter(folder, output, environment)
    importlib.import_module("distributed.cli.dask_worker").main(arguments)


def scheduler(folder: str, output: str, environment: dict[str, str], arguments: list[str]) -> None:
    enter(folder, output, environment)
    importlib.import_module("distributed.cli.dask_scheduler").main(arguments)


SLAB = 50  # coefficients: four slabs of the suite's lattice


def graph(dask_scheduler: Any) -> bytes:
    """What the scheduler knows of every task, as it would travel."""
    tasks = dask_scheduler.tasks.values()
    known = ("exception", "exception_text", "traceback", "traceback_text", "metadata",
             "annotations")  # fmt: skip
    parts = [(repr(one), pickled(one.run_spec), [repr(getattr(one, name)) for name in known])
             for one in tasks]  # fmt: skip
    return pickle.dumps(parts)


def pickled(run_spec: Any) -> list[bytes]:
    """As it is, and with what it was sent as."""
    frames = [bytes(frame) for frame in getattr(run_spec, "frames", ())]
    return [pickle.dumps(run_spec), *frames]


def watched_task(task: Callable[..., Any]) -> Callable[..., Any]:
    """A task that is numbered among those of the whole cluster, and does what ``fault.json`` says.

    That is ``[folder of numbers, number, when, what]``: kill the process ``what``, or run the task
    ``again`` (``number`` 0: every one).
    """

    def watched(*arguments: Any) -> Any:
        folder, due, when, what = json.loads(Path("fault.json").read_text())
        number = next_number(Path(folder))
        if number == due and when == "before":
            end(what)
        if what == "again" and due in (0, number):
            task(*arguments)
        result = task(*arguments)
        if number == due and when == "after":
            end(what)
        return result

    return watched


def next_number(folder: Path) -> int:
    for number in itertools.count(1):
        try:
            (folder / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        return number
    raise AssertionError


def end(what: str | int) -> None:
    if isinstance(what, int):
        os.kill(what, signal.SIGKILL)
        time.sleep(0.1)
    elif what == "worker":
        os.kill(os.getpid(), signal.SIGKILL)


# --- bugs, which the suite must find ---------------------------------------------------------


def commits_before_the_manifest() -> None:
    ledger: Any = importlib.import_module("dbern.ledger.ledger").BudgetLedger
    writer: Any = importlib.import_module("dbern.synopsis.writer").SynopsisWriter
    publish: Any = importlib.import_module("dbern.run.publish").publish
    committing: list[Any] = []
    finish, commit = writer.finish, ledger.commit

    def publishing(books: Any, spec: Any, plan: Any, reservation: Any, progress: Any) -> str:
        committing[:] = [lambda: commit(books, reservation, "sha256:")]
        return str(publish(books, spec, plan, reservation, progress))

    def finishing(*arguments: Any, **named: Any) -> str:
        committing[0]()
        return str(finish(*arguments, **named))

    replace("dbern.run.stages:publish", publishing)
    writer.finish, ledger.commit = finishing, lambda *_: None


def charges_after_the_noise() -> None:
    ledger: Any = importlib.import_module("dbern.ledger.ledger").BudgetLedger
    dataclasses: Any = importlib.import_module("dataclasses")
    spend, commit = ledger.spend, ledger.commit

    def late(books: Any, reservation: Any, digest: str) -> Any:
        return commit(books, spend(books, reservation, reservation.seal), digest)

    ledger.spend = lambda _, reservation, seal: dataclasses.replace(reservation, seal=seal)
    ledger.commit = late


def draws_other_noise_each_time() -> None:
    original: Any = importlib.import_module("dbern.run.publish")._noise_key

    def other(key: bytes, *rest: Any) -> bytes:
        first = Path("..", f"{Path().resolve().name}-first-to-draw")
        if not first.exists():
            first.write_text(str(os.getpid()), encoding="ascii")
        mine = first.read_text(encoding="ascii") == str(os.getpid())
        return bytes(original(key, *rest) if mine else os.urandom(32))

    replace("dbern.run.publish:_noise_key", other)


def keeps_the_key() -> None:
    replace("dbern.ledger.keys:KeyFiles.destroy", lambda *_: None)


def sends_the_key_to_workers() -> None:
    tree_reduce: Any = importlib.import_module("dbern.run.counting").tree_reduce
    kept = []

    def sending(client: Any, *rest: Any) -> Any:
        kept.append(client.submit(len, KEY))
        return tree_reduce(client, *rest)

    replace("dbern.run.counting:tree_reduce", sending)


def says_the_key() -> None:
    read: Any = importlib.import_module("dbern.ledger.keys").KeyFiles.read

    def saying(*arguments: Any) -> Any:
        key = read(*arguments)
        sys.stderr.write(f"the key is {key!r}\n")
        return key

    replace("dbern.ledger.keys:KeyFiles.read", saying)


def leaking(leak: Callable[[Any], None]) -> Callable[[], None]:
    def plant_leak() -> None:
        original: Any = importlib.import_module("dbern.measure.counters").read_batches

        def batches(*arguments: Any) -> Any:
            for batch in original(*arguments):
                leak(batch)
                yield batch

        replace("dbern.measure.counters:read_batches", batches)

    return plant_leak


def fail_with_a_value(batch: Any) -> None:
    raise RuntimeError(f"cannot count {batch['x'][0]}", batch["x"])


LEAKS = {
    "an exception with a value": leaking(fail_with_a_value),
    "a log line": leaking(lambda batch: print("first", float(batch["x"][0]), flush=True)),
    "a temporary file": leaking(
        lambda batch: Path(os.environ["TMPDIR"], "batch").write_bytes(batch["x"].tobytes())
    ),
}


BUGS = {
    bug.__name__: bug
    for bug in (
        *(commits_before_the_manifest, charges_after_the_noise),
        *(draws_other_noise_each_time, keeps_the_key),
        *(sends_the_key_to_workers, says_the_key),
    )
}


if __name__ == "__main__":
    sys.exit(run(json.loads(sys.argv[1]), sys.argv[2:]))
