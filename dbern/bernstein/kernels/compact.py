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

from dbern.bernstein.kernels.piecewise import PiecewiseKernel
from dbern.types import FloatArray


@dataclass(frozen=True)
class CompactKernel(PiecewiseKernel):
    """Polynomial of compact support, whose half-width is the bandwidth b.

    i is 2, or i and m are 1: bounds and kinks are of no others.
    """

    inner: ClassVar[int]  # i
    power: ClassVar[int]  # m

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.power < 1 or (cls.inner != 2 and (cls.inner, cls.power) != (1, 1)):
            raise TypeError(
                "inner, power: write inner = 2 and any power, or the triangle's 1 and 1"
            )

    @property
    def rate(self) -> float:
        """``1 / b``."""
        return 1 / self.bandwidth

    @property
    def mass(self) -> float:
        """Integral of the polynomial over the unit interval."""
        return _mass(self.inner, self.power)

    @property
    def variance(self) -> float:
        """Second moment of the polynomial over the unit interval, divided by its mass."""
        return _mass(self.inner, self.power, 2) / self.mass

    @property
    def effective_radius(self) -> float:
        """The half-width."""
        return self.bandwidth

    @property
    def kinks(self) -> tuple[float, ...]:
        """The end of the support, and the triangle's tip."""
        outer = (self.bandwidth,) if self.bandwidth < 1 else ()
        return (0.0, *outer) if self.inner == 1 else outer

    @property
    def jumps(self) -> bool:
        """Whether K' jumps: at the triangle's tip, and with power 1 at the end of the support."""
        return bool(self.kinks) and self.power == 1

    def shape(self, z: FloatArray) -> FloatArray:
        """``max(1 - z^i, 0)^m``."""
        base = np.maximum(1.0 - (z if self.inner == 1 else np.square(z)), 0.0)
        value = base
        for _ in range(1, self.power):
            value = value * base
        return value

    def tail_integral(self, z: FloatArray) -> FloatArray:
        """``int_z^1 f`` for z in [0, 1]; zero beyond the support."""
        integral = _derivative(self.inner, self.power, 0).integ()
        return np.asarray(self.mass - integral(np.minimum(z, 1.0)))

    def derivative_range(self, degree: int) -> tuple[float, float]:
        """Infimum and supremum of the shape's derivative; all are zero beyond the support."""
        return _derivative_range(self.inner, self.power, degree)


@lru_cache(maxsize=256)
def _derivative(inner: int, power: int, degree: int) -> Polynomial:
    base = Polynomial([1.0] + [0.0] * (inner - 1) + [-1.0])
    return (base**power).deriv(degree)


@lru_cache(maxsize=256)
def _mass(inner: int, power: int, moment: int = 0) -> float:
    weight = Polynomial([0.0] * moment + [1.0])
    return float((_derivative(inner, power, 0) * weight).integ()(1.0))


@lru_cache(maxsize=256)
def _derivative_range(inner: int, power: int, degree: int) -> tuple[float, float]:
    """Extremes of the derivative, at the ends of the unit interval or roots of the next derivative.

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
