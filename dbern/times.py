"""Dates and times as numbers: days or seconds since the beginning of 1970, UTC.

Only single IEEE operations on whole numbers of ticks, so a time is the same number on every host.
What has no time zone is taken as UTC, in a spec and in a file alike.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.errors import SpecError

Bound: TypeAlias = float | datetime | date

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86400
TICKS = {
    "D": Fraction(_DAY),
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}
"""Seconds of a tick, by numpy's and Arrow's name of it."""


class TimeUnit(enum.Enum):
    """What an axis of dates or times counts, in the words of the CF conventions."""

    DAYS = "days since 1970-01-01"
    SECONDS = "seconds since 1970-01-01"

    @property
    def seconds(self) -> int:
        """Of one unit."""
        return _DAY if self is TimeUnit.DAYS else 1

    def of(self, moment: date) -> float:
        """A date (its beginning) or a time as a number, correctly rounded.

        Examples
        --------
        >>> TimeUnit.DAYS.of(date(1970, 1, 3)), TimeUnit.SECONDS.of(datetime(1970, 1, 1, 1))
        (2.0, 3600.0)
        """
        if not isinstance(moment, datetime):
            moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) / timedelta(seconds=self.seconds)

    def of_ticks(self, ticks: Int64Array | FloatArray, tick: Fraction) -> FloatArray:
        """Ticks since 1970 as numbers (m,): one conversion and one division, or multiplication."""
        ratio = tick / self.seconds
        floats = np.asarray(ticks, dtype=np.float64)
        if ratio.numerator == 1:
            return floats / float(ratio.denominator)
        return floats * float(ratio)

    def of_datetimes(self, values: np.ndarray[Any, Any]) -> FloatArray:
        """An array of datetime64 as numbers, not-a-time as NaN.

        Examples
        --------
        >>> TimeUnit.DAYS.of_datetimes(np.array(["1970-01-02T12", "NaT"], "datetime64[ms]"))
        array([1.5, nan])
        """
        name, count = np.datetime_data(values.dtype)
        if name not in TICKS or count != 1:
            name = "ns" if name in ("ps", "fs", "as") else "s"
            values = values.astype(f"datetime64[{name}]")
        numbers = self.of_ticks(values.astype(np.int64), TICKS[name])
        return np.where(np.isnat(values), np.nan, numbers)

    def text(self, value: float) -> str:
        """A bound as a date or a time again.

        Examples
        --------
        >>> TimeUnit.DAYS.text(20454.0), TimeUnit.SECONDS.text(5400.0)
        ('2026-01-01', '1970-01-01T01:30:00Z')
        """
        moment = _EPOCH + timedelta(seconds=value * self.seconds)
        whole = self is TimeUnit.DAYS
        return moment.date().isoformat() if whole else f"{moment:%Y-%m-%dT%H:%M:%S}Z"


def moment_of(text: str) -> date:
    """A date or a time in ISO form.

    Raises
    ------
    ValueError
        For anything else.

    Examples
    --------
    >>> moment_of("2026-01-01"), moment_of("2026-01-01T12:30:00Z").isoformat()
    (datetime.date(2026, 1, 1), '2026-01-01T12:30:00+00:00')
    """
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)


def bounds_of(bounds: Sequence[Bound], key: str) -> tuple[float, float, TimeUnit | None]:
    """Two bounds as numbers, and their unit: days of two dates, seconds of two times.

    Raises
    ------
    SpecError
        Where they are of different kinds; `key` names them.

    Examples
    --------
    >>> bounds_of([date(1970, 1, 2), date(1970, 1, 3)], "data.bounds.day")
    (1.0, 2.0, <TimeUnit.DAYS: 'days since 1970-01-01'>)
    """
    low, high = bounds
    kinds = {_unit(low), _unit(high)}
    if len(kinds) > 1:
        raise SpecError(
            f"{key}: both bounds must be of one kind; write two numbers, two dates such as "
            "[2026-01-01, 2027-01-01] or two times such as "
            "[2026-01-01T00:00:00Z, 2026-01-02T00:00:00Z]"
        )
    (unit,) = kinds
    if isinstance(low, date) and isinstance(high, date) and unit is not None:
        return unit.of(low), unit.of(high), unit
    return float(low), float(high), None  # type: ignore[arg-type]  # numbers, both


def _unit(bound: Bound) -> TimeUnit | None:
    if isinstance(bound, datetime):
        return TimeUnit.SECONDS
    return TimeUnit.DAYS if isinstance(bound, date) else None
