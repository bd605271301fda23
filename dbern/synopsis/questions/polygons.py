"""Polygons on the two axes of a release: splines above and below what they hold.

Each cell has `_FINER` places along each axis. A small cell of that grid is cut where an edge
touches it; any other is inside or outside as its middle is. What is inside or cut, widened by
`_REACH` cells and smoothed over as many, is nearly a spline. On each of `_PARTS` parts of a cell
along each axis the spline's Bezier coefficients bound it from below. What they lack, of 1 on parts
that the polygon meets and of 0 elsewhere, is added to the bins that live on the cell, which sum to
one: a majorant. The minorant is one less that of what is outside or cut. The estimate between them
integrates the splines over the polygon, by the grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.synopsis.points import upright
from dbern.synopsis.questions.splines import AxisSplines, Sides, bezier
from dbern.types import BoolArray, FloatArray

_FINER = 8  # places in a cell, along each axis
_PARTS = 4  # of a cell, along each axis, on which Bezier coefficients prove a sign
_REACH = 0.75  # cells: less is no spline, more is wider
_DAMPING = 0.02  # of the mean square of a bin, for differences of coefficients: noise weighs them
_ROUNDING = 1e-9  # of coefficients from 0 to 1, about
_AT_ONCE = 1 << 20  # Bezier coefficients
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
        parts = [*shape.get("features", ())]
        labels = [*range(len(parts))]
        if not parts:
            raise SpecError("region: the collection has no feature. Write one at least")
    found = [_rings(part.get("geometry", part) or {}, domain) for part in parts]
    if not all(found):
        raise SpecError("region: there is a polygon without a ring. Leave it out")
    return Polygons(found, labels)


def _rings(geometry: Any, domain: Domain) -> list[FloatArray]:
    if not hasattr(geometry, "keys") or geometry.get("type") not in _KINDS:
        raise SpecError(f"region: write GeoJSON of type {' or '.join(_KINDS)}")
    parts = geometry.get("coordinates", ())
    turn = -1 if upright(domain.names)[0] == domain.names[0] else 1
    polygons = [parts] if geometry["type"] == "Polygon" else parts
    edges, found = 0, list[FloatArray]()
    try:
        rings = [ring for polygon in polygons for ring in polygon]
        each = [np.asarray(ring, dtype=np.float64)[:, :2][:, ::turn] for ring in rings]
    except (TypeError, ValueError, IndexError):
        raise SpecError("region: coordinates must be rings of points (x, y)") from None
    for points in each:
        if len(points) < 4 or not np.array_equal(points[0], points[-1]):
            raise SpecError("region: a ring needs four points or more, the first one again last")
        if not domain.inside(points).all():
            raise SpecError(
                "region: the polygon leaves the bounds: nothing is known beyond. Cut it"
            )
        edges += len(points) - 1
        if edges > _MOST_EDGES:
            raise SpecError(f"region: more than {_MOST_EDGES} edges. Simplify the polygon")
        found.append(np.clip(domain.to_unit(points), 0.0, 1.0))
    if any(not np.ptp(one, axis=0).all() or _cross([one]) for one in found):
        raise SpecError(
            "region: the polygon crosses itself, or has no area. Mend it, such as by buffer(0)"
        )
    if found and _cross(found):
        raise SpecError(
            "region: rings cross each other. Unite the parts, such as by shapely's union_all"
        )
    return found


def _cross(rings: Sequence[FloatArray]) -> bool:
    """Whether two edges cross inside both."""
    start = np.concatenate([ring[:-1] for ring in rings])
    stop = np.concatenate([ring[1:] for ring in rings])
    for i in range(len(start) - 1):
        a, b, c, d = start[i], stop[i], start[i + 1 :], stop[i + 1 :]
        over = _side(a, b, c) * _side(a, b, d) < 0
        if (over & (_side(c, d, a) * _side(c, d, b) < 0)).any():
            return True
    return False


def _side(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    along, to = b - a, c - a
    return np.asarray(along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0])


def _sides(rings: Sequence[FloatArray], axes: Sequence[AxisSplines]) -> Sides:
    counts = [one.cells * _FINER for one in axes]
    cut, middle = _cut(rings, counts), _inside(rings, counts)
    high = _majorant(middle | cut, axes)
    low = 1.0 - _majorant(~middle | cut, axes)
    first, second = (_places(one) / one.cells / _FINER for one in axes)
    near = (low + high) / 2
    rest = first.T @ middle @ second - axes[0].gram @ near @ axes[1].gram
    near = near + axes[0].smoother @ rest @ axes[1].smoother
    return Sides(low, near, high)


def _majorant(met: BoolArray, axes: Sequence[AxisSplines]) -> FloatArray:
    """Coefficients of a spline that is at least 1 where the small cells are met, and at least 0."""
    reach = round(_REACH * _FINER)
    wide = met
    for axis in (0, 1):
        padded = np.pad(wide, [(reach, reach) if i == axis else (0, 0) for i in (0, 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1, axis=axis)
        wide = np.asarray(windows.any(axis=-1))
    first, second = (_smoothed(one) for one in axes)
    found = first @ wide @ second.T
    mended = found + _windows(_lacking(found, met, axes), axes).max(axis=(-1, -2))
    return np.asarray(mended + _ROUNDING)


def _lacking(found: FloatArray, met: BoolArray, axes: Sequence[AxisSplines]) -> FloatArray:
    """What a spline lacks of 1 or of 0, at most, on each cell."""
    step = _FINER // _PARTS
    shape = [one for axis in axes for one in (axis.cells * _PARTS, step)]
    needed = met.reshape(shape).any(axis=(1, 3)).astype(float)
    first, second = (_bezier(one) for one in axes)
    across, sizes = found @ second.T, [axis.degree + 1 for axis in axes]
    rows = max(1, _AT_ONCE // (sizes[0] * len(second))) * sizes[0]
    least = []
    for start in range(0, len(first), rows):
        part = first[start : start + rows] @ across
        least.append(part.reshape(-1, sizes[0], len(needed[0]), sizes[1]).min(axis=(1, 3)))
    lacking = np.maximum(needed - np.concatenate(least), 0.0)
    each = lacking.reshape(axes[0].cells, _PARTS, axes[1].cells, _PARTS)
    return np.asarray(each.max(axis=(1, 3)))


def _places(axis: AxisSplines) -> FloatArray:
    """Values of the bins at the middles of the small cells: (places, bins)."""
    count = axis.cells * _FINER
    return axis.values((np.arange(count) + 0.5) / count)


@lru_cache(maxsize=8)
def _smoothed(axis: AxisSplines) -> FloatArray:
    """What takes values at the small cells to coefficients, smoothed over `_REACH`."""
    values, reach = _places(axis), round(_REACH * _FINER)
    square, steps = values.T @ values, np.diff(np.eye(axis.count), axis=0)
    square += _DAMPING * np.trace(square) / axis.count * steps.T @ steps
    bump = np.hanning(2 * reach + 3)[1:-1]
    blurred = np.zeros((len(values), len(values)))
    for shift, weight in zip(range(-reach, reach + 1), bump / bump.sum(), strict=True):
        columns = np.clip(np.arange(len(values)) + shift, 0, len(values) - 1)
        blurred[np.arange(len(values)), columns] += weight
    return np.asarray(np.linalg.solve(square, values.T @ blurred))


@lru_cache(maxsize=8)
def _bezier(axis: AxisSplines) -> FloatArray:
    """Bezier coefficients of the bins on the parts of all cells: (cells parts (p + 1), bins)."""
    ends = np.linspace(0.0, 1.0, _PARTS + 1)
    one = np.concatenate([bezier(axis.degree, *pair) for pair in pairwise(ends)])
    found = np.zeros((axis.cells, len(one), axis.count))
    for cell in range(axis.cells):
        found[cell, :, cell : cell + axis.degree + 1] = one
    return found.reshape(-1, axis.count)


def _windows(cells: FloatArray, axes: Sequence[AxisSplines]) -> FloatArray:
    """The cells of each bin's support; zero beyond the bounds."""
    padded = np.pad(cells, [(one.degree, one.degree) for one in axes])
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


def _inside(rings: Sequence[FloatArray], cells: Sequence[int]) -> BoolArray:
    """Whether an odd number of edges is to the right of each cell's middle."""
    x, y = ((np.arange(count) + 0.5) / count for count in cells)
    crossed = np.zeros((cells[0] + 1, cells[1]), dtype=np.int64)
    for ring in rings:
        for a, b in pairwise(ring):
            row = np.flatnonzero((a[1] <= y) != (b[1] <= y))
            if len(row):
                at = a[0] + (y[row] - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
                crossed[np.searchsorted(x, at), row] += 1
    return np.asarray(np.cumsum(crossed[::-1], axis=0)[-2::-1] % 2 == 1)
