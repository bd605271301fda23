"""Log of a run of a release: public facts in log lines, durations in the private record.

Log lines carry the release's id and follow from the spec and the files' row groups alone, so they
are the same for every dataset of that shape: progress is logged by the share of the work that is
done, never by the clock, and no line holds a duration or a time. Durations are in the private run
record, and in OpenTelemetry's spans where ``DBERN_SPANS=private`` asks for them.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from dbern.errors import optional_import
from dbern.ledger import BudgetLedger, Reservation
from dbern.system import Progress, version

LOGGER = logging.getLogger("dbern.release")


class Journal:
    """Log of one run of a release: durations go to its record, public facts to log lines.

    `planning` is the seconds that it took to plan and reserve.
    """

    def __init__(
        self, ledger: BudgetLedger, reservation: Reservation, progress: Progress, planning: float
    ) -> None:
        self._record = record = ledger.run_record(reservation.release_id)
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

    def say(self, event: str, **values: str | int) -> None:
        """Log public facts."""
        shown = " ".join(str(fact) for fact in values.values())
        fields = {**self._whose, "event": event, **values}
        LOGGER.info("%s %s: %s", fields["release_id"], event, shown, extra={"release": fields})

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Log that a stage begins and is done; how long it took is for the run record alone."""
        self.say("begin", stage=name)
        started, ended = time.monotonic(), "stopped"
        try:
            with _span(name, self._whose):
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


def _span(name: str, whose: dict[str, str]) -> AbstractContextManager[object]:
    """Span of OpenTelemetry, where it is installed and asked for: a duration is private."""
    if os.environ.get("DBERN_SPANS") != "private":
        return nullcontext()
    with optional_import(
        "DBERN_SPANS: needs OpenTelemetry. Install opentelemetry-sdk, or unset it."
    ):
        from opentelemetry import trace
    return trace.get_tracer("dbern").start_as_current_span(  # type: ignore[no-any-return] # untyped
        name, attributes=whose, record_exception=False, set_status_on_exception=False
    )


def logged_by(handler: logging.Handler, *, here: bool) -> None:
    """Let this handler alone log the release's events, and its cluster's client's if not `here`."""
    if not here:
        import distributed  # noqa: F401 -- it gives its loggers handlers of their own when imported

    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.split(".")[0] in ("distributed", "tornado"):
            logger.handlers.clear()
            logger.propagate = True
    logging.root.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
