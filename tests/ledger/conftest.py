from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from dbern.ledger import BudgetLedger, Published, Request, Reservation
from dbern.ledger.keys import KeyFiles
from dbern.privacy.budget import Budget


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


BACKENDS = [
    "sqlite",
    pytest.param("postgresql", marks=[pytest.mark.slow, pytest.mark.turns("PostgreSQL", 70)]),
]
"""Every `LedgerBackend`."""


@pytest.fixture(params=BACKENDS)
def database(request: pytest.FixtureRequest) -> str:
    """The same tests on all; a module about one of them has a fixture of this name."""
    return str(request.param)


@pytest.fixture
def empty_url(database: str, path: Path, request: pytest.FixtureRequest) -> str:
    """Where no ledger is yet."""
    return f"sqlite:///{path}" if database == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def url(empty_url: str) -> str:
    assert BudgetLedger.create(empty_url)
    return empty_url


@pytest.fixture
def execute(
    database: str, path: Path, empty_url: str, request: pytest.FixtureRequest
) -> Callable[[str], list[tuple[object, ...]]]:
    """Run a statement past the ledger, as whoever can reach the database could."""

    def on_sqlite(statement: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(statement).fetchall()

    def on_postgresql(statement: str) -> list[tuple[object, ...]]:
        server = request.getfixturevalue("server")
        return list(server.execute(statement, empty_url.rpartition("/")[2]))

    return on_sqlite if database == "sqlite" else on_postgresql


@pytest.fixture
def keys_held(url: str) -> Callable[[], set[str]]:
    """The releases that have a key, in whichever way the ledger keeps it."""
    from dbern.ledger.keys import wrapped
    from dbern.ledger.opening import backend_of

    def held() -> set[str]:
        backend = backend_of(url)
        with backend.read() as connection:
            keys = backend.keys(connection)
            if isinstance(keys, KeyFiles):
                return set(keys.held())
            return set(connection.scalars(select(wrapped.c.release_id)))

    return held


@pytest.fixture
def staged(url: str, ledger: BudgetLedger) -> Callable[[], list[str]]:
    """The releases that have a staging directory."""
    from dbern.ledger.opening import backend_of

    def names() -> list[str]:
        root = backend_of(url).staging(ledger.id)
        return sorted(path.name for path in root.iterdir()) if root and root.is_dir() else []

    return names


@pytest.fixture
def ledger(url: str) -> Iterator[BudgetLedger]:
    with BudgetLedger.open(url, busy_timeout=5) as opened:
        opened.grant("trips", Budget.parse("1.0"))
        yield opened


@pytest.fixture
def ask() -> Callable[..., Request]:
    """Build a request; keyword arguments replace its fields."""

    def build(name: str = "density", epsilon: str = "0.4", **fields: object) -> Request:
        standard: dict[str, object] = {
            "identity": {"bounds": {"x": [0.0, 1.0], "y": [0.0, 1.0]}, "k": 20},
            "inputs": {"n": 100, "files": [{"path": "a.parquet", "size": 10}]},
            "plan": {"k": 20, "h": 2},
            "output": "out.zarr",
        }
        return Request("trips", name, Budget.parse(epsilon), **{**standard, **fields})  # type: ignore[arg-type]

    return build


@pytest.fixture
def found(ledger: BudgetLedger) -> Callable[..., Published]:
    """Describe a synopsis as it would be found; keyword arguments replace its fields."""

    def build(release_id: str = "ab" * 16, name: str = "lost", **fields: object) -> Published:
        standard: dict[str, object] = {
            "release_id": release_id, "name": name, "charge": Budget.parse("0.25"), "rho": None,
            "neighbors": "replace-one", "unit": "row", "created": "2026-11-20T12:00:00+00:00",
            "output": f"{name}.zarr", "dataset": "trips", "ledger_id": ledger.id,
            "manifest_digest": "digest",
        }  # fmt: skip
        return Published(**{**standard, **fields})  # type: ignore[arg-type]

    return build


@pytest.fixture
def held(ledger: BudgetLedger, ask: Callable[..., Request]) -> Reservation:
    return ledger.reserve(ask())


@pytest.fixture
def advance(ledger: BudgetLedger) -> Callable[[Reservation, str], Reservation]:
    """Take a fresh reservation to a state."""

    def go(reservation: Reservation, state: str) -> Reservation:
        if state in ("reading", "spent", "committed", "abandoned"):
            reservation = ledger.begin_reading(reservation)
        if state in ("spent", "committed"):
            reservation = ledger.spend(reservation, bytes(32))
        if state == "committed":
            reservation = ledger.commit(reservation, "digest")
        if state in ("refunded", "abandoned"):
            reservation = ledger.abandon(reservation.dataset, reservation.name).reservation
        assert reservation.state == state
        return reservation

    return go


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Set the umask of this process until the test is over."""
    before = os.umask(0o077)
    os.umask(before)
    yield os.umask
    os.umask(before)


@pytest.fixture
def python() -> Callable[..., subprocess.Popen[str]]:
    """Start a Python process on a script."""

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start
