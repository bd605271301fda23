"""Parquet files, their footers and their records: the only place that opens private files."""

from __future__ import annotations

import errno
import fnmatch
import glob
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dbern.data.columns import as_floats, check_kind, from_stored, ids_as, may_be_text, of_text
from dbern.data.domain import Column
from dbern.data.objects import identity, matching, open_file
from dbern.errors import EnvironmentRefusedError, ExhaustedError, SpecError, exhausted
from dbern.system import is_url, memory_limit
from dbern.types import FloatArray

# --- The files that a source names, with a bound on how far a search goes

_MAX_ENTRIES = 2_000_000
_SKIPPED_ERRNOS = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM),
    *(errno.ELOOP, errno.ENAMETOOLONG),
)
_MAGIC = re.compile(r"[*?\[]")


def discover(source: str) -> tuple[str, ...]:
    """Return the Parquet files of a path, a folder (searched to its depth) or a glob, sorted.

    `source` may be a URL, for which a prefix stands for a folder.
    """
    files = _objects(source) if is_url(source) else _files(source)
    if not files:
        raise SpecError(
            f"data.source: no Parquet file at {source}. Write a path, folder or glob that has some."
        )
    return files


def _objects(source: str) -> tuple[str, ...]:
    try:
        return tuple(matching(source))
    except OSError as error:
        raise SpecError(
            f"data.source: {source} cannot be listed ({error.strerror}). Check the bucket, and the "
            "endpoint and credentials in the environment."
        ) from None


def _files(source: str) -> tuple[str, ...]:
    try:
        paths = {path for path in _matching_paths(source) if path.is_file()}
        files = tuple(sorted(paths, key=lambda path: path.parts))
        _refuse_twins(files)
    except OSError as error:
        raise SpecError(
            f"data.source: {source[:200]} cannot be listed ({error.strerror}). Write a path that "
            "this user may read."
        ) from None
    return tuple(map(str, files))


def _matching_paths(source: str) -> Iterator[Path]:
    path = Path(source)
    if path.is_dir():
        entries = _entries(path, ["**"], links=False)
        files = (Path(entry.path) for entry in entries if entry.name.endswith(".parquet"))
        for file in files:
            if not any(part.startswith(("_", ".")) for part in file.relative_to(path).parts):
                yield file
    elif path.exists():
        yield path
    elif _MAGIC.search(source):
        fixed = next(i for i, part in enumerate(path.parts) if _MAGIC.search(part))
        for _ in _entries(Path(*path.parts[:fixed]), path.parts[fixed:], links=True):
            pass  # counted, and refused where `glob` would go on
        # Path.glob takes no absolute pattern.
        yield from (Path(name) for name in glob.iglob(source, recursive=True))  # noqa: PTH207


def _entries(folder: Path, pattern: Sequence[str], *, links: bool) -> Iterator[os.DirEntry[str]]:
    """Yield the entries that a search for a pattern visits below a folder."""
    root = folder.resolve()
    if "**" in pattern and root == Path(root.anchor):
        raise SpecError(
            f"data.source: searches the whole disk from {root}. Write a folder that holds the "
            "data, such as /data/**/*.parquet."
        )
    seen = 0
    waiting: list[tuple[str, int, tuple[Path, ...]]] = [(str(folder), 0, (root,))]
    while waiting:
        path, depth, through = waiting.pop()
        deep = "**" in pattern[: depth + 1]
        with _skipped(path), os.scandir(path) as entries:
            for entry in entries:
                seen += 1
                if seen > _MAX_ENTRIES:
                    raise SpecError(
                        f"data.source: more than {_MAX_ENTRIES} entries to search below {folder}. "
                        "Write a folder that holds the data alone."
                    )
                yield entry
                hidden = links and entry.name.startswith(".")  # which `**` does not enter
                fits = len(pattern) > depth + 1 and fnmatch.fnmatch(entry.name, pattern[depth])
                if (not hidden if deep else fits) and entry.is_dir(follow_symlinks=links):
                    follows = deep and entry.is_symlink()
                    chain = (*through, _onward(entry.path, through)) if follows else through
                    waiting.append((entry.path, depth + 1, chain))


@contextmanager
def _skipped(folder: str) -> Iterator[None]:
    """Skip folders without permission, as `glob` does.

    A disk that fails is refused: its files would be missing from the release without a word.
    """
    try:
        yield
    except OSError as error:
        if refusal := exhausted(error, f"data.source: {folder}"):
            raise refusal from None
        if error.errno not in _SKIPPED_ERRNOS:
            raise EnvironmentRefusedError(
                f"data.source: {folder} cannot be read ({error.strerror}). Mend the disk or its "
                "connection, and run the same command again."
            ) from None


def _onward(link: str, through: Sequence[Path]) -> Path:
    """Return where a link leads; refuse one that leads back, for the search would not end."""
    end = Path(link).resolve()
    if end in through or Path(link).parent.resolve().is_relative_to(end):
        raise SpecError(
            f"data.source: {link} is a link that leads back to {end}. Write a source without links."
        )
    return end


def _refuse_twins(files: Sequence[Path]) -> None:
    """Refuse a file under two names: its rows would count twice, with twice the sensitivity."""
    names: dict[tuple[int, int], Path] = {}
    for path in files:
        status = path.stat()
        first = names.setdefault((status.st_dev, status.st_ino), path)
        if first != path:
            raise SpecError(
                f"data.source: {path} is the same file as {first}. Write a source without links."
            )


# --- What footers say

READERS = 8
"""Files whose footers are read at once."""

_MAX_FILES_TOGETHER = 64  # that a thread takes at a time: more of them leave other threads idle
_File = TypeVar("_File")
_Result = TypeVar("_Result")

_BUFFER_BYTES, _REMOTE_BUFFER_BYTES = 1 << 18, 1 << 22  # of one column; a request each
_PAGE_BYTES = 1 << 20
"""Of a page as writers make them, before compression."""

_LARGE_FOOTER_BYTES, _FOOTER_COPIES = 1 << 24, 10
"""Bytes from which a footer is looked at; and of memory for each of its bytes, as measured."""


class UnreadableFileError(Exception):
    """A file could not be opened or decoded; carries no text of the reader's, which may quote."""


@dataclass(frozen=True)
class FileFacts:
    """Facts of a Parquet footer, statistics left unread."""

    path: str  # absolute, or a URL
    size: int  # in bytes
    row_groups: tuple[int, ...]  # rows of each
    columns: int = field(default=0, compare=False)  # of each row group; 0 where it is not known

    @property
    def rows(self) -> int:
        """Rows of the file, null and out-of-bounds ones included."""
        return sum(self.row_groups)


def read_footers(files: Sequence[str | Path], columns: Sequence[Column]) -> tuple[FileFacts, ...]:
    """Return sizes and row counts of the files, after checking the columns' presence and types."""
    checked: list[_Checked] = []
    footers = list(read_together(lambda path: _footer(str(path), columns, checked), files))
    for column in columns:
        kinds = sorted({kind for _, ids in footers for name, kind in ids if name == column.name})
        if column.ids and len(kinds) > 1:
            raise SpecError(
                f"{column.key}: {column.name} is {' in some files and '.join(kinds)} in others, "
                "and one unit could be two. Convert it to one type."
            )
    return tuple(footer for footer, _ in footers)


def read_together(read: Callable[[_File], _Result], files: Sequence[_File]) -> Iterator[_Result]:
    """Read files, yielding results in order, by `READERS` threads that take some at a time."""
    together = max(1, min(_MAX_FILES_TOGETHER, len(files) // (4 * READERS)))
    batches = [files[first : first + together] for first in range(0, len(files), together)]
    with ThreadPoolExecutor(READERS) as pool:
        for results in pool.map(lambda batch: [read(file) for file in batch], batches):
            yield from results


def file_facts(path: str) -> FileFacts:
    """Read a file's footer now.

    Raises UnreadableFileError without a readable footer, ExhaustedError without memory or open
    files.
    """
    with (
        _reader_failures(path),
        _opened(path) as source,
        pq.ParquetFile(source, **_decryption(path)) as file,
    ):
        return _facts(path, source, file.metadata)


@contextmanager
def _reader_failures(path: str) -> Iterator[None]:
    """Raise the reader's failures without its text; those of the process have their own error."""
    try:
        yield
    except pa.ArrowCapacityError:
        raise ExhaustedError("memory", path) from None
    except (OSError, MemoryError, pa.ArrowException) as error:
        raise exhausted(error, path) or UnreadableFileError from None


_UNLOCKED: dict[str, bytes] = {}


@contextmanager
def unlocked(path: str, key: bytes) -> Iterator[None]:
    """Let the threads of this process, and nobody else, read the encrypted file at a path.

    So tasks that read it need no key: none travels in their arguments.
    """
    _UNLOCKED[path] = key
    try:
        yield
    finally:
        del _UNLOCKED[path]


def _decryption(path: str) -> dict[str, Any]:
    key = _UNLOCKED.get(path)
    if key is None:
        return {}
    from pyarrow.parquet.encryption import create_decryption_properties

    return {"decryption_properties": create_decryption_properties(key)}


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    with open_file(path) if is_url(path) else pa.OSFile(path) as source:
        yield source


def _facts(path: str, source: pa.NativeFile, metadata: pq.FileMetaData) -> FileFacts:
    groups = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    size = identity(path)[0] if is_url(path) else source.size()
    return FileFacts(path, size, groups, metadata.num_columns)


def opened(path: str) -> tuple[FileFacts, pa.Schema]:
    """Facts and schema of a file's footer."""
    try:
        with _opened(path) as source:
            if not is_url(path):
                # A footer that is larger than memory: the system would end it all.
                size, length = _footer_length(source)
                if _LARGE_FOOTER_BYTES < length < size and _FOOTER_COPIES * length > memory_limit():
                    raise ExhaustedError("memory", path)
            with pq.ParquetFile(source, **_decryption(path)) as file:
                return _facts(path, source, file.metadata), file.schema_arrow
    except (OSError, MemoryError, pa.ArrowException) as error:
        raise exhausted(error, path) or SpecError(
            f"data.source: {path} cannot be read as Parquet ({type(error).__name__}). "
            "Mend or remove that file."
        ) from None


def _footer_length(file: BinaryIO | pa.NativeFile) -> tuple[int, int]:
    """Sizes in bytes of the file and of its footer, by the last eight of them."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    return size, int.from_bytes(file.read(4), "little")


_Checked: TypeAlias = tuple[pa.Schema, list[tuple[str, str]]]


def _footer(
    path: str, columns: Sequence[Column], checked: list[_Checked]
) -> tuple[FileFacts, list[tuple[str, str]]]:
    """Return a file's facts, and the forms of its ids for comparison (text, for folders).

    `checked`: the last schema that has all columns. Most files have one, and need no other look.
    """
    footer, schema = opened(path)
    for checked_schema, kinds in checked:
        if schema.equals(checked_schema):
            return footer, kinds
    for column in columns:
        check_column(path, schema, column)
    inside = dict(leaves(schema))
    kinds = [(c.name, ids_as(inside[c.name]) if c.name in inside else "text") for c in columns]
    if all(column.name in inside for column in columns):
        checked[:] = [(schema, kinds)]
    return footer, kinds


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
    with _reader_failures(path):
        size, content = identity(path) if is_url(path) else _file_tag(path)
    return hmac.new(salt, size.to_bytes(8, "big") + content, hashlib.sha256).hexdigest()


def _file_tag(path: str) -> tuple[int, bytes]:
    with Path(path).open("rb") as file:
        changed = os.fstat(file.fileno()).st_mtime_ns
        size, length = _footer_length(file)
        file.seek(max(0, size - 8 - length))
        return size, changed.to_bytes(16, "big", signed=True) + file.read()


# --- An open file to batches of 64-bit floats, of fewer rows where texts or lists are long

BATCH_ROWS = 1 << 16
"""Rows in memory at a time."""

TEXT_BYTES, TEXT_COPIES = 64, 5
"""Of a text on average, where more make batches smaller; and of a batch's texts, as measured."""

_SHRINKAGE = 8  # of the rows of a batch that fails
_PERHAPS_TOO_LARGE = (MemoryError, pa.ArrowCapacityError, pa.ArrowNotImplementedError)


def leaves(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Return names and types of a file's columns, of nested ones with dots: ``trip.start.x``."""
    return [(".".join(parts), kind) for parts, kind in _leaves(schema)]


def _leaves(fields: Iterable[pa.Field]) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for parent in fields:
        if pa.types.is_struct(parent.type):
            yield from (((parent.name, *rest), kind) for rest, kind in _leaves(parent.type))
        else:
            yield (parent.name,), parent.type


def folder_values(path: str) -> dict[str, str]:
    """Return the values in a path's folders, as ``day=2026-01-01``; of two the nearest counts."""
    parts = (part.partition("=") for part in Path(path).parent.parts)
    return {unquote(name): unquote(value) for name, equal, value in parts if name and equal}


@dataclass(frozen=True)
class Stream:
    """Some columns of an open file, in batches made smaller where texts or lists are long."""

    path: str
    file: pq.ParquetFile
    columns: tuple[Column, ...]
    only: Column | None

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
        for batch in self.file.iter_batches(
            rows, row_groups=list(groups), columns=names, use_threads=False
        ):
            first, done = done, done + len(batch)
            if done <= skip:
                continue
            rest = batch.slice(max(0, skip - first))
            yield done, records_of(rest, self.columns, self.only, self.path)

    def _fitting_rows(self, groups: Sequence[int]) -> int:
        """Return how many rows fit into the planned memory with texts or lists as long as these.

        By the sizes in the footer, which describe the records: nothing but memory and time follow.
        """
        texts = {column.name for column in self.columns if may_be_text(column)}
        lists = {column.name: column.points for column in self.columns if column.points}
        if not ((texts or lists) and groups):
            return BATCH_ROWS
        # Not by `ParquetFile.schema`, which keeps all of a footer until garbage is collected.
        metadata, fitting = self.file.metadata, BATCH_ROWS
        first = metadata.row_group(groups[0])
        for i in range(metadata.num_columns):
            chunk = first.column(i)
            path = chunk.path_in_schema
            points = next((p for name, p in lists.items() if path.startswith(f"{name}.")), 0)
            if not points and not (path in texts and chunk.physical_type == "BYTE_ARRAY"):
                continue
            for group in map(metadata.row_group, groups):
                inside = group.column(i)
                size = inside.num_values if points else inside.total_uncompressed_size
                planned = points or TEXT_BYTES
                rows = max(1, group.num_rows)
                fitting = min(fitting, BATCH_ROWS * planned * rows // max(1, size))
        return max(1, fitting)


def records_of(
    batch: pa.RecordBatch, columns: Sequence[Column], only: Column | None, path: str = ""
) -> dict[str, FloatArray]:
    """Return the columns of a batch as floats; missing ones from the names of folders."""
    inside = {".".join(parts): parts for parts, _ in _leaves(batch.schema)}
    values = {}
    for column in columns:
        if path in _UNLOCKED:
            values[column] = from_stored(batch.column(column.name), column)
        elif column.name in inside:
            name, *below = inside[column.name]
            outer = batch.column(name)  # null where what a column is nested in is
            leaf = pc.struct_field(outer, below) if below else outer
            values[column] = as_floats(leaf, column)
        else:
            constant = of_text(folder_values(path)[column.name], column)
            values[column] = np.full((len(batch), *np.shape(constant)), constant)
    named = {column.name: floats for column, floats in values.items() if column != only}
    if only is None:
        return named
    out = np.isnan(values[only])
    return {name: np.where(out, np.nan, floats.T).T for name, floats in named.items()}


def read_batches(
    path: str, row_groups: Sequence[int], columns: Sequence[Column], only: Column | None = None
) -> Iterator[dict[str, FloatArray]]:
    """Stream the columns of some row groups as 64-bit floats, nulls as NaN.

    Values of a column with categories are their positions, NaN for any other. A column that the
    file has not has the value in its folder's name. Rows whose value of `only` is not one of its
    categories are null in every column. Checksums of pages are compared where the file has them.
    Raises UnreadableFileError for a file that cannot be opened or decoded, or a page with another
    checksum, ExhaustedError where not even one row at a time fits into memory, or too few files may
    be open.
    """
    wanted = (*columns, only) if only else tuple(columns)
    with (
        _reader_failures(path),
        _opened(path) as source,
        _records_file(path, source, wanted) as file,
    ):
        yield from Stream(path, file, wanted, only).batches(row_groups)


def _records_file(path: str, source: Any, columns: Sequence[Column]) -> pq.ParquetFile:
    """Open a file to read these columns of it, texts numbered by 32 bits whatever its writer did.

    A file's Arrow schema may number them by eight, and Arrow fails on a row group that has a text
    more than that: one record would decide whether a release does.
    """
    # Buffers ahead would hold the columns of all row groups asked for: memory would follow n.
    options = {
        "pre_buffer": False,
        "buffer_size": _REMOTE_BUFFER_BYTES if is_url(path) else _BUFFER_BYTES,
        "page_checksum_verification": True,
        **_decryption(path),
    }
    file = pq.ParquetFile(source, **options)
    names = {column.name for column in columns}
    kinds = [(name, kind) for name, kind in leaves(file.schema_arrow) if name in names]
    texts = [name for name, kind in kinds if pa.types.is_dictionary(kind)]
    if not texts:
        return file
    return pq.ParquetFile(source, metadata=file.metadata, read_dictionary=texts, **options)


def reading_bytes(
    columns: Sequence[Column], only: Column | None = None, *, remote: bool = False
) -> int:
    """Bound the memory of `read_batches`: two batches and their floats, buffers, pages twice.

    With `only`, its column and a copy of the others; `remote`: with the buffers of an object store.
    Texts count as long as they are planned to be on average: their lengths are not public.
    """
    buffer = _REMOTE_BUFFER_BYTES if remote else _BUFFER_BYTES
    number_bytes = (4 if only else 3) * 8 * BATCH_ROWS + buffer + 2 * _PAGE_BYTES
    wanted = [*columns, *([only] if only else [])]
    texts = sum(map(may_be_text, wanted))
    numbers = sum(column.points or 1 for column in wanted)
    return number_bytes * numbers + texts * TEXT_COPIES * TEXT_BYTES * BATCH_ROWS


def write_records(path: Path, columns: Mapping[str, FloatArray], group: int = 1 << 17) -> None:
    """Write columns as a Parquet file: demonstration data and tests."""
    pq.write_table(pa.table(dict(columns)), path, row_group_size=group)
