"""How workers count: all components' statistics as one, over portions or in passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.lattice import Slab
from dbern.components.base import Statistic
from dbern.components.bounding import Bounding, bounding_passes
from dbern.domain import Column, RecordSchema
from dbern.privacy.budget import PrivacyUnit


class StoppedError(Exception):
    """Counting cannot go on, for a reason that is safe to tell: its code and its public place."""

    def __init__(self, failure: str, place: str) -> None:
        super().__init__(failure)
        self.failure, self.place = failure, place


class Gathered(Protocol):
    """One pass of a statistic over all records, on one worker."""

    def add(self, records: Mapping[str, FloatArray]) -> None:
        """Take a batch in."""

    def finish(self, state: Int64Array) -> None:
        """Add what the pass amounts to to a state, in place."""


@runtime_checkable
class Surveying(Protocol):
    """A pass that sees all records once before any is added: they are read twice."""

    def survey(self, records: Mapping[str, FloatArray]) -> None:
        """Look at a batch."""


@runtime_checkable
class GatheringStatistic(Protocol):
    """A statistic whose records must meet: each of its `passes` goes over all of them.

    States of different passes add up. Which records a pass keeps depends on their content and on
    the salt alone.
    """

    @property
    def passes(self) -> int:
        """How many."""

    @property
    def gathered_bytes(self) -> int:
        """Memory of one pass."""

    def gather(self, salt: bytes, index: int) -> Gathered:
        """Begin one."""


@runtime_checkable
class ShardedStatistic(GatheringStatistic, Protocol):
    """One whose records meet in shards, which may be of whole units."""

    @property
    def shards(self) -> int:
        """How many."""


@dataclass(frozen=True)
class Counters:
    """All components' statistics as one: states are flat and add up.

    Where there is a `filter`, they get the null record for every record whose value of that column
    is not one of its categories; where there is a `bounding`, the records that it keeps.
    """

    parts: tuple[Statistic, ...]
    filter: Column | None
    bounding: Bounding | None = None

    @classmethod
    def of(
        cls, parts: Sequence[Statistic], schema: RecordSchema, unit: PrivacyUnit, n: int
    ) -> Self:
        """Those of records of this schema and unit, about n of them."""
        if schema.unit is None:
            return cls(tuple(parts), schema.filter)
        columns = tuple(dict.fromkeys(column for part in parts for column in part.columns))
        gathering = [part for part in parts if isinstance(part, ShardedStatistic)]
        # Records that meet share a bucket of units.
        passes = max((part.passes for part in gathering), default=bounding_passes(n))
        buckets = max((part.shards for part in gathering), default=passes)
        bounding = Bounding(schema.unit, unit, schema.domain, columns, n, buckets, passes)
        return cls(tuple(parts), schema.filter, bounding)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column that a part reads, once, and the ids of units."""
        ids = (self.bounding.column,) if self.bounding else ()
        parts = (column for part in self.parts for column in part.columns)
        return tuple(dict.fromkeys((*parts, *ids)))

    @property
    def state_bytes(self) -> int:
        """Memory of one state."""
        return 8 * sum(_sizes(self.parts))

    def empty(self) -> Int64Array:
        """The state of no records."""
        return np.zeros(sum(_sizes(self.parts)), dtype=np.int64)

    @property
    def passes(self) -> int:
        """Passes over all records; 0 where any part of them can be counted by itself."""
        if self.bounding:
            return self.bounding.passes
        return max((part.passes for part in self._gathering), default=0)

    @property
    def gathered_bytes(self) -> int:
        """Memory of one pass besides its state."""
        bounding = self.bounding.gathered_bytes if self.bounding else 0
        return bounding + sum(part.gathered_bytes for part in self._gathering)

    @property
    def _gathering(self) -> list[GatheringStatistic]:
        return [part for part in self.parts if isinstance(part, GatheringStatistic)]

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        for part, own in zip(self.parts, self._views(state), strict=True):
            part.add(own, records)

    def count(
        self, batches: Iterable[Mapping[str, FloatArray]], salt: bytes, index: int = 0
    ) -> Int64Array:
        """The state of some records, or of one pass over all of them.

        Sums count in the first, or where units are bounded, what each pass keeps. A pass may go
        over the batches twice (`Surveying`); not over bounded ones.
        """
        state = self.empty()
        gathered: list[tuple[Gathered, Int64Array]] = []
        sums: list[tuple[Statistic, Int64Array]] = []
        for part, own in zip(self.parts, self._views(state), strict=True):
            if not isinstance(part, GatheringStatistic):
                sums += [(part, own)] if index == 0 or self.bounding else []
            elif self.bounding or index < part.passes:
                gathered.append((part.gather(salt, index), own))
        if self.bounding:
            batches = self.bounding.bounded(batches, salt, index)
        surveying = [one for one, _ in gathered if isinstance(one, Surveying)]
        for batch in batches if surveying else ():
            for each in surveying:
                each.survey(batch)
        for batch in batches:
            for part, own in sums:
                part.add(own, batch)
            for one, _ in gathered:
                one.add(batch)
        for one, own in gathered:
            one.finish(own)
        return state

    def finish(self, state: Int64Array, part: int, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab of one output of one part."""
        return self.parts[part].finish(self._views(state)[part], output, slab)

    def _views(self, state: Int64Array) -> list[Int64Array]:
        ends = np.cumsum(_sizes(self.parts)).tolist()
        pieces = np.split(state, ends[:-1])
        return [own.reshape(part.shape) for own, part in zip(pieces, self.parts, strict=True)]


def _sizes(parts: Sequence[Statistic]) -> list[int]:
    return [int(np.prod(part.shape)) for part in parts]
