"""Puts tests/ on the path for its helper modules, and keeps every draw reproducible.

`project` makes a tiny release to work on; `client` is one cluster of threads for the session.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lanes
import postgres_server
import pytest
from clusters import local_cluster
from hypothesis import HealthCheck, Phase, settings
from object_server import Bucket, ObjectServer
from object_server import start as start_objects
from projects import Draws, Project, Ran, fix_reservations, objects, records
from sqlalchemy import Engine

import dbern
from dbern.certify import certificate, lower_bounds
from dbern.ledger import sqlite
from dbern.measure import kernel_sums
from dbern.planning import component_plan
from dbern.synopsis import bands

# However slow the machine is: not even the drawing of examples is timed.
settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# That a test fails is all that an audit asks: the smallest example takes a minute to find.
unshrunk = (Phase.explicit, Phase.generate)
settings.register_profile("audit", settings.get_profile("suite"), phases=unshrunk)
settings.load_profile("suite")


collect_ignore_glob = ["*/conftest.py"]  # doctests of two of them at once would be one module's

Release = Callable[[dbern.ReleaseSpec, Mapping[str, Any]], tuple[dbern.ReleasePlan, dbern.Synopsis]]

CLOCK = time.time
ROOT = Path(__file__).parents[1]
COMPILING: list[subprocess.Popen[bytes]] = []
DRAWS = Draws()
gc.disable()  # until `pytest_collection_finish`


class Failures:
    """Says at once what failed, and its seed: a run that is broken off has told it."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            last = report.longreprtext.splitlines()[-9:]
            again = lanes.said(self._terminal.config)
            self._terminal.write_line(f"\nFAILED {report.nodeid} ({report.when}) {again}")
            self._terminal.write_line("\n".join(last))


def pytest_addoption(parser: pytest.Parser) -> None:
    lanes.add_options(parser)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    lanes.settle_seed(config)
    if terminal := config.pluginmanager.get_plugin("terminalreporter"):  # workers have none
        config.pluginmanager.register(Failures(terminal))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lanes.arrange(config, items)


def pytest_report_header(config: pytest.Config) -> str:
    return lanes.said(config)


def pytest_collection_finish() -> None:
    """The modules and items of all tests stay: to look at them again and again took a quarter."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(
        20_000, 20, 20
    )  # what tests leave would be looked at for a twelfth of the time
    gc.enable()


def pytest_xdist_auto_num_workers() -> int | None:
    """As many as there are cores: tests compute nearly all of the time."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None  # which pytest-xdist reads
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pytest_xdist_setupnodes() -> None:
    """Workers keep bytecode, whatever the shell says, and find the loops compiled.

    Without bytecode every process that a test starts compiles all that it imports. And of a fresh
    checkout each worker would compile every loop: they collect tests while these two do.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers are more than cores already
    for splines in (True, False):
        made = f"for axes in (1, 2, 3): loops._compiled(axes, splines={splines})"
        text = f"from dbern.measure import loops\n{made}"
        COMPILING.append(subprocess.Popen([sys.executable, "-c", text], cwd=ROOT))


def pytest_unconfigure() -> None:
    for one in COMPILING:
        assert one.wait() == 0, one.args


@pytest.fixture(scope="session", autouse=True)
def reproducible_draws() -> Iterator[None]:
    """Keys and salts of this process come from `DRAWS`: what noise passes a test passes it always.

    The band of one release in twenty may fail, and a test cannot.
    """
    with pytest.MonkeyPatch.context() as patch:
        DRAWS.replace(patch.setattr)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """This process syncs nothing: only a power cut could tell, and waiting was a third of the time.

    Processes that tests start sync as always.
    """
    with pytest.MonkeyPatch.context() as patch:
        pragmas = ("synchronous = OFF" if "sync" in one else one for one in sqlite._PRAGMAS)
        patch.setattr(sqlite, "_PRAGMAS", tuple(pragmas))
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def cached_planning() -> Iterator[None]:
    """More of what this process has planned stays: its specs come again and again."""
    bounds = lru_cache(maxsize=500)(certificate.noise_bound.__wrapped__)
    sketches = lru_cache(maxsize=2000)(kernel_sums.smallest_sketch)
    strongest = lru_cache(maxsize=2000)(lower_bounds.strongest_bound.__wrapped__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "noise_bound", bounds)
        for module in (component_plan, bands):
            patch.setattr(module, "strongest_bound", strongest)
        patch.setattr(kernel_sums, "smallest_sketch", sketches)
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled_statements() -> Iterator[None]:
    """What this process has compiled of the ledger's statements is every project's.

    An engine keeps what it compiled; each test has a ledger, and so an engine.
    """
    make, first = sqlite._engine.__wrapped__, None

    def alike(path: Path, read_only: bool, busy_timeout: float) -> Engine:
        nonlocal first
        engine = make(path, read_only, busy_timeout)
        first = first or engine
        engine.dialect, engine._compiled_cache = first.dialect, first._compiled_cache
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "_engine", lru_cache(maxsize=16)(alike))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with DRAWS.of(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> Iterator[None]:
    """What a module or a session shares is the same whichever test wants it first."""
    if fixturedef.scope == "function":
        return (yield)
    given = getattr(request, "param", "")
    with DRAWS.of(f"{fixturedef.baseid}::{fixturedef.argname}[{given}]"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Nobody sets the clock of the whole process: Tornado's loops would wait for that time.

    A cluster of this process would go on without heartbeats, and fail some later test.
    """
    kept = time.time is CLOCK
    yield  # fixtures end all the same, or the next test would pay
    assert kept, f"{item.nodeid} set time.time itself; use the fixture set_clock"


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], float]], None]:
    """Set the clock that one module sees."""

    def set_it(module: str, now: Callable[[], float]) -> None:
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(**{**vars(time), "time": now}))

    return set_it


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write(records())
    made.spec()
    made.grant()
    return made


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    """One worker of two threads in this process."""
    import dask
    from distributed import Client

    memory = "distributed.worker.memory"
    kept = {f"{memory}.target": False, f"{memory}.spill": False}
    # No size of this process, and no pause, takes the worker away.
    kept |= {f"{memory}.pause": False, "distributed.scheduler.worker-ttl": None}
    with dask.config.set(kept), local_cluster(threads=2) as local, Client(local) as connected:
        yield connected


@pytest.fixture(scope="session")
def server() -> Iterator[postgres_server.Server]:
    """A PostgreSQL server of this session's own."""
    started = postgres_server.start()
    if started is None:
        pytest.skip("PostgreSQL is not installed here: apt-get install postgresql")
    yield started
    postgres_server.stop(started)


@pytest.fixture
def postgres_url(
    server: postgres_server.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """An empty PostgreSQL database, with an environment in which releases can use it."""
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("DBERN_LEDGER_STAGING", str(tmp_path / "shared"))
    monkeypatch.setenv("DBERN_LEDGER_SECRET", bytes(range(32)).hex())
    monkeypatch.setenv("PGPASSWORD", server.password)
    return server.emptied()


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """S3 of this session's own."""
    try:
        started, stop = start_objects()
    except ImportError:
        pytest.skip("moto is not installed here: pip install 'moto[s3]' flask flask-cors boto3")
    yield started
    stop()


@pytest.fixture
def bucket(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A fresh bucket, with an environment in which releases can use it; refusals come soon."""
    pytest.importorskip("obstore", reason="obstore is not installed here: pip install obstore")
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("dbern.data.objects._RETRIES", 1)
    object_server.fault = lambda _request: None
    made = Bucket(object_server)
    object_server.requests.clear()
    return made


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next reservation gets the same id, time, salt and key in every project."""
    fix_reservations(monkeypatch.setattr)


@pytest.fixture
def run(project: Project, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run one command of the command line in this process; paths relative to the project."""
    from dbern.cli import main as command_line

    def command(*arguments: str | Path, project: Project = project) -> Ran:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(project.folder)
            capfd.readouterr()
            code = command_line.run([str(argument) for argument in arguments])
            ran = Ran(code, *capfd.readouterr())
        return replace(ran, out=ran.out.replace(str(project.folder), "."))

    return command


@pytest.fixture
def executable() -> str:
    return str(Path(sys.executable).with_name("dbern"))


@pytest.fixture
def helpers() -> Sequence[Any]:
    """For tests in folders below: how to make records, and how to look at a store."""
    return SimpleNamespace(records=records, objects=objects, Project=Project)


@pytest.fixture
def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release publishes the exact integers that would carry its noise."""
    monkeypatch.setattr("dbern.run.publish.privatize", lambda center, *_rest: center)


@pytest.fixture
def release(project: Project, client: Any) -> Release:
    """Write columns into the project, and release them by a spec; returns plan and synopsis."""

    def made(
        spec: dbern.ReleaseSpec, columns: Mapping[str, Any]
    ) -> tuple[dbern.ReleasePlan, dbern.Synopsis]:
        project.write(columns)
        local = project.local(spec)
        return dbern.plan(local), dbern.release(local, client=client).synopsis

    return made


@pytest.fixture
def exact_release(noiseless: None, release: Release) -> Release:
    """The same without noise."""
    return release
