"""Questions about where the rows are along axes: quantiles, means, covariances.

Proof: docs/intervals.md, "A quantile lies between two neighbours".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial

import numpy as np

from dbern.errors import SpecError
from dbern.failure import POPULATION
from dbern.synopsis.questions.answers import Answer, Target
from dbern.synopsis.questions.asking import Asking, Drawn, told_given
from dbern.synopsis.questions.covariances import spread_band
from dbern.synopsis.questions.measure import Band, Measure
from dbern.synopsis.questions.population import few, levels_of_rows
from dbern.synopsis.questions.quantiles import mean_band, quantile_band
from dbern.synopsis.questions.regions import Region
from dbern.synopsis.questions.shares import Weights
from dbern.types import FloatArray


class Moments(Asking):
    """Quantiles, means, variances and covariances; see `Distribution`."""

    def quantile(
        self,
        levels: float | Sequence[float],
        axis: str | None = None,
        *,
        given: Region | None = None,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return quantiles of an axis, in its units: of the rows, or of those in a box of others.

        Parameters
        ----------
        levels : float or sequence of float
            Between 0 and 1.
        axis : str, optional
            By name; the only one where there is one.
        given : mapping, optional
            A box of other axes.
        target, population, beta
            As for `mass`.

        Raises
        ------
        SpecError
            For levels, an axis, a box or a confidence that cannot be.
        """
        index = self._index(axis)
        several, each = np.ndim(levels) > 0, np.empty(0)
        with suppress(ValueError, TypeError):  # whose text quotes the value
            each = np.atleast_1d(np.asarray(levels, dtype=np.float64))
        if each.ndim != 1 or not len(each) or not np.all((each > 0) & (each < 1)):
            raise SpecError("quantile: levels must be between 0 and 1. Write 0.5, or [0.25, 0.75]")
        condition, weights = self._of_others(given, index), self._weights(target)
        own = self.domain.axes[index]

        def ask(measure: Measure, of: FloatArray, share: Fraction) -> Band:
            view = measure.along(index, weights.others(measure, condition, index))
            between = partial(weights.between, measure, index)
            found = quantile_band(view, measure.splines[index], between, of, share / len(of))
            return found.scaled(own.low, own.width)

        def band(measure: Measure, share: Fraction) -> Band:
            return ask(measure, each, share)

        labels = {"quantile": each.tolist() if several else [None]}
        by = " by the smoothed density" if target == "smoothed" else ""
        asked = f"quantile {levels} of {own.name}{by}{told_given(given, target)}"
        return self._asked_of(
            *(band, labels, asked, beta, own),
            target=target,
            population=population,
            drawn=_ranked(ask, each, self._within(given, index)) if target == "records" else None,
        )

    def mean(
        self,
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the mean of an axis, in its units: of the rows, or of those in a box of others.

        Parameters
        ----------
        axis, given, population, beta
            As for `quantile`.

        Raises
        ------
        SpecError
            For an axis, a box or a confidence that cannot be.
        """
        index = self._index(axis)
        condition, weights = self._of_others(given, index), Weights()
        own = self.domain.axes[index]

        def band(measure: Measure, share: Fraction) -> Band:
            view = measure.along(index, weights.others(measure, condition, index))
            found = mean_band(view, measure.splines[index], share, whole=given is None)
            return found.scaled(own.low, own.width)

        asked = f"mean of {own.name}{told_given(given)}"
        drawn = self._drawn(band, self._within(given, index), own.low, own.width)
        return self._asked_of(band, {}, asked, beta, own, population=population, drawn=drawn)

    def cov(
        self,
        axis: str,
        other: str,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the covariance of two axes, in their units, or of one with itself.

        Parameters
        ----------
        axis, other : str
            By name.
        given : mapping, optional
            A box of other axes.
        population, beta
            As for `mass`.

        Raises
        ------
        SpecError
            For an axis, a box or a confidence that cannot be.
        """
        return self._spread("covariance", axis, other, given, beta, population)

    def correlation(
        self,
        axis: str,
        other: str,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the correlation of two axes; as `cov`.

        Raises
        ------
        SpecError
            As of `cov`, and for an axis with itself.
        """
        return self._spread("correlation", axis, other, given, beta, population)

    def var(
        self,
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the variance of an axis: of the rows, not of a larger sample. As `mean`.

        Raises
        ------
        SpecError
            For an axis, a box or a confidence that cannot be.
        """
        return self._spread("variance", axis, axis, given, beta, population)

    def std(
        self,
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the standard deviation of an axis, in its units; as `var`.

        Raises
        ------
        SpecError
            For an axis, a box or a confidence that cannot be.
        """
        return self._spread("standard deviation", axis, axis, given, beta, population)

    def _spread(
        self,
        what: str,
        axis: str | None,
        other: str | None,
        given: Region | None,
        beta: float | str | None,
        population: bool,
    ) -> Answer:
        axes = list(dict.fromkeys([self._index(axis), self._index(other)]))
        correlated, root = what == "correlation", what == "standard deviation"
        if correlated and len(axes) == 1:
            raise SpecError("correlation: an axis has 1 with itself. Name two axes")
        condition = self._of_others(given, *axes)
        widths = [self.domain.axes[index].width for index in axes]
        scale = 1.0 if correlated else math.prod(widths) ** (2 // len(axes))

        def band(measure: Measure, share: Fraction) -> Band:
            others = Weights().others(measure, condition, *axes)
            found = spread_band(measure, axes, others, share, correlated=correlated)
            found = found.scaled(0.0, scale)
            return Band(*map(np.sqrt, found)) if root else found

        names = " and ".join(self.domain.names[index] for index in axes)
        asked = f"{what} of {names}{told_given(given)}"
        return self._asked_of(band, {}, asked, beta, population=population)


def _ranked(
    ask: Callable[[Measure, FloatArray, Fraction], Band],
    levels: FloatArray,
    within: Callable[[Measure, Fraction], float],
) -> Drawn:
    """Ask quantiles of a population by those of the rows at other levels."""

    def drawn(measure: Measure, share: Fraction) -> tuple[Band, bool]:
        rows = within(measure, share * POPULATION["rows"])
        ends = levels_of_rows(levels, rows, share * POPULATION["sampling"])
        value = ask(measure, levels, share).value  # a guess, without a claim
        low, high = (ask(measure, one, share * POPULATION["answer"] / 2) for one in ends)
        told = Band.without_error(np.clip(value, low.low, high.high), low.low, high.high)
        return told, few(Band.without_error(levels, levels, levels), rows, shares=True)

    return drawn
