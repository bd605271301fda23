"""Kernel machines on one core: their matrix products, their solvers, and a million records.

Products are compared with `numpy.matmul` of the same shapes into memory that is there; solvers with
those of scikit-learn (liblinear, libsvm, L-BFGS) on the same objective, at the loosest of their
tolerances that reaches our value of it or a lower one. Ours prove how near the minimizer they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from fitting import Minimize, solve
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits
from timing import BENCH, Table, keep, seconds, together

from dbern.bernstein.reproducing import Gaussian
from dbern.erm.gaussian_features import ProjectedGaussian
from dbern.erm.losses import Hinge, Logistic, Loss
from dbern.erm.risk import Risk
from dbern.erm.shards import Expansion
from dbern.privacy.keystream import content_buckets

SCALES = (0.25, 0.25)
NODES = [np.linspace(0, 1, 21)] * 2
RADIUS = math.sqrt(2) * (1 + 2.0**-40)
SHARD, FEW, KEPT = (2048, 20_000, 400_000) if BENCH else (256, 400, 2000)
MILLION, MEASURED = (10**6, 10) if BENCH else (2000, 1)
TOLERANCES = [10.0**-digits for digits in range(1, 13)]
Column = dict[str, float | None]


def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(n, 2))
    chance = 1 / (1 + np.exp(-8 * (points[:, 0] - points[:, 1])))
    return points, np.where(rng.uniform(size=n) < chance, 1.0, -1.0)


# --- products --------------------------------------------------------------------------------


def product(ours: Callable[[], Any], rows: int, inner: int, columns: int, values: int) -> Column:
    """10^9 operations a second of ours and of (rows, inner) times (inner, columns), and shares.

    `values` says how many kernel values ours has to make first; an exponential of each is counted
    in the second share.
    """
    rng = np.random.default_rng(1)
    left, right = rng.random((rows, inner)), rng.random((inner, columns))
    out, some = np.empty((rows, columns)), -rng.random(1 << 14)
    mine, plain, exponentials = together(
        ours, lambda: np.matmul(left, right, out=out), lambda: np.exp(some)
    )
    exponentials *= values / some.size
    count = 2e-9 * rows * inner * columns
    return {
        "dbern": count / mine,
        "matmul": count / plain,
        "share of matmul": plain / mine,
        "share of matmul and exponentials": (plain + exponentials) / mine,
    }


def lattice_product(axes: int, k: int, models: int = 1) -> Column:
    """A shard's functions at all lattice points."""
    rng, half = np.random.default_rng(2), (axes + 1) // 2
    points, coefficients = rng.random((SHARD, axes)), rng.random((SHARD, models))
    function = Expansion(Gaussian((0.25,) * axes), points, coefficients)
    nodes = [np.linspace(0, 1, k + 1)] * axes
    shape = (k + 1) ** half, SHARD, (k + 1) ** (axes - half) * models
    return product(lambda: function.on_grid(nodes), *shape, values=SHARD * axes * (k + 1))


def products() -> dict[str, Column]:
    """A shard's Gram matrix by features, and its functions on lattices that are mostly products."""
    points, _ = sample(SHARD)
    kernel = ProjectedGaussian.on_lattice(SCALES, [20, 20], [9, 9])
    lattices = {"l=2 k=100": (2, 100), "l=3 k=20": (3, 20), "l=3 k=40": (3, 40),
                "l=2 k=100, 4 models": (2, 100, 4)}  # fmt: skip
    return {
        "81 features": product(
            lambda: kernel(points, points), SHARD, 81, SHARD, values=2 * 2 * 21 * SHARD
        ),
        **{name: lattice_product(*shape) for name, shape in lattices.items()},
    }


# --- solvers ---------------------------------------------------------------------------------


def timed(
    fit: Callable[[], np.ndarray], objective: Callable[[np.ndarray], float]
) -> tuple[float, float]:
    """Seconds, and the value reached."""
    return seconds(fit), objective(fit())


def reaching(
    fit: Callable[[float], np.ndarray], objective: Callable[[np.ndarray], float], value: float
) -> tuple[float, float]:
    """Those at the loosest tolerance that reaches a value, or at the tightest."""
    for tolerance in TOLERANCES:
        if objective(fit(tolerance)) <= value:
            break
    return timed(lambda: fit(tolerance), objective)


def solvers(
    ours: Callable[[], np.ndarray],
    others: dict[str, Callable[[float], np.ndarray]],
    objective: Callable[[np.ndarray], float],
) -> Column:
    """Seconds, ours to theirs, and how far above the lowest value each one ends, relative to it."""
    found = {"dbern": timed(ours, objective)}
    for name, fit in others.items():
        found[name] = reaching(fit, objective, found["dbern"][1])
    lowest = min(value for _, value in found.values())
    return {
        **{f"{name}, s": spent for name, (spent, _) in found.items()},
        **{f"dbern to {name}": found["dbern"][0] / found[name][0] for name in others},
        **{f"{name}, above": value / lowest - 1 for name, (_, value) in found.items()},
    }


def hinge(margins: np.ndarray) -> float:
    return float(np.maximum(0.0, 1 - margins).sum())


def logistic(margins: np.ndarray) -> float:
    return float(np.logaddexp(0.0, -margins).sum())


def linear(loss: Loss, cost: float, n: int) -> Column:
    """81 features; the hinge itself is the objective, though ours rounds its kink."""
    points, labels = sample(n)
    kernel = ProjectedGaussian.on_lattice(SCALES, [20, 20], [9, 9])
    features = kernel.features(points)
    risk = Risk(loss, kernel, cost, n, RADIUS, 2)
    total = logistic if isinstance(loss, Logistic) else hinge
    same = {"C": cost / n, "fit_intercept": False, "max_iter": 100_000}

    def objective(weights: np.ndarray) -> float:
        return float(weights @ weights / 2 + cost / n * total(labels * (features @ weights)))

    def ours() -> np.ndarray:
        return solve(risk, Minimize.for_sensitivity(risk), points, labels).weights[:, 0]

    def theirs(model: Callable[..., Any], tolerance: float) -> np.ndarray:
        fitted = model(**same, tol=tolerance).fit(kernel.features(points), labels)
        return np.asarray(fitted.coef_[0])

    models: dict[str, Callable[..., Any]] = {"liblinear": partial(LinearSVC, loss="hinge")}
    if isinstance(loss, Logistic):
        models = {
            "liblinear": partial(LogisticRegression, solver="liblinear"),
            "L-BFGS": LogisticRegression,
        }
    return solvers(
        ours, {name: partial(theirs, model) for name, model in models.items()}, objective
    )


def by_gram(loss: Hinge, cost: float, n: int) -> Column:
    """One shard with its Gram matrix, beside libsvm.

    libsvm's function has an intercept. Each record is given to it twice, once with the sign of its
    features and its label turned: then an intercept only adds to a convex objective, which is twice
    ours at half the cost. The second of its lines is for the records once, intercept and all:
    another objective, its time alone compares.
    """
    points, labels = sample(n)
    gaussian = Gaussian(SCALES)
    gram = gaussian(points, points)
    risk = Risk(loss, gaussian, cost, n, RADIUS, 2)
    signs = np.concatenate([np.ones(n), -np.ones(n)])

    def objective(coefficients: np.ndarray) -> float:
        values = gram @ coefficients
        return float(coefficients @ values / 2 + cost / n * hinge(labels * values))

    def ours() -> np.ndarray:
        found = solve(risk, Minimize.for_sensitivity(risk), points, labels)
        order = np.lexsort((labels, points[:, 1], points[:, 0]))  # the solver sorts records
        result = np.empty(n)
        result[order] = found.coefficients[:, 0]
        return result

    def twice(tolerance: float) -> np.ndarray:
        kernel = np.tile(gaussian(points, points), (2, 2)) * signs * signs[:, None]
        model = SVC(kernel="precomputed", C=cost / (2 * n), tol=tolerance)
        model.fit(kernel, signs * np.tile(labels, 2))
        result = np.zeros(2 * n)
        result[model.support_] = model.dual_coef_[0]
        return result[:n] - result[n:]

    found = solvers(ours, {"libsvm, records twice": twice}, objective)
    once = SVC(kernel="rbf", gamma=0.5 / SCALES[0] ** 2, C=cost / n, tol=1e-3)
    found["libsvm, intercept, s"] = seconds(lambda: once.fit(points, labels))
    return found


# --- a million records -----------------------------------------------------------------------


def by_shards(loss: Loss, cost: float, rows: int) -> float:
    """Seconds for a million records in shards of so many: all hashes, and a part of the shards."""
    points, labels = sample(MILLION)
    shards = max(1, MILLION // rows)
    risk = Risk(loss, Gaussian(SCALES), cost, MILLION, RADIUS, 2, shards=shards)
    method = Minimize.for_sensitivity(risk)
    start = time.process_time()
    buckets = content_buckets(np.column_stack([points, labels]), bytes(32), shards)
    hashing = time.process_time() - start
    start = time.process_time()
    for shard in range(min(MEASURED, shards)):
        chosen = buckets == shard
        solve(risk, method, points[chosen], labels[chosen]).on_grid(NODES)
    return hashing + (time.process_time() - start) * shards / min(MEASURED, shards)


def by_features(loss: Loss, cost: float) -> float:
    """Seconds for a million records in shards as large as their features are kept, one of them."""
    points, labels = sample(KEPT)
    risk = Risk(loss, ProjectedGaussian.on_lattice(SCALES, [20, 20], [9, 9]), cost, KEPT, RADIUS, 2)
    method = Minimize.for_sensitivity(risk)
    start = time.process_time()
    solve(risk, method, points, labels).on_grid(NODES)
    return (time.process_time() - start) * MILLION / KEPT


# --- the tables ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def one_core():
    with threadpool_limits(1):
        yield


@pytest.mark.slow
def test_product_speed() -> None:
    found = products()
    keep("products", Table.of("10^9 operations a second", found))
    if BENCH:
        assert found["81 features"]["share of matmul"] >= 0.5
        assert found["l=3 k=40"]["share of matmul"] >= 0.5


@pytest.mark.slow
def test_solver_speed() -> None:
    found = {
        "logistic, 81 features": linear(Logistic(), 10.0, FEW),
        "hinge, 81 features": linear(Hinge(0.1), 10.0, FEW),
        "hinge, Gram matrix": by_gram(Hinge(0.1), 10.0, SHARD),
    }
    keep("solvers", Table.of("one shard", found))
    smooth, *rounded = found.values()
    assert smooth["dbern, above"] < 1e-9
    for column in rounded:  # what rounding the kink may cost at most: C width / 2
        assert 0 <= column["dbern, above"] < 0.1
    for column in found.values():
        assert all(value < 1e-9 for name, value in column.items() if name.endswith("twice, above"))


@pytest.mark.slow
def test_learning_speed() -> None:
    tasks: dict[str, tuple[Loss, float]] = {
        "logistic, C=1": (Logistic(), 1.0), "logistic, C=10": (Logistic(), 10.0),
        "hinge (.1), C=10": (Hinge(0.1), 10.0),
    }  # fmt: skip
    rows: dict[str, Column] = {
        name: {
            **{f"shards of {rows}": by_shards(loss, cost, rows) for rows in (500, 1000, 2000)},
            f"81 features, shards of {KEPT}": by_features(loss, cost),
        }
        for name, (loss, cost) in tasks.items()
    }
    keep("learning", Table.of("s a million records", rows))
    assert all(value > 0 for column in rows.values() for value in column.values())


if __name__ == "__main__":
    pytest.main([__file__, "-q", "-s", "-n0"])
