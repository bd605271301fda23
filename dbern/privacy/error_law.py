"""Laws of errors: all that certificates, bands and intervals need to know of noise.

Accuracy rests on it, privacy does not. An answer may have an `ErrorLaw` that no release draws from.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from dbern.privacy.covariance import NoiseCovariance, k_norm_covariance
from dbern.privacy.keystream import KeyStream
from dbern.privacy.noise_law import NoiseLaw
from dbern.privacy.simulation import (
    gaussian_sum_draws,
    independent_draws,
    k_norm_draws,
    laplace_sum_draws,
)
from dbern.privacy.tails import (
    float_above,
    gaussian_tail,
    gaussian_weighted_tail,
    laplace_node_tail,
    laplace_tail,
    laplace_weighted_tail,
)
from dbern.types import FloatArray

Draw: TypeAlias = Callable[[int, int, KeyStream], FloatArray]
"""Type of `ErrorLaw.simulate`."""
Weights: TypeAlias = tuple[tuple[float, int], ...]
"""Pairs of a weight and the number of independent releases that have it."""


class ErrorLaw(ABC):
    """The law of errors of released values, in granules but for `tail`."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """Scale, to which the errors are proportional."""

    @property
    @abstractmethod
    def covariance_per_scale(self) -> NoiseCovariance:
        """Covariance of a component's values over the scale."""

    @property
    def covariance(self) -> NoiseCovariance:
        """Covariance of a component's values."""
        return self.covariance_per_scale.scaled(self.scale)

    @abstractmethod
    def tail(self, count: int, beta: Fraction) -> float:
        """Size that none of `count` values reaches with probability ``1 - beta``, in the unit."""

    @abstractmethod
    def node_tail(self, a: float, m: float, exponent: float) -> float:
        """Bound what ``sum_j c_j X_j`` reaches with probability at most ``exp(-exponent)``.

        For ``|c|_2 <= a`` and ``|c|_inf <= m``: this bounds noise at nodes.
        """

    @abstractmethod
    def weighted_tail(self, root: FloatArray, largest: FloatArray, exponent: float) -> FloatArray:
        """`node_tail` for many weights, at once and without a search."""

    @abstractmethod
    def simulate(self, size: int, draws: int, stream: KeyStream) -> FloatArray:
        """Draw the first `size` values of one output, independently, in floats: (size, draws)."""

    def simulate_sum(
        self, weights: Weights, size: int, draws: int, stream: KeyStream
    ) -> FloatArray:
        """Draw weighted sums of as many independent outputs as `weights` count: (size, draws).

        Right for any law. All outputs are drawn at once: a law may begin parts of the stream anew
        at each `simulate`.
        """
        terms = np.array([weight for weight, count in weights for _ in range(count)])
        values = self.simulate(size, len(terms) * draws, stream).reshape(size, len(terms), draws)
        return np.asarray(np.einsum("i,sid->sd", terms, values))


@dataclass(frozen=True)
class NoiseErrors(ErrorLaw):
    """Errors from noise of one `law`."""

    law: NoiseLaw

    @staticmethod
    @abstractmethod
    def unit_covariance(values: float) -> NoiseCovariance:
        """Covariance at scale one, of a component of `values` values."""

    @abstractmethod
    def tail_in_granules(self, count: int, beta: Fraction) -> int:
        """Size that none of `count` values reaches with probability ``1 - beta``, in granules."""

    @property
    def scale(self) -> float:
        """Scale of the law."""
        return self.law.scale

    @property
    def covariance_per_scale(self) -> NoiseCovariance:
        """Covariance of the law's values at scale one."""
        return self.unit_covariance(self.law.values)

    def tail(self, count: int, beta: Fraction) -> float:
        """Size that none of `count` values reaches, rounded up."""
        granule = Fraction(2) ** self.law.granularity_exponent
        return float_above(self.tail_in_granules(count, beta) * granule)

    def simulate(self, size: int, draws: int, stream: KeyStream) -> FloatArray:
        """Draw as a release does: all values are independent."""
        return independent_draws(self.law.draw(size * draws, stream), size)


class LaplaceErrors(NoiseErrors):
    """Errors from independent Laplace noise."""

    @staticmethod
    def unit_covariance(values: float) -> NoiseCovariance:
        """Covariance of the continuous law."""
        del values
        return NoiseCovariance(math.sqrt(2))

    def tail_in_granules(self, count: int, beta: Fraction) -> int:
        """Union bound (`laplace_tail`)."""
        return laplace_tail(self.law.scale, count, beta)

    def node_tail(self, a: float, m: float, exponent: float) -> float:
        """Chernoff's bound (`laplace_node_tail`)."""
        return laplace_node_tail(self.law.scale, a, m, exponent)

    def weighted_tail(self, root: FloatArray, largest: FloatArray, exponent: float) -> FloatArray:
        """Bound of a sub-gamma variable (`laplace_weighted_tail`)."""
        return laplace_weighted_tail(self.law.scale, root, largest, exponent)

    def simulate_sum(
        self, weights: Weights, size: int, draws: int, stream: KeyStream
    ) -> FloatArray:
        """Draw the continuous laws' sum: each discrete draw is within a granule of its own.

        That is a thousandth of a release's sensitivity or less.
        """
        return laplace_sum_draws(self.scale, weights, size, draws, stream)


class KNormErrors(LaplaceErrors):
    """Errors from a vector of the K-norm law, with Laplace tails (`dbern.privacy.tails`)."""

    @staticmethod
    def unit_covariance(values: float) -> NoiseCovariance:
        """Covariance of the continuous law (`k_norm_covariance`)."""
        return k_norm_covariance(values)

    def simulate(self, size: int, draws: int, stream: KeyStream) -> FloatArray:
        """Draw the first values of whole vectors, by rejection (`k_norm_draws`)."""
        return k_norm_draws(self.law.scale, int(self.law.values), size, draws, stream)

    simulate_sum = ErrorLaw.simulate_sum  # values are dependent, and not of Laplace's law


class GaussianErrors(NoiseErrors):
    """Errors from independent Gaussian noise."""

    @staticmethod
    def unit_covariance(values: float) -> NoiseCovariance:
        """Covariance of the continuous law."""
        del values
        return NoiseCovariance(1.0)

    def tail_in_granules(self, count: int, beta: Fraction) -> int:
        """Union bound (`gaussian_tail`)."""
        return gaussian_tail(self.law.scale, count, beta)

    def node_tail(self, a: float, m: float, exponent: float) -> float:
        """Bound of a sub-Gaussian variable, whatever `m`."""
        return float(self.weighted_tail(np.array(a), np.array(m), exponent))

    def weighted_tail(self, root: FloatArray, largest: FloatArray, exponent: float) -> FloatArray:
        """Bound of a sub-Gaussian variable (`gaussian_weighted_tail`)."""
        del largest
        return gaussian_weighted_tail(self.law.scale, root, exponent)

    def simulate_sum(
        self, weights: Weights, size: int, draws: int, stream: KeyStream
    ) -> FloatArray:
        """Draw the continuous laws' sum, as `LaplaceErrors` does."""
        root = math.sqrt(math.fsum(count * weight**2 for weight, count in weights))
        return gaussian_sum_draws(root * self.scale, size, draws, stream)
