"""Output perturbation (Chaudhuri, Monteleoni & Sarwate 2011, Algorithm 1).

Guarantee: epsilon, replace-one, as published. Proved: the regularised minimiser moves by at most
``2 C / n`` in l2 for features of norm one and a loss of slope at most one (their Lambda is 1/C),
and takes noise with density proportional to ``exp(-epsilon n |b| / (2 C))``. They ask for a
differentiable loss; the bound needs only a convex one, hence the hinge. Floats here.

Kernels enter through random Fourier features, as they propose: the same as those of
`rivals.random_features`. Their number is an oracle's choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from rivals.mechanism import Mechanism, NormNoise, Setting, Statistic
from rivals.random_features import FREQUENCIES, fourier_weights
from rivals.tasks import Task


class OutputPerturbation(Mechanism):
    """The best number of frequencies for the data at hand."""

    name = "output perturbation"

    def applies(self, task: Task) -> bool:
        return task.signed

    def settings(self, task: Task) -> Sequence[Setting]:
        return [(count,) for count in FREQUENCIES]

    def prepare(self, task: Task, epsilon: float, *setting: float) -> Statistic:
        (count,) = map(int, setting)
        features, weights = fourier_weights(task, count)
        noise = NormNoise(task.hilbert_sensitivity(1.0) / epsilon, epsilon)
        return Statistic(f"{count} frequencies", features, weights, noise, features)
