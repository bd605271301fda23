"""Batches of records that a counting task reads: portions of files, or a table in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dbern.data.footers import UnreadableFileError, footer_tag
from dbern.data.frames import table_batches
from dbern.data.parquet import BATCH_ROWS, read_batches
from dbern.measure.accumulator import StoppedError
from dbern.measure.counters import Counters
from dbern.types import FloatArray


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
        for portion in self.portions:
            self.location = portion.path
            groups, counters = portion.row_groups, self.counters
            try:
                for batch in read_batches(self.location, groups, counters.columns, counters.filter):
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
        for batch in table_batches(self.table, self.counters.columns, self.counters.filter):
            yield batch
            self.rows += len(next(iter(batch.values())))


def _joined(batches: Sequence[dict[str, FloatArray]]) -> dict[str, FloatArray]:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
