"""Ranges and means of polynomials: they enclose what dense points find."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.shapes import positive_mean, value_range

pytestmark = pytest.mark.slow  # searches

NUMBERS = st.floats(-5, 5, width=32)
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
