"""The standard release, to be struck as often as one likes, and what must hold each time."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import points
import processes
import pytest
import runner
from projects import Project, objects, records

SETTINGS = {"slab": runner.SLAB, "rows_a_task": 30, "fan_in": 3}
SPEC: dict[str, Any] = {"mechanism": {"k": [20, 8], "h": 2}}  # four slabs
PERTURBED: dict[str, Any] = {  # its values are noisy before they are staged
    "data__bounds": {"y": None}, "data__response": {"column": "y", "bounds": [-1.0, 1.0]},
    "mechanism": {"k": None, "h": None, "noise": "auto"},
    "target": {"kind": "kernel-erm", "bandwidth": None, "loss": "huber", "kernel": "linear",
               "method": "objective"},
}  # fmt: skip
CENTERS: dict[str, Any] = {
    "data__bounds": {"y": None},
    "data__label": {"column": "note", "classes": ["private-20", "private-21"]},
    "mechanism": {"k": 24, "h": 16, "noise": "binned-laplace"},
    "target": {"kind": "naive-bayes", "bandwidth": [2.0]},
}  # fmt: skip
KNOWN = {"data", "release.toml", "out.zarr", "calls.json", "ledger.db", "ledger.db.keys",
         "ledger.db.staging", "ledger.db.locks", "ledger.db.mark", "ledger.db.runs"}  # fmt: skip
RELEASE = ("release", "release.toml")


@dataclass
class Client:
    """A release under way."""

    process: Any
    output: Path

    def outcome(self, seconds: float = 300) -> int:
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"did not end: {self.said}"
        return int(self.process.exitcode)

    @property
    def out(self) -> str:
        return Path(f"{self.output}.out").read_text()

    @property
    def err(self) -> str:
        return Path(f"{self.output}.err").read_text()

    @property
    def said(self) -> str:
        return self.out + self.err


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
    spec: dict[str, Any] = field(default_factory=lambda: SPEC)

    def __post_init__(self) -> None:
        self._numbers = itertools.count()
        self._template = Project(self.folder / "template", shared=self._database(""))
        self._template.folder.mkdir(parents=True)
        self._template.write(records())
        self._template.spec(**self.spec)
        with self.environment(self._template):
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
    def environment(self, project: Project) -> Iterator[None]:
        """In which this process can open the ledger."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.secrets(project).items():
                patch.setenv(name, value)
            yield

    def project(self) -> Project:
        """A copy of the standard one."""
        folder = self.folder / f"project-{next(self._numbers)}"
        shutil.copytree(self._template.folder, folder)
        mark = folder / "ledger.db.mark"
        if mark.exists():  # this copy is the ledger
            file = mark.with_name("ledger.db").stat()
            *latest, _inode, _device = mark.read_text().split()
            mark.write_text(f"{' '.join(latest)} {file.st_ino:020d} {file.st_dev:020d}\n")
        made = Project(folder, shared=self._database(self._template.shared))
        if made.shared:
            made.spec(**self.spec)
        return made

    def start(self, project: Project, *faults: points.Fault, arguments: Sequence[str] = (),
              **settings: Any) -> Client:  # fmt: skip
        """A client of the cluster, or with arguments of its own."""
        output = self.folder / f"client-{next(self._numbers)}"
        given = {**SETTINGS, "faults": faults, "bug": self.bug, **settings}
        arguments = list(arguments) or [*RELEASE, "--scheduler", self.cluster.address]
        process = processes.fork(runner.client, project.folder, output, given, arguments,
                                 **self.secrets(project))  # fmt: skip
        return Client(process, output)

    def run(self, project: Project, **settings: Any) -> None:
        client = self.start(project, **settings)
        assert client.outcome() == 0, client.said

    def endure(self, project: Project) -> None:
        """What holds while a release is struck down, and that it goes on to its end."""
        with self.environment(project):
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
        for point in chosen:
            project = self.project()
            self.cluster.ready()  # whatever became of the last one
            self.cluster.quiet()
            try:
                blow(project, point)
                self.cluster.ready()
                self.cluster.quiet()
                self.endure(project)
            except Exception as error:  # noqa: BLE001 -- all points are told of
                failures.append(f"{kind} {point}: {type(error).__name__}: {error}")
        return failures


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
