"""What a run of a release says of itself: public facts in the log, durations in its run record.

Log lines carry the release's id and follow from the spec and the files' row groups alone, so they
are the same for every dataset of that shape: progress is logged by the share of the work that is
done, never by the clock, and no line holds a duration or a time.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from dbern.ledger import Reservation
from dbern.ledger.runs import RunRecord
from dbern.progress import Progress

LOGGER = logging.getLogger("dbern.release")


class Journal:
    """Tells of one run of a release.

    Parameters
    ----------
    record : RunRecord
        Where durations go.
    reservation : Reservation
        Whose id, name and dataset are on every line.
    progress : callable
        Whom else to tell of progress.
    planning : float
        Seconds that it took to plan and reserve.
    """

    def __init__(
        self, record: RunRecord, reservation: Reservation, progress: Progress, planning: float
    ) -> None:
        self._record = record
        self._whose = {
            "release_id": reservation.release_id,
            "release": reservation.name,
            "dataset": reservation.dataset,
        }
        self._tell = progress
        self._shares: dict[str, int] = {}
        record.add(event="run", dbern=version("dbern"), host=platform.node(), process=os.getpid())
        record.add(event="done", stage="planning and reserving", seconds=round(planning, 6))
        self.say("run", state=reservation.state.value)

    def say(self, event: str, **facts: str | int) -> None:
        """Log public facts."""
        shown = " ".join(str(fact) for fact in facts.values())
        fields = {**self._whose, "event": event, **facts}
        LOGGER.info("%s %s: %s", fields["release_id"], event, shown, extra={"release": fields})

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Log that a stage begins and is done; how long it took is for the run record alone."""
        self.say("begin", stage=name)
        started, ended = time.monotonic(), "stopped"
        try:
            yield
            ended = "done"
        finally:
            seconds = round(time.monotonic() - started, 6)
            self._record.add(event=ended, stage=name, seconds=seconds)
        self.say("done", stage=name)

    def progress(self, stage: str, done: int, total: int) -> None:
        """Pass progress on, and log each new percent of it."""
        self._tell(stage, done, total)
        share = 100 * done // max(total, 1)
        if share > self._shares.get(stage, -1):
            self._shares[stage] = share
            self.say("progress", stage=stage, done=done, total=total)


def logged_by(handler: logging.Handler) -> None:
    """Let this handler alone log what the release and its cluster's client say."""
    import distributed  # noqa: F401 -- it gives its loggers handlers of their own when imported

    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.split(".")[0] in ("distributed", "tornado"):
            logger.handlers.clear()
            logger.propagate = True
    logging.root.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
