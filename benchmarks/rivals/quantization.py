"""Locality-sensitive quantization, fast Gauss transform (Wagner, Naamad & Mishra 2023).

Guarantee: epsilon, replace-one. Proved: a record adds to its own cell alone, there the powers
``s^a``, a < p on each axis, of its offset s from the cell's center in units of ``sqrt(2) b``. Their
sum is at most R S for S entries of at most R, and for replace-one it counts twice. Instead of R S
the largest sum itself is used, ``(sum_a s_max^a)^l``, which is smaller. Floats here.

A query sums Hermite functions around all centers, ``K(y - t) = peak sum_a s^a / a! h_a(u)``. Cells
and order are an oracle's choice.
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

CELLS = (1, 2, 3, 4, 6, 8, 12, 18, 27, 40)
ORDERS = (1, 2, 3, 4, 6, 9)
_MOST_COORDINATES = 2000


def centers(cells: int) -> FloatArray:
    return (np.arange(cells) + 0.5) / cells


def powers(t: FloatArray, kernel: RBF, cells: int, order: int) -> FloatArray:
    """``s^a`` in the cell of t, zero in the others; shape (m, cells * order)."""
    cell = np.minimum((t * cells).astype(int), cells - 1)
    s = (t - centers(cells)[cell]) / (math.sqrt(2) * kernel.bandwidth)
    rows = np.zeros((len(t), cells, order))
    rows[np.arange(len(t)), cell] = s[:, None] ** np.arange(order)
    return rows.reshape(len(t), -1)


def hermite(y: FloatArray, kernel: RBF, cells: int, order: int) -> FloatArray:
    """``peak h_a(u) / a!`` around every center, shape (m, cells * order)."""
    u = (y[:, None] - centers(cells)) / (math.sqrt(2) * kernel.bandwidth)
    before, here = np.zeros_like(u), kernel.peak * np.exp(-(u**2))
    found = []
    for a in range(order):
        found.append(here)
        before, here = here, (2 * u * here - 2 * before) / (a + 1)  # h_a / a!
    return np.stack(found, axis=-1).reshape(len(y), -1)


def largest_norm(kernel: RBF, cells: int, order: int) -> float:
    """``max_t sum_a |s|^a``: at a cell's edge."""
    most = 1 / (2 * cells) / (math.sqrt(2) * kernel.bandwidth)
    return float(sum(most**a for a in range(order)))


@lru_cache(maxsize=512)
def sums(task: Task, cells: int, order: int) -> tuple[Product, FloatArray]:
    axes = [partial(powers, kernel=k, cells=cells, order=order) for k in task.kernels]
    features = Product(axes)
    return features, mean(features, task)


class Quantization(Mechanism):
    """The best cells and order for the data at hand."""

    name = "locality-sensitive quantization"

    def settings(self, task: Task) -> Sequence[Setting]:
        every = itertools.product(CELLS, ORDERS)
        return [one for one in every if math.prod(one) ** task.dimensions <= _MOST_COORDINATES]

    def prepare(self, task: Task, epsilon: float, *setting: float) -> Statistic:
        cells, order = map(int, setting)
        features, center = sums(task, cells, order)
        norm = math.prod(largest_norm(kernel, cells, order) for kernel in task.kernels)
        axes = [partial(hermite, kernel=k, cells=cells, order=order) for k in task.kernels]
        noise = LaplaceNoise(2 * norm / task.n / epsilon, epsilon)
        return Statistic(f"{cells} cells, order {order}", features, center, noise, Product(axes))
