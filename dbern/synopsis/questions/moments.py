"""Questions about where the rows are along an axis: quantiles and means."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from dbern.errors import SpecError
from dbern.synopsis.questions.answer import Answer, Target
from dbern.synopsis.questions.asking import Asking, told_given
from dbern.synopsis.questions.functionals import Weights, mean_band, quantile_band, scaled
from dbern.synopsis.questions.measure import Band, Measure
from dbern.synopsis.questions.regions import Region


class Moments(Asking):
    """Quantiles and means; see `Distribution`."""

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
        several, each = np.ndim(levels) > 0, np.atleast_1d(np.asarray(levels, dtype=np.float64))
        if each.ndim != 1 or not len(each) or not np.all((each > 0) & (each < 1)):
            raise SpecError("quantile: levels must be between 0 and 1. Write 0.5, or [0.25, 0.75]")
        condition, weights = self._of_others(given, index), self._weights(target)
        own = self.domain.axes[index]

        def band(measure: Measure, share: Fraction) -> Band:
            view = measure.along(index, weights.others(measure, condition, index))
            between = partial(weights.between, measure, index)
            found = quantile_band(view, measure.splines[index], between, each, share / len(each))
            return scaled(found, own.low, own.width)

        labels = {"quantile": each.tolist() if several else [None]}
        asked = f"quantile {levels} of {own.name}{told_given(given)}"
        return self._asked_of(band, labels, asked, beta, own, target=target, population=population)

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
            return scaled(found, own.low, own.width)

        asked = f"mean of {own.name}{told_given(given)}"
        return self._asked_of(band, {}, asked, beta, own, population=population)
