"""Counting by workers: portions or passes of records, and at most u rows of each unit.

Kept are the u rows of a unit with the smallest keyed hashes of unit and row. So what is kept of a
unit depends on its own rows and a private salt alone, not on their order, on files or workers, or
on other units: a unit that changes, changes at most u rows of its own, before and after. Equal
rows have equal hashes and are kept as often as they are there, up to u in all. Ids are two floats
each (`dbern.data.columns`), so that no two units are one: where they share u rows, one that leaves
makes room for rows of the other, and up to 2u counted rows change. Numbers are exact up to 106
bits; longer ones and text are 106 bits of a hash: 2^106 trials to find an id that meets a given
one.

A pass keeps the units of one bucket, a keyed hash of their ids, so no more rows are in memory than
a share of them; nothing is written to disk. A row without an id, or outside the box, is the null
record and takes no other row's place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from dbern.data.domain import Column, Domain, RecordSchema
from dbern.data.frames import table_batches
from dbern.data.parquet import BATCH_ROWS, UnreadableFileError, footer_tag, read_batches
from dbern.data.resolution import Multiples
from dbern.privacy.budget import PrivacyUnit
from dbern.privacy.keystream import content_buckets, content_words
from dbern.strategies.base import AnyStrategy, Slab
from dbern.types import FloatArray, Int64Array, UInt64Array

# --- Accumulators: a measurement as integer sums over records


@dataclass(frozen=True)
class Errors:
    """Bounds on the errors of an accumulator's values.

    `kernel` bounds the difference of one record's effective and exact contribution, times n, and
    `kernel_norms` what that adds to the l1 and l2 sensitivities, times n. `position` bounds the
    change of the function by rounding of the records: accuracy, never privacy. `floats` bounds the
    float error of a value, `float_norms` the l1 and l2 norms of those of all values of one
    database, `value_bound` the largest size of a value over all databases.
    """

    kernel: float
    kernel_norms: tuple[float, float]
    position: float
    floats: float
    float_norms: tuple[float, float]
    value_bound: float


@dataclass(frozen=True)
class Memory:
    """Memory in bytes: of one record of a batch, of `to_values`'s tables, and of a pass."""

    batch: int
    tables: int = 0
    gathered: int = 0


class Pass(ABC):
    """One pass of an accumulator over records, on one worker.

    With `surveys` it sees all records once before any is added: they are read twice.
    """

    @property
    def surveys(self) -> bool:
        """Whether it is to see all records before."""
        return False

    def survey(self, records: Mapping[str, FloatArray]) -> None:
        """Look at a batch, before any is added."""
        del records

    @abstractmethod
    def add(self, records: Mapping[str, FloatArray]) -> None:
        """Take a batch in.

        Columns are 64-bit floats, NaN for missing; of categories, positions in their list.
        """

    @abstractmethod
    def finish(self) -> None:
        """Add what is left of the pass to the state."""


class Accumulator(ABC):
    """Integer sums over records, and the values that follow from them.

    Every implementation is public, frozen and importable on a worker. States of disjoint sets of
    records add up exactly, and so do those of different passes.

    Attributes
    ----------
    strategy : Strategy or Entries
        What is released.
    passes : int
        Passes over all records; 0 where any part of them can be counted by itself. Which records a
        pass keeps depends on their content and on the salt alone.
    shards : int
        Where records meet in shards, which may be of whole units, how many; else 0.
    """

    strategy: AnyStrategy

    @property
    def passes(self) -> int:
        """Number of passes over all records; 0 where each record is added by itself."""
        return 0

    @property
    def shards(self) -> int:
        """Number of shards where records meet, which may be of whole units; else 0."""
        return 0

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """Columns read, and no others."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Way of counting records, in a few words, for plans."""

    @property
    @abstractmethod
    def errors(self) -> Errors:
        """Bounds on the errors of its values."""

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """Memory that counting takes."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the state."""

    @property
    def keyed(self) -> bool:
        """Whether it draws noise of its own before its values are computed, in `with_key`'s key.

        Then it counts in the releasing process alone.
        """
        return False

    def with_key(self, key: bytes) -> Accumulator:  # noqa: ARG002 - where it is keyed
        """Return it with the release's key."""
        return self

    @abstractmethod
    def start_pass(self, state: Int64Array, salt: bytes, index: int) -> Pass:
        """Begin a pass that adds to a state of that shape, in place."""

    @abstractmethod
    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab of one output, in unit-cube units."""


class RecordAccumulator(Accumulator):
    """One that adds each record by itself: `add` is deterministic record by record."""

    @abstractmethod
    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to a state, in place."""

    def start_pass(self, state: Int64Array, salt: bytes, index: int) -> Pass:
        """Begin to add records, each by itself."""
        del salt, index
        return _Adding(self, state)


@dataclass(frozen=True)
class _Adding(Pass):
    accumulator: RecordAccumulator
    state: Int64Array

    def add(self, records: Mapping[str, FloatArray]) -> None:
        self.accumulator.add(self.state, records)

    def finish(self) -> None:
        pass


# --- At most u rows of each unit


PASS_ROWS = 1 << 22
"""Rows that a pass keeps where there are as many as the normalizer says."""

_COPIES = 5  # of the rows of a pass: gathered, joined, sorted, their hashes and their order


@dataclass(frozen=True)
class Bounding:
    """Choose at most `unit.rows` rows of each unit to count.

    `column` has the units' ids; a row must be valid in the axes of `box` and consists of the
    columns `content`. `rows`, the public normalizer, is about how many rows there are. A pass keeps
    units of the buckets b with ``b mod passes`` its index.
    """

    column: Column
    unit: PrivacyUnit
    box: Domain
    content: tuple[Column, ...]
    rows: int
    buckets: int
    passes: int

    @property
    def gathered_bytes(self) -> int:
        """Memory of one pass over as many rows as the normalizer, with room for an uneven one.

        Units of many rows make passes uneven before their rows are bounded.
        """
        width, share = len(self.content) + 3, 2 * -(-self.rows // self.passes)
        return 8 * width * (_COPIES * min(self.rows, share) + 4 * BATCH_ROWS)

    def bounded(
        self, batches: Iterable[Mapping[str, FloatArray]], salt: bytes, index: int
    ) -> Iterator[dict[str, FloatArray]]:
        """Yield batches of the rows that one pass keeps, once all records were seen."""
        kept = _Kept(self.unit.max_contributions, salt)
        for batch in batches:
            ids = np.atleast_2d(batch[self.column.name].T).T
            # The others are the missing record of every sum over the box.
            counts = self.box.bounded(batch)[0] & ~np.isnan(ids).any(axis=1)
            buckets = content_buckets(ids[counts], salt, self.buckets)
            counts[counts] = buckets % self.passes == index
            kept.add(ids[counts], np.column_stack([batch[c.name][counts] for c in self.content]))
        ids, rows = kept.finish()
        for start in range(0, len(rows), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            named = {c.name: rows[part, i].copy() for i, c in enumerate(self.content)}
            yield {**named, self.column.name: ids[part]}


@dataclass
class _Kept:
    """Rows of one pass: those with the smallest hashes of each unit, so far."""

    most: int
    salt: bytes = field(repr=False)
    _ids: list[FloatArray] = field(default_factory=list, repr=False)
    _rows: list[FloatArray] = field(default_factory=list, repr=False)
    _waiting: int = 0

    def add(self, ids: FloatArray, rows: FloatArray) -> None:
        """Merge rows (m, d) of units (m, e) in."""
        # Adding 0.0 makes one zero of two, here as in the hash.
        self._ids.append(ids + 0.0)
        self._rows.append(rows + 0.0)
        self._waiting += len(ids)
        if self._waiting > max(2 * BATCH_ROWS, len(self._ids[0])):
            self._merge()

    def _merge(self) -> None:
        ids, rows = np.concatenate(self._ids), np.concatenate(self._rows)
        hashes = content_words(np.column_stack([ids, rows]), self.salt)
        chosen = _smallest(ids, hashes, rows, self.most)
        self._ids, self._rows, self._waiting = [ids[chosen]], [rows[chosen]], 0

    def finish(self) -> tuple[FloatArray, FloatArray]:
        """Units (m, e) and rows (m, d), sorted by unit."""
        if not self._ids:
            return np.zeros((0, 2)), np.zeros((0, 0))
        self._merge()
        return self._ids[0], self._rows[0]


def _smallest(ids: FloatArray, hashes: UInt64Array, rows: FloatArray, most: int) -> Int64Array:
    """Indices of the `most` rows of each unit with the smallest hashes; of one hash, by content."""
    order = np.lexsort((*rows.T, hashes, *ids.T))
    ids = ids[order]
    differs = (ids[1:] != ids[:-1]).any(axis=1)
    first = np.flatnonzero(np.concatenate([np.ones(min(1, len(ids)), bool), differs]))
    rank = np.arange(len(ids)) - np.repeat(first, np.diff(np.append(first, len(ids))))
    return np.asarray(order[rank < most])


# --- How workers count


class StoppedError(Exception):
    """Counting cannot go on, for a reason that reveals nothing: its code and its public place."""

    def __init__(self, failure: str, place: str) -> None:
        super().__init__(failure)
        self.failure, self.place = failure, place


@dataclass(frozen=True)
class Counters:
    """All measurements' accumulators as one: states are flat and add up.

    Where there is a `filter`, they get the missing record for every record whose value of that
    column is not one of its categories; where there is a `bounding`, the records that it keeps.
    """

    parts: tuple[Accumulator, ...]
    filter: Column | None
    bounding: Bounding | None = None

    @classmethod
    def of(
        cls, parts: Sequence[Accumulator], schema: RecordSchema, unit: PrivacyUnit, n: int
    ) -> Self:
        """Combine accumulators for records of this schema and unit, about n of them."""
        if schema.unit is None:
            return cls(tuple(parts), schema.filter)
        columns = tuple(dict.fromkeys(column for part in parts for column in part.columns))
        meeting = [part for part in parts if part.shards]
        # Records that meet share a bucket of units.
        passes = max((part.passes for part in meeting), default=max(1, -(-n // PASS_ROWS)))
        buckets = max((part.shards for part in meeting), default=passes)
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

    @property
    def keyed(self) -> bool:
        """Whether any part needs the release's key."""
        return any(part.keyed for part in self.parts)

    def with_key(self, key: bytes) -> Counters:
        """The same accumulators with the release's key."""
        return replace(self, parts=tuple(part.with_key(key) for part in self.parts))

    def empty(self) -> Int64Array:
        """The state of no records."""
        return np.zeros(sum(_sizes(self.parts)), dtype=np.int64)

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
        begun = [
            part.start_pass(own, salt, index)
            for part, own in zip(self.parts, self._views(state), strict=True)
            if bounding or index < max(1, part.passes)
        ]
        if bounding:
            batches = bounding.bounded(batches, salt, index)
        surveying = [one for one in begun if one.surveys]
        for batch in batches if surveying else ():
            for one in surveying:
                one.survey(batch)
        for batch in batches:
            for one in begun:
                one.add(batch)
        for one in begun:
            one.finish()
        return state

    def _rounded(
        self, batches: Iterable[Mapping[str, FloatArray]]
    ) -> Iterable[Mapping[str, FloatArray]]:
        columns = {column.name: column.multiples for column in self.columns if column.multiples}
        return _Rounded(batches, columns) if columns else batches

    def to_values(self, state: Int64Array, part: int, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab of one output of one part."""
        return self.parts[part].to_values(self._views(state)[part], output, slab)

    def _views(self, state: Int64Array) -> list[Int64Array]:
        ends = np.cumsum(_sizes(self.parts)).tolist()
        pieces = np.split(state, ends[:-1])
        return [own.reshape(part.shape) for own, part in zip(pieces, self.parts, strict=True)]


@dataclass(frozen=True)
class _Rounded:
    """Batches of records, anew each time, rounded to the multiples of some columns."""

    batches: Iterable[Mapping[str, FloatArray]]
    multiples: Mapping[str, Multiples]

    def __iter__(self) -> Iterator[Mapping[str, FloatArray]]:
        for batch in self.batches:
            columns = self.multiples.items()
            yield {**batch, **{name: steps.rounded(batch[name]) for name, steps in columns}}


def _sizes(parts: Sequence[Accumulator]) -> list[int]:
    return [int(np.prod(part.shape)) for part in parts]


# --- What a task reads


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
    place: str = ""
    rows: int = 0

    def __iter__(self) -> Iterator[dict[str, FloatArray]]:
        self.rows = 0
        waiting: list[dict[str, FloatArray]] = []
        rows = 0  # of small files together: each batch has a price of its own
        for batch in self._batches():
            here = len(next(iter(batch.values())))
            if waiting and rows + here > BATCH_ROWS:
                yield _joined(waiting)
                waiting, rows = [], 0
            waiting.append(batch)
            rows += here
            if 2 * rows >= BATCH_ROWS:
                yield _joined(waiting)
                waiting, rows = [], 0
        if waiting:
            yield _joined(waiting)

    def _batches(self) -> Iterator[dict[str, FloatArray]]:
        for portion in self.portions:
            self.place = portion.path
            groups, counters = portion.row_groups, self.counters
            try:
                for batch in read_batches(self.place, groups, counters.columns, counters.filter):
                    yield batch
                    self.rows += len(next(iter(batch.values())))
            except UnreadableFileError:
                if footer_tag(self.place, self.salt) == portion.tag:
                    raise
            if footer_tag(self.place, self.salt) != portion.tag:
                raise StoppedError("changed", self.place)


@dataclass
class TableReading:
    """The batches of a table in memory, anew each time, and how many rows it has."""

    table: Any = field(repr=False)
    counters: Counters
    place: str = ""
    rows: int = 0

    def __iter__(self) -> Iterator[dict[str, FloatArray]]:
        self.rows = 0
        for batch in table_batches(self.table, self.counters.columns, self.counters.filter):
            yield batch
            self.rows += len(next(iter(batch.values())))


def _joined(batches: Sequence[dict[str, FloatArray]]) -> dict[str, FloatArray]:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
