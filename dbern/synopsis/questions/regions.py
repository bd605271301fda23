"""Regions of the domain in the forms in which people have them, and the weights of rows inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError
from dbern.synopsis.points import as_numbers
from dbern.synopsis.questions.answers import Target
from dbern.synopsis.questions.envelopes.kernel import mass_envelope
from dbern.synopsis.questions.envelopes.polygon import polygon_envelope
from dbern.synopsis.questions.envelopes.smoothed_polygon import smoothed_polygon_envelope
from dbern.synopsis.questions.envelopes.splines import Envelope, products
from dbern.synopsis.questions.envelopes.step import intervals
from dbern.synopsis.questions.noisy_measure import NoisyMeasure
from dbern.synopsis.questions.polygons import Polygons, polygons_of
from dbern.system import and_text
from dbern.types import FloatArray

Region: TypeAlias = Any
"""A box ``{"x": (low, high)}``, None for an end that is open; or a list of boxes."""

_HARMLESS = 20  # of a bin's deviation, what integration may miss


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes in the unit cube, ends (m, l), with a label each; [None] for the only one."""

    low: FloatArray
    high: FloatArray
    labels: Sequence[Any]

    def __len__(self) -> int:
        return len(self.low)

    def select(self, which: slice) -> Boxes:
        """Return some of the boxes; the labels stay."""
        return Boxes(self.low[which], self.high[which], self.labels)


@dataclass(frozen=True)
class Weights:
    """Weight of a point for an interval: 0 or 1, or the share of its kernel that is inside.

    There is a kernel an axis, and none where rows count themselves.
    """

    kernels: tuple[Kernel, ...] = ()

    def between(
        self, measure: NoisyMeasure, axis: int, low: FloatArray, high: FloatArray
    ) -> Envelope:
        """Return the envelopes of the weights of intervals of one axis, reversed ones empty."""
        splines = measure.splines[axis]
        if not self.kernels:
            return intervals(splines, low, high)
        return mass_envelope(splines, self.kernels[axis], low, np.maximum(low, high))

    def axes(self, measure: NoisyMeasure, boxes: Boxes) -> list[Envelope]:
        """Return the envelopes of boxes, axis by axis."""
        pairs = enumerate(zip(boxes.low.T, boxes.high.T, strict=True))
        return [self.between(measure, axis, low, high) for axis, (low, high) in pairs]

    def polygons(self, measure: NoisyMeasure, shapes: Polygons) -> Envelope:
        """Return the envelopes of polygons of both axes, (m, b_1, b_2)."""
        if not self.kernels:
            return polygon_envelope(shapes, measure.splines)
        error = measure.deviation / _HARMLESS
        return smoothed_polygon_envelope(shapes, measure.splines, self.kernels, error)

    def other_axes(self, measure: NoisyMeasure, box: Boxes, *asked_axes: int) -> Envelope:
        """Return the envelope of one box for the bins of all axes but some, (b_1, ..) each."""
        axes = [axis for i, axis in enumerate(self.axes(measure, box)) if i not in asked_axes]
        return products(axes).select(0) if axes else Envelope(*[np.ones(1)] * 3)


def read_region(region: Region, domain: Domain) -> Boxes | Polygons:
    """Read boxes, or polygons as GeoJSON or from an object with a `__geo_interface__`."""
    shape: Any = getattr(region, "__geo_interface__", region)
    if hasattr(shape, "keys") and not np.ndim(shape.get("type", ())) and "type" not in domain.names:
        return polygons_of(shape, domain)
    return boxes_of(region, domain)


def region_text(region: Region) -> str:
    """Write a region in words."""
    region = getattr(region, "__geo_interface__", region)
    match region:
        case {"type": str() as kind}:
            return f"a {kind}"
        case Mapping():
            return and_text([_ends_text(*item) for item in region.items()] or ["the domain"])
        case _:
            return f"{len(region)} regions"


def _ends_text(name: str, pair: tuple[Any, Any]) -> str:
    low, high = (f"{end:.12g}" if isinstance(end, float) else end for end in pair)
    if np.ndim(low) or np.ndim(high):
        return f"each low to each high end of {name}"
    if low is None:
        return f"any {name}" if high is None else f"{name} up to {high}"
    return f"{name} from {low} up" if high is None else f"{name} {low} to {high}"


def condition_text(condition: Region | None, target: Target = "records") -> str:
    """Write a condition in words."""
    rows = "" if target == "smoothed" else "of the rows "
    return "" if condition is None else f" {rows}with {region_text(condition)}"


def boxes_of(region: Region, domain: Domain, what: str = "region") -> Boxes:
    """Read boxes, in data units: one, several in a list, or of arrays of ends.

    Raises SpecError for axes that are unknown, ends that are no numbers, reversed, or outside the
    bounds.
    """
    match region:
        case Mapping():
            return _box(region, domain, what)
        case list() | tuple():
            boxes = [_box(box, domain, what) for box in region]
            if not boxes or any(len(box) != 1 for box in boxes):
                raise SpecError(f"{what}: a list must hold boxes, such as {_example(domain)}")
            low = np.concatenate([box.low for box in boxes])
            high = np.concatenate([box.high for box in boxes])
            return Boxes(low, high, range(len(boxes)))
        case _:
            raise SpecError(f"{what}: is no region. Write a box, such as {_example(domain)}")


def _example(domain: Domain) -> str:
    axis = domain.axes[0]
    low, high = (_end_text(end, axis, f"{end:g}") for end in (axis.low, axis.high))
    return f'{{"{axis.name}": ({low}, {high})}}'


def _end_text(end: float, axis: Axis, number: str) -> str:
    """Write an end as a region has it: a date or a time in quotes, or a number."""
    with suppress(OverflowError):  # of no calendar
        if axis.unit is not None:
            return f'"{axis.unit.text(end)}"'
    return number


def _box(region: Mapping[str, Any], domain: Domain, what: str) -> Boxes:
    shape = getattr(region, "__geo_interface__", region)
    if not hasattr(shape, "keys"):
        raise SpecError(f"{what}: a list must hold boxes, such as {_example(domain)}")
    if "type" in shape and "type" not in domain.names:
        remedy = "Write a box" if what == "given" else "Write several as one FeatureCollection"
        raise SpecError(f"{what}: polygons are not available here. {remedy}")
    unknown = [name for name in region if name not in domain.names]
    if unknown:
        known = ", ".join(domain.names)
        raise SpecError(f'{what}: there is no axis "{unknown[0]}". Write one of {known}')
    ends = [_interval(region.get(axis.name, (None, None)), axis, what) for axis in domain.axes]
    counts = {len(end) for pair in ends for end in pair} - {1}
    if len(counts) > 1:
        raise SpecError(f"{what}: arrays of ends must be equally long")
    count = max(counts, default=1)
    low, high = np.empty((2, count, len(ends)))
    for i, pair in enumerate(ends):
        low[:, i], high[:, i] = pair
    return Boxes(low, high, range(count) if counts else [None])


def _interval(ends: Any, axis: Axis, what: str) -> tuple[FloatArray, FloatArray]:
    first, last = _ends(ends, axis, what)
    low, high = ((end - axis.low) / axis.width for end in (first, last))
    return low, np.where(last == axis.high, 1.0, high)


def _ends(ends: Any, axis: Axis, what: str) -> tuple[FloatArray, FloatArray]:
    """Parse ends in data units, flat."""
    where, remedy = f"{what}: {axis.name}", f"Write {axis.name} = (low, high), or None for an end"
    try:
        low, high = ends
    except (TypeError, ValueError):
        raise SpecError(f"{where} must have two ends. {remedy}") from None
    domain, pairs = Domain((axis,)), ((low, axis.low), (high, axis.high))
    try:
        first, last = (
            np.atleast_1d(as_numbers(bound if end is None else end, axis.unit, domain))
            for end, bound in pairs
        )
    except SpecError:  # which speaks of points
        raise SpecError(f"{where}: ends must be numbers, or dates of a date. {remedy}") from None
    if first.ndim != 1 or last.ndim != 1:
        raise SpecError(f"{where}: ends must be numbers or flat arrays. {remedy}")
    if len({len(first), len(last)} - {1}) > 1:
        raise SpecError(f"{where}: arrays of ends must be equally long")
    if not (np.isfinite(first).all() and np.isfinite(last).all()):
        raise SpecError(f"{where}: ends must be finite numbers. {remedy}")
    outside = [*first[first < axis.low], *last[last > axis.high]]
    if outside:
        bounds = " to ".join(_end_text(end, axis, f"{end:g}") for end in (axis.low, axis.high))
        beyond = float(outside[0])
        raise SpecError(
            f"{where} leaves its bounds, {bounds}, with an end at "
            f"{_end_text(beyond, axis, repr(beyond))}: nothing is known beyond. "
            f"{remedy} that is open"
        )
    one_value = axis.multiples is not None  # may be asked for, where rows are rounded to it
    if not np.all((first < last) | (one_value & (first == last))):
        raise SpecError(
            f"{where}: the lower end must be below the upper one. {remedy} that is open"
        )
    return first, last


def require_one_box(boxes: Boxes) -> Boxes:
    """Return the boxes of a condition, which must be one. Raises SpecError for several."""
    if len(boxes) != 1:
        raise SpecError("given: write one box")
    return boxes


def part_of(window: Region, domain: Domain) -> Domain:
    """Return the part of a domain that one box is.

    Raises SpecError as `boxes_of`, or for several boxes.
    """
    if not hasattr(window, "get") or len(boxes_of(window, domain, "window")) != 1:
        raise SpecError(f"window: write one box, such as {_example(domain)}")
    axes = []
    for axis in domain.axes:
        low, high = _ends(window.get(axis.name, (None, None)), axis, "window")
        if not axis.categories:  # which a grid refuses
            axis = replace(axis, low=float(low[0]), high=float(high[0]), resolution=None)
        axes.append(axis)
    return Domain(tuple(axes))
