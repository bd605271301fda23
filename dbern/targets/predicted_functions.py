"""Predicted risks of kernel functions of typical records, as they would be released.

A function on a lattice is linear in the released values. Without noise it is the sum of the
released translates of a kernel at each typical record (`released_translates`); the noise of a value
has a known variance at every point, from the rows that make the value of released numbers. No noise
is drawn: `dbern.targets.typical` says what scores with noise are worth.

*Naive Bayes.* The logarithm of a likelihood q with noise of deviation t, of which the released rule
knows the size r, has the variance ``t^2 / (q + r)^2`` to first order, and logarithms add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from dbern.bernstein.basis import iterated_basis
from dbern.bernstein.reproducing import rowwise_products
from dbern.certify.mean_square import typical_noise
from dbern.combination.base import Combination
from dbern.combination.class_scores import KernelScores
from dbern.combination.gaussian_scores import GaussianScores
from dbern.privacy.families import errors_of
from dbern.privacy.noise_law import NoiseLaw
from dbern.reconstruct.axis_maps import released_translates
from dbern.reconstruct.base import Strategy
from dbern.targets.learner import DesignedStatistic
from dbern.targets.typical import (
    TYPICAL_STD,
    UNPREDICTED,
    Typical,
    TypicalBayes,
)
from dbern.types import FloatArray

_EVENLY = (np.arange(64) + 0.5) / 64
_MIN_LIKELIHOOD = 1e-12
_UNPREDICTED_LISTS = ("no prediction: every axis of this naive Bayes is a list of values",)


def deviation_of(law: NoiseLaw) -> float:
    """Standard deviation of a law, in the units of values."""
    return math.ldexp(errors_of(law).covariance.deviation, law.granularity_exponent)


@dataclass(frozen=True)
class Function:
    """A function as it is released, at points of the unit cube (m, l), in data units.

    It may be the sum of several `outputs` of the statistic.
    """

    design: DesignedStatistic
    unit: FloatArray
    outputs: int = 1

    @property
    def _strategy(self) -> Strategy:
        return cast("Strategy", self.design.strategy)

    def _positions(self, unit: FloatArray) -> FloatArray:
        oblique = self.design.statistic.oblique
        return unit if oblique is None else oblique.positions(unit)

    @cached_property
    def _rows(self) -> list[FloatArray]:
        """Factors of the lattice values of each axis, (m, k + 1)."""
        orders = zip(self._strategy.lattice.k, self.design.h, strict=True)
        axes = zip(self._positions(self.unit).T, orders, strict=True)
        return [iterated_basis(y, k, h) for y, (k, h) in axes]

    @cached_property
    def variance(self) -> FloatArray:
        """Variance of the noise (m,)."""
        strategy, rows, law = self._strategy, self._rows, self.design.law
        if (joint := strategy.joint_synthesis) is not None:
            rows = [rowwise_products(rows) @ joint.reshape(-1, joint.shape[-1])]
        else:
            axes = zip(rows, strategy.axis_maps, strict=True)
            rows = [basis if axis is None else basis @ axis.synthesis for basis, axis in axes]
        squares = np.prod([np.square(factor).sum(axis=1) for factor in rows], axis=0)
        sums = np.prod([factor.sum(axis=1) for factor in rows], axis=0)
        grid_step = math.ldexp(self.design.statistic.unit, law.granularity_exponent)
        noise = errors_of(law).covariance.of_sum(self.outputs).variance(squares, sums)
        return np.asarray(grid_step**2 * np.maximum(noise, 0.0))

    @property
    def deviation(self) -> float:
        """Deviation of the noise, its root mean square over the domain."""
        grid_step = math.ldexp(self.design.statistic.unit, self.design.law.granularity_exponent)
        noise = errors_of(self.design.law).covariance.of_sum(self.outputs).scaled(grid_step)
        return typical_noise(self._strategy, self.design.h, noise)

    def translates(self, records: FloatArray, *, plain: bool) -> list[FloatArray]:
        """Kernel of each axis at records of the unit cube (r, l), as it is released: (m, r)."""
        axes = zip(self.design.statistic.kernels, self._positions(records).T, strict=True)
        if plain:
            y = self._positions(self.unit)
            return [kernel(y[:, [i]] - t) for i, (kernel, t) in enumerate(axes)]
        maps = zip(axes, self._rows, self._strategy.axis_maps, strict=True)
        return [released_translates(kernel, rows, axis, t) for (kernel, t), rows, axis in maps]


def predicted_sums(
    typical: Typical,
    designs: Sequence[DesignedStatistic],
    weights: FloatArray,
    records: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Predict kernel sums over records: the typical ones, or others.

    `weights` (records, outputs) are a record's, of each released function. Returns released values,
    the variance of their noise, and values without privacy, (m, outputs) each, in data units.
    """
    records = typical.unit if records is None else records
    outputs = [design for design in designs for _ in range(design.statistic.outputs)]
    columns = []
    for design, weight in zip(outputs, weights.T, strict=True):
        function, unit = Function(design, typical.unit), design.statistic.unit / len(records)
        released, plain = (
            unit * np.prod(function.translates(records, plain=plain), axis=0) @ weight
            for plain in (False, True)
        )
        columns.append((released, function.variance, plain))
    released, variance, plain = np.moveaxis(np.array(columns), 0, 2)
    return released, variance, plain


_MAX_TRANSLATES = 1 << 24  # of a kernel to a record: some two seconds
_MAX_LIKELIHOODS = 1 << 23


def bayes_notes(combination: GaussianScores, law: NoiseLaw) -> tuple[str, ...]:
    """Predict the share of wrong classes of Gaussian naive Bayes, and warn where it is no better.

    The released rule draws means of classes together by how much of their differences may be noise,
    ``s/(s + t)`` of variances s of the means and t of their noise, and likewise variances, which
    are the same here. A likelihood's logarithm moves by ``(u - m)/v`` times a mean's noise. There
    is no prediction for so many classes and axes that it would take many seconds, nor where there
    are lists alone.
    """
    axes, classes = len(combination.peaks), len(combination.classes)
    if not axes:
        return _UNPREDICTED_LISTS
    std = max(TYPICAL_STD / 2, *combination.floors)
    typical = TypicalBayes(axes, combination.lists, classes, std=std)
    if typical.count * classes * axes > _MAX_LIKELIHOODS:
        return UNPREDICTED
    noise, means = classes * deviation_of(law), typical.means
    of_means = (noise / 2) ** 2 * (1 + 4 * means**2)
    signal = np.square(means).mean(axis=0)
    drawn = signal / (signal + of_means.mean(axis=0))
    squares, plain = (
        np.square((typical.unit[:, None] - 0.5 - ratio * means) / std) for ratio in (drawn, 1.0)
    )
    moved = (squares * of_means * (drawn / std) ** 2).sum(axis=2).mean(axis=1)
    variance = moved + _listed_variance(noise, combination.lists)
    return typical.note_of_scores(-squares.sum(axis=2) / 2, variance, -plain.sum(axis=2) / 2)


def _listed_variance(noise: float, lists: Sequence[int]) -> float:
    """Variance of the logarithms of a class's share and of the listed values in it."""
    sizes = noise * np.array([1, *lists])
    return float(np.square(sizes / (1 + sizes)).sum())


def kernel_bayes_notes(
    combination: Combination, designs: Sequence[DesignedStatistic], axes: int
) -> tuple[str, ...]:
    """Predict the fraction of wrong classes of naive Bayes with kernels."""
    scores = combination if isinstance(combination, KernelScores) else None
    lists, classes = scores.lists if scores else (), len(combination.classes)
    if not axes:
        return _UNPREDICTED_LISTS
    typical = TypicalBayes(axes, lists, classes, rows=256)
    if typical.count**2 * axes > _MAX_TRANSLATES:
        return UNPREDICTED
    return typical.note_of_scores(
        *(_factored(typical, scores, designs) if scores else _joint(typical, designs[0]))
    )


def _class_means(
    function: Function, records: FloatArray, classes: int, *, plain: bool
) -> FloatArray:
    """Mean of kernels at each class's records, axis by axis, (axes, m, classes)."""
    axes = function.translates(records, plain=plain)
    return np.array([kernel.reshape(len(kernel), classes, -1).mean(axis=2) for kernel in axes])


def _joint(
    typical: TypicalBayes, design: DesignedStatistic
) -> tuple[FloatArray, FloatArray, FloatArray]:
    function, unit = Function(design, typical.unit), design.statistic.unit
    released, plain = (
        unit / 2 * np.prod(_class_means(function, typical.unit, 2, plain=plain), axis=0) @ [-1, 1]
        for plain in (False, True)
    )
    return released[:, None], function.variance, plain[:, None]


def _factored(
    typical: TypicalBayes, combination: KernelScores, designs: Sequence[DesignedStatistic]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scores as released, the variance of their noise, and without privacy."""
    classes, (*axes, counts) = typical.classes, designs
    of_counts = classes * deviation_of(counts.law)
    released = plain = np.zeros((typical.count, 1))
    variance = np.full(typical.count, _listed_variance(of_counts, typical.lists))
    for design, positions, floor, peak in zip(
        axes, typical.unit.T[:, :, None], combination.floors, combination.peaks, strict=True
    ):
        function, unit = Function(design, positions), design.statistic.unit
        mean_noise = classes * math.sqrt(Function(design, _EVENLY[:, None]).variance.mean())
        exact, likely = (
            np.clip(unit * _class_means(function, positions, classes, plain=plain)[0], floor, peak)
            for plain in (True, False)
        )
        plain = plain + np.log(np.maximum(exact, _MIN_LIKELIHOOD))
        released = released + np.log(likely + mean_noise)
        noise = classes**2 * function.variance[:, None] + np.square(of_counts * likely)
        variance = variance + (noise / np.square(likely + mean_noise)).mean(axis=1)
    return released, variance, plain
