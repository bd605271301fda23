"""Logistic regression with privacy as one would write it, in floats: three rivals.

Positions are in [-1, 1], with a constant 1, of norm R at most; the gradient of a record's loss has
that norm, and its second derivative is ``R^2 / 4`` at most. Of more than two classes each is told
from the rest for its part of epsilon. Functions take positions (n, l), labels from 0 on, epsilon
and a seed, and return weights (q, l + 1), of two classes one row.

- `objective`: Kifer, Smith and Thakurta (2012): half of epsilon for the Jacobian, half for a random
  vector whose length is a Gamma variable.
- `output`: Chaudhuri, Monteleoni and Sarwate (2011): a vector of that law added to the minimizer,
  which one replaced record moves by ``2 R / penalty``, for the penalty that is best for n, epsilon
  and l where a weight is as long as R.
- `diffprivlib`: that library's (0.6.6) split of epsilon, C = 1, and its data norm R.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LogisticRegression

from dbern.types import FloatArray

Rng = np.random.Generator
Perturb = Callable[[FloatArray, FloatArray, float, Rng], FloatArray]


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


def _objective(z: FloatArray, signs: FloatArray, epsilon: float, rng: Rng) -> FloatArray:
    size = z.shape[1]
    penalty = size / 4 / math.expm1(epsilon / 2)
    return minimizer(z, signs, penalty, _vector(size, 4 * math.sqrt(size) / epsilon, rng))


def _output(z: FloatArray, signs: FloatArray, epsilon: float, rng: Rng) -> FloatArray:
    rows, size = z.shape
    penalty = (rows / 8) ** 0.5 * (2 * size / epsilon) ** 0.5
    w = minimizer(z, signs, penalty, np.zeros(size))
    return w + _vector(size, 2 * math.sqrt(size) / penalty / epsilon, rng)


def _library(z: FloatArray, signs: FloatArray, epsilon: float, rng: Rng) -> FloatArray:
    size, norm, penalty = z.shape[1], math.sqrt(z.shape[1]), 1.0
    left = epsilon - 2 * math.log(1 + 0.25 * norm / penalty)
    if left <= 0:
        penalty, left = 0.25 * norm / math.expm1(epsilon / 4), epsilon / 2
    return minimizer(z, signs, penalty, _vector(size, 2 * norm / left, rng))


def _of_classes(perturb: Perturb) -> Callable[[FloatArray, FloatArray, float, int], FloatArray]:
    def weights(z: FloatArray, labels: FloatArray, epsilon: float, seed: int) -> FloatArray:
        rng, classes = np.random.default_rng(seed), int(labels.max()) + 1
        features = np.column_stack([z, np.ones(len(z))])
        told = (1,) if classes == 2 else range(classes)
        part = epsilon / len(told)
        return np.array([
            perturb(features, np.where(labels == one, 1.0, -1.0), part, rng) for one in told
        ])  # fmt: skip

    return weights


objective, output, diffprivlib = map(_of_classes, (_objective, _output, _library))


def without_privacy(z: FloatArray, labels: FloatArray, epsilon: float, seed: int) -> FloatArray:
    del epsilon, seed
    found = LogisticRegression(C=1e6, max_iter=5000, tol=1e-8).fit(z, labels)
    return np.column_stack([found.coef_, found.intercept_])
