"""Regions of the domain, in the forms in which people have them, and splines around polygons.

Docs/mathematics.md has the proofs: "Polygons" for what is in a polygon itself, "Polygons of
kernels" for the share that it has of each row's kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError, printable
from dbern.synopsis.points import as_numbers, upright
from dbern.synopsis.questions.splines import AxisSplines, Sides, bezier
from dbern.types import BoolArray, FloatArray

Region: TypeAlias = Any
"""A box ``{"x": (low, high)}``, None for an end that is open; or a list of boxes."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes in the unit cube, ends (m, l), with a label each; [None] for the only one."""

    low: FloatArray
    high: FloatArray
    labels: Sequence[Any]

    def __len__(self) -> int:
        return len(self.low)

    def part(self, which: slice) -> Boxes:
        """Return some of the boxes; the labels stay."""
        return Boxes(self.low[which], self.high[which], self.labels)


def boxes_of(region: Region, domain: Domain, what: str = "region") -> Boxes:
    """Read boxes, in data units: one, several in a list, or of arrays of ends.

    Raises SpecError for axes that are unknown, ends that are no numbers, reversed, or outside the
    bounds.
    """
    match region:
        case Mapping():
            return _box(region, domain, what)
        case list() | tuple():
            each = [_box(one, domain, what) for one in region]
            if not each or any(len(one) != 1 for one in each):
                raise SpecError(f"{what}: a list must hold boxes, such as {_example(domain)}")
            low, high = (np.concatenate([getattr(one, end) for one in each]) for end in _ENDS)
            return Boxes(low, high, range(len(each)))
        case _:
            raise SpecError(f"{what}: is no region. Write a box, such as {_example(domain)}")


_ENDS = ("low", "high")


def _example(domain: Domain) -> str:
    axis = domain.axes[0]
    return f'{{"{axis.name}": ({axis.low:g}, {axis.high:g})}}'


def _box(region: Mapping[str, Any], domain: Domain, what: str) -> Boxes:
    shape = getattr(region, "__geo_interface__", region)
    if not hasattr(shape, "keys"):
        raise SpecError(f"{what}: a list must hold boxes, such as {_example(domain)}")
    if "type" in shape and "type" not in domain.names:
        mend = "Write a box" if what == "given" else "Write several as one FeatureCollection"
        raise SpecError(f"{what}: polygons are not available here. {mend}")
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
    unit = [(one - axis.low) / axis.width for one in (first, last)]
    unit[1] = np.where(last == axis.high, 1.0, unit[1])
    return unit[0], unit[1]


def _ends(ends: Any, axis: Axis, what: str) -> tuple[FloatArray, FloatArray]:
    """Parse ends in data units, flat."""
    where, mend = f"{what}: {axis.name}", f"Write {axis.name} = (low, high), or None for an end"
    try:
        low, high = ends
    except (TypeError, ValueError):
        raise SpecError(f"{where} must have two ends. {mend}") from None
    alone, pair = Domain((axis,)), ((low, axis.low), (high, axis.high))
    try:
        first, last = (
            np.atleast_1d(as_numbers(bound if end is None else end, axis.unit, alone))
            for end, bound in pair
        )
    except SpecError:  # which speaks of points
        raise SpecError(f"{where}: ends must be numbers, or dates of a date. {mend}") from None
    if first.ndim != 1 or last.ndim != 1:
        raise SpecError(f"{where}: ends must be numbers or flat arrays. {mend}")
    if len({len(first), len(last)} - {1}) > 1:
        raise SpecError(f"{where}: arrays of ends must be equally long")
    if not (np.isfinite(first).all() and np.isfinite(last).all()):
        raise SpecError(f"{where}: ends must be finite numbers. {mend}")
    beyond = [*first[first < axis.low], *last[last > axis.high]]
    if beyond:
        raise SpecError(
            f"{where} leaves its bounds, {axis.low:g} to {axis.high:g}, with an end at "
            f"{float(beyond[0])!r}: nothing is known beyond. "
            f"{mend} that is open"
        )
    if not np.all(first < last):
        raise SpecError(f"{where}: the lower end must be below the upper one. {mend} that is open")
    return first, last


def part_of(window: Region, domain: Domain) -> Domain:
    """Return the part of a domain that one box is.

    Raises SpecError as `boxes_of`, or for several boxes.
    """
    if not hasattr(window, "get") or len(boxes_of(window, domain, "window")) != 1:
        raise SpecError(f"window: write one box, such as {_example(domain)}")
    axes = []
    for axis in domain.axes:
        low, high = _ends(window.get(axis.name, (None, None)), axis, "window")
        kept = bool(axis.categories)  # which a grid refuses
        axes.append(axis if kept else replace(axis, low=float(low[0]), high=float(high[0])))
    return Domain(tuple(axes))


# --- Polygons on the two axes of a release: splines above and below what they hold

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
        each = [_sharp_sides(rings, axes) for rings in self.rings]
        return Sides(*(np.stack([getattr(one, side) for one in each])
                       for side in ("low", "near", "high")))  # fmt: skip


def polygons_of(region: Any, domain: Domain) -> Polygons | None:
    """Read GeoJSON, or an object with a `__geo_interface__`; None for anything else.

    A point's first number goes to the right, as in `upright`: it is the longitude. Raises SpecError
    for other geometries than polygons, rings that cross themselves or leave the bounds, and
    releases of other than two axes.
    """
    shape = getattr(region, "__geo_interface__", region)
    if not hasattr(shape, "keys") or np.ndim(shape.get("type", ())) or "type" in domain.names:
        return None
    if domain.dimensions != 2:
        raise SpecError(f"region: polygons are of two axes, and here are {domain.dimensions}")
    parts, labels = [shape], list[Any]([None])
    if shape["type"] == "FeatureCollection":
        parts = shape.get("features", ())
        if type(parts) not in (list, tuple) or not parts:
            raise SpecError("region: the collection has no feature. Write one at least")
        if not all(hasattr(part, "keys") for part in parts):
            raise SpecError("region: a feature is no object. Write GeoJSON")
        labels = [name_of(part) or i for i, part in enumerate(parts)]
    found = [_rings(part.get("geometry", part) or {}, domain) for part in parts]
    if not all(found):
        raise SpecError("region: there is a polygon without a ring. Leave it out")
    return Polygons(found, labels)


def name_of(feature: Any) -> str | None:
    """Return the name in a GeoJSON feature's properties, if any, as it may be printed."""
    properties: Any = feature.get("properties")
    name = properties.get("name") if hasattr(properties, "get") else None
    return None if name is None else printable(str(name))


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
    except (TypeError, ValueError, IndexError, OverflowError):
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
    flat = any(not np.ptp(ring, axis=0).all() for ring in found)
    crossing = bool(found) and _cross(found)
    if flat or (crossing and any(_cross([ring]) for ring in found)):
        raise SpecError(
            "region: the polygon crosses itself, or has no area. Mend it, such as by buffer(0)"
        )
    if crossing:
        raise SpecError(
            "region: rings cross each other. Unite the parts, such as by shapely's union_all"
        )
    return found


def _cross(rings: Sequence[FloatArray]) -> bool:
    """Whether two edges cross inside both: only those that share an x are compared."""
    start = np.concatenate([ring[:-1] for ring in rings])
    stop = np.concatenate([ring[1:] for ring in rings])
    first = np.minimum(start[:, 0], stop[:, 0])
    order = np.argsort(first)
    start, stop, first = start[order], stop[order], first[order]
    ends = np.searchsorted(first, np.maximum(start[:, 0], stop[:, 0]), side="right")
    for i, end in enumerate(ends):
        a, b, c, d = start[i], stop[i], start[i + 1 : end], stop[i + 1 : end]
        over = _side(a, b, c) * _side(a, b, d) < 0
        if (over & (_side(c, d, a) * _side(c, d, b) < 0)).any():
            return True
    return False


def _side(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    along, to = b - a, c - a
    return np.asarray(along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0])


def _sharp_sides(rings: Sequence[FloatArray], axes: Sequence[AxisSplines]) -> Sides:
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
    """Largest deficit of a spline on each cell: below 1 where small cells are met, else below 0."""
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
    """Matrix from values at the small cells to coefficients, smoothed over `_REACH`."""
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


# --- Polygons of which each row's kernel has a share

_LEAST, _MOST_ERROR = 1e-5, 1e-3  # of the error of a share
_PIECES = 1 << 14
_STEPS = 4, 32  # of a cell
_RIDGE = 1e-7  # of the mean square of a bin, as for kernels
_FLOATS = 1e-11


def smoothed_sides(
    polygons: Polygons, axes: Sequence[AxisSplines], kernels: Sequence[Kernel], error: float
) -> Sides:
    """Return the sides of the polygons' shares of the kernels of rows, (m, b_1, b_2).

    Numerical integration may miss up to `error` of a share.
    """
    error = min(max(error, _LEAST), _MOST_ERROR)
    each = [_smoothed_sides(rings, axes, kernels, error) for rings in polygons.rings]
    return Sides(*map(np.stack, zip(*each, strict=True)))


def _smoothed_sides(
    rings: Sequence[FloatArray],
    axes: Sequence[AxisSplines],
    kernels: Sequence[Kernel],
    error: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    grids, solvers, betas, widths = [], [], [], []
    for splines, kernel in zip(axes, kernels, strict=True):
        least = math.sqrt(kernel.slope / (2 * error)) / splines.cells
        steps = round(np.clip(least, *_STEPS))
        grids.append(np.linspace(0.0, 1.0, splines.cells * steps + 1))
        beta = splines.values(grids[-1])
        square = beta.T @ beta
        square += _RIDGE * np.trace(square) / len(square) * np.eye(len(square))
        solvers.append(np.linalg.solve(square, beta.T))
        betas.append(beta)
        widths.append(grids[-1][1])
    values, missed = _shares(rings, grids, kernels, error)
    near = solvers[0] @ values @ solvers[1].T
    between = missed + _FLOATS
    for axis, (splines, kernel, width) in enumerate(zip(axes, kernels, widths, strict=True)):
        bend = 2 * kernel.slope
        if splines.degree > 1:
            bend += splines.cells**2 * float(np.abs(np.diff(near, n=2, axis=axis)).max())
        between += width**2 * bend / 8
    over = values - betas[0] @ near @ betas[1].T
    high, low = (_around(one, axes) + between for one in (over, -over))
    return near - low, near, near + high


def _around(error: FloatArray, axes: Sequence[AxisSplines]) -> FloatArray:
    """Largest value on the cells of each bin's support, of values on the grid."""
    found = np.maximum(error, 0.0)
    for axis, splines in enumerate(axes):
        rows = np.moveaxis(found, axis, 0)
        steps = (len(rows) - 1) // splines.cells
        inner = rows[:-1].reshape(splines.cells, steps, -1).max(axis=1)
        cells = np.maximum(inner, rows[steps::steps])
        padded = np.pad(cells, [(splines.degree, splines.degree), (0, 0)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, splines.degree + 1, axis=0)
        found = np.moveaxis(windows.max(axis=-1), 0, axis)
    return found


def _shares(
    rings: Sequence[FloatArray],
    grids: Sequence[FloatArray],
    kernels: Sequence[Kernel],
    error: float,
) -> tuple[FloatArray, float]:
    """Integrate kernels at the points of a grid over a region; and bound the error of that."""
    edges = np.concatenate([_turned(i, rings) for i in range(len(rings))])
    along = edges[:, 1] - edges[:, 0]
    lengths = np.maximum(np.hypot(*along.T), 1e-300)
    x, y = np.abs(along.T) / lengths
    first, second = kernels
    # Of f for a unit of length, times the share of a length that is upward.
    bends = x**2 * first.slope * second.peak + 2 * x * y * first.peak * second.slope
    bends += y**2 * second.curvature / 2
    loose = 3 / 8 * second.jumps * float((y**2).sum()) * second.slope  # three kinks, J / 2 at most
    scale = float((bends * y * lengths).sum()) / 24 + loose + 1e-300
    longest = max(math.sqrt(error / scale), float(lengths.sum()) / _PIECES)
    counts = np.ceil(lengths / longest).astype(np.int64)
    which = np.repeat(np.arange(len(edges)), counts)
    turn = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = edges[which, 0] + ((turn + 0.5) / counts[which])[:, None] * along[which]
    upward = along[which, 1] / counts[which]
    across = first.cumulative(places[:, 0] - grids[0][:, None]) - 0.5
    found = across @ (second(places[:, 1, None] - grids[1]) * upward[:, None])
    return found, scale * longest**2


def _turned(index: int, rings: Sequence[FloatArray]) -> FloatArray:
    """Edges (m, 2, 2) of a ring, with what counts as inside on their left.

    Rings do not cross: one is within another where an inner point is, if it is smaller.
    """
    sizes = [(abs(_area(one)), i) for i, one in enumerate(rings)]
    ring, point = rings[index], _inner(rings[index])
    around = sum(
        size > sizes[index] and _holds(one, point) for size, one in zip(sizes, rings, strict=True)
    )
    outward = (_area(ring) > 0) == (around % 2 == 0)
    return np.stack([*pairwise(ring if outward else ring[::-1])])


def _area(ring: FloatArray) -> float:
    x, y = ring.T
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)


def _crossings(ring: FloatArray, y: float) -> FloatArray:
    a, b = ring[:-1], ring[1:]
    met = (a[:, 1] <= y) != (b[:, 1] <= y)
    a, b = a[met], b[met]
    at = a[:, 0] + (y - a[:, 1]) / (b[:, 1] - a[:, 1]) * (b[:, 0] - a[:, 0])
    return np.asarray(np.sort(at))


def _holds(ring: FloatArray, point: FloatArray) -> bool:
    return bool((_crossings(ring, point[1]) > point[0]).sum() % 2)


def _inner(ring: FloatArray) -> FloatArray:
    """Point inside, in the middle of the widest gap halfway between two corners' heights."""
    heights = np.unique(ring[:, 1])
    if len(heights) < 2:
        return np.asarray(ring[0])
    gaps = np.diff(heights)
    y = float(heights[gaps.argmax()] + gaps.max() / 2)
    ends = _crossings(ring, y).reshape(-1, 2)
    widest = ends[(ends[:, 1] - ends[:, 0]).argmax()]
    return np.array([float(widest.mean()), y])
