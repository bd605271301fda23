"""Nadaraya-Watson regression: a weighted mean of the responses near a point.

``F(y) = sum_i l_i K(y - d_i) / sum_i K(y - d_i)``, from two released sums over n: of responses,
centred and scaled to [-1, 1], and of ones. Their sensitivities are proved in
`dbern.measure.kernel_sums`; each takes half of the budget, which for Laplace noise is the joint
calibration: both move by at most ``2 max_t sum_v K / n``. The quotient is post-processing, cut to
the public range.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dbern.combination.base import Combination
from dbern.combination.responses import Quotient, Quotients, pull_scale
from dbern.data.domain import RecordSchema
from dbern.measure.record_weights import HasResponse, InGroups, RecordWeights, ResponseWeight
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.targets.bandwidths import bandwidth_note, readable_lengths, regression_deviation
from dbern.targets.learner import DesignedStatistic, response_of
from dbern.targets.predicted_functions import Function, predicted_sums
from dbern.targets.smoother import Smoother
from dbern.targets.typical import TypicalResponses

_HALF = Fraction(1, 2)


class NadarayaWatson(Smoother):
    """Regression of a bounded response on the axes.

    With ``[data.group]`` one regression for each public group, of its own records: groups share no
    record, so all are released for what one costs.

    Parameters
    ----------
    bandwidth : sequence of float, or "auto"
        Per axis, in data units: standard deviation of the Gaussian, length scale of Laplace and
        Matern kernels, half-width of compact ones. "auto": by the public number of rows, epsilon
        and the number of axes, as `dbern.targets.bandwidths` says.
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
    chooses: ClassVar[bool] = True
    uses: ClassVar[tuple[str, ...]] = ("response", "group")

    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """The sum of responses and the density of the records that have one; of each group."""
        response, domain, group = response_of(schema), schema.domain, schema.group
        by_response: RecordWeights = ResponseWeight(response)
        present: RecordWeights = HasResponse(response)
        if group is not None:
            by_response, present = InGroups(group, by_response), InGroups(group, present)
        return (
            self.kernel_sum("numerator", domain, by_response, _HALF, "denominator"),
            self.kernel_sum("denominator", domain, present, _HALF),
        )

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> NadarayaWatson:
        """Return it with its bandwidth; groups are taken to be as large as one another."""
        if self.bandwidth != "auto":
            return self
        domain, groups = schema.domain, len(schema.group.categories) if schema.group else 1
        deviation = regression_deviation(n / groups, float(charge.epsilon), domain.dimensions)
        lengths = readable_lengths(self.kernel, domain, deviation)
        return NadarayaWatson(**self.get_params() | {"bandwidth": lengths})

    def notes(self, n: int) -> tuple[str, ...]:
        """The bandwidth, which may have been chosen."""
        del n
        return bandwidth_note(self.bandwidth)

    def combination(self, schema: RecordSchema) -> Combination:
        """The quotient, in units of the response, or one for each group."""
        response = response_of(schema)
        low, high = response.low, response.high
        if schema.group is None:
            return Quotient(low=low, high=high)
        return Quotients(low=low, high=high, classes=schema.group.categories)

    def predictions(
        self, schema: RecordSchema, n: int, designs: Sequence[DesignedStatistic]
    ) -> tuple[str, ...]:
        """Predict the excess risk on typical records, beside a constant's."""
        del n
        typical = TypicalResponses(schema.domain.dimensions, (), response_of(schema).radius)
        groups = len(schema.group.categories) if schema.group else 1  # as large as one another
        weights = np.column_stack([typical.explained, np.ones(typical.count)]) / groups
        predicted = predicted_sums(typical, designs, weights.repeat(groups, axis=1))
        sums, variance, exact = (columns[:, ::groups] for columns in predicted)
        plain = np.clip(exact[:, :1] / exact[:, 1:], -1, 1)
        # To first order in the noise, and in mean squares of what the quotient is divided by. The
        # center of typical responses is 0.
        (top, below), deviations = sums.T, np.sqrt(variance).T
        root = np.hypot(below, deviations[1])
        size = np.hypot(root, pull_scale(Function(designs[1], typical.unit).deviation))
        released = (top / size * (below / size))[:, None]
        moved = np.hypot(deviations[0], np.clip(top / below, -1, 1) * deviations[1]) / size
        return typical.note_of_scores(released, (moved * root / size) ** 2, plain)
