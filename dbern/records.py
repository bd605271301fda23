"""Parquet row groups to batches of records: the only place that opens private files."""

from __future__ import annotations

import glob
import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dbern.arrays import FloatArray
from dbern.domain import Column
from dbern.errors import SpecError

BATCH_ROWS = 1 << 16
"""Rows in memory at a time."""

_READERS = 8
_BUFFER_BYTES = 1 << 18
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
        Absolute path.
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


def discover(source: str) -> tuple[Path, ...]:
    """The Parquet files of a path, a folder (searched to its depth) or a glob, sorted.

    Raises
    ------
    SpecError
        Where there are none.
    """
    path = Path(source)
    if path.is_dir():
        found = [p for p in path.rglob("*.parquet") if not _hidden(p.relative_to(path))]
    elif path.exists():
        found = [path]
    else:
        # Path.glob takes no absolute pattern.
        found = [Path(p) for p in glob.glob(source, recursive=True)]  # noqa: PTH207
    files = tuple(sorted({p for p in found if p.is_file()}))
    if not files:
        raise SpecError(
            f"data.source: no Parquet file at {source}; write a path, folder or glob that has some"
        )
    _refuse_twins(files)
    return files


def _refuse_twins(files: Sequence[Path]) -> None:
    """A file under two names would count its rows twice: twice the sensitivity of the plan."""
    names: dict[tuple[int, int], Path] = {}
    for path in files:
        found = path.stat()
        other = names.setdefault((found.st_dev, found.st_ino), path)
        if other != path:
            raise SpecError(
                f"data.source: {path} is the same file as {other}; write a source without links"
            )


def _hidden(path: Path) -> bool:
    """Whether a part of the path marks it as not data, such as ``_temporary``."""
    return any(part.startswith(("_", ".")) for part in path.parts)


def read_footers(files: Sequence[Path], columns: Sequence[Column]) -> tuple[FileFacts, ...]:
    """Sizes and row counts of the files, after checking the columns' presence and types.

    Raises
    ------
    SpecError
        For a file that is not Parquet, a missing column, or a column of the wrong type.
    """
    with ThreadPoolExecutor(_READERS) as pool:
        return tuple(pool.map(lambda path: _footer(path, columns), files))


def file_facts(path: str) -> FileFacts:
    """What the footer says now.

    Raises
    ------
    UnreadableFileError
        Where there is no readable footer.
    """
    try:
        with pq.ParquetFile(path) as file:
            return _facts(Path(path), file.metadata)
    except (OSError, pa.ArrowException):
        raise UnreadableFileError from None


def _facts(path: Path, metadata: pq.FileMetaData) -> FileFacts:
    groups = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    return FileFacts(str(path), path.stat().st_size, groups)


def _footer(path: Path, columns: Sequence[Column]) -> FileFacts:
    try:
        with pq.ParquetFile(path) as file:
            facts, schema = _facts(path, file.metadata), file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise SpecError(
            f"data.source: {path} cannot be read as Parquet ({type(error).__name__}); "
            "mend or remove that file"
        ) from None
    for column in columns:
        _check_column(path, schema, column)
    return facts


def _check_column(path: Path, schema: pa.Schema, column: Column) -> None:
    name, key = column.name, column.key
    if schema.names.count(name) > 1:
        raise SpecError(f'{key}: {path} has "{name}" twice; rename one of them')
    if name not in schema.names:
        raise SpecError(
            f'{key}: {path} has no column "{name}"; write one of: {", ".join(schema.names)}'
        )
    kind = schema.field(name).type
    if column.categories:
        _check_categories(path, kind, column)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise SpecError(
            f"{key}: is of type {kind} in {path}; only integers and floats are "
            "available here in this version: convert the column or choose another"
        )


def _check_categories(path: Path, kind: pa.DataType, column: Column) -> None:
    """Every listed value must be one that the column could hold."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    values = column.categories
    fits = (
        (pa.types.is_boolean(plain) and all(isinstance(v, bool) for v in values))
        or (pa.types.is_integer(plain) and all(type(v) is int for v in values))
        or (_is_text(plain) and all(isinstance(v, str) for v in values))
    )
    try:
        pa.array(values, type=plain if fits else None)
    except (pa.ArrowException, OverflowError):  # an integer that the column's type cannot hold
        fits = False
    if not fits:
        raise SpecError(
            f"{column.key}: {column.name} is of type {kind} in {path}; write values that it can "
            "hold, or convert the column to integers, booleans or text"
        )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def footer_tag(path: str, salt: bytes) -> str:
    """Keyed fingerprint of a file's size and footer, which changes with nearly any rewrite.

    The footer describes the records, so the tag is keyed by the release's private salt; it goes
    to workers to be compared, and is never stored or shown.

    Raises
    ------
    UnreadableFileError
        Where the file cannot be opened.
    """
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 8))
            length = int.from_bytes(file.read(4), "little")
            file.seek(max(0, size - 8 - length))
            footer = file.read()
    except OSError:
        raise UnreadableFileError from None
    return hmac.new(salt, size.to_bytes(8, "big") + footer, hashlib.sha256).hexdigest()


def read_batches(
    path: str, row_groups: Sequence[int], columns: Sequence[Column]
) -> Iterator[dict[str, FloatArray]]:
    """Stream the columns of some row groups as 64-bit floats, nulls as NaN.

    Of a column with categories, the position of each value among them, NaN for any other.

    Raises
    ------
    UnreadableFileError
        Where the file cannot be opened or decoded.
    """
    names = [column.name for column in columns]
    try:
        # Buffers ahead would hold the columns of all row groups asked for: memory would follow n.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
            stream = file.iter_batches(
                BATCH_ROWS, row_groups=list(row_groups), columns=names, use_threads=False
            )
            for batch in stream:
                yield {column.name: _floats(batch, column) for column in columns}
    except (OSError, pa.ArrowException):
        raise UnreadableFileError from None


def reading_bytes(columns: Sequence[Column]) -> int:
    """Memory that `read_batches` takes: two batches and their floats, buffers, pages in two forms.

    Examples
    --------
    >>> reading_bytes([Column("x", "data.bounds.x")]) >> 20
    3
    """
    each = 3 * 8 * BATCH_ROWS + _BUFFER_BYTES + 2 * _PAGE_BYTES
    return each * len(columns)


def _floats(batch: pa.RecordBatch, column: Column) -> FloatArray:
    values = batch.column(column.name)
    if column.categories:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        values = pc.index_in(values, value_set=pa.array(column.categories, type=values.type))
    # An unsafe cast rounds integers beyond 2^53 to the nearest float instead of refusing the value.
    floats = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(floats, dtype=np.float64)


def write_records(path: Path, columns: Mapping[str, FloatArray], group: int = 1 << 17) -> None:
    """Write columns as a Parquet file: demonstration data and tests."""
    pq.write_table(pa.table(dict(columns)), path, row_group_size=group)
