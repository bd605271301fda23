"""A Dask cluster: transport, dashboards, versions, memory and clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dbern.connecting import UNREACHABLE, connect
from dbern.diagnosis.finding import SKEW_SECONDS, Finding, is_loopback
from dbern.errors import DbernError, EnvironmentRefusedError
from dbern.plain import answer, opened, shown
from dbern.workers import answers, check_workers, unlike

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_SECONDS = 5


def scheduler(address: str) -> list[Finding]:
    """A Dask cluster: transport, dashboard, workers' versions, memory settings and clocks."""
    try:
        with _connected(address) as client:
            return [_transport(address), *_dashboards(client), *_workers(client)]
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


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    with connect(address, _CONNECT_SECONDS) as client:
        yield client


def _transport(address: str) -> Finding:
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    if parts.scheme == "tls" or is_loopback(parts.hostname or ""):
        return Finding("scheduler", "good", address)
    return Finding(
        "scheduler", "warn", f"{address} is plain TCP: whoever reaches it reads records and runs "
        "code on the workers",
        "use tls:// with certificates of your own authority, or keep the network closed",
    )  # fmt: skip


def _dashboards(client: Client) -> Iterator[Finding]:
    def of_scheduler(dask_scheduler: Any) -> bytes:  # nested: sent whole, not by its module's name
        from json import dumps

        server = getattr(dask_scheduler, "http_server", None)
        return dumps({"address": str(getattr(server, "address", ""))}).encode()

    def of_worker(dask_worker: Any) -> bytes:
        from json import dumps

        server = getattr(dask_worker, "http_server", None)
        return dumps({"address": str(getattr(server, "address", ""))}).encode()

    try:
        told = {"scheduler": answer(opened(client.run_on_scheduler(of_scheduler)))}
        told |= answers(client, of_worker)
    except DbernError as error:
        yield Finding("dashboards", "mend", str(error), "see above")
        return
    hosts = {where: str(one.get("address", "")) for where, one in told.items()}
    open_to = {where: host for where, host in hosts.items() if host and not is_loopback(host)}
    if not open_to:
        yield Finding("dashboards", "good", "on loopback only")
        return
    where, host = next(iter(open_to.items()))
    yield Finding(
        "dashboards", "warn", f"open HTTP without a password beyond loopback at {len(open_to)} of "
        f"{len(hosts)} (the first: {shown(where)}, on {shown(host)})",
        "start with --dashboard-address 127.0.0.1:0",
    )  # fmt: skip


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
    """Refuse what `_memory_settings` does not answer."""
    if type(told.get("spills")) is not bool or not all(
        isinstance(told.get(name), int | float) for name in ("limit", "now")
    ):
        raise unlike(worker)
