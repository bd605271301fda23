"""Refuse kernels that take more bins or lattice points than are chosen from: how wide is enough."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.errors import SpecError
from dbern.planning.bin_grids import bin_grids
from dbern.planning.design_search import LARGEST_K, DesignSearch
from dbern.reconstruct.base import Lattice

MIN_STEPS = 2.0
"""Steps a deviation on the finest lattice: with fewer, most of a bump is missed."""

REL_TOL = 1e-9
"""Of a width: what is written as the least is taken, however it is rounded."""

COARSEST = 0.8
"""Fewest lattice steps a deviation that are tried."""

_COARSEST_OF_MANY_AXES = 2.0 / 1.25**5
_MAX_FACTORS = 20_000  # beyond any bandwidth that a spec takes


def too_narrow(
    search: DesignSearch, needed: str, maximum: int, *, steps: bool = False
) -> SpecError:
    """Make the error for kernels that take more points or steps than are chosen from."""
    factors = 1.001 ** np.arange(_MAX_FACTORS)
    first_fitting = bisect_left(
        factors, True, hi=_MAX_FACTORS - 1, key=lambda factor: _fits(_widened(search, factor))
    )
    axes, domain = len(search.kernels), search.measurement.domain.axes
    pairs = zip(_widened(search, factors[first_fitting]).kernels, domain, strict=True)
    widths = ", ".join(_rounded_up(kernel.bandwidth * axis.width) for kernel, axis in pairs)
    wider = f"at least [{widths}]" if search.measurement.oblique is None else "a larger one"
    remedies = f"{', fewer axes,' * (axes > 1)} or k in [mechanism]"
    if steps:  # fewer axes are of no help, nor is a k that is larger
        remedies = f", or k = {maximum} in [mechanism], which misses most of a narrow peak"
    return SpecError(
        "target.bandwidth (of machines target.length_scale): too narrow for "
        f"{axes} ax{'e' if axes > 1 else 'i'}s: at least {needed}, more than the {maximum} that "
        f"are chosen from. Write {wider}{remedies}"
    )


@dataclass(frozen=True)
class _WidenedSearch(DesignSearch):
    """The same search for wider kernels."""

    wider_kernels: tuple[Kernel, ...] = ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The wider kernels."""
        return self.wider_kernels


def _widened(search: DesignSearch, factor: float) -> DesignSearch:
    """Return the same search for wider kernels, of which a lattice resolves each."""
    minimum = MIN_STEPS / LARGEST_K
    factors = ((kernel, max(factor, minimum / kernel.deviation)) for kernel in search.kernels)
    kernels = tuple(replace(kernel, bandwidth=kernel.bandwidth * by) for kernel, by in factors)
    return _WidenedSearch(**vars(search), wider_kernels=kernels)


def _fits(search: DesignSearch) -> bool:
    bins = min(grid.size for grid in bin_grids(search)) if search.measurement.binned else 1
    any_lattice = search.kinked or not search.many_axes
    points = 1 if any_lattice else Lattice(search.resolve(_COARSEST_OF_MANY_AXES)).size
    return max(bins, points) <= search.largest_lattice


def _rounded_up(width: float) -> str:
    digit = 10.0 ** (math.floor(math.log10(width)) - 2)
    return f"{math.ceil(width / digit * (1 - REL_TOL)) * digit:.3g}"
