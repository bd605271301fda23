"""Search for a counterexample to a learner's sensitivity: neighbours whose integers part too far.

``search(MyLearner, spec)`` makes small databases at the edges of what the spec allows, counts them
as a release does, and compares how far the integers of neighbours are apart with what the plan
calibrates its noise to. A search proves nothing. It finds what a proof forgot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from dbern.data.domain import Axis, Column, RecordSchema
from dbern.errors import SpecError
from dbern.measure.counters import Counters
from dbern.planning.component_plan import PlannedComponent
from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.mechanism import to_grid
from dbern.reconstruct import noise_families
from dbern.targets import Learner, known
from dbern.types import FloatArray, Int64Array

_SALT: Final = bytes(range(32))  # of content hashes: any will do, as none may matter
Record: TypeAlias = Mapping[str, Any]
Database: TypeAlias = tuple[Record, ...]
_ROWS: Final = 2
_MAX_RECORDS: Final = 240
_MAX_GRID_AXES: Final = 3  # axes of which all corners, edges and middles are tried together
_INNER_FRACTIONS: Final = (0.137, 0.309, 0.618, 0.892)
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "release": {"name": "search", "output": "search.zarr"},
    "data": {"source": "*.parquet"},
    "budget": {"epsilon": "1.0", "ledger": "sqlite:///search.db", "dataset": "search"},
}
__all__ = ["Search", "search"]


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


def distance_ratios(first: Int64Array, second: Int64Array, planned: PlannedComponent) -> FloatArray:
    """Distances of integers (m, N) and (m', N) over the law's sensitivity."""
    norm, bound = _sensitivity(planned)
    ratios = np.empty((len(first), len(second)))
    for i, row in enumerate(first):
        differences = (second - row).astype(np.float64)
        ratios[i] = np.linalg.norm(differences, norm, axis=1)
        if planned.noise.law.values < math.inf:  # what is added, or taken away: twice the larger
            ratios[i] += np.abs(differences.sum(axis=1))
    return ratios / bound


def _sensitivity(planned: PlannedComponent) -> tuple[float, float]:
    """Sensitivity of the planned law, in granules: a norm, and the most by which to move."""
    law = planned.noise.law
    family = noise_families(planned.noise.kind)[0]
    if family.norm < math.inf:
        return family.norm, law.sensitivity_in_granules
    # The move of any one value, whose number is part of the law.
    return math.inf, law.sensitivity_in_granules / (planned.outputs * planned.strategy.layout.size)


def small_spec(spec: ReleaseSpec | Mapping[str, Mapping[str, Any]], kind: str) -> ReleaseSpec:
    """Return the spec for two records, and what a mapping of its sections may leave out."""
    if isinstance(spec, ReleaseSpec):
        rows = {"normalizer": str(_ROWS)} if spec.normalizer is not None else {"n": _ROWS}
        return spec.changed({"data": rows, "target": {"kind": kind}})
    rest = {section: dict(keys) for section, keys in spec.items()}
    sections = {name: keys | rest.pop(name, {}) for name, keys in _DEFAULTS.items()} | rest
    private = "unit" in sections["data"] or "neighbors" in sections["data"]
    sections["data"] |= {"normalizer": str(_ROWS)} if private else {"n": _ROWS}
    sections["target"] = {**sections.get("target", {}), "kind": kind}
    return ReleaseSpec(**sections)


def neighbor_families(spec: ReleaseSpec) -> Iterator[tuple[list[Database], bool]]:
    """Yield lists of databases: all neighbours of each other, or (False) of the first of them."""
    schema, protection = spec.records, spec.protection
    ids = schema.unit
    records = _adversarial_records(schema)
    middle, null = records[1], records[-1]
    first, second = ({}, {}) if ids is None else ({ids.name: (1.0, 0.0)}, {ids.name: (2.0, 0.0)})
    rows = protection.unit.max_contributions
    counts = (1,) if ids is None else sorted({1, rows, 2 * rows})
    changes = [({**record, **second},) * count for record in records for count in counts]
    contexts: list[Database] = [({**middle, **first},), ({**null, **first},)]
    if protection.private_rows:
        contexts += [(), ({**middle, **first},) * 3]
        changes = [(), *changes]
    for context in contexts:
        yield [context + change for change in changes], not protection.added


def _adversarial_records(schema: RecordSchema) -> list[dict[str, float]]:
    """Records at the edges of a schema; the second is inside, the last is missing."""
    axes = [(axis.name, axis.low, axis.high) for axis in schema.domain.numeric]
    middle = {name: low + (high - low) / 2 for name, low, high in axes}
    edges = [[(name, value) for value in (low, middle[name], high)] for name, low, high in axes]
    if len(axes) <= _MAX_GRID_AXES:
        positions = [dict(corner) for corner in itertools.product(*edges)]
    else:
        positions = [dict(corner) for corner in zip(*edges, strict=True)]
        positions += [middle | {name: value} for some in edges for name, value in some]
    inner = _INNER_FRACTIONS * len(axes)
    for shift in range(len(_INNER_FRACTIONS)):
        fractions = inner[shift:] + inner[:shift]
        positions.append(
            {
                name: low + fraction * (high - low)
                for (name, low, high), fraction in zip(axes, fractions, strict=False)
            }
        )
    ties = {axis.name: _beside_ties(axis) for axis in schema.domain.numeric}
    for name, low, high in axes:
        positions += [middle | {name: value} for value in (*_around(low, high), *ties[name])]
    lists = [axis.column for axis in schema.domain.categorical]
    columns = (schema.label, schema.group, *lists)
    choices = [_values(column) for column in columns if column is not None]
    if schema.response is not None:
        low, high, name = schema.response.low, schema.response.high, schema.response.name
        inside = (low, low + (high - low) / 3, high)
        choices.append([(name, value) for value in (*inside, *_around(low, high))])
    kinds = [dict(kind) for kind in itertools.product(*choices)]
    records = [position | kind for position in positions for kind in kinds]
    step = -(-len(records) // _MAX_RECORDS)
    step += step > 1 and len(kinds) % step == 0  # a stride that passes every kind
    # A record that every sum leaves out, and as the second one that most count.
    nowhere = dict.fromkeys(records[0], math.nan)
    return [records[0], middle | kinds[0], *records[1::step], nowhere]


def _around(low: float, high: float) -> tuple[float, ...]:
    """Values just inside and outside of an interval, far outside of it, and none."""
    near = [math.nextafter(end, to) for end in (low, high) for to in (-math.inf, math.inf)]
    return (*near, high + (high - low) / 2, -1e300, 1e300, -math.inf, math.inf, math.nan)


def _beside_ties(axis: Axis) -> list[float]:
    """Values halfway between two multiples, where there are some, and the floats next to them."""
    if axis.multiples is None:
        return []
    middle = (axis.multiples.values[:2].sum() / 2).item()
    return [middle, math.nextafter(middle, -math.inf), math.nextafter(middle, math.inf)]


def _values(column: Column) -> list[tuple[str, float]]:
    positions = (*map(float, range(len(column.categories))), math.nan)
    return [(column.name, position) for position in positions]


@dataclass(frozen=True)
class Search:
    """Result of a search.

    Attributes
    ----------
    pairs : int
        Neighbouring databases that were compared.
    largest : float
        The largest distance of their integers over what the noise is calibrated to; above 1 the
        learner is not private, and far below 1 it may waste budget.
    component : str
        Whose integers these are.
    worst : pair of tuples of records
        The two databases; values are what a counter is given, of categories their position.
    """

    pairs: int
    largest: float
    component: str
    worst: tuple[Database, Database]

    @property
    def found(self) -> bool:
        """Whether the two are a counterexample."""
        return self.largest > 1

    def __str__(self) -> str:
        verdict = "a COUNTEREXAMPLE" if self.found else "no counterexample"
        before, after = (" and ".join(map(str, map(dict, side))) or "none" for side in self.worst)
        return (
            f"{verdict} among {self.pairs} pairs: {self.component} moved by {self.largest:.3f} of "
            f"its sensitivity, from records {before} to {after}"
        )


def search(learner: type[Learner], spec: ReleaseSpec | Mapping[str, Mapping[str, Any]]) -> Search:
    """Look for neighbouring databases whose released integers part farther than the plan says.

    Records lie on edges, corners and middles of the domain, one float inside and outside of them,
    far outside, at infinity and nowhere, with every class and group, none, and every kind of
    response. Neighbours are those of the spec: one record replaced, or added or removed, or all
    records of a unit.

    Parameters
    ----------
    learner : subclass of Learner
        No package of it need be installed.
    spec : ReleaseSpec, or a mapping of its sections
        Its n or normalizer becomes 2. Of a mapping, `data.source`, `release`, `budget` and
        `target.kind` may be left out.

    Raises
    ------
    SpecError
        Where the spec cannot be planned.

    Examples
    --------
    >>> from dbern.targets import KernelDensity
    >>> result = search(KernelDensity, {
    ...     "data": {"bounds": {"x": [0.0, 10.0]}}, "target": {"bandwidth": [2.0]},
    ...     "mechanism": {"k": 12, "h": 2, "noise": "laplace"},
    ... })
    >>> result.found, 0.5 < result.largest <= 1, result.component
    (False, True, 'density')
    """
    with known(learner):
        small = small_spec(spec, learner.kind)
    plan = plan_files(small, ())
    if plan.counters(small).keyed:
        raise SpecError(
            "target.method: what is released is private by noise that enters before it is "
            'computed, which integers of neighbours do not show. Write method = "weights", or of '
            'least squares "moments".'
        )
    worst: Search | None = None
    pairs = 0
    for databases, everyone in neighbor_families(small):
        staged = integers_of_each(small, plan, databases)
        for index, planned in enumerate(plan.components):
            rows = np.array([counts[index] for counts in staged])
            # Of records added or removed, the first database has none of them.
            ratios = distance_ratios(rows if everyone else rows[:1], rows, planned)
            i, j = np.unravel_index(int(ratios.argmax()), ratios.shape)
            pairs += ratios.size if index == 0 else 0
            if worst is None or ratios[i, j] > worst.largest:
                pair = databases[i], databases[j]
                worst = Search(0, float(ratios[i, j]), planned.name, pair)
    if worst is None:
        raise SpecError("target.kind: releases nothing. In the learner, return a component")
    return Search(pairs, worst.largest, worst.component, worst.worst)
