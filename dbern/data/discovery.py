"""A source to the Parquet files that it names, with a bound on how far a search goes."""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dbern.data.objects import is_url, matching
from dbern.errors import EnvironmentRefusedError, SpecError, exhausted

_MOST_ENTRIES = 2_000_000
_NOT_SEEN = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM),
    *(errno.ELOOP, errno.ENAMETOOLONG),
)
_MAGIC = re.compile(r"[*?\[]")


def discover(source: str) -> tuple[str, ...]:
    """The Parquet files of a path, a folder (searched to its depth) or a glob, sorted.

    `source` may be a URL, for which a prefix stands for a folder.

    Raises
    ------
    SpecError
        Where there are none, or where a search for them would not end in sensible time.
    ExhaustedError, EnvironmentRefusedError
        Where a folder cannot be read for another reason than that it may not be.
    """
    files = _objects(source) if is_url(source) else _files(source)
    if not files:
        raise SpecError(
            f"data.source: no Parquet file at {source}; write a path, folder or glob that has some"
        )
    return files


def _objects(source: str) -> tuple[str, ...]:
    try:
        return tuple(matching(source))
    except OSError as error:
        raise SpecError(
            f"data.source: {source} cannot be listed ({error.strerror}); check the bucket, and the "
            "endpoint and credentials in the environment"
        ) from None


def _files(source: str) -> tuple[str, ...]:
    try:
        files = tuple(sorted({path for path in _found(source) if path.is_file()}))
        _refuse_twins(files)
    except OSError as error:
        raise SpecError(
            f"data.source: {source[:200]} cannot be listed ({error.strerror}); write a path that "
            "this user may read"
        ) from None
    return tuple(map(str, files))


def _found(source: str) -> Iterator[Path]:
    path = Path(source)
    if path.is_dir():
        inside = (Path(entry.path) for entry in _entries(path, ["**"], links=False))
        named = (found for found in inside if found.name.endswith(".parquet"))
        yield from (found for found in named if not _hidden(found.relative_to(path)))
    elif path.exists():
        yield path
    elif _MAGIC.search(source):
        fixed = next(i for i, part in enumerate(path.parts) if _MAGIC.search(part))
        for _ in _entries(Path(*path.parts[:fixed]), path.parts[fixed:], links=True):
            pass  # counted, and refused where `glob` would go on
        # Path.glob takes no absolute pattern.
        yield from (Path(found) for found in glob.iglob(source, recursive=True))  # noqa: PTH207


def _entries(folder: Path, pattern: Sequence[str], *, links: bool) -> Iterator[os.DirEntry[str]]:
    """What a search for a pattern looks at below a folder; `links`: through links to folders too.

    Raises
    ------
    SpecError
        For all of the disk, and where there are too many entries: links that lead back, say.
    """
    root = folder.resolve()
    if "**" in pattern and root == Path(root.anchor):
        raise SpecError(
            f"data.source: searches the whole disk from {root}; write a folder that holds the "
            "data, such as /data/**/*.parquet"
        )
    seen = 0
    waiting: list[tuple[str, int, tuple[Path, ...]]] = [(str(folder), 0, (root,))]
    while waiting:
        place, depth, through = waiting.pop()
        deep = "**" in pattern[: depth + 1]
        with _skipped(place), os.scandir(place) as entries:
            for entry in entries:
                seen += 1
                if seen > _MOST_ENTRIES:
                    raise SpecError(
                        f"data.source: more than {_MOST_ENTRIES} entries to search below {folder}; "
                        "write a folder that holds the data alone"
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
    """Pass over what may not be seen, as `glob` does, and nothing that a disk fails to show.

    Raises
    ------
    ExhaustedError
        Where too few files may be open, or memory is too little.
    EnvironmentRefusedError
        Where a folder cannot be read: its files would be missing from a release without a word.
    """
    try:
        yield
    except OSError as error:
        if said := exhausted(error, f"data.source: {folder}"):
            raise said from None
        if error.errno not in _NOT_SEEN:
            raise EnvironmentRefusedError(
                f"data.source: {folder} cannot be read ({error.strerror}); mend the disk or its "
                "connection, and run the same command again"
            ) from None


def _onward(link: str, through: Sequence[Path]) -> Path:
    """Where a link leads, if not back: to a folder that it is in, or one that was entered before.

    Raises
    ------
    SpecError
        Where it does, for the search would not end.
    """
    end = Path(link).resolve()
    if end in through or Path(link).parent.resolve().is_relative_to(end):
        raise SpecError(
            f"data.source: {link} is a link that leads back to {end}; write a source without links"
        )
    return end


def _refuse_twins(files: Sequence[Path]) -> None:
    """A file under two names would count its rows twice: twice the sensitivity of the plan."""
    names: dict[tuple[int, int], Path] = {}
    for path in files:
        found = path.stat()
        other = names.setdefault((found.st_dev, found.st_ino), path)
        if other != path:
            raise SpecError(
                f"data.source: {path} is the same file as {other}; write a source without links"
            )


def _hidden(path: Path) -> bool:
    """Whether a part of the path marks it as not data, such as ``_temporary``."""
    return any(part.startswith(("_", ".")) for part in path.parts)
