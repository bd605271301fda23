"""What is there before any work: commands in processes of their own.

The table holds elapsed seconds, and processor seconds beside those of `import numpy`, in turns with
it: these are asserted, for they hold on any machine and beside any other work. `make bench` asserts
the elapsed ones too and writes the table; as a test it runs once, so that it cannot rot.
"""

from __future__ import annotations

import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from projects import Project, records
from timing import BENCH, Table, keep, seconds, together

NUMPY = "import numpy"
OPENED = "opening and one point"
LIMITS = {  # elapsed seconds; times the processor's of `import numpy`
    "dbern --help": (0.5, 2.5),
    "import dbern": (1.0, 1.5),
    OPENED: (0.3, 6.0),
    "a small release": (1.5, 15.0),
    "dbern show": (1.0, 9.0),  # draws it and has a band, without xarray, on one thread
    "dbern ask": (1.0, 12.0),  # prints an interval, without xarray
}
ROWS = 10_000
OPEN = {"k": None, "h": None, "noise": None}
ASK = """if True:
    import sys, dbern, numpy
    dbern.open(sys.argv[1])(numpy.array([[5.0, 0.0]]))
"""
AGAIN = """if True:
    import sys, time, dbern, numpy
    dbern.open(sys.argv[1])  # which imports
    began = time.process_time()
    for _ in range(20):
        dbern.open(sys.argv[1])
    print((time.process_time() - began) / 20)
"""


def of_children() -> float:
    """Processor seconds of the processes that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def ways(project: Project, executable: str) -> dict[str, Callable[[], object]]:
    numbers = itertools.count()

    def ran(*command: str) -> object:
        return subprocess.run(command, check=True, capture_output=True, cwd=project.folder)

    def released() -> object:
        """Another one each time, on a cluster of its own."""
        name = f"small-{next(numbers)}"
        project.spec(release={"name": name, "output": f"{name}.zarr"}, mechanism=OPEN)
        return ran(executable, "release", "release.toml")

    released()
    return {
        NUMPY: lambda: ran(sys.executable, "-c", "import numpy"),
        "dbern --help": lambda: ran(executable, "--help"),
        "import dbern": lambda: ran(sys.executable, "-c", "import dbern"),
        OPENED: lambda: ran(sys.executable, "-c", ASK, "small-0.zarr"),
        "a small release": released,
        "dbern show": lambda: ran(executable, "show", "small-0.zarr"),
        "dbern ask": lambda: ran(executable, "ask", "small-0.zarr", "--mass", "x=1..3"),
    }


@pytest.mark.slow
def test_start_up(tmp_path: Path, executable: str) -> None:
    project = Project(tmp_path)
    project.write(records(ROWS), row_group_size=ROWS)
    project.grant("100")
    found = ways(project, executable)
    spent = dict(zip(found, together(*found.values(), clock=of_children), strict=True))
    beside = {name: spent[name] / spent[NUMPY] for name in LIMITS}
    elapsed = {
        name: seconds(found[name], clock=time.perf_counter) if BENCH else spent[name]
        for name in LIMITS
    }
    rows = {name: (elapsed[name], LIMITS[name][0], beside[name]) for name in LIMITS}
    keep("start-up", Table("seconds, elapsed", ("dbern", "to reach", "x numpy"), rows))
    assert all(beside[name] <= limit for name, (_, limit) in LIMITS.items()), beside
    if BENCH:
        assert all(elapsed[name] <= limit for name, (limit, _) in LIMITS.items()), elapsed


@pytest.mark.slow
@pytest.mark.parametrize("command", ["release", "ledger grant"])
def test_help_of_commands_costs_little(executable: str, command: str) -> None:
    ways = [[executable, *command.split(), "--help"], [sys.executable, "-c", NUMPY]]
    runs = [lambda way=way: subprocess.run(way, check=True, capture_output=True) for way in ways]
    helped, imported = together(*runs, clock=of_children)
    assert helped <= 2.5 * imported


@pytest.mark.slow
def test_opening_is_short_once_modules_are_there(tmp_path: Path, executable: str) -> None:
    project = Project(tmp_path)
    project.write(records())
    project.grant()
    project.spec()
    subprocess.run([executable, "release", "release.toml"], check=True, cwd=tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", AGAIN, "out.zarr"],
        check=True, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    (imported,) = together(
        lambda: subprocess.run([sys.executable, "-c", NUMPY], check=True), clock=of_children
    )
    print(f"\nopening {float(ran.stdout) / imported:.3f} of numpy, at most 0.2")
    assert float(ran.stdout) <= 0.2 * imported


if __name__ == "__main__":
    pytest.main([__file__, "-q", "-s", "-n0"])
