"""What ``dbern doctor`` looks at: each finding says what is there and, where wrong, what mends it.

Nothing here reads a record, spends budget or leaves anything behind.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import parse_qs, urlsplit

from dbern.cluster.connection import (
    UNREACHABLE,
    answers,
    check_workers,
    connect,
    require_address,
    unlike,
)
from dbern.cluster.plain import answer, opened, shown
from dbern.data.objects import Objects, check_url, settings
from dbern.errors import DbernError, EnvironmentRefusedError
from dbern.ledger import AuditLine, BudgetLedger, DatasetStatus
from dbern.ledger.ledger import backend_of
from dbern.ledger.postgres import SECRET, SECRET_FILE, STAGING, secret_of
from dbern.ledger.sqlite import SqliteBackend
from dbern.ledger.values import period_of
from dbern.system import counted, is_url, memory_limit

if TYPE_CHECKING:
    from distributed import Client


# --- What a look at one thing found


SKEW_SECONDS = 60
"""How far two clocks may be apart."""

Where = TypeVar("Where", Path, str)
State = Literal["good", "warn", "mend"]
"""``warn``: works, and should be changed; ``mend``: must be changed before a release."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, what is there, and what to do about it where it is not good."""

    what: str
    state: State
    found: str
    mend: str = ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def tried(what: str, path: Where, attempt: Callable[[Where], bool], advice: str) -> Finding:
    """Whether an exclusion holds that a release relies on."""
    try:
        holds = attempt(path)
    except (OSError, DbernError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return Finding(what, "mend", f"cannot be tried at {path}: {reason}", advice)
    if not holds:
        return Finding(what, "mend", f"do not exclude anyone at {path}", advice)
    return Finding(what, "good", "work")


# --- Versions, the clock, and memory

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9.]+)$")
_BUILT = 1_700_000_000  # seconds since 1970: this package is younger


def installation() -> list[Finding]:
    """Check Python, every package that ``dbern`` needs, the clock, and memory.

    Examples
    --------
    >>> installation()[0].what
    'python'
    """
    python = platform.python_version()
    needed = [line for line in requires("dbern") or () if ";" not in line]
    old = sys.version_info < (3, 11)
    return [
        Finding("python", "mend", python, "install Python 3.11 or newer")
        if old
        else Finding("python", "good", python),
        Finding("dbern", "good", version("dbern")),
        *(_package(*one.groups()) for one in map(_REQUIREMENT.match, needed) if one),
        _clock(),
        Finding("memory", "good", f"{memory_limit() / 2**30:.1f} GiB for a releasing process"),
    ]


def _package(name: str, least: str) -> Finding:
    mend = f'run: python -m pip install "{name}>={least}"'
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, "mend", "is not installed", mend)
    if _numbers(found) < _numbers(least):
        return Finding(name, "mend", f"{found} is older than {least}", mend)
    return Finding(name, "good", found)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _clock() -> Finding:
    now = time.time()
    shown = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    if now < _BUILT:
        return Finding(
            "clock", "mend", f"{shown}, before this package was written", "set the system's clock"
        )
    return Finding("clock", "good", shown)


# --- A shared ledger, from where a client stands

_VERIFIED = "verify-full"
_ENCRYPTED = ("require", "verify-ca", _VERIFIED)


def database(url: str) -> list[Finding]:
    """Check how a client reaches a PostgreSQL ledger, and what it needs to release."""
    return [_database_transport(url), _secret(), _staging()]


def _database_transport(url: str) -> Finding:
    """By what libpq reads: the URL, then the environment."""
    parts = urlsplit(url)
    asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    host = asked.get("host") or parts.hostname or os.environ.get("PGHOST", "")
    if not {"service"} & asked.keys() and (not host or host.startswith("/") or _is_loopback(host)):
        return Finding("ledger's transport", "good", "is local")
    mode = asked.get("sslmode") or os.environ.get("PGSSLMODE") or "prefer"
    if mode == _VERIFIED:
        return Finding("ledger's transport", "good", "is encrypted, and the server is verified")
    mend = f"write ?sslmode={_VERIFIED} into the URL and name the authority in PGSSLROOTCERT"
    if mode in _ENCRYPTED:
        found = f"sslmode {mode}: encrypted, but another server may pass for the ledger's"
        return Finding("ledger's transport", "warn", found, mend)
    found = f"sslmode {mode} goes on without TLS where the server, or whoever is between, says so"
    return Finding("ledger's transport", "mend", found, mend)


def _secret() -> Finding:
    file = os.environ.get(SECRET_FILE)
    if not file and not os.environ.get(SECRET):
        found = f"neither {SECRET} nor {SECRET_FILE} is set"
        return Finding("ledger's secret", "warn", found, "set one where releases are made")
    try:
        secret_of(os.environ)
    except EnvironmentRefusedError as error:
        return Finding("ledger's secret", "mend", str(error), "see above")
    if file and Path(file).stat().st_mode & 0o007:
        found = f"{file} is open to everybody (mode {Path(file).stat().st_mode & 0o777:o})"
        return Finding("ledger's secret", "mend", found, f"run: chmod o= {file}")
    return Finding("ledger's secret", "good", "is set")


def _staging() -> Finding:
    named = os.environ.get(STAGING)
    if not named:
        return Finding(
            "ledger's staging", "warn", f"{STAGING} is not set", "set it where releases are made, "
            "to a folder that is in no backup and that all hosts which may continue them share",
        )  # fmt: skip
    folder = Path(named)
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        found = f"{folder} {'cannot be written' if folder.is_dir() else 'is no folder'}"
        return Finding("ledger's staging", "mend", found, "make one that this user may write to")
    return Finding("ledger's staging", "good", str(folder))


# --- Whether a ledger's clock ever went back

_MOST_SHOWN = 5


@dataclass(frozen=True)
class _Step:
    """An entry of the log, counted from 1, with a time before that of the entry above it."""

    entry: int
    before: str
    after: str

    @property
    def seconds(self) -> float:
        between = datetime.fromisoformat(self.before) - datetime.fromisoformat(self.after)
        return between.total_seconds()

    def __str__(self) -> str:
        return f"entry {self.entry} by {self.seconds:.0f} s ({self.before} to {self.after})"


def _clock_of_log(log: Sequence[AuditLine], accounts: Sequence[DatasetStatus]) -> Finding:
    """Find every place of the log where time steps back, and the periods it could reopen.

    A budget by period is paid from in the period that the clock says. Clocks of several hosts
    differ a little: a short step that ends in the same periods is told, and is no warning.
    """
    pairs = enumerate(pairwise(line.at for line in log), 2)
    steps = [step for step in (_Step(entry, *pair) for entry, pair in pairs) if step.seconds > 0]
    if not steps:
        return Finding("ledger's clock", "good", f"never set back in {_entries(log)}")
    longest = max(step.seconds for step in steps)
    again = list(dict.fromkeys(one for step in steps for one in _reopened(step, accounts)))
    told = f"set back at {counted(len(steps), 'place')} of the log"
    if not again and longest <= SKEW_SECONDS:
        found = f"{told}, by at most {longest:.0f} s, within the same periods"
        return Finding("ledger's clock", "good", found)
    periods = f"could be spent again: {_listed(again)}" if again else "no budget by period reopened"
    return Finding(
        "ledger's clock", "warn", f"{told}: {_listed([str(step) for step in steps])}; {periods}",
        "synchronize the clock; compare what dbern ledger status --log says of these periods with "
        "the grant",
    )  # fmt: skip


def _entries(log: Sequence[AuditLine]) -> str:
    return counted(len(log), "log entry", "log entries")


def _reopened(step: _Step, accounts: Sequence[DatasetStatus]) -> Iterator[str]:
    """Name the periods that were over before the step and could be paid from after it."""
    for account in accounts:
        kind = account.terms.period
        first, end = period_of(step.after, kind), period_of(step.before, kind)
        if first != end:
            yield f"each {kind} from {first} to before {end} of {account.dataset}"


def _listed(parts: Sequence[str]) -> str:
    rest = len(parts) - _MOST_SHOWN
    return ", ".join(parts[:_MOST_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


# --- A ledger's file, its folders, its locks and its place

_NETWORK = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "lustre", "ceph", "glusterfs", "afs")
_BESIDE = ("keys", "staging", "locks", "runs")
_WAIT_SECONDS = 0.05


def ledger(url: str) -> list[Finding]:
    """Check the ledger's file, its folders of keys and staging, its locks and its place.

    Of one in PostgreSQL, what this client needs: a verified way to it, its secret, its staging.

    Raises
    ------
    SpecError
        When `url` names no ledger that this version can use.
    """
    backend = backend_of(url, read_only=True)
    backend.close()
    if not backend.exists():
        mend = f"run: dbern ledger init --ledger {url}"
        return [Finding("ledger", "mend", f"there is none at {backend.url}", mend)]
    path = backend.path
    if path is None:  # its server keeps permissions, locks and disk
        return [*_content(url), *database(url)]
    folders = [path.with_name(f"{path.name}.{what}") for what in _BESIDE]
    return [
        _private("ledger file", path, 0o600),
        *(_private(one.suffix[1:], one, 0o700) for one in folders if os.path.lexists(one)),
        *_content(url),
        *_locks(path),
        _place(path),
        _repository(path),
    ]


def _private(what: str, path: Path, mode: int) -> Finding:
    facts = path.lstat()
    if path.is_symlink() or facts.st_uid != os.geteuid():
        found = "is a link" if path.is_symlink() else "belongs to another user"
        mend = "put the ledger's own file or folder there, owned by the user who releases"
        return Finding(what, "mend", f"{path} {found}", mend)
    if facts.st_mode & 0o077:
        found = f"{path} is open to others (mode {facts.st_mode & 0o777:o})"
        return Finding(what, "mend", found, f"run: chmod {mode:o} {path}")
    return Finding(what, "good", f"{path}, mode {facts.st_mode & 0o777:o}")


def _content(url: str) -> list[Finding]:
    try:
        with BudgetLedger.open(url, read_only=True) as opened:
            accounts, log = opened.status(None), opened.log(None)
    except DbernError as error:
        return [Finding("ledger content", "mend", str(error), "see above; else restore a backup")]
    last = datetime.fromisoformat(log[-1].at).timestamp() if log else 0.0
    if last > time.time() + SKEW_SECONDS:
        found = f"its last entry is of the future ({log[-1].at})"
        content = Finding("ledger content", "mend", found, "set the system's clock")
    else:
        found = f"{counted(len(accounts), 'account')}, {_entries(log)}"
        content = Finding("ledger content", "good", found)
    return [content, _clock_of_log(log, accounts)]


def _locks(path: Path) -> Iterator[Finding]:
    advice = "keep the ledger on a local disk of the machine that releases"
    yield tried("file locks", path.parent, _second_flock_refused, advice)
    yield tried("ledger locks", path, _second_writer_refused, advice)


def _second_flock_refused(folder: Path) -> bool:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".dbern-doctor-") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(file.name, "rb") as again:  # noqa: PTH123 -- a second description of one file
            try:
                fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def _second_writer_refused(path: Path) -> bool:
    one = SqliteBackend(path)
    two = SqliteBackend(path, busy_timeout=_WAIT_SECONDS)
    try:
        with one.write():
            try:
                with two.write():
                    return False
            except EnvironmentRefusedError:
                return True
    finally:
        one.close()
        two.close()


def _place(path: Path) -> Finding:
    kind = _file_system(path)
    if kind.startswith(_NETWORK):
        return Finding(
            "ledger's disk", "warn", f"{path} is on {kind}, a network file system",
            "keep the ledger on a local disk: locks and durable writes are only as good as the "
            "server's",
        )  # fmt: skip
    return Finding("ledger's disk", "good", kind)


def _file_system(path: Path) -> str:
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown file system"
    found = (Path("/"), "unknown file system")
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        where, kind = line.split()[1:3]
        at = Path(where.replace("\\040", " "))
        if path.is_relative_to(at) and len(at.parts) >= len(found[0].parts):
            found = (at, kind)
    return found[1]


def _repository(path: Path) -> Finding:
    inside = next((folder for folder in path.parents if (folder / ".git").exists()), None)
    if inside is not None:
        return Finding(
            "ledger's folder", "warn", f"{path} is inside the git repository {inside}",
            "keep ledger and keys out of every repository and backup: the keys of unfinished "
            "releases are as secret as the records",
        )  # fmt: skip
    return Finding("ledger's folder", "good", "in no git repository")


# --- Where a synopsis goes

_FREE_BYTES = 1 << 30


def output(where: str | Path) -> list[Finding]:
    """Whether the file system or object store of a synopsis creates a name once only, and has room.

    Raises
    ------
    SpecError
        For a URL that is not of S3, or holds a secret.
    """
    if is_url(where):
        return _bucket(check_url(where, "--output"))
    path = Path(where).resolve()
    folder = next(parent for parent in (path, *path.parents) if parent.is_dir())
    advice = "choose an output on a file system with hard links, writable by this user"
    findings = [
        tried("create-if-absent", folder, _second_link_refused, advice),
        _skew(folder),
        _room(folder),
    ]
    if path.exists():
        findings.append(_taken(str(path)))
    return findings


def _taken(where: str) -> Finding:
    return Finding("output", "warn", f"{where} exists", "a new release needs another output")


def _bucket(url: str) -> list[Finding]:
    """Puts objects beside it and removes them: what is published holds nothing else."""
    place = Objects(f"{url}.dbern-doctor")
    advice = "name a bucket of a store that heeds If-None-Match; credentials and AWS_ENDPOINT_URL"
    advice += " come from the environment"
    findings = [
        tried("create-if-absent", url, lambda _: place.excludes(), advice),
        _store_transport(),
    ]
    if findings[0].state == "good":
        findings.append(_told_skew(place.skew(), "the object store's"))
        findings += [_taken(url)] if Objects(url).sizes() else []
    return findings


def _store_transport() -> Finding:
    server = urlsplit(settings().server)
    if server.scheme == "http" and not _is_loopback(server.hostname or ""):
        found = "the object store is reached without TLS"
        return Finding("transport", "mend", found, "write https:// in AWS_ENDPOINT_URL")
    return Finding("transport", "good", "is encrypted" if server.scheme != "http" else "is local")


def _second_link_refused(folder: Path) -> bool:
    """As `dbern.data.storage.Folder.create` does: the second creation of a name must fail."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".dbern-doctor-") as scratch:
        draft, target = Path(scratch, "draft"), Path(scratch, "manifest")
        draft.write_bytes(b"{}")
        os.link(draft, target)
        try:
            os.link(draft, target)
        except FileExistsError:
            return True
    return False


def _skew(folder: Path) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".dbern-doctor-") as file:
            off = os.fstat(file.fileno()).st_mtime - time.time()
    except OSError as error:
        return Finding("output's clock", "warn", f"cannot be read: {error.strerror}", "see above")
    return _told_skew(off, "the file server's")


def _told_skew(off: float, whose: str) -> Finding:
    if abs(off) > SKEW_SECONDS:
        found = f"{whose} is off by {off:.0f} s"
        return Finding("output's clock", "warn", found, "synchronize both clocks")
    return Finding("output's clock", "good", "agrees with this machine's")


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    shown = f"{free / 2**30:.1f} GiB free at {folder}"
    if free < _FREE_BYTES:
        return Finding("room", "warn", shown, "free some: a release that finds none waits for it")
    return Finding("room", "good", shown)


# --- A Dask cluster: transport, dashboards, versions, memory and clocks

_CONNECT_SECONDS = 5
_LONGEST_TTL = 120  # seconds that a release may wait for a worker that does not answer


def scheduler(address: str) -> list[Finding]:
    """Check a Dask cluster: transport, dashboard, versions, memory settings and clocks."""
    require_address(address)
    try:
        with connect(address, _CONNECT_SECONDS) as client:
            findings = [_scheduler_transport(address), *_dashboards(client), *_workers(client)]
            return [*findings, *_frozen_workers(client)]
    except EnvironmentRefusedError as error:
        return [Finding("scheduler", "mend", str(error), "see above")]
    except UNREACHABLE as error:
        return [
            Finding(
                "scheduler", "mend", f"none answers at {address} ({type(error).__name__})",
                "start one with `dask scheduler`, or check its address, as tls://host:8786, the "
                "network and certificates",
            )
        ]  # fmt: skip


def _scheduler_transport(address: str) -> Finding:
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    if parts.scheme == "tls" or _is_loopback(parts.hostname or ""):
        return Finding("scheduler", "good", address)
    return Finding(
        "scheduler", "warn", f"{address} is plain TCP: whoever reaches it reads records and runs "
        "code on the workers",
        "use tls:// with certificates of your own authority, or keep the network closed",
    )  # fmt: skip


def _dashboards(client: Client) -> Iterator[Finding]:
    def address(node: Any) -> bytes:  # nested: sent whole, not by its module's name
        from json import dumps

        server = getattr(node, "http_server", None)
        return dumps({"address": str(getattr(server, "address", ""))}).encode()

    def of_scheduler(dask_scheduler: Any) -> bytes:  # distributed goes by the argument's name
        return address(dask_scheduler)

    def of_worker(dask_worker: Any) -> bytes:
        return address(dask_worker)

    try:
        told = {"scheduler": answer(opened(client.run_on_scheduler(of_scheduler)))}
        told |= answers(client, of_worker)
    except DbernError as error:
        yield Finding("dashboards", "mend", str(error), "see above")
        return
    hosts = {where: str(one.get("address", "")) for where, one in told.items()}
    open_to = {where: host for where, host in hosts.items() if host and not _is_loopback(host)}
    if not open_to:
        yield Finding("dashboards", "good", "on loopback only")
        return
    where, host = next(iter(open_to.items()))
    yield Finding(
        "dashboards", "warn", f"open HTTP without a password beyond loopback at {len(open_to)} of "
        f"{len(hosts)} (the first: {shown(where)}, on {shown(host)})",
        "start with --dashboard-address 127.0.0.1:0",
    )  # fmt: skip


def _frozen_workers(client: Client) -> Iterator[Finding]:
    def of_scheduler(dask_scheduler: Any) -> bytes:  # distributed goes by the argument's name
        from json import dumps

        return dumps({"ttl": getattr(dask_scheduler, "worker_ttl", None) or 0}).encode()

    try:
        seconds = answer(opened(client.run_on_scheduler(of_scheduler))).get("ttl")
    except DbernError as error:
        yield Finding("frozen workers", "mend", str(error), "see above")
        return
    if not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST_TTL:
        waits = f"after {seconds:g} s" if isinstance(seconds, int | float) and seconds else "never"
        yield Finding(
            "frozen workers", "warn", f"are given up {waits}, and a release waits so long",
            "set distributed.scheduler.worker-ttl to 60s for the scheduler, as deploy/dask.yaml",
        )  # fmt: skip
    else:
        yield Finding("frozen workers", "good", f"given up after {seconds:g} s")


def _workers(client: Client) -> Iterator[Finding]:
    try:
        check_workers(client)
        facts = answers(client, _memory_settings())
        for worker, one in facts.items():
            _check_settings(worker, one)
    except DbernError as error:
        yield Finding("workers", "mend", str(error), "see above")
        return
    now = time.time()
    yield Finding("workers", "good", f"{len(facts)}, of the same versions as here")
    spilling = [name for name, one in facts.items() if one["spills"]]
    if spilling:
        yield Finding(
            "worker memory", "mend", f"{len(spilling)} of {len(facts)} would spill private sums to "
            f"their disks (the first: {shown(spilling[0])})",
            "set distributed.worker.memory.target and distributed.worker.memory.spill to false "
            "for the workers",
        )  # fmt: skip
    elif any(not one["limit"] for one in facts.values()):
        yield Finding("worker memory", "warn", "has no limit", "start workers with --memory-limit")
    else:
        least = min(one["limit"] for one in facts.values())
        yield Finding("worker memory", "good", f"never spilled, {least / 2**30:.1f} GiB or more")
    off = max(abs(one["now"] - now) for one in facts.values())
    if off > SKEW_SECONDS:
        yield Finding("worker clocks", "warn", f"off by up to {off:.0f} s", "synchronize them")


def _memory_settings() -> Callable[[Any], bytes]:
    def settings(dask_worker: Any) -> bytes:  # nested: sent whole
        from json import dumps
        from time import time as clock

        manager = dask_worker.memory_manager
        spills = bool(manager.memory_target_fraction) or bool(manager.memory_spill_fraction)
        limit = manager.memory_limit or 0
        told = {"spills": bool(limit) and spills, "limit": limit, "now": clock()}
        return dumps(told).encode()

    return settings


def _check_settings(worker: str, told: dict[str, Any]) -> None:
    if type(told.get("spills")) is not bool or not all(
        isinstance(told.get(name), int | float) for name in ("limit", "now")
    ):
        raise unlike(worker)
