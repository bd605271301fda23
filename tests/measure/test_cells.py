"""Cells cut at kinks: where their edges are, and sketches on them against direct sums."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sketches import add, state_of

from dbern.bernstein.kernels import KERNELS, Kernel, kernel_of
from dbern.measure.moments import (
    Cells,
    MomentSketch,
    _table_error,
    cells_for,
    chebyshev_table,
    contract,
    contraction_error,
    truncation_error,
)

NAMES = [name for name in KERNELS if name != "gaussian"]
bandwidths = st.one_of(
    st.floats(-3, 0.3).map(lambda e: 10.0**e),
    st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 1.0, 0.05 + 2**-53, 0.15 - 2**-50]),
)


def edges_of(cells: Cells) -> list[Fraction]:
    """Exact edges in order."""
    inner = [Fraction(0), *map(Fraction, cells.cuts)]
    return [(j + cut) / cells.periods for j in range(cells.periods) for cut in inner] + [
        Fraction(1)
    ]


@given(st.sampled_from(NAMES), bandwidths, st.integers(1, 40), st.floats(0.0, 200.0))
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
                    assert min(
                        abs(edge - place) for edge in edges[max(near - 1, 0) : near + 2]
                    ) <= (Fraction(1, 2**54))
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
def test_a_sketch_survives_json(name):
    axes = tuple(cells_for(kernel_of(name, b), k, 9.0) for b, k in ((0.13, 5), (0.7, 3)))
    sketch = MomentSketch(axes, 3, 20)
    text = json.dumps(sketch.to_dict())
    assert MomentSketch.from_dict(json.loads(text)) == sketch
    assert sketch.cells == tuple(axis.count for axis in axes)


def adversarial(kernel: Kernel, k: int, cells: Cells, count: int, seed: int = 0) -> np.ndarray:
    """Kinks, edges, lattice points and their floating neighbours, and arbitrary positions."""
    rng = np.random.default_rng(seed)
    v = np.arange(k + 1) / k
    places = [v, *(v + sign * kink for kink in kernel.kinks for sign in (-1, 1))]
    edges = np.array([float(edge) for edge in edges_of(cells)])
    pool = np.concatenate([*places, edges, cells.centers, rng.uniform(size=40)])
    pool = np.concatenate([pool, np.nextafter(pool, 0), np.nextafter(pool, 2)])
    return rng.choice(pool[(pool >= 0) & (pool <= 1)], count)


CASES = [  # bandwidth, k, cells to a unit, order, bits
    ((0.1,), (20,), (60.0,), 3, 30),
    ((0.07,), (13,), (200.0,), 1, 30),
    ((0.3,), (4,), (0.0,), 6, 30),
    ((0.05,), (20,), (500.0,), 0, 28),
    ((1.7,), (3,), (2.0,), 8, 30),
    ((0.2 + 2**-45,), (5,), (20.0,), 4, 34),  # slivers
    ((0.2, 0.33), (6, 4), (30.0, 20.0), 4, 28),
    ((0.5, 0.4, 0.9), (2, 3, 2), (9.0, 9.0, 6.0), 5, 26),
]


def setting(name, case):
    bandwidth, k, density, order, bits = case
    kernels = [kernel_of(name, b) for b in bandwidth]
    axes = tuple(cells_for(*axis) for axis in zip(kernels, k, density, strict=True))
    return kernels, MomentSketch(axes, order, bits)


def tables_of(kernels, k, sketch):
    axes = zip(kernels, k, sketch.axes, strict=True)
    return [chebyshev_table(*axis, sketch.order) for axis in axes]


def lattice_values(tables, sketch, records):
    return contract(sketch, state_of(sketch, records), tables).ravel()


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sketches_are_direct_sums_within_the_proved_error(name, case):
    bandwidth, k = case[:2]
    kernels, sketch = setting(name, case)
    rho = truncation_error(kernels, sketch.axes, sketch.order, sketch.bits)
    floats = contraction_error(kernels, sketch.axes, sketch.order, [0] * len(k))
    peak = math.prod(kernel.peak for kernel in kernels)
    # The oracle is given the position before it is rounded to an offset: accuracy, not privacy.
    moved = 1e-15 * sum(peak * kernel.slope / kernel.peak for kernel in kernels)
    points = reference.lattice_points(k)
    columns = [
        adversarial(*axis, 60, i)
        for i, axis in enumerate(zip(kernels, k, sketch.axes, strict=True))
    ]
    records = np.column_stack(columns)
    worst, tables = 0.0, tables_of(kernels, k, sketch)
    for record in records:
        got = lattice_values(tables, sketch, record[None])
        exact = reference.density(points, record[None], bandwidth, 1, name)
        worst = max(worst, np.abs(got - exact).max())
    assert worst <= rho + floats + moved + 1e-13 * peak
    together = lattice_values(tables, sketch, records)
    exact = reference.density(points, records, bandwidth, 1, name)
    assert np.abs(together - exact).max() <= 60 * (rho + floats + moved + 1e-13 * peak)
    if rho > 1e-6 * peak:
        assert rho <= 100 * worst  # not absurdly loose


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_cells_that_miss_a_kink_are_caught(name):
    """Equal cells of the same size, across the kinks: the claimed error is exceeded."""
    kernel, k, order, bits = kernel_of(name, 0.13), 7, 8, 40
    right = cells_for(kernel, k, 40.0)
    wrong = Cells(math.ceil(1 / (2 * right.radius)) + 1)
    assert wrong.radius <= right.radius
    claimed = truncation_error([kernel], [right], order, bits)
    claimed += contraction_error([kernel], [right], order, [0])
    points = reference.lattice_points([k])
    worst = {right: 0.0, wrong: 0.0}
    for cells in worst:
        sketch = MomentSketch((cells,), order, bits)
        tables = tables_of([kernel], [k], sketch)
        for x in adversarial(kernel, k, right, 150):
            got = lattice_values(tables, sketch, np.array([[x]]))
            exact = reference.density(points, np.array([[x]]), [0.13], 1, name)
            worst[cells] = max(worst[cells], np.abs(got - exact).max())
    allowed = claimed + 1e-15 * kernel.slope + 1e-13 * kernel.peak
    assert worst[right] <= allowed < worst[wrong]


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=8)
def test_integers_are_the_same_for_every_partition_and_order(name, data):
    kernels, sketch = setting(name, CASES[6])
    count = data.draw(st.integers(0, 40))
    axes = zip(kernels, (6, 4), sketch.axes, strict=True)
    columns = [adversarial(*axis, count, seed) for seed, axis in enumerate(axes)]
    records = np.column_stack(columns)
    whole = state_of(sketch, records)
    parts = np.zeros_like(whole)
    for record in records[data.draw(st.permutations(range(count)))]:
        add(sketch, parts, record[None])
    np.testing.assert_array_equal(parts, whole)


def exact_polynomial(name: str, bandwidth: float, x: Fraction, radius: Fraction) -> list[Decimal]:
    """Chebyshev coefficients on an interval whose ends may be kinks, to sixty digits."""
    count = 64
    cosines = [reference.cosine(reference.PI * (2 * i + 1) / (2 * count)) for i in range(count)]
    values = [
        reference.exact_kernel(name, x - radius * Fraction(c), Fraction(bandwidth)) for c in cosines
    ]
    result = []
    for a in range(5):
        angles = [reference.PI * (2 * i + 1) * a / (2 * count) for i in range(count)]
        turns = [angle - 2 * reference.PI * int(angle / (2 * reference.PI)) for angle in angles]
        terms = [v * reference.cosine(t) for v, t in zip(values, turns, strict=True)]
        result.append(sum(terms, Decimal(0)) * (2 if a else 1) / count)
    return result


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("bandwidth", "k", "density"), [(0.11, 9, 30.0), (0.04, 50, 25.0)])
def test_table_error_bounds_entries(name, bandwidth, k, density):
    kernel = kernel_of(name, bandwidth)
    cells = cells_for(kernel, k, density)
    table = chebyshev_table(kernel, k, cells, 4)
    bound = Decimal(_table_error(kernel, cells, 4))
    assert bound < Decimal(kernel.peak) * Decimal("1e-10")
    edges, rng = edges_of(cells), np.random.default_rng(k)
    for _ in range(2):
        v = int(rng.integers(k + 1))
        near = int(np.clip(cells.count * v // k + rng.integers(-2, 2), 0, cells.count - 1))
        low, high = edges[near], edges[near + 1]
        exact = exact_polynomial(
            name, bandwidth, Fraction(v, k) - (low + high) / 2, (high - low) / 2
        )
        for a in range(5):
            assert abs(Decimal(float(table[a, v, near])) - exact[a]) <= bound


def test_wide_cells_are_refused_where_aliasing_is_not_proved():
    with pytest.raises(ValueError, match="two bandwidths"):
        _table_error(kernel_of("matern-5/2", 0.01), Cells(5), 3)
    polynomial = kernel_of("biweight", 0.01)
    assert _table_error(polynomial, Cells(5), 3) < 1e-9


def test_other_cells_are_other_sketches():
    sketch = MomentSketch((Cells(2, (0.5,)),), 1, 4)
    assert replace(sketch, axes=(Cells(4),)) != sketch
