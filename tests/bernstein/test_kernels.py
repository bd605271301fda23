"""Every proved bound of the Gaussian kernel against dense searches and sixty-digit arithmetic."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from dbern.bernstein.kernels import EXP_ULPS, KERNELS, OUTWARD, Gaussian, kernel_of

BANDWIDTHS = [1e-3, 0.004, 0.02, 0.05, 0.1, 0.3, 1.0, 10.0]
RESOLUTIONS = [1, 2, 3, 7, 20, 64, 333, 1000]
ORACLE_ERROR = Decimal("1e-54")


def positions(k: int) -> np.ndarray:
    """On the lattice, between its points, at the edges, and where nothing is special."""
    between = (np.arange(min(k, 40))[:, None] + np.array([0.0, 0.25, 0.5, 0.75])).ravel() / k
    middle = 0.5 + np.array([0.0, 0.5, -0.5, 1 / 3]) / k
    anywhere = np.random.default_rng(k).uniform(size=60)
    every = np.concatenate([between, middle, anywhere, np.linspace(0, 1, 101), [1e-9, 1 - 1e-9]])
    return np.clip(every, 0, 1)


def largest_sum(k: int, bandwidth: float) -> float:
    t = positions(k)
    return float(reference.gaussian(np.arange(k + 1) / k - t[:, None], bandwidth).sum(axis=1).max())


@pytest.mark.thorough
@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
@pytest.mark.parametrize("k", RESOLUTIONS)
def test_lattice_sum_bounds_every_position_and_is_tight(bandwidth, k):
    bound, found = Gaussian(bandwidth).lattice_sum(k), largest_sum(k, bandwidth)
    assert found <= bound <= 1.005 * found


@given(
    bandwidth=st.floats(-3, 1).map(lambda e: 10.0**e),
    k=st.integers(1, 200),
    t=st.floats(0, 1),
)
def test_lattice_sum_bounds_any_position(bandwidth, k, t):
    total = math.fsum(reference.gaussian(np.arange(k + 1) / k - t, bandwidth))
    assert total <= Gaussian(bandwidth).lattice_sum(k)


def test_a_coarse_grid_of_positions_is_no_bound():
    # k = 20, b = .02: the maximum over eight positions is 21.06, over all positions 21.70.
    coarse = np.linspace(0, 1, 8)
    nodes = np.arange(21) / 20
    found = reference.gaussian(nodes - coarse[:, None], 0.02).sum(axis=1).max()
    assert found == pytest.approx(21.06, abs=0.02)
    assert Gaussian(0.02).lattice_sum(20) == pytest.approx(21.70, abs=0.02)


@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
def test_values_peak_and_slope(bandwidth):
    kernel = Gaussian(bandwidth)
    x = np.concatenate([[0.0], np.geomspace(1e-6, 30, 200) * bandwidth])
    exact = [float(reference.exact_gaussian(Decimal(t), Decimal(bandwidth))) for t in x.tolist()]
    np.testing.assert_allclose(kernel(x), exact, rtol=3e-13)  # x/b loses up to |z|^2 ulps
    np.testing.assert_array_equal(kernel(-x), kernel(x))
    assert exact[0] <= kernel.peak <= exact[0] * (1 + 1e-11)
    steepest = kernel.peak * math.exp(-0.5) / bandwidth
    assert steepest <= kernel.slope <= steepest * (1 + 1e-11)
    dense = np.linspace(0, 4 * bandwidth, 20001)
    values = reference.gaussian(dense, bandwidth)
    assert (np.abs(np.diff(values)) <= kernel.slope * np.diff(dense) * (1 + 1e-9)).all()


def test_far_tails_are_zero_not_subnormal():
    values = Gaussian(0.01)(np.linspace(0, 1, 1001))
    assert ((values == 0) | (values > 1e-303)).all()
    assert values[-1] == 0


def test_the_outward_factor_is_above_one_and_small():
    assert 1 + 1e-13 < OUTWARD < 1 + 1e-11


LONG = [(x, 0.5, 0.5 / ratio, int(12 * ratio)) for ratio in (3.0, 10.0) for x in (0.0, 0.1, 0.5)]


@pytest.mark.parametrize(
    ("x", "radius", "bandwidth", "degrees"),
    [
        *((offset * 0.25, ratio * 0.25, 0.25, 24) for ratio in (0.01, 0.1, 0.5, 1.0)
          for offset in (0.0, 0.3, 0.8, 1.0, 1.7, 2.6, 4.0)),
        *LONG,
    ],
)  # fmt: skip
def test_chebyshev_bound_bounds_true_coefficients(x, radius, bandwidth, degrees):
    nodes = max(80, 2 * degrees)
    exact = reference.chebyshev_coefficients(
        Decimal(x), Decimal(radius), Decimal(bandwidth), degrees, nodes=nodes
    )
    kernel = Gaussian(bandwidth)
    for degree, coefficient in enumerate(exact):
        bound = Decimal(kernel.chebyshev_bound(degree, radius))
        assert abs(coefficient) <= bound + ORACLE_ERROR, degree


def test_chebyshev_bound_is_not_far_from_the_worst_coefficient():
    kernel, radius = Gaussian(0.1), 0.05
    offsets = [Decimal(i) / 50 for i in range(26)]
    every = [reference.chebyshev_coefficients(x, Decimal("0.05"), Decimal("0.1"), 8, 40)
             for x in offsets]  # fmt: skip
    for degree in range(9):
        worst = max(float(abs(coefficients[degree])) for coefficients in every)
        assert kernel.chebyshev_bound(degree, radius) <= 4 * worst


@pytest.mark.parametrize("bandwidth", [0.02, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, 1e-12])
def test_degree_for_gives_the_truncation_it_claims(bandwidth, tolerance):
    kernel, radius = Gaussian(bandwidth), 0.5
    degree, error = kernel.degree_for(tolerance, radius)
    assert error <= tolerance * kernel.peak * 1.001
    x = np.array([0.0, 0.2, 0.5, 0.77])[:, None]
    nodes = 4 * degree + 64
    theta = (np.arange(nodes) + 0.5) * np.pi / nodes
    samples = reference.gaussian(x - radius * np.cos(theta), bandwidth)
    order = np.arange(degree + 1)[:, None]
    coefficients = samples @ np.cos(order * theta).T * (2 / nodes)
    coefficients[:, 0] /= 2
    angles = np.linspace(0, np.pi, 1001)
    partial = coefficients @ np.cos(order * angles)
    truth = reference.gaussian(x - radius * np.cos(angles), bandwidth)
    assert np.abs(partial - truth).max() <= error + 1e-12 * kernel.peak


def test_degree_for_finds_no_needlessly_long_expansion():
    degree, _ = Gaussian(0.1).degree_for(1e-6, 0.5)
    assert degree < 60  # 43 is where the bound first passes


def test_this_platforms_exp_is_as_accurate_as_assumed():
    rng = np.random.default_rng(3)
    x = np.concatenate([-rng.uniform(0, 700, 1500), -rng.uniform(0, 4, 1500), -np.geomspace(
        1e-17, 1, 300), np.array([0.0, -0.5, -1.0, -699.999])])  # fmt: skip
    batch = np.exp(x)  # the vectorised path
    single = np.array([np.exp(t) for t in x])
    for argument, *values in zip(x.tolist(), batch.tolist(), single.tolist(), strict=True):
        exact = Decimal(argument).exp()
        for value in values:
            ulps = abs(Decimal(value) - exact) / Decimal(math.ulp(value))
            assert ulps <= EXP_ULPS


@pytest.mark.parametrize("name", KERNELS)
def test_third_derivatives_are_bounded(name):
    kernel = kernel_of(name, 0.1)
    x = np.linspace(-0.4, 0.4, 4001)
    far = np.min([np.abs(np.abs(x) - one) for one in (0.0, 0.1)], axis=0)[:-3] > 1e-3
    third = np.abs(np.diff(kernel(x), 3))[far].max() / (x[1] - x[0]) ** 3
    bound = kernel.third_derivative_bound
    assert 0.9 * bound <= third + 1e-2 <= 1.01 * bound + 2e-2
