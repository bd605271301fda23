"""Basis and iterated operator against Definitions 3 to 6 in rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import chebyshev

from dbern.bernstein.basis import (
    MOST_H,
    MOST_K,
    bernstein_basis,
    bernstein_mixtures,
    by_parity,
    iterate,
    iterated_basis,
    iterated_matrix,
    of_parities,
    parities,
)
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.splines import bin_products, solve_in_blocks
from dbern.reconstruct.series import Series, lebesgue_constant

POINTS = [Fraction(0), Fraction(1), Fraction(1, 2), Fraction(1, 64), Fraction(45, 128)]
FLOATS = np.array([float(y) for y in POINTS])
DENSE = np.concatenate([np.linspace(0, 1, 4001), np.geomspace(1e-12, 1e-3, 100)])
LARGE = [64, 257, 1000]


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 12])
def test_the_basis_is_definition_3(k):
    exact = np.array([[float(b) for b in reference.basis(y, k)] for y in POINTS])
    np.testing.assert_allclose(bernstein_basis(FLOATS, k), exact, rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    ("k", "h"), [(1, 1), (1, 3), (2, 2), (3, 5), (4, 10), (6, 3), (8, 2), (12, 4)]
)
def test_the_iterated_basis_is_the_alternating_sum_of_definition_5(k, h):
    exact = np.array([[float(b) for b in reference.iterated_basis(y, k, h)] for y in POINTS])
    np.testing.assert_allclose(iterated_basis(FLOATS, k, h), exact, atol=1e-12)


@pytest.mark.parametrize(
    ("f", "k", "h", "y"),
    [
        (lambda p, q: 1 / (1 + p + 2 * q * q), (3, 5), (4, 2), (Fraction(3, 8), Fraction(7, 16))),
        (lambda p, q, r: (p + 2 * q + r) / (1 + p * q + 3 * r), (2, 3, 1), (3, 2, 2),
         (Fraction(3, 8), Fraction(7, 16), Fraction(1, 4))),
    ],
    ids=["two axes", "three axes"],
)  # fmt: skip
def test_iterate_and_basis_give_definition_6_on_more_axes(f, k, h, y):
    exact = reference.iterated_polynomial(f, k, h, y)
    shape = [count + 1 for count in k]
    values = np.array([float(f(*(Fraction(i, c) for i, c in zip(v, k, strict=True))))
                       for v in np.ndindex(*shape)]).reshape(shape)  # fmt: skip
    got = iterate(values, h)
    for t, count in zip(y, k, strict=True):
        got = bernstein_basis(np.array([float(t)]), count)[0] @ got.reshape(count + 1, -1)
    assert got.item() == pytest.approx(float(exact), abs=1e-13)


def test_order_one_leaves_coefficients_alone():
    values = np.random.default_rng(1).normal(size=(4, 6, 3))
    np.testing.assert_array_equal(iterate(values, [1, 1, 1]), values)


@pytest.mark.slow
@pytest.mark.parametrize("k", LARGE)
@pytest.mark.parametrize("h", [1, 2, 7])
def test_rows_sum_to_one_and_linear_functions_are_fixed(k, h):
    y = DENSE[::40]
    rows = iterated_basis(y, k, h)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, atol=2e-11)
    np.testing.assert_allclose(rows @ (np.arange(k + 1) / k), y, atol=2e-11)


@pytest.mark.parametrize("k", LARGE)
def test_the_basis_of_a_large_degree_is_accurate_entry_by_entry(k):
    y = Fraction(45, 128)
    exact = np.array([float(b) for b in reference.basis(y, k)])
    got = bernstein_basis(np.array([float(y)]), k)[0]
    normal = exact > 1e-290
    np.testing.assert_allclose(got[normal], exact[normal], rtol=2e-12)
    assert (got >= 0).all()


@pytest.mark.parametrize("k", [5, 20, 64])
def test_order_fifty_is_stable(k):
    # (I - M)^50 by repeated products: no alternating signs, no doubling.
    step = np.eye(k + 1) - bernstein_basis(np.arange(k + 1) / k, k)
    total = np.eye(k + 1)
    for _ in range(49):
        total = np.eye(k + 1) + step @ total
    np.testing.assert_allclose(iterated_matrix(k, 50), total, atol=1e-10)
    # and exactly, on a linear function and on a quadratic: e_2 is an eigenfunction but for e_1
    nodes = np.arange(k + 1) / k
    quadratic = nodes * (1 - nodes)  # B maps y(1-y) to (1 - 1/k) y(1-y)
    got = iterated_basis(DENSE, k, 50) @ quadratic
    np.testing.assert_allclose(got, (1 - (1 / k) ** 50) * DENSE * (1 - DENSE), atol=1e-11)


@pytest.mark.parametrize("h", [1, 2, 3, 4, 5, 6, 7, 8, 31, 50])
def test_doubling_counts_every_power_once(h):
    k = 9
    step = np.eye(k + 1) - bernstein_basis(np.arange(k + 1) / k, k)
    series = sum(np.linalg.matrix_power(step, i) for i in range(h))
    np.testing.assert_allclose(iterated_matrix(k, h), series, atol=1e-11)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 2, 3), (4, 5, 2), (7, 7, 8), (6, 3, 1)])
def test_products_by_parity_are_those_of_the_whole(rows, inner, columns):
    rng = np.random.default_rng(0)
    left, right = (
        one + one[::-1, ::-1]
        for one in (rng.normal(size=(rows, inner)), rng.normal(size=(inner, columns)))
    )
    parts = [one @ other for one, other in zip(by_parity(left), by_parity(right), strict=True)]
    for one, whole in zip(parts, by_parity(left @ right), strict=True):
        np.testing.assert_allclose(one, whole, atol=1e-13)
    of_any = rng.normal(size=(inner, 4))
    parts = [one @ other for one, other in zip(by_parity(left), parities(of_any), strict=True)]
    np.testing.assert_allclose(of_parities(*parts), left @ of_any, atol=1e-13)
    for one, turned in zip(by_parity(left), by_parity(left.T), strict=True):
        np.testing.assert_allclose(one.T, turned, atol=1e-15)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("k", [60, 5, 400, MOST_K])
def test_any_order_that_can_be_asked_for_keeps_constants(k):
    assert np.abs(iterated_matrix(k, MOST_H).sum(axis=1) - 1).max() < 1e-9
    worse = iterated_matrix(60, 10**12).sum(axis=1)  # which is why there is a largest
    assert np.abs(worse - 1).max() > 1e-6


@given(
    coefficients=st.lists(st.floats(-1, 1), min_size=2, max_size=40),
    spike=st.integers(0, 39),
)
def test_enclosing_nodes_bound_polynomials_everywhere(coefficients, spike):
    coefficients[spike % len(coefficients)] += 1.0
    nodes, factor = enclosing_nodes(len(coefficients) - 1)
    on_nodes = np.abs(chebyshev.chebval(2 * nodes - 1, coefficients)).max()
    everywhere = np.abs(chebyshev.chebval(2 * DENSE - 1, coefficients)).max()
    assert everywhere <= factor * on_nodes * (1 + 1e-12)
    assert factor < 1.03


@pytest.mark.parametrize("degree", [1, 7, 12, 40])
def test_the_enclosing_factor_is_attained_by_a_chebyshev_polynomial(degree):
    nodes, factor = enclosing_nodes(degree)
    on_nodes = np.abs(np.cos(degree * np.arccos(1 - 2 * nodes))).max()
    assert on_nodes < 0.99  # its extrema fall halfway between nodes
    assert on_nodes * factor == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5, 20, 64])
@pytest.mark.parametrize("h", [1, 2, 4, 10, 50])
def test_the_lebesgue_constant_bounds_the_operator_and_is_tight(k, h):
    bound = lebesgue_constant(k, h)
    truth = np.abs(iterated_basis(DENSE, k, h)).sum(axis=1).max()
    assert truth <= bound <= 1.03 * truth
    rng = np.random.default_rng(k * h)
    values = iterated_basis(DENSE, k, h) @ rng.choice([-1.0, 1.0], size=(k + 1, 50))
    assert np.abs(values).max() <= bound


@pytest.mark.parametrize(("k", "h"), [(1, 1), (2, 3), (5, 1), (30, 7), (31, 50), (200, 16)])
def test_a_lebesgue_constant_by_parity_is_that_of_the_whole(k, h):
    whole = Series.of(k, iterated_matrix(k, h)).sup_norm()
    assert lebesgue_constant(k, h) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("k", [255, 256, 700, MOST_K])
def test_mixtures_leave_out_nothing_that_can_be_seen(k):
    """Coefficients of every size and sign, and points from end to end, few and many together."""
    rng = np.random.default_rng(k)
    coefficients = rng.choice([-1.0, 1.0], size=(k + 1, 3)) * 10.0 ** rng.uniform(-3, 3, (k + 1, 3))
    y = np.concatenate([[0.0, 0.0, 1e-300], np.linspace(0, 1, 2100), [1.0]])
    wanted = bernstein_basis(y, k) @ coefficients
    found = bernstein_mixtures(y, k, coefficients)
    assert np.abs(found - wanted).max() <= 1e-14 * np.abs(coefficients).max()


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("cells", [3, 60, 64, 65, 300])
def test_bins_are_solved_for_in_blocks(cells, degree):
    t = (np.arange(6 * cells) + 0.5) / (6 * cells)
    values = np.stack([np.cos(9 * t), t**3, np.ones(len(t))])
    matrix, right = bin_products(t, np.ones(len(t)), values, cells, degree)
    found = solve_in_blocks(matrix, right)
    np.testing.assert_allclose(matrix @ found, right, atol=1e-10 * np.abs(right).max())
    np.testing.assert_allclose(found[:, 2], 1.0, atol=1e-7)  # they sum to one
