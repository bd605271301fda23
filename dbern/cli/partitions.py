"""Partitions of a schedule that are due."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final

from dbern.errors import SpecError

DAYS: Final = {"day": 1, "week": 7}
"""How long each kind of partition is."""

MOST_PARTITIONS: Final = 3660
"""The most that are looked back on: ten years of days, as long as the longest stream."""


def due(every: str, last: int, today: date | None = None, since: date | None = None) -> list[str]:
    """Return the `last` complete partitions before `today`, the oldest first, none before `since`.

    A day is called by its date, a week by its Monday. Today's are not complete and not among them.

    Raises SpecError for more than `MOST_PARTITIONS`, and for some before the year 1.
    """
    length, end = DAYS[every], today or datetime.now(UTC).date()
    days = end.weekday() if every == "week" else 0
    if last > MOST_PARTITIONS or length * last + days >= end.toordinal():
        raise SpecError(
            f"{every}: the last {last} before {end} are more than {MOST_PARTITIONS}, or begin "
            "before the year 1. Look back on fewer, such as 7"
        )
    end -= timedelta(days=days)
    begins = (end - timedelta(days=length * back) for back in range(last, 0, -1))
    return [str(day) for day in begins if since is None or day >= since]
