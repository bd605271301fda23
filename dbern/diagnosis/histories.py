"""Whether a ledger's clock ever went back: its log keeps the order of events beside their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from dbern.diagnosis.finding import SKEW_SECONDS, Finding
from dbern.ledger import AuditLine, DatasetStatus
from dbern.ledger.accounting import period_of

_MOST_SHOWN = 5


@dataclass(frozen=True)
class _Step:
    """An entry of the log, counted from 1, with a time before that of the entry above it."""

    entry: int
    before: str
    after: str

    @property
    def seconds(self) -> float:
        between = datetime.fromisoformat(self.before) - datetime.fromisoformat(self.after)
        return between.total_seconds()

    def __str__(self) -> str:
        return f"entry {self.entry} by {self.seconds:.0f} s ({self.before} to {self.after})"


def clock(log: Sequence[AuditLine], accounts: Sequence[DatasetStatus]) -> Finding:
    """Find every place of the log where time steps back, and the periods it could reopen.

    A budget by period is paid from in the period that the clock says. Clocks of several hosts
    differ a little: a short step that ends in the same periods is told, and is no warning.

    Parameters
    ----------
    log : sequence of AuditLine
        All of it, in the order of events.
    accounts : sequence of DatasetStatus
        Every account.
    """
    times = (line.at for line in log)
    steps = [_Step(entry, *pair) for entry, pair in enumerate(pairwise(times), 2) if _back(*pair)]
    if not steps:
        return Finding("ledger's clock", "good", f"never set back in {len(log)} log entries")
    longest = max(step.seconds for step in steps)
    again = list(dict.fromkeys(one for step in steps for one in _reopened(step, accounts)))
    told = f"set back at {len(steps)} places of the log"
    if not again and longest <= SKEW_SECONDS:
        found = f"{told}, by at most {longest:.0f} s, within the same periods"
        return Finding("ledger's clock", "good", found)
    periods = f"could be spent again: {_listed(again)}" if again else "no budget by period reopened"
    return Finding(
        "ledger's clock", "warn", f"{told}: {_listed([str(step) for step in steps])}; {periods}",
        "synchronize the clock; compare what dbern ledger status --log says of these periods with "
        "the grant",
    )  # fmt: skip


def _back(before: str, after: str) -> bool:
    return datetime.fromisoformat(after) < datetime.fromisoformat(before)


def _reopened(step: _Step, accounts: Sequence[DatasetStatus]) -> Iterator[str]:
    """Name the periods that were over before the step and could be paid from after it."""
    for account in accounts:
        kind = account.terms.period
        first, end = period_of(step.after, kind), period_of(step.before, kind)
        if first != end:
            yield f"each {kind} from {first} to before {end} of {account.dataset}"


def _listed(parts: Sequence[str]) -> str:
    rest = len(parts) - _MOST_SHOWN
    return ", ".join(parts[:_MOST_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
