"""Files of a release outside its row, while it is under way: key, staging, run record."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from sqlalchemy import Connection

from dbern.data.drafts import open_descriptor, private_directory
from dbern.errors import EnvironmentRefusedError, IntegrityError, ReleaseError
from dbern.ledger import accounts, tables
from dbern.ledger.backend import STAGING, LedgerBackend
from dbern.ledger.entries import LIVE, Reservation, State
from dbern.ledger.restore_epochs import write_transaction
from dbern.ledger.spool import Spool
from dbern.ledger.staging import Staging, dead_staging, destroy_staging, sweep_staging
from dbern.privacy.keystream import subkey


@dataclass(frozen=True)
class RunRecord:
    """One 0600 file of JSON lines for each release, in a 0700 directory beside the ledger.

    Durations can depend on records: they are written here, and elsewhere only where an operator
    asks for it. The file is as private as the records are. A record that cannot be written stops
    no release.
    """

    path: Path | None
    """None where this process was told no place for what is private."""

    def add(self, **fields: str | float) -> None:
        """Append a line with these facts and the time."""
        if self.path is None:
            return
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields})
        with suppress(OSError, EnvironmentRefusedError):
            private_directory(self.path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            with open_descriptor(self.path, flags, 0o600) as descriptor:
                os.write(descriptor, f"{line}\n".encode())


class ReleaseSecrets:
    """Keys and staging of one ledger's releases; both are destroyed when their release is over."""

    def __init__(self, backend: LedgerBackend, ledger_id: str) -> None:
        self._backend = backend
        self._ledger_id = ledger_id

    def begin(self, connection: Connection, release_id: str) -> None:
        """Make the key of a release that is about to be reserved.

        It is there before its row, or with it: a crash leaves an orphan key at most, never a
        charge without one. The write lock held here keeps `sweep` from taking it for an orphan.

        Raises EnvironmentRefusedError where key or staging cannot be kept; then nothing is charged.
        """
        self._staging_root()
        self._backend.keys(connection).create(release_id)

    def key(self, reservation: Reservation) -> bytes:
        """Return the release key, which never leaves the releasing process.

        Raises IntegrityError for a key that is missing or damaged: the release can only be
        abandoned.
        """
        with self._backend.read() as connection:
            key = self._backend.keys(connection).read(reservation.release_id)
            if key is None:
                self._refuse_keyless(connection, reservation)
        return key

    def staging(self, reservation: Reservation) -> Staging:
        """Return the staging of the exact center.

        Raises IntegrityError for a missing key, ReleaseError for a directory that cannot be made,
        and EnvironmentRefusedError where no place for it is known.
        """
        return Staging(self._staging_root() / reservation.release_id, self.key(reservation))

    def spool(self, reservation: Reservation) -> Spool:
        """Return where the rows of a data frame are kept, encrypted; refuses as `staging` does."""
        directory = self._staging_root() / f"{reservation.release_id}.spool"
        return Spool(directory, subkey(self.key(reservation), "spool"))

    def run_record(self, release_id: str) -> RunRecord:
        """Return the private record of a release's runs, which outlives it."""
        runs = self._backend.runs(self._ledger_id)
        return RunRecord(None if runs is None else runs / f"{release_id}.jsonl")

    def sweep(self) -> None:
        """Remove keys, staging and locks of releases that are over.

        Reservation makes its key under the same write lock, so no new key can be swept.
        """
        with write_transaction(self._backend) as connection:
            live = tables.live_ids(connection)
            try:
                self._backend.keys(connection).sweep(live)
                staging = self._backend.staging(self._ledger_id)
                if staging is not None:
                    sweep_staging(staging, live)
                self._backend.sweep_locks(live)
            except OSError as error:
                raise EnvironmentRefusedError(
                    f"ledger: what a finished release left beside {self._backend.url} cannot be "
                    f"removed: {error.strerror}. Make {error.filename} writable."
                ) from error

    def left_over(self) -> int:
        """Count staging folders that belong to no release under way; the next sweep removes them.

        Raises EnvironmentRefusedError for a folder that cannot be read.
        """
        root = self._backend.staging(self._ledger_id)
        with self._backend.read() as connection:
            live = tables.live_ids(connection)
        try:
            return 0 if root is None else len(dead_staging(root, live))
        except OSError as error:
            raise EnvironmentRefusedError(
                f"ledger: its staging {root} cannot be read ({error.strerror}). Make it readable "
                "for this user."
            ) from error

    def destroy(self, reservation: Reservation) -> None:
        """Remove key and staging of a release that is over.

        Under the write lock, so that no other process's sweep is at the same files.
        """
        with write_transaction(self._backend) as connection:
            try:
                self._backend.keys(connection).destroy(reservation.release_id)
                staging = self._backend.staging(self._ledger_id)
                if staging is not None:
                    destroy_staging(staging / reservation.release_id)
                    destroy_staging(staging / f"{reservation.release_id}.spool")
            except OSError as error:
                raise ReleaseError(
                    f"{reservation.title}: is {reservation.state.value}, but its key or staged "
                    f"center cannot be removed: {error.strerror} ({error.filename}). Make it "
                    "removable. The next command that opens the ledger removes it."
                ) from error

    def _refuse_keyless(self, connection: Connection, reservation: Reservation) -> NoReturn:
        current = tables.identified(connection, reservation.release_id)
        if current is None or current.state not in LIVE:
            raise accounts.moved_on(current, reservation.state.value)
        fate = "is refunded" if current.state is State.RESERVED else "stands"
        raise IntegrityError(
            f"{current.title}: its key is missing from {self._backend.keys(connection).where}, so "
            f"it can never be finished. Give it up (its charge {fate}): "
            f"{current.abandon_command(self._backend.url)}"
        )

    def _staging_root(self) -> Path:
        root = self._backend.staging(self._ledger_id)
        if root is None or not root.parent.is_dir():
            what = "is not set" if root is None else f"names {root.parent}, which is no directory"
            raise EnvironmentRefusedError(
                f"{STAGING}: {what}. Under a PostgreSQL ledger a release keeps its encrypted "
                "center there until it is published. Set it to a directory on a disk that every "
                "process which may go on with the release shares, never where synopses are "
                "published."
            )
        return root
