"""A release on a real cluster, struck everywhere: same bytes, one charge, no torso, no key left.

Scheduler, workers and clients are processes. Points are not listed but counted: an undisturbed
release says how often each place is passed, and then each pass is struck once. `make faults` runs
them all; otherwise a few of each kind.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import points
import processes
import pytest
import runner
from projects import Project, objects, records

pytestmark = pytest.mark.slow

ALL = os.environ.get("DBERN_FAULTS") == "all"
SAMPLE = 2
SETTINGS = {"slab": runner.SLAB, "rows_a_task": 30, "fan_in": 3}
SPEC = {"mechanism": {"k": [40, 8], "h": 2}}
KNOWN = {"data", "release.toml", "out.zarr", "calls.json", "ledger.db", "ledger.db.keys",
         "ledger.db.staging", "ledger.db.locks", "ledger.db.mark", "ledger.db.runs"}  # fmt: skip
TALLY: dict[str, int] = {}


@dataclass
class Client:
    """A release under way."""

    process: Any
    output: Path

    def outcome(self, seconds: float = 90) -> int:
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"did not end: {self.said}"
        return int(self.process.exitcode)

    @property
    def said(self) -> str:
        return "".join(Path(f"{self.output}.{name}").read_text() for name in ("out", "err"))


@dataclass
class Range:
    """Projects to strike at, and what must hold of each."""

    folder: Path
    cluster: processes.Cluster
    server: Any = None  # of PostgreSQL, for shared ledgers
    calls: dict[str, int] = field(default_factory=dict)
    tasks: int = 0
    seconds: float = 0.0
    undisturbed: dict[str, bytes] = field(default_factory=dict)
    bug: str = ""

    def __post_init__(self) -> None:
        self._numbers = itertools.count()
        self._template = Project(self.folder / "template", shared=self._database(""))
        self._template.folder.mkdir(parents=True)
        self._template.write(records())
        self._template.spec(**SPEC)
        with self._environment(self._template):
            self._template.grant()
        project, marks = self.project(), self.cluster.quiet()
        self.run(project)  # loads what is compiled
        project, marks = self.project(), self.cluster.quiet()
        started = time.monotonic()
        self.run(project, count=points.PLACES)
        self.seconds = time.monotonic() - started
        self.calls = json.loads((project.folder / "calls.json").read_text())
        self.tasks = len(list(marks.iterdir()))
        self.undisturbed = objects(project.output)

    def _database(self, template: str) -> str:
        if self.server is None:
            return ""
        if not template:
            return str(self.server.database())
        name = f"fault_{self.folder.name}_{next(self._numbers)}"
        self.server.execute(f"CREATE DATABASE {name} TEMPLATE {template.rpartition('/')[2]}")
        return str(self.server.url(name))

    def secrets(self, project: Project) -> dict[str, str]:
        """The environment of a client."""
        if self.server is None:
            return {}
        staging = project.folder / "shared"
        staging.mkdir(exist_ok=True)
        return {"DBERN_LEDGER_STAGING": str(staging), "PGPASSWORD": self.server.password,
                "DBERN_LEDGER_SECRET": bytes(range(32)).hex()}  # fmt: skip

    @contextmanager
    def _environment(self, project: Project) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.secrets(project).items():
                patch.setenv(name, value)
            yield

    def project(self) -> Project:
        """A copy of the standard one."""
        folder = self.folder / f"project-{next(self._numbers)}"
        shutil.copytree(self._template.folder, folder)
        made = Project(folder, shared=self._database(self._template.shared))
        if made.shared:
            made.spec(**SPEC)
        return made

    def start(self, project: Project, *faults: points.Fault, **settings: Any) -> Client:
        output = self.folder / f"client-{next(self._numbers)}"
        given = {**SETTINGS, "faults": faults, "bug": self.bug, **settings}
        arguments = ["release", "release.toml", "--scheduler", self.cluster.address]
        process = processes.fork(runner.client, project.folder, output, given, arguments,
                                 **self.secrets(project))  # fmt: skip
        return Client(process, output)

    def run(self, project: Project, **settings: Any) -> None:
        client = self.start(project, **settings)
        assert client.outcome() == 0, client.said

    def endure(self, project: Project) -> None:
        """What holds while a release is struck down, and that it goes on to its end."""
        with self._environment(project):
            self._not_torn(project)
            self.run(project)
            self._whole(project)
        shutil.rmtree(project.folder)

    def _not_torn(self, project: Project) -> None:
        with project.ledger() as ledger:
            found = ledger.find("trips", "density")
        state = found.state.value if found else "none"
        stored = objects(project.output)
        if "manifest.json" in stored:
            kept = {name: text for name, text in stored.items() if not name.endswith(".tmp")}
            assert kept == self.undisturbed, "a torso is published"
        noisy = any("/c/" in name and "coefficients" in name for name in stored)
        assert not noisy or state in ("spent", "committed"), f"noise was drawn in state {state}"
        assert state != "committed" or "manifest.json" in stored, "committed before published"

    def _whole(self, project: Project) -> None:
        assert project.remains() == []  # before the ledger is opened, which would sweep
        assert objects(project.output) == self.undisturbed, "other bytes"
        assert project.spent() == "epsilon 1, epsilon 0 reserved"
        with project.ledger() as ledger:
            assert len(ledger.status("trips")[0].releases) == 1
        known = KNOWN | {"shared"} if self.server else KNOWN
        assert {path.name for path in project.folder.iterdir()} <= known
        if self.server:
            name = project.url.rpartition("/")[2]
            assert self.server.execute("SELECT * FROM keys", name) == [], "a key is left"
            kept = (".mark", ".runs", ".jsonl")
            shared = (project.folder / "shared").rglob("*")
            staged = [path for path in shared if path.suffix not in kept]
            assert [path.parent.name for path in staged] == ["shared"], "staging is left"
            self.server.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def strike(
        self, kind: str, chosen: Iterable[Any], blow: Callable[[Project, Any], None]
    ) -> list[str]:
        """Strike one project at each point; what went wrong."""
        failures = []
        for point in sampled(list(chosen)):
            project = self.project()
            try:
                blow(project, point)
                self.cluster.ready()
                self.cluster.quiet()
                self.endure(project)
            except Exception as error:  # noqa: BLE001 -- all points are told of
                failures.append(f"{kind} {point}: {type(error).__name__}: {error}")
                print(failures[-1], flush=True)  # at once, for whoever waits
            TALLY[kind] = TALLY.get(kind, 0) + 1
        return failures


def sampled(chosen: list[Any]) -> list[Any]:
    return chosen if ALL else chosen[len(chosen) // 5 :: -(-len(chosen) // SAMPLE)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    processes.prepare()
    made = processes.Cluster(tmp_path_factory.mktemp("faults") / "cluster")
    made.ready()
    yield made
    made.close()


@pytest.fixture(scope="module")
def local(cluster, tmp_path_factory):
    """Under a ledger in a file."""
    return Range(tmp_path_factory.mktemp("local"), cluster)


@pytest.fixture(scope="module")
def shared(cluster, server, tmp_path_factory):
    """Under a ledger in PostgreSQL."""
    return Range(tmp_path_factory.mktemp("shared"), cluster, server)


def killed(ground: Range) -> Callable[[Project, Any], None]:
    def blow(project: Project, fault: points.Fault) -> None:
        client = ground.start(project, fault)
        assert client.outcome() == -signal.SIGKILL, client.said

    return blow


def refused(ground: Range) -> Callable[[Project, Any], None]:
    """An error that is said, or one that needs no saying: nothing internal, nothing broken."""

    def blow(project: Project, fault: points.Fault) -> None:
        client = ground.start(project, fault)
        assert client.outcome() in (0, 1, 4), client.said
        assert "internal error" not in client.said, client.said
        assert "Traceback" not in client.said, client.said

    return blow


def test_a_client_that_is_killed_at_every_step(local):
    assert local.strike("client killed", points.kills(local.calls), killed(local)) == []


def test_a_client_that_is_killed_at_any_time(local):
    def blow(project, moment):
        client = local.start(project)
        time.sleep(moment * local.seconds)
        client.process.kill()
        assert client.outcome() in (0, -signal.SIGKILL)

    assert local.strike("client killed at random", points.moments(20, 1), blow) == []


def test_a_full_disk_at_every_write(local):
    assert local.strike("full disk", points.full_disks(local.calls), refused(local)) == []


def test_a_store_that_fails_at_every_request(local):
    chosen = points.failing_stores(local.calls)
    assert local.strike("store fails", chosen, refused(local)) == []


def test_a_store_that_stalls_while_another_client_comes(local):
    def blow(project, fault):
        clients = [local.start(project, fault), local.start(project)]
        assert [one.outcome() for one in clients] == [0, 0], [one.said for one in clients]

    assert local.strike("store stalls", points.stalls(local.calls), blow) == []


def test_a_ledger_that_fails_at_every_statement(local):
    chosen = points.failing_statements(local.calls)
    assert local.strike("SQLite fails", chosen, refused(local)) == []


def test_a_server_that_drops_the_connection_at_every_statement(shared, local):
    assert shared.undisturbed == local.undisturbed
    chosen = points.disconnections(shared.calls)
    assert shared.strike("PostgreSQL drops", chosen, refused(shared)) == []


def test_a_client_that_is_killed_at_every_transaction_of_a_shared_ledger(shared):
    chosen = [
        *points.at(shared.calls, points.TRANSACTION, "before", "kill"),
        *points.at(shared.calls, points.TRANSACTION, "after", "kill"),
    ]
    assert shared.strike("client killed, PostgreSQL", chosen, killed(shared)) == []


def boundaries(ground: Range) -> list[tuple[int, str]]:
    return [(task, when) for task in range(1, ground.tasks + 1) for when in ("before", "after")]


def test_a_worker_that_is_killed_at_every_task(local):
    def blow(project, boundary):
        local.cluster.fault(*boundary, "worker")
        client = local.start(project)
        while client.process.exitcode is None:
            local.cluster.restore()
            client.process.join(0.1)
        assert client.outcome() == 0, client.said

    assert local.strike("worker killed", boundaries(local), blow) == []


def test_a_worker_that_is_killed_at_any_time(local):
    def blow(project, moment):
        client = local.start(project)
        time.sleep(moment * local.seconds)
        local.cluster.kill(local.cluster.workers[0])
        while client.process.exitcode is None:
            local.cluster.restore()
            client.process.join(0.1)
        assert client.outcome() in (0, 1), client.said  # 1: killed between a look and a question
        assert "internal error" not in client.said, client.said

    assert local.strike("worker killed at random", points.moments(10, 2), blow) == []


def test_a_scheduler_that_is_killed_at_every_task(local):
    def blow(project, boundary):
        local.cluster.fault(*boundary, local.cluster.scheduler.pid)
        client = local.start(project)
        assert client.outcome() in (0, 1), client.said  # 0: the last task's answer was out
        assert "internal error" not in client.said, client.said

    assert local.strike("scheduler killed", boundaries(local), blow) == []


def test_a_scheduler_that_is_killed_at_any_time(local):
    def blow(project, moment):
        client = local.start(project)
        time.sleep(moment * local.seconds)
        local.cluster.kill(local.cluster.scheduler)
        assert client.outcome() in (0, 1, 4), client.said
        assert "internal error" not in client.said, client.said

    assert local.strike("scheduler killed at random", points.moments(10, 3), blow) == []


def test_every_task_run_twice(local):
    def blow(project, task):
        local.cluster.fault(task, "", "again")
        local.run(project)

    assert local.strike("task run twice", range(local.tasks + 1), blow) == []


@pytest.mark.parametrize("ground", ["local", "shared"])
def test_two_clients_at_once_one_of_which_may_be_killed(ground, request):
    place = request.getfixturevalue(ground)

    def blow(project, moment):
        clients = [place.start(project) for _ in range(2)]
        if moment < 0.5:
            time.sleep(2 * moment * place.seconds)
            clients[0].process.kill()
            clients[0].outcome()
        else:
            assert clients[0].outcome() == 0, clients[0].said
        assert clients[1].outcome() == 0, clients[1].said

    assert place.strike(f"two clients, {ground}", points.moments(10, 4), blow) == []


BUGS = {  # each with a point that must find it
    "commits_before_the_manifest": ("dbern.synopsis.writer:publish", 1, "before", "kill"),
    "charges_after_the_noise": (f"{points.WRITER}.write", 2, "after", "kill"),
    "draws_other_noise_each_time": (f"{points.WRITER}.write", 2, "after", "kill"),
    "keeps_the_key": (f"{points.WRITER}.write", 2, "after", "kill"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(local, monkeypatch, bug):
    monkeypatch.setattr(local, "bug", bug)
    found = local.strike(f"planted {bug}", [BUGS[bug]], killed(local))
    del TALLY[f"planted {bug}"]
    assert len(found) == 1


@pytest.mark.skipif(not ALL, reason="a sample was struck; make faults strikes at all")
def test_the_points_are_enough(capsys):
    total = sum(TALLY.values())
    with capsys.disabled():
        kinds = ", ".join(f"{kind} {count}" for kind, count in TALLY.items())
        print(f"\n{total} fault points: {kinds}")
    assert total >= 200
