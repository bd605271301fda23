"""The functional mechanism (Zhang, Zhang, Xiao, Yang & Winslett 2012).

Guarantee: epsilon, replace-one, as published. Proved: the coefficients of the objective, a
polynomial of degree two in the weights, take Laplace noise of twice the largest l1 norm that one
record's coefficients have. What is minimised after that needs no record. Floats here.

Its learner is another one: logistic regression with the loss's expansion of order two,
``2 ln(1 + e^-z) = const - z + z^2 / 4``, scaled to the hinge's slope at zero. So its error against
the SVM does not vanish without noise. The regulariser ``|w|^2 / 2`` is public and takes no noise.
Features are the Taylor features of the RBF around the middle, up to a total degree (Cotter, Keshet
& Srebro 2011), far fewer than random ones; the degree is an oracle's choice. Spectral trimming as
published: negative eigenvalues of the noisy quadratic part are dropped with their directions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from dbern.types import FloatArray
from rivals.mechanism import LaplaceNoise, Mechanism, Setting, Statistic
from rivals.tasks import Task

DEGREES = (0, 1, 2, 3)


@dataclass(frozen=True)
class TaylorFeatures:
    """Monomials of the expansion of ``K`` around the middle, times a Gaussian; norm at most one."""

    widths: tuple[float, ...]
    degree: int

    @property
    def exponents(self) -> list[tuple[int, ...]]:
        every = itertools.product(range(self.degree + 1), repeat=len(self.widths))
        return [one for one in every if sum(one) <= self.degree]

    def __call__(self, points: FloatArray) -> FloatArray:
        z = (points - 0.5) / np.array(self.widths)
        bell = np.exp(-0.5 * np.square(z).sum(axis=1))
        columns = [
            np.prod(z ** np.array(one), axis=1) / math.sqrt(math.prod(map(math.factorial, one)))
            for one in self.exponents
        ]
        return np.asarray(np.column_stack(columns) * bell[:, None])

    @property
    def largest_l1(self) -> float:
        """Bound the l1 norm by that of the largest entries, those of a corner without the bell."""
        corner = [0.5 / width for width in self.widths]
        terms = (
            math.prod(c**a / math.sqrt(math.factorial(a)) for c, a in zip(corner, one, strict=True))
            for one in self.exponents
        )
        return min(sum(terms), math.sqrt(len(self.exponents)))


@dataclass(frozen=True)
class Objective:
    """The polynomial's coefficients: those of the w_j first, then those of the w_j w_k."""

    features: TaylorFeatures

    def coefficients(self, records: FloatArray, labels: FloatArray) -> FloatArray:
        """One row a record: ``-l phi_j``, and ``(w . phi)^2 / 4`` multiplied out."""
        phi = self.features(records)
        first, second = np.triu_indices(phi.shape[1])
        twice = np.where(first == second, 0.25, 0.5)
        return np.hstack([-labels[:, None] * phi, twice * phi[:, first] * phi[:, second]])

    @property
    def largest_norm(self) -> float:
        """``|phi|_1 + |phi|_1^2 / 4``."""
        norm = self.features.largest_l1
        return norm + norm**2 / 4

    def minimizers(self, noisy: FloatArray) -> FloatArray:
        """Of ``c.w + w'Qw + |w|^2/2`` for each row of noisy coefficients."""
        count = len(self.features.exponents)
        first, second = np.triu_indices(count)
        quadratic = np.zeros((len(noisy), count, count))
        quadratic[:, first, second] = noisy[:, count:] / 2
        quadratic += quadratic.transpose(0, 2, 1).copy()
        values, vectors = np.linalg.eigh(quadratic)
        slopes = np.einsum("rij,ri->rj", vectors, noisy[:, :count])
        along = np.where(values >= 0, -slopes / (2 * np.maximum(values, 0) + 1), 0.0)
        return np.asarray(np.einsum("rij,rj->ri", vectors, along))


@dataclass(frozen=True, eq=False)
class NoisyObjective(Statistic):
    """A statistic of which the labels change a part only."""

    polynomial: Objective = field(kw_only=True)

    def contributions(self, records: FloatArray, weights: FloatArray) -> FloatArray:
        return self.polynomial.coefficients(records, weights)


@lru_cache(maxsize=16)
def objective(task: Task, degree: int) -> tuple[Objective, FloatArray]:
    widths = tuple(kernel.bandwidth for kernel in task.kernels)
    polynomial = Objective(TaylorFeatures(widths, degree))
    return polynomial, polynomial.coefficients(task.records, task.weights).sum(axis=0) / task.n


class Functional(Mechanism):
    """The best degree for the data at hand."""

    name = "functional mechanism (logistic)"

    def applies(self, task: Task) -> bool:
        return task.signed

    def settings(self, task: Task) -> Sequence[Setting]:
        return [(degree,) for degree in DEGREES]

    def prepare(self, task: Task, epsilon: float, *setting: float) -> Statistic:
        (degree,) = map(int, setting)
        polynomial, center = objective(task, degree)
        features = polynomial.features
        return NoisyObjective(
            f"degree {degree}",
            features,
            center,
            LaplaceNoise(2 * polynomial.largest_norm / task.n / epsilon, epsilon),
            features,
            polynomial.minimizers,
            polynomial=polynomial,
        )
