"""The budget ledger: grants, costs and states of releases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Self

from dbern.errors import (
    BudgetError,
    IntegrityError,
    SpecError,
)
from dbern.ledger import accounts, replay, restore_epochs, tables
from dbern.ledger.backend import LedgerBackend
from dbern.ledger.composition import BASIC, require_positive
from dbern.ledger.entries import (
    LIVE,
    PENDING,
    Abandoned,
    AuditLine,
    DatasetStatus,
    Published,
    Reconciled,
    Request,
    Reservation,
    State,
    StatedTerms,
)
from dbern.ledger.high_water_mark import Point
from dbern.ledger.opening import backend_of, migrate_ledger
from dbern.ledger.release_files import ReleaseSecrets
from dbern.ledger.restore_epochs import reconcile, write_transaction
from dbern.ledger.tables import ledger_id_of
from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit


class BudgetLedger:
    """The ledger of one database; open it with `open`.

    A release goes ``reserved -> reading -> spent -> committed``. Every step is one transaction
    that compares the state it leaves, so of two processes one takes it. The key (outside the
    database, or wrapped by a secret that is) and the staged center die when the release is over;
    whatever a crash leaves of them, the next opening removes.

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

    def __init__(self, backend: LedgerBackend, ledger_id: str) -> None:
        self._backend = backend
        self._secrets = secrets = ReleaseSecrets(backend, ledger_id)
        self.key, self.staging, self.spool = secrets.key, secrets.staging, secrets.spool
        self.run_record, self.sweep = secrets.run_record, secrets.sweep
        self.left_over = secrets.left_over
        self.id = ledger_id

    @classmethod
    def create(cls, url: str) -> bool:
        """Make a ledger; False when there is one already, which is left as it is.

        Raises
        ------
        SpecError
            When the URL holds a password or names a database that is not available.
        EnvironmentRefusedError
            When the file cannot be made, or holds something else.
        """
        backend = backend_of(url)
        try:
            created = backend.create()
            if created:
                with backend.read() as connection:
                    mark = backend.high_water_mark(ledger_id_of(connection))
                if mark is not None:
                    mark.advance(Point(1, 0))
            return created
        finally:
            backend.close()

    @classmethod
    def open(cls, url: str, *, read_only: bool = False, busy_timeout: float = 30.0) -> Self:
        """Open a ledger and remove what finished releases left: keys, staging, locks.

        Parameters
        ----------
        url : str
            ``sqlite:///relative/path.db``, ``sqlite:////absolute/path.db`` or
            ``postgresql+psycopg://user@host/database``.
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
        backend = backend_of(url, read_only=read_only, busy_timeout=busy_timeout)
        try:
            ledger = cls(backend, migrate_ledger(backend, busy_timeout))
            if not read_only:
                ledger.sweep()
        except BaseException:
            backend.close()
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
            ``"day"``, ``"week"``, ``"month"`` or ``"year"``, in UTC: it is whole again in each. A
            release counts in the period of its reservation.

        Raises
        ------
        BudgetError
            When the terms are not those of the first grant.
        SpecError
            When the amount is not above zero, or accountant, period or delta cannot be.
        """
        require_positive(budget)
        stated = StatedTerms(neighbors, unit, accountant, period)
        logged = self._refusals_logged(dataset, None, budget)
        with logged, write_transaction(self._backend) as connection:
            accounts.granted_terms(connection, dataset, stated)
            tables.add_grant(connection, dataset, budget)
            at = tables.charging_time(connection, dataset)
            return accounts.account(connection, self.url, dataset, at)

    def status(self, dataset: str | None = None) -> list[DatasetStatus]:
        """Return the account of one dataset, or of all.

        Raises
        ------
        BudgetError
            When `dataset` was never granted a budget.
        """
        with self._backend.read() as connection:
            names = tables.dataset_names(connection) if dataset is None else [dataset]
            return [
                accounts.account(connection, self.url, name, tables.charging_time(connection, name))
                for name in names
            ]

    def require_account(self, request: Request) -> None:
        """Refuse a new release that `reserve` would refuse, as far as that is known unplanned.

        A zcdp account needs the rho of the plan for a charge with a delta.

        Raises
        ------
        BudgetError
            When there is no grant on its terms, or the account cannot pay the charge.
        """
        logged = self._refusals_logged(request.dataset, request.name, request.charge)
        seen = restore_epochs.last_seen(self._backend, self.id)
        with logged, self._backend.read() as connection:
            restore_epochs.require_reconciled(connection, self._backend, seen)
            at = tables.charging_time(connection, request.dataset)
            status = accounts.account(connection, self.url, request.dataset, at, request)
            accounts.require_terms(status, request)
            if request.within is not None:
                accounts.require_paid(connection, request, self.url)
            elif status.accountant == BASIC or not request.charge.delta:
                accounts.require_cover(self.url, status, request)

    def reserve(self, request: Request) -> Reservation:
        """Reserve a charge, which `spend` makes final, or find the one that holds the name.

        Raises
        ------
        BudgetError
            When there is no grant, its terms differ, or the charge does not fit; or when the
            ledger was put back to an earlier state and not reconciled since.
        SpecError
            When the name belongs to another release, or to one that was abandoned.
        IntegrityError
            When the files changed after reading began.
        """
        if request.within is None:
            require_positive(request.charge, request.rho)
        content = tables.content_columns(request)
        logged = self._refusals_logged(request.dataset, request.name, request.charge)
        with logged, write_transaction(self._backend) as connection:
            existing = tables.named(connection, request.dataset, request.name)
            if existing is not None:
                accounts.require_same(existing, request, self.url)
            if existing is None or existing.state in PENDING:
                restore_epochs.require_reconciled(connection, self._backend)
            # One time decides in which period it is paid and in which it counts.
            at = tables.charging_time(connection, request.dataset)
            status = accounts.account(connection, self.url, request.dataset, at, request)
            accounts.require_terms(status, request)
            if existing is not None:
                return existing
            if request.within is None:
                accounts.require_cover(self.url, status, request)
            else:
                accounts.require_paid(connection, request, self.url)
            release_id = tables.new_id()
            self._secrets.begin(connection, release_id)
            return tables.add_release(connection, request, content, release_id, at)

    def charge(self, request: Request, note: str = "", *, under_way: bool = False) -> Reservation:
        """Charge at once and for good what another tool released, or a stream will.

        Releases do not call it: theirs are reserved first (`reserve`) and final with `spend`.

        The charge that holds the name is left as it is where it says the same. There is no output,
        and no key or staging unless it is `under_way`: then they are there until `commit` or
        `abandon`. A charge cannot be refunded. `note` says whose it is, where the request has no
        identity, as a stream's has; releases `within` it cost nothing.

        Raises
        ------
        BudgetError
            When there is no grant, its terms differ, or the charge does not fit; or when the
            ledger was put back to an earlier state and not reconciled since.
        SpecError
            When the amount is not above zero, or the name belongs to another release.
        """
        require_positive(request.charge, request.rho)
        rho = None if request.rho is None else str(request.rho)
        request = replace(request, identity=request.identity or {"note": note, "rho": rho})
        content = tables.content_columns(request)
        logged = self._refusals_logged(request.dataset, request.name, request.charge)
        with logged, write_transaction(self._backend) as connection:
            existing = tables.named(connection, request.dataset, request.name)
            if existing is not None:
                accounts.require_same(existing, request, self.url)
                return existing
            restore_epochs.require_reconciled(connection, self._backend)
            at = tables.charging_time(connection, request.dataset)
            status = accounts.account(connection, self.url, request.dataset, at, request)
            accounts.require_terms(status, request)
            accounts.require_cover(self.url, status, request)
            release_id, state = tables.new_id(), State.SPENT if under_way else State.COMMITTED
            if under_way:
                self._secrets.begin(connection, release_id)
            charged = tables.add_release(connection, request, content, release_id, at)
            change = {"state": state.value}
            tables.moved(connection, release_id, [State.RESERVED], change)
            whose = (request.dataset, request.name, release_id)
            tables.add_audit(connection, state.value, *whose, {"note": note})
            return replace(charged, state=state)

    def log(self, dataset: str | None = None) -> list[AuditLine]:
        """Return the audit log of one dataset or of all, the oldest line first; it only grows."""
        with self._backend.read() as connection:
            return tables.log(connection, dataset)

    def contradictions(self) -> list[str]:
        """Return what the log and the tables do not tell alike: what was changed past `dbern`."""
        with self._backend.read() as connection:
            return replay.contradictions(connection)

    def is_pending(self) -> bool:
        """Return whether spending is stopped until published releases are reconciled."""
        seen = restore_epochs.last_seen(self._backend, self.id)
        with self._backend.read() as connection:
            return restore_epochs.must_reconcile(connection, self._backend, seen)

    def declare_restored(self) -> None:
        """Block spending, because the database was restored to an earlier state."""
        with write_transaction(self._backend) as connection:
            restore_epochs.begin_epoch(connection, self._backend, "declared")

    def reconcile(self, published: Sequence[Published], *, more: bool = False) -> Reconciled:
        """Charge every published release that the ledger does not know, then let spending go on.

        Parameters
        ----------
        published : sequence of Published
            All that was ever published from this ledger; what is left out is never charged.
        more : bool
            There is more to come: spending stays stopped.

        Raises
        ------
        BudgetError
            When a release's dataset was never granted here, or on other terms.
        IntegrityError
            When a release's guarantee is not the one that the ledger charged; nothing changed.
        """
        with write_transaction(self._backend) as connection:
            restored = restore_epochs.must_reconcile(connection, self._backend)
            done = reconcile(connection, self.url, self.id, published, restored=restored)
            if not more:
                restore_epochs.end_epoch(connection)
        self.sweep()
        return done

    def find(self, dataset: str, name: str) -> Reservation | None:
        """Return the release that holds a name; None when it is free (a refund frees it)."""
        with self._backend.read() as connection:
            return tables.named(connection, dataset, name)

    def inputs(self, dataset: str) -> dict[str, dict[str, Any]]:
        """Return the inputs of every release of a dataset, by its name; of refunded ones none."""
        with self._backend.read() as connection:
            return tables.inputs(connection, dataset)

    def seals(self, dataset: str) -> dict[str, bytes]:
        """Return the seal of every release of a dataset that was sealed, by its name."""
        with self._backend.read() as connection:
            return tables.seals(connection, dataset)

    def begin_reading(self, reservation: Reservation) -> Reservation:
        """Record durably that the first record is about to be read: no refund from here on.

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

    def commit(self, reservation: Reservation, manifest_digest: str | None) -> Reservation:
        """Record the published manifest, which a charge has not, then destroy key and staging.

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
        self._secrets.destroy(committed)
        return committed

    def set_output(self, reservation: Reservation, output: str) -> Reservation:
        """Change the output of a release that is not over.

        Raises
        ------
        IntegrityError
            When it is over.
        """
        with write_transaction(self._backend) as connection:
            changed = tables.moved(connection, reservation.release_id, LIVE, {"output": output})
            return accounts.recorded(connection, reservation, changed, "open", "set-output")

    def abandon(self, dataset: str, name: str, release_id: str | None = None) -> Abandoned:
        """Give up a release, the one of `release_id`: refunded if no record was read, else charged.

        Raises
        ------
        SpecError
            When there is no such release, or it is committed or abandoned already.
        ReleaseError
            When it is abandoned and the key could not be removed; the next opening tries again.
        """
        with write_transaction(self._backend) as connection:
            reservation = tables.named(connection, dataset, name)
            meant = reservation is not None and release_id in (None, reservation.release_id)
            if reservation is None or not meant:
                raise SpecError(
                    f"dataset {dataset!r}: has no release {name!r} to abandon. List the names: "
                    "dbern ledger status"
                )
            if reservation.state not in LIVE:
                raise SpecError(
                    f"{reservation.title}: is {reservation.state.value} and its charge stands. "
                    "Leave it: nothing can be abandoned."
                )
            refunded = reservation.state is State.RESERVED
            after = State.REFUNDED if refunded else State.ABANDONED
            values = {"state": after.value}
            changed = tables.moved(connection, reservation.release_id, [reservation.state], values)
            given_up = accounts.recorded(
                connection, reservation, changed, reservation.state.value, after.value
            )
        self._secrets.destroy(given_up)
        return Abandoned(given_up, refunded)

    def lock(
        self, reservation: Reservation, wait: Callable[[], None] | None = None
    ) -> AbstractContextManager[None]:
        """Hold a release's lock, calling `wait` once if another process has it; then look again."""
        return self._backend.lock(reservation.release_id, wait)

    def require_lock(self) -> None:
        """Make sure, before something that is done once, that the lock is still this process's.

        Raises
        ------
        ReleaseError
            When it was lost with the connection to the database.
        """
        self._backend.require_lock()

    def close(self) -> None:
        """Close the connection to the database."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def _refusals_logged(self, dataset: str, name: str | None, amount: Budget) -> Iterator[None]:
        """Log a refusal of the transaction within, once that is rolled back."""
        try:
            yield
        except (BudgetError, SpecError, IntegrityError) as refusal:
            with write_transaction(self._backend) as connection:
                detail = {
                    **tables.amount_columns(amount), "kind": refusal.kind, "why": str(refusal),
                }  # fmt: skip
                tables.add_audit(connection, "refused", dataset, name, detail=detail)
            raise

    def _step(
        self, reservation: Reservation, before: State, after: State, **values: object
    ) -> Reservation:
        with write_transaction(self._backend) as connection:
            if after is not State.COMMITTED:
                restore_epochs.require_reconciled(connection, self._backend)
            change = {"state": after.value, **values}
            changed = tables.moved(connection, reservation.release_id, [before], change)
            return accounts.recorded(connection, reservation, changed, before.value, after.value)
