"""What is costly to make or to read, made once, the last used of it kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """The last used values, of a total size of at most `most`. Threads wait for one another.

    Examples
    --------
    >>> squares = Kept[int](most=2)
    >>> [squares(n, lambda: n * n) for n in (1, 2, 1, 3)], squares(2, lambda: -1)
    ([1, 4, 1, 9], -1)
    """

    def __init__(self, most: float, size: Callable[[Value], float] = lambda _value: 1) -> None:
        self._most = most
        self._size = size
        self._values: dict[Hashable, Value] = {}  # the last used last
        self._lock = RLock()

    def __call__(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made now unless it is kept."""
        with self._lock:
            value = self._values.pop(key) if key in self._values else make()
            self._values[key] = value
            while sum(map(self._size, self._values.values())) > self._most:
                del self._values[next(iter(self._values))]
            return value
