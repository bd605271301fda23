"""Labels of values by the CF conventions, coordinates of grids, and titles of functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.combination.base import Combination
from dbern.combination.responses import Ranged
from dbern.data.domain import Axis, Domain, named_with, volume_unit
from dbern.errors import printable
from dbern.privacy.budget import Protection
from dbern.system import and_text, format_number
from dbern.types import FloatArray

if TYPE_CHECKING:
    import xarray


_BLOCK_COORDINATES = 1 << 16
_LOCATION = "spatial_ref"  # a grid's coordinate system, by the name that rioxarray gives it
_NORTHWARD = ("lat", "latitude", "northing", "y")
_NAMED_CLASSES = 4


def upright(names: Sequence[Any]) -> tuple[Any, ...]:
    """Return axes as dimensions that are drawn upright: the second up, the first to the right.

    The other way round where the first one says that it goes up, such as a latitude.
    """
    first, *rest = names
    if rest and str(first).lower() in _NORTHWARD:
        return (*rest[:0:-1], first, rest[0])
    return (*rest[::-1], first)


def conventional(array: xarray.DataArray) -> xarray.DataArray:
    """Set how an array is to be stored, by the CF conventions: NaN is missing, but of no axis."""
    if array.dtype.kind == "f":
        array.encoding["_FillValue"] = np.nan
    if _LOCATION in array.coords:
        array.encoding["grid_mapping"] = _LOCATION
    for coordinate in array.coords.values():
        coordinate.encoding["_FillValue"] = None
    return array


def coordinates(axis: Axis, count: int) -> np.ndarray[Any, Any]:
    """Return so many coordinates, ends included, in little more than their memory."""
    positions = np.linspace(0.0, 1.0, count)
    values = positions if axis.unit is None else np.empty(count, dtype="datetime64[us]")
    for start in range(0, count, _BLOCK_COORDINATES):
        block = slice(start, start + _BLOCK_COORDINATES)
        values[block] = _as_datetimes(axis.at(positions[block]), axis)
    return values


def _as_datetimes(numbers: FloatArray, axis: Axis) -> np.ndarray[Any, Any]:
    """Return numbers of an axis of dates or times as datetime64, UTC; of another as they are.

    A microsecond may be coarser than a number; what is within the bounds stays within them.
    """
    if axis.unit is None:
        return numbers
    moments, step = axis.unit.to_datetimes(numbers), np.timedelta64(1, "us")
    back = axis.unit.of_datetimes(moments)
    moments[(back < axis.low) & (numbers >= axis.low)] += step
    moments[(back > axis.high) & (numbers <= axis.high)] -= step
    return moments


def _describe_axis(coordinate: xarray.DataArray, axis: Axis) -> None:
    """Describe an axis's coordinate, and how dates are to be stored, by the CF conventions."""
    coordinate.attrs["long_name"] = axis.name
    if axis.unit is None:
        coordinate.attrs |= axis.attributes
    else:
        coordinate.encoding |= {"units": axis.unit.value, "dtype": "float64"}


def labelled_entries(
    numbers: FloatArray,
    labels: Mapping[str, Sequence[Any]],
    attributes: Mapping[str, str],
    domain: Domain,
) -> Any:
    """Return numbers with a dimension for each of the labels that has several, or one float.

    A single label None is no dimension. Those of an axis of the domain have its attributes.
    """
    dimensions: dict[str, Any] = {
        name: list(values) for name, values in labels.items() if list(values) != [None]
    }
    shape = [len(values) for values in dimensions.values()]
    if not dimensions:
        return float(np.reshape(numbers, ()))
    import xarray

    axes = [axis for axis in domain.axes if axis.name in dimensions]
    for axis in axes:
        dimensions[axis.name] = _as_datetimes(np.asarray(dimensions[axis.name]), axis)
    array = xarray.DataArray(
        np.reshape(numbers, shape), dimensions, list(dimensions), attrs=dict(attributes)
    )
    for axis in axes:
        _describe_axis(array[axis.name], axis)
    return conventional(array)


def labelled(
    values: FloatArray,
    domain: Domain,
    labels: Mapping[str, Sequence[Any]],
    name: str,
    attributes: Mapping[str, Any],
) -> xarray.DataArray:
    """Label values on a grid over a domain by coordinates in data units, upright.

    Several values of a point are along the one dimension of `labels`, which is the last.
    """
    import xarray

    last = list(labels) if values.ndim > domain.dimensions else []
    coords: dict[str, Any] = {
        axis.name: (axis.name, coordinates(axis, count))
        for axis, count in zip(domain.axes, values.shape, strict=False)
    }
    coords |= {key: list(labels[key]) for key in last}
    grid = xarray.DataArray(values, coords, [*domain.names, *last], name, attributes)
    for axis in domain.axes:
        _describe_axis(grid[axis.name], axis)
    return conventional(grid.transpose(*upright(domain.names), *last))


def named_values(
    combination: Combination, domain: Domain, metadata: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the name of values, and their units; "" where none are known."""
    meaning, columns = combination.meaning(metadata["target"]), metadata.get("columns", {})
    if meaning == "density":
        units = [axis.unit.name.lower() if axis.unit else axis.units for axis in domain.axes]
        if all(units):
            return meaning, " ".join(f"{u}-1" if u.isalpha() else f"({u})-1" for u in units)
        return meaning + combination.unit_text(volume_unit(domain.axes), density=True), ""
    if meaning == "response":
        name = columns.get("response", meaning)
        return name, metadata.get("units", {}).get(name, "")
    if "label" not in columns:
        return meaning, ""
    binary = len(combination.classes) == 2 and not combination.multi_output
    positive = f" = {combination.classes[1]}" if binary else ""
    return f"{meaning} of {columns['label']}{positive}", ""


def response_name(metadata: Mapping[str, Any]) -> str:
    """Return the name of the responses, with their units where these are known."""
    name = metadata.get("columns", {}).get("response", "the response")
    return named_with(name, metadata.get("units", {}).get(name, ""))


def of_columns(metadata: Mapping[str, Any]) -> str:
    """Return the columns that a function is of or by, in words that follow its kind."""
    columns, units = metadata.get("columns", {}), metadata.get("units", {})
    words = {"response": "of", "label": "of", "group": "by"}
    return "".join(
        f" {words[role]} {named_with(name, units.get(name, ''))}" for role, name in columns.items()
    )


def function_title(combination: Combination, domain: Domain, metadata: Mapping[str, Any]) -> str:
    """Name a function: "mean of minutes (0 to 60) by hour, smoothed over 1".

    `metadata` has the target, and may have columns and units, as a synopsis has them.
    """
    meaning, columns = combination.meaning(metadata["target"]), metadata.get("columns", {})
    units = metadata.get("units", {})
    over = and_text([
        named_with(axis.name, units[axis.name]) if axis.name in units else axis.label
        for axis in domain.axes
    ])  # fmt: skip
    names = [printable(str(name)) for name in combination.classes]
    listed = ", ".join(names[:_NAMED_CLASSES]) + ", .." * (len(names) > _NAMED_CLASSES)
    if isinstance(combination, Ranged):
        name = columns.get("response", meaning)
        low, high = (format_number(end) for end in (combination.low, combination.high))
        bounds = f"{low} to {high} {units.get(name, '')}".rstrip()
        title = f"mean of {name} ({bounds}) by {over}"
    elif "label" in columns:
        title = f"class of {columns['label']} ({listed}) by {over}"
    else:
        title = f"{'density' if meaning == 'density' else metadata['target']['kind']} of {over}"
    groups = f", for each {columns['group']} ({listed})" if "group" in columns else ""
    return f"{title}{groups}{_smoothed_text(metadata['target'])}"


def _smoothed_text(target: Mapping[str, Any]) -> str:
    """Say how wide each row is smoothed, where it is."""
    widths = target.get("bandwidth")
    edges = _edges_text(target.get("edges"))
    if target.get("chosen_of") or widths == "auto":
        return f", smoothed as the release chooses{edges}"
    if not isinstance(widths, list | tuple) or not all(isinstance(w, int | float) for w in widths):
        return ""  # a learner of somebody else's, or a store that nobody vouches for
    texts = " and ".join(f"{width:.3g}" for width in widths)
    return f", smoothed over {texts}{edges}" if widths else ""


def _edges_text(edges: Any) -> str:
    """Say how a density ends at its bounds, where that is not natural."""
    texts = edges if isinstance(edges, list | tuple) else [edges] if edges else []
    different = all(isinstance(text, str) for text in texts) and {*texts} - {"natural"}
    return f", edges {and_text(list(dict.fromkeys(texts)))}" if different else ""


def change_text(protection: Protection) -> str:
    """Say what the guarantee hides: "one row, replaced by any other"."""
    unit = protection.unit
    change = "added or removed" if protection.added else "replaced by any other"
    if unit.column is None:
        return f"one row, {change}"
    return f"one {unit.column} with all its rows (up to {unit.max_contributions} count), {change}"
