"""``Series``: a number of a stream's windows over time, with a band over all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from dbern.synopsis.maps import write_plainly
from dbern.synopsis.reader import Synopsis
from dbern.types import FloatArray

Every: TypeAlias = Literal["day", "week", "month"]
"""Length of a series's windows; a month is 30 nights."""

NIGHTS_OF: dict[Every, int] = {"day": 1, "week": 7, "month": 30}


@dataclass(frozen=True, eq=False)
class Series:
    """Values of consecutive windows, and their intervals.

    With probability at least ``1 - beta`` the true values lie from `low` to `high` in all windows
    at once: each has its part of beta, whatever noise they share.

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


def interval_of(synopsis: Synopsis, what: Any, beta: Fraction) -> tuple[float, float, float]:
    """Return value, low and high of a box's share of the rows, or of the function at a point."""
    if isinstance(what, Mapping) and any(isinstance(ends, tuple | list) for ends in what.values()):
        answer = synopsis.distribution().mass(what, beta=str(beta))
        return float(answer.value), float(answer.low), float(answer.high)
    point = [what[name] for name in synopsis.domain.names] if isinstance(what, Mapping) else what
    points = np.array(point, dtype=float).reshape(1, -1)
    low, high = synopsis.interval(points, str(beta))
    return float(synopsis(points)[0]), float(low[0]), float(high[0])


def label_of(what: Any) -> str:
    """Return what a series is of, in words."""
    if not isinstance(what, Mapping):
        return f"value at {what}"
    parts = [f"{name} {_text(ends)}" for name, ends in what.items()]
    share = any(isinstance(ends, tuple | list) for ends in what.values())
    return f"{'share of rows with' if share else 'value at'} {', '.join(parts)}"


def _text(ends: Any) -> str:
    if not isinstance(ends, tuple | list):
        return f"{ends}"
    return f"from {ends[0]:g} to {ends[1]:g}"
