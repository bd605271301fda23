"""The noise of weighted sums of independent releases, for answers: nothing is released with it.

A window of a stream is ``sum_i w_i z_i`` over nodes that were released with one law each by itself.
So a value has the noise ``sum_i w_i X_i``, X_i independent draws of that law. Moments of its
exponential are products, and every bound of an `ErrorLaw` by ``|c|_2 <= a`` and ``|c|_inf <= m``
holds for the weights ``c_j w_i``: by ``a |w|_2`` and ``m |w|_inf``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.error_law import ErrorLaw
from dbern.privacy.keystream import KeyStream
from dbern.privacy.laws import GaussianNoise
from dbern.privacy.noise_law import NoiseLaw
from dbern.privacy.public_numbers import uniform
from dbern.types import FloatArray

_GRID: Final = 1 << 16  # points of a distribution function
_MOST: Final = 40.0  # deviations that it reaches to either side
_OUTWARD: Final = 1 + 2.0**-40  # for the rounding of a few floats


@dataclass(frozen=True)
class SumNoise:
    """Noise of ``sum_i w_i X_i``, X_i independent draws of `law`, in its granules.

    `weights` are pairs of a weight and the number of releases that have it.
    """

    law: NoiseLaw
    weights: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, law: NoiseLaw, weights: Sequence[float]) -> SumNoise:
        """Return the noise of the sum by these weights, equal ones counted together."""
        return cls(law, tuple(sorted(Counter(weights).items())))

    @property
    def granularity_exponent(self) -> int:
        """Granule of each release."""
        return self.law.granularity_exponent

    @property
    def values(self) -> float:
        """Infinity: values are independent, as those of each release are."""
        return math.inf

    @property
    def root(self) -> float:
        """The l2 norm of the weights."""
        return math.sqrt(math.fsum(count * weight**2 for weight, count in self.weights))

    @property
    def largest(self) -> float:
        """The largest size of a weight."""
        return max(abs(weight) for weight, _ in self.weights)


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
        """Covariance of a release's values, as those of a sum are independent too."""
        return self.single.covariance_per_scale

    def tail(self, count: int, beta: Fraction) -> float:
        """Union bound of `node_tail`."""
        reached = self.node_tail(1.0, 1.0, math.log(2 * count / float(beta)))
        return math.ldexp(_OUTWARD * reached, self.noise.granularity_exponent)

    def node_tail(self, a: float, m: float, level: float) -> float:
        """Bound of a release for the weights of all."""
        return self.single.node_tail(a * self.noise.root, m * self.noise.largest, level)

    def weighted_tail(self, root: FloatArray, largest: FloatArray, level: float) -> FloatArray:
        """Bound of a release for the weights of all."""
        noise = self.noise
        return self.single.weighted_tail(root * noise.root, largest * noise.largest, level)

    def simulate(self, size: int, draws: int, stream: KeyStream) -> FloatArray:
        """Draw the continuous laws' sum: each discrete draw is within a granule of its own.

        That is a thousandth of a release's sensitivity or less. A sum of Gaussian variables is
        Gaussian; one of Laplace variables is read from its distribution function.
        """
        uniforms = uniform(stream, size * draws) + 2.0**-54
        if isinstance(self.noise.law, GaussianNoise):
            from scipy.special import ndtri  # takes 30 ms to import

            return np.asarray(self.scale * ndtri(uniforms)).reshape(size, draws)
        values, probabilities = _laplace_sum(self.noise.weights)
        drawn = self.single.scale * np.interp(uniforms, probabilities, values)
        return np.asarray(drawn).reshape(size, draws)


@lru_cache(maxsize=32)
def _laplace_sum(weights: tuple[tuple[float, int], ...]) -> tuple[FloatArray, FloatArray]:
    """Distribution function of a weighted sum of Laplace variables of scale one, on a grid.

    By its characteristic function, ``prod_i (1 + w_i^2 t^2)^-n_i``. The grid ends at `_MOST`
    deviations; what is left out of the transform is below 1e-7, for one variable, the worst case.
    """
    deviation = math.sqrt(2 * math.fsum(count * weight**2 for weight, count in weights))
    step = 2 * _MOST * deviation / _GRID
    frequencies = 2 * np.pi * np.fft.rfftfreq(_GRID, step)
    logs = [-count * np.log1p((weight * frequencies) ** 2) for weight, count in weights]
    density = np.fft.fftshift(np.fft.irfft(np.exp(np.sum(logs, axis=0)), _GRID))
    probabilities = np.cumsum(np.maximum(density, 0.0))
    values: FloatArray = (np.arange(_GRID, dtype=np.float64) - _GRID // 2 + 0.5) * step
    return values, np.asarray(probabilities / probabilities[-1], dtype=np.float64)
