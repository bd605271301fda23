"""Kernels with kinks: every proved bound against dense searches and sixty-digit arithmetic."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import chebyshev

from dbern.bernstein.kernels import KERNELS, Kernel, kernel_of

NAMES = [name for name in KERNELS if name != "gaussian"]
BANDWIDTHS = [1e-3, 0.06, 0.3, 0.97, 30.0]
RESOLUTIONS = [1, 2, 3, 7, 20, 333]


def positions(kernel: Kernel, k: int) -> np.ndarray:
    """On lattice points and kinks, at and beside them, between, and anywhere."""
    v = np.arange(k + 1)[:: max(1, k // 30)] / k
    near = np.array([-1e-9, 0.0, 1e-9])
    kinks = [v + side * kink + step
             for kink in (0.0, *kernel.kinks) for side in (-1, 1) for step in near]  # fmt: skip
    middle = 0.5 + np.linspace(-1, 1, 401) / k
    anywhere = np.random.default_rng(k).uniform(size=100)
    every = np.concatenate([*kinks, middle, anywhere, np.linspace(0, 1, 101)])
    return np.unique(every[(every >= 0) & (every <= 1)])


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
@pytest.mark.parametrize("power", [1, 2])
def test_largest_sums_bound_every_position_and_are_tight(name, bandwidth, power):
    kernel = kernel_of(name, bandwidth)
    for k in RESOLUTIONS:
        t = positions(kernel, k)
        values = reference.kernel(name, np.arange(k + 1) / k - t[:, None], bandwidth) ** power
        found = values.sum(axis=1).max()
        bound = kernel.lattice_sum(k) if power == 1 else kernel.square_sum(k)
        assert found * (1 - 1e-12) <= bound <= 1.0005 * found


@given(
    name=st.sampled_from(NAMES),
    bandwidth=st.floats(-3, 1).map(lambda e: 10.0**e),
    k=st.integers(1, 200),
    t=st.floats(0, 1),
)
def test_largest_sums_bound_any_position(name, bandwidth, k, t):
    kernel = kernel_of(name, bandwidth)
    values = reference.kernel(name, np.arange(k + 1) / k - t, bandwidth)
    assert math.fsum(values) <= kernel.lattice_sum(k) * (1 + 1e-12)
    assert math.fsum(values**2) <= kernel.square_sum(k) * (1 + 1e-12)


@pytest.mark.parametrize("name", ["epanechnikov", "biweight", "triweight"])
def test_the_lattice_alone_is_no_bound(name):
    """Where the support holds a lattice point or two, the largest sum lies between points."""
    kernel, nodes = kernel_of(name, 0.08), np.arange(11) / 10
    on_lattice = reference.kernel(name, nodes - nodes[:, None], 0.08).sum(axis=1).max()
    between = reference.kernel(name, nodes - np.linspace(0, 1, 4001)[:, None], 0.08)
    truth = between.sum(axis=1).max()
    assert truth <= kernel.lattice_sum(10) <= 1.0005 * truth
    if name == "epanechnikov":
        assert truth > 1.05 * on_lattice


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bandwidth", [1e-4, 0.1, 1.5, 30.0])
def test_values_are_within_their_ulps_of_the_formula(name, bandwidth):
    kernel, exact_bandwidth = kernel_of(name, bandwidth), Fraction(bandwidth)
    x = np.concatenate(
        [[0.0], np.geomspace(1e-4, 30, 150) * bandwidth, bandwidth * np.array([1, 1 - 1e-15])]
    )
    values = kernel(x)
    np.testing.assert_array_equal(kernel(-x), values)
    assert (values >= 0).all()
    allowed = Decimal(kernel.ulps * 2.0**-53 * kernel.peak)
    for argument, value in zip(x.tolist(), values.tolist(), strict=True):
        exact = reference.exact_kernel(name, Fraction(argument), exact_bandwidth)
        assert abs(Decimal(value) - exact) <= allowed


@pytest.mark.parametrize("name", [*NAMES, "gaussian"])
@pytest.mark.parametrize("bandwidth", [0.01, 0.4])
def test_mass_peak_slope_curvature_and_deviation(name, bandwidth):
    kernel = kernel_of(name, bandwidth)
    step = bandwidth / 2000
    x = (np.arange(-80_000, 80_000) + 0.5) * step
    values = reference.kernel(name, x, bandwidth)
    assert values.sum() * step == pytest.approx(1, abs=1e-6)
    deviation = math.sqrt((x**2 * values).sum() * step)
    assert kernel.deviation == pytest.approx(deviation, rel=1e-5)
    peak = float(reference.kernel(name, np.array(0.0), bandwidth))
    assert peak * (1 - 1e-15) <= kernel.peak <= peak * (1 + 2e-12)
    slopes = np.diff(values) / step
    assert np.abs(slopes).max() <= kernel.slope <= 1.001 * np.abs(slopes).max()
    edges = x[:-2] + step  # where a second difference is centered
    kinked = [np.abs(np.abs(edges) - kink) < 1.6 * step for kink in (0.0, bandwidth)]
    bends = np.abs(np.diff(slopes) / step)
    smooth = bends[~kinked[0] & ~kinked[1]].max()
    assert smooth * (1 - 1e-6) <= kernel.curvature + 1e-6 / bandwidth**3
    assert kernel.curvature <= 1.01 * smooth + 1e-6 / bandwidth**3
    assert kernel.jumps == (bends.max() > 10 * max(kernel.curvature, 1.0))


@pytest.mark.parametrize("name", NAMES)
def test_beyond_a_bandwidth_kernels_are_convex(name):
    """What `count` in the proof of the largest sums relies on."""
    z = np.linspace(1.0, 8.0, 5000)
    assert (np.diff(reference.kernel(name, z, 1.0), 2) >= -1e-13).all()


def coefficients(name: str, bandwidth: float, x: float, radius: float) -> np.ndarray:
    """Chebyshev coefficients of ``u -> K(x - radius u)`` by interpolation at many nodes."""
    nodes = chebyshev.chebpts1(96)
    every = chebyshev.chebvander(nodes, 29).T @ reference.kernel(
        name, x - radius * nodes, bandwidth
    )
    return every * np.where(np.arange(30) > 0, 2, 1) / 96


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ratio", [0.02, 0.3, 0.5, 1.0])
def test_chebyshev_bound_bounds_coefficients_off_the_kinks(name, ratio):
    bandwidth = 0.25
    kernel, radius = kernel_of(name, bandwidth), ratio * bandwidth
    ends = sorted({-2.0, 2.0, *kernel.kinks, *(-kink for kink in kernel.kinks)})
    tight = np.zeros(30)
    for low, high in itertools.pairwise(ends):
        if high - low >= 2 * radius:
            for x in np.linspace(low + radius, high - radius, 25):
                tight = np.maximum(tight, np.abs(coefficients(name, bandwidth, x, radius)))
    bounds = np.array([kernel.chebyshev_bound(a, radius) for a in range(30)])
    assert (tight <= bounds + 1e-13 * kernel.peak).all()
    if ratio == 0.3:  # not absurdly loose where the first few matter
        assert (bounds[:3] <= 8 * tight[:3] + 1e-3 * kernel.peak).all()


@pytest.mark.parametrize("name", NAMES)
def test_across_a_kink_the_bound_does_not_hold(name):
    kernel = kernel_of(name, 0.25)
    c = np.abs(coefficients(name, 0.25, kernel.kinks[-1] + 0.03, 0.12))
    bounds = [kernel.chebyshev_bound(a, 0.12) for a in range(30)]
    assert (c > 10 * np.array(bounds)).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tolerance", [1e-3, 1e-12])
def test_degree_for_gives_the_truncation_it_claims(name, tolerance):
    kernel = kernel_of(name, 0.25)
    degree, error = kernel.degree_for(tolerance, 0.12)
    assert error <= tolerance * kernel.peak * 1.001
    nodes = chebyshev.chebpts1(200)
    fit = chebyshev.chebfit(nodes, reference.kernel(name, 0.125 + 0.12 * nodes, 0.25), degree)
    x = np.linspace(-1, 1, 501)
    gap = np.abs(chebyshev.chebval(x, fit) - reference.kernel(name, 0.125 + 0.12 * x, 0.25))
    assert gap.max() <= 2 * error + 1e-12 * kernel.peak
