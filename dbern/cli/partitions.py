"""Partitions of a schedule that are due."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final

DAYS: Final = {"day": 1, "week": 7}
"""How long each kind of partition is."""


def due(every: str, last: int, today: date | None = None, since: date | None = None) -> list[str]:
    """Return the `last` complete partitions before `today`, the oldest first, none before `since`.

    A day is called by its date, a week by its Monday. Today's are not complete and not among them.
    """
    length = DAYS[every]
    end = today or datetime.now(UTC).date()
    if every == "week":
        end -= timedelta(days=end.weekday())
    begins = (end - timedelta(days=length * back) for back in range(last, 0, -1))
    return [str(day) for day in begins if since is None or day >= since]
