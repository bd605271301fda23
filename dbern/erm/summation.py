"""Sums over records in a balanced tree of blocks, and how far floats take them from exact ones.

A sum is made of blocks of `BLOCK` terms in any order, and the blocks by pairs: it is within ``g``
of the sum of absolute terms, ``g = t u / (1 - t u)``, ``t = BLOCK + ..``, free of n, ``u = 2^-53``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dbern.types import UNIT_ROUNDOFF, FloatArray

BLOCK = 1024
"""Terms summed in an unknown order at a time."""

_DEPTH = 64  # of the tree of blocks: more than any array has


def sum_by_pairs(term: Callable[[slice], FloatArray], count: int) -> FloatArray:
    """Sum ``term(block)`` over the blocks of `count` > 0 rows, in a balanced tree."""
    return _sum_of_blocks(term, count, 0, math.ceil(count / BLOCK))


def _sum_of_blocks(
    term: Callable[[slice], FloatArray], count: int, first: int, last: int
) -> FloatArray:
    # No closure that names itself: such a cycle holds the term's features, up to 256 MiB a shard,
    # until garbage is collected, which may be many shards later.
    if last - first == 1:
        return term(slice(first * BLOCK, min(last * BLOCK, count)))
    middle = (first + last) // 2
    result = _sum_of_blocks(term, count, first, middle)
    result += _sum_of_blocks(term, count, middle, last)
    return result


def summation_error(features: int, shards: int = 1) -> float:
    """g of sums of products of so many features, and of a mean over the shards."""
    return (BLOCK + _DEPTH + 2 * features + 16 + math.log2(shards)) * UNIT_ROUNDOFF
