"""A worker that wants to run code where the release key is: every way that its bytes can take.

The worker is a real process, patched by a preload. What it sends leaves a mark in whatever process
unpickles it, named by that process's id: the releasing process is this one, and must have none.
"""

from __future__ import annotations

import gc
import os
import re
import time

import pytest
from clusters import LOOPBACK, DaskProcesses

import dbern
from dbern.cli import diagnosis

pytestmark = pytest.mark.slow

PRELOAD = """
import copyreg, os, pathlib, pickle
from distributed.core import error_message
from distributed.protocol import to_serialize
from distributed.protocol.serialize import Pickled
import distributed.worker
import dbern.run.messages, dbern.run.tasks

FOLDER = pathlib.Path(os.environ["MARKS"])
CODE = "import os, pathlib; pathlib.Path({!r}, str(os.getpid())).touch()".format(str(FOLDER))

def route():
    return (FOLDER.parent / "route").read_text()

class Mark:
    def __reduce__(self):
        return exec, (CODE,)

class Kind(type):
    pass

copyreg.pickle(Kind, lambda kind: (exec, (CODE,)))

class Whole(metaclass=Kind):  # a result whose class leaves the mark
    state, rows, failure, place = None, 0, "internal", "MemoryError"

class Forwarded:  # to the scheduler, which unpickles it, an object that it passes on as it is
    def __reduce__(self):
        return Pickled, ({"pickled-obj": pickle.dumps(Mark())}, [])

def count(*arguments, actual=dbern.run.tasks.count_portions):
    if route() == "error":
        raise ValueError
    if route() == "place":
        return dbern.run.messages.TaskResult(None, failure="unreadable", location="Jane, 3.14")
    return Whole() if route() == "type" else actual(*arguments)

def failed(error, status="error", actual=error_message):
    told = actual(error, status)
    return {**told, "exception": to_serialize(pickle.dumps(Mark()))} if route() == "error" else told

def versions(packages=None, actual=distributed.worker.get_versions):
    told = actual(packages)
    return {**told, "packages": {**told["packages"], "msgpack": "Jane, 3.14"}}

dbern.run.tasks.count_portions, distributed.worker.error_message = count, failed
distributed.worker.get_versions = versions  # which a scheduler tells its clients of

def dask_setup(worker):
    from distributed.protocol.serialize import ToPickle
    from tornado.ioloop import PeriodicCallback

    get_data, run = worker.handlers["get_data"], worker.handlers["run"]

    async def data(comm, keys=(), **more):
        if route() != "result":
            return await get_data(comm, keys=keys, **more)
        return {"status": "OK", "data": {key: to_serialize(Mark()) for key in keys}}

    async def answer(comm, **more):
        if route() == "answer":
            return {"status": "OK", "result": to_serialize(Mark())}
        if route() == "failing answer":
            failed = error_message(ValueError())
            return {**failed, "exception": to_serialize(pickle.dumps(Mark()))}
        if route() == "uncaught answer":
            return {**error_message(ValueError(), "uncaught-error"), "exception_text": "Jane, 3.14"}
        return await run(comm, **more)

    def say():
        if route() == "warn":
            worker.log_event("warn", {"message": pickle.dumps(Mark())})
        if route() == "forwarded":
            worker.log_event("print", ToPickle(Forwarded()))

    worker.handlers.update(get_data=data, run=answer)
    worker.periodic_callbacks["say"] = PeriodicCallback(say, 20)
    worker.periodic_callbacks["say"].start()
"""

SCHEDULER = """
import os, pathlib
import distributed.versions

ROUTE = pathlib.Path(os.environ["MARKS"]).parent / "route"
SAID = [
    {"op": "Jane, 3.14"}, {"op": "error", "exception": "Jane, 3.14"},
    {"op": "lost-data", "Jane, 3.14": 1}, {"op": "key-in-memory", "key": {"Jane, 3.14": 1}},
    {"op": "lost-data", "status": "error", "exception": "Jane, 3.14"},
]

def route():
    return ROUTE.read_text()

def compared(*arguments, actual=distributed.versions.error_message, **more):
    return {"op": "Jane, 3.14"} if route() == "greeting" else actual(*arguments, **more)

distributed.versions.error_message = compared

def dask_setup(scheduler):
    def send_all(client_msgs, worker_msgs, actual=scheduler.send_all):
        for client in client_msgs if route() == "stream" else ():
            scheduler.client_comms[client].send(*SAID)
        actual(client_msgs, worker_msgs)

    scheduler.send_all = send_all
"""


class Cluster(DaskProcesses):
    def __init__(self, folder):
        super().__init__(folder)
        (folder / "marks").mkdir()
        (folder / "hostile.py").write_text(PRELOAD)
        (folder / "talking.py").write_text(SCHEDULER)
        self.send("none")
        env = {**os.environ, "MARKS": str(folder / "marks")}
        pages = ("--no-dashboard", "--dashboard-address", LOOPBACK)
        found = self.scheduler("--port", "0", "--preload", "talking.py", *pages, env=env)
        self.address = found["address"]
        self.dask("worker", self.address, "--nthreads", "1", "--no-nanny",
                  "--memory-limit", "4GiB", "--local-directory", str(folder),
                  "--preload", "hostile.py", *pages, env=env)  # fmt: skip

    def send(self, route):
        (self.folder / "route").write_text(route)
        for mark in self.marks():
            mark.unlink()

    def marks(self):
        return list((self.folder / "marks").iterdir())

    def ran_here(self):
        """Whether code of the worker ran in this process."""
        return str(os.getpid()) in [mark.name for mark in self.marks()]

    def outcome_of(self, project):
        """What a release on it says where it fails."""
        try:
            dbern.release(project.spec(), scheduler=self.address)
        except dbern.DbernError as error:
            return str(error)
        return None


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    from distributed import Client

    made = Cluster(tmp_path_factory.mktemp("hostile"))
    try:
        with Client(made.address, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=300)
        yield made
    finally:
        made.close()


ROUTES = {
    "result": "is not the bytes", "error": "task was given up", "type": "task failed",
    "place": "a place that is unknown here",
    "answer": "is not the bytes", "failing answer": "cannot say what it runs",
    "uncaught answer": "cannot say what it runs", "warn": None, "forwarded": None,
}  # fmt: skip


@pytest.mark.parametrize(("route", "told"), ROUTES.items())
def test_a_hostile_worker_runs_nothing_in_the_releasing_process(project, hostile, route, told):
    hostile.send(route)
    outcome = hostile.outcome_of(project)
    if route in ("warn", "forwarded"):
        time.sleep(0.2)
    assert not hostile.ran_here(), f"code of the worker ran in the releasing process: {outcome}"
    assert "Jane" not in str(outcome)
    assert (outcome is None) if told is None else (told in outcome)
    if route == "forwarded":
        assert hostile.marks() == [], "and none ran in the scheduler, which passed it on"
    hostile.send("none")
    assert dbern.release(project.spec(), scheduler=hostile.address).url


@pytest.mark.parametrize("route", ["answer", "failing answer", "warn", "forwarded"])
def test_a_hostile_worker_runs_nothing_in_doctor(hostile, route):
    hostile.send(route)
    findings = {one.subject: one.state for one in diagnosis.scheduler(hostile.address)}
    assert not hostile.ran_here()
    bad = "mend" if "answer" in route else "good"
    assert findings["workers"] == bad


SAYING = {
    "none": None,
    "stream": "task was given up|scheduler is gone",
    "greeting": "does not answer as one of",
}


@pytest.mark.parametrize(("route", "told"), SAYING.items())
def test_a_hostile_worker_s_texts_are_never_shown(project, hostile, route, told, capfd, recwarn):
    """Versions that a worker states, and whatever a scheduler says on its own."""
    hostile.send(route)
    outcome = hostile.outcome_of(project)
    hostile.send("none")
    gc.collect()  # a task that failed is told of when nobody can ask it any more
    seen = capfd.readouterr()
    assert "Jane" not in seen.out + seen.err + "".join(str(one.message) for one in recwarn)
    assert (outcome is None) if told is None else re.search(told, str(outcome)), outcome


def test_a_hostile_worker_runs_nothing_where_a_client_is_given(project, hostile):
    """Its own connection is as it is; what `dbern` asks goes over one that unpickles nothing."""
    from distributed import Client

    hostile.send("result")
    with (
        Client(hostile.address, set_as_default=False) as client,
        pytest.raises(dbern.IntegrityError, match="is not the bytes"),
    ):
        dbern.release(project.spec(), client=client)
    assert not hostile.ran_here()
