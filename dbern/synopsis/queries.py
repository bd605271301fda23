"""Answer a Parquet file of queries with a Parquet file of values, in bounded memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from dbern.errors import ReleaseError, SpecError
from dbern.progress import Progress, silent
from dbern.synopsis.reader import Order, Synopsis

_BATCH_ROWS = 1 << 16
_VALUE = "value"


def answer(
    synopsis: Synopsis,
    queries: str | Path,
    answers: str | Path,
    *,
    h: Order = None,
    progress: Progress = silent,
) -> int:
    """Copy `queries` to `answers`, adding values; order and all columns are kept.

    They are in a column ``value``, or in one ``value_<class>`` for each class.

    Parameters
    ----------
    queries, answers : path
        Parquet files. The answers appear whole or not at all.
    h : int, one per axis, or "auto", optional
        Order of the iterated operator.

    Returns
    -------
    int
        How many rows were answered.

    Raises
    ------
    SpecError
        For a queries file that is not Parquet or lacks an axis, or answers that exist.
    ReleaseError
        Where the answers cannot be written.
    """
    queries, answers = Path(queries), Path(answers)
    if answers.exists():
        raise SpecError(f"--out: {answers} already exists; remove it or write another path")
    if not answers.parent.is_dir():
        raise SpecError(f"--out: there is no folder {answers.parent}; create it or write another")
    if not queries.is_file():
        raise SpecError(f"{queries}: there is no such file; write the path of one Parquet file")
    draft = answers.with_name(f".{answers.name}.{os.getpid()}.tmp")
    try:
        with _opened(queries, synopsis) as file:
            schema = file.schema_arrow
            for name in _value_names(synopsis):
                schema = schema.append(pa.field(name, pa.float64()))
            try:
                with pq.ParquetWriter(draft, schema) as writer:
                    total, batches = file.metadata.num_rows, _batches(queries, file)
                    rows = _copy(synopsis, batches, total, writer, h, progress)
                draft.rename(answers)
            except OSError as error:
                why = error.strerror or type(error).__name__
                raise ReleaseError(
                    f"{answers}: cannot be written ({why}); free some space or write another path, "
                    "and run the same command again"
                ) from None
    finally:
        draft.unlink(missing_ok=True)
    return rows


def _opened(path: Path, synopsis: Synopsis) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise SpecError(
            f"{path}: cannot be read as Parquet ({type(error).__name__}); write the path of a "
            "Parquet file"
        ) from None
    schema = file.schema_arrow
    for name in synopsis.domain.names:
        if schema.names.count(name) > 1:
            raise SpecError(f'{path}: has a column "{name}" twice; rename one of them')
        if name not in schema.names:
            raise SpecError(
                f'{path}: has no column "{name}"; it needs {", ".join(synopsis.domain.names)}'
            )
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise SpecError(f"{path}: column {name} is of type {kind}; write integers or floats")
    for name in _value_names(synopsis):
        if name in schema.names:
            raise SpecError(f'{path}: has a column "{name}" already; rename it')
    return file


def _value_names(synopsis: Synopsis) -> list[str]:
    """Columns that answers add: one, or one for each class."""
    if not synopsis.combination.several:
        return [_VALUE]
    return [f"{_VALUE}_{label}" for label in synopsis.classes]


def _batches(path: Path, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches(_BATCH_ROWS)
    except (OSError, pa.ArrowException) as error:
        raise SpecError(
            f"{path}: is damaged ({type(error).__name__}); write it again and repeat the command"
        ) from None


def _copy(
    synopsis: Synopsis,
    batches: Iterator[pa.RecordBatch],
    total: int,
    writer: pq.ParquetWriter,
    h: Order,
    progress: Progress,
) -> int:
    done = 0
    for batch in _answered(synopsis, batches, h):
        writer.write_batch(batch)
        done += batch.num_rows
        progress("answering", done, total)
    return done


def _answered(
    synopsis: Synopsis, batches: Iterator[pa.RecordBatch], h: Order
) -> Iterator[pa.RecordBatch]:
    """Evaluate batches on all cores, a few ahead of the writer, in order."""

    def value(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {
            name: batch.column(name).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            for name in synopsis.domain.names
        }
        values = synopsis(columns, h=h).reshape(batch.num_rows, -1)
        for name, column in zip(_value_names(synopsis), values.T, strict=True):
            batch = batch.append_column(name, pa.array(np.ascontiguousarray(column)))
        return batch

    cores = os.cpu_count() or 1
    waiting: deque[Future[pa.RecordBatch]] = deque()
    with threadpool_limits(1), ThreadPoolExecutor(cores) as pool:
        for batch in batches:
            waiting.append(pool.submit(value, batch))
            if len(waiting) > 2 * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
