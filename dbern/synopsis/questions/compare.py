"""Difference of the shares of regions between two releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dbern.bernstein.kernels import Kernel, kernel_of
from dbern.errors import SpecError
from dbern.synopsis.questions.answers import Percent, SamplingLaw, Target
from dbern.synopsis.questions.band import Band
from dbern.synopsis.questions.mass import Mass
from dbern.synopsis.questions.options import QuestionOption
from dbern.synopsis.questions.question import CommonOptions, DeferredQuestion
from dbern.synopsis.questions.region_answers import ask_regions
from dbern.synopsis.questions.regions import Region
from dbern.synopsis.questions.released_bins import ReleasedBins


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison(Mass):
    """Shares of regions here less those `there`, group by group, each at half of beta.

    Smoothed, both are by the same kernels. Where one of both releases has no groups, its shares
    stand beside those of every group.
    """

    option = QuestionOption(
        "compare",
        "REGION",
        "Share of the rows less that of the release --with. With --target smoothed of the two "
        "densities, whose intervals are narrower.",
    )
    there: Mass

    @property
    def percent(self) -> Percent:
        """Differences of shares."""
        return "percentage points"

    @classmethod
    def of(
        cls, bins: ReleasedBins, other: ReleasedBins, region: Region, target: Target
    ) -> Comparison:
        """Read regions of both releases, and a target."""
        bins.weights_for(target)  # refuses one that is unknown
        if target == "smoothed":
            kernels = _common_kernels(bins, other)
            bins, other = replace(bins, kernels=kernels), replace(other, kernels=kernels)
        bins, other = _paired(bins, other)
        here, there = (Mass.read(side, region, None, target) for side in (bins, other))
        text = f"{here.text}, less that of {other.name}"
        return cls(**(vars(here) | {"text": text}), there=there)

    def bands(self, beta: Fraction, *, population: bool) -> tuple[list[Band], SamplingLaw | None]:
        """Return the differences of both releases' bands."""
        choices = Fraction(1)  # beta is for each kernel that this release chose from
        if self.target == "smoothed":
            choices = Fraction(self.bins.choices, self.there.bins.choices)
        here, law = super().bands(beta / 2, population=population)
        there, law_there = self.there.bands(choices * beta / 2, population=population)
        bands = [band.minus(other) for band, other in zip(here, there, strict=True)]
        return bands, law if law == law_there else "normal"

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read a box, or a file of regions; the other release is in `options`."""
        other = options.with_release
        if other is None:
            raise SpecError("--compare: is with another release. Write --with OTHER.zarr too")
        if options.condition is not None:
            raise SpecError(
                "--given: --compare has no condition. Write it into the box of --compare"
            )
        return ask_regions(
            text, cls.option, lambda region: cls.of(bins, other, region, options.target)
        )


def _common_kernels(bins: ReleasedBins, other: ReleasedBins) -> tuple[Kernel, ...]:
    """Return the wider kernel of both releases along each axis, which the bins of both resolve.

    Raises SpecError where they are over other axes or bounds, or of kernels of other kinds.
    """
    axes = [
        [(axis.name, axis.low, axis.high, axis.unit) for axis in side.domain.axes]
        for side in (bins, other)
    ]
    if axes[0] != axes[1]:
        raise SpecError(
            "compare: smoothed densities are compared over the same axes and bounds, and these "
            'have others. Compare the rows, target = "records" (dbern ask: --target records)'
        )
    pairs = [*zip(bins.kernels, other.kernels, strict=True)]
    for here, there in pairs:
        if here.name != there.name:
            raise SpecError(
                f"compare: one density is smoothed by {here.name} kernels, the other by "
                f'{there.name} ones. Compare the rows, target = "records" (dbern ask: --target '
                "records)"
            )
    return tuple(
        kernel_of(here.name, max(here.bandwidth, there.bandwidth)) for here, there in pairs
    )


def _paired(bins: ReleasedBins, other: ReleasedBins) -> tuple[ReleasedBins, ReleasedBins]:
    """Return both with the measures of the same groups; what has none stands beside each group."""
    pairs = [
        (i, j, there if here is None else here)
        for i, here in enumerate(bins.groups)
        for j, there in enumerate(other.groups)
        if here == there or here is None or there is None
    ]
    if not pairs:
        raise SpecError("compare: no group is in both releases. Compare two that share one")
    first, second, groups = zip(*pairs, strict=True)
    return (
        replace(bins, groups=groups, measures=tuple(bins.measures[i] for i in first)),
        replace(other, groups=groups, measures=tuple(other.measures[j] for j in second)),
    )
