"""Kernels ``K(0) f(|x| rate)`` whose shape f is smooth between kinks: bounds they have in common.

A kernel says what its shape is and what the extremes of the shape's derivatives are; all else
follows here.

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

from dbern.arrays import FloatArray
from dbern.bernstein.kernels.base import EXP_ULPS, OUTWARD, Kernel

_GAP = 1e-4  # by how much a largest sum may be overestimated
_MOST_TERMS = 1 << 20
_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True)
class PiecewiseKernel(Kernel):
    """See the module; `extremes`, `shape` and four numbers are a kernel's own."""

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
    def deviation(self) -> float:
        """Standard deviation of the density."""
        return math.sqrt(self.variance) / self.rate

    def __call__(self, x: FloatArray) -> FloatArray:
        """``K(x)`` elementwise."""
        return np.asarray(self.rate / (2 * self.mass) * self.shape(np.abs(x) * self.rate))

    def chebyshev_bound(self, degree: int, radius: float) -> float:
        """See `Kernel`.

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
        """See `Kernel`; at most 1e-4 too large."""
        return self._largest_sum(k, 1)

    def square_sum(self, k: int) -> float:
        """See `Kernel`; at most 1e-4 too large."""
        return self._largest_sum(k, 2)

    def _largest(self, degree: int) -> float:
        low, high = self.extremes(degree)
        return max(-low, high)

    def _largest_sum(self, k: int, power: int) -> float:
        """Bound ``max_t sum_v K(v/k - t)^power``; see the module."""
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
        """Bound the sum over `nodes` / k for t from ``first / k`` on, over so many half periods."""
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
        rounding = power * self.peak ** (power - 1) * _UNIT_ROUNDOFF
        rounding *= 4 * (1 + self.reach) * self.slope + self.ulps * self.peak
        return OUTWARD * (best + gap + len(nodes) * rounding)
