"""Files that a source names, with a bound on how far a search goes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dbern.data.objects import matching
from dbern.data.source_names import (
    TABLE_FORMATS,
    fits_part,
    is_hidden,
    is_parquet,
    matches_glob,
    refuse_others,
    refuse_table,
    table_root,
)
from dbern.errors import (
    NO_FILE_ERRNOS,
    DbernError,
    EnvironmentRefusedError,
    ReleaseError,
    SpecError,
    shortage_of,
)
from dbern.system import is_url

_MAX_ENTRIES = 2_000_000
_MAGIC = re.compile(r"[*?\[]")


def discover(source: str) -> tuple[str, ...]:
    """Return the Parquet files of a path, a folder (searched to its depth) or a glob, sorted.

    `source` may be a URL, for which a prefix stands for a folder.
    """
    files = _objects(source) if is_url(source) else _files(source)
    if not files:
        raise SpecError(
            f"data.source: no Parquet file at {source}. Write a path, folder or glob that has some."
        )
    return files


def _objects(source: str) -> tuple[str, ...]:
    try:
        return tuple(matching(source))
    except (FileNotFoundError, PermissionError) as error:
        raise SpecError(
            f"data.source: {source} cannot be listed ({error.strerror}). Check the bucket, and the "
            "endpoint and credentials in the environment."
        ) from None
    except OSError as error:
        raise ReleaseError(
            f"data.source: {source} cannot be listed ({error.strerror}). Check the endpoint in the "
            "environment, and run the same command again."
        ) from None


def _files(source: str) -> tuple[str, ...]:
    try:
        paths, others = _matching_paths(source)
        files = tuple(sorted(set(paths), key=lambda path: path.parts))
        if files != (Path(source),):  # which is meant, whatever governs its folder
            _refuse_tables({file.parent for file in (*files, *others)})
            refuse_others(source, list(map(str, others)))
        _refuse_twins(files)
    except OSError as error:
        path = str(error.filename or source)[:200]
        if error.errno not in NO_FILE_ERRNOS:
            raise _disk_error(path, error) from None
        raise SpecError(
            f"data.source: {path} cannot be listed ({error.strerror}). Write a path that "
            "this user may read."
        ) from None
    return tuple(map(str, files))


def _matching_paths(source: str) -> tuple[list[Path], list[Path]]:
    """Return the files of a source, and those of a folder that are not named as Parquet."""
    path = Path(source)
    if path.is_dir():
        below = [entry for entry in _entries(path, ["**"], links=False) if not _is_folder(entry)]
        pairs, depth = [(Path(entry.path), entry) for entry in below], len(path.parts)
        shown = [pair for pair in pairs if not is_hidden(pair[0].parts[depth:])]
        others = [pair for pair in shown if not is_parquet(pair[1].name)]
        files = [file for file, entry in shown if is_parquet(entry.name)]
        return files, [file for file, entry in others if entry.stat().st_size]
    if path.exists() or not _MAGIC.search(source):
        return [path] * path.exists(), []
    fixed = next(i for i, part in enumerate(path.parts) if _MAGIC.search(part))
    pattern, folder = path.parts[fixed:], Path(*path.parts[:fixed])
    entries = _entries(folder, pattern, links=True)
    files = [Path(entry.path) for entry in entries if not _is_folder(entry)]
    return [file for file in files if matches_glob(file.relative_to(folder).parts, pattern)], []


def _entries(folder: Path, pattern: Sequence[str], *, links: bool) -> Iterator[os.DirEntry[str]]:
    """Yield the entries that a search for a pattern visits below a folder."""
    root = folder.resolve()
    if "**" in pattern and root == Path(root.anchor):
        raise SpecError(
            f"data.source: searches the whole disk from {root}. Write a folder that holds the "
            "data, such as /data/**/*.parquet."
        )
    seen = 0
    waiting: list[tuple[str, int, tuple[Path, ...]]] = [(str(folder), 0, (root,))]
    while waiting:
        path, depth, through = waiting.pop()
        deep = "**" in pattern[: depth + 1]
        onward = pattern[pattern.index("**") :] if deep else pattern[:-1][depth : depth + 1]
        with _skipped(path), os.scandir(path) as entries:
            for entry in entries:
                seen += 1
                if seen > _MAX_ENTRIES:
                    raise SpecError(
                        f"data.source: more than {_MAX_ENTRIES} entries to search below {folder}. "
                        "Write a folder that holds the data alone."
                    )
                yield entry
                if any(fits_part(entry.name, part, folder=True) for part in onward) and _is_folder(
                    entry, links=links
                ):
                    follows = deep and entry.is_symlink()
                    chain = (*through, _onward(entry.path, through)) if follows else through
                    waiting.append((entry.path, depth + 1, chain))


def _is_folder(entry: os.DirEntry[str], *, links: bool = True) -> bool:
    try:
        return entry.is_dir(follow_symlinks=links)
    except OSError as error:  # a link to itself
        _require_absent(entry.path, error)
        return False


@contextmanager
def _skipped(folder: str) -> Iterator[None]:
    """Skip folders without permission, as `glob` does.

    A disk that fails is refused: its files would be missing from the release without a word.
    """
    try:
        yield
    except OSError as error:
        _require_absent(folder, error)


def _require_absent(path: str, error: OSError) -> None:
    """Raise what the disk's failure is, where the error says anything but that nothing is there."""
    if error.errno not in NO_FILE_ERRNOS:
        raise _disk_error(path, error) from None


def _disk_error(path: str, error: OSError) -> DbernError:
    return shortage_of(error, f"data.source: {path}") or EnvironmentRefusedError(
        f"data.source: {path} cannot be read ({error.strerror}). Mend the disk or its "
        "connection, and run the same command again."
    )


def _onward(link: str, through: Sequence[Path]) -> Path:
    """Return where a link leads; refuse one that leads back, for the search would not end."""
    end = Path(link).resolve()
    if end in through or Path(link).parent.resolve().is_relative_to(end):
        raise SpecError(
            f"data.source: {link} is a link that leads back to {end}. Write a source without links."
        )
    return end


def _refuse_tables(folders: Collection[Path]) -> None:
    """Refuse folders within a table that a format governs."""
    known: set[Path] = set()
    for folder in folders:
        for above in (folder.absolute(), folder.resolve()):
            for root in (above, *above.parents):
                if root in known:
                    break
                known.add(root)
                for key in TABLE_FORMATS:
                    if _governs(root / key):
                        refuse_table(str(root), key)


def _governs(folder: Path) -> bool:
    """Return whether files of a folder govern a table; one that cannot be read does not."""
    with suppress(OSError), os.scandir(folder) as entries:
        return any(table_root(f"{folder.name}/{entry.name}") for entry in entries)
    return False


def _refuse_twins(files: Sequence[Path]) -> None:
    """Refuse a file under two names: its rows would count twice, with twice the sensitivity."""
    names: dict[tuple[int, int], Path] = {}
    for path in files:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SpecError(
                f"data.source: {path} is no plain file. Write a source of Parquet files."
            )
        first = names.setdefault((status.st_dev, status.st_ino), path)
        if first is not path:
            raise SpecError(
                f"data.source: {path} is the same file as {first}. Write a source without links."
            )
