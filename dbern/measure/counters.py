"""Counting by workers: all statistics' accumulators as one, portion by portion or in passes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np

from dbern.data.domain import Column, RecordSchema
from dbern.data.footers import UnreadableFileError, footer_tag
from dbern.data.frames import frame_batches, frame_of
from dbern.data.parquet import BATCH_ROWS, read_batches
from dbern.data.resolution import Multiples
from dbern.measure.accumulator import Accumulator, StoppedError
from dbern.measure.unit_bounding import Bounding, distinct_units
from dbern.privacy.budget import PrivacyUnit
from dbern.reconstruct.base import Slab
from dbern.types import ComplexArray, FloatArray, Int64Array

PASS_ROWS = 1 << 22
"""Rows that a pass keeps where there are as many as the normalizer says."""


@dataclass(frozen=True)
class Portion:
    """Some row groups of one file, and the keyed tag that the file's footer must still have."""

    path: str
    tag: str = field(repr=False)
    row_groups: tuple[int, ...]
    rows: int


@dataclass
class Reading:
    """The batches of some portions, anew each time; where it is, and how many rows it read."""

    portions: Sequence[Portion]
    counters: Counters
    salt: bytes = field(repr=False)
    location: str = ""
    rows: int = 0

    def __iter__(self) -> Iterator[dict[str, FloatArray]]:
        self.rows = 0
        waiting: list[dict[str, FloatArray]] = []
        rows = 0  # of small files together: each batch has a price of its own
        for batch in self._batches():
            batch_rows = len(next(iter(batch.values())))
            if waiting and rows + batch_rows > BATCH_ROWS:
                yield _joined(waiting)
                waiting, rows = [], 0
            waiting.append(batch)
            rows += batch_rows
            if 2 * rows >= BATCH_ROWS:
                yield _joined(waiting)
                waiting, rows = [], 0
        if waiting:
            yield _joined(waiting)

    def _batches(self) -> Iterator[dict[str, FloatArray]]:
        columns, only = self.counters.columns, self.counters.filter
        for portion in self.portions:
            self.location = portion.path
            try:
                for batch in read_batches(self.location, portion.row_groups, columns, only):
                    yield batch
                    self.rows += len(next(iter(batch.values())))
            except UnreadableFileError:
                if footer_tag(self.location, self.salt) == portion.tag:
                    raise
            if footer_tag(self.location, self.salt) != portion.tag:
                raise StoppedError("changed", self.location)


@dataclass
class TableReading:
    """The batches of a table in memory, anew each time, and how many rows it has."""

    table: Any = field(repr=False)
    counters: Counters
    location: str = ""
    rows: int = 0

    def __iter__(self) -> Iterator[dict[str, FloatArray]]:
        self.rows = 0
        columns, only = self.counters.columns, self.counters.filter
        frame = frame_of(self.table, (*columns, only) if only else columns)
        for batch in frame_batches(frame, only):
            yield batch
            self.rows += len(next(iter(batch.values())))


def _joined(batches: Sequence[dict[str, FloatArray]]) -> dict[str, FloatArray]:
    if len(batches) == 1:
        return batches[0]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


@dataclass(frozen=True)
class Counters:
    """All statistics' accumulators as one: states are flat and add up.

    Where there is a `filter`, they get the missing record for every record whose value of that
    column is not one of its categories; where there is a `bounding`, the records that it keeps.
    Workers with other `versions` of packages than these count nothing: they may have joined since
    all were asked.
    """

    parts: tuple[Accumulator, ...]
    filter: Column | None
    bounding: Bounding | None = None
    versions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        parts: Sequence[Accumulator],
        schema: RecordSchema,
        unit: PrivacyUnit,
        n: int,
        *,
        admits: bool = False,
    ) -> Self:
        """Combine accumulators for records of this schema and unit, about n of them.

        `admits`: of no unit, before they are told which (`admitting`).
        """
        if schema.unit is None:
            return cls(tuple(parts), schema.filter)
        columns = tuple(dict.fromkeys(column for part in parts for column in part.columns))
        meeting = [part for part in parts if part.shards]
        # Records that meet share a bucket of units.
        passes = max((part.passes for part in meeting), default=max(1, -(-n // PASS_ROWS)))
        buckets = max((part.shards for part in meeting), default=passes)
        nobody = distinct_units([]) if admits else None
        bounding = Bounding(schema.unit, unit, schema.domain, columns, n, buckets, passes, nobody)
        return cls(tuple(parts), schema.filter, bounding)

    @property
    def admits(self) -> bool:
        """Whether rows count of admitted units alone, whose ids do not leave this process."""
        return self.bounding is not None and self.bounding.admitted is not None

    def admitting(self, units: ComplexArray) -> Counters:
        """The same accumulators, for rows of these units alone."""
        return replace(self, bounding=replace(cast(Bounding, self.bounding), admitted=units))

    def units(self, batches: Iterable[Mapping[str, FloatArray]]) -> ComplexArray:
        """Return the units whose rows count where all units are admitted; they have to be bounded.

        Each has a row that has an id, passes the filter and is in the box.
        """
        rows = map(cast(Bounding, self.bounding).valid_rows, self._rounded(batches))
        return distinct_units(ids[valid] for ids, valid in rows)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column that a part reads, once, and the ids of units."""
        ids = (self.bounding.column,) if self.bounding else ()
        parts = (column for part in self.parts for column in part.columns)
        return tuple(dict.fromkeys((*parts, *ids)))

    @property
    def state_bytes(self) -> int:
        """Memory of one state."""
        return 8 * sum(map(math.prod, self._shapes))

    @property
    def keyed(self) -> bool:
        """Whether any part needs the release's key."""
        return any(part.keyed for part in self.parts)

    def with_key(self, key: bytes) -> Counters:
        """The same accumulators with the release's key."""
        return replace(self, parts=tuple(part.with_key(key) for part in self.parts))

    def empty(self) -> Int64Array:
        """The state of no records."""
        return np.zeros(sum(map(math.prod, self._shapes)), dtype=np.int64)

    @property
    def passes(self) -> int:
        """Passes over all records; 0 where any part of them can be counted by itself."""
        if self.bounding:
            return self.bounding.passes
        return max((part.passes for part in self.parts), default=0)

    @property
    def gathered_bytes(self) -> int:
        """Memory of one pass besides its state."""
        bounding = self.bounding.gathered_bytes if self.bounding else 0
        return bounding + sum(part.memory.gathered for part in self.parts)

    def count(
        self, batches: Iterable[Mapping[str, FloatArray]], salt: bytes, index: int = 0
    ) -> Int64Array:
        """Count some records, or one pass over all of them; where axes have multiples, rounded.

        Every record is rounded here, by itself and before anything else: neighbours stay what they
        are, and no sensitivity moves (docs/sensitivity.md).

        Sums count in the first, or where units are bounded, what each pass keeps. A pass may go
        over the batches twice (`Pass.surveys`); not over bounded ones.
        """
        state, bounding = self.empty(), self.bounding
        batches = self._rounded(batches)
        passes = [
            part.start_pass(self._view(state, number), salt, index)
            for number, part in enumerate(self.parts)
            if bounding or index < max(1, part.passes)
        ]
        if bounding:
            batches = bounding.bound_batches(batches, salt, index)
        surveying = [counting for counting in passes if counting.surveys]
        for batch in batches if surveying else ():
            for counting in surveying:
                counting.survey(batch)
        for batch in batches:
            for counting in passes:
                counting.add(batch)
        for counting in passes:
            counting.finish()
        return state

    def _rounded(
        self, batches: Iterable[Mapping[str, FloatArray]]
    ) -> Iterable[Mapping[str, FloatArray]]:
        columns = {column.name: column.multiples for column in self.columns if column.multiples}
        return _RoundedBatches(batches, columns) if columns else batches

    def to_values(self, state: Int64Array, part: int, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab of one output of one part."""
        return self.parts[part].to_values(self._view(state, part), output, slab)

    @cached_property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(part.shape for part in self.parts)

    def _view(self, state: Int64Array, part: int) -> Int64Array:
        """The state of one part in that of all, which has them one after the other."""
        before = sum(map(math.prod, self._shapes[:part]))
        shape = self._shapes[part]
        return state[before : before + math.prod(shape)].reshape(shape)


@dataclass(frozen=True)
class _RoundedBatches:
    """Batches of records, anew each time, rounded to the multiples of some columns."""

    batches: Iterable[Mapping[str, FloatArray]]
    multiples: Mapping[str, Multiples]

    def __iter__(self) -> Iterator[Mapping[str, FloatArray]]:
        for batch in self.batches:
            columns = self.multiples.items()
            yield {**batch, **{name: steps.rounded(batch[name]) for name, steps in columns}}
