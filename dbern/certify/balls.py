"""Worst error of a noiseless release, over a ball of a reproducing kernel's Hilbert space.

``|f(y) - (B f)(y)| = |<f, K_y - P_y>| <= |f| e(y)`` with
``P_y = sum_v a_v(y) K_v``, a the weights of the lattice values at y, and ``e(y)^2 = K(y, y) - 2
a.K_v(y) + a'Ga``. Suprema over y:

- K a polynomial of degree p in each coordinate: e^2 is one of degree ``2 max(k, p)``, which nodes
  enclose (`enclosing_nodes`), axis by axis.
- ``|K_x - K_y| <= L |x - y|``: e changes along axis i by at most ``L_i + D_i`` a unit, where D_i
  bounds ``dP_y/dy_i = k_i sum_v (c_{v+1} - c_v) b_v``, c the coefficients of P in the Hilbert
  space, a convex combination: ``D_i = k_i max_v |c_{v+1} - c_v|``, or less by nodes, as the square
  of its norm is a polynomial. So on a box around y it is at most e at the nearest corner and half
  the box's sides times these. Boxes that may exceed the largest value found by more than a
  twentieth are divided until the work is done; what is left counts as it stands.
- *arc-cosine*: so that slopes need not be small, e^2 is also at most its largest value at the
  corners and ``sum_i side^2 / 8`` times the most that ``-d_i^2 e^2`` is in the box (interpolation,
  axis by axis). With ``u = K_y - P_y``, and as ``<K''_y, K_y> = 0`` (`ArcCosine`), ``-d_i^2 e^2 = 2
  <K''_y, P_y> + 2 <u, P''_y> - 2 |u'|^2 <= 2 sum_v |a_v| K''_y(v) + 2 e |P''_y|``, w_i the axis's
  width in ``K''_y(v) <= 2 w_i^2 |v - y| / (pi |y|)`` and ``|P''_y| <= k_i (k_i - 1)`` times the
  largest ``|c_{v+2} - 2 c_{v+1} + c_v|``. Where the sum is ``A + B e``, the box's largest e solves
  ``e^2 <= top^2 + (A + B e) side^2 / 8``.
- ``|K''_y| <= C`` along every direction: likewise, as ``-d_i^2 e^2 <= 2 e (w_i^2 C + |P''_y|)``.
- else, and never more than: ``kappa (1 + lambda)``, lambda the operator's norm.

Bounds are in unit-cube units.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dbern.bernstein.basis import bernstein_basis, iterated_basis, iterated_matrix
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.reproducing import ArcCosine, LipschitzKernel, Polynomial
from dbern.certify.approximation import FunctionClass, absolute_moment
from dbern.reconstruct.axis_maps import Maps
from dbern.reconstruct.base import Lattice
from dbern.reconstruct.gram import (
    MOST_POINTS,
    CubeKernel,
    LatticeSpectrum,
    analysed_norm,
    lattice_sup_norm,
)
from dbern.reconstruct.series import lebesgue_constant
from dbern.types import UNIT_ROUNDOFF, FloatArray

_WORK = 6e9  # multiplications: seconds
_GAP = 0.05
_FIRST = {1: 256, 2: 16, 3: 6}  # boxes along an axis to begin with
_MOST_EVALUATED = 60_000
_AT_ONCE = 1024
_TOGETHER = 64  # of which the diagonal of a square is used
_OF_BALLS = "a smaller target.C", 'objective = "certified"'


@dataclass(frozen=True)
class GramBall(FunctionClass):
    """Functions of norm at most `radius` in the Hilbert space of a kernel on the unit cube."""

    cube: CubeKernel
    radius: float
    remedies = _OF_BALLS

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Bound ``|f| sup_y e(y)``."""
        spectrum = _whole_map(maps)
        return OUTWARD * self.radius * _largest_error(self.cube, tuple(k), tuple(h), spectrum)

    @property
    def highest(self) -> float:
        """Bound any value's size, by Cauchy and Schwarz."""
        return OUTWARD * self.radius * math.sqrt(self.cube.largest)

    def stored(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> GramBall | StatedBall:
        """The ball as a synopsis stores it; of a user's kernel, only the planned bound."""
        ours = isinstance(self.cube.kernel, Polynomial | ArcCosine)
        return self if ours else StatedBall.of(self, k, h, maps)


@dataclass(frozen=True)
class StatedBall(FunctionClass):
    """A ball of a user's kernel, which a reader does not have, with the bound found when planned.

    For any other order or rank, ``radius kappa (1 + lambda)``.
    """

    size: float
    k: tuple[int, ...]
    h: tuple[int, ...]
    rank: int
    planned: float
    remedies = _OF_BALLS

    @classmethod
    def of(cls, ball: GramBall, k: Sequence[int], h: Sequence[int], maps: Maps) -> StatedBall:
        """The ball as stored for this resolution, order and rank."""
        planned = ball.error(k, h, maps)
        return cls(ball.highest, tuple(k), tuple(h), _used(maps), planned)

    @property
    def highest(self) -> float:
        """Bound any value's size."""
        return self.size

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """The planned bound, or for another order or rank ``radius kappa (1 + lambda)``."""
        if (tuple(k), tuple(h), _used(maps)) == (self.k, self.h, self.rank):
            return self.planned
        return OUTWARD * self.size * (1 + _operator_norm(tuple(k), tuple(h), _whole_map(maps)))


def _used(maps: Maps) -> int:
    """Number of eigenvectors in use; 0 for lattice values."""
    spectrum = maps[0]
    return 0 if spectrum is None or spectrum.of != "lattice" else spectrum.used or spectrum.rank


def _whole_map(maps: Maps) -> LatticeSpectrum | None:
    (spectrum,) = set(maps)
    if spectrum is None or isinstance(spectrum, LatticeSpectrum):
        return spectrum
    raise ValueError("a kernel that is no product is released as a whole lattice")


@dataclass(frozen=True)
class ReleaseOperator:
    """Operator from a function to its noiseless release, and its errors over the unit ball."""

    cube: CubeKernel
    k: tuple[int, ...]
    h: tuple[int, ...]
    spectrum: LatticeSpectrum | None

    def weights(self, y: FloatArray) -> FloatArray:
        """Weights of lattice values, or of spectral coordinates, at unit-cube points (m, l)."""
        return self._weights(y)[0]

    def _weights(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Weights, and the sizes ``1 + |a|_1`` that roundings are relative to, or more."""
        first, *others = (iterated_basis(*axis) for axis in zip(y.T, self.k, self.h, strict=True))
        rows, made, size = first, self.spectrum, math.prod(k + 1 for k in self.k)
        weights = np.ones(size) if made is None else np.abs(made.synthesis) @ made.row_sums
        sizes = np.tensordot(np.abs(first), weights.reshape([k + 1 for k in self.k]), axes=1)
        for basis in others:
            rows = (rows[:, :, None] * basis[:, None, :]).reshape(len(y), -1)
            sizes = np.einsum("mj,mj...->m...", np.abs(basis), sizes)
        return rows if made is None else rows @ made.synthesis, 1 + sizes

    def features(self, y: FloatArray) -> FloatArray:
        """``K_v(y)``, or T of them: (m, d)."""
        values = _on_lattice(self.cube, self.k, np.ascontiguousarray(y).tobytes())
        return values if self.spectrum is None else values @ self.spectrum.analysis.T

    def gram(self) -> FloatArray:
        """G, or TGT'."""
        return _analysed_gram(self.cube, self.k, self.spectrum)

    def errors(self, y: FloatArray) -> FloatArray:
        """Upper bounds on e at unit-cube points (m, l), float errors included."""
        errors = []
        for first in range(0, len(y), _AT_ONCE):
            part = y[first : first + _AT_ONCE]
            weights, sizes = self._weights(part)
            points = self.cube.points(part)
            diagonal = self._diagonal(points)
            squares = diagonal - 2 * (weights * self.features(part)).sum(axis=1)
            squares += ((weights @ self.gram()) * weights).sum(axis=1)
            terms = 8 * (2 * math.prod(k + 1 for k in self.k) + 64) * UNIT_ROUNDOFF
            loose = (terms * self.cube.largest + self.cube.error) * sizes**2
            errors.append(np.sqrt(np.maximum(squares, 0.0) + loose))
        return np.concatenate(errors)

    def _diagonal(self, points: FloatArray) -> FloatArray:
        parts = (points[i : i + _TOGETHER] for i in range(0, len(points), _TOGETHER))
        return np.concatenate([np.diag(self.cube.kernel(part, part)) for part in parts])

    def slopes(self, lipschitz: float) -> list[float]:
        """Slopes ``L_i + D_i`` of e along the axes, in unit-cube units."""
        pairs = enumerate(zip(self.cube.width, self.k, strict=True))
        return [
            OUTWARD * (lipschitz * width + k * self._largest_step(self._differences(axis, 1)))
            for axis, (width, k) in pairs
        ]

    def bends(self) -> float:
        """Coefficient B of the bound on ``-d_i^2 e^2``, in unit-cube units."""
        axes = ((axis, k) for axis, k in enumerate(self.k) if k > 1)
        steps = (k * (k - 1) * self._largest_step(self._differences(a, 2)) for a, k in axes)
        curvature = getattr(self.cube.kernel, "curvature", math.inf)
        return float(OUTWARD * 2 * (sum(steps) + curvature * np.square(self.cube.width).sum()))

    def folds(self) -> float:
        """Coefficient A but for ``1 / |y|``, in unit-cube units; infinite for other kernels."""
        widths, axes = np.square(self.cube.width), list(zip(self.k, self.h, strict=True))
        if self.spectrum is None:  # by Cauchy and Schwarz
            sizes = [lebesgue_constant(*axis) for axis in axes]
            seconds = [absolute_moment(*axis, 2) / A for axis, A in zip(axes, sizes, strict=True)]
            distance = math.prod(sizes) * math.sqrt(float(widths @ seconds))
        else:
            distance = _operator_norm(self.k, self.h, self.spectrum) * math.sqrt(widths.sum())
        fold = getattr(self.cube.kernel, "fold", math.inf)
        return float(OUTWARD * 2 * fold * widths.sum() * distance)

    def least_lengths(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """The least norms of points with the constant, in boxes of the unit cube (m, l)."""
        ends = self.cube.points(low), self.cube.points(high)
        least = np.maximum(0.0, np.maximum(ends[0], -ends[1]))
        constant = getattr(self.cube.kernel, "constant", 0.0)
        return np.asarray(np.sqrt(np.square(least).sum(axis=1) + constant**2) / OUTWARD)

    def _differences(self, axis: int, order: int) -> FloatArray:
        """Differences of the coefficients of P in the Hilbert space, along an axis."""
        coefficients = np.eye(math.prod(k + 1 for k in self.k))
        if self.spectrum is not None:
            coefficients = self.spectrum.synthesis
        values = coefficients.reshape(*(k + 1 for k in self.k), -1)
        for turn, (k, h) in enumerate(zip(self.k, self.h, strict=True)):
            values = np.moveaxis(np.tensordot(iterated_matrix(k, h), values, (1, turn)), 0, turn)
        return np.asarray(np.diff(values, order, axis=axis))

    def _largest_step(self, steps: FloatArray) -> float:
        """``sup_y |sum_v steps_v b_v(y)|``: at nodes of all axes or, if that is less work, of one.

        On axes without nodes a value is a convex combination of the steps.
        """
        largest, every = self._largest_norm(steps), tuple(range(steps.ndim - 1))
        if min(steps.shape[:-1]) < 2:
            return largest
        for chosen in (every, *((axis,) for axis in every)):
            values, factor = steps, 1.0
            for axis in chosen:
                degree = steps.shape[axis] - 1
                nodes, axis_factor = enclosing_nodes(2 * degree, 2)
                at_nodes = np.tensordot(bernstein_basis(nodes, degree), values, (1, axis))
                values, factor = np.moveaxis(at_nodes, 0, axis), factor * axis_factor
            if values.size * steps.shape[-1] <= _WORK / 2:
                largest = min(largest, math.sqrt(factor) * self._largest_norm(values))
                if chosen == every:
                    break
        return largest

    def _largest_norm(self, rows: FloatArray) -> float:
        """Largest norm of elements of the Hilbert space, in the last axis, with float errors."""
        flat = rows.reshape(-1, rows.shape[-1])
        analysis = np.ones(flat.shape[1]) if self.spectrum is None else self.spectrum.row_sums
        squares = ((flat @ self.gram()) * flat).sum(axis=1)
        floats = 1e-10 * self.cube.largest * float((np.abs(flat) @ analysis).max()) ** 2
        return math.sqrt(max(float(squares.max()), 0.0) + floats)


@lru_cache(maxsize=4)
def _on_lattice(cube: CubeKernel, k: tuple[int, ...], packed: bytes) -> FloatArray:
    """``K_v`` at unit-cube points: the same for every order and rank."""
    y = np.frombuffer(packed).reshape(-1, cube.dimensions)
    return np.asarray(cube.kernel(cube.points(y), cube.lattice_points(Lattice(k))))


@lru_cache(maxsize=4)
def _analysed_gram(
    cube: CubeKernel, k: tuple[int, ...], spectrum: LatticeSpectrum | None
) -> FloatArray:
    gram = cube.gram(Lattice(k))
    return gram if spectrum is None else spectrum.analysis @ gram @ spectrum.analysis.T


@lru_cache(maxsize=64)
def _operator_norm(
    k: tuple[int, ...], h: tuple[int, ...], spectrum: LatticeSpectrum | None
) -> float:
    size = math.prod(degree + 1 for degree in k)
    if spectrum is None:
        axes = zip(k, h, strict=True)
        return math.prod(lattice_sup_norm([degree], [h], np.eye(degree + 1)) for degree, h in axes)
    if size <= MOST_POINTS // 4:
        return analysed_norm(k, h, spectrum)
    return lattice_sup_norm(k, h, spectrum.synthesis) * float(spectrum.row_sums.max())


@lru_cache(maxsize=64)
def _largest_error(
    cube: CubeKernel, k: tuple[int, ...], h: tuple[int, ...], spectrum: LatticeSpectrum | None
) -> float:
    """Bound ``sup_y e(y)``, by nodes, boxes or the operator's norm."""
    size = math.prod(degree + 1 for degree in k)
    trivial = OUTWARD * math.sqrt(cube.largest) * (1 + _operator_norm(k, h, spectrum))
    if size > MOST_POINTS:
        return trivial
    released, kernel = ReleaseOperator(cube, k, h, spectrum), cube.kernel
    rank = size if spectrum is None else spectrum.rank
    points = min(_MOST_EVALUATED, int(_WORK / (rank * (size + rank))))
    if isinstance(kernel, Polynomial):
        bound = _at_nodes(released, kernel.degree, points)
    elif isinstance(kernel, LipschitzKernel) and min(kernel.lipschitz, kernel.curvature) < math.inf:
        bound = _in_boxes(released, released.slopes(kernel.lipschitz), points)
    else:
        bound = trivial
    return min(bound, trivial)


def _at_nodes(released: ReleaseOperator, degree: int, points: int) -> float:
    """Bound ``sup_y e(y)`` for a polynomial kernel; infinite where that is too much work."""
    degrees = [2 * max(k, degree) for k in released.k]
    for oversampling in (4, 2):
        axes = [enclosing_nodes(degree, oversampling) for degree in degrees]
        if math.prod(len(nodes) for nodes, _ in axes) <= points:
            break
    else:
        return math.inf
    grid = np.stack(np.meshgrid(*(nodes for nodes, _ in axes), indexing="ij"), axis=-1)
    factor = math.prod(axis_factor for _, axis_factor in axes)
    largest = float(released.errors(grid.reshape(-1, len(axes))).max())
    return OUTWARD * math.sqrt(factor) * largest


def _in_boxes(released: ReleaseOperator, slopes: Sequence[float], points: int) -> float:
    """Bound ``sup_y e(y)`` on boxes of the unit cube, divided where e may be largest."""
    axes, count = len(slopes), _FIRST[len(slopes)]
    offsets = np.array(list(itertools.product((0, 1), repeat=axes)))
    lows = np.stack(np.meshgrid(*[np.arange(count)] * axes, indexing="ij"), -1).reshape(-1, axes)
    folded, bent = released.folds(), released.bends()
    best, largest, known, values = 0.0, 0.0, np.empty(0), np.empty(0)
    while True:
        shape = (count + 1,) * axes
        corners = np.ravel_multi_index(np.moveaxis(lows[:, None, :] + offsets, -1, 0), shape)
        once, which = np.unique(corners, return_inverse=True)
        indices, before = np.stack(np.unravel_index(once, shape), axis=-1), values
        again = np.isin(once, known)  # corners of the boxes that were divided
        values = np.empty(len(once))
        values[again] = before[np.searchsorted(known, once[again])]
        values[~again] = released.errors(indices[~again] / count)
        known = np.ravel_multi_index(tuple(2 * indices.T), (2 * count + 1,) * axes)
        points -= len(once)
        best = max(best, float(values.max()))
        tops = values[which.reshape(corners.shape)].max(axis=1)
        lengths = released.least_lengths(lows / count, (lows + 1) / count)
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = tops**2 + np.where(folded > 0, folded / lengths, 0.0) / (8 * count**2)
        half = bent / (16 * count**2)
        bounds = np.minimum(half + np.sqrt(half**2 + squares), tops + sum(slopes) / (2 * count))
        open_ = bounds > (1 + _GAP) * best
        largest = max(largest, float(bounds[~open_].max(initial=0.0)))
        if not open_.any() or open_.sum() * len(offsets) > points:
            return OUTWARD * max(largest, float(bounds.max(initial=0.0)))
        lows = (2 * lows[open_][:, None, :] + offsets).reshape(-1, axes)
        count *= 2
