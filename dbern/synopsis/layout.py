"""The arrays of a component's groups, as their writer makes them and their readers demand them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dbern.reconstruct.axis_maps import Limits
from dbern.synopsis.component import Component

COEFFICIENTS = "coefficients"
LARGEST_NUMBER = 1e100
"""Of a matrix: products of several stay finite."""

_SHRINKAGE = {
    "silenced": Limits(float, 0, LARGEST_NUMBER, needed=False),
    "silenced_share": Limits(float, 0, 1, needed=False),
}
_NO_OBLIQUE = {"oblique": Limits(float, math.inf, -math.inf, needed=False)}  # nothing is within


@dataclass(frozen=True)
class ArrayLayout:
    """One array: its shape and dimensions, its numbers ("int64" or "float64"), its attributes.

    `limits` are of attributes that do not follow from the component. `sharded`: cut along the first
    axis; any other array is one chunk.
    """

    shape: tuple[int, ...]
    dimensions: tuple[str, ...]
    numbers: str = "float64"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Limits] = field(default_factory=dict)
    sharded: bool = False


@dataclass(frozen=True)
class MapGroup:
    """The arrays of one map, from the values released of it, `mode`, to the `nodes` of an axis.

    `paths` are theirs in the component's group, by name.
    """

    paths: Mapping[str, str]
    axis: str
    mode: str
    nodes: int


def map_groups(component: Component) -> list[MapGroup]:
    """Return those of the component's maps: one an axis, or one of all axes; or none."""
    axis_map, kind = component.axis_map, component.noise.strategy_kind
    if axis_map is None:
        return []
    if axis_map.of:
        paths = {name: f"{kind}/{name}" for name in axis_map.stored}
        return [MapGroup(paths, "point", axis_map.mode, component.lattice.size)]
    groups = []
    for axis, nodes in zip(component.axes, component.lattice.shape, strict=True):
        paths = {name: f"{kind}/{name}_{axis}" for name in axis_map.stored}
        groups.append(MapGroup(paths, axis, f"{axis}_{axis_map.mode}", nodes))
    return groups


def released_path(component: Component) -> str:
    """Return the path of the integers that carry the noise, where a map makes a lattice of them."""
    return f"{component.noise.strategy_kind}/released"


def array_paths(component: Component) -> list[str]:
    """Return the path in the component's group of each array."""
    maps = [path for group in map_groups(component) for path in group.paths.values()]
    return [*group_layout(component), *([released_path(component)] if maps else []), *maps]


def group_layout(component: Component) -> dict[str, ArrayLayout]:
    """Return the coefficients and axes of a component, by their path in its group."""
    names, shape = component.axes or ("entry",), component.lattice.shape
    scale, limits = _scale_of(component), _SHRINKAGE | _NO_OBLIQUE
    if component.oblique:  # who has this group alone must not take its coordinates for the axes
        scale, limits = {**scale, "oblique": component.oblique.to_json()}, _SHRINKAGE
    coefficients = ArrayLayout(shape, names, "int64", scale, limits, sharded=True)
    axes = zip(component.axes, shape, strict=False)  # a vector has none
    return {COEFFICIENTS: coefficients, **{axis: ArrayLayout((n,), (axis,)) for axis, n in axes}}


def map_layouts(component: Component, ranks: Sequence[int]) -> dict[str, ArrayLayout]:
    """Return the released values of a component, and its maps of so many each, by their path."""
    axis_map, groups = component.axis_map, map_groups(component)
    if axis_map is None:
        return {}
    shape, modes = tuple(ranks), tuple(group.mode for group in groups)
    released = ArrayLayout(shape, modes, "int64", _scale_of(component), _SHRINKAGE | _NO_OBLIQUE)
    layouts = {released_path(component): released}
    for group, rank in zip(groups, ranks, strict=True):
        sizes = {"axis": (group.axis, group.nodes), "mode": (group.mode, rank)}
        for name, stored in axis_map.stored.items():
            names, shape = zip(*(sizes[dimension] for dimension in stored.dimensions), strict=True)
            layout = ArrayLayout(shape, names, stored.numbers, limits=stored.limits)
            layouts[group.paths[name]] = layout
    return layouts


def _scale_of(component: Component) -> dict[str, Any]:
    return {"scale_factor": component.noise.granularity, "add_offset": 0.0}
