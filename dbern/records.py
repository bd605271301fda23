"""Parquet row groups to batches of records: the only place that opens private files."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dbern.arrays import FloatArray
from dbern.columns import (
    as_floats,
    check_kind,
    ids_as,
    may_be_text,
    of_text,
)
from dbern.domain import Column
from dbern.errors import ExhaustedError, SpecError, exhausted
from dbern.objects import identity, is_url, open_file

BATCH_ROWS = 1 << 16
"""Rows in memory at a time."""

READERS = 8
"""Files whose footers are read at once."""

_BUFFER_BYTES, _REMOTE_BUFFER_BYTES = 1 << 18, 1 << 22  # of one column; a request each
_PAGE_BYTES = 1 << 20
"""Of a page as writers make them, before compression."""

_TEXT_BYTES, _TEXT_COPIES = 64, 5
"""Of a text on average, where more make batches smaller; and of a batch's texts, as measured."""

_FEWER = 8
_PERHAPS_TOO_LARGE = (MemoryError, pa.ArrowCapacityError, pa.ArrowNotImplementedError)


class UnreadableFileError(Exception):
    """A file could not be opened or decoded; carries no text of the reader's, which may quote."""


@dataclass(frozen=True)
class FileFacts:
    """What a Parquet footer says about a file, statistics left unread.

    Attributes
    ----------
    path : str
        Absolute path, or URL.
    size : int
        Bytes.
    row_groups : tuple of int
        Rows of each row group.
    """

    path: str
    size: int
    row_groups: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows of the file, null and out-of-bounds ones included."""
        return sum(self.row_groups)


def read_footers(files: Sequence[str | Path], columns: Sequence[Column]) -> tuple[FileFacts, ...]:
    """Sizes and row counts of the files, after checking the columns' presence and types.

    Raises
    ------
    SpecError
        For a file that is not Parquet, a missing column, or a column of the wrong type.
    """
    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(lambda path: _footer(str(path), columns), files))
    for column in columns:
        kinds = sorted({kind for _, ids in found for name, kind in ids if name == column.name})
        if column.ids and len(kinds) > 1:
            raise SpecError(
                f"{column.key}: {column.name} is {' in some files and '.join(kinds)} in others, "
                "and one unit could be two; convert it to one type"
            )
    return tuple(facts for facts, _ in found)


def file_facts(path: str) -> FileFacts:
    """What the footer says now.

    Raises
    ------
    UnreadableFileError
        Where there is no readable footer.
    ExhaustedError
        Where memory or open files are too few.
    """
    with _failures_told(path), _parquet(path) as file:
        return _facts(path, file.metadata)


@contextmanager
def _failures_told(path: str) -> Iterator[None]:
    """Failures of the reader without its text, and apart from those of the process."""
    try:
        yield
    except pa.ArrowCapacityError:
        raise ExhaustedError("memory", path) from None
    except (OSError, MemoryError, pa.ArrowException) as error:
        raise exhausted(error, path) or UnreadableFileError from None


@contextmanager
def _parquet(path: str, **options: Any) -> Iterator[pq.ParquetFile]:
    if is_url(path):
        with open_file(path) as source, pq.ParquetFile(source, **options) as file:
            yield file
    else:
        with pq.ParquetFile(path, **options) as file:
            yield file


def _facts(path: str, metadata: pq.FileMetaData) -> FileFacts:
    groups = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    size = identity(path)[0] if is_url(path) else Path(path).stat().st_size
    return FileFacts(path, size, groups)


def opened(path: str) -> tuple[FileFacts, pa.Schema]:
    """What a file's footer says.

    Raises
    ------
    SpecError
        For a file that is not Parquet.
    """
    try:
        with _parquet(path) as file:
            return _facts(path, file.metadata), file.schema_arrow
    except (OSError, MemoryError, pa.ArrowException) as error:
        raise exhausted(error, path) or SpecError(
            f"data.source: {path} cannot be read as Parquet ({type(error).__name__}); "
            "mend or remove that file"
        ) from None


def _footer(path: str, columns: Sequence[Column]) -> tuple[FileFacts, list[tuple[str, str]]]:
    """Facts of a file, and what ids of its columns are compared as, those of folders as text."""
    facts, schema = opened(path)
    for column in columns:
        _check_column(path, schema, column)
    inside = dict(leaves(schema))
    kinds = [(c.name, ids_as(inside[c.name]) if c.name in inside else "text") for c in columns]
    return facts, kinds


def _check_column(path: str, schema: pa.Schema, column: Column) -> None:
    name, key = column.name, column.key
    kinds = [kind for found, kind in leaves(schema) if found == name]
    if len(kinds) > 1:
        raise SpecError(f'{key}: {path} has "{name}" twice; rename one of them')
    if not kinds and name in folder_values(path):
        return
    if not kinds:
        there = ", ".join([found for found, _ in leaves(schema)] + [*folder_values(path)])
        of_role = re.match(r"data\.(?:label|response|group|filter)(?=\.)", key)
        place = f"{of_role[0]}.column" if of_role else key
        raise SpecError(f'{place}: {path} has no column "{name}"; write one of: {there}')
    check_kind(path, kinds[0], column)


def leaves(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Names and types of a file's columns; those of nested ones with dots, ``trip.start.x``."""
    return [(".".join(parts), kind) for parts, kind in _leaves(schema)]


def _leaves(fields: Iterable[pa.Field]) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from (((field.name, *rest), kind) for rest, kind in _leaves(field.type))
        else:
            yield (field.name,), field.type


def folder_values(path: str) -> dict[str, str]:
    """What the folders of a path say, such as ``day=2026-01-01``; the nearest one of a name."""
    parts = (part.partition("=") for part in Path(path).parent.parts)
    return {unquote(name): unquote(value) for name, equal, value in parts if name and equal}


def footer_tag(path: str, salt: bytes) -> str:
    """Keyed fingerprint of a file's size, footer and time of change: nearly any rewrite changes it.

    Of an object, of its size and entity tag. These describe the records, so the tag is keyed by
    the release's private salt; it goes to workers to be compared, and is never stored or shown.
    It is taken anew whenever counting begins, so a file that was brought back since, with another
    time, is counted; the time tells files apart whose footers, without statistics, are the same.

    Raises
    ------
    UnreadableFileError
        Where the file cannot be opened.
    """
    with _failures_told(path):
        size, content = _object_tag(path) if is_url(path) else _file_tag(path)
    return hmac.new(salt, size.to_bytes(8, "big") + content, hashlib.sha256).hexdigest()


def _object_tag(url: str) -> tuple[int, bytes]:
    size, tag = identity(url)
    return size, tag.encode()


def _file_tag(path: str) -> tuple[int, bytes]:
    with Path(path).open("rb") as file:
        found = os.fstat(file.fileno())
        file.seek(max(0, found.st_size - 8))
        length = int.from_bytes(file.read(4), "little")
        file.seek(max(0, found.st_size - 8 - length))
        return found.st_size, found.st_mtime_ns.to_bytes(16, "big", signed=True) + file.read()


def read_batches(
    path: str, row_groups: Sequence[int], columns: Sequence[Column], only: Column | None = None
) -> Iterator[dict[str, FloatArray]]:
    """Stream the columns of some row groups as 64-bit floats, nulls as NaN.

    Of a column with categories, the position of each value among them, NaN for any other. A column
    that the file has not is what its folder says. Rows whose value of `only` is not one of its
    categories are null in every column. Checksums of pages are compared where the file has them.

    Raises
    ------
    UnreadableFileError
        Where the file cannot be opened or decoded, or a page is not what its checksum says.
    ExhaustedError
        Where not even one row at a time fits into memory, or too few files may be open.
    """
    wanted = (*columns, only) if only else tuple(columns)
    # Buffers ahead would hold the columns of all row groups asked for: memory would follow n.
    buffer = _REMOTE_BUFFER_BYTES if is_url(path) else _BUFFER_BYTES
    with (
        _failures_told(path),
        _parquet(
            path, pre_buffer=False, buffer_size=buffer, page_checksum_verification=True
        ) as file,
    ):
        yield from _Stream(path, file, wanted, only).batches(row_groups)


@dataclass(frozen=True)
class _Stream:
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
        schema, metadata = self.file.schema, self.file.metadata
        texts = [
            i
            for i in range(len(schema))
            if schema.column(i).path in names and schema.column(i).physical_type == "BYTE_ARRAY"
        ]
        longest = 1
        for group in map(metadata.row_group, groups if texts else ()):
            size = max(group.column(i).total_uncompressed_size for i in texts)
            longest = max(longest, size // max(1, group.num_rows))
        return max(1, BATCH_ROWS * _TEXT_BYTES // longest)


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


def reading_bytes(
    columns: Sequence[Column], only: Column | None = None, *, remote: bool = False
) -> int:
    """Memory that `read_batches` takes: two batches and their floats, buffers, pages in two forms.

    With `only`, its column and a copy of the others; `remote`: with the buffers of an object store.
    Texts count as long as they are planned to be on average: what they are is not public.

    Examples
    --------
    >>> reading_bytes([Column("x", "data.bounds.x")]) >> 20
    3
    """
    buffer = _REMOTE_BUFFER_BYTES if remote else _BUFFER_BYTES
    each = (4 if only else 3) * 8 * BATCH_ROWS + buffer + 2 * _PAGE_BYTES
    wanted = [*columns, *([only] if only else [])]
    texts = sum(map(may_be_text, wanted))
    return each * len(wanted) + texts * _TEXT_COPIES * _TEXT_BYTES * BATCH_ROWS


def write_records(path: Path, columns: Mapping[str, FloatArray], group: int = 1 << 17) -> None:
    """Write columns as a Parquet file: demonstration data and tests."""
    pq.write_table(pa.table(dict(columns)), path, row_group_size=group)
