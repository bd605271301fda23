"""Where releases are struck; says in the end at how many points they were."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

import processes
import pytest
from ranges import CENTERS, PERTURBED, Range

ALL = os.environ.get("DBERN_FAULTS") == "all"
SAMPLE = 2
SHARES = 4  # of one kind, that can be struck at the same time


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    processes.prepare()
    made = processes.Cluster(tmp_path_factory.mktemp("faults") / "cluster")
    made.ready()
    yield made
    made.close()


@pytest.fixture(scope="session")
def local(cluster, tmp_path_factory):
    """Under a ledger in a file."""
    return Range(tmp_path_factory.mktemp("local"), cluster)


@pytest.fixture(scope="session")
def perturbed(cluster, tmp_path_factory):
    """A release whose noise enters before what is staged."""
    return Range(tmp_path_factory.mktemp("perturbed"), cluster, spec=PERTURBED)


@pytest.fixture(scope="session")
def centers(cluster, tmp_path_factory):
    """A release of two centers: bins of two classes, and their counts."""
    return Range(tmp_path_factory.mktemp("centers"), cluster, spec=CENTERS)


@pytest.fixture(scope="session")
def shared(cluster, server, tmp_path_factory):
    """Under a ledger in PostgreSQL."""
    return Range(tmp_path_factory.mktemp("shared"), cluster, server)


@pytest.fixture(params=range(SHARES if ALL else 1))
def strike(request, record_property):
    """Strike at a share of the points of one kind, or at a sample; what went wrong."""

    def struck(ground: Range, kind: str, chosen: Iterable[Any], blow: Any) -> list[str]:
        every = list(chosen)
        few = every[len(every) // 5 :: -(-len(every) // SAMPLE)]
        mine = every[request.param :: SHARES] if ALL else few
        record_property("fault points", [kind, len(mine)])
        return ground.strike(kind, mine, blow)

    return struck


def pytest_terminal_summary(terminalreporter: Any) -> None:
    struck: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            properties = dict(report.user_properties)
            if report.when == "call" and "fault points" in properties:
                kind, count = properties["fault points"]
                struck[kind] += count
    if struck:
        kinds = ", ".join(f"{kind} {count}" for kind, count in struck.items())
        terminalreporter.write_line(f"{struck.total()} fault points: {kinds}")
