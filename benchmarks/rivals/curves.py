"""Mean curves beside rivals.

Records are n curves at 100 points, mu(t) plus a random smooth deviation, moved to [-1, 1]; all are
told these bounds, which are also the norm bound 1 of the independent component Laplace process
(Lin and Reimherr 2023, arXiv:2309.00125). That one perturbs coefficients a_j by its eigenfunctions
with Laplace noise in proportion to ``sqrt(lambda_j)``, after it has shrunk them by ``lambda_j^eta /
(lambda_j^eta + psi)``: its sensitivity is that of ``sum_j |a_j| / sqrt(lambda_j)``. Here it has the
cosines, eigenvalues of a Matern-like decay, and an oracle that chooses psi, eta and the decay for
each row, which costs it nothing. With Gaussian noise (delta = 1e-6, the classical calibration) it
is the same in the Euclidean norm. The four means have one bend, a wave, two peaks and a step; they
are of the kind in that paper, not the ones that it has.

Rows of dbern are the released law in floats, at its default degree, and at the best degree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

from dbern.bernstein.basis import bernstein_basis
from dbern.combination.polynomials import grid_polynomials
from dbern.data.domain import Axis, Domain, Response
from dbern.learn.functional_mean import CurveSums, _chosen_degree, _most_degree
from dbern.reconstruct.base import VectorStrategy
from dbern.types import FloatArray
from rivals.cells import ASIDE, OURS, RIVAL, Cell

POINTS, CURVES = 100, (500, 5000)
T = np.linspace(0.0, 1.0, POINTS)
MEANS: dict[str, FloatArray] = {
    "one bend": 2 * T * np.exp(-T) - 0.4,
    "a wave": 0.6 * np.sin(2 * np.pi * T),
    "two peaks": np.exp(-((T - 0.3) ** 2) / 0.02) * 0.6 + np.exp(-((T - 0.75) ** 2) / 0.01) * 0.5,
    "a step": 0.6 * np.tanh((T - 0.5) / 0.03),
}
COSINES = np.sqrt(2 - (np.arange(50) == 0)) * np.cos(np.pi * np.outer(T, np.arange(50)))


def curves(mean: FloatArray, n: int) -> FloatArray:
    """Curves in [-1, 1], (n, points)."""
    rng = np.random.default_rng(2309)
    smooth = rng.uniform(-1, 1, (n, 8)) * (1 + np.arange(8.0)) ** -2
    return np.clip(mean + 0.3 * smooth @ COSINES[:, 1:9].T, -1, 1)


def off(found: FloatArray, mean: FloatArray) -> float:
    return math.sqrt(np.mean((found - mean) ** 2))


def process(
    x: FloatArray, epsilon: float, rng: np.random.Generator, delta: float,
    decay: float, eta: float, psi: float,
) -> float:  # fmt: skip
    mean, j = x.mean(axis=0), np.arange(COSINES.shape[1])
    values = (1 + j / 3.0) ** -decay
    kept = values**eta / (values**eta + psi)
    if delta:
        size = (kept / np.sqrt(values)).max() * math.sqrt(2 * math.log(1.25 / delta))
        drawn = rng.normal(size=len(j))
    else:
        size, drawn = math.sqrt(np.sum(kept**2 / values)), rng.laplace(size=len(j))
    noise = 2 * size / len(x) / epsilon * np.sqrt(values) * drawn
    return off(COSINES @ (kept * (COSINES.T @ mean / POINTS) + noise), mean)


def each_point(x: FloatArray, epsilon: float, rng: np.random.Generator) -> float:
    return off(rng.laplace(0, 2 * POINTS / len(x) / epsilon, POINTS), np.zeros(POINTS))


def bernstein(x: FloatArray, epsilon: float, rng: np.random.Generator, k: int) -> float:
    mean = x.mean(axis=0)
    values = np.interp(np.arange(k + 1) / k, T, mean)
    values = values + rng.laplace(0, 2 * (k + 1) / len(x) / epsilon, k + 1)
    return off(bernstein_basis(T, k) @ values, mean)


@lru_cache
def sensitivity(degree: int) -> float:
    response = Response("y", -1.0, 1.0, points=POINTS)
    sums = CurveSums(Domain((Axis("t", 0.0, 1.0),)), response, degree)
    return sums.sensitivity(VectorStrategy(degree + 1), 1).value


def ours(x: FloatArray, epsilon: float, rng: np.random.Generator, degree: int) -> float:
    mean, basis = x.mean(axis=0), grid_polynomials(T, POINTS, degree + 1)
    noise = rng.laplace(0, sensitivity(degree) / len(x) / epsilon, degree + 1)
    return off(basis @ (basis.T @ mean / POINTS + noise), mean)


def default(x: FloatArray, epsilon: float, rng: np.random.Generator) -> float:
    return ours(x, epsilon, rng, _chosen_degree(POINTS, len(x), Fraction(epsilon)))


Way = Callable[[FloatArray, float, np.random.Generator], float]
_TUNED = list(itertools.product((2.0, 4.0), (1.0, 1.5), 10.0 ** np.arange(-8, 1)))
WAYS: dict[tuple[str, str], list[Way]] = {
    ("Laplace noise at each point", RIVAL): [each_point],
    ("Bernstein, h = 1, best k", RIVAL): [partial(bernstein, k=k) for k in range(2, 25)],
    ("ICLP, oracle", RIVAL): [
        partial(process, delta=0.0, decay=decay, eta=eta, psi=psi) for decay, eta, psi in _TUNED],
    ("the same with a delta of 1e-6", ASIDE): [
        partial(process, delta=1e-6, decay=decay, eta=eta, psi=psi) for decay, eta, psi in _TUNED],
    ("dbern", OURS): [default],
    ("dbern, best degree", ASIDE): [
        partial(ours, degree=d) for d in range(_most_degree(POINTS) + 1)],
}  # fmt: skip


def measure(x: FloatArray, epsilon: float, ways: Sequence[Way], seeds: int) -> tuple[float, float]:
    """The root mean square error over the axis, mean over seeds, of the best of some ways."""
    found = [[way(x, epsilon, np.random.default_rng(seed)) for seed in range(seeds)]
             for way in ways]  # fmt: skip
    best = min(found, key=lambda errors: float(np.mean(errors)))
    return float(np.mean(best)), float(np.std(best) / math.sqrt(max(1, seeds - 1)))


def names() -> list[str]:
    """List the curves of all numbers."""
    return [f"{name}, {n} curves" for n, name in itertools.product(CURVES, MEANS)]


def cells(task: str, epsilons: Sequence[float], seeds: int) -> Iterator[list[Cell]]:
    """One cell an epsilon of each way, on curves whose name begins with `task`."""
    for n, (name, mean) in itertools.product(CURVES, MEANS.items()):
        about = f"{name}, {n} curves"
        if not about.startswith(task):
            continue
        x = curves(mean, n)
        for (way, role), settings in WAYS.items():
            yield [
                Cell("curves", about, "error", way, role, epsilon, seeds,
                     *measure(x, epsilon, settings, seeds))
                for epsilon in epsilons
            ]  # fmt: skip
