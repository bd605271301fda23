"""The piecewise-constant baseline of the paper (Aldà & Rubinstein 2017, Discussion).

Guarantee: epsilon, replace-one. The noisy lattice values are those of Algorithm 1 and so is the
proof; a query is answered with the value at the nearest lattice point. Floats here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dbern.types import FloatArray
from rivals.mechanism import Mechanism, Product, Setting, Statistic
from rivals.printed import noisy_lattice
from rivals.tasks import Task

RESOLUTIONS = (1, 2, 3, 4, 6, 8, 10, 15, 20, 30, 40)


def nearest(y: FloatArray, k: int) -> FloatArray:
    """One at the lattice point nearest to y, zero at the others, shape (m, k + 1)."""
    return np.asarray(np.eye(k + 1)[np.rint(y * k).astype(int)])


class PiecewiseConstant(Mechanism):
    """The best k for the data at hand."""

    name = "piecewise constant, best k"

    def settings(self, task: Task) -> Sequence[Setting]:
        return [(k,) for k in RESOLUTIONS]

    def prepare(self, task: Task, epsilon: float, *setting: float) -> Statistic:
        (k,) = map(int, setting)
        evaluate = Product([partial(nearest, k=k)] * task.dimensions)
        return Statistic(f"k {k}", *noisy_lattice(task, epsilon, k), evaluate)
