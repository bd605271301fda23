"""Commands that write one file, killed while they do: the next one leaves nothing of it."""

from __future__ import annotations

import itertools
import os
import signal

import numpy as np
import processes
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import runner
from projects import Project, records

import dbern

pytestmark = pytest.mark.slow

QUERY = ("query", "out.zarr", "queries.parquet", "--out", "written/answers.parquet")
REPORT = ("report", "out.zarr", "--out", "written/report.html")
TEXTFILE = ("metrics", "--ledger", "sqlite:///ledger.db", "--textfile", "written/ledger.prom")
WRITING = {QUERY: "pyarrow.parquet:ParquetWriter.write_table", REPORT: "pathlib:Path.write_bytes",
           TEXTFILE: "pathlib:Path.write_bytes"}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    made = Project(tmp_path_factory.mktemp("drafts"))
    made.write(records())
    made.grant()
    dbern.release(made.spec())
    draw = np.random.default_rng(0)
    asked = pa.table({"x": draw.uniform(0, 10, 100), "y": draw.uniform(-1, 1, 100)})
    pq.write_table(asked, made.folder / "queries.parquet")
    return made


class Written:
    """The folder that commands write to, and processes that do."""

    def __init__(self, project):
        self.project, self.folder = project, project.folder / "written"
        self.folder.mkdir()
        self.numbers, self.processes = itertools.count(), []
        processes.prepare()

    def start(self, command, *faults):
        output = self.project.folder / f"output-{next(self.numbers)}"
        process = processes.fork(
            runner.client, self.project.folder, output, {"faults": faults}, list(command)
        )
        self.processes.append(process)
        return process

    def ran(self, command, *faults):
        process = self.start(command, *faults)
        process.join(300)
        return process.exitcode

    def names(self):
        return [path.name for path in self.folder.iterdir()]

    def close(self):
        for process in self.processes:
            process.kill()
            process.join(60)
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()


@pytest.fixture
def written(project):
    made = Written(project)
    yield made
    made.close()


@pytest.mark.sample(verify=1)
@pytest.mark.parametrize("command", WRITING, ids=lambda command: command[0])
def test_the_next_run_removes_what_a_killed_one_left(written, command):
    for left in (1, 1):  # the second kill's draft in place of the first's
        assert written.ran(command, (WRITING[command], 1, "after", "kill")) == -signal.SIGKILL
        assert len(written.names()) == left
    assert written.ran(command) == 0
    assert written.names() == [command[-1].split("/")[1]]


@pytest.mark.parametrize(("more", "code"), [(("--once",), 0), ((), 2)])
def test_where_answers_are_there_what_a_killed_run_left_goes_too(written, more, code):
    """Another run wrote them meanwhile; a schedule asks for the same again."""
    there = written.project.folder / "in"
    killed = written.start(QUERY, (WRITING[QUERY], 1, "after", f"wait:{there}"))
    processes.wait(there.exists)
    assert written.ran(QUERY) == 0
    assert len(written.names()) == 2  # that of a living process is left alone
    assert written.ran((*QUERY, *more)) == code
    assert len(written.names()) == 2
    os.kill(killed.pid, signal.SIGKILL)
    killed.join(60)
    assert written.ran((*QUERY, *more)) == code
    assert written.names() == ["answers.parquet"]
    there.unlink()
