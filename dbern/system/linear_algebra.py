"""Threads of the libraries of linear algebra."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any


def one_thread() -> AbstractContextManager[object]:
    """Limit the libraries of linear algebra to one thread within."""
    return _thread_pools(len(sys.modules)).limit(limits=1)  # type: ignore[no-any-return]  # untyped


@lru_cache(maxsize=1)  # to find them takes milliseconds; another module may have brought another
def _thread_pools(_modules: int) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
