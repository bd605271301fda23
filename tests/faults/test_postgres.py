"""A release under a PostgreSQL ledger: killed, disconnected, raced; same bytes and one charge."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).with_name("runner.py")
SPEC = {"mechanism": {"k": [40, 8], "h": 2}}
LEDGER = "dbern.ledger.ledger:BudgetLedger"
EXECUTE = "psycopg:Cursor.execute"

pytestmark = pytest.mark.slow


def start(project, *faults, arguments=("release", "release.toml")):
    return subprocess.Popen(
        [sys.executable, str(RUNNER), json.dumps({"slab": 100, "faults": faults}), *arguments],
        cwd=project.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def outcome(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.fixture
def shared(project, helpers, postgres_url):
    """The standard project under a ledger in PostgreSQL."""
    made = helpers.Project(project.folder, shared=postgres_url)
    made.grant()
    made.spec(**SPEC)
    return made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The objects that the same release has under a SQLite ledger: they are the same."""
    from projects import Project, objects, records

    made = Project(tmp_path_factory.mktemp("undisturbed"))
    made.write(records())
    made.spec(**SPEC)
    made.grant()
    code, _, err = outcome(start(made))
    assert code == 0, err
    return objects(made.output)


@pytest.fixture
def resumes(server, shared, undisturbed, helpers, tmp_path):
    def check():
        code, out, err = outcome(start(shared))
        assert code == 0, err
        assert "released" in out
        assert helpers.objects(shared.output) == undisturbed
        assert shared.spent() == "epsilon 1, epsilon 0 reserved"
        assert len(shared.ledger().status("trips")[0].releases) == 1
        assert server.execute("SELECT * FROM keys", shared.url.rpartition("/")[2]) == []
        kept = (".mark", ".runs", ".jsonl")
        staged = [path for path in (tmp_path / "shared").rglob("*") if path.suffix not in kept]
        assert [path.parent.name for path in staged] == ["shared"]  # the ledger's own, empty

    return check


POINTS = [
    (f"{LEDGER}.reserve", 1, "after", "reserved"),
    ("dbern.ledger.staging:Staging.put", 2, "after", "reading"),
    ("dbern.synopsis.writer:SynopsisWriter.write", 3, "after", "spent"),
    ("dbern.ledger.remains:Remains.destroy", 1, "before", "committed"),
]


@pytest.mark.parametrize(("place", "call", "when", "state"), POINTS)
def test_killed_anywhere_it_goes_on(shared, resumes, place, call, when, state):
    code, _, err = outcome(start(shared, (place, call, when, "kill")))
    assert code == -signal.SIGKILL, err
    assert shared.reservation().state == state
    resumes()


# Of the statements of one release: on opening, reserving, reading, charging and committing.
@pytest.mark.parametrize("statement", [5, 23, 41, 59, 75])
def test_a_connection_that_drops_at_a_statement_loses_nothing(
    server, shared, resumes, statement, undisturbed
):
    code, out, err = outcome(start(shared, (EXECUTE, statement, "before", "disconnect")))
    assert code in (1, 4), err
    assert "run the same command again" in err
    assert "internal error" not in err
    assert server.password not in out + err
    assert os.environ["DBERN_LEDGER_SECRET"] not in out + err
    resumes()


def test_a_lock_lost_before_the_manifest_publishes_nothing(server, shared, resumes):
    place = "dbern.synopsis.writer:SynopsisWriter.finish"
    code, _, err = outcome(start(shared, (place, 1, "before", "disconnect")))
    assert code == 1, err
    assert "the lock of this release" in err
    assert not (shared.output / "manifest.json").exists()
    resumes()


def test_four_clients_at_once_all_succeed_and_charge_once(shared, undisturbed, helpers):
    clients = [start(shared, arguments=("release", "release.toml", "--json")) for _ in range(4)]
    ended = [outcome(one) for one in clients]
    assert [code for code, _, _ in ended] == [0] * 4, ended
    assert sorted(len(json.loads(out)["notes"]) for _, out, _ in ended) == [0, 1, 1, 1]
    assert helpers.objects(shared.output) == undisturbed
    assert shared.spent() == "epsilon 1, epsilon 0 reserved"


def test_nothing_public_holds_a_secret(server, shared):
    code, out, err = outcome(start(shared))
    assert code == 0, err
    written = [path.read_bytes() for path in shared.output.rglob("*") if path.is_file()]
    secret = os.environ["DBERN_LEDGER_SECRET"]
    for hidden in (secret, bytes.fromhex(secret).decode("latin1"), server.password, shared.url):
        assert all(hidden.encode("latin1") not in text for text in written)
        assert hidden not in out + err
    for hidden in (secret, bytes(range(32)).hex()):  # the runner's key, too
        assert hidden not in server.log
