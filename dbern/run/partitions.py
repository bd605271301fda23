"""Partitions of a Dask frame: refusal of those that a release could not count exactly once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dbern.errors import SpecError
from dbern.system import dict_of

if TYPE_CHECKING:
    from dbern.run.graph import Client


def refuse_shared_steps(partitions: Sequence[Any]) -> None:
    """Refuse partitions with a common step, which may run again for each of them.

    Run twice, a shuffle by a random column gives a row to two partitions and another to none: one
    record would move more than the noise is calibrated to. A cluster's future waits for itself.
    """
    from dask.core import get_dependencies

    graph, owner = dict(partitions[0].dask), dict[Any, int]()  # the graph is of all partitions
    for number, partition in enumerate(partitions):
        waiting = {partition.key}
        while waiting:
            step = waiting.pop()
            if owner.setdefault(step, number) != number:
                raise SpecError(
                    "data: partitions of this Dask frame share steps, as after a shuffle, a sort "
                    "or a merge, which may give other rows each time that they run. Give "
                    "data.persist(), or write Parquet files and name them in data.source."
                )
            waiting |= {x for x in get_dependencies(graph, step) if owner.get(x) != number}


def refuse_other_clusters(partitions: Sequence[Any], connect: Callable[[], Client] | None) -> None:
    """Refuse partitions that are results on another cluster than the one that counts them.

    `connect` returns a client of the counting cluster; None where this process counts.
    """
    if "distributed" not in sys.modules:
        return
    from distributed import Future

    results = [step for step in dict(partitions[0].dask).values() if isinstance(step, Future)]
    for client in {id(future.client): future.client for future in results}.values():
        cluster = dict_of(client.scheduler_info()).get("id") if client.status == "running" else None
        if connect is None or cluster != dict_of(connect().scheduler_info()).get("id"):
            raise SpecError(
                "data: this Dask frame is persisted on a cluster, which alone has its partitions. "
                "Give a client of it: dbern.release(spec, client, data=frame)."
            )
