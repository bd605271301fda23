"""Make the releases of all cases with the `dbern` that is imported, and take down what they make.

Nothing in here names a module or a function of the package but what its users may use: what is
drawn, keyed and encrypted is seen at the standard library and at `cryptography`, by who calls. So
the package may be laid out anew while this file stays as it is.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import numpy as np

from goldens.cases import Case, cases, points, write

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
FAILURE = "failure"
"""The artefact of a case that failed, in place of all others."""

_KEY_BYTES = 32
_SEALED = "dbern"  # whose draws are fixed: callers in this package


class CrashError(BaseException):
    """A process that ends."""


@dataclass
class Seen:
    """What one case drew, keyed and encrypted so far."""

    case: str = ""
    draws: dict[str, int] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    keyed: dict[bytes, None] = field(default_factory=dict)
    staged: dict[bytes, bytes] = field(default_factory=dict)
    crash: Callable[[str], None] = field(default=lambda _where: None)

    def begin(self, case: str) -> None:
        """Forget all, and draw for this case from its first draw on."""
        self.__dict__.update(vars(Seen(case)))

    def draw(self, kind: str, count: int) -> bytes:
        """The next draw of this kind: a function of the case and of how many came before."""
        index = self.draws.get(kind, 0)
        self.draws[kind] = index + 1
        text = f"{self.case} {kind} {index}".encode()
        return hashlib.shake_256(text).digest(count)


SEEN = Seen()


def _of_dbern() -> bool:
    name = sys._getframe(2).f_globals.get("__name__", "")
    return name.partition(".")[0] == _SEALED


def intercept() -> None:
    """Fix draws, ids and times, and watch keyed digests and encryption; before `dbern` comes in."""
    from cryptography.hazmat.primitives.ciphers import aead

    if _SEALED in sys.modules:
        raise RuntimeError("dbern was imported before its draws could be fixed")
    token_bytes, uuid4, new = secrets.token_bytes, uuid.uuid4, hmac.new
    cipher = aead.AESGCM

    def drawn(count: int | None = None) -> bytes:
        if not _of_dbern() or count is None:
            return token_bytes(count)
        made = SEEN.draw(f"bytes {count}", count)
        if count == _KEY_BYTES:
            SEEN.keys.append(made)
        return made

    def named() -> uuid.UUID:
        return uuid.UUID(bytes=SEEN.draw("id", 16), version=4) if _of_dbern() else uuid4()

    def keyed(key: bytes, msg: Any = None, digestmod: Any = "") -> hmac.HMAC:
        if _of_dbern() and key in SEEN.keys and msg is not None:
            SEEN.keyed.setdefault(bytes(msg))
        return new(key, msg, digestmod)

    class Watched:
        def __init__(self, key: bytes) -> None:
            self._cipher = cipher(key)

        def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes:
            SEEN.crash("staging")
            SEEN.staged[bytes(associated_data or b"")] = bytes(data)
            return self._cipher.encrypt(nonce, data, associated_data)

        def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes:
            SEEN.crash("opening")
            return self._cipher.decrypt(nonce, data, associated_data)

    secrets.token_bytes, uuid.uuid4, hmac.new = drawn, named, keyed
    aead.AESGCM = Watched  # type: ignore[misc, assignment]
    _fix_clock()


def _fix_clock() -> None:
    """The ledger's clock: `datetime` as its modules see it."""
    import dbern

    for module in walk_packages(dbern.__path__, "dbern."):
        if not module.name.endswith("__main__"):
            import_module(module.name)

    class OfDatetime(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class Fixed(datetime, metaclass=OfDatetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return NOW.astimezone(tz)

    found = [
        module
        for name, module in sys.modules.items()
        if name.startswith("dbern.ledger") and getattr(module, "datetime", None) is datetime
    ]
    if not found:
        raise RuntimeError("no module of dbern.ledger takes the time from datetime: mend the clock")
    for module in found:
        module.datetime = Fixed  # type: ignore[attr-defined]


def _crash(kind: str, blocks: int) -> Callable[[str], None]:
    """Stop at the first block staged, at the first one sealed, or at the last one released."""
    seen = {"staging": 0, "opening": 0}
    wanted = {"staging": ("staging", 1), "sealing": ("opening", 1),
              "publishing": ("opening", 3 * blocks)}[kind]  # fmt: skip

    def crash(where: str) -> None:
        seen[where] += 1
        if (where, seen[where]) == wanted:
            raise CrashError

    return crash


@dataclass(frozen=True)
class Recorder:
    """Releases below one folder."""

    folder: Path
    client: Any

    def record(self, name: str, case: Case) -> dict[str, bytes]:
        """Everything that the release of a case makes, by name."""
        import dbern

        SEEN.begin(name)
        label = name.replace("/", "-")
        spec_path, ledger = self.folder / f"{label}.toml", self.folder / f"{label}.db"
        spec_path.write_text(case.toml(ledger.name, f"{label}.zarr"))
        spec = dbern.ReleaseSpec.load(spec_path)
        plan = dbern.plan(spec)
        grant(case, f"sqlite:///{ledger}")
        if case.crash:
            self._stopped(spec, case)
        released = dbern.release(spec, client=self.client)
        found = {"plan": _json(plan.to_dict())}
        if dbern.ReleasePlan.from_dict(json.loads(found["plan"])) != plan:
            raise RuntimeError(f"{name}: its plan is another one after JSON")
        found |= self._integers()
        for path in sorted(Path(released.url).rglob("*")):
            if path.is_file():
                found[f"store/{path.relative_to(released.url).as_posix()}"] = path.read_bytes()
        found["ledger"] = self._rows(ledger)
        found |= _answers(released.synopsis)
        if case.shell:
            found |= self._printed(spec_path, Path(released.url))
        return found

    def _stopped(self, spec: Any, case: Case) -> None:
        import dbern

        SEEN.crash = _crash(case.crash, blocks=1)
        try:
            dbern.release(spec, client=self.client)
        except CrashError:
            pass
        else:
            raise RuntimeError(f"the release went on over the point {case.crash}")
        SEEN.crash = lambda _where: None

    def _integers(self) -> dict[str, bytes]:
        """Exact sums, known by the keyed digest taken of them, and the staged integers."""
        # The other keyed digests are those of footers, which end as Parquet files do.
        states = [one for one in SEEN.keyed if not one.endswith(b"PAR1")]
        if len(states) != 1:
            raise RuntimeError(f"{SEEN.case}: {len(states)} states were keyed, not one")
        found = {"state": states[0]}
        for place, content in SEEN.staged.items():
            length = int.from_bytes(place[:4], "big")
            array, block = place[4 : 4 + length].decode(), int.from_bytes(place[-8:], "big")
            found[f"staged/{array}/{block}"] = content
        return found

    def _rows(self, path: Path) -> bytes:
        """All rows of all tables; where the database lies and when it was changed apart."""
        with sqlite3.connect(path) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            found = {}
            for (table,) in sorted(tables):
                cursor = connection.execute(f"SELECT * FROM {table}")
                names = [column[0] for column in cursor.description]
                rows = [dict(zip(names, row, strict=True)) for row in cursor]
                found[table] = [row for row in rows if row.get("key") not in {"home"}]
        connection.close()
        text = _json(found).decode()
        return text.replace(str(self.folder), "FOLDER").encode()

    def _printed(self, spec: Path, store: Path) -> dict[str, bytes]:
        """What the command line says in JSON; its sentences may change."""
        found = {}
        for command, arguments in {"plan": [str(spec)], "show": [str(store)]}.items():
            ran = subprocess.run(
                [sys.executable, "-m", "dbern", command, *arguments, "--json"],
                capture_output=True, text=True, check=True, cwd=self.folder, timeout=120,
            )  # fmt: skip
            text = _json(json.loads(ran.stdout)).decode()
            found[f"printed/{command}"] = text.replace(str(self.folder), "FOLDER").encode()
        return found


def grant(case: Case, url: str) -> None:
    """Create a ledger with the grant that a case needs."""
    import dbern

    terms = dict(case.grant)
    if "neighbors" in terms:
        terms["neighbors"] = dbern.Neighbors(terms["neighbors"])
    if "unit" in terms:
        terms["unit"] = dbern.PrivacyUnit(*terms["unit"])
    dbern.BudgetLedger.create(url)
    with dbern.BudgetLedger.open(url) as ledger:
        ledger.grant("trips", dbern.Budget.parse("3", "1e-5"), **terms)


def _answers(synopsis: Any) -> dict[str, bytes]:
    """Values at points, their bounds, and the public facts."""
    axes = [(axis.low, axis.high) for axis in synopsis.domain.axes]
    where = points(axes)
    found = {"metadata": _json(synopsis.metadata)}
    values = np.ascontiguousarray(synopsis(where), dtype=np.float64)
    found["answers/values"] = values.tobytes()
    low, high = synopsis.interval(where)
    found["answers/interval"] = np.ascontiguousarray([low, high], dtype=np.float64).tobytes()
    return found


def _json(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, indent=1, default=_plain).encode()


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)


def require_tree(tree: str | None) -> None:
    """Raise RuntimeError where the `dbern` that is imported is not that of a checkout."""
    import dbern

    if tree and not Path(str(dbern.__file__)).resolve().is_relative_to(tree):
        raise RuntimeError(f"dbern is that of {dbern.__file__}, not that of {tree}")


@contextmanager
def client() -> Iterator[Any]:
    """One worker of one thread in this process."""
    import dask
    from distributed import Client, LocalCluster

    memory = "distributed.worker.memory"
    kept = {f"{memory}.target": False, f"{memory}.spill": False, f"{memory}.pause": False}
    kept |= {"distributed.scheduler.worker-ttl": None}
    with (
        dask.config.set(kept),
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as local,
        Client(local) as connected,
    ):
        yield connected


def record(
    folder: Path, chosen: Sequence[str], tree: str | None = None
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield each case of the chosen names with its artefacts, or its failure.

    Raises
    ------
    RuntimeError
        Where `dbern` is not that of the `tree`, or what is to be fixed cannot be.
    """
    intercept()
    require_tree(tree)
    write(folder / "data")
    with client() as connected:
        recorder = Recorder(folder, connected)
        every = cases()
        for name in chosen:
            try:
                yield name, recorder.record(name, every[name])
            except Exception as error:  # noqa: BLE001 -- the other cases are wanted all the same
                yield name, {FAILURE: f"{type(error).__name__}: {error}".encode()}
