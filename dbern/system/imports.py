"""Imports of what a spec names: functions as module:name, and registered things of packages."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from dbern.errors import SpecError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Thing = TypeVar("Thing")


@lru_cache
def version(package: str) -> str:
    """Return the version of an installed package."""
    from importlib.metadata import version as of

    return of(package)


NO_PACKAGE = "no package"
"""Origin of what is made known in this process alone (`Registry.known`)."""

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


def _say_import(module: str, key: str) -> None:
    if (tell := _tell.get()) is not None:
        tell(module, key)


def _imported_module(name: str, key: str) -> ModuleType:
    """Import a module that a spec names, unless Python keeps another of that name."""
    _say_import(name, key)
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


class _Other(NamedTuple, Generic[Thing]):
    """A thing that is not ours, and the package that it is of."""

    thing: Thing
    origin: str


class Registry(Generic[Thing]):
    """Things by the names that specs and stores have for them: ours, then those of packages.

    An installed package adds one by an entry point of the `group`. Ours are found first, and entry
    points are read only for a name that is not ours: that takes as long as many imports, and no
    package stands in for what is ours. `ours` has each, or where it is: "module:name", imported
    when it is first used. A thing says its own name as its attribute `attribute`. Names are all
    that a store has: it makes nobody import what no package here is for.
    """

    def __init__(
        self, group: str, ours: Mapping[str, Thing | str], attribute: str = "name"
    ) -> None:
        self._group, self._ours, self._attribute = group, ours, attribute
        self._others: dict[str, _Other[Thing]] = {}  # those that were asked for, or made known

    def names(self) -> list[str]:
        """Return all names: ours, then those of installed packages."""
        return [*self._ours, *sorted({*self._points(), *self._others} - {*self._ours})]

    def __contains__(self, name: str) -> bool:
        return name in self._ours or name in self._others or name in self._points()

    def get(self, name: str, key: str) -> Thing:
        """Return the thing with a name; a SpecError about the spec's `key` for an unknown one."""
        if name in self._ours:
            return self._our(name)
        if name not in self._others:
            point = self._point(name, key)
            if point is None:
                near = difflib.get_close_matches(name, self.names(), n=1)
                instead = f'"{near[0]}"' if near else f"one of: {', '.join(self.names())}"
                raise SpecError(
                    f'{key}: "{name}" is unknown. Write {key.rpartition(".")[2]} = {instead}'
                )
            self._others[name] = _Other(self._load(point, key), _package_of(point))
        return self._others[name].thing

    def origin(self, name: str) -> str:
        """Return the package of what is not ours, with its version; "" for ours and the unknown."""
        if name in self._ours:
            return ""
        if name in self._others:
            return self._others[name].origin
        point = self._points().get(name)
        return _package_of(point) if point else ""

    @contextmanager
    def known(self, thing: Thing) -> Iterator[None]:
        """Make a thing known meanwhile by the name that it says, which none of ours has.

        Stores hold the name alone: under one of ours they would be read as what they are not.
        """
        name, before = getattr(thing, self._attribute), self._others
        if name in self._ours and self._our(name) is not thing:
            raise SpecError(f'{self._attribute}: "{name}" is of dbern. Give yours another')
        self._others = {**before, name: _Other(thing, NO_PACKAGE)}
        try:
            yield
        finally:
            self._others = before

    def _our(self, name: str) -> Thing:
        ours = self._ours[name]
        return cast("Thing", imported(ours)) if isinstance(ours, str) else ours

    def _points(self) -> dict[str, EntryPoint]:
        from importlib import metadata

        return {point.name: point for point in metadata.entry_points(group=self._group)}

    def _point(self, name: str, key: str) -> EntryPoint | None:
        """Return the entry point of a name, which two packages may not both have."""
        from importlib import metadata

        every = metadata.entry_points(group=self._group)
        points = [point for point in every if point.name == name]
        packages = sorted({_package_of(point) for point in points})
        if len(packages) > 1:
            raise SpecError(f'{key}: "{name}" is of {" and ".join(packages)}. Remove all but one')
        return next(iter(points), None)

    def _load(self, point: EntryPoint, key: str) -> Thing:
        where = f'{key}: "{point.name}" of {_package_of(point)}'
        _say_import(point.module, key)
        try:
            thing: Thing = point.load()
            name = getattr(thing, self._attribute, None)
        except Exception as error:  # another's package may fail in any way to import
            raise SpecError(
                f"{where} cannot be imported ({type(error).__name__}). Mend or remove its package"
            ) from error
        if name != point.name:
            raise SpecError(
                f"{where} says another {self._attribute} of itself. Give its entry point that name"
            )
        return thing


def imported(home: str) -> Any:
    """Import what is at "module:name", which no spec names."""
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(module), name)


def _package_of(point: EntryPoint) -> str:
    package = getattr(point, "dist", None)
    return f"{package.name} {package.version}" if package else NO_PACKAGE
