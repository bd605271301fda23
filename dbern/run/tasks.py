"""Tasks that workers run, importable and never raising, and the failures that they may say.

Tasks return codes instead of raising, because the scheduler logs a failing task's arguments and
ships exception text.
"""

from __future__ import annotations

import builtins
import hashlib
import hmac
import platform
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dbern.data.footers import Footer, UnreadableFileError
from dbern.errors import (
    DbernError,
    EnvironmentRefusedError,
    IntegrityError,
    ReleaseError,
    ShortageError,
    SpecError,
    shortage_of,
)
from dbern.measure.accumulator import StoppedError
from dbern.measure.counters import Counters, Portion, Reading, TableReading
from dbern.privacy.mechanism import to_grid
from dbern.privacy.noise_law import NoiseLaw
from dbern.reconstruct.base import Slab
from dbern.run.messages import TaskResult, location_text, pack
from dbern.system import one_thread, version
from dbern.types import Int64Array

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
    "versions": lambda _location: EnvironmentRefusedError(
        "A worker that joined later runs another Python, or other versions of packages. Install "
        "what is here, and run the same command again."
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


def known_location(outcome: TaskResult, files: Sequence[Footer]) -> str:
    """Location where a task failed, if this release has it: a worker may write a record."""
    location = outcome.location
    known = PUBLIC_LOCATIONS | {location_text(file.path) for file in files}
    return location if location in known else "a place that is unknown here"


@dataclass(frozen=True)
class SlabJob:
    """One slab of one output of one component: what a task rounds to the grid."""

    part: int
    output: int
    slab: Slab


def environment(packages: Collection[str]) -> dict[str, str]:
    """Return the versions that must agree between the releasing process and the workers."""
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _is_as_required(counters: Counters) -> bool:
    required = dict(counters.versions)
    try:
        return not required or environment(required.keys() - {"python"}) == required
    except Exception:  # noqa: BLE001 -- a worker that lacks one or cannot tell its version
        return False


def count_portions(
    counters: Counters, portions: Sequence[Portion], salt: bytes, index: int = 0
) -> TaskResult:
    """Add up the records of some portions, or one pass over all; rows count in the first."""
    return _counted(Reading(portions, counters, salt), counters, salt, index)


def count_table(counters: Counters, salt: bytes, table: Any) -> TaskResult:
    """Add up the records of a partition of a Dask frame, where it is."""
    return _counted(TableReading(table, counters), counters, salt)


def _counted(
    reading: Reading | TableReading, counters: Counters, salt: bytes, index: int = 0
) -> TaskResult:
    if not _is_as_required(counters):
        return TaskResult(None, failure="versions")
    try:
        with one_thread():
            state = counters.count(reading, salt, index)
    except ShortageError as error:
        return TaskResult(None, failure=error.what, location=reading.location)
    except (UnreadableFileError, EnvironmentRefusedError):  # a worker may lack obstore
        return TaskResult(None, failure="unreadable", location=reading.location)
    except StoppedError as stopped:
        return TaskResult(None, failure=stopped.failure, location=stopped.location)
    except SpecError:  # of a partition, for a spec was checked
        return TaskResult(None, failure="partition")
    except BaseException as error:  # noqa: BLE001 -- its text may hold values: only its kind leaves
        return _failed(error, reading.location)
    return TaskResult(state, reading.rows if index == 0 else 0)


def merge(outcomes: Sequence[TaskResult]) -> TaskResult:
    """Add up partial sums; the first failure wins."""
    total: Int64Array | None = None
    try:
        for outcome in outcomes:
            if outcome.state is None:
                return outcome
            total = outcome.state.copy() if total is None else np.add(total, outcome.state, total)
    except Exception as error:  # noqa: BLE001 -- its text may hold values: only its kind leaves
        return _failed(error)
    return TaskResult(total, sum(outcome.rows for outcome in outcomes))


def center(
    total: TaskResult, counters: Counters, job: SlabJob, noise: NoiseLaw, salt: bytes
) -> TaskResult:
    """Return the values of one slab, rounded to the noise's grid, as integers."""
    if total.state is None:
        return total
    if not _is_as_required(counters):
        return TaskResult(None, failure="versions")
    try:
        with one_thread():
            granules = to_grid(
                counters.to_values(total.state, job.part, job.output, job.slab), noise
            )
            # A private, keyed fingerprint of the sums, for the releasing process to compare.
            sums = np.ascontiguousarray(total.state).tobytes()
            origin = hmac.new(salt, sums, hashlib.sha256).hexdigest()
    except Exception as error:  # noqa: BLE001 -- its text may hold values: only its kind leaves
        return _failed(error)
    return TaskResult(granules, total.rows, origin=origin)


def sent(
    total: TaskResult, counters: Counters, job: SlabJob, noise: NoiseLaw, salt: bytes
) -> bytes:
    """Return `center` as bytes, the only result that leaves the cluster; nobody unpickles it."""
    try:
        return pack(center(total, counters, job, noise, salt))
    except Exception as error:  # noqa: BLE001 -- its text may hold values: only its kind leaves
        return pack(_failed(error))


def _failed(error: BaseException, location: str = "") -> TaskResult:
    """Code of a failure: too little of something, or one that nobody foresaw."""
    if shortage := shortage_of(error):
        return TaskResult(None, failure=shortage.what, location=location)
    return TaskResult(None, failure="internal", location=kind_of(error))
