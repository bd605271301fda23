"""What a release takes: memory and tasks, as planned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dbern.counting.passes import Counters
from dbern.data.parquet import BATCH_ROWS, READERS, FileFacts, reading_bytes

TASK_ROWS = 20_000_000
_TASKS_AT_LEAST = 16
WRITERS = 4
"""Threads that add noise and write shards, however many cores there are: memory is planned."""
_WRITER_SLABS = 6
_RELEASED_COPIES = 5 + WRITERS
_PROCESS_BYTES = 420 << 20
"""Measured: modules, compiled loops, threads, and what planning leaves."""

_FILE_BYTES, _GROUP_BYTES, _CHUNK_BYTES = 8000, 1500, 1500
"""Measured: of a file and of a row group as listed, and of each of its columns in a footer."""


@dataclass(frozen=True)
class Cost:
    """What the release will take: peak memory of a worker, its threads and the releasing process.

    Attributes
    ----------
    worker_bytes : int
        Of a worker of one thread that is alone; of others no more.
    thread_bytes : int
        What each further thread adds.
    client_bytes : int
        Of the releasing process; with a local cluster it is the worker too.
    """

    rows: int
    tasks: int
    slabs: int
    worker_bytes: int
    thread_bytes: int
    client_bytes: int

    def memory(self, threads: int) -> int:
        """Peak memory of a worker with so many threads."""
        return self.worker_bytes + (threads - 1) * self.thread_bytes


def task_rows(rows: int) -> int:
    """Rows of one counting task: a second or so of work, and enough tasks to share it out."""
    return max(1, min(TASK_ROWS, -(-rows // _TASKS_AT_LEAST)))


def cost(
    counters: Counters, n: int, files: Sequence[FileFacts] = (), *, remote: bool = False
) -> Cost:
    """What counting n rows of files will take, as measured or more.

    `remote`: from an object store. Of files without row groups, as where the number of rows is
    private, no more than the names count.
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
    # work is shared out, and those of tasks. With a local cluster both processes are one.
    footers = sorted(_CHUNK_BYTES * len(file.row_groups) * file.columns for file in files)
    largest = footers[-1] if footers else 0
    listed += sum(footers[-READERS:]) + largest
    reading += largest
    working = 5 * counters.state_bytes + max(reading, tables + 6 * slab)
    # What is released of a lattice that is derived is whole there: blocks, sum, file, and floats.
    derived = [part.strategy.layout.size for part in counters.parts if part.strategy.maps]
    writing = WRITERS * _WRITER_SLABS * slab + _RELEASED_COPIES * 8 * max(derived, default=0)
    return Cost(
        rows=n,
        tasks=tasks,
        slabs=slabs,
        worker_bytes=_PROCESS_BYTES + listed + waiting + working,
        thread_bytes=working,
        client_bytes=_PROCESS_BYTES + listed + writing,
    )
