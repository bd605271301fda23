"""Private SVM in a random feature space (Rubinstein, Bartlett, Huang & Taft 2012).

Guarantee: epsilon, replace-one. Proved: with features of norm kappa the SVM's weights w move by at
most ``2 C kappa / n`` in l2 (they print twice that), so by sqrt(D) times that in l1, and take
independent Laplace noise. Features are random Fourier features (Rahimi & Recht 2007), D = 2d
cosines and sines with ``kappa = 1``; their frequencies are public. Floats here.

As ``C kappa^2 = 1`` the hinge SVM is ``w = (C/n) sum_i l_i phi(d_i)``, no solver needed. The
frequencies are drawn once for all repeats; their number is an oracle's choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dbern.types import FloatArray
from rivals.mechanism import LaplaceNoise, Mechanism, Setting, Statistic, mean
from rivals.tasks import Task

FREQUENCIES = (3, 10, 30, 100, 300, 1000)


@dataclass(frozen=True, eq=False)
class FourierFeatures:
    """``(cos(w_j . x), sin(w_j . x)) / sqrt(d)``, of norm one; shape (m, 2 d)."""

    frequencies: FloatArray

    def __call__(self, points: FloatArray) -> FloatArray:
        angles = points @ self.frequencies
        return np.hstack([np.cos(angles), np.sin(angles)]) / math.sqrt(angles.shape[1])


@lru_cache(maxsize=32)
def fourier_weights(task: Task, count: int) -> tuple[FourierFeatures, FloatArray]:
    """Public features, and the SVM's exact weights in them."""
    rng = np.random.default_rng(count)
    widths = np.array([kernel.bandwidth for kernel in task.kernels])
    features = FourierFeatures(rng.normal(size=(task.dimensions, count)) / widths[:, None])
    return features, mean(features, task)


class RandomFeatures(Mechanism):
    """The best number of frequencies for the data at hand."""

    name = "random-feature private SVM"

    def applies(self, task: Task) -> bool:
        return task.signed

    def settings(self, task: Task) -> Sequence[Setting]:
        return [(count,) for count in FREQUENCIES]

    def prepare(self, task: Task, epsilon: float, *setting: float) -> Statistic:
        (count,) = map(int, setting)
        features, weights = fourier_weights(task, count)
        scale = task.hilbert_sensitivity(1.0) * math.sqrt(len(weights)) / epsilon
        noise = LaplaceNoise(scale, epsilon)
        return Statistic(f"{count} frequencies", features, weights, noise, features)
