"""Spectral coordinates: the stored matrix, and what they are of functions of norm one."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbern.bernstein.kernels import Gaussian
from dbern.reconstruct.base import Lattice, LatticeStrategy
from dbern.reconstruct.spectral import AxisSpectrum, SpectralStrategy, axis_spectrum

CASES = [(0.3, 12, 5), (0.1, 30, 9), (0.1, 30, 99), (0.05, 40, 14), (0.02, 60, 30), (2.0, 9, 4)]


def functions(kernels, k, spectra, norm, rng):
    """Coordinates of functions of norm one: of random expansions, and of the worst for signs."""
    maps = [spectrum.analysis for spectrum in spectra]
    grams = [g(np.subtract.outer(np.arange(n + 1), np.arange(n + 1)) / n)
             for g, n in zip(kernels, k, strict=True)]  # fmt: skip
    analysis, gram = reduce(np.kron, maps), reduce(np.kron, grams)
    expansions = [*rng.normal(size=(50, len(gram))), *np.eye(len(gram))[::7]]
    largest = np.linalg.eigh(analysis @ gram @ analysis.T)[1][:, -1]
    expansions.append(analysis.T @ (np.ones(len(analysis)) if norm == 1 else largest))
    return [np.linalg.norm(analysis @ gram @ one, norm) / np.sqrt(one @ gram @ one)
            for one in expansions]  # fmt: skip


@pytest.mark.parametrize(("norm", "weighting"), [(1, 0.25), (1, 0.5), (2, 0.5)])
@pytest.mark.parametrize(
    ("bandwidths", "k", "rank"), [*(((b,), (k,), d) for b, k, d in CASES), ((0.2, 0.3), (9, 7), 5)]
)
def test_no_function_of_norm_one_exceeds_the_bound(bandwidths, k, rank, norm, weighting):
    kernels = [Gaussian(b) for b in bandwidths]
    spectra = tuple(axis_spectrum(g, n, rank, weighting) for g, n in zip(kernels, k, strict=True))
    bound = SpectralStrategy(Lattice(k), spectra).rkhs_sensitivity(kernels, norm).value
    largest = max(functions(kernels, k, spectra, norm, np.random.default_rng(7)))
    assert largest <= bound <= 1.01 * largest  # it is attained


def test_weighted_coordinates_have_no_l2_bound():
    kernel = Gaussian(0.2)
    weighted = SpectralStrategy(Lattice((9,)), (axis_spectrum(kernel, 9, 4),))
    with pytest.raises(ValueError, match="orthonormal"):
        weighted.rkhs_sensitivity([kernel], 2)


def test_the_norm_of_the_stored_matrix_is_bounded_not_assumed():
    """A matrix that is not what was meant must show in its bound: here one row is tripled."""
    kernel = Gaussian(0.1)
    spectrum = axis_spectrum(kernel, 30, 9)
    integers = spectrum.integers.copy()
    integers[0] *= 3
    wrong = AxisSpectrum(integers.astype("<i8").tobytes(), spectrum.exponent, spectrum.eigenvalues)
    assert spectrum.gram_norm(kernel) < 1.001
    assert wrong.gram_norm(kernel) > 8
    bound = SpectralStrategy(Lattice((30,)), (wrong,)).rkhs_sensitivity([kernel], 1).value
    assert max(functions([kernel], (30,), [wrong], 1, np.random.default_rng(7))) <= bound


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
    plain = LatticeStrategy(Lattice((20,)))
    assert plain.l1_sensitivity([Gaussian(0.02)]).value == pytest.approx(2 * 21.70, rel=1e-3)
    assert plain.l1_sensitivity([Gaussian(5.0)]).value == pytest.approx(21 * Gaussian(5.0).peak)
