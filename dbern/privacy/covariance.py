"""Covariance of the noise of a component's values, on which privacy does not rest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dbern.types import FloatArray


@dataclass(frozen=True)
class NoiseCovariance:
    """``deviation^2 ((1 - c) I + c 1 1')``, c the correlation of any two values of a component."""

    deviation: float
    correlation: float = 0.0

    def scaled(self, factor: float) -> NoiseCovariance:
        """The covariance of `factor` times the values."""
        return replace(self, deviation=self.deviation * factor)

    def of_sum(self, count: int) -> NoiseCovariance:
        """The covariance of sums of `count` values each, no value in two sums."""
        variance = count * (1 + (count - 1) * self.correlation)  # of a sum, over that of a value
        correlation = count**2 * self.correlation / variance
        return NoiseCovariance(self.deviation * math.sqrt(variance), correlation)

    def variance(self, squares: FloatArray, sums: FloatArray) -> FloatArray:
        """Variance of sums of values by weights a, given their ``|a|_2^2`` and ``sum a``."""
        quadratic_form = (1 - self.correlation) * squares + self.correlation * np.square(sums)
        return np.asarray(self.deviation**2 * quadratic_form)


def k_norm_covariance(values: float) -> NoiseCovariance:
    """Covariance ``v ((1 + 1/M) I - 1 1'/M)``, ``v = M (2 M + 1)/((M + 1) (M + 2))``, at scale one.

    It holds for the continuous law; that of the integers differs by a share of about M over the
    scale. Its density is a function of N, a norm, so X is ``R U/2``: R of the gamma law of M + 1, U
    uniform in the ball ``N <= 1``. Where p coordinates of U are positive and m are not, these are
    points of two simplices; each of the ``C(M, p)`` choices has the volume ``1/(p! m!)``. In a
    simplex of p dimensions a coordinate has the mean ``1/(p + 1)`` and the mean square ``2/((p +
    1)(p + 2))``, the product of two half of that. Summed over p, with ``E R^2 = (M + 1)(M + 2)``, v
    is the variance of each value, and of their sum.
    """
    variance = values * (2 * values + 1) / ((values + 1) * (values + 2))
    return NoiseCovariance(math.sqrt(variance), -1 / values)
