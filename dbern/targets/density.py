"""Kernel densities and Nadaraya-Watson regression.

Kernel density estimation: ``F_D(y) = (1/n) sum_i K(y - d_i)``, K a product or a Gaussian.

Its sensitivities, also for densities by group, are proved in `dbern.counting.kernel_sums`.

Nadaraya-Watson regression: a weighted mean of the responses near a point.

``F(y) = sum_i l_i K(y - d_i) / sum_i K(y - d_i)``, from two released sums over n: of responses,
centred and scaled to [-1, 1], and of ones. Their sensitivities are proved in
`dbern.counting.kernel_sums`; each takes half of the budget, which for Laplace noise is the joint
calibration: both move by at most ``2 max_t sum_v K / n``. The quotient is post-processing, cut to
the public range.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dbern.combination import Combination
from dbern.counting.kernel_sums import ALIKE, ByCategory, ByResponse, Present
from dbern.counting.measurement import Measurement
from dbern.data.domain import RecordSchema
from dbern.targets.bandwidths import Smoother
from dbern.targets.base import Way, response_of
from dbern.targets.predicted_functions import sum_notes
from dbern.targets.predictions import TypicalResponses

# --- Kernel density estimation


class KernelDensity(Smoother):
    """Density of the records over the axes, smoothed by a product kernel, or by any Gaussian.

    With ``[data.group]`` one density for each public group, all normalised by the public number of
    rows: a group's integrates to its share of the records.

    Parameters
    ----------
    bandwidth : sequence of float, or "auto"
        Per axis, in data units: standard deviation of a Gaussian, length scale of a Laplace or
        Matern kernel, half-width of a compact one. "auto": one that the released bins choose.
    covariance : sequence of sequences of float
        Instead of it: the covariance of a Gaussian, symmetric and positive definite.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.

    Raises
    ------
    SpecError
        For a bandwidth that is not positive and finite, an unknown kernel, or both a bandwidth and
        a covariance.

    Examples
    --------
    >>> KernelDensity(bandwidth=(0.5, 0.5)).get_params()
    {'bandwidth': (0.5, 0.5), 'covariance': (), 'kernel': 'gaussian'}
    """

    kind: ClassVar[str] = "kernel-density"
    uses: ClassVar[tuple[str, ...]] = ("group",)

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """One: a density, or one for each group."""
        record_weights = ByCategory(schema.group) if schema.group else ALIKE
        if self.bandwidth == "auto":
            return (self.chosen_sum("density", schema.domain, record_weights),)
        return (self.kernel_sum("density", schema.domain, record_weights),)

    def combination(self, schema: RecordSchema) -> Combination:
        """One column for each group."""
        if schema.group is None:
            return Combination()
        return Combination("stack", schema.group.categories)


# --- Nadaraya-Watson regression

_HALF = Fraction(1, 2)


class NadarayaWatson(Smoother):
    """Regression of a bounded response on the axes.

    Parameters
    ----------
    bandwidth : sequence of float
        Per axis, in data units: standard deviation of the Gaussian, length scale of Laplace and
        Matern kernels, half-width of compact ones.
    covariance : sequence of sequences of float
        Instead of it: the covariance of a Gaussian, symmetric and positive definite.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.

    Raises
    ------
    SpecError
        For a bandwidth that is not positive and finite, an unknown kernel, or both a bandwidth and
        a covariance.

    Examples
    --------
    >>> NadarayaWatson(bandwidth=[0.5]).get_params()
    {'bandwidth': (0.5,), 'covariance': (), 'kernel': 'gaussian'}
    """

    kind: ClassVar[str] = "nadaraya-watson"
    uses: ClassVar[tuple[str, ...]] = ("response",)

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """The sum of responses and the density of the records that have one."""
        response, domain = response_of(schema), schema.domain
        return (
            self.kernel_sum("numerator", domain, ByResponse(response), _HALF, "denominator"),
            self.kernel_sum("denominator", domain, Present(response), _HALF),
        )

    def combination(self, schema: RecordSchema) -> Combination:
        """The quotient, in units of the response."""
        response = response_of(schema)
        return Combination("ratio", low=response.low, high=response.high)

    def predictions(self, schema: RecordSchema, n: int, ways: Sequence[Way]) -> tuple[str, ...]:
        """Predict the excess risk on typical records, beside a constant's."""
        del n
        typical = TypicalResponses(schema.domain.dimensions, (), response_of(schema).radius)
        weights = np.column_stack([typical.wanted, np.ones(typical.places)])
        return sum_notes(typical, self.combination(schema), ways, weights)
