"""What a reader can ask of a released function on the report's page: offline, without Python.

The page holds released numbers R and, for each axis and each bandwidth on offer, the matrix M from
them to coefficients of the Bernstein basis: ``b(y) = basis(y) M`` are an axis's weights of a place,
and their products over axes those of R in the value there. An integral of the basis is a tail of
the basis of the next degree, so the mass of a box is a sum of the same kind. Where bins count rows
the page has the weights of steps too, at public places of each axis: the share of the rows in a box
between them is what `Distribution.mass` answers for many boxes, whose interval follows from the law
of the noise by its tail. All are what Python answers, up to roundings. Everything on the page is
released or public.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dbern.bernstein.basis import iterated_matrix
from dbern.data.domain import Axis, TimeUnit
from dbern.errors import EnvironmentRefusedError, printable
from dbern.reporting.pictures import MAP, SCHEMES, VARIABLES, channels, label, text
from dbern.strategies.bins import axis_bins
from dbern.synopsis.arrays import ReleasedArray
from dbern.synopsis.questions.splines import OFFSETS
from dbern.synopsis.reader import Synopsis
from dbern.types import FloatArray

if TYPE_CHECKING:
    from bokeh.models import Model
    from bokeh.plotting import figure

MOST_EMBEDDED = 300_000
"""Released numbers on a page, of all groups together; of a larger release it has pictures alone."""

_FACTORS = (1.0,)
"""Bandwidths on offer where bins were released, as multiples of the released one."""

_PLACES = {1: 801, 2: 200}
"""Of a curve, and along each side of a map."""

_MOST_STEPS, _MOST_WEIGHTS = 400, 50_000  # along an axis, for the sides of boxes
_COLOURS = 256
_ROOM = 60  # pixels, for the numbers of the vertical axis
_INPUTS = {None: "number", TimeUnit.DAYS: "date", TimeUnit.SECONDS: "datetime-local"}
_LONGEST = 3.0  # side of a map in true aspect
_FONT = "system-ui, sans-serif"


@dataclass(frozen=True)
class Live:
    """What makes a page answer.

    Attributes
    ----------
    library, script : str
        The plotting library's script, and the page's own.
    facts : str
        JSON for the latter, safe inside of HTML.
    axes : list of dict
        The ``name`` of each, and the type of ``input`` that its places are written into.
    ratio : float
        Height over width of a figure: of a map in true aspect, where its axes may be compared.
    unit : str
        Of a value, in words that follow its name.
    groups : tuple of str
    bandwidths : tuple of str
        What the slider's stops are called.
    start : int
        The stop of the release.
    counts : bool
        Whether it tells shares of the rows.
    """

    library: str
    script: str
    facts: str
    axes: list[dict[str, str]]
    ratio: float
    unit: str
    groups: tuple[str, ...]
    bandwidths: tuple[str, ...]
    start: int
    counts: bool

    @property
    def digests(self) -> str:
        """What alone a browser may run, as its content policy names it."""
        found = [hashlib.sha256(one.encode()).digest() for one in (self.library, self.script)]
        return " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in found)


def live(synopsis: Synopsis) -> Live | None:
    """Return what a page needs to answer its reader; None where pictures alone have to do.

    That is where the function is no density, where its lattice is oblique or its axes do not
    factor, and where more than `MOST_EMBEDDED` numbers were released.

    Raises
    ------
    EnvironmentRefusedError
        Where bokeh is not installed.
    """
    axes, functions = synopsis.domain.axes, _functions(synopsis)
    if not functions or left_out(synopsis):
        return None
    first, places = functions[0], _PLACES[len(axes)]
    factors = _FACTORS if first.bins else (1.0,)
    arrays: dict[str, int] = {}
    stops = _stops(first, factors, arrays)
    counting = _counting(synopsis, functions, arrays)
    facts = {
        "axes": [
            {"name": axis.name, "low": axis.low, "high": axis.high, "scale": _scale(axis)}
            for axis in axes
        ],
        "places": places,
        "shape": first.released.shape,
        "released": [_packed(one.released) for one in functions],
        "counting": counting,
        "matrices": list(arrays),
        "stops": stops,
        "widths": _packed(_widths(synopsis, places), "<f4"),
        "band": synopsis.band(synopsis.metadata["certificate"]["beta"]),
        "volume": synopsis.domain.volume,
        "palettes": {scheme: _palette(scheme) for scheme in SCHEMES},
        "colours": {colour: f"--{name}" for name, colour in VARIABLES.items()},
        "document": _document(axes),
    }
    return Live(
        library=_library(),
        script=files("dbern.reporting").joinpath("templates/live.js").read_text(encoding="utf-8"),
        facts=json.dumps(facts, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        axes=[{"name": label(axis), "input": _INPUTS[axis.unit]} for axis in axes],
        ratio=_ratio(axes),
        unit=synopsis.combination.unit(synopsis.domain.names, density=True),
        groups=tuple(printable(str(one)) for one in synopsis.classes),
        bandwidths=tuple(stop["name"] for stop in stops),
        start=factors.index(1.0),
        counts=counting is not None,
    )


def _ratio(axes: Sequence[Axis]) -> float:
    if len(axes) == 1:
        return 0.45
    ratio = axes[1].width / axes[0].width
    alike = axes[0].unit is axes[1].unit and 1 / _LONGEST <= ratio <= _LONGEST
    return ratio if alike else 0.8


def left_out(synopsis: Synopsis) -> int:
    """Return how many released numbers a page would have to hold, where they are too many."""
    size = sum(one.strategy.layout.size for one in _functions(synopsis))
    return size if size > MOST_EMBEDDED else 0


def _functions(synopsis: Synopsis) -> list[ReleasedArray]:
    """The arrays of a density whose axes factor; none of other functions."""
    found = cast("list[ReleasedArray]", list(synopsis.arrays))  # a density has no vectors
    fits = synopsis.meaning == "density" and len(synopsis.domain.axes) <= 2
    fits = fits and all(one.oblique is None and one.strategy.whole is None for one in found)
    return found if fits else []


def _stops(
    array: ReleasedArray, factors: Sequence[float], arrays: dict[str, int]
) -> list[dict[str, Any]]:
    return [
        {
            "name": _named(array, factor),
            "matrices": [_place(one, arrays) for one in _matrices(array, factor)],
        }
        for factor in factors
    ]


def _place(values: FloatArray, arrays: dict[str, int]) -> int:
    """Where it is among the page's arrays, each of which is written once."""
    return arrays.setdefault(_packed(values), len(arrays))


def _counting(
    synopsis: Synopsis, functions: Sequence[ReleasedArray], arrays: dict[str, int]
) -> dict[str, Any] | None:
    """What tells shares of the rows (`Distribution.mass`), of boxes between public places."""
    random = "random_dp" in synopsis.metadata
    if random or any(one.counted_in != one.name or not one.bins for one in functions):
        return None
    asked, steps = synopsis.distribution(), list[dict[str, Any]]()
    measures = asked.measures
    for splines in measures[0].splines:
        finest = splines.cells * OFFSETS
        count = min(finest, _MOST_STEPS, _MOST_WEIGHTS // splines.count)
        places = np.rint(np.linspace(0, finest, count + 1)) / finest
        sides = splines.steps(places)
        found = {end: _place(getattr(sides, end), arrays) for end in ("low", "near", "high")}
        steps.append({"places": places.tolist(), **found})
    beta = Fraction(str(synopsis.metadata["certificate"]["beta"])) / len(functions)
    tails = [one.tail(2, beta) for one in measures]
    return {
        "steps": steps,
        "rows": asked.rows,
        "unit": functions[0].value_unit,
        "tails": tails,
        "errors": [one.error for one in measures],
    }


def _matrices(array: ReleasedArray, factor: float) -> list[FloatArray]:
    if factor == 1.0:
        return array.strategy.matrices(array.order)
    parts = zip(array.kernels, array.lattice.k, array.order, array.bins, strict=True)
    return [
        iterated_matrix(k, h)
        @ axis_bins(
            replace(kernel, bandwidth=factor * kernel.bandwidth), k, bins.cells, bins.degree, h
        ).synthesis
        for kernel, k, h, bins in parts
    ]


def _named(array: ReleasedArray, factor: float) -> str:
    lengths = [
        f"{factor * kernel.bandwidth * axis.width:.3g}"
        for kernel, axis in zip(array.kernels, array.domain.axes, strict=True)
    ]
    return lengths[0] if len(set(lengths)) == 1 else " × ".join(lengths)


def _widths(synopsis: Synopsis, places: int) -> FloatArray:
    """Half-widths of the simultaneous band at the middles of the cells, groups first."""
    middles = (np.arange(places) + 0.5) / places
    grids = np.meshgrid(*(axis.at(middles) for axis in synopsis.domain.axes), indexing="ij")
    points = np.stack([one.reshape(-1) for one in grids], axis=-1)
    low, high = synopsis.interval(points, synopsis.metadata["certificate"]["beta"])
    return np.asarray((high - low) / 2).reshape(len(points), -1).T


def _packed(values: FloatArray, kind: str = "<f8") -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def _scale(axis: Axis) -> int:
    """What makes milliseconds of a place on an axis of dates or times; 1 of a number."""
    return 1000 * axis.unit.seconds if axis.unit else 1


def _palette(scheme: str) -> list[str]:
    stops = np.array([channels(colour) for colour in MAP[scheme]])
    places = np.linspace(0, len(stops) - 1, _COLOURS)
    parts = [np.interp(places, np.arange(len(stops)), one) for one in stops.T]
    return [text(colour) for colour in np.stack(parts, axis=-1)]


def _library() -> str:
    from bokeh.resources import Resources

    return str(Resources(mode="inline", components=["bokeh"]).js_raw[0])


# --- Figures, which the page's script fills


def _document(axes: Sequence[Axis]) -> dict[str, Any]:
    """The library's document of one or two figures, whose identities do not vary."""
    try:
        from bokeh.core.json_encoder import serialize_json
        from bokeh.document import Document
    except ImportError:
        raise EnvironmentRefusedError(
            "reports need bokeh, jinja2 and matplotlib. Install them with: pip install "
            "'dbern[report]'"
        ) from None
    document = Document()
    for root in _curve(axes[0]) if len(axes) == 1 else _maps(axes):
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


def _hover(axes: Sequence[Axis], rows: Sequence[tuple[str, str]], **how: Any) -> Model:
    from bokeh.models import HoverTool

    sides = ("$x", "$y")
    places = [
        (label(axis), f"{side}{{%F %H:%M}}" if axis.unit else f"{side}{{0.000a}}")
        for axis, side in zip(axes, sides, strict=False)
    ]
    forms = {side: "datetime" for axis, side in zip(axes, sides, strict=False) if axis.unit}
    return HoverTool(tooltips=[*places, *rows], formatters=forms, **how)


def _curve(axis: Axis) -> list[figure]:
    from bokeh.models import ColumnDataSource

    made = _figure("value", (axis, None), "width")
    source = ColumnDataSource(
        name="cells", data={key: [] for key in ("x", "value", "width", "low", "high")}
    )
    made.varea("x", "low", "high", source=source, fill_color=VARIABLES["wash"])
    line = made.line("x", "value", source=source, line_color=VARIABLES["accent"], line_width=2)
    made.ygrid.grid_line_color = VARIABLES["rule"]
    rows = [("value", "@value{0.000e}"), ("within ±", "@width{0.00e}")]
    made.add_tools(_hover([axis], rows, mode="vline", renderers=[line]))
    return [made]


def _maps(axes: Sequence[Axis]) -> list[figure]:
    from bokeh.models import (
        BasicTickFormatter,
        ColorBar,
        ColumnDataSource,
        LinearColorMapper,
        LogColorMapper,
    )

    source = ColumnDataSource(name="cells", data={key: [] for key in ("image", "width", "ratio")})
    first, second = axes
    ends = [first.low * _scale(first), second.low * _scale(second)]
    sizes = [first.width * _scale(first), second.width * _scale(second)]
    value = _figure("value", axes, "both")
    ratio = _figure("ratio", axes, "both")
    ratio.x_range, ratio.y_range = value.x_range, value.y_range
    ratio.yaxis[0].axis_label = None
    mappers = (
        LinearColorMapper(name="value-colours", palette=["#000000"], low=0, high=1),
        LogColorMapper(
            name="ratio-colours", palette=["#000000"], low=1, high=100, low_color=VARIABLES["rule"]
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
        rows = [("density", "@image{0.000e}"), ("within ±", "@width{0.00e}")]
        made.add_tools(_hover(axes, rows, renderers=[image]))
        bar = ColorBar(
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
