"""A tiny release to work on: files, spec and ledger; and how to look at what became of it."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    import dbern
    from dbern.ledger import BudgetLedger, Reservation
    from dbern.ledger.high_water_mark import Point
    from dbern.planning.spec import ReleaseSpec

KEY = bytes(range(32))
SALT = bytes(range(100, 132))
RELEASE_ID = "0123456789abcdef" * 2
LEDGER_ID = "fedcba9876543210" * 2
CREATED = "2026-11-20T12:00:00+00:00"

_SPEC: dict[str, dict[str, Any]] = {
    "release": {"name": "density", "output": "out.zarr"},
    "data": {"source": "data/*.parquet"},
    "data.bounds": {"x": [0.0, 10.0], "y": [-1.0, 1.0]},
    "target": {"kind": "kernel-density", "bandwidth": [2.0, 0.4]},
    "mechanism": {"k": 6, "h": 2, "noise": "laplace"},
    "budget": {"epsilon": "1.0", "ledger": "sqlite:///ledger.db", "dataset": "trips"},
}


@dataclass(frozen=True)
class Project:
    """A folder with Parquet files, a spec and a ledger that holds a grant of epsilon 3."""

    folder: Path
    shared: str = ""  # the URL of a ledger elsewhere

    @property
    def spec_path(self) -> Path:
        return self.folder / "release.toml"

    @property
    def output(self) -> Path:
        return self.folder / "out.zarr"

    @property
    def ledger_path(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def url(self) -> str:
        return self.shared or f"sqlite:///{self.ledger_path}"

    def ledger(self) -> BudgetLedger:
        from dbern.ledger import BudgetLedger

        return BudgetLedger.open(self.url)

    def grant(self, epsilon: str = "3.0", **terms: Any) -> None:
        from dbern.ledger import tables
        from dbern.ledger.high_water_mark import HighWaterMark

        beside = self.ledger_path.with_name("ledger.db.mark")
        if self.shared or self.ledger_path.exists() or beside.exists():
            self._grant(epsilon, **terms)
            return
        content, point = _granted(epsilon, tables.now, **terms)
        self.ledger_path.write_bytes(content)
        self.ledger_path.chmod(0o600)
        file = self.ledger_path.resolve()
        HighWaterMark(beside, LEDGER_ID, required=True, file=file).advance(point)

    def _grant(self, epsilon: str, **terms: Any) -> None:
        from dbern.ledger import BudgetLedger
        from dbern.privacy.budget import Budget

        with pytest.MonkeyPatch.context() as patch:  # synopses of twins carry it
            patch.setattr("dbern.ledger.tables._new_ledger_id", lambda: LEDGER_ID)
            BudgetLedger.create(self.url)
        with self.ledger() as ledger:
            ledger.grant("trips", Budget.parse(epsilon), **terms)

    def write(
        self, columns: Mapping[str, Any], files: int = 3, row_group_size: int = 50, **options: Any
    ) -> None:
        """Split the columns into files, replacing those that are there."""
        folder = self.folder / "data"
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        table = pa.table({name: pa.array(values) for name, values in columns.items()})
        edges = np.linspace(0, len(table), files + 1).astype(int)
        for number, (start, stop) in enumerate(itertools.pairwise(edges)):
            part = table.slice(start, stop - start)
            path = folder / f"part-{number}.parquet"
            pq.write_table(part, path, row_group_size=row_group_size, **options)

    def files(self) -> list[Path]:
        return sorted((self.folder / "data").iterdir())

    def spec(self, **changes: Mapping[str, Any]) -> ReleaseSpec:
        """Write the standard spec with some keys of some sections changed, and load it.

        A double underscore in a section's name is its dot; a value None removes the key.
        """
        from dbern.planning.spec import ReleaseSpec

        sections = {name: dict(keys) for name, keys in _SPEC.items()}
        if self.shared:
            sections["budget"]["ledger"] = self.shared
        for name, keys in changes.items():
            sections.setdefault(name.replace("__", "."), {}).update(keys)
        lines = []
        for name, keys in sections.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {json.dumps(v)}" for key, v in keys.items() if v is not None]
        self.spec_path.write_text("\n".join(lines) + "\n")
        if "{partition}" in self.spec_path.read_text():
            return None  # type: ignore[return-value]
        return ReleaseSpec.load(self.spec_path)

    def local(self, spec: ReleaseSpec) -> ReleaseSpec:
        """Point a spec at this project's files, output and ledger."""
        return spec.changed(
            {
                "release": {"output": str(self.output)},
                "data": {"source": str(self.folder / "data")},
                "budget": {"ledger": self.url, "dataset": "trips"},
            }
        )

    def reservation(self) -> Reservation:
        with self.ledger() as ledger:
            found = ledger.find("trips", "density")
        assert found is not None
        return found

    def spent(self) -> str:
        """What the account has spent and reserved, as one text."""
        with self.ledger() as ledger:
            (status,) = ledger.status("trips")
        return f"{status.spent}, {status.reserved} reserved"

    def remains(self) -> list[str]:
        """Keys and staging that are still beside the ledger."""
        folders = [self.ledger_path.with_name(f"ledger.db.{kind}") for kind in ("keys", "staging")]
        return sorted(str(p) for folder in folders if folder.exists() for p in folder.iterdir())

    def twin(self, name: str) -> Project:
        """Another folder beside this one with the same files, spec and grant."""
        other = Project(self.folder / name)
        (other.folder / "data").mkdir(parents=True)
        for path in self.files():
            (other.folder / "data" / path.name).write_bytes(path.read_bytes())
        other.spec_path.write_text(self.spec_path.read_text())
        other.grant()
        return other


@lru_cache(maxsize=32)
def _granted(epsilon: str, _now: Callable[[], str], **terms: Any) -> tuple[bytes, Point]:
    """A ledger's file with a grant, made once, and where its high-water mark is."""
    from dbern.ledger.high_water_mark import HighWaterMark

    with TemporaryDirectory() as folder:
        made = Project(Path(folder).resolve())
        made._grant(epsilon, **terms)
        mark = HighWaterMark(made.folder / "ledger.db.mark", LEDGER_ID, required=True)
        point = mark.latest()
        assert point is not None
        return made.ledger_path.read_bytes(), point


def records(rows: int = 240, seed: int = 7) -> dict[str, Any]:
    """Two axes and other columns, with nulls, NaN, infinities, edges and out-of-bounds values."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(0, 10, rows).tolist()
    y = generator.normal(0, 0.4, rows).tolist()
    x[0], x[1], x[2], x[3], x[4] = None, float("nan"), float("inf"), -5.0, 10.0
    y[5], y[6], y[7], y[8] = None, float("-inf"), 1.0, -1.0
    return {"x": x, "y": y, "note": [f"private-{i}" for i in range(rows)]}


SOLVED: dict[str, dict[str, Any]] = {
    "target": {
        "kind": "kernel-erm", "loss": "logistic", "bandwidth": None,
        "length_scale": [3.0, 0.6], "C": 5.0, "shards": 3,
    },
    "data__label": {"column": "late", "classes": [False, True]},
}  # fmt: skip
"""Sections of a release that a solver finds, of `labelled` records."""


def labelled() -> dict[str, Any]:
    """The records, with a label."""
    columns = records()
    return {**columns, "late": [value is not None and value > 4 for value in columns["x"]]}


def released_in(
    folder: Path, client: Any, columns: Mapping[str, Any], epsilon: str = "3.0", **changes: Any
) -> dbern.Synopsis:
    """The synopsis of these columns, by the standard spec with some keys changed."""
    import dbern

    project = Project(folder)
    project.write(columns)
    project.grant(epsilon)
    return dbern.release(project.spec(**changes), client=client).synopsis


def objects(store: Path) -> dict[str, bytes]:
    """Every file of a store by its relative path."""
    found = (path for path in store.rglob("*") if path.is_file())
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in found}


def fix_reservations(setattr_: Callable[[str, Any], None]) -> None:
    setattr_("dbern.ledger.keys.new_key", lambda: KEY)
    setattr_("dbern.ledger.tables.new_id", lambda: RELEASE_ID)
    setattr_("dbern.ledger.tables.now", lambda: CREATED)
    setattr_("dbern.ledger.tables.secrets", SimpleNamespace(token_bytes=lambda _count: SALT))


class Draws:
    """Keys and salts that look random, and are the same for the same test each time.

    They are drawn for whoever is at work: a test, or a fixture that several tests share.
    """

    def __init__(self) -> None:
        self._place, self._numbers = "", itertools.count()

    @contextmanager
    def of(self, place: str) -> Iterator[None]:
        """What is drawn within is drawn for that place, from its first draw on."""
        before = self._place, self._numbers
        self._place, self._numbers = place, itertools.count()
        try:
            yield
        finally:
            self._place, self._numbers = before

    def __call__(self, _count: int = 32) -> bytes:
        return hashlib.sha256(f"{self._place} {next(self._numbers)}".encode()).digest()

    def replace(self, setattr_: Callable[[str, Any], None]) -> None:
        setattr_("dbern.ledger.keys.new_key", self)
        setattr_("dbern.ledger.tables.secrets", SimpleNamespace(token_bytes=self))


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def refused(self, code: int, *words: str) -> None:
        """Assert that it ended with this code, without a result, and said this in any lines."""
        message = " ".join(self.err.split())
        assert (self.code, self.out) == (code, ""), self
        for said in words:
            assert said in message, self
