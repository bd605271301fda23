"""Parquet row groups to batches of records: the only place that opens private files."""

from __future__ import annotations

import hashlib
import hmac
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
    is_number,
    is_text,
    is_time,
    of_text,
    plain_type,
)
from dbern.domain import Column
from dbern.errors import SpecError
from dbern.objects import identity, is_url, open_file

BATCH_ROWS = 1 << 16
"""Rows in memory at a time."""

_READERS = 8
_BUFFER_BYTES, _REMOTE_BUFFER_BYTES = 1 << 18, 1 << 22  # of one column; a request each
_PAGE_BYTES = 1 << 20
"""Of a page as writers make them, before compression."""


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
    with ThreadPoolExecutor(_READERS) as pool:
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
    """
    try:
        with _parquet(path) as file:
            return _facts(path, file.metadata)
    except (OSError, pa.ArrowException):
        raise UnreadableFileError from None


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


def _opened(path: str) -> tuple[FileFacts, pa.Schema]:
    try:
        with _parquet(path) as file:
            return _facts(path, file.metadata), file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise SpecError(
            f"data.source: {path} cannot be read as Parquet ({type(error).__name__}); "
            "mend or remove that file"
        ) from None


def _footer(path: str, columns: Sequence[Column]) -> tuple[FileFacts, list[tuple[str, str]]]:
    """Facts of a file, and what ids of its columns are compared as, those of folders as text."""
    facts, schema = _opened(path)
    for column in columns:
        _check_column(path, schema, column)
    inside = dict(leaves(schema))
    kinds = [(c.name, ids_as(inside[c.name]) if c.name in inside else "text") for c in columns]
    return facts, kinds


@dataclass(frozen=True)
class FoundColumn:
    """A column of a file or of its folders, by its schema alone.

    Attributes
    ----------
    name : str
        Of nested ones with dots.
    kind : str
        Its type, or "folder".
    bounds : "numbers", "times" or ""
        What its bounds are where it is an axis or a response; empty where it cannot be one.
    listed : bool
        Whether its values can be listed, for a label, a group or a filter.
    """

    name: str
    kind: str
    bounds: str
    listed: bool


def read_schemas(
    files: Sequence[str],
) -> tuple[tuple[FileFacts, tuple[FoundColumn, ...]], ...]:
    """What the footers of the files say: no value, no statistic.

    Raises
    ------
    SpecError
        For a file that is not Parquet.
    """
    with ThreadPoolExecutor(_READERS) as pool:
        return tuple(pool.map(_found, files))


def _found(path: str) -> tuple[FileFacts, tuple[FoundColumn, ...]]:
    facts, schema = _opened(path)
    inside = {name: _column(name, kind) for name, kind in leaves(schema)}
    names = [name for name in folder_values(path) if name not in inside]
    folders = [FoundColumn(name, "folder", "numbers", listed=True) for name in names]
    return facts, (*inside.values(), *folders)


def _column(name: str, kind: pa.DataType) -> FoundColumn:
    plain = plain_type(kind)
    listed = pa.types.is_integer(plain) or pa.types.is_boolean(plain) or is_text(plain)
    bounds = "times" if is_time(kind) else "numbers" if is_number(kind) else ""
    return FoundColumn(name, " ".join(str(kind).split()), bounds, listed)


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
    """Keyed fingerprint of a file's size and footer, which changes with nearly any rewrite.

    Of an object, of its size and entity tag. These describe the records, so the tag is keyed by
    the release's private salt; it goes to workers to be compared, and is never stored or shown.

    Raises
    ------
    UnreadableFileError
        Where the file cannot be opened.
    """
    try:
        size, content = _object_tag(path) if is_url(path) else _size_and_footer(path)
    except OSError:
        raise UnreadableFileError from None
    return hmac.new(salt, size.to_bytes(8, "big") + content, hashlib.sha256).hexdigest()


def _object_tag(url: str) -> tuple[int, bytes]:
    size, tag = identity(url)
    return size, tag.encode()


def _size_and_footer(path: str) -> tuple[int, bytes]:
    with Path(path).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 8))
        length = int.from_bytes(file.read(4), "little")
        file.seek(max(0, size - 8 - length))
        return size, file.read()


def read_batches(
    path: str, row_groups: Sequence[int], columns: Sequence[Column], only: Column | None = None
) -> Iterator[dict[str, FloatArray]]:
    """Stream the columns of some row groups as 64-bit floats, nulls as NaN.

    Of a column with categories, the position of each value among them, NaN for any other. A column
    that the file has not is what its folder says. Rows whose value of `only` is not one of its
    categories are null in every column.

    Raises
    ------
    UnreadableFileError
        Where the file cannot be opened or decoded.
    """
    wanted = (*columns, only) if only else tuple(columns)
    try:
        # Buffers ahead would hold the columns of all row groups asked for: memory would follow n.
        buffer = _REMOTE_BUFFER_BYTES if is_url(path) else _BUFFER_BYTES
        with _parquet(path, pre_buffer=False, buffer_size=buffer) as file:
            parts = {".".join(parts): parts for parts, _ in _leaves(file.schema_arrow)}
            names = [column.name for column in wanted if column.name in parts]
            stream = file.iter_batches(
                BATCH_ROWS, row_groups=list(row_groups), columns=names, use_threads=False
            )
            for batch in stream:
                yield _records(
                    {
                        column: as_floats(_leaf(batch, parts[column.name]), column)
                        if column.name in parts
                        else _repeated(
                            of_text(folder_values(path)[column.name], column), batch.num_rows
                        )
                        for column in wanted
                    },
                    only,
                )
    except (OSError, pa.ArrowException):
        raise UnreadableFileError from None


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

    Examples
    --------
    >>> reading_bytes([Column("x", "data.bounds.x")]) >> 20
    3
    """
    buffer = _REMOTE_BUFFER_BYTES if remote else _BUFFER_BYTES
    each = (4 if only else 3) * 8 * BATCH_ROWS + buffer + 2 * _PAGE_BYTES
    return each * (len(columns) + (only is not None))


def write_records(path: Path, columns: Mapping[str, FloatArray], group: int = 1 << 17) -> None:
    """Write columns as a Parquet file: demonstration data and tests."""
    pq.write_table(pa.table(dict(columns)), path, row_group_size=group)
