"""The answer to a question: a value and its interval, to print or to take numbers of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dbern.data.domain import TimeUnit
from dbern.errors import printable
from dbern.system import format_number, html_table

if TYPE_CHECKING:
    import xarray

Target: TypeAlias = Literal["records", "smoothed"]
"""What is asked about: shares of the rows themselves, or the released function integrated."""

Interval: TypeAlias = Literal["these-data", "population"]
"""What the interval covers: the answer of the rows at hand, or of those that they were drawn of."""

Law: TypeAlias = Literal["normal", "any"]
"""Of sampling errors: normal, about, or any."""


_SHOWN = 60  # of the rows of a table; the others are in `to_dataset`


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """Answer to a question: print it, or take its numbers.

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
    law : "normal" or "any", optional
        What sampling errors of a population are taken to have.
    likely_error : float or xarray.DataArray, optional
        Of the value, not guaranteed: the standard deviation of its noise, and what rows at ten
        values a cell err by (docs/questions.md).
    note : str
        Why an interval is wide, and what makes it narrower; empty where noise makes most of it.

    Examples
    --------
    >>> Answer(0.25, 0.2, 0.3, "records", "these-data", 0.05, "share of x up to 3")
    share of x up to 3: 0.25, from 0.2 to 0.3 with probability 0.95 (records, these data)
    """

    value: Any
    low: Any
    high: Any
    target: Target
    interval: Interval
    beta: float
    question: str
    unit: TimeUnit | None = None
    law: Law | None = None
    likely_error: Any = None
    note: str = ""

    def _written(self, number: float) -> str:
        if self.unit:
            return self.unit.text(number)
        text = f"{number:.6g}"
        return format_number(number, 6) if "e" in text else text

    def __repr__(self) -> str:
        return str(self)

    @property
    def _about(self) -> str:
        law = {"normal": ", errors about normal", "any": ", of any law", None: ""}[self.law]
        return f"({self.target}, {self.interval.replace('-', ' ')}{law})"

    def __str__(self) -> str:
        confidence = f"with probability {1 - self.beta:.6g} {self._about}"
        if not hasattr(self.value, "dims"):
            value, low, high = map(self._written, (self.value, self.low, self.high))
            text = f"{self.question}: {value}, from {low} to {high} {confidence}"
        else:
            table = self.to_dataset().to_dataframe().to_string(**self._how)
            text = f"{self.question}, all at once {confidence}\n{table}"
        return printable(text + ("\n" + self._note if self.note else ""), keep="\n")

    @property
    def _note(self) -> str:
        error = "" if hasattr(self.value, "dims") else f" {self._length(self.likely_error)}"
        return f"likely error{error}, not guaranteed; {self.note}"

    def _length(self, number: float) -> str:
        """Write a difference of two values: of dates in days, of times in seconds."""
        return f"{number:.3g}" + (f" {self.unit.name.lower()}" if self.unit else "")

    def _repr_html_(self) -> str:
        confidence = f"{1 - self.beta:.6g} {self._about}"
        rows = {"question": self.question, "with probability": confidence}
        rows |= {"note": self._note} if self.note else {}
        if not hasattr(self.value, "dims"):
            ends = {"value": self.value, "from": self.low, "to": self.high}
            return html_table(rows | {name: self._written(end) for name, end in ends.items()})
        table = self.to_dataset().to_dataframe().to_html(**self._how)
        return html_table(rows) + str(table)

    def to_dataset(self) -> xarray.Dataset:
        """Return value, low and high, and the likely error where it is known, as one dataset."""
        import xarray

        numbers = {"value": self.value, "low": self.low, "high": self.high}
        if self.likely_error is not None:
            numbers["likely_error"] = self.likely_error
        attributes = {"question": self.question, "target": self.target, "interval": self.interval}
        law = {"law": self.law} if self.law else {}
        return xarray.Dataset(numbers, attrs={**attributes, **law, "beta": self.beta})

    @property
    def _how(self) -> dict[str, Any]:
        lengths = {"likely_error": self._length}
        return {"max_rows": _SHOWN, "float_format": self._written, "formatters": lengths}
