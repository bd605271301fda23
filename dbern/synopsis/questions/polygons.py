"""Polygons on the two axes of a release, from GeoJSON or objects that have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dbern.data.domain import Domain
from dbern.errors import SpecError, printable
from dbern.synopsis.labels import upright
from dbern.types import BoolArray, FloatArray, Int64Array

Parts: TypeAlias = Sequence[Sequence[FloatArray]]
"""A region is the union of its parts; a part is what an odd number of its closed rings encloses."""

_MAX_EDGES = 5000
_KINDS = ("Polygon", "MultiPolygon")
_TOUCHING = 1e-12  # twice the area of a triangle that has none: what points in degrees round to


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
