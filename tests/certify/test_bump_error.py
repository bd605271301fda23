"""The approximation error of kernels with kinks: enclosed, not sampled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import reference

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.kernels import KERNELS, kernel_of
from dbern.certify.translate_errors import (
    _boxed_error,
    _derivative_bound,
    _lipschitz_constants,
    _steepest,
    translate_error,
)
from dbern.reconstruct.axis_maps import evaluation_matrix
from dbern.reconstruct.series import Series, lebesgue_constant
from dbern.reconstruct.spectral import axis_spectrum

NAMES = [name for name in KERNELS if name != "gaussian"]
CASES = [(0.3, 20, 4), (0.1, 20, 1), (0.1, 40, 8), (0.05, 10, 2), (0.9, 6, 3), (0.2, 1, 1),
         (0.2, 2, 5), (2.0, 9, 2)]  # fmt: skip


def errors(name, bandwidth, k, matrix, points=501):
    """``K(y - t) - p_t(y)`` over a grid with all lattice points, kinks among them."""
    y = np.linspace(0, 1, points)
    t = np.unique(np.concatenate([np.linspace(0, 1, 2 * k + 1), np.linspace(0.37, 0.63, 120)]))
    y = np.unique(np.clip(np.concatenate([y, t, t + bandwidth, t - bandwidth]), 0, 1))
    lattice = reference.kernel(name, np.arange(k + 1)[:, None] / k - t, bandwidth)
    return reference.kernel(name, y[:, None] - t, bandwidth) - bernstein_basis(y, k) @ (
        matrix @ lattice
    )


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("bandwidth", "k", "h"), CASES)
def test_no_point_mass_errs_more_and_some_do_nearly(name, bandwidth, k, h):
    kernel = kernel_of(name, bandwidth)
    worst = np.abs(errors(name, bandwidth, k, evaluation_matrix(k, h))).max()
    assert worst <= translate_error(kernel, k, h) <= 1.04 * worst + 2e-5 * kernel.peak


@pytest.mark.parametrize(
    ("name", "bandwidth", "k", "rank"),
    [
        *(
            (name, *case)
            for name in ("laplace", "matern-3/2", "matern-5/2", "triangle")
            for case in ((0.2, 24, 12), (0.3, 12, 5), (0.1, 30, 31))
        ),
        *(
            ("gaussian", *case)
            for case in ((0.3, 12, 5), (0.1, 30, 9), (0.1, 30, 99), (0.05, 40, 14))
        ),
    ],
)
def test_spectral_releases_too(name, bandwidth, k, rank):
    kernel = kernel_of(name, bandwidth)
    spectrum = axis_spectrum(kernel, k, rank)
    worst = np.abs(errors(name, bandwidth, k, evaluation_matrix(k, 4, spectrum))).max()
    loose = 1.15 if name == "gaussian" else 1.05
    assert worst <= translate_error(kernel, k, 4, spectrum) <= loose * worst + 2e-5 * kernel.peak


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spectral", [False, True])
@pytest.mark.parametrize(("bandwidth", "k", "h"), [(0.2, 15, 4), (0.03, 1, 1)])
def test_the_error_is_no_steeper_than_claimed(name, spectral, bandwidth, k, h):
    kernel = kernel_of(name, bandwidth)
    spectrum = axis_spectrum(kernel, k, 9) if spectral else None  # the bounds need no definiteness
    matrix = evaluation_matrix(k, h, spectrum)
    norm = lebesgue_constant(k, h, spectrum)
    first, second = _lipschitz_constants(kernel, k, matrix, norm)
    step = 1e-3
    grid = np.arange(0, 1 + step / 2, step)
    lattice = reference.kernel(name, np.arange(k + 1)[:, None] / k - grid, bandwidth)
    released = bernstein_basis(grid, k) @ matrix @ lattice
    e = reference.kernel(name, grid[:, None] - grid, bandwidth) - released
    assert sum(np.abs(np.diff(e, axis=axis)).max() for axis in (0, 1)) / step <= first
    bend = sum(np.abs(np.diff(e, n=2, axis=axis)).max() for axis in (0, 1)) / step**2
    assert bend <= second * (1 + 1e-9)
    assert (second == np.inf) == kernel.jumps


@pytest.mark.parametrize("name", ["triangle", "epanechnikov"])
@pytest.mark.parametrize(("bandwidth", "k"), [(0.35, 6), (0.17, 9)])
def test_no_release_of_a_bump_is_steeper_whatever_the_matrix(name, bandwidth, k):
    """That of an operator is steepest where t is on the lattice; of others, at other kinks."""
    kernel, lattice = kernel_of(name, bandwidth), np.arange(k + 1) / k
    ends = [lattice + side for side in (0, bandwidth, -bandwidth)]
    t = np.concatenate([np.linspace(0, 1, 101), *ends])
    bumps = reference.kernel(name, lattice[:, None] - t[(t >= 0) & (t <= 1)], bandwidth)
    basis = bernstein_basis(np.linspace(0, 1, 401), k - 1)
    for seed in range(60):
        matrix = np.random.default_rng(seed).normal(size=(k + 1, k + 1))
        matrix += matrix[::-1, ::-1]
        worst = np.abs(basis @ (k * np.diff(matrix @ bumps, axis=0))).max()
        bound = _steepest(kernel, k, matrix)
        assert worst <= bound
        assert kernel.curvature > 0 or bound <= 1.1 * worst


@pytest.mark.parametrize("spectral", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3, 12])
@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_of_any_lattice_values_are_bounded_and_nearly_attained(spectral, k, order):
    """Lattice values with bounded differences of all orders up to the one asked for."""
    spectrum = axis_spectrum(kernel_of("matern-3/2", 0.2), k, 9) if spectral else None
    matrix = evaluation_matrix(k, 3, spectrum)
    sizes = (1.0, 0.2, 0.05)[: order + 1]
    bound = _derivative_bound(k, matrix, sizes)
    step = 1e-3
    basis = bernstein_basis(np.arange(0, 1 + step / 2, step), k) @ matrix
    rng, worst = np.random.default_rng(k), 0.0
    for _ in range(300):
        last = rng.choice([-1.0, 1.0], k + 1 - order if k >= order else 0) * sizes[order]
        values = last
        for size in reversed(sizes[:order]):  # integrate, from the largest value there may be
            values = np.concatenate([[0.0], np.cumsum(values)]) + rng.choice([-1, 1]) * size
        if k < order:
            values = rng.uniform(-1, 1, k + 1)
        worst = max(worst, np.abs(np.diff(basis @ values, n=order)).max() / step**order)
    assert worst <= bound * (1 + 1e-6) + 1e-8
    assert bound <= 3 * worst + 1e-8


@pytest.mark.parametrize("name", NAMES)
def test_where_refinement_ends_early_the_bound_still_holds(name, monkeypatch):
    kernel = kernel_of(name, 0.07)
    refined = translate_error.__wrapped__(kernel, 30, 3)
    monkeypatch.setattr("dbern.certify.translate_errors._SQUARES_WORK", 2e6)
    rough = translate_error.__wrapped__(kernel, 30, 3)
    assert refined <= 1.03 * rough
    assert rough <= 3 * kernel.peak
    assert rough >= np.abs(errors(name, 0.07, 30, evaluation_matrix(30, 3))).max()


@pytest.mark.parametrize("left_out", [0.0, 9e-6])  # of the largest, less than is cut
def test_what_a_series_leaves_out_is_in_its_bound(left_out):
    nodes = (1 - np.cos((np.arange(13) + 0.5) * np.pi / 13)) / 2
    values = 1 + left_out * np.cos(12 * np.arccos(1 - 2 * nodes))
    column = np.linalg.solve(bernstein_basis(nodes, 12), values)[:, None]
    series = Series.of(12, column)
    assert len(series.coefficients) == 2
    found = series.sup_norm(3000)  # whose nodes miss 2e-7
    assert 1 + left_out <= found <= (1 + left_out) * (1 + 1e-6)
    assert series.norm >= 1 + left_out


def test_what_a_polynomial_is_cut_by_is_in_the_bound_of_kinks(monkeypatch):
    nodes = (1 - np.cos((np.arange(13) + 0.5) * np.pi / 13)) / 2
    last = np.linalg.solve(bernstein_basis(nodes, 12), np.cos(12 * np.arccos(1 - 2 * nodes)))
    matrix = evaluation_matrix(12, 4) + 0.05 * last[:, None]
    worst = np.abs(errors("triangle", 0.3, 12, matrix)).max()
    kernel, norm = kernel_of("triangle", 0.3), lebesgue_constant(12, 4) + 0.7

    def bound(cut, wrong=False):
        series = replace(cut_series(12, matrix, cut), **({"tail": 0.0} if wrong else {}))
        monkeypatch.setattr(Series, "of", lambda *_: series)
        return _boxed_error(kernel, 12, matrix, norm)

    cut_series = Series.of
    assert len(cut_series(12, matrix, 0.4).coefficients) <= 12  # the last is left out
    assert worst <= bound(1e-9) <= 1.1 * worst
    assert worst <= bound(0.4)
    assert worst > bound(0.4, wrong=True)
