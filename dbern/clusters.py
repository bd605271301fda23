"""The cluster that counts: threads of this process, a scheduler's workers, or a given client's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dbern.connecting import UNREACHABLE, apart, connect, is_here
from dbern.errors import EnvironmentRefusedError
from dbern.progress import Progress, silent
from dbern.workers import WAIT_SECONDS, check_workers

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_SECONDS = 10


@contextmanager
def cluster(
    address: str | None = None, wait: float = WAIT_SECONDS, progress: Progress = silent
) -> Iterator[Client]:
    """Connect to a running scheduler, or start one worker of threads in this process.

    Decoding and counting release the interpreter's lock, so threads use all cores and a small
    release does not wait for processes to start. `wait`: seconds that workers have to come.

    Raises
    ------
    EnvironmentRefusedError
        Where no scheduler answers, no worker comes, or one runs other versions.
    """
    import dask

    memory = "distributed.worker.memory"
    settings: dict[str, bool | None] = {f"{memory}.target": False, f"{memory}.spill": False}
    if address is None:
        # What else this process holds, a notebook's tables say, would pause its worker for ever.
        settings[f"{memory}.pause"] = False
        # A worker in this process is there while the process is: nobody waits for its heartbeats.
        settings["distributed.scheduler.worker-ttl"] = None
    with dask.config.set(settings):
        if address is None:
            with _local() as client:
                yield client
            return
        with _reached(connect, address, address) as client:
            check_workers(client, wait, progress)
            yield client


@contextmanager
def same_cluster(
    given: Client, wait: float = WAIT_SECONDS, progress: Progress = silent
) -> Iterator[Client]:
    """The cluster of a client of the caller, who may unpickle what it likes: over one of our own.

    Raises
    ------
    EnvironmentRefusedError
        As `cluster`.
    """
    if is_here(given):
        check_workers(given, wait, progress)
        yield given
        return
    with _reached(apart, given, given.scheduler.address) as client:
        check_workers(client, wait, progress)
        yield client


def _reached(connected: Callable[[Any, float], Client], whom: object, address: str) -> Client:
    try:
        return connected(whom, _CONNECT_SECONDS)
    except UNREACHABLE as error:
        raise EnvironmentRefusedError(
            f"no scheduler answers at {address} ({type(error).__name__}); start one with `dask "
            "scheduler`, write its address as tls://host:8786, or leave out --scheduler"
        ) from None


@contextmanager
def _local() -> Iterator[Client]:
    import dask
    from distributed import Client, LocalCluster, Security

    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=dask.system.CPU_COUNT,
            processes=False,
            # No byte leaves the process, whatever the configuration asks of clusters.
            security=Security(require_encryption=False, tls_ca_file=None),
            # Without these, HTTP is served on every interface even with no dashboard.
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            worker_dashboard_address="127.0.0.1:0",
        ) as local,
        Client(local) as client,
    ):
        # One that is under way when the cluster closes would be logged as an error.
        (worker,) = local.workers.values()
        client.loop.add_callback(worker.periodic_callbacks["heartbeat"].stop)
        yield client
