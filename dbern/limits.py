"""How much memory this process may use: the machine's, its control group's, or its own limit."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

_SELF, _MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_HELD = Path("/proc/self/statm")
_LIMITS = {"": ("memory.max", "memory.high"), "memory": ("memory.limit_in_bytes",)}
"""Files of a control group by its controller's name: version 2 has none, version 1 one each."""


def memory_limit(own: Path = _SELF, mount: Path = _MOUNT) -> int:
    """Bytes that this process may use at most: no more can come, whatever is free just now.

    Where limits are nested, as a container's within a service's, the least counts.

    Parameters
    ----------
    own : Path
        Which control groups the process is in, as Linux writes it.
    mount : Path
        Where they are mounted.

    Examples
    --------
    >>> memory_limit() > 0
    True
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_groups(own, mount)]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        limits += [soft] if soft != resource.RLIM_INFINITY else []
    return min(limits)


def memory_used() -> int:
    """Bytes of memory that this process holds now; where no one says, the most that it ever did.

    Examples
    --------
    >>> memory_used() > 0
    True
    """
    try:
        pages = int(_HELD.read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):  # no Linux
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most << 10
    return pages * os.sysconf("SC_PAGE_SIZE")


def address_limit() -> int | None:
    """Bytes of addresses that this process may use (``ulimit -v``), if that is limited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _groups(own: Path, mount: Path) -> Iterator[int]:
    """Limits of the process's groups and of all above them; "max", for none, is no number."""
    try:
        lines = own.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # no Linux
        return
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        for controller in {"", "memory"} & set(controllers.split(",")):
            # Inside a container the path may be the host's, and what is mounted the group itself.
            group = mount / controller / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(mount):
                    yield from _numbers(folder / name for name in _LIMITS[controller])


def _numbers(files: Iterator[Path]) -> Iterator[int]:
    for file in files:
        try:
            text = file.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
        if text.isdecimal():
            yield int(text)
