"""``Released``: what a reader needs of anything that was released, a function or numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

from dbern.certify.certificate import Certificate
from dbern.synopsis.component import Component
from dbern.synopsis.readable_store import ReadableStore
from dbern.synopsis.smoothing import Smoothing
from dbern.types import FloatArray


class Released(ABC):
    """Values that the group `name` of ``components/`` gives to a combination, and their errors."""

    def __init__(self, store: ReadableStore, name: str, component: Component) -> None:
        self.name = name
        self.component = component
        self._store = store

    @property
    def axes(self) -> tuple[str, ...]:
        """Axes of the domain that its values depend on."""
        return self.component.axes

    @property
    @abstractmethod
    def large(self) -> bool:
        """Whether its numbers are never whole in memory, so that each use reads them again."""

    @abstractmethod
    def smoothing(self, h: Sequence[int] = ()) -> Smoothing:
        """Return the whole release at an order on each of its axes, by default its own."""

    @property
    @abstractmethod
    def best_smoothing(self) -> Smoothing:
        """Smoothing with the least estimated mean squared error."""

    @abstractmethod
    def unshrunk(self, smoothing: Smoothing) -> Smoothing:
        """Return the smoothing of what carries the noise, before it was shrunk."""

    @abstractmethod
    def values(
        self, points: FloatArray, smoothing: Smoothing | None, total: int, threads: int = 1
    ) -> FloatArray:
        """Return values at points (m, l) on its own axes, a part of a request of `total`.

        Without a smoothing those of the nearest nodes.
        """

    @abstractmethod
    def on_grid(self, positions: Sequence[FloatArray], smoothing: Smoothing) -> FloatArray:
        """Return values on a product grid of positions in the unit cube of its own axes."""

    @abstractmethod
    def grid_bytes(self, counts: Sequence[int]) -> int:
        """Return the memory that a grid takes besides its values, where it grows with it."""

    @abstractmethod
    def deviation(self, smoothing: Smoothing) -> float:
        """Return the root mean square of its values' noise, from public facts alone."""

    @abstractmethod
    def bound(
        self, smoothing: Smoothing, beta: Fraction, num_simultaneous: int, *, selected: bool
    ) -> Certificate:
        """Bound the error of its values; `selected`: the smoothing was chosen by looking at them.

        With probability ``1 - beta`` it holds, and so do those of `num_simultaneous` in all.
        """
