"""The Bernstein mechanism exactly as printed (Aldà & Rubinstein 2017, Algorithm 1).

Guarantee: epsilon, replace-one. Proved by the paper's Lemma 2 and Theorem 1 for real-valued noise
of scale ``N S(F) / epsilon``, given S(F); the S(F) here is ours for its neighbouring relation (the
paper's is the same for densities and half of it for the SVM). Floats here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from dbern.bernstein.basis import iterated_basis
from dbern.types import FloatArray
from rivals.mechanism import LaplaceNoise, Mechanism, Product, Setting, Statistic, mean
from rivals.tasks import RBF, Task

RESOLUTIONS = (1, 2, 3, 4, 6, 8, 10, 15, 20, 30, 40)
ORDERS = (1, 2, 4, 10, 20)
BETA = 0.05


def bumps(t: FloatArray, kernel: RBF, k: int) -> FloatArray:
    """A record's contribution to the lattice values of an axis, shape (m, k + 1)."""
    return kernel(t[:, None] - np.arange(k + 1) / k)


@lru_cache(maxsize=256)
def lattice_values(task: Task, k: int) -> tuple[Product, FloatArray]:
    """What is summed over records, and F on the lattice."""
    features = Product([partial(bumps, kernel=kernel, k=k) for kernel in task.kernels])
    return features, mean(features, task)


def noisy_lattice(task: Task, epsilon: float, k: int) -> tuple[Product, FloatArray, LaplaceNoise]:
    """Lines 1 to 4 of Algorithm 1."""
    features, values = lattice_values(task, k)
    scale = len(values) * task.function_sensitivity / epsilon
    return features, values, LaplaceNoise(scale, epsilon)


def iterated(task: Task, epsilon: float, k: int, h: int) -> Statistic:
    evaluate = Product([partial(iterated_basis, k=k, h=h)] * task.dimensions)
    return Statistic(f"k {k}, h {h}", *noisy_lattice(task, epsilon, k), evaluate)


class Printed(Mechanism):
    """The best (k, h) for the data at hand."""

    name = "Bernstein as printed, best (k, h)"

    def settings(self, task: Task) -> Sequence[Setting]:
        return list(itertools.product(RESOLUTIONS, ORDERS))

    def prepare(self, task: Task, epsilon: float, *setting: float) -> Statistic:
        k, h = setting
        return iterated(task, epsilon, int(k), int(h))


class PrintedChoice(Mechanism):
    """The k that proves Theorem 1, its constants set to one, with h = 2."""

    name = "Bernstein as printed, its k, h = 2"

    def prepare(self, task: Task, epsilon: float, *setting: float) -> Statistic:
        h = 2
        ratio = epsilon / (task.function_sensitivity * math.log(1 / BETA))
        k = max(1, int(ratio ** (1 / (h + task.dimensions))))
        return iterated(task, epsilon, k, h)
