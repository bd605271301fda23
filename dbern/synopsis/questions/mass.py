"""Shares of the rows in regions, counts of them, and shares up to points of an axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

import numpy as np

from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.synopsis.points import as_numbers
from dbern.synopsis.question_options import CDF, COUNT, MASS, read_numbers
from dbern.synopsis.questions.answers import Answer, Percent, Target
from dbern.synopsis.questions.band import Band, band_in_batches
from dbern.synopsis.questions.envelopes.splines import products
from dbern.synopsis.questions.interval import Denominator, quotient_interval
from dbern.synopsis.questions.noisy_measure import NoisyMeasure
from dbern.synopsis.questions.polygons import Polygons
from dbern.synopsis.questions.product_intervals import product_intervals
from dbern.synopsis.questions.question import CommonOptions, DeferredQuestion, OptionQuestion
from dbern.synopsis.questions.region_files import ask_regions
from dbern.synopsis.questions.regions import (
    Boxes,
    Region,
    Weights,
    boxes_of,
    read_region,
    region_text,
    require_one_box,
)
from dbern.synopsis.questions.released_bins import ReleasedBins
from dbern.synopsis.questions.weight_batches import InBoxes
from dbern.types import BoolArray

_BATCH_WEIGHTS = 1 << 22  # of boxes under a condition, at a time: more than are simulated


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

    def _shares(self, measure: NoisyMeasure, beta: Fraction, *, of_total: bool) -> Band:
        """Return the shares of the total, of what is in another box, or of all rows."""
        region, weights = self.region, self.weights
        if isinstance(region, Polygons):
            view, inside = measure.joint(), weights.polygons(measure, region).layered()
            return quotient_interval(
                view, inside, Denominator.total(view) if of_total else None, beta
            )
        if self.condition is not None:
            return self._shares_of_box(region, self.condition, measure, beta)
        boxes = InBoxes(measure, weights, region)
        return product_intervals(measure, boxes, beta, of_total=of_total)

    def _shares_of_box(
        self, boxes: Boxes, box: Boxes, measure: NoisyMeasure, beta: Fraction
    ) -> Band:
        view = measure.joint()
        base = Denominator.of(view, products(self.weights.axes(measure, box)).layered())
        start, stop = np.maximum(boxes.low, box.low), np.minimum(boxes.high, box.high)
        inside = InBoxes(measure, self.weights, replace(boxes, low=start, high=stop))

        def band(batch: slice, beta_i: Fraction) -> Band:
            return quotient_interval(view, inside.select(batch).layered(), base, beta_i)

        return band_in_batches(len(boxes), _BATCH_WEIGHTS // measure.values.size, beta, band)


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

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        return self._shares(measure, beta, of_total=True)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        if self.condition is not None and self.target == "smoothed":
            # Rows have parts in the condition: shares are no means of so many rows.
            return super()._are_of_few_rows(measure, beta)
        box = self.condition or self.bins.read_condition(None)
        return self._are_means_of_few_rows(measure, beta, box)

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

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        return self._shares(measure, beta, of_total=False).scaled(0.0, self.bins.rows)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        return self._are_means_of_few_rows(measure, beta, None, 0.0, self.bins.rows)

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
