"""What a release keeps outside its row while it is under way: its key and its staged center."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

from dbern.errors import DbernError
from dbern.ledger import refusals, rows
from dbern.ledger.backend import Backend
from dbern.ledger.epochs import writing
from dbern.ledger.runs import RunRecord
from dbern.ledger.staging import Staging, destroy_staging, sweep_staging
from dbern.ledger.values import LIVE, Reservation


class Remains:
    """The keys and the staging of one ledger; both die when their release is over."""

    def __init__(self, backend: Backend, ledger_id: str) -> None:
        self._backend = backend
        self._ledger_id = ledger_id

    def begin(self, connection: Connection, release_id: str) -> None:
        """Make the key of a release that is about to be reserved.

        It is there before its row, or with it: a crash leaves an orphan key at most, never a
        charge without one. The write lock held here keeps `sweep` from taking it for an orphan.

        Raises
        ------
        EnvironmentRefusedError
            When there is no place for key or staging; nothing is charged.
        """
        self._staging_root()
        self._backend.keys(connection).create(release_id)

    def key(self, reservation: Reservation) -> bytes:
        """The release key.

        Raises
        ------
        IntegrityError
            When it is missing or damaged.
        """
        with self._backend.read() as connection:
            key = self._backend.keys(connection).read(reservation.release_id)
            if key is None:
                raise self._keyless(connection, reservation)
        return key

    def staging(self, reservation: Reservation) -> Staging:
        """Where the exact center is staged."""
        return Staging(self._staging_root() / reservation.release_id, self.key(reservation))

    def run_record(self, release_id: str) -> RunRecord:
        """The private record of a release's runs, which outlives it."""
        runs = self._backend.runs(self._ledger_id)
        return RunRecord(None if runs is None else runs / f"{release_id}.jsonl")

    def sweep(self) -> None:
        """Remove keys, staging and locks of releases that are over.

        Reservation makes its key under the same write lock, so no new key can be swept.

        Raises
        ------
        EnvironmentRefusedError
            When one cannot be removed.
        """
        with writing(self._backend) as connection:
            live = rows.live_ids(connection)
            try:
                self._backend.keys(connection).sweep(live)
                staging = self._backend.staging(self._ledger_id)
                if staging is not None:
                    sweep_staging(staging, live)
                self._backend.sweep_locks(live)
            except OSError as error:
                raise refusals.not_swept(self._backend.url, error) from error

    def destroy(self, reservation: Reservation) -> None:
        """Remove key and staging of a release that is over.

        Under the write lock, so that no other process's sweep is at the same files.

        Raises
        ------
        ReleaseError
            When one cannot be removed.
        """
        with writing(self._backend) as connection:
            try:
                self._backend.keys(connection).destroy(reservation.release_id)
                staging = self._backend.staging(self._ledger_id)
                if staging is not None:
                    destroy_staging(staging / reservation.release_id)
            except OSError as error:
                raise refusals.not_destroyed(reservation, error) from error

    def _keyless(self, connection: Connection, reservation: Reservation) -> DbernError:
        found = rows.identified(connection, reservation.release_id)
        if found is None or found.state not in LIVE:
            return refusals.moved_on(found, reservation.state.value)
        where = self._backend.keys(connection).where
        return refusals.key_missing(self._backend.url, found, where)

    def _staging_root(self) -> Path:
        root = self._backend.staging(self._ledger_id)
        if root is None or not root.parent.is_dir():
            raise refusals.no_staging(root)
        return root
