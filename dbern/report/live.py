"""Data of the report page's live part, which answers questions offline, without Python.

The page holds a curve, or a map, with its band as drawn. A function that counts no rows is there by
its Bernstein coefficients; the integral of a basis function is a tail of the next degree's basis,
which gives the integral over a box. Slices of three axes are drawn from the released numbers, and
from shrunk bins where there are any, by the matrices M from bins to coefficients, or to lattice
values between which the function is linear: ``basis(y) M`` are an axis's weights at y.

Where bins count rows, the page holds the released numbers and, for public positions on each axis,
the weights with which `Distribution` answers: of steps, of kernels of a few bandwidths, and of
their integrals. Of one axis no product needs the kernels' weights, so it holds their sums over the
bins. A box is a difference of two positions, multiples where rows are rounded; intervals are by the
tail of the noise's law. These are the formulas for many boxes in Python (`dbern.ask.quotients`, and
`dbern.ask.responses` for regressions and the shares of groups). Values are Python's, up to
roundings; intervals are as wide, or a little wider. Everything on the page is released or public.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.ask.bins import SplitMeasure
from dbern.ask.kernel_envelopes import (
    density_envelope,
    loses_period,
    mass_envelope,
    min_bandwidth,
)
from dbern.ask.responses import split_measures
from dbern.ask.splines import AxisSplines, Envelope, steps, steps_of_multiples
from dbern.combination.responses import Quotient, QuotientOfSums, Quotients
from dbern.data.domain import Axis, rounded_text, volume_unit
from dbern.data.times import TimeUnit
from dbern.errors import printable
from dbern.report.colours import SCHEMES, VARIABLES, class_colour, shade, to_hex
from dbern.report.figures import figures_document, milliseconds_per_unit
from dbern.report.packing import Packed, pack
from dbern.report.pictures import is_turned, label, value_name
from dbern.synopsis.bands import BandRequest
from dbern.synopsis.drawing import MAX_PANELS
from dbern.synopsis.reader import Synopsis
from dbern.synopsis.released import ReleasedArray
from dbern.types import FloatArray

if TYPE_CHECKING:
    from dbern.ask.distribution import Distribution
    from dbern.bernstein.kernels import Kernel


MAX_EMBEDDED = 300_000
"""Most released numbers on a page, of all groups; a larger release has pictures alone."""
_BANDWIDTH_FACTORS = (1.0, 2.0, 1.4, 0.8, 3.0, 1.7, 2.5, 1.2)
"""Bandwidths on offer, as multiples of the released one, in order of priority."""
_MAX_NUMBERS = 270_000  # for all of them, of about three bytes each
_EXACT_BITS = 46
"""Of weights: what they lack adds less to a sum over all numbers than the ``1e-12`` of the largest,
times what they are and their weights, that intervals have for roundings. Of three axes a box has
nine products of differences of rounded weights: below 4e-13."""
_RELEASED_BITS = 50  # of multiples of a law's granularity: all that they have
_COEFFICIENT_BITS = 40  # of a function that counts no rows: an integral is off by 5e-13 of it
_DRAWN_BITS = 30  # of what is drawn, at most
_BAND_BITS = 17  # of the least half-width: two of its digits are written
_MAX_EDGES = 200  # along an axis
_CLOSEST = 1e-6  # of the axis's width: nearer to its end no other end is on offer
_ROUND_SECONDS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
_CELLS_PER_AXIS = {1: 401, 2: 200}
"""Of a curve, and along each side of a map; a third axis has as many slices."""
_CELLS_OF_MEANS = 64  # along each of three axes: all values and ends of a regression are there
_COLOURS = 256
_INPUTS = {None: "number", TimeUnit.DAYS: "date", TimeUnit.SECONDS: "datetime-local"}
_MAX_ASPECT = 3.0  # side of a map in true aspect


def live(synopsis: Synopsis) -> dict[str, Any] | None:
    """Return the data with which a page answers its reader, for ``templates/live.html``, or None.

    Pictures alone have to do where the function is neither a density nor a regression by bins,
    where its lattice is oblique or its axes do not factor, and where more than `MAX_EMBEDDED`
    numbers were released.
    """
    axes, functions = synopsis.domain.axes, _functions(synopsis)
    if not functions or excess_numbers(synopsis):
        return None
    flat, arrays = len(axes) < 3, dict[Packed, int]()
    distribution = synopsis.distribution() if _counts_rows(functions) else None
    parts = _parts(distribution)
    response = distribution is not None and distribution.response is not None
    cells = _CELLS_OF_MEANS if response and not flat else _CELLS_PER_AXIS[min(len(axes), 2)]
    # Of groups also their shares; of two axes a map of the likeliest.
    count = 1 if not parts else 2 if len(axes) == 1 else 3
    shows = ("response",) if response else ("density", "share", "likeliest")[:count]
    sliced = not (flat or response)
    released, function = _function(functions, distribution, arrays, sliced=sliced)
    counting = distribution and _counting_data(synopsis, distribution, released, cells, arrays)
    value = value_name(synopsis) if response else "density"
    across = [1, 0] if is_turned(axes) else [0, 1]  # axes drawn to the right and upward
    shown = axes if flat and len(axes) < 2 else [axes[index] for index in across]
    content = {
        "axes": _axis_ranges(axes),
        "places": cells,
        **function,
        "shows": shows,
        "counting": counting,
        "private": synopsis.metadata["target"].get("n") is None,
        "arrays": list(arrays),
        "drawn": None if sliced else _pack_band(synopsis, cells),
        "bands": _half_widths(synopsis) if sliced else [],
        "summed": 0.0 if counting else synopsis.band(synopsis.metadata["certificate"]["beta"]),
        "volume": synopsis.domain.volume,
        **_colours(len(parts)),
        "across": across,
        "document": figures_document(shown, shows, value),
    }
    return {
        **_scripts(),
        "facts": _script_json(content),
        "axes": [{"name": label(axis), "input": _INPUTS[axis.unit]} for axis in axes],
        "places": cells,
        "ratio": _ratio(shown),
        "unit": synopsis.combination.unit_text(volume_unit(axes, labels=True), density=True),
        "groups": [printable(str(group)) for group in synopsis.classes],
        "column": synopsis.metadata.get("columns", {}).get("group", "Group"),
        "value": value,
        "bandwidths": [stop["name"] for stop in counting["stops"]] if counting else [],
        "start": counting["start"] if counting else 0,
        "counts": counting is not None,
        "rounded": rounded_text(axes),
        "anywhere": [printable(axis.name) for axis in axes if axis.multiples is None],
        "response": response,
        "shows": shows,
    }


def _function(
    functions: Sequence[ReleasedArray],
    distribution: Distribution | None,
    arrays: dict[Packed, int],
    *,
    sliced: bool,
) -> tuple[list[FloatArray], dict[str, Any]]:
    """Return the released numbers of each group, as shares of rows or coefficients, and page data.

    For slices the data has the shrunk bins too, and of bins the matrices that draw them.
    """
    first, bits = functions[0], _RELEASED_BITS if distribution else _COEFFICIENT_BITS
    matrices = first.strategy.matrices(first.order) if sliced or not distribution else []
    to_coefficients = [] if distribution else matrices
    released, unit = [array.released for array in functions], 1.0
    if distribution and distribution.response:
        released = [*_parts(distribution)[0].values]
    elif distribution:
        unit = first.component.value_unit
    released = [_apply_matrices(array, to_coefficients) / unit for array in released]
    shrunk = [array.shrunk if sliced and array.shrunk_distance else None for array in functions]
    return released, {
        "shape": released[0].shape,
        "unit": unit,
        "released": [pack(array, bits) for array in released],
        "linear": first.component.interpolated,
        "answered": [
            None if array is None else pack(_apply_matrices(array, to_coefficients) / unit, bits)
            for array in shrunk
        ],
        "matrices": [_index_of(array, arrays) for array in matrices if distribution],
    }


def _axis_ranges(axes: Sequence[Axis]) -> list[dict[str, float]]:
    """Return bounds of the axes in the records' units, and milliseconds per unit of time axes."""
    return [
        {"low": axis.low, "high": axis.high, "scale": milliseconds_per_unit(axis)} for axis in axes
    ]


def _script_json(content: dict[str, Any]) -> str:
    """Write JSON that ends no script on the page."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _scripts() -> dict[str, str]:
    """Return the scripts of the plotting library and of the page: all that a browser may run."""
    from bokeh.resources import Resources

    library = str(Resources(mode="inline", minified=True, components=["bokeh"]).js_raw[0])
    script = files("dbern.report").joinpath("templates/live.js").read_text(encoding="utf-8")
    digests = (hashlib.sha256(code.encode()).digest() for code in (library, script))
    csp_sources = " ".join(f"'sha256-{base64.b64encode(code).decode()}'" for code in digests)
    return {"library": library, "script": script, "digests": csp_sources}


def _ratio(axes: Sequence[Axis]) -> float:
    if len(axes) == 1:
        return 0.45
    ratio = axes[1].width / axes[0].width
    alike = axes[0].attributes == axes[1].attributes and 1 / _MAX_ASPECT <= ratio <= _MAX_ASPECT
    return ratio if alike else 0.8


def excess_numbers(synopsis: Synopsis) -> int:
    """Return the count of released numbers if a page cannot hold so many, else 0."""
    arrays = [array for array in synopsis.arrays if type(array) is ReleasedArray]
    size = sum(array.strategy.layout.size for array in arrays) if _functions(synopsis) else 0
    return size if size > MAX_EMBEDDED else 0


def _functions(synopsis: Synopsis) -> list[ReleasedArray]:
    """Return arrays of a density whose axes factor, or the rows of a regression; else none."""
    arrays = [array for array in synopsis.arrays if type(array) is ReleasedArray]
    if isinstance(synopsis.combination, Quotients):
        return []
    regression = isinstance(synopsis.combination, Quotient)
    if isinstance(synopsis.combination, QuotientOfSums):
        return []
    if regression:
        arrays = [array for array in arrays if array.counted_in == array.name]
    fits = regression or synopsis.meaning == "density"
    fits = fits and len(synopsis.domain.axes) <= 3
    fits = fits and all(
        array.oblique is None and array.strategy.joint_synthesis is None for array in arrays
    )
    if any(kernel.edges == "normalized" for array in arrays for kernel in array.kernels):
        fits = fits and len(synopsis.domain.axes) < 3 and _counts_rows(arrays)
    if fits and regression:
        fits = _counts_rows(arrays) and synopsis.distribution().response is not None
    return arrays if fits else []


def _counts_rows(functions: Sequence[ReleasedArray]) -> bool:
    are_counts = all(array.counted_in == array.name and array.bins for array in functions)
    return bool(functions) and are_counts


def _apply_matrices(values: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """Apply a matrix along each axis."""
    for axis, matrix in enumerate(matrices):
        values = np.moveaxis(np.tensordot(matrix, values, axes=(1, axis)), 0, axis)
    return values


def _index_of(values: FloatArray, arrays: dict[Packed, int]) -> int:
    """Return the index of values in the page's arrays, each of which is written once."""
    return arrays.setdefault(pack(values, _EXACT_BITS), len(arrays))


def _sides(envelope: Envelope, arrays: dict[Packed, int]) -> dict[str, int]:
    sides = {"low": envelope.lower, "near": envelope.estimate, "high": envelope.upper}
    return {name: _index_of(side, arrays) for name, side in sides.items()}


def _sums(
    envelope: Envelope, bins: Sequence[FloatArray], total: FloatArray, arrays: dict[Packed, int]
) -> dict[str, dict[str, Any]]:
    """Sum the bins by weights of one axis, at each position; with norms, and beside the total's."""
    numbers = {}
    sides = {"low": envelope.lower, "near": envelope.estimate, "high": envelope.upper}
    for name, rows in sides.items():
        sizes = np.abs(rows)
        of_rows = rows @ total, sizes.max(axis=1), sizes.sum(axis=1), (rows**2).sum(axis=1)
        numbers[name] = {"of": [_index_of(rows @ values, arrays) for values in bins]} | {
            key: _index_of(column, arrays)
            for key, column in zip(("sum", "most", "spread", "square"), of_rows, strict=True)
        }
    return numbers


def _counting_data(
    synopsis: Synopsis,
    distribution: Distribution,
    bins: Sequence[FloatArray],
    cells: int,
    arrays: dict[Packed, int],
) -> dict[str, Any]:
    """Return weights for shares of the rows, and for functions at other bandwidths."""
    measures, parts = distribution.measures, _parts(distribution)
    splines = measures[0].splines
    axes = synopsis.domain.axes
    edges = [_box_edges(*pair) for pair in zip(axes, splines, strict=True)]
    beta = Fraction(str(synopsis.metadata["certificate"]["beta"]))
    beta /= distribution.choices
    stops = [
        _bandwidth_stop(distribution, bins, factor, edges, arrays)
        for factor in _factors(distribution, edges, cells)
    ]
    count = 2 * cells ** len(splines)
    content: dict[str, Any] = {
        "ends": [axis_edges.tolist() for axis_edges in edges],
        "steps": [
            [_sides(_on_released(step, distribution, i), arrays) for step in _steps_at_ends(*axis)]
            for i, axis in enumerate(zip(splines, edges, strict=True))
        ],
        "all": [_index_of(weights, arrays) for weights in _of_all(distribution)],
        "stops": stops,
        "start": [stop["factor"] for stop in stops].index(1.0),
        "rows": distribution.rows,
        "tails": [measure.tail(2, beta / len(measures)) for measure in measures],
        "everywhere": [measure.tail(count, beta / len(measures)) for measure in measures],
        "errors": [measure.error for measure in measures],
    }
    if parts:  # all have the same noise
        part, beta_i, response = parts[0], beta / len(parts), distribution.response
        content["parts"] = {
            "response": response is not None,
            "low": response.low if response else 0.0,
            "high": response.high if response else 1.0,
            "squares": (part.mixing**2).sum(axis=1).tolist(),
            "largest": np.abs(part.mixing).max(axis=1).tolist(),
            "error": part.error,
            "tails": part.tail(2, beta_i),
            "everywhere": part.tail(count, beta_i),
        }
    return content


def _parts(distribution: Distribution | None) -> tuple[SplitMeasure, ...]:
    if distribution is None or len(distribution.groups) > MAX_PANELS:
        return ()
    return split_measures(distribution)


def _of_all(distribution: Distribution) -> list[FloatArray]:
    """Return the weights of each axis's released numbers for the sum of all bins."""
    measure = distribution.measures[0]
    return [measure.on_released(np.ones(count), axis) for axis, count in enumerate(measure.shape)]


def _on_released(weights: Envelope, distribution: Distribution, axis: int) -> Envelope:
    """Return the weights of the released numbers, which of two scales are not the bins."""
    sides = weights.lower, weights.estimate, weights.upper
    return Envelope(*(distribution.measures[0].on_released(side, axis) for side in sides))


def _steps_at_ends(splines: AxisSplines, edges: FloatArray) -> tuple[Envelope, Envelope]:
    """Return envelopes of the rows below a box's low end, and below its high one.

    Rows at multiples that are ends count as inside.
    """
    if splines.multiples is None:
        below = steps(splines, edges)
        return below, below
    lasts = splines.multiples.below(edges), splines.multiples.up_to(edges)
    before, up_to = (steps_of_multiples(splines, last) for last in lasts)
    return before, up_to


def _box_edges(axis: Axis, splines: AxisSplines) -> FloatArray:
    """Return ends on offer, as positions in the unit interval: multiples where rows are rounded.

    Else the axis's ends and round numbers between them, whole days of dates, as readers write them.
    """
    multiples = splines.multiples
    numbers = (6 if multiples is None else 9) * splines.count  # of steps and of masses
    max_edges = max(1, min(_MAX_EDGES, _MAX_NUMBERS // numbers))
    if multiples is not None:
        count = multiples.count
        return np.rint(np.linspace(0, count, min(count, max_edges) + 1)) / count
    step = _round_step(axis.width / max_edges, axis.unit)
    first, last = math.floor(axis.low / step) + 1, math.ceil((axis.low + axis.width) / step)
    between = (step * np.arange(first, last) - axis.low) / axis.width
    between = between[(between > _CLOSEST) & (between < 1 - _CLOSEST)]
    return np.concatenate([[0.0], between, [1.0]])


def _round_step(least: float, unit: TimeUnit | None) -> float:
    """Return the least round number from `least` on: 1, 2 or 5, or in minutes, hours and days."""
    if unit is TimeUnit.SECONDS and least <= _ROUND_SECONDS[-1]:
        return next(step for step in _ROUND_SECONDS if step >= least)
    if unit is not None:
        day = 1.0 if unit is TimeUnit.DAYS else 86400.0
        return day * max(1.0, _round_step(least / day, None))
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least)


def _factors(distribution: Distribution, edges: Sequence[FloatArray], cells: int) -> list[float]:
    """Return the factors of bandwidths on offer: those that bins resolve, as many as fit."""
    axes = list(zip(distribution.measures[0].splines, distribution.kernels, edges, strict=True))
    resolved = [
        factor
        for factor in _BANDWIDTH_FACTORS
        if all(
            factor * kernel.bandwidth >= min_bandwidth(splines, _widen(kernel, factor), kernel)
            and not loses_period(_widen(kernel, factor), kernel)
            for splines, kernel, _ in axes
        )
    ]
    numbers = {
        (splines, kernel): 3 * splines.count * (cells + len(x)) for splines, kernel, x in axes
    }
    return sorted(resolved[: max(1, _MAX_NUMBERS // sum(numbers.values()))])


def _widen(kernel: Kernel, factor: float) -> Kernel:
    return replace(kernel, bandwidth=factor * kernel.bandwidth)


def _bandwidth_stop(
    distribution: Distribution,
    bins: Sequence[FloatArray],
    factor: float,
    edges: Sequence[FloatArray],
    arrays: dict[Packed, int],
) -> dict[str, Any]:
    """Return one bandwidth: sides of masses from 0 to each end, and of values not drawn yet."""
    kernels = [_widen(kernel, factor) for kernel in distribution.kernels]
    axes = list(zip(distribution.measures[0].splines, kernels, edges, strict=True))
    lengths = [
        f"{kernel.bandwidth * axis.width:.3g}"
        for kernel, axis in zip(kernels, distribution.domain.axes, strict=True)
    ]
    masses = [mass_envelope(splines, kernel, np.zeros_like(x), x) for splines, kernel, x in axes]
    used = axes if factor != 1.0 or _parts(distribution) else []
    middles = _cell_middles(_CELLS_PER_AXIS[min(len(axes), 2)])
    values = [
        _on_released(density_envelope(splines, kernel, middles), distribution, i)
        for i, (splines, kernel, _) in enumerate(used)
    ]
    return {
        "factor": factor,
        "name": lengths[0] if len(set(lengths)) == 1 else " × ".join(lengths),
        "peak": math.prod(kernel.highest for kernel in kernels) / distribution.domain.volume,
        "masses": [
            _sides(_on_released(sides, distribution, i), arrays) for i, sides in enumerate(masses)
        ],
        "values": [_sums(sides, bins, _of_all(distribution)[0], arrays) for sides in values]
        if len(axes) == 1
        else [_sides(sides, arrays) for sides in values],
    }


def _pack_band(synopsis: Synopsis, cells: int) -> Packed:
    """Pack values at the middles of cells, and the distances to both ends of `interval`.

    The shape is (3, groups, cells), or with cells of more axes. Where a regression has no rows it
    has its whole range: the middle, half the range below, and minus that above, as a mark.
    """
    shape = [cells] * len(synopsis.domain.axes)
    points = _middles(synopsis, shape)
    low, high = synopsis.interval(points, synopsis.metadata["certificate"]["beta"])
    value, combination = synopsis(points), synopsis.combination
    parts = [value, value - low, high - value]
    if isinstance(combination, Quotient):
        half, missing = combination.radius, np.isnan(low)
        ends = zip(parts, (combination.middle, half, -half), strict=True)
        parts = [np.where(missing, empty, part) for part, empty in ends]
    rows = [np.reshape(part, (len(points), -1)).T for part in parts]
    drawn, widths = np.stack(rows).reshape(3, -1, *shape), (high - low) / 2
    least = float(np.min(widths, where=widths > 0, initial=np.inf))
    digits = math.log2(max(float(np.abs(drawn).max()) / least, 1.0))
    return pack(drawn, min(_BAND_BITS + math.ceil(digits), _DRAWN_BITS))


def _half_widths(synopsis: Synopsis) -> list[dict[str, Any]]:
    """Return half-widths of `interval` by group, before bins are shrunk, by cells."""
    beta = Fraction(str(synopsis.metadata["certificate"]["beta"]))
    tables = []
    for band in synopsis._bands.of_arrays(BandRequest(beta), raw=True):  # what `interval` reads
        cells = band.biases.table.shape if band.biases else (1,) * len(synopsis.domain.axes)
        widths = band.at(_middles(synopsis, cells))
        tables.append({"cells": cells, "widths": pack(widths, _DRAWN_BITS)})
    return tables


def _middles(synopsis: Synopsis, counts: Sequence[int]) -> FloatArray:
    axes = zip(synopsis.domain.axes, counts, strict=True)
    grids = np.meshgrid(*(axis.at(_cell_middles(count)) for axis, count in axes), indexing="ij")
    return np.stack([grid.reshape(-1) for grid in grids], axis=-1)


def _cell_middles(count: int) -> FloatArray:
    return (np.arange(count) + 0.5) / count


def _colours(classes: int) -> dict[str, Any]:
    steps = np.linspace(0, 1, _COLOURS)
    styles = [(certain, index) for certain in (True, False) for index in range(classes)]
    return {
        "palettes": {scheme: [*map(to_hex, shade(steps, scheme))] for scheme in SCHEMES},
        # Groups that are surely the likeliest, then those that may not be.
        "classes": {
            scheme: [
                to_hex(class_colour(index, scheme, certain=certain)) for certain, index in styles
            ]
            for scheme in SCHEMES
        },
        "colours": {colour: f"--{name}" for name, colour in VARIABLES.items()},
    }
