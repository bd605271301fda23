"""Which partitions are due: complete days or weeks, in UTC, named as Dagster names them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final

DAYS: Final = {"day": 1, "week": 7}
"""How long each kind of partition is."""


def due(every: str, last: int, today: date | None = None, since: date | None = None) -> list[str]:
    """The `last` complete partitions before `today`, the oldest first, none before `since`.

    A day is called by its date, a week by its Monday. Today's are not complete and not among them.

    Examples
    --------
    >>> due("day", 3, date(2026, 11, 20))
    ['2026-11-17', '2026-11-18', '2026-11-19']
    >>> due("week", 2, date(2026, 11, 20)), due("week", 1, date(2026, 11, 23))
    (['2026-11-02', '2026-11-09'], ['2026-11-16'])
    >>> due("day", 7, date(2026, 11, 20), since=date(2026, 11, 19))
    ['2026-11-19']
    """
    length = DAYS[every]
    end = today or datetime.now(UTC).date()
    if every == "week":
        end -= timedelta(days=end.weekday())
    begins = (end - timedelta(days=length * back) for back in range(last, 0, -1))
    return [str(day) for day in begins if since is None or day >= since]
