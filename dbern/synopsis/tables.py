"""Answer a Parquet file of queries with a Parquet file of values, in bounded memory."""

from __future__ import annotations

import io
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dbern.combination.base import Answer
from dbern.data.columns import as_floats, check_kind, is_number, is_time
from dbern.data.drafts import draft_of, remove_drafts
from dbern.data.objects import check_url, creating, identity, open_file
from dbern.data.parquet import BATCH_ROWS
from dbern.errors import ReleaseError, SpecError
from dbern.synopsis.points import Order
from dbern.synopsis.reader import Synopsis
from dbern.system import Progress, cpu_count, is_url, one_thread, silent
from dbern.types import FloatArray

_GROUP_ROWS, _GROUP_BYTES = 1 << 19, 1 << 27  # of the answers' row groups


def answer(
    synopsis: Synopsis,
    queries: str | Path,
    answers: str | Path,
    *,
    h: Order = None,
    quantity: Answer = "value",
    progress: Progress = silent,
) -> int:
    """Copy `queries` to `answers`, adding values; return the count of rows.

    Both are Parquet files or objects as ``s3://bucket/name``; order and all columns stay, and the
    answers appear whole or not at all. Values are in a column ``value``, or in one
    ``value_<class>`` for each class, probabilities in ``probability_<class>``. Post-processing is
    named in the metadata of these fields, as JSON under ``post_processing``. Raises SpecError for a
    queries file that is not Parquet or lacks an axis, answers that exist, or a synopsis without
    probabilities that are asked for; ReleaseError where the answers cannot be written.
    """
    names = synopsis.combination.columns_of(quantity)
    with _opened(queries, synopsis, names) as file:
        schema, total = file.schema_arrow, file.metadata.num_rows
        done = synopsis.metadata.get("post_processing")
        label = {"post_processing": json.dumps(done)} if done else None
        for name in names:
            schema = schema.append(pa.field(name, pa.float64(), metadata=label))
        evaluate = _evaluator(synopsis, synopsis.evaluator(total, h, quantity), names)
        with (
            _written(answers) as sink,
            pq.ParquetWriter(sink, schema, use_dictionary=_texts(file)) as writer,
        ):
            rows = 0
            for group in _groups(_answered(evaluate, _batches(queries, file))):
                writer.write_table(group)
                rows += group.num_rows
                progress("answering", rows, total)
            return rows


def published_answers(answers: str | Path) -> bool:
    """Return whether there are answers at a path or URL: they are whole, for they appear at once.

    Raises ReleaseError where the store does not tell.
    """
    try:
        if is_url(answers):
            identity(check_url(answers, "--out"))
            return True
        return Path(answers).exists()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unwritable(answers, error) from None


def remove_unfinished(answers: str | Path) -> None:
    """Remove drafts beside published answers, of processes that are gone; a store keeps none."""
    if not is_url(answers):
        remove_drafts(Path(answers))


@contextmanager
def _written(answers: str | Path) -> Iterator[Any]:
    """Open the answers for writing; they appear after the block, unless it fails."""
    if published_answers(answers):
        remove_unfinished(answers)
        raise SpecError(f"--out: {answers} already exists. Remove it or write another path")
    target = Path(answers)
    if not (is_url(answers) or target.parent.is_dir()):
        raise SpecError(f"--out: there is no folder {target.parent}. Create it or write another")
    try:
        if is_url(answers):
            with creating(answers) as file:
                yield _Sink(file)
            return
        with draft_of(target) as path:
            yield path
    except OSError as error:
        raise _unwritable(answers, error) from None


class _Sink(io.RawIOBase):
    """File of an object's parts that Arrow writes to; closing it publishes nothing."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return int(self._file.write(data))


def _unwritable(answers: str | Path, error: OSError) -> ReleaseError:
    why = error.strerror or type(error).__name__
    mend = (
        "Check the bucket, and the endpoint and credentials in the environment,"
        if is_url(answers)
        else "Free some space or write another path,"
    )
    return ReleaseError(
        f"{answers}: cannot be written ({why}). {mend} and run the same command again"
    )


@contextmanager
def _opened(
    queries: str | Path, synopsis: Synopsis, names: Sequence[str]
) -> Iterator[pq.ParquetFile]:
    """Open queries, checked to have what the synopsis asks for, and room for the answers' names."""
    with ExitStack() as held:
        try:
            source: Any = Path(queries)
            if is_url(queries):
                source = held.enter_context(open_file(check_url(queries, "QUERIES")))
            elif not source.is_file():
                raise SpecError(
                    f"{queries}: there is no such file. Write the path of one Parquet file"
                )
            # A row group whole at a time otherwise; and times of 96 bits modulo 584 years.
            options = {"pre_buffer": False, "coerce_int96_timestamp_unit": "us"}
            file = held.enter_context(pq.ParquetFile(source, **options))
        except (OSError, pa.ArrowException) as error:
            _refuse_unanswered(queries, error)
            raise SpecError(
                f"{queries}: cannot be read as Parquet ({type(error).__name__}). Write the path "
                "or s3:// URL of a Parquet file"
            ) from None
        _check_columns(queries, file.schema_arrow, synopsis, names)
        yield file


def _check_columns(
    path: str | Path, schema: pa.Schema, synopsis: Synopsis, names: Sequence[str]
) -> None:
    for axis in synopsis.domain.axes:
        name, unit = axis.name, axis.unit
        if schema.names.count(name) > 1:
            raise SpecError(f'{path}: has a column "{name}" twice. Rename one of them')
        if name not in schema.names:
            raise SpecError(
                f'{path}: has no column "{name}"; it needs {", ".join(synopsis.domain.names)}'
            )
        kind = schema.field(name).type
        if axis.categories:
            check_kind(str(path), kind, axis.column)
            continue
        if is_time(kind) and unit is None:
            raise SpecError(f"{path}: column {name} is of type {kind}; its axis has numbers")
        if not (is_number(kind) or is_time(kind)):
            raise SpecError(
                f"{path}: column {name} is of type {kind}. Write numbers"
                + (", dates or timestamps" if unit else "")
            )
    for name in names:
        if name in schema.names:
            raise SpecError(f'{path}: has a column "{name}" already. Rename it')


def _batches(path: str | Path, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches(BATCH_ROWS)
    except (OSError, pa.ArrowException) as error:
        _refuse_unanswered(path, error)
        raise SpecError(
            f"{path}: is damaged ({type(error).__name__}). Write it again and repeat the command"
        ) from None


def _refuse_unanswered(queries: str | Path, error: Exception) -> None:
    """Refuse an object that is there, or may be, where the store did not answer."""
    plain = isinstance(error, FileNotFoundError | pa.ArrowException)
    if is_url(queries) and not plain:
        raise ReleaseError(
            f"{queries}: cannot be read ({type(error).__name__}). Check the bucket, and the "
            "endpoint and credentials in the environment, and run the same command again"
        ) from None


def _texts(file: pq.ParquetFile) -> list[str]:
    """Columns worth a dictionary: for numbers its attempt costs more than all the rest."""
    columns = (file.schema.column(i) for i in range(len(file.schema)))
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


_Evaluate: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


def _evaluator(
    synopsis: Synopsis, values: Callable[[FloatArray], FloatArray], names: Sequence[str]
) -> _Evaluate:
    axes = synopsis.domain.axes

    def evaluate(batch: pa.RecordBatch) -> pa.RecordBatch:
        points = np.column_stack([as_floats(batch.column(axis.name), axis.column) for axis in axes])
        columns = values(points).reshape(batch.num_rows, -1)
        for name, column in zip(names, columns.T, strict=True):
            batch = batch.append_column(name, pa.array(np.ascontiguousarray(column)))
        return batch

    return evaluate


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        rows, size = sum(b.num_rows for b in waiting), sum(b.nbytes for b in waiting)
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting.clear()
    if waiting:
        yield pa.Table.from_batches(waiting)


def _answered(evaluate: _Evaluate, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Evaluate batches on all cores, a few ahead of the writer, in order."""
    cores = cpu_count()
    waiting: deque[Future[pa.RecordBatch]] = deque()
    with one_thread(), ThreadPoolExecutor(cores) as pool:
        for batch in batches:
            waiting.append(pool.submit(evaluate, batch))
            if len(waiting) > 2 * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
