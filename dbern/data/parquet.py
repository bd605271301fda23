"""Parquet row groups to batches of records: the only place that opens private files."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dbern.data.columns import check_kind, ids_as, may_be_text
from dbern.data.domain import Column
from dbern.data.objects import identity, is_url, open_file
from dbern.data.streams import (
    BATCH_ROWS,
    TEXT_BYTES,
    TEXT_COPIES,
    Stream,
    folder_values,
    leaves,
)
from dbern.errors import ExhaustedError, SpecError, exhausted
from dbern.system import memory_limit
from dbern.types import FloatArray

READERS = 8
"""Files whose footers are read at once."""

_BUFFER_BYTES, _REMOTE_BUFFER_BYTES = 1 << 18, 1 << 22  # of one column; a request each
_PAGE_BYTES = 1 << 20
"""Of a page as writers make them, before compression."""

_LARGE_FOOTER, _FOOTER_COPIES = 1 << 24, 10
"""Bytes from which a footer is looked at; and of memory for each of its bytes, as measured."""


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
    columns : int
        That the footer describes for each row group; 0 where that is not known.
    """

    path: str
    size: int
    row_groups: tuple[int, ...]
    columns: int = field(default=0, compare=False)

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
    return FileFacts(path, size, groups, metadata.num_columns)


def opened(path: str) -> tuple[FileFacts, pa.Schema]:
    """What a file's footer says.

    Raises
    ------
    SpecError
        For a file that is not Parquet.
    """
    try:
        _check_footer(path)
        with _parquet(path) as file:
            return _facts(path, file.metadata), file.schema_arrow
    except (OSError, MemoryError, pa.ArrowException) as error:
        raise exhausted(error, path) or SpecError(
            f"data.source: {path} cannot be read as Parquet ({type(error).__name__}); "
            "mend or remove that file"
        ) from None


def _check_footer(path: str) -> None:
    """Refuse a footer that is larger than memory before it is read: the system would end it all."""
    if is_url(path):
        return
    with Path(path).open("rb") as file:
        size, length = _footer_length(file)
    if _LARGE_FOOTER < length < size and _FOOTER_COPIES * length > memory_limit():
        raise ExhaustedError("memory", path)


def _footer_length(file: BinaryIO) -> tuple[int, int]:
    """Bytes of the file, and of its footer as the last eight of them say."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    return size, int.from_bytes(file.read(4), "little")


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
        changed = os.fstat(file.fileno()).st_mtime_ns
        size, length = _footer_length(file)
        file.seek(max(0, size - 8 - length))
        return size, changed.to_bytes(16, "big", signed=True) + file.read()


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
        yield from Stream(path, file, wanted, only).batches(row_groups)


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
    return each * len(wanted) + texts * TEXT_COPIES * TEXT_BYTES * BATCH_ROWS


def write_records(path: Path, columns: Mapping[str, FloatArray], group: int = 1 << 17) -> None:
    """Write columns as a Parquet file: demonstration data and tests."""
    pq.write_table(pa.table(dict(columns)), path, row_group_size=group)
