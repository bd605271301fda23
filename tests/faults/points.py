"""Where the fault suite strikes; how often each place is passed, an undisturbed release says."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

LEDGER, WRITER = "dbern.ledger.ledger:BudgetLedger", "dbern.synopsis.writer:SynopsisWriter"
STAGING, RELEASING = "dbern.ledger.staging:Staging", "dbern.run.stages"
COUNTING = "dbern.run.counting"
SECRETS = "dbern.ledger.release_files:ReleaseSecrets"

# Every call that one stage of a release makes of another, in about the order of its story.
STAGES = (
    *(f"{LEDGER}.{name}" for name in ("find", "reserve", "lock", "begin_reading")),
    f"{SECRETS}.staging",
    "dbern.ledger.keys:KeyFiles.create",
    *(f"{RELEASING}:{name}" for name in ("footers", "plan_files")),
    "dbern.run.workers:DaskWorkers.check_memory",
    *(f"{COUNTING}:{name}" for name in ("make_tasks", "tree_reduce", "centers")),
    f"{RELEASING}:publish",
    *(f"{STAGING}.{name}" for name in ("clear", "put", "seal", "verify", "get")),
    "dbern.data.drafts:write_new",
    *(f"{LEDGER}.{name}" for name in ("spend", "require_lock", "commit")),
    f"{SECRETS}.key",
    *(f"{WRITER}.{name}" for name in ("begin", "write", "finish", "published", "is_begun")),
    "dbern.synopsis.writer:_create_component",
    "dbern.run.publish:privatize",
    *("dbern.synopsis.writer:_create_manifest", "pathlib:Path.rename", "os:link"),
    *(f"{SECRETS}.destroy", "dbern.ledger.keys:KeyFiles.destroy"),
    "dbern.ledger.release_files:destroy_staging",
)
# And those of a release from a data frame, besides.
SPOOLING = (
    f"{SECRETS}.spool", f"{COUNTING}:write_spool", "dbern.data.frames:_groups",
    "pathlib:Path.rename", f"{COUNTING}:unlocked", f"{COUNTING}:read_footer",
    f"{LEDGER}.begin_reading", f"{COUNTING}:tree_reduce", f"{LEDGER}.spend", f"{LEDGER}.commit",
    "dbern.ledger.keys:KeyFiles.destroy", "dbern.ledger.release_files:destroy_staging",
    "dbern.ledger.spool:destroy_staging", "dbern.ledger.staging:destroy_staging", "shutil:rmtree",
)  # fmt: skip
SYNCED = "os:fsync"
STATEMENT = "sqlalchemy.engine.default:DefaultDialect.do_execute"
TRANSACTION = "sqlalchemy.engine.default:DefaultDialect.do_commit"
STORE_WRITE, STORE_READ = "dbern.data.storage:_write", "dbern.data.storage:Folder.read"

PLACES = [*STAGES, SYNCED, STATEMENT, TRANSACTION, STORE_WRITE, STORE_READ]

PLACES_OF_FRAMES = [*SPOOLING, SYNCED]

Fault = tuple[str, int, str, str]


def at(calls: dict[str, int], place: str, when: str, *what: str) -> Iterator[Fault]:
    """Each call of a place; several faults take turns."""
    turns = itertools.cycle(what)
    for call in range(1, calls[place] + 1):
        yield place, call, when, next(turns)


def kills(calls: dict[str, int]) -> list[Fault]:
    """Before and after every call of every stage and every transaction, and before every sync."""
    places = (*STAGES, TRANSACTION)
    found = [one for place in places for when in ("before", "after")
             for one in at(calls, place, when, "kill")]  # fmt: skip
    return [*found, *at(calls, SYNCED, "before", "kill")]


def full_disks(calls: dict[str, int]) -> list[Fault]:
    """A write that was taken and cannot be kept, one that is refused, and a name too many."""
    places = (SYNCED, STORE_WRITE, "os:link")
    return [one for place in places for one in at(calls, place, "before", "full")]


def failing_stores(calls: dict[str, int]) -> list[Fault]:
    return [
        *at(calls, STORE_WRITE, "before", "broken"),
        *at(calls, STORE_READ, "before", "broken"),
    ]


def stalls(calls: dict[str, int]) -> list[Fault]:
    return [*at(calls, STORE_WRITE, "before", "stall")]


def failing_statements(calls: dict[str, int]) -> list[Fault]:
    return [
        *at(calls, STATEMENT, "before", "locked", "failing"),
        *at(calls, TRANSACTION, "before", "failing", "locked"),
        *at(calls, TRANSACTION, "after", "failing"),
    ]


def disconnections(calls: dict[str, int]) -> list[Fault]:
    return [
        *at(calls, STATEMENT, "before", "disconnect"),
        *at(calls, TRANSACTION, "before", "disconnect"),
        *at(calls, TRANSACTION, "after", "disconnect"),
    ]


def moments(count: int, seed: int) -> list[float]:
    """Shares of an undisturbed release's time."""
    generator = random.Random(seed)
    return [generator.random() for _ in range(count)]
