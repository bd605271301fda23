"""What is seen of a synopsis: grids on the earth, GeoTIFF, tables and drawings.

Coordinate systems and files need rasterio, the extra ``geo``, which is imported where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.data.domain import Axis, Domain, TimeUnit
from dbern.errors import ReleaseError, SpecError, needed, printable
from dbern.synopsis.points import LOCATION, conventional, of_columns, upright
from dbern.system import format_number, html_table
from dbern.types import FloatArray

if TYPE_CHECKING:
    import xarray

_LABELS = ("class", "group")  # dimensions that are no axes
_EVEN = 1e-6  # of a step

_Planes = Iterator[tuple[dict[str, Any], FloatArray]]


def located(grid: xarray.DataArray, crs: Any) -> xarray.DataArray:
    """Return an upright grid with a coordinate system of its last two axes, by the CF conventions.

    Raises
    ------
    SpecError
        For a coordinate system that is not known, fewer axes, or degrees beyond a pole.
    EnvironmentRefusedError
        Where rasterio is not installed.
    """
    system = _system(crs)
    axes = [name for name in grid.dims if name not in _LABELS]
    if len(axes) < 2:
        raise SpecError("crs: a coordinate system is of two axes, and here is one. Leave it out")
    north, east = axes[-2:]
    wkt = system.to_wkt()
    facts = {"crs_wkt": wkt, "spatial_ref": wkt}
    if system.is_geographic:
        if np.abs(grid[north]).max() > 90:
            raise SpecError(
                f"crs: {north} leaves -90 to 90, and {crs} has degrees. Write another crs, or name "
                "the axis of latitudes latitude"
            )
        facts["grid_mapping_name"] = "latitude_longitude"
        grid[east].attrs |= {"standard_name": "longitude", "units": "degrees_east"}
        grid[north].attrs |= {"standard_name": "latitude", "units": "degrees_north"}
        if len(axes) == 2 and grid.attrs["long_name"].startswith("density"):
            grid.attrs["units"] = "degree-2"
    else:
        units = {"units": system.linear_units}
        grid[east].attrs |= {"standard_name": "projection_x_coordinate", **units}
        grid[north].attrs |= {"standard_name": "projection_y_coordinate", **units}
    return conventional(grid.assign_coords({LOCATION: ((), 0, facts)}))


def _eastward_degree(grid: xarray.DataArray) -> float | None:
    """Return how long a degree to the east is in the middle of a map; None where it has none.

    In degrees to the north: the cosine of the latitude, on a sphere.
    """
    north = grid[grid.dims[0]]
    if north.attrs.get("units") != "degrees_north":
        return None
    return max(math.cos(math.radians(float(north.mean()))), 1e-3)


def write_geotiff(
    bands: Mapping[str, xarray.DataArray], path: str | Path, tags: Mapping[str, Any]
) -> None:
    """Write maps as bands of a GeoTIFF, the north up; those of classes or groups one after another.

    Raises
    ------
    SpecError
        For other than two axes, or places along them that are not evenly spaced.
    EnvironmentRefusedError
        Where rasterio is not installed.
    ReleaseError
        Where the file cannot be written.
    """
    first = next(iter(bands.values()))
    facts = first.coords[LOCATION].attrs if LOCATION in first.coords else {}
    crs = _system(facts["spatial_ref"]) if "spatial_ref" in facts else None
    rasterio, transform = _rasterio(), _transform(first)
    planes = [
        (" ".join([name, *map(str, labels.values())]), plane)
        for name, band in bands.items()
        for labels, plane in _planes(band)
    ]
    height, width = planes[0][1].shape
    truths = planes[0][1].dtype == bool
    shape = {"height": height, "width": width, "count": len(planes)}
    kind: dict[str, Any] = {"dtype": "uint8"} if truths else {"dtype": "float64", "nodata": np.nan}
    where = {"crs": crs, "transform": transform, "compress": "deflate"}
    try:
        with rasterio.open(path, "w", driver="GTiff", **shape, **kind, **where) as file:
            for number, (name, plane) in enumerate(planes, start=1):
                file.write(plane.astype(kind["dtype"]), number)
                file.set_band_description(number, name)
            file.update_tags(**tags)
    except OSError:
        raise ReleaseError(
            f"{path}: cannot be written. Check that the folder is there and has space, or write "
            "another path"
        ) from None


def _rasterio() -> Any:
    told = "coordinate systems and GeoTIFF need rasterio. Install it with: pip install "
    with needed(told + "'dbern[geo]'"):
        import rasterio
    return rasterio


def _system(crs: Any) -> Any:
    rasterio = _rasterio()
    try:
        return rasterio.crs.CRS.from_user_input(crs)
    except rasterio.errors.CRSError:
        raise SpecError(f'crs = "{crs}": is not known. Write one such as "EPSG:4326"') from None


def _axes(grid: xarray.DataArray) -> tuple[str, str]:
    """The one that goes to the east, and the one that goes to the north."""
    axes = [str(name) for name in grid.dims if name not in _LABELS]
    if len(axes) != 2:
        raise SpecError(f"maps are of two axes, and here are {len(axes)}. Select from a grid")
    north, east = upright(axes[::-1])
    return east, north


def _planes(grid: xarray.DataArray) -> _Planes:
    """Each class or group's labels and values, the north up."""
    east, north = _axes(grid)
    grid = grid.sortby(north, ascending=False).sortby(east)
    labels = [str(name) for name in grid.dims if name in _LABELS]
    for places in product(*(range(grid.sizes[name]) for name in labels)):
        one = grid.isel(dict(zip(labels, places, strict=True)))
        named = {name: one[name].item() for name in labels}
        yield named, one.transpose(north, east).to_numpy()


def _as_stored(coordinate: xarray.DataArray) -> np.ndarray[Any, Any]:
    """Return a coordinate's numbers: of dates and times in the unit that they are stored in."""
    values = coordinate.to_numpy()
    if values.dtype.kind != "M":
        return values
    seconds = coordinate.encoding.get("units") == TimeUnit.SECONDS.value
    return (TimeUnit.SECONDS if seconds else TimeUnit.DAYS).of_datetimes(values)


def _transform(grid: xarray.DataArray) -> Any:
    """From the corner of the first pixel, of which the first place is the middle."""
    corner, steps = [], []
    for name in _axes(grid):
        places = np.sort(_as_stored(grid[name]))
        each = np.diff(places) if places.dtype.kind in "fiu" else np.empty(0)
        if not len(each) or np.ptp(each) > _EVEN * each[0]:
            raise SpecError(
                f"maps need evenly spaced numbers along {name}. Take the grid of the synopsis"
            )
        step = float(places[-1] - places[0]) / len(each)
        corner += [float(places[0]) - step / 2, float(places[-1]) + step / 2]
        steps.append(step)
    return _rasterio().Affine(steps[0], 0.0, corner[0], 0.0, -steps[1], corner[3])


# --- What a notebook shows of a synopsis: its facts as a table, and a drawing of its function

FAR = 3.0
"""Times what values vary by: how far beyond them a band is drawn."""
_SHOWN_POINTS = {1: 401, 2: 201}
_LONGEST = 3.0  # side of a map in true aspect


def described(facts: Mapping[str, Any], domain: Domain, url: str) -> str:
    """Return what was released, over what, and what is promised, as an HTML table."""
    certificate, axes = facts["certificate"], domain.axes
    guarantee = "RANDOM DP only, " if "random_dp" in facts else ""
    guarantee += f"epsilon {facts['epsilon']}, delta {facts['delta']}"
    texts = {key: facts[key] for key in ("title", "description") if key in facts}
    return html_table(
        {
            "synopsis": facts["name"],
            **texts,
            "function": f"{facts['target']['kind']}{of_columns(facts)}",
            "over": "; ".join(
                f"{axis.label} from {_end(axis.unit, axis.low)} to {_end(axis.unit, axis.high)}"
                for axis in axes
            ),
            "guarantee": f"{guarantee}, {facts['neighbors']}, unit {facts['unit']}",
            "error": f"at most {format_number(certificate['total'])} everywhere, with probability "
            f"{1 - certificate['beta']:g}",
            "at": url,
        }
    )


def _end(unit: Any, value: float) -> str:
    return str(unit.text(value)) if unit else format_number(value)


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
    if len(axes) not in _SHOWN_POINTS:
        raise SpecError(
            f"plot: there are {len(axes)} axes. Select from a grid, such as "
            f"synopsis.grid(50).isel({axes[-1].name}=25).plot()"
        )
    grid = grid_of(_SHOWN_POINTS[len(axes)])
    title = grid.attrs.get("title", "")
    if len(axes) == 2:
        return _map(grid, ax, title, alike=_have_one_unit(axes), **how)
    hue = "class" if grid.ndim == 2 else None
    drawn = grid.plot.line(x=axes[0].name, ax=ax, hue=hue, **how)
    (figure_axes,) = {line.axes for line in drawn}
    least, most = figure_axes.dataLim.intervaly
    low, high = interval(grid[axes[0].name].to_numpy())
    for line, ends in zip(drawn, zip(_columns(low), _columns(high), strict=True), strict=True):
        figure_axes.fill_between(grid[axes[0].name], *ends, color=line.get_color(), alpha=0.2, lw=0)
    if most > least:  # a band far wider than the curves would make them flat
        bottom, top = figure_axes.get_ylim()
        reach = FAR * (most - least)
        figure_axes.set_ylim(max(bottom, least - reach), min(top, most + reach), auto=None)
    figure_axes.set_title(title)
    _write_plainly(figure_axes)
    return drawn


def _have_one_unit(axes: Sequence[Axis]) -> bool:
    first, second = axes
    return first.attributes == second.attributes


def _map(grid: xarray.DataArray, ax: Any, title: str, *, alike: bool, **how: Any) -> Any:
    second, first = grid.dims[:2]
    if grid.attrs["long_name"].startswith("density"):
        how = {"vmin": 0.0, **how}  # what is below is noise, and would take half of the colours
    groups: dict[str, Any] = {"col": "class"} if grid.ndim == 3 else {}
    shown = grid.drop_vars(LOCATION, errors="ignore")  # or it would be the title
    drawn: Any = shown.plot(x=first, y=second, ax=ax, **groups, **how)
    panels = list(drawn.axs.flat) if groups else [drawn.axes]
    if groups:
        column = grid["class"].attrs["long_name"].replace("{", "{{").replace("}", "}}")
        drawn.set_titles(f"{column} = {{value}}")
        if title:
            _write_plainly(drawn.fig.suptitle(title, y=1.05))
    else:
        panels[0].set_title(title)
    bar = drawn.cbar if groups else drawn.colorbar
    _write_plainly(*panels, *([bar.ax] if bar else []))
    width, height = (float(np.ptp(_as_stored(grid[name]))) for name in (first, second))
    degree = _eastward_degree(grid)
    if degree or (alike and 1 / _LONGEST <= height / width <= _LONGEST):
        for panel in panels:
            panel.set_aspect(1 / (degree or 1.0))
    return drawn


def _write_plainly(*artists: Any) -> None:
    """Take no formula and no control character from texts that may be a stranger's."""
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
