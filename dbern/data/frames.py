"""Tables that are no files: data frames, Arrow tables, readers, datasets and relations.

A release may read its records more than once, and goes on after a crash from the very same ones.
So the 64-bit floats of the columns that it needs are spooled into a Parquet file, encrypted page by
page with AES-256-GCM (Parquet's modular encryption), and from there on read as files are. A record
takes as many bytes whatever its values, and no type of Arrow's is converted to one of Parquet's,
where the one value that does not fit would be refused and quoted. None of the libraries that tables
come from is imported: a table is known by what it offers. A Dask frame is not spooled: it is
counted partition by partition, where the partitions are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dbern.data.columns import stored_type, to_stored
from dbern.data.domain import Column
from dbern.data.parquet import BATCH_ROWS, FileFacts, check_column, leaves, records_of
from dbern.errors import DbernError, SpecError, exhausted, optional_import
from dbern.types import FloatArray

GROUP_ROWS = 1 << 19
"""Rows of a row group of a spool, of which one may have up to twice as many: each has its price."""

_PART_ROWS = 1 << 17  # that are converted at a time

_GROUP_BYTES = 1 << 25  # from which a row group is written although it has fewer rows
_READ_BITS = 32  # of the indices that pyarrow reads: it converts them to others, and checks Unicode
_PLACE = "data"
_KINDS = (
    "Give a pandas, polars or Dask data frame, an Arrow table, record-batch reader or dataset, or "
    "a DuckDB relation"
)


@dataclass(frozen=True)
class Frame:
    """The columns of a table that a spec reads."""

    schema: pa.Schema  # of these columns, or of those that they are nested in
    others: tuple[str, ...]  # columns that it does not read
    count: Callable[[], int | None]  # of rows; None where only reading would tell
    read: Callable[[], Iterator[pa.RecordBatch]] = field(repr=False)  # of some tables only once
    partitions: tuple[Any, ...] = ()  # delayed, of a Dask frame, which is not read here
    columns: tuple[Column, ...] = ()

    @property
    def facts(self) -> tuple[FileFacts, ...]:
        """Facts like a file's footer for these rows; none where their number is unknown."""
        with _unquoted("its rows cannot be counted"):
            rows = self.count()
        if rows is None:
            return ()
        whole, rest = divmod(rows, GROUP_ROWS)
        groups = (GROUP_ROWS,) * whole + ((rest,) if rest else ())
        return (FileFacts(_PLACE, 0, groups, len(self.columns)),)


def frame_of(data: Any, columns: Sequence[Column]) -> Frame:
    """Return the columns of a table that a spec reads; no value is looked at.

    Raises SpecError for anything but a table, and for a column that is missing, there twice or of a
    wrong type.
    """
    names = {column.name for column in columns}

    def wanted(name: str) -> bool:
        return name in names or any(one.startswith(f"{name}.") for one in names)

    with _unquoted("its columns cannot be told"):
        if hasattr(data, "to_delayed") and hasattr(data, "columns"):
            frame = _of_dask(data, wanted)
        elif hasattr(data, "iloc") and hasattr(data, "columns"):
            frame = _of_pandas(data, wanted)
        elif hasattr(data, "scanner"):
            frame = _of_dataset(data, wanted)
        elif hasattr(data, "__arrow_c_stream__") and not hasattr(data, "iloc"):  # but of a series
            frame = _of_stream(data, wanted)
        else:
            raise SpecError(
                f"data: a table of type {type(data).__name__} cannot be read. {_KINDS}. Collect "
                "a lazy frame, and make a reader of a generator "
                "(pyarrow.RecordBatchReader.from_batches)."
            )
    for column in columns:
        check_column(_PLACE, frame.schema, column, frame.others)
    return replace(frame, columns=tuple(columns))


def _of_pandas(data: Any, wanted: Callable[[str], bool]) -> Frame:
    indexed = any(wanted(str(name)) for name in data.index.names if name is not None)

    def part(start: int, end: int) -> Any:
        piece = data.iloc[start:end]
        if indexed:  # as in the files that pandas writes, the index is a column
            piece = piece.reset_index(allow_duplicates=True)
        labels = [str(label) for label in piece.columns]
        places = [place for place, label in enumerate(labels) if wanted(label)]
        return piece.iloc[:, places].set_axis([labels[place] for place in places], axis=1)

    def read() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(data), _PART_ROWS):
            piece = part(start, start + _PART_ROWS)
            arrays = [_column_of(piece.iloc[:, [place]], one) for place, one in enumerate(schema)]
            yield from pa.Table.from_arrays(arrays, schema=schema).to_batches()

    none = part(0, 0)
    for label, kind in zip(none.columns, none.dtypes, strict=True):
        if str(kind) == "object":
            raise SpecError(
                f'data: column "{label}" is of type object, whose values may be anything. Convert '
                f'it, such as with frame.astype({{"{label}": "string"}}) or "float64", and lists '
                "of numbers with pd.ArrowDtype(pa.list_(pa.float64()))."
            )
    alone = (none.iloc[:, [place]] for place in range(none.shape[1]))
    schema = pa.schema([pa.Schema.from_pandas(one, preserve_index=False).field(0) for one in alone])
    return Frame(schema, _others(map(str, data.columns), wanted), lambda: len(data), read)


def _column_of(alone: Any, kind: pa.Field) -> Any:
    """Return the only column of a frame; floats as they are, for NaN means missing all the same."""
    values = alone.iloc[:, 0]
    if str(values.dtype) == "float64":
        return pa.array(values.to_numpy())
    if getattr(values.dtype, "storage", "") == "python":  # of texts that may be no Unicode
        encoded = values.str.encode("utf-8", "surrogatepass")
        return pa.array(encoded, pa.large_binary(), from_pandas=True).cast(kind.type, safe=False)
    return pa.Table.from_pandas(alone, pa.schema([kind]), preserve_index=False).column(0)


def _of_dask(data: Any, wanted: Callable[[str], bool]) -> Frame:
    typed = _of_pandas(data._meta, wanted)
    needed = data[[label for label in data.columns if wanted(str(label))]]
    return replace(typed, count=lambda: len(data), partitions=tuple(needed.to_delayed()))


def _of_dataset(data: Any, wanted: Callable[[str], bool]) -> Frame:
    schema = pa.schema([one for one in data.schema if wanted(one.name)])
    for name, kind in leaves(schema):
        if pa.types.is_dictionary(kind) and kind.index_type.bit_width != _READ_BITS:
            raise SpecError(
                f'data: column "{name}" of this dataset numbers its texts in {kind.index_type}, '
                "which pyarrow converts to while it reads files, and fails at some texts. Name its "
                "Parquet files in data.source, or give the table that it was made of."
            )

    def read() -> Iterator[pa.RecordBatch]:
        ahead = {"batch_readahead": 2, "fragment_readahead": 1}
        names = list(schema.names)
        yield from data.scanner(columns=names, batch_size=_PART_ROWS, **ahead).to_reader()

    return Frame(schema, _others(data.schema.names, wanted), data.count_rows, read)


def _of_stream(data: Any, wanted: Callable[[str], bool]) -> Frame:
    if hasattr(data, "limit"):  # of a relation all rows would be computed to tell their types
        whole = pa.RecordBatchReader.from_stream(data.limit(0)).schema
    elif hasattr(data, "schema"):
        whole = pa.schema(data.schema)
    else:
        raise SpecError(
            f"data: a stream of type {type(data).__name__} tells its columns only where it is "
            "read. Give pyarrow.RecordBatchReader.from_stream(data)."
        )
    places = [place for place, name in enumerate(whole.names) if wanted(name)]
    schema = pa.schema([(whole.names[place], _stored(whole.types[place])) for place in places])

    def read() -> Iterator[pa.RecordBatch]:
        for batch in pa.RecordBatchReader.from_stream(data):
            yield batch.select(places).cast(schema)

    known = hasattr(data, "__len__")
    others = _others(whole.names, wanted)
    return Frame(schema, others, lambda: len(data) if known else None, read)


def _others(names: Iterable[str], wanted: Callable[[str], bool]) -> tuple[str, ...]:
    return tuple(name for name in names if not wanted(name))


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column is read as: views of texts as texts."""
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _stored(one.type)) for one in kind])
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _stored(kind.value_type), kind.ordered)
    return pa.large_string() if str(kind) == "string_view" else kind


@contextmanager
def _unquoted(what: str) -> Iterator[None]:
    """Raise what a table's own library says without its text, which may quote a value."""
    try:
        yield
    except (DbernError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 -- of any library (a panic of polars is none of
        # Python's exceptions), or of a caller's generator
        raise exhausted(error, _PLACE) or SpecError(
            f"data: {what}. Find out why with pyarrow.table(data), and mend it."
        ) from None


def table_batches(
    table: Any, columns: Sequence[Column], only: Column | None = None
) -> Iterator[dict[str, FloatArray]]:
    """Stream the columns of a table as 64-bit floats, as `read_batches` does those of a file."""
    yield from _records(frame_of(table, (*columns, only) if only else columns), only)


def _records(frame: Frame, only: Column | None = None) -> Iterator[dict[str, FloatArray]]:
    with _unquoted("its rows cannot be read"):
        for batch in frame.read():
            for start in range(0, len(batch), BATCH_ROWS):
                yield records_of(batch.slice(start, BATCH_ROWS), frame.columns, only)


# --- The spool


def write_spool(file: BinaryIO, frame: Frame, key: bytes) -> int:
    """Write the floats of a frame as an encrypted Parquet file, and return how many rows there are.

    Raises SpecError or ExhaustedError for a table that cannot be read, which may be due to a
    record, EnvironmentRefusedError for a pyarrow that cannot encrypt.
    """
    with optional_import(
        f"data: needs pyarrow 25 or later, and this is {pa.__version__}. Install it, or write "
        "Parquet files and name them in data.source."
    ):
        from pyarrow.parquet.encryption import create_encryption_properties
    schema = pa.schema([(column.name, stored_type(column)) for column in frame.columns])
    rows = 0
    with pq.ParquetWriter(
        file, schema, use_dictionary=False, compression="none", write_statistics=False,
        store_schema=False, encryption_properties=create_encryption_properties(key),
    ) as writer:  # fmt: skip
        for table in _groups(frame, schema):
            writer.write_table(table, 2 * GROUP_ROWS)
            rows += len(table)
    return rows


def _groups(frame: Frame, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield tables of about a row group each, for batches may be of a few rows."""
    waiting = list[pa.RecordBatch]()
    for records in _records(frame):
        arrays = [to_stored(records[column.name], column) for column in frame.columns]
        waiting.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        enough = sum(map(len, waiting)) >= GROUP_ROWS
        if enough or sum(batch.nbytes for batch in waiting) >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting, schema)
