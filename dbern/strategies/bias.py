"""Worst error of a noiseless release, over a class of functions.

*A ball of any kernel's Hilbert space.* ``|f(y) - (B f)(y)| = |<f, K_y - P_y>| <= |f| e(y)`` with
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

The paper's three classes of functions, with explicit constants where it has hidden ones.

On one axis the mechanism evaluates ``(P f)(y) = sum_v w_v(y) f(v/k)`` with ``w(y) = b(y) W_h``, and
the weights sum to one (Definition 5). What a class says of ``f(v/k) - f(y)`` bounds ``P f - f``:

- *Linear* (Theorem 1, iii): the operator reproduces linear functions, whatever its order.
- *Hoelder* (ii), ``|f(x) - f(y)| <= L |x - y|^gamma``: with ``d_v = |v/k - y|`` and bounds A of
  ``sum |w_v|``, B of ``sum |w_v| d_v^2``, the error is at most ``L sum_v |w_v| d_v^gamma <=
  L A^(1 - gamma/2) B^(gamma/2)`` by Hoelder's inequality. For h = 1, A = 1 and B = 1/(4k): the
  paper's constant.
- *Smooth* (i), r derivatives bounded by T: Taylor's theorem at y gives ``f(v/k) = sum_{j<r}
  f^(j)(y) (v/k - y)^j / j! + R_v``, ``|R_v| <= T d_v^r / r!``, so the error is at most
  ``T (sum_{0<j<r} |m_j| / j! + sum_v |w_v| d_v^r / r!)`` with ``m_j = sum_v w_v (v/k - y)^j``.

With the signs that they have at the largest y, all of these are polynomials of degree k + r in y,
which nodes enclose (`enclosing_nodes`). Over axes ``|f - P_1 .. P_l f| <= sum_i (prod_{j<i} A_j)
e_i``, e_i the error of axis i alone: one operator at a time, each of norm A_j.

A class is what a plan knows of its target without data: mixtures of kernel translates (densities
and other sums over records, regularized risk minimizers), balls of a Hilbert space (`GramBall`),
or declared smoothness (`smoothness`).
Bounds are in unit-cube units.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, cast

import numpy as np

from dbern.bernstein.basis import bernstein_basis, enclosing_nodes, iterated_basis, iterated_matrix
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.reproducing import ArcCosine, LipschitzKernel, Polynomial
from dbern.errors import SpecError
from dbern.strategies.approximation import (
    AxisMap,
    LinearMap,
    Maps,
    lebesgue_constant,
    translate_error,
)
from dbern.strategies.base import Lattice
from dbern.strategies.bias_envelopes import largest_errors, telescoped
from dbern.strategies.bins import AxisBins
from dbern.strategies.gram import (
    MOST_POINTS,
    CubeKernel,
    LatticeSpectrum,
    analysed_norm,
    lattice_sup_norm,
)
from dbern.types import UNIT_ROUNDOFF, FloatArray

# --- Classes of functions


class Approximation(ABC):
    """A class of functions, and the sup error of its worst member.

    `choices`: the release chose it from so many classes by looking at its noisy values, so that the
    bound is one on all of them at once. `mends`: parts of a spec that, besides a larger epsilon,
    make the bound smaller.
    """

    choices: int = 1
    mends: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Bound ``sup_y |f(y) - (B f)(y)|`` over the class, B the noiseless release."""

    @property
    def highest(self) -> float:
        """Bound any value's size; infinite where nothing is known."""
        return math.inf

    def stored(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> Approximation:
        """The class as a synopsis stores it, whose reader has no kernel of the user's."""
        del k, h, maps
        return self


# --- What a noiseless release misses of a ball of any reproducing kernel's Hilbert space


_WORK = 6e9  # multiplications: seconds
_GAP = 0.05
_FIRST = {1: 256, 2: 16, 3: 6}  # boxes along an axis to begin with
_MOST_EVALUATED = 60_000
_AT_ONCE = 1024
_TOGETHER = 64  # of which the diagonal of a square is used
_OF_BALLS = "a smaller target.C", 'objective = "certified"'


@dataclass(frozen=True)
class GramBall(Approximation):
    """Functions of norm at most `radius` in the Hilbert space of a kernel on the unit cube."""

    cube: CubeKernel
    radius: float
    mends = _OF_BALLS

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
class StatedBall(Approximation):
    """A ball of a user's kernel, which a reader does not have, with the bound found when planned.

    For any other order or rank, ``radius kappa (1 + lambda)``.
    """

    size: float
    k: tuple[int, ...]
    h: tuple[int, ...]
    rank: int
    planned: float
    mends = _OF_BALLS

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
class Released:
    """The operator from a function to its noiseless release, at points."""

    cube: CubeKernel
    k: tuple[int, ...]
    h: tuple[int, ...]
    spectrum: LatticeSpectrum | None

    def weights(self, y: FloatArray) -> FloatArray:
        """Weights of lattice values, or of spectral coordinates, at unit-cube points (m, l)."""
        return self._weights(y)[0]

    def _weights(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Weights, and the sizes ``1 + |a|_1`` that roundings are relative to, or more."""
        first, *others = (iterated_basis(*one) for one in zip(y.T, self.k, self.h, strict=True))
        rows, made, size = first, self.spectrum, math.prod(k + 1 for k in self.k)
        own = np.ones(size) if made is None else np.abs(made.synthesis) @ made.row_sums
        sizes = np.tensordot(np.abs(first), own.reshape([k + 1 for k in self.k]), axes=1)
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
        found = []
        for first in range(0, len(y), _AT_ONCE):
            part = y[first : first + _AT_ONCE]
            weights, sizes = self._weights(part)
            points = self.cube.points(part)
            diagonal = self._diagonal(points)
            squares = diagonal - 2 * (weights * self.features(part)).sum(axis=1)
            squares += ((weights @ self.gram()) * weights).sum(axis=1)
            terms = 8 * (2 * math.prod(k + 1 for k in self.k) + 64) * UNIT_ROUNDOFF
            loose = (terms * self.cube.largest + self.cube.error) * sizes**2
            found.append(np.sqrt(np.maximum(squares, 0.0) + loose))
        return np.concatenate(found)

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
            sizes = [lebesgue_constant(*one) for one in axes]
            seconds = [_absolute_moment(*one, 2) / A for one, A in zip(axes, sizes, strict=True)]
            apart = math.prod(sizes) * math.sqrt(float(widths @ seconds))
        else:
            apart = _operator_norm(self.k, self.h, self.spectrum) * math.sqrt(widths.sum())
        fold = getattr(self.cube.kernel, "fold", math.inf)
        return float(OUTWARD * 2 * fold * widths.sum() * apart)

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
        for one, (k, h) in enumerate(zip(self.k, self.h, strict=True)):
            values = np.moveaxis(np.tensordot(iterated_matrix(k, h), values, (1, one)), 0, one)
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
                nodes, one = enclosing_nodes(2 * degree, 2)
                found = np.tensordot(bernstein_basis(nodes, degree), values, (1, axis))
                values, factor = np.moveaxis(found, 0, axis), factor * one
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
        return math.prod(lattice_sup_norm([one], [order], np.eye(one + 1)) for one, order in axes)
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
    released, kernel = Released(cube, k, h, spectrum), cube.kernel
    kept = size if spectrum is None else spectrum.rank
    points = min(_MOST_EVALUATED, int(_WORK / (kept * (size + kept))))
    if isinstance(kernel, Polynomial):
        found = _at_nodes(released, kernel.degree, points)
    elif isinstance(kernel, LipschitzKernel) and min(kernel.lipschitz, kernel.curvature) < math.inf:
        found = _in_boxes(released, released.slopes(kernel.lipschitz), points)
    else:
        found = trivial
    return min(found, trivial)


def _at_nodes(released: Released, degree: int, points: int) -> float:
    """Bound ``sup_y e(y)`` for a polynomial kernel; infinite where that is too much work."""
    degrees = [2 * max(k, degree) for k in released.k]
    for oversampling in (4, 2):
        axes = [enclosing_nodes(one, oversampling) for one in degrees]
        if math.prod(len(nodes) for nodes, _ in axes) <= points:
            break
    else:
        return math.inf
    grid = np.stack(np.meshgrid(*(nodes for nodes, _ in axes), indexing="ij"), axis=-1)
    factor = math.prod(one for _, one in axes)
    largest = float(released.errors(grid.reshape(-1, len(axes))).max())
    return OUTWARD * math.sqrt(factor) * largest


def _in_boxes(released: Released, slopes: Sequence[float], points: int) -> float:
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
        places, before = np.stack(np.unravel_index(once, shape), axis=-1), values
        again = np.isin(once, known)  # corners of the boxes that were divided
        values = np.empty(len(once))
        values[again] = before[np.searchsorted(known, once[again])]
        values[~again] = released.errors(places[~again] / count)
        known = np.ravel_multi_index(tuple(2 * places.T), (2 * count + 1,) * axes)
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


# --- The paper's three classes of functions, with explicit constants where it has hidden ones

_ROUNDING = 1e-11  # of the weights' moments, which are at most a few: far above their floats' error


@dataclass(frozen=True)
class Linear(Approximation):
    """Affine functions: no approximation error."""

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Zero."""
        del k, h
        _lattice_values_only(maps)
        return 0.0


@dataclass(frozen=True)
class Holder(Approximation):
    """``|f(x) - f(y)| <= constant |x - y|^exponent`` in the largest coordinate, unit-cube units.

    Raises SpecError for an exponent outside (0, 1] or a constant that is not positive.
    """

    constant: float
    exponent: float
    mends = ("another k",)

    def __post_init__(self) -> None:
        if not (0 < self.exponent <= 1 and 0 < self.constant < math.inf):
            raise SpecError(
                "target.smoothness: a Hoelder class has an exponent above 0 and at most 1 and a "
                "positive constant. Write smoothness = { holder = [1.0, 0.5] }"
            )

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Bound ``|f - B f|`` by the class *Hoelder*, axis by axis."""
        _lattice_values_only(maps)

        def one(k: int, h: int) -> float:
            size, square = lebesgue_constant(k, h), _absolute_moment(k, h, 2)
            share = self.exponent / 2
            return float(OUTWARD * self.constant * size ** (1 - share) * square**share)

        return _summed([one(*axis) for axis in zip(k, h, strict=True)], k, h)


@dataclass(frozen=True)
class Smooth(Approximation):
    """Derivatives along each axis, of orders one to `order`, at most `bound`; unit-cube units.

    Raises SpecError for an order below one or a bound that is not positive.
    """

    order: int
    bound: float
    mends = ("another k",)

    def __post_init__(self) -> None:
        if self.order < 1 or not 0 < self.bound < math.inf:
            raise SpecError(
                "target.smoothness: a smooth class has at least one derivative and a positive "
                "bound. Write smoothness = { derivatives = 4, bound = 10.0 }"
            )

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Bound ``|f - B f|`` by Taylor's theorem (the class *Smooth*), axis by axis."""
        _lattice_values_only(maps)
        errors = [_taylor_error(*axis, self.order) for axis in zip(k, h, strict=True)]
        return _summed([OUTWARD * self.bound * error for error in errors], k, h)


def _lattice_values_only(maps: Maps) -> None:
    if any(axis is not None for axis in maps):
        raise ValueError("stated smoothness bounds releases of lattice values only")


def _summed(errors: Sequence[float], k: Sequence[int], h: Sequence[int]) -> float:
    total, norm = 0.0, 1.0
    for error, *axis in zip(errors, k, h, strict=True):
        total += norm * error
        norm *= lebesgue_constant(*axis)
    return OUTWARD * total


@lru_cache(maxsize=256)
def _absolute_moment(k: int, h: int, power: int) -> float:
    """Bound ``sup_y sum_v |w_v(y)| |v/k - y|^power``; odd powers by Cauchy-Schwarz."""
    if power % 2:
        lower, upper = (_absolute_moment(k, h, power + step) for step in (-1, 1))
        return OUTWARD * math.sqrt(lower * upper)
    nodes, factor = enclosing_nodes(k + power)
    weights = np.abs(bernstein_basis(nodes, k) @ iterated_matrix(k, h))
    apart = np.arange(k + 1) / k - nodes[:, None]
    return factor * float((weights * apart**power).sum(axis=1).max()) + _ROUNDING


@lru_cache(maxsize=256)
def _taylor_error(k: int, h: int, order: int) -> float:
    """Bound the error of the worst function whose derivatives are at most one."""
    rest = _absolute_moment(k, h, order) / math.factorial(order)
    nodes, factor = enclosing_nodes(k + order)
    weights = bernstein_basis(nodes, k) @ iterated_matrix(k, h)
    apart = np.arange(k + 1) / k - nodes[:, None]
    moments = [
        np.abs((weights * apart**j).sum(axis=1)) / math.factorial(j) for j in range(2, order)
    ]  # the first is zero: linear functions are reproduced
    worst = float(np.sum(moments, axis=0).max()) if moments else 0.0
    return factor * worst + rest + _ROUNDING


# --- What a noiseless release misses of a function, at worst over a class of functions


@dataclass(frozen=True)
class KernelMixture(Approximation):
    """Mixtures ``sum_i w_i K(. - t_i)`` with ``sum |w_i| <= 1``; point masses attain the bound.

    With a `gap`, of sums over one axis: ``sum |w_i|`` of the t_i in any interval is at most its
    length and `gap`, so none is a point mass (`dbern.targets.priestley_chao`).
    """

    kernels: tuple[Kernel, ...]
    gap: float = 0.0
    choices: int = 1
    mends = "wider kernels", 'objective = "certified"'

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Telescoped one axis at a time: ``prod (s_i + a_i) - prod s_i``.

        s_i are the axes' suprema and a_i their errors. A mixture errs by its worst at most.
        """
        axes = zip(self.kernels, k, h, maps, strict=True)
        errors = [_translate_error(*axis, self.gap) for axis in axes]
        peaks = (kernel.peak for kernel in self.kernels)
        return float(telescoped(zip(peaks, errors, strict=True)))

    @property
    def highest(self) -> float:
        """Bound any value's size."""
        return math.prod(kernel.peak for kernel in self.kernels)


def mends_of(approximation: Approximation | None, perturbed: bool, lists: bool) -> tuple[str, ...]:
    """Return what to write in a spec so that more is promised of any database.

    There is no `approximation` of numbers that make a function: where these are of a perturbed
    objective, weights promise more, and are for axes of numbers.
    """
    if approximation or not perturbed:
        return "a larger epsilon", *(approximation.mends if approximation else ())
    return () if lists else ('method = "weights" under target',)


def _translate_error(kernel: Kernel, k: int, h: int, axis: AxisMap | None, gap: float) -> float:
    if isinstance(axis, AxisBins):
        pieces = largest_errors(kernel, k, h, axis)
        return _spread_error(pieces, gap) if gap else float(pieces.max())
    return translate_error(kernel, k, h, cast(LinearMap | None, axis))


def _spread_error(pieces: FloatArray, gap: float) -> float:
    """Bound the error for a measure v of at most ``length + gap`` on any interval, and 1.

    Let R bound the error for a translate, by `pieces` for each cell of y. Where it exceeds s are
    q(s) intervals of length L(s) in all, so that ``int R d|v| = int_0^oo |v|(R > s) ds <= int L(s)
    + gap q(s) ds``: the mean of R and `gap` times the sum of its rises, from 0 at the start; and at
    most ``max R``.
    """
    rises = np.diff(pieces, axis=1, prepend=0.0).clip(0.0).sum(axis=1)
    found = np.minimum(pieces.mean(axis=1) + gap * rises, pieces.max(axis=1))
    return float(OUTWARD * found.max())
