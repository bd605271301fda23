"""Add a batch of records to integer sums: the loops that are compiled, one pass over a batch.

Stages of plain loops over a block of records, so that all but the last addition is done for
several records at once. The order of operations on one record is that of the slow twins which
the tests keep, and no operation is fused: the integers are the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import types

from dbern.arrays import Int64Array
from dbern.bernstein.rows import Rows, Terms
from dbern.compiling import compiled, inlined

_BLOCK = 512  # records: what is known of them stays in a core's first cache

_COLUMN = types.Array(types.float64, 1, "C", readonly=True)
_INTEGERS = types.Array(types.int64, 1, "C", readonly=True)
_ROWS = (_COLUMN, _INTEGERS, types.Array(types.boolean, 1, "C", readonly=True))


def add_terms(state: Int64Array, rows: Rows, terms: Terms) -> None:
    """Add records to the flat `state`, in place; see `dbern.bernstein.counting.add_rows`."""
    dimensions = len(rows.columns)
    run = compiled(_run(dimensions, terms.order, terms.splines), _signature(dimensions))
    run(
        state,
        tuple(_read_only(column, np.float64) for column in rows.columns),
        np.array([rows.low, rows.high], dtype=np.float64),
        rows.clamp,
        _read_only(() if rows.weight is None else rows.weight, np.float64),
        _read_only(() if rows.output is None else rows.output, np.int64),
        _read_only(() if rows.counts is None else rows.counts, np.bool_),
        terms.indices,
        terms.places,
        np.array([terms.extents, terms.periods], dtype=np.int64),
        tuple(_read_only(edges, np.float64) for edges in terms.edges),
        float(1 << terms.bits),
    )


def _read_only(values: Any, dtype: Any) -> Any:
    view = np.ascontiguousarray(values, dtype=dtype).view()
    view.flags.writeable = False
    return view


@lru_cache
def _signature(dimensions: int) -> Any:
    columns = types.UniTuple(_COLUMN, dimensions)
    table, bounds = types.int64[:, ::1], types.float64[:, ::1]
    return types.void(types.int64[::1], columns, bounds, types.boolean, *_ROWS, table,
                      types.int64[::1], table, columns, types.float64)  # fmt: skip


@lru_cache
def _run(dimensions: int, order: int, splines: bool) -> Callable[..., None]:
    """The pass over a batch; the numbers are compiled in."""
    last = dimensions - 1
    block = _BLOCK

    def run(state: Any, columns: Any, bounds: Any, clamp: Any, weight: Any, output: Any,
            counts: Any, indices: Any, places: Any, sizes: Any, edges: Any, unit: Any,
            ) -> None:  # fmt: skip
        places_of = np.empty(block, np.uint64)  # signed ones would be checked for their sign
        offset, whole = np.empty(block), np.empty(block, np.int64)
        factors = np.empty((dimensions, order + 1, block))
        products = np.empty((dimensions, block))
        for first in range(0, len(columns[0]), block):
            stop = min(first + block, len(columns[0]))
            place, scale = places_of[: stop - first], products[0]
            _begin(weight[first:stop], output[first:stop], counts[first:stop], unit, scale, place)
            for axis in range(dimensions):
                low, high, parts = bounds[0, axis], bounds[1, axis], len(edges[axis]) - 1
                _bound(columns[axis][first:stop], low, high, clamp, scale, offset)
                _locate(sizes[0, axis], sizes[1, axis], parts, offset, place)
                if parts == 1:
                    _center(offset)
                else:
                    _cut(edges[axis], offset, place)
                if splines and order == 2:
                    _quadratic(offset, factors[axis])
                elif splines:
                    _splines(offset, order, factors[axis])
                else:
                    _chebyshev(offset, order, factors[axis])
            for i in range(len(place)):  # a record that does not count may be anywhere
                place[i] = place[i] if scale[i] != 0.0 else np.uint64(0)
            for n in range(len(indices)):
                axis = 0  # products of the axes before are those of the last term
                while n > 0 and axis < last and indices[n, axis] == indices[n - 1, axis]:
                    axis += 1
                for further in range(axis, last):
                    _multiply(factors[further, indices[n, further]], products, further)
                factor = factors[last, indices[n, last]]
                _add(state[np.uint64(places[n]) :], place, products[last], factor, whole)

    return run


@inlined
def _begin(weight: Any, output: Any, counts: Any, unit: Any, scale: Any, place: Any) -> None:
    """What each record's product starts from, zero if it does not count, and its output."""
    for i in range(len(place)):
        scale[i] = unit
        place[i] = 0
    if len(weight) > 0:
        for i in range(len(weight)):
            scale[i] = weight[i] * unit
    if len(counts) > 0:
        for i in range(len(counts)):
            scale[i] = scale[i] if counts[i] else 0.0
    if len(output) > 0:
        for i in range(len(output)):
            place[i] = np.uint64(output[i])


@inlined
def _bound(column: Any, low: Any, high: Any, clamp: Any, scale: Any, position: Any) -> None:
    """Positions in the unit interval, as `Domain.bounded` has them; any for the null record."""
    width = high - low
    for i in range(len(column)):
        x = column[i]
        if clamp:
            inside = np.abs(x) < np.inf
            x = min(max(x, low), high)
        else:
            inside = (low <= x) & (x <= high)
        scale[i] = scale[i] if inside else 0.0
        x = x if inside else low
        position[i] = min(max((x - low) / width, 0.0), 1.0)


@inlined
def _locate(extent: Any, periods: Any, parts: Any, offset: Any, place: Any) -> None:
    """From positions to shares of a period; `place` moves on to the period's first cell."""
    count, most = float(periods), np.int64(periods - 1)
    across, within = np.uint64(extent), np.uint64(parts)
    for i in range(len(place)):
        scaled = offset[i] * count
        period = min(np.int64(scaled), most)
        offset[i] = scaled - period
        place[i] = place[i] * across + np.uint64(period) * within


@inlined
def _center(offset: Any) -> None:
    """From shares of a cell to offsets in [-1, 1]."""
    for i in range(len(offset)):
        offset[i] = 2.0 * offset[i] - 1.0


@inlined
def _cut(edges: Any, offset: Any, place: Any) -> None:
    """From shares of a period to offsets in [-1, 1] in the cells it is cut into."""
    for i in range(len(place)):
        low, high = 0, len(edges) - 2  # the last edge but one that is not above the share
        while low < high:
            middle = (low + high + 1) // 2
            if edges[middle] <= offset[i]:
                low = middle
            else:
                high = middle - 1
        share = (offset[i] - edges[low]) / (edges[low + 1] - edges[low])
        offset[i] = 2.0 * share - 1.0
        place[i] += np.uint64(low)


@inlined
def _splines(offset: Any, degree: Any, weights: Any) -> None:
    """`dbern.bernstein.bins.local_weights`, in place."""
    for i in range(len(offset)):
        weights[0, i] = 1.0
    for d in range(1, degree + 1):
        for i in range(len(offset)):  # the last one has a single part
            share = (offset[i] + 1.0) / 2.0 / d
            weights[d, i] = share * weights[d - 1, i]
            weights[d - 1, i] = (1.0 - share) * weights[d - 1, i]
        for r in range(d - 2, -1, -1):
            for i in range(len(offset)):
                share = ((offset[i] + 1.0) / 2.0 + (d - 1 - r)) / d
                weights[r + 1, i] += share * weights[r, i]
                weights[r, i] = (1.0 - share) * weights[r, i]


@inlined
def _quadratic(offset: Any, weights: Any) -> None:
    """The same for degree 2, which is that of bins, in one pass: twice as fast."""
    for i in range(len(offset)):
        u = (offset[i] + 1.0) / 2.0
        last, share, lower = 1.0 - u, u / 2.0, (u + 1.0) / 2.0
        weights[0, i] = (1.0 - lower) * last
        weights[1, i] = (1.0 - share) * u + lower * last
        weights[2, i] = share * u


@inlined
def _chebyshev(offset: Any, order: Any, powers: Any) -> None:
    """``T_0 .. T_order`` of the offsets."""
    for i in range(len(offset)):
        powers[0, i] = 1.0
    if order > 0:
        for i in range(len(offset)):
            powers[1, i] = offset[i]
    for a in range(2, order + 1):
        for i in range(len(offset)):
            powers[a, i] = 2.0 * offset[i] * powers[a - 1, i] - powers[a - 2, i]


@inlined
def _multiply(factor: Any, products: Any, axis: Any) -> None:
    """The products of one more axis."""
    for i in range(len(factor)):
        products[axis + 1, i] = products[axis, i] * factor[i]


@inlined
def _add(sums: Any, place: Any, product: Any, factor: Any, whole: Any) -> None:
    """Round the products and add them; two loops, because only the first may run abreast."""
    for i in range(len(place)):
        whole[i] = np.int64(np.rint(product[i] * factor[i]))
    for i in range(len(place)):
        sums[place[i]] += whole[i]
