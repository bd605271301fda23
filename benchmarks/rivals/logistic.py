"""Logistic regression with privacy as one would write it, in floats: three rivals.

Features are numbers in [-1, 1], a column of 0 and 1 for each value of a list, and a constant 1: of
norm R at most, whose square is how many numbers and lists there are, and 1. The gradient of a
record's loss has that norm, and its second derivative is ``R^2 / 4`` at most. Of more than two
classes each is told from the rest for its part of epsilon.

- `objective`: Kifer, Smith and Thakurta (2012): half of epsilon for the Jacobian, half for a random
  vector whose length is a Gamma variable.
- `output`: Chaudhuri, Monteleoni and Sarwate (2011): a vector of that law added to the minimizer,
  which one replaced record moves by ``2 R / penalty``; the penalty, a share of the rows, is an
  oracle's choice for each table and epsilon.
- `split`: what diffprivlib (0.6.6) does with epsilon, C = 1, and its data norm R, where the library
  is not there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LogisticRegression

from dbern.types import FloatArray
from rivals.records import Table

Rng = np.random.Generator
Perturb = Callable[[FloatArray, FloatArray, float, float, Rng], FloatArray]
SHARES = (1e-4, 1e-3, 1e-2, 1e-1)


def minimizer(z: FloatArray, signs: FloatArray, penalty: float, b: FloatArray) -> FloatArray:
    """Newton's method, its steps halved until the objective falls."""

    def value(w: FloatArray) -> float:
        return float(np.logaddexp(0, -signs * (z @ w)).sum() + penalty / 2 * w @ w + b @ w)

    w = np.zeros(z.shape[1])
    for _ in range(60):
        shares = 1 / (1 + np.exp(-np.clip(z @ w, -500, 500)))
        slope = z.T @ (shares - (signs > 0)) + penalty * w + b
        if np.linalg.norm(slope) < 1e-6 * math.sqrt(len(z)):
            break
        second = (z * (shares * (1 - shares))[:, None]).T @ z + penalty * np.eye(len(w))
        step, share, here = np.linalg.solve(second, slope), 1.0, value(w)
        while value(w - share * step) > here and share > 1e-6:
            share /= 2
        w = w - share * step
    return w


def _vector(size: int, scale: float, rng: np.random.Generator) -> FloatArray:
    direction = rng.normal(size=size)
    return direction / np.linalg.norm(direction) * rng.gamma(size, scale)


def objective_perturbed(
    z: FloatArray, signs: FloatArray, longest: float, epsilon: float, rng: Rng
) -> FloatArray:
    penalty = longest**2 / 4 / math.expm1(epsilon / 2)
    return minimizer(z, signs, penalty, _vector(z.shape[1], 4 * longest / epsilon, rng))


def output_perturbed(share: float) -> Perturb:
    def perturb(
        z: FloatArray, signs: FloatArray, longest: float, epsilon: float, rng: Rng
    ) -> FloatArray:
        rows, size = z.shape
        penalty = share * rows
        w = minimizer(z, signs, penalty, np.zeros(size))
        return w + _vector(size, 2 * longest / penalty / epsilon, rng)

    return perturb


def _library(
    z: FloatArray, signs: FloatArray, longest: float, epsilon: float, rng: Rng
) -> FloatArray:
    penalty = 1.0
    left = epsilon - 2 * math.log(1 + 0.25 * longest / penalty)
    if left <= 0:
        penalty, left = 0.25 * longest / math.expm1(epsilon / 4), epsilon / 2
    return minimizer(z, signs, penalty, _vector(z.shape[1], 2 * longest / left, rng))


def of_classes(perturb: Perturb) -> Callable[[Table, Table, float, int], FloatArray]:
    def values(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
        rng, classes = np.random.default_rng(seed), int(learn.truth.max()) + 1
        z, at = (
            np.column_stack([side.features, np.ones(len(side.truth))]) for side in (learn, test)
        )
        told = (1,) if classes == 2 else range(classes)
        longest, part = math.hypot(learn.longest, 1), epsilon / len(told)
        return np.column_stack([
            at @ perturb(z, np.where(learn.truth == one, 1.0, -1.0), longest, part, rng)
            for one in told
        ])  # fmt: skip

    return values


objective, split = map(of_classes, (objective_perturbed, _library))


def without_privacy(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    del epsilon, seed
    found = LogisticRegression(C=1e6, max_iter=5000, tol=1e-8)
    found.fit(learn.features, learn.truth)
    return np.asarray(found.decision_function(test.features))


def most_frequent(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    """The class of most records to learn from, for every other."""
    del epsilon, seed
    shares = np.bincount(np.asarray(learn.truth, dtype=np.int64)) / len(learn.truth)
    scores = np.tile(np.log(shares), (len(test.truth), 1))
    return scores if len(shares) > 2 else np.asarray(scores[:, 1] - scores[:, 0])
