"""How released arrays make the released function: a closed list, described in FORMAT.md.

A combination is post-processing. Its error bound follows from those of its parts; where a quotient
makes that impossible for the worst database, the bound is the width of the public range that every
value is cut to. Those of naive Bayes are proved in `dbern.likelihoods`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from dbern.arrays import FloatArray
from dbern.likelihoods import (
    gaussian_log_scores,
    gaussian_score_error,
    gaussian_scores,
    kernel_log_scores,
    kernel_score_error,
    kernel_scores,
)

KINDS = (
    *("linear", "sigmoid", "response", "stack", "one-vs-rest", "ratio"),
    *("naive-bayes", "gaussian-naive-bayes"),
)
_BAYES = KINDS[6:]

Answer: TypeAlias = Literal["value", "decision", "probability"]
"""What is asked of a point: the function, what decides between classes, or their probabilities."""


@dataclass(frozen=True)
class Combination:
    """What becomes of the values of the released arrays, in their order.

    Parameters
    ----------
    kind : str
        "linear": the one array. "sigmoid": ``1 / (1 + exp(-f))`` of it, the probability of the
        second class. "response": it plus the middle of the public range. "stack": one column each.
        "one-vs-rest": column c is twice array c minus the sum of all. "ratio": the first over the
        second, times the radius of the public range, plus its middle, cut to the range; the middle
        where the second is not positive.
        "naive-bayes": of each axis's sums by class, and after them the classes' shares, the scores
        of `kernel_scores`. "gaussian-naive-bayes": of one vector, those of `gaussian_scores`. Of
        two classes the second's score minus the first's, of more one column each.
    classes : tuple
        Public labels of the columns, in order; empty for one value a point.
    low, high : float
        The public range of a ratio or a response.
    peaks, floors : tuple of float
        Of naive Bayes, one an axis: see `dbern.likelihoods`.
    constant : float, optional
        Where it is stated, what is released is one vector of weights, and the arrays of the kind
        are the linear functions that these make (`linear_values`).

    Examples
    --------
    >>> both = Combination("ratio", low=-1.0, high=3.0)
    >>> both.values([np.array([0.1, 9.0]), np.array([0.2, 1.0])]).tolist()
    [2.0, 3.0]
    """

    kind: str = "linear"
    classes: tuple[str | int | bool, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    peaks: tuple[float, ...] = ()
    floors: tuple[float, ...] = ()
    constant: float | None = None

    def values(self, parts: Sequence[FloatArray], unit: FloatArray | None = None) -> FloatArray:
        """Values of the function (m,) or (m, classes), from those of the arrays, (m,) each.

        A vector is a part as it is. `unit` are the points in the unit cube, (m, l), for a function
        that needs them (`of_points`).
        """
        if self.constant is not None and unit is not None:
            parts = linear_values(parts[0], unit, self.constant)
        if self.kind == "linear":
            return parts[0]
        if self.kind == "sigmoid":
            return np.asarray(0.5 + 0.5 * np.tanh(0.5 * parts[0]))
        if self.kind == "response":
            return np.asarray(parts[0] + (self.low + self.high) / 2)
        if self.kind in _BAYES:
            scores = self._scores(parts, unit)
            return scores[1] - scores[0] if len(scores) == 2 else np.moveaxis(scores, 0, -1)
        if self.kind == "ratio":
            middle, radius = (self.low + self.high) / 2, (self.high - self.low) / 2
            safe = np.where(parts[1] > 0, parts[1], np.inf)
            return np.asarray(np.clip(middle + radius * parts[0] / safe, self.low, self.high))
        stacked = np.stack(parts, axis=-1)
        if self.kind == "one-vs-rest":
            return np.asarray(2 * stacked - stacked.sum(axis=-1, keepdims=True))
        return np.asarray(stacked)

    def decisions(
        self, parts: Sequence[FloatArray], unit: FloatArray | None, noise: Sequence[float]
    ) -> FloatArray:
        """What decides between classes: above zero for the second of two, or the largest column.

        Of naive Bayes the log odds of the second of two classes, of more the logarithms of their
        probabilities; of "sigmoid" the log odds; of anything else the values.

        Parameters
        ----------
        parts, unit
            As of `values`.
        noise : sequence of float
            The standard deviation of the noise of each part, in its order.
        """
        if self.kind == "sigmoid":
            return Combination(constant=self.constant).values(parts, unit)
        if self.kind not in _BAYES:
            return self.values(parts, unit)
        logs = self._log_scores(parts, unit, noise)
        if len(logs) == 2:
            return np.asarray(logs[1] - logs[0])
        logs = logs - logs.max(axis=0)
        return np.moveaxis(logs - np.log(np.exp(logs).sum(axis=0)), 0, -1)

    def probabilities(self, decisions: FloatArray) -> FloatArray:
        """Probabilities (m, classes), from `decisions` that are log odds or log probabilities."""
        if self.several:
            return np.asarray(np.exp(decisions))
        return np.stack([0.5 - 0.5 * np.tanh(0.5 * decisions),
                         0.5 + 0.5 * np.tanh(0.5 * decisions)], axis=-1)  # fmt: skip

    def _log_scores(
        self, parts: Sequence[FloatArray], unit: FloatArray | None, noise: Sequence[float]
    ) -> FloatArray:
        """One for each class but for a number that all have in common, (classes, m)."""
        axes, classes = len(self.peaks), len(self.classes)
        if self.kind == "gaussian-naive-bayes" and unit is not None:
            moments = parts[0].reshape(classes, 1 + 2 * axes)
            return gaussian_log_scores(moments, unit - 0.5, self.floors, noise[0])
        sums = np.reshape(parts[: axes * classes], (axes, classes, *parts[0].shape))
        of_sums = np.reshape(noise[: axes * classes], (axes, classes))
        return kernel_log_scores(sums, parts[-1], self.peaks, self.floors, [*of_sums, noise[-1]])

    def _scores(self, parts: Sequence[FloatArray], unit: FloatArray | None) -> FloatArray:
        """One for each class, (classes, m)."""
        axes, classes = len(self.peaks), len(self.classes)
        if self.kind == "gaussian-naive-bayes" and unit is not None:
            moments = parts[0].reshape(classes, 1 + 2 * axes)
            return gaussian_scores(moments, unit - 0.5, self.peaks, self.floors)
        sums = np.reshape(parts[: axes * classes], (axes, classes, *parts[0].shape))
        return kernel_scores(sums, parts[-1], self.peaks, self.floors)

    @property
    def of_points(self) -> bool:
        """Whether its values depend on a point besides through the arrays."""
        return self.kind == "gaussian-naive-bayes" or self.constant is not None

    @property
    def several(self) -> bool:
        """Whether a point has one value for each class."""
        several = self.kind in _BAYES and len(self.classes) > 2
        return several or self.kind in ("stack", "one-vs-rest")

    @property
    def log_odds(self) -> bool:
        """Whether `decisions` are log odds, or logarithms of probabilities, by its kind alone."""
        return self.kind in (*_BAYES, "sigmoid")

    @property
    def columns(self) -> list[str]:
        """Names of the values' columns in a table: "value", or one for each class."""
        return self.columns_of("value")

    def columns_of(self, answer: Answer) -> list[str]:
        """Names of an answer's columns in a table: "value", "value_no", "probability_no"."""
        if answer == "probability":
            return [f"probability_{label}" for label in self.classes]
        return [f"value_{label}" for label in self.classes] if self.several else ["value"]

    @property
    def threshold(self) -> float:
        """The value above which the second of two classes is decided for."""
        return 0.5 if self.kind == "sigmoid" else 0.0

    def interval(
        self, parts: Sequence[FloatArray], errors: Sequence[float]
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of a ratio where each array errs by at most its bound.

        The extremes of ``a / b`` over a box with b > 0 are at its corners; where b may be zero or
        below, the whole range.
        """
        middle, radius = (self.low + self.high) / 2, (self.high - self.low) / 2
        sure = parts[1] > errors[1]
        safe = np.where(sure, parts[1], 2 * errors[1] + 1)
        corners = [
            middle + radius * (parts[0] + a * errors[0]) / (safe + b * errors[1])
            for a, b in itertools.product((-1, 1), repeat=2)
        ]
        low = np.where(sure, np.min(corners, axis=0), self.low)
        high = np.where(sure, np.max(corners, axis=0), self.high)
        return np.clip(low, self.low, self.high), np.clip(high, self.low, self.high)

    def error(self, errors: Sequence[float]) -> float:
        """Bound on the error of any value, from bounds on those of the arrays."""
        if self.kind == "ratio":
            return self.high - self.low
        if self.kind == "sigmoid":  # whose slope is at most a quarter
            return min(0.25 * errors[0], 1.0)
        if self.kind in _BAYES:
            each = [self._score_error(errors, i) for i in range(len(self.classes))]
            return sum(each) if len(each) == 2 else max(each)
        return sum(errors) if self.kind == "one-vs-rest" else max(errors)

    def _score_error(self, errors: Sequence[float], index: int) -> float:
        if self.kind == "gaussian-naive-bayes":
            return gaussian_score_error(errors[0], self.peaks, self.floors)
        sums = errors[index : -1 : len(self.classes)]
        return kernel_score_error(sums, errors[-1], self.peaks)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        content = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
            if value not in ((), None)
        }
        if self.kind not in ("ratio", "response"):
            del content["low"], content["high"]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Combination:
        """What `to_dict` wrote."""
        facts: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in content.items()
        }
        return cls(**facts)


def linear_values(weights: FloatArray, unit: FloatArray, constant: float) -> list[FloatArray]:
    """Values of linear functions at points of the unit cube, shape (..., l).

    Of each function in turn the weights of the coordinates and, unless it is zero, that of the
    constant.

    Examples
    --------
    >>> linear_values(np.array([1.0, 2.0, 3.0]), np.array([[0.5, 0.25]]), 1.0)[0].tolist()
    [4.0]
    """
    axes = unit.shape[-1]
    each = weights.reshape(-1, axes + (constant > 0))
    return [
        np.asarray(unit @ own[:axes] + (constant * own[axes] if constant else 0.0)) for own in each
    ]
