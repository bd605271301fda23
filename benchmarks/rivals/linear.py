"""Linear regression with privacy as one would write it, in some 20 lines of floats each.

Everything is in [-1, 1], categories one column of 0 and 1 a value; functions take a table to learn
from, one to predict for, epsilon and a seed.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from sklearn.linear_model import LinearRegression

from dbern.types import FloatArray
from rivals.records import Table


def constant(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    del epsilon, seed
    return np.full(len(test.truth), learn.truth.mean())


def without_privacy(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    del epsilon, seed
    return np.asarray(
        LinearRegression().fit(learn.features, learn.truth).predict(test.features), np.float64
    )


@lru_cache(maxsize=1)
def _moments(learn: Table) -> FloatArray:
    """The mean of ``(1, z) (1, z)'``."""
    rows = len(learn.truth)
    features = np.column_stack([np.ones(rows), learn.features, learn.truth])
    return np.asarray(features.T @ features / rows)


def _noisy(learn: Table, largest: float, epsilon: float, seed: int) -> tuple[FloatArray, float]:
    """The moments with symmetric Laplace noise, and the noise's scale."""
    moments, scale = _moments(learn), largest / len(learn.truth) / epsilon
    noise = np.triu(np.random.default_rng(seed).laplace(0, scale, moments.shape))
    noise[0, 0] = 0.0  # the number of rows is public
    return moments + noise + np.triu(noise, 1).T, scale


def moved_by_record(learn: Table) -> int:
    """How far a replaced record moves all sums, products and squares together.

    Sums and products of numbers move by 2, squares by 1. A record has one value of each list: one
    sum is moved up and one down by 1, and their squares.
    """
    numbers, lists = len(learn.axes) + 1, len(learn.lists)
    active = numbers + lists
    return 2 * active + active * (active - 1) + numbers + 2 * lists


def published(learn: Table) -> int:
    """Of the functional mechanism: 2 (d + 1)^2, d the columns that a record has."""
    return 2 * (len(learn.axes) + len(learn.lists) + 2) ** 2


def noisy_moments(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    """Negative eigenvalues are cut at 1e-3."""
    gram, _ = _noisy(learn, moved_by_record(learn), epsilon, seed)
    values, vectors = np.linalg.eigh(gram[:-1, :-1])
    w = vectors @ ((vectors.T @ gram[:-1, -1]) / np.maximum(values, 1e-3))
    return np.asarray(w[0] + test.features @ w[1:])


def functional(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    """Zhang et al. 2012: a ridge of four deviations, and spectral trimming."""
    gram, scale = _noisy(learn, published(learn), epsilon, seed)
    size = len(gram) - 1
    values, vectors = np.linalg.eigh(gram[:-1, :-1] + 4 * math.sqrt(2) * scale * np.eye(size))
    kept = values > 0
    w = vectors[:, kept] @ ((vectors[:, kept].T @ gram[:-1, -1]) / values[kept])
    return np.asarray(w[0] + test.features @ w[1:])
