"""What the schemas of a source say, for a person; and a spec begun from it.

Only names and types are looked at. Values, statistics and metadata of the files are never read
from, so nothing here can be of help in choosing a bound; that is on purpose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dbern.data.columns import is_number, is_text, is_time, plain_type
from dbern.data.parquet import FileFacts, discover, each, folder_values, leaves, opened
from dbern.errors import SpecError
from dbern.system import counted, is_url

# --- What a person may do with the columns of files, by their schemas alone


@dataclass(frozen=True)
class FoundColumn:
    """A column of a file or of its folders, by its schema alone."""

    name: str  # of nested ones with dots
    kind: str  # its type, or "folder"
    bounds: str  # as an axis or a response, "numbers" or "times"; empty where it cannot be one
    listed: bool  # whether its values can be, for a category, label, group or filter


def _found(path: str) -> tuple[FileFacts, dict[str, FoundColumn]]:
    facts, schema = opened(path)
    folders = (FoundColumn(name, "folder", "numbers", True) for name in folder_values(path))
    inside = {name: _column(name, kind) for name, kind in leaves(schema)}
    return facts, inside | {one.name: one for one in folders if one.name not in inside}


def _column(name: str, kind: pa.DataType) -> FoundColumn:
    plain = plain_type(kind)
    listed = pa.types.is_integer(plain) or pa.types.is_boolean(plain) or is_text(plain)
    bounds = "times" if is_time(kind) else "numbers" if is_number(kind) else ""
    return FoundColumn(name, " ".join(str(kind).split()), bounds, listed)


# --- The columns of a source over all of its files, and the spec

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SHOWN_FILES = 10


@dataclass(frozen=True)
class SourceColumn:
    """A column of some of the files."""

    name: str
    kinds: tuple[FoundColumn, ...]  # once for each type that it has, in the order of the files
    missing: tuple[str, ...]  # paths of the files without it

    @property
    def bounds(self) -> str:
        """What its bounds are as an axis: as in `FoundColumn`; empty where files disagree."""
        said = {found.bounds for found in self.kinds if found.kind != "folder"} or {"numbers"}
        return said.pop() if len(said) == 1 and not self.missing else ""

    @property
    def listed(self) -> bool:
        """Whether it can be an axis of categories, a label, a group or a filter."""
        return all(found.listed for found in self.kinds) and not self.missing

    @property
    def use(self) -> str:
        """What a spec can use it for."""
        if self.missing:
            files = counted(len(self.missing), "file")
            return f"none: missing in {files}, such as {self.missing[0]}"
        roles = ["axis", "response"] if self.bounds else []
        roles += ["category", "label", "group", "filter"] if self.listed else []
        return ", ".join(roles) or "none: write it as another type"


@dataclass(frozen=True)
class Source:
    """Files and columns of a source."""

    source: str
    files: tuple[FileFacts, ...]
    columns: tuple[SourceColumn, ...]

    def to_dict(self, *, rows: bool = False) -> dict[str, Any]:
        """Return plain JSON values; row counts only where they are asked for."""
        return {
            "source": self.source,
            "files": [
                {"path": file.path, "row_groups": len(file.row_groups)}
                | ({"rows": file.rows} if rows else {})
                for file in self.files
            ],
            "columns": [
                {
                    "name": column.name,
                    "types": [found.kind for found in column.kinds],
                    "use": column.use,
                }
                for column in self.columns
            ],
        }

    def explain(self, *, rows: bool = False) -> str:
        """Return the same as text."""
        files = counted(len(self.files), "file")
        lines = [f"{self.source}: {files}, {_counts(self.files, rows)}"]
        shown = self.files[:_SHOWN_FILES]
        lines += [f"  {file.path}: {_counts([file], rows)}" for file in shown]
        if len(self.files) > len(shown):
            lines.append(f"  and {len(self.files) - _SHOWN_FILES} more; --json lists all")
        table = [
            (column.name, " or ".join(found.kind for found in column.kinds), column.use)
            for column in self.columns
        ]
        table.insert(0, ("column", "type", "use"))
        first, second = (max(len(row[i]) for row in table) for i in (0, 1))
        lines += [f"{name:<{first}}  {kind:<{second}}  {use}" for name, kind, use in table]
        return "\n".join(lines)

    def skeleton(self, folder: Path) -> str:
        """Return a spec in TOML, to be put into `folder`, that says what its user has to choose.

        It does not load before they have: no choice is made for them.
        """
        return "\n".join(self._skeleton(folder)) + "\n"

    def _skeleton(self, folder: Path) -> Iterator[str]:
        path = self.source
        if not is_url(path):
            source, here = Path(path).absolute(), folder.absolute()
            inside = source.is_relative_to(here)
            path = (source.relative_to(here) if inside else source).as_posix()
        yield "# Begun by dbern inspect. Each TODO is a public choice: make it from what is known"
        yield "# of such data in general, never from these records, and take the mark away. Until"
        yield "# then dbern plan says what is missing. docs/spec.md has all keys."
        yield "\n[release]"
        yield '# TODO name   = "my-release"      # with the dataset, which release this is'
        yield '# TODO output = "my-release.zarr" # folder of the synopsis'
        yield f"\n[data]\nsource = {_text(path)}"
        yield "\n[data.bounds]  # one to eight of these, with public bounds"
        for column in self.columns:
            if column.bounds:
                of = "two dates or two times" if column.bounds == "times" else "two numbers"
                kind = column.kinds[0].kind
                yield f"# TODO {toml_key(column.name)} = [low, high]  # {of}; {kind}"
        listed = [_text(column.name) for column in self.columns if column.listed]
        if listed:
            yield "\n# For learners that use them: [data.label] with column and classes,"
            yield "# [data.group] with column and values, and axes of categories among the bounds,"
            yield "# NAME = { values = [..] }. Which rows count: [data.filter] with column and"
            yield "# values. These columns can be listed:"
            yield f"# {', '.join(listed)}"
        yield "\n[target]"
        yield '# TODO kind      = "kernel-density"'
        yield "# TODO bandwidth = [width]      # one for each axis, in its unit (days of two dates,"
        yield "#                               # seconds of two times)"
        yield "\n[budget]"
        yield '# TODO epsilon = "epsilon"       # exact: in quotes'
        yield '# TODO ledger  = "sqlite:///ledger.db"'
        yield '# TODO dataset = "my-dataset"    # as in dbern ledger grant'


def inspect_source(source: str) -> Source:
    """Read the schemas of a path, a folder or a glob; no value and no statistic.

    Raises
    ------
    SpecError
        Where there are no files, or one is not Parquet.
    """
    found = list(each(_found, discover(source)))
    columns = []
    for name in dict.fromkeys(name for _, inside in found for name in inside):
        kinds = dict.fromkeys(inside[name] for _, inside in found if name in inside)
        missing = tuple(facts.path for facts, inside in found if name not in inside)
        columns.append(SourceColumn(name, tuple(kinds), missing))
    return Source(source, tuple(facts for facts, _ in found), tuple(columns))


def write_skeleton(source: Source, path: Path) -> None:
    """Write the spec that `source` begins."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(source.skeleton(path.parent))
    except FileExistsError:
        raise SpecError(f"--spec: {path} already exists. Write another path.") from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise SpecError(f"--spec: {path} cannot be written ({why}). Write another path.") from None


def _counts(files: Sequence[FileFacts], rows: bool) -> str:
    text = counted(sum(len(file.row_groups) for file in files), "row group")
    return f"{text}, {counted(sum(file.rows for file in files), 'row')}" if rows else text


def toml_key(name: str) -> str:
    """Return a name as a key of TOML, in quotes where it needs them."""
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
