"""Memory: flat in the number of rows, under what the plan says, and refused where it is short."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbern
from dbern import workers
from dbern.costs import Cost
from dbern.errors import EnvironmentRefusedError
from dbern.records import BATCH_ROWS, reading_bytes

_RELEASE = """
import json, os, re, sys
import dbern
spec = dbern.ReleaseSpec.load(sys.argv[1])
cost = dbern.plan(spec).cost
dbern.release(spec)
# Not ru_maxrss, which starts from what the process that started this one had.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
print(json.dumps([peak, cost.memory(os.cpu_count())]))
"""


def write_rows(path, rows: int) -> None:
    rng = np.random.default_rng(3)
    with pq.ParquetWriter(path, pa.schema([("x", pa.float64()), ("y", pa.float64())])) as writer:
        for _ in range(0, rows, 100_000):
            columns = {"x": rng.uniform(0, 10, 100_000), "y": rng.normal(0, 0.4, 100_000)}
            writer.write_table(pa.table(columns))


def peak_of(project) -> tuple[int, int]:
    project.spec(mechanism={"noise": "binned-laplace"})
    command = [sys.executable, "-c", _RELEASE, str(project.spec_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    peak, planned = json.loads(done.stdout)
    return peak, planned


@pytest.mark.slow
def test_peak_memory_is_flat_in_the_rows_and_under_what_the_plan_says(project):
    peaks = []
    for rows in (10**6, 10**7):
        other = project.twin(str(rows))
        for path in other.files():
            path.unlink()
        write_rows(other.folder / "data" / "a.parquet", rows)
        peak, planned = peak_of(other)
        assert peak < planned
        peaks.append(peak)
    assert peaks[1] < peaks[0] + (24 << 20)  # and 160 MB of columns more


def test_memory_of_reading_does_not_follow_the_row_groups(tmp_path):
    """What Arrow has allocated at most, which buffers read ahead for all row groups exceed."""
    code = (
        "import sys, pyarrow as pa; from dbern.records import *; from dbern.domain import Column;"
        "columns = [Column('x', ''), Column('y', '')];"
        "[None for _ in read_batches(sys.argv[1], range(int(sys.argv[2])), columns)];"
        "assert pa.default_memory_pool().max_memory() <= reading_bytes(columns)"
    )
    write_rows(tmp_path / "a.parquet", 1_000_000)
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.parquet"), "10"], check=True, timeout=60
    )


def test_a_filter_is_read_too_and_planned_for(project):
    project.write({name: np.zeros(8, np.int64) for name in ("x", "y", "status")})
    changes = {"mechanism": {"k": 4, "h": 1}}
    plain = dbern.plan(project.spec(**changes)).cost
    spec = project.spec(**changes, data__filter={"column": "status", "values": [1]})
    columns, status = spec.domain.columns, spec.records.filter
    more = reading_bytes(columns, status) - reading_bytes(columns)
    assert more > 3 * 8 * BATCH_ROWS
    assert dbern.plan(spec).cost.thread_bytes == plain.thread_bytes + more


def test_workers_with_too_little_memory_are_refused_before_any_read(project, client, monkeypatch):
    spec = project.spec()
    needed = dbern.plan(spec).cost.memory(2)
    short = lambda: dict.fromkeys(client.run(workers.environment), (100 << 20, 2))  # noqa: E731
    with monkeypatch.context() as patch:
        offers = short()
        patch.setattr(client, "run", lambda function: (
            offers if function is workers.offer else {"w": workers.environment()}))  # fmt: skip
        with pytest.raises(EnvironmentRefusedError, match="offers 100 MiB") as error:
            dbern.release(spec, client=client)
    assert f"{-(-needed // 2**20)} MiB with 2 threads" in str(error.value)
    assert project.reservation().state.value == "reserved"  # nothing was read
    assert dbern.release(spec, client=client).url


def test_what_a_worker_offers_is_asked_of_it(client):
    (offer,) = client.run(workers.offer).values()
    assert offer[1] == 2
    assert offer[0] > 1 << 28
    cost = Cost(1, 1, 1, worker_bytes=offer[0] - 10, thread_bytes=10, client_bytes=1)
    workers.check_memory(client, cost)
    with pytest.raises(EnvironmentRefusedError, match="--memory-limit"):
        workers.check_memory(client, replace(cost, thread_bytes=11))
