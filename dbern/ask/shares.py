"""Shares and counts of the rows in regions, shares up to points of an axis, and quantiles.

A quantile's proof: docs/intervals.md, "A quantile lies between two neighbours".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Self

import numpy as np

from dbern.ask.answer import Answer, Interval, Percent, Target
from dbern.ask.bins import BinView, NoisyMeasure
from dbern.ask.bracket import GRID_POINTS, GridPoints, bracket
from dbern.ask.options import CDF, COUNT, MASS, QUANTILE, read_numbers
from dbern.ask.points import as_numbers
from dbern.ask.question import (
    FEW_ROWS,
    CommonOptions,
    DeferredQuestion,
    OptionQuestion,
    ReleasedBins,
    are_means_of_few_rows,
    deferred,
)
from dbern.ask.quotients import (
    Contrast,
    Denominator,
    product_intervals,
    quotient_interval,
    quotient_or_half,
)
from dbern.ask.region_files import ask_regions
from dbern.ask.regions import (
    Boxes,
    Polygons,
    Region,
    boxes_of,
    condition_text,
    read_region,
    region_text,
    require_one_box,
)
from dbern.ask.splines import OFFSETS, AxisSplines, Envelope, products, steps_of_multiples
from dbern.ask.weights import InBoxes, Weights, under_condition
from dbern.data.domain import Axis, Domain
from dbern.data.resolution import Multiples
from dbern.errors import SpecError
from dbern.system import number_of
from dbern.types import BoolArray, FloatArray, Int64Array

_MIN_SHARP_GAP = 0.5  # between both splines of a step: of the rows themselves
_POINTS_IN_DEVIATION = 8  # of a bin's noise, of density 1
_MAX_REFINEMENT = 256  # points between two of `GRID_POINTS`


@dataclass(frozen=True, eq=False, kw_only=True)
class _SharesOfRegions(OptionQuestion):
    """Shares of regions: of all rows that count, or of those in another box."""

    region: Boxes | Polygons
    condition: Boxes | None
    weights: Weights

    @classmethod
    def _read(
        cls, bins: ReleasedBins, region: Region, condition: Region | None, target: Target
    ) -> Self:
        weights, shape, box = bins.weights_for(target), read_region(region, bins.domain), None
        if condition is not None and isinstance(shape, Polygons):
            raise SpecError("given: polygons have no condition. Write boxes")
        if condition is not None:
            box = require_one_box(boxes_of(condition, bins.domain, "given"))
        return cls(
            bins=bins, text="", labels={"region": shape.labels}, target=target,
            region=shape, condition=box, weights=weights,
        )  # fmt: skip

    def _shares(self, measure: NoisyMeasure, beta: Fraction, *, of_total: bool) -> Interval:
        """Return the shares of the total, of what is in another box, or of all rows."""
        region, weights = self.region, self.weights
        if isinstance(region, Polygons):
            view, inside = measure.joint(), weights.polygons(measure, region)
            total = Denominator.total(view) if of_total else None
            return quotient_interval(view, inside, total, beta)
        if self.condition is not None:
            return self._shares_of_box(region, self.condition, measure, beta)
        boxes = InBoxes(measure, weights, region)
        return product_intervals(measure, boxes, beta, of_total=of_total)

    def _shares_of_box(
        self, boxes: Boxes, box: Boxes, measure: NoisyMeasure, beta: Fraction
    ) -> Interval:
        view = measure.joint()
        base = Denominator.of(view, products(self.weights.axes(measure, box)).layered())
        start, stop = np.maximum(boxes.low, box.low), np.minimum(boxes.high, box.high)
        inside = InBoxes(measure, self.weights, replace(boxes, low=start, high=stop))
        return quotient_interval(view, inside, base, beta)


@dataclass(frozen=True, eq=False, kw_only=True)
class Mass(_SharesOfRegions):
    """Share of the counted rows in each of some regions."""

    option = MASS

    @classmethod
    def read(
        cls,
        bins: ReleasedBins,
        region: Region,
        condition: Region | None = None,
        target: Target = "records",
    ) -> Self:
        """Read regions, a condition and a target."""
        shares = cls._read(bins, region, condition, target)
        total = "smoothed density" if target == "smoothed" else "rows"
        total += "" if condition is None else f" with {region_text(condition)}"
        where, verb = region_text(region), "lies" if target == "smoothed" else "lie"
        return replace(
            shares,
            text=f"share of the {total} in {where}",
            sentence=f"{{}} of the {total} {verb} in {where}",
        )

    @property
    def percent(self) -> Percent:
        """Return that they are shares."""
        return "%"

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        return self._shares(measure, beta, of_total=True)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        box = self.condition or self.bins.read_condition(None)
        weights = Weights() if self.condition is None else self.weights
        rows = self.bins.rows_in(box, weights, measure, beta)
        return are_means_of_few_rows(self._interval(measure, beta), rows)

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read a box, or a file of regions."""
        box, target = options.condition, options.target
        return ask_regions(text, cls.option, lambda region: cls.read(bins, region, box, target))


@dataclass(frozen=True, eq=False, kw_only=True)
class Count(_SharesOfRegions):
    """Number of the rows in each of some regions."""

    option = COUNT

    @classmethod
    def read(
        cls, bins: ReleasedBins, region: Region, target: Target, *, population: bool = False
    ) -> Self:
        """Read regions and a target; of a population the count is expected of as many rows."""
        shares = cls._read(bins, region, None, target)
        smoothed = " by the smoothed density" if target == "smoothed" else ""
        text = f"{'expected ' * population}rows{smoothed} in {region_text(region)}"
        return replace(shares, text=text)

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        return self._shares(measure, beta, of_total=False).scaled(0.0, self.bins.rows)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        interval, rows = self._interval(measure, beta), self.bins.rows
        return are_means_of_few_rows(interval, rows, width=rows, maximum=np.inf)

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read a box, or a file of regions; counts have no condition."""
        if options.condition is not None:
            raise SpecError("--given: counts have no condition. Write it into the box of --count")
        return ask_regions(text, cls.option, lambda region: cls.read(bins, region, options.target))


class Cdf(Mass):
    """Share of the counted rows up to each of some points of an axis."""

    option = CDF

    @classmethod
    def up_to(
        cls,
        bins: ReleasedBins,
        points: float | Sequence[float],
        axis: str | None,
        condition: Region | None,
        target: Target,
    ) -> Self:
        """Read points of an axis, a condition and a target."""
        bounds, locations = bins.domain.axes[bins.axis_index(axis)], np.empty(0)
        with suppress(SpecError):  # which speaks of points
            locations = np.ravel(as_numbers(points, bounds.unit, Domain((bounds,))))
        if not (len(locations) and ((locations > bounds.low) & (locations <= bounds.high)).all()):
            raise SpecError(
                f"cdf: places must be above the lower bound of {bounds.name}, and up to its upper "
                "one"
            )
        return cls.read(bins, {bounds.name: (None, points)}, condition, target)

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read an axis and points of it, each of which is asked about by itself."""
        name, points = read_numbers(text, cls.option)

        def answers(payer: ReleasedBins, beta: Fraction) -> Iterator[Answer]:
            for point in points:
                box = {name: (None, point)}
                question = cls.read(bins, box, options.condition, options.target)
                yield question.ask(payer, str(beta / len(points)))

        return [answers]


@dataclass(frozen=True, eq=False, kw_only=True)
class Quantile(OptionQuestion):
    """Quantiles of an axis, in its units, of the rows that a condition on the others holds."""

    option = QUANTILE
    axis: Axis
    index: int
    levels: FloatArray
    condition: Boxes
    weights: Weights

    @classmethod
    def read(
        cls,
        bins: ReleasedBins,
        levels: float | Sequence[float],
        name: str | None,
        condition: Region | None,
        target: Target,
    ) -> Quantile:
        """Read levels, an axis, a condition and a target."""
        index, several, fractions = bins.axis_index(name), np.ndim(levels) > 0, np.empty(0)
        with suppress(ValueError, TypeError):  # whose text quotes the value
            fractions = np.atleast_1d(np.asarray(levels, dtype=np.float64))
        between_0_and_1 = (fractions > 0) & (fractions < 1)
        if fractions.ndim != 1 or not len(fractions) or not between_0_and_1.all():
            raise SpecError("quantile: levels must be between 0 and 1. Write 0.5, or [0.25, 0.75]")
        box, weights = bins.read_condition(condition, index), bins.weights_for(target)
        axis, by = bins.domain.axes[index], " by the smoothed density" * (target == "smoothed")
        text = f"quantile {levels} of {axis.name}{by}{condition_text(condition, target)}"
        return cls(
            bins=bins, text=text, labels={"quantile": fractions.tolist() if several else [None]},
            target=target, axis=axis, index=index, levels=fractions, condition=box,
            weights=weights,
        )  # fmt: skip

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        condition = self.weights.other_axes(measure, self.condition, self.index)
        view = measure.conditional(self.index, condition)
        between = partial(self.weights.between, measure, self.index)
        splines, multiples = measure.splines[self.index], self.axis.multiples
        levels = self.levels
        if multiples is not None and self.target == "records":
            rounded = _multiples_interval(view, splines, multiples, levels, beta / len(levels))
            low, high = multiples.at(rounded.low), multiples.at(rounded.high)
            cells = self.axis.width * rounded.cells
            return Interval(multiples.at(rounded.value), low, high, cells)
        quantiles = _quantile_interval(view, splines, between, levels, beta / len(levels))
        return quantiles.scaled(self.axis.low, self.axis.width)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        rows = self.bins.rows_in(self.condition, self.weights, measure, beta)
        return np.asarray(np.minimum(self.levels, 1.0 - self.levels) * rows.least < FEW_ROWS)

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read an axis and levels."""
        name, levels = read_numbers(text, cls.option, number_of)
        condition, target = options.condition, options.target
        return [deferred(lambda: cls.read(bins, levels, name, condition, target))]


def _quantile_interval(
    view: BinView,
    splines: AxisSplines,
    between: Callable[[FloatArray, FloatArray], Envelope],
    levels: FloatArray,
    beta: Fraction,
) -> Interval:
    """Return ends between which a quantile is, each tau by itself at beta.

    On a public grid x_0 = 0 < x_1 < .. let the quantile be in [x_k, x_{k+1}]. At most a share tau
    is below x_k and at least tau up to x_{k+1}: two inequalities at points that are not known but
    do not depend on the noise, each of which the released numbers deny with probability at most
    beta / 2. So the quantile is between the neighbours of the first and the last point where they
    are not denied: `bracket`, on a grid that is finer where steps are smooth.

    Where rows stand at multiples alone, so do quantiles of them: `_multiples_interval`.
    """
    points_in_cell = 2 ** int(np.log2(np.clip(GRID_POINTS / splines.cells, 1, OFFSETS)))
    count = splines.cells * points_in_cell
    points = np.linspace(0.0, 1.0, count + 1)
    steps = between(np.zeros_like(points), points)
    cumulative, base = under_condition(steps), under_condition(between(np.zeros(1), np.ones(1)))
    smooth = float((steps.upper - steps.lower).max()) < _MIN_SHARP_GAP
    step = 1 / (count * view.measure.deviation)
    refinement = np.clip(_POINTS_IN_DEVIATION * step, 1, _MAX_REFINEMENT)
    finer = 2 ** int(np.log2(refinement)) if smooth else 1

    def at(indices: Int64Array) -> Envelope:
        fine = indices / (count * finer)
        return under_condition(between(np.zeros_like(fine), fine))

    coarse = GridPoints(finer * np.arange(count + 1), cumulative)
    bounds = list[tuple[float, float, float]]()
    shares = _increasing_shares(view, cumulative, base)
    for tau in map(float, levels):
        ends = bracket(view, coarse, at, base, tau, beta)[:2]
        first, last = (end / (count * finer) for end in ends)
        guess = float(np.interp(tau, shares, points))
        bounds.append((min(max(guess, first), last), first, last))
    value, first, last = np.array(bounds).T
    return Interval(value, first, last, _cell_widths(view, points, cumulative, base, levels))


def _multiples_interval(
    view: BinView, splines: AxisSplines, multiples: Multiples, levels: FloatArray, beta: Fraction
) -> Interval:
    """Return multiples between which a quantile of rows at multiples is, each tau at beta.

    For i_0 = -1 < i_1 < .. let the quantile be one of the multiples after i_k, up to i_{k+1}. At
    most a share tau is up to i_k and at least tau up to i_{k+1}: denied or not as in
    `_quantile_interval`, first at up to `GRID_POINTS` multiples.
    """

    def at(last: Int64Array) -> Envelope:
        return under_condition(steps_of_multiples(splines, last))

    indices = np.arange(-1, multiples.count, -(-multiples.count // GRID_POINTS))
    indices = np.append(indices, multiples.count)
    coarse, base = GridPoints(indices, at(indices)), at(np.array([multiples.count]))
    ends = list[tuple[int, int, int]]()
    for tau in map(float, levels):
        before, last, inner = bracket(view, coarse, at, base, tau, beta)
        shares = _increasing_shares(view, inner.envelope, base)
        position = min(int(np.searchsorted(shares, tau)), len(shares) - 1)
        guess = int(inner.indices[position])
        ends.append((min(max(guess, before + 1), last), before + 1, last))
    value, low, high = multiples.positions[np.array(ends).T]
    points = multiples.positions[np.maximum(indices, 0)]
    cells = _cell_widths(view, points, coarse.envelope, base, levels)
    return Interval(value, low, high, np.where(2 * multiples.count * cells < 1, 0.0, cells))


def _increasing_shares(view: BinView, cumulative: Envelope, base: Envelope) -> FloatArray:
    """Return estimates of shares up to points, none less than one before it."""
    shares = quotient_or_half(view.of(cumulative.estimate), view.of(base.estimate))
    return np.asarray(np.maximum.accumulate(shares))


def _cell_widths(
    view: BinView, points: FloatArray, cumulative: Envelope, base: Envelope, levels: FloatArray
) -> FloatArray:
    """Return the widths that cells alone leave quantiles, by the shares up to points."""
    by_tail = view.first_draws(0)
    below = Contrast.of_weights(by_tail, cumulative.lower, base.upper)
    above = Contrast.of_weights(by_tail, cumulative.upper, base.lower)
    low = np.maximum.accumulate(below.quotient(0.0))
    high = np.maximum.accumulate(above.quotient(1.0))
    first, last = np.interp(levels, high, points), np.interp(levels, low, points)
    return np.asarray(np.maximum(last - first, 0.0))
