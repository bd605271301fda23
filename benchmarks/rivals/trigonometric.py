"""Trigonometric smooth queries (Wang, Fan, Zhang & Wang 2013).

Guarantee: epsilon, replace-one. Proved: records at ``cos(theta)`` release the means of all
``prod_i cos(r_i theta_i)``, r_i < t, with Laplace noise. Of the t^l means, a replaced record moves
each by at most 2/n and the constant one not at all, or all of them by 1/n where a record may be
null; with labels all by 2/n. Floats here.

A query is a smooth function of a record: for F(y) it is ``K(y - .)``. Its even trigonometric
coefficients multiply the noisy means; they approximate it best in the plain Chebyshev expansion
and with less noise damped by Jackson's kernel, of which the paper uses a generalisation: the better
of both, and of all t, is taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from dbern.types import FloatArray
from rivals.mechanism import LaplaceNoise, Mechanism, Product, Setting, Statistic, mean
from rivals.tasks import RBF, Task

DEGREES = (1, 2, 3, 4, 6, 8, 11, 16, 22, 30, 42)
_NODES = 512


def cosines(t: FloatArray, degree: int) -> FloatArray:
    """``cos(r theta)`` for r < degree at positions of the unit interval, shape (m, degree)."""
    theta = np.arccos(np.clip(2 * t - 1, -1, 1))
    return np.cos(theta[:, None] * np.arange(degree))


def jackson(degree: int) -> FloatArray:
    """Damping factors of Jackson's kernel, shape (degree,)."""
    angle = np.pi / (degree + 1)
    r = np.arange(degree)
    wave = (degree - r + 1) * np.cos(r * angle) + np.sin(r * angle) / np.tan(angle)
    return np.asarray(wave / (degree + 1))


def coefficients(y: FloatArray, kernel: RBF, degree: int, damped: bool) -> FloatArray:
    """Of ``K(y - .)`` in the cosines, shape (m, degree)."""
    theta = (np.arange(_NODES) + 0.5) * np.pi / _NODES
    nodes = (1 + np.cos(theta)) / 2
    table = 2 / _NODES * np.cos(theta[:, None] * np.arange(degree))
    table[:, 0] /= 2
    found = kernel(y[:, None] - nodes) @ table
    return found * jackson(degree) if damped else found


@lru_cache(maxsize=256)
def moments(task: Task, degree: int) -> tuple[Product, FloatArray]:
    features = Product([partial(cosines, degree=degree)] * task.dimensions)
    return features, mean(features, task)


class Trigonometric(Mechanism):
    """The best degree and damping for the data at hand."""

    name = "trigonometric smooth queries"

    def settings(self, task: Task) -> Sequence[Setting]:
        return list(itertools.product(DEGREES, (False, True)))

    def prepare(self, task: Task, epsilon: float, *setting: float) -> Statistic:
        degree, damped = int(setting[0]), bool(setting[1])
        features, center = moments(task, degree)
        count = len(center)
        moved = 2 * count if task.signed else max(2 * (count - 1), count)
        axes = [
            partial(coefficients, kernel=kernel, degree=degree, damped=damped)
            for kernel in task.kernels
        ]
        return Statistic(
            f"t {degree}{', damped' if damped else ''}",
            features,
            center,
            LaplaceNoise(moved / task.n / epsilon, epsilon),
            Product(axes),
        )
