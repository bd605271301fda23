"""Means of an axis, of all rows or of those in a box of other axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from dbern.data.domain import Axis
from dbern.synopsis.question_options import MEAN
from dbern.synopsis.questions.band import Band
from dbern.synopsis.questions.conditional import HIGH, LOW, NEAR, layer_weights
from dbern.synopsis.questions.envelopes.splines import AxisSplines, Envelope
from dbern.synopsis.questions.interval import undenied_quotients
from dbern.synopsis.questions.linear_family import LinearFamily, quotient_or_half
from dbern.synopsis.questions.noisy_measure import BinView, NoisyMeasure
from dbern.synopsis.questions.question import (
    CommonOptions,
    DeferredQuestion,
    OptionQuestion,
    deferred,
)
from dbern.synopsis.questions.regions import Boxes, Region, Weights, condition_text
from dbern.synopsis.questions.released_bins import ReleasedBins
from dbern.synopsis.questions.undenied_points import GRID_POINTS, GridPoints, bracket
from dbern.types import BoolArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Mean(OptionQuestion):
    """Mean of an axis, in its units, of the rows that a condition on the others holds."""

    option = MEAN
    axis: Axis
    index: int
    condition: Boxes
    of_all_rows: bool

    @classmethod
    def read(cls, bins: ReleasedBins, name: str | None, condition: Region | None = None) -> Mean:
        """Read an axis and a condition."""
        index = bins.axis_index(name)
        box, axis = bins.read_condition(condition, index), bins.domain.axes[index]
        return cls(
            bins=bins, text=f"mean of {axis.name}{condition_text(condition)}",
            axis=axis, index=index, condition=box, of_all_rows=condition is None,
        )  # fmt: skip

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        condition = Weights().other_axes(measure, self.condition, self.index)
        view, splines = measure.conditional(self.index, condition), measure.splines[self.index]
        mean = _mean_band(view, splines, beta, of_all_rows=self.of_all_rows)
        return mean.scaled(self.axis.low, self.axis.width)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        low, width = self.axis.low, self.axis.width
        return self._are_means_of_few_rows(measure, beta, self.condition, low, width)

    @classmethod
    def from_text(
        cls, _text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Ask about each axis without a condition."""
        return [
            deferred(partial(cls.read, bins, name, options.condition))
            for name in options.unconditioned(bins.domain.names)
        ]


def _mean_band(view: BinView, splines: AxisSplines, beta: Fraction, *, of_all_rows: bool) -> Band:
    """Return the mean of t, which is a spline: of all rows a quotient, without any gap.

    Under a condition G: with ``P = sum_j max(s_j - mu, 0) beta_j`` and ``N = sum_j max(mu - s_j, 0)
    beta_j``, both nonnegative, s_j the coefficients of t, ``(t - mu) 1_G = P 1_G - N 1_G`` is at
    most ``P U_G - N L_G`` and at least ``P L_G - N U_G``: points mu of a public grid are denied or
    not as shares up to points are (`bracket`).
    """
    t, ones = splines.centers, np.ones(splines.count)
    sum_of_t, row_count = layer_weights({NEAR: t}), layer_weights({NEAR: ones})
    total = view.of(row_count)
    estimate = quotient_or_half(view.of(sum_of_t), total)
    if of_all_rows:
        family = LinearFamily.of_weights(view, sum_of_t, row_count)
        return undenied_quotients(estimate, family, family, view.measure, beta)
    points = np.linspace(0.0, 1.0, GRID_POINTS + 1)[:, None]
    more, less = np.maximum(t - points, 0.0), np.maximum(points - t, 0.0)
    # Integrals of t - mu fall as mu grows: signs are those of shares up to a point, reversed.
    sides = Envelope(
        layer_weights({LOW: less, HIGH: -more}),
        layer_weights({NEAR: less - more}),
        layer_weights({HIGH: less, LOW: -more}),
    )
    coarse = GridPoints(np.arange(len(points)), sides)
    ends = bracket(view, coarse, sides.select, None, 0.0, beta)[:2]
    low, high = (end / GRID_POINTS for end in ends)
    value = np.clip(estimate, low, high)
    distance = np.abs(t - value)
    gap = layer_weights({HIGH: distance, LOW: -distance})
    cells = np.maximum(quotient_or_half(view.of(gap), total), 0.0)
    return Band(value, np.array([low]), np.array([high]), cells)
