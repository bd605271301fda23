"""``dbern report``: one HTML file about a synopsis, that asks for nothing from anywhere.

Its bytes depend on the synopsis and the name of its folder alone, under given versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbern.domain import Axis
from dbern.errors import EnvironmentRefusedError, printable
from dbern.reporting.colors import CLASSES, INK, MAP, SCHEMES, class_colour, text
from dbern.reporting.guarantee import guarantee_of, signed_by
from dbern.reporting.panels import MOST_PANELS, Picture, is_classifier, picture_of, told
from dbern.reporting.pictures import draw
from dbern.reporting.recipes import recipes
from dbern.synopsis.reader import Synopsis

_PLACES = {1: 401, 2: 161, 3: 81}
"""Grid of a picture by the number of axes; small multiples have the last, one slice the second."""

_NAMES = {
    "nadaraya-watson": "Nadaraya–Watson regression",
    "kernel-erm": "Kernel risk minimizer",
    "naive-bayes": "Naive Bayes classifier",
    "gaussian-naive-bayes": "Gaussian naive Bayes classifier",
}
_PARTS = {
    "approximation": "what the polynomial of this degree can miss of the function",
    "rounding": "what integers miss of real numbers",
    "noise": "the noise that makes it private",
}


def synopsis_page(synopsis: Synopsis) -> str:
    """The report on a synopsis, as HTML.

    Raises
    ------
    EnvironmentRefusedError
        Where matplotlib or jinja2 is not installed.
    IntegrityError
        Where the synopsis is damaged.
    """
    facts = synopsis.metadata
    axes = len(synopsis.domain.axes)
    drawn = axes if axes <= 3 else 2
    picture = picture_of(synopsis, _PLACES[3 if drawn == 2 and _grouped(facts) else drawn])
    return render(
        "synopsis.html",
        title=facts["name"],
        facts=facts,
        what=_what(facts, picture),
        picture={
            "forms": draw(picture, "release"),
            "alt": described(picture),
            "caption": _caption(synopsis, picture),
            "legend": _legend(picture),
            "single": len(picture.panels) == 1 and picture.kind != "curve",
        },
        domain=[_interval(axis) for axis in synopsis.domain.axes],
        guarantee=guarantee_of(facts),
        signatures=[signed_by(one) for one in synopsis.signers or (None,)],
        certificate=_certificate(facts["certificate"], picture),
        components=facts["components"],
        recipes=recipes(synopsis),
        parameters={
            key: _told(value) for key, value in facts["target"].items() if key not in ("kind", "n")
        },
    )


def render(template: str, **values: Any) -> str:
    """A template of this package, every value escaped.

    Raises
    ------
    EnvironmentRefusedError
        Where jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise EnvironmentRefusedError(
            "reports need matplotlib and jinja2; install them with: pip install 'dbern[report]'"
        ) from None
    environment = Environment(
        loader=PackageLoader("dbern.reporting"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    return environment.get_template(template).render(
        ink=INK, map=MAP, tints=_tints(), schemes=SCHEMES, **values
    )


def _shown(value: Any) -> Any:
    """What a name would make a browser or an editor do, turn text around say, is written out."""
    plain = isinstance(value, str) and not hasattr(value, "__html__")
    return printable(value, keep="\n\t") if plain else value


def number(value: float) -> str:
    """Four digits, with narrow spaces between the thousands of whole numbers.

    Examples
    --------
    >>> number(200000), number(0.00160735), number(1.5e-7)
    ('200\u202f000', '0.001607', '1.5×10⁻⁷')
    """
    if value == int(value) and 1000 <= abs(value) < 1e15:
        return f"{int(value):,}".replace(",", "\u202f")
    mantissa, _, power = f"{value:.4g}".partition("e")
    if not power:
        return mantissa
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa}×10{raised}"


def described(picture: Picture) -> str:
    """What a picture shows, for those who do not see it."""
    where = " and ".join(
        f"{axis.name} from {told(axis, axis.low)} to {told(axis, axis.high)}"
        for axis in picture.axes
    )
    where += f", at {picture.fixed}" if picture.fixed else ""
    if picture.kind == "regions":
        shares = []
        for panel in picture.panels:
            of_panel = [
                f"{label} {100 * float((panel.values == i).mean()):.0f} %"
                for i, label in enumerate(picture.classes)
            ]
            title = f"{panel.title}: " if panel.title else ""
            shares.append(title + ", ".join(of_panel))
        return f"Map of the decided class over {where}. Shares of the area: {'; '.join(shares)}."
    extremes = "; ".join(_extremes(picture, i) for i in range(len(picture.panels)))
    kind = "Curve with its confidence band" if picture.kind == "curve" else "Map with contours"
    return f"{kind} over {where}. {extremes}."


def _extremes(picture: Picture, index: int) -> str:
    panel = picture.panels[index]
    found = []
    for name, flat in (("Least", panel.values.argmin()), ("largest", panel.values.argmax())):
        place, left = [], int(flat)
        for count in reversed(panel.values.shape):
            left, step = divmod(left, count)
            place.append(step / (count - 1))
        at = ", ".join(
            f"{axis.name} {told(axis, axis.low + axis.width * share)}"
            for axis, share in zip(picture.axes, reversed(place), strict=True)
        )
        found.append(f"{name} value {panel.values.flat[flat]:.3g} at {at}")
    return (f"{panel.title}: " if panel.title else "") + ", ".join(found)


def _what(facts: Mapping[str, Any], picture: Picture) -> str:
    kind = facts["target"]["kind"].replace("-", " ").capitalize()
    kind = _NAMES.get(facts["target"]["kind"], kind)
    names = [axis["name"] for axis in facts["domain"]["axes"]]
    over = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    several = f", for {len(picture.panels)} groups" if _grouped(facts) else ""
    rows = facts["target"].get("n")
    return f"{kind} over {over}{several}" + (f", from {number(rows)} rows" if rows else "")


def _grouped(facts: Mapping[str, Any]) -> bool:
    return facts["target"]["kind"] == "kernel-density" and bool(facts["combine"].get("classes"))


def _caption(synopsis: Synopsis, picture: Picture) -> str:
    certificate = synopsis.metadata["certificate"]
    sure = f"{100 * (1 - certificate['beta']):g} %"
    width = number(certificate["total"])
    if picture.kind == "regions":
        said = f"Paler where the band of ±{width} leaves the class in doubt, at {sure} confidence."
    elif picture.kind == "map":
        said = f"The non-private function is within ±{width} everywhere at once, with {sure} "
        said += "probability."
    else:
        said = "The shaded band covers the non-private function everywhere at once, with "
        said += f"{sure} probability."
    if picture.threshold is not None:
        said += f" Above the dashed line the class is {picture.classes[1]}, below it "
        said += f"{picture.classes[0]}."
    if synopsis.combination.kind == "ratio":
        said += " It is narrow where rows are many, and the public range where they are few."
    if picture.left_out:
        said += f" The first {MOST_PANELS} panels; {picture.left_out} groups are left out."
    if picture.fixed:
        said += f" A slice through the middle of the axes that are not drawn: {picture.fixed}."
    if is_classifier(synopsis) and len(synopsis.domain.axes) == 3:
        said += " Slices of the third axis."
    return said


def _legend(picture: Picture) -> dict[str, Any] | None:
    if picture.kind == "map":
        return {"low": picture.low, "high": picture.high}
    return {"classes": picture.classes} if picture.kind == "regions" else None


def _tints() -> dict[str, list[str]]:
    return {
        scheme: [text(class_colour(i, scheme)) for i in range(len(CLASSES))] for scheme in SCHEMES
    }


def _interval(axis: Axis) -> dict[str, Any]:
    ends = [axis.unit.text(end) if axis.unit else number(end) for end in (axis.low, axis.high)]
    return {"name": axis.name, "low": ends[0], "high": ends[1]}


def _certificate(certificate: Mapping[str, Any], picture: Picture) -> dict[str, Any]:
    largest = max(abs(picture.low), abs(picture.high)) if picture.kind == "map" else None
    if picture.kind == "curve":
        largest = max(float(abs(panel.values).max()) for panel in picture.panels)
    total = certificate["total"] or 1.0
    return {
        "parts": [
            {
                "name": name,
                "meaning": meaning,
                "value": certificate[name],
                "share": 100 * certificate[name] / total,
            }
            for name, meaning in _PARTS.items()
        ],
        "total": certificate["total"],
        "sure": f"{100 * (1 - certificate['beta']):g} %",
        "largest": largest,
        "lower_bound": certificate["lower_bound"],
    }


def _told(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
