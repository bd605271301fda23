"""A process that may use too little ends in one sentence and exit code 4, not in a traceback."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from dbern.errors import shortage_of


def raised_from(error, cause):
    error.__cause__ = cause
    return error


FEW = {
    "memory": [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("lib.so: failed to map segment from shared object"),
    ],
    "files": [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENFILE, "Too many open files in system"),
        raised_from(RuntimeError("Worker failed to start."), OSError(errno.EMFILE, "Too many")),
    ],
    "threads": [RuntimeError("can't start new thread")],
}
CASES = [(what, error) for what, errors in FEW.items() for error in errors]


@pytest.mark.parametrize(("what", "error"), CASES)
def test_exhausted_resources_are_named(project, run, monkeypatch, what, error):
    project.spec()

    def fail(*_):
        raise error

    monkeypatch.setattr("dbern.planning.planner.plan", fail)
    ran = run("plan", str(project.spec_path))
    assert ran.code == 4
    assert ran.err.count("\n") == 1
    assert {"memory": "memory", "files": "files are open", "threads": "threads"}[what] in ran.err
    assert "Raise the limit" in ran.err


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "no"), RuntimeError("other"), ImportError("no module")]
)
def test_other_failures_are_not_taken_for_that(error):
    assert shortage_of(error) is None


@pytest.mark.slow
def test_libraries_are_not_loaded_where_they_would_try_for_ever():
    """OpenBLAS asks again and again for memory that it does not get."""
    code = (
        "import resource, sys; from dbern.cli.main import run\n"
        "resource.setrlimit(resource.RLIMIT_AS, (400 << 20, resource.RLIM_INFINITY))\n"
        "sys.exit(run(sys.argv[1:]))"
    )
    for arguments, expected in [(["doctor"], 4), (["release", "r.toml"], 4), (["-h"], 0)]:
        command = [sys.executable, "-c", code, *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == expected
        assert ran.stderr.count("\n") == (expected > 0)
        assert ("400 MiB of addresses (ulimit -v) are too little memory" in ran.stderr) == (
            expected > 0
        )


@pytest.mark.sample(verify=2)
@pytest.mark.slow
@pytest.mark.parametrize("files", [12, 16, 32, 64])
def test_few_open_files_are_enough_or_said(project, files):
    code = (
        "import resource, sys; from dbern.cli.main import run\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\n"
        "sys.exit(run(sys.argv[1:]))"
    )
    project.spec()
    command = [sys.executable, "-c", code, "release", str(project.spec_path), "--quiet"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode in (0, 4), ran.stderr
    if ran.returncode == 4:
        last = ran.stderr.splitlines()[-1]
        assert last.startswith("dbern: ")
        # Files are open, or of the ledger: Too many open files. SQLite says no more than that it
        # cannot open its own.
        assert "oo many" in last or "unable to open database file" in last
