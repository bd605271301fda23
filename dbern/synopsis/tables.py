"""Answer a Parquet file of queries with a Parquet file of values, in bounded memory."""

from __future__ import annotations

import io
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dbern.ask.points import Order
from dbern.data.columns import as_floats, check_kind, is_measured, is_time
from dbern.data.drafts import draft_of, remove_drafts
from dbern.data.objects import ObjectFile, check_url, creating, identity
from dbern.data.parquet import BATCH_ROWS
from dbern.errors import ReleaseError, SpecError
from dbern.synopsis.bands import NO_ROWS, BandRequest
from dbern.synopsis.reader import Synopsis
from dbern.system import Progress, cpu_count, format_number, is_url, one_thread, silent
from dbern.types import FloatArray

Quantity: TypeAlias = Literal["value", "interval", "probability"]
"""What is written of each row: the value, the value and the ends of its interval, or classes'."""

_ENDS = ("value", "low", "high")
_GROUP_ROWS, _GROUP_BYTES = 1 << 19, 1 << 27  # of the answers' row groups


class AnswerCounts(NamedTuple):
    """Counts of a table's rows, and of those without an answer by its reason."""

    rows: int = 0
    outside: int = 0
    """Out of bounds, or with a coordinate that is missing."""
    empty: int = 0
    """Within the bounds, with no rows here, of a group at least (`Synopsis.interval`)."""

    def plus(self, other: AnswerCounts) -> AnswerCounts:
        """Return the sum of both."""
        return AnswerCounts(*(a + b for a, b in zip(self, other, strict=True)))

    def __str__(self) -> str:
        reasons = {
            f"{NO_ROWS}, or so few that noise hides them": self.empty,
            "out of bounds, or a coordinate is missing": self.outside,
        }
        missing = {why: count for why, count in reasons.items() if count}
        if not missing:
            return ""
        numbers = " of ".join(map(format_number, (sum(missing.values()), self.rows)))
        parts = [f"{format_number(count)} {why}" for why, count in missing.items()]
        return f"{numbers} points have no answer: {'; '.join(parts if parts[1:] else missing)}"


def answer(
    synopsis: Synopsis,
    queries: str | Path,
    answers: str | Path,
    *,
    h: Order = None,
    quantity: Quantity = "value",
    progress: Progress = silent,
) -> AnswerCounts:
    """Copy `queries` to `answers`, adding values; return how many rows there are.

    Both are Parquet files or objects as ``s3://bucket/name``; order and all columns stay, and the
    answers appear whole or not at all. Values are in a column ``value``, or in one
    ``value_<class>`` for each class, probabilities in ``probability_<class>``; of "interval" the
    ends that `Synopsis.interval` gives by default follow each value, in ``low`` and ``high``. A
    value is NaN out of bounds and where the interval is. Post-processing is named in the metadata
    of these fields, as JSON under ``post_processing``. Raises SpecError for a queries file that is
    not Parquet or lacks an axis, answers that exist, or a synopsis without probabilities that are
    asked for; ReleaseError where the answers cannot be written.
    """
    names = _names(synopsis, quantity)
    with _opened(queries, synopsis, names) as file:
        schema, total = file.schema_arrow, file.metadata.num_rows
        done = synopsis.metadata.get("post_processing")
        label = {"post_processing": json.dumps(done)} if done else None
        for name in names:
            schema = schema.append(pa.field(name, pa.float64(), metadata=label))
        evaluate = _evaluator(synopsis, _columns(synopsis, total, h, quantity), names)
        with (
            _written(answers) as sink,
            pq.ParquetWriter(sink, schema, use_dictionary=_texts(file)) as writer,
        ):
            counts = AnswerCounts()
            for group, counts_of_group in _groups(_answered(evaluate, _batches(queries, file))):
                writer.write_table(group)
                counts = counts.plus(counts_of_group)
                progress("answering", counts.rows, total)
            return counts


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
                source = held.enter_context(ObjectFile(check_url(queries, "QUERIES")))
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
        if not (is_measured(kind, unit) or is_time(kind)):
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


def _names(synopsis: Synopsis, quantity: Quantity) -> list[str]:
    if quantity != "interval":
        return synopsis.combination.columns_of(quantity)
    names = synopsis.combination.columns_of("value")
    return [f"{end}{name.removeprefix('value')}" for name in names for end in _ENDS]


def _columns(
    synopsis: Synopsis, total: int, h: Order, quantity: Quantity
) -> Callable[[FloatArray], FloatArray]:
    """Return a function that gives the answers (m, ..) to points (m, l) of a request."""
    bands, request = synopsis._bands, BandRequest(h=h)
    if quantity == "probability" or not (quantity == "interval" or bands.may_be_missing):
        return synopsis.evaluator(total, h, quantity)
    bands.prepare(request)
    ends = slice(None) if quantity == "interval" else slice(1)
    return lambda points: bands.answers(points, request, total)[..., ends]


_Answered: TypeAlias = tuple[pa.RecordBatch, AnswerCounts]


def _evaluator(
    synopsis: Synopsis, values: Callable[[FloatArray], FloatArray], names: Sequence[str]
) -> Callable[[pa.RecordBatch], _Answered]:
    domain = synopsis.domain

    def evaluate(batch: pa.RecordBatch) -> _Answered:
        points = np.column_stack(
            [as_floats(batch.column(axis.name), axis.column) for axis in domain.axes]
        )
        columns = values(points).reshape(batch.num_rows, -1)
        for name, column in zip(names, columns.T, strict=True):
            batch = batch.append_column(name, pa.array(np.ascontiguousarray(column)))
        inside = domain.inside(points)
        empty = np.isnan(columns).any(axis=1) & inside
        return batch, AnswerCounts(len(points), int((~inside).sum()), int(empty.sum()))

    return evaluate


def _groups(batches: Iterator[_Answered]) -> Iterator[tuple[pa.Table, AnswerCounts]]:
    waiting, counts = list[pa.RecordBatch](), AnswerCounts()
    for batch, counts_of_batch in batches:
        waiting.append(batch)
        counts = counts.plus(counts_of_batch)
        if counts.rows >= _GROUP_ROWS or sum(b.nbytes for b in waiting) >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting), counts
            waiting, counts = [], AnswerCounts()
    if waiting:
        yield pa.Table.from_batches(waiting), counts


def _answered(
    evaluate: Callable[[pa.RecordBatch], _Answered], batches: Iterator[pa.RecordBatch]
) -> Iterator[_Answered]:
    """Evaluate batches on all cores, a few ahead of the writer, in order."""
    cores = cpu_count()
    waiting: deque[Future[_Answered]] = deque()
    with one_thread(), ThreadPoolExecutor(cores) as pool:
        for batch in batches:
            waiting.append(pool.submit(evaluate, batch))
            if len(waiting) > 2 * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
