"""The tasks themselves, called as functions: count, merge and center on a small Parquet file."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from unittest.mock import Mock

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import reference
from black_boxes import PanicException
from clusters import local_cluster, wait
from distributed import Client, Future
from distributed.client import CancelledError
from distributed.comm import CommClosedError
from strategies import density_spec, whole
from threadpoolctl import threadpool_info, threadpool_limits

import dbern
from dbern.data.domain import Column
from dbern.data.footers import (
    Footer,
    UnreadableFileError,
    footer_tag,
    read_footer,
    read_footers,
    read_together,
)
from dbern.errors import EnvironmentRefusedError, IntegrityError, ReleaseError
from dbern.measure.accumulator import StoppedError
from dbern.measure.counters import Counters, Portion, Reading
from dbern.planning.planner import plan
from dbern.privacy.laplace import MAX_CENTER
from dbern.run.graph import _as_completed, centers, make_tasks, tree_reduce
from dbern.run.messages import TaskResult
from dbern.run.tasks import SlabJob, center, count_portions, environment, merge
from dbern.run.threads import Threads
from dbern.run.workers import DaskWorkers, _say_environment, check_workers
from dbern.system import silent

SALT = b"a test's salt"
ROWS = 1000


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(11)
    columns = {
        "x": rng.normal(3.0, 2.0, ROWS),
        "y": rng.integers(-5, 15, ROWS),
        "ignored": rng.uniform(size=ROWS),
    }
    mask = rng.uniform(size=ROWS) < 0.05
    arrays = {name: pa.array(values) for name, values in columns.items()}
    arrays["x"] = pa.array(columns["x"], mask=mask)
    path = tmp_path / "records.parquet"
    pq.write_table(pa.table(arrays), path, row_group_size=130)
    x = np.where(mask, np.nan, columns["x"])
    return path, np.column_stack([x, columns["y"].astype(float)])


BOUNDS = ((0.0, 8.0), (-3.0, 12.0))


def planned(path, outside="drop"):
    spec = density_spec((0.8, 3.0), (6, 9), n=ROWS, bounds=BOUNDS, outside=outside,
                        source=str(path))  # fmt: skip
    return spec, plan(spec)


def tasks(path, groups_each=3):
    tag = footer_tag(str(path), SALT)
    groups = pq.ParquetFile(path).metadata.num_row_groups
    cut = [tuple(range(g, min(g + groups_each, groups))) for g in range(0, groups, groups_each)]
    return [(Portion(str(path), tag, part, 130 * len(part)),) for part in cut]


@pytest.fixture
def case(table):
    """A planned release of the file, and what its tasks need."""
    spec, plan_of_file = planned(table[0])
    return SimpleNamespace(
        path=table[0],
        plan=plan_of_file,
        counters=plan_of_file.counters(spec),
        law=plan_of_file.noise.law,
        piece=SlabJob(0, 0, whole(plan_of_file)),
    )


@pytest.mark.parametrize("outside", ["drop", "clamp"])
def test_a_release_without_noise_is_the_density_of_the_file(table, outside):
    path, records = table
    spec, planned_release = planned(path, outside)
    counters, law = planned_release.counters(spec), planned_release.noise.law
    total = merge([merge([count_portions(counters, task, SALT)]) for task in tasks(path)])
    slabs = [whole(planned_release)]
    parts = [center(total, counters, SlabJob(0, 0, slab), law, SALT) for slab in slabs]
    assert total.rows == ROWS
    low, high = np.array(BOUNDS).T
    kept = records[np.isfinite(records).all(axis=1)]
    if outside == "clamp":
        kept = np.clip(kept, low, high)
    kept = kept[((kept >= low) & (kept <= high)).all(axis=1)]
    positions, widths = (kept - low) / (high - low), np.array([0.8, 3.0]) / (high - low)
    exact = reference.density(reference.lattice_points((6, 9)), positions, widths, ROWS)
    got = np.concatenate([part.state.ravel() for part in parts]) * float(law.granularity)
    volume = spec.domain.volume
    error = np.abs(got - exact).max() / volume
    assert error <= planned_release.certificate.rounding  # norm >= 1
    assert error <= 0.02 * planned_release.noise.scale
    assert got.max() > 0.1


def test_slabs_put_together_are_the_whole(case):
    total = merge([count_portions(case.counters, task, SALT) for task in tasks(case.path)])
    slab = whole(case.plan)
    entire = center(total, case.counters, case.piece, case.law, SALT).state
    assert entire.shape == (7, 10)
    for start in range(7):
        part = center(
            total, case.counters, SlabJob(0, 0, type(slab)(0, start, start + 1)), case.law, SALT
        ).state
        assert np.abs(part - entire[start : start + 1]).max() <= 1  # floats: another block shape


def test_partitions_and_trees_give_the_same_integers(case):
    one = count_portions(case.counters, [p for task in tasks(case.path, 100) for p in task], SALT)
    single = [count_portions(case.counters, task, SALT) for task in tasks(case.path, 1)]
    tree = merge([merge(single[5:]), merge([merge(single[:2]), *single[2:5]])])
    np.testing.assert_array_equal(one.state, tree.state)
    assert one.rows == tree.rows == ROWS
    again = merge(single)  # merging leaves its arguments alone: a task may run twice
    np.testing.assert_array_equal(again.state, one.state)


def test_a_portion_counted_twice_shows_in_the_rows(case):
    once = count_portions(case.counters, tasks(case.path)[0], SALT)
    assert merge([once, once]).rows == 2 * once.rows
    np.testing.assert_array_equal(merge([once, once]).state, 2 * once.state)


def test_changed_and_unreadable_files_are_told_apart(case):
    path, portions = case.path, tasks(case.path)
    stale = (Portion(str(path), "0" * 64, (0,), 130),)
    assert count_portions(case.counters, stale, SALT) == TaskResult(None, 0, "changed", str(path))
    assert count_portions(case.counters, portions[0], b"other salt").failure == "changed"
    absent = (Portion(str(path) + "x", "0" * 64, (0,), 130),)
    assert count_portions(case.counters, absent, SALT) == TaskResult(
        None, 0, "unreadable", str(path) + "x"
    )
    whole, times = path.read_bytes(), path.stat()
    path.write_bytes(whole[:-30])
    assert count_portions(case.counters, portions[0], SALT).failure == "changed"
    path.write_bytes(bytes([whole[0], *[one ^ 255 for one in whole[1:60]], *whole[60:]]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert count_portions(case.counters, portions[0], SALT).failure == "unreadable"


def test_failures_carry_no_text(case, monkeypatch):
    text, total = "the record 3.14159 of Jane", TaskResult(case.counters.empty(), 0)
    panic = type("Jane_3_14159", (PanicException,), {})(text)
    for error, name in ((KeyError(text), "KeyError"), (panic, "BaseException")):
        told = TaskResult(None, 0, "internal", name)
        for method in ("count", "to_values"):
            monkeypatch.setattr(type(case.counters), method, Mock(side_effect=error))
        assert count_portions(case.counters, tasks(case.path)[0], SALT) == told
        if error is not panic:  # which code of others may raise, while it counts
            assert center(total, case.counters, case.piece, case.law, SALT) == told


def test_a_worker_of_other_versions_counts_nothing(case, monkeypatch):
    """It may have joined after all were asked."""
    ours = environment(("dbern", "numpy"))
    assert set(ours) == {"python", "dbern", "numpy"}
    good = count_portions(case.counters, tasks(case.path)[0], SALT)
    for name in (*ours, "no-such-package"):
        required = {**ours, name: "0.1"}
        counters = replace(case.counters, versions=tuple(required.items()))
        refused = TaskResult(None, failure="versions")
        assert count_portions(counters, tasks(case.path)[0], SALT) == refused
        assert center(good, counters, case.piece, case.law, SALT) == refused
    same = replace(case.counters, versions=tuple(ours.items()))
    assert (count_portions(same, tasks(case.path)[0], SALT).state == good.state).all()
    monkeypatch.setattr("dbern.run.tasks.version", Mock(side_effect=OSError("unreadable")))
    assert count_portions(same, tasks(case.path)[0], SALT) == refused  # and raises nothing
    assert center(good, same, case.piece, case.law, SALT) == refused


def test_the_first_failure_wins_and_stays(case):
    good = count_portions(case.counters, tasks(case.path)[0], SALT)
    bad, worse = (
        TaskResult(None, failure="changed", location="f"),
        TaskResult(None, failure="unreadable"),
    )
    failed = merge([good, bad, worse, good])
    assert failed is bad
    assert center(failed, case.counters, case.piece, case.law, SALT) is bad


def test_centers_stay_inside_the_samplers_range(case):
    state = case.counters.count([{"x": np.full(ROWS, 4.0), "y": np.full(ROWS, 2.0)}], b"")
    granules = center(TaskResult(state, ROWS), case.counters, case.piece, case.law, SALT).state
    assert granules.dtype == np.int64
    assert np.abs(granules).max() < MAX_CENTER


def test_tasks_share_out_the_work_completely_and_in_bounds(tmp_path):
    files = []
    for i, rows in enumerate((500, 3, 0, 7, 64, 1)):
        pq.write_table(pa.table({"x": np.zeros(rows)}), tmp_path / f"{i}.parquet",
                       row_group_size=10)  # fmt: skip
        files.append(tmp_path / f"{i}.parquet")
    facts = read_footers(files, [Column("x", "data.bounds.x")])
    shared = make_tasks(facts, SALT)
    for fact in facts:
        groups = [g for task in shared for p in task if p.path == fact.path for g in p.row_groups]
        assert groups == list(range(len(fact.row_groups)))
    assert sum(p.rows for task in shared for p in task) == 575
    assert len(shared) > 8
    assert max(sum(p.rows for p in task) for task in shared) <= 2 * 36
    (tmp_path / "0.parquet").unlink()
    with pytest.raises(UnreadableFileError):
        make_tasks(facts, SALT)


def test_a_small_file_is_parsed_again_only_if_its_size_or_footer_changed(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.zeros(50)}), path, row_group_size=10)
    (file,) = read_footers([path], [Column("x", "data.bounds.x")])
    whole, parse = path.read_bytes(), Mock(side_effect=read_footer)
    monkeypatch.setattr("dbern.run.graph.read_footer", parse)
    path.write_bytes(bytes([whole[0], *[one ^ 255 for one in whole[1:60]], *whole[60:]]))
    assert make_tasks([file], SALT)
    assert not parse.called
    assert make_tasks([replace(file, digest=b"")], SALT)  # as a ledger has it
    assert parse.call_count == 1
    path.write_bytes(whole[:4] + bytes(100) + whole[4:])  # the same footer
    with pytest.raises(IntegrityError, match=r"a\.parquet changed"):
        make_tasks([file], SALT)
    pq.write_table(pa.table({"x": np.zeros(50)}), path, row_group_size=25)
    fewer = path.read_bytes()
    path.write_bytes(fewer[:4] + bytes(file.size - len(fewer)) + fewer[4:])  # the same size
    with pytest.raises(IntegrityError, match=r"a\.parquet changed"):
        make_tasks([file], SALT)


def test_small_files_share_batches_and_are_read_in_order(tmp_path, monkeypatch):
    sizes, portions, first = (3, 30, 1, 20, 9, 4, 2), [], 0
    for i, rows in enumerate(sizes):
        path, values = str(tmp_path / f"{i}.parquet"), np.arange(first, first + rows, dtype=float)
        pq.write_table(pa.table({"x": values, "y": values}), path)
        portions.append(Portion(path, footer_tag(path, SALT), (0,), rows))
        first += rows
    wanted = SimpleNamespace(columns=(Column("x", "data.bounds.x"),), filter=None)
    monkeypatch.setattr("dbern.measure.counters.BATCH_ROWS", 32)
    reading = Reading(portions, wanted, SALT)
    for _ in range(2):  # a pass may go over them again
        batches = [batch["x"] for batch in reading]
        assert [len(one) for one in batches] == [3, 30, 21, 15]
        assert np.concatenate(batches).tolist() == list(range(first))
        assert reading.rows == first
    pq.write_table(pa.table({"x": np.zeros(2)}), portions[-1].path)
    with pytest.raises(StoppedError):
        list(reading)


def test_what_is_read_of_each_file_keeps_its_order_and_ends_with_the_first_failure():
    def read(number):
        if number == 900:
            raise KeyError(number)
        return number

    assert list(read_together(read, range(899))) == list(range(899))
    found = read_together(read, range(2000))
    with pytest.raises(KeyError, match="900"):
        list(found)
    assert list(read_together(read, [])) == []


@pytest.mark.slow
def test_a_hundred_thousand_row_groups_are_few_tasks(monkeypatch):
    """Of files that are not there: 10^5 of one row group each, and one of as many row groups."""
    monkeypatch.setattr("dbern.run.graph.tag_and_digest", lambda path, _salt: (path, b""))
    monkeypatch.setattr("dbern.run.graph.read_footer", lambda path: by_path[path])
    for rows in (1_000, 1_000_000):
        many = [Footer(f"{i}", 1, (rows,)) for i in range(100_000)]
        for files in (many, [Footer("all", 1, (rows,) * 100_000)]):
            by_path = {file.path: file for file in files}
            shared = make_tasks(files, SALT)
            assert 16 <= len(shared) <= 5_000
            assert sum(p.rows for task in shared for p in task) == rows * 100_000
            sizes = [sum(p.rows for p in task) for task in shared[:-1]]
            assert max(sizes) <= 2 * min(sizes)
    by_path = {file.path: file for file in many}
    hidden = make_tasks(many, SALT, whole=True)  # whatever the rows: files decide
    assert [p.path for task in hidden for p in task] == [file.path for file in many]
    assert {len(task) for task in hidden} == {10}


@pytest.mark.slow
def test_a_graph_is_never_large_and_a_task_costs_little(client, case, monkeypatch):
    """400 tasks: few at a time, an eighth more to merge, and each two or three that do nothing."""
    submit, keys, together = client.submit, [], []

    def counted(function, *arguments, **named):
        together.append(len(client.futures))
        future = submit(function, *arguments, **named)
        keys.append(future.key)
        return future

    monkeypatch.setattr(client, "submit", counted)
    monkeypatch.setattr(
        "dbern.run.tasks.count_portions", lambda *_: TaskResult(np.ones(4, np.int64), 1)
    )
    begin = time.process_time()
    total = tree_reduce(client, case.counters, [()] * 400, SALT, silent).result()
    spent = time.process_time() - begin
    assert total.state.tolist() == [400] * 4
    assert len(set(keys)) < 400 * 8 / 7 + 8
    assert max(together) < 100
    begin = time.process_time()
    client.gather([submit(abs, number, pure=False) for number in range(500)])
    assert spent / 400 < 8 * (time.process_time() - begin) / 500
    assert len(pickle.dumps(case.counters)) < 100_000  # which each task is sent


@dataclass
class Result:
    """A future whose status is another each time it is looked at."""

    statuses: list[str]

    @property
    def status(self):
        return self.statuses.pop(0)


@dataclass
class Ready:
    """Futures that are there, in turn."""

    queue: list[Result]

    def is_empty(self):
        return not self.queue

    def has_ready(self):
        return True

    def __next__(self):
        return self.queue.pop(0)

    def add(self, future):
        self.queue.append(future)


class Frozen(Ready):
    """Nothing is there for a while, though a worker is at work."""

    looks = 0
    thread_condition = threading.Condition()

    def has_ready(self):
        self.looks += 1
        return self.looks > 4

    def is_at_work(self):
        return True


def test_a_silence_is_told_with_what_may_cause_it(monkeypatch, caplog):
    monkeypatch.setattr("dbern.run.graph._LOOK_SECONDS", 0)
    frozen = Frozen([Result(["finished"])])
    assert len(list(_as_completed(frozen, frozen))) == 1
    assert caplog.messages == []
    monkeypatch.setattr("dbern.run.graph._SILENCE_SECONDS", 0)
    frozen = Frozen([Result(["finished"])])
    assert len(list(_as_completed(frozen, frozen))) == 1
    assert "nothing has arrived for 0 s" in caplog.messages[0]
    assert "worker-ttl" in caplog.messages[0]


def test_a_result_that_is_lost_with_its_worker_is_waited_for_again():
    lost, kept = Result(["lost", "finished"]), Result(["finished"])
    assert list(_as_completed(None, Ready([lost, kept]))) == [kept, lost]
    working = SimpleNamespace(require_scheduler=nullcontext)
    with pytest.raises(ReleaseError, match="task was given up"):
        list(_as_completed(working, Ready([Result(["lost", "cancelled"])])))
    without_scheduler = DaskWorkers(SimpleNamespace(status="closed"))
    with pytest.raises(ReleaseError, match="scheduler is gone"):
        list(_as_completed(without_scheduler, Ready([Result(["cancelled"])])))


def test_a_result_that_does_not_come_is_waited_for_as_one_that_is_lost(client, case, monkeypatch):
    total = tree_reduce(client, case.counters, tasks(case.path), SALT, silent)
    result, waits = Future.result, []

    def late(future, timeout):
        waits.append(timeout)
        if len(waits) == 1:
            raise TimeoutError
        return result(future, timeout)

    monkeypatch.setattr(Future, "result", late)
    (found,) = centers(client, total, case.counters, [(case.piece, case.law)], SALT)
    assert found[2] == ROWS
    assert waits == [60, 60]


@pytest.mark.parametrize("error", [CommClosedError, CancelledError])
@pytest.mark.parametrize("asked", ["nthreads", "result"])
def test_a_scheduler_that_is_gone_is_said(client, case, monkeypatch, error, asked):
    total = tree_reduce(client, case.counters, tasks(case.path), SALT, silent)
    gone = Mock(side_effect=error("with a text that nobody should see"))
    monkeypatch.setattr(client if asked == "nthreads" else Future, asked, gone)
    pieces = [(case.piece, case.law)]
    with pytest.raises(ReleaseError, match="scheduler is gone") as caught:
        list(centers(client, total, case.counters, pieces, SALT))
    assert "nobody" not in str(caught.value)


def test_tasks_pin_the_threads_of_linear_algebra(case, monkeypatch):
    seen = []
    for name in ("count", "to_values"):
        original = getattr(Counters, name)

        def watched(self, *arguments, original=original):
            seen.append({pool["num_threads"] for pool in threadpool_info()
                         if pool["user_api"] == "blas"})  # fmt: skip
            return original(self, *arguments)

        monkeypatch.setattr(Counters, name, watched)
    with threadpool_limits(2):
        total = count_portions(case.counters, tasks(case.path)[0], SALT)
        center(total, case.counters, case.piece, case.law, SALT)
    assert seen == [{1}, {1}]


@pytest.mark.slow
def test_a_release_here_starts_no_cluster(project):
    """A small release waits for nothing that it does not use."""
    code = (
        "import dbern, sys\n"
        f"dbern.release({str(project.spec_path)!r})\n"
        "assert not {'dask', 'distributed', 'tornado'} & set(sys.modules)"
    )
    project.spec()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_threads_run_tasks_of_what_tasks_came_to():
    with Threads(2) as here:
        assert here.thread_count() == 2
        assert here.is_at_work()
        parts = [here.submit(abs, -n) for n in range(5)]
        total, failed = here.submit(sum, parts), here.submit(abs, "text")
        assert total.result(timeout=60) == 10
        assert failed.exception(timeout=60).__class__ is TypeError
        active = here.as_completed()
        for one in (total, failed):
            active.add(one)
        assert {next(active).key: one.status for one in (total, failed)} == {
            total: "finished",
            failed: "error",
        }
        assert active.is_empty()


def test_threads_are_not_waited_for_after_ctrl_c():
    begun, over = threading.Event(), threading.Event()

    def long():
        begun.set()
        over.wait()

    with pytest.raises(KeyboardInterrupt), Threads(1) as here:  # noqa: PT012
        first, second = here.submit(long), here.submit(abs, -1)
        begun.wait()
        raise KeyboardInterrupt
    assert (first.status, second.status) == ("pending", "pending")
    over.set()
    assert first.result(timeout=60) is None
    assert not second.done()


@pytest.mark.slow
def test_workers_that_stay_paused_are_not_waited_for_for_ever(project, monkeypatch):
    monkeypatch.setattr("dbern.run.graph._PATIENCE_SECONDS", 1)
    monkeypatch.setattr("dbern.run.graph._LOOK_SECONDS", 0.1)
    with (
        dask.config.set({"distributed.worker.memory.pause": 1e-6}),
        local_cluster() as local,
        Client(local, set_as_default=False) as client,
    ):
        wait(lambda: client.scheduler_info()["workers"].popitem()[1]["status"] == "paused")
        with pytest.raises(ReleaseError, match="all are paused, short of memory"):
            dbern.release(project.spec(), client=client)
    assert project.spent().endswith("epsilon 1 reserved")
    dbern.release(project.spec())


@pytest.mark.parametrize(
    ("status", "counts", "works"),
    [("running", {}, True), ("paused", {"executing": 1}, True), ("paused", {"memory": 3}, False),
     (None, {}, False)],
)  # fmt: skip
def test_a_cluster_is_at_work_while_one_worker_takes_tasks_or_is_at_one(status, counts, works):
    class Known:
        status = "running"

        def nthreads(self):
            return {"a": 1, "b": 1} if status else {}

        def scheduler_info(self, n_workers):
            assert n_workers == -1  # of all
            paused = {"status": "paused", "metrics": {}}
            asked = {"status": status, "metrics": {"task_counts": counts}}
            return {"workers": {"a": paused, "b": asked} if status else {}}

    assert DaskWorkers(Known()).is_at_work() is works


@pytest.mark.parametrize("status", ["connecting", "closed"])
def test_a_scheduler_that_is_gone_has_no_workers_at_work(status):
    """A future that was submitted since stays pending for ever; the client keeps what it knew."""

    class Knew:
        def __init__(self):
            self.status = status

        def nthreads(self):
            raise AttributeError if status == "closed" else CommClosedError

        def scheduler_info(self, n_workers):
            return {"workers": {"a": {"status": "running", "metrics": {}}}}

    with pytest.raises(ReleaseError, match="scheduler is gone"):
        DaskWorkers(Knew()).is_at_work()


def test_a_client_that_closed_itself_is_given_no_task(client):
    with Client(client.scheduler.address, set_as_default=False) as closed:
        assert DaskWorkers(closed).submit(abs, -1).result() == 1
    with pytest.raises(ReleaseError, match="scheduler is gone"):
        DaskWorkers(closed).submit(abs, -1)


def test_a_large_plan_is_sent_without_a_warning_that_nobody_can_heed(client):
    """Of many bins, whose tables the tasks need."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert DaskWorkers(client).submit(len, bytes(11_000_000)).result() == 11_000_000


def test_a_worker_that_dies_while_it_is_asked_is_asked_again(client, monkeypatch):
    (worker,), answers = client.run(_say_environment), [CommClosedError(), _say_environment()]
    monkeypatch.setattr(client, "run", lambda *_, **__: {worker: answers.pop(0)})
    check_workers(client)
    assert answers == []
    answers[:] = [ModuleNotFoundError("a text"), _say_environment()]
    with pytest.raises(EnvironmentRefusedError, match="ModuleNotFoundError") as caught:
        check_workers(client)
    assert "a text" not in str(caught.value)
    monkeypatch.setattr("dbern.run.workers._ASK_SECONDS", 0.0)
    answers[:] = [CommClosedError(), _say_environment()]
    with pytest.raises(EnvironmentRefusedError, match="does not answer"):
        check_workers(client)
