"""Polynomial kernels of compact support: ``(1 - z^i)^m`` for ``z = |x| / b < 1``, zero beyond.

The triangle is positive definite: its transform is a squared sinc. That of ``(1 - z^2)^m`` is a
multiple of ``J_{m+1/2}(w) / w^{m+1/2}``, and Bessel functions change sign: those kernels are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.polynomial import Polynomial

from dbern.arrays import FloatArray
from dbern.bernstein.kernels.piecewise import PiecewiseKernel


@dataclass(frozen=True)
class CompactKernel(PiecewiseKernel):
    """See the module; the bandwidth b is the half-width of the support."""

    inner: ClassVar[int]  # i
    power: ClassVar[int]  # m

    @property
    def rate(self) -> float:
        """``1 / b``."""
        return 1 / self.bandwidth

    @property
    def mass(self) -> float:
        """Integral of the polynomial over the unit interval."""
        return float(_derivative(self.inner, self.power, 0).integ()(1.0))

    @property
    def variance(self) -> float:
        """Second moment of the polynomial over the unit interval, divided by its mass."""
        weighted = _derivative(self.inner, self.power, 0) * Polynomial([0, 0, 1])
        return float(weighted.integ()(1.0)) / self.mass

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

    def extremes(self, degree: int) -> tuple[float, float]:
        """See `PiecewiseKernel`; beyond the support every derivative is zero."""
        return _extremes(self.inner, self.power, degree)


@lru_cache(maxsize=256)
def _derivative(inner: int, power: int, degree: int) -> Polynomial:
    base = Polynomial([1.0] + [0.0] * (inner - 1) + [-1.0])
    return (base**power).deriv(degree)


@lru_cache(maxsize=256)
def _extremes(inner: int, power: int, degree: int) -> tuple[float, float]:
    """Of the derivative: the ends of the unit interval and the roots of the next derivative.

    Rounding errors of simple roots enter the extremes squared; the only double roots, at one, are
    an end. A point that is no root does no harm.
    """
    roots = np.real(_derivative(inner, power, degree + 1).roots())
    z = np.concatenate([[0.0, 1.0], roots[(roots > 0.0) & (roots < 1.0)]])
    values = np.append(_derivative(inner, power, degree)(z), 0.0)
    return float(values.min()), float(values.max())


@dataclass(frozen=True)
class Triangle(CompactKernel):
    """``(1 - |x| / b) / b``."""

    name = "triangle"
    positive_definite = True
    inner, power = 1, 1


@dataclass(frozen=True)
class Epanechnikov(CompactKernel):
    """``3 (1 - z^2) / (4 b)``.

    Examples
    --------
    >>> round(Epanechnikov(0.5).peak, 6), round(Epanechnikov(0.5).slope, 6)
    (1.5, 6.0)
    """

    name = "epanechnikov"
    positive_definite = False
    inner, power = 2, 1


@dataclass(frozen=True)
class Biweight(CompactKernel):
    """``15 (1 - z^2)^2 / (16 b)``."""

    name = "biweight"
    positive_definite = False
    inner, power = 2, 2


@dataclass(frozen=True)
class Triweight(CompactKernel):
    """``35 (1 - z^2)^3 / (32 b)``."""

    name = "triweight"
    positive_definite = False
    inner, power = 2, 3
