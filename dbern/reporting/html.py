"""``dbern report``: one HTML file about a synopsis, that asks for nothing from anywhere.

Its bytes depend on the synopsis and the name of its folder alone, under given versions.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.combination.base import Meaning
from dbern.combination.functions import FunctionCombination
from dbern.combination.responses import Ranged, Ratio
from dbern.combination.scores import ClassScores
from dbern.data.domain import Axis, rounded_text
from dbern.errors import optional_import, printable
from dbern.percentages import percent
from dbern.reporting.live import left_out, live
from dbern.reporting.pictures import (
    CLASSES,
    INK,
    MAP,
    MOST_PANELS,
    REPORTS,
    SCHEMES,
    Panel,
    Picture,
    class_colour,
    draw,
    is_classifier,
    is_grouped,
    middle,
    page_picture,
    text,
)
from dbern.reporting.wording import guarantee_of, parameters_of, signed_by
from dbern.synopsis.labels import named_values
from dbern.synopsis.reader import Synopsis
from dbern.system import format_number

if TYPE_CHECKING:
    from jinja2 import Template

# --- How to query a synopsis


_PYTHON = """\
import dbern
import numpy as np

synopsis = dbern.open({store!r})
points = np.array([[{point}]]{kind})  # {names}
values = synopsis(points)
low, high = synopsis.interval(points, beta={beta:g})"""

_SHELL = """\
dbern verify {store}
dbern show {store}
dbern query {store} queries.parquet --out answers.parquet"""

_WITH_LISTS = "# FORMAT.md says how values follow from what is stored: see combine and domain"


def _recipes(synopsis: Synopsis) -> dict[str, str]:
    """Programs that answer a query at the middle of the domain, by the name of the way.

    Run them in the folder that holds the store; the shell's needs a ``queries.parquet`` with a
    column for each axis.
    """
    store, axes = Path(synopsis.url).name, synopsis.domain.axes
    places = {axis.name: middle(axis) for axis in axes}
    combination, lists = synopsis.combination, synopsis.domain.categorical
    program = _template("recipe.py.txt").render(
        store=repr(store),
        point=repr(places),
        promised=any("promise" in one for one in synopsis.metadata["components"]),
        linear=isinstance(combination, FunctionCombination) and combination.constant is not None,
        kind=combination.kind,
        scores=len(combination.classes) if isinstance(combination, ClassScores) else 0,
    )
    return {
        "python": _PYTHON.format(
            store=store,
            point=", ".join(map(repr, places.values())),
            kind=", dtype=object" if lists else "",
            names=", ".join(" ".join(name.split()) for name in places),
            beta=synopsis.metadata["certificate"]["beta"],
        ),
        "shell": _SHELL.format(store=shlex.quote(store)),
        "zarr": _WITH_LISTS
        if lists or "degree" in synopsis.metadata["combine"]
        else program.rstrip(),
    }


# --- The page

_NAMES: dict[Meaning, str] = {
    "density": "Density",
    "response": "Regression",
    "log-odds": "Classifier",
    "score": "Classifier",
    "value": "Function",
}
_PARTS = {
    "approximation": "what the polynomial of this degree can miss of the function",
    "rounding": "what integers miss of real numbers",
    "noise": "the noise that makes it private",
}


def synopsis_page(synopsis: Synopsis) -> str:
    """Return the report on a synopsis, as HTML."""
    facts = synopsis.metadata
    groups = len(synopsis.classes) if is_grouped(synopsis) else 0
    picture = page_picture(synopsis)
    promises = synopsis.promises(picture.largest)
    return render(
        "synopsis.html",
        live=live(synopsis),
        title=facts.get("title", facts["name"]),
        facts=facts,
        what=_what(facts, synopsis.meaning, groups),
        picture={
            "forms": draw(picture, "release"),
            "alt": described(picture),
            "caption": _caption(synopsis, picture),
            "legend": {
                "map": {"low": picture.low, "high": picture.high},
                "regions": {"classes": picture.classes},
            }.get(picture.kind),
            "single": len(picture.panels) == 1 and picture.kind != "curve",
        },
        domain=[_interval(axis) for axis in synopsis.domain.axes],
        response=_response(synopsis),
        classes=_classes(facts),
        guarantee=guarantee_of(facts),
        signatures=[signed_by(one) for one in synopsis.signers or (None,)],
        certificate=_certificate(facts["certificate"], picture),
        headline=promises.headline,
        promises=[text for _, text in promises.lines()],
        components=facts["components"],
        regression=_regression(synopsis),
        recipes=_recipes(synopsis),
        parameters={
            key: _told(value) for key, value in parameters_of(facts["target"]).items() if key != "n"
        },
    )


def render(template: str, **values: Any) -> str:
    """Return a template of this package, every value escaped."""
    tints = {
        scheme: [text(class_colour(i, scheme)) for i in range(len(CLASSES))] for scheme in SCHEMES
    }
    return _template(template).render(ink=INK, map=MAP, tints=tints, schemes=SCHEMES, **values)


@cache  # to compile one takes as long as to draw a curve
def _template(name: str) -> Template:
    with optional_import(REPORTS):
        from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
    environment = Environment(
        loader=PackageLoader("dbern.reporting"),
        autoescape=select_autoescape(),  # of HTML
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = format_number
    environment.filters["percent"] = lambda share: percent(float(Fraction(share)))
    return environment.get_template(name)


def _shown(value: Any) -> Any:
    """Write out what a name would make a browser or an editor do, turn text around say."""
    plain = isinstance(value, str) and not hasattr(value, "__html__")
    return printable(value, keep="\n\t") if plain else value


def described(picture: Picture) -> str:
    """Describe a picture for those who do not see it."""
    where = " and ".join(
        f"{axis.name} from {axis.text(axis.low)} to {axis.text(axis.high)}" for axis in picture.axes
    )
    where += f", at {picture.fixed}" if picture.fixed else ""
    if picture.kind == "regions":
        shares = []
        for panel in picture.panels:
            of_panel = [
                f"{label} {percent(float((panel.values == i).mean()), 2)}"
                for i, label in enumerate(picture.classes)
            ]
            title = f"{panel.title}: " if panel.title else ""
            shares.append(title + ", ".join(of_panel))
        return f"Map of the decided class over {where}. Shares of the area: {'; '.join(shares)}."
    extremes = "; ".join(_extremes(picture, panel) for panel in picture.panels)
    kind = "Curve with its confidence band" if picture.kind == "curve" else "Map with contours"
    return f"{kind} over {where}. {extremes}."


def _extremes(picture: Picture, panel: Panel) -> str:
    extremes = []
    for name, flat in (("Least", panel.values.argmin()), ("largest", panel.values.argmax())):
        place = np.unravel_index(int(flat), panel.values.shape)
        at = ", ".join(
            f"{axis.name} {axis.text(axis.low + axis.width * float(step / (count - 1)))}"
            for axis, step, count in zip(picture.axes, place, panel.values.shape, strict=True)
        )
        extremes.append(f"{name} value {format_number(float(panel.values.flat[flat]), 3)} at {at}")
    return (f"{panel.title}: " if panel.title else "") + ", ".join(extremes)


def _what(facts: Mapping[str, Any], meaning: Meaning, groups: int) -> str:
    names = [axis["name"] for axis in facts["domain"]["axes"]]
    over = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    columns = facts.get("columns", {})
    several = f", for {groups} groups" if groups else ""
    several += f" of {columns['group']}" if groups and "group" in columns else ""
    column = columns.get("response", columns.get("label", ""))
    rows = f", from {format_number(facts['target']['n'])} rows" if facts["target"].get("n") else ""
    rounded = rounded_text([Axis.from_dict(axis) for axis in facts["domain"]["axes"]])
    rows += f"{'' if rows else ', of rows'} {rounded}" if rounded else ""
    name = "Mean curve" if facts["combine"].get("grid") else _NAMES[meaning]
    name += f" of {column}" if column else ""
    return f"{name} over {over}{several} ({facts['target']['kind']}){rows}"


def _response(synopsis: Synopsis) -> dict[str, Any] | None:
    combination = synopsis.combination
    if not isinstance(combination, Ranged):
        return None
    name, units = named_values(combination, synopsis.domain, synopsis.metadata)
    ends = {"low": format_number(combination.low), "high": format_number(combination.high)}
    return {"name": "" if name == "response" else name, "units": units, **ends}


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
    return {"summary": str(fit).partition("\n")[0], "rows": rows, "intervals": fit.intervals}


def _caption(synopsis: Synopsis, picture: Picture) -> str:
    certificate = synopsis.metadata["certificate"]
    sure = f"{100 * (1 - certificate['beta']):g} %"
    width = format_number(synopsis.promises().headline)
    wider = "; it is wider than what is drawn" if picture.beyond else ""
    said = {
        "regions": f"Paler where the band leaves the class in doubt, at {sure} confidence. It is "
        f"nowhere wider than ±{width}.",
        "map": f"The non-private function is within ±{width} everywhere at once, with {sure} "
        "probability.",
        "curve": "The shaded band covers the non-private function everywhere at once, with "
        f"{sure} probability{wider}.",
    }[picture.kind]
    if picture.threshold is not None:
        said += f" Above the dashed line the class is {picture.classes[1]}, below it "
        said += f"{picture.classes[0]}."
    if isinstance(synopsis.combination, Ratio):
        said += " It is narrow where rows are many, and the public range where they are few."
    if picture.left_out:
        said += f" The first {MOST_PANELS} panels; {picture.left_out} groups are left out."
    if many := left_out(synopsis):
        said += f" {format_number(many)} numbers were released, more than a page holds: it shows a "
        said += "picture alone."
    if picture.fixed:
        said += f" A slice through the middle of the axes that are not drawn: {picture.fixed}."
    if is_classifier(synopsis) and len(synopsis.domain.axes) == 3 and not picture.fixed:
        said += " Slices of the third axis."
    return said


def _interval(axis: Axis) -> dict[str, Any]:
    return {
        "name": axis.name,
        "low": axis.text(axis.low),
        "high": axis.text(axis.high),
        "units": axis.units,
        "values": ", ".join(map(str, axis.categories)),
    }


def _certificate(certificate: Mapping[str, Any], picture: Picture) -> dict[str, Any]:
    total = certificate["total"] or 1.0
    parts = [
        {"name": name, "meaning": meaning, "value": certificate[name]}
        | {"share": certificate[name] / total}
        for name, meaning in _PARTS.items()
    ]
    sure = f"{100 * (1 - certificate['beta']):g} %"
    own = {key: certificate[key] for key in ("total", "lower_bound")}
    return {"parts": parts, "sure": sure, "largest": picture.largest, **own}


def _told(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
