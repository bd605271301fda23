"""Candidates whose bins are released: how bins are chosen.

Bins are chosen by their noise and the worst database alone, before their matrices are made: beside
what a point mass errs by, the rest of a typical database hardly tells bins apart.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dbern.bernstein.basis import INTERPOLATED, MOST_INTERPOLATED
from dbern.planning.bin_grids import BinGrid, bin_grids
from dbern.planning.candidate_design import CandidateDesign
from dbern.planning.design_search import LARGEST_K, DesignSearch
from dbern.planning.lattice_candidates import (
    FINE_ORDERS,
    FINE_RESOLUTIONS,
    KINKED_RESOLUTIONS,
    LARGEST_KINKED_K,
    NEGLIGIBLE,
    lattices_to_try,
)
from dbern.planning.narrow_kernels import MIN_STEPS, too_narrow
from dbern.reconstruct.base import Lattice

_NEAR = 1.3  # times the least estimate without it: where a public density is looked at
_MIN_DEGREE_GAIN = 0.03  # of the error: what a higher degree gains, or it is not taken
_MAX_STEPS = 2000  # of an axis: more takes more memory than it gains


def bin_candidates(search: DesignSearch) -> Iterator[CandidateDesign]:
    """Yield releases of bins: the noise of a bin is that of a count, whatever the kernel.

    Nothing is shrunk: nearly dependent bins at the ends of the domain are damped. Higher degrees
    cost time: they are there where they gain `_MIN_DEGREE_GAIN`.
    """
    if not search.measurement.binned:
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
    yield from (candidate for candidate in estimates.values() if candidate.two_level)
    one_level = [pair for pair in estimates.items() if not pair[1].two_level]
    lowest_error = math.inf
    for degree in dict.fromkeys(grid.degree for grid, _ in one_level):
        of_degree = [candidate for grid, candidate in one_level if grid.degree == degree]
        error = min(candidate.error for candidate in of_degree)
        if (1 + _MIN_DEGREE_GAIN) * error <= lowest_error:
            yield from of_degree
            lowest_error = error


def _fitting_grids(search: DesignSearch) -> list[BinGrid]:
    """Return grids whose bins are few enough, by degree and cells a deviation."""
    grids = bin_grids(search)
    fitting = [grid for grid in grids if grid.size <= search.largest_lattice]
    if not fitting:
        needed = f"{min(grid.size for grid in grids)} bins"
        raise too_narrow(search, needed, search.largest_lattice)
    return sorted(fitting, key=lambda grid: (grid.degree, grid.resolution))


def _function_of_bins(
    search: DesignSearch, fitting: Sequence[BinGrid]
) -> tuple[Lattice, tuple[int, ...], float]:
    """Find the lattice of the bins' function, its order, and what it misses whatever the bins.

    The coarsest that misses a tenth of the noise, or the finest. Where polynomials of no degree
    resolve a kernel that is narrow, the function is linear between lattice values.
    """
    order = search.orders(FINE_ORDERS)[-1]
    lattices = lattices_to_try(search, FINE_RESOLUTIONS, counted=False)
    one_level = [grid for grid in fitting if grid.levels == (1, 1)]
    usual = min(one_level, key=lambda grid: (grid.degree != 3, abs(grid.resolution - 1.5)))
    kernel_itself = (0,) * len(order)
    noise = search.estimate(usual.bins_for(lattices[-1]), kernel_itself, order, 0.0).noise
    allowed = NEGLIGIBLE * noise / (1.0 if search.certified else search.point_mass("binned"))

    def fine(lattice: Lattice) -> bool:
        return search.fitted_error(lattice, order) <= allowed

    if _unresolved(search) and not fine(lattices[-1]):
        return _interpolated_lattice(search, allowed), (INTERPOLATED,) * len(order), 0.0
    if max(lattices[-1].k) == LARGEST_K and not fine(lattices[-1]):
        lattice = lattices[-1]  # none of them is
    else:
        lattice = lattices[bisect_left(lattices, True, hi=len(lattices) - 1, key=fine)]
    # Kinks are missed by bins, too, and by more.
    return lattice, order, 0.0 if search.kinked else search.fitted_error(lattice, order)


def _unresolved(search: DesignSearch) -> bool:
    """Return whether no polynomial is fine enough for a kernel, where k and the order are open."""
    if search.k or search.h or search.many_axes:
        return False
    steps, largest = FINE_RESOLUTIONS[-1], LARGEST_K
    if search.kinked:
        steps, largest = KINKED_RESOLUTIONS[0], LARGEST_KINKED_K
    return any(steps / kernel.deviation > largest for kernel in search.kernels)


def _interpolated_lattice(search: DesignSearch, allowed: float) -> Lattice:
    """Return steps between which lines miss at most so much of the kernels, or the finest.

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
        needed = max(needed, MIN_STEPS / kernel.deviation)
        steps.append(min(maximum, 100 * math.ceil(needed / 100)))
    return Lattice(tuple(steps))


def _with_bias(
    search: DesignSearch, estimates: dict[BinGrid, CandidateDesign]
) -> dict[BinGrid, CandidateDesign]:
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
