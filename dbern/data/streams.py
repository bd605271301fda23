"""An open Parquet file to batches of 64-bit floats, of fewer rows where texts are long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dbern.data.columns import as_floats, may_be_text, of_text
from dbern.data.domain import Column
from dbern.types import FloatArray

BATCH_ROWS = 1 << 16
"""Rows in memory at a time."""

TEXT_BYTES, TEXT_COPIES = 64, 5
"""Of a text on average, where more make batches smaller; and of a batch's texts, as measured."""

_FEWER = 8
_PERHAPS_TOO_LARGE = (MemoryError, pa.ArrowCapacityError, pa.ArrowNotImplementedError)


def leaves(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Names and types of a file's columns; those of nested ones with dots, ``trip.start.x``."""
    return [(".".join(parts), kind) for parts, kind in _leaves(schema)]


def _leaves(fields: Iterable[pa.Field]) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for one in fields:
        if pa.types.is_struct(one.type):
            yield from (((one.name, *rest), kind) for rest, kind in _leaves(one.type))
        else:
            yield (one.name,), one.type


def folder_values(path: str) -> dict[str, str]:
    """What the folders of a path say, such as ``day=2026-01-01``; the nearest one of a name."""
    parts = (part.partition("=") for part in Path(path).parent.parts)
    return {unquote(name): unquote(value) for name, equal, value in parts if name and equal}


@dataclass(frozen=True)
class Stream:
    """Some columns of an open file, in batches that are made smaller where texts are long."""

    path: str
    file: pq.ParquetFile
    columns: tuple[Column, ...]
    only: Column | None

    def batches(self, row_groups: Sequence[int]) -> Iterator[dict[str, FloatArray]]:
        """All batches of some row groups.

        Arrow's texts have 31-bit offsets, and those of one nested column cannot be in two parts:
        a batch of long texts fails where a smaller one does not. So what fails is read again,
        first by row groups and then in fewer rows at a time: whether a release fails must not
        depend on how long a record's text is, as long as there is memory for one row.
        """
        waiting, skip = [(tuple(row_groups), BATCH_ROWS)], 0  # rows that were yielded already
        while waiting:
            groups, rows = waiting.pop()
            inside = sum(self.file.metadata.row_group(group).num_rows for group in groups)
            if 0 < inside <= skip:
                skip -= inside
                continue
            rows = min(rows, self._rows_of_text(groups))
            try:
                for done, records in self._read(groups, rows, skip):
                    skip = done
                    yield records
                skip = 0
            except _PERHAPS_TOO_LARGE:
                if len(groups) == rows == 1:
                    raise
                alone = len(groups) == 1
                fewer = max(1, rows // _FEWER) if alone else rows
                waiting += [((group,), fewer) for group in reversed(groups)]

    def _read(
        self, groups: Sequence[int], rows: int, skip: int
    ) -> Iterator[tuple[int, dict[str, FloatArray]]]:
        """Batches from the row `skip` on, each with the number of the row that follows it."""
        inside, done = {".".join(parts): parts for parts, _ in _leaves(self.file.schema_arrow)}, 0
        names = [column.name for column in self.columns if column.name in inside]
        for batch in self.file.iter_batches(
            rows, row_groups=list(groups), columns=names, use_threads=False
        ):
            first, done = done, done + len(batch)
            if done <= skip:
                continue
            rest = batch.slice(max(0, skip - first))
            yield (
                done,
                _records(
                    {
                        column: as_floats(_leaf(rest, inside[column.name]), column)
                        if column.name in inside
                        else _repeated(
                            of_text(folder_values(self.path)[column.name], column), len(rest)
                        )
                        for column in self.columns
                    },
                    self.only,
                ),
            )

    def _rows_of_text(self, groups: Sequence[int]) -> int:
        """Rows of which the texts, as long as these are on average, fit into what is planned.

        By the sizes in the footer, which describe the records: nothing but memory and time follow.
        """
        names = {column.name for column in self.columns if may_be_text(column)}
        if not (names and groups):
            return BATCH_ROWS
        # Not by `ParquetFile.schema`, which keeps all of a footer until garbage is collected.
        metadata = self.file.metadata
        first = metadata.row_group(groups[0])
        chunks = [(i, first.column(i)) for i in range(metadata.num_columns)]
        texts = [
            i
            for i, chunk in chunks
            if chunk.path_in_schema in names and chunk.physical_type == "BYTE_ARRAY"
        ]
        longest = 1
        for group in map(metadata.row_group, groups if texts else ()):
            size = max(group.column(i).total_uncompressed_size for i in texts)
            longest = max(longest, size // max(1, group.num_rows))
        return max(1, BATCH_ROWS * TEXT_BYTES // longest)


def _repeated(value: float | tuple[float, float], rows: int) -> FloatArray:
    return np.full((rows, *np.shape(value)), value)


def _leaf(batch: pa.RecordBatch, parts: Sequence[str]) -> pa.Array:
    """A column of a batch, null where what it is nested in is."""
    values = batch.column(parts[0])
    return pc.struct_field(values, list(parts[1:])) if len(parts) > 1 else values


def _records(values: Mapping[Column, FloatArray], only: Column | None) -> dict[str, FloatArray]:
    """Columns by name, without the one that says which rows count."""
    named = {column.name: floats for column, floats in values.items() if column != only}
    if only is None:
        return named
    out = np.isnan(values[only])
    return {name: np.where(out, np.nan, floats.T).T for name, floats in named.items()}
