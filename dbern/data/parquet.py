"""Records of Parquet files, in batches of 64-bit floats, smaller where texts are long.

With `dbern.data.footers` the only code that opens private files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dbern.data.columns import as_floats, from_stored, long_times, may_be_text, value_of_text
from dbern.data.domain import Column
from dbern.data.footers import (
    UNLOCKED,
    decryption,
    folder_values,
    leaves,
    nested_leaves,
    open_source,
    reader_failures,
)
from dbern.system import is_url
from dbern.types import FloatArray

_BUFFER_BYTES, _REMOTE_BUFFER_BYTES = 1 << 18, 1 << 22  # of one column; a request each
_PAGE_BYTES = 1 << 20
"""Size of a page as writers make them, before compression."""

BATCH_ROWS = 1 << 16
"""Rows in memory at a time."""

TEXT_BYTES, TEXT_COPIES = 64, 5
"""Average size of texts above which batches are smaller; copies of a batch's, as measured."""

_SECONDS = "\0seconds"  # of the name of a column beside the one that it completes
_SHRINKAGE = 8  # of the rows of a batch that fails
_PERHAPS_TOO_LARGE = (MemoryError, pa.ArrowCapacityError, pa.ArrowNotImplementedError)


@dataclass(frozen=True)
class ColumnReader:
    """Some columns of an open file, in batches made smaller where texts are long."""

    path: str
    file: pq.ParquetFile
    columns: tuple[Column, ...]
    only: Column | None
    seconds: pq.ParquetFile | None = None  # the same file, where it has times of 96 bits

    def batches(self, row_groups: Sequence[int]) -> Iterator[dict[str, FloatArray]]:
        """Yield all batches of some row groups.

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
            rows = min(rows, self._fitting_rows(groups))
            try:
                for done, records in self._read(groups, rows, skip):
                    skip = done
                    yield records
                skip = 0
            except _PERHAPS_TOO_LARGE:
                if len(groups) == rows == 1:
                    raise
                alone = len(groups) == 1
                fewer = max(1, rows // _SHRINKAGE) if alone else rows
                waiting += [((group,), fewer) for group in reversed(groups)]

    def _read(
        self, groups: Sequence[int], rows: int, skip: int
    ) -> Iterator[tuple[int, dict[str, FloatArray]]]:
        """Yield batches from the row `skip` on, each with the number of the row that follows it."""
        inside, done = {name for name, _ in leaves(self.file.schema_arrow)}, 0
        names = [column.name for column in self.columns if column.name in inside]
        options = {"row_groups": list(groups), "use_threads": False}
        batches = self.file.iter_batches(rows, columns=names, **options)
        if self.seconds is not None:
            long = _long_times(self.file.metadata, names)
            batches = _joined(batches, self.seconds.iter_batches(rows, columns=long, **options))
        for batch in batches:
            first, done = done, done + len(batch)
            if done <= skip:
                continue
            rest = batch.slice(max(0, skip - first))
            yield done, records_of(rest, self.columns, self.only, self.path)

    def _fitting_rows(self, groups: Sequence[int]) -> int:
        """Return how many rows fit into the planned memory with texts as long as these.

        By the sizes in the footer, which describe the records: nothing but memory and time follow.
        """
        texts = {column.name for column in self.columns if may_be_text(column)}
        if not (texts and groups):
            return BATCH_ROWS
        # Not by `ParquetFile.schema`, which keeps all of a footer until garbage is collected.
        metadata, fitting = self.file.metadata, BATCH_ROWS
        first = metadata.row_group(groups[0])
        for i in range(metadata.num_columns):
            chunk = first.column(i)
            path = chunk.path_in_schema
            if not (path in texts and chunk.physical_type == "BYTE_ARRAY"):
                continue
            for group in map(metadata.row_group, groups):
                size = group.column(i).total_uncompressed_size
                rows = max(1, group.num_rows)
                fitting = min(fitting, BATCH_ROWS * TEXT_BYTES * rows // max(1, size))
        return max(1, fitting)


def _leaf(batch: pa.RecordBatch, parts: Sequence[str]) -> pa.Array:
    name, *below = parts
    column = batch.column(name)
    for inner in below:
        column = column.flatten()[column.type.get_field_index(inner)]  # null where the outer one is
    return column


def _long_times(metadata: pq.FileMetaData, names: Sequence[str]) -> list[str]:
    """Return those of some columns that are timestamps of 96 bits, as Spark writes them."""
    if not (names and metadata.num_row_groups):
        return []
    first = metadata.row_group(0)
    chunks = (first.column(i) for i in range(metadata.num_columns))
    long = {chunk.path_in_schema for chunk in chunks if chunk.physical_type == "INT96"}
    return [name for name in names if name in long]


def _joined(
    batches: Iterable[pa.RecordBatch], seconds: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield batches with the columns of others, which may be cut at other rows."""
    ahead: pa.Table | None = None
    for batch in batches:
        while ahead is None or len(ahead) < len(batch):
            following = pa.Table.from_batches([next(seconds)])
            ahead = following if ahead is None else pa.concat_tables([ahead, following])
        rows = ahead.slice(0, len(batch)).combine_chunks()
        ahead = ahead.slice(len(batch))
        for part in rows.to_batches():
            for parts, _ in nested_leaves(part.schema):
                batch = batch.append_column(f"{'.'.join(parts)}{_SECONDS}", _leaf(part, parts))
        yield batch


def records_of(
    batch: pa.RecordBatch, columns: Sequence[Column], only: Column | None, path: str = ""
) -> dict[str, FloatArray]:
    """Return the columns of a batch as floats; missing ones from the names of folders."""
    inside = {".".join(parts): parts for parts, _ in nested_leaves(batch.schema)}
    values = {}
    for column in columns:
        if path in UNLOCKED:
            values[column] = from_stored(batch.column(column.name), column)
        elif column.name in inside:
            leaf, whole = _leaf(batch, inside[column.name]), f"{column.name}{_SECONDS}"
            if whole in inside and column.unit:
                values[column] = long_times(leaf, batch.column(whole), column.unit)
            else:
                values[column] = as_floats(leaf, column)
        else:
            constant = value_of_text(folder_values(path)[column.name], column)
            values[column] = np.full((len(batch), *np.shape(constant)), constant)
    named = {column.name: floats for column, floats in values.items() if column != only}
    if only is None:
        return named
    out = np.isnan(values[only])
    return {name: np.where(out, np.nan, floats.T).T for name, floats in named.items()}


def read_batches(
    path: str, row_groups: Sequence[int], columns: Sequence[Column], only: Column | None = None
) -> Iterator[dict[str, FloatArray]]:
    """Read the columns of some row groups as 64-bit floats, nulls as NaN.

    Values of a column with categories are their positions, NaN for any other. A column that the
    file has not has the value in its folder's name. Rows whose value of `only` is not one of its
    categories are null in every column. Checksums of pages are compared where the file has them.
    Raises UnreadableFileError for a file that cannot be opened or decoded, or a page with another
    checksum, ShortageError where not even one row at a time fits into memory, or too few files may
    be open.
    """
    wanted = (*columns, only) if only else tuple(columns)
    with (
        reader_failures(path),
        open_source(path) as source,
        _records_file(path, source, wanted) as file,
        _seconds_file(path, source, file.metadata, wanted) as seconds,
    ):
        yield from ColumnReader(path, file, wanted, only, seconds).batches(row_groups)


def _records_file(path: str, source: Any, columns: Sequence[Column]) -> pq.ParquetFile:
    """Open a file to read these columns of it, texts numbered by 32 bits whatever its writer did.

    A file's Arrow schema may number them by eight, and Arrow fails on a row group that has a text
    more than that: one record would decide whether a release does.
    """
    options = _options(path)
    file = pq.ParquetFile(source, **options)
    names = {column.name for column in columns}
    kinds = [(name, kind) for name, kind in leaves(file.schema_arrow) if name in names]
    texts = [name for name, kind in kinds if pa.types.is_dictionary(kind)]
    if not texts:
        return file
    return pq.ParquetFile(source, metadata=file.metadata, read_dictionary=texts, **options)


def _seconds_file(
    path: str, source: Any, metadata: pq.FileMetaData, columns: Sequence[Column]
) -> AbstractContextManager[pq.ParquetFile | None]:
    """Open a file that has timestamps of 96 bits to read them in seconds, which hold all of them.

    Arrow reads nanoseconds otherwise, and one of another century as one of this.
    """
    if not _long_times(metadata, [column.name for column in columns if column.unit]):
        return nullcontext()
    options = {**_options(path), "coerce_int96_timestamp_unit": "s"}
    return pq.ParquetFile(source, metadata=metadata, **options)  # type: ignore[no-any-return]


def _options(path: str) -> dict[str, Any]:
    # Buffers ahead would hold the columns of all row groups asked for: memory would follow n.
    return {
        "pre_buffer": False,
        "buffer_size": _REMOTE_BUFFER_BYTES if is_url(path) else _BUFFER_BYTES,
        "page_checksum_verification": True,
        **decryption(path),
    }


def reading_bytes(
    columns: Sequence[Column], only: Column | None = None, *, remote: bool = False
) -> int:
    """Bound the memory of `read_batches`: two batches and their floats, buffers, pages twice.

    With `only`, its column and a copy of the others; `remote`: with the buffers of an object store.
    Texts count as long as they are planned to be on average: their lengths are not public.
    """
    buffer = _REMOTE_BUFFER_BYTES if remote else _BUFFER_BYTES
    number_bytes = (4 if only else 3) * 8 * BATCH_ROWS + buffer + 2 * _PAGE_BYTES
    wanted = (*columns, only) if only else tuple(columns)
    texts = sum(map(may_be_text, wanted))
    return number_bytes * len(wanted) + texts * TEXT_COPIES * TEXT_BYTES * BATCH_ROWS


def write_records(path: Path, columns: Mapping[str, FloatArray], group: int = 1 << 17) -> None:
    """Write columns as a Parquet file: demonstration data and tests."""
    pq.write_table(pa.table(dict(columns)), path, row_group_size=group)
