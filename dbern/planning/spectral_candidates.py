"""Candidates whose spectral coordinates are released, for kernels that are products over axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dbern.bernstein.kernels import Kernel
from dbern.planning.candidate_design import CandidateDesign
from dbern.planning.design_search import DesignSearch
from dbern.planning.lattice_candidates import (
    FINE_ORDERS,
    FINE_RESOLUTIONS,
    NEGLIGIBLE,
    lattices_to_try,
)
from dbern.reconstruct.base import Lattice
from dbern.reconstruct.spectral import AxisSpectrum, SpectralStrategy, axis_spectrum

_THRESHOLDS = tuple(10.0 ** (-0.5 * step) for step in range(1, 14))
_NUM_GAUSSIAN_THRESHOLDS = 6  # orthonormal coordinates divide rounding errors by mu^{1/2}


def spectral_candidates(search: DesignSearch) -> Iterator[CandidateDesign]:
    """Yield releases of spectral coordinates: their noise does not grow with k.

    So one fine lattice will do. Ranks follow eigenvalue thresholds, so one number covers axes of
    different bandwidths.
    """
    if not search.measurement.spectral:
        return
    orders = search.orders(FINE_ORDERS)
    for lattice in lattices_to_try(search, FINE_RESOLUTIONS):
        spectra = _spectra(search.kernels, lattice.k, search.family.eigenvalue_exponent)
        middle_noise = search.noise(_cut(lattice, spectra, _THRESHOLDS[6]), orders[-1])
        if search.lattice_error(lattice, orders[-1]) <= NEGLIGIBLE * middle_noise:
            break
    shapes = set()
    for threshold in _THRESHOLDS[: _NUM_GAUSSIAN_THRESHOLDS if search.family.norm == 2 else None]:
        strategy = _cut(lattice, spectra, threshold)
        if strategy.layout.shape not in shapes:
            shapes.add(strategy.layout.shape)
            yield from (search.candidate(strategy, h) for h in orders)


def _spectra(kernels: Sequence[Kernel], k: Sequence[int], exponent: float) -> list[AxisSpectrum]:
    return [
        axis_spectrum(kernel, steps, steps + 1, exponent)
        for kernel, steps in zip(kernels, k, strict=True)
    ]


def _cut(lattice: Lattice, spectra: Sequence[AxisSpectrum], threshold: float) -> SpectralStrategy:
    ranks = [
        max(1, sum(level > threshold * spectrum.levels[0] for level in spectrum.levels))
        for spectrum in spectra
    ]
    pairs = zip(spectra, ranks, strict=True)
    return SpectralStrategy(lattice, tuple(spectrum.cut(rank) for spectrum, rank in pairs))
