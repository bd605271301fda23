"""A kernel that goes on at the other bound of its axis, as hours and angles do."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dbern.bernstein.kernels.base import OUTWARD, Edges, Kernel
from dbern.types import FloatArray

WIDEST = 1 / 8
"""Largest deviation of a periodic kernel, as a share of its period."""
_REST = 1 / 16
_PIECES = 64


@dataclass(frozen=True)
class Periodic(Kernel):
    """``k(|x|) + k(1 - |x|)`` of another kernel k, for distances x of at most one.

    It depends on the distance on the circle alone, and its mass around any y of the unit interval
    is that of k within a distance of one.

    *Bounds.* Of the two terms one is at least half a period away, where each derivative of k, up to
    the third, is at most `_REST` of its largest size, as long as k's deviation is at most `WIDEST`:
    of a Gaussian 4 deviations away, ``|z^3 - 3 z| e^(-z^2 / 2) < .02``; of a Laplace kernel
    ``e^-5.6``, of smoother Matern kernels less; of a compact one nothing. Wider ones have bounds of
    twice those of k, and the other term has a kink at the center. A lattice sum has three parts: of
    k, and of k around a center that lies beyond either end of the nodes, which is less than around
    the end.
    """

    kernel_class: type[Kernel] = field(kw_only=True)
    edges: Edges = field(default="periodic", kw_only=True)

    @property
    def name(self) -> str:  # type: ignore[override]  # that of k
        """Name of k."""
        return self.kernel_class.name

    @property
    def ulps(self) -> int:  # type: ignore[override]  # those of both terms and of their sum
        """Units of ``peak * 2^-53`` that a value is off by."""
        return 2 * self.kernel_class.ulps + 2

    @cached_property
    def _repeated(self) -> Kernel:
        return self.kernel_class(self.bandwidth)

    @property
    def _narrow(self) -> bool:
        return self.deviation <= WIDEST

    @property
    def _factor(self) -> float:
        return 1 + _REST if self._narrow else 2.0

    @cached_property
    def peak(self) -> float:
        """Largest value, rounded outward: of pieces of half a period."""
        ends = np.linspace(0.0, 0.5, _PIECES + 1)
        return OUTWARD * float(self.largest(ends[:-1], ends[1:]).max())

    @property
    def slope(self) -> float:
        """``sup |K'|``, rounded outward."""
        return self._factor * self._repeated.slope

    @property
    def curvature(self) -> float:
        """``sup |K''|`` off the kinks, rounded outward."""
        return self._factor * self._repeated.curvature

    @property
    def third_derivative_bound(self) -> float:
        """``sup |K'''|`` off the kinks, rounded outward."""
        return self._factor * self._repeated.third_derivative_bound

    @property
    def jumps(self) -> bool:
        """Whether K' jumps at a kink."""
        return self._repeated.jumps or not self._narrow

    @property
    def deviation(self) -> float:
        """Standard deviation of k."""
        return self._repeated.deviation

    @property
    def kinks(self) -> tuple[float, ...]:
        """Distances of those of k, and of those of the other term."""
        kinks = [kink for kink in self._repeated.kinks if kink < 1]
        mirrored = [1 - kink for kink in kinks if kink > 0]
        return tuple(sorted({*kinks, *mirrored, *([] if self._narrow else [0.0])}))

    def __call__(self, x: FloatArray) -> FloatArray:
        """``K(x)`` elementwise."""
        distance = np.abs(x)
        return np.asarray(self._repeated(distance) + self._repeated(1 - distance))

    def largest(self, nearest: FloatArray, farthest: FloatArray) -> FloatArray:
        """Bound K between two distances, elementwise: each term by its nearest point."""
        return np.asarray(self._repeated(nearest) + self._repeated(np.maximum(1 - farthest, 0.0)))

    def cumulative(self, x: FloatArray) -> FloatArray:
        """``1/2 + int_0^x K`` elementwise, but for rounding."""
        distance, repeated = np.abs(x), self._repeated
        whole = float(repeated.cumulative(np.ones(1))[0])
        mass = repeated.cumulative(distance) - 0.5 + whole - repeated.cumulative(1 - distance)
        return np.asarray(0.5 + np.sign(x) * mass)

    def chebyshev_bound(self, degree: int, radius: float) -> float:
        """Bound the coefficient by those of both terms."""
        return 2 * self._repeated.chebyshev_bound(degree, radius)

    def lattice_sum(self, k: int) -> float:
        """Bound ``max_t sum_v K(v/k - t)`` over every position t of the unit interval."""
        return 3 * self._repeated.lattice_sum(k)

    def square_sum(self, k: int) -> float:
        """Bound ``max_t sum_v K(v/k - t)^2``: a square of two terms is at most twice both."""
        return 6 * self._repeated.square_sum(k)
