"""B-spline bins: weights, sensitivities, and the error of what is made of them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbern.bernstein.basis import INTERPOLATED, bernstein_basis, iterated_basis, iterated_matrix
from dbern.bernstein.kernels import Gaussian, kernel_of
from dbern.bernstein.splines import _cell_of, bin_matrix, local_weights
from dbern.certify.bias_envelopes import largest_errors
from dbern.reconstruct import axis_maps
from dbern.reconstruct import bins as module
from dbern.reconstruct.axis_maps import released_translates
from dbern.reconstruct.bins import (
    AxisBins,
    axis_bins,
    bump_blocks,
    fitted_values,
    lattice_bumps,
    lattice_miss,
)


def b_spline(x: Fraction, degree: int) -> Fraction:
    """The uniform B-spline on [0, degree + 1], by its definition as a repeated box."""
    if degree == 0:
        return Fraction(int(0 <= x < 1))
    left, right = b_spline(x, degree - 1), b_spline(x - 1, degree - 1)
    return (x * left + (degree + 1 - x) * right) / degree


@pytest.mark.slow
@settings(max_examples=60)
@given(cells=st.integers(1, 30), degree=st.integers(0, 7), position=st.fractions(0, 1).map(float))
def test_weights_are_b_splines(cells, degree, position):
    weights = bin_matrix(np.array([position]), cells, degree)[0]
    cell = min(int(Fraction(position) * cells), cells - 1)
    place = Fraction(position) * cells
    if place == cells:  # the right end belongs to the last cell
        place -= Fraction(1, 10**30)
    for j, weight in enumerate(weights):
        exact = b_spline(place - j + degree, degree)
        assert abs(weight - float(exact)) < 1e-12, (j, cell)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(1, 2000), st.integers(0, 7))
def test_weights_are_nonnegative_and_sum_to_one(positions, cells, degree):
    values = bin_matrix(np.array(positions), cells, degree)
    assert (values >= 0).all()
    assert np.abs(values.sum(axis=1) - 1).max() <= 4 * (degree + 1) * 2.0**-52


@given(st.floats(0, 1), st.integers(1, 10**6))
def test_every_position_has_a_cell(position, cells):
    cell, offset = _cell_of(np.array([position]), cells)
    assert 0 <= cell[0] < cells
    assert -1 <= offset[0] <= 1


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 5, 7])
def test_the_largest_l2_norm_is_that_of_a_dense_grid(degree):
    bins = AxisBins(4, degree, b"")
    dense = np.stack(local_weights(np.linspace(-1, 1, 20001), degree))
    largest = np.sqrt(np.square(dense).sum(axis=0).max())
    assert largest <= bins.largest_l2 <= 1.01 * largest


@pytest.mark.sample(test=1)
@pytest.mark.parametrize(
    ("bandwidth", "k", "cells", "degree"),
    [(0.1, 30, 12, 2), (0.3, 12, 3, 5), (0.05, 60, 25, 3), (0.1, 40, 12, 7)],
)
@pytest.mark.parametrize("h", [None, 8])
@pytest.mark.parametrize("name", ["gaussian", "laplace", "matern-5/2", "triangle", "epanechnikov"])
def test_the_error_bounds_a_dense_grid(bandwidth, k, cells, degree, h, name):
    kernel = kernel_of(name, bandwidth)
    bins = axis_bins(kernel, k, cells, degree, h)
    y, t = np.linspace(0, 1, 301), np.linspace(0, 1, 487)
    made = released_translates(kernel, iterated_basis(y, k, 8), bins, t)
    worst = np.abs(kernel(y[:, None] - t) - made).max()
    assert worst <= largest_errors(kernel, k, 8, bins).max() <= 1.1 * worst


def test_the_matrix_has_the_least_squared_error_unshrunk():
    """Any other does worse on point masses, the ends half a cell heavier; nothing shrinks it."""
    kernel, k, cells, degree = Gaussian(0.1), 20, 8, 5
    bins = axis_bins(kernel, k, cells, degree)
    (block,) = bump_blocks(kernel)
    t, bumps = block.t, lattice_bumps(kernel, k, None, block)
    beta = bin_matrix(t, cells, degree).T

    weights = np.ones(len(t))
    weights[[0, -1]] += len(t) / cells / 2

    def error(matrix):
        return float((weights * np.square(bumps - matrix @ beta)).sum())

    best, rng = error(bins.synthesis), np.random.default_rng(0)
    for _ in range(20):
        assert error(bins.synthesis + 1e-4 * rng.normal(size=bins.synthesis.shape)) > best


@pytest.mark.parametrize(("degree", "cells"), [(1, 14), (2, 13), (3, 15), (5, 15)])
def test_records_at_the_ends_are_met_better_than_others(degree, cells):
    """Where values are clamped to: without a weight of their own they are met worst of all."""
    kernel, k, h = Gaussian(0.1), 40, 48
    bins = axis_bins(kernel, k, cells, degree, h)
    y, t = np.linspace(0, 1, 201), np.linspace(0, 1, 401)
    made = bernstein_basis(y, k) @ iterated_matrix(k, h) @ bins.synthesis
    missed = np.abs(kernel(y[:, None] - t) - made @ bin_matrix(t, cells, degree).T).max(axis=0)
    assert max(missed[0], missed[-1]) < 0.6 * missed[100:301].max()


@pytest.mark.parametrize("name", ["laplace", "triangle", "epanechnikov"])
def test_records_at_the_ends_are_met_ten_times_better_where_a_slope_jumps(name):
    """Narrow bins that are fitted beside an end, not at it, miss what is clamped there by most."""
    kernel, k, cells = kernel_of(name, 0.03), 2000, 320
    made = axis_bins(kernel, k, cells, 2, INTERPOLATED).synthesis
    y, t = np.arange(k + 1) / k, np.linspace(0, 1, 2001)
    missed = np.abs(kernel(y[:, None] - t) - made @ bin_matrix(t, cells, 2).T).max(axis=0)
    assert max(missed[0], missed[-1]) < 0.1 * missed[500:1501].max()


@pytest.mark.parametrize(("bandwidth", "k"), [(0.1, 40), (0.06, 80)])
def test_fitted_lattice_values_need_a_coarser_lattice(bandwidth, k):
    kernel, h = Gaussian(bandwidth), 48
    (block,) = bump_blocks(kernel)
    t, fitted = block.t, lattice_bumps(kernel, k, h, block)
    plain = kernel(np.arange(k + 1)[:, None] / k - t)
    y = np.linspace(0, 1, 301)
    operator = bernstein_basis(y, k) @ iterated_matrix(k, h)
    errors = [np.abs(kernel(y[:, None] - t) - operator @ each).max() for each in (plain, fitted)]
    assert errors[1] < 1e-2 * errors[0]
    assert np.abs(fitted).max() <= 1.1 * kernel.peak
    assert lattice_miss(kernel, k, h) == pytest.approx(errors[1], rel=0.5)


@pytest.mark.parametrize(("bandwidth", "k", "h"), [(0.1, 20, 48), (0.013, 400, 48), (0.05, 90, 3)])
def test_lattices_miss_most_of_bumps_in_the_middle(bandwidth, k, h):
    kernel, t = Gaussian(bandwidth), np.linspace(0, 1, 1001)
    made = iterated_basis(t, k, h) @ fitted_values(kernel, k, h, t)
    missed = np.abs(kernel(t[:, None] - t) - made).max()
    assert missed > 1e-4 * kernel.peak
    assert lattice_miss(kernel, k, h) == pytest.approx(missed, rel=0.02)


@pytest.mark.parametrize("bandwidth", [0.1, 0.01169])  # fitted at an odd number of places
def test_bins_in_blocks_are_the_same(bandwidth, monkeypatch):
    kernel, k, h = Gaussian(bandwidth), 41, 12
    t = np.linspace(0, 1, 100)

    def made():
        for cached in (axis_bins, lattice_bumps):
            cached.cache_clear()
        axis = axis_bins(kernel, k, 9, 3, h)
        rows = iterated_basis(np.linspace(0, 1, 7), k, h)
        released = [released_translates(kernel, rows, bins, t) for bins in (axis, None)]
        return [axis.synthesis, *released]

    whole = made()
    assert len(bump_blocks(kernel)) == 1
    monkeypatch.setattr(module, "_NODES_TOGETHER", 7)
    monkeypatch.setattr(axis_maps, "TRANSLATES_TOGETHER", 7)
    blocks = bump_blocks(kernel)
    assert len(blocks) > 4
    every = np.sort(np.concatenate([block.index for block in blocks]))
    assert every.tolist() == list(range(blocks[0].count))
    for before, after in zip(whole, made(), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-9 * kernel.peak)
    for cached in (axis_bins, lattice_bumps):
        cached.cache_clear()


def test_fewer_singular_vectors_are_a_smoother_matrix():
    bins = axis_bins(Gaussian(0.1), 20, 8)
    assert bins.using(10).synthesis is not bins.synthesis
    np.testing.assert_array_equal(bins.using(0).synthesis, bins.synthesis)
    assert np.linalg.matrix_rank(bins.using(3).synthesis) == 3
    assert AxisBins.from_dict(bins.to_dict()) == bins
