"""Columns of a source by the schemas of its files, and what a spec can use each for.

Of schemas only names and types are looked at. Values, statistics and metadata of the files are
never read from, so nothing here can be of help in choosing a bound; that is on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dbern.data.columns import (
    is_clock,
    is_empty,
    is_measured,
    is_text,
    is_time,
    plain_type,
    resolution_of,
    type_text,
)
from dbern.data.domain import Axis
from dbern.data.footers import Footer, folder_values, leaves, read_footer_and_schema, read_together
from dbern.data.sources import discover
from dbern.data.times import HOURS
from dbern.system import counted

_SHOWN_FILES = 10


@dataclass(frozen=True)
class SourceColumn:
    """A column of some of the files or of their folders, by their schemas alone."""

    name: str  # of nested ones with dots
    types: tuple[str, ...]  # in the order of the files, or "folder"
    use: str  # what a spec can use it for


@dataclass(frozen=True)
class Source:
    """Files and columns of a source."""

    source: str
    files: tuple[Footer, ...]
    columns: tuple[SourceColumn, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, none of which follows from the number of rows."""
        files = [{"path": file.path} for file in self.files]
        columns = [{**vars(column), "types": list(column.types)} for column in self.columns]
        return {"source": self.source, "files": files, "columns": columns}

    def explain(self) -> str:
        """Files and columns as text."""
        lines = [f"{self.source}: {counted(len(self.files), 'file')}"]
        shown = self.files[:_SHOWN_FILES]
        lines += [f"  {file.path}" for file in shown]
        if len(self.files) > len(shown):
            lines.append(f"  and {len(self.files) - _SHOWN_FILES} more; --json lists all")
        table = [(column.name, " or ".join(column.types), column.use) for column in self.columns]
        table.insert(0, ("column", "type", "use"))
        first, second = (max(len(row[i]) for row in table) for i in (0, 1))
        lines += [f"{name:<{first}}  {kind:<{second}}  {use}" for name, kind, use in table]
        return "\n".join(lines)


def inspect_source(source: str) -> Source:
    """Read the schemas of a path, a folder or a glob; no value and no statistic.

    Raises SpecError without files, or for one that is not Parquet.
    """
    files = list(read_together(_read_types, discover(source)))
    columns = []
    for name in dict.fromkeys(name for _, types in files for name in types):
        types = [types[name] for _, types in files if name in types]
        missing = [footer.path for footer, types in files if name not in types]
        texts = dict.fromkeys("folder" if kind is None else type_text(kind) for kind in types)
        columns.append(SourceColumn(name, tuple(texts), _use(types, missing)))
    return Source(source, tuple(footer for footer, _ in files), tuple(columns))


def types_of(source: str, axes: Sequence[Axis]) -> dict[str, set[pa.DataType | None]]:
    """Return the types of the axes' columns in all files, None where a file has no such column.

    Raises SpecError as `inspect_source`.
    """
    types: dict[str, set[pa.DataType | None]] = {axis.name: set() for axis in axes}
    for _, columns in read_together(_read_types, discover(source)):
        for name, kinds in types.items():
            kinds.add(columns.get(name))
    return types


def resolutions_of(
    axes: Sequence[Axis], types: Mapping[str, Set[pa.DataType | None]]
) -> dict[str, float]:
    """Return what axes count in by the types of their columns, in data units.

    An axis whose types leave it open, or do not agree, is left out.
    """
    resolutions = {}
    for axis in axes:
        kinds = types.get(axis.name, ())
        steps = {kind and resolution_of(kind, axis.low, axis.high, axis.unit) for kind in kinds}
        if len(steps) == 1 and (step := steps.pop()):
            resolutions[axis.name] = step
    return resolutions


def clocks_of(axes: Sequence[Axis], types: Mapping[str, Set[pa.DataType | None]]) -> list[str]:
    """Return the axes of a whole day whose columns are times of day wherever they have values."""
    clocks = []
    for axis in axes:
        kinds = [kind for kind in types.get(axis.name, ()) if kind is None or not is_empty(kind)]
        whole = axis.unit is None and (axis.low, axis.high) == HOURS
        if whole and kinds and all(kind is not None and is_clock(kind) for kind in kinds):
            clocks.append(axis.name)
    return clocks


def _read_types(path: str) -> tuple[Footer, dict[str, pa.DataType | None]]:
    """Read types by column; None of a column that folders name."""
    footer, schema = read_footer_and_schema(path)
    types = dict(leaves(schema))
    return footer, types | {name: None for name in folder_values(path) if name not in types}


def _use(types: Sequence[pa.DataType | None], missing: Sequence[str]) -> str:
    if missing:
        return f"none: missing in {counted(len(missing), 'file')}, such as {missing[0]}"
    inside = [kind for kind in types if kind is not None and not is_empty(kind)]
    bounded = all(map(is_time, inside)) or all(is_measured(kind, None) for kind in inside)
    roles = ["axis", "response"] if bounded else []
    roles += ["category", "label", "group", "filter"] if all(map(_is_listed, inside)) else []
    return ", ".join(roles) or "none: write it as another type"


def _is_listed(kind: pa.DataType) -> bool:
    plain = plain_type(kind)
    return bool(pa.types.is_integer(plain) or pa.types.is_boolean(plain) or is_text(plain))
