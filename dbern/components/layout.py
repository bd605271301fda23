"""The arrays of a component's groups, as their writer makes them and their readers demand them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from dbern.components.component import Component, LatticeComponent, StoredOblique
from dbern.components.strict import ABSENT, Granule, StrictModel
from dbern.strategies.approximation import StoredArray

COEFFICIENTS = "coefficients"
LARGEST_NUMBER = 1e100
"""Of a matrix: products of several stay finite."""


class Scale(StrictModel):
    """Attributes of released integers: their unit, coordinates, and the noise that is silenced."""

    scale_factor: Granule
    add_offset: Annotated[float, Field(ge=0, le=0)]
    oblique: StoredOblique = ABSENT
    silenced: Annotated[float, Field(ge=0, le=LARGEST_NUMBER)] = ABSENT  # of released bins
    silenced_share: Annotated[float, Field(ge=0, le=1)] = ABSENT


@dataclass(frozen=True)
class ArrayLayout:
    """One array: its shape and dimensions, its numbers ("int64" or "float64"), its attributes.

    Those are the scale of released integers, or others within their limits: type, least and most.
    """

    shape: tuple[int, ...]
    dimensions: tuple[str, ...]
    numbers: str = "float64"
    scale: Scale | None = None
    limits: Mapping[str, tuple[type, float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class MapGroup:
    """The arrays of one map: what ends their names, and its two dimensions."""

    suffix: str
    axis: str
    mode: str
    nodes: int

    def layout(self, stored: StoredArray, rank: int) -> ArrayLayout:
        """Return one of its arrays, where so many values are released."""
        sizes = {"axis": self.nodes, "mode": rank}
        shape = tuple(sizes[dimension] for dimension in stored.dimensions)
        names = tuple(str(getattr(self, dimension)) for dimension in stored.dimensions)
        return ArrayLayout(shape, names, stored.numbers, limits=stored.limits)


def map_groups(component: Component) -> list[MapGroup]:
    """Return those of the component's maps: one an axis, or one of all axes; or none."""
    axis_map = component.axis_map
    if axis_map is None:
        return []
    if axis_map.of:
        return [MapGroup("", "point", axis_map.mode, component.lattice.size)]
    axes = zip(component.axes, component.lattice.shape, strict=True)
    return [MapGroup(f"_{axis}", axis, f"{axis}_{axis_map.mode}", nodes) for axis, nodes in axes]


def group_layout(component: Component, ranks: Sequence[int] = ()) -> dict[str, ArrayLayout]:
    """Return each array of a component's groups, by its path there.

    `ranks` are how many values are released of each map; shapes are unknown without.
    """
    scale = Scale.built()(scale_factor=component.noise.granularity, add_offset=0.0)
    oriented = scale
    if component.oblique:  # who has this group alone must not take its coordinates for the axes
        oriented = scale.model_copy(update={"oblique": component.oblique})
    shape, names = component.lattice.shape, component.axes or ("entry",)
    layouts = {COEFFICIENTS: ArrayLayout(shape, names, "int64", oriented)}
    if isinstance(component, LatticeComponent):
        axes = zip(component.axes, component.lattice.shape, strict=True)
        layouts |= {axis: ArrayLayout((nodes,), (axis,)) for axis, nodes in axes}
    if component.axis_map is None:
        return layouts
    groups, kind = map_groups(component), component.noise.strategy_kind
    ranks = ranks or [0] * len(groups)
    modes = tuple(group.mode for group in groups)
    layouts[f"{kind}/released"] = ArrayLayout(tuple(ranks), modes, "int64", scale)
    for group, rank in zip(groups, ranks, strict=True):
        for name, stored in component.axis_map.stored.items():
            layouts[f"{kind}/{name}{group.suffix}"] = group.layout(stored, rank)
    return layouts
