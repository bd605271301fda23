"""Gathering the records of some shards from all of them, in bounded memory.

A shard is a keyed hash of content, so equal records share one and are kept once, with their number.
Distinct ones spread evenly: a pass that keeps 1 of p groups of shards keeps about that share of the
distinct records, whatever the data, and the salt is drawn after the data was fixed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.privacy.content import content_buckets

_LEAST_MERGED = 1 << 17  # rows that are gathered before equal ones are looked for


@dataclass
class Gathering:
    """One pass: batches of records in, the sum over its shards of what they solve to out.

    Parameters
    ----------
    rows : callable
        Content (m', d) of a batch's records that count.
    solved : callable
        Integers of one shard, from its distinct rows in sorted order and their counts.
    salt : bytes
        Keys the hash.
    shards, passes, index : int
        The pass keeps shards s with ``s mod passes = index``.
    names : callable, optional
        What (m', e) a record's shard is a hash of; its content unless stated.
    """

    rows: Callable[[Mapping[str, FloatArray]], FloatArray]
    solved: Callable[[FloatArray, FloatArray], Int64Array]
    salt: bytes = field(repr=False)
    shards: int
    passes: int
    index: int
    names: Callable[[Mapping[str, FloatArray]], FloatArray] | None = None
    _kept: list[FloatArray] = field(default_factory=list, repr=False)
    _waiting: int = 0

    def add(self, records: Mapping[str, FloatArray]) -> None:
        """Keep the batch's records that are in this pass's shards, each with its shard and 1."""
        rows = self.rows(records)
        names = rows if self.names is None else self.names(records)
        shard = content_buckets(names, self.salt, self.shards)
        mine = shard % self.passes == self.index
        self._kept.append(np.column_stack([shard[mine], rows[mine], np.ones(int(mine.sum()))]))
        self._waiting += len(self._kept[-1])
        if self._waiting > max(_LEAST_MERGED, len(self._kept[0])):
            self._merge()

    def _merge(self) -> None:
        """Count equal rows, in sorted order; at least half of what is sorted is new."""
        rows = np.concatenate(self._kept)
        self._kept.clear()
        rows = rows[np.lexsort(rows[:, -2::-1].T)]
        differs = (rows[1:, :-1] != rows[:-1, :-1]).any(axis=1)
        first = np.flatnonzero(np.concatenate([np.ones(min(1, len(rows)), bool), differs]))
        if len(rows):
            counts = np.add.reduceat(rows[:, -1], first)
            rows = rows[first]
            rows[:, -1] = counts
        self._kept, self._waiting = [rows], 0

    def finish(self, state: Int64Array) -> None:
        """Solve the shards, and add their integers to `state`, in place."""
        if not self._kept:
            return
        self._merge()
        (rows,) = self._kept
        edges = np.searchsorted(rows[:, 0], np.arange(self.shards + 1))
        for first, last in itertools.pairwise(edges.tolist()):
            if first < last:  # a shard of no records has weights of zero
                state += self.solved(rows[first:last, 1:-1], rows[first:last, -1])
