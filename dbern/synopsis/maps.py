"""Notebook view of a synopsis: its facts as a table, and a drawing of its function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.certify.error_summary import upper_bound_text
from dbern.data.domain import Domain, rounded_text, volume_unit
from dbern.errors import SpecError, printable
from dbern.synopsis.grids import check_numeric
from dbern.synopsis.labels import of_columns
from dbern.system import html_table

if TYPE_CHECKING:
    import xarray

FAR = 3.0
"""Times what values vary by: how far beyond them a band is drawn."""
_SHOWN_POINTS = {1: 401, 2: 201}
_LONGEST = 3.0  # side of a map in true aspect
_TITLE_HEIGHT = 0.4  # inches


def described(metadata: Mapping[str, Any], domain: Domain, where: str, constant: str) -> str:
    """Write what was released, over what, and what is promised, as an HTML table.

    `constant` promises as much as the release does; it is empty where that promises more.
    """
    certificate, axes = metadata["certificate"], domain.axes
    bound = f"at most {upper_bound_text(certificate['total'])} everywhere"
    promised = f"{bound}, with probability {1 - certificate['beta']:g}"
    guarantee = "RANDOM DP only, " if "random_dp" in metadata else ""
    guarantee += f"epsilon {metadata['epsilon']}, delta {metadata['delta']}"
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


def plotted(
    domain: Domain,
    grid_of: Callable[[int], xarray.DataArray],
    interval: Callable[[Any], Any],
    ax: Any = None,
    **how: Any,
) -> Any:
    """Draw a curve with its simultaneous band, or a map: upright, in true aspect where it can be.

    Axes of lengths that are alike are drawn to one scale, and degrees as in the middle of the map,
    where a degree to the east is as long as the cosine of the latitude. Groups and classes are
    lines of a curve, and a map each. `how` goes to ``xarray.DataArray.plot``, whose result is
    returned; `ax` is not for maps of groups. Raises SpecError for three axes or more, or a list.
    """
    check_numeric(domain, "plot")
    axes = domain.axes
    if len(axes) not in _SHOWN_POINTS:
        raise SpecError(
            f"plot: there are {len(axes)} axes. Select from a grid, such as "
            f"synopsis.grid(50).isel({axes[-1].name}=25).plot()"
        )
    grid = grid_of(_SHOWN_POINTS[len(axes)])
    if grid.attrs["long_name"] == "density":  # its units, such as miles-1 hours-1, are for files
        words = f"density per {volume_unit(domain.axes)}"
        grid = grid.assign_attrs(long_name=words)
        grid.attrs.pop("units", None)
    title = grid.attrs.get("title", "")
    if len(axes) == 2:
        first, second = axes
        return _map(grid, ax, title, alike=first.attributes == second.attributes, **how)
    hue = "class" if grid.ndim == 2 else None
    drawn = grid.plot.line(x=axes[0].name, ax=ax, hue=hue, **how)
    (figure_axes,) = {line.axes for line in drawn}
    lowest, highest = figure_axes.dataLim.intervaly
    low, high = interval(grid[axes[0].name].to_numpy())
    for line, band in zip(drawn, zip(_columns(low), _columns(high), strict=True), strict=True):
        figure_axes.fill_between(grid[axes[0].name], *band, color=line.get_color(), alpha=0.2, lw=0)
    if highest > lowest:  # a band far wider than the curves would make them flat
        bottom, top = figure_axes.get_ylim()
        reach = FAR * (highest - lowest)
        figure_axes.set_ylim(max(bottom, lowest - reach), min(top, highest + reach), auto=None)
    figure_axes.set_title(title)
    write_plainly(figure_axes)
    return drawn


def _map(grid: xarray.DataArray, ax: Any, title: str, *, alike: bool, **how: Any) -> Any:
    second, first = grid.dims[:2]
    if grid.attrs["long_name"].startswith("density"):
        how = {"vmin": 0.0, **how}  # what is below is noise, and would take half of the colours
    groups: dict[str, Any] = {"col": "class"} if grid.ndim == 3 else {}
    drawn: Any = grid.plot(x=first, y=second, ax=ax, **groups, **how)
    panels = list(drawn.axs.flat) if groups else [drawn.axes]
    if groups:
        column = grid["class"].attrs["long_name"].replace("{", "{{").replace("}", "}}")
        drawn.set_titles(f"{column} = {{value}}")
        if title:
            _make_room_for_title(drawn.fig)
            write_plainly(drawn.fig.suptitle(title))
    else:
        panels[0].set_title(title)
    bar = drawn.cbar if groups else drawn.colorbar
    write_plainly(*panels, *([bar.ax] if bar else []))
    width, height = (np.ptp(grid[name].to_numpy()) for name in (first, second))
    degree = eastward_degree(grid)
    if degree or (alike and 1 / _LONGEST <= height / width <= _LONGEST):
        for panel in panels:
            panel.set_aspect(1 / (degree or 1.0))
    return drawn


def _make_room_for_title(figure: Any) -> None:
    """Make a figure higher at its top, with all axes as large as they were."""
    height = figure.get_figheight()
    figure.set_figheight(height + _TITLE_HEIGHT)
    share = height / (height + _TITLE_HEIGHT)
    for axes in figure.axes:
        box = axes.get_position(original=True)
        axes.set_position((box.x0, share * box.y0, box.width, share * box.height))


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


def _columns(values: Any) -> Any:
    return values.reshape(len(values), -1).T
