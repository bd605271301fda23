"""A release on a real cluster, struck everywhere: same bytes, one charge, no torso, no key left.

Scheduler, workers and clients are processes. Points are not listed but counted: an undisturbed
release says how often each place is passed, and then each pass is struck once. `make faults` runs
them all, in shares that several processes take; otherwise a few of each kind.
"""

from __future__ import annotations

import signal
import time

import points
import pytest
from ranges import Range, killed, refused

pytestmark = pytest.mark.slow


def test_a_client_that_is_killed_at_every_step(local, strike):
    assert strike(local, "client killed", points.kills(local.calls), killed(local)) == []


def test_a_client_that_is_killed_at_any_time(local, strike):
    def blow(project, moment):
        client = local.start(project)
        time.sleep(moment * local.seconds)
        client.process.kill()
        assert client.outcome() in (0, -signal.SIGKILL)

    assert strike(local, "client killed at random", points.moments(20, 1), blow) == []


def test_a_full_disk_at_every_write(local, strike):
    assert strike(local, "full disk", points.full_disks(local.calls), refused(local)) == []


def test_a_store_that_fails_at_every_request(local, strike):
    chosen = points.failing_stores(local.calls)
    assert strike(local, "store fails", chosen, refused(local)) == []


def test_a_store_that_stalls_while_another_client_comes(local, strike):
    def blow(project, fault):
        clients = [local.start(project, fault), local.start(project)]
        assert [one.outcome() for one in clients] == [0, 0], [one.said for one in clients]

    assert strike(local, "store stalls", points.stalls(local.calls), blow) == []


def test_a_ledger_that_fails_at_every_statement(local, strike):
    chosen = points.failing_statements(local.calls)
    assert strike(local, "SQLite fails", chosen, refused(local)) == []


def test_a_server_that_drops_the_connection_at_every_statement(shared, local, strike):
    assert shared.undisturbed == local.undisturbed
    chosen = points.disconnections(shared.calls)
    assert strike(shared, "PostgreSQL drops", chosen, refused(shared)) == []


def test_a_client_that_is_killed_at_every_transaction_of_a_shared_ledger(shared, strike):
    chosen = [
        *points.at(shared.calls, points.TRANSACTION, "before", "kill"),
        *points.at(shared.calls, points.TRANSACTION, "after", "kill"),
    ]
    assert strike(shared, "client killed, PostgreSQL", chosen, killed(shared)) == []


def boundaries(ground: Range) -> list[tuple[int, str]]:
    return [(task, when) for task in range(1, ground.tasks + 1) for when in ("before", "after")]


def test_a_worker_that_is_killed_at_every_task(local, strike):
    def blow(project, boundary):
        local.cluster.fault(*boundary, "worker")
        client = local.start(project)
        while client.process.exitcode is None:
            local.cluster.restore()
            client.process.join(0.1)
        assert client.outcome() == 0, client.said

    assert strike(local, "worker killed", boundaries(local), blow) == []


def test_a_worker_that_is_killed_at_any_time(local, strike):
    def blow(project, moment):
        client = local.start(project)
        time.sleep(moment * local.seconds)
        local.cluster.kill(local.cluster.workers[0])
        while client.process.exitcode is None:
            local.cluster.restore()
            client.process.join(0.1)
        assert client.outcome() in (0, 1), client.said  # 1: killed between a look and a question
        assert "internal error" not in client.said, client.said

    assert strike(local, "worker killed at random", points.moments(10, 2), blow) == []


def test_a_scheduler_that_is_killed_at_every_task(local, strike):
    def blow(project, boundary):
        local.cluster.fault(*boundary, local.cluster.scheduler.pid)
        client = local.start(project)
        assert client.outcome() in (0, 1), client.said  # 0: the last task's answer was out
        assert "internal error" not in client.said, client.said

    assert strike(local, "scheduler killed", boundaries(local), blow) == []


def test_a_scheduler_that_is_killed_at_any_time(local, strike):
    def blow(project, moment):
        client = local.start(project)
        time.sleep(moment * local.seconds)
        local.cluster.kill(local.cluster.scheduler)
        assert client.outcome() in (0, 1, 4), client.said
        assert "internal error" not in client.said, client.said

    assert strike(local, "scheduler killed at random", points.moments(10, 3), blow) == []


def test_every_task_run_twice(local, strike):
    def blow(project, task):
        local.cluster.fault(task, "", "again")
        local.run(project)

    assert strike(local, "task run twice", range(local.tasks + 1), blow) == []


@pytest.mark.parametrize("ground", ["local", "shared"])
def test_two_clients_at_once_one_of_which_may_be_killed(ground, request, strike):
    place = request.getfixturevalue(ground)

    def blow(project, moment):
        clients = [place.start(project) for _ in range(2)]
        if moment < 0.5:
            time.sleep(2 * moment * place.seconds)
            clients[0].process.kill()
            clients[0].outcome()
        else:
            assert clients[0].outcome() == 0, clients[0].said
        assert clients[1].outcome() == 0, clients[1].said

    assert strike(place, f"two clients, {ground}", points.moments(10, 4), blow) == []


BUGS = {  # each with a point that must find it
    "commits_before_the_manifest": ("dbern.synopsis.writer:_create_manifest", 1, "before", "kill"),
    "charges_after_the_noise": (f"{points.WRITER}.write", 2, "after", "kill"),
    "draws_other_noise_each_time": (f"{points.WRITER}.write", 2, "after", "kill"),
    "keeps_the_key": (f"{points.WRITER}.write", 2, "after", "kill"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(local, monkeypatch, bug):
    monkeypatch.setattr(local, "bug", bug)
    found = local.strike(f"planted {bug}", [BUGS[bug]], killed(local))
    assert len(found) == 1


def test_the_points_are_enough(local):
    kinds = (points.kills, points.full_disks, points.failing_stores, points.failing_statements)
    assert sum(len(kind(local.calls)) for kind in kinds) >= 200
