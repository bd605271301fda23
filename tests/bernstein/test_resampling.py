"""Pieces against the polynomial they stand for, and every constant in the bound of their error."""

from __future__ import annotations

import math

import numpy as np
import pytest
import twins
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dbern.bernstein import pieces as resampling
from dbern.bernstein.basis import bernstein_basis, iterate
from dbern.bernstein.pieces import TOLERANCE, resample
from dbern.synopsis.evaluate import Polynomial, evaluate

ENDS = [0.0, 1.0, 0.5, 5e-324, 1e-310, 2.3e-308, 1e-17, 1 - 2**-53, 0.5 + 2**-53, 0.5 - 2**-54]
KINDS = ["noise", "spike", "smooth", "zero", "constant", "tiny"]


def lattice_values(kind, shape, seed):
    generator = np.random.default_rng(seed)
    if kind == "noise":
        return generator.laplace(size=shape)
    if kind == "spike":
        values = np.zeros(shape)
        values[tuple(generator.integers(0, n) for n in shape)] = 1.0
        return values
    if kind == "smooth":
        axes = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
        return 3 + np.exp(-sum((axis - 0.4) ** 2 for axis in axes) / 0.02)
    return {"zero": 0.0, "constant": -7.5, "tiny": 1e-290}[kind] * np.ones(shape)


def points_for(pieces, seed, count=300):
    """Places where something could go wrong, and others, in random company."""
    generator = np.random.default_rng(seed)
    columns = []
    for cells in pieces.cells:
        edges = (np.arange(cells // 2 + 1) / (cells // 2)) ** 2 / 2
        edges = np.concatenate([edges, 1 - edges])
        beside = np.clip([edges, np.nextafter(edges, 2), np.nextafter(edges, -1)], 0, 1)
        special = np.concatenate([ENDS, beside.ravel()])
        columns.append(
            np.concatenate([generator.permutation(special)[:count], generator.random(count)])
        )
    length = min(len(column) for column in columns)
    return np.column_stack([generator.permutation(column)[:length] for column in columns])


def roundings(bernstein):
    """Of the slow way and of the fast one: some for each term of each axis."""
    return 4 * 2**-52 * (sum(bernstein.shape) + 60) * np.abs(bernstein).max()


def largest(bernstein):
    grids = [(1 - np.cos(np.linspace(0, np.pi, 4 * n + 1))) / 2 for n in bernstein.shape]
    return np.abs(Polynomial(bernstein, None).grid(grids)).max()


SHAPES = st.one_of(
    st.tuples(st.integers(1, 200)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.tuples(st.integers(1, 8), st.integers(1, 12), st.integers(1, 12)),
)


@pytest.mark.slow
@example(k=(1000,), h=1, kind="spike", seed=1)
@example(k=(1, 1000), h=2, kind="noise", seed=2)
@example(k=(1,), h=1, kind="noise", seed=3)
@example(k=(1, 1, 1), h=50, kind="spike", seed=4)
@example(k=(20, 20, 20), h=4, kind="noise", seed=5)
@settings(max_examples=30)
@given(k=SHAPES, h=st.integers(1, 50), kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32))
def test_pieces_are_the_polynomial_within_their_error(k, h, kind, seed):
    compare(k, h, kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [(1000,), (3, 1000), (30, 30, 30)])
def test_so_they_are_at_the_largest_degree_and_order(k, kind):
    compare(k, 50, kind, seed=0)


def compare(k, h, kind, seed):
    values = lattice_values(kind, [count + 1 for count in k], seed)
    bernstein = iterate(values, [h] * len(k))
    pieces = resample(bernstein)
    top = largest(bernstein)
    if pieces is None:  # only where cancellation leaves nothing to be accurate about
        assume(roundings(bernstein) > TOLERANCE * top / 100)
        return
    points = points_for(pieces, seed)
    slow = evaluate(bernstein, points)
    fast = twins.evaluate_pieces(pieces, points, [0.0] * len(k), [1.0] * len(k))
    assert np.abs(fast - slow).max() <= pieces.error + roundings(bernstein)
    assert pieces.error <= TOLERANCE * top * 1.1
    assert pieces.table.size <= 1 << 24


@pytest.mark.parametrize("half", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("order", [8, 12, 16])
@pytest.mark.parametrize("k", [7, 20, 64, 300])
def test_the_bound_along_an_axis_holds_and_is_no_larger_than_it_must_be(k, order, half):
    """Also with far too few cells, where the second part of the bound is the larger."""
    generator = np.random.default_rng(k * order)
    values = generator.choice([-1.0, 1.0], size=(k + 1, 5))
    y = np.concatenate([np.linspace(0, 1, 3001), ENDS])
    truth = bernstein_basis(y, k) @ values
    maps = resampling._powers(k, half, order)
    for column, line in zip(truth.T, values.T, strict=True):
        pieces = resampling.Pieces((2 * half,), order, np.asarray(maps @ line), 0.0)
        found = twins.evaluate_pieces(pieces, y[:, None], [0.0], [1.0])
        error, bound = (
            np.abs(found - column).max(),
            resampling._axis_error(line[:, None], half, order),
        )
        assert error <= bound + 1e-11
        if 1e-8 < bound < 0.1:
            assert bound <= 6 * error


def test_the_tail_bounds_interpolation():
    """In a few nodes, for the worst signs of the coefficients at each place."""
    informative = 0
    for k, half, nodes in [
        (5, 1, 8),
        (20, 2, 8),
        (20, 3, 6),
        (100, 8, 8),
        (1, 1, 2),
        (400, 9, 12),
    ]:
        interpolant = resampling._spectrum(k, half, nodes)
        x = np.cos(np.linspace(0, np.pi, 400))
        powers = np.cos(np.arange(nodes)[:, None] * np.arccos(x))
        for cell in range(half):
            s = (cell + 0.5 + x / 2) / (half * math.sqrt(2))
            missed = bernstein_basis(np.abs(s) ** 2, k) - powers.T @ interpolant[cell]
            worst = np.abs(missed).sum(axis=1).max()
            bound = resampling._tail(k, half, nodes)
            assert worst <= bound + 1e-12
            informative += worst > bound / 5
    assert informative


@pytest.mark.parametrize("order", [order for order, _ in resampling._CHOICES])
def test_the_norm_of_cutting_an_interpolant(order):
    """The largest sum of ``|K(t, u_i)| / n``, by a grid and Bernstein's bound of a derivative."""
    n, angles = 2 * order, (np.arange(2 * order) + 0.5) * np.pi / (2 * order)
    step = np.pi / 20000
    place = np.arange(0, np.pi, step)
    terms = np.arange(1, order)
    kernel = 1 + 2 * np.cos(place[:, None] * terms) @ np.cos(terms[:, None] * angles)
    sums = np.abs(kernel).sum(axis=1) / n
    slope = order * math.sqrt(2 * order)  # a trigonometric polynomial below `order`, at most that
    assert sums.max() + slope * step / 2 <= resampling._PROJECTION_NORM
    assert np.sqrt((kernel**2).mean(axis=1)).max() <= math.sqrt(2 * order)  # Cauchy and Schwarz


def test_other_axes_are_enclosed_and_the_largest_value_is_not_overestimated():
    """A Chebyshev polynomial, whose extrema fall halfway between the nodes."""
    k = 12
    chebyshev = [(-1) ** (k - v) * math.comb(2 * k, 2 * v) / math.comb(k, v) for v in range(k + 1)]
    bernstein = np.outer([1.0, 1.0, 1.0], chebyshev)
    lines, largest = resampling._lines(bernstein)
    on_nodes = [np.abs(values).max() for values, _ in lines]
    assert on_nodes[0] == pytest.approx(math.sqrt(0.5), abs=1e-9)
    assert on_nodes[0] * lines[0][1] == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(lines[1][0], np.array(chebyshev)[:, None] * np.ones(8 // 2))
    assert largest <= 1.0


def test_a_table_that_would_be_too_large_is_not_made(monkeypatch):
    noise = np.random.default_rng(1).normal(size=(41, 41))
    monkeypatch.setattr(resampling, "_CHOICES", ((8, 1000), (12, 60_000), (16, 60_000)))
    found = resample(noise)
    assert found is not None
    assert (found.order, found.table.size <= 60_000) == (12, True)
    monkeypatch.setattr(resampling, "_CHOICES", ((8, 1000), (12, 1000)))
    assert resample(noise) is None
    monkeypatch.undo()
    assert resample(np.zeros((131, 131, 131))) is None
    assert resample(np.zeros((2, 2, 2, 2))) is None
