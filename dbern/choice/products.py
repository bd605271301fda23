"""Candidates for kernels that are products over axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from dbern.bernstein.bins import DEGREE, axis_bins
from dbern.bernstein.coordinates import PlainCoordinates, SpectralCoordinates
from dbern.bernstein.kernels import Kernel
from dbern.bernstein.lattice import Lattice
from dbern.bernstein.maps import BinnedCoordinates
from dbern.bernstein.spectrum import AxisSpectrum, axis_spectrum
from dbern.choice.problem import Candidate, Problem
from dbern.errors import SpecError

_PLAIN_RESOLUTIONS = (0.8, 1.2, 1.6, 2.0, 3.0, 4.0)  # lattice steps a deviation
_PLAIN_ORDERS = (1, 2, 4, 8, 16, 24)
_SPECTRAL_RESOLUTIONS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
_SPECTRAL_ORDERS = (8, 48)
_THRESHOLDS = tuple(10.0 ** (-0.5 * step) for step in range(1, 14))
_GAUSSIAN_THRESHOLDS = 6  # orthonormal coordinates divide rounding errors by mu^{1/2}
_NEGLIGIBLE = 0.1  # of the noise: a finer lattice than that needs is work for nothing
_BIN_RESOLUTIONS = (0.4, 0.55, 0.75, 1.0, 1.3, 1.7, 2.2, 3.0, 4.0)  # cells a deviation
_RIDGES = (0.0, 0.01, 1.0)  # times what is best on one axis
_MOST_CELLS = 2000
_FEW_ORDERS, _FEW_RESOLUTIONS = (2, 8), 3


def plain_candidates(problem: Problem) -> Iterator[Candidate]:
    """Releases of the lattice values themselves: noise grows with k."""
    best, few = math.inf, problem.many_axes
    orders = problem.orders(_FEW_ORDERS if few else _PLAIN_ORDERS)
    for lattice in problem.lattices(_PLAIN_RESOLUTIONS[: _FEW_RESOLUTIONS if few else None]):
        found = [problem.candidate(PlainCoordinates(lattice), h) for h in orders]
        yield from found
        best = min(best, *(candidate.error for candidate in found))
        if problem.kinked and min(candidate.noise for candidate in found) > best:
            break  # finer lattices, of which there are many, are noisier still


def spectral_candidates(problem: Problem) -> Iterator[Candidate]:
    """Releases of spectral coordinates: noise does not grow with k, so one fine lattice will do.

    Ranks follow eigenvalue thresholds, so one number covers axes of different bandwidths. There
    are none for a kernel that is not positive definite; see `require_positive_definite`.
    """
    positive = all(kernel.positive_definite for kernel in problem.kernels)
    if not (problem.component.spectral and positive):
        return
    orders = problem.orders(_SPECTRAL_ORDERS)
    for lattice in problem.lattices(_SPECTRAL_RESOLUTIONS):
        weighting = 0.5 if problem.gaussian else 0.25
        full = _spectra(problem.kernels, lattice.k, weighting)
        middle = problem.candidate(_cut(lattice, full, _THRESHOLDS[6]), orders[-1])
        if problem.lattice_error(lattice, orders[-1]) <= _NEGLIGIBLE * middle.noise:
            break
    seen = set()
    for threshold in _THRESHOLDS[: _GAUSSIAN_THRESHOLDS if problem.gaussian else None]:
        coordinates = _cut(lattice, full, threshold)
        if coordinates.layout.shape not in seen:
            seen.add(coordinates.layout.shape)
            yield from (problem.candidate(coordinates, h) for h in orders)


def binned_candidates(problem: Problem) -> Iterator[Candidate]:
    """Releases of bins: the noise of one bin is that of a count, whatever the kernel."""
    if not problem.component.binned:
        return
    order = problem.orders(_SPECTRAL_ORDERS)[-1]
    kernels, axes = problem.kernels, len(problem.kernels)
    finer = {tuple(_cells(kernels, each)): each for each in reversed(_BIN_RESOLUTIONS)}
    sizes = {each: math.prod(g + DEGREE for g in cells) for cells, each in finer.items()}
    fitting = sorted(each for each, size in sizes.items() if size <= problem.largest_lattice)
    if not fitting:
        raise problem.too_narrow(f"{min(sizes.values())} bins")
    finest = max((each for each in fitting if each <= 2.0), default=fitting[0])
    for lattice in problem.lattices(_SPECTRAL_RESOLUTIONS):
        tried = problem.candidate(_bins(kernels, lattice, finest, problem.ridge), order)
        if problem.lattice_error(lattice, order) <= _NEGLIGIBLE * tried.noise:
            break
    for resolution, factor in itertools.product(fitting, _RIDGES):  # those of one share its moments
        coordinates = _bins(kernels, lattice, resolution, factor ** (1 / axes) * problem.ridge)
        yield problem.candidate(coordinates, order)


def require_positive_definite(kernels: Sequence[Kernel]) -> None:
    """Refuse spectral noise where Gram matrices are no covariances.

    Raises
    ------
    SpecError
        For a kernel that is not positive definite.

    Examples
    --------
    >>> from dbern.bernstein.kernels import kernel_of
    >>> require_positive_definite([kernel_of("triangle", 0.1), kernel_of("laplace", 0.1)])
    """
    for kernel in kernels:
        if not kernel.positive_definite:
            raise SpecError(
                f'target.kernel: "{kernel.name}" is not positive definite, so there is no spectral '
                'noise for it; write kernel = "triangle" or "gaussian", or noise = "auto" in '
                "[mechanism]"
            )


def _bins(
    kernels: Sequence[Kernel], lattice: Lattice, resolution: float, ridge: float
) -> BinnedCoordinates:
    """Cells in proportion to the axes' inverse bandwidths."""
    axes = zip(kernels, lattice.k, _cells(kernels, resolution), strict=True)
    return BinnedCoordinates(lattice, tuple(axis_bins(*axis, ridge) for axis in axes))


def _cells(kernels: Sequence[Kernel], resolution: float) -> list[int]:
    return [min(_MOST_CELLS, math.ceil(resolution / kernel.deviation)) for kernel in kernels]


def _spectra(kernels: Sequence[Kernel], k: Sequence[int], weighting: float) -> list[AxisSpectrum]:
    return [
        axis_spectrum(kernel, each, each + 1, weighting)
        for kernel, each in zip(kernels, k, strict=True)
    ]


def _cut(lattice: Lattice, full: Sequence[AxisSpectrum], threshold: float) -> SpectralCoordinates:
    """Keep the eigenvalues above `threshold` times the axis's largest."""
    ranks = [max(1, sum(level > threshold * one.levels[0] for level in one.levels)) for one in full]
    return SpectralCoordinates(
        lattice, tuple(one.cut(rank) for one, rank in zip(full, ranks, strict=True))
    )


CANDIDATES = {"": plain_candidates, "spectral": spectral_candidates, "binned": binned_candidates}
"""By what is released: lattice values, spectral coordinates or bins."""
