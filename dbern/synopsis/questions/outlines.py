"""Polygons of which each row's kernel has a share, and half planes.

*The share.* Of a row at t, ``g(t) = int_P K_1(y_1 - t_1) K_2(y_2 - t_2) dy``. By Green's theorem it
is the integral over P's outline, the inside on its left, of ``(Phi_1(y_1 - t_1) - 1/2) K_2(y_2 -
t_2) dy_2`` with Phi_1' = K_1; the half integrates to nothing. Along an edge this is a smooth
function f of one variable, integrated by midpoints of pieces of length d: each misses ``d^3 sup
|f''| / 24``, and ``d^2 J / 8`` where f' jumps by J.

*Splines around it.* Least squares on a grid whose cells are w_1 by w_2. Between its places a
function is at most the larger of its values there and ``sum_i w_i^2 sup |d^2/dt_i^2| / 8``, as
bilinear interpolation errs by no more. For g that is at most ``2 sup |K_i'|``: for each t_2 and y_2
the inner integral's second derivative is ``int_A dK_1'`` over a cross section A, and K_1' rises
from 0 to its largest, falls to its least and rises to 0. What is found on a cell is added to the
coefficients of all bins that live there, as in `dbern.synopsis.questions.smoothing`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.synopsis.questions.polygons import Polygons
from dbern.synopsis.questions.splines import AxisSplines, Sides
from dbern.types import FloatArray

_LEAST, _MOST = 1e-5, 1e-3  # of the error of a share
_PIECES = 1 << 14
_STEPS = 4, 32  # of a cell
_DAMPING = 1e-7  # of the mean square of a bin, as for kernels
_ROUNDING = 1e-11


def smoothed_sides(
    polygons: Polygons, axes: Sequence[AxisSplines], kernels: Sequence[Kernel], error: float
) -> Sides:
    """Return the sides of what polygons hold of the kernels of rows, (m, b_1, b_2).

    Parameters
    ----------
    error : float
        Of a share, that does no harm: what numerical integration may miss.
    """
    error = min(max(error, _LEAST), _MOST)
    each = [_sides(rings, axes, kernels, error) for rings in polygons.rings]
    return Sides(*map(np.stack, zip(*each, strict=True)))


def _sides(
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
        square += _DAMPING * np.trace(square) / len(square) * np.eye(len(square))
        solvers.append(np.linalg.solve(square, beta.T))
        betas.append(beta)
        widths.append(grids[-1][1])
    values, missed = _shares(rings, grids, kernels, error)
    near = solvers[0] @ values @ solvers[1].T
    between = missed + _ROUNDING
    for axis, (splines, kernel, width) in enumerate(zip(axes, kernels, widths, strict=True)):
        bend = 2 * kernel.slope
        if splines.degree > 1:
            bend += splines.cells**2 * float(np.abs(np.diff(near, n=2, axis=axis)).max())
        between += width**2 * bend / 8
    over = values - betas[0] @ near @ betas[1].T
    high, low = (_around(one, axes) + between for one in (over, -over))
    return near - low, near, near + high


def _around(error: FloatArray, axes: Sequence[AxisSplines]) -> FloatArray:
    """For each bin the largest on the cells of its support, of values on the grid."""
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
    """What the region holds of kernels at the places of a grid, and by how much it may be wrong."""
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
    """A point inside, in the middle of the widest gap halfway between two corners' heights."""
    heights = np.unique(ring[:, 1])
    if len(heights) < 2:
        return np.asarray(ring[0])
    gaps = np.diff(heights)
    y = float(heights[gaps.argmax()] + gaps.max() / 2)
    ends = _crossings(ring, y).reshape(-1, 2)
    widest = ends[(ends[:, 1] - ends[:, 0]).argmax()]
    return np.array([float(widest.mean()), y])


_HALF, _MOST_OF = "half plane", "at most"


def half_plane_of(region: Any, domain: Domain) -> Polygons | None:
    """Read ``{"half plane": {"x": a, "y": b}, "at most": c}``: where ``a x + b y <= c``.

    None for what has no such key.

    Raises
    ------
    SpecError
        For other keys, axes or numbers, and for what holds nothing within the bounds.
    """
    if not hasattr(region, "keys") or _HALF not in region or _HALF in domain.names:
        return None
    if domain.dimensions != 2:
        raise SpecError(f"region: half planes are of two axes, and here are {domain.dimensions}")
    names = domain.names
    mend = f'Write {{"{_HALF}": {{"{names[0]}": 1, "{names[1]}": -2}}, "{_MOST_OF}": 3}}'
    try:
        factors = np.array([float(region[_HALF].get(name, 0.0)) for name in names])
        most = float(region[_MOST_OF])
    except (AttributeError, KeyError, TypeError, ValueError):  # whose text may quote a value
        raise SpecError(f"region: a half plane needs a number each. {mend}") from None
    if {*region} != {_HALF, _MOST_OF} or not {*region[_HALF]} <= {*names}:
        raise SpecError(f"region: a half plane has other keys or axes. {mend}")
    if not (np.isfinite([*factors, most]).all() and factors.any()):
        raise SpecError(f"region: a half plane needs finite numbers, one not zero. {mend}")
    low, width = (np.array([getattr(one, end) for one in domain.axes]) for end in ("low", "width"))
    factors, most = factors * width, most - float(factors @ low)
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]], dtype=np.float64)
    over = corners @ factors - most
    kept = list[FloatArray]()
    for (a, b), (here, there) in zip(pairwise(corners), pairwise(over), strict=True):
        if here <= 0:
            kept.append(a)
        if (here <= 0) != (there <= 0):
            kept.append(np.clip(a + here / (here - there) * (b - a), 0.0, 1.0))
    ring = np.array([*kept, *kept[:1]])
    if len(ring) < 4 or not abs(_area(ring)) > 0:
        raise SpecError("region: the half plane holds nothing within the bounds. Move it")
    return Polygons([[ring]], [None])
