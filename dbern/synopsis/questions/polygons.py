"""Polygons on the two axes of a release, from GeoJSON or objects that have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbern.data.domain import Domain
from dbern.errors import SpecError, printable
from dbern.synopsis.labels import upright
from dbern.types import FloatArray

_MAX_EDGES = 5000
_KINDS = ("Polygon", "MultiPolygon")


@dataclass(frozen=True, eq=False)
class Polygons:
    """Regions in the unit square, each of closed rings; what an even number encloses is outside."""

    rings: Sequence[Sequence[FloatArray]]
    labels: Sequence[Any]

    def __len__(self) -> int:
        return len(self.rings)


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
    rings = [_rings(feature.get("geometry", feature) or {}, domain) for feature in features]
    if not all(rings):
        raise SpecError("region: there is a polygon without a ring. Leave it out")
    return Polygons(rings, labels)


def name_of(feature: Any) -> str | None:
    """Return the name in a GeoJSON feature's properties, if any, as it may be printed."""
    properties: Any = feature.get("properties")
    name = properties.get("name") if hasattr(properties, "get") else None
    return None if name is None else printable(str(name))


def _rings(geometry: Any, domain: Domain) -> list[FloatArray]:
    if not hasattr(geometry, "keys") or geometry.get("type") not in _KINDS:
        raise SpecError(f"region: write GeoJSON of type {' or '.join(_KINDS)}")
    coordinates = geometry.get("coordinates", ())
    order = -1 if upright(domain.names)[0] == domain.names[0] else 1
    polygons = [coordinates] if geometry["type"] == "Polygon" else coordinates
    try:
        flat = [ring for polygon in polygons for ring in polygon]
        rings = [np.asarray(ring, dtype=np.float64)[:, :2][:, ::order] for ring in flat]
    except (TypeError, ValueError, IndexError, OverflowError):
        raise SpecError("region: coordinates must be rings of points (x, y)") from None
    edges = 0
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
    rings = [np.clip(domain.to_unit(points), 0.0, 1.0) for points in rings]
    _check_rings(rings)
    return rings


def _check_rings(rings: Sequence[FloatArray]) -> None:
    flat = any(not np.ptp(ring, axis=0).all() for ring in rings)
    crossing = bool(rings) and _cross(rings)
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
        on_both_sides = side(a, b, c) * side(a, b, d) < 0
        if (on_both_sides & (side(c, d, a) * side(c, d, b) < 0)).any():
            return True
    return False


def side(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    """Return twice the area of the triangles a, b, c: above 0 where c is left of the way to b."""
    edge, diagonal = b - a, c - a
    return np.asarray(edge[..., 0] * diagonal[..., 1] - edge[..., 1] * diagonal[..., 0])
