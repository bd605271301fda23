"""Candidates of a search: releases of kernels that are products, or of a class of functions.

*Bins* are chosen by their noise and the worst database alone, before their matrices are made:
beside what a point mass errs by, the rest of a typical database hardly tells bins apart.

*Lattice values* and *spectral coordinates* are tried at public resolutions. A kernel that takes
more bins or lattice points than are tried is refused, with the least width that does not.

A function without a kernel, of which its class is known, is released by lattice values alone, at a
few numbers of steps.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dbern.bernstein.basis import INTERPOLATED, MOST_INTERPOLATED
from dbern.bernstein.kernels import Kernel
from dbern.errors import SpecError
from dbern.planning.bin_grids import BinGrid, bin_grids, fewest_bins
from dbern.planning.search import LARGEST_K, Candidate, Search
from dbern.reconstruct.base import Lattice, LatticeStrategy
from dbern.reconstruct.spectral import AxisSpectrum, SpectralStrategy, axis_spectrum

FINE_RESOLUTIONS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""Lattice steps a deviation where noise does not grow with them."""
_FINE_ORDERS = (8, 48)  # of lattices as fine as wanted; polynomials of bins have the last
_NEGLIGIBLE = 0.1  # of the noise: a finer lattice than that needs is work for nothing
_KINKED_RESOLUTIONS = (16.0, 24.0)  # besides: kinks are approximated slowly
_LARGEST_KINKED_K = 500  # most steps of an axis of these: matrices beyond take seconds
_MIN_STEPS = 2.0  # a deviation on the finest lattice: with fewer, most of a bump is missed
_REL_TOL = 1e-9  # of a width: what is written as the least is taken, however it is rounded

_MIN_DEGREE_GAIN = 0.03  # of the error: what a higher degree gains, or it is not taken
_NEAR = 1.3  # times the least estimate without it: where a public density is looked at
_MAX_STEPS = 2000  # of an axis: more takes more memory than it gains


def bin_candidates(search: Search) -> Iterator[Candidate]:
    """Yield releases of bins: the noise of a bin is that of a count, whatever the kernel.

    Nothing is shrunk: nearly dependent bins at the ends of the domain are damped. Higher degrees
    cost time: they are there where they gain `_MIN_DEGREE_GAIN`.
    """
    if not search.statistic.binned:
        return
    fitting = _fitting_grids(search)
    lattice, order, lattice_error = _function_of_bins(search, fitting)
    designs = [(grid, grid.bins_for(lattice)) for grid in fitting]
    estimates = {
        grid: search.estimate(bins, lattice.k, order, lattice_error)
        for grid, bins in designs
        if search.admits(bins)
    }
    if search.reference is not None:
        estimates = _with_bias(search, estimates)
    yield from (candidate for candidate in estimates.values() if candidate.two_scales)
    one_scale = [pair for pair in estimates.items() if not pair[1].two_scales]
    lowest_error = math.inf
    for degree in dict.fromkeys(grid.degree for grid, _ in one_scale):
        of_degree = [candidate for grid, candidate in one_scale if grid.degree == degree]
        error = min(candidate.error for candidate in of_degree)
        if (1 + _MIN_DEGREE_GAIN) * error <= lowest_error:
            yield from of_degree
            lowest_error = error


def _fitting_grids(search: Search) -> list[BinGrid]:
    """Return grids whose bins are few enough, by degree and cells a deviation."""
    grids = bin_grids(search)
    if (least := fewest_bins(grids)) > search.most_values:
        raise too_narrow(search, f"{least} bins", search.most_values)
    fitting = [grid for grid in grids if grid.size <= search.most_values]
    return sorted(fitting, key=lambda grid: (grid.degree, grid.resolution))


def _function_of_bins(
    search: Search, fitting: Sequence[BinGrid]
) -> tuple[Lattice, tuple[int, ...], float]:
    """Find the lattice of the bins' function, its order, and what it misses whatever the bins.

    The coarsest that misses a tenth of the noise, or the finest. Where polynomials of no degree
    resolve a kernel that is narrow, the function is linear between lattice values.
    """
    order = search.orders(_FINE_ORDERS)[-1]
    lattices = lattices_to_try(search, FINE_RESOLUTIONS, counted=False)
    one_scale = [grid for grid in fitting if grid.parts == 1]
    usual = min(one_scale, key=lambda grid: (grid.degree != 3, abs(grid.resolution - 1.5)))
    kernel_itself = (0,) * len(order)
    noise = search.estimate(usual.bins_for(lattices[-1]), kernel_itself, order, 0.0).noise
    allowed = _NEGLIGIBLE * noise / (1.0 if search.certified else search.point_mass("binned"))

    def is_fine(lattice: Lattice) -> bool:
        return search.fitted_error(lattice, order) <= allowed

    if _unresolved(search) and not is_fine(lattices[-1]):
        return _interpolated_lattice(search, allowed), (INTERPOLATED,) * len(order), 0.0
    if max(lattices[-1].k) == LARGEST_K and not is_fine(lattices[-1]):
        lattice = lattices[-1]  # none of them is
    else:
        lattice = lattices[bisect_left(lattices, True, hi=len(lattices) - 1, key=is_fine)]
    # Kinks are missed by bins, too, and by more.
    return lattice, order, 0.0 if search.kinked else search.fitted_error(lattice, order)


def _unresolved(search: Search) -> bool:
    """Return whether no polynomial is fine enough for a kernel, where k and the order are open.

    Where a slope jumps none is: narrow bins miss less of the kink than the polynomial rounds off.
    """
    if search.k or search.h or search.many_axes:
        return False
    if search.jumps:
        return True
    steps, largest = FINE_RESOLUTIONS[-1], LARGEST_K
    if search.kinked:
        steps, largest = _KINKED_RESOLUTIONS[0], _LARGEST_KINKED_K
    return any(steps / kernel.deviation > largest for kernel in search.kernels)


def _interpolated_lattice(search: Search, allowed: float) -> Lattice:
    """Return the lattice between whose values lines miss at most `allowed`, or the finest.

    Of each axis they miss an equal share. Steps are hundredths of an axis, or parts of them: the
    kinks of rows that are rounded to hundredths are at lattice values.
    """
    kernels = search.kernels
    peaks = math.prod(kernel.peak for kernel in kernels)
    maximum = min(_MAX_STEPS, math.floor(MOST_INTERPOLATED ** (1 / len(kernels))) - 1)
    steps = []
    for kernel in kernels:
        error = allowed / peaks * kernel.peak / len(kernels)
        needed = math.sqrt(kernel.curvature / (8 * error))
        needed = max(needed, kernel.slope / (2 * error) if kernel.jumps else 0.0)
        needed = max(needed, _MIN_STEPS / kernel.deviation)
        steps.append(min(maximum, 100 * math.ceil(needed / 100)))
    return Lattice(tuple(steps))


def _with_bias(search: Search, estimates: dict[BinGrid, Candidate]) -> dict[BinGrid, Candidate]:
    """Add what bins miss of the public density that a spec names: it varies as no prior says."""
    limit = _NEAR * min((candidate.error for candidate in estimates.values()), default=math.inf)
    near = {
        grid: search.with_matrices(candidate)
        for grid, candidate in estimates.items()
        if candidate.error <= limit
    }
    return {
        grid: replace(candidate, approximation=search.bias(candidate.strategy, candidate.h))
        for grid, candidate in near.items()
    }


_RESOLUTIONS = (0.8, 1.2, 1.6, 2.0, 3.0, 4.0)  # lattice steps a deviation
_ORDERS = (1, 2, 4, 8, 16, 24)
_ORDERS_OF_MANY_AXES, _NUM_RESOLUTIONS_OF_MANY_AXES = (2, 8), 3


def lattice_candidates(search: Search) -> Iterator[Candidate]:
    """Yield releases of the lattice values of kernels: noise grows with k."""
    best = math.inf
    orders = search.orders(_ORDERS_OF_MANY_AXES if search.many_axes else _ORDERS)
    resolutions = _RESOLUTIONS[: _NUM_RESOLUTIONS_OF_MANY_AXES if search.many_axes else None]
    for lattice in lattices_to_try(search, resolutions):
        candidates = [search.candidate(LatticeStrategy(lattice), h) for h in orders]
        yield from candidates
        best = min(best, *(candidate.error for candidate in candidates))
        if min(candidate.noise for candidate in candidates) > best:
            break  # finer lattices are noisier still


_STATED_K = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # where no kernel says how fine
_STATED_ORDERS = (1, 2, 4, 8)


def class_candidates(search: Search) -> Iterator[Candidate]:
    """Yield lattice values of a function of which a class is known: its worst is the typical."""
    axes, best = search.statistic.domain.dimensions, math.inf
    for k in [search.k] if search.k is not None else [(k,) * axes for k in _STATED_K]:
        strategy = LatticeStrategy(Lattice(k))
        if best < math.inf and strategy.layout.size > search.most_values:
            break
        candidates = []
        for h in search.orders(_STATED_ORDERS):
            error = search.statistic.function_class.error(k, h, (None,) * axes)
            noise = search.noise(strategy, h)
            candidates.append(Candidate(strategy, h, noise, error, error, search.certified))
        yield from candidates
        if min(candidate.noise for candidate in candidates) > best:
            break  # noise grows with k
        best = min(best, *(candidate.error for candidate in candidates))


_COARSEST = 0.8  # fewest lattice steps a deviation that are tried


def lattices_to_try(
    search: Search, resolutions: Sequence[float], *, counted: bool = True
) -> list[Lattice]:
    """Return the stated lattice, or lattices of some steps to a deviation on every axis.

    Unless their values are `counted`, kinks limit those of two steps and more alone.
    """
    if search.k is not None:
        return search.lattices(resolutions)
    needed = max(_MIN_STEPS / kernel.deviation for kernel in search.kernels)
    if needed > LARGEST_K * (1 + _REL_TOL):
        raise too_narrow(search, f"k = {math.ceil(needed)}", LARGEST_K, steps=True)
    lattices = search.lattices(resolutions)
    if search.kinked:
        lattices += [
            finer
            for finer in search.lattices(_KINKED_RESOLUTIONS)
            if max(finer.k) <= _LARGEST_KINKED_K and finer not in lattices
        ]
    fitting = [lattice for lattice in lattices if search.cells(lattice) <= search.most_values]
    steps = resolutions[0]
    # Cells that kinks make necessary are the limit, or points where there are many axes.
    size = search.cells if counted else lambda lattice: lattice.size
    while (search.kinked or search.many_axes) and not fitting:
        steps /= 1.25
        lattices = [Lattice(search.resolve(steps))]
        fitting = [lattice for lattice in lattices if size(lattice) <= search.most_values]
        if search.many_axes and not search.kinked and steps < _COARSEST and not fitting:
            raise too_narrow(search, f"{lattices[0].size} lattice points", search.most_values)
    return fitting or lattices[:1]


_THRESHOLDS = tuple(10.0 ** (-0.5 * step) for step in range(1, 14))
_NUM_GAUSSIAN_THRESHOLDS = 6  # orthonormal coordinates divide rounding errors by mu^{1/2}


def spectral_candidates(search: Search) -> Iterator[Candidate]:
    """Yield releases of spectral coordinates on one fine lattice: noise does not grow with k.

    Ranks follow eigenvalue thresholds, so one number covers axes of different bandwidths.
    """
    if not search.statistic.spectral:
        return
    orders = search.orders(_FINE_ORDERS)
    for lattice in lattices_to_try(search, FINE_RESOLUTIONS):
        spectra = _spectra(search.kernels, lattice.k, search.family.eigenvalue_exponent)
        middle_noise = search.noise(_cut(lattice, spectra, _THRESHOLDS[6]), orders[-1])
        if search.lattice_error(lattice, orders[-1]) <= _NEGLIGIBLE * middle_noise:
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
        max(1, sum(mu > threshold * spectrum.eigenvalues[0] for mu in spectrum.eigenvalues))
        for spectrum in spectra
    ]
    pairs = zip(spectra, ranks, strict=True)
    return SpectralStrategy(lattice, tuple(spectrum.cut(rank) for spectrum, rank in pairs))


_COARSEST_OF_MANY_AXES = 2.0 / 1.25**5
_MAX_FACTORS = 20_000  # beyond any bandwidth that a spec takes


def too_narrow(search: Search, needed: str, maximum: int, *, steps: bool = False) -> SpecError:
    """Make the error for kernels that take more points or steps than are chosen from."""
    factors = 1.001 ** np.arange(_MAX_FACTORS)
    first_fitting = bisect_left(
        factors, True, hi=_MAX_FACTORS - 1, key=lambda factor: _fits(_widen(search, factor))
    )
    axes, domain = len(search.kernels), search.statistic.domain.axes
    pairs = zip(_widen(search, factors[first_fitting]).kernels, domain, strict=True)
    widths = ", ".join(_round_up(kernel.bandwidth * axis.width) for kernel, axis in pairs)
    wider = f"at least [{widths}]" if search.statistic.oblique is None else "a larger one"
    remedies = f"{', fewer axes,' * (axes > 1)} or k in [mechanism]"
    if steps:  # fewer axes are of no help, nor is a k that is larger
        remedies = f", or k = {maximum} in [mechanism], which misses most of a narrow peak"
    return SpecError(
        "target.bandwidth (of machines target.length_scale): too narrow for "
        f"{axes} ax{'e' if axes > 1 else 'i'}s: at least {needed}, more than the {maximum} that "
        f"are chosen from. Write {wider}{remedies}"
    )


@dataclass(frozen=True)
class _WidenedSearch(Search):
    """A search for wider kernels than those of its statistic."""

    wider_kernels: tuple[Kernel, ...] = ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The wider kernels."""
        return self.wider_kernels


def _widen(search: Search, factor: float) -> Search:
    """Return the same search for kernels so wide that a lattice resolves each."""
    minimum = _MIN_STEPS / LARGEST_K
    factors = ((kernel, max(factor, minimum / kernel.deviation)) for kernel in search.kernels)
    kernels = tuple(replace(kernel, bandwidth=kernel.bandwidth * by) for kernel, by in factors)
    return _WidenedSearch(**vars(search), wider_kernels=kernels)


def _fits(search: Search) -> bool:
    bins = fewest_bins(bin_grids(search)) if search.statistic.binned else 1
    any_lattice = search.kinked or not search.many_axes
    points = 1 if any_lattice else Lattice(search.resolve(_COARSEST_OF_MANY_AXES)).size
    return max(bins, points) <= search.most_values


def _round_up(width: float) -> str:
    digit = 10.0 ** (math.floor(math.log10(width)) - 2)
    return f"{math.ceil(width / digit * (1 - _REL_TOL)) * digit:.3g}"
