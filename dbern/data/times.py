"""Dates and times as numbers: days or seconds since the beginning of 1970, UTC; clocks as hours.

Only single IEEE operations on whole numbers of ticks make them, so a time is the same number on
every host. What has no time zone is taken as UTC, in a spec and in a file alike.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from dbern.errors import SpecError
from dbern.types import FloatArray, Int64Array

Bound: TypeAlias = float | datetime | date

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86400
_HOUR = 3600
HOURS = (0.0, 24.0)
"""Bounds of a whole day, whose times are numbers of hours."""
TICKS = {
    "D": Fraction(_DAY),
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}
"""Seconds of a tick, by numpy's and Arrow's name of it."""


class TimeUnit(enum.Enum):
    """Unit of an axis of dates or times, in the words of the CF conventions."""

    DAYS = "days since 1970-01-01"
    SECONDS = "seconds since 1970-01-01"

    @property
    def seconds(self) -> int:
        """Seconds of one unit."""
        return _DAY if self is TimeUnit.DAYS else 1

    def of(self, moment: date) -> float:
        """Return a date (its beginning) or a time as a number, correctly rounded."""
        if not isinstance(moment, datetime):
            moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) / timedelta(seconds=self.seconds)

    def of_ticks(self, ticks: Int64Array | FloatArray, tick: Fraction) -> FloatArray:
        """Return ticks since 1970 as numbers (m,), by one conversion and one rounded operation."""
        ratio = tick / self.seconds
        floats = np.asarray(ticks, dtype=np.float64)
        if ratio.numerator == 1:
            return floats / float(ratio.denominator)
        return floats * float(ratio)

    def of_datetimes(self, values: np.ndarray[Any, Any]) -> FloatArray:
        """Return an array of datetime64 as numbers, not-a-time as NaN."""
        name, count = np.datetime_data(values.dtype)
        if name not in TICKS or count != 1:
            name = "ns" if name in ("ps", "fs", "as") else "s"
            values = values.astype(f"datetime64[{name}]")
        numbers = self.of_ticks(values.astype(np.int64), TICKS[name])
        return np.where(np.isnat(values), np.nan, numbers)

    def text(self, value: float) -> str:
        """Return a number as a date or a time again; within a day to the minute."""
        if self is TimeUnit.SECONDS:
            return f"{_EPOCH + timedelta(seconds=value):%Y-%m-%dT%H:%M:%S}Z"
        moment = _EPOCH + timedelta(minutes=round(value * (_DAY // 60)))
        midnight = (moment.hour, moment.minute) == (0, 0)
        return moment.date().isoformat() if midnight else f"{moment:%Y-%m-%dT%H:%M}Z"

    def to_datetimes(self, numbers: FloatArray) -> np.ndarray[Any, Any]:
        """Return numbers as datetime64 of microseconds, UTC, which `of_datetimes` takes back."""
        units_a_day = _DAY // self.seconds
        days = np.floor(numbers / units_a_day)  # whole days are exact, whatever the year
        microseconds = np.rint((numbers - days * units_a_day) * (self.seconds * 10**6))
        midnights = days.astype("datetime64[D]").astype("datetime64[us]")
        return np.asarray(midnights + microseconds.astype("timedelta64[us]"))


def are_hours(low: float, high: float, unit: TimeUnit | None) -> bool:
    """Return whether bounds are hours of a day."""
    return unit is None and HOURS[0] <= low and high <= HOURS[1]


def hours_of(clock: time) -> float:
    """Return a time of day as hours, the float that a column of microseconds has for it."""
    minutes = 60 * clock.hour + clock.minute
    return ((60 * minutes + clock.second) * 10**6 + clock.microsecond) / (_HOUR * 10**6)


def hours_of_ticks(ticks: FloatArray, tick: Fraction) -> FloatArray:
    """Return ticks since midnight as hours (m,), by one rounded division."""
    return ticks / float(_HOUR / tick)


def from_text(value: Any) -> Any:
    """Parse a date or time in ISO form, or return any other value; TOML has them without quotes."""
    return moment_of(value) if isinstance(value, str) else value


def moment_of(text: str) -> date:
    """Return a date or a time in ISO form.

    Raises ValueError for anything else.
    """
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)


def bounds_of(bounds: Sequence[Bound], key: str) -> tuple[float, float, TimeUnit | None]:
    """Return two bounds as numbers, and their unit: days of two dates, seconds of two times."""
    low, high = bounds
    kinds = {_unit(low), _unit(high)}
    if len(kinds) > 1:
        raise SpecError(
            f"{key}: both bounds must be of one kind. Write two numbers, two dates such as "
            "[2026-01-01, 2027-01-01] or two times such as "
            "[2026-01-01T00:00:00Z, 2026-01-02T00:00:00Z]."
        )
    (unit,) = kinds
    if unit is None:
        return float(low), float(high), None  # type: ignore[arg-type]  # numbers, both
    return unit.of(low), unit.of(high), unit  # type: ignore[arg-type]  # dates or times, both


def _unit(bound: Bound) -> TimeUnit | None:
    match bound:
        case datetime():
            return TimeUnit.SECONDS
        case date():
            return TimeUnit.DAYS
    return None
