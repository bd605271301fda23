"""Evaluate a released polynomial at many points (Algorithm 1, lines 7 and 8)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.pieces import Pieces, resample
from dbern.combination import Combination
from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.types import FloatArray

LEAST_RESAMPLED = 1 << 15
"""Points of one request from which resampling pays for its table, at any dimension and k."""

_LEAST_WORK = 1 << 19  # points times nodes of their axes: some milliseconds of matrix products
_TABLE_POINTS = 8  # as many points a node take the matrix products as long as the table

_WORK_VALUES = 1 << 21  # numbers in flight at a time: 16 MiB, inside the cache of a server
_GRID_VALUES = 1 << 19  # of an unfinished grid: 4 MiB, and as much twice or thrice on the way
_SHARE = 1 << 16  # least points that are worth a thread


class Polynomial:
    """A polynomial over a domain, evaluated the faster way.

    A request of fewer points than `least_resampled` is evaluated by matrix products (`evaluate`). A
    larger one goes by pieces, whose error is at most 1e-9 of the largest value (`resample`), unless
    their table would be too large. Which way depends on the size of the request and the lattice
    alone, so the same request has the same answer.

    Parameters
    ----------
    bernstein : array (k_1 + 1, .., k_l + 1)
        Plain Bernstein coefficients.
    domain : Domain
        The box that the unit cube stands for.
    """

    def __init__(self, bernstein: FloatArray, domain: Domain) -> None:
        self.bernstein = bernstein
        self._domain = domain
        self._lock = Lock()
        self._resampled: list[Pieces | None] = []  # empty until it is wanted

    def __call__(self, points: FloatArray, total: int, threads: int = 1) -> FloatArray:
        """Evaluate points (m, l) in data units, a part of a request of `total`; NaN outside."""
        large = total >= least_resampled(self.bernstein.shape)
        pieces = self._pieces() if large else None
        if pieces is None:
            values = np.full(len(points), np.nan)
            inside = self._domain.inside(points)
            unit = np.clip(self._domain.to_unit(points[inside]), 0.0, 1.0)
            values[inside] = evaluate(self.bernstein, unit)
            return values
        from dbern.synopsis.compiled import evaluate_pieces

        low, high = zip(*((axis.low, axis.high) for axis in self._domain.axes), strict=True)
        shares = min(threads, len(points) // _SHARE)
        if shares < 2:
            return evaluate_pieces(pieces, points, low, high)
        with ThreadPoolExecutor(shares) as pool:
            parts = np.array_split(points, shares)
            done = pool.map(lambda part: evaluate_pieces(pieces, part, low, high), parts)
            return np.concatenate(list(done))

    def grid(self, axes: Sequence[FloatArray]) -> FloatArray:
        """Return the polynomial on the product grid of `axes`, positions of the unit interval."""
        return _evaluate_grid(self.bernstein, axes)

    def _pieces(self) -> Pieces | None:
        with self._lock:
            if not self._resampled:
                self._resampled.append(resample(self.bernstein))
            return self._resampled[0]


def least_resampled(shape: Sequence[int]) -> int:
    """Return the points of one request from which on it goes by pieces; ``k + 1`` along each axis.

    Examples
    --------
    >>> least_resampled((13,)), least_resampled((201, 201)), least_resampled((201, 201, 201))
    (32768, 3216, 32768)
    """
    if len(shape) > 2:  # whose tables take as long as so many points
        return LEAST_RESAMPLED
    nodes = sum(shape)
    return min(LEAST_RESAMPLED, max(_LEAST_WORK // nodes, _TABLE_POINTS * nodes))


def available_cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def evaluate(bernstein: FloatArray, points: FloatArray) -> FloatArray:
    """Evaluate ``sum_v a_v prod_i b_{v_i,k_i}(y_i)`` for a block of points.

    Parameters
    ----------
    bernstein : array (k_1 + 1, .., k_l + 1)
        Plain Bernstein coefficients: the iterated operator is already applied (`iterate`).
    points : array (m, l)
        Points of the unit cube.

    Returns
    -------
    array (m,)

    Examples
    --------
    >>> evaluate(np.array([0.0, 0.5, 1.0]), np.array([[0.25]])).tolist()
    [0.25]
    """
    values = np.empty(len(points))
    rows = max(1, _WORK_VALUES // (bernstein.size // bernstein.shape[0] + sum(bernstein.shape)))
    for first in range(0, len(points), rows):
        part = slice(first, first + rows)
        values[part] = _evaluate_block(bernstein, points[part])
    return values


def _evaluate_block(bernstein: FloatArray, points: FloatArray) -> FloatArray:
    flat = bernstein.reshape(bernstein.shape[0], -1)
    partial = bernstein_basis(points[:, 0], bernstein.shape[0] - 1) @ flat
    for axis, nodes in enumerate(bernstein.shape[1:], start=1):
        basis = bernstein_basis(points[:, axis], nodes - 1)
        partial = np.einsum("mvr,mv->mr", partial.reshape(len(points), nodes, -1), basis)
    return np.asarray(partial[:, 0])


def _evaluate_grid(bernstein: FloatArray, axes: Sequence[FloatArray]) -> FloatArray:
    """Return the polynomial on the product grid of `axes`, in little more memory than that grid."""
    found = np.empty([len(positions) for positions in axes])
    _fill(found, bernstein, axes, ())
    return found


def _fill(
    found: FloatArray, values: FloatArray, axes: Sequence[FloatArray], place: tuple[slice, ...]
) -> None:
    """One product per axis, each by so many positions that it is of few numbers.

    `values` has the axes still to come, then those that are done, at the positions of `place`.
    """
    positions, *others = axes
    nodes = values.shape[0]
    rows = max(1, _GRID_VALUES // max(values.size // nodes, nodes))
    for start in range(0, len(positions), rows):
        part = slice(start, start + rows)
        here = np.tensordot(values, bernstein_basis(positions[part], nodes - 1), axes=(0, 1))
        if others:
            _fill(found, here, others, (*place, part))
        else:
            found[(*place, part)] = here


# --- Which functions have probabilities


def require_probabilities(combination: Combination, target: Mapping[str, Any]) -> None:
    """Refuse a function that leaves no probabilities of its classes.

    Raises
    ------
    SpecError
        Which says what does.
    """
    if not combination.classes:
        raise SpecError("probabilities: this function has no classes. Ask for its values")
    if combination.log_odds or combination.meaning(target) == "log-odds":
        return
    if target.get("release") == "joint":
        raise SpecError(
            "probabilities: a joint release is the difference of two scores, which do not follow "
            'from it. Release naive Bayes with release = "factored", or ask for decisions'
        )
    raise SpecError(
        f"probabilities: a {target['kind']} of {len(combination.classes)} classes has none. Use "
        "decision_function or predict, or release naive-bayes or, of two classes, "
        "logistic-regression"
    )
