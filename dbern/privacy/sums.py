"""The noise of weighted sums of independent releases, for answers: nothing is released with it.

A window of a stream is ``sum_i w_i z_i`` over nodes that were released with one law each by itself.
So a value has the noise ``sum_i w_i X_i``, X_i independent draws of that law. Moments of its
exponential are products, and every bound of `NoiseFamily` by ``|c|_2 <= a`` and ``|c|_inf <= m``
holds for the weights ``c_j w_i``: by ``a |w|_2`` and ``m |w|_inf``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from dbern.privacy.calibration import GaussianNoise, LaplaceNoise
from dbern.privacy.keystream import KeyStream
from dbern.privacy.public_numbers import uniform
from dbern.types import FloatArray

_GRID: Final = 1 << 16  # points of a distribution function
_MOST: Final = 40.0  # deviations that it reaches to either side


@dataclass(frozen=True)
class SumNoise:
    """Noise of ``sum_i w_i X_i``, X_i independent draws of `law`, in its granules.

    `weights` are pairs of a weight and the number of nodes that have it.
    """

    law: LaplaceNoise | GaussianNoise
    weights: tuple[tuple[float, int], ...]

    @property
    def granularity_exponent(self) -> int:
        """Exponent of the granule of each released number."""
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


def sum_noise(law: LaplaceNoise | GaussianNoise, weights: list[float]) -> SumNoise:
    """Return the noise of the sum by these weights, the same ones counted together."""
    counts: dict[float, int] = {}
    for weight in weights:
        counts[weight] = counts.get(weight, 0) + 1
    return SumNoise(law, tuple(sorted(counts.items())))


def sum_draws(law: SumNoise, size: int, draws: int, stream: KeyStream) -> FloatArray:
    """Draw vectors of `size` independent values, in granules; shape (size, draws).

    For simulations, of the continuous laws, whose draws are within a granule of discrete ones each:
    a thousandth of a node's sensitivity or less. A sum of Gaussian variables is Gaussian; one of
    Laplace variables is read from its distribution function.
    """
    uniforms = uniform(stream, size * draws) + 2.0**-54
    if isinstance(law.law, GaussianNoise):
        from scipy.special import ndtri  # takes 30 ms to import

        return np.asarray(law.law.sigma * law.root * ndtri(uniforms)).reshape(size, draws)
    values, probabilities = _laplace_sum(law.weights)
    drawn = law.law.scale * np.interp(uniforms, probabilities, values)
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
    values = (np.arange(_GRID) - _GRID // 2 + 0.5) * step
    return values, np.asarray(probabilities / probabilities[-1])
