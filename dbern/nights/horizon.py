"""``Horizon``: the nights of a stream, and the nodes that they close (``StreamNode``).

A *node* is a window of nights whose rows are released together, with a key and a store of its own:
each night by itself, and at each further level blocks of a fixed number of nights, the last of
which may be shorter. A record arrives in one night, so it is in one node of each level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import pairwise

from dbern.errors import SpecError

MOST_NIGHTS = 3660
"""The longest horizon: ten years."""


@dataclass(frozen=True, order=True)
class Node:
    """Nights `start` to `stop - 1` of a horizon, as a node of a level: 0 for a single night."""

    level: int
    start: int
    stop: int

    @property
    def nights(self) -> range:
        """Numbers of the nights."""
        return range(self.start, self.stop)


@dataclass(frozen=True)
class Horizon:
    """`count` nights from `first` on; `levels` are the nights of a node at each level.

    The first is 1. Each further one, of blocks, is a multiple of the one before and less than
    `count`. Raises SpecError for others.
    """

    first: date
    count: int
    levels: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_NIGHTS:
            raise SpecError(
                f"stream.horizon: is from 1 to {MOST_NIGHTS} nights. Write horizon = 365"
            )
        if self.first.toordinal() + self.count > date.max.toordinal():
            raise SpecError(
                f"stream.first: {self.count} nights from {self.first} on are beyond the year 9999. "
                "Write first = 2026-01-01"
            )
        if self.levels[:1] != (1,):
            raise SpecError("stream.levels: begins with nights. Write levels = [1, 18]")
        for size, larger in pairwise(self.levels):
            if larger <= size or larger % size or larger >= self.count:
                raise SpecError(
                    f"stream.levels: blocks of {larger} nights are none of {size} in "
                    f'{self.count}. Write levels = "auto", or multiples such as [1, 7, 28]'
                )

    def nodes(self) -> list[Node]:
        """Return all nodes, nights first."""
        return [
            self.node(level, start)
            for level, size in enumerate(self.levels)
            for start in range(0, self.count, size)
        ]

    def node(self, level: int, start: int) -> Node:
        """Return the node of a level from a night on, or raise SpecError where there is none."""
        if level >= len(self.levels) or start not in range(0, self.count, self.levels[level]):
            raise SpecError(f"stream.node: level {level}, night {start} is none of this horizon")
        return Node(level, start, min(start + self.levels[level], self.count))

    def night(self, day: date) -> int:
        """Return the number of a night, or raise SpecError for a day outside the horizon."""
        night = (day - self.first).days
        if not 0 <= night < self.count:
            raise SpecError(
                f"{day}: is outside the horizon, {self.first} to {self.day(self.count - 1)}. Name "
                "one of its days, or a stream of another name, which is charged by itself"
            )
        return night

    def day(self, night: int) -> date:
        """Return the date of a night."""
        return self.first + timedelta(days=night)

    def name(self, node: Node) -> str:
        """Return the name of a node: its date, for a block the first and the level's nights."""
        first = str(self.day(node.start))
        return first if node.level == 0 else f"{first}.{self.levels[node.level]}-nights"


@dataclass(frozen=True)
class StreamNode:
    """A node of a stream: the stream's name and horizon, and the nights that a block leaves out.

    Raises SpecError where a night left out is not one of a block's.
    """

    stream: str
    horizon: Horizon
    span: Node
    without: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not self.without <= set(() if self.is_night else self.span.nights):
            raise SpecError("stream.node.without: are nights of a block alone. Leave it out")

    @property
    def is_night(self) -> bool:
        """Whether the node is a single night, and no block."""
        return self.span.level == 0

    @property
    def counted_nights(self) -> tuple[int, ...]:
        """Nights whose rows are counted."""
        return tuple(night for night in self.span.nights if night not in self.without)

    @property
    def release_name(self) -> str:
        """Name of the node's release: one for each node, so that none is released twice."""
        return f"{self.stream}.{self.horizon.name(self.span)}"

    @property
    def store_name(self) -> str:
        """Name of the node's store in the folder of the stream."""
        return f"{self.horizon.name(self.span)}.zarr"

    def at(self, node: Node) -> StreamNode:
        """Return another node of the same stream, with all of its nights."""
        return replace(self, span=node, without=frozenset())


def day_of(text: str) -> date:
    """Parse the date of a night, in ISO text; raises SpecError for another text."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise SpecError(f"{text}: is no date. Write one such as 2026-11-20") from None
