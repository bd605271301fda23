"""Noisy moments: means and covariances from noisy entries, and what the noise hides of them.

Everything here is post-processing of the released numbers by public facts. A category is one column
a listed value, 0 or 1; because these sum to 1, the coefficients of a list sum to 0. Of every
covariance of two columns the variance t of its noise is known.

*What noise hides.* Two columns that are not of the same list have a covariance c in proportion to
their deviations: let ``c ~ N(0, tau V)``, V the product of their noisy variances, each at least the
deviation of its own noise. Then c is ``tau V/(tau V + t)`` of what was released, on average; this
share, averaged over a grid of tau, is what is kept. How many covariances have which tau is
estimated by 25 steps of expectation and maximization from all of them and one more of each, so that
those far above their noise stay as they are beside many that are none, and only what may be noise
is taken for it. What is left of t is less, and is taken to be the root of the share, as covariances
are no normal sample.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbern.reconstruct.moments import Moments
from dbern.types import FloatArray

_FAR = 1e100
_MIN_NOISE = 1e-12
_SQUARED_CORRELATIONS = np.logspace(-4, 0, 13)
"""Squares of correlations: what they may be on average."""
_MIXTURE_STEPS = 25
"""Steps of expectation and maximization for how many covariances have each of these sizes."""


@dataclass(frozen=True)
class NoisyMoments:
    """Released moments, in their own units, and the deviations of their noise.

    Columns are the listed values of categories, and then the numbers, the response last. `noise`
    has the variances of the noise of the count and the means, row 0, and of the covariances.
    `products` are those of all columns over the count, as released, the first column of ones; the
    noise of an entry of the `moments` has `deviation`.
    """

    count: float
    means: FloatArray
    covariance: FloatArray
    deviation: float
    noise: FloatArray
    moments: Moments
    products: FloatArray

    @property
    def blocks(self) -> tuple[int, ...]:
        """Numbers of listed values."""
        return self.moments.blocks

    @classmethod
    def of(cls, moments: Moments, released: FloatArray, deviation: float) -> NoisyMoments:
        """Estimate the means and covariances of the counted records from the entries.

        Means and products are cut to [-1, 1]. Where the count is lost in its noise, what is divided
        by is that: everything is as uncertain as it is. So nothing fails, whatever is released.
        """
        released = np.clip(released, -_FAR, _FAR)
        deviation = min(max(deviation, 1 / _FAR), _FAR)
        count = max(float(released[0] / moments.weight), deviation / moments.weight)
        products = moments.products(released, count)
        cut = np.clip(products, -1.0, 1.0)
        means = cut[0, 1:]
        covariance = cut[1:, 1:] - np.outer(means, means)
        relative = max(deviation / count, _MIN_NOISE)
        noise = relative**2 * moments.variances
        of_means = np.outer(noise[0, 1:], means**2)
        noise[1:, 1:] += of_means + of_means.T
        return cls(count, means, covariance, relative, noise, moments, products)

    def columns_covariance(self, columns: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Shrunk covariance matrix of some columns, and the variances of its noise.

        By *What noise hides* of the module.
        """
        block = np.ix_(columns, columns)
        covariance, noise = self.covariance[block], self.noise[1:, 1:][block]
        groups = np.repeat(np.arange(len(self.blocks)), self.blocks)
        groups = np.append(groups, np.arange(len(self.means) - len(groups)) + len(self.blocks))
        across_lists = groups[columns, None] != groups[columns]
        size = np.clip(covariance.diagonal(), np.sqrt(noise.diagonal()), 1.0)
        prior, released = np.outer(size, size)[across_lists], covariance[across_lists]
        noise_variance = noise[across_lists]
        variance = np.multiply.outer(_SQUARED_CORRELATIONS, prior) + noise_variance
        density = -0.5 * (np.log(variance) + released**2 / variance)
        density = np.exp(density - density.max(axis=0))
        weights, pairs = np.ones(len(variance)), len(released) / 2  # a pair is there twice
        for _ in range(_MIXTURE_STEPS):
            posterior = weights[:, None] * density
            posterior /= posterior.sum(axis=0)
            weights = (1 + posterior.sum(axis=1) / 2) / (len(variance) + pairs)
        shrinkage = 1 - noise_variance * (posterior / variance).sum(axis=0)
        covariance[across_lists] = shrinkage * released
        noise[across_lists] = np.sqrt(shrinkage) * noise_variance
        return covariance, noise

    def contrasts(self, columns: Sequence[int]) -> FloatArray:
        """Orthonormal basis (columns, c) of coefficients that sum to 0 in each list."""
        projection = np.eye(len(columns))
        starts = np.cumsum([0, *self.blocks])
        for start, end in itertools.pairwise(starts):
            listed = np.flatnonzero([start <= column < end for column in columns])
            projection[np.ix_(listed, listed)] -= 1 / max(len(listed), 1)
        values, vectors = np.linalg.eigh(projection)
        return np.asarray(vectors[:, values > 0.5]) if self.blocks else projection
