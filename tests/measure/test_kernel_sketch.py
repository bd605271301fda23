"""Integer sketches: where their cells are, exact in any order, as accurate as their bounds say."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sketches import add, state_of

from dbern.bernstein.kernels import KERNELS, Gaussian, Kernel, kernel_of
from dbern.measure.kernel_sketch import (
    Cells,
    MomentSketch,
    _table_error,
    cells_for,
    chebyshev_table,
    contract,
    contraction_error,
    truncation_error,
)

KINKED = [name for name in KERNELS if name != "gaussian"]
every_kinked = pytest.mark.parametrize("name", KINKED)
SMOOTH_CASES = [  # bandwidth, k, cells to a unit, order, bits: all cells are equal
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
KINKED_CASES = [
    ((0.1,), (20,), (60.0,), 3, 30),
    ((0.07,), (13,), (200.0,), 1, 30),
    ((0.3,), (4,), (0.0,), 6, 30),
    ((0.05,), (20,), (500.0,), 0, 28),
    ((1.7,), (3,), (2.0,), 8, 30),
    ((0.2 + 2**-45,), (5,), (20.0,), 4, 34),  # slivers
    ((0.2, 0.33), (6, 4), (30.0, 20.0), 4, 28),
    ((0.5, 0.4, 0.9), (2, 3, 2), (9.0, 9.0, 6.0), 5, 26),
]
CASES = [
    *(("gaussian", *case) for case in SMOOTH_CASES),
    *((name, *case) for name in KINKED for case in KINKED_CASES),
]


# --- Cells


def edges_of(cells: Cells) -> list[Fraction]:
    """Exact edges in order."""
    inner = [Fraction(0), *map(Fraction, cells.cuts)]
    return [(j + cut) / cells.periods for j in range(cells.periods) for cut in inner] + [
        Fraction(1)
    ]


bandwidths = st.one_of(
    st.floats(-3, 0.3).map(lambda e: 10.0**e),
    st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 1.0, 0.05 + 2**-53, 0.15 - 2**-50]),
)


@pytest.mark.slow
@given(st.sampled_from(KINKED), bandwidths, st.integers(1, 40), st.floats(0.0, 200.0))
def test_every_kink_is_an_edge_up_to_half_a_unit_of_a_float(name, bandwidth, k, density):
    kernel = kernel_of(name, bandwidth)
    cells = cells_for(kernel, k, density)
    edges = edges_of(cells)
    assert edges == sorted(set(edges))
    assert len(edges) == cells.count + 1
    floats = np.array([float(edge) for edge in edges])
    for v in range(k + 1):
        for kink in kernel.kinks:
            for place in (Fraction(v, k) - Fraction(kink), Fraction(v, k) + Fraction(kink)):
                if 0 <= place <= 1:
                    near = int(np.abs(floats - float(place)).argmin())
                    around = edges[max(near - 1, 0) : near + 2]
                    assert min(abs(edge - place) for edge in around) <= Fraction(1, 2**54)
    widths = np.diff(floats)
    if density:
        assert widths.max() <= (1 + 1e-12) / density
    assert cells.radius == pytest.approx(widths.max() / 2, rel=1e-9)


def test_slivers_between_kinks_keep_their_order():
    bandwidth = 0.25 + 2**-40  # kinks of neighbouring lattice points a hair apart
    cells = cells_for(kernel_of("epanechnikov", bandwidth), 2, 0.0)
    assert cells.cuts == (0.5 - 2**-39, 0.5 + 2**-39)
    assert cells_for(kernel_of("epanechnikov", 0.5), 2, 0.0) == Cells(2)


@pytest.mark.parametrize("name", KERNELS)
def test_a_sketch_survives_json_and_others_are_not_equal(name):
    axes = tuple(cells_for(kernel_of(name, b), k, 9.0) for b, k in ((0.13, 5), (0.7, 3)))
    sketch = MomentSketch(axes, 3, 20)
    text = json.dumps(sketch.to_dict())
    assert MomentSketch.from_dict(json.loads(text)) == sketch
    assert sketch.cells == tuple(axis.count for axis in axes)
    assert replace(sketch, axes=(Cells(4), axes[1])) != sketch


@pytest.mark.parametrize(
    ("kernel", "cells"), [(Gaussian(0.1), 4), (kernel_of("matern-5/2", 0.01), 5)]
)
def test_cells_wider_than_the_alias_bound_allows_are_refused(kernel, cells):
    with pytest.raises(ValueError, match="two bandwidths"):
        _table_error(kernel, Cells(cells), 3)
    assert _table_error(kernel_of("biweight", 0.01), Cells(cells), 3) < 1e-9  # polynomials


# --- Integers


def kernels_and_sketch(
    name: str, bandwidth: Sequence[float], k: Sequence[int], density: Sequence[float],
    order: int, bits: int,
) -> tuple[list[Kernel], MomentSketch]:  # fmt: skip
    kernels = [kernel_of(name, b) for b in bandwidth]
    axes = tuple(cells_for(*axis) for axis in zip(kernels, k, density, strict=True))
    return kernels, MomentSketch(axes, order, bits)


def special_positions(axes: Sequence[Cells], count: int, seed: int = 0) -> np.ndarray:
    """Cell edges, their neighbours, 0, 1, centres and arbitrary ones, all axes mixed.

    Kinks seen from lattice points, and these themselves, are edges where a kernel has kinks.
    """
    rng = np.random.default_rng(seed)
    columns = []
    for cells in axes:
        pool = np.array([float(edge) for edge in edges_of(cells)])
        pool = np.concatenate([pool, cells.centers, rng.uniform(size=40)])
        pool = np.concatenate([pool, np.nextafter(pool, 0), np.nextafter(pool, 2)])
        columns.append(rng.choice(pool[pool <= 1], size=count))
    return np.column_stack(columns)


EQUAL = [
    MomentSketch((Cells(7),), 3, 28),
    MomentSketch((Cells(1),), 0, 20),
    MomentSketch((Cells(5), Cells(3)), 2, 28),
    MomentSketch((Cells(2), Cells(3), Cells(4)), 4, 24),
]
CUT = [kernels_and_sketch(name, *KINKED_CASES[6])[1] for name in KINKED]


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("sketch", [*EQUAL, *CUT], ids=str)
@given(data=st.data())
@settings(max_examples=25)
def test_integers_are_the_same_for_every_partition_and_order(sketch, data):
    count = data.draw(st.integers(0, 60))
    positions = special_positions(sketch.axes, count, data.draw(st.integers(0, 10**6)))
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


@pytest.mark.parametrize("sketch", [*EQUAL, *CUT], ids=str)
def test_a_record_adds_the_same_integers_alone_and_in_a_batch(sketch):
    positions = special_positions(sketch.axes, 100, 4)
    alone = sum(state_of(sketch, row[None]) for row in positions)
    np.testing.assert_array_equal(alone, state_of(sketch, positions))


@pytest.mark.parametrize("sketch", EQUAL, ids=str)
def test_moments_are_rounded_chebyshev_polynomials(sketch):
    for position in special_positions(sketch.axes, 40, 5):
        state = state_of(sketch, position[None])
        cell = [min(int(x * m), m - 1) for x, m in zip(position, sketch.cells, strict=True)]
        offset = [2 * (x * m - c) - 1 for x, m, c in zip(position, sketch.cells, cell, strict=True)]
        angles = [math.acos(max(-1.0, min(1.0, u))) for u in offset]
        for moment, index in zip(state, sketch.indices, strict=True):
            exact = math.prod(math.cos(a * t) for a, t in zip(index, angles, strict=True))
            error = abs(moment[tuple(cell)] / 2.0**sketch.bits - exact)
            assert error <= 0.5 * 2.0**-sketch.bits + 1e-14
            assert np.count_nonzero(moment) <= 1


def test_indices_are_all_multi_indices_of_total_order_at_most_p():
    sketch = MomentSketch((Cells(2),) * 3, 3, 10)
    assert len(sketch.indices) == math.comb(3 + 3, 3)
    assert len(set(sketch.indices)) == len(sketch.indices)
    assert max(map(sum, sketch.indices)) == 3
    assert sketch.state_bytes == 8 * math.prod(sketch.shape)


def test_the_records_at_most_claimed_do_not_overflow():
    # One cell holds everything: n records at offset 1 add n 2^bits to every moment.
    n, bits = 2**34 - 1, 28  # n.bit_length() + bits = 62
    sketch = MomentSketch((Cells(1),), 2, bits)
    one = state_of(sketch, np.array([[1.0]]))
    assert (one == 2**bits).all()
    assert n * int(one.max()) < 2**62
    total = one * np.int64(n)
    assert (total == n * 2**bits).all()
    got = contract(sketch, total, tables_of([Gaussian(0.7)], [4], sketch)) / n
    exact = reference.density(reference.lattice_points([4]), np.array([[1.0]]), [0.7], 1)
    assert np.abs(got - exact).max() <= record_error([Gaussian(0.7)], sketch)


# --- Sums of kernels


def tables_of(
    kernels: Sequence[Kernel], k: Sequence[int], sketch: MomentSketch
) -> list[np.ndarray]:
    axes = zip(kernels, k, sketch.axes, strict=True)
    return [chebyshev_table(*axis, sketch.order) for axis in axes]


def record_error(kernels: Sequence[Kernel], sketch: MomentSketch) -> float:
    """What is proved of one record: of the sketch and of floats."""
    given = kernels, sketch.axes, sketch.order
    return truncation_error(*given, sketch.bits) + contraction_error(*given, [0] * len(kernels))


def oracle_error(kernels: Sequence[Kernel]) -> float:
    """The direct sum's own, which sees a position before it is rounded to an offset."""
    peak = math.prod(kernel.peak for kernel in kernels)
    moved = sum(peak * kernel.slope / kernel.peak for kernel in kernels if kernel.kinks)
    return 1e-13 * peak + 1e-15 * moved


@pytest.mark.sample(test=1)
@pytest.mark.parametrize(("name", "bandwidth", "k", "density", "order", "bits"), CASES, ids=str)
def test_contraction_is_the_kernel_sum_within_the_proved_error(
    name, bandwidth, k, density, order, bits
):
    """Of each record by itself, of which some err by more than a 60th, and of databases."""
    kernels, sketch = kernels_and_sketch(name, bandwidth, k, density, order, bits)
    tables, points = tables_of(kernels, k, sketch), reference.lattice_points(k)
    bound, rho = record_error(kernels, sketch), truncation_error(kernels, sketch.axes, order, bits)

    def error(records: np.ndarray) -> float:
        exact = reference.density(points, records, bandwidth, 1, name)
        return np.abs(contract(sketch, state_of(sketch, records), tables).ravel() - exact).max()

    records = special_positions(sketch.axes, 300 if name == "gaussian" else 60, 12)
    worst = max(error(record[None]) for record in records)
    assert worst <= bound + oracle_error(kernels)
    if name == "gaussian" or rho > 1e-6 * math.prod(kernel.peak for kernel in kernels):
        assert rho <= (60 if name == "gaussian" else 100) * worst  # not absurdly loose
    ends = [np.full((3, len(k)), end) for end in (0.0, 1.0)]
    for database in (records[:60], np.repeat(records[:1], 40, axis=0), *ends):
        assert error(database) <= len(database) * (bound + oracle_error(kernels))


@pytest.mark.sample(test=1)
@every_kinked
def test_cells_that_miss_a_kink_are_caught(name):
    """Equal cells of the same size, across the kinks: the claimed error is exceeded."""
    kernel, k, order, bits = kernel_of(name, 0.13), 7, 8, 40
    right = cells_for(kernel, k, 40.0)
    wrong = Cells(math.ceil(1 / (2 * right.radius)) + 1)
    assert wrong.radius <= right.radius
    points = reference.lattice_points([k])
    worst = {right: 0.0, wrong: 0.0}
    for cells in worst:
        sketch = MomentSketch((cells,), order, bits)
        tables = tables_of([kernel], [k], sketch)
        for record in special_positions([right], 150):
            got = contract(sketch, state_of(sketch, record[None]), tables).ravel()
            exact = reference.density(points, record[None], [0.13], 1, name)
            worst[cells] = max(worst[cells], np.abs(got - exact).max())
    allowed = record_error([kernel], MomentSketch((right,), order, bits)) + oracle_error([kernel])
    assert worst[right] <= allowed < worst[wrong]


@pytest.mark.parametrize("case", SMOOTH_CASES[:5], ids=str)
def test_contraction_error_covers_the_float_error_alone(case):
    """The same integers contracted with exact tables to sixty digits."""
    (bandwidth,), (k,), _, order, bits = case
    kernels, sketch = kernels_and_sketch("gaussian", *case)
    records = special_positions(sketch.axes, 12, 13)
    state = state_of(sketch, records)
    got = contract(sketch, state, tables_of(kernels, [k], sketch))
    vertex, edges = k // 2, edges_of(sketch.axes[0])
    exact = Decimal(0)
    for cell in np.flatnonzero(state.any(axis=0)):
        x, radius = seen_from(Fraction(vertex, k), edges, int(cell))
        coefficients = exact_coefficients("gaussian", bandwidth, x, radius, order)
        for a in range(order + 1):
            exact += coefficients[a] * int(state[a, cell])
    exact /= 2**bits
    bound = len(records) * contraction_error(kernels, sketch.axes, order, [0])
    assert abs(Decimal(float(got[vertex])) - exact) <= Decimal(bound)


def seen_from(vertex: Fraction, edges: Sequence[Fraction], cell: int) -> tuple[Fraction, Fraction]:
    """Where a cell's center is, seen from a lattice point, and the cell's radius."""
    low, high = edges[cell], edges[cell + 1]
    return vertex - (low + high) / 2, (high - low) / 2


def exact_coefficients(
    name: str, bandwidth: float, x: Fraction, radius: Fraction, order: int
) -> list[Decimal]:
    """Chebyshev coefficients on a cell, whose ends may be kinks, to sixty digits."""
    if name == "gaussian":
        offset, half = (Decimal(n.numerator) / Decimal(n.denominator) for n in (x, radius))
        return reference.chebyshev_coefficients(offset, half, Decimal(bandwidth), order, nodes=48)
    count = 64
    cosines = [reference.cosine(reference.PI * (2 * i + 1) / (2 * count)) for i in range(count)]
    values = [
        reference.exact_kernel(name, x - radius * Fraction(c), Fraction(bandwidth)) for c in cosines
    ]
    result = []
    for a in range(order + 1):
        angles = [reference.PI * (2 * i + 1) * a / (2 * count) for i in range(count)]
        turns = [angle - 2 * reference.PI * int(angle / (2 * reference.PI)) for angle in angles]
        terms = [v * reference.cosine(t) for v, t in zip(values, turns, strict=True)]
        result.append(sum(terms, Decimal(0)) * (2 if a else 1) / count)
    return result


TABLES = [  # name, bandwidth, k, cells to a unit, order, entries, the largest error of a peak
    *(("gaussian", *table, 8, 8, "1e-11") for table in (
        (0.1, 7, 5), (0.1, 3, 40), (0.5, 3, 1), (0.01, 1000, 50), (0.001, 999, 700), (3.0, 5, 2),
    )),
    *((name, *table, 4, 2, "1e-10")
      for name in KINKED for table in ((0.11, 9, 30.0), (0.04, 50, 25.0))),
]  # fmt: skip


@pytest.mark.sample(test=1)
@pytest.mark.parametrize(("name", "bandwidth", "k", "density", "order", "entries", "most"), TABLES)
def test_table_error_bounds_every_entry(name, bandwidth, k, density, order, entries, most):
    kernel = kernel_of(name, bandwidth)
    cells = cells_for(kernel, k, density)
    table = chebyshev_table(kernel, k, cells, order)
    assert table.shape == (order + 1, k + 1, cells.count)
    bound = Decimal(_table_error(kernel, cells, order))
    assert bound < Decimal(kernel.peak) * Decimal(most)
    edges, rng = edges_of(cells), np.random.default_rng(k)
    for _ in range(entries):
        vertex = int(rng.integers(k + 1))
        near = int(np.clip(cells.count * vertex // k + rng.integers(-2, 2), 0, cells.count - 1))
        x, radius = seen_from(Fraction(vertex, k), edges, near)
        exact = exact_coefficients(name, bandwidth, x, radius, order)
        for a in range(order + 1):
            assert abs(Decimal(float(table[a, vertex, near])) - exact[a]) <= bound


def test_any_rows_of_a_table_give_those_lattice_values():
    sketch = MomentSketch((Cells(9), Cells(4)), 3, 28)
    tables = tables_of([Gaussian(0.2), Gaussian(0.3)], (6, 5), sketch)
    state = state_of(sketch, special_positions(sketch.axes, 30, 2))
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
