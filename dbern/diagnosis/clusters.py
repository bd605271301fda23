"""A Dask cluster: transport, dashboards, versions, memory and clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dbern.connecting import UNREACHABLE, connect
from dbern.diagnosis.finding import SKEW_SECONDS, Finding, is_loopback
from dbern.errors import EnvironmentRefusedError
from dbern.workers import check_workers

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_SECONDS = 5


def scheduler(address: str) -> list[Finding]:
    """A Dask cluster: transport, dashboard, workers' versions, memory settings and clocks."""
    try:
        with _connected(address) as client:
            return [_transport(address), *_dashboards(client), *_workers(client)]
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
    with connect(address, _CONNECT_SECONDS, set_as_default=False) as client:
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
    def of_scheduler(dask_scheduler: Any) -> str:  # nested: sent whole, not by its module's name
        return str(getattr(getattr(dask_scheduler, "http_server", None), "address", ""))

    def of_worker(dask_worker: Any) -> str:
        return str(getattr(getattr(dask_worker, "http_server", None), "address", ""))

    hosts = {"scheduler": client.run_on_scheduler(of_scheduler), **client.run(of_worker)}
    open_to = {where: host for where, host in hosts.items() if host and not is_loopback(host)}
    if not open_to:
        yield Finding("dashboards", "good", "on loopback only")
        return
    where, host = next(iter(open_to.items()))
    yield Finding(
        "dashboards", "warn", f"open HTTP without a password beyond loopback at {len(open_to)} of "
        f"{len(hosts)} (the first: {where}, on {host})",
        "start with --dashboard-address 127.0.0.1:0",
    )  # fmt: skip


def _workers(client: Client) -> Iterator[Finding]:
    try:
        check_workers(client)
    except EnvironmentRefusedError as error:
        yield Finding("workers", "mend", str(error), "see above")
        return
    facts = client.run(_memory_settings())
    now = time.time()
    yield Finding("workers", "good", f"{len(facts)}, of the same versions as here")
    spilling = [name for name, one in facts.items() if one["spills"]]
    if spilling:
        yield Finding(
            "worker memory", "mend", f"{len(spilling)} of {len(facts)} would spill private sums to "
            f"their disks (the first: {spilling[0]})",
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


def _memory_settings() -> Callable[[Any], dict[str, Any]]:
    def settings(dask_worker: Any) -> dict[str, Any]:  # nested: sent whole
        from time import time as clock

        manager = dask_worker.memory_manager
        spills = bool(manager.memory_target_fraction) or bool(manager.memory_spill_fraction)
        limit = manager.memory_limit or 0
        return {"spills": bool(limit) and spills, "limit": limit, "now": clock()}

    return settings
