"""Page of ``dbern report``: one HTML file about a synopsis, which needs no network.

Its bytes depend on the synopsis and the name of its folder alone, under given versions.

Where a text of the page is written:

- headings, labels of tables, fixed sentences: ``templates/synopsis.html``
- buttons, fields and answers of the live part: ``templates/live.html``, ``templates/live.js``
- captions (of readers without scripts), alternative texts, what parts of an error mean: here
- names of axes and values: `pictures`
- title of the function: `dbern.ask.labels`; texts below the pointer: `figures`
- sentences of the guarantee: `wording`; of errors: `dbern.certify.error_summary`

Where a picture is drawn: the fixed one in `svg` (data: `pictures`), the live one in ``live.js``
(data: `live`, `figures`), both in the colours of `colours`; a notebook's in `synopsis.drawing`. The
page of a ledger is `budgets` and ``templates/ledger.html``, that of two releases `changes`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.ask.labels import function_title, named_values
from dbern.certify.error_summary import ErrorSummary, lower_bound_text, upper_bound_text
from dbern.combination.responses import Ranged, Ratio
from dbern.data.domain import Axis, rounded_text
from dbern.errors import optional_import, printable
from dbern.report.colours import CLASSES, INK, MAP, SCHEMES, class_colour, to_hex
from dbern.report.live import excess_numbers, live
from dbern.report.pictures import (
    Panel,
    Picture,
    is_classifier,
    middle,
    page_picture,
    upright_picture,
)
from dbern.report.svg import draw
from dbern.report.wording import REPORT_HINT, guarantee_of, parameters_of
from dbern.synopsis.bands import NO_ROWS
from dbern.synopsis.drawing import MAX_PANELS
from dbern.synopsis.reader import Synopsis
from dbern.system import format_number, raise_powers
from dbern.system.texts import percent

if TYPE_CHECKING:
    from jinja2 import Template


_ERROR_TERMS = {
    "approximation": "what the polynomial of this degree can miss of the function",
    "rounding": "what integers miss of real numbers",
    "noise": "the noise that makes it private",
}
_PYTHON = """\
import dbern
import numpy as np

synopsis = dbern.open({store!r})
points = np.array([[{point}]]{kind})  # {names}
values = synopsis(points)
low, high = synopsis.interval(points, beta={beta:g})
print(values, low, high)"""
_SHELL = """\
dbern verify {store}
dbern show {store}
dbern query {store} queries.parquet --out answers.parquet"""


def render(name: str, **values: Any) -> str:
    """Fill in a template of this package, every value escaped."""
    tints = {
        scheme: [to_hex(class_colour(i, scheme)) for i in range(len(CLASSES))] for scheme in SCHEMES
    }
    return _template(name).render(ink=INK, map=MAP, tints=tints, schemes=SCHEMES, **values)


@cache  # compiling takes as long as drawing a curve
def _template(name: str) -> Template:
    with optional_import(REPORT_HINT):
        from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
    environment = Environment(
        loader=PackageLoader("dbern.report"),
        autoescape=select_autoescape(),  # of HTML
        finalize=_escape_controls,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = format_number
    environment.filters["raise_powers"] = raise_powers
    environment.filters["upper_bound"] = upper_bound_text
    environment.filters["lower_bound"] = lower_bound_text
    environment.filters["percent"] = lambda fraction: percent(float(Fraction(fraction)))
    return environment.get_template(name)


def _escape_controls(value: Any) -> Any:
    """Escape characters by which a name could, say, turn the text around it."""
    plain = isinstance(value, str) and not hasattr(value, "__html__")
    return printable(value, keep="\n\t") if plain else value


def synopsis_page(synopsis: Synopsis) -> str:
    """Return the report on a synopsis, as HTML."""
    metadata = synopsis.metadata
    picture = page_picture(synopsis)
    picture = picture and upright_picture(picture)
    promises = synopsis.promises(picture.largest if picture else None)
    return render(
        "synopsis.html",
        live=live(synopsis),
        title=metadata.get("title", metadata["name"]),
        metadata=metadata,
        subject=_subject(synopsis),
        picture=_picture_content(picture, promises, synopsis) if picture else None,
        domain=[_interval(axis) for axis in synopsis.domain.axes],
        response=_response(synopsis),
        classes=_classes(metadata),
        guarantee=guarantee_of(metadata),
        certificate=_certificate(metadata["certificate"], picture.largest if picture else None),
        headline=promises.headline,
        headline_constant=promises.headline_constant,
        constant=promises.constant,
        promises=[raise_powers(text) for _, text in promises.lines()],
        components=metadata["components"],
        regression=_regression(synopsis),
        queries=_queries(synopsis),
        parameters={
            key: _parameter_text(value)
            for key, value in parameters_of(metadata["target"]).items()
            if key != "n"
        },
    )


def _queries(synopsis: Synopsis) -> dict[str, str]:
    """Write Python and shell code that asks the synopsis, run in the folder of the store."""
    store, axes = Path(synopsis.url).name, synopsis.domain.axes
    python = _PYTHON.format(
        store=store,
        point=", ".join(repr(middle(axis)) for axis in axes),
        kind=", dtype=object" if synopsis.domain.categorical else "",
        names=", ".join(" ".join(axis.name.split()) for axis in axes),
        beta=synopsis.metadata["certificate"]["beta"],
    )
    return {"python": python, "shell": _SHELL.format(store=shlex.quote(store))}


def _picture_content(
    picture: Picture, promises: ErrorSummary, synopsis: Synopsis
) -> dict[str, Any]:
    return {
        "forms": draw(picture, "release"),
        "alt": _description(picture),
        "caption": _caption(promises, synopsis, picture),
        "legend": {
            "map": {"low": picture.low, "high": picture.high},
            "regions": {"classes": picture.classes},
        }.get("" if picture.blank else picture.kind),
        "single": len(picture.panels) == 1 and picture.kind != "curve",
    }


def _description(picture: Picture) -> str:
    """Write the alternative text of a picture."""
    extent = " and ".join(
        f"{axis.name} from {axis.text(axis.low)} to {axis.text(axis.high)}" for axis in picture.axes
    )
    extent += f", at {picture.fixed}" if picture.fixed else ""
    if picture.kind == "regions":
        shares = []
        for panel in picture.panels:
            class_shares = [
                f"{label} {percent(float((panel.values == i).mean()), 2)}"
                for i, label in enumerate(picture.classes)
            ]
            title = f"{panel.title}: " if panel.title else ""
            shares.append(title + ", ".join(class_shares))
        return f"Map of the decided class over {extent}. Shares of the area: {'; '.join(shares)}."
    extremes = "; ".join(_extremes(picture, panel) for panel in picture.panels)
    kind = "Curve with its confidence band" if picture.kind == "curve" else "Map with contours"
    return f"{kind} over {extent}. {extremes}."


def _extremes(picture: Picture, panel: Panel) -> str:
    extremes = []
    if np.isnan(panel.values).all():
        return (f"{panel.title}: " if panel.title else "") + NO_ROWS
    for name, flat in (
        ("Least", np.nanargmin(panel.values)),
        ("largest", np.nanargmax(panel.values)),
    ):
        indices = np.unravel_index(int(flat), panel.values.shape)
        at = ", ".join(
            f"{axis.name} {axis.text(axis.low + axis.width * float(index / (count - 1)))}"
            for axis, index, count in zip(picture.axes, indices, panel.values.shape, strict=True)
        )
        extremes.append(f"{name} value {format_number(float(panel.values.flat[flat]), 3)} at {at}")
    return (f"{panel.title}: " if panel.title else "") + ", ".join(extremes)


def _subject(synopsis: Synopsis) -> str:
    """Name the function and its rows: "Density of x (kernel-density), from 9 rows"."""
    metadata = synopsis.metadata
    title = function_title(synopsis.combination, synopsis.domain, metadata)
    n, rounded = metadata["target"].get("n"), rounded_text(synopsis.domain.axes)
    rows = f", from {format_number(n)} rows" if n else ""
    rows += f"{'' if rows else ', of rows'} {rounded}" if rounded else ""
    return f"{title[0].upper()}{title[1:]} ({metadata['target']['kind']}){rows}"


def _response(synopsis: Synopsis) -> dict[str, Any] | None:
    combination = synopsis.combination
    if not isinstance(combination, Ranged):
        return None
    name, units = named_values(combination, synopsis.domain, synopsis.metadata)
    bounds = {"low": format_number(combination.low), "high": format_number(combination.high)}
    return {"name": "" if name == "response" else name, "units": units, **bounds}


def _classes(metadata: Mapping[str, Any]) -> str:
    columns = metadata.get("columns", {})
    if "group" in columns:
        return f"Groups by {columns['group']}"
    return f"Classes of {columns['label']}" if "label" in columns else "Classes or groups"


def _regression(synopsis: Synopsis) -> dict[str, Any] | None:
    if not synopsis.combination.linear_response:
        return None
    fit = synopsis.regression()
    values = [("intercept", fit.intercept), *fit.coefficients.items()]
    rows = [(name, value, fit.intervals.get(name)) for name, value in values]
    return {"fit": fit, "summary": str(fit).partition("\n")[0], "rows": rows}


def _caption(promises: ErrorSummary, synopsis: Synopsis, picture: Picture) -> str:
    certificate = synopsis.metadata["certificate"]
    confidence = f"{100 * (1 - certificate['beta']):g} %"
    width, constant = upper_bound_text(promises.headline), promises.headline_constant
    empty = f"What is promised everywhere at once is empty: {constant}."
    wider = "; it is wider than what is drawn" if picture.beyond else ""
    caption = {
        "regions": f"Paler where the band leaves the class in doubt, at {confidence} confidence. "
        f"{empty if constant else f'It is nowhere wider than ±{width}.'}",
        "map": empty
        if constant
        else f"The non-private function is within ±{width} everywhere at once, with {confidence} "
        "probability.",
        "curve": "The shaded band covers the non-private function everywhere at once, with "
        f"{confidence} probability{wider}.",
    }[picture.kind]
    if picture.threshold is not None:
        caption += f" Above the dashed line the class is {picture.classes[1]}, below it "
        caption += f"{picture.classes[0]}."
    if isinstance(synopsis.combination, Ratio):
        caption += " It is narrow where rows are many, and wide where they are few."
    if picture.missing:
        mark = "A gap" if picture.kind == "curve" else "Hatched"
        caption += f" {mark}: {NO_ROWS}, or so few that the noise hides them."
    if picture.left_out:
        caption += f" The first {MAX_PANELS} panels; {picture.left_out} groups are left out."
    if many := excess_numbers(synopsis):
        caption += f" {format_number(many)} numbers were released, more than a page holds: "
        caption += "it shows a picture alone."
    if picture.fixed:
        caption += f" A slice through the middle of the axes that are not drawn: {picture.fixed}."
    if is_classifier(synopsis) and len(synopsis.domain.axes) == 3 and not picture.fixed:
        caption += " Slices of the third axis."
    return caption


def _interval(axis: Axis) -> dict[str, Any]:
    return {
        "name": axis.name,
        "low": axis.text(axis.low),
        "high": axis.text(axis.high),
        "units": axis.units,
        "values": ", ".join(map(str, axis.categories)),
    }


def _certificate(certificate: Mapping[str, Any], largest: float | None) -> dict[str, Any]:
    total = certificate["total"] or 1.0
    parts = [
        {"name": name, "meaning": meaning, "value": certificate[name]}
        | {"share": certificate[name] / total}
        for name, meaning in _ERROR_TERMS.items()
    ]
    confidence = f"{100 * (1 - certificate['beta']):g} %"
    bounds = {key: certificate[key] for key in ("total", "lower_bound")}
    return {"parts": parts, "confidence": confidence, "largest": largest, **bounds}


def _parameter_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_parameter_text, value))
    return format_number(value) if isinstance(value, float) else str(value)
