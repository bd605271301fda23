"""Functions that a spec names as ``module:name``, and what tells their text from another."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
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
        found = getattr(imported_module(module, key), function)
    except SpecError:
        raise
    except Exception as error:  # noqa: BLE001 -- a module may fail in any way to import
        raise SpecError(
            f'{key}: "{name}" cannot be imported ({type(error).__name__}); write '
            f'{key.rpartition(".")[2]} = "module:name" of a function {what}, and put its module '
            "beside the spec or where Python finds it; workers elsewhere need it installed, or "
            "PYTHONPATH with its folder"
        ) from None
    if not callable(found):
        raise SpecError(f'{key}: "{name}" is no function; write the name of one')
    return found  # type: ignore[no-any-return]  # a callable, as just seen


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let what is imported within be found in a folder too, after all where Python looks anyway.

    Tasks in this process then have the module: Python keeps what it imported.
    """
    entry = str(folder)
    importlib.invalidate_caches()  # a module may have been written a moment ago
    sys.path.append(entry)
    try:
        yield
    finally:
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(entry)]


def imported_module(name: str, key: str) -> ModuleType:
    """Import a module that a spec names.

    Raises
    ------
    SpecError
        Where Python would now find another module of that name than it keeps: that of a spec in
        another folder.
    """
    if (tell := _tell.get()) is not None:
        tell(name, key)
    whole = name.partition(".")[0]
    kept = getattr(sys.modules.get(whole), "__file__", None)
    found = PathFinder.find_spec(whole, sys.path)
    if kept and found and found.origin and Path(kept).resolve() != Path(found.origin).resolve():
        raise SpecError(
            f'{key}: module "{whole}" is {found.origin}, and this process imported another of that '
            f"name, {kept}; rename one, or plan and release in a new process"
        )
    return importlib.import_module(name)


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
