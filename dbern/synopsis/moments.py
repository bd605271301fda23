"""``ReleasedMoments``: least squares after the release, of any response and columns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Literal

import numpy as np

from dbern.combination.least_squares import LeastSquares
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError, printable
from dbern.reconstruct.moments import product_names
from dbern.reconstruct.noisy_least_squares import Fit, coefficient_intervals, least_squares
from dbern.reconstruct.noisy_moments import NoisyMoments
from dbern.synopsis.component import VectorComponent
from dbern.synopsis.readable_store import ReadableStore
from dbern.synopsis.regression import Regression, columns_of
from dbern.synopsis.vectors import ReleasedVector
from dbern.types import FloatArray


@dataclass(frozen=True)
class _Column(Axis):
    """Response or product of columns: no array of a store has its name, so it may be any."""

    def __post_init__(self) -> None:
        """Check nothing: the metadata's bounds were checked with it."""


_HIDDEN = (
    "no intervals: the noise hides how the columns vary, or what tells them apart. Write bounds "
    "nearer to the records, fewer columns or a larger epsilon"
)


class ReleasedMoments(ReleasedVector):
    """Moments of which a combination takes the weights of the least-squares function."""

    def __init__(
        self,
        store: ReadableStore,
        name: str,
        component: VectorComponent,
        domain: Domain,
        combination: LeastSquares,
    ) -> None:
        super().__init__(store, name, component)
        response = _Column(combination.response, combination.low, combination.high)
        columns = [axis.name for axis in domain.numeric]
        names = product_names(columns) if combination.degree == 2 else []
        products = tuple(_Column(name, -1.0, 1.0) for name in names)
        self._pairs = dict(
            zip(names, itertools.combinations_with_replacement(columns, 2), strict=False)
        )
        self._lists, self._numbers = domain.categorical, (*domain.numeric, *products, response)
        self._names = (*domain.names, response.name)
        self._combination = combination
        self._private_rows = store.released.target.n is None

    @cached_property
    def weights(self) -> FloatArray:
        """Weights of the unit cube's coordinates, and of 1, in the response's units."""
        axes = len(self._numbers) - 1 - len(self._pairs)
        return self._combination.weights(self._measured, axes)

    @cached_property
    def _measured(self) -> NoisyMoments:
        lists = tuple(len(axis.categories) for axis in self._lists)
        moments = self._combination.moments(len(self._numbers), lists)
        return NoisyMoments.of(moments, self.numbers, self.deviation(self.smoothing()))

    def regression(
        self,
        response: str | None,
        columns: Sequence[str] | None,
        ridge: Literal["auto"] | float | None,
        beta: Fraction,
    ) -> Regression:
        """Solve a regression, by the parameters of `Synopsis.regression`."""
        names = self._names
        response = names[-1] if response is None else response
        chosen = [name for name in names if name != response] if columns is None else [*columns]
        if response in [axis.name for axis in self._lists]:
            raise SpecError(
                f"regression: {printable(response)} is a list of values. Write one of numbers"
            )
        unknown = [name for name in (response, *chosen) if name not in names]
        if unknown or response in chosen or len(set(chosen)) < len(chosen):
            raise SpecError(
                f"regression: response and columns must be different ones of {', '.join(names)}"
            )
        stated = self._combination.ridge if ridge is None else ridge
        ridge_number = None if stated is None or stated == "auto" else float(stated)
        if ridge_number is not None and not 0 < ridge_number < math.inf:
            raise SpecError('ridge: must be above 0. Write ridge = "auto", or ridge = 0.01')
        chosen = [name for name in names if name in chosen] if self._pairs else chosen
        products = [name for name, pair in self._pairs.items() if set(pair) <= set(chosen)]
        target, axes = self._axis(response), tuple(map(self._axis, [*chosen, *products]))
        indices = [index for axis in axes for index in self._columns(axis)]
        (index,) = self._columns(target)
        solved = self._measured, index, indices
        to = _to_data_units([axis for axis in axes for _ in self._columns(axis)], target)
        ends = coefficient_intervals(*solved, to, float(beta), ridge_number)
        return self._in_data_units(least_squares(*solved, ridge_number), to, ends, target, axes)

    def _axis(self, name: str) -> Axis:
        return next(axis for axis in (*self._lists, *self._numbers) if axis.name == name)

    def _columns(self, axis: Axis) -> range:
        """Indices of an axis's columns among all: those of lists come first, then numbers."""
        position = [column.name for column in (*self._lists, *self._numbers)].index(axis.name)
        counts = [len(column.categories) or 1 for column in (*self._lists, *self._numbers)]
        return range(sum(counts[:position]), sum(counts[: position + 1]))

    def _in_data_units(
        self,
        fit: Fit,
        to: FloatArray,
        ends: FloatArray | None,
        target: Axis,
        axes: tuple[Axis, ...],
    ) -> Regression:
        """Convert a fit, and put intervals around it: of numbers that are drawn to zero too."""
        middle = np.append(np.zeros(len(fit.slopes)), (target.low + target.high) / 2)
        estimates = middle + to @ np.append(fit.slopes, fit.intercept)
        names = [name for axis in axes for name in columns_of(axis)]
        intervals = {}
        if ends is not None:
            low, high = np.minimum(middle + ends[:, 0], estimates), middle + ends[:, 1]
            pairs = zip(low.tolist(), np.maximum(high, estimates).tolist(), strict=True)
            intervals = dict(zip([*names, "intercept"], pairs, strict=True))
        (index,) = self._columns(target)
        resolved = fit.varied > 2 * math.sqrt(self._measured.noise[1:, 1:][index, index])
        rest = fit.varied - fit.explained
        rest = rest if rest > fit.doubt else math.nan
        return Regression(
            response=target.name,
            domain=Domain(tuple(axis for axis in axes if axis.name not in self._pairs)),
            products={a.name: self._pairs[a.name] for a in axes if a.name in self._pairs},
            intercept=float(estimates[-1]),
            coefficients=MappingProxyType(dict(zip(names, estimates[:-1].tolist(), strict=True))),
            intervals=MappingProxyType(intervals),
            note="" if intervals else _HIDDEN,
            r2=max(1 - rest / fit.varied, 0.0) if resolved else math.nan,
            residual=target.width / 2 * math.sqrt(rest),
            counted=math.nan if self._private_rows else min(self._measured.count, 1.0),
        )


def _to_data_units(columns: Sequence[Axis], target: Axis) -> FloatArray:
    """Return the matrix from slopes and intercept of columns in [-1, 1] to those in data units.

    Columns are ``(2 x - low - high) / width``, listed values 0 or 1.
    """
    radius = target.width / 2
    widths = np.array([2.0 if axis.categories else axis.width for axis in columns])
    middles = np.array([0.0 if a.categories else (a.low + a.high) / 2 for a in columns])
    to = np.zeros((len(columns) + 1,) * 2)
    to[:-1, :-1] = np.diag(2 * radius / widths)
    to[-1] = np.append(-2 * radius * middles / widths, radius)
    return to
