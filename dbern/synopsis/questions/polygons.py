"""Polygons on the two axes of a release: which cells they hold, which they cut.

A bin whose cells are all inside counts fully in the minorant, one of whose cells any is inside or
cut in the majorant: B-splines are nonnegative and sum to one. The estimate between them integrates
the splines over the polygon, by a grid inside each cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.synopsis.points import upright
from dbern.synopsis.questions.splines import AxisSplines, Sides
from dbern.types import BoolArray, FloatArray

_FINER = 6  # places in a cell, along each axis
_MOST_EDGES = 5000
_MARGIN = 1e-12  # of the unit square
_KINDS = ("Polygon", "MultiPolygon")


@dataclass(frozen=True, eq=False)
class Polygons:
    """Regions in the unit square, each of closed rings; what an even number encloses is outside."""

    rings: Sequence[Sequence[FloatArray]]
    labels: Sequence[Any]

    def __len__(self) -> int:
        return len(self.rings)

    def sides(self, axes: Sequence[AxisSplines]) -> Sides:
        """Return the sides of the regions' weights, (m, b_1, b_2)."""
        each = [_sides(rings, axes) for rings in self.rings]
        return Sides(*(np.stack([getattr(one, side) for one in each])
                       for side in ("low", "near", "high")))  # fmt: skip


def polygons_of(region: Any, domain: Domain) -> Polygons | None:
    """Read GeoJSON, or what has a `__geo_interface__`; None for what is neither.

    A point's first number goes to the right, as in `upright`: it is the longitude.

    Raises
    ------
    SpecError
        For other geometries than polygons, rings that cross themselves or leave the bounds, and
        releases of other than two axes.
    """
    shape = getattr(region, "__geo_interface__", region)
    if not hasattr(shape, "keys") or np.ndim(shape.get("type", ())) or "type" in domain.names:
        return None
    if domain.dimensions != 2:
        raise SpecError(f"region: polygons are of two axes, and here are {domain.dimensions}")
    parts, labels = [shape], [None]
    if shape["type"] == "FeatureCollection":
        parts = [*shape["features"]]
        labels = [*range(len(parts))]
    found = [[*_rings(part.get("geometry", part), domain)] for part in parts]
    return Polygons(found, labels)


def _rings(geometry: Mapping[str, Any], domain: Domain) -> Iterator[FloatArray]:
    if geometry.get("type") not in _KINDS:
        raise SpecError(f"region: write GeoJSON of type {' or '.join(_KINDS)}")
    parts = geometry.get("coordinates", ())
    turn = -1 if upright(domain.names)[0] == domain.names[0] else 1
    polygons = [parts] if geometry["type"] == "Polygon" else parts
    edges = 0
    for ring in (ring for polygon in polygons for ring in polygon):
        try:
            points = np.asarray(ring, dtype=np.float64)[:, :2][:, ::turn]
        except (TypeError, ValueError, IndexError):
            raise SpecError("region: coordinates must be rings of points (x, y)") from None
        if len(points) < 4 or not np.array_equal(points[0], points[-1]):
            raise SpecError("region: a ring needs four points or more, the first one again last")
        if not domain.inside(points).all():
            raise SpecError(
                "region: the polygon leaves the bounds: nothing is known beyond. Cut it"
            )
        edges += len(points) - 1
        if edges > _MOST_EDGES:
            raise SpecError(f"region: more than {_MOST_EDGES} edges. Simplify the polygon")
        unit = np.clip(domain.to_unit(points), 0.0, 1.0)
        if _crosses_itself(unit):
            raise SpecError("region: the polygon crosses itself. Mend it, such as by buffer(0)")
        yield unit


def _crosses_itself(ring: FloatArray) -> bool:
    """Whether two edges that are no neighbours cross inside both."""
    start, stop = ring[:-1], ring[1:]
    for i in range(len(start) - 2):
        others = slice(i + 2, len(start) - (i == 0))
        a, b, c, d = start[i], stop[i], start[others], stop[others]
        over = _side(a, b, c) * _side(a, b, d) < 0
        if (over & (_side(c, d, a) * _side(c, d, b) < 0)).any():
            return True
    return False


def _side(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    along, to = b - a, c - a
    return np.asarray(along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0])


def _sides(rings: Sequence[FloatArray], axes: Sequence[AxisSplines]) -> Sides:
    cells = [one.cells for one in axes]
    cut = _cut(rings, cells)
    places = [(np.arange(count * _FINER) + 0.5) / (count * _FINER) for count in cells]
    mask = _inside(rings, np.stack(np.meshgrid(*places, indexing="ij"), axis=-1))
    middles = mask.reshape(cells[0], _FINER, cells[1], _FINER)
    inside = middles[:, 0, :, 0] & ~cut
    low = _windows(inside, axes, outside=True).all(axis=(-1, -2)).astype(float)
    high = _windows(inside | cut, axes, outside=False).any(axis=(-1, -2)).astype(float)
    first, second = (one.values(at) / len(at) for one, at in zip(axes, places, strict=True))
    integral = first.T @ mask @ second
    middle = (low + high) / 2
    rest = integral - axes[0].gram @ middle @ axes[1].gram
    near = middle + axes[0].smoother @ rest @ axes[1].smoother
    return Sides(low, near, high)


def _windows(cells: BoolArray, axes: Sequence[AxisSplines], *, outside: bool) -> BoolArray:
    """The cells of each bin's support; those beyond the bounds are as `outside`."""
    reach = [(one.degree, one.degree) for one in axes]
    padded = np.pad(cells, reach, constant_values=outside)
    shape = tuple(one.degree + 1 for one in axes)
    return np.lib.stride_tricks.sliding_window_view(padded, shape)


def _cut(rings: Sequence[FloatArray], cells: Sequence[int]) -> BoolArray:
    """The cells that an edge touches: their boxes meet, and corners are not all on one side."""
    found = np.zeros(cells, dtype=np.bool_)
    counts = np.array(cells)
    for ring in rings:
        for a, b in pairwise(ring):
            low = np.floor((np.minimum(a, b) - _MARGIN) * counts).astype(int).clip(0, counts - 1)
            high = np.floor((np.maximum(a, b) + _MARGIN) * counts).astype(int).clip(0, counts - 1)
            x, y = (np.arange(low[i], high[i] + 2) / counts[i] for i in (0, 1))
            corners = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
            side = _side(a, b, corners)
            four = np.stack([side[:-1, :-1], side[1:, :-1], side[:-1, 1:], side[1:, 1:]])
            met = (four.min(axis=0) <= _MARGIN) & (four.max(axis=0) >= -_MARGIN)
            found[low[0] : high[0] + 1, low[1] : high[1] + 1] |= met
    return found


def _inside(rings: Sequence[FloatArray], places: FloatArray) -> BoolArray:
    """Whether an odd number of edges is to the right of places (.., 2)."""
    x, y = places[..., 0], places[..., 1]
    odd = np.zeros(x.shape, dtype=np.bool_)
    for ring in rings:
        for a, b in pairwise(ring):
            between = (a[1] <= y) != (b[1] <= y)
            if between.any():
                odd ^= between & (x < a[0] + (y - a[1]) / (b[1] - a[1]) * (b[0] - a[0]))
    return odd
