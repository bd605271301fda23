"""Mean responses, or the shares of groups: at points, along an axis and in regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dbern.errors import SpecError
from dbern.synopsis.points import Points, as_points
from dbern.synopsis.question_options import (
    AVERAGE,
    CURVE,
    CURVE_POINTS,
    QuestionOption,
    read_numbers,
)
from dbern.synopsis.questions.answers import Answer, IntervalKind, Percent, Target
from dbern.synopsis.questions.band import Band
from dbern.synopsis.questions.density import read_coordinates, read_kernels
from dbern.synopsis.questions.noisy_measure import NoisyMeasure
from dbern.synopsis.questions.polygons import Polygons
from dbern.synopsis.questions.question import (
    CommonOptions,
    DeferredQuestion,
    OptionQuestion,
    Question,
    deferred,
)
from dbern.synopsis.questions.region_files import ask_regions
from dbern.synopsis.questions.regions import (
    Boxes,
    Region,
    condition_text,
    read_region,
    region_text,
)
from dbern.synopsis.questions.released_bins import ReleasedBins
from dbern.synopsis.questions.split_measure import SplitMeasure, mean_of_split, split_measures
from dbern.synopsis.questions.weight_batches import InBoxes, KernelsAlong, KernelsAt, WeightBatches

BY_KERNELS = {"records": "", "smoothed": ", each row weighed by its kernel's part,"}


@dataclass(frozen=True, eq=False, kw_only=True)
class MeanQuestion(Question):
    """Means of responses, in their units, or shares of groups, by weights of the rows."""

    splits: Sequence[SplitMeasure]
    weights: WeightBatches

    @property
    def measures(self) -> Sequence[NoisyMeasure]:
        """The rows in two parts, once for each group."""
        return self.splits

    @property
    def percent(self) -> Percent | None:
        """Unit of the shares of groups; responses have their own."""
        return None if self.bins.response else "%"

    @property
    def _bounds(self) -> tuple[float, float]:
        response = self.bins.response
        return (response.low, response.high) if response else (0.0, 1.0)

    def answer(self, band: Band, level: Fraction, interval: IntervalKind) -> Answer:
        """Return the answer; one that is all of the range says that nothing is known."""
        answer, (low, high) = super().answer(band, level, interval), self._bounds
        rounding = 1e-12 * (high - low)
        if ((band.low <= low + rounding) & (band.high >= high - rounding)).all():
            return replace(answer, sentence=f"{answer.question} is not known")
        return answer

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        low, high = self._bounds
        return mean_of_split(measure, self.weights, beta).scaled(low, high - low)


class Curve(MeanQuestion, OptionQuestion):
    """Regression at points, of any bandwidth and kernel, or the shares of groups there."""

    option = CURVE

    @classmethod
    def read(cls, bins: ReleasedBins, points: Points, bandwidth: Any, kernel: str | None) -> Curve:
        """Read points, and what kernels are to be there."""
        splits = split_measures_for("curve", bins)
        weights = kernels_at(bins, points, bandwidth, kernel)
        return cls(
            bins=bins, text=f"{mean_text(bins)} near points", splits=splits,
            labels={"point": range(len(weights))}, target="smoothed", weights=weights,
        )  # fmt: skip

    @classmethod
    def along(
        cls,
        bins: ReleasedBins,
        points: Sequence[float],
        name: str | None,
        condition: Region | None = None,
        target: Target = "records",
    ) -> Curve:
        """Read points of an axis, and a condition on the others with its target."""
        splits, index = split_measures_for("curve", bins), bins.axis_index(name)
        axis, box = bins.domain.axes[index], bins.read_condition(condition, index)
        kernel, locations = bins.kernels[index], read_coordinates(bins, points, index)
        unit, rows = (locations - axis.low) / axis.width, bins.weights_for(target)
        text = f"{mean_text(bins)} along {axis.name}{condition_text(condition, target)}"
        weights = KernelsAlong(bins.measures[0], kernel, index, unit, rows, box)
        return cls(
            bins=bins, text=text, labels={axis.name: locations.tolist()}, target="smoothed",
            splits=splits, weights=weights,
        )  # fmt: skip

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read an axis, and points of it if any."""
        if "=" in text:
            name, points = read_numbers(text, cls.option)
        else:
            name, axis = text, bins.domain.axes[bins.axis_index(text)]
            points = np.linspace(axis.low, axis.high, CURVE_POINTS).tolist()
        return [deferred(lambda: cls.along(bins, points, name, options.condition, options.target))]


class Average(MeanQuestion, OptionQuestion):
    """Mean response of the rows in each of some regions, or the shares of groups there."""

    option = AVERAGE

    @classmethod
    def read(cls, bins: ReleasedBins, region: Region, target: Target) -> Average:
        """Read regions and a target."""
        splits = split_measures_for("average", bins)
        weights, shape = read_inside(bins, region, target)
        text = f"{mean_text(bins)}{BY_KERNELS[target]} in {region_text(region)}"
        return cls(
            bins=bins, text=text, labels={"region": shape.labels}, splits=splits, weights=weights,
            target=None if isinstance(shape, Polygons) else target,
        )  # fmt: skip

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read a box, or a file of regions."""
        refuse_condition(cls.option, options)
        return ask_regions(text, cls.option, lambda region: cls.read(bins, region, options.target))


def split_measures_for(question: str, bins: ReleasedBins) -> tuple[SplitMeasure, ...]:
    """Return what a question is about. Raises SpecError where it was not released."""
    splits = split_measures(bins)
    if not splits:
        raise SpecError(
            f"{question}: this release has neither groups, nor responses in the bins of its "
            "rows. Ask for a density, or release a regression with this version"
        )
    return splits


def mean_text(bins: ReleasedBins) -> str:
    """Write in words what a mean is of."""
    return f"mean of {bins.response.name}" if bins.response else "share of the group"


def kernels_at(bins: ReleasedBins, points: Points, bandwidth: Any, kernel: str | None) -> KernelsAt:
    """Read points, and the kernels around them. Raises SpecError for points outside the bounds."""
    kernels, locations = read_kernels(bins, bandwidth, kernel), as_points(points, bins.domain)
    if not bins.domain.inside(locations).all():
        raise SpecError("points: some are outside the bounds. Leave them out")
    unit = np.clip(bins.domain.to_unit(locations), 0.0, 1.0)
    return KernelsAt(bins.measures[0], [kernels], unit)


def read_inside(
    bins: ReleasedBins, region: Region, target: Target
) -> tuple[WeightBatches, Boxes | Polygons]:
    """Read regions, and the weights of the rows inside."""
    weights, shape = bins.weights_for(target), read_region(region, bins.domain)
    measure = bins.measures[0]
    if isinstance(shape, Boxes):
        return InBoxes(measure, weights, shape), shape
    if weights.kernels:
        raise SpecError("region: of polygons ask for the records, or write boxes")
    return weights.polygons(measure, shape), shape


def refuse_condition(option: QuestionOption, options: CommonOptions) -> None:
    """Raise SpecError where a condition is stated."""
    if options.condition is not None:
        raise SpecError(
            f"--given: --{option.name} has no condition. Write it into the box of --{option.name}"
        )
