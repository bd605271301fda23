"""Sums of what is solved for from the records of each shard, gathered in bounded memory.

A shard is a keyed hash of content, so equal records share one and are kept once, with their number.
Distinct ones spread evenly: a pass that keeps 1 of p groups of shards keeps about that share of the
distinct records, whatever the data, and the salt is drawn after the data was fixed. A solution is a
function of its shard's distinct records in sorted order and their counts, so it depends on no
order, partition or number of workers; as integers, solutions of disjoint shards add up exactly.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from dbern.data.domain import Column
from dbern.errors import SpecError
from dbern.measure.accumulator import Accumulator, Pass, StoppedError
from dbern.privacy.keystream import content_buckets
from dbern.system import named_function, source_digest
from dbern.types import FloatArray, Int64Array

_MIN_MERGED_ROWS = 1 << 17  # that are gathered before equal ones are looked for


class Content(Protocol):
    """The part of a record that its shard is solved from."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns read: a record's content has a number for each."""

    def rows(self, records: Mapping[str, FloatArray]) -> FloatArray:
        """Content (m', columns) of a batch's records that count."""


class GatheredAccumulator(Accumulator):
    """An accumulator that solves each shard from all of its records.

    Where it `solves_empty`, a shard of no records has a solution too.
    """

    solves_empty: ClassVar[bool] = False

    @property
    @abstractmethod
    def content(self) -> Content:
        """The gathered part of records."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the content."""
        return self.content.columns

    @property
    def shards(self) -> int:
        """Number of shards."""
        return 1

    @property
    def passes(self) -> int:
        """Number of passes, each over all records."""
        return 1

    @property
    def sources(self) -> tuple[tuple[str, str, str], ...]:
        """Key, name and digest of functions of the user's that it was planned with."""
        return ()

    def shard_keys(self, records: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:  # noqa: ARG002
        """Arrays (m', e) whose keyed hash is the records' shard: usually their content."""
        return rows

    @abstractmethod
    def solved(self, rows: FloatArray, counts: FloatArray, block: int) -> Int64Array:
        """Integers of one block of one shard's solution, from its distinct records, sorted."""

    def split(self, index: int) -> tuple[int, int, int]:
        """Number of groups of shards, the group that a pass keeps, and the block it solves for."""
        return self.passes, index, 0

    def start_pass(self, state: Int64Array, salt: bytes, index: int) -> Gathering:
        """Begin to gather the records that one pass solves for.

        Raises StoppedError for a function of the user's that is not the planned one.
        """
        for key, name, digest in self.sources:
            try:
                named_function(name, key, "of arrays")
            except SpecError:
                raise StoppedError("unlike", key) from None
            if source_digest(name) != digest:
                raise StoppedError("unlike", key)
        groups, group, block = self.split(index)
        return Gathering(self, state, salt, groups, group, block)


@dataclass
class Gathering(Pass):
    """A pass that gathers records by shard, and adds its shards' solutions to the state.

    `salt` keys the hash. The pass keeps shards s with ``s mod groups = group``.
    """

    accumulator: GatheredAccumulator
    state: Int64Array = field(repr=False)
    salt: bytes = field(repr=False)
    groups: int = 1
    group: int = 0
    block: int = 0
    _gathered: list[FloatArray] = field(default_factory=list, repr=False)
    _waiting: int = 0

    def add(self, records: Mapping[str, FloatArray]) -> None:
        """Keep the batch's records that are in this pass's shards, each with its shard and 1."""
        rows = self.accumulator.content.rows(records)
        keys = self.accumulator.shard_keys(records, rows)
        shard = content_buckets(keys, self.salt, self.accumulator.shards)
        mine = shard % self.groups == self.group
        self._gathered.append(np.column_stack([shard[mine], rows[mine], np.ones(int(mine.sum()))]))
        self._waiting += len(self._gathered[-1])
        if self._waiting > max(_MIN_MERGED_ROWS, len(self._gathered[0])):
            self._merge()

    def _merge(self) -> None:
        """Count equal rows, in sorted order; at least half of what is sorted is new."""
        rows = np.concatenate(self._gathered)
        self._gathered.clear()
        rows = rows[np.lexsort(rows[:, -2::-1].T)]
        differs = (rows[1:, :-1] != rows[:-1, :-1]).any(axis=1)
        first = np.flatnonzero(np.concatenate([np.ones(min(1, len(rows)), bool), differs]))
        if len(rows):
            counts = np.add.reduceat(rows[:, -1], first)
            rows = rows[first]
            rows[:, -1] = counts
        self._gathered, self._waiting = [rows], 0

    def finish(self) -> None:
        """Solve the shards, and add their integers to the state."""
        self._gathered = self._gathered or [np.zeros((0, len(self.accumulator.columns) + 2))]
        self._merge()
        (rows,) = self._gathered
        edges = np.searchsorted(rows[:, 0], np.arange(self.accumulator.shards + 1))
        for shard, (first, last) in enumerate(itertools.pairwise(edges.tolist())):
            empty = self.accumulator.solves_empty and shard % self.groups == self.group
            if first < last or empty:
                records = rows[first:last]
                self.state += self.accumulator.solved(records[:, 1:-1], records[:, -1], self.block)
