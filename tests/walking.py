"""Which files of the package a thing passes on its way; run as ``python -m walking``.

A file counts where a function of it ran: bodies of modules and classes do not count, and all
modules are imported before. Each walk is one of a fork of the process that imported them, and ends
with a line of JSON: its name and the files'.

`plan`
    Files run by ``dbern plan`` of a density.
`record`
    Files run inside counting, merging, rounding and noising tasks (`TASKS`), from a file's bytes to
    a noised integer.
`epsilon`
    Files with a function that is given a plain value, by its caller or by what it calls, or gives
    one back, which differs when the spec's epsilon does and nothing else: from the spec's text to
    the noise's law. Plain are numbers, texts but files' names, and tuples and dataclasses of such;
    not truth values.
`bandwidth`
    The same of the bandwidth, from the spec over plan and release to an answer; plain are numbers,
    arrays, and tuples and dataclasses of such.
"""

from __future__ import annotations

import functools
import gc
import json
import multiprocessing
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import CO_OPTIMIZED
from numbers import Number
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from goldens.cases import Case, points, write
from goldens.recording import SEEN, client, intercept

TASKS = (
    "dbern.cluster.graph:count",
    "dbern.cluster.graph:merge",
    "dbern.cluster.graph:center",
    "dbern.privacy.mechanism:privatize",
)
"""From a record to a noised integer: where these functions are now."""

Event = Callable[[str, FrameType, Any], None]


def of_the_package(code: CodeType) -> bool:
    """Whether it is a function's, of a file of the package."""
    return bool(code.co_flags & CO_OPTIMIZED) and code.co_filename.startswith(_inside())


@functools.cache
def _inside() -> str:
    import dbern  # once its draws are intercepted

    return str(Path(str(dbern.__file__)).parent)


@contextmanager
def traced(event: Event) -> Iterator[None]:
    """Tell of every call and return of the package's functions, in all threads from now on."""

    def profile(frame: FrameType, kind: str, value: Any) -> None:
        if kind in ("call", "return") and of_the_package(frame.f_code):
            event(kind, frame, value)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def name_of(code: CodeType) -> str:
    """A file's name within the package."""
    return code.co_filename.rpartition("/dbern/")[2]


def run_files(work: Callable[[], object]) -> set[str]:
    """Files of which a function runs."""
    found = set()

    def event(_kind: str, frame: FrameType, _value: Any) -> None:
        found.add(name_of(frame.f_code))

    with traced(event):
        work()
    return found


def run_inside(work: Callable[[], object], tasks: tuple[str, ...]) -> set[str]:
    """Files of which a function runs while one of the tasks does, in its thread."""
    codes = {}
    for task in tasks:
        module, _, name = task.partition(":")
        codes[getattr(import_module(module), name).__code__] = task
    found, entered = set(), set()
    depth = threading.local()

    def event(kind: str, frame: FrameType, _value: Any) -> None:
        here = getattr(depth, "value", 0)
        if frame.f_code in codes:
            entered.add(codes[frame.f_code])
            here = depth.value = here + (1 if kind == "call" else -1)
            found.add(name_of(frame.f_code))
        if here:
            found.add(name_of(frame.f_code))

    with traced(event):
        work()
    if entered != set(tasks):
        raise RuntimeError(f"never run: {set(tasks) - entered}; say where it is now")
    return found


class Carried:
    """What each function was given and gave back, of values that can be told apart."""

    def __init__(self, *, arrays: bool, texts: bool, law_ends: bool) -> None:
        self.arrays, self.texts, self.law_ends = arrays, texts, law_ends
        self.seen: dict[tuple[str, str], set[str]] = {}
        self.ended = False

    def __call__(self, kind: str, frame: FrameType, value: Any) -> None:
        if self.ended:
            return
        if kind == "return":
            values = [value]
            self._take(frame.f_back, values)  # who asked is given it
            self.ended = self.law_ends and hasattr(value, "granularity_exponent")
        else:
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            values = [frame.f_locals[name] for name in names if name in frame.f_locals]
        self._take(frame, values)

    def _take(self, frame: FrameType | None, values: list[Any]) -> None:
        plain = [one for one in map(self.plain, values) if one is not None]
        if plain and frame is not None and of_the_package(frame.f_code):
            key = name_of(frame.f_code), frame.f_code.co_qualname
            self.seen.setdefault(key, set()).add(repr(plain))

    def plain(self, value: Any, depth: int = 0) -> Any:
        """The value in a form that compares; None for what is not plain."""
        if isinstance(value, bool):  # such as whether a worker is still at work
            return None
        if isinstance(value, Number | np.generic):
            return repr(value)
        if isinstance(value, str):
            # Not a file's: which of several threads is the first with its file is chance.
            return value if self.texts and not value.startswith("/") else None
        if isinstance(value, np.ndarray):
            return value.tobytes() if self.arrays else None
        if depth > 1:
            return None
        if isinstance(value, tuple):
            found = [self.plain(one, depth + 1) for one in value]
            return found if found and None not in found else None
        if is_dataclass(value) and not isinstance(value, type):
            found = [self.plain(getattr(value, one.name), depth + 1) for one in fields(value)]
            return found if found and None not in found else None
        return None


def carriers(first: Carried, again: Carried, other: Carried) -> set[str]:
    """Files of functions whose values differ in the other, and are the same in the same again.

    How often and in which order values came does not matter.
    """
    keys = first.seen.keys() | other.seen.keys()
    differ = {key for key in keys if first.seen.get(key) != other.seen.get(key)}
    return {key[0] for key in differ if first.seen.get(key) == again.seen.get(key)}


def forget() -> None:
    """Empty all caches of the package's functions: what is kept is not computed."""
    for one in gc.get_objects():
        if type(one) is functools._lru_cache_wrapper and one.__module__.startswith("dbern"):
            one.cache_clear()


def case(epsilon: str = "1.0", bandwidth: float = 2.0, **mechanism: Any) -> Case:
    """A plain density; unless `mechanism` says otherwise its lattice is stated."""
    return Case(
        {
            "target": {"kind": "kernel-density", "bandwidth": [bandwidth]},
            "mechanism": {"k": 12, "h": 2, "noise": "laplace", **mechanism},
            "budget": {"epsilon": epsilon},
        }
    )


def begun(folder: Path, name: str, what: Case) -> Path:
    """A spec and a ledger that pays for it."""
    import dbern

    SEEN.begin("walk")
    spec, url = folder / f"{name}.toml", f"sqlite:///{folder / name}.db"
    spec.write_text(what.toml(f"{name}.db", f"{name}.zarr"))
    dbern.BudgetLedger.create(url)
    with dbern.BudgetLedger.open(url) as ledger:
        ledger.grant("trips", dbern.Budget.parse("3"))
    return spec


def walk_plan(folder: Path) -> set[str]:
    from importlib.metadata import entry_points

    (script,) = (one for one in entry_points(group="console_scripts") if one.name == "dbern")
    spec = begun(folder, "plan", case(k="auto", h="auto", noise="auto"))
    main, sys.argv = script.load(), ["dbern", "plan", str(spec)]

    def plan() -> None:
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise

    return run_files(plan)


def walk_record(folder: Path) -> set[str]:
    import dbern

    spec = dbern.ReleaseSpec.load(begun(folder, "record", case()))

    def work() -> None:
        with client() as connected:
            dbern.release(spec, client=connected)

    return run_inside(work, TASKS)


def walk_epsilon(folder: Path) -> set[str]:
    import dbern

    def carried(name: str, epsilon: str) -> Carried:
        spec, seen = (
            begun(folder, name, case(epsilon)),
            Carried(arrays=False, texts=True, law_ends=True),
        )
        forget()
        with traced(seen):
            dbern.plan(dbern.ReleaseSpec.load(spec))
        if not seen.ended:
            raise RuntimeError("no function gave a law back")
        return seen

    return carriers(carried("a", "1.0"), carried("b", "1.0"), carried("c", "0.7"))


def walk_bandwidth(folder: Path) -> set[str]:
    import dbern

    def carried(name: str, bandwidth: float) -> Carried:
        path, seen = (
            begun(folder, name, case(bandwidth=bandwidth)),
            Carried(arrays=True, texts=False, law_ends=False),
        )
        forget()
        with traced(seen), client() as connected:
            spec = dbern.ReleaseSpec.load(path)
            synopsis = dbern.release(spec, client=connected).synopsis
            synopsis(points([(0.0, 10.0)]))
        return seen

    return carriers(carried("a", 2.0), carried("b", 2.0), carried("c", 2.1))


WALKS = {
    "plan": walk_plan,
    "record": walk_record,
    "epsilon": walk_epsilon,
    "bandwidth": walk_bandwidth,
}


def walked(name: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        write(folder / "data")
        print(json.dumps([name, sorted(WALKS[name](folder))]), flush=True)


def main() -> None:
    intercept()
    fork = multiprocessing.get_context("fork")
    for name in sys.argv[1:] or WALKS:
        process = fork.Process(target=walked, args=(name,))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"the walk of {name} failed")


if __name__ == "__main__":
    main()
