"""The difference of two releases with its simultaneous band, and its picture.

The picture is in colour where the band proves a difference, pale elsewhere.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from fractions import Fraction
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.ask.labels import response_name
from dbern.ask.points import read_beta
from dbern.data.domain import Domain, named_with, rounded_text
from dbern.errors import SpecError, optional_import, printable
from dbern.report.colours import INK, channels
from dbern.synopsis.drawing import FAR, MAX_PANELS, eastward_degree, write_plainly
from dbern.synopsis.reader import Synopsis
from dbern.types import FloatArray

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


CELLS_PER_AXIS = {1: 400, 2: 160}
"""Cells along each axis, by the number of axes."""
_BETA_OF_ROWS = Fraction(1, 20)
"""Part of a release's beta for the count of rows with a value."""
_MORE, _LESS = "#0a6b6b", "#b4531a"
_PALE = "#f0f0ee"  # where nothing is proven: the sign of noise would look like a pattern
_MIN_STRENGTH = 0.4  # strength of a proven difference's colour, at least
_HINT = "pictures need matplotlib. Install it with: pip install 'dbern[report]'"
_MAX_LABEL_LETTERS = 40  # letters of a scale's label: it is no longer than the map is high
_HEADING_LETTERS_PER_INCH = 11
_LEGEND_DISTANCE = 4.5  # heights of its letters, which those of an axis's labels fit into
_INK, _MUTED, _RULE = (INK["light"][name] for name in ("ink", "muted", "rule"))


def change_between(new: Synopsis, old: Synopsis, beta: float | str = 0.05) -> xarray.Dataset:
    """Return a function less that of an older release, in the middles of equal cells.

    ``value``, and the ends ``low`` and ``high`` of its band: with probability ``1 - beta`` the
    difference of the two non-private functions lies in it everywhere at once, as each of the two
    lies in its own band with ``1 - beta / 2``. Where ``low`` is above 0 there is surely more, and
    where ``high`` is below 0 surely less; by group, of the groups that are in both. All three are
    NaN where one of two regressions has no rows (`Synopsis.interval`).

    Densities are of the rows that had a value, where both releases tell how many there were, which
    bins do: otherwise missing values would be a change, or another normalizer. The attributes
    ``new_rows`` and ``old_rows`` say how many, about, of all groups together.

    Raises SpecError for classifiers and functions of three axes or more, for two that are over
    other axes or bounds, tell different things or are smoothed, rounded or cut differently, and for
    a confidence that cannot be.
    """
    import xarray

    _check_alike(new, old)
    probability, domain = read_beta(beta), new.domain
    shape, window = CELLS_PER_AXIS[len(domain.axes)], _middles(domain)
    sides = new, old
    rows = [_rows_with_values(synopsis, probability / 2 * _BETA_OF_ROWS) for synopsis in sides]
    counts = [count for count in rows if count is not None]
    divided = new.meaning == "density" and len(counts) == len(sides)
    beta_i = probability / 2 * (1 - _BETA_OF_ROWS if divided else 1)
    bands = [_value_and_band(synopsis, shape, window, beta_i) for synopsis in sides]
    if divided:
        bands = list(map(_divide_by_rows, bands, counts, sides))
    (value, low, high), (old_value, old_low, old_high) = bands
    parts = value - old_value, low - old_high, high - old_low
    change = xarray.Dataset(dict(zip(("value", "low", "high"), parts, strict=True)))
    if 0 in change.sizes.values():
        raise SpecError("change: no group is in both releases. Draw two that share one")
    for name in change.coords:
        change[name].attrs = value[name].attrs
    for array in change.values():
        array.attrs = dict(value.attrs)
    change.attrs = {
        "new": new.metadata["name"],
        "old": old.metadata["name"],
        "beta": float(probability),
    }
    for name, count in zip(("new_rows", "old_rows"), rows, strict=True):
        change.attrs |= {} if count is None else {name: round(count[0])}
    return change


def _rows_with_values(synopsis: Synopsis, beta: Fraction) -> tuple[float, float, float] | None:
    """Return the count of rows with a value, and its ends; None where no bins tell it."""
    try:
        distribution = synopsis.distribution()
    except SpecError:
        return None
    whole = dict.fromkeys(distribution.domain.names, (None, None))
    with distribution.confidence(str(beta), questions=1) as questions:
        answer = questions.count(whole)
    value, low, high = (float(np.sum(part)) for part in (answer.value, answer.low, answer.high))
    return value, low, high


def _divide_by_rows(
    band: tuple[Any, Any, Any], rows: tuple[float, float, float], synopsis: Synopsis
) -> tuple[Any, Any, Any]:
    """Turn a density of all rows, and its band, into that of the rows that had a value."""
    share, fewest, most = (part / synopsis.distribution().rows for part in rows)
    if fewest <= 0:
        raise SpecError(
            f"change: noise hides how many rows of {synopsis.metadata['name']} had a value. "
            "Compare releases of more rows, or of a larger epsilon"
        )
    value, low, high = band
    low = low / np.where(np.asarray(low) < 0, fewest, most)
    return value / share, low, high / np.where(np.asarray(high) < 0, most, fewest)


def _value_and_band(
    synopsis: Synopsis, shape: int, window: dict[str, tuple[float, float]], beta: Fraction
) -> tuple[Any, Any, Any]:
    values = synopsis.grid(shape, window=window)
    low, high = synopsis.interval(values, str(beta))
    return values.where(low.notnull()), low, high


def _middles(domain: Domain) -> dict[str, tuple[float, float]]:
    """Return the box from the middle of the first cell to that of the last."""
    half = 0.5 / CELLS_PER_AXIS[len(domain.axes)]
    return {
        axis.name: (axis.low + half * axis.width, axis.high - half * axis.width)
        for axis in domain.axes
    }


def _check_alike(new: Synopsis, old: Synopsis) -> None:
    axes = [
        [(axis.name, axis.low, axis.high, axis.unit, axis.categories) for axis in side.domain.axes]
        for side in (new, old)
    ]
    if len(axes[0]) not in CELLS_PER_AXIS or new.domain.categorical:
        raise SpecError(
            "change: is drawn of functions of one or two axes of numbers. Compare shares: dbern "
            "ask NEW --compare REGION --with OLD"
        )
    if axes[0] != axes[1]:
        raise SpecError(
            "change: the two releases are over other axes or bounds. Draw two over the same, or "
            "compare shares of rows: dbern ask NEW --compare REGION --with OLD"
        )
    if new.meaning not in ("density", "response") or new.meaning != old.meaning:
        raise SpecError(
            "change: is of two densities, or of two regressions. Draw two such releases"
        )
    here, there = map(_specified, (new, old))
    for key in here:
        if here[key] != there[key]:
            smoothed = (
                ", or compare smoothed shares: dbern ask NEW --compare REGION --with OLD --target "
                "smoothed"
            )
            raise SpecError(
                f"change: {key} is {here[key]} here and {there[key]} there, so that the two differ "
                f"by it alone. Release both with one {key}{smoothed * (key == 'bandwidth')}"
            )


def _specified(synopsis: Synopsis) -> dict[str, Any]:
    """Return what moves a function though its rows stay, as specs state it; None: not stated."""
    metadata, axes = synopsis.metadata, synopsis.domain.axes
    target, combination = metadata["target"], metadata["combine"]
    edges = target.get("edges") or "natural"
    texts = [edges] * len(axes) if isinstance(edges, str) else [*edges]
    ends = [combination[end] for end in ("low", "high") if end in combination]
    response = f"{response_name(metadata)} from {ends[0]} to {ends[1]}" if ends else None
    return {
        **{key: target.get(key) for key in ("bandwidth", "covariance", "kernel")},
        "edges": texts[0] if len({*texts}) == 1 else ", ".join(texts),
        "resolution": rounded_text(axes) or None,
        "outside": metadata["domain"]["outside"],
        "response": response,
    }


@dataclass(frozen=True)
class ProvenShares:
    """Shares of the axis, or of the map's area, where a change is proven to be more, and less."""

    more: float
    less: float

    @classmethod
    def of(cls, change: xarray.Dataset) -> ProvenShares:
        """Return the shares of a change on cells of equal size."""
        return cls(float((change["low"] > 0).mean()), float((change["high"] < 0).mean()))

    @property
    def labels(self) -> dict[str, str]:
        """Labels of a legend by colour: more, less, and without a proof."""
        shares = {"surely more": self.more, "surely less": self.less}
        shares["no proof"] = 1 - self.more - self.less
        return {name: f"{name}: {_percent(share)}" for name, share in shares.items()}


def change_picture(change: xarray.Dataset, kind: str, value: str) -> bytes:
    """Draw a change, of one axis or two, as the content of a file: "png", "svg" or "pdf".

    `value` is what the values of both releases are called.
    """
    content = io.BytesIO()
    _draw_figure(change, value).savefig(content, format=kind, bbox_inches="tight", pad_inches=0.15)
    return content.getvalue()


def _draw_figure(change: xarray.Dataset, value: str) -> Figure:
    with optional_import(_HINT):
        from matplotlib.figure import Figure
    panels = _titled_panels(change)
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    two = change["value"].ndim - ("group" in change.dims) == 2
    size = (7.6, 6.4) if len(panels) == 1 and two else (8.4, 5.0)
    if len(panels) > 1:
        size = (4.2 * columns + 1.2, 3.9 * rows + 0.8)
    figure = Figure(figsize=size, layout="compressed", dpi=150, facecolor="white")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    largest, label = _largest_proven(change), f"difference in {value}"
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for index, (axes, (title, panel)) in enumerate(zip(grid, panels, strict=False)):
        if two:
            _draw_map(axes, panel, largest)
        else:
            _draw_curve(axes, panel)
            axes.set_ylabel(fill(label, _MAX_LABEL_LETTERS))
        axes.tick_params(colors=_MUTED, labelsize=8.5)
        axes.spines[:].set_color(_RULE)
        _label_outer(axes, leftmost=index % columns == 0, lowest=index + columns >= len(panels))
        axes.set_title(title, fontsize=10, color=_INK, loc="left")
        axes.legend(
            handles=_legend_handles(panel), loc="upper center", bbox_to_anchor=(0.5, 0.0),
            borderaxespad=_LEGEND_DISTANCE, ncols=3 if len(panels) == 1 else 1,
            frameon=False, fontsize=8.5, columnspacing=1.2, handlelength=1.2,
        )  # fmt: skip
    if two:
        _draw_scale(figure, list(grid[: len(panels)]), label, largest)
    heading = _heading(change.attrs, int(_HEADING_LETTERS_PER_INCH * size[0]))
    figure.suptitle(heading, fontsize=11, color=_INK, parse_math=False)
    write_plainly(*grid[: len(panels)])
    return figure


def _label_outer(axes: Axes, *, leftmost: bool, lowest: bool) -> None:
    """Label an axis where no panel to the left or below has the same."""
    axes.tick_params(labelleft=leftmost, labelbottom=lowest)
    if not leftmost:
        axes.set_ylabel("")
    if not lowest:
        axes.set_xlabel("")


def _heading(attributes: dict[str, Any], letters: int) -> str:
    """Return the heading, in lines of at most so many letters."""
    sentences = (
        f"{attributes['new']} less {attributes['old']}:",
        "in colour where the difference is proven, everywhere at once with probability "
        f"{1 - attributes['beta']:g}",
    )
    return "\n".join(
        fill(printable(sentence), letters, break_on_hyphens=False) for sentence in sentences
    )


def _largest_proven(change: xarray.Dataset) -> float:
    """Return the largest size of a proven difference, or of all where none is proven."""
    values, low, high = (change[name].to_numpy() for name in ("value", "low", "high"))
    proven = (low > 0) | (high < 0)
    sizes = np.abs(values[proven if proven.any() else ~np.isnan(values)])
    return float(sizes.max(initial=0.0)) or 1.0


def _titled_panels(change: xarray.Dataset) -> list[tuple[str, xarray.Dataset]]:
    """Return titles and panels: one for each group."""
    if "group" not in change.dims:
        return [("", change)]
    groups = change["group"].to_numpy()[:MAX_PANELS]
    return [(printable(str(group)), change.sel(group=group)) for group in groups]


def _draw_map(axes: Axes, change: xarray.Dataset, largest: float) -> None:
    second, first = (change[name] for name in change["value"].dims)
    values, low, high = (change[name].to_numpy() for name in ("value", "low", "high"))
    colours = _blend(values, _MIN_STRENGTH + (1 - _MIN_STRENGTH) * np.abs(values) / largest)
    colours[~((low > 0) | (high < 0))] = channels(_PALE)  # also where there are no rows
    axes.pcolormesh(first, second, colours, shading="nearest", rasterized=True)
    for bound in (low, high):
        if (bound < 0).any() and (bound > 0).any():
            axes.contour(first, second, bound, [0.0], colors=_INK, linewidths=0.7)
    axes.set(xlabel=_label(first), ylabel=_label(second), xlim=_edges(first), ylim=_edges(second))
    lengths = [np.ptp(axis.to_numpy()) for axis in (first, second)]
    degree = eastward_degree(change["value"])
    alike = first.attrs.get("units") == second.attrs.get("units") and first.dtype == second.dtype
    if degree or (alike and 1 / FAR <= lengths[1] / lengths[0] <= FAR):
        axes.set_aspect(1 / (degree or 1.0))


def _draw_curve(axes: Axes, change: xarray.Dataset) -> None:
    (name,) = change["value"].dims
    points, values = change[name], change["value"].to_numpy()
    low, high = change["low"].to_numpy(), change["high"].to_numpy()
    axes.axhline(0.0, color=_MUTED, lw=0.8)
    everywhere = np.ones(len(values), np.bool_)
    for where, colour, alpha in (
        (everywhere, _MUTED, 0.2), (low > 0, _MORE, 0.45), (high < 0, _LESS, 0.45),
    ):  # fmt: skip
        axes.fill_between(points, low, high, where=where, color=colour, alpha=alpha, lw=0)
        axes.plot(points, np.where(where, values, np.nan), color=colour, lw=2.2)
    bottom, top = axes.get_ylim()  # a band far wider than the curve would make it flat
    known = values[~np.isnan(values)]
    if known.size and np.ptp(known) > 0:
        reach = FAR * float(np.ptp(known))
        axes.set_ylim(max(bottom, known.min() - reach), min(top, known.max() + reach))
    axes.set(xlabel=_label(points), xlim=_edges(points))


def _draw_scale(figure: Figure, panels: list[Axes], label: str, largest: float) -> None:
    """Draw the colours of proven differences, from the least to the largest."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    size = np.linspace(-1.0, 1.0, 256)
    colours = ListedColormap(
        _blend(np.sign(size), _MIN_STRENGTH + (1 - _MIN_STRENGTH) * np.abs(size))
    )
    scale = ScalarMappable(Normalize(-largest, largest), colours)
    bar = figure.colorbar(scale, ax=panels, shrink=0.8, aspect=28, pad=0.02)
    bar.set_label(fill(label, _MAX_LABEL_LETTERS), fontsize=9, color=_INK)
    bar.ax.tick_params(colors=_MUTED, labelsize=8.5)
    bar.outline.set_edgecolor(_RULE)
    write_plainly(bar.ax)


def _legend_handles(change: xarray.Dataset) -> list[Any]:
    from matplotlib.patches import Patch

    colours = [tuple(_blend(np.array(sign), np.array(0.75))) for sign in (1.0, -1.0)]
    colours.append(tuple(channels(_PALE)))
    labels = ProvenShares.of(change).labels.values()
    return [
        Patch(facecolor=colour, edgecolor=_RULE, label=label)
        for colour, label in zip(colours, labels, strict=True)
    ]


def _blend(sign: FloatArray, strength: FloatArray) -> FloatArray:
    """Return colours (.., 3) on white, of a strength from 0 to 1."""
    hue = np.where((sign > 0)[..., None], channels(_MORE), channels(_LESS))
    return np.asarray(1 - strength[..., None] * (1 - hue))


def _edges(axis: xarray.DataArray) -> tuple[Any, Any]:
    """Return the bounds of an axis, from the middles of its cells."""
    points = axis.to_numpy()
    half = (points[1] - points[0]) / 2
    return points[0] - half, points[-1] + half


def _label(axis: xarray.DataArray) -> str:
    name = str(axis.attrs.get("long_name", axis.name))
    return printable(named_with(name, str(axis.attrs.get("units", ""))))


def _percent(share: float) -> str:
    if 0 < share < 0.01:
        return "under 1 %"
    return "over 99 %" if 0.99 < share < 1 else f"{100 * share:.0f} %"
