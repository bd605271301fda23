"""Tables of the checks of ``dbern doctor``: what is looked at, a check, and a remedy.

No check reads a record, spends budget or leaves anything behind.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import parse_qs, urlsplit

from dbern.data.objects import Objects, check_url, current_settings
from dbern.errors import DbernError, EnvironmentRefusedError
from dbern.ledger import AuditLine, BudgetLedger, DatasetStatus
from dbern.ledger.composition import period_of
from dbern.ledger.keys import SECRET_FILE
from dbern.ledger.opening import backend_of
from dbern.ledger.sqlite import SqliteBackend
from dbern.run.connection import UNREACHABLE, connect, require_address
from dbern.run.messages import address_text
from dbern.run.workers import answers, check_workers, unlike
from dbern.system import counted, is_url

if TYPE_CHECKING:
    from distributed import Client

State = Literal["good", "warn", "mend"]
"""``warn``: works, and should be changed; ``mend``: must be changed before a release."""


@dataclass(frozen=True)
class Finding:
    """Result of one check: what is there, and what to do about it where it is not good."""

    subject: str
    state: State
    observed: str
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {
            "what": self.subject, "state": self.state, "found": self.observed, "mend": self.remedy,
        }  # fmt: skip


Verdict: TypeAlias = tuple[State, str] | tuple[State, str, str]
"""What a check returns: a state, what is there, and a remedy if not the one of the table."""


def _run(*table: tuple[str, Callable[[], Verdict], str]) -> list[Finding]:
    """Run checks one after the other; what cannot be looked at is to be mended."""
    findings = []
    for subject, check, remedy in table:
        verdict: Verdict
        try:
            verdict = check()
        except (OSError, DbernError) as error:
            verdict = "mend", f"cannot be used: {getattr(error, 'strerror', None) or error}"
        state, text, stated_remedy = (*verdict, remedy)[:3]
        findings.append(Finding(subject, state, text, "" if state == "good" else stated_remedy))
    return findings


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _exclusion(holds: bool) -> Verdict:
    return ("good", "work") if holds else ("mend", "do not exclude anyone")


_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9.]+)$")
_INSTALL = 'run: python -m pip install "{}>={}"'


def installation() -> list[Finding]:
    """Show the version of Python, and check that of every package that ``dbern`` needs."""
    needed = [line for line in requires("dbern") or () if ";" not in line]
    packages = [match.groups() for match in map(_REQUIREMENT.match, needed) if match]
    return _run(
        ("python", lambda: ("good", platform.python_version()), ""),
        ("dbern", lambda: ("good", version("dbern")), ""),
        *(
            (name, partial(_package, name, oldest), _INSTALL.format(name, oldest))
            for name, oldest in packages
        ),
    )


def _package(name: str, oldest: str) -> Verdict:
    try:
        installed = version(name)
    except PackageNotFoundError:
        return "mend", "is not installed"
    if _numbers(installed) < _numbers(oldest):
        return "mend", f"{installed} is older than {oldest}"
    return "good", installed


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


_FOLDERS = ("keys", "staging", "locks", "runs")
_OWNERSHIP = "put the ledger's own file or folder there, owned by the user who releases"
_KEEP_LOCAL = "keep the ledger on a local disk of the machine that releases"
_CHANGED = (
    "the database was changed by hand: ask who may write to it, restore a backup from before, and "
    "run dbern ledger reconcile over all that was published"
)
_SKEW_SECONDS = 60  # that clocks of several hosts may be apart
_COMPARE = (
    "synchronize the clock; compare what dbern ledger status --log says of these periods with the "
    "grant"
)


def ledger(url: str) -> list[Finding]:
    """Check the ledger's file, its folders of keys and staging, its log, clock and locks.

    In PostgreSQL, a verified way to it and the file of its secret. Raises SpecError when `url`
    names no ledger that this version can use.
    """
    backend = backend_of(url, read_only=True)
    backend.close()
    if not backend.exists():
        remedy = f"run: dbern ledger init --ledger {url}"
        return [Finding("ledger", "mend", f"there is none at {backend.url}", remedy)]
    path = backend.path
    if path is None:  # its server keeps permissions and locks
        return [*_content(url), *database(url)]
    folders = [path.with_name(f"{path.name}.{name}") for name in _FOLDERS]
    private = [("ledger file", path, 0o600)]
    private += [(folder.suffix[1:], folder, 0o700) for folder in folders if os.path.lexists(folder)]
    return [
        *_run(*((name, partial(_private, file, mode), _OWNERSHIP) for name, file, mode in private)),
        *_content(url),
        *_run(
            ("file locks", lambda: _exclusion(_second_flock_refused(path.parent)), _KEEP_LOCAL),
            ("ledger locks", lambda: _exclusion(_second_writer_refused(path)), _KEEP_LOCAL),
        ),
    ]


def _private(path: Path, mode: int) -> Verdict:
    status = path.lstat()
    if path.is_symlink() or status.st_uid != os.geteuid():
        return "mend", f"{path} {'is a link' if path.is_symlink() else 'belongs to another user'}"
    text = f"mode {status.st_mode & 0o777:o}"
    if status.st_mode & 0o077:
        return "mend", f"{path} is open to others ({text})", f"run: chmod {mode:o} {path}"
    return "good", f"{path}, {text}"


def _content(url: str) -> list[Finding]:
    try:
        with BudgetLedger.open(url, read_only=True) as ledger:
            accounts, log = ledger.status(None), ledger.log(None)
            differing = ledger.contradictions()
    except DbernError as error:
        return [Finding("ledger content", "mend", str(error), "see above; else restore a backup")]
    return _run(
        ("ledger content", lambda: _newest_entry(log, accounts), "set the system's clock"),
        ("ledger's log", lambda: _log_against_tables(differing), _CHANGED),
        ("ledger's clock", lambda: _clock_of_log(log, accounts), _COMPARE),
    )


def _log_against_tables(differing: Sequence[str]) -> Verdict:
    if differing:
        return "mend", f"the log does not tell what the tables hold: {_listed(differing)}"
    return "good", "tells every grant, charge and state"


def _newest_entry(log: Sequence[AuditLine], accounts: Sequence[DatasetStatus]) -> Verdict:
    newest = datetime.fromisoformat(log[-1].at).timestamp() if log else 0.0
    if newest > time.time() + _SKEW_SECONDS:
        return "mend", f"its last entry is of the future ({log[-1].at})"
    entries = counted(len(log), "log entry", "log entries")
    return "good", f"{counted(len(accounts), 'account')}, {entries}"


_MAX_LISTED = 5


def _clock_of_log(log: Sequence[AuditLine], accounts: Sequence[DatasetStatus]) -> Verdict:
    """Find every place of the log where time steps back, and the periods it could reopen.

    A budget by period is paid from in the period that the clock says. Clocks of several hosts
    differ a little: a short step that ends in the same periods is shown, and is no warning.
    """
    steps, longest = [], 0.0
    reopened: dict[str, None] = {}  # periods that were over and could be paid from again
    for entry, (before, after) in enumerate(pairwise(line.at for line in log), 2):
        between = datetime.fromisoformat(before) - datetime.fromisoformat(after)
        seconds = between.total_seconds()
        if seconds <= 0:
            continue
        longest = max(longest, seconds)
        steps.append(f"entry {entry} by {seconds:.0f} s ({before} to {after})")
        for account in accounts:
            kind = account.terms.period
            first, end = period_of(after, kind), period_of(before, kind)
            if first != end:
                reopened[f"each {kind} from {first} to before {end} of {account.dataset}"] = None
    if not steps:
        return "good", f"never set back in {counted(len(log), 'log entry', 'log entries')}"
    text = f"set back at {counted(len(steps), 'place')} of the log"
    if not reopened and longest <= _SKEW_SECONDS:
        return "good", f"{text}, by at most {longest:.0f} s, within the same periods"
    periods = f"could be spent again: {_listed([*reopened])}" if reopened else ""
    return "warn", f"{text}: {_listed(steps)}; {periods or 'no budget by period reopened'}"


def _listed(parts: Sequence[str]) -> str:
    rest = len(parts) - _MAX_LISTED
    return ", ".join(parts[:_MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")


_WAIT_SECONDS = 0.05


def _second_flock_refused(folder: Path) -> bool:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".dbern-doctor-") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with Path(file.name).open("rb") as again, suppress(BlockingIOError):
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    return True


def _second_writer_refused(path: Path) -> bool:
    first, second = SqliteBackend(path), SqliteBackend(path, busy_timeout=_WAIT_SECONDS)
    with closing(first), closing(second), first.write():
        with suppress(EnvironmentRefusedError), second.write():
            return False
        return True


_VERIFIED = "verify-full"
_ENCRYPTED = ("require", "verify-ca", _VERIFIED)
_VERIFY = f"write ?sslmode={_VERIFIED} into the URL and name the authority in PGSSLROOTCERT"


def database(url: str) -> list[Finding]:
    """Check how a client reaches a PostgreSQL ledger, and who may read its secret."""
    return _run(
        ("ledger's transport", lambda: _database_transport(url), _VERIFY),
        ("ledger's secret", _secret, "name a file that is there"),
    )


def _database_transport(url: str) -> Verdict:
    """Check the transport by what libpq reads: the URL, then the environment."""
    parts = urlsplit(url)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    host = query.get("host") or parts.hostname or os.environ.get("PGHOST", "")
    if "service" not in query and (not host or host.startswith("/") or _is_loopback(host)):
        return "good", "is local"
    mode = query.get("sslmode") or os.environ.get("PGSSLMODE") or "prefer"
    if mode == _VERIFIED:
        return "good", "is encrypted, and the server is verified"
    if mode in _ENCRYPTED:
        return "warn", f"sslmode {mode}: encrypted, but another server may pass for the ledger's"
    return "mend", f"sslmode {mode} goes on without TLS where whoever is between says so"


def _secret() -> Verdict:
    file = os.environ.get(SECRET_FILE)
    if file and (mode := Path(file).stat().st_mode & 0o777) & 0o007:
        return "mend", f"{file} is open to everybody (mode {mode:o})", f"run: chmod o= {file}"
    return "good", "in no file that everybody may read"


_HARD_LINKS = "choose an output on a file system with hard links, writable by this user"
_CONDITIONS = (
    "name a bucket of a store that heeds If-None-Match; credentials and AWS_ENDPOINT_URL come from "
    "the environment"
)


def output(where: str | Path) -> list[Finding]:
    """Check whether a synopsis's file system or store creates a name once only."""
    if is_url(where):
        return _bucket(check_url(where, "--output"))
    path = Path(where).resolve()
    folder = next(parent for parent in (path, *path.parents) if parent.is_dir())
    return _run(("create-if-absent", lambda: _exclusion(_second_link_refused(folder)), _HARD_LINKS))


def _bucket(url: str) -> list[Finding]:
    """Put an object beside it and remove it: what is published holds nothing else."""
    probe = Objects(f"{url}.dbern-doctor")
    return _run(
        ("create-if-absent", lambda: _exclusion(probe.excludes()), _CONDITIONS),
        ("transport", _store_transport, "write https:// in AWS_ENDPOINT_URL"),
    )


def _store_transport() -> Verdict:
    server = urlsplit(current_settings().server)
    if server.scheme == "http" and not _is_loopback(server.hostname or ""):
        return "mend", "the object store is reached without TLS"
    return "good", "is encrypted" if server.scheme != "http" else "is local"


def _second_link_refused(folder: Path) -> bool:
    """Create a name twice as `dbern.data.storage.Folder.create` does: the second must fail."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".dbern-doctor-") as scratch:
        draft, target = Path(scratch, "draft"), Path(scratch, "manifest")
        draft.write_bytes(b"{}")
        os.link(draft, target)
        with suppress(FileExistsError):
            os.link(draft, target)
            return False
    return True


_CONNECT_SECONDS = 5
_START = (
    "start one with `dask scheduler`, or check its address, as tls://host:8786, the network and "
    "certificates"
)
_CLOSE = "use tls:// with certificates of your own authority, or keep the network closed"
_NEVER_SPILL = (
    "set distributed.worker.memory.target and distributed.worker.memory.spill to false for the "
    "workers"
)


def scheduler(address: str) -> list[Finding]:
    """Check a Dask cluster: its transport, versions, and whether workers spill."""
    require_address(address)
    try:
        with connect(address, _CONNECT_SECONDS) as client:
            reached = _run(("scheduler", lambda: _scheduler_transport(address), _CLOSE))
            return [*reached, *_cluster(client)]
    except EnvironmentRefusedError as error:
        return [Finding("scheduler", "mend", str(error), "see above")]
    except UNREACHABLE as error:
        text = f"none answers at {address} ({type(error).__name__})"
        return [Finding("scheduler", "mend", text, _START)]


def _scheduler_transport(address: str) -> Verdict:
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    if parts.scheme == "tls" or _is_loopback(parts.hostname or ""):
        return "good", address
    return "warn", f"{address} is plain TCP: whoever reaches it reads records and runs code there"


def _cluster(client: Client) -> list[Finding]:
    """Check what workers say of themselves."""
    try:
        check_workers(client)
        workers = answers(client, _spills())
        for worker, report in workers.items():
            if not isinstance(report.get("spills"), bool):
                raise unlike(worker)
    except DbernError as error:
        return [Finding("workers", "mend", str(error), "see above")]
    alike = f"{len(workers)}, of the same versions as here"
    return _run(
        ("workers", lambda: ("good", alike), ""),
        ("worker memory", lambda: _worker_memory(workers), _NEVER_SPILL),
    )


def _spills() -> Callable[[Any], bytes]:
    """Return the question whether a worker spills: nested, so that it is sent whole."""

    def of_worker(dask_worker: Any) -> bytes:  # distributed goes by the argument's name
        from json import dumps

        manager = dask_worker.memory_manager
        spills = bool(manager.memory_target_fraction) or bool(manager.memory_spill_fraction)
        return dumps({"spills": bool(manager.memory_limit) and spills}).encode()

    return of_worker


def _worker_memory(workers: Mapping[str, dict[str, Any]]) -> Verdict:
    spilling = [address_text(worker) for worker, report in workers.items() if report["spills"]]
    if spilling:
        text = f"{len(spilling)} of {len(workers)} would spill private sums to their disks"
        return "mend", f"{text} (the first: {spilling[0]})"
    return "good", "never spilled"
