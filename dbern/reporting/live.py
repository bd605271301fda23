"""Questions to a released function on the report's page: offline, without Python.

The page holds released numbers R, where noise is silenced also without it, and, for each axis, the
matrix M from them to coefficients of the Bernstein basis: ``b(y) = basis(y) M`` are an axis's
weights of a place, and products over axes those of the numbers in the value there. An integral of
the basis is a tail of that of the next degree.

Where bins count rows the page has, for public places of each axis, the weights with which
`Distribution` answers: of steps, of kernels of a few bandwidths, and of their integrals. A box is
told by differences of two places, and intervals by the tail of the noise's law: the same formulas
as for many boxes in Python (`dbern.synopsis.questions.interval`, and `.responses` for regressions
and the shares of groups). Values are what Python answers, up to roundings; intervals are as wide,
or a little wider. All on the page is released or public.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.combination.responses import Quotient, Quotients
from dbern.data.domain import Axis, TimeUnit
from dbern.errors import needed, printable
from dbern.reporting.pictures import (
    MOST_PANELS,
    REPORTS,
    SCHEMES,
    VARIABLES,
    class_colour,
    label,
    shade,
    text,
    value_name,
)
from dbern.synopsis.arrays import ReleasedArray
from dbern.synopsis.questions.bandwidths import least_bandwidth
from dbern.synopsis.questions.envelopes.kernel import density_envelope, mass_envelope
from dbern.synopsis.questions.envelopes.splines import AxisSplines, Envelope
from dbern.synopsis.questions.envelopes.step import OFFSETS, steps
from dbern.synopsis.questions.interval import CLUMPED
from dbern.synopsis.questions.responses import Parted, parted
from dbern.synopsis.reader import Synopsis
from dbern.types import FloatArray

if TYPE_CHECKING:
    from bokeh.models import Model
    from bokeh.plotting import figure

    from dbern.bernstein.kernels import Kernel
    from dbern.synopsis.questions.distribution import Distribution

MOST_EMBEDDED = 300_000
"""Released numbers on a page, of all groups together; of a larger release it has pictures alone."""

_FACTORS = (1.0, 2.0, 1.4, 0.8, 3.0, 1.7, 2.5, 1.2)
"""Bandwidths on offer, as multiples of the released one: the first ones first, where room ends."""

_MOST_NUMBERS = 270_000  # for all of them, of eight bytes each
_MOST_ENDS = 200  # along an axis
_PLACES = {1: 401, 2: 200}
"""Of a curve, and along each side of a map; a third axis has as many slices."""
_PLACES_OF_MEANS = 64  # along each of three axes: all values and ends of a regression are there

_COLOURS = 256
_ROOM = 60  # pixels, for the numbers of the vertical axis
_INPUTS = {None: "number", TimeUnit.DAYS: "date", TimeUnit.SECONDS: "datetime-local"}
_LONGEST = 3.0  # side of a map in true aspect
_FONT = "system-ui, sans-serif"


def live(synopsis: Synopsis) -> dict[str, Any] | None:
    """Return the data with which a page answers its reader, for ``templates/live.html``, or None.

    Pictures alone have to do where the function is neither a density nor a regression by bins,
    where its lattice is oblique or its axes do not factor, and where more than `MOST_EMBEDDED`
    numbers were released.
    """
    axes, functions = synopsis.domain.axes, _functions(synopsis)
    if not functions or left_out(synopsis):
        return None
    first, flat, arrays = functions[0], len(axes) < 3, dict[str, int]()
    asked = synopsis.distribution() if _counts_rows(synopsis, functions) else None
    parts = _parts(asked)
    response = asked is not None and asked.response is not None
    places = _PLACES_OF_MEANS if response and not flat else _PLACES[min(len(axes), 2)]
    # Of groups also their shares; of two axes a map of the likeliest.
    count = 1 if not parts else 2 if len(axes) == 1 else 3
    shows = ("response",) if response else ("density", "share", "likeliest")[:count]
    released = [*parts[0].values] if response else [one.released for one in functions]
    whose = () if response else first.strategy.matrices(first.order)
    counting = asked and _counting(synopsis, asked, places, arrays)
    value = value_name(synopsis) if response else "density"
    facts = {
        "axes": [{"low": axis.low, "high": axis.high, "scale": _scale(axis)} for axis in axes],
        "places": places,
        "shape": first.released.shape,
        "released": [_packed(one) for one in released],
        "answered": [_packed(one.shrunk) if one.shrunk_distance else "" for one in functions],
        "shows": shows,
        "counting": counting,
        "matrices": [_index_of(one, arrays) for one in whose],
        "arrays": list(arrays),
        "ends": _packed(_ends_of_band(synopsis, places), "<f4") if flat or response else "",
        "bands": [] if flat or response else _half_widths(synopsis),
        "summed": 0.0 if counting else synopsis.band(synopsis.metadata["certificate"]["beta"]),
        "volume": synopsis.domain.volume,
        **_colours(len(parts)),
        "document": _document(axes, shows, value),
    }
    return {
        **_scripts(),
        "facts": json.dumps(facts, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "axes": [{"name": label(axis), "input": _INPUTS[axis.unit]} for axis in axes],
        "places": places,
        "ratio": _ratio(axes),
        "unit": synopsis.combination.unit_text([axis.label for axis in axes], density=True),
        "groups": [printable(str(one)) for one in synopsis.classes],
        "column": synopsis.metadata.get("columns", {}).get("group", "Group"),
        "value": value,
        "bandwidths": [stop["name"] for stop in counting["stops"]] if counting else [],
        "start": counting["start"] if counting else 0,
        "counts": counting is not None,
        "response": response,
        "shows": shows,
    }


def _scripts() -> dict[str, str]:
    """Return the scripts of the plotting library and of the page: all that a browser may run."""
    from bokeh.resources import Resources

    library = str(Resources(mode="inline", components=["bokeh"]).js_raw[0])
    script = files("dbern.reporting").joinpath("templates/live.js").read_text(encoding="utf-8")
    digests = (hashlib.sha256(one.encode()).digest() for one in (library, script))
    allowed = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in digests)
    return {"library": library, "script": script, "digests": allowed}


def _ratio(axes: Sequence[Axis]) -> float:
    if len(axes) == 1:
        return 0.45
    ratio = axes[1].width / axes[0].width
    alike = axes[0].attributes == axes[1].attributes and 1 / _LONGEST <= ratio <= _LONGEST
    return ratio if alike else 0.8


def left_out(synopsis: Synopsis) -> int:
    """Return how many released numbers a page would have to hold, where they are too many."""
    arrays = [one for one in synopsis.arrays if type(one) is ReleasedArray]
    size = sum(one.strategy.layout.size for one in arrays) if _functions(synopsis) else 0
    return size if size > MOST_EMBEDDED else 0


def _functions(synopsis: Synopsis) -> list[ReleasedArray]:
    """Arrays of a density whose axes factor, or the rows of one regression; none for others."""
    found = [one for one in synopsis.arrays if type(one) is ReleasedArray]
    if isinstance(synopsis.combination, Quotients):
        return []
    regression = isinstance(synopsis.combination, Quotient)
    if regression:
        found = [one for one in found if one.counted_in == one.name]
    fits = regression or synopsis.meaning == "density"
    fits = fits and len(synopsis.domain.axes) <= 3
    fits = fits and all(one.oblique is None and one.strategy.whole is None for one in found)
    if fits and regression:
        fits = _counts_rows(synopsis, found) and synopsis.distribution().response is not None
    return found if fits else []


def _counts_rows(synopsis: Synopsis, functions: Sequence[ReleasedArray]) -> bool:
    counted = all(one.counted_in == one.name and one.bins for one in functions)
    return bool(functions) and counted and "random_dp" not in synopsis.metadata


def _index_of(values: FloatArray, arrays: dict[str, int]) -> int:
    """Index among the page's arrays, each of which is written once."""
    return arrays.setdefault(_packed(values), len(arrays))


def _sides(envelope: Envelope, arrays: dict[str, int]) -> dict[str, int]:
    sides = {"low": envelope.lower, "near": envelope.estimate, "high": envelope.upper}
    return {end: _index_of(side, arrays) for end, side in sides.items()}


def _counting(
    synopsis: Synopsis, asked: Distribution, places: int, arrays: dict[str, int]
) -> dict[str, Any]:
    """Weights for shares of the rows, and for functions at other bandwidths (`Distribution`)."""
    measures, parts, splines = asked.measures, _parts(asked), asked.measures[0].splines
    ends = [_ends(one) for one in splines]
    beta = Fraction(str(synopsis.metadata["certificate"]["beta"]))
    beta /= asked.choices
    stops = [_stop(asked, factor, ends, places, arrays) for factor in _factors(asked, ends, places)]
    count = 2 * places ** len(splines)
    found: dict[str, Any] = {
        "ends": [one.tolist() for one in ends],
        "steps": [
            _sides(_on_released(steps(*axis), asked), arrays)
            for axis in zip(splines, ends, strict=True)
        ],
        "stops": stops,
        "start": [stop["factor"] for stop in stops].index(1.0),
        "rows": asked.rows,
        "unit": 1.0 if asked.response else synopsis.arrays[0].value_unit,
        "tails": [one.tail(2, beta / len(measures)) for one in measures],
        "everywhere": [one.tail(count, beta / len(measures)) for one in measures],
        "errors": [one.error for one in measures],
        "deviations": [measure.deviation for measure in measures],
        "clumped": CLUMPED,
    }
    if parts:  # all have the same noise
        own, share, response = parts[0], beta / len(parts), asked.response
        found["parts"] = {
            "response": response is not None,
            "low": response.low if response else 0.0,
            "high": response.high if response else 1.0,
            "squares": (own.mixing**2).sum(axis=1).tolist(),
            "largest": np.abs(own.mixing).max(axis=1).tolist(),
            "error": own.error,
            "deviation": own.deviation,
            "tails": own.tail(2, share),
            "everywhere": own.tail(count, share),
        }
    return found


def _parts(asked: Distribution | None) -> tuple[Parted, ...]:
    return () if asked is None or len(asked.groups) > MOST_PANELS else parted(asked)


def _on_released(weights: Envelope, asked: Distribution) -> Envelope:
    """Weights of the numbers that were released, which of two levels are not the bins."""
    sides = weights.lower, weights.estimate, weights.upper
    return Envelope(*map(asked.measures[0].on_released, sides))


def _ends(splines: AxisSplines) -> FloatArray:
    finest = splines.cells * OFFSETS
    most = min(_MOST_ENDS, _MOST_NUMBERS // (6 * splines.count))  # of steps and of masses
    return np.rint(np.linspace(0, finest, min(finest, most) + 1)) / finest


def _factors(asked: Distribution, ends: Sequence[FloatArray], places: int) -> list[float]:
    """Bandwidths on offer: what bins resolve, as far as there is room on the page."""
    axes = list(zip(asked.measures[0].splines, asked.kernels, ends, strict=True))
    resolved = [
        factor
        for factor in _FACTORS
        if all(
            factor * own.bandwidth >= least_bandwidth(splines, _wider(own, factor), own)
            for splines, own, _ in axes
        )
    ]
    numbers = {(splines, own): 3 * splines.count * (places + len(x)) for splines, own, x in axes}
    return sorted(resolved[: max(1, _MOST_NUMBERS // sum(numbers.values()))])


def _wider(kernel: Kernel, factor: float) -> Kernel:
    return replace(kernel, bandwidth=factor * kernel.bandwidth)


def _stop(
    asked: Distribution,
    factor: float,
    ends: Sequence[FloatArray],
    places: int,
    arrays: dict[str, int],
) -> dict[str, Any]:
    """One bandwidth: sides of masses from 0 to each end, and of values that are not evaluated."""
    kernels = [_wider(one, factor) for one in asked.kernels]
    axes = list(zip(asked.measures[0].splines, kernels, ends, strict=True))
    middles = (np.arange(places) + 0.5) / places
    lengths = [
        f"{one.bandwidth * axis.width:.3g}"
        for one, axis in zip(kernels, asked.domain.axes, strict=True)
    ]
    masses = [mass_envelope(splines, one, np.zeros_like(x), x) for splines, one, x in axes]
    used = axes if factor != 1.0 or _parts(asked) else []
    values = [density_envelope(splines, one, middles) for splines, one, _ in used]
    return {
        "factor": factor,
        "name": lengths[0] if len(set(lengths)) == 1 else " × ".join(lengths),
        "peak": math.prod(one.peak for one in kernels) / asked.domain.volume,
        "masses": [_sides(_on_released(sides, asked), arrays) for sides in masses],
        "values": [_sides(_on_released(sides, asked), arrays) for sides in values],
    }


def _ends_of_band(synopsis: Synopsis, places: int) -> FloatArray:
    """Ends of `interval` at the middles of the cells: (2, groups, cells), low first.

    For a regression (3, 1, cells), its values first.
    """
    points = _middles(synopsis, [places] * len(synopsis.domain.axes))
    ends = synopsis.interval(points, synopsis.metadata["certificate"]["beta"])
    columns = [synopsis(points), *ends] if synopsis.meaning == "response" else ends
    return np.stack([np.reshape(column, (len(points), -1)).T for column in columns])


def _half_widths(synopsis: Synopsis) -> list[dict[str, Any]]:
    """Half-widths of `interval` by group, before silencing, in cells where they vary."""
    beta = Fraction(str(synopsis.metadata["certificate"]["beta"]))
    tables = []
    for band in synopsis._bands(beta, None, "these-data", raw=True):  # what `interval` reads
        cells = band.biases.table.shape if band.biases else (1,) * len(synopsis.domain.axes)
        widths = band.at(_middles(synopsis, cells))
        tables.append({"cells": cells, "widths": _packed(widths, "<f4")})
    return tables


def _middles(synopsis: Synopsis, counts: Sequence[int]) -> FloatArray:
    axes = zip(synopsis.domain.axes, counts, strict=True)
    grids = np.meshgrid(
        *(axis.at((np.arange(count) + 0.5) / count) for axis, count in axes), indexing="ij"
    )
    return np.stack([grid.reshape(-1) for grid in grids], axis=-1)


def _packed(values: FloatArray, kind: str = "<f8") -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def _colours(classes: int) -> dict[str, Any]:
    steps = np.linspace(0, 1, _COLOURS)
    styles = [(certain, index) for certain in (True, False) for index in range(classes)]
    return {
        "palettes": {scheme: [*map(text, shade(steps, scheme))] for scheme in SCHEMES},
        # Of groups that surely are the likeliest, then of those that may not be.
        "classes": {
            scheme: [text(class_colour(index, scheme, sure=certain)) for certain, index in styles]
            for scheme in SCHEMES
        },
        "colours": {colour: f"--{name}" for name, colour in VARIABLES.items()},
    }


def _scale(axis: Axis) -> int:
    """Factor to milliseconds on an axis of dates or times; 1 on one of numbers."""
    return 1000 * axis.unit.seconds if axis.unit else 1


# --- Figures, which the page's script fills


def _document(axes: Sequence[Axis], shows: Sequence[str], value: str) -> dict[str, Any]:
    """Document of the library with one or two figures, whose identities do not vary."""
    with needed(REPORTS):
        from bokeh.core.json_encoder import serialize_json
        from bokeh.document import Document
    document = Document()
    value = value if len(shows) == 1 else "value"
    roots = _curve(axes[0], shows, value) if len(axes) == 1 else _maps(axes[:2], shows[0], value)
    for root in roots:
        document.add_root(root)
    names: dict[str, str] = {}
    told = re.sub(
        r'"id": ?"([^"]+)"',
        lambda m: f'"id":"{names.setdefault(m[1], f"m{len(names)}")}"',
        serialize_json(document.to_json()),
    )
    found: dict[str, Any] = json.loads(told)
    return found


def _figure(name: str, axes: Sequence[Axis | None], dimensions: str) -> figure:
    from bokeh.models import (
        BoxAnnotation,
        BoxSelectTool,
        PanTool,
        PlainText,
        Range1d,
        ResetTool,
        SaveTool,
        WheelZoomTool,
    )
    from bokeh.plotting import figure

    kinds = ["datetime" if axis and axis.unit else "linear" for axis in axes]
    select = BoxSelectTool(dimensions=dimensions, renderers=[], continuous=True)
    select.overlay.update(fill_alpha=0, line_alpha=0)
    made = figure(
        name=name,
        x_axis_type=kinds[0],
        y_axis_type=kinds[1],
        tools=[select, PanTool(), WheelZoomTool(), ResetTool(), SaveTool()],
        active_drag=select,
        toolbar_location="right",
        toolbar_sticky=False,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border=4,
        min_border_left=_ROOM,
        lod_threshold=None,
    )
    made.toolbar.logo = None
    made.toolbar.autohide = True
    for axis, ruler, side in zip(axes, (made.xaxis, made.yaxis), ("x", "y"), strict=True):
        if axis is None:
            made.y_range = Range1d(name="heights")
        else:
            ends = [end * _scale(axis) for end in (axis.low, axis.high)]
            setattr(made, f"{side}_range", Range1d(*ends, bounds=tuple(ends)))
            ruler[0].axis_label = PlainText(text=label(axis))
        ruler[0].update(
            axis_line_color=VARIABLES["rule"],
            major_tick_line_color=VARIABLES["rule"],
            minor_tick_line_color=None,
            major_label_text_color=VARIABLES["muted"],
            axis_label_text_color=VARIABLES["muted"],
            major_label_text_font=_FONT,
            axis_label_text_font=_FONT,
            major_label_text_font_size="12px",
            axis_label_text_font_size="13px",
            axis_label_text_font_style="normal",
        )
    made.grid.grid_line_color = None
    for part, width in (("paper", 4), ("ink", 1.5)):
        look = {"line_color": VARIABLES[part], "line_width": width, "line_alpha": 1.0}
        made.add_layout(BoxAnnotation(tags=["box"], fill_color=None, level="overlay", **look))
    return made


_TEXTS = ("first", "second", "value", "low", "high")
"""Columns that the page's script writes for people, of what is below the pointer."""


def _hover(axes: Sequence[Axis], value: str, **how: Any) -> Model:
    from bokeh.models import HoverTool

    names = [label(axis) for axis in axes]
    columns = [*_TEXTS[: len(axes)], *_TEXTS[2:]]
    rows = zip([*names, value, "from", "to"], columns, strict=True)
    return HoverTool(tooltips=[(name, f"@{column}_text") for name, column in rows], **how)


def _curve(axis: Axis, shows: Sequence[str], value: str) -> list[figure]:
    from bokeh.models import ColumnDataSource, LinearColorMapper

    made = _figure("value", (axis, None), "width")
    if "share" in shows:  # above the curve, in the colours of the largest groups
        low, width = axis.low * _scale(axis), axis.width * _scale(axis)
        strip = ColumnDataSource(name="strip", data={"image": []})
        colours = LinearColorMapper(name="value-colours", palette=["#000000"])
        made.image("image", source=strip, x=low, dw=width, y=1.01, dh=0.05, color_mapper=colours)
    columns = ("x", "value", "width", "low", "high", *(f"{name}_text" for name in _TEXTS))
    source = ColumnDataSource(name="cells", data={key: [] for key in columns})
    made.varea("x", "low", "high", source=source, fill_color=VARIABLES["wash"])
    line = made.line("x", "value", source=source, line_color=VARIABLES["accent"], line_width=2)
    made.ygrid.grid_line_color = VARIABLES["rule"]
    made.add_tools(_hover([axis], value, mode="vline", renderers=[line]))
    return [made]


def _maps(axes: Sequence[Axis], shown: str, value_name: str) -> list[figure]:
    from bokeh.models import (
        BasicTickFormatter,
        ColorBar,
        ColumnDataSource,
        LinearColorMapper,
        LogColorMapper,
    )

    columns = ["image", "value", "width", "low", "high", "ratio"]
    columns += [f"{name}_text" for name in _TEXTS]
    source = ColumnDataSource(name="cells", data={key: [] for key in columns})
    first, second = axes
    ends = [first.low * _scale(first), second.low * _scale(second)]
    sizes = [first.width * _scale(first), second.width * _scale(second)]
    value = _figure("value", axes, "both")
    ratio = _figure("ratio", axes, "both")
    ratio.x_range, ratio.y_range = value.x_range, value.y_range
    ratio.yaxis[0].axis_label = None
    unknown, start = VARIABLES["rule"], {"palette": ["#000000"], "low": 0, "high": 1}
    mappers = (
        LinearColorMapper(name="value-colours", nan_color=unknown, **start),
        LinearColorMapper(name="ratio-colours", **start)
        if shown == "response"
        else LogColorMapper(
            name="ratio-colours", palette=["#000000"], low=1, high=100, low_color=unknown
        ),
    )
    for made, column, mapper in zip((value, ratio), ("image", "ratio"), mappers, strict=True):
        image = made.image(
            column,
            source=source,
            x=ends[0],
            y=ends[1],
            dw=sizes[0],
            dh=sizes[1],
            color_mapper=mapper,
        )
        made.add_tools(_hover(axes, value_name, renderers=[image]))
        bar = ColorBar(
            name="value-bar" if mapper is mappers[0] else "ratio-bar",
            color_mapper=mapper,
            formatter=BasicTickFormatter(use_scientific=False),
            height=10,
            width="auto",
            padding=4,
            margin=12,
            background_fill_color=None,
            major_label_text_color=VARIABLES["muted"],
            major_label_text_font=_FONT,
            major_label_text_font_size="12px",
            major_tick_line_color=None,
            bar_line_color=None,
        )
        made.add_layout(bar, "below")
    return [value, ratio]
