"""Matrices of Bernstein bases and bins on arrays small enough to do by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dbern.bernstein.basis import bernstein_mixtures, iterate, iterated_matrix
from dbern.bernstein.blocks import ArrayBlocks, on_axes, on_others
from dbern.bernstein.chebyshev import chebyshev, enclosing_nodes
from dbern.bernstein.kernels import Epanechnikov, Laplace
from dbern.bernstein.oblique import Oblique, decorrelate
from dbern.bernstein.parity import by_parity, of_parities, parities, with_mirrored
from dbern.bernstein.reproducing import ArcCosine, Gaussian, Stationary, box_radius
from dbern.bernstein.shapes import _isotonic, monotone, positive_mean, value_range
from dbern.bernstein.splines import bin_products, local_weights, solved_in_blocks
from dbern.certify.balls import StatedBall
from dbern.certify.lower_bounds import GroupPrivacy, _tensor_steps
from dbern.measure.rows import strides
from dbern.reconstruct.gram import lattice_sup_norm
from dbern.reconstruct.moments import product_names


def test_mixtures_of_a_straight_basis_are_means():
    values = bernstein_mixtures(np.array([0.25, 1.0]), 1, np.array([[4.0], [8.0]]))
    assert values.tolist() == [[5.0], [8.0]]


def test_the_first_order_changes_no_coefficient():
    assert np.allclose(iterated_matrix(4, 1), np.eye(5))
    assert iterate(np.array([0.0, 1.0, 0.0]), [1]).tolist() == [0.0, 1.0, 0.0]


def test_a_mirrored_matrix_acts_on_even_and_odd_vectors_apart():
    even, odd = by_parity(np.array([[3.0, 1.0], [1.0, 3.0]]))
    assert even.round(12).tolist() == [[4.0]]
    assert odd.round(12).tolist() == [[2.0]]


def test_parities_are_orthonormal_and_merge_to_the_vector():
    vector = np.array([1.0, 2.0, 3.0])
    even, odd = parities(vector)
    assert even.tolist() == pytest.approx([8**0.5, 2.0])
    assert odd.tolist() == pytest.approx([-(2**0.5)])
    assert of_parities(even, odd).tolist() == pytest.approx(vector.tolist())


def test_half_of_the_rows_make_the_others():
    rows = with_mirrored(np.array([[1.0, 2.0], [3.0, 4.0]]), 3)
    assert rows.tolist() == [[1.0, 2.0], [3.0, 4.0], [2.0, 1.0]]


def test_matrices_apply_to_their_axes():
    first, second = np.array([[1.0], [10.0]]), np.array([[1.0, 1.0]])
    assert on_axes(np.array([[1.0, 2.0]]), [first, second]).tolist() == [[3.0], [30.0]]
    turned = on_others(np.array([[1.0, 2.0]]), [np.array([[1.0, 1.0], [1.0, -1.0]])])
    assert turned.tolist() == [[3.0, -1.0]]


def test_blocks_are_read_in_order():
    whole = np.arange(6.0).reshape(3, 2)
    blocks = ArrayBlocks((3, 2), 2, whole)
    read = [(layers, part.tolist()) for layers, part in blocks]
    assert read == [(slice(0, 2), [[0.0, 1.0], [2.0, 3.0]]), (slice(2, 3), [[4.0, 5.0]])]


def test_enclosing_nodes_are_eight_a_degree():
    nodes, factor = enclosing_nodes(10)
    assert nodes.shape == (80,)
    assert round(factor, 3) == 1.02


def test_splines_in_the_middle_of_a_cell():
    assert [float(w[0]) for w in local_weights(np.array([0.0]), 2)] == [0.125, 0.75, 0.125]


def test_products_of_bins_are_summed_by_weights():
    t, values = np.array([0.25, 0.75]), np.array([[1.0, 3.0]])
    of_bins, of_values = bin_products(t, np.ones(2), values, cells=1, degree=1)
    assert of_bins.tolist() == [[0.625, 0.375], [0.375, 0.625]]
    assert of_values.tolist() == [[1.5], [2.5]]


def test_chebyshev_analysis_finds_the_polynomial():
    nodes, analysis = chebyshev(3)
    assert (analysis @ (2 * nodes**2 - 1)).tolist() == pytest.approx([0.0, 0.0, 1.0], abs=1e-12)


def test_equations_in_blocks_have_the_solution():
    solution = solved_in_blocks(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[3.0], [0.0]]))
    assert solution.round(12).tolist() == [[2.0], [-1.0]]


def test_kernels_have_the_peaks_and_slopes_of_their_formulas():
    kernel = Epanechnikov(0.5)
    assert (round(kernel.peak, 6), round(kernel.slope, 6)) == (1.5, 6.0)
    assert (round(Laplace(0.1).peak, 6), round(Laplace(0.1).slope, 6)) == (5.0, 50.0)


def test_oblique_coordinates_fill_the_unit_cube():
    shear = Oblique(((1.0, 0.0), (-0.5, 1.0)))
    assert (shear.low, shear.width) == ((0.0, -0.5), (1.0, 1.5))
    assert shear.positions(np.eye(2)).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_covariance_is_decorrelated_into_the_smallest_box():
    covariance = [[Fraction(1, 25), Fraction(1, 50)], [Fraction(1, 50), Fraction(1, 50)]]
    shear, deviations = decorrelate(covariance)
    assert shear.rows == ((1.0, 0.0), (-0.5, 1.0))
    assert [round(deviation, 4) for deviation in deviations] == [0.2, 0.0667]


def test_the_radius_of_a_box_is_that_of_its_farthest_corner():
    assert round(box_radius([0.0, -2.0], [1.0, 1.0]), 6) == 2.236068


def test_reproducing_kernels_have_the_values_of_their_formulas():
    zero, half = np.zeros((1, 2)), np.array([[0.5, 0.0]])
    assert Gaussian((0.5, 0.5))(zero, half).tolist() == [pytest.approx([np.exp(-0.5)])]
    laplace = Stationary("laplace", (0.5,))(zero[:, :1], half[:, :1])
    assert laplace.tolist() == [pytest.approx([np.exp(-1.0)])]
    opposite = ArcCosine()(np.array([[3.0, 4.0]]), np.array([[3.0, 4.0], [-3.0, -4.0]]))
    assert opposite.tolist() == [pytest.approx([25.0, 0.0], abs=1e-9)]


def test_monotone_coefficients_are_ordered_and_near():
    assert _isotonic(np.array([0.0, 3.0, 1.0, 4.0])).tolist() == [0.0, 2.0, 2.0, 4.0]
    shaped, moved = monotone(np.array([0.0, 1.0, 0.5]), 0, 1)
    assert (np.diff(shaped) >= 0).all()
    assert 0.0 < moved < 0.1


def test_a_polynomial_is_enclosed():
    low, high = value_range(np.array([0.0, 2.0, 0.0]))
    assert -0.02 < low <= 0.0
    assert 1.0 <= high < 1.02


def test_the_mean_of_a_positive_part_is_enclosed():
    mean, gap = positive_mean(np.array([-1.0, 1.0]))
    assert abs(mean - 0.25) < 1e-6
    assert 0 <= gap < 1e-6


def test_strides_are_those_of_a_contiguous_array():
    assert strides((2, 3, 4)) == [12, 4, 1]


def test_a_stated_ball_knows_the_planned_bound_alone():
    ball = StatedBall(size=2.0, k=(4,), h=(2,), rank=0, planned=0.1)
    assert ball.error([4], [2], [None]) == 0.1
    assert 4.0 <= ball.error([4], [1], [None]) < 5


def test_the_identity_on_a_lattice_has_a_norm_near_one():
    assert 1.0 <= lattice_sup_norm([4, 4], [1, 1], np.eye(25)) < 1.4


def test_the_steps_of_the_tensor_bound():
    assert _tensor_steps(10, GroupPrivacy(epsilon=1.0, beta=0.05, n=10_000)) == 10


def test_products_are_named_row_by_row():
    assert product_names(["x", "y"]) == ["x^2", "x * y", "y^2"]
