"""``Distribution``: released bins, asked anything; every answer is post-processing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from dbern.bernstein.kernels import KERNELS, Kernel, kernel_of
from dbern.combination import Combination
from dbern.data.domain import Domain
from dbern.errors import SpecError, printable
from dbern.privacy.budget import PrivacyUnit
from dbern.synopsis.arrays import ReleasedArray, ReleasedVector
from dbern.synopsis.points import Points, as_points, confidence
from dbern.synopsis.questions.answer import Answer, Interval, Target, labelled
from dbern.synopsis.questions.confidence import Account
from dbern.synopsis.questions.functionals import (
    Weights,
    box_band,
    candidates,
    cross_validation,
    density_band,
    everything,
    least_bandwidth,
    mean_band,
    quantile_band,
    sampled,
    scaled,
    share_band,
    weighted_band,
)
from dbern.synopsis.questions.measure import Band, Measure
from dbern.synopsis.questions.polygons import polygons_of
from dbern.synopsis.questions.regions import Boxes, Region, boxes_of
from dbern.synopsis.questions.smoothing import density_sides
from dbern.synopsis.questions.splines import AxisSplines
from dbern.types import FloatArray


def distribution_of(
    arrays: Sequence[ReleasedArray | ReleasedVector],
    combination: Combination,
    domain: Domain,
    facts: Mapping[str, Any],
) -> Distribution:
    """Return the distribution that released arrays tell.

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
    functions = [one for one in arrays if type(one) is ReleasedArray]
    counting = [one for one in functions if one.counted_in == one.name and one.bins]
    whole = [one for one in counting if one.axes == domain.names]
    grouped = combination.kind == "stack"
    if not whole or combination.kind not in ("linear", "stack", "ratio"):
        raise SpecError(
            "distribution: what was released does not count rows by bins. Release a kernel "
            'density, or a regression, with noise = "binned-laplace" (what "auto" takes where few '
            "axes are smooth)"
        )
    measures = []
    for stream, one in enumerate(whole):
        if one.oblique is not None:
            raise SpecError(
                "distribution: bins of oblique coordinates do not tell boxes. Release with "
                "bandwidth = [..] in place of covariance"
            )
        splines = tuple(AxisSplines(bins.cells, bins.degree) for bins in one.bins)
        released = one.released / one.value_unit
        measures.append(Measure(released, splines, one.law, one.released_error, stream))
    rows = facts["target"].get("n") or facts["target"]["normalizer"]
    groups = combination.classes if grouped else (None,)
    unit_rows = PrivacyUnit.shown(facts["unit"]).max_contributions
    return Distribution(
        *(facts["name"], domain, tuple(measures), tuple(groups), float(rows)),
        *(whole[0].kernels, unit_rows),
    )


@dataclass(eq=False, repr=False)
class Distribution:
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
    """

    name: str
    domain: Domain
    measures: tuple[Measure, ...]
    groups: tuple[Any, ...]
    rows: float
    kernels: tuple[Kernel, ...] = ()
    unit_rows: int = 1
    account: Account | None = None
    _asked: int = field(default=0, init=False)

    def __repr__(self) -> str:
        axes = ", ".join(self.domain.names)
        left = "" if self.account is None else f", {self.account}"
        return printable(f"<Distribution {self.name} over {axes}{left}>")

    # --- Confidence

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

    def _beta(self, beta: float | str | None) -> Fraction:
        """What this question may fail with, for each group."""
        if self.account is not None:
            whole = self.account.take(None if beta is None else confidence(beta))
        else:
            whole = confidence(0.05 if beta is None else beta)
            self._asked += 1
            if self._asked == 2:
                warnings.warn(
                    "each answer holds with its own probability, not all of them together. For "
                    "that write: with distribution.confidence(0.05) as c: and ask c",
                    stacklevel=5,
                )
        return whole

    # --- Questions

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
            independently. Approximate: the sampling error is taken as normal.
        beta : float or str, optional
            One minus the confidence; 0.05, or what `confidence` gives.

        Raises
        ------
        SpecError
            For a region or a confidence that cannot be.
        """
        labels, band = self._shares(region, given, target, of_total=True)
        asked = f"share of the rows{_told_given(given)} in {_told(region)}"
        return self._asked_of(band, labels, asked, beta, target=target, population=population)

    def count(
        self, region: Region, *, target: Target = "records", beta: float | str | None = None
    ) -> Answer:
        """Return how many rows are in a region, or in each of many; as for `mass`.

        Raises
        ------
        SpecError
            For a region or a confidence that cannot be.
        """
        labels, shares = self._shares(region, None, target, of_total=False)

        def band(measure: Measure, share: Fraction) -> Band:
            return scaled(shares(measure, share), 0.0, self.rows)

        return self._asked_of(band, labels, f"rows in {_told(region)}", beta, target=target)

    def _shares(
        self, region: Region, given: Region | None, target: Target, *, of_total: bool
    ) -> tuple[Mapping[str, Sequence[Any]], Callable[[Measure, Fraction], Band]]:
        """Labels of the regions, and what tells their shares of a measure."""
        weights, shapes = self._weights(target), polygons_of(region, self.domain)
        if shapes is not None:
            if given is not None or weights.kernels:
                raise SpecError("region: of polygons ask for shares of all records, or write boxes")
            every = everything if of_total else (lambda _measure: None)
            return {"region": shapes.labels}, lambda measure, share: share_band(
                measure, shapes.sides(measure.splines), every(measure), share
            )
        boxes = boxes_of(region, self.domain)
        condition = None if given is None else _one(boxes_of(given, self.domain, "given"))
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
        return self.mass(
            {own.name: (None, places)}, given=given, target=target, population=population, beta=beta
        )

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
        """Return quantiles of an axis, in its units: of the rows, or of those in a box of others.

        Parameters
        ----------
        levels : float or sequence of float
            Between 0 and 1.
        axis : str, optional
            By name; the only one where there is one.
        given : mapping, optional
            A box of other axes.
        target, population, beta
            As for `mass`.

        Raises
        ------
        SpecError
            For levels, an axis, a box or a confidence that cannot be.
        """
        index = self._index(axis)
        several, each = np.ndim(levels) > 0, np.atleast_1d(np.asarray(levels, dtype=np.float64))
        if each.ndim != 1 or not len(each) or not np.all((each > 0) & (each < 1)):
            raise SpecError("quantile: levels must be between 0 and 1. Write 0.5, or [0.25, 0.75]")
        condition, weights = self._of_others(given, index), self._weights(target)
        own = self.domain.axes[index]

        def band(measure: Measure, share: Fraction) -> Band:
            view = measure.along(index, weights.others(measure, condition, index))
            between = partial(weights.between, measure, index)
            found = quantile_band(view, measure.splines[index], between, each, share / len(each))
            return scaled(found, own.low, own.width)

        labels = {"quantile": each.tolist() if several else [None]}
        asked = f"quantile {levels} of {own.name}{_told_given(given)}"
        return self._asked_of(
            band, labels, asked, beta, own.attributes, target=target, population=population
        )

    def mean(
        self,
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the mean of an axis, in its units: of the rows, or of those in a box of others.

        Parameters
        ----------
        axis, given, population, beta
            As for `quantile`.

        Raises
        ------
        SpecError
            For an axis, a box or a confidence that cannot be.
        """
        index = self._index(axis)
        condition, weights = self._of_others(given, index), Weights()
        own = self.domain.axes[index]

        def band(measure: Measure, share: Fraction) -> Band:
            view = measure.along(index, weights.others(measure, condition, index))
            found = mean_band(view, measure.splines[index], share, whole=given is None)
            return scaled(found, own.low, own.width)

        asked = f"mean of {own.name}{_told_given(given)}"
        return self._asked_of(band, {}, asked, beta, own.attributes, population=population)

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
        population, beta
            As for `mass`; of the population's density smoothed by the same kernel.

        Raises
        ------
        SpecError
            For points or kernels that cannot be, and for a bandwidth that the bins do not resolve:
            it says what is the least that they do.
        """
        auto = str(bandwidth) == "auto"
        kernels, chosen = [self._kernels(None if auto else bandwidth, kernel)], 0
        if auto:
            kernels = candidates(self.measures[0].splines, kernels[0])
            errors = [
                sum(cross_validation(measure, one, self.rows) for measure in self.measures)
                for one in kernels
            ]
            chosen = int(np.argmin(errors))
        places = as_points(points, self.domain)
        if not self.domain.inside(places).all():
            raise SpecError("density: there are points outside the bounds. Leave them out")
        unit = np.clip(self.domain.to_unit(places), 0.0, 1.0)

        def band(measure: Measure, share: Fraction) -> Band:
            found = density_band(measure, kernels, chosen, unit, share)
            return scaled(found, 0.0, 1 / self.domain.volume)

        used = zip(kernels[chosen], self.domain.axes, strict=True)
        widths = ", ".join(f"{one.bandwidth * axis.width:.4g}" for one, axis in used)
        asked = f"density of {kernels[chosen][0].name} kernels, bandwidth {widths}"
        labels = {"point": range(len(places))}
        return self._asked_of(band, labels, asked, beta, target="smoothed", population=population)

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

        Parameters
        ----------
        places : sequence of float
            In data units.
        axis, given, population, beta
            As for `quantile`.

        Raises
        ------
        SpecError
            For places outside the bounds, an axis, a box or a confidence that cannot be.
        """
        index = self._index(axis)
        own, kernel = self.domain.axes[index], self._weights("smoothed").kernels[index]
        at = as_points(np.ravel(places), self.domain.axis(index))
        if not self.domain.axis(index).inside(at).all():
            raise SpecError(f"places: some are outside the bounds of {own.name}. Leave them out")
        condition, unit = self._of_others(given, index), (at[:, 0] - own.low) / own.width

        def band(measure: Measure, share: Fraction) -> Band:
            view = measure.along(index, Weights().others(measure, condition, index))
            sides = density_sides(measure.splines[index], kernel, unit)
            return scaled(weighted_band(view, sides, share), 0.0, kernel.peak / own.width)

        labels = {own.name: at[:, 0].tolist()}
        asked = f"density of {own.name}{_told_given(given)}"
        return self._asked_of(band, labels, asked, beta, target="smoothed", population=population)

    def level_set(self, level: float, points: Points, *, beta: float | str | None = None) -> Answer:
        """Return where the released density is at least a level: surely, probably, possibly.

        Parameters
        ----------
        level : float
            In data units.
        points
            Where to look, such as the coordinates of `Synopsis.grid`.
        beta : float or str, optional
            As for `mass`.

        Returns
        -------
        Answer
            Of truths: `low` where it surely is, all at once, and `high` where it may be.

        Raises
        ------
        SpecError
            As of `density`.
        """
        found = self.density(points, beta=beta)
        value, low, high = (one >= level for one in (found.value, found.low, found.high))
        question = f"{found.question} at least {level:g}"
        return Answer(value, low, high, found.target, found.interval, found.beta, question)

    def _kernels(self, bandwidth: Any, kernel: str | None) -> tuple[Kernel, ...]:
        """Those that are asked for, in the unit cube."""
        own, axes = self._weights("smoothed").kernels, self.domain.axes
        if kernel is not None and kernel not in KERNELS:
            raise SpecError(f'kernel: "{kernel}" is not known. Write one of {", ".join(KERNELS)}')
        given = [one.bandwidth * axis.width for one, axis in zip(own, axes, strict=True)]
        if bandwidth is not None:
            with suppress(ValueError, TypeError):  # whose text quotes the value
                wanted = np.asarray(bandwidth, dtype=np.float64)
                given = np.broadcast_to(wanted, len(own)).tolist()
                bandwidth = None
        if bandwidth is not None or not all(0 < one < math.inf for one in given):
            raise SpecError('bandwidth: write "auto", or numbers above 0, one or one for each axis')
        names = [one.name if kernel is None else kernel for one in own]
        facts = zip(names, given, axes, strict=True)
        found = tuple(kernel_of(name, width / axis.width) for name, width, axis in facts)
        least = [least_bandwidth(s, new, old) for s, new, old in
                 zip(self.measures[0].splines, found, own, strict=True)]  # fmt: skip
        for one, width, axis in zip(found, least, axes, strict=True):
            if one.bandwidth < width:
                raise SpecError(
                    f"bandwidth: {one.bandwidth * axis.width:.3g} along {axis.name} is less than "
                    f"the bins resolve. Write at least {width * axis.width:.3g}"
                )
        return found

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
        level = self._beta(beta)
        parts = [replace(one, account=Account(level)) for one in (self, other)]
        here, there = (one.mass(region, beta=str(level / 2)) for one in parts)
        return Answer(
            here.value - there.value,
            here.low - there.high,
            here.high - there.low,
            *("records", "these-data", float(level)),
            f"share of the rows in {_told(region)}, less that of {other.name}",
        )

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
        if n < 1:
            raise SpecError(f"n = {n}: write how many points to draw, at least 1")
        unit = sampled(self.measures[0], n, seed)
        return np.column_stack(
            [axis.at(column) for axis, column in zip(self.domain.axes, unit.T, strict=True)]
        )

    # --- What questions share

    def _index(self, axis: str | None) -> int:
        names = self.domain.names
        if axis is None and len(names) == 1:
            return 0
        if axis not in names:
            raise SpecError(f"axis: {axis!r} is none. Write one of {', '.join(names)}")
        return names.index(axis)

    def _of_others(self, given: Region | None, index: int) -> Boxes:
        own = self.domain.names[index]
        if given is not None and own in given:
            raise SpecError(
                f"given: {own} is what is asked about. Write a box of other axes, or ask for the "
                "mass of boxes"
            )
        return _one(boxes_of({} if given is None else given, self.domain, "given"))

    def _weights(self, target: Target) -> Weights:
        if target not in get_args(Target):
            raise SpecError(f'target = "{target}": write "records" or "smoothed"')
        return Weights(self.kernels if target == "smoothed" else ())

    def _asked_of(
        self,
        band: Callable[[Measure, Fraction], Band],
        labels: Mapping[str, Sequence[Any]],
        question: str,
        beta: float | str | None,
        attributes: Mapping[str, str] | None = None,
        *,
        target: Target = "records",
        population: bool = False,
    ) -> Answer:
        """Ask each group, at its part of beta."""
        if population and self.unit_rows > 1:
            raise SpecError(
                f"population: a unit of privacy has up to {self.unit_rows} rows here, and rows of "
                "one unit are not independent. Release with one row a unit"
            )
        level = self._beta(beta)
        measures = [one.population(self.rows) if population else one for one in self.measures]
        found = [band(one, level / len(measures)) for one in measures]
        ends = (np.stack(each, axis=-1) for each in zip(*found, strict=True))
        named = {**labels, "group": self.groups}
        value, low, high = (labelled(one, named, attributes or {}) for one in ends)
        interval: Interval = "population" if population else "these-data"
        return Answer(value, low, high, target, interval, float(level), question)


@dataclass(frozen=True)
class Together:
    """A context of several questions; see `Distribution.confidence`."""

    distribution: Distribution
    account: Account

    def __enter__(self) -> Distribution:
        return replace(self.distribution, account=self.account)

    def __exit__(self, *_error: object) -> None:
        return None


def _told(region: Region) -> str:
    region = getattr(region, "__geo_interface__", region)
    match region:
        case {"type": str() as kind}:
            return f"a {kind}"
        case Mapping():
            ends = [f"{name} from {_end(*pair)}" for name, pair in region.items()]
            return " and ".join(ends) or "the domain"
        case _:
            return f"{len(region)} regions"


def _end(low: Any, high: Any) -> str:
    if np.ndim(low) or np.ndim(high):
        return "each low to each high end"
    return f"{'its lower bound' if low is None else low} to {'its upper' if high is None else high}"


def _told_given(given: Region | None) -> str:
    return "" if given is None else f" of the rows with {_told(given)}"


def _one(boxes: Boxes) -> Boxes:
    if len(boxes) != 1:
        raise SpecError("given: write one box")
    return boxes
