"""Values that are costly to make, the last used of them kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Generic, TypeVar

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
