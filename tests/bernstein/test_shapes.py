"""Shapes of polynomials: exact on dense points, and no step moves more than it says."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.shapes import (
    _isotonic,
    _raised_degree,
    monotone,
    positive_mean,
    value_range,
)

pytestmark = pytest.mark.slow  # searches

NUMBERS = st.floats(-5, 5, width=32)
SEQUENCES = arrays(np.float64, st.integers(2, 12), elements=NUMBERS)
POLYNOMIALS = arrays(
    np.float64,
    st.one_of(
        st.tuples(st.integers(2, 14)),
        st.tuples(st.integers(2, 7), st.integers(2, 7)),
        st.tuples(*[st.integers(2, 4)] * 3),
    ),
    elements=NUMBERS,
)


def on_grid(bernstein, count):
    values = bernstein
    for _ in range(bernstein.ndim):
        basis = bernstein_basis(np.linspace(0, 1, count), values.shape[0] - 1)
        values = np.tensordot(values, basis, axes=(0, 1))
    return values


def dense(bernstein):
    return on_grid(bernstein, {1: 997, 2: 83, 3: 29}[bernstein.ndim])


@given(SEQUENCES, st.data())
def test_isotonic_is_the_sup_norm_projection(a, data):
    """No nondecreasing sequence is nearer, and none gets further away: the proof's two halves."""
    found = _isotonic(a)
    assert (np.diff(found) >= 0).all()
    np.testing.assert_array_equal(_isotonic(found), found)
    other = np.sort(data.draw(arrays(np.float64, len(a), elements=NUMBERS)))
    apart = np.abs(a - other).max()
    assert np.abs(found - other).max() <= apart + 1e-12
    assert np.abs(found - a).max() <= apart + 1e-12


@pytest.mark.parametrize(("k", "degree"), [(1, 1), (3, 24), (40, 320), (500, 1000), (999, 1000)])
def test_a_raised_degree_is_exact_to_the_slack(k, degree):
    matrix = _raised_degree(k, degree)
    for v in {0, 1, degree // 3, degree // 2, degree}:
        for j in range(0, k + 1, max(1, k // 20)):
            exact = Fraction(0)
            if 0 <= v - j <= degree - k:
                exact = Fraction(comb(k, j) * comb(degree - k, v - j), comb(degree, v))
            assert abs(matrix[v, j] - float(exact)) * (k + 1) < 2.0**-32


@given(POLYNOMIALS, st.data())
@settings(max_examples=60)
def test_monotone_holds_everywhere_and_moves_no_more_than_it_says(a, data):
    axis = data.draw(st.integers(0, a.ndim - 1))
    sign = data.draw(st.sampled_from([1, -1]))
    found, moved = monotone(a, axis, sign)
    shaped, raw = dense(found), dense(a)
    assert (sign * np.diff(shaped, axis=axis)).min() >= -1e-12
    actual = np.abs(shaped - raw).max()
    assert actual <= moved
    assert moved <= 1.05**a.ndim * actual + 0.2 * np.abs(a).max()


@given(POLYNOMIALS)
@settings(max_examples=30)
def test_axes_made_monotone_stay_so(a):
    directions = [1, -1, 1][: a.ndim]
    for axis, sign in enumerate(directions):
        a, _ = monotone(a, axis, sign)
    for axis, sign in enumerate(directions):
        assert (sign * np.diff(dense(a), axis=axis)).min() >= -1e-12


def test_what_is_monotone_already_is_hardly_moved():
    """x + sin(12 x) / 13 increases, and its coefficients at its own degree 24 do not."""
    k = 24
    nodes = np.arange(k + 1) / k
    a = np.linalg.solve(bernstein_basis(nodes, k), nodes + np.sin(12 * nodes) / 13)
    assert np.diff(on_grid(a, 2001)).min() > 0
    assert np.diff(a).min() < -0.02
    _, moved = monotone(a, 0, 1)
    assert moved < 0.01 < np.abs(on_grid(_isotonic(a) - a, 2001)).max()


@given(POLYNOMIALS)
def test_the_range_encloses_every_value(a):
    low, high = value_range(a)
    values = dense(a)
    assert low <= values.min() + 1e-13
    assert values.max() <= high + 1e-13
    assert high - low <= 1.03**a.ndim * (values.max() - values.min()) + 0.05 * np.ptp(a) + 1e-12


@given(POLYNOMIALS)
@settings(max_examples=20)
def test_the_mean_of_the_positive_part_is_enclosed(a):
    mean, gap = positive_mean(a)
    assert 0 <= gap <= 1e-3 * np.abs(a).max() + 1e-12
    assert max(0.0, a.mean()) <= mean + 1e-12
    count = {1: 4001, 2: 301, 3: 61}[a.ndim]
    values = np.maximum(on_grid(a, count), 0.0)
    for _ in range(a.ndim):
        values = np.trapezoid(values, dx=1 / (count - 1), axis=0)
    degrees = sum(n - 1 for n in a.shape)
    rule = degrees**2 * np.ptp(a) / count**2 * 4  # the trapezoidal rule's own error
    assert mean - rule - 1e-12 <= values <= mean + gap + rule + 1e-12


@given(POLYNOMIALS)
@settings(max_examples=20)
def test_few_cells_enclose_what_many_find(a):
    fine, rest = positive_mean(a)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbern.bernstein.shapes._CELLS", 4**a.ndim + 1)
        coarse, gap = positive_mean(a)
    assert coarse <= fine + rest + 1e-12
    assert fine <= coarse + gap + 1e-12


def test_the_positive_mean_of_many_nodes_is_summed_in_layers(monkeypatch):
    a = np.random.default_rng(3).normal(size=(9, 6))
    whole = positive_mean(a)
    monkeypatch.setattr("dbern.bernstein.shapes._MOST_VALUES", 40)
    np.testing.assert_allclose(positive_mean(a), whole, rtol=1e-9)


def test_one_sided_and_large_polynomials(monkeypatch):
    assert positive_mean(np.full(5, -2.0))[0] == 0.0
    mean, gap = positive_mean(np.array([1.0, 2.0, 6.0]))
    assert abs(mean - 3.0) < 1e-12
    assert gap < 1e-6
    monkeypatch.setattr("dbern.bernstein.shapes._MOST_VALUES", 9)
    a = np.array([0.0, 2.0, -1.0, 3.0, 0.5, 0.25])
    assert value_range(a) == (-1.0, 3.0)  # too many nodes: the coefficients themselves
    found, moved = monotone(a, 0, 1)
    assert np.abs(dense(found) - dense(a)).max() <= moved
