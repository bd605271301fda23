"""What a release takes, as planned."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What the release will take: peak memory of a worker, its threads and the releasing process.

    Attributes
    ----------
    worker_bytes : int
        Of a worker of one thread that is alone; of others no more.
    thread_bytes : int
        What each further thread adds.
    client_bytes : int
        Of the releasing process; with a local cluster it is the worker too.
    """

    rows: int
    tasks: int
    slabs: int
    worker_bytes: int
    thread_bytes: int
    client_bytes: int

    def memory(self, threads: int) -> int:
        """Peak memory of a worker with so many threads."""
        return self.worker_bytes + (threads - 1) * self.thread_bytes
