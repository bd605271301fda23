"""Spectral coordinates: the stored matrix, and what one record can do to the coordinates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.kernels import Gaussian
from dbern.strategies.approximation import _evaluation_matrix, translate_error
from dbern.strategies.base import Lattice, LatticeStrategy
from dbern.strategies.spectral import AxisSpectrum, SpectralStrategy, axis_spectrum

CASES = [(0.3, 12, 5), (0.1, 30, 9), (0.1, 30, 99), (0.05, 40, 14), (0.02, 60, 30), (2.0, 9, 4)]


def features(kernels, k, spectra, positions):
    """Spectral coordinates of single records, straight from the stored matrices."""
    rows = []
    for position in positions:
        value = np.ones(())
        for kernel, each, spectrum, t in zip(kernels, k, spectra, position, strict=True):
            bump = kernel(np.arange(each + 1) / each - t)
            value = np.multiply.outer(value, spectrum.analysis @ bump)
        rows.append(value.ravel())
    return np.array(rows)


def largest_l1(rows):
    """Brute force over all pairs, the missing record included."""
    rows = np.vstack([rows, np.zeros_like(rows[0])])
    return max(np.abs(rows - row).sum(axis=1).max() for row in rows)


@pytest.mark.parametrize(("bandwidth", "k", "rank"), CASES)
def test_no_pair_of_records_exceeds_the_bound_on_one_axis(bandwidth, k, rank):
    kernel, spectrum = Gaussian(bandwidth), axis_spectrum(Gaussian(bandwidth), k, rank)
    bound = SpectralStrategy(Lattice((k,)), (spectrum,)).l1_sensitivity([kernel]).value
    grid = np.linspace(0, 1, 301)[:, None]
    found = largest_l1(features([kernel], [k], [spectrum], grid))
    assert found <= bound
    assert bound <= 1.2 * found  # and it is not loose: half of it would be exceeded


@pytest.mark.parametrize(("bandwidth", "k", "rank"), CASES)
def test_the_quick_bound_is_a_bound_too(bandwidth, k, rank):
    kernel = Gaussian(bandwidth)
    strategy = SpectralStrategy(Lattice((k,)), (axis_spectrum(kernel, k, rank),))
    quick = strategy.l1_sensitivity([kernel], loose=True).value
    assert quick >= strategy.l1_sensitivity([kernel]).value


@pytest.mark.parametrize("dimensions", [2, 3])
def test_no_pair_of_records_exceeds_the_bound_on_more_axes(dimensions):
    rng = np.random.default_rng(7)
    kernels = [Gaussian(b) for b in (0.2, 0.12, 0.3)[:dimensions]]
    k = (9, 14, 7)[:dimensions]
    spectra = tuple(axis_spectrum(g, each, 5) for g, each in zip(kernels, k, strict=True))
    bound = SpectralStrategy(Lattice(k), spectra).l1_sensitivity(kernels).value
    corners = np.array(np.meshgrid(*[[0, 0.5, 1]] * dimensions)).reshape(dimensions, -1).T
    positions = np.vstack([rng.random((250, dimensions)), corners])
    found = largest_l1(features(kernels, k, spectra, positions))
    assert found <= bound <= 2 * found


def test_the_norm_of_the_stored_matrix_is_bounded_not_assumed():
    """A matrix that is not what was meant must show in its bound: here one row is tripled."""
    kernel = Gaussian(0.1)
    spectrum = axis_spectrum(kernel, 30, 9)
    integers = spectrum.integers.copy()
    integers[0] *= 3
    wrong = AxisSpectrum(integers.astype("<i8").tobytes(), spectrum.exponent, spectrum.levels)
    assert spectrum.gram_norm(kernel) < 1.001
    assert wrong.gram_norm(kernel) > 8
    bound = SpectralStrategy(Lattice((30,)), (wrong,)).l1_sensitivity([kernel]).value
    grid = np.linspace(0, 1, 301)[:, None]
    assert largest_l1(features([kernel], [30], [wrong], grid)) <= bound


@given(st.floats(0.02, 3.0), st.integers(2, 60), st.integers(1, 40))
def test_analysis_then_synthesis_is_a_projection(bandwidth, k, rank):
    spectrum = axis_spectrum(Gaussian(bandwidth), k, rank)
    product = spectrum.analysis @ spectrum.synthesis
    assert spectrum.rank <= rank
    np.testing.assert_allclose(product, np.eye(spectrum.rank), atol=1e-5)
    assert AxisSpectrum.from_dict(spectrum.to_dict()) == spectrum


def test_all_eigenvectors_give_the_lattice_back():
    kernel = Gaussian(0.05)
    spectrum = axis_spectrum(kernel, 20, 21)
    assert spectrum.rank == 21
    psi = kernel(np.arange(21) / 20 - 0.3)
    strategy = SpectralStrategy(Lattice((20,)), (spectrum,))
    (slab,) = strategy.lattice.slabs()
    np.testing.assert_allclose(strategy.reconstruct(spectrum.analysis @ psi, slab), psi, atol=1e-8)


@pytest.mark.parametrize(("bandwidth", "k", "rank"), CASES[:4])
def test_the_truncation_error_is_never_exceeded(bandwidth, k, rank):
    kernel = Gaussian(bandwidth)
    spectrum = axis_spectrum(kernel, k, rank)
    bound = translate_error(kernel, k, 4, spectrum)
    y, t = np.linspace(0, 1, 501), np.linspace(0, 1, 173)
    lattice = kernel(np.arange(k + 1)[:, None] / k - t)
    released = bernstein_basis(y, k) @ _evaluation_matrix(k, 4, spectrum) @ lattice
    worst = np.abs(kernel(y[:, None] - t) - released).max()
    assert worst <= bound <= 1.15 * worst


def test_slabs_of_the_lattice_are_rows_of_the_whole():
    kernels, k = [Gaussian(0.2), Gaussian(0.3)], (10, 6)
    spectra = tuple(axis_spectrum(g, each, 4) for g, each in zip(kernels, k, strict=True))
    strategy = SpectralStrategy(Lattice(k), spectra)
    values = np.random.default_rng(0).normal(size=strategy.layout.shape)
    (whole,) = strategy.lattice.slabs()
    part = type(whole)(0, 3, 7)
    full = strategy.reconstruct(values, whole)
    assert full.shape == (11, 7)
    np.testing.assert_allclose(strategy.reconstruct(values, part), full[3:7], atol=1e-12)


def test_plain_coordinates_take_the_smaller_of_the_two_bounds():
    wide, narrow = LatticeStrategy(Lattice((20,))), LatticeStrategy(Lattice((20,)))
    assert narrow.l1_sensitivity([Gaussian(0.02)]).value == pytest.approx(2 * 21.70, rel=1e-3)
    assert wide.l1_sensitivity([Gaussian(5.0)]).value == pytest.approx(21 * Gaussian(5.0).peak)
