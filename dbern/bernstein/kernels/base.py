"""Kernel of one axis, in unit-cube units: its values, and bounds that the mechanism needs.

There is no uniform kernel: it jumps, so no polynomial comes nearer to it than half its height,
and a record within rounding of an edge could change a value by all of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from dbern.types import FloatArray

Edges: TypeAlias = Literal["natural", "normalized", "periodic"]
"""How a function of kernels ends at the bounds of its axis: as their sum does, divided by the part
of a kernel's mass that lies within the bounds, or going on at the other bound."""

OUTWARD = 1 + 2.0**-40
"""Factor that rounds a computed float outward: far above the error of any sum made here."""

EXP_ULPS = 4
"""Assumed accuracy of the platform's ``exp`` in units in the last place (tested in the suite)."""

MIN_EXPONENT = -700.0
"""Least exponent that counts: exp below it is subnormal or zero, far below every stated error."""

_EVENLY = (np.arange(1024) + 0.5) / 1024


@dataclass(frozen=True)
class Kernel(ABC):
    """A density on the line: symmetric, nonnegative, continuous, decreasing away from zero.

    Bounds hold for the exact function; a computed value at an exact argument is off by at most
    `ulps` units of ``peak * 2^-53``. The bandwidth is in unit-cube units: a standard deviation,
    length scale or half-width, as the kernel says.

    *Edges.* The mass ``M(y) = int_0^1 K(y - t) dt`` that lies within the bounds grows from either
    end of the unit interval to its middle, as ``M'(y) = K(y) - K(1 - y)`` and K decreases: it is
    least at the ends, half of that of two intervals. Where edges are "normalized" the released
    function is ``F / M``: M is public, so that this is post-processing, and errors are at most
    ``1 / M(0)`` times those of F.
    """

    bandwidth: float
    edges: Edges = field(default="natural", kw_only=True)

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
    def third_derivative_bound(self) -> float:
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

    def largest(self, nearest: FloatArray, farthest: FloatArray) -> FloatArray:
        """Bound K between two distances, elementwise: it is largest at the nearest, as it falls."""
        del farthest
        return self(nearest)

    def mass_within(self, y: FloatArray) -> FloatArray:
        """Return M at positions (..) of the unit interval; 1 unless edges are normalized."""
        if self.edges != "normalized":
            return np.ones_like(y)
        return np.asarray(self.cumulative(1 - y) - self.cumulative(-y))

    @property
    def edge_factor(self) -> float:
        """``sup 1 / M``, rounded outward: `cumulative` is off by a few units of ``2^-53``."""
        if self.edges != "normalized":
            return 1.0
        return OUTWARD / (float(self.mass_within(np.zeros(1))[0]) - 2.0**-50)

    @property
    def typical_edge_factor(self) -> float:
        """Root mean square of ``1 / M`` over the unit interval."""
        return math.sqrt(np.mean(self.mass_within(_EVENLY) ** -2))

    @property
    def highest(self) -> float:
        """``sup K(y - t) / M(y)``, rounded outward."""
        return self.peak * self.edge_factor

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
