"""Add batches of records to integer sums: the loops that are compiled, one pass over a batch.

Stages of plain loops over a block of records, so that all but the last addition is done for
several records at once; B-splines are added eight at a time. The order of operations on one record
is that of `add_rows_plainly` in `dbern.measure.record_integers`, and no operation is fused: the
integers are the same, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import for_range
from numba.extending import intrinsic

from dbern.compiling import compiled, inlined
from dbern.measure.record_integers import Rows, Terms, add_rows_plainly, require_inside
from dbern.types import Int64Array

_BLOCK = 128  # records: what is known of them stays in a core's first cache
_MANY_TERMS, _CACHE_BYTES = 256, 1 << 22  # from here on it pays to put a batch in order
_PADDING = 8  # rows of factors a power of two apart would take the same places of a cache
_ABREAST = 8  # numbers of a vector: a record's B-splines of an axis, and zeros
_MOST_BITS = 50  # of which rounding, below, is exact
_ROUNDING = 1.5 * 2.0**52  # with it added, what is below 2^51 is rounded to even, as by rint
_ROUNDED = int(np.float64(_ROUNDING).view(np.int64))  # and is as many more than these bits
_SPREAD_BYTES = 1 << 20  # of sums that lie apart: about a core's second cache

_COLUMN = types.Array(types.float64, 1, "C", readonly=True)
_INTEGERS = types.Array(types.int64, 1, "C", readonly=True)
_ROWS = (_COLUMN, _INTEGERS, types.Array(types.boolean, 1, "C", readonly=True))


def _add_terms(state: Int64Array, rows: Rows, terms: Terms) -> None:
    dimensions = len(rows.columns)
    arguments = (
        tuple(_read_only(column, np.float64) for column in rows.columns),
        np.array([rows.low, rows.high], dtype=np.float64),
        rows.clamp,
        _read_only(() if rows.weight is None else rows.weight, np.float64),
        _read_only(() if rows.output is None else rows.output, np.int64),
        _read_only(() if rows.counts is None else rows.counts, np.bool_),
    )
    unit, length = float(1 << terms.bits), terms.degree + 1
    if not terms.splines:
        _compiled(dimensions, splines=False)(
            state,
            *arguments,
            terms.indices,
            terms.targets,
            np.array([terms.extents, terms.periods], dtype=np.int64),
            tuple(_read_only(edges, np.float64) for edges in terms.edges),
            unit,
            terms.degree,
        )
        return
    *outer_extents, last = terms.extents
    layers, cells = terms.outputs * math.prod(outer_extents), terms.periods[-1]
    spread = layers * last <= len(state) and _spreads(layers * cells, rows, terms)
    step = _ABREAST if spread else 1
    extents = (*outer_extents, cells * step if spread else last)
    starts = terms.targets[::length] // last * extents[-1]  # terms of the last axis adjoin
    sums = _aligned(np.zeros(layers * extents[-1] + _ABREAST, np.int64)) if spread else state
    factors = _aligned(np.zeros((dimensions * _BLOCK + 1) * _ABREAST))
    sizes = np.array([extents, terms.periods, (*(1 for _ in outer_extents), step)], dtype=np.int64)
    _compiled(dimensions, splines=True)(
        sums, *arguments, starts, sizes, factors, unit, terms.degree
    )
    if spread:
        _gather()(state, sums, last, cells, length)


def _spreads(cells: int, rows: Rows, terms: Terms) -> bool:
    """Whether sums of neighbouring cells are stored apart, for as many cells in all layers.

    They overlap in the state, where a processor waits until the record before is stored.
    """
    runs = len(rows.columns[0]) * len(terms.targets) // (terms.degree + 1)
    return cells <= min(_SPREAD_BYTES // (8 * _ABREAST), runs)


def _aligned(array: Any) -> Any:
    """Cut an array to whole vectors that begin at a multiple of a vector's bytes."""
    skipped = -array.ctypes.data // 8 % _ABREAST
    return array[skipped : len(array) - _ABREAST + skipped]


def _read_only(values: Any, dtype: Any) -> Any:
    view = np.ascontiguousarray(values, dtype=dtype).view()
    view.flags.writeable = False
    return view


@lru_cache  # to look for a signature takes as long as to add a thousand records
def _compiled(dimensions: int, splines: bool) -> Callable[..., None]:
    run = _run_splines if splines else _run_moments
    loops: Callable[..., None] = compiled(run(dimensions), _signature(dimensions, splines))
    return loops


@lru_cache
def _signature(dimensions: int, splines: bool) -> Any:
    columns = types.UniTuple(_COLUMN, dimensions)
    sums, table, bounds = types.int64[::1], types.int64[:, ::1], types.float64[:, ::1]
    arguments = sums, columns, bounds, types.boolean, *_ROWS
    if splines:
        return types.void(*arguments, sums, table, types.float64[::1], types.float64, types.int64)
    return types.void(*arguments, table, sums, table, columns, types.float64, types.int64)


@lru_cache
def _run_splines(dimensions: int) -> Callable[..., None]:
    """Build the pass over a batch; the order is not compiled in: that takes seconds for each."""
    last, block, of_axis = dimensions - 1, _BLOCK, _BLOCK * _ABREAST

    def run(sums: Any, columns: Any, bounds: Any, clamp: Any, weight: Any, output: Any, counts: Any,
            starts: Any, sizes: Any, factors: Any, unit: Any, order: Any) -> None:  # fmt: skip
        targets = np.empty(block, np.uint64)  # signed ones would be checked for their sign
        offset, scales = np.zeros(block), np.empty(block)
        outer = np.empty(2 * ((order + 1) ** last + _ABREAST))
        for first in range(0, len(columns[0]), block):
            stop = min(first + block, len(columns[0]))
            target, scale = targets[: stop - first], scales[: stop - first]
            _begin(weight[first:stop], output[first:stop], counts[first:stop], unit, scale, target)
            for axis in range(dimensions):
                low, high = bounds[0, axis], bounds[1, axis]
                _bound(columns[axis][first:stop], low, high, clamp, scale, offset)
                _locate(sizes[0, axis], sizes[1, axis], sizes[2, axis], offset, target)
                _center(offset)
                for i in range(0, block, 8):
                    _weigh(offset, i, order, factors, axis * of_axis + i * 8)
            for i in range(len(target)):  # a record that does not count may be anywhere
                target[i] = target[i] if scale[i] != 0.0 else np.uint64(0)
            _add_splines(sums, starts, target, scale, factors, outer, dimensions, order + 1)

    return run


@lru_cache
def _run_moments(dimensions: int) -> Callable[..., None]:
    """Build the pass over a batch; the order is not compiled in: that takes seconds for each."""
    last = dimensions - 1
    block = _BLOCK
    width = block + _PADDING

    def run(state: Any, columns: Any, bounds: Any, clamp: Any, weight: Any, output: Any,
            counts: Any, indices: Any, term_targets: Any, sizes: Any, edges: Any, unit: Any,
            order: Any) -> None:  # fmt: skip
        targets = np.empty(block, np.uint64)  # signed ones would be checked for their sign
        offset, rounded = np.empty(block), np.empty(block)
        factors = np.empty((dimensions, order + 1, width))
        products = np.empty((dimensions, width))
        for first in range(0, len(columns[0]), block):
            stop = min(first + block, len(columns[0]))
            target, scale = targets[: stop - first], products[0]
            _begin(weight[first:stop], output[first:stop], counts[first:stop], unit, scale, target)
            for axis in range(dimensions):
                low, high, parts = bounds[0, axis], bounds[1, axis], len(edges[axis]) - 1
                _bound(columns[axis][first:stop], low, high, clamp, scale, offset)
                _locate(sizes[0, axis], sizes[1, axis], parts, offset, target)
                if parts == 1:
                    _center(offset)
                else:
                    _cut(edges[axis], offset, target)
                _chebyshev(offset, order, factors[axis])
            for i in range(len(target)):  # a record that does not count may be anywhere
                target[i] = target[i] if scale[i] != 0.0 else np.uint64(0)
            for n in range(len(indices)):
                axis = 0  # products of the axes before are those of the last term
                while n > 0 and axis < last and indices[n, axis] == indices[n - 1, axis]:
                    axis += 1
                for further in range(axis, last):
                    _multiply(factors[further, indices[n, further]], products, further)
                factor = factors[last, indices[n, last]]
                _add(state[np.uint64(term_targets[n]) :], target, products[last], factor, rounded)

    return run


@inlined
def _begin(weight: Any, output: Any, counts: Any, unit: Any, scale: Any, target: Any) -> None:
    """Begin each record's product, zero if it does not count, and find its output."""
    for i in range(len(target)):
        scale[i] = unit
        target[i] = 0
    if len(weight) > 0:
        for i in range(len(weight)):
            scale[i] = weight[i] * unit
    if len(counts) > 0:
        for i in range(len(counts)):
            scale[i] = scale[i] if counts[i] else 0.0
    if len(output) > 0:
        for i in range(len(output)):
            target[i] = np.uint64(output[i])


@inlined
def _bound(column: Any, low: Any, high: Any, clamp: Any, scale: Any, position: Any) -> None:
    """Move values into the unit interval like `Domain.bounded`; a missing record anywhere."""
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
def _locate(extent: Any, periods: Any, parts: Any, offset: Any, target: Any) -> None:
    """Turn positions into fractions of a period; `target` moves on to the period's first cell."""
    count, most = float(periods), np.int64(periods - 1)
    across, within = np.uint64(extent), np.uint64(parts)
    for i in range(len(target)):
        scaled = offset[i] * count
        period = min(np.int64(scaled), most)
        offset[i] = scaled - period
        target[i] = target[i] * across + np.uint64(period) * within


@inlined
def _center(offset: Any) -> None:
    for i in range(len(offset)):
        offset[i] = 2.0 * offset[i] - 1.0


@inlined
def _cut(edges: Any, offset: Any, target: Any) -> None:
    """Turn fractions of a period into offsets in [-1, 1] in the cells it is cut into."""
    for i in range(len(target)):
        low, high = 0, len(edges) - 2  # the last edge but one that is not above the share
        while low < high:
            middle = (low + high + 1) // 2
            if edges[middle] <= offset[i]:
                low = middle
            else:
                high = middle - 1
        share = (offset[i] - edges[low]) / (edges[low + 1] - edges[low])
        offset[i] = 2.0 * share - 1.0
        target[i] += np.uint64(low)


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
    for i in range(products.shape[1]):
        products[axis + 1, i] = products[axis, i] * factor[i]


@inlined
def _add(sums: Any, target: Any, product: Any, factor: Any, rounded: Any) -> None:
    """Round the products and add them; two loops, because only the first may run abreast."""
    for i in range(len(target)):
        rounded[i] = product[i] * factor[i] + _ROUNDING
    bits = rounded.view(np.int64)
    for i in range(len(target)):
        sums[target[i]] += bits[i] - _ROUNDED


_NUMBER, _WORD, _LANE = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_NUMBERS, _WORDS = ir.VectorType(_NUMBER, _ABREAST), ir.VectorType(_WORD, _ABREAST)


def _pointer(context: Any, builder: Any, signature: Any, values: Any, index: int) -> Any:
    array_type = context.make_array(signature.args[index])
    return array_type(context, builder, values[index]).data


def _vector(builder: Any, data: Any, index: Any, kind: Any = _NUMBERS) -> Any:
    return builder.bitcast(builder.gep(data, [index]), kind.as_pointer())


def _shuffled(builder: Any, left: Any, right: Any, lanes: Any) -> Any:
    indices = ir.Constant(ir.VectorType(_LANE, _ABREAST), list(lanes))
    return builder.shuffle_vector(left, right, indices)


def _turned(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose rows: each round interleaves the lanes of rows that are half of them apart."""
    half = _ABREAST // 2
    for _ in range(_ABREAST.bit_length() - 1):
        rows = [
            _shuffled(
                builder,
                rows[n // 2],
                rows[n // 2 + half],
                (n % 2 * half + lane // 2 + lane % 2 * _ABREAST for lane in range(_ABREAST)),
            )
            for n in range(_ABREAST)
        ]
    return rows


def _splat(builder: Any, number: Any) -> Any:
    undefined = ir.Constant(_NUMBERS, ir.Undefined)
    first = builder.insert_element(undefined, number, _LANE(0))
    return _shuffled(builder, first, undefined, [0] * _ABREAST)


def _local_weights(builder: Any, offset: Any, degree: int) -> list[Any]:
    """`dbern.bernstein.splines.local_weights` of a vector of offsets; no operation is fused."""

    def number(value: float) -> Any:
        return ir.Constant(_NUMBERS, [value] * _ABREAST)

    t = builder.fdiv(builder.fadd(offset, number(1.0)), number(2.0))
    weights = [number(1.0)]
    for d in range(1, degree + 1):
        weights.append(builder.fmul(t, weights[d - 1]))
        for r in range(d - 1, 0, -1):
            rising = builder.fmul(builder.fadd(t, number(d - r)), weights[r - 1])
            falling = builder.fmul(builder.fsub(number(r + 1), t), weights[r])
            weights[r] = builder.fadd(rising, falling)
        weights[0] = builder.fmul(builder.fsub(number(1.0), t), weights[0])
    return [builder.fdiv(weight, number(math.factorial(degree))) for weight in weights]


@intrinsic  # type: ignore[untyped-decorator] # numba has no types
def _weigh(_typing: Any, offsets: Any, at: Any, degree: Any, factors: Any, to: Any) -> Any:
    """Write the weights of eight offsets, a record's side by side and zeros behind them."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        read, written = (_pointer(context, builder, signature, values, n) for n in (0, 3))
        offset = builder.load(_vector(builder, read, values[1]), align=8)
        for order in range(_ABREAST):
            equal = builder.icmp_signed("==", values[2], ir.Constant(values[2].type, order))
            with builder.if_then(equal):
                weights = _local_weights(builder, offset, order)
                zeros = ir.Constant(_NUMBERS, [0.0] * _ABREAST)
                rows = _turned(builder, weights + [zeros] * (_ABREAST - len(weights)))
                for i, row in enumerate(rows):
                    target = builder.add(values[4], ir.Constant(values[4].type, i * _ABREAST))
                    builder.store(row, _vector(builder, written, target), align=8)
        return context.get_dummy_value()

    return types.void(offsets, at, degree, factors, to), generate


@intrinsic  # type: ignore[untyped-decorator] # numba has no types
def _scaled(_typing: Any, outer: Any, of: Any, factors: Any, at: Any, to: Any) -> Any:
    """Write ``outer[of] * factors[at + r]``, eight of them, to ``outer[to + r]``."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        outer, factors = (_pointer(context, builder, signature, values, n) for n in (0, 2))
        scale = _splat(builder, builder.load(builder.gep(outer, [values[1]])))
        product = builder.fmul(scale, builder.load(_vector(builder, factors, values[3]), align=8))
        builder.store(product, _vector(builder, outer, values[4]), align=8)
        return context.get_dummy_value()

    return types.void(outer, of, factors, at, to), generate


@intrinsic  # type: ignore[untyped-decorator] # numba has no types
def _add_abreast(_typing: Any, sums: Any, begin: Any, starts: Any, outer: Any, of: Any,
                 factors: Any, at: Any, count: Any) -> Any:  # fmt: skip
    """Add ``int64(rint(outer[of + n] * factors[at + r]))``, eight r, to the sums of start n.

    The compiler does not find vectors here: it cannot know that arrays never overlap. Nor has every
    processor an instruction that makes integers of a vector; the bits of a sum are there on all.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        sums, starts, outer, factors = (
            _pointer(context, builder, signature, values, n) for n in (0, 2, 3, 5)
        )
        begin, of, at, count = (values[n] for n in (1, 4, 6, 7))
        weights = builder.load(_vector(builder, factors, at), align=8)
        rounding = ir.Constant(_NUMBERS, [_ROUNDING] * _ABREAST)
        rounded = ir.Constant(_WORDS, [_ROUNDED] * _ABREAST)
        with for_range(builder, count) as loop:
            scale = builder.load(builder.gep(outer, [builder.add(of, loop.index)]))
            start = builder.load(builder.gep(starts, [loop.index]))
            product = builder.fmul(_splat(builder, scale), weights)
            bits = builder.bitcast(builder.fadd(product, rounding), _WORDS)
            integer = builder.sub(bits, rounded)
            target = _vector(builder, sums, builder.add(begin, start), _WORDS)
            builder.store(builder.add(builder.load(target, align=8), integer), target, align=8)
        return context.get_dummy_value()

    return types.void(sums, begin, starts, outer, of, factors, at, count), generate


@inlined
def _add_splines(sums: Any, starts: Any, target: Any, unit: Any, factors: Any, outer: Any,
                 axes: Any, length: Any) -> None:  # fmt: skip
    """Add the products of a record's weights, a vector of the last axis at a time.

    `outer` is for products of the other axes: those so far in one half, of an axis more in the
    other.
    """
    half, of_axis = len(outer) // 2, _BLOCK * _ABREAST
    room = len(sums) - _ABREAST - starts[-1]
    for i in range(len(target)):
        begin, at, count, of = np.int64(target[i]), i * _ABREAST, 1, 0
        outer[0] = unit[i]
        for _ in range(axes - 1):
            for n in range(count):
                _scaled(outer, of + n, factors, at, half - of + n * length)
            count, at, of = count * length, at + of_axis, half - of
        if begin <= room:
            _add_abreast(sums, begin, starts, outer, of, factors, at, count)
            continue
        for n in range(count):  # at the end of the sums, which a vector would leave
            for r in range(length):
                integer = np.int64(np.rint(outer[of + n] * factors[at + r]))
                sums[begin + starts[n] + r] += integer


@lru_cache
def _gather() -> Any:
    """Build the loop that adds sums stored apart to the state, where they overlap."""

    def gather(state: Any, sums: Any, last: Any, cells: Any, length: Any) -> None:
        for layer in range(len(sums) // (cells * _ABREAST)):
            for cell in range(cells):
                at = (layer * cells + cell) * _ABREAST
                for r in range(length):
                    state[layer * last + cell + r] += sums[at + r]

    int64 = types.int64
    return compiled(gather, types.void(int64[::1], int64[::1], int64, int64, int64))


def add_rows_compiled(state: Int64Array, rows: Rows, terms: Terms) -> None:
    """Add records to a C-contiguous `state`, in place; the interpreter's lock is not held.

    Raises IndexError for arrays of different lengths, missing outputs and a smaller state.
    """
    require_inside(state, rows, terms)  # the loops check nothing
    if len(rows.columns[0]) == 0:
        return
    if terms.bits > _MOST_BITS or (terms.splines and terms.degree >= _ABREAST):
        add_rows_plainly(state, rows, terms)
        return
    if len(terms.indices) >= _MANY_TERMS and state.nbytes > _CACHE_BYTES:
        rows = _by_cell(rows, terms)
    _add_terms(state.reshape(-1), rows, terms)


def _by_cell(rows: Rows, terms: Terms) -> Rows:
    """Sort records by cell: what a block adds to stays in a core's cache."""
    cell = np.zeros(len(rows.columns[0]), dtype=np.int64)
    bounds = zip(rows.columns, rows.low, rows.high, terms.periods, strict=True)
    for column, low, high, periods in bounds:
        share = np.nan_to_num((np.clip(column, low, high) - low) / (high - low))
        cell = cell * (periods + 1) + (share * periods).astype(np.int64)
    order = np.argsort(cell)
    optional = {name: getattr(rows, name) for name in ("counts", "output", "weight")}
    ordered = {name: array[order] for name, array in optional.items() if array is not None}
    return replace(rows, columns=[column[order] for column in rows.columns], **ordered)
