"""Kernels ``K(0) f(|x| rate)`` whose shape f is smooth between kinks.

The shape and the ranges of its derivatives give all their bounds.

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
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from dbern.bernstein.kernels.base import EXP_ULPS, OUTWARD, Kernel
from dbern.types import UNIT_ROUNDOFF, FloatArray

_MAX_OVERESTIMATE = 1e-4  # by how much a largest sum may be overestimated
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
    def effective_radius(self) -> float:
        """Beyond this x lies less than 1e-18 of the kernel's mass, on either side."""

    @abstractmethod
    def shape(self, z: FloatArray) -> FloatArray:
        """``f(z)`` for z >= 0; f(0) = 1."""

    @abstractmethod
    def tail_integral(self, z: FloatArray) -> FloatArray:
        """``int_z^inf f`` for z >= 0."""

    def cumulative(self, x: FloatArray) -> FloatArray:
        """``int_-inf^x K`` elementwise, from `tail_integral`."""
        tail = self.tail_integral(np.abs(x) * self.rate) / (2 * self.mass)
        return np.where(x > 0, 1.0 - tail, tail)

    @abstractmethod
    def derivative_range(self, degree: int) -> tuple[float, float]:
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
    def third_derivative_bound(self) -> float:
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
        low, high = self.derivative_range(degree)
        return max(-low, high)

    def _largest_sum(self, k: int, power: int) -> float:
        lattice = np.arange(k + 1.0)
        middle = self._bound_sum(k, power, lattice, k // 2, halves=1)
        terms = math.ceil(k * self.effective_radius) + 1
        endless = math.inf
        if terms <= _MOST_TERMS:
            endless = self._bound_sum(k, power, np.arange(-terms, terms + 1.0), 0, halves=1)
            endless += 4e-18 * k * self.peak ** (power - 1)  # the terms left out decrease
        if endless <= (1 + 2 * _MAX_OVERESTIMATE) * middle:
            return endless
        return min(endless, self._bound_sum(k, power, lattice, 0, halves=k))

    def _bound_sum(self, k: int, power: int, nodes: FloatArray, first: int, halves: int) -> float:
        """Bound the sum over `nodes` / k for t from ``first / k`` on, over some half periods."""
        count = min(len(nodes), 2 * k * self.bandwidth + 2)
        # (K^2)'' = 2 K'^2 + 2 K K'' >= 2 peak min(K'', 0)
        low = self.peak * self.rate**2 * min(self.derivative_range(2)[0], 0.0)
        bend = -low if power == 1 else -2 * self.peak * low
        start = float((self((nodes - first) / k) ** power).sum())
        squared_steps = count * bend / (8 * (2 * k) ** 2 * _MAX_OVERESTIMATE * start)
        steps = max(1, math.ceil(math.sqrt(squared_steps)))  # in half a period
        largest = 0.0
        rows = max(1, _MOST_TERMS // len(nodes))
        for block in range(0, halves * steps + 1, rows):
            t = first + np.arange(block, min(block + rows, halves * steps + 1)) / (2 * steps)
            largest = max(
                largest, float((self((nodes - t[:, None]) / k) ** power).sum(axis=1).max())
            )
        gap = count * bend / (8 * (2 * k * steps) ** 2)
        # Arguments are within four roundings of numbers up to 1 + `effective_radius`, values within
        # `ulps`.
        rounding = power * self.peak ** (power - 1) * UNIT_ROUNDOFF
        rounding *= 4 * (1 + self.effective_radius) * self.slope + self.ulps * self.peak
        return OUTWARD * (largest + gap + len(nodes) * rounding)
