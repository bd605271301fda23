"""Files that a source names, with a bound on how far a search goes."""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dbern.data.objects import matching
from dbern.errors import EnvironmentRefusedError, SpecError, shortage_of
from dbern.system import is_url

_MAX_ENTRIES = 2_000_000
_SKIPPED_ERRNOS = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM),
    *(errno.ELOOP, errno.ENAMETOOLONG),
)
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
    except OSError as error:
        raise SpecError(
            f"data.source: {source} cannot be listed ({error.strerror}). Check the bucket, and the "
            "endpoint and credentials in the environment."
        ) from None


def _files(source: str) -> tuple[str, ...]:
    try:
        paths = {path for path in _matching_paths(source) if path.is_file()}
        files = tuple(sorted(paths, key=lambda path: path.parts))
        _refuse_twins(files)
    except OSError as error:
        raise SpecError(
            f"data.source: {source[:200]} cannot be listed ({error.strerror}). Write a path that "
            "this user may read."
        ) from None
    return tuple(map(str, files))


def _matching_paths(source: str) -> Iterator[Path]:
    path = Path(source)
    if path.is_dir():
        entries = _entries(path, ["**"], links=False)
        files = (Path(entry.path) for entry in entries if entry.name.endswith(".parquet"))
        for file in files:
            if not any(part.startswith(("_", ".")) for part in file.relative_to(path).parts):
                yield file
    elif path.exists():
        yield path
    elif _MAGIC.search(source):
        fixed = next(i for i, part in enumerate(path.parts) if _MAGIC.search(part))
        for _ in _entries(Path(*path.parts[:fixed]), path.parts[fixed:], links=True):
            pass  # counted, and refused where `glob` would go on
        # Path.glob takes no absolute pattern.
        yield from (Path(name) for name in glob.iglob(source, recursive=True))  # noqa: PTH207


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
        with _skipped(path), os.scandir(path) as entries:
            for entry in entries:
                seen += 1
                if seen > _MAX_ENTRIES:
                    raise SpecError(
                        f"data.source: more than {_MAX_ENTRIES} entries to search below {folder}. "
                        "Write a folder that holds the data alone."
                    )
                yield entry
                hidden = links and entry.name.startswith(".")  # which `**` does not enter
                fits = len(pattern) > depth + 1 and fnmatch.fnmatch(entry.name, pattern[depth])
                if (not hidden if deep else fits) and entry.is_dir(follow_symlinks=links):
                    follows = deep and entry.is_symlink()
                    chain = (*through, _onward(entry.path, through)) if follows else through
                    waiting.append((entry.path, depth + 1, chain))


@contextmanager
def _skipped(folder: str) -> Iterator[None]:
    """Skip folders without permission, as `glob` does.

    A disk that fails is refused: its files would be missing from the release without a word.
    """
    try:
        yield
    except OSError as error:
        if refusal := shortage_of(error, f"data.source: {folder}"):
            raise refusal from None
        if error.errno not in _SKIPPED_ERRNOS:
            raise EnvironmentRefusedError(
                f"data.source: {folder} cannot be read ({error.strerror}). Mend the disk or its "
                "connection, and run the same command again."
            ) from None


def _onward(link: str, through: Sequence[Path]) -> Path:
    """Return where a link leads; refuse one that leads back, for the search would not end."""
    end = Path(link).resolve()
    if end in through or Path(link).parent.resolve().is_relative_to(end):
        raise SpecError(
            f"data.source: {link} is a link that leads back to {end}. Write a source without links."
        )
    return end


def _refuse_twins(files: Sequence[Path]) -> None:
    """Refuse a file under two names: its rows would count twice, with twice the sensitivity."""
    names: dict[tuple[int, int], Path] = {}
    for path in files:
        status = path.stat()
        first = names.setdefault((status.st_dev, status.st_ino), path)
        if first != path:
            raise SpecError(
                f"data.source: {path} is the same file as {first}. Write a source without links."
            )
