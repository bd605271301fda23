"""Names of files that a source takes: globs, suffixes of Parquet, folders of table formats."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dbern.errors import SpecError
from dbern.system import counted

_SUFFIXES = (".parquet", ".parq", ".pq")


@dataclass(frozen=True)
class _TableFormat:
    """A format of tables whose folder also holds files of other versions of a table."""

    name: str
    reader: str  # how its own library reads one version


TABLE_FORMATS = {
    "_delta_log": _TableFormat("Delta Lake", "deltalake's DeltaTable(..).file_uris()"),
    ".hoodie": _TableFormat(
        "Apache Hudi", "hudi's HudiTableBuilder.from_base_uri(..).build().get_file_slices()"
    ),
    "metadata": _TableFormat("Apache Iceberg", "pyiceberg's table.scan().plan_files()"),
}
"""Formats by the folder below a table's root that governs its files."""

_GOVERNING = re.compile(
    r"(?:(.*?)/)??(?:(_delta_log|\.hoodie)/.+"
    r"|(metadata)/(?:[^/]+\.avro|[^/]+\.metadata\.json(?:\.gz)?|version-hint\.text))",
    re.DOTALL,
)


def matches_glob(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a name fits a glob: ``*`` stays inside a part, ``**`` is any number of them.

    No wildcard enters a folder whose name begins with ``_`` or ``.``: writers keep drafts, logs and
    former versions there.
    """
    if not pattern:
        return not parts
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        if rest[:1] == ["**"]:
            return matches_glob(parts, rest)
        return any(
            matches_glob(parts[depth:], rest or ["*"])
            for depth in range(len(parts))
            if not is_hidden(parts[:depth])
        )
    if not parts or not fits_part(parts[0], first, folder=len(parts) > 1):
        return False
    return matches_glob(parts[1:], rest)


def fits_part(name: str, pattern: str, *, folder: bool) -> bool:
    """Return whether one part of a name fits one of a glob, no ``**``."""
    leading = "._" if folder else "."
    if name[:1] in leading and not pattern.startswith(name[:1]):
        return False
    return fnmatchcase(name, pattern)


def is_hidden(parts: Iterable[str]) -> bool:
    """Return whether a part of a name begins with ``_`` or ``.``."""
    return any(part.startswith(("_", ".")) for part in parts)


def is_parquet(name: str) -> bool:
    """Return whether a file's name says that it is Parquet."""
    return name.lower().endswith(_SUFFIXES)


def refuse_others(folder: str, others: Collection[str]) -> None:
    """Refuse files of a folder whose names do not say whether their rows count."""
    if others:
        raise SpecError(
            f"data.source: {folder} has {counted(len(others), 'file')} whose name does not end in "
            f"{', '.join(_SUFFIXES)}, such as {min(others)}, and would go uncounted. Take them "
            f"out, or write a glob of the files that count, such as {folder}/**/*.parquet"
        )


def table_root(name: str) -> tuple[str, str] | None:
    """Return the root of the table that a file governs, and its key in `TABLE_FORMATS`."""
    governing = _GOVERNING.fullmatch(name)
    return governing and (governing[1] or "", governing[2] or governing[3])


def refuse_table(root: str, key: str) -> None:
    """Refuse the files of a table that a format governs."""
    table = TABLE_FORMATS[key]
    raise SpecError(
        f"data.source: {root} is a table of {table.name}. Its folder also holds rows that were "
        "deleted or written anew, so that one record could count twice. Give one version of it as "
        "a table in Python, dbern.release(spec, data=..), as docs/frames.md has it; or, where rows "
        f"were never deleted within files, copy what {table.reader} lists into a folder of its own"
    )
