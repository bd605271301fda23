"""Templates of pages, and what their filters write."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from dbern.certify.error_summary import lower_bound_text, upper_bound_text
from dbern.errors import optional_import, printable
from dbern.percentages import percent
from dbern.reporting.colours import CLASSES, INK, MAP, SCHEMES, class_colour, to_hex
from dbern.reporting.wording import REPORT_HINT
from dbern.system import format_number, raise_powers

if TYPE_CHECKING:
    from jinja2 import Template


def render(name: str, **values: Any) -> str:
    """Fill in a template of this package, every value escaped."""
    tints = {
        scheme: [to_hex(class_colour(i, scheme)) for i in range(len(CLASSES))] for scheme in SCHEMES
    }
    return _template(name).render(ink=INK, map=MAP, tints=tints, schemes=SCHEMES, **values)


@cache  # to compile one takes as long as to draw a curve
def _template(name: str) -> Template:
    """Return a compiled template of this package."""
    with optional_import(REPORT_HINT):
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
    environment.filters["raise_powers"] = raise_powers
    environment.filters["upper_bound"] = upper_bound_text
    environment.filters["lower_bound"] = lower_bound_text
    environment.filters["percent"] = lambda fraction: percent(float(Fraction(fraction)))
    return environment.get_template(name)


def _shown(value: Any) -> Any:
    """Write out what a name would make a browser or an editor do, turn text around say."""
    plain = isinstance(value, str) and not hasattr(value, "__html__")
    return printable(value, keep="\n\t") if plain else value
