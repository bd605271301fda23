"""What a plan expects of its release: the typical error, and the band of evenly spread records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dbern.combination import Combination
from dbern.counting.kernel_sums import KernelSum
from dbern.counting.measurement import Component, Vector
from dbern.data.domain import Domain
from dbern.planning.choose import Problem, unit_noise
from dbern.planning.plans import Outlook, PlannedComponent
from dbern.strategies.base import Lattice
from dbern.strategies.bias import approximation_of
from dbern.strategies.bins import bin_matrix
from dbern.strategies.brackets import MOST_AXES, brackets_of, telescoped
from dbern.strategies.maps import coordinates_of
from dbern.targets.base import counts_all_of, kernel_sum_of

_PLACES = 64  # in a cell, to average a bin over

Pair = tuple[Component | Vector, PlannedComponent]
"""A component, made for the rows, and how it is planned."""


def outlook_of(
    pairs: Sequence[Pair],
    combination: Combination,
    domain: Domain,
    problem: Callable[[KernelSum], Problem],
) -> Outlook:
    """Of sums of kernels over records; of other learners what their combination says.

    Parameters
    ----------
    problem : callable
        From a component to what its choice started from.
    """
    found = [(kernel_sum_of(component), planned) for component, planned in pairs]
    sums = [(one, planned) for one, planned in found if one is not None]
    density = len(sums) == len(pairs) and all(one.unit == 1 / domain.volume for one, _ in sums)
    unit = combination.unit(domain.names, density=density)
    if len(sums) < len(pairs):
        return Outlook(extent=combination.extent(None), unit=unit)
    unsigned = all(counts_all_of(one, one) for one, _ in sums)
    top = max(math.prod(g.peak for g in one.kernels) * one.unit for one, _ in sums)
    extent = combination.extent((0.0 if unsigned else -top, top))
    if combination.kind == "ratio":
        return Outlook(extent=extent, unit=unit, by_place=True)
    errors = [
        _expected(planned, problem(one)) for one, planned in sums for _ in range(planned.outputs)
    ]
    widths = [_evenly_spread(planned) for _, planned in sums for _ in range(planned.outputs)]
    follows = unsigned and all(width is not None for width in widths)
    these = combination.error([width or 0.0 for width in widths]) if follows else None
    return Outlook(combination.error(errors), these, extent, unit)


def _expected(planned: PlannedComponent, problem: Problem) -> float:
    """The mean sup of the noise with the typical approximation error, which are independent."""
    coordinates = coordinates_of(Lattice(planned.k), planned.maps)
    gaussian = planned.noise.kind.endswith("gaussian")
    noise = planned.noise.scale * unit_noise(coordinates, planned.h, gaussian)
    return math.hypot(noise, planned.unit * problem.bias(coordinates, planned.h))


def _evenly_spread(planned: PlannedComponent) -> float | None:
    """The widest place of the band for evenly spread records, and no noise in its first part."""
    bins = getattr(coordinates_of(Lattice(planned.k), planned.maps), "bins", ())
    if not 1 <= len(bins) <= MOST_AXES:
        return None
    kernels = getattr(approximation_of(planned.approximation), "kernels", ())
    brackets = brackets_of(kernels, planned.k, planned.h, bins, bins)
    axes = []
    for one, axis in zip(brackets, bins, strict=True):
        places = (np.arange(_PLACES * axis.cells) + 0.5) / (_PLACES * axis.cells)
        shares = bin_matrix(places, axis.cells, axis.degree).mean(axis=0)
        axes.append((one.kernel @ shares, one.error @ shares))
    sure, found = planned.certificate, planned.unit * float(telescoped(axes).max())
    return min(found, sure.approximation) + sure.rounding + sure.noise
