"""Parquet files: how they are opened; sizes, schemas and tags of their footers, no statistics."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dbern.data.columns import check_kind, ids_as
from dbern.data.domain import Column
from dbern.data.objects import ObjectFile, identity
from dbern.errors import (
    NO_FILE_ERRNOS,
    EnvironmentRefusedError,
    ReleaseError,
    ShortageError,
    SpecError,
    shortage_of,
)
from dbern.system import is_url, memory_limit

READERS = 8
"""Files whose footers are read at once."""

_MAX_FILES_TOGETHER = 64  # that a thread takes at a time: more of them leave other threads idle
_File = TypeVar("_File")
_Result = TypeVar("_Result")

_LARGE_FOOTER_BYTES, _FOOTER_COPIES = 1 << 24, 10
"""Bytes from which a footer is looked at; and of memory for each of its bytes, as measured."""
_SMALL_FILE_BYTES = 1 << 16
"""Bytes of a file that are read at once: Arrow would ask for as many to find the footer."""


class UnreadableFileError(Exception):
    """A file could not be opened or decoded; carries no text of the reader's, which may quote."""


@dataclass(frozen=True)
class Footer:
    """Size, rows and columns of a Parquet file; statistics are left unread."""

    path: str  # absolute, or a URL
    size: int  # in bytes
    row_groups: tuple[int, ...]  # rows of each
    columns: int = field(default=0, compare=False)  # of each row group; 0 where it is not known
    ids: str = field(default="", compare=False)  # the form in which they are compared
    digest: bytes = field(default=b"", compare=False, repr=False)
    """Of a small file's size and footer, to know it again unparsed. It stays in this process."""

    @property
    def rows(self) -> int:
        """Rows of the file, null and out-of-bounds ones included."""
        return sum(self.row_groups)


def read_footers(files: Sequence[str | Path], columns: Sequence[Column]) -> tuple[Footer, ...]:
    """Return sizes and row counts of the files, after checking the columns' presence and types."""
    checked: list[tuple[pa.Schema, str]] = []
    footers = tuple(read_together(lambda path: _read_checked(str(path), columns, checked), files))
    forms = sorted({footer.ids for footer in footers if footer.ids})
    if len(forms) > 1:
        column = next(column for column in columns if column.ids)
        raise SpecError(
            f"{column.key}: {column.name} is {' in some files and '.join(forms)} in others, "
            "and one unit could be two. Convert it to one type."
        )
    return footers


def read_together(read: Callable[[_File], _Result], files: Sequence[_File]) -> Iterator[_Result]:
    """Read files, yielding results in order, by `READERS` threads that take some at a time."""
    together = max(1, min(_MAX_FILES_TOGETHER, len(files) // (4 * READERS)))
    batches = [files[first : first + together] for first in range(0, len(files), together)]
    with ThreadPoolExecutor(READERS) as pool:
        for results in pool.map(lambda batch: [read(file) for file in batch], batches):
            yield from results


def read_footer(path: str) -> Footer:
    """Read a file's footer while a release runs.

    Raises UnreadableFileError without a readable footer, ShortageError without memory or open
    files.
    """
    with (
        reader_failures(path),
        open_source(path) as source,
        pq.ParquetFile(source, **decryption(path)) as file,
    ):
        return _footer_of(path, source, file.metadata)


@contextmanager
def reader_failures(path: str) -> Iterator[None]:
    """Raise the reader's failures without its text; those of the process have their own error."""
    try:
        yield
    except pa.ArrowCapacityError:
        raise ShortageError("memory", path) from None
    except (OSError, MemoryError, pa.ArrowException) as error:
        raise shortage_of(error, path) or UnreadableFileError from None


UNLOCKED: dict[str, bytes] = {}
"""Keys of encrypted files that this process reads, by path."""


@contextmanager
def unlocked(path: str, key: bytes) -> Iterator[None]:
    """Let the threads of this process, and nobody else, read the encrypted file at a path.

    So tasks that read it need no key: none travels in their arguments.
    """
    UNLOCKED[path] = key
    try:
        yield
    finally:
        del UNLOCKED[path]


def decryption(path: str) -> dict[str, Any]:
    """Return how Arrow is to decrypt a file: nothing of one that is not `unlocked`."""
    key = UNLOCKED.get(path)
    if key is None:
        return {}
    from pyarrow.parquet.encryption import create_decryption_properties

    return {"decryption_properties": create_decryption_properties(key)}


@contextmanager
def open_source(path: str) -> Iterator[Any]:
    """Open a file, or an object by its URL, for Arrow to read; a small file is in memory, whole."""
    with pa.PythonFile(ObjectFile(path), "r") if is_url(path) else pa.OSFile(path) as source:
        small = not is_url(path) and source.size() <= _SMALL_FILE_BYTES
        yield pa.BufferReader(source.read_buffer()) if small else source


def _footer_of(path: str, source: pa.NativeFile, metadata: pq.FileMetaData) -> Footer:
    groups = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    if is_url(path):
        return Footer(path, identity(path)[0], groups, metadata.num_columns)
    size = source.size()
    digest = _digest(size, _footer_bytes(source)) if size <= _SMALL_FILE_BYTES else b""
    return Footer(path, size, groups, metadata.num_columns, digest=digest)


def _digest(size: int, footer: bytes) -> bytes:
    return hashlib.blake2b(footer, digest_size=16, salt=size.to_bytes(8, "big")).digest()


def read_footer_and_schema(path: str) -> tuple[Footer, pa.Schema]:
    """Read a file's footer and schema for a plan; a SpecError says what is wrong with the file."""
    try:
        with open_source(path) as source:
            if not is_url(path):
                # A footer that is larger than memory: the system would end it all.
                size = source.size()
                length = int.from_bytes(source.read_at(4, max(0, size - 8)), "little")
                if _LARGE_FOOTER_BYTES < length < size and _FOOTER_COPIES * length > memory_limit():
                    raise ShortageError("memory", path)
            with pq.ParquetFile(source, **decryption(path)) as file:
                return _footer_of(path, source, file.metadata), file.schema_arrow
    except (OSError, MemoryError, pa.ArrowException) as error:
        _refuse_unread("data.source", path, error)
        raise SpecError(
            f"data.source: {path} cannot be read as Parquet ({type(error).__name__}). "
            "Mend or remove that file."
        ) from None


def _refuse_unread(key: str, path: str, error: Exception) -> None:
    """Refuse a file that a disk or a store did not give; return where its content is wrong."""
    if refusal := shortage_of(error, path):
        raise refusal from None
    number = getattr(error, "errno", None)  # none where the content that was read is wrong
    if number is None:
        return
    what = f"{key}: {path} cannot be read ({os.strerror(number)})."
    if number in NO_FILE_ERRNOS:
        raise SpecError(f"{what} Write a file that is there and may be read from here.") from None
    if is_url(path):
        mend = "Check the endpoint in the environment, and run the same command again."
        raise ReleaseError(f"{what} {mend}") from None
    mend = "Mend the disk or its connection, and run the same command again."
    raise EnvironmentRefusedError(f"{what} {mend}") from None


def _footer_bytes(source: pa.NativeFile) -> bytes:
    """Return the last bytes of a file: its footer, its length and what Parquet ends with."""
    size = source.size()
    most = min(size, _SMALL_FILE_BYTES)
    end: bytes = source.read_at(most, size - most)
    length = min(size, int.from_bytes(end[-8:-4], "little") + 8)
    return end[-length:] if length <= len(end) else source.read_at(length, size - length)


def _read_checked(
    path: str, columns: Sequence[Column], checked: list[tuple[pa.Schema, str]]
) -> Footer:
    """Read a footer, with the form of the file's ids (text, for folders), and check its columns.

    `checked`: the last schema that has all columns. Most files have one, and need no other look.
    """
    footer, schema = read_footer_and_schema(path)
    for checked_schema, form in checked:
        if schema.equals(checked_schema):
            return replace(footer, ids=form) if form else footer
    for column in columns:
        check_column(path, schema, column)
    inside = dict(leaves(schema))
    forms = [ids_as(inside[c.name]) if c.name in inside else "text" for c in columns if c.ids]
    form = forms[0] if forms else ""
    if all(column.name in inside for column in columns):
        checked[:] = [(schema, form)]
    return replace(footer, ids=form)


def check_column(path: str, schema: pa.Schema, column: Column, others: Sequence[str] = ()) -> None:
    """Refuse a column that is missing, there twice or of a wrong type; `others` are there too."""
    name, key = column.name, column.key
    kinds = [kind for leaf, kind in leaves(schema) if leaf == name]
    if len(kinds) > 1:
        raise SpecError(f'{key}: {path} has "{name}" twice. Rename one of them.')
    if not kinds and name in folder_values(path):
        return
    if not kinds:
        available = [leaf for leaf, _ in leaves(schema)] + [*folder_values(path), *others]
        of_role = re.match(r"data\.(?:label|response|group|filter)(?=\.)", key)
        spec_key = f"{of_role[0]}.column" if of_role else key
        names = ", ".join(available)
        raise SpecError(f'{spec_key}: {path} has no column "{name}". Write one of: {names}')
    check_kind(path, kinds[0], column)


def footer_tag(path: str, salt: bytes) -> str:
    """Return a keyed fingerprint of a file's size, footer and time of change; rewrites change it.

    Of an object, of its size and entity tag. These describe the records, so the tag is keyed by
    the release's private salt; it goes to workers to be compared, and is never stored or shown.
    It is taken anew whenever counting begins, so a file that was brought back since, with another
    time, is counted; the time tells files apart whose footers, without statistics, are the same.

    Raises UnreadableFileError for a file that cannot be opened.
    """
    return tag_and_digest(path, salt)[0]


def tag_and_digest(path: str, salt: bytes) -> tuple[str, bytes]:
    """Return a file's `footer_tag`, and the `Footer.digest` of the bytes that it was taken of."""
    with reader_failures(path):
        if is_url(path):
            (size, changed), footer = identity(path), b""
        else:
            with pa.OSFile(path) as file:
                size, footer = file.size(), _footer_bytes(file)
                changed = os.fstat(file.fileno()).st_mtime_ns.to_bytes(16, "big", signed=True)
    tag = hmac.digest(salt, size.to_bytes(8, "big") + changed + footer, "sha256").hex()
    return tag, _digest(size, footer) if footer else b""


def leaves(schema: Iterable[pa.Field]) -> list[tuple[str, pa.DataType]]:
    """Return names and types of a file's columns, of nested ones with dots: ``trip.start.x``."""
    return [(".".join(parts), kind) for parts, kind in nested_leaves(schema)]


def nested_leaves(fields: Iterable[pa.Field]) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Yield the parts of the name and the type of each column below some fields."""
    for parent in fields:
        outer = parent.type
        if pa.types.is_struct(outer):
            yield from (((parent.name, *rest), kind) for rest, kind in nested_leaves(outer))
        else:
            yield (parent.name,), outer


def folder_values(path: str) -> dict[str, str]:
    """Return the values in a path's folders, as ``day=2026-01-01``; of two the nearest counts."""
    parts = (part.partition("=") for part in Path(path).parent.parts)
    return {unquote(name): unquote(value) for name, equal, value in parts if name and equal}
