"""Reading of what is written after the options of `dbern ask`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dbern.errors import SpecError
from dbern.synopsis.question_options import QuestionOption


def read_end(text: str) -> float | str | None:
    """Read a number, or what may be a date; None where nothing is written."""
    try:
        return float(text)
    except ValueError:
        return text.strip() or None


def read_box(text: str, option: str) -> dict[str, tuple[Any, Any]]:
    """Read ``x=3..7,y=..5``; an end that is left out is open."""
    box = {}
    for interval in text.split(","):
        name, equals, bounds = interval.partition("=")
        low, dots, high = bounds.partition("..")
        if not (equals and dots):
            raise SpecError(
                f'--{option}: "{text}" is neither a box nor a file of them. Write a box such as '
                "x=3..7,y=..5, or the path of a file whose name ends in .csv, .geojson or .geojsonl"
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
    if [None] in point.values():
        raise SpecError(f'--{option}: "{text}" is no point. Write one such as x=3,y=5')
    return point
