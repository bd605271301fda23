"""``Distribution``: released bins that answer questions; every answer is post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from dbern.ask.answer import Answer, Target
from dbern.ask.bins import NoisyMeasure
from dbern.ask.comparison import Comparison
from dbern.ask.density import Density, Marginal
from dbern.ask.moments import Correlation, Covariance, Deviation, Mean, Variance
from dbern.ask.points import Points, per_axis, read_beta
from dbern.ask.question import Question, ReleasedBins
from dbern.ask.regions import Region
from dbern.ask.responses import Average, Curve, Difference, difference_of_groups
from dbern.ask.shares import Cdf, Count, Mass, Quantile
from dbern.certify.failure import Account
from dbern.errors import SpecError
from dbern.privacy.public_numbers import public_stream, uniform
from dbern.system import memory_limit
from dbern.types import FloatArray

_BYTES_OF_DRAW = 24  # of each uniform number of a point, with temporary arrays


def read_sample_arguments(measure: NoisyMeasure, n: object, seed: object) -> tuple[int, int]:
    """Read a count of points and a seed. Raises SpecError for more than fit into memory."""
    counts = per_axis([n, seed], 2, 0, 2**63)
    if counts is None or counts[0] < 1:
        raise SpecError(
            "sample: n and seed are integers. Write how many points to draw, at least 1, and "
            "a seed that is not negative"
        )
    count, seed_number = counts
    degree = max(splines.degree for splines in measure.splines)
    largest = memory_limit() // (_BYTES_OF_DRAW * (degree + len(measure.splines) + 4))
    if count > largest:
        raise SpecError(f"sample: n = {largest} and less fit into memory. Draw several parts")
    return count, seed_number


def draw_points(measure: NoisyMeasure, count: int, seed: int) -> FloatArray:
    """Draw points (count, l) of the unit cube by the law of `Distribution.sample`."""
    stream = public_stream("questions, sample", seed)
    cumulative = np.cumsum(_nearest_measure(measure.bins.ravel()))
    if not cumulative[-1] > 0:
        raise SpecError(
            "sample: the released numbers do not sum to more than 0, so the noise hides all rows. "
            "Ask for counts, whose intervals say how many there can be"
        )
    bin_indices = np.searchsorted(cumulative, uniform(stream, count) * cumulative[-1], side="right")
    columns = []
    for splines, index in zip(
        measure.splines, np.unravel_index(bin_indices, measure.shape), strict=True
    ):
        steps = uniform(stream, count * (splines.degree + 1)).reshape(count, -1).sum(axis=1)
        t = (index - splines.degree + steps) / splines.cells
        columns.append(np.clip(1.0 - np.abs(1.0 - np.abs(t)), 0.0, 1.0))
    return np.column_stack(columns)


def _nearest_measure(values: FloatArray) -> FloatArray:
    """Project numbers (m,) to the nearest ones that are not negative and have the same sum.

    These are what exceeds a threshold. All numbers of noise above 0 together would be a
    uniform law beside that of the rows, as large as there are bins. Zeros for a sum below 0.
    """
    total, descending = float(values.sum()), np.sort(values)[::-1]
    if total <= 0:
        return np.zeros_like(values)
    thresholds = (np.cumsum(descending) - total) / np.arange(1, len(values) + 1)
    last = np.flatnonzero(descending > thresholds)[-1]
    return np.asarray(np.maximum(values - thresholds[last], 0.0))


class Distribution(ReleasedBins):
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
        The public number of rows, or the normalizer, that counts are multiples of: of a private
        number of rows a count may be above it.
    kernels : tuple of Kernel
        Of the released density, in the unit cube.
    unit_rows : int
        The most rows of a unit of privacy.
    account : Account, optional
        What its answers share of beta.
    response : ReleasedResponses, optional
        Of a regression: what was released of its responses.
    choices : int
        How many kernels the released one was chosen from: "smoothed" answers cover whichever.

    Notes
    -----
    Questions share these arguments, and raise SpecError for what cannot be. Points and ends are in
    data units, dates too.

    axis : str, optional
        By name; the only one where there is one.
    region : mapping or list
        A box ``{"x": (low, high)}``, None for an end that is open, axes that are left out whole;
        several boxes in a list, or as arrays of ends. Of two axes also polygons: GeoJSON, or what
        has a `__geo_interface__`, as shapely's have.
    given : mapping, optional
        A box, of other axes than are asked about but for a mass: then of the rows in it.
    target : "records" or "smoothed"
        "records": of the rows themselves. Bins do not tell where in a cell a row is, so sharp edges
        widen the interval. "smoothed": of the released density's integral, of which every row is a
        kernel, before edges are normalized; narrow, but no share of rows.
    population : bool
        Whether the interval is to cover the answer for those that the rows were drawn from,
        independently. Approximate: the sampling error is taken as normal; where rows are few that
        is refused.
    beta : float or str, optional
        One minus the confidence; 0.05, or what `confidence` gives.
    """

    def ask(
        self, question: Question, beta: float | str | None = None, *, population: bool = False
    ) -> Answer:
        """Answer a question of any kind about these bins."""
        return question.ask(self, beta, population=population)

    def mass(
        self,
        region: Region,
        *,
        given: Region | None = None,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the share of the counted rows in a region, or in each of many."""
        question = Mass.read(self, region, given, target)
        return self.ask(question, beta, population=population)

    def count(
        self,
        region: Region,
        *,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return how many rows are in a region, or in each of many.

        With ``population=True``: how many are expected of as many rows, drawn anew.
        """
        question = Count.read(self, region, target, population=population)
        return self.ask(question, beta, population=population)

    def cdf(
        self,
        places: float | Sequence[float],
        axis: str | None = None,
        *,
        given: Region | None = None,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the share of the rows up to each place of an axis, all at once."""
        question = Cdf.up_to(self, places, axis, given, target)
        return self.ask(question, beta, population=population)

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
        """Return quantiles of an axis, in its units, at levels between 0 and 1."""
        question = Quantile.read(self, levels, axis, given, target)
        return self.ask(question, beta, population=population)

    def mean(
        self,
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the mean of an axis, in its units."""
        return self.ask(Mean.read(self, axis, given), beta, population=population)

    def cov(
        self,
        axis: str,
        other: str,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the covariance of two axes, in their units, or of one with itself."""
        return self.ask(Covariance.read(self, axis, other, given), beta, population=population)

    def correlation(
        self,
        axis: str,
        other: str,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the correlation of two axes."""
        return self.ask(Correlation.read(self, axis, other, given), beta, population=population)

    def var(
        self,
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the variance of an axis: of the rows, not of a larger sample."""
        return self.ask(Variance.read(self, axis, axis, given), beta, population=population)

    def std(
        self,
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the standard deviation of an axis, in its units."""
        return self.ask(Deviation.read(self, axis, axis, given), beta, population=population)

    def density(
        self,
        points: Points,
        *,
        bandwidth: float | Sequence[float] | Literal["auto"] | None = None,
        kernel: str | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the kernel density at points, of any bandwidth and kernel: free, from the bins.

        A population's is smoothed by the same kernel. Intervals hold for these points, those of
        `Synopsis.interval` at every point: of many points of the released density they are taken
        where public facts tell that they are narrower.

        Parameters
        ----------
        points
            As a synopsis takes them; coordinates of xarray give a grid.
        bandwidth : float, sequence of float, or "auto", optional
            In data units, one or one an axis; that of the release. "auto" chooses one of 14 times
            the released by cross-validation of the released bins, without what their noise adds;
            the interval covers whichever it may choose.
        kernel : str, optional
            By the name that a spec gives it; that of the release.

        Raises
        ------
        SpecError
            Also for a bandwidth that the bins do not resolve: it says what is the least that they
            do.
        """
        question = Density.read(self, points, bandwidth, kernel)
        return self.ask(question, beta, population=population)

    def marginal(
        self,
        places: Sequence[float],
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the density of one axis at places: of the counted rows, or of those in a box.

        Smoothed along this axis as the release is, and along no other.
        """
        question = Marginal.read(self, places, axis, given)
        return self.ask(question, beta, population=population)

    def curve(
        self,
        points: Points,
        *,
        bandwidth: float | Sequence[float] | None = None,
        kernel: str | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the regression at points, of any bandwidth and kernel; or the shares of groups.

        The mean response of the rows around a point, each weighted by its kernel, never beyond the
        response's bounds. Of a density by group each group's share of these weights: how likely a
        row is of the group. Points, bandwidth and kernel are as of `density`, without "auto".

        Raises
        ------
        SpecError
            Also where neither responses nor groups were released.
        """
        question = Curve.read(self, points, bandwidth, kernel)
        return self.ask(question, beta, population=population)

    def curve_along(
        self,
        points: Sequence[float],
        axis: str | None = None,
        *,
        given: Region | None = None,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the regression along an axis, or the shares of groups; all at once.

        The mean response of the rows around a point of the axis, whatever they are on the others,
        or of those in a box of others. Smoothed along this axis as the release is, and along no
        other. `target` is that of the box.

        Raises
        ------
        SpecError
            Also where neither responses nor groups were released.
        """
        question = Curve.along(self, points, axis, given, target)
        return self.ask(question, beta, population=population)

    def average(
        self,
        region: Region,
        *,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the mean response of the rows in a region, or in each of many; or groups' shares.

        "smoothed": each row counts as its kernel does in the region.

        Raises
        ------
        SpecError
            Also where neither responses nor groups were released.
        """
        return self.ask(Average.read(self, region, target), beta, population=population)

    def difference(
        self,
        first: Any,
        second: Any = None,
        *,
        groups: Sequence[Any] | None = None,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the difference of `curve` or `average` between two points or regions.

        Parameters
        ----------
        first, second
            Arrays of points for `curve`, or regions for `average`; as many of either.
        groups : sequence of two groups, optional
            Of a release by group, in place of `second`: the share of one of the groups less that of
            the other; of a regression their mean responses, each at half of beta.

        Raises
        ------
        SpecError
            Also for two of different kinds or numbers, and for groups that were not released.
        """
        if (second is None) == (groups is None):
            raise SpecError("difference: write two points or regions, or one and its two groups")
        if groups is not None:
            question: Question = difference_of_groups(self, first, groups, target)
        else:
            question = Difference.read(self, first, second, target)
        return self.ask(question, beta, population=population)

    def compare(
        self,
        other: Distribution,
        region: Region,
        *,
        target: Target = "records",
        beta: float | str | None = None,
    ) -> Answer:
        """Return the share of rows in a region here less that in `other`, each at half of beta.

        `other` is the distribution of another release. "smoothed": of the two densities, both by
        the wider of their kernels.

        Raises
        ------
        SpecError
            Also for a region that is none of both, releases without a common group, and smoothed
            ones over other bounds or of other kinds of kernels.
        """
        if not hasattr(other, "mass"):
            raise SpecError("compare: write what distribution() of another release returns")
        return self.ask(Comparison.of(self, other, region, target), beta)

    def confidence(
        self, beta: float | str = 0.05, questions: int | None = None
    ) -> AbstractContextManager[Distribution]:
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
        return nullcontext(replace(self, account=Account(read_beta(beta), questions)))

    def sample(self, n: int, seed: int = 0) -> FloatArray:
        """Draw points (n, l), in data units, about as the rows are: synthetic, for trying things.

        A bin by its weight in the nearest measure to what was released that is nowhere below zero
        and has the same total, and a place by its spline's law, a sum of uniform numbers, mirrored
        at the bounds. Variances are larger by about ``(degree + 1) / 6`` squared cells an axis, and
        no interval is told. Of groups, the first.

        Parameters
        ----------
        n : int
        seed : int
            Points of one seed are the same everywhere.

        Raises
        ------
        SpecError
            For a count that is not above 0, or needs more memory than this process may use; where
            the released total is not above 0.
        """
        unit = draw_points(self.measures[0], *read_sample_arguments(self.measures[0], n, seed))
        axes = zip(self.domain.axes, unit.T, strict=True)
        return np.column_stack([axis.at(column) for axis, column in axes])
