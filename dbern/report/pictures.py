"""Pictures of released functions: which curves, maps or regions they show, and of what axes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dbern.ask.labels import named_values, upright
from dbern.bernstein.basis import MOST_AXES
from dbern.data.domain import Axis, named_with, volume_unit
from dbern.errors import printable
from dbern.synopsis.drawing import FAR, MAX_PANELS
from dbern.synopsis.grids import values_on_grid
from dbern.synopsis.reader import Synopsis
from dbern.types import BoolArray, FloatArray

_LATITUDE = re.compile(r"(^|[^a-z])lat(itude)?s?([^a-z]|$)", re.IGNORECASE)
_MAX_NAMED_AXES = 8  # axes that are not drawn
_PAGE = {1: 401, 2: 161, 3: 81}  # points along each axis that a page draws
_THICKNESS = 13  # points along the third axis, of which every other one is a slice


@dataclass(frozen=True)
class Panel:
    """One curve (n,) or one map (n, m) on a regular grid, in data units; or regions of classes."""

    title: str  # which group, class or slice; empty where there is only one panel
    values: FloatArray  # of regions, the index of the class in the list of all
    low: FloatArray | None = None  # end of a curve's simultaneous band
    high: FloatArray | None = None
    leads: FloatArray | None = None  # (n, m, classes), of each class over the best other one
    certain: BoolArray | None = None  # (n, m), where the band leaves no doubt of the class


@dataclass(frozen=True)
class Picture:
    """Panels over the same one or two axes."""

    kind: str  # "curve", over one axis; "map" or "regions", over two
    axes: tuple[Axis, ...]
    panels: tuple[Panel, ...]
    classes: tuple[str, ...] = ()  # of regions, or of a curve's sides of the threshold
    threshold: float | None = None  # above it the second of two classes is decided for
    left_out: int = 0  # groups or classes that are not drawn
    fixed: str = ""  # where the axes that are not drawn are; empty where all are drawn or sliced
    value: str = ""  # what values are called, with their units

    @property
    def largest(self) -> float | None:
        """Largest value drawn, whatever its sign; None of regions, which show no values."""
        if self.kind == "regions":
            return None
        return max(float(np.abs(_known(panel.values)).max(initial=0.0)) for panel in self.panels)

    @property
    def missing(self) -> bool:
        """Whether values are missing, where there are no rows."""
        return any(bool(np.isnan(panel.values).any()) for panel in self.panels)

    @property
    def blank(self) -> bool:
        """Whether all values are."""
        return all(bool(np.isnan(panel.values).all()) for panel in self.panels)

    @property
    def low(self) -> float:
        """Least value drawn, its band included as far as it is drawn."""
        return self._bound(np.min, [panel.low for panel in self.panels])

    @property
    def high(self) -> float:
        """Largest value drawn, its band included as far as it is drawn."""
        return self._bound(np.max, [panel.high for panel in self.panels])

    @property
    def beyond(self) -> bool:
        """Whether a band is wider than what is drawn of it."""
        bounds = [bound for panel in self.panels for bound in (panel.low, panel.high)]
        return any(
            bool((bound < self.low).any() or (bound > self.high).any())
            for bound in bounds
            if bound is not None
        )

    def _bound(self, extremum: Any, bands: Sequence[FloatArray | None]) -> float:
        """Bound what is drawn: a band far wider than the values would make them a flat line."""
        values = _known(np.concatenate([panel.values.ravel() for panel in self.panels]))
        if not values.size:
            return 0.0
        of_values = float(extremum(values))
        max_excess = FAR * float(np.ptp(values)) or np.inf
        of_bands = [extremum(_known(band)) for band in bands if band is not None]
        bound = float(extremum([of_values, *of_bands]))
        return min(max(bound, of_values - max_excess), of_values + max_excess)


def _known(values: FloatArray) -> FloatArray:
    return values[~np.isnan(values)]


def is_turned(axes: Sequence[Axis]) -> bool:
    """Whether the first of two axes or more is drawn upward: it is called y, or a latitude."""
    names = [axis.name for axis in axes[:2]]
    if len(names) < 2:
        return False
    latitudes = [bool(_LATITUDE.search(name)) for name in names]
    return upright(names)[0] == names[0] or latitudes == [True, False]


def upright_picture(picture: Picture) -> Picture:
    """Turn a map's latitudes upward, whichever of its axes comes first."""
    if not is_turned(picture.axes):
        return picture
    panels = tuple(_turned(panel) for panel in picture.panels)
    return replace(
        picture, axes=(picture.axes[1], picture.axes[0], *picture.axes[2:]), panels=panels
    )


def _turned(panel: Panel) -> Panel:
    fields = ("values", "low", "high", "leads", "certain")
    turned = {
        name: value.swapaxes(0, 1) for name in fields if (value := getattr(panel, name)) is not None
    }
    return replace(panel, **turned)


def label(axis: Axis) -> str:
    """Return an axis's name, with its units or the zone of times."""
    return printable(axis.label)


def is_classifier(synopsis: Synopsis) -> bool:
    """Whether its values decide on classes; functions of groups do not."""
    return bool(synopsis.classes) and not _is_grouped(synopsis)


def _is_grouped(synopsis: Synopsis) -> bool:
    """Whether it has a density or a regression for each group."""
    return bool(synopsis.classes) and synopsis.meaning in ("density", "response")


def picture_of(synopsis: Synopsis, resolution: int) -> Picture:
    """Choose what to draw: a curve, maps or slices, on `resolution` points an axis.

    One axis gives a curve for each group or class, two axes a map for each group or one of the
    class regions, three axes such maps at six values of the third axis, and more one such map
    through the middle of the others. Axes of categories are not drawn: the function is that of
    their first values. The band is simultaneous over the whole domain, at the
    confidence of the certificate.
    """
    axes, categorical = synopsis.domain.numeric, synopsis.domain.categorical
    if len(axes) == 1:
        return _curves(synopsis, resolution)
    fixed = _fixed_text([*categorical, *axes[2:]]) if len(axes) > 3 or categorical else ""
    if fixed:
        slices = [("", _through_the_middle(synopsis, resolution))]
    else:
        values = _on_grid(synopsis, [resolution, resolution, _THICKNESS][: len(axes)])
        slices = [("", values)] if len(axes) == 2 else list(_slices(axes[2], values))
    labels = tuple(printable(str(label)) for label in synopsis.classes)
    heights: list[dict[str, float]] = [{}]
    if len(slices) > 1:
        heights = [{axes[2].name: height} for height in _heights(axes[2])]
    planes = [_plane(synopsis, resolution, height) for height in heights]
    pairs = zip(slices, planes, strict=True)
    if is_classifier(synopsis):
        panels = [_regions(synopsis, title, values, points) for (title, values), points in pairs]
        return Picture("regions", axes[:2], tuple(panels), labels, fixed=fixed)
    slices = [(title, _where_rows_are(synopsis, of, points)) for (title, of), points in pairs]
    if not synopsis.combination.multi_output:
        panels = [Panel(title, values) for title, values in slices]
        return Picture("map", axes[:2], tuple(panels), fixed=fixed, value=value_name(synopsis))
    drawn = [
        Panel(" · ".join(filter(None, (label, title))), values[..., column])
        for column, label in enumerate(labels)
        for title, values in (slices if len(slices) == 1 else slices[1::2])
    ]
    left_out = len(labels) - len(labels) * min(len(drawn), MAX_PANELS) // len(drawn)
    shown = tuple(drawn[:MAX_PANELS])
    value = value_name(synopsis)
    return Picture("map", axes[:2], shown, left_out=left_out, fixed=fixed, value=value)


def value_name(synopsis: Synopsis) -> str:
    """Return the name of values, with their units."""
    combination, domain = synopsis.combination, synopsis.domain
    if synopsis.meaning == "density":
        volume = volume_unit(domain.axes, labels=True)
        return printable("density" + combination.unit_text(volume, density=True))
    return printable(named_with(*named_values(combination, domain, synopsis.metadata)))


def page_picture(synopsis: Synopsis) -> Picture | None:
    """Return the picture of a page; errors are shares of its largest value.

    Where every axis is a list of values there is none.
    """
    axes = len(synopsis.domain.numeric)
    if not axes:
        return None
    drawn = axes if axes <= (2 if synopsis.domain.categorical else 3) else 2
    return picture_of(synopsis, _PAGE[3 if drawn == 2 and _is_grouped(synopsis) else drawn])


def _on_grid(synopsis: Synopsis, shape: Sequence[int]) -> FloatArray:
    """Evaluate on a grid, classes last, without its labels: these take all of xarray to import."""
    function = synopsis._function
    return values_on_grid(function, shape, function.smoothings(None))


def _through_the_middle(synopsis: Synopsis, resolution: int) -> FloatArray:
    """Values (n, n) or (n, n, classes) along the first two axes, n the resolution."""
    num_fixed = len(synopsis.domain.axes) - 2
    # Axis by axis, as points are not.
    if num_fixed + 2 <= MOST_AXES and not synopsis.domain.categorical:
        grid = _on_grid(synopsis, [resolution, resolution, *[3] * num_fixed])
        middles: Any = (slice(None), slice(None), *[1] * num_fixed)
        return np.asarray(grid[middles])
    values = np.asarray(synopsis(_plane(synopsis, resolution, {})))
    return values.reshape(resolution, resolution, *values.shape[1:])


def _plane(synopsis: Synopsis, resolution: int, heights: Mapping[str, float]) -> dict[str, Any]:
    """Points of a map over the first two axes, at heights of further ones."""
    first, second = synopsis.domain.numeric[:2]
    steps = np.linspace(0.0, 1.0, resolution)
    drawn = {first.name: np.repeat(first.at(steps), resolution)}
    drawn[second.name] = np.tile(second.at(steps), resolution)
    drawn |= {name: np.full(resolution**2, height) for name, height in heights.items()}
    return _with_fixed_axes(synopsis, drawn)


def _where_rows_are(synopsis: Synopsis, values: FloatArray, points: Any) -> FloatArray:
    """Return values at points, NaN where `Synopsis.interval` is."""
    if not synopsis._bands.may_be_missing:
        return values
    low, _ = synopsis.interval(points, synopsis.metadata["certificate"]["beta"])
    return np.where(np.isnan(np.reshape(low, values.shape)), np.nan, values)


def _with_fixed_axes(synopsis: Synopsis, drawn: Mapping[str, FloatArray]) -> dict[str, Any]:
    count = len(next(iter(drawn.values())))
    return {axis.name: [middle(axis)] * count for axis in synopsis.domain.axes} | dict(drawn)


def middle(axis: Axis) -> Any:
    """Return the value of an axis that is not drawn: its middle, or its first value."""
    return axis.categories[0] if axis.categories else axis.low + axis.width / 2


def _fixed_text(axes: Sequence[Axis]) -> str:
    middles = [(axis, middle(axis)) for axis in axes[:_MAX_NAMED_AXES]]
    named = ", ".join(
        f"{axis.name} = {value if axis.categories else axis.text(value)}" for axis, value in middles
    )
    more = len(axes) - _MAX_NAMED_AXES
    return f"{named} and {more} more in their middle" if more > 0 else named


def _slices(axis: Axis, values: FloatArray) -> Iterator[tuple[str, FloatArray]]:
    for index, height in enumerate(_heights(axis)):
        title = f"{axis.name} = {axis.text(height)}"
        yield printable(title), values[:, :, 2 * index + 1]


def _heights(axis: Axis) -> list[float]:
    steps = range(1, _THICKNESS, 2)
    return [axis.low + axis.width * step / (_THICKNESS - 1) for step in steps]


def _curves(synopsis: Synopsis, resolution: int) -> Picture:
    (axis,), categorical = synopsis.domain.numeric, synopsis.domain.categorical
    points: Any = axis.at(np.linspace(0.0, 1.0, resolution))
    points = _with_fixed_axes(synopsis, {axis.name: points}) if categorical else points
    values = np.asarray(synopsis(points)).reshape(resolution, -1)
    interval = synopsis.interval(points, synopsis.metadata["certificate"]["beta"])
    low, high = (np.reshape(bound, (resolution, -1)) for bound in interval)
    values = np.where(np.isnan(low), np.nan, values)
    labels = tuple(printable(str(label)) for label in synopsis.classes)
    titles = labels if synopsis.combination.multi_output else ("",)
    panels = [
        Panel(title, values[:, i], low[:, i], high[:, i])
        for i, title in enumerate(titles[:MAX_PANELS])
    ]
    binary = len(labels) == 2 and not synopsis.combination.multi_output
    return Picture(
        "curve",
        (axis,),
        tuple(panels),
        labels if binary else (),
        synopsis.combination.threshold if binary else None,
        len(titles) - len(panels),
        _fixed_text(categorical) if categorical else "",
        value_name(synopsis),
    )


def _regions(synopsis: Synopsis, title: str, values: FloatArray, points: Any) -> Panel:
    interval = synopsis.interval(points, synopsis.metadata["certificate"]["beta"])
    low, high = (np.reshape(bound, values.shape) for bound in interval)
    if values.ndim == 2:
        threshold = synopsis.combination.threshold
        leads = np.stack([threshold - values, values - threshold], axis=-1)
        certain = (low > threshold) | (high < threshold)
    else:
        ordered = np.sort(values, axis=-1)
        best, second = ordered[..., -1:], ordered[..., -2:-1]
        leads = values - np.where(values == best, second, best)
        high_of_others = np.where(values == best, -np.inf, high).max(axis=-1)
        certain = np.where(values == best, low, np.inf).min(axis=-1) > high_of_others
    return Panel(title, leads.argmax(axis=-1).astype(np.float64), leads=leads, certain=certain)
