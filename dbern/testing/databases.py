"""Small databases at the edges of what a spec allows of records, and their neighbours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from dbern.data.domain import Axis, Column, RecordSchema
from dbern.planning.spec import ReleaseSpec

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
