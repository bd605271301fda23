"""Sups of noise that is drawn: at nodes, and at finer ones where these may be larger."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dbern.privacy.error_law import Draw
from dbern.privacy.public_numbers import public_stream
from dbern.reconstruct.series import Series
from dbern.types import FloatArray, Int64Array

COARSE, FINER = 2, 4
"""Oversampling of the nodes where all draws are evaluated, and how many finer steps one is."""

_FIELD_VALUES, _CACHED = 1 << 22, 1 << 18  # numbers in memory, and in a processor's, at a time


def noise_sups(
    bases: Sequence[FloatArray],
    draw: Draw,
    draws: int,
    label: str = "certificate",
    first: FloatArray | None = None,
) -> FloatArray:
    """Sup norms of `draws` noise fields, in units of the grid; from a public key.

    `first` takes all values to those of the lattice at once. Another `label` gives independent
    draws: what a choice was made on must not certify it.
    """
    shape = tuple(basis.shape[1] for basis in bases) if first is None else first.shape[-1:]
    largest = max(math.prod(shape), math.prod(basis.shape[0] for basis in bases))
    drawn = _drawn(shape, largest, draw, draws, label)
    return np.concatenate([_sups_at_nodes(fields, bases, first) for fields in drawn])


def sup_order_statistic(
    series: Sequence[Series], excess: float, draw: Draw, draws: int, rank: int
) -> float:
    """Return the value of a rank, from 0, among sups of draws.

    The sup of a field is T, the largest over nodes i of the smaller of ``|v_i| + excess`` and of
    the largest value at finer nodes up to the next nodes around i. If nowhere between nodes a field
    exceeds the largest value of those around by more than `excess`, T is at least its largest value
    at finer nodes: that one lies between nodes, the largest of which is an i of which both are at
    least as large.

    T is at least the largest ``|v_i|`` and at most `excess` more, so that only draws which may be
    next to the rank are looked at again, and of these only nodes that may be next to the sup. That
    changes no order statistic.
    """
    bases = [axis.at_nodes(COARSE)[0] for axis in series]
    tables = [axis.at_finer_nodes(COARSE, FINER) for axis in series]
    shape = tuple(basis.shape[1] for basis in bases)
    largest = max(math.prod(shape), math.prod(basis.shape[0] for basis in bases))
    drawn = [*_drawn(shape, largest, draw, draws, "certificate")]
    sups = np.concatenate([_sups_at_nodes(fields, bases) for fields in drawn])
    statistic = float(np.sort(sups)[rank])
    near = (sups + excess > statistic) & (sups < statistic + excess)
    cuts = np.cumsum([fields.shape[-1] for fields in drawn])[:-1]
    by_block = (np.split(values, cuts) for values in (sups, near))
    for fields, view, again in zip(drawn, *by_block, strict=True):  # a view of the sups
        for index in _blocks(np.flatnonzero(again), largest):
            floor = np.maximum(view[index], statistic) - excess
            raised = _between_nodes(fields[..., index], bases, tables, floor, excess)
            view[index] = np.maximum(view[index], raised)
    return float(np.sort(sups)[rank])


def _between_nodes(
    fields: FloatArray,
    bases: Sequence[FloatArray],
    tables: Sequence[FloatArray],
    floor: FloatArray,
    excess: float,
) -> FloatArray:
    """Return T of fields (.., draws) over nodes whose values are at least the draw's `floor`."""
    sizes, reached = np.abs(_at_nodes(fields, bases)), np.zeros(len(floor))
    draws, nodes = np.nonzero(sizes >= floor[:, None])
    positions = np.unravel_index(nodes, [len(basis) for basis in bases])
    steps = np.arange(2 * FINER + 1)
    for index in _blocks(np.arange(len(draws)), max(fields[..., 0].size, len(steps) ** len(bases))):
        values = np.moveaxis(fields[..., draws[index]], -1, 0)
        for table, position in zip(tables, positions, strict=True):  # each rotates the axes by one
            around = table[FINER * position[index, None] + steps]
            later_axes = values.shape[2:]
            values = around @ values.reshape(len(index), values.shape[1], -1)
            values = np.moveaxis(values.reshape(len(index), len(steps), *later_axes), 1, -1)
        largest = np.abs(values).reshape(len(index), -1).max(axis=1)
        ceiling = sizes[draws[index], nodes[index]] + excess
        np.maximum.at(reached, draws[index], np.minimum(largest, ceiling))
    return reached


def _blocks(indices: Int64Array, values_per_index: int) -> list[Int64Array]:
    """Split indices so that the values of a block, `values_per_index` each, stay in the cache."""
    count = min(len(indices), 1 + len(indices) * values_per_index // _CACHED)
    return np.array_split(indices, count) if count else []


def _drawn(
    shape: tuple[int, ...], largest: int, draw: Draw, draws: int, label: str
) -> Iterator[FloatArray]:
    """Yield released values (.., draws) of as many draws as memory holds fields of."""
    together = max(1, min(draws, _FIELD_VALUES // largest))
    for start in range(0, draws, together):
        count = min(together, draws - start)
        fields = draw(math.prod(shape), count, public_stream(label, start))
        yield fields.reshape(*shape, count)


def _sups_at_nodes(
    fields: FloatArray, bases: Sequence[FloatArray], first: FloatArray | None = None
) -> FloatArray:
    count = fields.shape[-1]
    sups = np.empty(count)
    largest = max(fields[..., 0].size, math.prod(basis.shape[0] for basis in bases))
    for index in _blocks(np.arange(count), largest):
        values = _at_nodes(fields[..., index], bases, first)
        sups[index] = np.maximum(values.max(axis=1), -values.min(axis=1))
    return sups


def _at_nodes(
    fields: FloatArray, bases: Sequence[FloatArray], first: FloatArray | None = None
) -> FloatArray:
    """Return values (draws, nodes); the draw goes to the front as axes rotate."""
    values = fields if first is None else np.tensordot(first, fields, axes=(-1, 0))
    for basis in bases:
        values = np.tensordot(values, basis, axes=(0, 1))
    return np.asarray(values.reshape(fields.shape[-1], -1))
