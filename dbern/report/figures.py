"""Empty figures of the report's page: a curve with its band, or a map and the ratios beside it.

They are a document of Bokeh, which the page's script fills: it finds the sources, the colours and
the axes by their names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dbern.data.domain import Axis
from dbern.errors import optional_import
from dbern.report.colours import VARIABLES
from dbern.report.pictures import label
from dbern.report.wording import REPORT_HINT

if TYPE_CHECKING:
    from bokeh.models import Model
    from bokeh.plotting import figure


_LABEL_PIXELS = 60  # for the numbers of the vertical axis
_FONT = "system-ui, sans-serif"
_HOVER_COLUMNS = ("first", "second", "value", "low", "high")
"""Columns of texts, which the page's script writes, about the cell below the pointer."""


def figures_document(axes: Sequence[Axis], shows: Sequence[str], value: str) -> dict[str, Any]:
    """Return a Bokeh document of one or two figures, whose ids are the same in every run."""
    with optional_import(REPORT_HINT):
        from bokeh.core.json_encoder import serialize_json
        from bokeh.document import Document
    document = Document()
    value = value if len(shows) == 1 else "value"
    roots = _curve(axes[0], shows, value) if len(axes) == 1 else _maps(axes[:2], shows[0], value)
    for root in roots:
        document.add_root(root)
    names: dict[str, str] = {}
    document_text = re.sub(
        r'"id": ?"([^"]+)"',
        lambda m: f'"id":"{names.setdefault(m[1], f"m{len(names)}")}"',
        serialize_json(document.to_json()),
    )
    content: dict[str, Any] = json.loads(document_text)
    return content


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
    plot = figure(
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
        min_border_left=_LABEL_PIXELS,
        lod_threshold=None,
    )
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    for axis, ruler, side in zip(axes, (plot.xaxis, plot.yaxis), ("x", "y"), strict=True):
        if axis is None:
            plot.y_range = Range1d(name="heights")
        else:
            bounds = [end * milliseconds_per_unit(axis) for end in (axis.low, axis.high)]
            setattr(plot, f"{side}_range", Range1d(*bounds, bounds=tuple(bounds)))
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
    plot.grid.grid_line_color = None
    for colour, width in (("paper", 4), ("ink", 1.5)):
        look = {"line_color": VARIABLES[colour], "line_width": width, "line_alpha": 1.0}
        plot.add_layout(BoxAnnotation(tags=["box"], fill_color=None, level="overlay", **look))
    return plot


def _hover(axes: Sequence[Axis], value: str, **options: Any) -> Model:
    from bokeh.models import HoverTool

    names = [label(axis) for axis in axes]
    columns = [*_HOVER_COLUMNS[: len(axes)], *_HOVER_COLUMNS[2:]]
    rows = zip([*names, value, "from", "to"], columns, strict=True)
    return HoverTool(tooltips=[(name, f"@{column}_text") for name, column in rows], **options)


def _curve(axis: Axis, shows: Sequence[str], value: str) -> list[figure]:
    from bokeh.models import ColumnDataSource, LinearColorMapper

    plot = _figure("value", (axis, None), "width")
    if "share" in shows:  # above the curve, in the colours of the largest groups
        scale = milliseconds_per_unit(axis)
        strip = ColumnDataSource(name="strip", data={"image": []})
        colours = LinearColorMapper(name="value-colours", palette=["#000000"])
        plot.image(
            "image",
            source=strip,
            x=axis.low * scale,
            dw=axis.width * scale,
            y=1.01,
            dh=0.05,
            color_mapper=colours,
        )
    columns = ("x", "value", "width", "low", "high", *(f"{name}_text" for name in _HOVER_COLUMNS))
    source = ColumnDataSource(name="cells", data={key: [] for key in columns})
    plot.varea("x", "low", "high", source=source, fill_color=VARIABLES["wash"])
    line = plot.line("x", "value", source=source, line_color=VARIABLES["accent"], line_width=2)
    plot.ygrid.grid_line_color = VARIABLES["rule"]
    plot.add_tools(_hover([axis], value, mode="vline", renderers=[line]))
    return [plot]


def _maps(axes: Sequence[Axis], quantity: str, value_name: str) -> list[figure]:
    from bokeh.models import (
        BasicTickFormatter,
        ColorBar,
        ColumnDataSource,
        LinearColorMapper,
        LogColorMapper,
    )

    columns = ["image", "value", "width", "low", "high", "ratio"]
    columns += [f"{name}_text" for name in _HOVER_COLUMNS]
    source = ColumnDataSource(name="cells", data={key: [] for key in columns})
    scales = [milliseconds_per_unit(axis) for axis in axes]
    origin = [axis.low * scale for axis, scale in zip(axes, scales, strict=True)]
    sizes = [axis.width * scale for axis, scale in zip(axes, scales, strict=True)]
    value = _figure("value", axes, "both")
    ratio = _figure("ratio", axes, "both")
    ratio.x_range, ratio.y_range = value.x_range, value.y_range
    ratio.yaxis[0].axis_label = None
    unknown, start = VARIABLES["rule"], {"palette": ["#000000"], "low": 0, "high": 1}
    mappers = (
        LinearColorMapper(name="value-colours", nan_color=unknown, **start),
        LinearColorMapper(name="ratio-colours", **start)
        if quantity == "response"
        else LogColorMapper(
            name="ratio-colours", palette=["#000000"], low=1, high=100, low_color=unknown
        ),
    )
    for plot, column, mapper in zip((value, ratio), ("image", "ratio"), mappers, strict=True):
        image = plot.image(
            column,
            source=source,
            x=origin[0],
            y=origin[1],
            dw=sizes[0],
            dh=sizes[1],
            color_mapper=mapper,
        )
        plot.add_tools(_hover(axes, value_name, renderers=[image]))
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
        plot.add_layout(bar, "below")
    return [value, ratio]


def milliseconds_per_unit(axis: Axis) -> int:
    """Return the factor to milliseconds of an axis of dates or times; 1 for an axis of numbers."""
    return 1000 * axis.unit.seconds if axis.unit else 1
