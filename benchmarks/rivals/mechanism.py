"""What all mechanisms share: a linear statistic of the records, noise, and a public evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

import numpy as np

from dbern.types import FloatArray, Int64Array
from rivals.tasks import Task

TUNING_DRAWS = 16
_BLOCK = 1 << 14  # records at a time
_COARSE = 5  # every fifth point will do for choosing; rows of the grid shift against it

Features: TypeAlias = Callable[[FloatArray], FloatArray]
"""Positions (m, l) to rows (m, d)."""

Setting: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class Product:
    """Features that are products of one feature an axis, C order; `kept` of them."""

    axes: Sequence[Features]
    kept: Int64Array | None = None

    def __call__(self, points: FloatArray) -> FloatArray:
        rows = self.axes[0](points[:, 0])
        for axis, feature in enumerate(self.axes[1:], start=1):
            rows = (rows[:, :, None] * feature(points[:, axis])[:, None, :]).reshape(len(rows), -1)
        return rows if self.kept is None else rows[:, self.kept]

    def total(self, records: FloatArray, weights: FloatArray) -> FloatArray:
        """``sum_i w_i f(d_i)``; with two axes one matrix product instead of all products."""
        if len(self.axes) == 1:
            return weights @ self(records)
        first, second = self.axes
        table = (first(records[:, 0]) * weights[:, None]).T @ second(records[:, 1])
        return table.ravel() if self.kept is None else table.ravel()[self.kept]


def mean(features: Features, task: Task) -> FloatArray:
    """``(1/n) sum_i w_i f(d_i)``, shape (d,)."""
    total: FloatArray | float = 0.0
    for first in range(0, len(task.records), _BLOCK):
        block = slice(first, first + _BLOCK)
        records, weights = task.records[block], task.weights[block]
        if isinstance(features, Product):
            total = total + features.total(records, weights)
        else:
            total = total + weights @ features(records)
    return np.asarray(total) / task.n


class Noise(Protocol):
    """Independent of the data; knows what it was calibrated to."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
        """`shape[0]` draws of a noise vector."""

    def used(self, moves: FloatArray) -> FloatArray:
        """How much of what it was calibrated to each move (m, d) uses: at most one if private."""


@dataclass(frozen=True)
class LaplaceNoise:
    """Independent Laplace noise: ``sum_j |move_j| / scale_j <= epsilon``."""

    scale: FloatArray | float
    epsilon: float

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
        return self.scale * rng.laplace(size=shape)

    def used(self, moves: FloatArray) -> FloatArray:
        return np.asarray((np.abs(moves) / self.scale).sum(axis=1) / self.epsilon)


@dataclass(frozen=True)
class NormNoise:
    """Density proportional to ``exp(-|b|_2 / scale)``: ``|move|_2 / scale <= epsilon``."""

    scale: float
    epsilon: float

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
        direction = rng.normal(size=shape)
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return direction * rng.gamma(shape[1], self.scale, size=(shape[0], 1))

    def used(self, moves: FloatArray) -> FloatArray:
        return np.asarray(np.linalg.norm(moves, axis=1) / self.scale / self.epsilon)


@dataclass(frozen=True)
class IsotropicNoise:
    """Independent Gaussian noise, sigma for an l2 sensitivity."""

    sigma: float
    sensitivity: float

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
        return self.sigma * rng.normal(size=shape)

    def used(self, moves: FloatArray) -> FloatArray:
        return np.asarray(np.linalg.norm(moves, axis=1) / self.sensitivity)


class Prepared(Protocol):
    """A mechanism that has seen the records and has not drawn its noise."""

    @property
    def setting(self) -> str:
        """The parameters, for the table."""

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Coefficients (count, d) of as many independent releases."""

    def evaluate(self, points: FloatArray) -> FloatArray:
        """What multiplies them, public: shape (m, d)."""


def unchanged(released: FloatArray) -> FloatArray:
    return released


@dataclass(frozen=True, eq=False)
class Statistic:
    """A mean of record features plus noise, and public post-processing.

    Attributes
    ----------
    setting : str
    analyse : Features
        Of a record.
    center : array (d,)
        Their weighted mean.
    noise : Noise
    synthesize : Features
        Of a point, to be multiplied with ``finish(center + noise)``.
    finish : callable
        Post-processing of a batch of releases.
    """

    setting: str
    analyse: Features
    center: FloatArray
    noise: Noise
    synthesize: Features
    finish: Callable[[FloatArray], FloatArray] = unchanged

    def contributions(self, records: FloatArray, weights: FloatArray) -> FloatArray:
        """What records (m, l) of these weights add to n times the center, shape (m, d)."""
        return np.asarray(weights[:, None] * self.analyse(records))

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        return self.finish(self.center + self.noise.draw(rng, (count, len(self.center))))

    def evaluate(self, points: FloatArray) -> FloatArray:
        return self.synthesize(points)


class Mechanism(ABC):
    """One way to release a task."""

    name: ClassVar[str]
    guarantee: ClassVar[str] = "epsilon"

    def applies(self, task: Task) -> bool:
        """Whether its publication covers the task."""
        del task
        return True

    def settings(self, task: Task) -> Sequence[Setting]:
        """What there is to choose from: arguments of `prepare`; nothing by default."""
        del task
        return [()]

    @abstractmethod
    def prepare(self, task: Task, epsilon: float, *setting: float) -> Prepared:
        """Everything but the noise."""

    def choose(self, task: Task, epsilon: float) -> Setting:
        """The setting with the smallest mean sup error *on the private data*: an oracle's choice.

        It costs the rivals nothing here and would cost privacy in earnest.
        """
        settings = self.settings(task)
        if len(settings) == 1:
            return settings[0]
        points, truth = task.points[::_COARSE], task.truth[::_COARSE]

        def error(setting: Setting) -> float:
            candidate = self.prepare(task, epsilon, *setting)
            released = candidate.draw(np.random.default_rng(1), TUNING_DRAWS)
            return float(np.abs(released @ candidate.evaluate(points).T - truth).max(axis=1).mean())

        return min(settings, key=error)

    def release(self, task: Task, epsilon: float, rng: np.random.Generator) -> Features:
        """Release once: a function of points (m, l) that needs no record any more."""
        prepared = self.prepare(task, epsilon, *self.choose(task, epsilon))
        (coefficients,) = prepared.draw(rng, 1)
        return lambda points: prepared.evaluate(points) @ coefficients
