"""Priestley-Chao regression: a sum over gaps (`dbern.targets.gaps`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from dbern.combination.base import Combination
from dbern.counting.measurement import Measurement
from dbern.data.domain import RecordSchema
from dbern.errors import SpecError
from dbern.targets.base import KernelName, Learner, Lengths, Positive, Way, response_of
from dbern.targets.density import axis_kernels
from dbern.targets.gaps import POSITION_BITS, GapSum
from dbern.targets.linear import of_responses
from dbern.targets.predicted_functions import predicted_sums
from dbern.targets.typical import TypicalResponses

_NARROWEST = 1e-7  # of the axis: hundreds of steps of a position


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
        proportion to it. Ten times width over n cuts few gaps of records that are spread evenly.
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

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """The one sum."""
        domain, response = schema.domain, response_of(schema)
        if domain.dimensions != 1:
            raise SpecError(
                "data.bounds: gaps have one axis. Write one column, or "
                'kind = "nadaraya-watson" in [target]'
            )
        kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
        share = self.max_gap / domain.axes[0].width
        if not _NARROWEST <= share <= 1:
            raise SpecError(
                f"target.max_gap: must be from {_NARROWEST:g} to 1 times the width of "
                f"{domain.names[0]}. Write max_gap = {domain.axes[0].width / 1000:g}"
            )
        steps = math.floor(math.ldexp(share, POSITION_BITS))
        return (GapSum(domain, response, steps, kernels),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The response."""
        return of_responses(schema)

    def predictions(self, schema: RecordSchema, n: int, ways: Sequence[Way]) -> tuple[str, ...]:
        """Predict the excess risk on typical records, beside a constant's.

        A gap at x is exponential, of mean ``1 / (n p(x))``: cut at G it is ``1 - exp(-G n p(x))``
        of that on average.
        """
        typical = TypicalResponses(1, (), response_of(schema).radius)
        places = (np.arange(typical.count) + 0.5) / typical.count
        share = self.max_gap / schema.domain.axes[0].width
        weights = -typical.at(places[:, None]) * np.expm1(-share * n * typical.density(places))
        sums = predicted_sums(typical, ways, weights[:, None] / typical.radius, places[:, None])
        released, variance, plain = sums
        return typical.noted(released, variance[:, 0] / typical.radius**2, plain)
