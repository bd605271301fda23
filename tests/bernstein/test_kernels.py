"""Every proved bound of every kernel against dense searches and sixty-digit arithmetic."""

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

from dbern.bernstein.kernels import EXP_ULPS, KERNELS, OUTWARD, Gaussian, Kernel, kernel_of
from dbern.bernstein.kernels.compact import CompactKernel

KINKED = [name for name in KERNELS if name != "gaussian"]
BANDWIDTHS = [1e-3, 0.004, 0.02, 0.06, 0.1, 0.3, 0.97, 10.0, 30.0]
RESOLUTIONS = [1, 2, 3, 7, 20, 64, 333, 1000]
ORACLE_ERROR = Decimal("1e-54")


def positions(kernel: Kernel, k: int) -> np.ndarray:
    """On lattice points and kinks, at and beside them, between, and anywhere."""
    v = np.arange(k + 1)[:: max(1, k // 30)] / k
    near = np.array([-1e-9, 0.0, 1e-9])
    kinks = [v + side * kink + step
             for kink in (0.0, *kernel.kinks) for side in (-1, 1) for step in near]  # fmt: skip
    between = (np.arange(min(k, 40))[:, None] + np.array([0.0, 0.25, 0.5, 0.75])).ravel() / k
    middle = 0.5 + np.concatenate([[1 / 3], np.linspace(-1, 1, 401)]) / k
    anywhere = np.random.default_rng(k).uniform(size=100)
    every = np.concatenate([*kinks, between, middle, anywhere, np.linspace(0, 1, 101)])
    return np.unique(every[(every >= 0) & (every <= 1)])


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
def test_largest_sums_bound_every_position_and_are_tight(name, bandwidth):
    kernel = kernel_of(name, bandwidth)
    tight = 1.005 if name == "gaussian" else 1.0005
    for k in RESOLUTIONS:
        t = positions(kernel, k)
        values = reference.kernel(name, np.arange(k + 1) / k - t[:, None], bandwidth)
        for power, bound in ((1, kernel.lattice_sum(k)), (2, kernel.square_sum(k))):
            found = (values**power).sum(axis=1).max()
            assert found * (1 - 1e-12) <= bound <= tight * found, (k, power)


@pytest.mark.slow
@pytest.mark.parametrize("names", [["gaussian"], KINKED], ids=["gaussian", "kinked"])
@given(
    data=st.data(),
    bandwidth=st.floats(-3, 1).map(lambda e: 10.0**e),
    k=st.integers(1, 200),
    t=st.floats(0, 1),
)
def test_largest_sums_bound_any_position(names, data, bandwidth, k, t):
    name = data.draw(st.sampled_from(names))
    kernel = kernel_of(name, bandwidth)
    values = reference.kernel(name, np.arange(k + 1) / k - t, bandwidth)
    slack = 1.0 if name == "gaussian" else 1 + 1e-12
    assert math.fsum(values) <= kernel.lattice_sum(k) * slack
    assert math.fsum(values**2) <= kernel.square_sum(k) * slack


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("bandwidth", [1e-4, 0.004, 0.1, 1.5, 30.0])
def test_values_are_within_their_ulps_of_the_formula(name, bandwidth):
    kernel = kernel_of(name, bandwidth)
    x = np.concatenate(
        [[0.0], np.geomspace(1e-6, 30, 200) * bandwidth, bandwidth * np.array([1, 1 - 1e-15])]
    )
    values = kernel(x)
    np.testing.assert_array_equal(kernel(-x), values)
    assert (values >= 0).all()
    exact = [reference.exact_kernel(name, Fraction(t), Fraction(bandwidth)) for t in x.tolist()]
    allowed = Decimal(kernel.ulps * 2.0**-53 * kernel.peak)
    assert max(abs(Decimal(a) - b) for a, b in zip(values.tolist(), exact, strict=True)) <= allowed
    if name == "gaussian":  # x/b loses up to |z|^2 ulps
        np.testing.assert_allclose(values, [float(value) for value in exact], rtol=3e-13)


@pytest.mark.parametrize("name", KERNELS)
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


@pytest.mark.parametrize("name", KERNELS)
def test_third_derivatives_are_bounded(name):
    kernel = kernel_of(name, 0.1)
    x = np.linspace(-0.4, 0.4, 4001)
    far = np.min([np.abs(np.abs(x) - one) for one in (0.0, 0.1)], axis=0)[:-3] > 1e-3
    third = np.abs(np.diff(kernel(x), 3))[far].max() / (x[1] - x[0]) ** 3
    bound = kernel.third_derivative_bound
    assert 0.9 * bound <= third + 1e-2 <= 1.01 * bound + 2e-2


def test_far_tails_are_zero_not_subnormal():
    values = Gaussian(0.01)(np.linspace(0, 1, 1001))
    assert ((values == 0) | (values > 1e-303)).all()
    assert values[-1] == 0


@pytest.mark.parametrize("name", KINKED)
def test_beyond_a_bandwidth_kernels_are_convex(name):
    """What `count` in the proof of the largest sums relies on."""
    z = np.linspace(1.0, 8.0, 5000)
    assert (np.diff(reference.kernel(name, z, 1.0), 2) >= -1e-13).all()


def test_the_outward_factor_is_above_one_and_small():
    assert 1 + 1e-13 < OUTWARD < 1 + 1e-11


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


# --- Chebyshev coefficients


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


def coefficients(
    name: str, bandwidth: float, x: float, radius: float, count: int = 30, nodes: int = 96
) -> np.ndarray:
    """Chebyshev coefficients of ``u -> K(x - radius u)`` by interpolation at many nodes."""
    u = chebyshev.chebpts1(nodes)
    every = chebyshev.chebvander(u, count - 1).T @ reference.kernel(name, x - radius * u, bandwidth)
    return every * np.where(np.arange(count) > 0, 2, 1) / nodes


@pytest.mark.parametrize("name", KINKED)
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


@pytest.mark.parametrize("name", KINKED)
def test_across_a_kink_the_bound_does_not_hold(name):
    kernel = kernel_of(name, 0.25)
    c = np.abs(coefficients(name, 0.25, kernel.kinks[-1] + 0.03, 0.12))
    bounds = [kernel.chebyshev_bound(a, 0.12) for a in range(30)]
    assert (c > 10 * np.array(bounds)).any()


@pytest.mark.parametrize(
    ("name", "bandwidth", "radius", "places"),
    [
        *(("gaussian", bandwidth, 0.5, (0.0, 0.2, 0.5, 0.77))
          for bandwidth in (0.02, 0.1, 0.5, 3.0)),
        *((name, 0.25, 0.12, (0.125,)) for name in KINKED),
    ],
)  # fmt: skip
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-6, 1e-12])
def test_degree_for_gives_the_truncation_it_claims(name, bandwidth, radius, places, tolerance):
    kernel = kernel_of(name, bandwidth)
    degree, error = kernel.degree_for(tolerance, radius)
    assert error <= tolerance * kernel.peak * 1.001
    u = np.cos(np.linspace(0, np.pi, 1001))
    for x in places:
        series = coefficients(name, bandwidth, x, radius, degree + 1, 4 * degree + 64)
        gap = chebyshev.chebval(u, series) - reference.kernel(name, x - radius * u, bandwidth)
        assert np.abs(gap).max() <= error + 1e-12 * kernel.peak


def test_degree_for_finds_no_needlessly_long_expansion():
    degree, _ = Gaussian(0.1).degree_for(1e-6, 0.5)
    assert degree < 60  # 43 is where the bound first passes


@pytest.mark.parametrize(("inner", "power"), [(3, 1), (1, 2), (2, 0), (0, 1)])
def test_a_compact_kernel_of_which_no_bound_holds_is_refused(inner, power):
    """Of ``(1 - z)^2`` the tip would be no kink, and ``1 - z^3`` would be computed as another."""
    with pytest.raises(TypeError, match=r"^inner, power: write inner = 2 and any power"):
        type("Other", (CompactKernel,), {"inner": inner, "power": power})
    assert type("Quad", (CompactKernel,), {"inner": 2, "power": 4}).power == 4
