"""The Gaussian kernel: entire, so its bounds need no cells."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dbern.bernstein.kernels.base import EXP_ULPS, MIN_EXPONENT, OUTWARD, Kernel
from dbern.types import FloatArray

_CRAMER = 1.0865


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
    def third_derivative_bound(self) -> float:
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
        far = ~(exponent > MIN_EXPONENT)
        values = np.exp(np.maximum(exponent, MIN_EXPONENT, out=exponent), out=exponent)
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
        log_bound = min(log_cramer, _ellipse_log_bound(degree, ratio))
        return OUTWARD * self.peak * math.exp(min(log_bound, math.log(2.0)))

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
        terms = math.ceil(9 * k * self.bandwidth) + 1
        if terms > 1_000_000:
            return math.inf
        tail = self(np.arange(1, terms + 1) / k).sum()
        # Beyond `terms` they sum to less than k P(|X| > 9 sd) + K(9 sd) < 1e-17 (k + peak).
        return float(self.peak + 2 * tail) + 1e-17 * (k + self.peak)

    def _enclosed_sum(self, k: int, sufficient: float) -> float:
        edges = np.linspace(0.0, 0.5, 4097)  # the lattice is symmetric about 1/2
        nodes = np.arange(k + 1) / k
        largest = 0.0
        for first in reversed(range(0, 4096, 256)):  # most often the largest is in the middle
            low, high = edges[first : first + 256, None], edges[first + 1 : first + 257, None]
            distance = np.maximum(0.0, np.maximum(low - nodes, nodes - high))
            largest = max(largest, float(self(distance).sum(axis=1).max()))
            if largest >= sufficient:
                break
        return largest


def _ellipse_log_bound(degree: int, ratio: float) -> float:
    """``log(2 rho^-a exp((rho - 1/rho)^2 ratio^2 / 8))`` at a good rho; any rho > 1 is valid."""
    # With rho = e^s the exponent is ratio^2 sinh(s)^2 / 2 - a s; this s is its minimum.
    s = 0.5 * math.asinh(2 * degree / ratio**2)
    return math.log(2.0) + 0.5 * (ratio * math.sinh(s)) ** 2 - degree * s
