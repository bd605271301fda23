"""Answer a Parquet file of queries with a Parquet file of values, in bounded memory."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from dbern.columns import is_number, is_time, numbers
from dbern.errors import ReleaseError, SpecError
from dbern.progress import Progress, silent
from dbern.synopsis.evaluator import available_cores
from dbern.synopsis.reader import Order, Synopsis

_BATCH_ROWS = 1 << 16
_GROUP_ROWS, _GROUP_BYTES = 1 << 19, 1 << 27  # of the answers' row groups


def answer(
    synopsis: Synopsis,
    queries: str | Path,
    answers: str | Path,
    *,
    h: Order = None,
    progress: Progress = silent,
) -> int:
    """Copy `queries` to `answers`, adding values; order and all columns are kept.

    They are in a column ``value``, or in one ``value_<class>`` for each class. Post-processing is
    named in the metadata of these fields, as JSON under ``post_processing``.

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
            for name in synopsis.combination.columns:
                schema = schema.append(pa.field(name, pa.float64(), metadata=_label(synopsis)))
            try:
                with pq.ParquetWriter(draft, schema, use_dictionary=_texts(file)) as writer:
                    total, evaluate = file.metadata.num_rows, _evaluator(synopsis, file, h)
                    rows = _copy(evaluate, _batches(queries, file), total, writer, progress)
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


def _label(synopsis: Synopsis) -> dict[str, str] | None:
    done = synopsis.metadata.get("post_processing")
    return {"post_processing": json.dumps(done)} if done else None


def _opened(path: Path, synopsis: Synopsis) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path, pre_buffer=False)  # whole row groups at a time otherwise
    except (OSError, pa.ArrowException) as error:
        raise SpecError(
            f"{path}: cannot be read as Parquet ({type(error).__name__}); write the path of a "
            "Parquet file"
        ) from None
    schema = file.schema_arrow
    for name, unit in ((axis.name, axis.unit) for axis in synopsis.domain.axes):
        if schema.names.count(name) > 1:
            raise SpecError(f'{path}: has a column "{name}" twice; rename one of them')
        if name not in schema.names:
            raise SpecError(
                f'{path}: has no column "{name}"; it needs {", ".join(synopsis.domain.names)}'
            )
        kind = schema.field(name).type
        if is_time(kind) and unit is None:
            raise SpecError(f"{path}: column {name} is of type {kind}; its axis has numbers")
        if not (is_number(kind) or is_time(kind)):
            raise SpecError(
                f"{path}: column {name} is of type {kind}; write numbers"
                + (", dates or timestamps" if unit else "")
            )
    for name in synopsis.combination.columns:
        if name in schema.names:
            raise SpecError(f'{path}: has a column "{name}" already; rename it')
    return file


def _batches(path: Path, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches(_BATCH_ROWS)
    except (OSError, pa.ArrowException) as error:
        raise SpecError(
            f"{path}: is damaged ({type(error).__name__}); write it again and repeat the command"
        ) from None


def _texts(file: pq.ParquetFile) -> list[str]:
    """Columns worth a dictionary: for numbers its attempt costs more than all the rest."""
    columns = (file.schema.column(i) for i in range(len(file.schema)))
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


_Evaluate: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


def _evaluator(synopsis: Synopsis, file: pq.ParquetFile, h: Order) -> _Evaluate:
    """What adds the columns of values to a batch."""
    values, axes = synopsis.batches(file.metadata.num_rows, h), synopsis.domain.axes

    def evaluate(batch: pa.RecordBatch) -> pa.RecordBatch:
        points = np.column_stack([numbers(batch.column(axis.name), axis.unit) for axis in axes])
        found = values(points).reshape(batch.num_rows, -1)
        for name, column in zip(synopsis.combination.columns, found.T, strict=True):
            batch = batch.append_column(name, pa.array(np.ascontiguousarray(column)))
        return batch

    return evaluate


def _copy(
    evaluate: _Evaluate,
    batches: Iterator[pa.RecordBatch],
    total: int,
    writer: pq.ParquetWriter,
    progress: Progress,
) -> int:
    done = 0
    for group in _groups(_answered(evaluate, batches)):
        writer.write_table(group)
        done += group.num_rows
        progress("answering", done, total)
    return done


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Gather batches into row groups of a size that readers like."""
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
    cores = available_cores()
    waiting: deque[Future[pa.RecordBatch]] = deque()
    with threadpool_limits(1), ThreadPoolExecutor(cores) as pool:
        for batch in batches:
            waiting.append(pool.submit(evaluate, batch))
            if len(waiting) > 2 * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
