"""Priestley-Chao regression: a sum over gaps (`dbern.learn.gaps`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from dbern.combination.base import Combination
from dbern.data.domain import RecordSchema
from dbern.data.resolution import NEAR
from dbern.errors import SpecError
from dbern.learn.gaps import POSITION_BITS, GapSum
from dbern.learn.minimizers import combine_responses
from dbern.measure.statistic import Statistic
from dbern.targets.bandwidths import axis_kernels
from dbern.targets.learner import (
    DesignedStatistic,
    KernelName,
    Learner,
    Lengths,
    Positive,
    response_of,
)
from dbern.targets.predicted_functions import predicted_sums
from dbern.targets.typical import WARNING, TypicalResponses
from dbern.types import FloatArray

_INSTEAD = 'kind = "nadaraya-watson" has less noise: plan it'
_UNROUNDED = (
    "predicted for values of {0} that are not rounded. Of rounded ones a max_gap below what they "
    "are rounded to leaves little but the middle of the response's range: state "
    f"data.resolution.{{0}}, and the plan counts it in; or {_INSTEAD}"
)
_CUT = (
    "max_gap is below the resolution: every gap is cut, and the function is drawn to the middle of "
    f"the response's range. Write max_gap = {{:g}}; or {_INSTEAD}"
)
_MIN_GAP = 1e-7  # of the axis: hundreds of steps of a position


class PriestleyChao(Learner):
    """Regression of a bounded response on one axis, by the gaps between its records.

    The integral of the response over the axis, smoothed: no density is estimated or divided by.
    Where gaps exceed `max_gap` it falls towards the middle of the response's range.

    Parameters
    ----------
    bandwidth : sequence of one float
        In data units, as of `dbern.targets.KernelDensity`.
    max_gap : float
        Where gaps are cut, in data units, from 1e-7 of the axis's width to all of it. Noise is in
        proportion to it. Ten times width over n cuts few gaps of records that are spread evenly and
        not rounded. Of rounded ones it is what they are rounded to, at least, whatever n is: below
        it every gap is cut. State that as the axis's resolution, so that a plan predicts what comes
        of it; where it warns, take `NadarayaWatson`.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.

    Raises
    ------
    SpecError
        For parameters out of range, more than one axis, or records without a response.

    Examples
    --------
    >>> PriestleyChao(bandwidth=[0.5], max_gap=0.001).kernel
    'gaussian'
    """

    kind: ClassVar[str] = "priestley-chao"
    uses: ClassVar[tuple[str, ...]] = ("response",)

    bandwidth: Lengths = Field(description="bandwidth = [0.5], a standard deviation in data units")
    max_gap: Positive = Field(description="max_gap = 0.001, where gaps are cut, in data units")
    kernel: KernelName = Field("gaussian", description='kernel = "gaussian"')

    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """The one sum."""
        domain, response = schema.domain, response_of(schema)
        if domain.dimensions != 1:
            raise SpecError(
                "data.bounds: gaps have one axis. Write one column, or "
                'kind = "nadaraya-watson" in [target]'
            )
        kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
        gap = self.max_gap / domain.axes[0].width
        if not _MIN_GAP <= gap <= 1:
            raise SpecError(
                f"target.max_gap: must be from {_MIN_GAP:g} to 1 times the width of "
                f"{domain.names[0]}. Write max_gap = {domain.axes[0].width / 1000:g}"
            )
        steps = math.floor(math.ldexp(gap, POSITION_BITS))
        return (GapSum(domain, response, steps, kernels),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The response."""
        return combine_responses(schema)

    def predictions(
        self, schema: RecordSchema, n: int, designs: Sequence[DesignedStatistic]
    ) -> tuple[str, ...]:
        """Predict the excess risk on typical records, beside a constant's.

        Of the integral that each gap stands for a part is missing where gaps are cut.
        """
        typical, axis = TypicalResponses(1, (), response_of(schema).radius), schema.domain.axes[0]
        positions = (np.arange(typical.count) + 0.5) / typical.count
        step = (axis.resolution or 0.0) / axis.width
        fraction = _uncut_fraction(n * typical.density(positions), self.max_gap / axis.width, step)
        weights = typical.explained_at(positions[:, None]) * fraction
        released, variance, plain = predicted_sums(
            typical, designs, weights[:, None] / typical.radius, positions[:, None]
        )
        notes = typical.note_of_scores(released, variance[:, 0] / typical.radius**2, plain)
        if axis.resolution is None:
            return (*notes, _UNROUNDED.format(axis.name))
        if self.max_gap < axis.resolution * (1 - NEAR):
            return (*notes, _CUT.format(axis.resolution))
        return (*notes, _INSTEAD) if WARNING in notes else notes


def _uncut_fraction(rows: FloatArray, largest: float, step: float) -> FloatArray:
    """Fraction of a typical axis that gaps cut at `largest` add up to, for a density of rows.

    Gaps are exponential, of mean 1 / rows: ``1 - exp(-G rows)`` of that on average. Of rounded rows
    a multiple of the step r has one with probability ``1 - o = 1 - exp(-r rows)``, and gaps are K
    steps with probability ``o^(K - 1) (1 - o)``: ``1 - o^j + (1 - o) (g - j) o^j``, g = G / r and j
    the whole number in it.
    """
    if not step:
        return np.asarray(-np.expm1(-largest * rows))
    steps = largest / step
    full_steps = math.floor(steps * (1 + NEAR))
    no_rows = np.exp(-full_steps * step * rows)
    last_step = max(steps - full_steps, 0.0)
    return np.asarray(1 - no_rows - last_step * np.expm1(-step * rows) * no_rows)
