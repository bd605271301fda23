"""Compiled counting: the integers of its slow twin, bit for bit, whatever the records."""

from __future__ import annotations

import itertools
import math
import re
import sys

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sketches import unit_rows

from dbern import compiling
from dbern.measure import kernel_sums as dispatching
from dbern.measure import loops as compiled
from dbern.measure.kernel_sketch import Cells, MomentSketch
from dbern.measure.kernel_sums import _ONE_CELL
from dbern.measure.loops import add_rows_compiled
from dbern.measure.record_integers import Rows, Terms, add_rows_plainly

BITS = (40, 17)
CUTS = (0.1, 0.25, 0.7000000000000001)
ODD = [np.nan, np.inf, -np.inf, 5e-324, -5e-324, 2.2e-308, -0.0, 0.0, 1e308, -1e308, 2.0**53]


def splines(cells, degree, bits, outputs=1) -> Terms:
    indices = np.array(list(itertools.product(range(degree + 1), repeat=len(cells))))
    extents = tuple(count + degree for count in cells)
    return Terms(indices, np.ravel_multi_index(tuple(indices.T), extents), outputs, extents, cells,
                 (_ONE_CELL,) * len(cells), bits, degree, splines=True)  # fmt: skip


def moments(cells, order, bits, outputs=1, cut=False) -> Terms:
    axes = (Cells(count, CUTS if cut and axis % 2 == 0 else ()) for axis, count in enumerate(cells))
    return MomentSketch(tuple(axes), order, bits).terms(outputs)


TERMS = [
    lambda bits, outputs: splines((1,), 0, bits, outputs),
    lambda bits, outputs: splines((19,), 2, bits, outputs),
    lambda bits, outputs: splines((5, 3), 2, bits, outputs),
    lambda bits, outputs: splines((3, 1, 2), 3, bits, outputs),
    lambda bits, outputs: splines((3, 2, 2), 5, bits, outputs),
    lambda bits, outputs: splines((2, 3), 7, bits, outputs),
    lambda bits, outputs: splines((4, 3), 8, bits, outputs),
    lambda bits, outputs: splines((2, 1, 3, 2), 2, bits, outputs),
    lambda bits, outputs: moments((1,), 0, bits, outputs),
    lambda bits, outputs: moments((521,), 2, bits, outputs),
    lambda bits, outputs: moments((2, 3, 4), 4, bits, outputs),
    lambda bits, outputs: moments((3,), 3, bits, outputs, cut=True),
    lambda bits, outputs: moments((2, 3, 2), 2, bits, outputs, cut=True),
]


def states(rows: Rows, terms: Terms) -> tuple[np.ndarray, np.ndarray]:
    """Compiled sums and the twin's."""
    found = np.zeros((2, terms.min_state_size), dtype=np.int64)
    add_rows_compiled(found[0], rows, terms)
    add_rows_plainly(found[1], rows, terms)
    return found[0], found[1]


def column(rng, count: int, low: float, high: float, terms: Terms, axis: int) -> np.ndarray:
    """Edges of cells and their neighbours, bounds, what is outside or no number, and others."""
    shares = (np.arange(terms.periods[axis])[:, None] + terms.edges[axis]) / terms.periods[axis]
    edges = low + shares.ravel() * (high - low)
    bounds = np.array([low, high, (low + high) / 2])
    pool = np.concatenate([edges, bounds, bounds * (1 + 1e-15), ODD])
    pool = np.concatenate([pool, np.nextafter(pool, -np.inf), np.nextafter(pool, np.inf)])
    inside = rng.uniform(low, high, count)
    return np.where(rng.random(count) < 0.6, rng.choice(pool, count), inside)


def test_a_batch_put_in_order_has_the_same_integers(monkeypatch):
    rng, terms = np.random.default_rng(3), splines((2, 3, 2), 2, 17, outputs=2)
    rows = Rows(
        [column(rng, 500, low, 2.0, terms, axis) for axis, low in enumerate((-1.0, 0.0, 1.5))],
        [-1.0, 0.0, 1.5], [2.0] * 3, clamp=True, counts=rng.random(500) < 0.8,
        output=rng.integers(0, 2, 500), weight=rng.uniform(-1, 1, 500),
    )  # fmt: skip
    plain, _ = states(rows, terms)
    monkeypatch.setattr(compiled, "_MANY_TERMS", 1)
    monkeypatch.setattr(compiled, "_CACHE_BYTES", 0)
    ordered, twin = states(rows, terms)
    assert plain.any()
    np.testing.assert_array_equal(ordered, plain)
    np.testing.assert_array_equal(ordered, twin)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("case", range(len(TERMS)))
@given(
    seed=st.integers(0, 2**32),
    count=st.sampled_from([0, 1, 2, 63, 511, 512, 513, 1500]),
    clamp=st.booleans(),
    bits=st.sampled_from(BITS),
    outputs=st.sampled_from([1, 3]),
    weighted=st.booleans(),
    counted=st.booleans(),
    bounds=st.sampled_from([(0.0, 1.0), (-3.7, 11.1), (1e-300, 3e-300 + 1e-100), (-1e99, 1e99)]),
)
@settings(max_examples=12)
def test_compiled_sums_are_those_of_the_slow_twin(
    case, seed, count, clamp, bits, outputs, weighted, counted, bounds
):
    rng = np.random.default_rng(seed)
    terms, (low, high) = TERMS[case](bits, outputs), bounds
    axes = len(terms.periods)
    weights = np.concatenate([[1.0, -1.0, 0.0, -0.0, 5e-324], rng.uniform(-1, 1, 5)])
    rows = Rows(
        [column(rng, count, low, high, terms, axis) for axis in range(axes)],
        [low] * axes,
        [high] * axes,
        clamp,
        rng.random(count) < 0.7 if counted else None,
        rng.integers(0, outputs, count) if outputs > 1 else None,
        rng.choice(weights, count) if weighted else None,
    )
    fast, slow = states(rows, terms)
    np.testing.assert_array_equal(fast, slow)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("case", range(len(TERMS)))
def test_many_records_have_the_bits_of_the_slow_twin(case):
    """Enough for a fused product and sum, or another order of operations, to change some."""
    terms = TERMS[case](40, 1)
    rng = np.random.default_rng(case)
    axes = len(terms.periods)
    columns = [rng.beta(0.7, 2.0, 20000) * 10.0 for _ in range(axes)]
    fast, slow = states(Rows(columns, [0.1] * axes, [9.7] * axes), terms)
    np.testing.assert_array_equal(fast, slow)
    assert np.count_nonzero(fast) > 0


@pytest.mark.parametrize(("cells", "degree"), [((7,), 5), ((5, 3), 2), ((3, 2, 2), 3)])
def test_sums_that_lie_apart_are_those_that_overlap(monkeypatch, cells, degree):
    terms, axes = splines(cells, degree, 40, outputs=2), len(cells)
    rng = np.random.default_rng(1)
    rows = Rows([rng.random(600) for _ in cells], [0.0] * axes, [1.0] * axes,
                output=rng.integers(0, 2, 600), weight=rng.uniform(-1, 1, 600))  # fmt: skip
    assert compiled._spreads(terms.outputs * math.prod(cells), rows, terms)
    found = []
    for size in (compiled._SPREAD_BYTES, 0):
        monkeypatch.setattr(compiled, "_SPREAD_BYTES", size)
        found.append(np.zeros(terms.min_state_size, dtype=np.int64))
        add_rows_compiled(found[-1], rows, terms)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], states(rows, terms)[1])


@pytest.mark.parametrize("bits", [2, 50, 52])
@pytest.mark.parametrize("made", [splines, moments])
def test_halves_are_rounded_to_even(made, bits):
    """At weights of halves of units, of either sign, up to the largest products that fit."""
    terms = made((2, 3), 1, bits)
    quarters = np.array([0.125, 0.25, 0.375, 0.5, 0.0, 1.0, 0.75, 0.875])
    points = np.column_stack([quarters, quarters[::-1]])
    for weight in (1.0, -1.0, 0.375, -0.625, 2.0**-bits, -(2.0**-bits), 1.5 * 2.0**-bits):
        rows = unit_rows(points, weight=np.full(len(points), weight))
        fast, slow = states(rows, terms)
        np.testing.assert_array_equal(fast, slow)


@pytest.mark.slow
@pytest.mark.parametrize("splines", [True, False])
def test_no_operation_is_fused(splines):
    run = (compiled._run_splines if splines else compiled._run_moments)(2)
    made = numba.njit(compiled._signature(2, splines), **compiling._OPTIONS)(run)
    code = "".join(made.inspect_asm().values())
    assert "mulpd" in code or "fmul" in code  # else this test looks at nothing
    assert not re.search(r"\bv?f(n?m(add|sub|la|ls))", code)


def test_columns_of_any_stride_and_read_only_ones_are_taken():
    terms = splines((5, 3), 2, 40)
    points = np.random.default_rng(0).random((900, 2))
    fast, slow = states(unit_rows(points), terms)
    np.testing.assert_array_equal(fast, slow)
    frozen = points.T.copy()
    frozen.flags.writeable = False
    rows = Rows(list(frozen), [0.0] * 2, [1.0] * 2)
    np.testing.assert_array_equal(states(rows, terms)[0], slow)


def test_what_would_leave_the_arrays_is_refused():
    terms = moments((5, 7), 2, 40, outputs=2)
    half = np.full(4, 0.5)

    def rows(columns=(half, half), **others):
        return Rows(list(columns), [0.0] * 2, [1.0] * 2, **others)

    state = np.zeros(terms.min_state_size, dtype=np.int64)
    for bad in (
        rows((half, half[:3])),
        rows(output=np.array([0, 1, 2, 0])),
        rows(output=np.array([0, 1, -1, 0])),
        rows(weight=np.ones(3)),
        rows(counts=np.ones(5, dtype=bool)),
    ):
        with pytest.raises(IndexError):
            add_rows_compiled(state, bad, terms)
    with pytest.raises(IndexError):
        add_rows_compiled(state[:-1], rows(), terms)
    with pytest.raises(IndexError):
        add_rows_compiled(np.zeros(2 * terms.min_state_size, dtype=np.int64)[::2], rows(), terms)
    assert not state.any()
    add_rows_compiled(state, rows(output=np.array([0, 1, 1, 0])), terms)
    assert state.any()


def test_the_first_few_records_of_a_process_wait_for_no_compiled_loops(monkeypatch):
    ways, terms = [], splines((5, 3), 2, 17)
    rows = unit_rows(np.full((100, 2), 0.3))
    monkeypatch.delitem(sys.modules, "dbern.measure.loops")
    monkeypatch.setattr(dispatching, "_FEW_ADDITIONS", 2 * 100 * len(terms.indices))
    monkeypatch.setattr(dispatching, "_additions", [0])
    monkeypatch.setattr(dispatching, "add_rows_plainly", lambda *_: ways.append("plainly"))
    monkeypatch.setattr(compiled, "add_rows_compiled", lambda *_: ways.append("compiled"))
    monkeypatch.setattr("dbern.measure.loops", compiled)
    for _ in range(3):
        dispatching.add_rows(np.zeros(terms.min_state_size, dtype=np.int64), rows, terms)
    assert ways == ["plainly", "plainly", "compiled"]
    monkeypatch.setitem(sys.modules, "dbern.measure.loops", compiled)
    monkeypatch.setattr(dispatching, "_additions", [0])
    dispatching.add_rows(np.zeros(terms.min_state_size, dtype=np.int64), rows, terms)
    assert ways[3:] == ["compiled"]  # they are there


def test_the_first_few_are_checked_too(monkeypatch):
    monkeypatch.delitem(sys.modules, "dbern.measure.loops")
    monkeypatch.setattr(dispatching, "_additions", [0])
    terms = splines((5,), 2, 17)
    with pytest.raises(IndexError, match="too small"):
        dispatching.add_rows(np.zeros(2, dtype=np.int64), unit_rows(np.full((9, 1), 0.3)), terms)
