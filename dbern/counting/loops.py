"""Add batches of records to integer sums: the loops that are compiled, one pass over a batch.

Stages of plain loops over a block of records, so that all but the last addition is done for
several records at once. The order of operations on one record is that of `add_slowly` in
`dbern.counting.adding`, and no operation is fused: the integers are the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from dbern.compiling import compiled, inlined
from dbern.counting.rows import Rows, Terms, require_inside
from dbern.types import Int64Array

_BLOCK = 512  # records: what is known of them stays in a core's first cache
_MANY_TERMS, _CACHE_BYTES = 256, 1 << 22  # from here on it pays to put a batch in order
_PADDING = 8  # rows of factors a power of two apart would take the same places of a cache

_COLUMN = types.Array(types.float64, 1, "C", readonly=True)
_INTEGERS = types.Array(types.int64, 1, "C", readonly=True)
_ROWS = (_COLUMN, _INTEGERS, types.Array(types.boolean, 1, "C", readonly=True))


def _add_terms(state: Int64Array, rows: Rows, terms: Terms) -> None:
    """Add records to the flat `state`, in place; see `add_rows`."""
    dimensions = len(rows.columns)
    _compiled(dimensions, terms.splines)(
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
        terms.order,
    )


def _read_only(values: Any, dtype: Any) -> Any:
    view = np.ascontiguousarray(values, dtype=dtype).view()
    view.flags.writeable = False
    return view


@lru_cache  # to look for a signature takes as long as to add a thousand records
def _compiled(dimensions: int, splines: bool) -> Callable[..., None]:
    made: Callable[..., None] = compiled(_run(dimensions, splines), _signature(dimensions))
    return made


@lru_cache
def _signature(dimensions: int) -> Any:
    columns = types.UniTuple(_COLUMN, dimensions)
    table, bounds = types.int64[:, ::1], types.float64[:, ::1]
    return types.void(types.int64[::1], columns, bounds, types.boolean, *_ROWS, table,
                      types.int64[::1], table, columns, types.float64, types.int64)  # fmt: skip


@lru_cache
def _run(dimensions: int, splines: bool) -> Callable[..., None]:
    """The pass over a batch; the order is not compiled in: that takes seconds for each."""
    last = dimensions - 1
    block = _BLOCK
    width = block + _PADDING

    def run(state: Any, columns: Any, bounds: Any, clamp: Any, weight: Any, output: Any,
            counts: Any, indices: Any, places: Any, sizes: Any, edges: Any, unit: Any, order: Any,
            ) -> None:  # fmt: skip
        length = order + 1
        starts = places[::length].astype(np.uint64)  # of splines: terms of the last axis adjoin
        places_of = np.empty(block, np.uint64)  # signed ones would be checked for their sign
        offset, whole = np.empty(block), np.empty(block, np.int64)
        factors = np.empty((dimensions, length, width))
        turned = np.empty(dimensions * block * length)
        outer = np.empty(length ** max(last - 1, 0))
        products = np.empty((dimensions, width))
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
                if splines:
                    _splines(offset, order, factors[axis])
                else:
                    _chebyshev(offset, order, factors[axis])
            for i in range(len(place)):  # a record that does not count may be anywhere
                place[i] = place[i] if scale[i] != 0.0 else np.uint64(0)
            if splines and dimensions == 1:
                _add_run(state, place, scale, factors[0])
                continue
            if splines:
                for axis in range(dimensions):
                    _turn(factors[axis], len(place), turned[axis * block * length :])
                apart = np.uint64(block * length)
                _add_splines(state, starts, place, scale, turned, apart, outer, np.uint64(length))
                continue
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
    """Positions in the unit interval, as `Domain.bounded` has them; any for the missing record."""
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
    """`dbern.bernstein.basis.local_weights`, in place."""
    factorial = 1.0
    for i in range(len(offset)):
        offset[i] = (offset[i] + 1.0) / 2.0
        weights[0, i] = 1.0
    for d in range(1, degree + 1):
        factorial *= d
        for i in range(len(offset)):
            weights[d, i] = offset[i] * weights[d - 1, i]
        for r in range(d - 1, 0, -1):
            for i in range(len(offset)):
                rising = (offset[i] + (d - r)) * weights[r - 1, i]
                weights[r, i] = rising + ((r + 1) - offset[i]) * weights[r, i]
        for i in range(len(offset)):
            weights[0, i] = (1.0 - offset[i]) * weights[0, i]
    for r in range(degree + 1):
        for i in range(len(offset)):
            weights[r, i] /= factorial


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
    for i in range(products.shape[1]):
        products[axis + 1, i] = products[axis, i] * factor[i]


@inlined
def _add(sums: Any, place: Any, product: Any, factor: Any, whole: Any) -> None:
    """Round the products and add them; two loops, because only the first may run abreast."""
    for i in range(len(place)):
        whole[i] = np.int64(np.rint(product[i] * factor[i]))
    for i in range(len(place)):
        sums[place[i]] += whole[i]


@inlined
def _add_run(sums: Any, place: Any, product: Any, factors: Any) -> None:
    """The same of B-splines of one axis, which lie side by side: a record at a time."""
    for i in range(len(place)):
        begin, scale = place[i], product[i]
        for r in range(len(factors)):
            sums[begin + np.uint64(r)] += np.int64(np.rint(scale * factors[r, i]))


def _abreast(width: int) -> Any:
    """Return ``sums[begin + r] += int64(rint(scale * factors[at + r]))`` of `width` r at once.

    The compiler does not find these: it cannot know that sums and factors never overlap.
    """

    @intrinsic  # type: ignore[untyped-decorator] # numba has no types
    def add(_typing: Any, sums: Any, begin: Any, factors: Any, at: Any, scale: Any) -> Any:
        signature = types.void(sums, begin, factors, at, scale)

        def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            lanes = ir.VectorType(_LANE, width)
            numbers, integers = ir.VectorType(_NUMBER, width), ir.VectorType(_WORD, width)

            def place(array: int, index: int, kind: Any) -> Any:
                made = context.make_array(signature.args[array])
                data = made(context, builder, given[array]).data
                return builder.bitcast(builder.gep(data, [given[index]]), kind.as_pointer())

            nothing = ir.Constant(numbers, ir.Undefined)
            scale = builder.insert_element(nothing, given[4], _LANE(0))
            scale = builder.shuffle_vector(scale, nothing, ir.Constant(lanes, [0] * width))
            product = builder.fmul(scale, builder.load(place(2, 3, numbers), align=8))
            rint = ir.FunctionType(numbers, [numbers]), f"llvm.rint.v{width}f64"
            whole = builder.call(get_or_insert_function(builder.module, *rint), [product])
            sums = place(0, 1, integers)
            total = builder.add(builder.load(sums, align=8), builder.fptosi(whole, integers))
            builder.store(total, sums, align=8)
            return context.get_dummy_value()

        return signature, made

    @inlined
    def add_all(
        sums: Any, starts: Any, begin: Any, outer: Any, factors: Any, middle: Any, at: Any, r: Any
    ) -> None:
        """Of all starts; their products are those of `outer` and of the axis at `middle`."""
        each = len(starts) // len(outer)
        for m in range(len(outer)):
            for n in range(each):
                scale = outer[m] * factors[middle + np.uint64(n)]
                add(sums, begin + starts[m * each + n] + r, factors, at + r, scale)

    return add_all


_NUMBER, _WORD, _LANE = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_add_8, _add_4, _add_2, _add_1 = map(_abreast, (8, 4, 2, 1))


@inlined
def _turn(factors: Any, count: Any, turned: Any) -> None:
    """Put the factors of a record side by side."""
    length = len(factors)
    for i in range(count):
        for r in range(length):
            turned[i * length + r] = factors[r, i]


@inlined
def _add_splines(sums: Any, starts: Any, place: Any, unit: Any, turned: Any, apart: Any, outer: Any,
                 length: Any) -> None:  # fmt: skip
    """The same of several axes: `turned` has their factors, `apart` numbers each."""
    for i in range(len(place)):
        count: Any = 1
        outer[0], at = unit[i], np.uint64(i) * length
        while count < len(outer):  # an axis more, from the last product to the first: in place
            for n in range(count - 1, -1, -1):
                scale = outer[n]
                for one in range(length):
                    outer[n * np.int64(length) + np.int64(one)] = scale * turned[at + one]
            count *= np.int64(length)
            at += apart
        r: Any = np.uint64(0)
        begin, last = place[i], at + apart
        while length - r >= np.uint64(8):
            _add_8(sums, starts, begin, outer, turned, at, last, r)
            r += np.uint64(8)
        if length - r >= np.uint64(4):
            _add_4(sums, starts, begin, outer, turned, at, last, r)
            r += np.uint64(4)
        if length - r >= np.uint64(2):
            _add_2(sums, starts, begin, outer, turned, at, last, r)
            r += np.uint64(2)
        if length > r:
            _add_1(sums, starts, begin, outer, turned, at, last, r)


# --- Add records to integer sums


def add_rows(state: Int64Array, rows: Rows, terms: Terms) -> None:
    """Add records to a C-contiguous `state`, in place; the interpreter's lock is not held.

    Raises
    ------
    IndexError
        For arrays of different lengths, outputs that there are not, or a smaller state.

    Examples
    --------
    >>> import numpy as np
    >>> from dbern.counting.rows import EQUAL, unit_rows
    >>> pairs = np.array([[0], [1]])
    >>> terms = Terms(pairs, pairs[:, 0], 1, (3,), (2,), (EQUAL,), 4, 1, splines=True)
    >>> state = np.zeros(3, dtype=np.int64)
    >>> add_rows(state, unit_rows(np.array([[0.125], [1.0]])), terms)
    >>> state.tolist()
    [12, 4, 16]
    """
    require_inside(state, rows, terms)  # the loops check nothing
    if len(rows.columns[0]) == 0:
        return
    if len(terms.indices) >= _MANY_TERMS and state.nbytes > _CACHE_BYTES:
        rows = _by_cell(rows, terms)
    _add_terms(state.reshape(-1), rows, terms)


def _by_cell(rows: Rows, terms: Terms) -> Rows:
    """The same records, those of a cell together: what a block adds to stays in a core's cache."""
    cell = np.zeros(len(rows.columns[0]), dtype=np.int64)
    bounds = zip(rows.columns, rows.low, rows.high, terms.periods, strict=True)
    for column, low, high, periods in bounds:
        share = np.nan_to_num((np.clip(column, low, high) - low) / (high - low))
        cell = cell * (periods + 1) + (share * periods).astype(np.int64)
    order = np.argsort(cell)
    given = {name: getattr(rows, name) for name in ("counts", "output", "weight")}
    taken = {name: array[order] for name, array in given.items() if array is not None}
    return replace(rows, columns=[column[order] for column in rows.columns], **taken)
