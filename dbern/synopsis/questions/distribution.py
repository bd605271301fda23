"""``Distribution``: released bins, asked anything; every answer is post-processing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dbern.combination import KERNEL_BAYES, Combination
from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.privacy.budget import PrivacyUnit
from dbern.synopsis.arrays import ReleasedArray, ReleasedVector
from dbern.synopsis.points import confidence
from dbern.synopsis.questions.asking import Response
from dbern.synopsis.questions.confidence import Account
from dbern.synopsis.questions.functionals import sampled
from dbern.synopsis.questions.landscape import Landscape
from dbern.synopsis.questions.measure import Measure
from dbern.synopsis.questions.moments import Moments
from dbern.synopsis.questions.responses import Responses
from dbern.synopsis.questions.shares import Shares
from dbern.synopsis.questions.splines import AxisSplines
from dbern.types import FloatArray


def distribution_of(
    arrays: Sequence[ReleasedArray | ReleasedVector],
    combination: Combination,
    domain: Domain,
    facts: Mapping[str, Any],
    axis: str | None = None,
) -> Distribution:
    """Return the distribution that released arrays tell, of all axes or of one.

    Raises
    ------
    SpecError
        Where they are not bins that count rows on all axes.
    """
    if "random_dp" in facts:
        raise SpecError(
            "distribution: a release under random differential privacy answers for its own points "
            "alone. Release a kernel density"
        )
    if axis is not None:
        if axis not in domain.names:
            raise SpecError(f"axis: {axis!r} is none. Write one of {', '.join(domain.names)}")
        domain = domain.axis(domain.names.index(axis))
    functions = [one for one in arrays if type(one) is ReleasedArray]
    counting = [one for one in functions if one.counted_in == one.name and one.bins]
    whole = [one for one in counting if one.axes == domain.names]
    if not whole or combination.kind not in ("linear", "stack", "ratio", KERNEL_BAYES):
        raise SpecError(
            "distribution: what was released does not count rows by bins. Release a kernel "
            'density, or a regression, with noise = "binned-laplace" (what "auto" takes where few '
            "axes are smooth); of naive Bayes ask one axis, distribution(axis); of a shape ask the "
            "synopsis itself"
        )
    if any(one.oblique is not None for one in whole):
        raise SpecError(
            "distribution: bins of oblique coordinates do not tell boxes. Release with "
            "bandwidth = [..] in place of covariance"
        )
    measures = [_measure(one, stream) for stream, one in enumerate(whole)]
    response = None
    if combination.kind == "ratio":
        weighed = _measure(next(one for one in functions if one is not whole[0]), 1)
        if weighed.splines == measures[0].splines:
            response = Response(weighed, combination.low, combination.high)
    rows = facts["target"].get("n") or facts["target"]["normalizer"]
    grouped = combination.kind in ("stack", KERNEL_BAYES)
    groups = combination.classes if grouped else (None,)
    unit_rows = PrivacyUnit.shown(facts["unit"]).max_contributions
    return Distribution(
        *(facts["name"], domain, tuple(measures), tuple(groups), float(rows)),
        *(whole[0].kernels, unit_rows),
        response=response,
        choices=whole[0].approximation.choices,
    )


def _measure(array: ReleasedArray, stream: int) -> Measure:
    splines = tuple(AxisSplines(bins.cells, bins.degree) for bins in array.bins)
    released = array.released / array.value_unit
    return Measure(released, splines, array.law, array.released_error, stream)


class Distribution(Shares, Moments, Landscape, Responses):
    """The rows of a release, as far as their bins tell them. Make one with `Synopsis.distribution`.

    Ask it for shares, counts, quantiles and means. Each answer has a value and an interval, which
    holds with probability ``1 - beta`` for all entries of that answer at once, whatever the rows:
    of several answers together only within `confidence`. Rows that are missing or outside the
    bounds under "drop" do not count: shares are of the counted rows, for each group of its own.

    Attributes
    ----------
    name : str
    domain : Domain
        Axes and bounds.
    groups : tuple
        Labels of the groups; (None,) without any.
    rows : float
        The public number of rows, or the normalizer, that counts are multiples of.
    kernels : tuple of Kernel
        Of the released density, in the unit cube.
    unit_rows : int
        The most rows of a unit of privacy.
    account : Account, optional
        What its answers share of beta.
    response : Response, optional
        Of a regression: what was released of its responses.
    choices : int
        How many kernels the released one was chosen from: "smoothed" answers cover whichever.
    """

    def confidence(self, beta: float | str = 0.05, questions: int | None = None) -> Together:
        """Return a context in which all answers hold at once with probability ``1 - beta``.

        Parameters
        ----------
        questions : int, optional
            How many there will be; each gets as much of beta. Without it the i-th gets
            ``beta / (i (i + 1))``. A question may name its own ``beta``, which is taken off.

        Raises
        ------
        SpecError
            For a beta outside (0, 1), or less than one question.

        Examples
        --------
        ``with d.confidence(0.05, questions=2) as c: both = c.mean(), c.quantile(0.5)``
        """
        if questions is not None and questions < 1:
            raise SpecError(f"questions = {questions}: write how many there will be, at least 1")
        return Together(self, Account(confidence(beta), questions))

    def sample(self, n: int, seed: int = 0) -> FloatArray:
        """Draw points (n, l), in data units, about as the rows are: synthetic, for trying things.

        A bin by its weight, none below zero, and a place by its spline's law, a sum of uniform
        numbers, mirrored at the bounds. Variances are larger by about ``(degree + 1) / 6`` squared
        cells an axis, and no interval is told. Of groups, the first.

        Parameters
        ----------
        n : int
        seed : int
            Points of one seed are the same everywhere.

        Raises
        ------
        SpecError
            For a count that is not above 0.
        """
        if not 1 <= n == int(n) or not 0 <= seed == int(seed):
            raise SpecError(
                f"n = {n}: write how many points to draw, at least 1; the seed is not negative"
            )
        unit = sampled(self.measures[0], n, seed)
        return np.column_stack(
            [axis.at(column) for axis, column in zip(self.domain.axes, unit.T, strict=True)]
        )


@dataclass(frozen=True)
class Together:
    """A context of several questions; see `Distribution.confidence`."""

    distribution: Distribution
    account: Account

    def __enter__(self) -> Distribution:
        return replace(self.distribution, account=self.account)

    def __exit__(self, *_error: object) -> None:
        return None
