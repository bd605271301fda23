"""Mean responses, or the shares of groups: at points, along an axis, in regions; and differences.

Means are of the rows in two parts (`dbern.ask.bins.SplitMeasure`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dbern.ask.answer import Answer, Interval, IntervalKind, Percent, Target
from dbern.ask.bins import BinView, NoisyMeasure, SplitMeasure
from dbern.ask.density import read_coordinates, read_kernels
from dbern.ask.options import (
    AVERAGE,
    CURVE,
    CURVE_POINTS,
    DIFFERENCE,
    QuestionOption,
    read_box,
    read_numbers,
    read_point,
)
from dbern.ask.points import Points, as_points
from dbern.ask.question import (
    CommonOptions,
    DeferredQuestion,
    OptionQuestion,
    Question,
    ReleasedBins,
    RowRange,
    are_means_of_few_rows,
    deferred,
)
from dbern.ask.quotients import (
    BATCH_NUMBERS,
    Denominator,
    Everywhere,
    Sides,
    laid_out_intervals,
)
from dbern.ask.region_files import ask_regions
from dbern.ask.regions import Boxes, Polygons, Region, condition_text, read_region, region_text
from dbern.ask.splines import Envelope
from dbern.ask.weights import InBoxes, KernelsAlong, KernelsAt, WeightBatches, slices
from dbern.errors import SpecError
from dbern.types import BoolArray

BY_KERNELS = {"records": "", "smoothed": ", each row weighed by its kernel's part,"}


def split_measures(bins: ReleasedBins) -> tuple[SplitMeasure, ...]:
    """Return rows for and against each group's response, or of it and all others; or nothing."""
    if bins.response is not None:
        return tuple(SplitMeasure.of(both, np.eye(2)) for both in bins.response.measures)
    if len(bins.groups) < 2:
        return ()
    measure, groups = all_groups(bins), np.eye(len(bins.groups))
    return tuple(SplitMeasure.of(measure, np.stack([group, 1 - group])) for group in groups)


def all_groups(bins: ReleasedBins) -> NoisyMeasure:
    """Return the bins of all groups as one measure, (groups, b_1, ..)."""
    values = np.stack([measure.values for measure in bins.measures])
    return replace(bins.measures[0], values=values)


def mean_of_split(
    split: NoisyMeasure,
    weights: WeightBatches,
    beta: Fraction,
    everywhere: Everywhere | None = None,
) -> Interval:
    """Return the shares of P in P and Q by weights g (m, b_1, ..), from 0 to 1.

    They are the intervals of ``int g dP / int g d(P + Q)``. Below, the denominator has u for P, as
    the numerator's majorant has, and l for Q: together ``(1 - m) sum u p - m sum l q``.
    """

    def sides(view: BinView, batch: slice) -> Sides:
        g = weights.select(batch).layered()
        of_p = (np.concatenate([rows, 0.0 * rows], 1) for rows in (g.lower, g.estimate, g.upper))
        pairs = (g.upper, g.lower), (g.estimate, g.estimate), (g.lower, g.upper)
        of_both = Envelope(*(np.concatenate(pair, 1) for pair in pairs))
        return Sides.of(view, Envelope(*of_p), Denominator.of(view, of_both))

    return laid_out_intervals(split.joint(), len(weights), sides, beta, everywhere=everywhere)


def _weighed_rows(split: NoisyMeasure, weights: WeightBatches, beta: Fraction) -> RowRange:
    """Bound the sums (m,) of the rows' weights, in shares of the rows."""
    view, batch_size = split.joint(), BATCH_NUMBERS // split.values.size
    ranges = []
    for batch in slices(len(weights), batch_size):
        g = weights.select(batch).layered()
        of_both = Envelope(
            *(np.concatenate([side, side], 1) for side in (g.lower, g.estimate, g.upper))
        )
        ranges.append(RowRange.of(view, of_both, split, beta))
    return RowRange(*map(np.concatenate, zip(*ranges, strict=True)))


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

    def answer(self, interval: Interval, beta: Fraction, kind: IntervalKind) -> Answer:
        """Return the answer; one that is all of the range says that nothing is known."""
        answer, (low, high) = super().answer(interval, beta, kind), self._bounds
        rounding = 1e-12 * (high - low)
        if ((interval.low <= low + rounding) & (interval.high >= high - rounding)).all():
            return replace(answer, sentence=f"{answer.question} is not known")
        return answer

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        low, high = self._bounds
        everywhere = self._everywhere(measure, beta, low, high - low)
        return mean_of_split(measure, self.weights, beta, everywhere).scaled(low, high - low)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        rows = _weighed_rows(measure, self.weights, beta).times(self.bins.rows)
        return are_means_of_few_rows(mean_of_split(measure, self.weights, beta), rows)


class Curve(MeanQuestion, OptionQuestion):
    """Regression at points, of any bandwidth and kernel, or the shares of groups there."""

    option = CURVE

    @classmethod
    def read(cls, bins: ReleasedBins, points: Points, bandwidth: Any, kernel: str | None) -> Curve:
        """Read points, and what kernels are to be there."""
        splits = split_measures_for("curve", bins)
        weights = kernels_at(bins, points, bandwidth, kernel)
        is_released = bins.response is not None and (bandwidth, kernel) == (None, None)
        return cls(
            bins=bins, text=f"{mean_text(bins)} near points", splits=splits,
            labels={"point": range(len(weights))}, target="smoothed", weights=weights,
            released_at=as_points(points, bins.domain) if is_released else None,
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


class Difference(MeanQuestion, OptionQuestion):
    """Difference of means between the first half of the weights and the second."""

    option = DIFFERENCE

    @classmethod
    def read(cls, bins: ReleasedBins, first: Any, second: Any, target: Target) -> Difference:
        """Read two arrays of points, or regions, as many of either."""
        splits, pair = split_measures_for("difference", bins), (first, second)
        of_regions = [_is_region(compared) for compared in pair]
        weights: list[WeightBatches]
        used_target: Target | None = "smoothed"
        if all(of_regions):
            inside = [read_inside(bins, region, target) for region in pair]
            weights, label = [batches for batches, _ in inside], "region"
            of_polygons = any(isinstance(shape, Polygons) for _, shape in inside)
            used_target = None if of_polygons else target
            where = f"{BY_KERNELS[target]} in {{}} less that in {{}}"
            where = where.format(*map(region_text, pair))
        elif not any(of_regions):
            weights = [kernels_at(bins, points, None, None) for points in pair]
            label = "point"
            where = " near points less that near others"
        else:
            raise SpecError("difference: write two points, or two regions")
        counts = [*map(len, weights)]
        if counts[0] != counts[1]:
            raise SpecError(f"difference: {counts[0]} less {counts[1]}. Write as many of either")
        return cls(
            bins=bins, text=f"{mean_text(bins)}{where}", target=used_target, splits=splits,
            labels={label: range(counts[0]) if counts[0] > 1 else [None]},
            weights=Envelope.joined(batches.select(slice(None)) for batches in weights),
        )  # fmt: skip

    @property
    def percent(self) -> Percent | None:
        """Unit of differences of the shares of groups."""
        return None if self.bins.response else "percentage points"

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        low, high = self._bounds
        halves = (np.split(numbers, 2) for numbers in mean_of_split(measure, self.weights, beta))
        first, second = (Interval(*half) for half in zip(*halves, strict=True))
        return first.minus(second).scaled(0.0, high - low)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        return np.logical_or(*np.split(super()._are_of_few_rows(measure, beta), 2))

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read two boxes or points, or one of either and two groups."""
        refuse_condition(cls.option, options)
        regions, between, names = text.partition(" between ")
        pair = [_read_compared(compared, cls.option, bins) for compared in regions.split(" less ")]
        if len(pair) != (1 if between else 2):
            raise SpecError(_no_difference(text))

        def read() -> Question:
            if between:
                groups = _read_groups(names, bins)
                return difference_of_groups(bins, pair[0], groups, options.target)
            return cls.read(bins, pair[0], pair[1], options.target)

        of_points = not _is_region(pair[0])  # which the question does not name
        return [deferred(read, f", at {text}" if of_points else "")]


class ResponseDifference(MeanQuestion):
    """Mean response of a group less that of another, in regions or near points.

    Each mean holds at half of beta, so both do at once, and so does the difference of their ends.
    """

    def intervals(self, beta: Fraction, *, population: bool) -> list[Interval]:
        """Return the interval of the difference of both groups', each at `beta`."""
        first, second = super().intervals(beta, population=population)
        return [first.minus(second)]


class GroupDifference(MeanQuestion):
    """Share of a group less that of another, in regions or near points.

    It is the mean of 1 in the first group, -1 in the second and 0 in all others, from -1 to 1.
    """

    @property
    def _bounds(self) -> tuple[float, float]:
        return -1.0, 1.0

    @property
    def percent(self) -> Percent:
        """Differences of shares."""
        return "percentage points"


def difference_of_groups(
    bins: ReleasedBins, region: Any, groups: Sequence[Any], target: Target
) -> GroupDifference | ResponseDifference:
    """Read regions, or an array of points, and two groups: of responses their means differ."""
    splits, labels = split_measures_for("difference", bins), [*bins.groups]
    if len(labels) < 2:
        raise SpecError("groups: this release has none. Write two points or regions")
    if len(groups) != 2 or groups[0] == groups[1] or not {*groups} <= {*labels}:
        raise SpecError(
            f"groups: write two groups, the first less the second, of {', '.join(map(str, labels))}"
        )
    question: MeanQuestion = (
        Average.read(bins, region, target)
        if _is_region(region)
        else Curve.read(bins, region, None, None)
    )
    difference: type[GroupDifference | ResponseDifference]
    if bins.response is None:
        difference, quantity, compared = GroupDifference, "share", [_signed_shares(bins, groups)]
    else:
        difference, quantity = ResponseDifference, mean_text(bins)
        compared = [splits[labels.index(label)] for label in groups]
    groups_text = " less that of ".join(map(str, groups))
    where = question.text.removeprefix(mean_text(bins))
    return difference(
        bins=replace(bins, groups=(None,)), text=f"{quantity} of {groups_text}{where}",
        labels=question.labels if len(question.weights) > 1 else {},
        target=question.target, splits=compared, weights=question.weights,
    )  # fmt: skip


def _signed_shares(bins: ReleasedBins, groups: Sequence[Any]) -> SplitMeasure:
    """Return the rows in parts whose mean is the share of the first group less the second's."""
    first, second = (np.array([group == label for label in bins.groups]) for group in groups)
    sign = first.astype(np.float64) - second
    return SplitMeasure.of(all_groups(bins), np.stack([(1 + sign) / 2, (1 - sign) / 2]))


def _is_region(value: Any) -> bool:
    first = value[0] if type(value) in (list, tuple) and len(value) else value
    return hasattr(first, "keys") or hasattr(first, "__geo_interface__")


def _read_compared(text: str, option: QuestionOption, bins: ReleasedBins) -> Any:
    """Read a box, or a point as an array of one."""
    coordinates = text.split(",")
    if all("=" in coordinate and ".." in coordinate for coordinate in coordinates):
        return read_box(text, option.name)
    if all("=" in coordinate and ".." not in coordinate for coordinate in coordinates):
        return as_points(read_point(text, option.name), bins.domain)
    raise SpecError(_no_difference(text))


def _no_difference(text: str) -> str:
    return (
        f'--difference: "{text}" is no difference. Write two boxes, as "x=0..3 less x=3..6", two '
        'points, as "x=2 less x=5", or a box and two groups, as "x=0..3 between north and south"'
    )


def _read_groups(text: str, bins: ReleasedBins) -> tuple[Any, ...]:
    """Read ``A and B``, of the groups' labels as they print."""
    pairs = itertools.permutations(bins.groups, 2)
    return next((pair for pair in pairs if f"{pair[0]} and {pair[1]}" == text.strip()), ())
