"""Regions of the domain in the forms in which people have them: boxes, and polygons of GeoJSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from dbern.ask.answer import Target
from dbern.ask.labels import upright
from dbern.ask.points import as_numbers
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError, printable
from dbern.system import and_text
from dbern.types import BoolArray, FloatArray, Int64Array

Parts: TypeAlias = Sequence[Sequence[FloatArray]]
"""A region is the union of its parts; a part is what an odd number of its closed rings encloses."""
_MAX_EDGES = 5000
_KINDS = ("Polygon", "MultiPolygon")
_TOUCHING = 1e-12  # twice the area of a triangle that has none: what points in degrees round to
Region: TypeAlias = Any
"""A box ``{"x": (low, high)}``, None for an end that is open; or a list of boxes."""


@dataclass(frozen=True, eq=False)
class Polygons:
    """Regions in the unit square."""

    regions: Sequence[Parts]
    labels: Sequence[Any]

    def __len__(self) -> int:
        return len(self.regions)


def polygons_of(shape: Any, domain: Domain) -> Polygons:
    """Read GeoJSON.

    A point's first number goes to the right, as in `upright`: it is the longitude. Raises SpecError
    for other geometries than polygons, rings that cross themselves or leave the bounds, and
    releases of other than two axes.
    """
    if domain.dimensions != 2:
        raise SpecError(f"region: polygons are of two axes, and here are {domain.dimensions}")
    features, labels = [shape], list[Any]([None])
    if shape["type"] == "FeatureCollection":
        features = shape.get("features", ())
        if type(features) not in (list, tuple) or not features:
            raise SpecError("region: the collection has no feature. Write one at least")
        if not all(hasattr(feature, "keys") for feature in features):
            raise SpecError("region: a feature is no object. Write GeoJSON")
        labels = [name_of(feature) or i for i, feature in enumerate(features)]
    regions = [_parts(feature.get("geometry", feature) or {}, domain) for feature in features]
    return Polygons(regions, labels)


def name_of(feature: Any) -> str | None:
    """Return the name in a GeoJSON feature's properties, if any, as it may be printed."""
    properties: Any = feature.get("properties")
    name = properties.get("name") if hasattr(properties, "get") else None
    return None if name is None else printable(str(name))


def _parts(geometry: Any, domain: Domain) -> Parts:
    if not hasattr(geometry, "keys") or geometry.get("type") not in _KINDS:
        raise SpecError(f"region: write GeoJSON of type {' or '.join(_KINDS)}")
    coordinates = geometry.get("coordinates", ())
    order = -1 if upright(domain.names)[0] == domain.names[0] else 1
    polygons = [coordinates] if geometry["type"] == "Polygon" else coordinates
    try:
        parts = [
            [np.asarray(ring, dtype=np.float64)[:, :2][:, ::order] for ring in polygon]
            for polygon in polygons
        ]
    except (TypeError, ValueError, IndexError, OverflowError):
        raise SpecError("region: coordinates must be rings of points (x, y)") from None
    rings, edges = [ring for part in parts for ring in part], 0
    if not rings:
        raise SpecError("region: there is a polygon without a ring. Leave it out")
    for points in rings:
        if len(points) < 4 or not np.array_equal(points[0], points[-1]):
            raise SpecError("region: a ring needs four points or more, the first one again last")
        if not domain.inside(points).all():
            raise SpecError(
                "region: the polygon leaves the bounds: nothing is known beyond. Cut it"
            )
        edges += len(points) - 1
        if edges > _MAX_EDGES:
            raise SpecError(f"region: more than {_MAX_EDGES} edges. Simplify the polygon")
    unit = [[np.clip(domain.to_unit(points), 0.0, 1.0) for points in part] for part in parts]
    _check_rings([ring for part in unit for ring in part])
    return unit


def _check_rings(rings: Sequence[FloatArray]) -> None:
    flat = any(not np.ptp(ring, axis=0).all() for ring in rings)
    crossing = _cross(rings)
    if flat or (crossing and any(_cross([ring]) for ring in rings)):
        raise SpecError(
            "region: the polygon crosses itself, or has no area. Mend it, such as by buffer(0)"
        )
    if crossing:
        raise SpecError(
            "region: rings cross each other. Unite the parts, such as by shapely's union_all"
        )


def _cross(rings: Sequence[FloatArray]) -> bool:
    """Whether two edges cross inside both: only those that share an x are compared."""
    start = np.concatenate([ring[:-1] for ring in rings])
    stop = np.concatenate([ring[1:] for ring in rings])
    first = np.minimum(start[:, 0], stop[:, 0])
    order = np.argsort(first)
    start, stop, first = start[order], stop[order], first[order]
    last = np.searchsorted(first, np.maximum(start[:, 0], stop[:, 0]), side="right")
    for i, end in enumerate(last):
        a, b, c, d = start[i], stop[i], start[i + 1 : end], stop[i + 1 : end]
        if (
            _on_both_sides(side(a, b, c), side(a, b, d))
            & _on_both_sides(side(c, d, a), side(c, d, b))
        ).any():
            return True
    return False


def _on_both_sides(first: FloatArray, second: FloatArray) -> BoolArray:
    """Whether two points are on both sides of an edge, and neither touches its line."""
    distance = np.minimum(np.abs(first), np.abs(second))
    return (np.sign(first) * np.sign(second) < 0) & (distance > _TOUCHING)


def side(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    """Return twice the area of the triangles a, b, c: above 0 where c is left of the way to b."""
    edge, diagonal = b - a, c - a
    return np.asarray(edge[..., 0] * diagonal[..., 1] - edge[..., 1] * diagonal[..., 0])


def outline(parts: Parts) -> FloatArray:
    """Return pieces (m, 2, 2) of the edges that bound a region, which is on their left.

    Pieces that do not rise or fall are left out. Between two neighbouring heights of corners no
    edges cross, so that from left to right each part begins and ends by turns, and the region where
    the first of its parts begins and where the last one that began ends.
    """
    rings = [(ring, number) for number, part in enumerate(parts) for ring in part]
    edges = np.concatenate([np.stack([ring[:-1], ring[1:]], axis=1) for ring, _ in rings])
    part = np.repeat([number for _, number in rings], [len(ring) - 1 for ring, _ in rings])
    rising = edges[:, 0, 1] != edges[:, 1, 1]
    edges, part = edges[rising], part[rising]
    edges = np.where((edges[:, :1, 1:] < edges[:, 1:, 1:]), edges, edges[:, ::-1])  # upward
    heights, ends = np.unique(edges[..., 1], return_inverse=True)
    edge, strip = _strips(ends.reshape(-1, 2))
    x = _at_height(edges[edge], (heights[strip] + heights[strip + 1]) / 2)
    by_part = np.lexsort((x, part[edge], strip))
    begins = np.empty(len(edge), np.int64)
    begins[by_part] = np.resize([1, -1], len(edge))
    by_x = np.lexsort((-begins, x, strip))
    edge, strip, begins = edge[by_x], strip[by_x], begins[by_x]
    depth = np.cumsum(begins)
    bounds = (depth == 0) | ((depth == 1) & (begins > 0))
    return _joined_pieces(edges, heights, edge[bounds], strip[bounds], begins[bounds])


def _strips(ends: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return pairs of an edge and a strip between neighbouring heights that it goes through."""
    counts = ends[:, 1] - ends[:, 0]
    edge = np.repeat(np.arange(len(ends)), counts)
    return edge, np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts - ends[:, 0], counts)


def _at_height(edges: FloatArray, y: FloatArray) -> FloatArray:
    a, b = edges[:, 0], edges[:, 1]
    return np.asarray(a[:, 0] + (y - a[:, 1]) / (b[:, 1] - a[:, 1]) * (b[:, 0] - a[:, 0]))


def _joined_pieces(
    edges: FloatArray, heights: FloatArray, edge: Int64Array, strip: Int64Array, begins: Int64Array
) -> FloatArray:
    """Join pieces of an edge in strips that follow one another; where a region begins it falls."""
    order = np.lexsort((strip, edge))
    edge, strip, begins = edge[order], strip[order], begins[order]
    new = np.ones(len(edge) + 1, dtype=np.bool_)
    new[1:-1] = (np.diff(edge) != 0) | (np.diff(strip) != 1) | (np.diff(begins) != 0)
    first, last = np.flatnonzero(new[:-1]), np.flatnonzero(new[1:])
    y = np.stack([heights[strip[first]], heights[strip[last] + 1]], axis=1)
    x = np.stack([_at_height(edges[edge[first]], end) for end in y.T], axis=1)
    pieces = np.stack([x, y], axis=-1)
    return np.where((begins[first] > 0)[:, None, None], pieces[:, ::-1], pieces)


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes in the unit cube, ends (m, l), with a label each; [None] for the only one."""

    low: FloatArray
    high: FloatArray
    labels: Sequence[Any]

    def __len__(self) -> int:
        return len(self.low)

    def select(self, which: slice) -> Boxes:
        """Return some of the boxes; the labels stay."""
        return Boxes(self.low[which], self.high[which], self.labels)


def read_region(region: Region, domain: Domain) -> Boxes | Polygons:
    """Read boxes, or polygons as GeoJSON or from an object with a `__geo_interface__`."""
    shape: Any = getattr(region, "__geo_interface__", region)
    if hasattr(shape, "keys") and not np.ndim(shape.get("type", ())) and "type" not in domain.names:
        return polygons_of(shape, domain)
    return boxes_of(region, domain)


def region_text(region: Region) -> str:
    """Write a region in words."""
    region = getattr(region, "__geo_interface__", region)
    match region:
        case {"type": str() as kind}:
            return f"a {kind}"
        case Mapping():
            return and_text([_ends_text(*item) for item in region.items()] or ["the domain"])
        case _:
            return f"{len(region)} regions"


def _ends_text(name: str, pair: tuple[Any, Any]) -> str:
    low, high = (f"{end:.12g}" if isinstance(end, float) else end for end in pair)
    if np.ndim(low) or np.ndim(high):
        return f"each low to each high end of {name}"
    if low is None:
        return f"any {name}" if high is None else f"{name} up to {high}"
    return f"{name} from {low} up" if high is None else f"{name} {low} to {high}"


def condition_text(condition: Region | None, target: Target = "records") -> str:
    """Write a condition in words."""
    rows = "" if target == "smoothed" else "of the rows "
    return "" if condition is None else f" {rows}with {region_text(condition)}"


def boxes_of(region: Region, domain: Domain, what: str = "region") -> Boxes:
    """Read boxes, in data units: one, several in a list, or of arrays of ends.

    Raises SpecError for axes that are unknown, ends that are no numbers, reversed, or outside the
    bounds.
    """
    match region:
        case Mapping():
            return _box(region, domain, what)
        case list() | tuple():
            boxes = [_box(box, domain, what) for box in region]
            if not boxes or any(len(box) != 1 for box in boxes):
                raise SpecError(f"{what}: a list must hold boxes, such as {_example(domain)}")
            low = np.concatenate([box.low for box in boxes])
            high = np.concatenate([box.high for box in boxes])
            return Boxes(low, high, range(len(boxes)))
        case _:
            raise SpecError(f"{what}: is no region. Write a box, such as {_example(domain)}")


def _example(domain: Domain) -> str:
    axis = domain.axes[0]
    low, high = (_end_text(end, axis, f"{end:g}") for end in (axis.low, axis.high))
    return f'{{"{axis.name}": ({low}, {high})}}'


def _end_text(end: float, axis: Axis, number: str) -> str:
    """Write an end as a region has it: a date or a time in quotes, or a number."""
    with suppress(OverflowError):  # of no calendar
        if axis.unit is not None:
            return f'"{axis.unit.text(end)}"'
    return number


def _box(region: Mapping[str, Any], domain: Domain, what: str) -> Boxes:
    shape = getattr(region, "__geo_interface__", region)
    if not hasattr(shape, "keys"):
        raise SpecError(f"{what}: a list must hold boxes, such as {_example(domain)}")
    if "type" in shape and "type" not in domain.names:
        remedy = "Write a box" if what == "given" else "Write several as one FeatureCollection"
        raise SpecError(f"{what}: polygons are not available here. {remedy}")
    unknown = [name for name in region if name not in domain.names]
    if unknown:
        known = ", ".join(domain.names)
        raise SpecError(f'{what}: there is no axis "{unknown[0]}". Write one of {known}')
    ends = [_interval(region.get(axis.name, (None, None)), axis, what) for axis in domain.axes]
    counts = {len(end) for pair in ends for end in pair} - {1}
    if len(counts) > 1:
        raise SpecError(f"{what}: arrays of ends must be equally long")
    count = max(counts, default=1)
    low, high = np.empty((2, count, len(ends)))
    for i, pair in enumerate(ends):
        low[:, i], high[:, i] = pair
    return Boxes(low, high, range(count) if counts else [None])


def _interval(ends: Any, axis: Axis, what: str) -> tuple[FloatArray, FloatArray]:
    first, last = _ends(ends, axis, what)
    low, high = ((end - axis.low) / axis.width for end in (first, last))
    return low, np.where(last == axis.high, 1.0, high)


def _ends(ends: Any, axis: Axis, what: str) -> tuple[FloatArray, FloatArray]:
    """Parse ends in data units, flat."""
    where, remedy = f"{what}: {axis.name}", f"Write {axis.name} = (low, high), or None for an end"
    try:
        low, high = ends
    except (TypeError, ValueError):
        raise SpecError(f"{where} must have two ends. {remedy}") from None
    domain, pairs = Domain((axis,)), ((low, axis.low), (high, axis.high))
    try:
        first, last = (
            np.atleast_1d(as_numbers(bound if end is None else end, axis.unit, domain))
            for end, bound in pairs
        )
    except SpecError:  # which speaks of points
        raise SpecError(f"{where}: ends must be numbers, or dates of a date. {remedy}") from None
    if first.ndim != 1 or last.ndim != 1:
        raise SpecError(f"{where}: ends must be numbers or flat arrays. {remedy}")
    if len({len(first), len(last)} - {1}) > 1:
        raise SpecError(f"{where}: arrays of ends must be equally long")
    if not (np.isfinite(first).all() and np.isfinite(last).all()):
        raise SpecError(f"{where}: ends must be finite numbers. {remedy}")
    outside = [*first[first < axis.low], *last[last > axis.high]]
    if outside:
        bounds = " to ".join(_end_text(end, axis, f"{end:g}") for end in (axis.low, axis.high))
        beyond = float(outside[0])
        raise SpecError(
            f"{where} leaves its bounds, {bounds}, with an end at "
            f"{_end_text(beyond, axis, repr(beyond))}: nothing is known beyond. "
            f"{remedy} that is open"
        )
    one_value = axis.multiples is not None  # may be asked for, where rows are rounded to it
    if not np.all((first < last) | (one_value & (first == last))):
        raise SpecError(
            f"{where}: the lower end must be below the upper one. {remedy} that is open"
        )
    return first, last


def require_one_box(boxes: Boxes) -> Boxes:
    """Return the boxes of a condition, which must be one. Raises SpecError for several."""
    if len(boxes) != 1:
        raise SpecError("given: write one box")
    return boxes


def part_of(window: Region, domain: Domain) -> Domain:
    """Return the part of a domain that one box is.

    Raises SpecError as `boxes_of`, or for several boxes.
    """
    if not hasattr(window, "get") or len(boxes_of(window, domain, "window")) != 1:
        raise SpecError(f"window: write one box, such as {_example(domain)}")
    axes = []
    for axis in domain.axes:
        low, high = _ends(window.get(axis.name, (None, None)), axis, "window")
        if not axis.categories:  # which a grid refuses
            axis = replace(axis, low=float(low[0]), high=float(high[0]), resolution=None)
        axes.append(axis)
    return Domain(tuple(axes))
