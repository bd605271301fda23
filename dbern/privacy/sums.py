"""The noise of sums of released values, for answers: nothing is released with it.

A window of a stream is ``sum_i w_i z_i`` over nodes that were released with one law each by itself.
So a value has the noise ``sum_i w_i X_i``, X_i independent draws of that law. Moments of its
exponential are products, and every bound of an `ErrorLaw` by ``|c|_2 <= a`` and ``|c|_inf <= m``
holds for the weights ``c_j w_i``: by ``a |w|_2`` and ``m |w|_inf``. So it does where the X_i are
outputs of one release, all values of which may be one draw of the law: these bounds are of its
weights too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

import numpy as np

from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.error_law import ErrorLaw
from dbern.privacy.keystream import KeyStream
from dbern.privacy.noise_law import ValueNoise
from dbern.types import FloatArray

_OUTWARD: Final = 1 + 2.0**-40  # for the rounding of a few floats


@dataclass(frozen=True)
class SumNoise:
    """Noise of ``sum_i w_i X_i``, X_i independent draws of `law`, in its granules.

    `weights` are pairs of a weight and the number of releases that have it.
    """

    law: ValueNoise
    weights: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, law: ValueNoise, weights: Sequence[float]) -> Self:
        """Return the noise of the sum by these weights, equal ones counted together."""
        return cls(law, tuple(sorted(Counter(weights).items())))

    @property
    def granularity_exponent(self) -> int:
        """Granule of each release."""
        return self.law.granularity_exponent

    @property
    def values(self) -> float:
        """Number of values of one joint draw, as of each release."""
        return self.law.values

    @property
    def root(self) -> float:
        """The l2 norm of the weights."""
        return math.sqrt(math.fsum(count * weight**2 for weight, count in self.weights))

    @property
    def largest(self) -> float:
        """The largest size of a weight."""
        return max(abs(weight) for weight, _ in self.weights)


@dataclass(frozen=True)
class OutputSum(SumNoise):
    """Noise of the sum of outputs of one release, of weight one."""

    @property
    def values(self) -> float:
        """Number of sums in one joint draw."""
        return self.law.values / self.weights[0][1]


@dataclass(frozen=True)
class SumErrors(ErrorLaw):
    """Errors of a sum of releases, of each of which they are `single`."""

    noise: SumNoise
    single: ErrorLaw

    @property
    def scale(self) -> float:
        """Scale of a release times the l2 norm of the weights."""
        return self.noise.root * self.single.scale

    @property
    def covariance_per_scale(self) -> NoiseCovariance:
        """Covariance of a release's values: those of a sum are as dependent."""
        return self.single.covariance_per_scale

    def tail(self, count: int, beta: Fraction) -> float:
        """Union bound of `node_tail`."""
        reached = self.node_tail(1.0, 1.0, math.log(2 * count / float(beta)))
        return math.ldexp(_OUTWARD * reached, self.noise.granularity_exponent)

    def node_tail(self, a: float, m: float, exponent: float) -> float:
        """Bound of a release for the weights of all."""
        return self.single.node_tail(a * self.noise.root, m * self.noise.largest, exponent)

    def weighted_tail(self, root: FloatArray, largest: FloatArray, exponent: float) -> FloatArray:
        """Bound of a release for the weights of all."""
        noise = self.noise
        return self.single.weighted_tail(root * noise.root, largest * noise.largest, exponent)

    def simulate(self, size: int, draws: int, stream: KeyStream) -> FloatArray:
        """Draw the sum as the law of a release has it (`ErrorLaw.simulate_sum`)."""
        return self.single.simulate_sum(self.noise.weights, size, draws, stream)


@dataclass(frozen=True)
class OutputSumErrors(SumErrors):
    """Errors of a sum of outputs, which one law may draw jointly."""

    @property
    def covariance_per_scale(self) -> NoiseCovariance:
        """Covariance of the sums over their scale."""
        return self.single.covariance_per_scale.of_sum(self._outputs).scaled(1 / self.noise.root)

    @property
    def _outputs(self) -> int:
        return self.noise.weights[0][1]

    def simulate(self, size: int, draws: int, stream: KeyStream) -> FloatArray:
        """Draw the outputs as a release does: laws are the same for any of their values."""
        outputs = self.single.simulate(self._outputs * size, draws, stream)
        return np.asarray(outputs.reshape(self._outputs, size, draws).sum(axis=0))
