"""What a person may do with the columns of files, by their schemas alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from dbern.columns import is_number, is_text, is_time, plain_type
from dbern.records import READERS, FileFacts, opened
from dbern.streams import folder_values, leaves


@dataclass(frozen=True)
class FoundColumn:
    """A column of a file or of its folders, by its schema alone.

    Attributes
    ----------
    name : str
        Of nested ones with dots.
    kind : str
        Its type, or "folder".
    bounds : "numbers", "times" or ""
        What its bounds are where it is an axis or a response; empty where it cannot be one.
    listed : bool
        Whether its values can be listed, for a label, a group or a filter.
    """

    name: str
    kind: str
    bounds: str
    listed: bool


def read_schemas(
    files: Sequence[str],
) -> tuple[tuple[FileFacts, tuple[FoundColumn, ...]], ...]:
    """What the footers of the files say: no value, no statistic.

    Raises
    ------
    SpecError
        For a file that is not Parquet.
    """
    with ThreadPoolExecutor(READERS) as pool:
        return tuple(pool.map(_found, files))


def _found(path: str) -> tuple[FileFacts, tuple[FoundColumn, ...]]:
    facts, schema = opened(path)
    inside = {name: _column(name, kind) for name, kind in leaves(schema)}
    names = [name for name in folder_values(path) if name not in inside]
    folders = [FoundColumn(name, "folder", "numbers", listed=True) for name in names]
    return facts, (*inside.values(), *folders)


def _column(name: str, kind: pa.DataType) -> FoundColumn:
    plain = plain_type(kind)
    listed = pa.types.is_integer(plain) or pa.types.is_boolean(plain) or is_text(plain)
    bounds = "times" if is_time(kind) else "numbers" if is_number(kind) else ""
    return FoundColumn(name, " ".join(str(kind).split()), bounds, listed)
