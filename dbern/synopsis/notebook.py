"""What a notebook shows of a synopsis: its facts as a table, and a drawing of its function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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

    Axes of lengths that are alike are drawn to one scale. Groups and classes are lines of a curve,
    and a map each.

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
    grid, first = grid_of(_PLACES[len(axes)]), axes[0].name
    groups: dict[str, Any] = (
        {} if grid.ndim == len(axes) else {"hue" if len(axes) == 1 else "col": "class"}
    )
    if len(axes) == 1:
        drawn = grid.plot.line(x=first, ax=ax, **groups, **how)
        low, high = interval(grid[first].to_numpy())
        for line, ends in zip(drawn, zip(_columns(low), _columns(high), strict=True), strict=True):
            line.axes.fill_between(grid[first], *ends, color=line.get_color(), alpha=0.2, lw=0)
        return drawn
    if grid.attrs["long_name"].startswith("density"):
        how = {"vmin": 0.0, **how}  # what is below is noise, and would take half of the colours
    drawn = grid.plot(x=first, y=axes[1].name, ax=ax, **groups, **how)
    ratio = axes[1].width / axes[0].width
    if axes[0].unit is axes[1].unit and 1 / _LONGEST <= ratio <= _LONGEST:
        for one in drawn.axs.flat if groups else [drawn.axes]:
            one.set_aspect("equal")
    return drawn


def _columns(values: Any) -> Any:
    return values.reshape(len(values), -1).T
