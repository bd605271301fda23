"""Failures of tasks: codes that workers may say, and the errors that they become here."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dbern.cluster.plain import TaskResult, printed
from dbern.data.footers import FileFacts
from dbern.errors import (
    DbernError,
    EnvironmentRefusedError,
    IntegrityError,
    ReleaseError,
    ShortageError,
)

if TYPE_CHECKING:
    from distributed import Client as Client


NOT_KNOWN = "a failure that is unknown here"

PUBLIC_LOCATIONS = {
    *("", NOT_KNOWN, "target.function", "target.kernel", "target.loss"),
    *(name for name, kind in vars(builtins).items() if type(kind) is type),
}
"""Locations besides files: keys of a spec whose code a worker runs, and kinds of exceptions."""

FAILURES: dict[str, Callable[[str], DbernError]] = {
    "unreadable": lambda location: ReleaseError(
        f"{location} cannot be read as Parquet. Restore that file, or the workers' access to it "
        "(s3:// needs dbern[s3] and credentials there), and run the same command again."
    ),
    "changed": lambda location: IntegrityError(
        f"{location} changed since the reservation. Restore it and run the same command again."
    ),
    "stopped": lambda location: ReleaseError(
        f'{location}: failed on these records, and on_failure = "stop": nothing is published and '
        "the charge stands. Abandon it (dbern ledger abandon), mend the function, and choose a new "
        "release.name."
    ),
    "unlike": lambda location: EnvironmentRefusedError(
        f"{location}: a worker cannot import it, or has another text of its module than this "
        "process. Install the same on all workers, or start them with PYTHONPATH set to a folder "
        "that holds the same, and run the same command again."
    ),
    "partition": lambda _location: ReleaseError(
        "data: a partition has other columns or types than the frame says, or cannot be read. "
        "Convert it (frame.astype), and run the same command again."
    ),
    "internal": lambda location: ReleaseError(
        f"A task failed ({location}). Run the same command again, and report it if it fails again."
    ),
    **{what: partial(ShortageError, what) for what in ("memory", "files", "threads")},
}


def kind_of(error: BaseException, known: Collection[str] = PUBLIC_LOCATIONS) -> str:
    """Name of one of Python's exceptions: names of others, like texts, may hold values."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in known)


def known_location(outcome: TaskResult, files: Sequence[FileFacts]) -> str:
    """Location where a task failed, if this release has it: a worker may write a record."""
    location = outcome.location
    ours = location in PUBLIC_LOCATIONS or any(printed(file.path) == location for file in files)
    return location if ours else "a place that is unknown here"
