"""A release under a PostgreSQL ledger: what is said, and what nobody may read."""

from __future__ import annotations

import points
import pytest
import runner

pytestmark = pytest.mark.slow


@pytest.mark.sample(verify=2)
@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.7, 0.95])
def test_a_connection_that_drops_is_said_without_a_secret(shared, share):
    project = shared.project()
    statement = int(share * shared.calls[points.STATEMENT]) + 1
    client = shared.start(project, (points.STATEMENT, statement, "before", "disconnect"))
    code = client.outcome()
    published = "\nreleased " in client.out  # what comes after reads what the dataset has left
    assert code in ((0,) if published else (1, 4)), client.said
    assert "run the same command again" in client.said.lower()
    assert "internal error" not in client.said
    for secret in secrets(shared, project):
        assert secret not in client.said
    shared.endure(project)


def test_a_lock_lost_before_the_manifest_publishes_nothing(shared):
    project = shared.project()
    fault = (f"{points.WRITER}.finish", 1, "before", "disconnect")
    client = shared.start(project, fault)
    assert client.outcome() == 1, client.said
    assert "the lock of this release" in client.err
    assert not (project.output / "manifest.json").exists()
    shared.endure(project)


def test_nothing_public_holds_a_secret(shared):
    project = shared.project()
    client = shared.start(project)
    assert client.outcome() == 0, client.said
    written = [path.read_bytes() for path in project.output.rglob("*") if path.is_file()]
    hidden = [*secrets(shared, project), project.url]
    hidden.append(bytes.fromhex(hidden[0]).decode("latin1"))
    for one in hidden:
        assert all(one.encode("latin1") not in text for text in written)
        assert one not in client.said
    for one in (hidden[0], runner.KEY.hex()):
        assert one not in shared.server.log
    shared.endure(project)


def secrets(shared, project) -> list[str]:
    """That of the ledger, and the server's password."""
    environment = shared.secrets(project)
    return [environment["DBERN_LEDGER_SECRET"], environment["PGPASSWORD"]]
