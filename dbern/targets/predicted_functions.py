"""Predictions of a plan for kernel functions of typical records, as they would be released.

A function on a lattice is linear in the released values. Without noise it is the sum of the
released translates of a kernel at each typical record (`released_translates`); the noise of a value
has a known deviation at every point, from the rows that make the value of released numbers. A risk
is a mean over points, so draws at each point by itself suffice: how they go together does not
matter.

Typical records are many: neither the error of a sample nor privacy is part of a prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from dbern.bernstein.basis import iterated_basis
from dbern.bernstein.reproducing import rowwise_products
from dbern.combination.base import Combination
from dbern.combination.kernel_scores import KernelScores
from dbern.combination.responses import Ranged
from dbern.erm.risk import Loss
from dbern.erm.spaces import GaussianFeatures, GramKernel, LinearFeatures
from dbern.privacy.accuracy import public_stream, uniform
from dbern.privacy.families import covariance_of
from dbern.strategies.approximation import released_translates
from dbern.system import one_thread
from dbern.targets.base import Way
from dbern.targets.predictions import (
    FEW,
    LEAST,
    UNPREDICTED,
    Typical,
    TypicalBayes,
    deviation_of,
    draws,
    mean_of,
    normal_quantiles,
)
from dbern.types import FloatArray

_RIDGE = 1e-8  # of a Gram matrix's largest entry
_ROWS = 512
_STEPS, _HALVINGS, _NEAR = 40, 12, 2.0**-20
_EVENLY = (np.arange(64) + 0.5) / 64


@dataclass(frozen=True)
class Function:
    """A function as it is released, at points of the unit cube (m, l), in data units."""

    way: Way
    unit: FloatArray

    def _places(self, unit: FloatArray) -> FloatArray:
        oblique = self.way.measurement.oblique
        return unit if oblique is None else oblique.positions(unit)

    @cached_property
    def _rows(self) -> list[FloatArray]:
        """Factors of the lattice values of each axis, (m, k + 1)."""
        axes = zip(self._places(self.unit).T, self.way.strategy.lattice.k, self.way.h, strict=True)
        return [iterated_basis(y, k, h) for y, k, h in axes]

    @cached_property
    def deviation(self) -> FloatArray:
        """Deviation of the noise (m,); for weights that of the linear function."""
        way, rows = self.way, self._rows if self.way.h else []
        if not rows:
            _, constant = way.measurement.features or (0, 0.0)
            lengths = np.hypot(constant, np.linalg.norm(self.unit, axis=1))
            return np.asarray(deviation_of(way.law) * lengths)
        whole, maps = way.strategy.whole, way.strategy.axis_maps
        if whole is not None:
            rows = [rowwise_products(rows) @ whole.reshape(-1, whole.shape[-1])]
        else:
            pairs = zip(rows, maps, strict=True)
            rows = [own if one is None else own @ one.synthesis for own, one in pairs]
        squares = np.prod([np.square(own).sum(axis=1) for own in rows], axis=0)
        sums = np.prod([own.sum(axis=1) for own in rows], axis=0)
        noise = covariance_of(way.law).variance(squares, sums)
        granule = math.ldexp(way.measurement.unit, way.law.granularity_exponent)
        return granule * np.sqrt(np.maximum(noise, 0.0))

    def translates(self, records: FloatArray, *, plain: bool) -> list[FloatArray]:
        """Kernel of each axis at records of the unit cube (r, l), as it is released: (m, r)."""
        axes = zip(self.way.measurement.kernels, self._places(records).T, strict=True)
        if plain:
            y = self._places(self.unit)
            return [one(y[:, [i]] - t) for i, (one, t) in enumerate(axes)]
        maps = zip(axes, self._rows, self.way.strategy.axis_maps, strict=True)
        return [released_translates(one, rows, own, t) for (one, t), rows, own in maps]


def _noise(deviations: Sequence[FloatArray], draw: int) -> FloatArray:
    """Normal noise of these deviations, of parts (m,) each: (m, parts)."""
    places = uniform(public_stream("predicted", draw), sum(map(len, deviations)))
    normal = normal_quantiles(places.clip(2.0**-60, 1 - 2.0**-53)).reshape(len(deviations), -1)
    return np.asarray((normal * np.array(deviations)).T)


def _said(
    typical: Typical,
    scores: Callable[[FloatArray], FloatArray],
    released: FloatArray,
    plain: FloatArray,
    deviations: Sequence[FloatArray],
) -> tuple[str, ...]:
    """Prediction for values (points, parts), from which `scores` makes those that decide."""
    found = (scores(released + _noise(deviations, draw)) for draw in range(FEW))
    ours = mean_of([typical.risk(one) for one in found])
    return typical.note(ours, typical.risk(scores(plain)))


# --- Sums over records


def sum_notes(
    typical: Typical,
    combination: Combination,
    ways: Sequence[Way],
    weights: FloatArray,
    records: FloatArray | None = None,
) -> tuple[str, ...]:
    """Predictions for kernel sums over records: the typical ones, or others.

    `weights` (records, parts) are a record's, of each released function, over the number of
    records.
    """
    functions = [(Function(way, typical.unit), way.measurement) for way in ways]
    each = [pair for pair in functions for _ in range(pair[1].outputs)]
    places = typical.unit if records is None else records
    released, plain = (
        np.column_stack(
            [
                one.unit * np.prod(function.translates(places, plain=plain), axis=0) @ own
                for (function, one), own in zip(each, weights.T / len(places), strict=True)
            ]
        )
        for plain in (False, True)
    )
    scores = partial(_combined, combination)
    return _said(typical, scores, released, plain, [one.deviation for one, _ in each])


def _combined(combination: Combination, values: FloatArray) -> FloatArray:
    """Scores (m, q); of responses in [-1, 1]."""
    found = combination.values(list(values.T))
    if isinstance(combination, Ranged):
        found = (2 * found - combination.low - combination.high) / (
            combination.high - combination.low
        )
    return found if found.ndim == 2 else found[:, None]


# --- Minimizers of a risk


def minimizer_notes(
    typical: Typical,
    way: Way,
    space: GaussianFeatures | GramKernel | LinearFeatures,
    loss: Loss,
    cost: float,
) -> tuple[str, ...]:
    """Predictions for the minimizer of a risk; `cost` is the weight of all records."""
    typical = replace(typical, rows=_ROWS)  # what is decomposed below
    function, radius = Function(way, typical.unit), typical.radius
    gram, noiseless = _grams(function, space)
    features = np.linalg.cholesky(gram + _RIDGE * gram.diagonal().max() * np.eye(len(gram)))
    rows, labels, counts = typical.weighed(features, 1)
    plain, released = [], []
    for own in typical.targets(labels):
        with one_thread():  # threads would wait for each other longer than this takes
            state = _minimized(loss, rows, radius * own, cost * counts, _NEAR * radius)
        slopes = cost * counts * loss.derivative(radius * own, rows @ state)
        plain.append(features @ state)
        pulled = slopes.reshape(-1, len(gram)).sum(axis=0)
        released.append(plain[-1] - (noiseless - gram) @ pulled)
    ours, exact = (np.column_stack(each) / radius for each in (released, plain))
    return _said(typical, np.asarray, ours, exact, [function.deviation / radius for _ in plain])


def _grams(
    function: Function, space: GaussianFeatures | GramKernel | LinearFeatures
) -> tuple[FloatArray, FloatArray]:
    """The kernel of points with each other; and as it is released, for products over axes."""
    unit = function.unit
    if function.way.measurement.entries:
        points, constant = space.points(unit), (function.way.measurement.features or (0, 0.0))[1]
        return points @ points.T + constant**2, unit @ points.T + constant**2
    if kernels := function.way.measurement.kernels:
        top = math.prod(one.peak for one in kernels)
        plain, released = (
            np.prod(function.translates(unit, plain=plain), axis=0) / top for plain in (True, False)
        )
        return plain, released
    gram = space.kernel(space.points(unit), space.points(unit))
    return gram, gram


def _minimized(
    loss: Loss, features: FloatArray, labels: FloatArray, weights: FloatArray, near: float
) -> FloatArray:
    """The minimizer by a bounded number of Newton's steps, or near enough to predict with."""

    def value(state: FloatArray) -> float:
        return float(weights @ loss.value(labels, features @ state) + state @ state / 2)

    state = np.zeros(features.shape[1])
    for _ in range(_STEPS):
        values = features @ state
        above, slopes, below = (loss.derivative(labels, values + h) for h in (near, 0.0, -near))
        curved = weights * np.maximum(above - below, 0.0) / (2 * near)
        gradient = state + features.T @ (weights * slopes)
        hessian = np.eye(len(state)) + (features * curved[:, None]).T @ features
        step, before = -np.linalg.solve(hessian, gradient), value(state)
        along = float(gradient @ step)
        shares = (2.0**-i for i in range(_HALVINGS))
        share = next((t for t in shares if value(state + t * step) <= before + 1e-4 * t * along), 0)
        state = state + share * step
        if not share or -along <= 1e-10 * (abs(before) + near):
            break
    return state


# --- Naive Bayes


_MOST_TRANSLATES = 1 << 24  # of a kernel to a record: some two seconds


def kernel_bayes_notes(combination: Combination, ways: Sequence[Way], axes: int) -> tuple[str, ...]:
    """Predicted fraction of wrong classes of naive Bayes with kernels."""
    scores = combination if isinstance(combination, KernelScores) else None
    classes = len(combination.classes)
    typical = TypicalBayes(axes, classes, scores.lists if scores else (), rows=256)
    if (typical.count * classes) ** 2 * axes > _MOST_TRANSLATES:
        return UNPREDICTED
    made = _factored(typical, scores, ways) if scores else _joint(typical, ways[0])
    return typical.note(*made)


def _class_means(
    function: Function, records: FloatArray, classes: int, *, plain: bool
) -> list[FloatArray]:
    """Mean of kernels at each class's records, axis by axis, (m, classes)."""
    axes = function.translates(records, plain=plain)
    return [own.reshape(len(own), classes, -1).mean(axis=2) for own in axes]


def _joint(typical: TypicalBayes, way: Way) -> tuple[float, float]:
    function, unit = Function(way, typical.unit), way.measurement.unit
    released, plain = (
        unit / 2 * np.prod(_class_means(function, typical.unit, 2, plain=one), axis=0) @ [-1, 1]
        for one in (False, True)
    )
    noisy = (released + _noise([function.deviation], draw)[:, 0] for draw in range(FEW))
    return float(np.mean([typical.wrong(one) for one in noisy])), typical.wrong(plain)


def _factored(
    typical: TypicalBayes, combination: KernelScores, ways: Sequence[Way]
) -> tuple[float, float]:
    classes, (*axes, counts) = typical.classes, ways
    places = [typical.unit[:, [axis]] for axis in range(len(axes))]
    functions = [Function(way, own) for way, own in zip(axes, places, strict=True)]
    pairs = list(zip(functions, places, strict=True))
    released, plain = (
        np.hstack(
            [
                one.way.measurement.unit / classes * _class_means(one, own, classes, plain=exact)[0]
                for one, own in pairs
            ]
        )
        for exact in (False, True)
    )
    deviations = [one.deviation for one in functions for _ in range(classes)]
    even = (Function(way, _EVENLY[:, None]).deviation for way in axes)
    noise = [float(np.sqrt(np.square(one).mean())) for one in even for _ in range(classes)]
    noise.append(deviation_of(counts.law))
    exact = np.tile(typical.cells, (classes, 1)) / classes

    def wrong(sums: FloatArray, cells: FloatArray, noise: Sequence[float]) -> float:
        parts = [*sums.T, cells]
        return typical.wrong(combination.decisions(parts, typical.features, noise))

    drawn = draws(counts.law, exact.size)[:FEW]
    ours = [
        wrong(released + _noise(deviations, draw), exact.ravel() + own, noise)
        for draw, own in enumerate(drawn)
    ]
    return float(np.mean(ours)), wrong(plain, exact.ravel(), [LEAST] * len(noise))
