"""Memory: flat in the number of rows, under what the plan says, and refused where it is short."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbern
from dbern.bernstein.basis import iterate
from dbern.data import footers
from dbern.data.footers import Footer
from dbern.data.parquet import BATCH_ROWS, reading_bytes
from dbern.erm.summation import BLOCK, sum_by_pairs
from dbern.errors import EnvironmentRefusedError
from dbern.planning.cost import Cost
from dbern.planning.planner import plan_files
from dbern.run import workers
from dbern.run.threads import Threads
from dbern.synopsis.evaluate import Polynomial
from dbern.system import cpu_count, memory_limit

_BEGIN = """
import json, re, sys
import numpy as np
import dbern
def peak():  # not ru_maxrss, which starts from what the process that started this one had
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
"""
_RELEASE = """
from dbern.system import cpu_count
spec = dbern.ReleaseSpec.load(sys.argv[1])
cost = dbern.plan(spec).cost
dbern.release(spec)
print(json.dumps([peak(), cost.memory(cpu_count())]))
"""


def write_rows(path, rows: int) -> None:
    rng = np.random.default_rng(3)
    with pq.ParquetWriter(path, pa.schema([("x", pa.float64()), ("y", pa.float64())])) as writer:
        for _ in range(0, rows, 100_000):
            columns = {"x": rng.uniform(0, 10, 100_000), "y": rng.normal(0, 0.4, 100_000)}
            writer.write_table(pa.table(columns))


def peak_of(project, name: str, write, code: str = _RELEASE) -> list[int]:
    """The peak of a release of other rows, and what its plan says."""
    other = project.twin(name)
    for path in other.files():
        path.unlink()
    write(other.folder / "data" / "a.parquet")
    other.spec(mechanism={"noise": "binned-laplace"})
    return run(code, other.spec_path)


def run(code: str, path: Path) -> Any:
    command = [sys.executable, "-c", _BEGIN + code, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


_ON_ONE_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"


@pytest.mark.turns("memory", 5)
@pytest.mark.slow
def test_peak_memory_is_flat_in_the_rows_and_under_what_the_plan_says(project):
    """On one core: when threads allocate at once is chance, and worth 25 MiB between two runs."""
    peaks = []
    for rows in (10**6, 10**7):
        write = partial(write_rows, rows=rows)
        peak, planned = peak_of(project, f"{rows}", write, _ON_ONE_CORE + _RELEASE)
        assert peak < planned
        peaks.append(peak)
    assert peaks[1] < peaks[0] + (8 << 20)  # and 160 MB of columns more
    peak, planned = peak_of(project, "on-all-cores", write)
    assert peak < planned


@pytest.mark.turns("memory", 5)
@pytest.mark.slow
def test_a_whole_release_of_a_solved_machine_takes_no_more_than_the_plan_says(project):
    """Shards of 256 MiB of features one after the other: more than two at a time are too many."""
    rng, rows = np.random.default_rng(3), 500_000
    x, y = rng.uniform(0, 10, rows), rng.uniform(-1, 1, rows)
    late = rng.random(rows) < 1 / (1 + np.exp(-3 * y))
    project.write({"x": x, "y": y, "late": late}, files=1, row_group_size=100_000)
    project.spec(
        data__label={"column": "late", "classes": [False, True]},
        target={
            "kind": "kernel-erm", "loss": "logistic", "length_scale": [1.0, 0.25], "C": 1.0,
            "shards": 6, "bandwidth": None,
        },
    )  # fmt: skip
    peak, planned = run(_ON_ONE_CORE + _RELEASE, project.spec_path)
    assert peak < planned < 1100 << 20
    assert peak > 420 << 20  # or the features were small


_PLAN = """
cost = dbern.plan(dbern.ReleaseSpec.load(sys.argv[1])).cost
print(json.dumps([peak(), cost.client_bytes]))
"""


@pytest.mark.turns("memory", 5)
@pytest.mark.slow
def test_planning_takes_no_more_than_the_plan_says(project, monkeypatch):
    """A kernel far narrower than the lattice: two thousand bins, on whose pairs bounds rest."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.folder / "cache"))  # nothing chosen before
    project.write({"x": np.linspace(0, 10, 1000)})
    project.spec(
        data__bounds={"y": None},
        target={"bandwidth": [1e-3]},
        mechanism={"k": 300, "h": None, "noise": "auto"},
    )
    peak, planned = run(_PLAN, project.spec_path)
    assert 420 << 20 < planned < 1400 << 20  # or bins were few
    assert peak < planned


def test_a_sum_over_blocks_leaves_nothing_to_the_collector_of_cycles():
    features = np.ones((5 * BLOCK, 1))
    alive = weakref.ref(features)
    gc.disable()
    try:
        assert sum_by_pairs(partial(_column_sums, features), len(features)).tolist() == [5 * BLOCK]
        del features
        assert alive() is None
    finally:
        gc.enable()


def _column_sums(features, block: slice):
    return features[block].sum(axis=0)


@pytest.mark.turns("memory", 5)
@pytest.mark.slow
def test_memory_of_reading_does_not_follow_the_row_groups(tmp_path):
    """What Arrow has allocated at most, which buffers read ahead for all row groups exceed."""
    code = (
        "import sys, pyarrow as pa; from dbern.data.parquet import *;"
        "from dbern.data.domain import Column;"
        "columns = [Column('x', ''), Column('y', '')];"
        "[None for _ in read_batches(sys.argv[1], range(int(sys.argv[2])), columns)];"
        "assert pa.default_memory_pool().max_memory() <= reading_bytes(columns)"
    )
    write_rows(tmp_path / "a.parquet", 1_000_000)
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.parquet"), "10"], check=True, timeout=300
    )


def listed(project, files, **changes):
    cost = plan_files(project.spec(**changes), files).cost
    return np.array([cost.client_bytes, cost.worker_bytes, cost.thread_bytes])


@pytest.mark.turns("memory", 5)
@pytest.mark.slow
def test_files_row_groups_and_columns_are_planned_for(project):
    few = listed(project, [Footer("a", 1, (400_000,), 2)])
    groups = listed(project, [Footer("a", 1, (4,) * 100_000, 2)]) - few
    assert groups[0] > 100_000 * 3000  # about 2 kB of a row group's footer, and it as listed
    assert groups[1] > 100_000 * 5000
    assert groups[2] > 100_000 * 2000
    wide = listed(project, [Footer("a", 1, (4,) * 100_000, 20)]) - few
    assert (wide > 100_000 * 18_000).all()
    files = listed(project, [Footer(f"{i}", 1, (4,), 2) for i in range(100_000)]) - few
    assert (files[:2] > 100_000 * 4000).all()  # and no footer but eight
    assert files[2] < 1 << 20


def test_memory_of_private_rows_is_planned_by_the_number_of_files(project):
    spec = project.spec(data={"neighbors": "add-or-remove-one", "normalizer": "1000"})
    one, other = (
        plan_files(spec, [Footer("a", size, groups, columns), Footer("b", 1, (1,), 2)])
        for size, groups, columns in [(1, (3,), 2), (900, (1, 2) * 400, 5)]
    )
    assert one.to_dict() == other.to_dict()


def test_a_footer_larger_than_memory_is_refused_before_it_is_read(project, monkeypatch):
    spec = project.spec()
    monkeypatch.setattr(footers, "_LARGE_FOOTER_BYTES", 100)
    assert dbern.plan(spec)
    monkeypatch.setattr(footers, "memory_limit", lambda: 1000)
    with pytest.raises(EnvironmentRefusedError, match=r"part-0\.parquet: there is too little mem"):
        dbern.plan(spec)


@pytest.mark.turns("memory", 5)
@pytest.mark.slow
def test_many_row_groups_take_less_memory_than_is_planned_for_them(project):
    """One row each, as a writer leaves them that flushes after every record."""

    def write_rows_one_by_one(path, rows):
        columns = np.random.default_rng(4).uniform([0, -1], [10, 1], (rows, 2))
        table = pa.table({"x": columns[:, 0], "y": columns[:, 1]})
        pq.write_table(table, path, row_group_size=1)

    (few, few_planned), (many, many_planned) = (
        peak_of(project, str(rows), partial(write_rows_one_by_one, rows=rows))
        for rows in (300, 40_000)
    )
    assert many < many_planned
    assert (many - few) / 40_000 > 1000  # or there was nothing to plan for
    assert many - few < many_planned - few_planned


def test_a_filter_is_read_too_and_planned_for(project):
    project.write({name: np.zeros(8, np.int64) for name in ("x", "y", "status")})
    changes = {"mechanism": {"k": 4, "h": 1}}
    plain = dbern.plan(project.spec(**changes)).cost
    spec = project.spec(**changes, data__filter={"column": "status", "values": [1]})
    columns, status = spec.domain.columns, spec.records.filter
    more = reading_bytes(columns, status) - reading_bytes(columns)
    assert more > 3 * 8 * BATCH_ROWS
    assert dbern.plan(spec).cost.thread_bytes == plain.thread_bytes + more


@pytest.mark.slow
def test_workers_with_too_little_memory_are_refused_before_any_read(project, client, monkeypatch):
    spec = project.spec()
    needed = dbern.plan(spec).cost.memory(2)
    offer = workers._encode_answer({"memory": 100 << 20, "threads": 2})
    with monkeypatch.context() as patch:
        said = lambda ask: offer if ask is workers._say_offer else ask()  # noqa: E731
        patch.setattr(client, "run", lambda function, **_: {"w": said(function)})
        with pytest.raises(EnvironmentRefusedError, match="offers 100 MiB") as error:
            dbern.release(spec, client=client)
    assert f"{-(-needed // 2**20)} MiB with 2 threads" in str(error.value)
    assert project.reservation().state.value == "reserved"  # nothing was read
    assert dbern.release(spec, client=client).url


@pytest.mark.slow
def test_workers_are_asked_what_they_offer(client):
    (offer,) = workers.answers(client, workers._say_offer).values()
    assert offer["threads"] == 2
    assert offer["memory"] > 1 << 28
    cost = Cost(1, 1, 1, worker_bytes=offer["memory"] - 10, thread_bytes=10, client_bytes=1)
    workers.DaskWorkers(client).check_memory(cost)
    with pytest.raises(EnvironmentRefusedError, match="--memory-limit"):
        workers.DaskWorkers(client).check_memory(replace(cost, thread_bytes=11))


def test_threads_of_the_releasing_process_need_what_workers_do(monkeypatch):
    cost = Cost(1, 1, 1, worker_bytes=50 << 20, thread_bytes=10 << 20, client_bytes=60 << 20)
    for count, needed in ((1, 60), (2, 60), (4, 80)):
        monkeypatch.setattr(workers, "memory_limit", lambda needed=needed: needed << 20)
        Threads(count).check_memory(cost)
        monkeypatch.setattr(workers, "memory_limit", lambda needed=needed: (needed << 20) - 1)
        with pytest.raises(EnvironmentRefusedError, match=f"up to {needed} MiB there"):
            Threads(count).check_memory(cost)


@pytest.mark.slow
def test_a_releasing_process_that_is_too_small_is_refused_before_any_read(
    project, client, monkeypatch
):
    spec = project.spec()
    needed = dbern.plan(spec).cost.client_bytes
    with monkeypatch.context() as patch:
        patch.setattr(workers, "memory_limit", lambda: needed - 1)
        with pytest.raises(EnvironmentRefusedError, match=f"{needed - 1 >> 20} MiB") as error:
            dbern.release(spec, client=client)
        assert error.value.exit_code == 4
        assert f"up to {-(-needed // 2**20)} MiB" in str(error.value)
        assert project.reservation().state.value == "reserved"  # nothing was read
        patch.setattr(workers, "memory_limit", lambda: needed)
        assert dbern.release(spec, client=client).url
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


GROUPS = [
    ("0::/\n", {"memory.max": "1000"}, 1000),  # what a container sees of its own
    ("0::/\n", {"memory.max": "max", "memory.high": "900"}, 900),
    ("0::/\n", {"memory.max": "max"}, None),
    ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "800"}, 800),
    ("0::/a/b\n", {"a/b/memory.max": "700", "a/memory.max": "800"}, 700),
    ("0::/of/the/host\n", {"memory.max": "600"}, 600),
    ("3:cpu,memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "500"}, 500),
    ("3:memory:/of/the/host\n", {"memory/memory.limit_in_bytes": "400"}, 400),
    ("3:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
    ("3:cpu:/a\n", {"memory/a/memory.limit_in_bytes": "300", "a/memory.max": "300"}, None),
]


@pytest.fixture
def control_groups(tmp_path):
    """Writes those of a process, and returns where they are."""

    def write(own, files):
        (tmp_path / "self").write_text(own)
        for name, content in files.items():
            (tmp_path / "mount" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "mount" / name).write_text(f"{content}\n")
        return tmp_path / "self", tmp_path / "mount"

    return write


@pytest.mark.parametrize(("own", "files", "limit"), GROUPS)
def test_the_least_limit_of_nested_control_groups_counts(
    tmp_path, control_groups, own, files, limit
):
    machine = memory_limit(group_file=tmp_path / "none")
    assert memory_limit(*control_groups(own, files)) == (limit or machine)
    assert machine > 1 << 28


@pytest.mark.parametrize(
    ("own", "files", "count"),
    [("0::/\n", {"cpu.max": "100000 100000"}, 1),
     ("0::/\n", {"cpu.max": "50000 100000"}, 1),
     ("0::/a\n", {"a/cpu.max": "max 100000", "cpu.max": "100001 100000"}, 2),
     ("3:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "300000",
                             "cpu/a/cpu.cfs_period_us": "100000"}, 3),
     ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
     ("3:memory:/\n", {"cpu/cpu.max": "100000 100000", "cpu.max": "1 1"}, None),
     ("0::/\n", {"cpu.max": "100000 0"}, None)],
)  # fmt: skip
def test_the_least_quota_of_nested_control_groups_counts(
    control_groups, monkeypatch, own, files, count
):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    assert cpu_count(*control_groups(own, files)) == (count or 64)


def test_odd_files_of_control_groups_are_no_limits(tmp_path):
    (tmp_path / "own").write_bytes(b"\nno colons\n0::/caf\xe9\n")
    (tmp_path / "memory.max").write_text("\u00b2")
    (tmp_path / "memory.high").write_bytes(b"\xff")
    assert memory_limit(tmp_path / "own", tmp_path) == memory_limit(tmp_path / "none", tmp_path)


@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_limit_of_the_process_itself_counts(kind):
    code = (
        "import resource; from dbern.system import memory_limit\n"
        f"resource.setrlimit(resource.{kind}, (1 << 29, resource.RLIM_INFINITY))\n"
        "print(memory_limit())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) == 1 << 29


_PARTS = """
from dbern.synopsis import store
store.SHARD_BYTES = 16 << 20
synopsis, rng = dbern.open(sys.argv[1]), np.random.default_rng(2)
points = rng.uniform([0, -1, 0], [10, 1, 1], (500, 3))
begin = peak()
found = [synopsis(points, h="auto"), synopsis(points, method="nearest")]
found += [synopsis.shaped("nonnegative")(points)]
print(json.dumps([peak() - begin, bool(np.isfinite(found).all())]))
"""


@pytest.fixture
def cube(project):
    """A project with rows in three axes."""
    rng = np.random.default_rng(5)
    columns = [rng.uniform(0, 10, 2000), rng.normal(0, 0.4, 2000), rng.random(2000)]
    project.write(dict(zip("xyz", columns, strict=True)))
    return project


CUBE = {"data__bounds": {"z": [0.0, 1.0]}, "target": {"bandwidth": [2.0, 0.4, 0.2]}}


@pytest.mark.turns("memory", 5)
@pytest.mark.slow
def test_ten_million_coefficients_are_chosen_and_clipped_in_parts(cube):
    dbern.release(cube.spec(**CUBE, mechanism={"k": 215, "h": 2, "noise": "laplace"}))
    more, finite = run(_PARTS, cube.output)
    assert finite
    assert more < 190 << 20  # 120 of them for any query; the whole is 77, and was 4 to 8 times here


_ANSWER = """
from dbern.synopsis.tables import answer
folder = sys.argv[1]
assert answer(dbern.open(folder + "/out.zarr"), folder + "/q.parquet", folder + "/a.parquet").rows
print(peak())
"""


@pytest.mark.turns("memory", 5)
@pytest.mark.slow
def test_memory_of_answers_does_not_grow_with_queries(project):
    project.write({"x": [1.0, 5.0], "y": [0.0, 0.5]})
    dbern.release(project.spec())
    peaks = []
    for rows in (2 * 10**6, 10**7):
        write_rows(project.folder / "q.parquet", rows)
        peaks.append(run(_ANSWER, project.folder))
        (project.folder / "a.parquet").unlink()
    assert peaks[1] < peaks[0] + (48 << 20)  # and 256 MB of columns more


_QUERY = """
from dbern.synopsis.store import ReleasedStore
reads, original = [], ReleasedStore._shard
ReleasedStore._shard = lambda *one: reads.append(1) or original(*one)
synopsis, rng = dbern.open(sys.argv[1]), np.random.default_rng(2)
found = synopsis(np.array([[0.0, -1.0, 0.0]])).tolist()
begin, few = peak(), len(reads)
points = rng.uniform([0, -1, 0], [10, 1, 1], (5000, 3))
found += synopsis(points)[:20].tolist()
print(json.dumps([few, len(reads), peak() - begin, found, points[:20].tolist()]))
"""


@pytest.mark.turns("memory", 5)
@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "binned-laplace"])
def test_four_million_coefficients_are_never_held_at_once(cube, noise):
    spec = cube.spec(**CUBE, mechanism={"k": [160, 161, 161], "noise": noise})
    cost = dbern.plan(spec).cost
    peak, planned = run(_RELEASE, cube.spec_path)
    assert peak < max(planned, cost.client_bytes)
    assert cost.slabs == 5
    few, every, more, found, points = run(_QUERY, cube.output)
    assert (few, every) == (1, 5)  # shards: the corner's, then the others, each once
    assert more < 180 << 20  # the shards that are kept, and blocks of products
    array = dbern.open(cube.output).arrays[0]
    whole = Polynomial(iterate(array._lattice_values, array.order), array.domain)
    expected = whole(np.array([[0.0, -1.0, 0.0], *points]), 1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
