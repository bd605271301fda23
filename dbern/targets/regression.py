"""Nadaraya-Watson regression: a weighted mean of the responses near a point.

``F(y) = sum_i l_i K(y - d_i) / sum_i K(y - d_i)``, from two released sums over n: of responses,
centred and scaled to [-1, 1], and of ones. Their sensitivities are proved in `dbern.targets.sums`;
each takes half of the budget, which for Laplace noise is the joint calibration: both move by at
most ``2 max_t sum_v K / n``. The quotient is post-processing, cut to the public range.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from pydantic import Field

from dbern.combination import Combination
from dbern.domain import RecordSchema, Response
from dbern.errors import SpecError
from dbern.targets.base import KernelName, Learner, Lengths
from dbern.targets.sums import KernelSum, axis_kernels
from dbern.targets.weighings import ByResponse, Present

_HALF = Fraction(1, 2)


class NadarayaWatson(Learner):
    """Regression of a bounded response on the axes.

    Parameters
    ----------
    bandwidth : sequence of float
        Per axis, in data units: standard deviation of the Gaussian, length scale of Laplace and
        Matern kernels, half-width of compact ones.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.

    Raises
    ------
    SpecError
        For a bandwidth that is not positive and finite, or an unknown kernel.

    Examples
    --------
    >>> NadarayaWatson(bandwidth=[0.5]).get_params()
    {'bandwidth': (0.5,), 'kernel': 'gaussian'}
    """

    kind: ClassVar[str] = "nadaraya-watson"
    uses: ClassVar[tuple[str, ...]] = ("response",)

    bandwidth: Lengths = Field(
        description="bandwidth = [0.5, 0.5], one standard deviation per axis in data units"
    )
    kernel: KernelName = Field("gaussian", description='kernel = "gaussian"')

    def components(self, schema: RecordSchema) -> tuple[KernelSum, ...]:
        """The sum of responses and the density of the records that have one."""
        response, domain = _response(schema), schema.domain
        kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
        unit = 1 / domain.volume
        return (
            KernelSum("numerator", domain, kernels, ByResponse(response), unit, _HALF),
            KernelSum("denominator", domain, kernels, Present(response), unit, _HALF),
        )

    def combination(self, schema: RecordSchema) -> Combination:
        """The quotient, in units of the response."""
        response = _response(schema)
        return Combination("ratio", low=response.low, high=response.high)


def _response(schema: RecordSchema) -> Response:
    if schema.response is None:
        raise SpecError(
            "data.response: is missing; write [data.response] with column and bounds = [-1.0, 1.0]"
        )
    return schema.response
