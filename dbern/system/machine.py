"""Limits: memory, processors and threads of this process, sizes of a cache and of a file's read."""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Any, Generic, TypeVar

_GROUP_FILE, _MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_MEMORY_FILE = Path("/proc/self/statm")
_LIMITS = {"": ("memory.max", "memory.high"), "memory": ("memory.limit_in_bytes",)}
"""Files of a control group by its controller's name: version 2 has none, version 1 one each."""
_QUOTAS = {"": ("cpu.max",), "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us")}
"""The same of processors: quota and period."""
Value = TypeVar("Value")


def memory_limit(group_file: Path = _GROUP_FILE, mount: Path = _MOUNT) -> int:
    """Return the most bytes that this process may use, whatever is free just now.

    Where limits are nested, as a container's within a service's, the least counts. `group_file`
    lists the process's control groups, as Linux writes it, and they are mounted at `mount`.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for controller, group in _groups(group_file, mount, "memory"):
        texts = (_read_text(group / name) for name in _LIMITS[controller])
        limits += [int(text) for text in texts if text.isdecimal()]  # "max" means none
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        limits += [soft] if soft != resource.RLIM_INFINITY else []
    return min(limits)


def memory_used() -> int:
    """Return the bytes of memory that this process holds now; off Linux, the most it ever held."""
    try:
        pages = int(_MEMORY_FILE.read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):  # no Linux
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10
    return pages * os.sysconf("SC_PAGE_SIZE")


def address_limit() -> int | None:
    """Return the bytes of addresses that this process may use (``ulimit -v``), if limited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


@lru_cache  # limits of a process stay; a query asks for them each time
def cpu_count(group_file: Path = _GROUP_FILE, mount: Path = _MOUNT) -> int:
    """Return how many processors this process may use, a part of one counted as one.

    Its affinity and the quotas of its control groups count; parameters as of `memory_limit`.
    """
    counts = [os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):  # on Linux
        counts = [len(os.sched_getaffinity(0))]
    for controller, group in _groups(group_file, mount, "cpu"):
        quota = " ".join(_read_text(group / name) for name in _QUOTAS[controller]).split()
        if len(quota) == 2 and all(map(str.isdecimal, quota)) and int(quota[1]):
            counts.append(max(1, -(-int(quota[0]) // int(quota[1]))))
    return min(counts)


def _groups(group_file: Path, mount: Path, controller: str) -> Iterator[tuple[str, Path]]:
    """Yield folders of the process's groups and all above, after the controller; "": version 2."""
    lines = _read_text(group_file).splitlines()
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        for name in {"", controller} & set(controllers.split(",")):
            # Inside a container the path may be the host's, and what is mounted the group itself.
            group = mount / name / path.lstrip("/")
            yield from ((name, at) for at in (group, *group.parents) if at.is_relative_to(mount))


def _read_text(file: Path) -> str:
    """Return a file's text without the space around it; empty where it cannot be read."""
    with suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace").strip()
    return ""


def one_thread() -> AbstractContextManager[object]:
    """Limit the libraries of linear algebra to one thread within."""
    return _thread_pools(len(sys.modules)).limit(limits=1)  # type: ignore[no-any-return]  # untyped


@lru_cache(maxsize=1)  # a search takes milliseconds; a new module may bring a pool
def _thread_pools(_modules: int) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


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
            if key in self._values:
                value = self._values[key] = self._values.pop(key)
                return value
            value = self._values[key] = make()
            while sum(map(self._size, self._values.values())) > self._max_size:
                del self._values[next(iter(self._values))]
            return value


def read_small(path: str | Path, max_bytes: int = 1 << 21) -> bytes:
    """Return all of a file, and read no further: a device such as ``/dev/zero`` has no end.

    Raises OSError, with EFBIG for more than `max_bytes` bytes.
    """
    with Path(path).open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content
