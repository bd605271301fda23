"""Where two releases of a function differ, with a band that holds everywhere at once."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.synopsis.points import confidence
from dbern.synopsis.reader import Synopsis

if TYPE_CHECKING:
    import xarray

SHAPES = {1: 400, 2: 160}
"""Cells along each axis, by the number of axes."""

_OF_ROWS = Fraction(1, 20)
"""Part of a side's beta for how many rows had a value."""
_SMOOTHING = ("bandwidth", "covariance", "kernel")


def change_between(new: Synopsis, old: Synopsis, beta: float | str = 0.05) -> xarray.Dataset:
    """Return a function less that of an older release, in the middles of equal cells.

    ``value``, and the ends ``low`` and ``high`` of its band: with probability ``1 - beta`` the
    difference of the two non-private functions lies in it everywhere at once, as each of the two
    lies in its own band with ``1 - beta / 2``. Where ``low`` is above 0 there is surely more, and
    where ``high`` is below 0 surely less; by group, of the groups that are in both. All three are
    NaN where one of two regressions has no rows (`Synopsis.interval`).

    Densities are of the rows that had a value, where both releases tell how many there were, which
    bins do: otherwise missing values would be a change, or another normalizer. The attributes
    ``new_rows`` and ``old_rows`` say how many, about, of all groups together.

    Raises SpecError for classifiers and functions of three axes or more, for two that are over
    other axes or bounds, tell different things or are smoothed differently, and for a confidence
    that cannot be.
    """
    import xarray

    _check_alike(new, old)
    level, domain = confidence(beta), new.domain
    shape, window = SHAPES[len(domain.axes)], _middles(domain)
    sides = new, old
    rows = [_rows_with_values(synopsis, level / 2 * _OF_ROWS) for synopsis in sides]
    counts = [count for count in rows if count is not None]
    divided = new.meaning == "density" and len(counts) == len(sides)
    beta_i = level / 2 * (1 - _OF_ROWS if divided else 1)
    numbers = [_numbers(synopsis, shape, window, beta_i) for synopsis in sides]
    if divided:
        numbers = list(map(_of_rows, numbers, counts, sides))
    (here, *ends_here), (there, *ends_there) = numbers
    parts = here - there, ends_here[0] - ends_there[1], ends_here[1] - ends_there[0]
    change = xarray.Dataset(dict(zip(("value", "low", "high"), parts, strict=True)))
    if 0 in change.sizes.values():
        raise SpecError("change: no group is in both releases. Draw two that share one")
    for name in change.coords:
        change[name].attrs = here[name].attrs
    for array in change.values():
        array.attrs = dict(here.attrs)
    change.attrs = {"new": new.metadata["name"], "old": old.metadata["name"], "beta": float(level)}
    for name, count in zip(("new_rows", "old_rows"), rows, strict=True):
        change.attrs |= {} if count is None else {name: round(count[0])}
    return change


def _rows_with_values(synopsis: Synopsis, beta: Fraction) -> tuple[float, float, float] | None:
    """Return how many rows of all groups had a value, and the ends; None where nothing tells."""
    try:
        distribution = synopsis.distribution()
    except SpecError:
        return None
    whole = dict.fromkeys(distribution.domain.names, (None, None))
    with distribution.confidence(str(beta), questions=1) as questions:
        answer = questions.count(whole)
    value, low, high = (float(np.sum(part)) for part in (answer.value, answer.low, answer.high))
    return value, low, high


def _of_rows(
    numbers: tuple[Any, Any, Any], rows: tuple[float, float, float], synopsis: Synopsis
) -> tuple[Any, Any, Any]:
    """Return a density of all rows, and its band, as that of the rows that had a value."""
    value, fewest, most = (part / synopsis.distribution().rows for part in rows)
    if fewest <= 0:
        raise SpecError(
            f"change: noise hides how many rows of {synopsis.metadata['name']} had a value. "
            "Compare releases of more rows, or of a larger epsilon"
        )
    here, low, high = numbers
    low = low / np.where(np.asarray(low) < 0, fewest, most)
    return here / value, low, high / np.where(np.asarray(high) < 0, most, fewest)


def _numbers(
    synopsis: Synopsis, shape: int, window: dict[str, tuple[float, float]], beta: Fraction
) -> tuple[Any, Any, Any]:
    values = synopsis.grid(shape, window=window)
    low, high = synopsis.interval(values, str(beta))
    return values.where(low.notnull()), low, high


def _middles(domain: Domain) -> dict[str, tuple[float, float]]:
    """Return the box from the middle of the first cell to that of the last."""
    half = 0.5 / SHAPES[len(domain.axes)]
    return {
        axis.name: (axis.low + half * axis.width, axis.high - half * axis.width)
        for axis in domain.axes
    }


def _check_alike(new: Synopsis, old: Synopsis) -> None:
    axes = [
        [(axis.name, axis.low, axis.high, axis.unit, axis.categories) for axis in side.domain.axes]
        for side in (new, old)
    ]
    if len(axes[0]) not in SHAPES or new.domain.categorical:
        raise SpecError(
            "change: is drawn of functions of one or two axes of numbers. Compare shares: dbern "
            "ask NEW --compare REGION --with OLD"
        )
    if axes[0] != axes[1]:
        raise SpecError(
            "change: the two releases are over other axes or bounds. Draw two over the same, or "
            "compare shares of rows: dbern ask NEW --compare REGION --with OLD"
        )
    if new.meaning not in ("density", "response") or new.meaning != old.meaning:
        raise SpecError(
            "change: is of two densities, or of two regressions. Draw two such releases"
        )
    for key in _SMOOTHING:
        here, there = (side.metadata["target"].get(key) for side in (new, old))
        if here != there:
            raise SpecError(
                f"change: {key} is {here} here and {there} there, so that the two differ by it "
                f"alone. Release both with one {key}, or compare smoothed shares: dbern ask NEW "
                "--compare REGION --with OLD --target smoothed"
            )
