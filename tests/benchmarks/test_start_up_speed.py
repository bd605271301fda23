"""What is there before any work: elapsed seconds of commands in processes of their own.

`make bench` asserts the limits and writes the table; as a test it runs once, so that it cannot rot.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from projects import Project, records
from timing import BENCH, Table, keep, seconds

LIMITS = {"dbern --help": 0.5, "import dbern": 1.0, "a small release": 3.0}


def ways(project: Project, executable: str) -> dict[str, Callable[[], object]]:
    numbers = itertools.count()

    def ran(*command: str) -> object:
        return subprocess.run(command, check=True, capture_output=True, cwd=project.folder)

    def released() -> object:
        """Another one each time, on a cluster of its own."""
        name = f"small-{next(numbers)}"
        project.spec(release={"name": name, "output": f"{name}.zarr"})
        return ran(executable, "release", "release.toml")

    return {
        "dbern --help": lambda: ran(executable, "--help"),
        "import dbern": lambda: ran(sys.executable, "-c", "import dbern"),
        "a small release": released,
    }


@pytest.mark.slow
def test_start_up(tmp_path: Path, executable: str) -> None:
    project = Project(tmp_path)
    project.write(records())
    project.grant("100")
    found = {name: seconds(way, clock=time.perf_counter)
             for name, way in ways(project, executable).items()}  # fmt: skip
    rows = {name: (spent, LIMITS[name]) for name, spent in found.items()}
    keep("start-up", Table("seconds, elapsed", ("dbern", "to reach"), rows))
    assert {path.name for path in project.folder.glob("*.zarr")} >= {"small-0.zarr", "small-1.zarr"}
    if BENCH:
        assert all(spent <= LIMITS[name] for name, spent in found.items()), found


if __name__ == "__main__":
    pytest.main([__file__, "-q", "-s", "-n0"])
