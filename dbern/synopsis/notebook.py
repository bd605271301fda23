"""What a notebook shows of a synopsis: its facts as a table, and a drawing of its function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.system import html_table

_PLACES = {1: 401, 2: 201}
_LONGEST = 3.0  # side of a map in true aspect


def described(facts: Mapping[str, Any], domain: Domain, url: str) -> str:
    """Return what was released, over what, and what is promised, as an HTML table."""
    certificate, axes = facts["certificate"], domain.axes
    guarantee = "RANDOM DP only, " if "random_dp" in facts else ""
    guarantee += f"epsilon {facts['epsilon']}, delta {facts['delta']}"
    return html_table(
        {
            "synopsis": facts["name"],
            "function": facts["target"]["kind"],
            "over": "; ".join(
                f"{axis.name} from {_end(axis.unit, axis.low)} to {_end(axis.unit, axis.high)}"
                for axis in axes
            ),
            "guarantee": f"{guarantee}, {facts['neighbors']}, unit {facts['unit']}",
            "error": f"at most {certificate['total']:.4g} everywhere, with probability "
            f"{1 - certificate['beta']:g}",
            "at": url,
        }
    )


def _end(unit: Any, value: float) -> str:
    return str(unit.text(value)) if unit else f"{value:g}"


def plotted(
    domain: Domain,
    grid_of: Callable[[int], Any],
    interval: Callable[[Any], Any],
    ax: Any = None,
    **how: Any,
) -> Any:
    """Draw a curve with its simultaneous band, or a map: upright, in true aspect where it can be.

    Axes of lengths that are alike are drawn to one scale, and degrees as in the middle of the map,
    where a degree to the east is as long as the cosine of the latitude. Groups and classes are
    lines of a curve, and a map each.

    Parameters
    ----------
    grid_of, interval : callable
        Of a synopsis.
    ax : matplotlib Axes, optional
        Where to draw; not for maps of groups.
    **how
        What xarray's ``plot`` takes.

    Returns
    -------
    what ``xarray.DataArray.plot`` returns

    Raises
    ------
    SpecError
        For three axes or more.
    """
    axes = domain.axes
    if len(axes) not in _PLACES:
        raise SpecError(
            f"plot: there are {len(axes)} axes. Select from a grid, such as "
            f"synopsis.grid(50).isel({axes[-1].name}=25).plot()"
        )
    grid = grid_of(_PLACES[len(axes)])
    if len(axes) == 2:
        return _map(grid, ax, alike=axes[0].unit is axes[1].unit, **how)
    hue = "class" if grid.ndim == 2 else None
    drawn = grid.plot.line(x=axes[0].name, ax=ax, hue=hue, **how)
    low, high = interval(grid[axes[0].name].to_numpy())
    for line, ends in zip(drawn, zip(_columns(low), _columns(high), strict=True), strict=True):
        line.axes.fill_between(grid[axes[0].name], *ends, color=line.get_color(), alpha=0.2, lw=0)
    return drawn


def _map(grid: Any, ax: Any, *, alike: bool, **how: Any) -> Any:
    from dbern.synopsis.maps import eastward_degree
    from dbern.synopsis.points import LOCATION

    second, first = grid.dims[:2]
    if grid.attrs["long_name"].startswith("density"):
        how = {"vmin": 0.0, **how}  # what is below is noise, and would take half of the colours
    groups = {"col": "class"} if grid.ndim == 3 else {}
    shown = grid.drop_vars(LOCATION, errors="ignore")  # or it would be the title
    drawn = shown.plot(x=first, y=second, ax=ax, **groups, **how)
    width, height = (float(np.ptp(grid[name].to_numpy())) for name in (first, second))
    degree = eastward_degree(grid)
    if degree or (alike and 1 / _LONGEST <= height / width <= _LONGEST):
        for one in drawn.axs.flat if groups else [drawn.axes]:
            one.set_aspect(1 / (degree or 1.0))
    return drawn


def _columns(values: Any) -> Any:
    return values.reshape(len(values), -1).T
