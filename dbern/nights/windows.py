"""Windows of nights: the weights of nodes in their sums, and the levels for the least variance.

A sum over a window of nights is made of the nodes that are published. Nodes have independent noise
of one law. So the unbiased sum of least variance has the weights that are the shortest solution of
``A w = 1_W`` (Gauss and Markov): A says which nights each node has, W which are in the window. A
block with the nodes in it is a least squares problem by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from dbern.nights.horizon import Node
from dbern.types import FloatArray

WEIGHT_BITS = 24
"""Weights are multiples of ``2^-24``, so that a sum of integers is one of integers."""
_MOST_BASE = 16  # nodes of a level that one of the next has, where there are three levels or more


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
    """Yield each node that is in no larger one, with all nodes in it, the largest first."""
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
    target = np.array([night in window for night in nights], float)
    solution, *_ = np.linalg.lstsq(counts, target, rcond=None)
    rounded = np.rint(np.ldexp(solution, WEIGHT_BITS)).astype(np.int64)
    remainder = {night: int(night in window) << WEIGHT_BITS for night in nights}
    weights: dict[Node, int] = {}
    for node, weight in zip(group, rounded.tolist(), strict=True):
        weights[node] = remainder[node.start] if node.level == 0 else weight
        for night in published[node]:
            remainder[night] -= weights[node]
    if any(remainder.values()):
        raise ValueError("a night of the window has no node of its own")
    return {node: weight for node, weight in weights.items() if weight}


def running_variances(count: int, levels: tuple[int, ...]) -> FloatArray:
    """Variances of the totals up to each night, from the nodes closed by then, over a node's.

    A node and the sum of the nodes in it are combined by the inverse of their variances; a total is
    made of the largest nodes that are closed. A shorter last block is counted as its nights are.
    """
    variances = [1.0]
    for size, larger in pairwise(levels):
        variances.append(1 / (1 + 1 / (larger // size * variances[-1])))
    nights, total = np.arange(1, count + 1), np.zeros(count)
    for size, variance in zip(reversed(levels), reversed(variances), strict=True):
        nodes, nights = np.divmod(nights, size)
        total += nodes * variance
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
