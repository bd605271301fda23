"""``Horizon``: the nights of a stream, and the nodes that they close (``StreamNode``).

A *node* is a window of nights whose rows are released together, with a key and a store of its own:
each night by itself, and at each further level blocks of a fixed number of nights, the last of
which may be shorter. A record arrives in one night, so it is in one node of each level.

*Windows.* A sum over a window of nights is made of the nodes that are published. Nodes have
independent noise of one law. So the unbiased sum of least variance has the weights that are the
shortest solution of ``A w = 1_W`` (Gauss and Markov): A says which nights each node has, W which
are asked for. A block and what is below it is a least squares by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import pairwise

import numpy as np

from dbern.errors import SpecError
from dbern.types import FloatArray

MOST_NIGHTS = 3660
"""The longest horizon: ten years."""
WEIGHT_BITS = 24
"""Weights are multiples of ``2^-24``, so that a sum of integers is one of integers."""
_MOST_BASE = 16  # nodes of a level that one of the next has, where there are three levels or more


@dataclass(frozen=True, order=True)
class Node:
    """Nights `start` to before `stop` of a horizon, as a node of a level; 0 is that of nights."""

    level: int
    start: int
    stop: int

    @property
    def nights(self) -> range:
        """Its nights, by their number."""
        return range(self.start, self.stop)


@dataclass(frozen=True)
class Horizon:
    """So many nights from `first` on, and how many of them a node of each level has.

    That is 1 at first. Each further of `levels`, of blocks, is a multiple of the one before and
    less than all nights. Raises SpecError for others.
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
        """Return the name of a node: its date, of a block its first and how many it may have."""
        first = str(self.day(node.start))
        return first if node.level == 0 else f"{first}.{self.levels[node.level]}-nights"


@dataclass(frozen=True)
class StreamNode:
    """A node of a stream: its name and horizon, which node, and the nights that a block leaves out.

    Raises SpecError for nights left out that it does not have, or a night without itself.
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
        """Whether it is a night by itself, and no block."""
        return self.span.level == 0

    @property
    def counted(self) -> tuple[int, ...]:
        """Nights whose rows the node has."""
        return tuple(night for night in self.span.nights if night not in self.without)

    @property
    def release_name(self) -> str:
        """Name of the node's release: one for each node, so that none is released twice."""
        return f"{self.stream}.{self.horizon.name(self.span)}"

    @property
    def store_name(self) -> str:
        """Name of its store in the folder of the stream."""
        return f"{self.horizon.name(self.span)}.zarr"

    def at(self, node: Node) -> StreamNode:
        """Return another node of the same stream, whole."""
        return replace(self, span=node, without=frozenset())


def day_of(text: str) -> date:
    """Return the date of a night by its ISO text; raises SpecError for another text."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise SpecError(f"{text}: is no date. Write one such as 2026-11-20") from None


def window_weights(published: Mapping[Node, frozenset[int]], window: range) -> dict[Node, int]:
    """Return the weights of the nodes of least variance, in units of ``2^-WEIGHT_BITS``.

    `published` has the nodes with the nights that each counts; a night that none has is left out.
    Weights are rounded from the largest nodes down and a night takes what is left: so the sum
    counts each night of the window just once, and no other, exactly. Raises ValueError where a
    night of the window is in nodes with others alone.
    """
    weights: dict[Node, int] = {}
    for group in _groups(published):
        if any(night in window for node in group for night in published[node]):
            weights |= _group_weights(group, published, window)
    return weights


def _groups(published: Mapping[Node, frozenset[int]]) -> Iterator[list[Node]]:
    """Yield nodes that are in no larger one, each with all that are in it, the largest first."""
    groups: list[list[Node]] = []
    group_of: dict[int, int] = {}
    for node in sorted(published, key=lambda node: (-node.level, node.start)):
        nights = published[node]
        index = next((group_of[night] for night in nights if night in group_of), len(groups))
        if index == len(groups):
            groups.append([])
        groups[index].append(node)
        group_of |= dict.fromkeys(nights, index)
    yield from groups


def _group_weights(
    group: list[Node], published: Mapping[Node, frozenset[int]], window: range
) -> dict[Node, int]:
    nights = sorted(frozenset().union(*(published[node] for node in group)))
    counts = np.array([[night in published[node] for node in group] for night in nights], float)
    wanted = np.array([night in window for night in nights], float)
    solved, *_ = np.linalg.lstsq(counts, wanted, rcond=None)
    rounded = np.rint(np.ldexp(solved, WEIGHT_BITS)).astype(np.int64)
    left = {night: int(night in window) << WEIGHT_BITS for night in nights}
    weights: dict[Node, int] = {}
    for node, weight in zip(group, rounded.tolist(), strict=True):
        weights[node] = left[node.start] if node.level == 0 else weight
        for night in published[node]:
            left[night] -= weights[node]
    if any(left.values()):
        raise ValueError("a night of the window has no node of its own")
    return {node: weight for node, weight in weights.items() if weight}


def running_variances(count: int, levels: tuple[int, ...]) -> FloatArray:
    """Variances of the totals up to each night, each by what is closed then, over a node's.

    A node and the sum of the nodes in it are combined by the inverse of their variances; a total is
    made of the largest nodes that are closed. A shorter last block is counted as its nights are.
    """
    variances = [1.0]
    for size, larger in pairwise(levels):
        variances.append(1 / (1 + 1 / (larger // size * variances[-1])))
    left, total = np.arange(1, count + 1), np.zeros(count)
    for size, variance in zip(reversed(levels), reversed(variances), strict=True):
        number, left = np.divmod(left, size)
        total += number * variance
    return total


def best_levels(count: int, deviation: Callable[[int], float]) -> tuple[int, ...]:
    """Return the nights of a node at each level, for the least mean square of all running totals.

    `deviation` is that of a node's noise, by the number of levels, which share the budget.
    """

    def mean_square(levels: tuple[int, ...]) -> float:
        return deviation(len(levels)) ** 2 * float(running_variances(count, levels).mean())

    return min(_candidates(count), key=lambda levels: (mean_square(levels), len(levels)))


def _candidates(count: int) -> Iterator[tuple[int, ...]]:
    yield (1,)
    yield from ((1, size) for size in range(2, count))
    for base in range(2, _MOST_BASE + 1):
        for factor in range(2, _MOST_BASE + 1):
            if base * factor < count:
                yield (1, base, base * factor)
        powers = [1, base]
        while powers[-1] * base < count:
            powers.append(powers[-1] * base)
            if len(powers) > 3:
                yield tuple(powers)
