"""Evaluate a lattice that is larger than memory, reading only the shards that matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.basis import iterated_basis
from dbern.domain import Domain

LEFT_OUT = 1e-12
"""Most that the sizes of the weights of unread layers sum to, for any point."""

_ROWS = 1 << 13
_WORK_VALUES = 1 << 22  # numbers of an unfinished product: 32 MiB


class ShardedPolynomial:
    """An iterated polynomial over a domain, straight from the shards of its lattice values.

    The weights ``b^(h)_v(y)`` of a point fall off around ``v = k y``: shards whose weights along
    the first axis are tiny are left out, `LEFT_OUT` in all. That changes a value by no more than
    `LEFT_OUT` times the largest lattice value times the Lebesgue constants of the other axes.

    Parameters
    ----------
    read : callable
        From the index of a shard to its lattice values.
    layers : int
        Layers of the first axis in a shard.
    k : sequence of int
        Resolution of the lattice.
    h : sequence of int
        Order of the iterated operator on each axis.
    domain : Domain
        The box that the unit cube stands for.
    """

    def __init__(
        self,
        read: Callable[[int], FloatArray],
        layers: int,
        k: Sequence[int],
        h: Sequence[int],
        domain: Domain,
    ) -> None:
        self._read = read
        self._layers = layers
        self._k = tuple(k)
        self._h = tuple(h)
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
        for part, layers, needed in self._parts(first):
            for weights in others:  # each moves the second axis to the end
                part = np.tensordot(part, weights, axes=(1, 1))
            values[needed] += np.tensordot(layers, part, axes=(1, 0))
        return values

    def _weights(self, positions: Sequence[FloatArray] | FloatArray) -> list[FloatArray]:
        axes = zip(positions, self._k, self._h, strict=True)
        return [iterated_basis(y, k, h) for y, k, h in axes]

    def _parts(self, first: FloatArray) -> Iterator[tuple[FloatArray, FloatArray, Int64Array]]:
        """Shards that some row of weights (m, k + 1) needs, the weights there, and which rows."""
        starts = range(0, first.shape[1], self._layers)
        for index, start in enumerate(starts):
            weights = first[:, start : start + self._layers]
            needed = np.flatnonzero(np.abs(weights).sum(axis=1) > LEFT_OUT / len(starts))
            if len(needed):
                yield self._read(index), weights[needed], needed

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
