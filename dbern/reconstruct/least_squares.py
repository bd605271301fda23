"""Least squares from noisy moments: coefficients, and what their errors may be.

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

*Coefficients.* Let A be the covariance matrix of the columns so far, its negative eigenvalues set
to 0, and b their covariances with the response, as released. For coefficients w, with k the mean
residual, the noise of the normal equations ``b - A w`` has about the covariance ``Sigma``: on its
diagonal the noise of b, that of A times ``w^2``, and that of the means times ``k^2``; and besides
``t m m'``, m the columns' means, t the noise of the mean residual. Unlike the records' own noise it
is not small where an eigenvalue of A is. So what is solved is no ridge's ``(A + lambda)^-1 b`` but
the mean of w given b under ``w ~ N(0, omega I)``, ``A (A A + Sigma/omega)^-1 b``, averaged over a
grid of omega by its likelihood, ``b ~ N(0, omega A A + Sigma)``, up to where w would explain four
times what the response varies. Where noise rules, the coefficients go to zero, and what is left is
the released mean.

*Intervals.* They are not about these coefficients, which are drawn to zero by the noise of A and
not of b alone. With G the products of 1 and the columns, and g those with the response, both linear
in what was released, least squares t of the records solve ``G* t = g*``. By Cramer's rule each
coefficient is a quotient of two determinants of released numbers, of which that of G is below. With
E the noise, ``H = G^-1`` and w = H g, all as released, the determinant that vanishes at the true
coefficient, ``t_j = w_j + x``, has over that of G

    the value x,   and the noise  ``x X - Y``,   ``X = tr(H E_G)``,   ``Y = (H (E_g - E_G w))_j``,

in first order of E: both are linear in the noise of the entries, whose law is public. So the
interval is every x that is not denied (Fieller 1954), ``x^2 <= q^2 Var(x X - Y)``: bounded only
where the determinant of G is above q deviations of its noise, and the wider the nearer it is. At
bounds that are wide beside the records it is not. What first order leaves out is small where that
noise is: ``x^2 Var(X)`` is taken `_MIN_DETERMINANT` squared times, and where the determinant is
below as many deviations there is no interval. q is the larger of the quantiles of a normal number
and of a Laplace one: of sums of many entries, and of one.
"""

from __future__ import annotations

import itertools
import math
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
_MIN_DETERMINANT = 4.0
"""Deviations of its noise that a determinant is above, where coefficients have intervals."""
_STEPS = 4
_SCALES = np.logspace(-3, 0, 31)
_MAX_EXPLAINED = 4.0
"""Times what the response varies that coefficients of independent columns may explain."""


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


@dataclass(frozen=True)
class Fit:
    """Least squares of one number on others, as numbers in [-1, 1].

    `spread` (d + 1, d + 1) is about the covariance of the errors that noise makes in slopes and
    intercept, for predictions: no interval follows from it. `explained` and `varied` estimate the
    response's explained variance and its variance, and `doubt` is about, and at most, the deviation
    of the noise of their difference.
    """

    slopes: FloatArray
    intercept: float
    spread: FloatArray
    explained: float
    varied: float
    doubt: float


def least_squares(
    moments: NoisyMoments, response: int, columns: Sequence[int], ridge: float | None = None
) -> Fit:
    """Solve for the coefficients of the columns by *Coefficients* of `noisy_least_squares`.

    With `ridge` those of ``(A + ridge I)^-1 b``, for any positive number; else A and b decide.
    """
    chosen = list(columns)
    basis = moments.contrasts(chosen)
    covariance, free = moments.covariance, basis.shape[1]
    shrunk, shrunk_noise = moments.columns_covariance(chosen)
    values, vectors = np.linalg.eigh(basis.T @ shrunk @ basis)
    a = (vectors * np.maximum(values, 0.0)) @ vectors.T
    b, varied = basis.T @ covariance[chosen, response], float(covariance[response, response])
    means, mean = moments.means[chosen], float(moments.means[response])
    solution, spread = np.zeros(free), np.zeros((free, free))
    for _ in range(_STEPS if free else 0):
        of_equations = _equations_noise(moments, response, chosen, basis @ solution, shrunk_noise)
        noise = basis.T @ of_equations @ basis
        if ridge is None:
            max_scale = _MAX_EXPLAINED * max(varied, moments.deviation)
            max_scale /= max(float(np.trace(a)), moments.deviation)
            solution, spread = _averaged(a, b, noise, max_scale * _SCALES)
        else:
            inverse = np.linalg.inv(a + ridge * np.eye(free))
            solution, spread = inverse @ b, inverse @ noise @ inverse
    slopes = basis @ solution
    return Fit(
        slopes,
        mean - float(means @ slopes),
        _with_intercept(moments, response, chosen, slopes, basis @ spread @ basis.T),
        float(2 * solution @ b - solution @ a @ solution),
        varied,
        _doubt(moments, response, chosen, slopes),
    )


def coefficient_intervals(
    moments: NoisyMoments,
    response: int,
    columns: Sequence[int],
    rows: FloatArray,
    beta: float,
    ridge: float | None = None,
) -> FloatArray | None:
    """Return the ends (m, 2) of linear functions of slopes and intercept, by *Intervals*.

    Each of the `rows` (m, d + 1) by itself, with probability about ``1 - beta``. None where the
    noise hides the determinant. With `ridge` they are of the records' ``(A + ridge I)^-1 b``.
    """
    from scipy.special import ndtri  # a third of a second, for few synopses

    indices, count = [*(1 + np.array(columns, dtype=np.intp)), 0], len(columns)
    basis = np.zeros((count + 1, moments.contrasts(columns).shape[1] + 1))
    basis[:-1, :-1], basis[-1, -1] = moments.contrasts(columns), 1.0
    penalty = (ridge or 0.0) * np.append(np.ones(basis.shape[1] - 1), 0.0)
    quantile = max(-float(ndtri(beta / 2)), -math.log(beta) / math.sqrt(2))
    with np.errstate(all="ignore"):  # of a stranger's numbers
        matrix = basis.T @ moments.products[np.ix_(indices, indices)] @ basis + np.diag(penalty)
        try:
            inverse = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            return None
        solution = inverse @ (basis.T @ moments.products[indices, 1 + response])
        combined = rows @ basis @ inverse
        weights = np.zeros((1 + len(rows), *moments.products.shape))
        weights[np.ix_([0], indices, indices)] = basis @ inverse @ basis.T
        residual = np.zeros(len(moments.products))
        residual[indices] = -basis @ solution
        residual[1 + response] = 1.0
        weights[1:, indices] = (combined @ basis.T)[:, :, None] * residual
        noise = moments.moments.on_entries(weights)
        noise[0, 0] += inverse.diagonal() @ penalty / moments.moments.weight
        noise[1:, 0] -= combined @ (penalty * solution) / moments.moments.weight
        x, y = moments.deviation * noise[0], moments.deviation * noise[1:]
        leading = 1 - max(quantile, _MIN_DETERMINANT) ** 2 * float(x @ x)
        middle = -(quantile**2) * (y @ x)
        reach = np.sqrt(middle**2 + leading * quantile**2 * (y**2).sum(axis=1))
        ends = (rows @ basis @ solution)[:, None] + np.stack(
            [middle - reach, middle + reach], 1
        ) / leading
    return ends if leading > 0 and np.isfinite(ends).all() else None


def _equations_noise(
    moments: NoisyMoments,
    response: int,
    columns: list[int],
    slopes: FloatArray,
    columns_noise: FloatArray,
) -> FloatArray:
    """Approximate covariance of the noise of ``b - A w``."""
    means, noise = moments.means[columns], moments.noise
    rest = float(moments.means[response] - means @ slopes)
    of_means, of_response = noise[0, 1:][columns], noise[1:, 1 + response][columns]
    diagonal = of_response + columns_noise @ slopes**2 + of_means * rest**2
    middle = _middle_noise(moments, response, columns, slopes)
    return np.asarray(np.diag(diagonal) + middle * np.outer(means, means))


def _middle_noise(
    moments: NoisyMoments, response: int, columns: list[int], slopes: FloatArray
) -> float:
    """Variance of the noise of the mean residual."""
    of_count, of_means = moments.noise[0, 0], moments.noise[0, 1:]
    rest = float(moments.means[response] - moments.means[columns] @ slopes)
    return float(of_means[response] + of_means[columns] @ slopes**2 + rest**2 * of_count)


def _doubt(moments: NoisyMoments, response: int, columns: list[int], slopes: FloatArray) -> float:
    """Deviation of the noise of the unexplained variance; products but squares occur twice."""
    indices, squares = [*columns, response], np.append(slopes**2, 1.0)
    noise = moments.noise[1:, 1:][np.ix_(indices, indices)]
    products = float(2 * squares @ noise @ squares - squares**2 @ noise.diagonal())
    rest = float(moments.means[response] - moments.means[columns] @ slopes)
    middle = _middle_noise(moments, response, columns, slopes)
    return math.sqrt(products + 4 * rest**2 * middle)


def _averaged(
    a: FloatArray, b: FloatArray, noise: FloatArray, scales: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The mean of w given b, over all scales of its prior by their likelihood; and a covariance.

    The covariance is that of the largest scale: a small one is an estimate, and would be too
    certain.
    """
    root = np.linalg.cholesky(noise)
    left, sizes, right = np.linalg.svd(np.linalg.solve(root, a))
    rotated = left.T @ np.linalg.solve(root, b)
    variance = np.outer(scales, sizes**2) + 1.0
    likelihood = -0.5 * (np.log(variance) + rotated**2 / variance).sum(axis=1)
    posterior = np.exp(likelihood - likelihood.max())
    posterior /= posterior.sum()
    means = scales[:, None] * sizes * rotated / variance
    largest = scales[-1] / variance[-1]
    return np.asarray(right.T @ (posterior @ means)), np.asarray((right.T * largest) @ right)


def _with_intercept(
    moments: NoisyMoments,
    response: int,
    columns: list[int],
    slopes: FloatArray,
    spread: FloatArray,
) -> FloatArray:
    """The covariance of slopes and intercept: ``mean - means'w``, its own noise beside theirs."""
    jacobian = np.vstack([np.eye(len(columns)), -moments.means[columns]])
    covariance = jacobian @ spread @ jacobian.T
    covariance[-1, -1] += _middle_noise(moments, response, columns, slopes)
    return np.asarray(covariance)
