"""The independent component Laplace process (Lin & Reimherr 2023, arXiv:2309.00125).

Guarantee: epsilon, replace-one. Proved: with the eigenfunctions e_j and eigenvalues lambda_j of a
covariance operator on the square-integrable functions, the release is ``sum_j (a_j + s_j Z_j)
e_j``, Z_j standard Laplace, s_j proportional to ``lambda_j^{1/2}``, private when ``sum_j |moves of
a_j| / s_j`` is at most epsilon. That sum is finite for slightly oversmoothed summaries, here their
regularised ``a_j = lambda_j^eta / (lambda_j^eta + psi) <F, e_j>``, and bounded by Cauchy-Schwarz
from the L2 norm that a replaced record moves F by, ``(2 int K^2)^{1/2} / n`` (``2 (int K^2)^{1/2}
/ n`` with labels). Floats here; inner products are sums over Gauss-Legendre nodes, in which the e_j
are orthonormal, so the bound holds for what is computed up to the error of one quadrature.

The covariance is a squared exponential of its own width; width, eta and psi are an oracle's choice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from dbern.types import FloatArray
from rivals.mechanism import LaplaceNoise, Mechanism, Product, Setting, Statistic, mean
from rivals.tasks import RBF, Task

WIDTHS = (0.7, 1.0, 1.4, 2.0)  # of the covariance, in bandwidths of K
SMOOTHNESS = (1.0, 2.0, 4.0)  # eta
PENALTIES = tuple(10.0**-power for power in (0.5, 1, 1.5, 2, 3, 4, 6, 8))  # psi
_NODES = 96
_LEAST_LEVEL = 1e-10  # of the largest eigenvalue
_LEAST_SHARE = 1e-5  # what regularisation leaves of a coordinate: less is dropped


@lru_cache(maxsize=32)
def components(covariance: RBF) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Nodes and weights (q,), eigenvalues (d,) and ``e_j`` at the nodes (q, d)."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    root = np.sqrt(weights)
    levels, vectors = np.linalg.eigh(root[:, None] * covariance(nodes[:, None] - nodes) * root)
    kept = levels > _LEAST_LEVEL * levels[-1]
    levels, vectors = levels[kept][::-1], vectors[:, kept][:, ::-1]
    return nodes, weights, levels, vectors / root[:, None]


def projections(t: FloatArray, kernel: RBF, covariance: RBF) -> FloatArray:
    """``<K(. - t), e_j>``, shape (m, d)."""
    nodes, weights, _, functions = components(covariance)
    return kernel(t[:, None] - nodes) @ (weights[:, None] * functions)


def eigenfunctions(y: FloatArray, covariance: RBF) -> FloatArray:
    """``e_j(y)`` between the nodes (Nystrom's extension), shape (m, d)."""
    nodes, weights, levels, functions = components(covariance)
    return covariance(y[:, None] - nodes) @ (weights[:, None] * functions / levels)


@lru_cache(maxsize=64)
def inner_products(task: Task, width: float) -> tuple[Product, Product, FloatArray, FloatArray]:
    """Features of records and of points, the eigenvalues, and ``<F, e_j>``."""
    covariances = [RBF(min(1.0, width * kernel.bandwidth), 1.0) for kernel in task.kernels]
    levels = np.ones(1)
    for covariance in covariances:
        axis = components(covariance)[2]
        levels = np.multiply.outer(levels, axis / axis[0]).ravel()
    kept = np.flatnonzero(levels > _LEAST_LEVEL)
    pairs = list(zip(task.kernels, covariances, strict=True))
    analyse = Product([partial(projections, kernel=k, covariance=c) for k, c in pairs], kept)
    evaluate = Product([partial(eigenfunctions, covariance=c) for c in covariances], kept)
    return analyse, evaluate, levels[kept], mean(analyse, task)


def process(task: Task, epsilon: float, width: float, eta: float, psi: float) -> Statistic:
    analyse, evaluate, levels, products = inner_products(task, width)
    share = levels**eta / (levels**eta + psi)
    kept = np.flatnonzero(share > _LEAST_SHARE)
    share, deviations = share[kept], np.sqrt(levels[kept])
    moved = task.hilbert_sensitivity(math.prod(k.square_integral for k in task.kernels))
    bound = moved * math.sqrt(float(np.square(share / deviations).sum()))
    return Statistic(
        f"width {width:g} b, eta {eta:g}, psi {psi:.1g}",
        lambda records: analyse(records)[:, kept] * share,
        products[kept] * share,
        LaplaceNoise(bound / epsilon * deviations, epsilon),
        lambda points: evaluate(points)[:, kept],
    )


class LaplaceProcess(Mechanism):
    """The best covariance and regularisation for the data at hand."""

    name = "independent component Laplace process"

    def settings(self, task: Task) -> Sequence[Setting]:
        return list(itertools.product(WIDTHS, SMOOTHNESS, PENALTIES))

    def prepare(self, task: Task, epsilon: float, *setting: float) -> Statistic:
        return process(task, epsilon, *setting)
