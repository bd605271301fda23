"""Pictures of released functions as inline SVG that follows the page's color scheme."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.bernstein.basis import MOST_AXES
from dbern.data.domain import Axis, named_with
from dbern.data.times import TimeUnit
from dbern.errors import optional_import, printable
from dbern.synopsis.grids import values_on_grid
from dbern.synopsis.labels import named_values
from dbern.synopsis.maps import FAR
from dbern.synopsis.reader import Synopsis
from dbern.system import format_number
from dbern.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from pathlib import Path

    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# --- The colours of pages and pictures, once for each scheme


SCHEMES = ("light", "dark")

INK = {
    "light": {
        "paper": "#fbfaf7", "card": "#f3f1ec", "ink": "#1d2124", "muted": "#5a6167",
        "rule": "#dedad2", "accent": "#0a6b6b", "wash": "#d3e5e2",
    },
    "dark": {
        "paper": "#14181a", "card": "#1c2124", "ink": "#ebe8e2", "muted": "#a5acb1",
        "rule": "#333a3e", "accent": "#63c9c1", "wash": "#1f4646",
    },
}  # fmt: skip
"""Text colours have a contrast of at least 4.5 on paper, card and wash."""

MAP = {
    "light": ("#f3f1ec", "#c9e0dc", "#7ab8b3", "#2b8383", "#0b4e54", "#052b33"),
    "dark": ("#1c2124", "#17393d", "#1d6063", "#2f9390", "#7ccdc4", "#e3f7f0"),
}
"""From the least value to the largest, even in lightness."""

CLASSES = ("#b9ad94", "#0f9a96", "#7d80cc", "#d59a3a", "#c96f86", "#7d93a3")
_SURE, _DOUBTFUL = 0.5, 0.18


def channels(colour: str) -> FloatArray:
    """Return red, green and blue of ``#rrggbb``, from 0 to 1."""
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def shade(values: FloatArray, scheme: str) -> FloatArray:
    """Return the colours (.., 3) of shares (..) of the way from the least value to the largest."""
    stops = np.array([channels(colour) for colour in MAP[scheme]])
    places = np.linspace(0.0, 1.0, len(stops))
    return np.stack([np.interp(values, places, stop) for stop in stops.T], axis=-1)


def class_colour(index: int, scheme: str, *, sure: bool = True) -> FloatArray:
    """Return a class's tint on the scheme's paper: text in ink can be read on it."""
    share = _SURE if sure else _DOUBTFUL
    paper = channels(INK[scheme]["paper"])
    return share * channels(CLASSES[index % len(CLASSES)]) + (1 - share) * paper


def text(colour: FloatArray) -> str:
    """Format a colour as ``#rrggbb``."""
    return "#" + "".join(f"{round(255 * float(part)):02x}" for part in colour)


# --- What a picture of a released function shows

REPORTS = (
    "reports need bokeh, jinja2 and matplotlib. Install them with: pip install 'dbern[report]'"
)
MOST_PANELS = 12
"""Most groups or classes that are drawn; a picture says so where it leaves some out."""

_MOST_NAMED = 8  # axes that are not drawn
_PAGE = {1: 401, 2: 161, 3: 81}  # places along each axis that a page draws
_THICKNESS = 13  # places along the third axis, of which every other one is a slice


@dataclass(frozen=True)
class Panel:
    """One curve (n,) or one map (n, m) on a regular grid, in data units; or regions of classes."""

    title: str  # which group, class or slice; empty where there is only one panel
    values: FloatArray  # of regions, the place of the class in the list of all
    low: FloatArray | None = None  # end of a curve's simultaneous band
    high: FloatArray | None = None
    leads: FloatArray | None = None  # (n, m, classes), of each class over the best other one
    certain: BoolArray | None = None  # (n, m), where the band leaves no doubt of the class


@dataclass(frozen=True)
class Picture:
    """Panels over the same one or two axes."""

    kind: str  # "curve", over one axis; "map" or "regions", over two
    axes: tuple[Axis, ...]
    panels: tuple[Panel, ...]
    classes: tuple[str, ...] = ()  # of regions, or of a curve's sides of the threshold
    threshold: float | None = None  # above it the second of two classes is decided for
    left_out: int = 0  # groups or classes that are not drawn
    fixed: str = ""  # where the axes that are not drawn are; empty where all are drawn or sliced
    value: str = ""  # what values are called, with their units

    @property
    def largest(self) -> float | None:
        """Largest value drawn, whatever its sign; None of regions, which show no values."""
        if self.kind == "regions":
            return None
        return max(float(np.abs(panel.values).max()) for panel in self.panels)

    @property
    def low(self) -> float:
        """Least value drawn, its band included as far as it is drawn."""
        return self._end(np.min, [one.low for one in self.panels])

    @property
    def high(self) -> float:
        """Largest value drawn, its band included as far as it is drawn."""
        return self._end(np.max, [one.high for one in self.panels])

    @property
    def beyond(self) -> bool:
        """Whether a band is wider than what is drawn of it."""
        ends = [one for panel in self.panels for one in (panel.low, panel.high) if one is not None]
        return any(one.min() < self.low or one.max() > self.high for one in ends)

    def _end(self, end: Any, bands: Sequence[FloatArray | None]) -> float:
        """End of what is drawn: a band far wider than the values would make them a flat line."""
        least, most = (f([f(one.values) for one in self.panels]) for f in (np.min, np.max))
        own = float(end([least, most]))
        far = FAR * float(most - least) or np.inf
        found = float(end([own, *(end(one) for one in bands if one is not None)]))
        return min(max(found, own - far), own + far)


def label(axis: Axis) -> str:
    """Return an axis's name, with its units or the zone of times."""
    return printable(axis.label)


def is_classifier(synopsis: Synopsis) -> bool:
    """Whether its values decide on classes; functions of groups do not."""
    return bool(synopsis.classes) and not is_grouped(synopsis)


def is_grouped(synopsis: Synopsis) -> bool:
    """Whether it has a density or a regression for each group."""
    return bool(synopsis.classes) and synopsis.meaning in ("density", "response")


def picture_of(synopsis: Synopsis, places: int) -> Picture:
    """Choose what to draw: a curve, maps or slices on `places` places an axis.

    One axis gives a curve for each group or class, two axes a map for each group or one of the
    class regions, three axes such maps at six places of the third axis, and more one such map
    through the middle of the others. Axes of categories are not drawn: the function is that of
    their first values. The band is simultaneous over the whole domain, at the
    confidence of the certificate.
    """
    axes, lists = synopsis.domain.numeric, synopsis.domain.categorical
    if len(axes) == 1:
        return _curves(synopsis, places)
    fixed = _fixed([*lists, *axes[2:]]) if len(axes) > 3 or lists else ""
    if fixed:
        slices = [("", _through_the_middle(synopsis, places))]
    else:
        values = _on_grid(synopsis, [places, places, _THICKNESS][: len(axes)])
        slices = [("", values)] if len(axes) == 2 else list(_slices(axes[2], values))
    labels = tuple(printable(str(label)) for label in synopsis.classes)
    if is_classifier(synopsis):
        at: list[dict[str, float]] = [{}]
        if len(slices) > 1:
            at = [{axes[2].name: height} for height in _heights(axes[2])]
        planes = [_plane(synopsis, places, others) for others in at]
        pairs = zip(slices, planes, strict=True)
        panels = [_regions(synopsis, *part, points) for part, points in pairs]
        return Picture("regions", axes[:2], tuple(panels), labels, fixed=fixed)
    if not synopsis.combination.multi_output:
        panels = [Panel(title, part) for title, part in slices]
        return Picture("map", axes[:2], tuple(panels), fixed=fixed, value=value_name(synopsis))
    drawn = [
        Panel(" · ".join(filter(None, (label, title))), part[..., column])
        for column, label in enumerate(labels)
        for title, part in (slices if len(slices) == 1 else slices[1::2])
    ]
    left_out = len(labels) - len(labels) * min(len(drawn), MOST_PANELS) // len(drawn)
    shown = tuple(drawn[:MOST_PANELS])
    value = value_name(synopsis)
    return Picture("map", axes[:2], shown, left_out=left_out, fixed=fixed, value=value)


def value_name(synopsis: Synopsis) -> str:
    """Return the name of values, with their units."""
    combination, domain = synopsis.combination, synopsis.domain
    if synopsis.meaning == "density":
        labels = [axis.label for axis in domain.axes]
        return printable("density" + combination.unit_text(labels, density=True))
    return printable(named_with(*named_values(combination, domain, synopsis.metadata)))


def page_picture(synopsis: Synopsis) -> Picture:
    """Return the picture of a page; errors are shares of its largest value."""
    axes = len(synopsis.domain.numeric)
    drawn = axes if axes <= (2 if synopsis.domain.categorical else 3) else 2
    return picture_of(synopsis, _PAGE[3 if drawn == 2 and is_grouped(synopsis) else drawn])


def _on_grid(synopsis: Synopsis, shape: Sequence[int]) -> FloatArray:
    """Evaluate on a grid, classes last, without its labels: these take all of xarray to import."""
    arrays = synopsis.arrays
    smoothings = [array.smoothing([]) for array in arrays]
    return values_on_grid(shape, synopsis.domain, arrays, smoothings, synopsis.combination)


def _through_the_middle(synopsis: Synopsis, places: int) -> FloatArray:
    """Values (places, places) or (places, places, classes) along the first two axes."""
    others = len(synopsis.domain.axes) - 2
    # Axis by axis, as points are not.
    if others + 2 <= MOST_AXES and not synopsis.domain.categorical:
        whole = _on_grid(synopsis, [places, places, *[3] * others])
        middles: Any = (slice(None), slice(None), *[1] * others)
        return np.asarray(whole[middles])
    values = np.asarray(synopsis(_plane(synopsis, places, {})))
    return values.reshape(places, places, *values.shape[1:])


def _plane(synopsis: Synopsis, places: int, at: Mapping[str, float]) -> dict[str, Any]:
    """Points of a map over the first two axes; `at` fixes others."""
    first, second = synopsis.domain.numeric[:2]
    steps = np.linspace(0.0, 1.0, places)
    drawn = {first.name: np.repeat(first.at(steps), places)}
    drawn[second.name] = np.tile(second.at(steps), places)
    drawn |= {name: np.full(places**2, height) for name, height in at.items()}
    return _with_others(synopsis, drawn)


def _with_others(synopsis: Synopsis, drawn: Mapping[str, FloatArray]) -> dict[str, Any]:
    count = len(next(iter(drawn.values())))
    return {axis.name: [middle(axis)] * count for axis in synopsis.domain.axes} | dict(drawn)


def middle(axis: Axis) -> Any:
    """Return the value of an axis that is not drawn: its middle, or its first value."""
    return axis.categories[0] if axis.categories else axis.low + axis.width / 2


def _fixed(axes: Sequence[Axis]) -> str:
    places = [(axis.name, middle(axis), axis) for axis in axes[:_MOST_NAMED]]
    named = ", ".join(
        f"{name} = {place if axis.categories else axis.text(place)}" for name, place, axis in places
    )
    more = len(axes) - _MOST_NAMED
    return f"{named} and {more} more in their middle" if more > 0 else named


def _slices(axis: Axis, values: FloatArray) -> Iterator[tuple[str, FloatArray]]:
    for index, height in enumerate(_heights(axis)):
        title = f"{axis.name} = {axis.text(height)}"
        yield printable(title), values[:, :, 2 * index + 1]


def _heights(axis: Axis) -> list[float]:
    steps = range(1, _THICKNESS, 2)
    return [axis.low + axis.width * step / (_THICKNESS - 1) for step in steps]


def _curves(synopsis: Synopsis, places: int) -> Picture:
    (axis,), lists = synopsis.domain.numeric, synopsis.domain.categorical
    points: Any = axis.at(np.linspace(0.0, 1.0, places))
    points = _with_others(synopsis, {axis.name: points}) if lists else points
    values = np.asarray(synopsis(points)).reshape(places, -1)
    ends = synopsis.interval(points, synopsis.metadata["certificate"]["beta"])
    low, high = (np.reshape(end, (places, -1)) for end in ends)
    labels = tuple(printable(str(label)) for label in synopsis.classes)
    titles = labels if synopsis.combination.multi_output else ("",)
    panels = [
        Panel(title, values[:, i], low[:, i], high[:, i])
        for i, title in enumerate(titles[:MOST_PANELS])
    ]
    two = len(labels) == 2 and not synopsis.combination.multi_output
    return Picture(
        "curve",
        (axis,),
        tuple(panels),
        labels if two else (),
        synopsis.combination.threshold if two else None,
        len(titles) - len(panels),
        _fixed(lists) if lists else "",
        value_name(synopsis),
    )


def _regions(synopsis: Synopsis, title: str, values: FloatArray, points: Any) -> Panel:
    ends = synopsis.interval(points, synopsis.metadata["certificate"]["beta"])
    low, high = (np.reshape(end, values.shape) for end in ends)
    if values.ndim == 2:
        threshold = synopsis.combination.threshold
        leads = np.stack([threshold - values, values - threshold], axis=-1)
        certain = (low > threshold) | (high < threshold)
    else:
        ordered = np.sort(values, axis=-1)
        best, second = ordered[..., -1:], ordered[..., -2:-1]
        leads = values - np.where(values == best, second, best)
        others = np.where(values == best, -np.inf, high).max(axis=-1)
        certain = np.where(values == best, low, np.inf).min(axis=-1) > others
    return Panel(title, leads.argmax(axis=-1).astype(np.float64), leads=leads, certain=certain)


# --- Pictures as inline SVG that follows the page's colour scheme

# Colours that no picture has: each becomes a variable of the page's style.
VARIABLES = {
    "ink": "#010203", "muted": "#010204", "rule": "#010205", "accent": "#010206", "wash": "#010207",
    "paper": "#010208",
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
_LONGEST_LABEL = 48


def draw(picture: Picture, name: str) -> dict[str, str]:
    """Draw a picture as SVG, once for each of `WIDTHS`.

    Identities in the SVG are made from `name`, which no other picture on the page may have.
    """
    curve = picture.kind == "curve"
    return {form: (_draw_curves if curve else _maps)(picture, form, name) for form in WIDTHS}


def drawn(
    name: str,
    size: tuple[float, float],
    paint: Callable[[Figure], None],
    below: Callable[[Figure], str] = lambda _figure: "",
) -> str:
    """Draw a figure of some size in points as SVG.

    `paint` draws it; `below` gives what goes below the axes, once it is settled where they are.
    """
    with optional_import(REPORTS):
        import matplotlib as mpl
        from matplotlib.figure import Figure
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout="constrained")
        figure.patch.set_visible(False)
        paint(figure)
        content = io.StringIO()
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
        return _tidied(content.getvalue(), below(figure))


def _tidied(svg: str, below: str) -> str:
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
        for _, axes, panel in _panels(figure, picture, rows, columns, shared=True):
            x = _places(axis, len(panel.values))
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
        for place, axes, panel in _panels(figure, picture, rows, columns):
            axes.set_box_aspect(ratio)
            axes.set(xlim=_places(first, 2), ylim=_places(second, 2))
            _ticks(axes, picture, 3 if columns > 1 else 6)
            axes.spines[:].set_visible(False)
            if place % columns == 0:
                axes.set_ylabel(_cut(label(second)), parse_math=False)
            _lines(axes, picture, panel)

    def below(figure: Figure) -> str:
        settled = zip(figure.axes, picture.panels, strict=False)
        return "".join(_images(figure, axes, _tints(picture, panel)) for axes, panel in settled)

    return drawn(f"{name}-{form}", (width, height), paint, below)


def _panels(
    figure: Figure, picture: Picture, rows: int, columns: int, *, shared: bool = False
) -> Iterator[tuple[int, Axes, Panel]]:
    """Yield where each panel is drawn, with its title; those of the last row name their axis."""
    grid = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    places = grid.ravel()
    count = len(picture.panels)
    for axes in places[count:]:
        axes.set_visible(False)
    for place, (axes, panel) in enumerate(zip(places, picture.panels, strict=False)):
        axes.patch.set_visible(False)
        axes.tick_params(length=0, pad=7)
        axes.set_title(_cut(panel.title or picture.value), parse_math=False)
        if place >= count - columns:
            axes.set_xlabel(_cut(label(picture.axes[0])), parse_math=False)
            axes.tick_params(labelbottom=True)
        yield place, axes, panel


def _cut(text: str) -> str:
    """Shorten text to the room of the narrow drawing: a longer one would leave none for axes."""
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"


def _places(axis: Axis, count: int) -> FloatArray:
    """Places along an axis as matplotlib counts them: times in days since 1970."""
    days = axis.unit.seconds / TimeUnit.DAYS.seconds if axis.unit else 1.0
    return np.linspace(axis.low * days, axis.high * days, count)


def _ticks(axes: Axes, picture: Picture, most: int) -> None:
    """Set at most `most` ticks on each axis, at dates where it is one of times."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    axes.locator_params(nbins=most)
    rulers = zip_longest((axes.xaxis, axes.yaxis), picture.axes)  # values have no axis
    for ruler, axis in rulers:
        if axis and axis.unit:
            dates = AutoDateLocator(minticks=2, maxticks=most)  # type: ignore[no-untyped-call]
            ruler.set_major_locator(dates)
            concise = ConciseDateFormatter(dates)  # type: ignore[no-untyped-call]
            ruler.set_major_formatter(concise)
        elif np.abs(ruler.get_view_interval()).max() >= 1000:
            ruler.set_major_formatter(lambda value, _: format_number(value, 6))


def _lines(axes: Axes, picture: Picture, panel: Panel) -> None:
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
        x, y = _widest_place(inside)
        name = picture.classes[index]
        axes.text(
            grids[0][x], grids[1][y], name, ha="center", va="center", parse_math=False, clip_on=True
        )


def _widest_place(inside: FloatArray) -> tuple[int, int]:
    """Place of a region that is farthest from its edge, nearly."""
    from scipy.ndimage import distance_transform_edt

    depth = distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
    x, y = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(x), int(y)


def _tints(picture: Picture, panel: Panel) -> list[FloatArray]:
    if picture.kind == "map":
        spread = (picture.high - picture.low) or 1.0
        return [shade((panel.values - picture.low) / spread, scheme) for scheme in SCHEMES]
    found = []
    for scheme in SCHEMES:
        colours = np.empty((*panel.values.shape, 3))
        for index in range(len(picture.classes)):
            for certain in (True, False):
                where = (panel.values == index) & (panel.certain == certain)
                colours[where] = class_colour(index, scheme, sure=certain)
        found.append(colours)
    return found


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


# --- A released function beside the non-private one, for data that is not private


def draw_beside(
    released: xarray.DataArray, private: xarray.DataArray, path: Path, title: str
) -> None:
    """Draw a released function beside the non-private one as PNG: for data that is not private.

    Both have one or two dimensions, on the same grid.
    """
    with optional_import("pictures need matplotlib. Install it with: pip install 'dbern[report]'"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(10, 4.2), layout="constrained", dpi=110)
    figure.suptitle(title)
    if released.ndim == 1:
        axes = figure.add_subplot()
        private.plot.line(ax=axes, color="0.6", lw=3, label="not private")
        released.plot.line(ax=axes, color="C0", label="released")
        axes.set_title("")
        axes.legend()
    else:
        scale: dict[str, Any] = {"vmin": 0, "vmax": float(private.max())}
        for number, (values, name) in enumerate(((private, "not private"), (released, "released"))):
            axes = figure.add_subplot(1, 2, number + 1)
            values.plot.pcolormesh(ax=axes, add_colorbar=False, **scale)
            axes.set(title=name, aspect="equal")
        figure.colorbar(axes.collections[0], ax=figure.axes, label="density", extend="both")
    figure.savefig(path)
