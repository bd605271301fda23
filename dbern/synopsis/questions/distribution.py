"""``Distribution``: released bins, asked anything; every answer is post-processing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dbern.combination.base import Combination
from dbern.combination.responses import Quotient
from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.failure import Account
from dbern.privacy.budget import PrivacyUnit
from dbern.synopsis.arrays import ReleasedArray, ReleasedVector
from dbern.synopsis.points import as_numbers, confidence, per_axis
from dbern.synopsis.questions.answers import Answer, Target, cells_note
from dbern.synopsis.questions.asking import Promised, Response, one_box, told, told_given
from dbern.synopsis.questions.envelopes.splines import AxisSplines
from dbern.synopsis.questions.measure import Band, Measure
from dbern.synopsis.questions.moments import Moments
from dbern.synopsis.questions.polygons import polygons_of
from dbern.synopsis.questions.regions import Region, boxes_of
from dbern.synopsis.questions.responses import Responses
from dbern.synopsis.questions.sampling import sampled_points
from dbern.synopsis.questions.shares import box_band, regions_band
from dbern.system import memory_limit
from dbern.types import FloatArray

_BYTES_OF_DRAW = 24  # of each uniform number that a point is made of, with what computes it


def distribution_of(
    arrays: Sequence[ReleasedArray | ReleasedVector],
    combination: Combination,
    domain: Domain,
    facts: Mapping[str, Any],
    axis: str | None = None,
    promised: Promised | None = None,
) -> Distribution:
    """Return the distribution that released arrays tell, of all axes or of one.

    Raises SpecError where they are not bins that count rows on all axes.
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
    if not whole or not (combination.counts_rows or combination.by_class):
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
    if isinstance(combination, Quotient):
        weighed = _measure(next(one for one in functions if one is not whole[0]), 1)
        if weighed.splines == measures[0].splines:
            response = Response(weighed, combination.low, combination.high)
    rows = facts["target"].get("n") or facts["target"]["normalizer"]
    groups = combination.classes if combination.by_class else (None,)
    unit_rows = PrivacyUnit.shown(facts["unit"]).max_contributions
    return Distribution(
        *(facts["name"], domain, tuple(measures), tuple(groups), float(rows)),
        *(whole[0].kernels, unit_rows),
        response=response,
        choices=whole[0].approximation.choices,
        promised=promised,
    )


def _measure(array: ReleasedArray, stream: int) -> Measure:
    splines = tuple(AxisSplines(bins.cells, bins.degree) for bins in array.bins)
    released = array.released / array.value_unit
    return Measure(released, splines, array.law, array.released_error, stream)


class Distribution(Moments, Responses):
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
    promised : Promised, optional
        Where a number tells of these data.
    """

    def mass(
        self,
        region: Region,
        *,
        given: Region | None = None,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the share of the counted rows in a region, or in each of many.

        Parameters
        ----------
        region : mapping or list
            A box ``{"x": (low, high)}`` in data units, None for an end that is open, axes that are
            left out whole; several boxes in a list, or as arrays of ends. Of two axes also
            polygons: GeoJSON, or what has a `__geo_interface__`, as shapely's have.
        given : mapping, optional
            A box: then the share of the rows in it.
        target : "records" or "smoothed"
            "records": of the rows themselves. Bins do not tell where in a cell a row is, so sharp
            edges widen the interval. "smoothed": of the released density's integral, of which
            every row is a kernel; narrow, but no share of rows.
        population : bool
            Whether the interval is to cover the share of those that the rows were drawn from,
            independently. Approximate: the sampling error is taken as normal, or where rows are
            few bounded whatever its law. The answer's `law` says which.
        beta : float or str, optional
            One minus the confidence; 0.05, or what `confidence` gives.

        Raises
        ------
        SpecError
            For a region or a confidence that cannot be.
        """
        labels, band = self._shares(region, given, target, of_total=True)
        whole = "smoothed density" if target == "smoothed" else "rows"
        question = f"share of the {whole}{told_given(given, target)} in {told(region)}"
        # Smoothed, rows have parts in the condition: shares are no means of so many rows.
        exact = given is None or target == "records"
        drawn = self._drawn(band, self._within(given)) if exact else None
        return self._asked_of(
            band, labels, question, beta, target=target, population=population, drawn=drawn
        )

    def count(
        self,
        region: Region,
        *,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return how many rows are in a region, or in each of many; as for `mass`.

        With ``population=True``: how many are expected of as many rows, drawn anew.

        Raises
        ------
        SpecError
            For a region or a confidence that cannot be.
        """
        labels, shares = self._shares(region, None, target, of_total=False)

        def band(measure: Measure, share: Fraction) -> Band:
            return shares(measure, share).scaled(0.0, self.rows)

        smoothed = " by the smoothed density" if target == "smoothed" else ""
        expected = "expected " * population
        return self._asked_of(
            *(band, labels, f"{expected}rows{smoothed} in {told(region)}", beta),
            target=target,
            population=population,
            drawn=self._drawn(band, None, 0.0, self.rows),
        )

    def _shares(
        self, region: Region, given: Region | None, target: Target, *, of_total: bool
    ) -> tuple[Mapping[str, Sequence[Any]], Callable[[Measure, Fraction], Band]]:
        """Labels of the regions, and the band of their shares by measure and beta."""
        weights = self._weights(target)
        shapes = polygons_of(region, self.domain)
        if shapes is not None:
            if given is not None:
                raise SpecError("given: polygons have no condition. Write boxes")
            return {"region": shapes.labels}, lambda measure, share: regions_band(
                measure, weights.polygons(measure, shapes), share, of_total=of_total
            )
        boxes = boxes_of(region, self.domain)
        condition = None if given is None else one_box(boxes_of(given, self.domain, "given"))
        return {"region": boxes.labels}, lambda measure, share: box_band(
            measure, weights, boxes, condition, share, of_total=of_total
        )

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
        """Return the share of the rows up to each place of an axis, all at once.

        Parameters
        ----------
        places : float or sequence of float
            In data units.
        axis, given, target, population, beta
            As for `quantile`.

        Raises
        ------
        SpecError
            For places, an axis, a box or a confidence that cannot be.
        """
        own = self.domain.axes[self._index(axis)]
        numbers = np.empty(0)
        with suppress(SpecError):  # which speaks of points
            numbers = as_numbers(np.ravel(places), own.unit, Domain((own,)))
        if not (len(numbers) and ((numbers > own.low) & (numbers <= own.high)).all()):
            raise SpecError(
                f"cdf: places must be above the lower bound of {own.name}, and up to its upper one"
            )
        return self.mass(
            {own.name: (None, places)}, given=given, target=target, population=population, beta=beta
        )

    def compare(
        self, other: Distribution, region: Region, *, beta: float | str | None = None
    ) -> Answer:
        """Return the share of rows in a region here less that there, each at half of beta.

        Parameters
        ----------
        other : Distribution
            Of another release.
        region, beta
            As for `mass`.

        Raises
        ------
        SpecError
            For a region that is none of both.
        """
        if not hasattr(other, "mass"):
            raise SpecError("compare: write what distribution() of another release returns")
        level = self._beta(beta)
        parts = [replace(one, account=Account(level)) for one in (self, other)]
        here, there = (one.mass(region, beta=str(level / 2)) for one in parts)
        return Answer(
            here.value - there.value,
            here.low - there.high,
            here.high - there.low,
            *("records", "these-data", float(level)),
            f"share of the rows in {told(region)}, less that of {other.name}",
            likely_error=np.hypot(here.likely_error, there.likely_error),
            note=cells_note(None) if here.note or there.note else "",
        )

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
        return nullcontext(replace(self, account=Account(confidence(beta), questions)))

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
            For a count that is not above 0, or needs more memory than this process may use; where
            no released number is above 0.
        """
        counts = per_axis([n, seed], 2, 0, 2**63)
        if counts is None or counts[0] < 1:
            raise SpecError(
                "sample: n and seed are integers. Write how many points to draw, at least 1, and "
                "a seed that is not negative"
            )
        n, seed = counts
        degree = max(splines.degree for splines in self.measures[0].splines)
        largest = memory_limit() // (_BYTES_OF_DRAW * (degree + self.domain.dimensions + 4))
        if n > largest:
            raise SpecError(f"sample: n = {largest} and less fit into memory. Draw several parts")
        unit = sampled_points(self.measures[0], n, seed)
        return np.column_stack(
            [axis.at(column) for axis, column in zip(self.domain.axes, unit.T, strict=True)]
        )
