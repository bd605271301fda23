"""Notebook view of a synopsis: its facts as a table, and a drawing of its function."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from textwrap import fill
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dbern.ask.labels import function_title, of_columns
from dbern.ask.points import Points, Shape, Window
from dbern.certify.error_summary import lower_bound_text, upper_bound_text
from dbern.combination.base import Combination, Meaning
from dbern.data.domain import Domain, rounded_text, volume_unit
from dbern.errors import SpecError, optional_import, printable
from dbern.synopsis.bands import NO_ROWS, BandRequest
from dbern.synopsis.grids import check_numeric
from dbern.system import html_table
from dbern.types import BoolArray, FloatArray

if TYPE_CHECKING:
    import xarray


FAR = 3.0
"""Times what values vary by: how far beyond them a band is drawn."""
MAX_PANELS = 12
"""Most groups or classes that are drawn as maps; a picture says so where it leaves some out."""
MAX_CURVES = 10
"""Most of them in one drawing: as many as matplotlib has colours."""
_HINT = "pictures need matplotlib. Install it with: pip install 'dbern[report]'"
_SHOWN_POINTS = {1: 401, 2: 201}
_LONGEST = 3.0  # side of a map in true aspect
_COLUMNS = 4  # of maps of groups
_TITLE_LETTERS = 58  # of a line
_TITLE_HEIGHT = 0.2  # inches of a line
_PAD = 0.12  # inches on either side of a map of a group
_BAND_OPACITY = 0.25
_EVEN = 0.9  # least width of the largest, from which on one number tells both
_HATCH = {"facecolor": "0.96", "edgecolor": "0.7", "hatch": "///", "linewidth": 0}


class Drawable(Protocol):
    """A synopsis, whose function is drawn."""

    @property
    def domain(self) -> Domain:
        """Its axes."""

    @property
    def combination(self) -> Combination:
        """Making of the function from what was released."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Contents of the release."""

    @property
    def meaning(self) -> Meaning:
        """Meaning of its values."""

    def grid(self, shape: Shape, *, window: Window = None) -> xarray.DataArray:
        """Return labelled values on a grid."""

    def interval(self, points: Points) -> tuple[Any, Any]:
        """Return the ends of its band."""


def described(metadata: Mapping[str, Any], domain: Domain, where: str, constant: str) -> str:
    """Write what was released, over what, and what is promised, as an HTML table.

    `constant` promises as much as the release does; it is empty where that promises more.
    """
    certificate, axes = metadata["certificate"], domain.axes
    bound = f"at most {upper_bound_text(certificate['total'])} everywhere"
    promised = f"{bound}, with probability {1 - certificate['beta']:g}"
    guarantee = f"epsilon {metadata['epsilon']}, delta {metadata['delta']}"
    texts = {key: metadata[key] for key in ("title", "description") if key in metadata}
    return html_table(
        {
            "synopsis": metadata["name"],
            **texts,
            "function": f"{metadata['target']['kind']}{of_columns(metadata)}",
            "over": "; ".join(
                f"{axis.label} from {axis.text(axis.low)} to {axis.text(axis.high)}"
                f"{', ' * (axis.resolution is not None)}{rounded_text([axis])}"
                for axis in axes
            ),
            "guarantee": f"{guarantee}, {metadata['neighbors']}, unit {metadata['unit']}",
            "error": f"none is promised: {constant}" if constant else promised,
            "stored": where,
        }
    )


def plotted(synopsis: Drawable, ax: Any = None, *, window: Window = None, **how: Any) -> Any:
    """Draw a curve with its simultaneous band, or a map: upright, in true aspect where it can be.

    Axes of lengths that are alike are drawn to one scale, and degrees as in the middle of the map,
    where a degree to the east is as long as the cosine of the latitude. Groups and classes are
    lines of a curve, and a map each: the first ones of many, which the title says. Curves have a
    gap, and maps a hatch, where `interval` is missing: no rows here. A map's colour bar tells how
    far values may be off. `how` goes to ``xarray.DataArray.plot``, whose result is returned; `ax`
    is not for maps of groups. A figure that is not stated gets a layout that cuts off no label.
    Raises SpecError for three axes or more, or a list.
    """
    domain = synopsis.domain
    check_numeric(domain, "plot")
    axes = domain.axes
    if len(axes) not in _SHOWN_POINTS:
        raise SpecError(
            f"plot: there are {len(axes)} axes. Select from a grid, such as "
            f"synopsis.grid(50).isel({axes[-1].name}=25).plot()"
        )
    grid = synopsis.grid(_SHOWN_POINTS[len(axes)], window=window)
    low, high = synopsis.interval(grid)
    notes = []
    if grid.ndim > len(axes):
        by, most = str(grid.dims[-1]), MAX_CURVES if len(axes) == 1 else MAX_PANELS
        if grid.sizes[by] > most:
            notes = [f"the first {most} of {grid.sizes[by]} by {grid[by].attrs['long_name']}"]
        grid, low, high = (array.isel({by: slice(most)}) for array in (grid, low, high))
    precision = _precision_text(grid, low, high, curve=len(axes) == 1)
    heading = _heading(synopsis, [precision, *notes])
    shown = grid.where(low.notnull()).assign_attrs(long_name=_value_name(synopsis, grid))
    if synopsis.meaning == "density":  # whose units, such as miles-1 hours-1, are for files
        shown.attrs.pop("units", None)
    with optional_import(_HINT):
        import matplotlib as mpl
    alone = ax is None and shown.ndim <= 2  # a figure of one drawing, which is made here
    with mpl.rc_context({"figure.constrained_layout.use": alone}):
        if len(axes) == 1:
            return _curves(shown, (low, high), heading, ax, how)
        drawn = _maps(shown, heading, ax, how)
    _set_aspect(drawn, grid, alike=axes[0].attributes == axes[1].attributes)
    return drawn


def _value_name(synopsis: Drawable, grid: xarray.DataArray) -> str:
    """Return what a figure calls the values."""
    name = str(grid.attrs["long_name"])
    if name == "density":
        return f"density per {volume_unit(synopsis.domain.axes)}"
    return f"mean of {name}" if synopsis.meaning == "response" else name


def _heading(synopsis: Drawable, notes: Sequence[str]) -> str:
    """Return the title of a figure: what was released, for how much, and when."""
    metadata = synopsis.metadata
    parts = [function_title(synopsis.combination, synopsis.domain, metadata)]
    parts += [f"epsilon {metadata['epsilon']}"]
    parts += [f"delta {metadata['delta']}"] if Fraction(metadata["delta"]) else []
    parts += [str(metadata.get("created", ""))[:10], *metadata.get("post_processing", [])]
    lines = [str(metadata.get("title", metadata["name"])), ", ".join(filter(None, parts)), *notes]
    return "\n".join(fill(printable(line), _TITLE_LETTERS) for line in lines)


def _curves(
    grid: xarray.DataArray,
    band: tuple[xarray.DataArray, xarray.DataArray],
    heading: str,
    ax: Any,
    how: dict[str, Any],
) -> Any:
    axis, *groups = grid.dims
    drawn = grid.plot.line(x=axis, ax=ax, hue=next(iter(groups), None), **how)
    (axes,) = {line.axes for line in drawn}
    points = grid[axis].to_numpy()
    lowest, highest = axes.dataLim.intervaly
    low, high = map(_columns, band)
    opacity = _BAND_OPACITY / len(drawn) ** 0.5  # of many the last would hide all others
    for line, *ends in zip(drawn, low, high, strict=True):
        axes.fill_between(points, *ends, color=line.get_color(), alpha=opacity, lw=0)
    if highest > lowest:  # a band far wider than the curves would make them flat
        bottom, top = axes.get_ylim()
        reach = FAR * (highest - lowest)
        axes.set_ylim(max(bottom, lowest - reach), min(top, highest + reach), auto=None)
    _mark_no_rows(axes, points, np.asarray(np.isnan(low).all(axis=0)))
    axes.set_title(heading, fontsize="medium")
    write_plainly(axes)
    return drawn


def _mark_no_rows(axes: Any, points: Any, missing: BoolArray) -> None:
    """Hatch a curve's gaps, which its legend names."""
    if not missing.any():
        return
    across = axes.get_xaxis_transform()
    hatch = axes.fill_between(points, 0, 1, missing, transform=across, **_HATCH)
    legend = axes.get_legend()
    handles = list(legend.legend_handles) if legend else []
    texts = [text.get_text() for text in legend.get_texts()] if legend else []
    title = legend.get_title().get_text() if legend else None
    axes.legend([*handles, hatch], [*texts, NO_ROWS], title=title)


def _maps(grid: xarray.DataArray, heading: str, ax: Any, how: dict[str, Any]) -> Any:
    second, first, *groups = grid.dims
    how = {"x": first, "y": second, **how}
    if grid.attrs["long_name"].startswith("density"):
        how = {"vmin": 0.0, **how}  # what is below is noise, and would take half of the colours
    if groups:
        drawn = _map_of_each(grid, str(groups[0]), heading, how)
    else:
        drawn = grid.plot(ax=ax, **how)
        drawn.axes.set_title(heading, fontsize="medium")
    panels = _panels(drawn)
    bar = drawn.cbar if groups else drawn.colorbar
    if bar:
        bar.ax.set_visible(not grid.isnull().all())
    write_plainly(*panels, *([bar.ax] if bar else []))
    if grid.isnull().any():
        for panel in panels:
            panel.patch.set(**_HATCH)
        handles = panels[0].fill([], [], label=NO_ROWS, **_HATCH)
        panels[0].legend(handles=handles, loc="upper right")
    return drawn


def _map_of_each(grid: xarray.DataArray, by: str, heading: str, how: dict[str, Any]) -> Any:
    """Draw a map of each group, with one colour bar, in a figure that leaves room for all texts."""
    count, name = grid.sizes[by], str(grid[by].attrs["long_name"])
    how = {"col": by, "col_wrap": 2 if count == 4 else min(count, _COLUMNS), **how}
    with_bar, of_bar = how.pop("add_colorbar", True), how.pop("cbar_kwargs", None) or {}
    drawn: Any = grid.plot(add_colorbar=False, **how)
    # Before the bar, which another layout has elsewhere; numbers of neighbours do not touch.
    drawn.fig.set_layout_engine("compressed", w_pad=_PAD)
    if with_bar:
        drawn.add_colorbar(**of_bar)
    drawn.set_titles(f"{name.replace('{', '{{').replace('}', '}}')} = {{value}}")
    write_plainly(drawn.fig.suptitle(heading, fontsize="medium"))
    lines = heading.count("\n") + 1
    drawn.fig.set_figheight(drawn.fig.get_figheight() + _TITLE_HEIGHT * lines)
    return drawn


def _set_aspect(drawn: Any, grid: xarray.DataArray, *, alike: bool) -> None:
    """Draw axes that are alike to one scale, and degrees in their true lengths."""
    width, height = (np.ptp(grid[name].to_numpy()) for name in (grid.dims[1], grid.dims[0]))
    degree = eastward_degree(grid)
    if degree or (alike and 1 / _LONGEST <= height / width <= _LONGEST):
        for panel in _panels(drawn):
            panel.set_aspect(1 / (degree or 1.0))


def _panels(drawn: Any) -> list[Any]:
    return list(drawn.axs.flat) if hasattr(drawn, "axs") else [drawn.axes]


def _precision_text(
    values: xarray.DataArray, low: xarray.DataArray, high: xarray.DataArray, *, curve: bool
) -> str:
    """Return how far values may be off, to either side; of a curve the band shows it."""
    widths = np.maximum((high - values).to_numpy(), (values - low).to_numpy())
    known = widths[np.isfinite(widths)]
    if not known.size:
        return f"{NO_ROWS} that the noise does not hide"
    least, most = float(known.min()), float(known.max())
    between = f"±{lower_bound_text(least)} to " if least < _EVEN * most else ""
    band = "the band holds" if curve else f"within {between}±{upper_bound_text(most)}"
    return f"{band} everywhere at once, {100 * (1 - float(BandRequest().beta)):g} % sure"


def eastward_degree(grid: xarray.DataArray) -> float | None:
    """Length of a degree to the east in the middle of a map; None where it has none.

    In degrees to the north: the cosine of the latitude, on a sphere.
    """
    north = grid[grid.dims[0]]
    if north.attrs.get("units") != "degrees_north":
        return None
    return max(math.cos(math.radians(float(north.mean()))), 1e-3)


def write_plainly(*artists: Any) -> None:
    """Take formulas and control characters out of texts that may be a stranger's."""
    for artist in artists:
        texts = [artist]
        if hasattr(artist, "xaxis"):
            legend = artist.get_legend()
            texts = [artist.title, artist.xaxis.label, artist.yaxis.label]
            texts += [legend.get_title(), *legend.get_texts()] if legend else []
        for text in texts:
            text.set_parse_math(False)
            text.set_text(printable(text.get_text(), keep="\n"))


def _columns(values: xarray.DataArray) -> FloatArray:
    return values.to_numpy().reshape(len(values), -1).T
