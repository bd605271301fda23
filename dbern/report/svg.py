"""Pictures as inline SVG that follows the page's colour scheme (`dbern.report.colours`)."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.data.domain import Axis
from dbern.data.times import TimeUnit
from dbern.errors import optional_import
from dbern.report.colours import INK, SCHEMES, VARIABLES, channels, class_colour, shade
from dbern.report.pictures import Panel, Picture, label
from dbern.report.wording import REPORT_HINT
from dbern.system import format_number
from dbern.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as Scale
    from matplotlib.figure import Figure


_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be read aloud, found and selected
    "font.family": "sans-serif",
    "date.converter": "concise",
    "font.size": 12.0,
    "axes.edgecolor": VARIABLES["rule"],
    "axes.labelcolor": VARIABLES["muted"],
    "axes.titlecolor": VARIABLES["ink"],
    "axes.titlesize": 12.0,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": VARIABLES["rule"],
    "text.color": VARIABLES["ink"],
    "xtick.color": VARIABLES["rule"],
    "ytick.color": VARIABLES["rule"],
    "xtick.labelcolor": VARIABLES["muted"],
    "ytick.labelcolor": VARIABLES["muted"],
    "figure.dpi": 72.0,  # a point is a unit of the SVG
}
WIDTHS = {"wide": 820, "narrow": 350}
"""Widths of the two drawings of every picture, for a desktop and for a phone."""
_DATE_FORMATS = {
    "formats": ["%Y", "%b", "%d", "%H:%M", "%H:%M", "%H:%M:%S"],
    "zero_formats": ["", "%Y", "%b", "%d %b", "%H:%M", "%H:%M:%S"],
    "offset_formats": ["", "%Y", "%b %Y", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d"],
}
"""Ticks of years, months, days, hours, minutes and seconds; offsets stand once for all of them."""
_NUM_CONTOURS = 6
_MAX_LABEL_LENGTH = 48


def draw(picture: Picture, name: str) -> dict[str, str]:
    """Draw a picture as SVG, once for each of `WIDTHS`.

    Identities in the SVG are made from `name`, which no other picture on the page may have.
    """
    curve = picture.kind == "curve"
    return {form: (_draw_curves if curve else _draw_maps)(picture, form, name) for form in WIDTHS}


def draw_figure(
    name: str,
    size: tuple[float, float],
    paint: Callable[[Figure], None],
    below: Callable[[Figure], str] = lambda _figure: "",
) -> str:
    """Draw a figure of some size in points as SVG.

    `paint` draws it; `below` gives what goes below the axes, once it is settled where they are.
    """
    with optional_import(REPORT_HINT):
        import matplotlib as mpl
        from matplotlib.figure import Figure
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout="constrained")
        figure.patch.set_visible(False)
        paint(figure)
        content = io.StringIO()
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
        return _inline(content.getvalue(), below(figure))


def _inline(svg: str, below: str) -> str:
    """Cut out the element itself, in the page's colours, hidden from readers of its parts."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r"#([\w-]+)", " ".join(re.findall(r'(?:url\(|href=")#[\w-]+', svg))))
    svg = re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", svg)
    svg = re.sub(r"font: ([\d.]+)px[^;\"]*", r"font-size: \1px", svg)
    for variable, colour in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    head, _, rest = svg.partition(">")
    size = re.search(r'viewBox="([^"]+)"', head)
    view = size[1] if size else ""
    return f'<svg viewBox="{view}" aria-hidden="true" focusable="false">{below}{rest}'


def _draw_curves(picture: Picture, form: str, name: str) -> str:
    (axis,), count = picture.axes, len(picture.panels)
    columns = 1 if count == 1 or form == "narrow" else 2 if count in (2, 4) else 3
    rows = -(-count // columns)
    height = {"wide": 400, "narrow": 290}[form] if count == 1 else 190 * rows

    def paint(figure: Figure) -> None:
        for _, axes, panel in _lay_out(figure, picture, rows, columns, shared=True):
            x = _coordinates(axis, len(panel.values))
            axes.grid(axis="y", lw=0.8)
            axes.set_axisbelow(True)
            if panel.low is not None and panel.high is not None:
                band = np.maximum(panel.low, picture.low), np.minimum(panel.high, picture.high)
                axes.fill_between(x, *band, color=VARIABLES["wash"], lw=0)
            if picture.threshold is not None:
                axes.axhline(picture.threshold, color=VARIABLES["muted"], lw=1, dashes=(4, 3))
            axes.plot(x, panel.values, color=VARIABLES["accent"], lw=2, solid_capstyle="round")
            axes.set_xlim(x[0], x[-1])
            axes.spines.left.set_visible(False)
            _ticks(axes, picture, 5 if form == "narrow" or columns > 1 else 8)

    return draw_figure(f"{name}-{form}", (WIDTHS[form], height), paint)


def _draw_maps(picture: Picture, form: str, name: str) -> str:
    count, width = len(picture.panels), WIDTHS[form]
    columns = 1 if count == 1 else 2 if form == "narrow" or count in (2, 4) else 3
    rows = -(-count // columns)
    first, second = picture.axes
    ratio = second.width / first.width
    ratio = ratio if 0.6 <= ratio <= 1.4 else 0.8  # axes of other units than each other's
    if count == 1 and form == "wide":
        width = 640
    height = min((width / columns - 50) * ratio * rows + 56 * rows, 1400)

    def paint(figure: Figure) -> None:
        for index, axes, panel in _lay_out(figure, picture, rows, columns):
            axes.set_box_aspect(ratio)
            axes.set(xlim=_coordinates(first, 2), ylim=_coordinates(second, 2))
            _ticks(axes, picture, 3 if columns > 1 else 6)
            axes.spines[:].set_visible(False)
            if index % columns == 0:
                axes.set_ylabel(_cut(label(second)), parse_math=False)
            _draw_marks(axes, picture, panel)

    def below(figure: Figure) -> str:
        settled = zip(figure.axes, picture.panels, strict=False)
        return "".join(_images(figure, axes, _tints(picture, panel)) for axes, panel in settled)

    return draw_figure(f"{name}-{form}", (width, height), paint, below)


def _lay_out(
    figure: Figure, picture: Picture, rows: int, columns: int, *, shared: bool = False
) -> Iterator[tuple[int, Axes, Panel]]:
    """Yield where each panel is drawn, with its title; those of the last row name their axis."""
    grid = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    subplots = grid.ravel()
    count = len(picture.panels)
    for axes in subplots[count:]:
        axes.set_visible(False)
    for index, (axes, panel) in enumerate(zip(subplots, picture.panels, strict=False)):
        axes.patch.set_visible(False)
        axes.tick_params(length=0, pad=7)
        axes.set_title(_cut(panel.title or picture.value), parse_math=False)
        if index >= count - columns:
            axes.set_xlabel(_cut(label(picture.axes[0])), parse_math=False)
            axes.tick_params(labelbottom=True)
        yield index, axes, panel


def _cut(text: str) -> str:
    """Shorten text to the room of the narrow drawing: a longer one would leave none for axes."""
    return text if len(text) <= _MAX_LABEL_LENGTH else f"{text[: _MAX_LABEL_LENGTH - 1]}…"


def _coordinates(axis: Axis, count: int) -> FloatArray:
    """Points along an axis as matplotlib counts them: times in days since 1970."""
    days = axis.unit.seconds / TimeUnit.DAYS.seconds if axis.unit else 1.0
    return np.linspace(axis.low * days, axis.high * days, count)


def _ticks(axes: Axes, picture: Picture, max_ticks: int) -> None:
    """Set at most `max_ticks` ticks on each axis, at dates where it is one of times."""
    axes.locator_params(nbins=max_ticks)
    scales = zip_longest((axes.xaxis, axes.yaxis), picture.axes)  # values have no axis
    for scale, axis in scales:
        if axis and axis.unit:
            date_ticks(scale, max_ticks)
        elif np.abs(scale.get_view_interval()).max() >= 1000:
            scale.set_major_formatter(lambda value, _: format_number(value, 6))


def date_ticks(scale: Scale, max_ticks: int) -> None:
    """Set at most `max_ticks` ticks at dates or times, each of which can be read by itself."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    dates = AutoDateLocator(minticks=2, maxticks=max_ticks)  # type: ignore[no-untyped-call]
    scale.set_major_locator(dates)
    concise = ConciseDateFormatter(dates, **_DATE_FORMATS)  # type: ignore[no-untyped-call]
    scale.set_major_formatter(concise)


def _draw_marks(axes: Axes, picture: Picture, panel: Panel) -> None:
    """Draw lines of a map's levels and hatch what it lacks; or edges and names of classes."""
    grids = list(map(_coordinates, picture.axes, panel.values.shape))
    style: dict[str, Any] = {"colors": VARIABLES["ink"], "linewidths": 0.8}
    if picture.kind == "map":
        missing = np.isnan(panel.values.T).astype(np.float64)
        if missing.any():
            hatch = axes.contourf(*grids, missing, [0.5, 1.5], colors="none", hatches=["////"])
            hatch.set(edgecolor=VARIABLES["rule"], linewidth=0)
        levels = np.linspace(picture.low, picture.high, _NUM_CONTOURS + 2)[1:-1]
        if picture.high > picture.low:
            axes.contour(*grids, panel.values.T, levels, alpha=0.35, **style)
        return
    for index in np.unique(panel.values).astype(int):
        inside = panel.values == index
        if panel.leads is not None and not inside.all():
            axes.contour(*grids, panel.leads[..., index].T, [0.0], **style)
        x, y = _innermost_point(inside)
        name = picture.classes[index]
        axes.text(
            grids[0][x], grids[1][y], name, ha="center", va="center", parse_math=False, clip_on=True
        )


def _innermost_point(inside: BoolArray) -> tuple[int, int]:
    """Point of a region that is farthest from its edge, nearly."""
    from scipy.ndimage import distance_transform_edt

    depth = distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
    x, y = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(x), int(y)


def _tints(picture: Picture, panel: Panel) -> list[FloatArray]:
    if picture.kind == "map":
        spread = (picture.high - picture.low) or 1.0
        known = ~np.isnan(panel.values)[..., None]
        levels = np.nan_to_num((panel.values - picture.low) / spread)
        return [
            np.where(known, shade(levels, scheme), channels(INK[scheme]["paper"]))
            for scheme in SCHEMES
        ]
    tints = []
    for scheme in SCHEMES:
        colours = np.empty((*panel.values.shape, 3))
        for index in range(len(picture.classes)):
            for certain in (True, False):
                where = (panel.values == index) & (panel.certain == certain)
                colours[where] = class_colour(index, scheme, certain=certain)
        tints.append(colours)
    return tints


def _images(figure: Figure, axes: Axes, tints: Sequence[FloatArray]) -> str:
    box, height = axes.get_window_extent(), figure.bbox.height
    where = (
        f'x="{box.x0:.2f}" y="{height - box.y1:.2f}" width="{box.width:.2f}" '
        f'height="{box.height:.2f}" preserveAspectRatio="none"'
    )
    return "".join(
        f'<image class="{scheme}" {where} href="data:image/png;base64,{_png(colours)}"/>'
        for scheme, colours in zip(SCHEMES, tints, strict=True)
    )


def _png(colours: FloatArray) -> str:
    """Encode a PNG whose first axis goes to the right and whose second goes up."""
    from matplotlib.image import imsave

    content = io.BytesIO()
    pixels = np.rint(255 * np.flipud(colours.transpose(1, 0, 2))).astype(np.uint8)
    imsave(content, pixels, format="png", metadata={"Software": ""})
    return base64.b64encode(content.getvalue()).decode()
