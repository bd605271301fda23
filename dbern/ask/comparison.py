"""Difference of the shares of regions between two releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dbern.ask.answer import Answer, Interval, IntervalKind, Percent, Target
from dbern.ask.options import COMPARE
from dbern.ask.question import CommonOptions, DeferredQuestion, ReleasedBins
from dbern.ask.region_files import ask_regions
from dbern.ask.regions import Region
from dbern.ask.shares import Mass
from dbern.bernstein.kernels import Kernel
from dbern.data.domain import Axis, rounded_text
from dbern.errors import SpecError


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison(Mass):
    """Shares of regions here less those of a `reference`, group by group, each at half of beta.

    Smoothed, both are by the same kernels. Where one of both releases has no groups, its shares
    stand beside those of every group.
    """

    option = COMPARE
    reference: Mass
    rows_note: str

    @property
    def percent(self) -> Percent:
        """Differences of shares."""
        return "percentage points"

    @classmethod
    def of(
        cls, bins: ReleasedBins, reference: ReleasedBins, region: Region, target: Target
    ) -> Comparison:
        """Read regions of both releases, and a target."""
        bins.weights_for(target)  # refuses one that is unknown
        _refuse_other_roundings(bins, reference)
        if target == "smoothed":
            kernels = _common_kernels(bins, reference)
            bins, reference = replace(bins, kernels=kernels), replace(reference, kernels=kernels)
        shares, subtracted = (
            Mass.read(release, region, None, target) for release in _paired(bins, reference)
        )
        counts = [f"{round(release.rows_with_values):,}" for release in (bins, reference)]
        here, there = (count.replace(",", " ") for count in counts)
        text = f"{shares.text}, less that of {reference.name}"
        return cls(
            **(vars(shares) | {"text": text, "sentence": ""}),
            reference=subtracted,
            rows_note=f"about {here} rows here and {there} there had a value",
        )

    def answer(self, interval: Interval, beta: Fraction, kind: IntervalKind) -> Answer:
        """Return the answer, with how many rows of both releases had a value."""
        answer = super().answer(interval, beta, kind)
        return replace(answer, note="; ".join(filter(None, (answer.note, self.rows_note))))

    def intervals(self, beta: Fraction, *, population: bool) -> list[Interval]:
        """Return the differences of both releases' intervals."""
        choices = Fraction(1)  # beta is for each kernel that this release chose from
        if self.target == "smoothed":
            choices = Fraction(self.bins.choices, self.reference.bins.choices)
        first = super().intervals(beta / 2, population=population)
        second = self.reference.intervals(choices * beta / 2, population=population)
        return [left.minus(right) for left, right in zip(first, second, strict=True)]

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read a box, or a file of regions; the other release is in `options`."""
        reference = options.with_release
        if reference is None:
            raise SpecError("--compare: is with another release. Write --with OTHER.zarr too")
        if options.condition is not None:
            raise SpecError(
                "--given: --compare has no condition. Write it into the box of --compare"
            )
        return ask_regions(
            text, cls.option, lambda region: cls.of(bins, reference, region, options.target)
        )


def _refuse_other_roundings(bins: ReleasedBins, reference: ReleasedBins) -> None:
    """Raise SpecError where rows are rounded on an axis in one release, and not so in the other.

    A box takes the rows that are rounded into it: of the same rows it has two shares.
    """
    there = {axis.name: axis for axis in reference.domain.axes}
    for axis in bins.domain.axes:
        other = there.get(axis.name, axis)
        if _grid_of(axis) != _grid_of(other):
            texts = [rounded_text([side]) or "as it is" for side in (axis, other)]
            start = f", from {other.plain_text(other.low)} on" if texts[0] == texts[1] else ""
            raise SpecError(
                f"compare: {axis.name} is {texts[0]} in one release and {texts[1]} in the other"
                f"{start}, so that even the same rows have other shares. Release both with one "
                "[data.resolution] and such bounds"
            )


def _grid_of(axis: Axis) -> tuple[Fraction, Fraction] | None:
    """Return the step that rows are rounded to, and where its multiples are."""
    multiples = axis.multiples
    return None if multiples is None else (multiples.step, multiples.low % multiples.step)


def _common_kernels(bins: ReleasedBins, reference: ReleasedBins) -> tuple[Kernel, ...]:
    """Return the wider kernel of both releases along each axis, which the bins of both resolve.

    Raises SpecError where they are over other axes or bounds, or of other kernels or edges.
    """
    axes = [
        [(axis.name, axis.low, axis.high, axis.unit) for axis in release.domain.axes]
        for release in (bins, reference)
    ]
    if axes[0] != axes[1]:
        raise SpecError(
            "compare: smoothed densities are compared over the same axes and bounds, and these "
            'have others. Compare the rows, target = "records" (dbern ask: --target records)'
        )
    pairs = [*zip(bins.kernels, reference.kernels, strict=True)]
    for first, second in pairs:
        if first.name != second.name:
            raise SpecError(
                f"compare: one density is smoothed by {first.name} kernels, the other by "
                f'{second.name} ones. Compare the rows, target = "records" (dbern ask: --target '
                "records)"
            )
        if first.edges != second.edges:
            raise SpecError(
                f"compare: the edges of one density are {first.edges}, those of the other "
                f'{second.edges}. Compare the rows, target = "records" (dbern ask: --target '
                "records)"
            )
    return tuple(max(pair, key=lambda kernel: kernel.bandwidth) for pair in pairs)


def _paired(bins: ReleasedBins, reference: ReleasedBins) -> tuple[ReleasedBins, ReleasedBins]:
    """Return both with the measures of the same groups; what has none stands beside each group."""
    pairs = [
        (i, j, second if first is None else first)
        for i, first in enumerate(bins.groups)
        for j, second in enumerate(reference.groups)
        if first == second or first is None or second is None
    ]
    if not pairs:
        raise SpecError("compare: no group is in both releases. Compare two that share one")
    indices, reference_indices, groups = zip(*pairs, strict=True)
    return (
        replace(bins, groups=groups, measures=tuple(bins.measures[i] for i in indices)),
        replace(
            reference,
            groups=groups,
            measures=tuple(reference.measures[j] for j in reference_indices),
        ),
    )
