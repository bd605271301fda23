"""Connect to a scheduler, and check that its workers can do what a release needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dbern.cluster.threads import Threads
from dbern.cluster.workers import DaskWorkers, check_workers
from dbern.errors import EnvironmentRefusedError, SpecError
from dbern.system import Progress, cpu_count, silent

if TYPE_CHECKING:
    from distributed import Client, Security


UNREACHABLE = (OSError, RuntimeError, TimeoutError, TypeError, ValueError)
"""What connecting raises: nobody there, plain TCP where encryption is required, no port."""

_SCHEDULER = re.compile(r"(?:(?:tcp|tls)://)?(?:\[[^\s/\[\]]+\]|[^\s:/\[\]]+):\d{1,5}")


def require_address(address: str) -> None:
    """Refuse what cannot be a scheduler's address, before anything waits for an answer from it."""
    if not _SCHEDULER.fullmatch(address):
        raise SpecError(
            f"scheduler: {address!r} is not the address of a Dask scheduler, which is a host and a "
            "port. Write one such as tls://host:8786."
        )


def connect(address: str, seconds: float, security: Security | None = None) -> Client:
    """Return a client of a scheduler, with distributed's configured certificates or others.

    It unpickles nothing that it is sent (`dbern.cluster.wire`). Besides certificates that are
    refused, it raises what `UNREACHABLE` lists.
    """
    from dbern.cluster.certificates import check_files, refusal
    from dbern.cluster.wire import PlainClient, configured, is_tls

    secured = security or configured(address)
    if not is_tls(address):
        return PlainClient(address, timeout=seconds, security=secured)
    check_files(secured)
    try:
        return PlainClient(address, timeout=seconds, security=secured)
    except UNREACHABLE as error:
        if reason := refusal(error, secured):
            raise EnvironmentRefusedError(reason) from None
        raise


def is_here(client: Client) -> bool:
    """Return whether scheduler and workers are this very process, and nothing crosses a wire."""
    return str(client.scheduler.address).startswith("inproc://")


WAIT_SECONDS = 60.0
"""How long a cluster without workers is waited for, unless the caller says."""

_CONNECT_SECONDS = 10


def workers_of(client: Client | Threads) -> DaskWorkers | Threads:
    """Return the workers behind a client, or the threads that `cluster` started in this process."""
    return client if type(client) is Threads else DaskWorkers(client)


@contextmanager
def cluster(
    address: str | None = None, wait: float = WAIT_SECONDS, progress: Progress = silent
) -> Iterator[Any]:
    """Connect to a running scheduler, or start threads in this process.

    A small release does not wait for processes to start. `wait`: seconds that workers have to come.
    Raises EnvironmentRefusedError where no scheduler answers, no worker comes, or one runs other
    versions.
    """
    if address is None:
        with Threads(cpu_count()) as threads:
            yield threads
        return
    import dask
    import distributed  # noqa: F401 -- brings its defaults: set before them, ours would end them

    memory = "distributed.worker.memory"
    settings = {f"{memory}.target": False, f"{memory}.spill": False}
    with dask.config.set(settings), _reached(address) as client:
        check_workers(client, wait, progress)
        yield client


@contextmanager
def same_cluster(
    client: Client, wait: float = WAIT_SECONDS, progress: Progress = silent
) -> Iterator[Client]:
    """Connect to the cluster of a caller's client, by a client of ours, which unpickles nothing."""
    if is_here(client):
        check_workers(client, wait, progress)
        yield client
        return
    with _reached(client.scheduler.address, client.security) as connected:
        check_workers(connected, wait, progress)
        yield connected


def _reached(address: str, security: Security | None = None) -> Client:
    try:
        return connect(address, _CONNECT_SECONDS, security)
    except UNREACHABLE as error:
        raise EnvironmentRefusedError(
            f"No scheduler answers at {address} ({type(error).__name__}). Start one with `dask "
            "scheduler`, write its address as tls://host:8786, or leave out --scheduler."
        ) from None
