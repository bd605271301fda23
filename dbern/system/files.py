"""Small files that a user, an operator or the environment names."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def read_small(path: str | Path, max_bytes: int = 1 << 21) -> bytes:
    """Return all of a file, and read no further: a device such as ``/dev/zero`` has no end.

    Raises OSError, with EFBIG for more than `max_bytes` bytes.
    """
    with Path(path).open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content
