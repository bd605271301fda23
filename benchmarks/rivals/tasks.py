"""What is to be released: records in the unit cube, a kernel, and the exact function.

Every task is ``F(y) = (1/n) sum_i w_i K(y - d_i)``: a density has weights one; the hinge SVM of
Figure 2 has its labels, exactly so because ``C kappa^2 = 1`` (every dual variable is at its bound).
A record that is out of bounds is the null record: it counts in n and adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from dbern.types import FloatArray

FLIGHTS = Path(__file__).resolve().parents[3] / "shared" / "data" / "flights.parquet"
_BLOCK = 1 << 14  # records at a time


@dataclass(frozen=True)
class RBF:
    """``peak exp(-x^2 / (2 bandwidth^2))`` on one axis, in unit-cube units."""

    bandwidth: float
    peak: float

    def __call__(self, x: FloatArray) -> FloatArray:
        return np.asarray(self.peak * np.exp(-0.5 * np.square(x / self.bandwidth)))

    @property
    def square_integral(self) -> float:
        """Bound the integral of K^2 over any unit interval."""
        return self.peak**2 * min(1.0, self.bandwidth * math.sqrt(math.pi))


def density_kernel(bandwidth: float) -> RBF:
    return RBF(bandwidth, 1 / (bandwidth * math.sqrt(2 * math.pi)))


@dataclass(frozen=True, eq=False)  # tasks are cache keys: one object, one task
class Task:
    """One function to release.

    Attributes
    ----------
    records : array (r, l)
        Positions of the records that count, in the unit cube.
    n : int
        Public number of records, the null ones included.
    kernels : tuple of RBF
        One per axis.
    labels : array (r,), optional
        Of +1 and -1, for a classifier.
    bounds : tuple of (name, low, high)
        The axes in data units.
    """

    name: str
    records: FloatArray
    n: int
    kernels: tuple[RBF, ...]
    labels: FloatArray | None = None
    bounds: tuple[tuple[str, float, float], ...] = field(default=())

    @property
    def dimensions(self) -> int:
        return len(self.kernels)

    @property
    def peak(self) -> float:
        """``K(0)``, the kernel's largest value."""
        return math.prod(kernel.peak for kernel in self.kernels)

    @property
    def signed(self) -> bool:
        """Whether a record may count negatively."""
        return self.labels is not None

    @cached_property
    def weights(self) -> FloatArray:
        return np.ones(len(self.records)) if self.labels is None else self.labels

    # --- how far one replaced record moves things (docs/sensitivity.md) ---

    @property
    def function_sensitivity(self) -> float:
        """``S(F)``: two numbers in [0, K(0)], or in [-K(0), K(0)], over n."""
        return (2 if self.signed else 1) * self.peak / self.n

    def hilbert_sensitivity(self, square_norm: float) -> float:
        """Of a mean of vectors with nonnegative inner products and at most this square norm.

        ``|u - v|^2 = |u|^2 + |v|^2 - 2 <u, v>`` is at most twice the square norm; with labels the
        product may be negative, and the difference as long as both vectors.
        """
        return math.sqrt((4 if self.signed else 2) * square_norm) / self.n

    # --- where errors are measured -------------------------------------------------------------

    @cached_property
    def points(self) -> FloatArray:
        """A regular grid with both ends, shape (m, l).

        With two axes its steps are in no simple ratio to anyone's lattice: a piecewise-constant
        function would look exact on its own points.
        """
        return grid({1: 401, 2: 48}[self.dimensions], self.dimensions)

    @cached_property
    def truth(self) -> FloatArray:
        """F at `points`."""
        return self.exact(self.points)

    def exact(self, points: FloatArray) -> FloatArray:
        """F by direct summation, shape (m,)."""
        places, which = zip(*(np.unique(x, return_inverse=True) for x in points.T), strict=True)
        whole = math.prod(map(len, places)) == len(points) and len(places) <= 2  # sums factor
        total = np.zeros(tuple(map(len, places)) if whole else len(points))
        for first in range(0, len(self.records), _BLOCK):
            block = slice(first, first + _BLOCK)
            at = zip(
                places if whole else points.T, self.records[block].T, self.kernels, strict=True
            )
            first_axis, *others = (kernel(x[:, None] - t) for x, t, kernel in at)
            bumps = first_axis * self.weights[block]
            if whole and others:
                total += bumps @ others[0].T
            else:
                total += math.prod(others, start=bumps).sum(axis=1)
        return (total[which] if whole else total) / self.n


def grid(count: int, dimensions: int) -> FloatArray:
    axes = [np.linspace(0, 1, count)] * dimensions
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dimensions)


def unit_bounds(*names: str) -> tuple[tuple[str, float, float], ...]:
    return tuple((name, 0.0, 1.0) for name in names)


def figure_one(bandwidth: float, n: int = 5000) -> Task:
    """0.4 N(.5, variance .02) + 0.6 N(.75, variance .005), clamped."""
    rng = np.random.default_rng(2017)
    first = rng.random(n) < 0.4
    spread = rng.normal(size=n)
    values = np.where(first, 0.5 + 0.02**0.5 * spread, 0.75 + 0.005**0.5 * spread).clip(0, 1)
    kernels = (density_kernel(bandwidth),)
    name = f"Figure 1, b = {bandwidth:g}"
    return Task(name, values[:, None], n, kernels, bounds=unit_bounds("x"))


def mixture(n: int = 20_000) -> Task:
    """Two normal clusters and a thin one on the unit square, clamped; b = .1 on both axes."""
    rng = np.random.default_rng(2018)
    parts = [
        (0.4, (0.3, 0.35), ((0.01, 0.0), (0.0, 0.01))),
        (0.4, (0.65, 0.6), ((0.02, 0.012), (0.012, 0.015))),
        (0.2, (0.75, 0.2), ((0.004, 0.0), (0.0, 0.002))),
    ]
    which = rng.choice(len(parts), size=n, p=[share for share, *_ in parts])
    drawn = np.stack([rng.multivariate_normal(mean, cov, n) for _, mean, cov in parts])
    records = drawn[which, np.arange(n)].clip(0, 1)
    kernels = (density_kernel(0.1),) * 2
    return Task("2-d mixture, b = 0.1", records, n, kernels, bounds=unit_bounds("x", "y"))


def figure_two(n: int = 3000) -> Task:
    """Two normal classes, hinge loss, RBF, C = sigma = 1."""
    rng = np.random.default_rng(2019)
    half = n // 2
    records = np.concatenate(
        [
            rng.multivariate_normal((0.3, 0.5), ((0.01, 0.0), (0.0, 0.01)), half),
            rng.multivariate_normal((0.6, 0.4), ((0.01, 0.008), (0.008, 0.015)), half),
        ]
    ).clip(0, 1)
    labels = np.repeat([1.0, -1.0], half)
    name = "Figure 2, SVM"
    return Task(name, records, 2 * half, (RBF(1.0, 1.0),) * 2, labels, unit_bounds("x", "y"))


def flights(path: Path = FLIGHTS) -> Task:
    """Density of delay over the time of day of 200 000 flights; out of bounds is null."""
    import pyarrow.parquet as pq

    bounds = (("time", 0.0, 24.0), ("delay", -60.0, 180.0))
    table = pq.read_table(path, columns=[name for name, *_ in bounds])
    unit = np.column_stack(
        [(table[name].to_numpy().astype(float) - low) / (high - low) for name, low, high in bounds]
    )
    kept = ((unit >= 0) & (unit <= 1)).all(axis=1)  # NaN is not
    kernels = (density_kernel(1.5 / 24), density_kernel(15 / 240))
    return Task("flights, time x delay", unit[kept], len(unit), kernels, bounds=bounds)


def every_task(path: Path = FLIGHTS) -> list[Task]:
    """All tasks; the flights where the file is there."""
    makers: Sequence[Callable[[], Task]] = [
        lambda: figure_one(0.1),
        lambda: figure_one(0.05),
        mixture,
        figure_two,
    ]
    tasks = [make() for make in makers]
    return [*tasks, flights(path)] if path.exists() else tasks
