"""A lattice larger than memory as a polynomial: only the shards that matter are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.blocks import Blocks, on_others
from dbern.data.domain import Domain
from dbern.synopsis.evaluate import Interpolant, Polynomial
from dbern.types import FloatArray, Int64Array

LEFT_OUT = 1e-12
"""Most that the sizes of the weights of unread layers sum to, for any point."""

_ROWS = 1 << 13
_WORK_VALUES = 1 << 22  # numbers of an unfinished product: 32 MiB
_GRID_VALUES = 1 << 20  # of a grid that are added to at a time


class LazyPolynomial:
    """A polynomial over a domain, straight from the shards of stored values it is linear in.

    Per axis a matrix (k_i + 1, d_i) takes stored values to coefficients of the Bernstein basis.
    With plain lattice values the matrices are the iterated operators, and the weights
    ``b^(h)_v(y)`` of a point fall off around ``v = k y``: shards whose weights along the first axis
    are tiny are left out, `LEFT_OUT` in all. That changes a value by no more than `LEFT_OUT` times
    the largest stored value times the other axes' largest sums of sizes of weights.
    """

    def __init__(self, blocks: Blocks, matrices: Sequence[FloatArray], domain: Domain) -> None:
        self._blocks = blocks
        self._matrices = tuple(matrices)
        self._domain = domain

    def __call__(self, points: FloatArray, total: int, threads: int = 1) -> FloatArray:
        """Evaluate points (m, l) in data units, in order of the first axis; NaN outside."""
        del total, threads
        values = np.full(len(points), np.nan)
        positions = np.clip(self._domain.to_unit(points), 0.0, 1.0)
        inside = np.flatnonzero(self._domain.inside(points))
        inside = inside[np.argsort(positions[inside, 0], kind="stable")]
        for first in range(0, len(inside), _ROWS):
            batch = inside[first : first + _ROWS]
            values[batch] = self._evaluate(self._weights(positions[batch].T))
        return values

    def grid(self, axes: Sequence[FloatArray]) -> FloatArray:
        """Return the polynomial on the product grid of `axes`, positions of the unit interval."""
        first, *rest = self._weights(axes)
        values = np.zeros([len(axis) for axis in axes])
        rows = max(1, _GRID_VALUES // max(1, values[:1].size))
        for shard, layers, needed in self._needed_shards(first):
            shard = on_others(shard, rest)
            for start in range(0, len(needed), rows):  # or there would be two more such grids
                some = slice(start, start + rows)
                values[needed[some]] += np.tensordot(layers[some], shard, axes=(1, 0))
        return values

    def _weights(self, positions: Sequence[FloatArray] | FloatArray) -> list[FloatArray]:
        axes = zip(positions, self._matrices, strict=True)
        return [bernstein_basis(y, len(matrix) - 1) @ matrix for y, matrix in axes]

    def _needed_shards(
        self, first: FloatArray
    ) -> Iterator[tuple[FloatArray, FloatArray, Int64Array]]:
        """Shards that some row of weights (m, k + 1) needs, the weights there, and which rows."""
        slices = self._blocks.slices
        for index, layers in enumerate(slices):
            weights = first[:, layers]
            needed = np.flatnonzero(np.abs(weights).sum(axis=1) > LEFT_OUT / len(slices))
            if len(needed):
                yield self._blocks.read(index), weights[needed], needed

    def _evaluate(self, weights: Sequence[FloatArray]) -> FloatArray:
        first, *rest = weights
        values = np.zeros(len(first))
        for shard, layers, needed in self._needed_shards(first):
            rows = max(1, _WORK_VALUES // (shard.size // shard.shape[-1]))
            for start in range(0, len(needed), rows):
                some = slice(start, start + rows)
                chosen = [axis_weights[needed[some]] for axis_weights in rest]
                values[needed[some]] += _contract(shard, [layers[some], *chosen])
        return values


def _contract(shard: FloatArray, weights: Sequence[FloatArray]) -> FloatArray:
    first, *rest = weights
    if not rest:
        return first @ shard
    sums = np.moveaxis(np.tensordot(shard, rest[-1], axes=(-1, 1)), -1, 0)
    for axis_weights in reversed(rest[:-1]):
        sums = np.einsum("m...v,mv->m...", sums, axis_weights)
    return np.asarray(np.einsum("mv,mv->m", sums, first))


AnyFunction: TypeAlias = Polynomial | Interpolant | LazyPolynomial
"""What evaluates a released lattice."""
