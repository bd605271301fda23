"""Cost of counting: tasks, slabs and memory, as measured or more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dbern.certify.bin_errors import NUMBERS_TOGETHER
from dbern.data.footers import READERS, Footer
from dbern.data.parquet import BATCH_ROWS, reading_bytes
from dbern.measure.counters import Counters
from dbern.reconstruct.axis_maps import TRANSLATES_TOGETHER
from dbern.reconstruct.base import AnyStrategy
from dbern.reconstruct.bins import AxisBins

TASK_ROWS = 20_000_000
_TASKS_AT_LEAST = 16
WRITERS = 4
"""Threads that add noise and write shards, however many cores there are: memory is planned."""
_WRITER_SLABS = 6
_RELEASED_COPIES = 5 + WRITERS
_PROCESS_BYTES = 420 << 20
"""Measured: modules, compiled loops, threads, and what planning leaves."""

_MODULES_BYTES = 100 << 20
"""Measured, where bins are released: a process before it plans. With the tables that planning
makes, some of which it keeps, it is more than `_PROCESS_BYTES` where there are many hundreds of
nodes or bins."""
_NODE_TABLES = 25  # of all pairs of an axis's nodes
_BIN_TABLES = 22  # of all pairs of its bins
_MATRICES = 12  # of nodes by bins
_STRIPS, _STRIPS_TOGETHER = 96, 3  # of bins by bins, for polynomials; how many whole ones at a time
_TRANSLATES_A_BIN = 8  # that bins are fitted to
_POINTS = 16 * 210  # of y, for each translate
_NODE_ROWS = 5  # of lattice values, for each translate

_FILE_BYTES, _GROUP_BYTES, _CHUNK_BYTES = 8000, 1500, 1500
"""Measured: of a file and of a row group as listed, and of each of its columns in a footer."""


@dataclass(frozen=True)
class Cost:
    """Memory of the release: peak bytes of a worker, its threads and the releasing process.

    `worker_bytes` are of a worker of one thread that is alone, others take no more; `thread_bytes`
    of each further thread. `client_bytes` are of the releasing process, which is the worker too
    without a cluster.
    """

    rows: int
    tasks: int
    slabs: int
    worker_bytes: int
    thread_bytes: int
    client_bytes: int

    def memory(self, threads: int) -> int:
        """Return the peak bytes of a worker with so many threads."""
        return self.worker_bytes + (threads - 1) * self.thread_bytes


def task_rows(rows: int) -> int:
    """Return the rows of one counting task: a second or so of work, and enough tasks to share."""
    return max(1, min(TASK_ROWS, -(-rows // _TASKS_AT_LEAST)))


def cost(counters: Counters, n: int, files: Sequence[Footer] = (), *, remote: bool = False) -> Cost:
    """Estimate the memory of counting n rows of files, as measured or more.

    `remote`: from an object store. Files without row groups, as where the number of rows is
    private, count by their names alone.
    """
    lattices = [part.strategy.lattice for part in counters.parts]
    slabs = sum(sum(1 for _ in lattice.slabs()) for lattice in lattices)
    slab = max(8 * lattice.slab_layers * lattice.layer for lattice in lattices)
    batch = BATCH_ROWS * max(part.memory.batch for part in counters.parts)
    tables = max(part.memory.tables for part in counters.parts)
    tasks = counters.passes or max(1, -(-n // task_rows(n)))
    # Partial sums: eight wait at each level of the tree; a thread works at two and has three ahead.
    waiting = min(tasks, 8 * (1 + math.ceil(math.log(tasks, 8)))) * counters.state_bytes
    reading = reading_bytes(counters.columns, counters.filter, remote=remote)
    reading += batch + counters.gathered_bytes
    listed = _FILE_BYTES * len(files) + _GROUP_BYTES * sum(len(file.row_groups) for file in files)
    # A footer is in memory whole for each thread that reads: those of the plan, later those when
    # work is shared out, and those of tasks. Without a cluster both processes are one.
    footers = sorted(_CHUNK_BYTES * len(file.row_groups) * file.columns for file in files)
    largest = footers[-1] if footers else 0
    listed += sum(footers[-READERS:]) + largest
    reading += largest
    working = 5 * counters.state_bytes + max(reading, tables + 6 * slab)
    # What is released of a lattice that is derived is whole there: blocks, sum, file, and floats.
    derived = [part.strategy.layout.size for part in counters.parts if part.strategy.maps]
    process = max(_PROCESS_BYTES, *(_planning_bytes(part.strategy) for part in counters.parts))
    writing = WRITERS * _WRITER_SLABS * slab + _RELEASED_COPIES * 8 * max(derived, default=0)
    return Cost(
        rows=n,
        tasks=tasks,
        slabs=slabs,
        worker_bytes=process + listed + waiting + working,
        thread_bytes=working,
        client_bytes=process + listed + writing,
    )


def _planning_bytes(strategy: AnyStrategy) -> int:
    bins = [axis.rank for axis in strategy.maps if isinstance(axis, AxisBins)]
    if not bins:
        return 0
    numbers = sum(_NODE_TABLES * nodes**2 for nodes in set(strategy.lattice.shape))
    for nodes, rank in zip(strategy.lattice.shape, bins, strict=True):
        translates = min(TRANSLATES_TOGETHER, _TRANSLATES_A_BIN * rank)
        polynomials = min(_STRIPS_TOGETHER * NUMBERS_TOGETHER, _STRIPS * rank**2)
        numbers += _BIN_TABLES * rank**2 + polynomials
        numbers += _MATRICES * nodes * rank + (_POINTS + _NODE_ROWS * nodes) * translates
    return _MODULES_BYTES + 8 * numbers
