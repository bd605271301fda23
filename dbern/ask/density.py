"""The released density at points, of any bandwidth and kernel, and the density of one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dbern.ask.answer import Answer, Interval, IntervalKind
from dbern.ask.bins import BinView, NoisyMeasure
from dbern.ask.kernel_envelopes import (
    best_kernels,
    candidates,
    density_envelope,
    loses_period,
    min_bandwidth,
)
from dbern.ask.options import DENSITY, MARGINAL, read_numbers, read_point
from dbern.ask.points import Points, as_numbers, as_points, gridded
from dbern.ask.question import (
    CommonOptions,
    DeferredQuestion,
    OptionQuestion,
    ReleasedBins,
    are_means_of_few_rows,
    deferred,
)
from dbern.ask.quotients import Denominator, product_intervals, quotient_interval
from dbern.ask.regions import Boxes, Region, condition_text
from dbern.ask.splines import Envelope
from dbern.ask.weights import LAYERS, KernelsAt, Weights, layer_weights, under_condition
from dbern.bernstein.kernels import ALL_KERNELS, WIDEST, Kernel, kernel_of
from dbern.errors import SpecError
from dbern.types import BoolArray, FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Density(OptionQuestion):
    """Density at points (m, l), by products of kernels, of which it covers whichever is chosen.

    The points are as they were written, in data units, and in the unit cube.
    """

    option = DENSITY
    kernels: Sequence[tuple[Kernel, ...]]
    chosen_index: int
    points: Points
    locations: FloatArray
    unit_points: FloatArray

    @classmethod
    def read(
        cls,
        bins: ReleasedBins,
        points: Points,
        bandwidth: float | Sequence[float] | str | None = None,
        kernel: str | None = None,
    ) -> Density:
        """Read points, and what kernels are to be there."""
        auto = str(bandwidth) == "auto"
        kernels, chosen = [read_kernels(bins, None if auto else bandwidth, kernel)], 0
        if auto:
            kernels = candidates(bins.measures[0].splines, kernels[0])
            chosen = best_kernels(bins.measures, kernels, bins.rows)
        locations = as_points(points, bins.domain)
        if not len(locations) or not bins.domain.inside(locations).all():
            raise SpecError("density: there are points outside the bounds, or none at all")
        pairs = zip(kernels[chosen], bins.domain.axes, strict=True)
        is_released = bins.response is None and bandwidth is None and kernel is None
        widths = ", ".join(f"{kernel.bandwidth * axis.width:.4g}" for kernel, axis in pairs)
        return cls(
            bins=bins, text=f"density of {kernels[chosen][0].name} kernels, bandwidth {widths}",
            labels={"point": range(len(locations))}, target="smoothed", kernels=kernels,
            chosen_index=chosen, points=points, locations=locations,
            unit_points=np.clip(bins.domain.to_unit(locations), 0.0, 1.0),
            released_at=locations if is_released else None,
        )  # fmt: skip

    @property
    def _peak(self) -> float:
        """Largest value of a density by the chosen kernels, in data units."""
        return (
            math.prod(kernel.highest for kernel in self.kernels[self.chosen_index])
            / self.bins.domain.volume
        )

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        kernels, count = self.kernels, len(self.unit_points)
        weights = KernelsAt(measure, kernels, self.unit_points)
        everywhere = self._everywhere(measure, beta, 0.0, self._peak)
        interval = product_intervals(measure, weights, beta, of_total=False, everywhere=everywhere)
        of_chosen = slice(self.chosen_index * count, (self.chosen_index + 1) * count)
        highest = math.prod(kernel.highest for kernel in kernels[self.chosen_index])
        interval = Interval(*(numbers[of_chosen] for numbers in interval))
        return interval.scaled(0.0, highest).scaled(0.0, 1 / self.bins.domain.volume)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        interval, rows = self._interval(measure, beta), self.bins.rows
        return are_means_of_few_rows(interval, rows, width=self._peak, maximum=np.inf)

    def answer(self, interval: Interval, beta: Fraction, kind: IntervalKind) -> Answer:
        """Return the answer, on the grid that was asked with."""
        answer = super().answer(interval, beta, kind)
        names = ("value", "low", "high")
        return replace(answer, **{name: self._gridded(getattr(answer, name)) for name in names})

    def _gridded(self, values: Any) -> Any:
        bins = self.bins
        labels, numbers = {"group": bins.groups}, values.to_numpy()
        grid = gridded(self.points, numbers, bins.domain, labels, values.attrs)
        return values if type(grid) is np.ndarray else grid.rename(None)

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read a point."""
        if options.condition is not None:
            raise SpecError("--given: the density at points has no condition. Ask for --marginal")
        point = read_point(text, cls.option.name)
        return [deferred(lambda: cls.read(bins, point), f", at {text}")]


@dataclass(frozen=True, eq=False, kw_only=True)
class Marginal(OptionQuestion):
    """Density of one axis at points (m,) of it, of the rows that a condition holds."""

    option = MARGINAL
    index: int
    unit_points: FloatArray
    condition: Boxes

    @classmethod
    def read(
        cls,
        bins: ReleasedBins,
        points: Sequence[float],
        name: str | None,
        condition: Region | None,
    ) -> Marginal:
        """Read points of an axis, and a condition."""
        index = bins.axis_index(name)
        axis, locations = bins.domain.axes[index], read_coordinates(bins, points, index)
        return cls(
            bins=bins, text=f"density of {axis.name}{condition_text(condition)}",
            labels={axis.name: locations.tolist()}, target="smoothed",
            index=index, unit_points=(locations - axis.low) / axis.width,
            condition=bins.read_condition(condition, index),
        )  # fmt: skip

    @property
    def _peak(self) -> float:
        """Largest value of the density, in data units."""
        return self._kernel.highest / self.bins.domain.axes[self.index].width

    @property
    def _kernel(self) -> Kernel:
        return self.bins.weights_for("smoothed").kernels[self.index]

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        condition = Weights().other_axes(measure, self.condition, self.index)
        envelope = density_envelope(measure.splines[self.index], self._kernel, self.unit_points)
        view = measure.conditional(self.index, condition)
        return conditional_means(view, envelope, beta).scaled(0.0, self._peak)

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        rows = self.bins.rows_in(self.condition, Weights(), measure, beta)
        return are_means_of_few_rows(self._interval(measure, beta), rows, width=self._peak)

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read an axis and points of it."""
        name, points = read_numbers(text, cls.option)
        return [deferred(lambda: cls.read(bins, points, name, options.condition))]


def read_coordinates(bins: ReleasedBins, points: Any, index: int) -> FloatArray:
    """Read points (m,) of an axis, in data units."""
    axis, domain = bins.domain.axes[index], bins.domain.axis(index)
    locations = np.ravel(as_numbers(points, axis.unit, domain))[:, None]
    if not len(locations) or not domain.inside(locations).all():
        raise SpecError(f"places: write one or more, all within the bounds of {axis.name}")
    return locations[:, 0]


def read_kernels(bins: ReleasedBins, bandwidth: Any, kernel: str | None) -> tuple[Kernel, ...]:
    """Read bandwidths and the name of a kernel, those of the release where there are none."""
    released, axes = bins.kernels, bins.domain.axes
    if kernel is not None:
        ALL_KERNELS.get(kernel, "kernel")
    widths = [old.bandwidth * axis.width for old, axis in zip(released, axes, strict=True)]
    if bandwidth is not None:
        with suppress(ValueError, TypeError):  # whose text quotes the value
            wanted = np.asarray(bandwidth, dtype=np.float64)
            widths = np.broadcast_to(wanted, len(released)).tolist()
            bandwidth = None
    if bandwidth is not None or not all(0 < width < math.inf for width in widths):
        raise SpecError('bandwidth: write "auto", or numbers above 0, one or one for each axis')
    kernels = tuple(
        kernel_of(old.name if kernel is None else kernel, width / axis.width, old.edges)
        for old, width, axis in zip(released, widths, axes, strict=True)
    )
    pairs = zip(bins.measures[0].splines, kernels, released, strict=True)
    min_widths = [min_bandwidth(*pair) for pair in pairs]
    for new, old, width, axis in zip(kernels, released, min_widths, axes, strict=True):
        if new.bandwidth < width:
            raise SpecError(
                f"bandwidth: {new.bandwidth * axis.width:.3g} along {axis.name} is less than "
                f"the bins resolve. Write at least {width * axis.width:.3g}"
            )
        if loses_period(new, old):
            widest = 0.99 * WIDEST / new.deviation * new.bandwidth * axis.width
            raise SpecError(
                f"bandwidth: next to nothing is left of the period of {axis.name} under so wide a "
                f"kernel. Write {widest:.3g} or less"
            )
    return kernels


def conditional_means(view: BinView, weights: Envelope, beta: Fraction) -> Interval:
    """Return means of nonnegative weights (m, bins) of an axis, over those under its condition."""
    ones = np.ones((1, weights.estimate.shape[1]))
    condition = Envelope(*(layer_weights({layer: ones}) for layer in LAYERS))
    return quotient_interval(view, under_condition(weights), Denominator.of(view, condition), beta)
