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

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dbern.data.columns import stored_type, to_stored
from dbern.data.domain import Column
from dbern.data.footers import Footer, check_column, leaves, read_together
from dbern.data.parquet import BATCH_ROWS, records_of
from dbern.errors import DbernError, SpecError, optional_import, shortage_of
from dbern.types import FloatArray

GROUP_ROWS = 1 << 19
"""Rows of a row group of a spool, of which one may have up to twice as many: each has its price."""
_CONVERTED_ROWS = 1 << 17  # at a time
_TEXT_FILES = ("csv", "json")
_READ_BITS = 32  # of the indices that pyarrow reads: it converts them to others, and checks Unicode
_KEY = "data"
_KINDS = (
    "Give a pandas, polars or Dask data frame, an Arrow table, record-batch reader or dataset, or "
    "a DuckDB relation"
)
_GROUP_BYTES = 1 << 25  # from which a row group is written although it has fewer rows
_TABLES: dict[str, Callable[[], Any]] = {}
"""Table that each release of this process was made from: public, as no value is looked at."""


@dataclass(frozen=True)
class Frame(ABC):
    """The columns of a table that a spec reads."""

    schema: pa.Schema  # of these columns, or of those that they are nested in
    unread: tuple[str, ...]  # columns that it does not read
    columns: tuple[Column, ...] = field(default=(), kw_only=True)
    partitions: tuple[Any, ...] = field(default=(), kw_only=True, repr=False)
    """Delayed partitions of a Dask frame, which is not read here."""
    table: Any = field(default=None, kw_only=True, repr=False, compare=False)
    """What was given, whose identity is public."""

    @abstractmethod
    def count(self) -> int | None:
        """Return the number of rows; None where only reading would tell."""

    @abstractmethod
    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the rows; some tables can be read only once."""

    @property
    def footers(self) -> tuple[Footer, ...]:
        """Footer of these rows, as a file would have it; none where their number is unknown."""
        with _unquoted("its rows cannot be counted"):
            rows = self.count()
        if rows is None:
            return ()
        full_groups, rest = divmod(rows, GROUP_ROWS)
        groups = (GROUP_ROWS,) * full_groups + ((rest,) if rest else ())
        return (Footer(_KEY, 0, groups, len(self.columns)),)


def frame_of(data: Any, columns: Sequence[Column]) -> Frame:
    """Return the columns of a table that a spec reads; no value is looked at.

    Raises SpecError for anything but a table, and for a column that is missing, there twice or of a
    wrong type.
    """
    selection = _Selection(tuple(columns))
    with _unquoted("its columns cannot be told"):
        if hasattr(data, "to_delayed") and hasattr(data, "columns"):
            frame: Frame = _DaskFrame.of(data, selection)
        elif hasattr(data, "iloc") and hasattr(data, "columns"):
            frame = _PandasFrame.of(data, selection)
        elif hasattr(data, "scanner"):
            frame = _DatasetFrame.of(data, selection)
        elif hasattr(data, "__arrow_c_stream__") and not hasattr(data, "iloc"):  # but of a series
            frame = _StreamFrame.of(data, selection)
        else:
            raise SpecError(
                f"data: a table of type {type(data).__name__} cannot be read. {_KINDS}. Collect "
                "a lazy frame, and make a reader of a generator "
                "(pyarrow.RecordBatchReader.from_batches)."
            )
    for column in columns:
        check_column(_KEY, frame.schema, column, frame.unread)
    return replace(frame, columns=tuple(columns), table=data)


@dataclass(frozen=True)
class _Selection:
    """The columns that a spec reads, by their names."""

    columns: tuple[Column, ...]

    def reads(self, name: str) -> bool:
        """Return whether a column is read, or one that is nested in it."""
        return any(f"{column.name}.".startswith(f"{name}.") for column in self.columns)

    def lists_truths(self, name: str) -> bool:
        """Return whether a column is read for true and false alone."""
        listed = [column.categories for column in self.columns if column.name == name]
        return any(values and all(type(v) is bool for v in values) for values in listed)

    def has_times(self, name: str) -> bool:
        """Return whether a column's bounds are dates or times."""
        return any(column.name == name and column.unit is not None for column in self.columns)

    def unread(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if not self.reads(name))


@dataclass(frozen=True)
class _PandasFrame(Frame):
    data: Any = field(repr=False)
    selection: _Selection

    @classmethod
    def of(cls, data: Any, selection: _Selection) -> _PandasFrame:
        empty = _pandas_rows(data, selection, 0, 0)
        fields = [
            _pandas_field(empty.iloc[:, [index]], selection) for index in range(empty.shape[1])
        ]
        return cls(pa.schema(fields), selection.unread(map(str, data.columns)), data, selection)

    def count(self) -> int:
        return len(self.data)

    def read(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self.data), _CONVERTED_ROWS):
            rows = _pandas_rows(self.data, self.selection, start, start + _CONVERTED_ROWS)
            arrays = [
                _column_of(rows.iloc[:, [index]], kind) for index, kind in enumerate(self.schema)
            ]
            yield from pa.Table.from_arrays(arrays, schema=self.schema).to_batches()


def _pandas_rows(data: Any, selection: _Selection, start: int, end: int) -> Any:
    rows = data.iloc[start:end]
    if any(selection.reads(str(name)) for name in data.index.names if name is not None):
        rows = rows.reset_index(allow_duplicates=True)  # as in the files that pandas writes
    labels = [str(label) for label in rows.columns]
    indices = [index for index, label in enumerate(labels) if selection.reads(label)]
    return rows.iloc[:, indices].set_axis([labels[index] for index in indices], axis=1)


def _pandas_field(frame: Any, selection: _Selection) -> pa.Field:
    """Return the Arrow type of the only column of a frame, by its type of pandas alone.

    pandas makes objects of truths of which one is missing, so both are read, or neither.
    """
    (label,), (kind,) = frame.columns, map(str, frame.dtypes)
    if kind in ("bool", "object") and selection.lists_truths(label):
        return pa.field(label, pa.bool_())
    if kind == "bool":
        raise SpecError(
            f'data: column "{label}" is of type bool, which pandas makes objects of where a value '
            f'is missing. Convert it with frame.astype({{"{label}": "boolean"}}).'
        )
    if kind == "object":
        advice = (
            f'Convert it, such as with frame.astype({{"{label}": "string"}}) or "float64"; or read '
            'times of day and decimals as they are, with dtype_backend="pyarrow".'
        )
        if selection.has_times(label):
            advice = f'Convert it, such as with pandas.to_datetime(frame["{label}"]).'
        raise SpecError(
            f'data: column "{label}" is of type object, whose values may be anything. {advice}'
        )
    if kind == "category":
        listed = frame.dtypes.iloc[0].categories
        if str(listed.dtype) == "object":
            raise SpecError(
                f'data: column "{label}" is of type category, of objects that may be anything. '
                f'Convert it, such as with frame.astype({{"{label}": "string"}}).'
            )
        if _is_kept_by_python(listed):
            return pa.field(label, pa.dictionary(pa.int32(), pa.large_string()))
    return pa.Schema.from_pandas(frame, preserve_index=False).field(0)


def _is_kept_by_python(values: Any) -> bool:
    """Return whether values of pandas are texts that may be no Unicode."""
    return getattr(values.dtype, "storage", "") == "python"


def _encoded(texts: Any, kind: pa.DataType) -> Any:
    """Return texts that may be no Unicode as they are: one that is none is none of the listed."""
    encoded = texts.str.encode("utf-8", "surrogatepass")
    return pa.array(encoded, pa.large_binary(), from_pandas=True).cast(kind, safe=False)


def _column_of(frame: Any, kind: pa.Field) -> Any:
    """Return the only column of a frame; floats as they are, for NaN means missing all the same."""
    (dtype,) = frame.dtypes
    if isinstance(dtype, np.dtype) and not dtype.isnative:  # of another machine, as FITS has
        frame = frame.astype(dtype.newbyteorder("="))
    values = frame.iloc[:, 0]
    if str(values.dtype) == "float64":
        return pa.array(values.to_numpy())
    if str(values.dtype) == "object":
        return pa.array([v if isinstance(v, bool | np.bool_) else None for v in values], kind.type)
    if _is_kept_by_python(values):
        return _encoded(values, kind.type)
    if str(values.dtype) == "category" and _is_kept_by_python(values.cat.categories):
        codes = values.cat.codes.to_numpy().astype(np.int32)
        indices = pa.array(codes, mask=codes < 0)
        texts = _encoded(values.cat.categories, kind.type.value_type)
        return pa.DictionaryArray.from_arrays(indices, texts)
    return pa.Table.from_pandas(frame, pa.schema([kind]), preserve_index=False).column(0)


@dataclass(frozen=True)
class _DaskFrame(_PandasFrame):
    """A Dask frame, whose types are those of an empty frame of pandas."""

    dask: Any = field(repr=False)

    @classmethod
    def of(cls, data: Any, selection: _Selection) -> _DaskFrame:
        typed = _PandasFrame.of(data._meta, selection)
        labels = [label for label in data.columns if selection.reads(str(label))]
        partitions = tuple(data[labels].to_delayed())
        return cls(typed.schema, typed.unread, data._meta, selection, data, partitions=partitions)

    def count(self) -> int:
        return len(self.dask)


@dataclass(frozen=True)
class _DatasetFrame(Frame):
    data: Any = field(repr=False)

    @classmethod
    def of(cls, data: Any, selection: _Selection) -> _DatasetFrame:
        schema = pa.schema([kind for kind in data.schema if selection.reads(kind.name)])
        for name, kind in leaves(schema):
            if pa.types.is_dictionary(kind) and kind.index_type.bit_width != _READ_BITS:
                raise SpecError(
                    f'data: column "{name}" of this dataset numbers its texts in '
                    f"{kind.index_type}, which pyarrow converts to while it reads files, and fails "
                    "at some texts. Name its Parquet files in data.source, or give the table that "
                    "it was made of."
                )
        _refuse_conversions(data, pa.schema(data.schema) if _is_filtered(data) else schema)
        return cls(schema, selection.unread(data.schema.names), data)

    def count(self) -> int:
        return int(self.data.count_rows())

    def read(self) -> Iterator[pa.RecordBatch]:
        ahead = {"batch_readahead": 2, "fragment_readahead": 1}
        names = list(self.schema.names)
        yield from self.data.scanner(columns=names, batch_size=_CONVERTED_ROWS, **ahead).to_reader()


def _is_filtered(data: Any) -> bool:
    """Return whether a dataset has a filter of its own, which may read any of its columns."""
    try:
        data.get_fragments()
    except ValueError:
        return True
    return False


def _refuse_conversions(data: Any, schema: pa.Schema) -> None:
    """Refuse a dataset whose files have a column in another type, to which one value may not fit.

    pyarrow converts while it reads: whether that fails would be decided by a record.
    """
    for child in getattr(data, "children", ()):
        _refuse_conversions(child, schema)
    if not getattr(data, "files", ()):
        return
    if data.format.default_extname in _TEXT_FILES:
        raise SpecError(
            f"data: a dataset of {data.format.default_extname.upper()} takes its types from its "
            "values, and fails at those that do not fit. Write Parquet files and name them in "
            "data.source."
        )
    inspect = partial(data.format.inspect, filesystem=data.filesystem)
    for path, inside in zip(data.files, read_together(inspect, data.files), strict=True):
        for kind in inside:
            known = schema.field(kind.name) if kind.name in schema.names else kind
            if leaves([kind]) != leaves([known]):
                raise SpecError(
                    f'data: column "{kind.name}" is {known.type} in this dataset and {kind.type} '
                    f"in {path}, and a value that does not fit would end the release. Name the "
                    "files in data.source, or write them with one type."
                )


@dataclass(frozen=True)
class _StreamFrame(Frame):
    data: Any = field(repr=False)
    indices: tuple[int, ...]  # of the columns that are read

    @classmethod
    def of(cls, data: Any, selection: _Selection) -> _StreamFrame:
        polars = hasattr(data, "get_columns")
        others = selection.unread(data.columns) if polars else ()
        if polars:  # whose types are not all Arrow's
            data = data.select([name for name in data.columns if selection.reads(name)])
        if hasattr(data, "limit"):  # of a relation all rows would be computed to tell their types
            schema = pa.RecordBatchReader.from_stream(data.limit(0)).schema
        elif hasattr(data, "schema"):
            schema = pa.schema(data.schema)
        else:
            raise SpecError(
                f"data: a stream of type {type(data).__name__} tells its columns only where it is "
                "read. Give pyarrow.RecordBatchReader.from_stream(data)."
            )
        indices = [index for index, name in enumerate(schema.names) if selection.reads(name)]
        fields = [(schema.names[index], _type_read(schema.types[index])) for index in indices]
        return cls(pa.schema(fields), others + selection.unread(schema.names), data, tuple(indices))

    def count(self) -> int | None:
        return len(self.data) if hasattr(self.data, "__len__") else None

    def read(self) -> Iterator[pa.RecordBatch]:
        data, indices = self.data, list(self.indices)
        if hasattr(data, "project"):  # a relation would compute columns that are not read too
            data = data.project(", ".join(f"#{index + 1}" for index in indices))
            indices = list(range(len(indices)))
        for batch in pa.RecordBatchReader.from_stream(data):
            read = batch.select(indices).rename_columns(self.schema.names)
            yield read.cast(self.schema)


def _type_read(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column is read as: views of texts as texts."""
    if pa.types.is_struct(kind):
        return pa.struct([(child.name, _type_read(child.type)) for child in kind])
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _type_read(kind.value_type), kind.ordered)
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
        raise shortage_of(error, _KEY) or SpecError(
            f"data: {what}. Find out why with pyarrow.table(data), and mend it."
        ) from None


def frame_batches(frame: Frame, only: Column | None = None) -> Iterator[dict[str, FloatArray]]:
    """Stream the columns of a frame as 64-bit floats, as `read_batches` does those of a file."""
    with _unquoted("its rows cannot be read"):
        for batch in frame.read():
            for start in range(0, len(batch), BATCH_ROWS):
                yield records_of(batch.slice(start, BATCH_ROWS), frame.columns, only)


def write_spool(file: BinaryIO, frame: Frame, key: bytes) -> int:
    """Write the floats of a frame as an encrypted Parquet file, and return how many rows there are.

    Raises SpecError or ShortageError for a table that cannot be read, which may be due to a
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
    for records in frame_batches(frame):
        arrays = [to_stored(records[column.name], column) for column in frame.columns]
        waiting.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        enough = sum(map(len, waiting)) >= GROUP_ROWS
        if enough or sum(batch.nbytes for batch in waiting) >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def remember_table(release_id: str, table: Any) -> None:
    """Remember that a release was made from this table, where its type allows it."""
    with suppress(TypeError):  # a type of which there are no weak references
        _TABLES[release_id] = weakref.ref(table)


def is_another(release_id: str, table: Any) -> bool:
    """Whether this is surely another table than that which a release was made from."""
    return release_id in _TABLES and _TABLES[release_id]() is not table
