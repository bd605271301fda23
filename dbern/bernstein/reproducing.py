"""Reproducing kernels ``K(x, y)`` on points of l coordinates, with proved constants.

Each is positive definite and states, for records of Euclidean norm at most `radius`
(`box_radius` for a box),

- ``bound(radius)``: ``kappa^2 = sup K(x, x)``, so that ``|K(x, y)| <= kappa^2`` by Cauchy-Schwarz;
- ``error(dimensions, radius)``: the largest difference of the computed and the exact K, for the
  float points as they are. Every operation rounds by ``u = 2^-53`` of its result; exp is assumed
  within `EXP_ULPS` units in the last place, arccos and pow likewise (tested in the suite).

Sums, products, and limits of positive definite kernels are positive definite (Schur).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dbern.bernstein.kernels.base import EXP_ULPS, MIN_EXPONENT, OUTWARD
from dbern.errors import SpecError
from dbern.types import UNIT_ROUNDOFF, FloatArray

_CACHED_NUMBERS = 1 << 15  # numbers at a time that stay in a processor's cache


class Kernel(Protocol):
    """A positive definite kernel with the two constants that solver and proofs use."""

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """``K(x_i, y_j)``, shape (m, n), for points (m, l) and (n, l)."""

    def bound(self, radius: float) -> float:
        """``kappa^2 = sup K(x, x)`` for records of norm at most `radius`."""

    def error(self, dimensions: int, radius: float) -> float:
        """Bound the float error of a value ``K(x, y)``, in absolute terms."""


@runtime_checkable
class LipschitzKernel(Protocol):
    """A kernel whose features are Lipschitz: ``|K_x - K_y| <= lipschitz |x - y|``.

    And whose derivatives are, where `curvature` is finite: it bounds ``|K''_y|`` along every line.
    """

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant of ``x -> K_x``."""

    @property
    def curvature(self) -> float:
        """Bound on ``|K''_y|`` along every line; 0 where a `fold` stands for it."""


@runtime_checkable
class ProductKernel(Protocol):
    """A kernel that is a product over axes: on a grid it needs the axes' values only."""

    product: bool

    def along(self, axis: int, x: FloatArray, y: FloatArray) -> FloatArray:
        """The factor of one axis at coordinates (m,) and (n,), shape (m, n)."""


@runtime_checkable
class ExplicitKernel(Protocol):
    """A kernel with finitely many features: ``K(x, y) = features(x) . features(y)``."""

    @property
    def feature_error(self) -> float:
        """Float error of a point's features, in the Euclidean norm."""

    def features(self, x: FloatArray) -> FloatArray:
        """Features (m, p) of points (m, l)."""


def box_radius(low: Sequence[float], high: Sequence[float]) -> float:
    """The largest Euclidean norm in a box, rounded outward."""
    largest = (max(abs(a), abs(b)) for a, b in zip(low, high, strict=True))
    return OUTWARD * math.hypot(*largest)


def rowwise_products(factors: Sequence[FloatArray]) -> FloatArray:
    """Products (m, d_1 .. d_l) of columns (m, d_i), row by row, the last factor's fastest."""
    result = factors[0]
    for factor in factors[1:]:
        size = result.shape[1] * factor.shape[1]
        result = (result[:, :, None] * factor[:, None, :]).reshape(len(result), size)
    return result


def _laplace(z: FloatArray) -> FloatArray:
    return _exp(-z)


def _matern_three_halves(z: FloatArray) -> FloatArray:
    t = math.sqrt(3.0) * z
    return np.asarray((1 + t) * _exp(-t))


def _matern_five_halves(z: FloatArray) -> FloatArray:
    t = math.sqrt(5.0) * z
    return np.asarray((1 + t + t * t / 3) * _exp(-t))


def _exp(exponent: FloatArray) -> FloatArray:
    np.maximum(exponent, MIN_EXPONENT, out=exponent)
    return np.exp(exponent, out=exponent)


_PROFILES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "laplace": _laplace,
    "matern-3/2": _matern_three_halves,
    "matern-5/2": _matern_five_halves,
}


@dataclass(frozen=True)
class Gaussian:
    """``exp(-sum_i (x_i - y_i)^2 / (2 scale_i^2))``: kappa = 1 everywhere.

    Positive definite: its Fourier transform is positive. The exponent is a matrix product,
    ``a . b - |a|^2/2 - |b|^2/2`` with ``a = x/scale``, ``b = y/scale``: several times faster than
    differences, at the price of an absolute error. With ``A = radius / min scale >= |a|, |b|``:
    the quotients, l products and l + 2 sums leave ``a . b`` within ``(2 l + 5) u A^2`` and each
    half square within half of that. The exact exponent t is at most 0, so clipping the computed
    one there brings it no further from t, and exp adds ``EXP_ULPS`` units.

    Raises SpecError for a scale that is not positive and finite.
    """

    scales: tuple[float, ...]
    product = True

    def __post_init__(self) -> None:
        _check_scales(self.scales)

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Values (m, n)."""
        a, b = x / self.scales, y / self.scales
        ones = np.ones((len(a), 1)), np.ones((len(b), 1))
        left = np.hstack([a, -0.5 * (a * a).sum(axis=1, keepdims=True), ones[0]])
        right = np.hstack([b, ones[1], -0.5 * (b * b).sum(axis=1, keepdims=True)])
        exponent = left @ right.T
        np.minimum(exponent, 0.0, out=exponent)
        return _exp(exponent)

    def along(self, axis: int, x: FloatArray, y: FloatArray) -> FloatArray:
        """The factor of one axis."""
        z = (x[:, None] - y) / self.scales[axis]
        return _exp(-0.5 * z * z)

    def bound(self, radius: float) -> float:  # noqa: ARG002 - the same everywhere
        """``K(x, x) = 1``."""
        return 1.0

    def error(self, dimensions: int, radius: float) -> float:
        """Bound the float error; the axes' factors are far more accurate."""
        square = (radius / min(self.scales)) ** 2
        return ((4 * dimensions + 12) * square + (EXP_ULPS + 8) * dimensions) * UNIT_ROUNDOFF


@dataclass(frozen=True)
class Stationary:
    """``p(|x - y| / scale)`` for a profile p with ``p(0) = 1``: kappa = 1 everywhere.

    ``z = |x_i - y_i| / scale_i`` per axis. As a product (the default) ``K = prod_i p(z_i)``, which
    spectral noise and grids need; otherwise ``K = p(|z|_2)``. Profiles: ``laplace`` ``exp(-z)``,
    ``matern-3/2`` ``(1+t) exp(-t)``, ``t = sqrt(3) z``, and ``matern-5/2``
    ``(1+t+t^2/3) exp(-t)``, ``t = sqrt(5) z``. Each is positive
    definite in every dimension: its Fourier transform is ``(1 + c |omega|^2)^-(nu + l/2)`` up to a
    factor.

    Float error: z is relatively within 2 u per axis, and (l/2 + 4) u as a norm; t and the exponent
    round by 2 u more; ``z |p'(z)|`` is at most ``1/e, 4/e^2, .61`` for the three, so a relative
    error of z moves p by less than .61 of it. exp and the polynomial add less than
    ``EXP_ULPS + 8`` units u; a product adds the factors' errors, all factors being at most 1.

    Raises SpecError for an unknown profile, or a scale that is not positive and finite.
    """

    profile: str
    scales: tuple[float, ...]
    product: bool = True

    def __post_init__(self) -> None:
        _check_scales(self.scales)
        if self.profile not in _PROFILES:
            raise SpecError(
                f'target.kernel: "{self.profile}" is not known. Write one of gaussian, '
                f"{', '.join(_PROFILES)}"
            )

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Values (m, n)."""
        if self.product:
            values = self.along(0, x[:, 0], y[:, 0])
            for axis in range(1, len(self.scales)):
                values *= self.along(axis, x[:, axis], y[:, axis])
            return values
        squares = np.zeros((len(x), len(y)))
        for axis, scale in enumerate(self.scales):
            z = (x[:, axis, None] - y[:, axis]) / scale
            squares += np.multiply(z, z, out=z)
        return _PROFILES[self.profile](np.sqrt(squares, out=squares))

    def along(self, axis: int, x: FloatArray, y: FloatArray) -> FloatArray:
        """The factor of one axis."""
        z = x[:, None] - y
        np.abs(z, out=z)
        z /= self.scales[axis]
        return _PROFILES[self.profile](z)

    def bound(self, radius: float) -> float:  # noqa: ARG002 - the same everywhere
        """``K(x, x) = 1``."""
        return 1.0

    def error(self, dimensions: int, radius: float) -> float:  # noqa: ARG002 - scale-free
        """Bound the float error of a value, as derived in the class."""
        return (EXP_ULPS + 16) * dimensions * UNIT_ROUNDOFF


def _check_scales(scales: Sequence[float]) -> None:
    if not (scales and all(1e-9 <= scale <= 1e9 for scale in scales)):
        raise SpecError(
            "target.length_scale: must be from 1e-9 to 1e9. Write one number per axis, in the "
            "units of its column."
        )


@dataclass(frozen=True)
class Linear:
    """``x . y + constant^2``: linear functions, the constant feature in place of a bias.

    Positive definite: the features are x and the constant. ``kappa^2 = radius^2 + constant^2``.
    Float error: l products and l sums in any order, ``(l + 2) u kappa^2``.
    """

    constant: float = 0.0
    feature_error = 0.0  # coordinates are copied

    def __post_init__(self) -> None:
        _check_constant(self.constant)

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Values (m, n)."""
        return np.asarray(x @ y.T + self.constant**2)

    def features(self, x: FloatArray) -> FloatArray:
        """The coordinates, and the constant where it is not zero."""
        if self.constant == 0:
            return x
        return np.column_stack([x, np.full(len(x), self.constant)])

    def bound(self, radius: float) -> float:
        """``radius^2 + constant^2``."""
        return OUTWARD * (radius**2 + self.constant**2)

    def error(self, dimensions: int, radius: float) -> float:
        """Bound the float error of a value, as derived in the class."""
        return (dimensions + 4) * UNIT_ROUNDOFF * self.bound(radius)


@dataclass(frozen=True)
class Polynomial:
    """``(x . y / scale^2 + constant)^degree``, constant at least 0.

    Positive definite: sums and products of positive definite kernels. ``kappa^2`` is its value at
    ``x . x = radius^2``. Float error: the base b is within ``(l + 4) u`` of its largest value, the
    power multiplies a relative error at the largest base by its degree, pow adds a few units.
    """

    degree: int = 3
    scale: float = 1.0
    constant: float = 1.0

    def __post_init__(self) -> None:
        if not (
            1 <= self.degree <= 30 and 0 < self.scale < math.inf and 0 <= self.constant < math.inf
        ):
            raise SpecError(
                "target.kernel: a polynomial kernel needs a degree from 1 to 30, a positive scale "
                "and a constant of at least 0. Write degree = 3, scale = 1.0, constant = 1.0"
            )

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Values (m, n)."""
        return np.asarray((x @ y.T / self.scale**2 + self.constant) ** self.degree)

    def bound(self, radius: float) -> float:
        """``(radius^2 / scale^2 + constant)^degree``."""
        return float(OUTWARD * ((radius / self.scale) ** 2 + self.constant) ** self.degree)

    def error(self, dimensions: int, radius: float) -> float:
        """Bound the float error of a value, as derived in the class."""
        ulps = self.degree * (dimensions + 8) + EXP_ULPS + 2
        return ulps * UNIT_ROUNDOFF * self.bound(radius)


@dataclass(frozen=True)
class ArcCosine:
    """``|x| |y| g(cos theta) / pi``, ``g(c) = sqrt(1 - c^2) + (pi - arccos c) c``.

    Of points with one more coordinate, the constant, which stands for a bias. The arc-cosine
    kernel of order 1 (Cho and Saul 2009): twice the expectation of ``max(0, w.x) max(0, w.y)`` over
    standard normal w, hence positive definite. ``K(x, x) = |x|^2``. Order 0 is left out: its
    derivative at ``theta = 0`` is infinite, so no useful bound on its float error exists. Float
    error: the cosine is within ``(2 l + 8) u``, ``0 <= g' = pi - theta <= pi``, g itself rounds by
    less than ``24 u`` at values up to pi, the norms by ``(l + 4) u``.

    *Lipschitz.* ``|K_x - K_y|^2 = 2 E (max(0, w.x) - max(0, w.y))^2``. Along a segment from y to x
    the feature moves at the rate ``(2 E 1[w.z > 0] (w.e)^2)^{1/2} = 1`` a unit of length, e its
    direction, because w and -w are as likely: ``|K_x - K_y| <= |x - y|``.

    *Curvature.* A value ``K(x, v)`` has the second derivative ``2 E delta(w.x) (w.e)^2 max(0, w.v)
    = (2 e_2^2 + e_3^2) |v| sin(theta) / (pi |x|)`` along a unit vector e, e_2 its part across x in
    the plane of x and v, e_3 that across both. ``|v| sin(theta)`` is v's distance from the line of
    x: so it is from 0 to ``fold |v - x| / |x|``, fold 2 over pi, and 0 at v = x.
    """

    constant: float = 0.0
    lipschitz = OUTWARD
    curvature = 0.0  # of values instead:
    fold = OUTWARD * 2 / math.pi

    def __post_init__(self) -> None:
        _check_constant(self.constant)

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Values (m, n)."""
        square = self.constant**2
        lengths = np.sqrt((x * x).sum(axis=1) + square)[:, None]
        lengths = lengths * np.sqrt((y * y).sum(axis=1) + square)
        values = x @ y.T + square
        step = max(1, _CACHED_NUMBERS // max(1, len(y)))
        for rows in (slice(first, first + step) for first in range(0, len(x), step)):
            inner, sizes = values[rows], lengths[rows]
            cosine = np.divide(inner, sizes, out=np.zeros_like(sizes), where=sizes > 0)
            np.clip(cosine, -1.0, 1.0, out=cosine)
            result, angle = np.subtract(1, cosine, out=inner), np.arccos(cosine)
            # In place, because the arrays are large
            np.sqrt(np.multiply(result, 1 + cosine, out=result), out=result)
            result += np.multiply(np.subtract(math.pi, angle, out=angle), cosine, out=angle)
            result *= sizes
            result /= math.pi
        return values

    def bound(self, radius: float) -> float:
        """``radius^2 + constant^2``."""
        return OUTWARD * (radius**2 + self.constant**2)

    def error(self, dimensions: int, radius: float) -> float:
        """Bound the float error of a value, as derived in the class."""
        return (4 * dimensions + 56) * UNIT_ROUNDOFF * self.bound(radius)


def _check_constant(constant: float) -> None:
    if not (math.isfinite(constant) and constant >= 0):
        raise SpecError("target.constant: must be at least 0. Write constant = 1.0")
