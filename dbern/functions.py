"""Functions that a spec names as ``module:name``, and what tells their text from another."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dbern.errors import SpecError

_tell: ContextVar[Callable[[str, str], None] | None] = ContextVar("tell", default=None)


@contextmanager
def imports_told(tell: Callable[[str, str], None]) -> Iterator[None]:
    """Tell, within, of each module that a spec names, once and before its code runs.

    Workers tell nothing, not even those that are threads of this process.

    Examples
    --------
    >>> with imports_told(lambda module, key: print(f"{key} names {module}")):
    ...     _ = named_function("math:hypot", "target.function", "of x, y")
    ...     _ = named_function("math:cos", "target.function", "of x")
    target.function names math
    """
    told: set[str] = set()

    def once(module: str, key: str) -> None:
        if module not in told:
            told.add(module)
            tell(module, key)

    token = _tell.set(once)
    try:
        yield
    finally:
        _tell.reset(token)


def named_function(name: str, key: str, what: str) -> Callable[..., Any]:
    """Import what a spec names; `what` says what it must be a function of.

    Raises
    ------
    SpecError
        Where there is no such function, or its module cannot be imported.

    Examples
    --------
    >>> named_function("math:hypot", "target.function", "of x, y")(3.0, 4.0)
    5.0
    """
    try:
        module, function = name.split(":")
        if (tell := _tell.get()) is not None:
            tell(module, key)
        found = getattr(importlib.import_module(module), function)
    except Exception as error:  # noqa: BLE001 -- a module may fail in any way to import
        raise SpecError(
            f'{key}: "{name}" cannot be imported ({type(error).__name__}); write '
            f'{key.rpartition(".")[2]} = "module:name" of a function {what}, and put its module '
            "where Python finds it, on the workers too"
        ) from None
    if not callable(found):
        raise SpecError(f'{key}: "{name}" is no function; write the name of one')
    return found  # type: ignore[no-any-return]  # a callable, as just seen


def source_digest(name: str) -> str:
    """SHA-256 of the text of an imported function's module; empty where it has no text.

    What that module imports is not part of it.

    Examples
    --------
    >>> len(source_digest("textwrap:dedent")), source_digest("math:hypot")
    (64, '')
    """
    try:
        text = inspect.getsource(sys.modules[name.partition(":")[0]])
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()
