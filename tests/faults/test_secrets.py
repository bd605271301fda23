"""No record's value and no key outside the files that hold them, while a release is under way,
killed, failing or done: not in the graph, at the scheduler, in its pages, logs (at debug level),
spilled results, temporary files, staging, the ledger, exceptions or the synopsis.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from itertools import count
from pathlib import Path

import numpy as np
import points
import processes
import pytest
import runner
import sweep
import zarr
from projects import Project

from dbern.privacy.keystream import subkey

pytestmark = pytest.mark.slow

PLANTED_X = (7.318205914627, 2.718459045231, 1.414293562373)
PLANTED_Y = (0.6180413988749, -0.5772256649015)
SECRETS = sweep.forms(
    (*PLANTED_X, *PLANTED_Y),
    [runner.KEY, *(subkey(runner.KEY, use) for use in ("staging", "seal"))],
)
SETTINGS = {"slab": runner.SLAB, "rows_a_task": 30, "fan_in": 3}
PAGES = ("status", "tasks", "workers", "info/main/workers.html", "info/logs.html",
         "json/counts.json", "json/identity.json", "metrics", "sysmon")  # fmt: skip
ALL = os.environ.get("DBERN_FAULTS") == "all"
STOPS = (  # where a release is looked at, and then killed
    (f"{points.COUNTING}:centers", 1, "after"),
    (f"{points.STAGING}.put", 2, "after"),
    (f"{points.STAGING}.seal", 1, "after"),
    (f"{points.WRITER}.write", 2, "after"),
    (f"{points.WRITER}.finish", 1, "after"),
)
NUMBERS = count()


class Scene:
    """A project with planted records, a cluster that logs and spills all it can, and a sweep."""

    def __init__(self, folder: Path, leak: str = "") -> None:
        self.folder = folder
        (folder / "temporary").mkdir(parents=True)
        self.environment = {
            "TMPDIR": str(folder / "temporary"),
            "DASK_LOGGING__DISTRIBUTED": "debug",
            "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "100000",
            "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "0.00000001",
            "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "0.00000001",
            "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL_COMPRESSION": "False",
        }
        self.project = Project(folder / "project")
        self.project.folder.mkdir()
        rows = np.arange(240)
        columns = {"x": np.array(PLANTED_X)[rows % 3], "y": np.array(PLANTED_Y)[rows % 2]}
        self.project.write(columns)
        self.project.spec(mechanism={"k": [20, 8], "h": 2})
        self.project.grant()
        self.cluster = processes.Cluster(folder / "cluster", leak, **self.environment)
        self.cluster.ready()

    def start(self, *faults, bug=""):
        arguments = ["release", "release.toml", "--scheduler", self.cluster.address,
                     "--log-format", "json"]  # fmt: skip
        settings = {**SETTINGS, "faults": faults, "bug": bug}
        output = self.folder / f"client-{next(NUMBERS)}"
        return processes.fork(
            runner.client, self.project.folder, output, settings, arguments, **self.environment
        )

    def stopped_at(self, place, call, when, bug=""):
        """A client that waits there."""
        there = self.folder / f"there-{next(NUMBERS)}"
        client = self.start((place, call, when, f"wait:{there}"), bug=bug)
        processes.wait(lambda: there.exists() or not client.is_alive())
        assert there.exists()
        return client

    def sweep(self, *, key_may_live: bool) -> list[str]:
        """Everywhere but in the records' and the keys' own files."""
        spared = [self.project.folder / "data"]
        if key_may_live:
            spared.append(self.project.folder / "ledger.db.keys")
        found = sweep.swept(self.folder, SECRETS, spared)
        for what, content in [*self._scheduler(), *self._arrays()]:
            found += [f"{what}: {secret}" for secret in sweep.found_in(content, SECRETS)]
        return found

    def _scheduler(self):
        from distributed import Client

        with Client(self.cluster.address, set_as_default=False) as client:
            yield "graph", client.run_on_scheduler(runner.graph)
            client.dump_cluster_state(str(self.folder / "dump"), format="yaml")
            yield "state", (self.folder / "dump.yaml").read_bytes()
            (self.folder / "dump.yaml").unlink()
            yield "logs", repr([client.get_scheduler_logs(), client.get_worker_logs()]).encode()
            port = client.scheduler_info()["services"]["dashboard"]
        answered = 0
        for page in PAGES:
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/{page}", timeout=60
                ) as answer:
                    yield page, answer.read()
                    answered += 1
            except urllib.error.HTTPError:
                continue  # without bokeh some are not there
        assert answered >= 4

    def _arrays(self):
        for path in self.project.folder.rglob("zarr.json"):
            found = zarr.open(path.parent, mode="r")
            if isinstance(found, zarr.Array):
                yield str(path), np.asarray(found[...]).tobytes()

    def spilled(self) -> int:
        return sum(path.is_file() for path in self.cluster.folder.rglob("storage*/*"))


@pytest.fixture
def scene(tmp_path):
    processes.prepare()
    made = []

    def build(leak=""):
        made.append(Scene(tmp_path / f"scene-{len(made)}", leak))
        return made[-1]

    yield build
    for one in made:
        one.cluster.close()


def test_nothing_private_is_anywhere_while_a_release_is_under_way_killed_and_done(scene):
    here = scene()
    spilled = 0
    for stop in STOPS if ALL else STOPS[1:4:2]:
        client = here.stopped_at(*stop)
        assert here.sweep(key_may_live=True) == [], stop
        spilled += here.spilled()
        client.kill()
        client.join(60)
        assert client.exitcode == -signal.SIGKILL
        assert here.sweep(key_may_live=True) == [], f"killed {stop}"
    assert spilled, "nothing was spilled: the sweep looked at no partial sum"
    client = here.start()
    client.join(300)
    assert client.exitcode == 0
    assert here.sweep(key_may_live=False) == []
    told = [json.loads(line) for path in here.folder.glob("client-*.err")
            for line in path.read_text().splitlines()]  # fmt: skip
    assert {one["release_id"] for one in told} == {runner.RELEASE_ID}
    assert "progress" in {one["event"] for one in told}
    logs = b"".join(path.read_bytes() for path in here.folder.rglob("*.err"))
    assert b"DEBUG" in logs, "the logs are not at debug level"


def test_nothing_private_is_anywhere_after_workers_fail_and_die(scene):
    here = scene("an exception with a value")
    client = here.start()
    client.join(300)
    assert client.exitcode == 1
    assert here.sweep(key_may_live=True) == []
    for number, when in ((2, "before"), (3, "after")) if ALL else ((3, "after"),):
        here.cluster.fault(number, when, "worker")
        client = here.start()
        client.join(300)
        here.cluster.restore()
        assert here.sweep(key_may_live=True) == []


@pytest.mark.parametrize("leak", ["a log line", "a temporary file"])
def test_a_planted_record_is_found(scene, leak):
    here = scene(leak)
    client = here.start()
    client.join(300)
    assert client.exitcode == 0
    found = here.sweep(key_may_live=False)
    assert any("the value" in one for one in found)
    assert {one.partition(":")[0] for one in found} == {
        {"a log line": "cluster/worker.out", "a temporary file": "temporary/batch"}[leak]
    }


@pytest.mark.parametrize("bug", ["sends_the_key_to_workers", "says_the_key", "keeps_the_key"])
def test_a_planted_key_is_found(scene, bug):
    here = scene()
    client = here.stopped_at(f"{points.STAGING}.put", 2, "after", bug)
    early = here.sweep(key_may_live=True)
    client.kill()
    client.join(60)
    client = here.start(bug=bug)
    client.join(300)
    late = here.sweep(key_may_live=False)
    where = {"sends_the_key_to_workers": "graph", "says_the_key": "client-",
             "keeps_the_key": "project/ledger.db.keys"}[bug]  # fmt: skip
    found = late if bug == "keeps_the_key" else early
    assert any(one.startswith(where) and "a key" in one for one in found), found


@pytest.mark.parametrize("form", SECRETS)
def test_every_form_is_found(tmp_path, form):
    (tmp_path / "file").write_bytes(b"before" + form + b"after")
    assert len(sweep.swept(tmp_path, SECRETS)) == 1
    assert sweep.swept(tmp_path, SECRETS, [tmp_path / "file"]) == []
