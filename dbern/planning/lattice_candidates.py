"""Candidates whose lattice values themselves are released, and the lattices that are tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dbern.planning.candidate_design import CandidateDesign
from dbern.planning.design_search import LARGEST_K, DesignSearch
from dbern.planning.narrow_kernels import COARSEST, MIN_STEPS, REL_TOL, too_narrow
from dbern.reconstruct.base import Lattice, LatticeStrategy

KINKED_RESOLUTIONS = (16.0, 24.0)
"""Lattice steps a deviation, besides: kinks are approximated slowly."""

LARGEST_KINKED_K = 500
"""Most steps of an axis of these: matrices beyond take seconds."""

FINE_RESOLUTIONS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""Lattice steps a deviation where noise does not grow with them."""

FINE_ORDERS = (8, 48)
"""Orders that are tried of lattices as fine as wanted; polynomials of bins have the last."""

NEGLIGIBLE = 0.1
"""Fraction of the noise: a finer lattice than that needs is work for nothing."""

_RESOLUTIONS = (0.8, 1.2, 1.6, 2.0, 3.0, 4.0)  # lattice steps a deviation
_ORDERS = (1, 2, 4, 8, 16, 24)
_ORDERS_OF_MANY_AXES, _NUM_RESOLUTIONS_OF_MANY_AXES = (2, 8), 3
_STATED_K = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # where no kernel says how fine
_STATED_ORDERS = (1, 2, 4, 8)


def lattice_candidates(search: DesignSearch) -> Iterator[CandidateDesign]:
    """Yield releases of the lattice values of kernels: noise grows with k."""
    best, few = math.inf, search.many_axes
    orders = search.orders(_ORDERS_OF_MANY_AXES if few else _ORDERS)
    resolutions = _RESOLUTIONS[: _NUM_RESOLUTIONS_OF_MANY_AXES if few else None]
    for lattice in lattices_to_try(search, resolutions):
        candidates = [search.candidate(LatticeStrategy(lattice), h) for h in orders]
        yield from candidates
        best = min(best, *(candidate.error for candidate in candidates))
        if min(candidate.noise for candidate in candidates) > best:
            break  # finer lattices are noisier still


def class_candidates(search: DesignSearch) -> Iterator[CandidateDesign]:
    """Yield lattice values of a function of which a class is known: its worst is the typical."""
    axes, best = search.measurement.domain.dimensions, math.inf
    for k in [search.k] if search.k is not None else [(k,) * axes for k in _STATED_K]:
        strategy = LatticeStrategy(Lattice(k))
        if best < math.inf and strategy.layout.size > search.largest_lattice:
            break
        candidates = []
        for h in search.orders(_STATED_ORDERS):
            error = search.measurement.approximation.error(k, h, (None,) * axes)
            noise = search.noise(strategy, h)
            candidates.append(CandidateDesign(strategy, h, noise, error, error, search.certified))
        yield from candidates
        if min(candidate.noise for candidate in candidates) > best:
            break  # noise grows with k
        best = min(best, *(candidate.error for candidate in candidates))


def lattices_to_try(
    search: DesignSearch, resolutions: Sequence[float], *, counted: bool = True
) -> list[Lattice]:
    """Return the stated lattice, or lattices of some steps to a deviation on every axis.

    Unless their values are `counted`, kinks limit those of two steps and more alone.
    """
    if search.k is not None:
        return search.lattices(resolutions)
    needed = max(MIN_STEPS / kernel.deviation for kernel in search.kernels)
    if needed > LARGEST_K * (1 + REL_TOL):
        raise too_narrow(search, f"k = {math.ceil(needed)}", LARGEST_K, steps=True)
    lattices = search.lattices(resolutions)
    if search.kinked:
        lattices += [
            finer
            for finer in search.lattices(KINKED_RESOLUTIONS)
            if max(finer.k) <= LARGEST_KINKED_K and finer not in lattices
        ]
    fitting = [lattice for lattice in lattices if search.cells(lattice) <= search.largest_lattice]
    steps, size = resolutions[0], search.cells if counted else lambda lattice: lattice.size
    # Cells that kinks make necessary are the limit, or points where there are many axes.
    while (search.kinked or search.many_axes) and not fitting:
        steps /= 1.25
        lattices = [Lattice(search.resolve(steps))]
        fitting = [lattice for lattice in lattices if size(lattice) <= search.largest_lattice]
        if search.many_axes and not search.kinked and steps < COARSEST and not fitting:
            raise too_narrow(search, f"{lattices[0].size} lattice points", search.largest_lattice)
    return fitting or lattices[:1]
