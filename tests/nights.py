"""A stream to work on: nights of files, a spec and a ledger; release them, or what they count."""

from __future__ import annotations

import hashlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from projects import KEY, LEDGER_ID, SALT

import dbern
from dbern.ledger import BudgetLedger
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit

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
    """A folder with a ledger that holds a grant, and files of nights; changes of the spec."""

    folder: Path
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'ledger.db'}"

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

    def fill(self, count: int, rows: int = 50) -> None:
        random = np.random.default_rng(5)
        for night in range(count):
            who = np.arange(rows + night) % (15 + night) if self.changes else None
            self.write(night, random.uniform(0, 10, rows + night), who=who)

    def spec(self, night: int, **changes: Mapping[str, Any]) -> ReleaseSpec:
        names = {*changes, *self.changes}
        merged = {name: {**self.changes.get(name, {}), **changes.get(name, {})} for name in names}
        return spec_of(self.folder, night, **merged)

    def release(self, night: int, **changes: Any) -> dbern.Release:
        return dbern.release(self.spec(night, **changes))

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

    for module in ("key_files", "wrapped_keys"):
        replace(f"dbern.ledger.{module}.new_key", lambda: KEY)
    replace("dbern.ledger.ledger.BudgetLedger.reserve", named(BudgetLedger.reserve))
    replace("dbern.ledger.ledger.BudgetLedger.charge", named(BudgetLedger.charge))
    replace(
        "dbern.ledger.statements.new_id",
        lambda: hashlib.sha256(current[0].encode()).hexdigest()[:32],
    )
    replace("dbern.ledger.statements.now", lambda: "2026-11-20T12:00:00+00:00")
    replace("dbern.ledger.statements.secrets", SimpleNamespace(token_bytes=lambda _count: SALT))


def killed(stream: Nights, night: int, at: int) -> int:
    """Release a night in a process that is killed at its at-th call of ours; return calls made."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        with os.fdopen(reader) as told:
            text = told.read()
        os.waitpid(child, 0)
        return int(text or 0)
    try:
        fixed(lambda where, value: _replace(where, value))
        calls = 0

        def count(frame, event, _argument):
            nonlocal calls
            if event == "call" and "/dbern/" in frame.f_code.co_filename:
                calls += 1
                if calls == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)
        stream.release(night)
        sys.setprofile(None)
        os.write(writer, str(calls).encode())
        os._exit(0)
    finally:
        os._exit(1)


def _replace(where: str, value: object) -> None:
    parts = where.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:-1]:
            owner = getattr(owner, part)
        setattr(owner, parts[-1], value)
        return
