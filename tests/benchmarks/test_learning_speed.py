"""Processor seconds of kernel machines by shards and by explicit features, on one core.

``python tests/benchmarks/test_learning_speed.py`` prints the figures at a million records (a part
of the shards is measured and scaled); the test only runs it small.
"""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from dbern.bernstein.reproducing import Gaussian
from dbern.learning.losses import Hinge, Logistic, Loss
from dbern.learning.projected import project_gaussian
from dbern.learning.risk import Risk
from dbern.learning.solver import Certified, solve
from dbern.privacy.content import content_buckets

SCALES = (0.25, 0.25)
NODES = [np.linspace(0, 1, 21)] * 2
RADIUS = math.sqrt(2) * (1 + 2.0**-40)


def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(n, 2))
    chance = 1 / (1 + np.exp(-8 * (points[:, 0] - points[:, 1])))
    return points, np.where(rng.uniform(size=n) < chance, 1.0, -1.0)


def by_shards(loss: Loss, cost: float, n: int, rows: int, measured: int) -> float:
    points, labels = sample(n)
    shards = max(1, n // rows)
    risk = Risk(loss, Gaussian(SCALES), cost, n, RADIUS, 2, shards=shards)
    method = Certified.for_sensitivity(risk)
    start = time.process_time()
    buckets = content_buckets(np.column_stack([points, labels]), bytes(32), shards)
    hashing = time.process_time() - start
    start = time.process_time()
    for shard in range(min(measured, shards)):
        chosen = buckets == shard
        solve(risk, method, points[chosen], labels[chosen]).on_grid(NODES)
    return hashing + (time.process_time() - start) * shards / min(measured, shards)


def by_features(loss: Loss, cost: float, n: int, rank: int) -> dict[str, float]:
    points, labels = sample(n)
    kernel = project_gaussian(SCALES, [20, 20], [rank, rank])
    risk = Risk(loss, kernel, cost, n, RADIUS, 2)
    start = time.process_time()
    solve(risk, Certified.for_sensitivity(risk), points, labels).on_grid(NODES)
    ours = time.process_time() - start
    start = time.process_time()
    peer = LogisticRegression(C=cost / n, fit_intercept=False, tol=1e-9)
    peer.fit(kernel.features(points), labels)
    return {"ours": ours, "scikit-learn, logistic, no certificate": time.process_time() - start}


def report(n: int, measured: int) -> None:
    with threadpool_limits(1):
        for loss, cost in ((Logistic(), 1.0), (Logistic(), 10.0), (Hinge(0.1), 10.0)):
            name = f"{type(loss).__name__} C={cost:g}"
            for rows in (500, 1000, 2000):
                seconds = by_shards(loss, cost, n, rows, measured)
                print(f"{name} shards of {rows}: {seconds:.1f} s")
            found = by_features(loss, cost, n, 9)
            print(f"{name} 81 features: {', '.join(f'{k} {v:.1f} s' for k, v in found.items())}")


@pytest.mark.slow
def test_learning_speed() -> None:
    report(n=2000, measured=1)
    assert by_features(Logistic(), 1.0, 2000, 5)["ours"] > 0


if __name__ == "__main__":
    report(n=10**6, measured=30)
