"""Questions about responses, and about the shares of groups: at places, and in regions.

Of a regression ``a_j = int w beta_j dD`` and ``c_j = int beta_j dD`` are released, w the response
in [-1, 1] as the bounds say. ``v = (1 + w) / 2`` is in [0, 1], so that P = v D and Q = (1 - v) D,
whose bins are ``(c_j + a_j) / 2`` and ``(c_j - a_j) / 2``, are measures: the rows in two parts, one
for the response and one against it. Of groups P has the rows of one, Q those of all the others. The
mean of v is the m that the noisy bins of both do not deny; docs/intervals.md, "A mean
response", has the proof.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.errors import SpecError
from dbern.privacy.families import family_of
from dbern.synopsis.points import Points, as_points
from dbern.synopsis.questions.answers import Answer, Percent, Target
from dbern.synopsis.questions.band import Band, band_in_batches
from dbern.synopsis.questions.density import read_coordinates, read_kernels
from dbern.synopsis.questions.envelopes.kernel import density_envelope
from dbern.synopsis.questions.envelopes.polygon import polygon_envelope
from dbern.synopsis.questions.envelopes.splines import Envelope, products
from dbern.synopsis.questions.interval import Denominator, interval
from dbern.synopsis.questions.noisy_measure import BinView, NoisyMeasure, normal_draws
from dbern.synopsis.questions.options import QuestionOption, read_box, read_numbers, read_point
from dbern.synopsis.questions.polygons import Polygons
from dbern.synopsis.questions.question import (
    CommonOptions,
    DeferredQuestion,
    OptionQuestion,
    Question,
    deferred,
)
from dbern.synopsis.questions.region_answers import ask_regions
from dbern.synopsis.questions.regions import (
    Boxes,
    Region,
    Weights,
    condition_text,
    read_region,
    region_text,
)
from dbern.synopsis.questions.released_bins import ReleasedBins
from dbern.types import FloatArray

_POINTS = 21  # of a curve whose points are not written: they divide an axis into twenty parts
_FEW = 1 << 21  # weights that are laid out at a time; of more places nothing is simulated
_BY_KERNELS = {"records": "", "smoothed": ", each row weighed by its kernel's part,"}
_HALVES = np.array([[0.5, 0.5], [-0.5, 0.5]])  # P and Q of a and c


@dataclass(frozen=True, eq=False)
class SplitMeasure(NoisyMeasure):
    """The rows in two parts: `values` are the bins of P and of Q, (2, b_1, .., b_l).

    `mixing` (2, outputs) makes P and Q of the outputs of the released `arrays`, (outputs, b_1, ..,
    b_l) each.
    """

    arrays: tuple[NoisyMeasure, ...] = ()
    mixing: FloatArray = field(default_factory=lambda: np.eye(2))

    @classmethod
    def of(cls, arrays: Sequence[NoisyMeasure], mixing: FloatArray) -> SplitMeasure:
        """Return the parts of released arrays."""
        values = np.concatenate([array.values for array in arrays])
        errors = np.concatenate([np.full(len(array.values), array.error) for array in arrays])
        return cls(
            np.tensordot(mixing, values, axes=1),
            arrays[0].splines,
            max((array.law for array in arrays), key=lambda law: math.ldexp(
                family_of(law).scale(law), law.granularity_exponent)),
            float((np.abs(mixing) @ errors).max()),
            levels=arrays[0].levels,
            arrays=tuple(arrays),
            mixing=mixing,
        )  # fmt: skip

    def joint(self) -> BinView:
        """Return the view of all bins: P in one layer, Q in another."""
        values = self.values.reshape(2, -1)
        count = values.shape[1]
        drawn = np.concatenate(
            [array.noise.reshape(len(array.values), count, -1) for array in self.arrays]
        )
        noise = np.tensordot(self.mixing, drawn, axes=1)
        gram = (self.mixing @ self.mixing.T)[..., None] * np.ones(count)
        variances = self.variances
        if self.spread is not None and variances is not None:
            spread = self.spread.reshape(2, -1)
            drawn = normal_draws(spread.size, noise.shape[-1], self.stream).reshape(
                *spread.shape, -1
            )
            moved = np.sqrt(spread)[..., None] * drawn
            noise += np.stack([self.released_shifts(part) for part in moved])
            variances = np.eye(2)[..., None] * variances.reshape(2, -1)
        return BinView(values, noise, gram, variances, np.abs(self.mixing).max(axis=1), self)


class Sides(Protocol):
    """Envelopes of weights, some of them at a time."""

    def part(self, which: slice) -> Envelope:
        """Return the envelopes (m, b_1, ..) of some of the weights."""


@dataclass(frozen=True, eq=False)
class _KernelsAt:
    """Kernels at points (m, l) of the unit cube."""

    measure: NoisyMeasure
    kernels: tuple[Kernel, ...]
    unit: FloatArray

    def part(self, which: slice) -> Envelope:
        axes = zip(self.measure.splines, self.kernels, self.unit[which].T, strict=True)
        return products([density_envelope(*axis) for axis in axes])


@dataclass(frozen=True, eq=False)
class _KernelsAlong:
    """Kernels at points (m,) of one axis of the unit cube, times weights of a box of the others."""

    measure: NoisyMeasure
    kernel: Kernel
    index: int
    unit: FloatArray
    weights: Weights
    condition: Boxes

    def part(self, which: slice) -> Envelope:
        axis = density_envelope(self.measure.splines[self.index], self.kernel, self.unit[which])
        others = self.weights.axes(self.measure, self.condition)
        repeated = [envelope.part(np.zeros(len(axis.estimate), np.intp)) for envelope in others]
        return products([*repeated[: self.index], axis, *repeated[self.index + 1 :]])


@dataclass(frozen=True, eq=False)
class _InBoxes:
    """Weights of the rows in boxes."""

    measure: NoisyMeasure
    weights: Weights
    boxes: Boxes

    def part(self, which: slice) -> Envelope:
        return products(self.weights.axes(self.measure, self.boxes.part(which)))


def _mean_of_parts(parts: NoisyMeasure, sides: Sides, count: int, beta: Fraction) -> Band:
    """Return the shares of P in P and Q by `count` weights g (m, b_1, ..), from 0 to 1."""
    view = parts.joint()
    rows = max(1, _FEW // view.values.size)
    if rows < count:
        view = view.without_noise_draws()

    def band(part: slice, beta_i: Fraction) -> Band:
        g = sides.part(part).layered()
        for_p = (np.concatenate([side, 0.0 * side], 1) for side in (g.lower, g.estimate, g.upper))
        pairs = (g.upper, g.lower), (g.estimate, g.estimate), (g.lower, g.upper)
        of_both = (np.concatenate(pair, 1) for pair in pairs)
        return interval(view, Envelope(*for_p), Denominator.of(view, Envelope(*of_both)), beta_i)

    return band_in_batches(count, rows, beta, band)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Means(Question):
    """Means of responses, in their units, or shares of groups, by `count` weights of the rows."""

    parts: Sequence[SplitMeasure]
    sides: Sides
    count: int

    @property
    def measures(self) -> Sequence[NoisyMeasure]:
        return self.parts

    @property
    def percent(self) -> Percent | None:
        """Unit of the shares of groups; responses have their own."""
        return None if self.bins.response else "%"

    @property
    def _bounds(self) -> tuple[float, float]:
        response = self.bins.response
        return (response.low, response.high) if response else (0.0, 1.0)

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        low, high = self._bounds
        means = _mean_of_parts(measure, self.sides, self.count, beta)
        return means.scaled(low, high - low)


class Curve(_Means, OptionQuestion):
    """Regression at points, of any bandwidth and kernel, or the shares of groups there."""

    option = QuestionOption(
        "curve",
        "AXIS[=PLACES]",
        'The mean response along an axis, or each group\'s share: at places, as "x=2,5", or at '
        f"{_POINTS} between the bounds, as x; of the rows in the box --given of other axes.",
    )

    @classmethod
    def read(cls, bins: ReleasedBins, points: Points, bandwidth: Any, kernel: str | None) -> Curve:
        """Read points, and what kernels are to be there."""
        parts, sides = _parts_for("curve", bins), _kernels_at(bins, points, bandwidth, kernel)
        count = len(sides.unit)
        return cls(
            bins=bins, text=f"{_mean_text(bins)} near points", labels={"point": range(count)},
            target="smoothed", parts=parts, sides=sides, count=count,
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
        parts, index = _parts_for("curve", bins), bins.axis_index(name)
        axis, box = bins.domain.axes[index], bins.read_condition(condition, index)
        kernel, locations = bins.kernels[index], read_coordinates(bins, points, index)
        unit, weights = (locations - axis.low) / axis.width, bins.weights_for(target)
        text = f"{_mean_text(bins)} along {axis.name}{condition_text(condition, target)}"
        sides = _KernelsAlong(bins.measures[0], kernel, index, unit, weights, box)
        return cls(
            bins=bins, text=text, labels={axis.name: locations.tolist()}, target="smoothed",
            parts=parts, sides=sides, count=len(unit),
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
            points = np.linspace(axis.low, axis.high, _POINTS).tolist()
        return [deferred(lambda: cls.along(bins, points, name, options.condition, options.target))]


class Average(_Means, OptionQuestion):
    """Mean response of the rows in each of some regions, or the shares of groups there."""

    option = QuestionOption(
        "average", "REGION", "Mean response of the rows in a region, or groups' shares."
    )

    @classmethod
    def read(cls, bins: ReleasedBins, region: Region, target: Target) -> Average:
        """Read regions and a target."""
        parts = _parts_for("average", bins)
        sides, shape = _inside(bins, region, target)
        text = f"{_mean_text(bins)}{_BY_KERNELS[target]} in {region_text(region)}"
        return cls(
            bins=bins, text=text, labels={"region": shape.labels}, parts=parts, sides=sides,
            target=None if isinstance(shape, Polygons) else target, count=len(shape),
        )  # fmt: skip

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read a box, or a file of regions."""
        _refuse_condition(cls.option, options)
        return ask_regions(text, cls.option, lambda region: cls.read(bins, region, options.target))


class Difference(_Means, OptionQuestion):
    """Difference of means between the first half of the weights and the second."""

    option = QuestionOption(
        "difference",
        "A less B",
        'Mean response in one box less that in another, as "x=0..3 less x=3..6", or near points, '
        'as "x=2 less x=5"; of densities by group the share of a group less that of another, as '
        '"x=0..3 between north and south".',
    )

    @classmethod
    def read(cls, bins: ReleasedBins, first: Any, second: Any, target: Target) -> Difference:
        """Read two arrays of points, or regions, as many of either."""
        parts, pair = _parts_for("difference", bins), (first, second)
        regions = [_is_region(side) for side in pair]
        choice: Target | None = "smoothed"
        if all(regions):
            inside = [_inside(bins, side, target) for side in pair]
            sides: list[Sides] = [weights for weights, _ in inside]
            shapes = [shape for _, shape in inside]
            counts, label = [*map(len, shapes)], "region"
            choice = None if any(isinstance(shape, Polygons) for shape in shapes) else target
            where = f"{_BY_KERNELS[target]} in {{}} less that in {{}}"
            where = where.format(*map(region_text, pair))
        elif not any(regions):
            kernels = [_kernels_at(bins, side, None, None) for side in pair]
            sides, counts, label = [*kernels], [len(at.unit) for at in kernels], "point"
            where = " near points less that near others"
        else:
            raise SpecError("difference: write two points, or two regions")
        if counts[0] != counts[1]:
            raise SpecError(f"difference: {counts[0]} less {counts[1]}. Write as many of either")
        return cls(
            bins=bins, text=f"{_mean_text(bins)}{where}", target=choice, parts=parts,
            labels={label: range(counts[0]) if counts[0] > 1 else [None]}, count=counts[0],
            sides=Envelope.joined(weights.part(slice(None)) for weights in sides),
        )  # fmt: skip

    @property
    def percent(self) -> Percent | None:
        """Unit of differences of the shares of groups."""
        return None if self.bins.response else "percentage points"

    def _band(self, measure: NoisyMeasure, beta: Fraction) -> Band:
        means = _mean_of_parts(measure, self.sides, 2 * self.count, beta)
        low, high = self._bounds
        halves = slice(self.count), slice(self.count, None)
        first, second = (Band(*(numbers[half] for numbers in means)) for half in halves)
        return first.minus(second).scaled(0.0, high - low)

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read two boxes or points, or one of either and two groups."""
        _refuse_condition(cls.option, options)
        regions, between, names = text.partition(" between ")
        pair = [_read_side(side, cls.option, bins) for side in regions.split(" less ")]
        if len(pair) != (1 if between else 2):
            raise SpecError(_no_difference(text))

        def read() -> Question:
            if between:
                groups = _read_groups(names, bins)
                return GroupDifference.read(bins, pair[0], groups, options.target)
            return cls.read(bins, pair[0], pair[1], options.target)

        def answers(payer: ReleasedBins, beta: Fraction) -> Iterator[Answer]:
            answer = read().ask(payer, str(beta))
            yield replace(answer, question=f"{answer.question}, at {text}")

        of_points = not _is_region(pair[0])  # which the question does not name
        return [answers if of_points else deferred(read)]


class GroupDifference(_Means):
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

    @classmethod
    def read(
        cls, bins: ReleasedBins, region: Any, groups: Sequence[Any], target: Target
    ) -> GroupDifference:
        """Read regions, or an array of points, and two groups."""
        _parts_for("difference", bins)
        known = [*bins.groups]
        if len(known) < 2:
            raise SpecError("groups: this release has none. Write two points or regions")
        if bins.response is not None:
            raise SpecError(
                "groups: shares of groups are compared, and this release has their responses. Ask "
                "for average(region), which has each group's"
            )
        if len(groups) != 2 or groups[0] == groups[1] or not {*groups} <= {*known}:
            raise SpecError(
                "groups: write two groups, the first less the second, of "
                f"{', '.join(map(str, known))}"
            )
        first, second = (np.array([group == label for label in known]) for group in groups)
        sign = first.astype(np.float64) - second
        mixing = np.stack([(1 + sign) / 2, (1 - sign) / 2])
        question: _Means = (
            Average.read(bins, region, target)
            if _is_region(region)
            else Curve.read(bins, region, None, None)
        )
        named = " less that of ".join(map(str, groups))
        where = question.text.partition("share of the group")[2]
        return cls(
            bins=replace(bins, groups=(None,)), text=f"share of {named}{where}",
            labels=question.labels if question.count > 1 else {},
            target=question.target, count=question.count,
            parts=(SplitMeasure.of((_all_rows(bins),), mixing),), sides=question.sides,
        )  # fmt: skip


def split_measures(bins: ReleasedBins) -> tuple[SplitMeasure, ...]:
    """Return rows for and against each group's response, or of it and all others; or nothing."""
    if bins.response is not None:
        pairs = zip(bins.response.measures, bins.measures, strict=True)
        alone = (
            [replace(measure, values=measure.values[None]) for measure in pair] for pair in pairs
        )
        return tuple(SplitMeasure.of(pair, _HALVES) for pair in alone)
    rows = _all_rows(bins)
    if len(bins.groups) < 2:
        return ()
    groups = np.eye(len(bins.groups))
    return tuple(SplitMeasure.of((rows,), np.stack([group, 1 - group])) for group in groups)


def _all_rows(bins: ReleasedBins) -> NoisyMeasure:
    """Return the bins of all groups as one measure, (groups, b_1, ..)."""
    values = np.stack([measure.values for measure in bins.measures])
    return replace(bins.measures[0], values=values)


def _parts_for(question: str, bins: ReleasedBins) -> tuple[SplitMeasure, ...]:
    """Return what a question is about. Raises SpecError where it was not released."""
    parts = split_measures(bins)
    if not parts:
        raise SpecError(
            f"{question}: this release has neither groups, nor responses in the bins of its "
            "rows. Ask for a density, or release a regression with this version"
        )
    return parts


def _mean_text(bins: ReleasedBins) -> str:
    return "mean response" if bins.response else "share of the group"


def _kernels_at(
    bins: ReleasedBins, points: Points, bandwidth: Any, kernel: str | None
) -> _KernelsAt:
    kernels, locations = read_kernels(bins, bandwidth, kernel), as_points(points, bins.domain)
    if not bins.domain.inside(locations).all():
        raise SpecError("points: some are outside the bounds. Leave them out")
    unit = np.clip(bins.domain.to_unit(locations), 0.0, 1.0)
    return _KernelsAt(bins.measures[0], kernels, unit)


def _inside(bins: ReleasedBins, region: Region, target: Target) -> tuple[Sides, Boxes | Polygons]:
    weights, shape = bins.weights_for(target), read_region(region, bins.domain)
    measure = bins.measures[0]
    if isinstance(shape, Boxes):
        return _InBoxes(measure, weights, shape), shape
    if weights.kernels:
        raise SpecError("region: of polygons ask for the records, or write boxes")
    return polygon_envelope(shape, measure.splines), shape


def _is_region(value: Any) -> bool:
    first = value[0] if type(value) in (list, tuple) and len(value) else value
    return hasattr(first, "keys") or hasattr(first, "__geo_interface__")


def _refuse_condition(option: QuestionOption, options: CommonOptions) -> None:
    if options.condition is not None:
        raise SpecError(
            f"--given: --{option.name} has no condition. Write it into the box of --{option.name}"
        )


def _read_side(text: str, option: QuestionOption, bins: ReleasedBins) -> Any:
    """Read a box, or a point as an array of one."""
    coordinates = text.split(",")
    if all("=" in part and ".." in part for part in coordinates):
        return read_box(text, option.name)
    if all("=" in part and ".." not in part for part in coordinates):
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
