"""Integer sketches: exact in any order, and as accurate as their proved bounds say."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sketches import add, state_of

from dbern.bernstein.kernels import Gaussian
from dbern.measure.moments import (
    Cells,
    MomentSketch,
    _table_error,
    chebyshev_table,
    contract,
    contraction_error,
    truncation_error,
)


def equal(*counts: int) -> tuple[Cells, ...]:
    return tuple(Cells(count) for count in counts)


SKETCHES = [
    MomentSketch(equal(7), 3, 28),
    MomentSketch(equal(1), 0, 20),
    MomentSketch(equal(5, 3), 2, 28),
    MomentSketch(equal(2, 3, 4), 4, 24),
]


def special_positions(cells: tuple[int, ...], count: int, seed: int = 0) -> np.ndarray:
    """Cell edges, their neighbours, 0, 1, centres and arbitrary ones, all axes mixed."""
    rng = np.random.default_rng(seed)
    columns = []
    for m in cells:
        edges = np.arange(m + 1) / m
        near = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])
        pool = np.concatenate(
            [near, (edges[:-1] + edges[1:]) / 2, [0.0, 1.0], rng.uniform(size=20)]
        )
        columns.append(rng.choice(pool, size=count))
    return np.clip(np.column_stack(columns), 0, 1)


@pytest.mark.thorough
@pytest.mark.parametrize("sketch", SKETCHES, ids=str)
@given(data=st.data())
@settings(max_examples=25)
def test_integers_are_the_same_for_every_partition_and_order(sketch, data):
    count = data.draw(st.integers(0, 60))
    positions = special_positions(sketch.cells, count, data.draw(st.integers(0, 10**6)))
    whole = state_of(sketch, positions)
    shuffled = positions[data.draw(st.permutations(range(count)))]
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=5)))
    parts = np.split(shuffled, cuts)
    merged = sum((state_of(sketch, part) for part in parts), np.zeros_like(whole))
    np.testing.assert_array_equal(merged, whole)
    in_place = np.zeros_like(whole)
    for part in parts:
        add(sketch, in_place, part)
    np.testing.assert_array_equal(in_place, whole)
    assert whole.dtype == np.int64


@pytest.mark.parametrize("sketch", SKETCHES, ids=str)
def test_a_record_adds_the_same_integers_alone_and_in_a_batch(sketch):
    positions = special_positions(sketch.cells, 100, 4)
    alone = sum(state_of(sketch, row[None]) for row in positions)
    np.testing.assert_array_equal(alone, state_of(sketch, positions))


@pytest.mark.parametrize("sketch", SKETCHES, ids=str)
def test_moments_are_rounded_chebyshev_polynomials(sketch):
    for position in special_positions(sketch.cells, 40, 5):
        state = state_of(sketch, position[None])
        cell = [min(int(x * m), m - 1) for x, m in zip(position, sketch.cells, strict=True)]
        offset = [2 * (x * m - c) - 1 for x, m, c in zip(position, sketch.cells, cell, strict=True)]
        angles = [math.acos(max(-1.0, min(1.0, u))) for u in offset]
        for moment, index in zip(state, sketch.indices, strict=True):
            exact = math.prod(math.cos(a * t) for a, t in zip(index, angles, strict=True))
            assert (
                abs(moment[tuple(cell)] / 2.0**sketch.bits - exact)
                <= 0.5 * 2.0**-sketch.bits + 1e-14
            )
            assert np.count_nonzero(moment) <= 1


def test_indices_are_all_multi_indices_of_total_order_at_most_p():
    sketch = MomentSketch(equal(2, 2, 2), 3, 10)
    assert len(sketch.indices) == math.comb(3 + 3, 3)
    assert len(set(sketch.indices)) == len(sketch.indices)
    assert max(map(sum, sketch.indices)) == 3
    assert sketch.state_bytes == 8 * math.prod(sketch.shape)


def test_the_records_at_most_claimed_do_not_overflow():
    # One cell holds everything: n records at offset 1 add n 2^bits to every moment.
    n, bits = 2**34 - 1, 28  # n.bit_length() + bits = 62
    sketch = MomentSketch(equal(1), 2, bits)
    one = state_of(sketch, np.array([[1.0]]))
    assert (one == 2**bits).all()
    assert n * int(one.max()) < 2**62
    total = one * np.int64(n)
    assert (total == n * 2**bits).all()
    tables = [chebyshev_table(Gaussian(0.7), 4, Cells(1), 2)]
    got = contract(sketch, total, tables) / n
    points = reference.lattice_points([4])
    rho = truncation_error([Gaussian(0.7)], equal(1), 2, bits)
    exact = reference.density(points, np.array([[1.0]]), [0.7], 1)
    assert np.abs(got - exact).max() <= rho + contraction_error([Gaussian(0.7)], equal(1), 2, [0])


CASES = [
    ((0.1,), (20,), (31,), 3, 28),
    ((0.02,), (50,), (400,), 1, 28),
    ((0.5,), (1,), (1,), 8, 28),
    ((2.0,), (7,), (3,), 2, 12),
    ((0.3,), (10,), (8,), 8, 6),  # nothing but rounding
    ((0.05,), (20,), (3000,), 0, 28),
    ((0.1, 0.3), (8, 5), (25, 9), 4, 28),
    ((0.3, 0.6), (4, 4), (3, 2), 6, 20),
    ((0.2, 0.3, 0.5), (4, 3, 2), (9, 6, 4), 4, 24),
]
DATABASES = {
    "mixed": lambda cells: special_positions(cells, 50, 9),
    "one record": lambda cells: special_positions(cells, 1, 10),
    "all equal": lambda cells: np.repeat(special_positions(cells, 1, 11), 40, axis=0),
    "origin": lambda cells: np.zeros((3, len(cells))),
    "far corner": lambda cells: np.ones((3, len(cells))),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("database", DATABASES)
def test_contraction_is_the_kernel_sum_within_the_proved_error(case, database):
    bandwidth, k, cells, order, bits = case
    kernels = [Gaussian(b) for b in bandwidth]
    sketch = MomentSketch(equal(*cells), order, bits)
    records = DATABASES[database](cells)
    tables = [chebyshev_table(*axis, order) for axis in zip(kernels, k, sketch.axes, strict=True)]
    got = contract(sketch, state_of(sketch, records), tables)
    points = reference.lattice_points(k)
    exact = reference.density(points, records, bandwidth, 1).reshape(got.shape)
    count = len(records)
    bound = count * (
        truncation_error(kernels, sketch.axes, order, bits)
        + contraction_error(kernels, sketch.axes, order, [0] * len(cells))
    )
    oracle = 1e-13 * count * math.prod(kernel.peak for kernel in kernels)
    assert np.abs(got - exact).max() <= bound + oracle


@pytest.mark.parametrize("case", CASES, ids=str)
def test_truncation_error_is_not_absurdly_loose(case):
    bandwidth, k, cells, order, bits = case
    kernels = [Gaussian(b) for b in bandwidth]
    sketch = MomentSketch(equal(*cells), order, bits)
    tables = [chebyshev_table(*axis, order) for axis in zip(kernels, k, sketch.axes, strict=True)]
    points = reference.lattice_points(k)
    worst = 0.0
    for record in special_positions(cells, 300, 12):
        got = contract(sketch, state_of(sketch, record[None]), tables).ravel()
        worst = max(
            worst, np.abs(got - reference.density(points, record[None], bandwidth, 1)).max()
        )
    assert truncation_error(kernels, sketch.axes, order, bits) <= 60 * worst


@pytest.mark.parametrize("case", [c for c in CASES if math.prod(c[2]) < 500 and len(c[2]) == 1],
                         ids=str)  # fmt: skip
def test_contraction_error_covers_the_float_error_alone(case):
    """The same integers contracted with exact tables to sixty digits."""
    bandwidth, k, cells, order, bits = case
    kernels = [Gaussian(b) for b in bandwidth]
    sketch = MomentSketch(equal(*cells), order, bits)
    records = special_positions(cells, 12, 13)
    state = state_of(sketch, records)
    table = chebyshev_table(kernels[0], k[0], sketch.axes[0], order)
    got = contract(sketch, state, [table])
    vertex = k[0] // 2
    exact = Decimal(0)
    for cell in np.flatnonzero(state.any(axis=0)):
        coefficients = exact_entries(bandwidth[0], k[0], cells[0], vertex, int(cell), order)
        for a in range(order + 1):
            exact += coefficients[a] * int(state[a, cell])
    exact /= 2**bits
    bound = len(records) * contraction_error(kernels, sketch.axes, order, [0])
    assert abs(Decimal(float(got[vertex])) - exact) <= Decimal(bound)


def exact_entries(
    bandwidth: float, k: int, cells: int, vertex: int, cell: int, order: int
) -> list[Decimal]:
    offset = Decimal(vertex) / k - (Decimal(2 * cell + 1)) / (2 * cells)
    radius = 1 / Decimal(2 * cells)
    return reference.chebyshev_coefficients(offset, radius, Decimal(bandwidth), order, nodes=48)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("bandwidth", "k", "cells"),
    [(0.1, 7, 5), (0.1, 3, 40), (0.5, 3, 1), (0.01, 1000, 50), (0.001, 999, 700), (3.0, 5, 2)],
)
def test_table_error_bounds_every_entry(bandwidth, k, cells):
    order = 8
    kernel = Gaussian(bandwidth)
    table = chebyshev_table(kernel, k, Cells(cells), order)
    assert table.shape == (order + 1, k + 1, cells)
    bound = Decimal(_table_error(kernel, Cells(cells), order))
    assert bound < Decimal(kernel.peak) * Decimal("1e-11")
    rng = np.random.default_rng(k)
    for _ in range(8):
        vertex = int(rng.integers(k + 1))
        near = int(np.clip(vertex / k * cells + rng.integers(-1, 2), 0, cells - 1))
        exact = exact_entries(bandwidth, k, cells, vertex, near, order)
        for a in range(order + 1):
            assert abs(Decimal(float(table[a, vertex, near])) - exact[a]) <= bound


def test_cells_wider_than_the_alias_bound_allows_are_refused():
    with pytest.raises(ValueError, match="two bandwidths"):
        _table_error(Gaussian(0.1), Cells(4), 3)


def test_any_rows_of_a_table_give_those_lattice_values():
    sketch = MomentSketch(equal(9, 4), 3, 28)
    kernels, k = (Gaussian(0.2), Gaussian(0.3)), (6, 5)
    tables = [chebyshev_table(*axis, 3) for axis in zip(kernels, k, sketch.axes, strict=True)]
    state = state_of(sketch, special_positions(sketch.cells, 30, 2))
    whole = contract(sketch, state, tables)
    part = contract(sketch, state, [tables[0][:, 2:5], tables[1]])
    np.testing.assert_allclose(part, whole[2:5], rtol=1e-13)


def test_a_contraction_of_many_rows_is_the_sum():
    rng = np.random.default_rng(3)
    sketch = MomentSketch((Cells(3),) * 2, order=2, bits=0)
    state = rng.integers(-9, 9, sketch.shape)
    tables = [rng.standard_normal((3, 150, 3)), rng.standard_normal((3, 1500, 3))]
    expected = sum(
        tables[0][a] @ moment @ tables[1][b].T
        for (a, b), moment in zip(sketch.indices, state, strict=True)
    )
    assert np.allclose(contract(sketch, state, tables), expected, rtol=0, atol=1e-11)
