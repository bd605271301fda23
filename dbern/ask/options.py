"""Options of `dbern ask`, one for each of its questions, and how the text after them is read.

``dbern ask --help`` imports this file and no question, so that it is quick; a question names its
own option.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dbern.errors import SpecError
from dbern.system import number_of

CURVE_POINTS = 21
"""Points of a curve where none are written: they divide an axis into twenty parts."""


@dataclass(frozen=True)
class QuestionOption:
    """Option of `dbern ask`: its name without dashes, and what is written after it.

    A flag has no `metavar`. `question` is the class of the question, as ``module:Class``.
    """

    name: str
    metavar: str | None
    help: str
    question: str


MASS = QuestionOption(
    "mass",
    "REGION",
    'Share of the rows in a box such as "x=3..7,y=..5", or in each of the regions of a file: '
    "CSV with columns AXIS_low and AXIS_high, GeoJSON, or a line each of GeoJSON (.geojsonl), "
    "read in parts. May be repeated, as those below.",
    "dbern.ask.shares:Mass",
)


COUNT = QuestionOption("count", "REGION", "How many rows.", "dbern.ask.shares:Count")


QUANTILE = QuestionOption(
    "quantile",
    "AXIS=LEVELS",
    'Quantiles of an axis, such as "x=.1,.5,.9".',
    "dbern.ask.shares:Quantile",
)


CDF = QuestionOption(
    "cdf", "AXIS=PLACES", 'Shares up to places, as "x=2,5".', "dbern.ask.shares:Cdf"
)


MARGINAL = QuestionOption(
    "marginal", "AXIS=PLACES", "Density of one axis.", "dbern.ask.density:Marginal"
)


DENSITY = QuestionOption(
    "density", "POINT", 'The density at "x=3,y=5".', "dbern.ask.density:Density"
)


MEAN = QuestionOption("mean", None, "The mean of each axis.", "dbern.ask.moments:Mean")


COV = QuestionOption(
    "cov",
    None,
    "The covariance of each two axes.",
    "dbern.ask.moments:Covariance",
)


CORRELATION = QuestionOption(
    "correlation",
    None,
    "The correlation of each two axes.",
    "dbern.ask.moments:Correlation",
)


AVERAGE = QuestionOption(
    "average",
    "REGION",
    "Mean response of the rows in a region, or groups' shares.",
    "dbern.ask.responses:Average",
)


CURVE = QuestionOption(
    "curve",
    "AXIS[=PLACES]",
    'The mean response along an axis, or each group\'s share: at places, as "x=2,5", or at '
    f"{CURVE_POINTS} between the bounds, as x; of the rows in the box --given of other axes.",
    "dbern.ask.responses:Curve",
)


DIFFERENCE = QuestionOption(
    "difference",
    "A less B",
    'Mean response in one box less that in another, as "x=0..3 less x=3..6", or near points, '
    'as "x=2 less x=5"; by group the share, or mean response, of a group less that of another, '
    'as "x=0..3 between north and south".',
    "dbern.ask.responses:Difference",
)


COMPARE = QuestionOption(
    "compare",
    "REGION",
    "Share of the rows less that of the release --with. With --target smoothed of the two "
    "densities, whose intervals are narrower.",
    "dbern.ask.comparison:Comparison",
)


OPTIONS = (
    *(MASS, COUNT, QUANTILE, CDF, MARGINAL, DENSITY, MEAN, COV, CORRELATION),
    *(AVERAGE, CURVE, DIFFERENCE, COMPARE),
)


def read_end(text: str) -> float | str | None:
    """Read a number, or what may be a date; None where nothing is written."""
    try:
        return number_of(text)
    except ValueError:
        return text.strip() or None


def read_box(text: str, option: str) -> dict[str, tuple[Any, Any]]:
    """Read ``x=3..7,y=..5``; an end that is left out is open."""
    box: dict[str, tuple[Any, Any]] = {}
    for interval in text.split(","):
        name, equals, bounds = interval.partition("=")
        low, dots, high = bounds.partition("..")
        if not (equals and dots) or "..." in bounds:
            raise SpecError(
                f'--{option}: "{text}" is neither a box nor a file of them. Write a box such as '
                "x=3..7,y=..5, or the path of a file whose name ends in .csv, .geojson or .geojsonl"
            )
        if name.strip() in box:
            raise SpecError(
                f'--{option}: "{text}" has two intervals of {name.strip()}. Write one, or the rows '
                "of a CSV file for several boxes"
            )
        box[name.strip()] = (read_end(low), read_end(high))
    return box


def read_numbers(
    text: str, option: QuestionOption, read: Callable[[str], Any] = read_end
) -> tuple[str, list[Any]]:
    """Read ``x=2,5``: an axis, and levels or points of it, which may be dates."""
    name, _, values_text = text.partition("=")
    try:
        values = [read(value) for value in values_text.split(",")]
    except ValueError:
        values = []
    if not values or None in values:
        raise SpecError(f'--{option.name}: "{text}" is none. Write {option.metavar}, such as x=.5')
    return name, values


def read_point(text: str, option: str) -> dict[str, list[Any]]:
    """Read ``x=3,y=5``: one point, whose coordinates may be dates."""
    pairs = [coordinate.partition("=") for coordinate in text.split(",")]
    point = {name.strip(): [read_end(value)] for name, _, value in pairs}
    if [None] in point.values() or len(point) < len(pairs):
        raise SpecError(f'--{option}: "{text}" is no point. Write one such as x=3,y=5')
    return point
