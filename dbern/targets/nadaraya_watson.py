"""Nadaraya-Watson regression: a weighted mean of the responses near a point.

``F(y) = sum_i l_i K(y - d_i) / sum_i K(y - d_i)``, from two released sums over n, P of v_i and Q of
``1 - v_i``, v_i the response moved to [0, 1]. They are parts of one sum of all records, which both
together move no further than (*Divided records* in `dbern.measure.kernel_sums`): so one budget pays
for both. ``P - Q`` is the sum of responses, centred and scaled to [-1, 1], and ``P + Q`` that of
ones: each has the noise of two, half of the variance that two budgets would leave. The quotient is
post-processing, cut to the public range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dbern.combination.base import Combination
from dbern.combination.responses import Quotient, Quotients, pull_scale
from dbern.data.domain import RecordSchema
from dbern.measure.record_weights import DividedResponse, InGroups, RecordWeights
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.targets.bandwidths import bandwidth_note, readable_lengths, regression_deviation
from dbern.targets.learner import DesignedStatistic, response_of
from dbern.targets.predicted_functions import Function, predicted_sums
from dbern.targets.smoother import Smoother
from dbern.targets.typical import TypicalResponses


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
        """The records that have a response, divided by it; of each group."""
        divided: RecordWeights = DividedResponse(response_of(schema))
        if schema.group is not None:
            divided = InGroups(schema.group, divided)
        return (self.kernel_sum("responses", schema.domain, divided),)

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
        weights = np.column_stack([1 + typical.explained, 1 - typical.explained]) / (2 * groups)
        predicted = predicted_sums(typical, designs, weights.repeat(groups, axis=1))
        parts, variance, exact = (columns[:, ::groups].T for columns in predicted)
        top, below = parts[0] - parts[1], parts[0] + parts[1]
        plain = np.clip((exact[0] - exact[1]) / (exact[0] + exact[1]), -1, 1)[:, None]
        whole = Function(designs[0], typical.unit, outputs=2)
        # To first order in the noise, and in mean squares of what the quotient is divided by. The
        # center of typical responses is 0. Sums and differences have twice the noise of both.
        of_below = np.sqrt(whole.variance)
        of_top = np.sqrt(np.maximum(2 * variance.sum(axis=0) - whole.variance, 0.0))
        root = np.hypot(below, of_below)
        size = np.hypot(root, pull_scale(whole.deviation))
        released = (top / size * (below / size))[:, None]
        quotient = np.divide(top, below, out=np.zeros_like(top), where=below != 0)
        moved = np.hypot(of_top, np.clip(quotient, -1, 1) * of_below) / size
        return typical.note_of_scores(released, (moved * root / size) ** 2, plain)
