"""Draws of noise in floats for simulations, on which privacy does not rest."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Final

import numpy as np

from dbern.privacy.keystream import KeyStream
from dbern.privacy.laplace import SignedNoise, discrete_k_norm
from dbern.privacy.public_numbers import uniform
from dbern.types import FloatArray

_MAX_UNIFORM_NUMBERS: Final = 1 << 18  # drawn at a time
_SUMMED_TOGETHER: Final = 1 << 14
_GRID: Final = 1 << 16  # points of a distribution function
_MOST: Final = 40.0  # deviations that it reaches to either side


def independent_draws(samples: SignedNoise, size: int) -> FloatArray:
    """Arrange samples of one law as vectors of `size` values, in granules; (size, draws)."""
    return _granules(samples).reshape(size, -1)


def k_norm_draws(scale: int, values: int, size: int, draws: int, stream: KeyStream) -> FloatArray:
    """Draw the first `size` of each vector's `values`, in granules; shape (size, draws).

    The vectors are independent, of the very law but for the rounding of floats. With ``R U/2`` of
    the continuous law (`k_norm_covariance`): signs are fair, and kept with probability ``C(M, p) /
    C(M, M // 2)``, as ``P(p) ~ C(M, p)^2``. In a simplex of p dimensions U is exponential variables
    over G, the sum of themselves and one more; G of both signs together is of the gamma law of M +
    2, independent of U, and ``V^(1/(M + 1))`` times that is R, V uniform. What is drawn, y, is
    rounded to x and kept with probability ``exp(-(2 N(x) - 2 N(y) + M)/s)``, at most one as ``|N(x)
    - N(y)| <= M/2``: so x has a probability proportional to ``exp(-2 N(x)/s)``.
    """
    batches = [np.empty((0, size))]
    if values > scale:  # where few would be kept
        vectors = discrete_k_norm(scale, values, stream, stream.second())
        return np.stack(
            [_granules(vector)[:size] for vector in itertools.islice(vectors, draws)], axis=1
        )
    counts = np.arange(values)
    log_choices = np.cumsum(np.append(0.0, np.log((values - counts) / (counts + 1))))
    while (left := draws - sum(map(len, batches))) > 0:
        rows = min(2 * left, max(1, _MAX_UNIFORM_NUMBERS // values))
        uniforms = uniform(stream, rows * (values + 5)).reshape(rows, -1)
        halves = 2 * uniforms[:, 5:]
        positive = halves >= 1
        likely = np.exp(log_choices[positive.sum(axis=1)] - log_choices.max())
        uniforms, halves, positive = (
            array[uniforms[:, 0] < likely] for array in (uniforms, halves, positive)
        )
        sizes, more = -np.log1p(positive - halves), -np.log1p(-uniforms[:, 2:4])
        up, down = np.where(positive, sizes, 0.0), np.where(positive, 0.0, sizes)
        sums = [side.sum(axis=1) + extra for side, extra in zip((up, down), more.T, strict=True)]
        radius = scale / 2 * (sums[0] + sums[1]) * uniforms[:, 4] ** (1 / (values + 1))
        exact = up * (radius / sums[0])[:, None] - down * (radius / sums[1])[:, None]
        rounded = np.rint(exact)
        excess = 2 * (_largest_side(rounded) - _largest_side(exact)) + values
        batches.append(rounded[-np.log1p(-uniforms[:, 1]) >= excess / scale, :size][:left])
    return np.concatenate(batches).T


def _largest_side(values: FloatArray) -> FloatArray:
    """N of each row: the larger of the sums of its positive and of its negative values."""
    return np.asarray(np.abs(values).sum(axis=1) + np.abs(values.sum(axis=1))) / 2


def _granules(noise: SignedNoise) -> FloatArray:
    granules = np.empty(len(noise))
    for first in range(0, len(granules), _SUMMED_TOGETHER):  # few enough to stay in the cache
        part = slice(first, first + _SUMMED_TOGETHER)
        granules[part] = noise[part].added_to(np.zeros(len(granules[part]), np.int64))
    return granules


def gaussian_sum_draws(scale: float, size: int, draws: int, stream: KeyStream) -> FloatArray:
    """Draw sums of Gaussian variables, which are Gaussian of the sum's scale; (size, draws)."""
    from scipy.special import ndtri  # takes 30 ms to import

    return np.asarray(scale * ndtri(_inner_uniforms(size, draws, stream)))


def laplace_sum_draws(
    scale: float, weights: tuple[tuple[float, int], ...], size: int, draws: int, stream: KeyStream
) -> FloatArray:
    """Draw weighted sums of Laplace variables from their distribution function; (size, draws)."""
    values, probabilities = _laplace_distribution(weights)
    return np.asarray(
        scale * np.interp(_inner_uniforms(size, draws, stream), probabilities, values)
    )


def _inner_uniforms(size: int, draws: int, stream: KeyStream) -> FloatArray:
    """Uniform numbers inside (0, 1)."""
    return (uniform(stream, size * draws) + 2.0**-54).reshape(size, draws)


@lru_cache(maxsize=32)
def _laplace_distribution(weights: tuple[tuple[float, int], ...]) -> tuple[FloatArray, FloatArray]:
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
