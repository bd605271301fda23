"""Gaussian process noise (Hall, Rinaldo & Wasserman 2013, "Differential Privacy for Functions").

Guarantee: (epsilon, delta) with delta = 1e-5, replace-one. Proved: F lies in the Hilbert space of
K, a replaced record moves it by at most ``sqrt(2 K(0)) / n`` (``2 sqrt(K(0)) / n`` with labels),
and a sample path of covariance K scaled by sigma hides that at any finite set of points. Their
sigma, ``sqrt(2 ln(2/delta)) / epsilon`` times the sensitivity, is proved for epsilon up to 1; the
smaller exact one of Balle & Wang (2018) is used, as the loss is that of one Gaussian. Floats here.

The path is drawn as independent coordinates of an orthonormal system of K's Hilbert space, the
eigenvectors of K on a fine grid; what they leave out is below 1e-6 of the standard deviation. So
it is one function for all queries, and the release is a projection of theirs: no less private.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from dbern.types import FloatArray
from rivals.mechanism import IsotropicNoise, Mechanism, Product, Statistic, mean
from rivals.tasks import RBF, Task

DELTA = 1e-5
_NODES = 160
_LEAST = 1e-13  # of the largest eigenvalue


def analytic_delta(epsilon: float, sigma: float) -> float:
    """The delta of Gaussian noise with this sigma on a sensitivity of one (Balle & Wang 2018)."""
    a, b = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
    return float(ndtr(a) - math.exp(epsilon + log_ndtr(b)))


def analytic_sigma(epsilon: float, delta: float) -> float:
    """The smallest sigma for a sensitivity of one."""
    most = math.sqrt(2 * math.log(2 / delta)) / min(epsilon, 1.0)

    def excess(log_sigma: float) -> float:
        return analytic_delta(epsilon, math.exp(log_sigma)) - delta

    root = brentq(excess, math.log(1e-6), math.log(10 * most), xtol=1e-12)
    return math.exp(float(root)) * (1 + 1e-9)


@lru_cache(maxsize=16)
def eigenvectors(kernel: RBF) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Nodes (q,), and the eigenvalues (d,) and vectors (q, d) of the kernel there."""
    nodes = (1 - np.cos((np.arange(_NODES) + 0.5) * np.pi / _NODES)) / 2
    values, vectors = np.linalg.eigh(kernel(nodes[:, None] - nodes))
    kept = values > _LEAST * values[-1]
    return nodes, values[kept][::-1], vectors[:, kept][:, ::-1]


def orthonormal(t: FloatArray, kernel: RBF) -> FloatArray:
    """``phi_j(t)`` with ``sum_j phi_j(t) phi_j(y) = K(t - y)``, nearly; shape (m, d)."""
    nodes, values, vectors = eigenvectors(kernel)
    return kernel(t[:, None] - nodes) @ (vectors / np.sqrt(values))


@lru_cache(maxsize=16)
def coordinates(task: Task) -> tuple[Product, FloatArray]:
    """The coordinates of F in the Hilbert space."""
    levels = np.ones(1)
    for kernel in task.kernels:
        values = eigenvectors(kernel)[1]
        levels = np.multiply.outer(levels, values / values[0]).ravel()
    axes = [partial(orthonormal, kernel=kernel) for kernel in task.kernels]
    features = Product(axes, np.flatnonzero(levels > _LEAST))
    return features, mean(features, task)


class GaussianProcess(Mechanism):
    """Nothing to choose."""

    name = "Gaussian process noise"
    guarantee = "epsilon, delta 1e-5"

    def prepare(self, task: Task, epsilon: float, *setting: float) -> Statistic:
        features, center = coordinates(task)
        sensitivity = task.hilbert_sensitivity(task.peak)
        sigma = sensitivity * analytic_sigma(epsilon, DELTA)
        noise = IsotropicNoise(sigma, sensitivity)
        return Statistic(f"sigma {sigma:.2g}", features, center, noise, features)
