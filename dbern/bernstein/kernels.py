"""Kernels of one axis, in unit-cube units, with proved bounds on what the mechanism needs.

A `PiecewiseKernel` ``K(0) f(|x| rate)`` is smooth between kinks: its shape f and the extremes of
the shape's derivatives give all its bounds.

Largest sums
------------
Let ``S(t) = sum_v g(v/k - t)`` with g = K or K^2, and let ``bend`` be at least ``sup -g''`` away
from the center, off the kinks. At a kink other than the center g' jumps upward (to zero slope),
so ``g(x) + bend x^2 / 2`` is convex on either side of the center, and g is convex from one
bandwidth on. For t between two neighbouring lattice points no ``v/k - t`` changes sign. On an
interval of w there, S plus ``count bend t^2 / 2`` is therefore convex, with `count` the most
lattice points within a bandwidth of the interval, and S is at most the larger of its end values
plus ``count bend w^2 / 8``. Steps are chosen so that this is a small share of the maximum.

Over all integers v the sum has period 1/k and is symmetric: half a period is enough, and it
bounds the sum over the lattice, tightly unless the kernel reaches beyond the domain. Then the
lattice itself is stepped through, up to the middle by symmetry.

Polynomial kernels of compact support: ``(1 - z^i)^m`` for ``z = |x| / b < 1``, zero beyond.

The triangle is positive definite: its transform is a squared sinc. That of ``(1 - z^2)^m`` is a
multiple of ``J_{m+1/2}(w) / w^{m+1/2}``, and Bessel functions change sign: those kernels are not.

Matern kernels of half-integer smoothness: a polynomial times ``e^-z``, a kink at the center.

All are positive definite: the transform of Matern nu is ``(2 nu / b^2 + w^2)^-(nu + 1/2)`` up to a
positive factor.

There is no uniform kernel: it jumps, so no polynomial comes nearer to it than half its height,
and a record within rounding of an edge could change a value by all of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.polynomial import Polynomial

from dbern.types import UNIT_ROUNDOFF, FloatArray

# --- What the mechanism needs to know of a kernel of one axis


OUTWARD = 1 + 2.0**-40
"""Factor that rounds a computed float outward: far above the error of any sum made here."""

EXP_ULPS = 4
"""Assumed accuracy of the platform's ``exp`` in units in the last place (tested in the suite)."""


@dataclass(frozen=True)
class Kernel(ABC):
    """A density on the line: symmetric, nonnegative, continuous, decreasing away from zero.

    Bounds hold for the exact function; a computed value at an exact argument is off by at most
    `ulps` units of ``peak * 2^-53``. The bandwidth is in unit-cube units: a standard deviation,
    length scale or half-width, as the kernel says.
    """

    bandwidth: float

    name: ClassVar[str]
    ulps: ClassVar[int]

    @property
    @abstractmethod
    def peak(self) -> float:
        """``sup K = K(0)``, rounded outward."""

    @property
    @abstractmethod
    def slope(self) -> float:
        """A Lipschitz constant of K: ``sup |K'|``, rounded outward."""

    @property
    @abstractmethod
    def curvature(self) -> float:
        """``sup |K''|`` off the kinks, rounded outward."""

    @property
    @abstractmethod
    def third(self) -> float:
        """``sup |K'''|`` off the kinks, rounded outward."""

    @property
    @abstractmethod
    def jumps(self) -> bool:
        """Whether K' jumps at a kink."""

    @property
    @abstractmethod
    def deviation(self) -> float:
        """Standard deviation: what kernels of different shapes are compared by."""

    @property
    @abstractmethod
    def kinks(self) -> tuple[float, ...]:
        """Distances below one from the center, where K is not smooth; increasing."""

    @abstractmethod
    def __call__(self, x: FloatArray) -> FloatArray:
        """``K(x)`` elementwise."""

    @abstractmethod
    def cumulative(self, x: FloatArray) -> FloatArray:
        """``int_-inf^x K`` elementwise, but for rounding."""

    @abstractmethod
    def chebyshev_bound(self, degree: int, radius: float) -> float:
        """Bound ``|c_a|``, the Chebyshev coefficient of degree a of ``u -> K(x - radius u)``.

        Valid for every x with no kink inside ``(x - radius, x + radius)``. Bounds are log-concave
        in the degree from 8 on, and increase with the radius.
        """

    @abstractmethod
    def lattice_sum(self, k: int) -> float:
        """Bound ``max_t sum_v K(v/k - t)`` over every position t of the unit interval."""

    @abstractmethod
    def square_sum(self, k: int) -> float:
        """Bound ``max_t sum_v K(v/k - t)^2``."""

    def degree_for(self, tolerance: float, radius: float) -> tuple[int, float]:
        """Degree with Chebyshev truncation error at most ``tolerance * peak``, and the error."""
        degree = 8
        while True:
            first = max(self.chebyshev_bound(degree + 1, radius), 1e-290 * self.peak)
            ratio = max(self.chebyshev_bound(degree + 2, radius) / first, 0.5)
            # The bounds are log-concave in the degree: from here on they fall at least this fast.
            if ratio < 0.999 and first / (1 - ratio) <= tolerance * self.peak:
                return degree, OUTWARD * first / (1 - ratio)
            degree += max(1, degree // 8)


# --- Kernels K(0) f(|x| rate) whose shape f is smooth between kinks

_GAP = 1e-4  # by how much a largest sum may be overestimated
_MOST_TERMS = 1 << 20


@dataclass(frozen=True)
class PiecewiseKernel(Kernel):
    """A kernel by its shape f, derivatives and four numbers; bounds follow (*Largest sums*)."""

    # At most five roundings of z times ``|z f'(z)| < 2``, exp, and the shape's and the scale's own.
    ulps = EXP_ULPS + 20

    @property
    @abstractmethod
    def rate(self) -> float:
        """Units of the shape's argument in one unit of x."""

    @property
    @abstractmethod
    def mass(self) -> float:
        """Integral of f over the positive half-line."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of the density ``f(|z|) / (2 mass)``."""

    @property
    @abstractmethod
    def reach(self) -> float:
        """Beyond this x lies less than 1e-18 of the kernel's mass, on either side."""

    @abstractmethod
    def shape(self, z: FloatArray) -> FloatArray:
        """``f(z)`` for z >= 0; f(0) = 1."""

    @abstractmethod
    def beyond(self, z: FloatArray) -> FloatArray:
        """``int_z^inf f`` for z >= 0."""

    def cumulative(self, x: FloatArray) -> FloatArray:
        """``int_-inf^x K`` elementwise, from `beyond`."""
        share = self.beyond(np.abs(x) * self.rate) / (2 * self.mass)
        return np.where(x > 0, 1.0 - share, share)

    @abstractmethod
    def extremes(self, degree: int) -> tuple[float, float]:
        """Infimum and supremum of the shape's derivative on z > 0, off the kinks."""

    @property
    def peak(self) -> float:
        """``rate / (2 mass)``: the density integrates to one; rounded outward."""
        return OUTWARD * self.rate / (2 * self.mass)

    @property
    def slope(self) -> float:
        """``sup |K'|`` off the kinks, rounded outward."""
        return OUTWARD * self.peak * self.rate * self._largest(1)

    @property
    def curvature(self) -> float:
        """``sup |K''|`` off the kinks, rounded outward."""
        return OUTWARD * self.peak * self.rate**2 * self._largest(2)

    @property
    def third(self) -> float:
        """``sup |K'''|`` off the kinks, rounded outward."""
        return OUTWARD * self.peak * self.rate**3 * self._largest(3)

    @property
    def deviation(self) -> float:
        """Standard deviation of the density."""
        return math.sqrt(self.variance) / self.rate

    def __call__(self, x: FloatArray) -> FloatArray:
        """``K(x)`` elementwise."""
        return np.asarray(self.rate / (2 * self.mass) * self.shape(np.abs(x) * self.rate))

    def chebyshev_bound(self, degree: int, radius: float) -> float:
        """Bound ``|c_a|`` by a derivative of the shape.

        ``c_a`` is ``h^(a) / (2^(a-1) a!)`` averaged with a positive weight, h the function of u;
        ``|c_a| <= 2 sup |h|`` besides.
        """
        if degree == 0:
            return self.peak
        largest = self._largest(degree)
        if largest == 0.0:
            return 0.0
        power = degree * math.log(radius * self.rate / 2) - math.lgamma(degree + 1)
        return OUTWARD * self.peak * 2 * math.exp(min(power + math.log(largest), 0.0))

    def lattice_sum(self, k: int) -> float:
        """Bound ``max_t sum_v K(v/k - t)``, at most 1e-4 too large."""
        return self._largest_sum(k, 1)

    def square_sum(self, k: int) -> float:
        """Bound ``max_t sum_v K(v/k - t)^2``, at most 1e-4 too large."""
        return self._largest_sum(k, 2)

    def _largest(self, degree: int) -> float:
        low, high = self.extremes(degree)
        return max(-low, high)

    def _largest_sum(self, k: int, power: int) -> float:
        lattice = np.arange(k + 1.0)
        middle = self._stepped(k, power, lattice, k // 2, halves=1)
        terms = math.ceil(k * self.reach) + 1
        endless = math.inf
        if terms <= _MOST_TERMS:
            endless = self._stepped(k, power, np.arange(-terms, terms + 1.0), 0, halves=1)
            endless += 4e-18 * k * self.peak ** (power - 1)  # the terms left out decrease
        if endless <= (1 + 2 * _GAP) * middle:
            return endless
        return min(endless, self._stepped(k, power, lattice, 0, halves=k))

    def _stepped(self, k: int, power: int, nodes: FloatArray, first: int, halves: int) -> float:
        """Bound the sum over `nodes` / k for t from ``first / k`` on, over some half periods."""
        count = min(len(nodes), 2 * k * self.bandwidth + 2)
        # (K^2)'' = 2 K'^2 + 2 K K'' >= 2 peak min(K'', 0)
        low = self.peak * self.rate**2 * min(self.extremes(2)[0], 0.0)
        bend = -low if power == 1 else -2 * self.peak * low
        start = float((self((nodes - first) / k) ** power).sum())
        share = count * bend / (8 * (2 * k) ** 2 * _GAP * start)
        steps = max(1, math.ceil(math.sqrt(share)))  # in half a period
        best = 0.0
        rows = max(1, _MOST_TERMS // len(nodes))
        for block in range(0, halves * steps + 1, rows):
            t = first + np.arange(block, min(block + rows, halves * steps + 1)) / (2 * steps)
            best = max(best, float((self((nodes - t[:, None]) / k) ** power).sum(axis=1).max()))
        gap = count * bend / (8 * (2 * k * steps) ** 2)
        # Arguments are within four roundings of numbers up to 1 + reach; values within `ulps`.
        rounding = power * self.peak ** (power - 1) * UNIT_ROUNDOFF
        rounding *= 4 * (1 + self.reach) * self.slope + self.ulps * self.peak
        return OUTWARD * (best + gap + len(nodes) * rounding)


# --- Polynomial kernels of compact support


@dataclass(frozen=True)
class CompactKernel(PiecewiseKernel):
    """Polynomial of compact support, whose half-width is the bandwidth b."""

    inner: ClassVar[int]  # i
    power: ClassVar[int]  # m

    @property
    def rate(self) -> float:
        """``1 / b``."""
        return 1 / self.bandwidth

    @property
    def mass(self) -> float:
        """Integral of the polynomial over the unit interval."""
        return _compact_mass(self.inner, self.power)

    @property
    def variance(self) -> float:
        """Second moment of the polynomial over the unit interval, divided by its mass."""
        return _compact_mass(self.inner, self.power, 2) / self.mass

    @property
    def reach(self) -> float:
        """The half-width."""
        return self.bandwidth

    @property
    def kinks(self) -> tuple[float, ...]:
        """The end of the support, and the triangle's tip."""
        ends = (self.bandwidth,) if self.bandwidth < 1 else ()
        return (0.0, *ends) if self.inner == 1 else ends

    @property
    def jumps(self) -> bool:
        """At the triangle's tip, and with power 1 at the end of the support."""
        return bool(self.kinks) and self.power == 1

    def shape(self, z: FloatArray) -> FloatArray:
        """``max(1 - z^i, 0)^m``."""
        base = np.maximum(1.0 - (z if self.inner == 1 else np.square(z)), 0.0)
        value = base
        for _ in range(1, self.power):
            value = value * base
        return value

    def beyond(self, z: FloatArray) -> FloatArray:
        """``int_z^1 f`` for z in [0, 1]; zero beyond the support."""
        whole = _compact_derivative(self.inner, self.power, 0).integ()
        return np.asarray(self.mass - whole(np.minimum(z, 1.0)))

    def extremes(self, degree: int) -> tuple[float, float]:
        """Infimum and supremum of the shape's derivative; all are zero beyond the support."""
        return _compact_extremes(self.inner, self.power, degree)


@lru_cache(maxsize=256)
def _compact_derivative(inner: int, power: int, degree: int) -> Polynomial:
    base = Polynomial([1.0] + [0.0] * (inner - 1) + [-1.0])
    return (base**power).deriv(degree)


@lru_cache(maxsize=256)
def _compact_mass(inner: int, power: int, moment: int = 0) -> float:
    weight = Polynomial([0.0] * moment + [1.0])
    return float((_compact_derivative(inner, power, 0) * weight).integ()(1.0))


@lru_cache(maxsize=256)
def _compact_extremes(inner: int, power: int, degree: int) -> tuple[float, float]:
    """Extremes of the derivative, at the ends of the unit interval or roots of the next derivative.

    Rounding errors of simple roots enter the extremes squared; the only double roots, at one, are
    an end. A point that is no root does no harm.
    """
    roots = np.real(_compact_derivative(inner, power, degree + 1).roots())
    z = np.concatenate([[0.0, 1.0], roots[(roots > 0.0) & (roots < 1.0)]])
    values = np.append(_compact_derivative(inner, power, degree)(z), 0.0)
    return float(values.min()), float(values.max())


@dataclass(frozen=True)
class Triangle(CompactKernel):
    """``(1 - |x| / b) / b``."""

    name = "triangle"
    inner, power = 1, 1


@dataclass(frozen=True)
class Epanechnikov(CompactKernel):
    """``3 (1 - z^2) / (4 b)``."""

    name = "epanechnikov"
    inner, power = 2, 1


@dataclass(frozen=True)
class Biweight(CompactKernel):
    """``15 (1 - z^2)^2 / (16 b)``."""

    name = "biweight"
    inner, power = 2, 2


@dataclass(frozen=True)
class Triweight(CompactKernel):
    """``35 (1 - z^2)^3 / (32 b)``."""

    name = "triweight"
    inner, power = 2, 3


# --- Matern kernels of half-integer smoothness

_FAR = 700.0  # exp beyond is subnormal or zero: 1e-304, far below every stated error


@dataclass(frozen=True)
class ExponentialKernel(PiecewiseKernel):
    """``f(z) = p(z) e^-z`` with ``z = sqrt(2 nu) |x| / b``; the bandwidth b is the length scale."""

    coefficients: ClassVar[tuple[float, ...]]
    twice_nu: ClassVar[int]

    @property
    def rate(self) -> float:
        """``sqrt(2 nu) / b``."""
        return math.sqrt(self.twice_nu) / self.bandwidth

    @property
    def mass(self) -> float:
        """``sum_j p_j j!``."""
        return sum(c * math.factorial(j) for j, c in enumerate(self.coefficients))

    @property
    def variance(self) -> float:
        """``sum_j p_j (j + 2)! / sum_j p_j j!``."""
        second = sum(c * math.factorial(j + 2) for j, c in enumerate(self.coefficients))
        return second / self.mass

    @property
    def reach(self) -> float:
        """``z = 60``: the mass beyond is ``O(z^2) e^-z``, below 1e-22."""
        return 60.0 / self.rate

    @property
    def kinks(self) -> tuple[float, ...]:
        """The center."""
        return (0.0,)

    @property
    def jumps(self) -> bool:
        """At the center, for the Laplace kernel alone."""
        return self.twice_nu == 1

    def shape(self, z: FloatArray) -> FloatArray:
        """``p(z) e^-z``, zero where that is below 1e-298 (subnormals are slow)."""
        near = np.minimum(z, _FAR)
        values = np.polynomial.polynomial.polyval(near, self.coefficients) * np.exp(-near)
        return np.where(z < _FAR, values, 0.0)

    def beyond(self, z: FloatArray) -> FloatArray:
        """``e^-z sum_i p^(i)(z)``: its derivative is ``-p(z) e^-z``."""
        near, p = np.minimum(z, _FAR), Polynomial(self.coefficients)
        total = sum((p.deriv(i)(near) for i in range(p.degree() + 1)), np.zeros_like(near))
        return np.asarray(total * np.exp(-near))

    def extremes(self, degree: int) -> tuple[float, float]:
        """Infimum and supremum of the shape's derivative on z > 0."""
        return _exponential_extremes(self.coefficients, degree)


@lru_cache(maxsize=256)
def _exponential_extremes(coefficients: tuple[float, ...], degree: int) -> tuple[float, float]:
    """Extremes of ``q e^-z``, the derivative of ``p e^-z``, at its ends or the next one's roots.

    By Leibniz' rule ``q = sum_i C(degree, i) (-1)^(degree - i) p^(i)``. Roots are simple, so their
    rounding errors enter the extremes squared; a point that is no root does no harm.
    """
    p = Polynomial(coefficients)
    orders = range(min(p.degree(), degree) + 1)
    q = sum((-1) ** (degree - i) * math.comb(degree, i) * p.deriv(i) for i in orders)
    roots = np.real((q.deriv() - q).roots())
    z = np.concatenate([[0.0], roots[roots > 0.0]])
    values = np.append(q(z) * np.exp(-z), 0.0)  # at infinity
    return float(values.min()), float(values.max())


@dataclass(frozen=True)
class Laplace(ExponentialKernel):
    """``exp(-|x| / b) / (2 b)``: Matern 1/2."""

    name = "laplace"
    coefficients = (1.0,)
    twice_nu = 1


@dataclass(frozen=True)
class Matern32(ExponentialKernel):
    """``(1 + z) e^-z`` with ``z = sqrt(3) |x| / b``, times ``sqrt(3) / (4 b)``."""

    name = "matern-3/2"
    coefficients = (1.0, 1.0)
    twice_nu = 3


@dataclass(frozen=True)
class Matern52(ExponentialKernel):
    """``(1 + z + z^2 / 3) e^-z`` with ``z = sqrt(5) |x| / b``, times ``3 sqrt(5) / (16 b)``."""

    name = "matern-5/2"
    coefficients = (1.0, 1.0, 1 / 3)
    twice_nu = 5


# --- The Gaussian kernel: entire, so its bounds need no cells

_CRAMER = 1.0865
_LEAST_EXPONENT = -700.0  # exp below is subnormal or zero: 1e-304, far below every stated error


@dataclass(frozen=True)
class Gaussian(Kernel):
    """The density of a centred normal variable with standard deviation `bandwidth`."""

    name = "gaussian"
    # exp, the exponent's five roundings times ``|z| e^z < 0.37``, two products
    ulps = EXP_ULPS + 12

    @property
    def peak(self) -> float:
        """``sup K = K(0)``, rounded outward."""
        return OUTWARD / (self.bandwidth * math.sqrt(2 * math.pi))

    @property
    def slope(self) -> float:
        """``sup |K'|``, attained at one standard deviation, rounded outward."""
        return OUTWARD * self.peak * math.exp(-0.5) / self.bandwidth

    @property
    def curvature(self) -> float:
        """``sup |K''|``, attained at the center, rounded outward."""
        return OUTWARD * self.peak / self.bandwidth**2

    @property
    def third(self) -> float:
        """``sup |K'''|``, attained where ``z^2 = 3 - sqrt(6)``, rounded outward."""
        return OUTWARD * 1.380119 * self.peak / self.bandwidth**3

    @property
    def jumps(self) -> bool:
        """False: it is smooth."""
        return False

    @property
    def deviation(self) -> float:
        """The bandwidth."""
        return self.bandwidth

    @property
    def kinks(self) -> tuple[float, ...]:
        """No kinks."""
        return ()

    def __call__(self, x: FloatArray) -> FloatArray:
        """``K(x)`` elementwise; tails below 1e-304 of the peak are zero (subnormals are slow)."""
        exponent = np.asarray(x / self.bandwidth)  # what follows is in place: arrays are large
        np.square(exponent, out=exponent)
        exponent *= -0.5
        far = ~(exponent > _LEAST_EXPONENT)
        values = np.exp(np.maximum(exponent, _LEAST_EXPONENT, out=exponent), out=exponent)
        values *= 1 / (self.bandwidth * math.sqrt(2 * math.pi))
        values[far] = 0.0
        return values

    def cumulative(self, x: FloatArray) -> FloatArray:
        """``int_-inf^x K`` elementwise, from the error function."""
        from scipy.special import ndtr  # takes 30 ms to import

        return np.asarray(ndtr(x / self.bandwidth))

    def chebyshev_bound(self, degree: int, radius: float) -> float:
        """Bound ``|c_a|``, the Chebyshev coefficient of degree a of ``u -> K(x - radius u)``.

        Valid for every x. For a > 0, ``c_a`` is ``f^(a) / (2^(a-1) a!)`` averaged with a positive
        weight, and Cramer's inequality bounds ``|K^(a)| <= 1.0865 sqrt(a!) b^-a K(0)``. For long
        expansions Bernstein's ellipse is smaller: ``2 rho^-a sup |K|`` on the ellipse of rho.
        """
        if degree == 0:
            return self.peak
        ratio = radius / self.bandwidth
        log_cramer = (
            math.log(2 * _CRAMER) + degree * math.log(ratio / 2) - 0.5 * math.lgamma(degree + 1)
        )
        best = min(log_cramer, _ellipse_log_bound(degree, ratio))
        return OUTWARD * self.peak * math.exp(min(best, math.log(2.0)))

    def lattice_sum(self, k: int) -> float:
        """Bound ``max_t sum_v K(v/k - t)`` over every position t of the unit interval.

        The smaller of two proved bounds. *Poisson*: the transform of K is positive, so the sum
        over all integers v is largest for t on the lattice; tight for narrow kernels. *Enclosure*:
        on an interval of positions K is at most its value at the distance of v/k from the
        interval, because K decreases; tight for wide ones. A maximum over sampled t is no bound.
        """
        endless = self._poisson_sum(k)
        return OUTWARD * min(endless, self._enclosed_sum(k, endless))

    def square_sum(self, k: int) -> float:
        """Bound ``max_t sum_v K(v/k - t)^2``: the square is a narrower Gaussian, rescaled."""
        narrower = Gaussian(self.bandwidth / math.sqrt(2))
        return OUTWARD * narrower.lattice_sum(k) / (2 * self.bandwidth * math.sqrt(math.pi))

    def _poisson_sum(self, k: int) -> float:
        reach = math.ceil(9 * k * self.bandwidth) + 1
        if reach > 1_000_000:
            return math.inf
        tail = self(np.arange(1, reach + 1) / k).sum()
        # Beyond `reach` the terms sum to less than k P(|X| > 9 sd) + K(9 sd) < 1e-17 (k + peak).
        return float(self.peak + 2 * tail) + 1e-17 * (k + self.peak)

    def _enclosed_sum(self, k: int, enough: float) -> float:
        edges = np.linspace(0.0, 0.5, 4097)  # the lattice is symmetric about 1/2
        nodes = np.arange(k + 1) / k
        best = 0.0
        for first in reversed(range(0, 4096, 256)):  # most often the largest is in the middle
            low, high = edges[first : first + 256, None], edges[first + 1 : first + 257, None]
            distance = np.maximum(0.0, np.maximum(low - nodes, nodes - high))
            best = max(best, float(self(distance).sum(axis=1).max()))
            if best >= enough:
                break
        return best


def _ellipse_log_bound(degree: int, ratio: float) -> float:
    """``log(2 rho^-a exp((rho - 1/rho)^2 ratio^2 / 8))`` at a good rho; any rho > 1 is valid."""
    # With rho = e^s the exponent is ratio^2 sinh(s)^2 / 2 - a s; this s is its minimum.
    s = 0.5 * math.asinh(2 * degree / ratio**2)
    return math.log(2.0) + 0.5 * (ratio * math.sinh(s)) ** 2 - degree * s


# --- Kernels of one axis, in unit-cube units, with proved bounds on what the mechanism needs

__all__ = ["EXP_ULPS", "KERNELS", "OUTWARD", "Gaussian", "Kernel", "kernel_of"]

KERNELS: dict[str, type[Kernel]] = {
    kernel.name: kernel
    for kernel in (
        Gaussian,
        Laplace,
        Matern32,
        Matern52,
        Triangle,
        Epanechnikov,
        Biweight,
        Triweight,
    )
}
"""Every kernel by the name a spec gives it."""


def kernel_of(name: str, bandwidth: float) -> Kernel:
    """The kernel of that name, one of `KERNELS`; a KeyError for another."""
    return KERNELS[name](bandwidth)
