"""Evaluate a lattice that is larger than memory, reading only the shards that matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.blocks import Blocks, on_others
from dbern.domain import Domain

LEFT_OUT = 1e-12
"""Most that the sizes of the weights of unread layers sum to, for any point."""

_ROWS = 1 << 13
_WORK_VALUES = 1 << 22  # numbers of an unfinished product: 32 MiB
_GRID_VALUES = 1 << 20  # of a grid that are added to at a time


class ShardedPolynomial:
    """A polynomial over a domain, straight from the shards of what it is a linear function of.

    With plain lattice values the matrices are the iterated operators, and the weights
    ``b^(h)_v(y)`` of a point fall off around ``v = k y``: shards whose weights along the first axis
    are tiny are left out, `LEFT_OUT` in all. That changes a value by no more than `LEFT_OUT` times
    the largest stored value times the other axes' largest sums of sizes of weights.

    Parameters
    ----------
    blocks : Blocks
        What is stored, (d_1, .., d_l).
    matrices : sequence of array (k_i + 1, d_i)
        Per axis, what takes it to coefficients of the Bernstein basis.
    domain : Domain
        The box that the unit cube stands for.
    """

    def __init__(self, blocks: Blocks, matrices: Sequence[FloatArray], domain: Domain) -> None:
        self._blocks = blocks
        self._matrices = tuple(matrices)
        self._domain = domain

    def __call__(self, points: FloatArray, total: int, threads: int = 1) -> FloatArray:
        """Values at points (m, l) in data units, taken in order of the first axis; NaN outside."""
        del total, threads
        values = np.full(len(points), np.nan)
        unit = np.clip(self._domain.to_unit(points), 0.0, 1.0)
        inside = np.flatnonzero(self._domain.inside(points))
        inside = inside[np.argsort(unit[inside, 0], kind="stable")]
        for first in range(0, len(inside), _ROWS):
            chosen = inside[first : first + _ROWS]
            values[chosen] = self._evaluate(self._weights(unit[chosen].T))
        return values

    def grid(self, axes: Sequence[FloatArray]) -> FloatArray:
        """The polynomial on the product grid of `axes`, positions of the unit interval."""
        first, *others = self._weights(axes)
        values = np.zeros([len(axis) for axis in axes])
        rows = max(1, _GRID_VALUES // max(1, values[:1].size))
        for part, layers, needed in self._parts(first):
            part = on_others(part, others)
            for start in range(0, len(needed), rows):  # or there would be two more such grids
                some = slice(start, start + rows)
                values[needed[some]] += np.tensordot(layers[some], part, axes=(1, 0))
        return values

    def _weights(self, positions: Sequence[FloatArray] | FloatArray) -> list[FloatArray]:
        axes = zip(positions, self._matrices, strict=True)
        return [bernstein_basis(y, len(matrix) - 1) @ matrix for y, matrix in axes]

    def _parts(self, first: FloatArray) -> Iterator[tuple[FloatArray, FloatArray, Int64Array]]:
        """Shards that some row of weights (m, k + 1) needs, the weights there, and which rows."""
        places = self._blocks.places
        for index, place in enumerate(places):
            weights = first[:, place]
            needed = np.flatnonzero(np.abs(weights).sum(axis=1) > LEFT_OUT / len(places))
            if len(needed):
                yield self._blocks.read(index), weights[needed], needed

    def _evaluate(self, weights: Sequence[FloatArray]) -> FloatArray:
        first, *others = weights
        values = np.zeros(len(first))
        for part, layers, needed in self._parts(first):
            rows = max(1, _WORK_VALUES // (part.size // part.shape[-1]))
            for start in range(0, len(needed), rows):
                some = slice(start, start + rows)
                chosen = [other[needed[some]] for other in others]
                values[needed[some]] += _contracted(part, [layers[some], *chosen])
        return values


def _contracted(part: FloatArray, weights: Sequence[FloatArray]) -> FloatArray:
    """Values of rows of weights (m, ..), one array an axis, with the coefficients of a shard."""
    first, *others = weights
    if not others:
        return first @ part
    found = np.moveaxis(np.tensordot(part, others[-1], axes=(-1, 1)), -1, 0)
    for other in reversed(others[:-1]):
        found = np.einsum("m...v,mv->m...", found, other)
    return np.asarray(np.einsum("mv,mv->m", found, first))
