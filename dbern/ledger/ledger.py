"""The budget ledger: what was granted, what each release cost, and how far each has come."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from dbern.errors import DbernError
from dbern.ledger import accounts, refusals, rows
from dbern.ledger.backend import Backend, backend_of, check_installed
from dbern.ledger.identity import Comparison, compared
from dbern.ledger.staging import Staging, destroy_staging, sweep_staging
from dbern.ledger.values import (
    LIVE,
    Abandoned,
    AuditLine,
    DatasetStatus,
    Request,
    Reservation,
    State,
    require_positive,
)
from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit


class BudgetLedger:
    """The ledger of one database; open it with `open`.

    A release goes ``reserved -> reading -> spent -> committed``. Every step is one transaction
    that compares the state it leaves, so of two processes one takes it. The key and the staged
    center live outside the database and die when the release is over; whatever a crash leaves of
    them, the next opening removes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     url = f"sqlite:///{folder}/ledger.db"
    ...     created = BudgetLedger.create(url)
    ...     with BudgetLedger.open(url) as ledger:
    ...         account = ledger.grant("trips", Budget.parse("1.0"))
    ...         held = ledger.reserve(Request("trips", "density", Budget.parse("0.3")))
    ...         held = ledger.begin_reading(held)
    ...         held = ledger.spend(held, ledger.staging(held).seal())
    ...         held = ledger.commit(held, manifest_digest="sha256:...")
    ...         print(held.state, ledger.status("trips")[0].remaining)
    committed epsilon 0.7
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @classmethod
    def create(cls, url: str, *, busy_timeout: float = 30.0) -> bool:
        """Make a ledger; False when there is one already, which is left as it is.

        Raises
        ------
        SpecError
            When the URL holds a password or names a database that is not available.
        EnvironmentRefusedError
            When the file cannot be made, or holds something else.
        """
        backend = backend_of(url, busy_timeout=busy_timeout)
        try:
            return backend.create()
        finally:
            backend.close()

    @classmethod
    def open(cls, url: str, *, read_only: bool = False, busy_timeout: float = 30.0) -> Self:
        """Open a ledger and remove what finished releases left: keys, staging, locks.

        Parameters
        ----------
        url : str
            ``sqlite:///relative/path.db`` or ``sqlite:////absolute/path.db``.
        read_only : bool
            To look only: nothing is swept and every change is refused.
        busy_timeout : float
            Seconds to wait for another process's transaction.

        Raises
        ------
        SpecError
            When the URL holds a password or names a database that is not available.
        EnvironmentRefusedError
            When there is no ledger, or it cannot be read, written or unlocked in time.
        """
        ledger = cls(backend_of(url, read_only=read_only, busy_timeout=busy_timeout))
        try:
            check_installed(ledger._backend, busy_timeout)
            if not read_only:
                ledger.sweep()
        except BaseException:
            ledger.close()
            raise
        return ledger

    @property
    def url(self) -> str:
        """The ledger's absolute URL."""
        return self._backend.url

    def grant(
        self,
        dataset: str,
        budget: Budget,
        *,
        neighbors: Neighbors | None = None,
        unit: PrivacyUnit | None = None,
        accountant: str | None = None,
        period: str | None = None,
    ) -> DatasetStatus:
        """Add budget to a dataset; the first grant fixes its terms, later ones may leave them out.

        Parameters
        ----------
        accountant : str, optional
            ``"basic"`` (the default) or ``"zcdp"``.
        period : str, optional
            ``"day"``, ``"week"`` or ``"month"``, in UTC: the budget is whole again in each. A
            release counts in the period of its reservation.

        Raises
        ------
        BudgetError
            When the terms are not those of the first grant.
        SpecError
            When the amount is not above zero, or accountant, period or delta cannot be.
        """
        require_positive(budget)
        detail = rows.amount_columns(budget)
        logged = accounts.refusals_logged(self._backend, dataset, None, detail)
        with logged, self._backend.write() as connection:
            accounts.granted_terms(connection, dataset, neighbors, unit, accountant, period)
            rows.add_grant(connection, dataset, budget)
            return self._account(connection, dataset)

    def status(self, dataset: str | None = None) -> list[DatasetStatus]:
        """The account of one dataset, or of all.

        Raises
        ------
        BudgetError
            When `dataset` was never granted a budget.
        """
        with self._backend.read() as connection:
            names = rows.dataset_names(connection) if dataset is None else [dataset]
            return [self._account(connection, name) for name in names]

    def reserve(self, request: Request) -> Reservation:
        """Charge a new release, or find the one that holds the name: its stored plan goes on.

        Raises
        ------
        BudgetError
            When there is no grant, its terms differ, or the charge does not fit.
        SpecError
            When the name belongs to another release, or to one that was abandoned.
        IntegrityError
            When the files changed after reading began.
        """
        require_positive(request.charge, request.rho)
        detail = rows.amount_columns(request.charge)
        logged = accounts.refusals_logged(self._backend, request.dataset, request.name, detail)
        with logged, self._backend.write() as connection:
            found = rows.named(connection, request.dataset, request.name)
            if found is not None and (
                refusal := refusals.unlike(self.url, compared(found, request))
            ):
                raise refusal
            at = rows.now()  # one time decides in which period it is paid and in which it counts
            status = self._account(connection, request.dataset, at, request.charge)
            accounts.require_terms(status, request)
            return found or self._new_release(connection, status, request, at)

    def log(self, dataset: str | None = None) -> list[AuditLine]:
        """The audit log, which only grows: of one dataset, or all of it, oldest line first."""
        with self._backend.read() as connection:
            return rows.log(connection, dataset)

    def find(self, dataset: str, name: str) -> Reservation | None:
        """The release that holds a name; None when it is free (a refund frees it)."""
        with self._backend.read() as connection:
            return rows.named(connection, dataset, name)

    def compare(self, request: Request) -> Comparison | None:
        """What differs between a request and the release that holds its name; changes nothing."""
        found = self.find(request.dataset, request.name)
        return None if found is None else compared(found, request)

    def begin_reading(self, reservation: Reservation) -> Reservation:
        """Record, durably, that the first record is about to be read: no refund from here on.

        Raises
        ------
        IntegrityError
            When the release is not `reserved` any more.
        """
        return self._step(reservation, State.RESERVED, State.READING)

    def spend(self, reservation: Reservation, seal: bytes) -> Reservation:
        """Charge for good, for the center of this seal; noise may be drawn afterwards.

        Raises
        ------
        IntegrityError
            When the release is not `reading` any more.
        """
        return self._step(reservation, State.READING, State.SPENT, seal=seal)

    def commit(self, reservation: Reservation, manifest_digest: str) -> Reservation:
        """Record the published manifest, then destroy key and staging.

        Raises
        ------
        IntegrityError
            When the release is not `spent` any more.
        ReleaseError
            When it is committed and the key could not be removed; the next opening tries again.
        """
        committed = self._step(
            reservation, State.SPENT, State.COMMITTED, manifest_digest=manifest_digest
        )
        self._destroy(committed)
        return committed

    def set_output(self, reservation: Reservation, output: str) -> Reservation:
        """Send the synopsis elsewhere, while the release is not over.

        Raises
        ------
        IntegrityError
            When it is over.
        """
        with self._backend.write() as connection:
            changed = rows.moved(connection, reservation.release_id, LIVE, {"output": output})
            return _recorded(connection, reservation, changed, "open", "set-output")

    def abandon(self, dataset: str, name: str, release_id: str | None = None) -> Abandoned:
        """Give a release (that very one) up: refunded if no record was read, else charged.

        Raises
        ------
        SpecError
            When there is no such release, or it is committed or abandoned already.
        ReleaseError
            When it is abandoned and the key could not be removed; the next opening tries again.
        """
        with self._backend.write() as connection:
            found = rows.named(connection, dataset, name)
            meant = found is not None and release_id in (None, found.release_id)
            if found is None or found.state not in LIVE or not meant:
                raise refusals.not_abandonable(dataset, name, found if meant else None)
            refunded = found.state is State.RESERVED
            after = State.REFUNDED if refunded else State.ABANDONED
            values = {"state": after.value}
            changed = rows.moved(connection, found.release_id, [found.state], values)
            given_up = _recorded(connection, found, changed, found.state.value, after.value)
        self._destroy(given_up)
        return Abandoned(given_up, refunded)

    def key(self, reservation: Reservation) -> bytes:
        """The release key; it never leaves the releasing process.

        Raises
        ------
        IntegrityError
            When it is missing or damaged: the release can only be abandoned.
        """
        key = self._backend.keys.read(reservation.release_id)
        if key is None:
            raise self._keyless(reservation)
        return key

    def staging(self, reservation: Reservation) -> Staging:
        """Where the release's exact center is staged.

        Raises
        ------
        IntegrityError
            When the key is missing.
        ReleaseError
            When the directory cannot be made.
        """
        return Staging(self._staging_path(reservation), self.key(reservation))

    def lock(
        self, reservation: Reservation, wait: Callable[[], None] | None = None
    ) -> AbstractContextManager[None]:
        """Work on a release alone; look at its state again once inside.

        Parameters
        ----------
        wait : callable, optional
            Called once if another process works on it and this one has to wait.
        """
        return self._backend.lock(reservation.release_id, wait)

    def sweep(self) -> None:
        """Remove the keys, staging and locks of releases that are over.

        Reservation makes its key under the same write lock, so no new key can be swept.

        Raises
        ------
        EnvironmentRefusedError
            When one cannot be removed.
        """
        with self._backend.write() as connection:
            live = rows.live_ids(connection)
            try:
                self._backend.keys.sweep(live)
                sweep_staging(self._backend.staging, live)
                self._backend.sweep_locks(live)
            except OSError as error:
                raise refusals.not_swept(self.url, error) from error

    def close(self) -> None:
        """Let go of the database."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _account(
        self,
        connection: Connection,
        dataset: str,
        at: str | None = None,
        charge: Budget | None = None,
    ) -> DatasetStatus:
        return accounts.account(connection, self.url, dataset, at or rows.now(), charge)

    def _new_release(
        self, connection: Connection, status: DatasetStatus, request: Request, at: str
    ) -> Reservation:
        accounts.require_cover(self.url, status, request)
        release_id = rows.new_id()
        # The key is on the disk before its row: a crash leaves an orphan key, never a charge
        # without one. The write lock held here keeps `sweep` from taking it for an orphan.
        self._backend.keys.create(release_id)
        return rows.add_release(connection, request, release_id, at)

    def _step(
        self, reservation: Reservation, before: State, after: State, **values: object
    ) -> Reservation:
        with self._backend.write() as connection:
            change = {"state": after.value, **values}
            changed = rows.moved(connection, reservation.release_id, [before], change)
            return _recorded(connection, reservation, changed, before.value, after.value)

    def _destroy(self, reservation: Reservation) -> None:
        # Under the write lock, so that no other process's sweep is at the same files.
        with self._backend.write():
            try:
                self._backend.keys.destroy(reservation.release_id)
                destroy_staging(self._staging_path(reservation))
            except OSError as error:
                raise refusals.not_destroyed(reservation, error) from error

    def _keyless(self, reservation: Reservation) -> DbernError:
        with self._backend.read() as connection:
            found = rows.identified(connection, reservation.release_id)
        if found is None or found.state not in LIVE:
            return refusals.moved_on(found, reservation.state.value)
        return refusals.key_missing(self.url, found, str(self._backend.keys.directory))

    def _staging_path(self, reservation: Reservation) -> Path:
        return self._backend.staging / reservation.release_id


def _recorded(
    connection: Connection, reservation: Reservation, changed: bool, wanted: str, event: str
) -> Reservation:
    """The release after a compare-and-set, with its audit line; a refusal if it did not match."""
    found = rows.identified(connection, reservation.release_id)
    if found is None or not changed:
        raise refusals.moved_on(found, wanted)
    rows.add_audit(connection, event, found.dataset, found.name, found.release_id)
    return found
