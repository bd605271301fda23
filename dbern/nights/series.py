"""``Series``: a number of a stream's windows over time, with a band over all of them at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from dbern.errors import SpecError
from dbern.synopsis.drawing import write_plainly
from dbern.synopsis.reader import Synopsis
from dbern.types import FloatArray

WindowLength: TypeAlias = Literal["day", "week", "month"]
WINDOW_NIGHTS: dict[WindowLength, int] = {"day": 1, "week": 7, "month": 30}


@dataclass(frozen=True, eq=False)
class Series:
    """Values of consecutive windows, with an interval for each.

    With probability at least ``1 - beta`` the true values lie from `low` to `high` in all windows
    at once: each window has an equal part of beta, whatever noise they share.

    Attributes
    ----------
    days : tuple of date
        The last day of each window.
    values, low, high : array (windows,)
    label : str
        What the values are.
    beta : float
    """

    days: tuple[date, ...]
    values: FloatArray
    low: FloatArray
    high: FloatArray
    label: str
    beta: float

    def plot(self, ax: Any = None) -> Any:
        """Draw the curve and its band with matplotlib; return the axes."""
        import xarray  # whose plots need matplotlib, and say so

        days = np.array(self.days, dtype="datetime64[D]").astype("datetime64[ns]")
        curve = xarray.DataArray(self.values, {"day": days}, name=self.label)
        (line,) = curve.plot.line(ax=ax, marker=".")
        ax = line.axes
        ax.fill_between(days, self.low, self.high, color=line.get_color(), alpha=0.2, lw=0)
        ax.set_ylabel("")
        ax.set_title(f"{self.label}\nall intervals at once with probability {1 - self.beta:g}")
        write_plainly(ax)
        return ax


def interval_of(synopsis: Synopsis, what: Any, beta: Fraction) -> tuple[str, float, float, float]:
    """Return the question in words, its value, low and high.

    For a box the value is the share of the rows in it, else that of the function at a point: NaN
    where `Synopsis.interval` is.
    """
    if synopsis.classes:
        raise SpecError(
            "series: is of one number, and this stream has groups. Ask each window by itself: "
            "stream.between(first, last).distribution()"
        )
    if isinstance(what, Mapping) and any(isinstance(ends, tuple | list) for ends in what.values()):
        answer = synopsis.distribution().mass(what, beta=str(beta))
        return answer.question, float(answer.value), float(answer.low), float(answer.high)
    points: Any
    if isinstance(what, Mapping):
        points = {name: [coordinate] for name, coordinate in what.items()}
        what = ", ".join(f"{name} {coordinate}" for name, coordinate in what.items())
    else:
        points = np.reshape(what, (1, -1))
    (low,), (high,) = synopsis.interval(points, str(beta))
    value = math.nan if np.isnan(low) else synopsis(points)[0]  # no rows here
    return f"value at {what}", float(value), float(low), float(high)
