"""Pictures as inline SVG that follows the page's colour scheme: matplotlib draws, CSS colours."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.arrays import FloatArray
from dbern.domain import Axis
from dbern.errors import EnvironmentRefusedError
from dbern.reporting.colors import SCHEMES, class_colour, shade
from dbern.reporting.panels import Panel, Picture, label
from dbern.times import TimeUnit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that no picture has: each becomes a variable of the page's style.
VARIABLES = {
    "ink": "#010203", "muted": "#010204", "rule": "#010205", "accent": "#010206", "wash": "#010207",
}  # fmt: skip
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

_CONTOURS = 6


def draw(picture: Picture, name: str) -> dict[str, str]:
    """SVG texts of a picture, one for each of `WIDTHS`.

    Parameters
    ----------
    name : str
        Unlike any other picture's on the page: identities in the SVG are made from it.

    Raises
    ------
    EnvironmentRefusedError
        Where matplotlib is not installed.
    """
    curve = picture.kind == "curve"
    return {form: (_curves if curve else _maps)(picture, form, name) for form in WIDTHS}


def drawn(
    name: str,
    size: tuple[float, float],
    paint: Callable[[Figure], None],
    below: Callable[[Figure], str] = lambda _figure: "",
) -> str:
    """The SVG of a figure of some size in points.

    `paint` draws it; `below` gives what goes below the axes, once it is settled where they are.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise EnvironmentRefusedError(
            "reports need matplotlib and jinja2; install them with: pip install 'dbern[report]'"
        ) from None
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout="constrained")
        figure.patch.set_visible(False)
        paint(figure)
        content = io.StringIO()
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
        return _tidied(content.getvalue(), below(figure))


def _tidied(svg: str, below: str) -> str:
    """Only the element itself, in the page's colours, hidden from readers of its parts."""
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


def _curves(picture: Picture, form: str, name: str) -> str:
    (axis,), count = picture.axes, len(picture.panels)
    columns = 1 if count == 1 or form == "narrow" else 2 if count in (2, 4) else 3
    rows = -(-count // columns)
    height = {"wide": 400, "narrow": 290}[form] if count == 1 else 190 * rows

    def paint(figure: Figure) -> None:
        places = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for axes, panel in zip(places, picture.panels, strict=False):
            x = _places(axis, len(panel.values))
            axes.grid(axis="y", lw=0.8)
            axes.patch.set_visible(False)
            axes.set_axisbelow(True)
            if panel.low is not None and panel.high is not None:
                axes.fill_between(x, panel.low, panel.high, color=VARIABLES["wash"], lw=0)
            if picture.threshold is not None:
                axes.axhline(picture.threshold, color=VARIABLES["muted"], lw=1, dashes=(4, 3))
            axes.plot(x, panel.values, color=VARIABLES["accent"], lw=2, solid_capstyle="round")
            axes.set_xlim(x[0], x[-1])
            axes.spines.left.set_visible(False)
            axes.tick_params(length=0, pad=7)
            _ticks(axes, picture, 5 if form == "narrow" or columns > 1 else 8)
            axes.set_title(panel.title, parse_math=False)
        for axes in places[count:]:
            axes.set_visible(False)
        for axes in places[max(0, count - columns) : count]:
            axes.set_xlabel(label(axis), parse_math=False)
            axes.tick_params(labelbottom=True)

    return drawn(f"{name}-{form}", (WIDTHS[form], height), paint)


def _maps(picture: Picture, form: str, name: str) -> str:
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
        places = figure.subplots(rows, columns, squeeze=False).ravel()
        for place, axes in enumerate(places):
            if place >= count:
                axes.set_visible(False)
                continue
            panel = picture.panels[place]
            axes.set_box_aspect(ratio)
            axes.set(xlim=_places(first, 2), ylim=_places(second, 2))
            axes.patch.set_visible(False)
            axes.tick_params(length=0, pad=7)
            _ticks(axes, picture, 3 if columns > 1 else 6)
            for spine in axes.spines.values():
                spine.set_visible(False)
            axes.set_title(panel.title, parse_math=False)
            if place >= count - columns:
                axes.set_xlabel(label(first), parse_math=False)
            if place % columns == 0:
                axes.set_ylabel(label(second), parse_math=False)
            _lines(axes, picture, panel)

    def below(figure: Figure) -> str:
        settled = zip(figure.axes, picture.panels, strict=False)
        return "".join(_images(figure, axes, _tints(picture, panel)) for axes, panel in settled)

    return drawn(f"{name}-{form}", (width, height), paint, below)


def _places(axis: Axis, count: int) -> FloatArray:
    """Places along an axis as matplotlib counts them: times in days since 1970."""
    days = axis.unit.seconds / TimeUnit.DAYS.seconds if axis.unit else 1.0
    return np.linspace(axis.low * days, axis.high * days, count)


def _ticks(axes: Axes, picture: Picture, most: int) -> None:
    """So many ticks or fewer on each axis, at dates where it is one of times."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    axes.locator_params(nbins=most)
    for ruler, axis in zip((axes.xaxis, axes.yaxis), picture.axes, strict=False):
        if axis.unit:
            dates = AutoDateLocator(minticks=2, maxticks=most)  # type: ignore[no-untyped-call]
            ruler.set_major_locator(dates)
            concise = ConciseDateFormatter(dates)  # type: ignore[no-untyped-call]
            ruler.set_major_formatter(concise)


def _lines(axes: Axes, picture: Picture, panel: Panel) -> None:
    """Contours of a map; boundaries and names of regions."""
    grids = list(map(_places, picture.axes, panel.values.shape))
    style: dict[str, Any] = {"colors": VARIABLES["ink"], "linewidths": 0.8}
    if picture.kind == "map":
        levels = np.linspace(picture.low, picture.high, _CONTOURS + 2)[1:-1]
        if picture.high > picture.low:
            axes.contour(*grids, panel.values.T, levels, alpha=0.35, **style)
        return
    for index in np.unique(panel.values).astype(int):
        inside = panel.values == index
        if panel.leads is not None and not inside.all():
            axes.contour(*grids, panel.leads[..., index].T, [0.0], **style)
        x, y = _middle(inside)
        name = picture.classes[index]
        axes.text(
            grids[0][x],
            grids[1][y],
            name,
            ha="center",
            va="center",
            parse_math=False,
            clip_on=True,
        )


def _middle(inside: FloatArray) -> tuple[int, int]:
    """The place of a region that is farthest from its edge, nearly."""
    from scipy.ndimage import distance_transform_edt

    depth = distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
    x, y = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(x), int(y)


def _tints(picture: Picture, panel: Panel) -> list[FloatArray]:
    """Colours (n, m, 3) of a map or of regions, one array for each scheme."""
    if picture.kind == "map":
        spread = (picture.high - picture.low) or 1.0
        return [shade((panel.values - picture.low) / spread, scheme) for scheme in SCHEMES]
    leads = np.zeros((*panel.values.shape, 1)) if panel.leads is None else panel.leads
    sure = leads.max(axis=-1) > panel.doubt
    found = []
    for scheme in SCHEMES:
        colours = np.empty((*panel.values.shape, 3))
        for index in range(len(picture.classes)):
            for certain in (True, False):
                where = (panel.values == index) & (sure == certain)
                colours[where] = class_colour(index, scheme, sure=certain)
        found.append(colours)
    return found


def _images(figure: Figure, axes: Axes, tints: Sequence[FloatArray]) -> str:
    """The map itself, once for each scheme, where the axes are."""
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
    """A PNG whose first axis goes to the right and whose second goes up."""
    from matplotlib.image import imsave

    content = io.BytesIO()
    pixels = np.rint(255 * np.flipud(colours.transpose(1, 0, 2))).astype(np.uint8)
    imsave(content, pixels, format="png", metadata={"Software": ""})
    return base64.b64encode(content.getvalue()).decode()
