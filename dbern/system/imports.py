"""Functions that a spec names as module:name, their modules' texts, versions of packages."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from dbern.errors import SpecError


@lru_cache
def version(package: str) -> str:
    """Return the version of an installed package."""
    from importlib.metadata import version as of

    return of(package)


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
