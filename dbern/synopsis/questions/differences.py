"""Differences of mean responses, or of the shares of groups: between two regions, or two points."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dbern.errors import SpecError
from dbern.synopsis.points import as_points
from dbern.synopsis.question_options import DIFFERENCE, QuestionOption, read_box, read_point
from dbern.synopsis.questions.answers import Percent, Target
from dbern.synopsis.questions.band import Band
from dbern.synopsis.questions.envelopes.splines import Envelope
from dbern.synopsis.questions.noisy_measure import NoisyMeasure
from dbern.synopsis.questions.polygons import Polygons
from dbern.synopsis.questions.question import (
    CommonOptions,
    DeferredQuestion,
    OptionQuestion,
    Question,
    deferred,
)
from dbern.synopsis.questions.regions import region_text
from dbern.synopsis.questions.released_bins import ReleasedBins
from dbern.synopsis.questions.responses import (
    BY_KERNELS,
    Average,
    Curve,
    MeanQuestion,
    kernels_at,
    mean_text,
    read_inside,
    refuse_condition,
    split_measures_for,
)
from dbern.synopsis.questions.split_measure import SplitMeasure, all_groups, mean_of_split
from dbern.synopsis.questions.weight_batches import WeightBatches


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

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        low, high = self._bounds
        halves = (np.split(numbers, 2) for numbers in mean_of_split(measure, self.weights, beta))
        first, second = (Band(*half) for half in zip(*halves, strict=True))
        return first.minus(second).scaled(0.0, high - low)

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

    def bands(self, beta: Fraction, *, population: bool) -> list[Band]:
        """Return the band of the difference of both groups', each at `beta`."""
        first, second = super().bands(beta, population=population)
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
    return SplitMeasure.of((all_groups(bins),), np.stack([(1 + sign) / 2, (1 - sign) / 2]))


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
