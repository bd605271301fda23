"""Kernels against fifty-digit arithmetic: values, float error, bounds, positive definiteness."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from exact_learning import KERNELS, RADIUS, true_kernel

from dbern.bernstein.reproducing import (
    ArcCosine,
    Gaussian,
    Linear,
    Polynomial,
    ProductKernel,
    Stationary,
    box_radius,
)
from dbern.erm.losses import UserLoss
from dbern.erm.shards import Expansion
from dbern.erm.spaces import UserKernel
from dbern.errors import SpecError

NARROW = {
    "narrow gaussian": Gaussian((0.01, 0.02)),
    "narrow laplace": Stationary("laplace", (0.01, 0.02)),
    "isotropic laplace": Stationary("laplace", (0.1, 0.2), product=False),
    "high polynomial": Polynomial(degree=12, scale=0.7, constant=1.0),
}


def corners_and_more(rng, count):
    corners = [[0, 0], [1, 1], [0, 1], [1e-9, 0], [1 - 1e-9, 1], [0.5, 0.5], [0.5, 0.5 + 1e-12]]
    return np.concatenate([corners, rng.uniform(size=(count, 2))])


@pytest.mark.parametrize("name", [*KERNELS, *NARROW])
def test_values_are_within_the_stated_float_error(name):
    kernel = {**KERNELS, **NARROW}[name]
    points = corners_and_more(np.random.default_rng(1), 12)
    values = kernel(points, points)
    worst = max(
        abs(float(true_kernel(kernel, x, y) - values[i, j]))
        for i, x in enumerate(points)
        for j, y in enumerate(points)
    )
    assert worst <= kernel.error(2, RADIUS) <= 1e-9 * kernel.bound(RADIUS)


def test_a_kernel_of_one_s_own_may_be_as_accurate_as_floats_of_its_size_are():
    """In data units values are large: 2^-44 of one would be less than their own rounding."""
    points = np.random.default_rng(4).uniform(0, 100, (12, 2))
    cube = UserKernel(lambda x, y: (1 + x @ y.T) ** 3, largest=(1 + 2e4) ** 3)
    values = cube(points, points)
    exact = [[(1 + Fraction(a) * Fraction(c) + Fraction(b) * Fraction(d)) ** 3 for c, d in points]
             for a, b in points]  # fmt: skip
    worst = max(
        float(abs(Fraction(float(values[i, j])) - exact[i][j]))
        for i in range(12)
        for j in range(12)
    )
    assert 2.0**-44 < worst < cube.error(2, 150.0) < 1e-12 * cube.largest
    assert UserKernel(lambda x, y: x @ y.T, largest=0.01).error(2, 1.0) >= 2.0**-44


def test_floats_of_functions_of_one_s_own_say_nothing_of_records(recwarn):
    """An overflow at one record would be a line in a worker's log."""

    def logistic(labels, predictions):
        return np.log(1 + np.exp(-labels * predictions))

    loss = UserLoss.rounded(logistic, 0.1, lipschitz=1.0, at_zero=1.0)
    labels, far = np.array([1.0, -1.0]), np.array([-1e3, 1.0])
    loss.value(labels, far)
    loss.derivative(labels, far)
    UserKernel(lambda x, y: np.exp(1e3 * x @ y.T), largest=1.0)(np.eye(2), np.eye(2))
    assert not recwarn.list


@pytest.mark.parametrize("name", KERNELS)
def test_bound_holds_on_the_diagonal_and_is_attained(name):
    kernel = KERNELS[name]
    points = corners_and_more(np.random.default_rng(2), 50)
    found = np.diag(kernel(points, points)).max()
    assert found <= kernel.bound(RADIUS) <= 1.0001 * found


@pytest.mark.parametrize("name", KERNELS)
def test_gram_matrices_are_positive_semidefinite(name):
    kernel = KERNELS[name]
    points = corners_and_more(np.random.default_rng(3), 60)
    gram = kernel(points, points)
    np.testing.assert_allclose(gram, gram.T, atol=1e-14 * kernel.bound(RADIUS))
    assert np.linalg.eigvalsh(gram).min() >= -1e-12 * np.trace(gram)


def test_arc_cosine_is_the_expectation_it_claims_to_be():
    x, y = np.array([[0.6, 0.8]]), np.array([[1.0, 0.1]])
    angles = np.linspace(0, 2 * np.pi, 20001)[:-1]
    w = np.stack([np.cos(angles), np.sin(angles)])
    # |w|^2 of a planar normal has mean 2, independent of its direction.
    mean = 2 * 2 * (np.maximum(x @ w, 0) * np.maximum(y @ w, 0)).mean()
    assert ArcCosine()(x, y)[0, 0] == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize(
    ("kernel", "axes", "records", "error"),
    [
        *((kernel, 2, 2500, 1e-9) for kernel in KERNELS.values()),
        *((Gaussian((0.3,) * count), count, 50, 1e-12) for count in (1, 3)),
    ],
    ids=[*KERNELS, "one axis", "three axes"],
)
def test_a_grid_has_the_values_of_its_points(kernel, axes, records, error):
    rng = np.random.default_rng(4)
    model = Expansion(kernel, rng.uniform(size=(records, axes)), rng.normal(size=(records, 3)))
    grid_axes = [np.linspace(0, 1, 5 - i) for i in range(axes)]
    points = np.stack(np.meshgrid(*grid_axes, indexing="ij"), -1).reshape(-1, axes)
    grid = model.on_grid(grid_axes)
    assert grid.shape == (*(5, 4, 3)[:axes], 3)
    direct = kernel(points, model.records) @ model.coefficients
    np.testing.assert_allclose(grid.reshape(-1, 3), direct, atol=error)
    np.testing.assert_allclose(model(points), direct, atol=error)
    assert isinstance(kernel, ProductKernel) or axes == 2


def test_a_user_s_kernel_is_taken_at_its_word():
    kernel = UserKernel(lambda x, y: np.cos(x - y.T), largest=1.0)
    assert kernel(np.zeros((1, 1)), np.zeros((2, 1))).tolist() == [[1.0, 1.0]]
    assert (kernel.bound(9.0), kernel.error(1, 9.0)) == (1.0, 2.0**-44)


def test_box_radius_is_the_farthest_corner():
    assert box_radius([-3.0, 0.0], [1.0, 4.0]) == pytest.approx(5.0)
    assert box_radius([-3.0, 0.0], [1.0, 4.0]) >= 5.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian((0.0,)),
        lambda: Gaussian(()),
        lambda: Stationary("laplace", (math.nan,)),
        lambda: Stationary("cauchy", (1.0,)),
        lambda: Linear(constant=-1.0),
        lambda: Polynomial(degree=0),
        lambda: Polynomial(constant=-1.0),
        lambda: UserKernel(abs, largest=math.inf),
    ],
)
def test_impossible_parameters_are_refused(make):
    with pytest.raises(SpecError, match=r"target\.\w+: .*[Ww]rite"):
        make()
