"""Real schedulers and workers on the loopback: workers die, the release does not."""

from __future__ import annotations

import os
import signal
import time

import points
import processes
import psutil
import pytest
import runner
from processes import wait
from ranges import RELEASE, Client

import dbern

pytestmark = pytest.mark.slow

# A preload of the workers: counting a portion takes a while and leaves a mark, or kills its worker.
SLOW = """
import os, pathlib, time
import dbern.measure.counters as reading
from dbern.data.parquet import read_batches as original  # the preload may be run twice
def slowly(*arguments):
    pathlib.Path(os.environ["MARKS"], str(os.getpid())).touch()
    time.sleep(float(os.environ["SECONDS"]))
    yield from original(*arguments)
reading.read_batches = slowly
"""


class Cluster(processes.Cluster):
    """A scheduler, and workers that are slow, one by one."""

    def __init__(self, folder, ttl="120s"):
        processes.prepare()
        self.marks = folder / "marks"
        super().__init__(
            folder, MARKS=str(self.marks), DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL=ttl,
            DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT="5s",
        )  # fmt: skip
        self.marks.mkdir()
        (folder / "slow.py").write_text(SLOW)
        self.start_scheduler()

    def output(self):
        return self.folder / f"client-{next(self._numbers)}"

    def worker(self, seconds=0.3):
        """One worker process of one thread, without a nanny."""
        arguments = [self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
                     "--host", "127.0.0.1", "--local-directory", str(self.folder),
                     "--preload", "slow.py"]  # fmt: skip
        name = f"worker-{len(self.workers)}"
        self.workers.append(self._fork(runner.plain_worker, name, arguments, SECONDS=str(seconds)))
        return self.workers[-1]


@pytest.fixture
def cluster(tmp_path, request):
    made = Cluster(tmp_path / "cluster", **getattr(request, "param", {}))
    try:
        yield made
    finally:
        made.close()


def start(project, cluster, rows_a_task=30, wait=60, faults=()):
    arguments = [*RELEASE, "--scheduler", cluster.address, "--wait-for-workers", str(wait)]
    output, settings = cluster.output(), {"rows_a_task": rows_a_task, "faults": faults}
    process = processes.fork(runner.client, project.folder, output, settings, arguments)
    return Client(process, output)


def outcome(release):
    return release.outcome(), release.out, release.err


@pytest.fixture
def undisturbed(project, fixed, client, helpers):
    """The objects of the same release where no worker is lost."""
    twin = project.twin("undisturbed")
    dbern.release(twin.spec(), client=client)
    return helpers.objects(twin.output)


def test_a_worker_that_dies_while_counting_changes_no_byte(project, cluster, undisturbed, helpers):
    workers = [cluster.worker(), cluster.worker()]
    cluster.wait_for_workers(2)
    release = start(project, cluster)
    wait(lambda: (cluster.marks / str(workers[0].pid)).exists())
    time.sleep(0.7)  # it holds a partial sum by now, and counts another
    workers[0].kill()
    code, _, err = outcome(release)
    assert code == 0, err
    assert (cluster.marks / str(workers[1].pid)).exists()
    assert helpers.objects(project.output) == undisturbed
    assert project.remains() == []
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


def test_tasks_that_kill_their_workers_end_in_a_clear_error_and_it_goes_on_later(
    project, cluster, undisturbed, helpers
):
    (cluster.folder / "slow.py").write_text(
        "import os, signal\nimport dbern.measure.counters as reading\n"
        "reading.read_batches = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for _ in range(4):
        cluster.worker()
    cluster.wait_for_workers(4)
    release = start(project, cluster, rows_a_task=1000)
    code, out, err = outcome(release)
    assert (code, out) == (1, "")
    assert "Bring back workers that are gone, and run the same command again" in err
    assert "KilledWorker" in err
    assert "Traceback" not in err
    assert project.reservation().state == "reading"
    assert not project.output.exists()
    (cluster.folder / "slow.py").write_text("")
    cluster.worker()
    cluster.wait_for_workers(1)
    code, _, err = outcome(start(project, cluster))
    assert code == 0, err
    assert helpers.objects(project.output) == undisturbed
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


@pytest.mark.parametrize("cluster", [{"ttl": "4s"}], indirect=True)
def test_a_worker_that_hangs_is_gone_on_without(project, cluster):
    """As soon as the scheduler has missed its heartbeats for so long."""
    hanging = cluster.worker()
    cluster.worker()
    cluster.wait_for_workers(2)
    os.kill(hanging.pid, signal.SIGSTOP)
    code, _, err = outcome(start(project, cluster))
    assert code == 0, err


def test_all_workers_gone_is_a_clear_error_not_an_endless_wait(project, cluster):
    """As far as the scheduler is configured not to wait for ever: see NO_WORKERS_TIMEOUT above."""
    worker = cluster.worker(seconds=2)
    cluster.wait_for_workers(1)
    release = start(project, cluster)
    wait(lambda: (cluster.marks / str(worker.pid)).exists())
    worker.kill()
    code, _, err = outcome(release)
    assert code == 1
    assert "workers" in err


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM])
def test_a_scheduler_that_ends_is_a_clear_error(project, cluster, blow):
    cluster.worker(seconds=1)
    cluster.wait_for_workers(1)
    release = start(project, cluster)
    wait(lambda: list(cluster.marks.iterdir()))
    os.kill(cluster.scheduler.pid, blow)
    code, out, err = outcome(release)
    assert (code, out) == (1, ""), err
    require_no_other(err)
    require_our_sentence(err)


def require_no_other(err):
    assert "Traceback" not in err
    assert "distributed" not in err


def require_our_sentence(err):
    *_, last = err.splitlines()
    assert last.startswith("dbern: The scheduler is gone ("), err
    assert last.endswith("). Start it again and run the same command again.")


@pytest.mark.sample(verify=3)
@pytest.mark.parametrize(
    ("place", "call", "when", "code"),
    [("dbern.run.connection:check_workers", 1, "after", 1),
     (f"{points.COUNTING}:tree_reduce", 1, "before", 1),
     ("dbern.run.workers:DaskWorkers.submit", 4, "after", 1),
     (f"{points.COUNTING}:tree_reduce", 1, "after", 1),
     (f"{points.COUNTING}:centers", 1, "before", 1),
     (f"{points.STAGING}.put", 1, "after", 0),  # of one slab, which has come
     (f"{points.LEDGER}.spend", 1, "before", 0)],
)  # fmt: skip
def test_no_traceback_tells_of_a_scheduler_that_dies(project, cluster, place, call, when, code):
    """Whatever the release does just then, nor as the process ends: one sentence of ours."""
    cluster.worker(seconds=0)
    cluster.wait_for_workers(1)
    release = start(project, cluster, faults=[(place, call, when, f"kill:{cluster.scheduler.pid}")])
    ended, _, err = outcome(release)
    assert ended == code, err
    require_no_other(err)
    if code:
        require_our_sentence(err)


def test_a_cluster_without_workers_or_scheduler_is_refused(project, cluster):
    code, _, err = outcome(start(project, cluster, wait=1))
    assert code == 4, err
    assert "dask worker" in err
    cluster.scheduler.kill()
    cluster.scheduler.join()
    code, _, err = outcome(start(project, cluster))
    assert code == 4, err
    assert "No scheduler answers" in err


def test_a_local_release_listens_to_no_one(project, tmp_path):
    settings = {
        "faults": [["dbern.run.counting:tree_reduce", 1, "before", f"wait:{tmp_path / 'in'}"]]
    }
    processes.prepare()
    release = processes.fork(
        runner.client, project.folder, tmp_path / "output", settings, list(RELEASE)
    )
    try:
        wait(lambda: (tmp_path / "in").exists())
        found = psutil.Process(release.pid).net_connections()
    finally:
        release.kill()
        release.join()
    assert [c.laddr for c in found if c.status == psutil.CONN_LISTEN] == []
