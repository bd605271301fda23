"""A stream to work on: nights of files, a spec and a ledger; release them, or what they count."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from projects import KEY, LEDGER_ID, SALT

import dbern
from dbern.ledger import BudgetLedger
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit
from dbern.run.reconcile import reconcile

FIRST = date(2026, 1, 1)
SECTIONS: dict[str, dict[str, Any]] = {
    "release": {"name": "trips", "output": "out/trips"},
    "data": {
        "source": "data/{partition}/*.parquet",
        "bounds": {"x": [0.0, 10.0]},
        "neighbors": "add-or-remove-one",
        "normalizer": "100",
    },
    "target": {"kind": "kernel-density", "bandwidth": [1.0]},
    "mechanism": {"k": 20, "h": 4, "noise": "binned-laplace"},
    "budget": {"epsilon": "1.0", "ledger": "sqlite:///ledger.db", "dataset": "trips"},
    "stream": {"every": "day", "horizon": 8, "levels": [1, 3]},
}

PEOPLE: dict[str, dict[str, Any]] = {
    "data": {"unit": {"column": "who", "max_contributions": 2}},
    "stream": {"levels": [1], "max_nights": 3, "enforce": True},
}
"""Changes of these sections: of each person at most two rows a night, in at most three nights."""

RESERVED, COUNTED, SEALED, PUBLISHED = (
    "dbern.ledger.BudgetLedger.begin_reading",
    "dbern.ledger.BudgetLedger.spend",
    "dbern.run.stages.publish",
    "dbern.ledger.BudgetLedger.commit",
)
"""What a night calls once it has come so far."""


def sections(**changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sections of a stream with some keys of some changed; None removes a key."""
    content = {name: dict(keys) for name, keys in SECTIONS.items()}
    for name, keys in changes.items():
        content[name] |= keys
        content[name] = {key: value for key, value in content[name].items() if value is not None}
    return content


def spec_of(folder: Path | None = None, night: int | None = None, **changes: Any) -> ReleaseSpec:
    """The spec of a stream in a folder, to release a night of."""
    spec = ReleaseSpec(**sections(**changes))
    spec._base = folder or spec._base
    spec._partition = None if night is None else str(FIRST + timedelta(days=night))
    return spec


@dataclass(frozen=True)
class Nights:
    """A folder with files of nights, and a ledger that holds a grant; it and the output are there.

    Or in the database `ledger_url`, and at the URL `output_url`; `changes` are of the spec.
    """

    folder: Path
    ledger_url: str = ""
    output_url: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.ledger_url or f"sqlite:///{self.folder / 'ledger.db'}"

    @property
    def output(self) -> Path:
        return self.folder / "out" / "trips"

    def grant(self, epsilon: str = "1", **terms: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:  # synopses of twins carry it
            patch.setattr("dbern.ledger.tables._new_ledger_id", lambda: LEDGER_ID)
            BudgetLedger.create(self.url)
        with self.ledger() as ledger:
            terms = {"neighbors": Neighbors.ADD_OR_REMOVE_ONE} | terms
            if unit := self.changes.get("data", {}).get("unit"):
                terms["unit"] = PrivacyUnit(unit["column"], unit["max_contributions"])
            ledger.grant("trips", Budget.parse(epsilon), **terms)

    def ledger(self) -> BudgetLedger:
        return BudgetLedger.open(self.url)

    def write(self, night: int, x: Any, name: str = "a", who: Any = None) -> Path:
        path = self.folder / "data" / str(FIRST + timedelta(days=night)) / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = {"x": np.asarray(x, dtype=float)} | ({} if who is None else {"who": who})
        pq.write_table(pa.table(columns), path)
        return path

    def fill(self, count: int) -> None:
        random = np.random.default_rng(5)
        for night in range(count):
            who = np.arange(50 + night) % (15 + night) if self.changes else None
            self.write(night, random.uniform(0, 10, 50 + night), who=who)

    def release(self, night: int, **changes: Any) -> dbern.Release:
        return dbern.release(self.spec(night, **changes))

    def interrupt(self, night: int, until: str) -> None:
        """Release a night until something is called."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(until, Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                self.release(night)

    def spec(self, night: int | None, **changes: Any) -> ReleaseSpec:
        """Return the spec of the stream, to release a night of."""
        places = {
            "budget": {"ledger": self.ledger_url} if self.ledger_url else {},
            "release": {"output": self.output_url} if self.output_url else {},
        }
        every = (places, self.changes, changes)
        names = {name for sections in every for name in sections}
        merged = {
            name: {key: value for some in every for key, value in some.get(name, {}).items()}
            for name in names
        }
        return spec_of(self.folder, night, **merged)

    def put_back(self, backup: bytes, folder: str = "out") -> None:
        """Put an earlier ledger back, and reconcile it with what a folder holds."""
        (self.folder / "ledger.db").write_bytes(backup)
        with self.ledger() as ledger:
            ledger.declare_restored()
            reconcile(ledger, [self.folder / folder])

    def states(self) -> dict[str, str]:
        with self.ledger() as ledger:
            return {row.name: str(row.state) for row in ledger.status("trips")[0].releases}

    def spent(self) -> str:
        with self.ledger() as ledger:
            return str(ledger.status("trips")[0].used)


def fixed(replace: Callable[..., None]) -> None:
    """Make all that a release draws a function of its name, by `replace` as `setattr` of pytest."""
    current = [""]

    def named(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, request: Any, **terms: Any) -> Any:
            current[0] = request.name
            return original(self, request, **terms)

        return call

    replace("dbern.ledger.keys.new_key", lambda: KEY)
    replace("dbern.ledger.ledger.BudgetLedger.reserve", named(BudgetLedger.reserve))
    replace("dbern.ledger.ledger.BudgetLedger.charge", named(BudgetLedger.charge))
    replace(
        "dbern.ledger.tables.new_id",
        lambda: hashlib.sha256(current[0].encode()).hexdigest()[:32],
    )
    replace("dbern.ledger.tables.now", lambda: "2026-11-20T12:00:00+00:00")
    replace("dbern.ledger.tables.secrets", SimpleNamespace(token_bytes=lambda _count: SALT))
