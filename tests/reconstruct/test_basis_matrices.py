"""Matrices of Bernstein bases and bins on arrays small enough to do by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dbern.bernstein.basis import by_parity, parities, with_mirrored
from dbern.bernstein.blocks import ArrayBlocks, apply_to_axes, apply_to_others
from dbern.bernstein.chebyshev import chebyshev
from dbern.bernstein.oblique import Oblique, decorrelate
from dbern.bernstein.splines import bin_products, local_weights
from dbern.certify.balls import StatedBall
from dbern.reconstruct.moments import product_names

FLAT = np.array([[1.0, 2.0]])
SHEAR = Oblique(((1.0, 0.0), (-0.5, 1.0)))
COVARIANCE = [[Fraction(1, 25), Fraction(1, 50)], [Fraction(1, 50), Fraction(1, 50)]]
NODES, ANALYSIS = chebyshev(3)
EXACT = {
    "half of the rows make the others": (
        lambda: with_mirrored(np.array([[1.0, 2.0], [3.0, 4.0]]), 3),
        [[1.0, 2.0], [3.0, 4.0], [2.0, 1.0]],
    ),
    "matrices apply to their axes": (
        lambda: apply_to_axes(FLAT, [np.array([[1.0], [10.0]]), np.array([[1.0, 1.0]])]),
        [[3.0], [30.0]],
    ),
    "or to the others": (
        lambda: apply_to_others(FLAT, [np.array([[1.0, 1.0], [1.0, -1.0]])]), [[3.0, -1.0]],
    ),
    "blocks are read in order": (
        lambda: [(layers.start, layers.stop, part.tolist())
                 for layers, part in ArrayBlocks((3, 2), 2, np.arange(6.0).reshape(3, 2))],
        [(0, 2, [[0.0, 1.0], [2.0, 3.0]]), (2, 3, [[4.0, 5.0]])],
    ),
    "splines in the middle of a cell": (
        lambda: np.ravel(local_weights(np.array([0.0]), 2)), [0.125, 0.75, 0.125],
    ),
    "products of bins are summed by weights": (
        lambda: np.hstack(bin_products(np.array([0.25, 0.75]), np.ones(2),
                                       np.array([[1.0, 3.0]]), cells=1, degree=1)),
        [[0.625, 0.375, 1.5], [0.375, 0.625, 2.5]],
    ),
    "oblique coordinates": (lambda: SHEAR.positions(np.eye(2)), [[1.0, 0.0], [0.0, 1.0]]),
    "a covariance is decorrelated": (
        lambda: decorrelate(COVARIANCE)[0].rows, ((1.0, 0.0), (-0.5, 1.0)),
    ),
    "names of products": (lambda: product_names(["x", "y"]), ["x^2", "x * y", "y^2"]),
}  # fmt: skip
NEAR = {
    "a mirrored matrix on even and odd vectors": (
        lambda: np.hstack(by_parity(np.array([[3.0, 1.0], [1.0, 3.0]]))), [[4.0, 2.0]],
    ),
    "parities are orthonormal": (
        lambda: np.concatenate(parities(np.array([1.0, 2.0, 3.0]))), [8**0.5, 2.0, -(2**0.5)],
    ),
    "Chebyshev analysis": (lambda: ANALYSIS @ (2 * NODES**2 - 1), [0.0, 0.0, 1.0]),
    "decorrelated deviations": (lambda: decorrelate(COVARIANCE)[1], [0.2, 1 / 15]),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_small_arrays_are_exact(name):
    computed, value = EXACT[name]
    result = computed()
    assert (result.tolist() if isinstance(result, np.ndarray) else result) == value


@pytest.mark.parametrize("name", NEAR)
def test_small_arrays_are_as_by_hand(name):
    computed, value = NEAR[name]
    np.testing.assert_allclose(computed(), value, rtol=1e-6, atol=1e-9, strict=False)


def test_a_stated_ball_knows_the_planned_bound_alone():
    ball = StatedBall(size=2.0, k=(4,), h=(2,), rank=0, planned=0.1)
    assert ball.error([4], [2], [None]) == 0.1
    assert 4.0 <= ball.error([4], [1], [None]) < 5
