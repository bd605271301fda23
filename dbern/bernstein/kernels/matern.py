"""Matern kernels of half-integer smoothness: a polynomial times ``e^-z``, a kink at the center.

All are positive definite: the transform of Matern nu is ``(2 nu / b^2 + w^2)^-(nu + 1/2)`` up to a
positive factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.polynomial import Polynomial

from dbern.bernstein.kernels.base import MIN_EXPONENT
from dbern.bernstein.kernels.piecewise import PiecewiseKernel
from dbern.types import FloatArray


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
    def effective_radius(self) -> float:
        """``z = 60``: the mass beyond is ``O(z^2) e^-z``, below 1e-22."""
        return 60.0 / self.rate

    @property
    def kinks(self) -> tuple[float, ...]:
        """The center."""
        return (0.0,)

    @property
    def jumps(self) -> bool:
        """Whether K' jumps: at the center, for the Laplace kernel alone."""
        return self.twice_nu == 1

    def shape(self, z: FloatArray) -> FloatArray:
        """``p(z) e^-z``, zero where that is below 1e-298 (subnormals are slow)."""
        near = np.minimum(z, -MIN_EXPONENT)
        values = np.polynomial.polynomial.polyval(near, self.coefficients) * np.exp(-near)
        return np.where(z < -MIN_EXPONENT, values, 0.0)

    def tail_integral(self, z: FloatArray) -> FloatArray:
        """``e^-z sum_i p^(i)(z)``: its derivative is ``-p(z) e^-z``."""
        near, p = np.minimum(z, -MIN_EXPONENT), Polynomial(self.coefficients)
        total = sum((p.deriv(i)(near) for i in range(p.degree() + 1)), np.zeros_like(near))
        return np.asarray(total * np.exp(-near))

    def derivative_range(self, degree: int) -> tuple[float, float]:
        """Infimum and supremum of the shape's derivative on z > 0."""
        return _derivative_range(self.coefficients, degree)


@lru_cache(maxsize=256)
def _derivative_range(coefficients: tuple[float, ...], degree: int) -> tuple[float, float]:
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
