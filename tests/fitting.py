"""Models of a shard's records, solved and evaluated outside any release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbern.bernstein.reproducing import ExplicitKernel
from dbern.erm.risk import Risk
from dbern.erm.shards import DualObjective, Expansion, objective
from dbern.erm.solver import Objective, minimize


@dataclass(frozen=True)
class LinearModel:
    """``f(y) = features(y) . weights`` for weights (p, q)."""

    kernel: ExplicitKernel
    weights: np.ndarray

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Values (m, q)."""
        return np.asarray(self.kernel.features(points) @ self.weights)

    def on_grid(self, axes: Sequence[np.ndarray]) -> np.ndarray:
        """Values on a grid."""
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        return self(points).reshape(*(len(axis) for axis in axes), -1)


@dataclass(frozen=True)
class Minimize:
    """The solver of a release, to a tolerance."""

    tolerance: float

    @classmethod
    def for_sensitivity(cls, risk: Risk, share: float = 2.0**-8) -> Minimize:
        """The tolerance that adds the fraction `share` of r to r."""
        return cls(share * risk.bounds.sensitivity / 2)

    def run(self, problem: Objective) -> np.ndarray:
        """The state."""
        return minimize(problem, self.tolerance).state


def problem_of(risk: Risk, points: np.ndarray, labels: np.ndarray) -> Objective:
    """The shard's objective, of records in any order; equal ones are merged."""
    if risk.features is not None or points.ndim != 2 or len(labels) != len(points):
        return objective(risk, points, labels, np.ones(len(points)))
    labels = risk.loss.admissible(labels[:, None] if labels.ndim == 1 else labels)
    records = np.column_stack([points, labels])
    records, counts = np.unique(records, axis=0, return_counts=True)
    points, labels = np.split(records, [points.shape[1]], axis=1)
    return objective(risk, points, labels, counts.astype(float))


def model_of(risk: Risk, problem: Objective, state: np.ndarray) -> Expansion | LinearModel:
    """What a state predicts."""
    if isinstance(problem, DualObjective):
        return problem.model(state)
    return LinearModel(risk.features, state)


def solve(
    risk: Risk, method: Any, points: np.ndarray, labels: np.ndarray
) -> Expansion | LinearModel:
    """The model of a shard's records."""
    problem = problem_of(risk, points, labels)
    return model_of(risk, problem, method.run(problem))
