"""What a plan expects of its release: the typical error, and the band of evenly spread records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from dbern.combination import Combination
from dbern.counting.measurement import Measurement
from dbern.data.domain import Domain
from dbern.planning.choose import Problem
from dbern.planning.plans import Outlook, PlannedMeasurement
from dbern.strategies import strategy_of
from dbern.strategies.base import Lattice
from dbern.strategies.bins import MOST_AXES, bin_matrix, brackets_of, telescoped

_PLACES = 64  # in a cell, to average a bin over

Pair: TypeAlias = tuple[Measurement, PlannedMeasurement]
"""A measurement, made for the rows, and how it is planned."""


def outlook_of(
    pairs: Sequence[Pair],
    combination: Combination,
    domain: Domain,
    problem: Callable[[Measurement], Problem],
) -> Outlook:
    """Return that of sums of kernels over records; of others what their combination says.

    Parameters
    ----------
    problem : callable
        From a measurement to what its choice started from.
    """
    sums = [one for one, _ in pairs if one.kernel_sum]
    density = len(sums) == len(pairs) and all(one.unit == 1 / domain.volume for one in sums)
    unit = combination.unit(domain.names, density=density)
    if len(sums) < len(pairs):
        return Outlook(extent=combination.extent(None), unit=unit)
    unsigned = all(one.unsigned for one in sums)
    top = max(math.prod(g.peak for g in one.kernels) * one.unit for one in sums)
    extent = combination.extent((0.0 if unsigned else -top, top))
    if any(one.candidates for one in sums):
        return Outlook(extent=extent, unit=unit)
    if combination.kind == "ratio":
        return Outlook(extent=extent, unit=unit, by_place=True)
    errors, widths = [], []
    for one, planned in pairs:
        errors += [_expected(planned, problem(one))] * one.outputs
        widths += [_evenly_spread(one, planned)] * one.outputs
    follows = unsigned and all(width is not None for width in widths)
    these = combination.error([width or 0.0 for width in widths]) if follows else None
    return Outlook(combination.error(errors), these, extent, unit)


def _expected(planned: PlannedMeasurement, problem: Problem) -> float:
    """What the choice predicts of typical data, whatever it aimed at."""
    strategy = strategy_of(Lattice(planned.k), planned.maps)
    typical = replace(problem, certified=False)
    return planned.unit * typical.candidate(strategy, planned.h).error


def _evenly_spread(measurement: Measurement, planned: PlannedMeasurement) -> float | None:
    """The widest place of the band for evenly spread records, and no noise in its first part."""
    bins = getattr(planned.strategy, "bins", ())
    if not 1 <= len(bins) <= MOST_AXES:
        return None
    brackets = brackets_of(measurement.kernels, planned.k, planned.h, bins, bins)
    axes = []
    for one, axis in zip(brackets, bins, strict=True):
        places = (np.arange(_PLACES * axis.cells) + 0.5) / (_PLACES * axis.cells)
        shares = bin_matrix(places, axis.cells, axis.degree).mean(axis=0)
        axes.append((one.kernel @ shares, one.error @ shares))
    sure, found = planned.certificate, planned.unit * float(telescoped(axes).max())
    return min(found, sure.approximation) + sure.rounding + sure.noise
