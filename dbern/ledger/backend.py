"""Protocols of a ledger's database and keys, which `sqlite` and `postgres` satisfy."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection

from dbern.errors import unreadable_refused
from dbern.ledger.high_water_mark import HighWaterMark

STAGING = "DBERN_LEDGER_STAGING"
"""Variable that names the folder of staged centers, where the database has no folder beside it."""


def damage_refused(url: str) -> AbstractContextManager[None]:
    """Refuse what a database holds that no ledger writes, where no check names it."""
    mend = "Restore it from a backup; where nobody changed it"
    return unreadable_refused(f"The ledger {url}", mend)


class ReleaseKeys(Protocol):
    """The keys of one ledger's releases, which no backup of its database may hold in the clear."""

    @property
    def where(self) -> str:
        """Location of the keys, for messages."""

    def create(self, release_id: str) -> None:
        """Draw a key and keep it, durably with its reservation or before."""

    def read(self, release_id: str) -> bytes | None:
        """Return the key, or None when there is none."""

    def destroy(self, release_id: str) -> None:
        """Remove a key; one that is gone already is no error."""

    def sweep(self, live: Collection[str]) -> None:
        """Destroy the key of every release that is not among `live`."""


class LedgerBackend(Protocol):
    """One database with its keys, its staging and its locks.

    Every failure of the database leaves these methods as a `DbernError` that says what to do.
    """

    @property
    def url(self) -> str:
        """The ledger's absolute URL."""

    @property
    def path(self) -> Path | None:
        """The database's file; None where it is none of this machine."""

    def exists(self) -> bool:
        """Return whether there may be a ledger; what cannot be looked at fails when it is used."""

    def create(self) -> bool:
        """Make the tables; return False where there is a ledger already, which is left as it is."""

    def write(self) -> AbstractContextManager[Connection]:
        """Begin a transaction whose write lock comes before any read."""

    def read(self) -> AbstractContextManager[Connection]:
        """Begin a transaction that reads one consistent state and holds up no other reader."""

    def lock(
        self, release_id: str, wait: Callable[[], None] | None
    ) -> AbstractContextManager[None]:
        """Hold a release's lock, which dies with the process; call `wait` before waiting for it."""

    def require_lock(self) -> None:
        """Refuse to go on when the lock that this process held is lost."""

    def sweep_locks(self, live: set[str]) -> None:
        """Remove what locks of releases that are over left behind."""

    def keys(self, connection: Connection) -> ReleaseKeys:
        """Return the release keys, to be looked at and changed in this transaction."""

    def staging(self, ledger_id: str) -> Path | None:
        """Return the directory of staged centers; None where none is known."""

    def runs(self, ledger_id: str) -> Path | None:
        """Return the directory of run records; None where none is known."""

    def high_water_mark(self, ledger_id: str) -> HighWaterMark | None:
        """Return the mark that a backup of the database forgets; None where none can be."""

    def home(self, connection: Connection) -> str:
        """Return where the database says that it lives, another text after it was restored."""

    def close(self) -> None:
        """Close the connections."""
