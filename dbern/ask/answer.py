"""Answers to questions: a value and the ends of its interval, as text or as numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dbern.data.times import TimeUnit
from dbern.errors import printable
from dbern.system import html_table
from dbern.system.texts import IntervalDigits
from dbern.types import FloatArray

if TYPE_CHECKING:
    import xarray


Target: TypeAlias = Literal["records", "smoothed"]
"""Subject of a question: shares of the rows themselves, or integrals of the released function."""
IntervalKind: TypeAlias = Literal["these-data", "population"]
"""Rows of the answer that an interval covers: those at hand, or their population."""
Percent: TypeAlias = Literal["%", "percentage points"]
"""Unit of shares, or of differences of shares, where people read them."""
CELLS = "most of the interval is the cells' width"
"""Beginning of the note of an answer that cells make wide."""
_MAX_ROWS_SHOWN = 60  # in a table; `to_dataset` has all


class Interval(NamedTuple):
    """An estimate and the ends of its interval, (m,) each.

    `cells` is the width between the values that minorants and majorants have without noise.
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    cells: FloatArray

    @classmethod
    def without_cells(cls, value: FloatArray, low: FloatArray, high: FloatArray) -> Interval:
        """Return an interval whose cells' width is not known: NaN."""
        return cls(value, low, high, np.full_like(value, np.nan))

    def minus(self, subtracted: Interval) -> Interval:
        """Return the interval of the difference."""
        value, low = self.value - subtracted.value, self.low - subtracted.high
        high, cells = self.high - subtracted.low, self.cells + subtracted.cells
        return Interval(value, low, high, cells)

    def scaled(self, low: FloatArray | float, width: FloatArray | float) -> Interval:
        """Return the interval of ``low + width x``, for a positive width."""
        first, last = low + width * self.low, low + width * self.high
        return Interval(low + width * self.value, first, last, width * self.cells)


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """Answer to a question: print it, or take its numbers. Shares are printed as percentages.

    With probability at least ``1 - beta`` what was asked for lies from `low` to `high`: all
    entries of an array at once.

    Attributes
    ----------
    value, low, high : float or xarray.DataArray
        The best guess and the ends of its interval.
    target : "records" or "smoothed"
    interval : "these-data" or "population"
    beta : float
    question : str
        In words.
    unit : TimeUnit, optional
        What the numbers count, where they are dates or times: they are printed as such.
    note : str
        Why an interval is wide, and what makes it narrower; empty where noise makes most of it. Of
        two releases also how many rows had a value.
    percent : "%" or "percentage points", optional
        What shares are printed in, or differences of shares; the numbers stay fractions.
    sentence : str
        What is said of one value, which takes the place of a ``{}`` at its start; empty where the
        question is said.

    Examples
    --------
    >>> Answer(0.25, 0.2, 0.3, "records", "these-data", 0.05, "share of x up to 3", percent="%")
    share of x up to 3: 25.0 % (20.0 to 30.0, 95 % sure)
    """

    value: Any
    low: Any
    high: Any
    target: Target
    interval: IntervalKind
    beta: float
    question: str
    unit: TimeUnit | None = None
    note: str = ""
    percent: Percent | None = None
    sentence: str = ""

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return printable(self.text() + ("\n" + self.note if self.note else ""), keep="\n")

    def text(self, *, confidence: bool = True) -> str:
        """Write the value, its interval and its confidence; without the note."""
        if hasattr(self.value, "dims"):
            table = self.to_dataset().to_dataframe().to_string(**self._table_formats)
            return f"{self._title}, all at once{f', {self._confidence}' * confidence}\n{table}"
        value, low, high = self._texts
        value += f" {self.percent}" if self.percent else ""
        interval = f"({low} to {high}{f', {self._confidence}' * confidence})"
        if self.sentence:
            beginning = value if self.sentence.startswith("{}") else ""  # a column's name may be {}
            return f"{beginning}{self.sentence.removeprefix('{}')} {interval}"
        return f"{self.question}: {value} {interval}"

    def _repr_html_(self) -> str:
        rows = {"question": self._title, "confidence": self._confidence}
        rows |= {"note": self.note} if self.note else {}
        if not hasattr(self.value, "dims"):
            return html_table(rows | dict(zip(("value", "from", "to"), self._texts, strict=True)))
        table = self.to_dataset().to_dataframe().to_html(**self._table_formats)
        return html_table(rows) + str(table)

    @property
    def _title(self) -> str:
        """The question, and the unit of numbers that stand alone in a table."""
        return self.question + (f", in {self.percent}" if self.percent else "")

    @property
    def _confidence(self) -> str:
        """Confidence in words, and whose it is where not of the rows at hand."""
        suffix = " for the population, sampling errors taken as normal"
        return f"{100 * (1 - self.beta):.6g} % sure{suffix * (self.interval == 'population')}"

    @property
    def _texts(self) -> list[str]:
        """Value, low and high of one answer."""
        write = self._writers
        return [write[name](getattr(self, name)) for name in ("value", "low", "high")]

    @property
    def _writers(self) -> dict[str, Callable[[float], str]]:
        if self.unit:
            return dict.fromkeys(("value", "low", "high"), self.unit.text)
        scale = 100 if self.percent else 1
        digits = IntervalDigits.of(np.ravel(self.low), np.ravel(self.high), scale)
        return {"value": digits.value, "low": digits.low, "high": digits.high}

    @property
    def _table_formats(self) -> dict[str, Any]:
        return {"max_rows": _MAX_ROWS_SHOWN, "formatters": self._writers}

    def to_dataset(self) -> xarray.Dataset:
        """Return value, low and high as one dataset."""
        import xarray

        numbers = {"value": self.value, "low": self.low, "high": self.high}
        attributes = {"question": self.question, "target": self.target, "interval": self.interval}
        return xarray.Dataset(numbers, attrs={**attributes, "beta": self.beta})
