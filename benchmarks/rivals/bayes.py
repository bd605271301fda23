"""Naive Bayes of two classes with privacy, in floats, and without.

- `posterior`: Zhang, Rubinstein and Dimitrakakis (2016), the Laplace mechanism on posterior
  updates. Their network is the class with an edge to every attribute: of 1 + l nodes each has a
  count for each of its values and, of an attribute, of the class. A replaced record moves at most
  two counts of each node by one, so every count gets Laplace noise of scale ``2 (1 + l) / epsilon``
  and is cut to [0, n], as published; the parameters of the posterior are those of the prior, all
  ones, plus these. Theirs have two values; here a list has its values and a number as many cells of
  equal width as an oracle chooses for each table and epsilon, with nothing charged for it.
- `histograms`: what one writes in twenty lines: noisy counts of 16 cells of equal width and of the
  values of lists, by class, none below the scale of its noise, over their sum.
- `split`: what diffprivlib's GaussianNB does with epsilon, where the library is not there: a third
  each for counts, sums and squares about the noisy mean, in equal parts over the columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from sklearn.naive_bayes import CategoricalNB, GaussianNB

from dbern.types import FloatArray, Int64Array
from rivals.records import Table

CELLS = (2, 3, 5, 8, 16, 32)


def without_privacy(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    del epsilon, seed
    logs = GaussianNB().fit(learn.numbers, learn.truth).predict_joint_log_proba(test.numbers)
    for name, values in learn.lists.items():
        codes, own = (_codes(part, name)[:, None] for part in (learn, test))
        peer = CategoricalNB(min_categories=len(values)).fit(codes, learn.truth)
        logs = logs + peer.predict_joint_log_proba(own) - peer.class_log_prior_
    return np.asarray(logs[:, 1] - logs[:, 0])


def _codes(table: Table, name: str) -> Int64Array:
    return np.searchsorted(table.lists[name], table.columns[name])


def discrete(table: Table, cells: int) -> list[tuple[Int64Array, int]]:
    """Codes of all attributes, and how many values each one has."""
    numbers = np.minimum((table.numbers + 1) / 2 * cells, cells - 1).astype(np.int64)
    listed = [(_codes(table, name), len(values)) for name, values in table.lists.items()]
    return [*listed, *((column, cells) for column in numbers.T)]


def counts(table: Table, cells: int) -> list[Int64Array]:
    """Of the classes (2,), and of each attribute's values by class (2, values)."""
    second = np.asarray(table.truth == 1)
    classes = np.array([(~second).sum(), second.sum()])
    return [classes, *(
        np.array([np.bincount(codes[part], minlength=size) for part in (~second, second)])
        for codes, size in discrete(table, cells)
    )]  # fmt: skip


def sensitivity(table: Table) -> int:
    """How many counts a replaced record moves by one: two of each node."""
    return 2 * (1 + len(table.axes) + len(table.lists))


def posterior(cells: int) -> Callable[[Table, Table, float, int], FloatArray]:
    def values(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
        rng, scale = np.random.default_rng(seed), sensitivity(learn) / epsilon
        classes, *attributes = (
            1 + np.clip(own + rng.laplace(0, scale, own.shape), 0, len(learn.truth))
            for own in counts(learn, cells)
        )
        found = np.full(len(test.truth), math.log(classes[1] / classes[0]))
        for parameters, (own, _) in zip(attributes, discrete(test, cells), strict=True):
            chances = parameters / parameters.sum(axis=1, keepdims=True)
            found += np.log(chances[1, own] / chances[0, own])
        return found

    return values


def histograms(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    rng, scale = np.random.default_rng(seed), (sensitivity(learn) - 2) / epsilon
    noisy = [
        np.maximum(counted + rng.laplace(0, scale, counted.shape), scale)
        for counted in counts(learn, 16)[1:]
    ]
    shares = np.mean([counted.sum(axis=1) for counted in noisy], axis=0)
    logs = np.full(len(test.truth), math.log(shares[1] / shares[0]))
    for counted, (codes, _) in zip(noisy, discrete(test, 16), strict=True):
        chances = counted / counted.sum(axis=1, keepdims=True)
        logs += np.log(chances[1, codes] / chances[0, codes])
    return logs


def split(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    rng, z, at = np.random.default_rng(seed), learn.unit, test.unit
    each, logs, second = 3 * z.shape[1] / epsilon, [], learn.truth == 1
    for own in (z[~second], z[second]):
        rows = max(1.0, len(own) + rng.laplace(0, 3 / epsilon))
        mean = np.clip((own.sum(axis=0) + rng.laplace(0, each, z.shape[1])) / rows, 0, 1)
        spread, wide = ((own - mean) ** 2).sum(axis=0), np.maximum(mean, 1 - mean) ** 2
        tries = spread + wide * rng.laplace(0, each, (1000, z.shape[1]))
        fits = (tries >= 0) & (tries <= wide * rows)
        drawn = np.where(fits.any(axis=0), tries[fits.argmax(axis=0), range(z.shape[1])], spread)
        variance = drawn / rows + 1e-9
        likely = -np.log(variance) / 2 - (at - mean) ** 2 / (2 * variance)
        logs.append(math.log(rows) + likely.sum(axis=1))
    return np.asarray(logs[1] - logs[0])
