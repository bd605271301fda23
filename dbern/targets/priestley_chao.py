"""Priestley-Chao regression: responses weighted by the gaps between the records' positions.

``F(y) = sum_{j >= 2} min(x_j - x_{j-1}, G) m_j K(y - x_j)`` over the distinct positions ``x_1 < x_2
< ..``, m_j the mean response at x_j. Its sensitivities are proved in `dbern.components.gaps`.
"""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import Field

from dbern.combination import Combination
from dbern.components.gaps import GapSum
from dbern.components.ordering import POSITION_BITS
from dbern.domain import RecordSchema
from dbern.errors import SpecError
from dbern.targets.bandwidths import axis_kernels
from dbern.targets.base import KernelName, Learner, Lengths
from dbern.targets.erm import of_responses, response_of

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
    max_gap: float = Field(
        gt=0, allow_inf_nan=False, description="max_gap = 0.001, where gaps are cut, in data units"
    )
    kernel: KernelName = Field("gaussian", description='kernel = "gaussian"')

    def components(self, schema: RecordSchema) -> tuple[GapSum, ...]:
        """The one sum."""
        domain, response = schema.domain, response_of(schema)
        if domain.dimensions != 1:
            raise SpecError(
                "data.bounds: gaps have one axis; write one column, or "
                'kind = "nadaraya-watson" in [target]'
            )
        kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
        share = self.max_gap / domain.axes[0].width
        if not _NARROWEST <= share <= 1:
            raise SpecError(
                f"target.max_gap: must be from {_NARROWEST:g} to 1 times the width of "
                f"{domain.names[0]}; write max_gap = {domain.axes[0].width / 1000:g}"
            )
        steps = math.floor(math.ldexp(share, POSITION_BITS))
        return (GapSum("prediction", domain, kernels, response, steps),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The response."""
        return of_responses(schema)
