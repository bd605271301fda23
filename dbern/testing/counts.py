"""Integers that a release counts of a database, and how far those of two databases differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from dbern.measure.counters import Counters
from dbern.planning.component_plan import PlannedMeasurement
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.families import FAMILIES
from dbern.privacy.mechanism import to_grid
from dbern.reconstruct import noise_names
from dbern.testing.databases import Record
from dbern.types import FloatArray, Int64Array

_SALT: Final = bytes(range(32))  # of content hashes: any will do, as none may matter


def counted(counters: Counters, batches: Sequence[Sequence[Record]]) -> Int64Array:
    """Count all batches in as many passes as it takes; return the state."""
    columns = [
        {
            column.name: np.array([record[column.name] for record in batch], dtype=np.float64)
            for column in counters.columns
        }
        for batch in batches
    ]
    state = counters.empty()
    for index in range(max(1, counters.passes)):
        state += counters.count(columns, _SALT, index)
    return state


def integers(spec: ReleaseSpec, plan: ReleasePlan, records: Sequence[Record]) -> list[Int64Array]:
    """Return the integers that carry the noise, flat, for each component all outputs."""
    return integers_of_each(spec, plan, [records])[0]


def integers_of_each(
    spec: ReleaseSpec, plan: ReleasePlan, databases: Iterable[Sequence[Record]]
) -> list[list[Int64Array]]:
    """Return `integers` of several databases, by the same counters."""
    counters, staged = plan.counters(spec), []
    for database in databases:
        state, components = counted(counters, [database]), []
        for index, planned in enumerate(plan.components):
            values = [
                counters.to_values(state, index, output, slab).ravel()
                for output in range(planned.outputs)
                for slab in planned.strategy.layout.slabs()
            ]
            components.append(to_grid(np.concatenate(values), planned.noise.law))
        staged.append(components)
    return staged


def moves(plan: ReleasePlan, staged: Sequence[Sequence[Int64Array]]) -> list[float]:
    """Return, by component, the largest distance of any two over its planned bound."""
    counts = [np.array(components) for components in zip(*staged, strict=True)]
    return [
        float(distance_ratios(rows, rows, planned).max())
        for rows, planned in zip(counts, plan.components, strict=True)
    ]


def distance_ratios(
    first: Int64Array, second: Int64Array, planned: PlannedMeasurement
) -> FloatArray:
    """Distances of integers (m, N) and (m', N) over the law's sensitivity."""
    norm, bound = _sensitivity(planned)
    ratios = np.empty((len(first), len(second)))
    for i, row in enumerate(first):
        differences = (second - row).astype(np.float64)
        ratios[i] = np.linalg.norm(differences, norm, axis=1)
        if planned.noise.law.values < math.inf:  # what is added, or taken away: twice the larger
            ratios[i] += np.abs(differences.sum(axis=1))
    return ratios / bound


def _sensitivity(planned: PlannedMeasurement) -> tuple[float, float]:
    """Sensitivity of the planned law, in granules: a norm, and the most by which to move."""
    law = planned.noise.law
    family = next(
        family for family in FAMILIES if planned.noise.kind in noise_names(family).values()
    )
    if family.norm < math.inf:
        return family.norm, law.sensitivity_in_granules
    # The move of any one value, whose number is part of the law.
    return math.inf, law.sensitivity_in_granules / (planned.outputs * planned.strategy.layout.size)
