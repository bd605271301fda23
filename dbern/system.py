"""Memory limits, functions imported by name, progress, caches in memory, tables."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import resource
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from html import escape
from importlib.machinery import PathFinder
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, Generic, TypeAlias, TypeGuard, TypeVar
from urllib.parse import parse_qsl, urlsplit

from dbern.errors import SpecError, printable

# --- How much memory, and how many processors, this process may use


_SELF, _MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_HELD = Path("/proc/self/statm")
_LIMITS = {"": ("memory.max", "memory.high"), "memory": ("memory.limit_in_bytes",)}
"""Files of a control group by its controller's name: version 2 has none, version 1 one each."""
_QUOTAS = {"": ("cpu.max",), "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us")}
"""The same of processors: quota and period."""


def memory_limit(group_file: Path = _SELF, mount: Path = _MOUNT) -> int:
    """Return bytes that this process may use at most: no more can come, whatever is free just now.

    Where limits are nested, as a container's within a service's, the least counts. `group_file`
    lists the process's control groups, as Linux writes it, and they are mounted at `mount`.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for controller, group in _groups(group_file, mount, "memory"):
        texts = (_text(group / name) for name in _LIMITS[controller])
        limits += [int(text) for text in texts if text.isdecimal()]  # "max" means none
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        limits += [soft] if soft != resource.RLIM_INFINITY else []
    return min(limits)


def memory_used() -> int:
    """Return the bytes of memory that this process holds now; off Linux, the most it ever held."""
    try:
        pages = int(_HELD.read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):  # no Linux
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10
    return pages * os.sysconf("SC_PAGE_SIZE")


def address_limit() -> int | None:
    """Return bytes of addresses that this process may use (``ulimit -v``), if that is limited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


@lru_cache  # limits of a process stay; a query asks for them each time
def cpu_count(group_file: Path = _SELF, mount: Path = _MOUNT) -> int:
    """Return how many processors this process may use, a part of one counted as one.

    Its affinity and the quotas of its control groups count; parameters as of `memory_limit`.
    """
    counts = [os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):  # on Linux
        counts = [len(os.sched_getaffinity(0))]
    for controller, group in _groups(group_file, mount, "cpu"):
        quota = " ".join(_text(group / name) for name in _QUOTAS[controller]).split()
        if len(quota) == 2 and all(map(str.isdecimal, quota)) and int(quota[1]):
            counts.append(max(1, -(-int(quota[0]) // int(quota[1]))))
    return min(counts)


def _groups(group_file: Path, mount: Path, controller: str) -> Iterator[tuple[str, Path]]:
    """Yield folders of the process's groups and all above, after the controller; "": version 2."""
    lines = _text(group_file).splitlines()
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        for name in {"", controller} & set(controllers.split(",")):
            # Inside a container the path may be the host's, and what is mounted the group itself.
            group = mount / name / path.lstrip("/")
            yield from ((name, at) for at in (group, *group.parents) if at.is_relative_to(mount))


def _text(file: Path) -> str:
    """Text of a file without the space around it; empty where it cannot be read."""
    with suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace").strip()
    return ""


# --- Places: a path, or a URL


def is_url(where: str | Path) -> TypeGuard[str]:
    """Return whether it is anything but a path."""
    return "://" in str(where)  # which no `Path` holds: it has single slashes


# --- The database that a ledger's URL names

_SQLITE = "sqlite:///"
_POSTGRES = "postgresql+psycopg://"


def resolve_url(url: str, base: Path) -> str:
    """Return the ledger's URL, a relative SQLite path taken from `base`, the spec's folder.

    Raises
    ------
    SpecError
        When it holds a password, or names a database that this version cannot use.

    Examples
    --------
    >>> resolve_url("sqlite:///ledger.db", Path("/srv/specs"))
    'sqlite:////srv/specs/ledger.db'
    >>> resolve_url("sqlite:////var/ledger.db", Path("/srv/specs"))
    'sqlite:////var/ledger.db'
    """
    if is_postgres(url):
        return url
    return f"{_SQLITE}{base / sqlite_path(url)}"


def is_postgres(url: str) -> bool:
    """Return whether it names a PostgreSQL database, in a form that may be used."""
    options = _refuse_password(url)
    if not url.startswith(_POSTGRES):
        return False
    if "options" in options:
        raise SpecError(
            "ledger: the URL sets `options`, which the ledger sets itself. Leave them out."
        )
    return True


def sqlite_path(url: str) -> str:
    """Return the file of a SQLite URL; no message repeats a URL, for it may hold a password."""
    _refuse_password(url)
    if not url.startswith("sqlite:"):
        scheme = url.partition(":")[0]
        what = f"{scheme} is not available in this version" if ":" in url else "this is no URL"
        raise SpecError(f'ledger: {what}. Write "sqlite:///ledger.db" or "{_POSTGRES}host/db".')
    path = url.removeprefix(_SQLITE)
    if path in (url, "", ":memory:") or "?" in path or "#" in path:
        raise SpecError(
            "ledger: a sqlite URL is three slashes and a file, without options. Write "
            '"sqlite:///ledger.db", or with an absolute path "sqlite:////srv/ledger.db".'
        )
    return path


def _refuse_password(url: str) -> set[str]:
    """Refuse a URL that holds a password; returns the names of its options."""
    try:
        parts = urlsplit(url)
        options = {key.lower() for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
        held = parts.password is not None or any("password" in key for key in options)
    except ValueError:
        raise SpecError('ledger: is not a URL. Write one such as "sqlite:///ledger.db".') from None
    if held:
        raise SpecError(
            "ledger: the URL holds a password. Leave it out and give it by a password file "
            "(PGPASSFILE), by PGPASSWORD or by a service (?service=NAME)."
        )
    return options


# --- What others say, which may be anything


def dict_of(value: object) -> dict[Any, Any]:
    """Return a dict, an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


# --- Threads of linear algebra, and versions: looked for once


def one_thread() -> AbstractContextManager[object]:
    """Limit the libraries of linear algebra to one thread within."""
    return _thread_pools(len(sys.modules)).limit(limits=1)  # type: ignore[no-any-return]  # untyped


@lru_cache(maxsize=1)  # to find them takes milliseconds; another module may have brought another
def _thread_pools(_modules: int) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@lru_cache
def version(package: str) -> str:
    """Return the version of an installed package."""
    from importlib.metadata import version as of

    return of(package)


# --- Functions that a spec names as module:name, and what tells their text from another

_tell: ContextVar[Callable[[str, str], None] | None] = ContextVar("tell", default=None)


@contextmanager
def imports_told(tell: Callable[[str, str], None]) -> Iterator[None]:
    """Call `tell` once for each module that a spec names within, before its code runs.

    Workers tell nothing, not even those that are threads of this process.
    """
    reported: set[str] = set()

    def once(module: str, key: str) -> None:
        if module not in reported:
            reported.add(module)
            tell(module, key)

    token = _tell.set(once)
    try:
        yield
    finally:
        _tell.reset(token)


def named_function(name: str, key: str, what: str) -> Callable[..., Any]:
    """Import a function that a spec names; `what`, for an error, says what it is a function of."""
    try:
        module, function = name.split(":")
        imported = getattr(_imported_module(module, key), function)
    except SpecError:
        raise
    except Exception as error:  # noqa: BLE001 -- a module may fail in any way to import
        raise SpecError(
            f'{key}: "{name}" cannot be imported ({type(error).__name__}). Write '
            f'{key.rpartition(".")[2]} = "module:name" of a function {what}, and put its module '
            "beside the spec or where Python finds it. Workers elsewhere need it installed, or "
            "PYTHONPATH with its folder"
        ) from None
    if not callable(imported):
        raise SpecError(f'{key}: "{name}" is not a function. Write the name of one')
    return imported  # type: ignore[no-any-return]  # a callable, as just seen


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Search a folder, too, for imports within, after all places where Python looks.

    Tasks in this process then have the module: Python keeps what it imported.
    """
    entry = str(folder)
    importlib.invalidate_caches()  # a module may have been written a moment ago
    sys.path.append(entry)
    try:
        yield
    finally:
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(entry)]


def _imported_module(name: str, key: str) -> ModuleType:
    """Import a module that a spec names, unless Python keeps another of that name."""
    if (tell := _tell.get()) is not None:
        tell(name, key)
    top_level = name.partition(".")[0]
    loaded = getattr(sys.modules.get(top_level), "__file__", None)
    spec = PathFinder.find_spec(top_level, sys.path)
    if loaded and spec and spec.origin and Path(loaded).resolve() != Path(spec.origin).resolve():
        raise SpecError(
            f'{key}: module "{top_level}" is {spec.origin}, and this process imported another of '
            f"that name, {loaded}. Rename one, or plan and release in a new process"
        )
    return importlib.import_module(name)


def source_digest(name: str) -> str:
    """Return the SHA-256 of an imported function's module text; empty where it has none.

    What that module imports is not part of it.
    """
    try:
        text = inspect.getsource(sys.modules[name.partition(":")[0]])
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()


# --- How long work tells whoever waits for it; imports nothing

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a stage's name, units done and units in all; never with anything private."""


def silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""
    del stage, done, total


# --- What is costly to make or to read, made once, the last used of it kept

Value = TypeVar("Value")


class LRUCache(Generic[Value]):
    """The last used values, of a total size of at most `max_size`. Threads wait for one another."""

    def __init__(self, max_size: float, size: Callable[[Value], float] = lambda _value: 1) -> None:
        self._max_size = max_size
        self._size = size
        self._values: dict[Hashable, Value] = {}  # the last used last
        self._lock = RLock()

    def __call__(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, made now unless it is kept."""
        with self._lock:
            value = self._values.pop(key) if key in self._values else make()
            self._values[key] = value
            while sum(map(self._size, self._values.values())) > self._max_size:
                del self._values[next(iter(self._values))]
            return value


# --- Tables of notebooks


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a count of things in words."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def format_number(value: float, digits: int = 4) -> str:
    """Format a number for people: so many digits, thousands apart by narrow spaces.

    A whole number keeps all its digits.
    """
    if 1000 <= abs(value) < 1e15:
        rounded = value if value == int(value) else float(f"{value:.{digits}g}")
        return f"{rounded:,.0f}".replace(",", "\u202f")
    mantissa, _, power = f"{value:.{digits}g}".partition("e")
    if not power:
        return mantissa
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}×10{raised}"


def html_table(rows: Mapping[str, str]) -> str:
    """Return labels and texts as an HTML table, whatever they hold."""
    cells = (
        f'<tr><th style="text-align: left">{escape(printable(label))}</th>'
        f'<td style="text-align: left">{escape(printable(text))}</td></tr>'
        for label, text in rows.items()
    )
    return f"<table>{''.join(cells)}</table>"
