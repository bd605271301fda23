"""Compile loops to machine code, once on a machine, without fastmath: results are those of IEEE.

Numba keeps what it made in ``__pycache__`` or, where that cannot be written, in the user's cache
folder (`NUMBA_CACHE_DIR` names another); where there is none, each process compiles for itself, in
a second or two. Import this where a loop is first needed: numba itself takes half a second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from typing import Any

import numba

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_ONE_AT_A_TIME = Lock()


def compiled(function: Callable[..., Any], signature: Any) -> Any:
    """Compile a function for arguments of a signature; threads take turns."""
    with _ONE_AT_A_TIME:
        return _compiled_once(function, signature)


@lru_cache
def _compiled_once(function: Callable[..., Any], signature: Any) -> Any:
    try:
        return numba.njit(signature, cache=True, **_OPTIONS)(function)
    except RuntimeError:  # there is no folder that it may write to
        return numba.njit(signature, **_OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Mark a function to be inlined into the compiled functions that call it."""
    return numba.njit(inline="always", **_OPTIONS)(function)
